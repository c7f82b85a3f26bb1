"""Predicted errors of mechanisms against the measured errors of their feature maps.

Over 1,500 draws the measured error has a relative standard error of at most 3 %, and so does the sampled part
of a prediction. The tolerance of 15 % is what the documentation promises, and four times both together. Seeds
are fixed, so only a backend that rounds differently could cause a false alarm.
"""

import numpy as np
import pytest

from robopolicy.attention.catalogue import COUPLINGS, MECHANISMS
from robopolicy.plan.errors import Errors
from robopolicy.plan.families import couplings, shapes
from robopolicy.plan.measure import measured_error
from robopolicy.plan.pairs import in_width, random_directions, sample_pairs

DIM = 8


@pytest.fixture(autouse=True)
def fewer_draws(monkeypatch):
    monkeypatch.setattr("robopolicy.plan.measure.DRAWS", 1500)


@pytest.fixture(scope="module")
def heads():
    """Queries and keys of three heads, with lengths near one and similar directions."""
    rng = np.random.default_rng(0)
    tokens = rng.standard_normal((3, 2, 96, DIM)) + 1.2 * rng.standard_normal((3, 2, 1, DIM))
    tokens *= rng.uniform(0.8, 1.1, (3, 2, 96, 1)) / np.linalg.norm(tokens, axis=-1, keepdims=True)
    return [tuple(pair) for pair in tokens]


@pytest.fixture(scope="module")
def errors(heads):
    return Errors(sample_pairs(heads))


def shape_of(errors, name, m, n, base=None):
    """The first shape with this name and size."""
    return next(
        s for s in shapes(errors.pairs) if (s.name, s.m, s.n) == (name, m, n) and base in (None, s.base.name)
    )


FAMILIES = sorted({s.name for s in shapes(random_directions(1.0, DIM))})
HYBRIDS = [name for name in FAMILIES if "n" in MECHANISMS[name].counts]


def test_the_mechanisms_without_a_prediction_are_the_documented_ones():
    left_out = {"clustered_hybrid", "gaussian_mixture_hybrid", "poisson_positive", "geometric_positive"}
    assert set(MECHANISMS) - set(FAMILIES) == left_out


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_the_error_of_every_mechanism_is_as_predicted(errors, heads, name):
    shape = shape_of(errors, name, 16, 4 if name in HYBRIDS else 0)
    coupling = couplings(shape, DIM)[0 if name in ("poisson", "geometric") else 1]
    measured = measured_error(shape.spec(coupling), heads, DIM)
    assert errors.of(shape, coupling) == pytest.approx(measured, rel=0.15)


# Each kind of coupling once for hybrids: blocks that are sampled, rows of Hadamard matrices, sequences.
HYBRID_COUPLINGS = ("simplex_plus", "fast_simplex", "halton")


@pytest.mark.parametrize(
    ("name", "m", "n", "coupling"),
    [
        pytest.param(
            *case, c, marks=pytest.mark.full if case[2] and c not in HYBRID_COUPLINGS else pytest.mark.slow
        )
        for case in (("optimal_positive", 4, 0), ("angular_hybrid", 16, 8))
        for c in COUPLINGS
    ],
)
def test_the_error_with_every_coupling_is_as_predicted(errors, heads, name, m, n, coupling):
    shape = shape_of(errors, name, m, n)
    measured = measured_error(shape.spec(coupling), heads, DIM)
    assert errors.of(shape, coupling) == pytest.approx(measured, rel=0.15)


@pytest.mark.slow
@pytest.mark.parametrize("base", ["positive", "positive_antithetic", "optimal_positive"])
@pytest.mark.parametrize("name", HYBRIDS)
def test_the_error_of_a_hybrid_of_every_base_is_as_predicted(errors, heads, name, base):
    shape = shape_of(errors, name, 8, 8, base)
    measured = measured_error(shape.spec("simplex"), heads, DIM)
    assert errors.of(shape, "simplex") == pytest.approx(measured, rel=0.15)


@pytest.mark.slow
@pytest.mark.parametrize("dim", [4, 16])
def test_the_error_in_another_width_is_as_predicted(heads, dim):
    errors = Errors(in_width(sample_pairs(heads), dim))
    shape = shape_of(errors, "trigonometric", 16, 0)
    measured = measured_error(shape.spec("orthogonal"), heads, dim)
    assert errors.of(shape, "orthogonal") == pytest.approx(measured, rel=0.15)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("length", "name"),
    [
        *(
            (length, name)
            for length in (0.1, 0.5)
            for name in ("positive", "trigonometric", "optimal_positive")
        ),
        # The errors of positive features are too large here to be measured.
        *((2.0, name) for name in ("trigonometric", "optimal_positive")),
    ],
)
def test_the_error_of_short_and_long_tokens_is_as_predicted(name, length):
    rng = np.random.default_rng(1)
    tokens = rng.standard_normal((3, 2, 96, DIM))
    heads = [tuple(pair) for pair in length * tokens / np.linalg.norm(tokens, axis=-1, keepdims=True)]
    errors = Errors(sample_pairs(heads))
    # In a block of such vectors, the covariances cancel nearly all of the variance for short tokens.
    shape = shape_of(errors, name, 64 if length > 1 else 8, 0)
    measured = measured_error(shape.spec("simplex_plus"), heads, DIM)
    assert errors.of(shape, "simplex_plus") == pytest.approx(measured, rel=0.15)


@pytest.mark.slow
def test_the_same_pairs_and_seed_give_identical_errors(errors):
    again = Errors(errors.pairs)
    for name, n in (("optimal_positive", 0), ("gaussian_hybrid", 4)):
        shape = shape_of(errors, name, 8, n)
        assert again.of(shape, "simplex_plus") == errors.of(shape, "simplex_plus")


def test_orthogonal_blocks_and_more_vectors_reduce_the_error(errors):
    one, more = (shape_of(errors, "trigonometric", m, 0) for m in (8, 16))
    assert errors.of(one, "orthogonal") < 0.95 * errors.of(one, "iid")
    assert errors.of(more, "iid") == pytest.approx(errors.of(one, "iid") / np.sqrt(2), rel=1e-9)


def test_another_width_keeps_lengths_and_angles(heads):
    pairs = sample_pairs(heads)
    for dim in (2, 5, 32):
        moved = in_width(pairs, dim)
        assert moved.x.shape == (len(pairs.x), dim)
        for a, b in ((pairs.x, pairs.x), (pairs.y, pairs.y), (pairs.x, pairs.y)):
            c, d = (moved.x if t is pairs.x else moved.y for t in (a, b))
            np.testing.assert_allclose(np.sum(c * d, 1), np.sum(a * b, 1), atol=1e-9)


def test_sampled_pairs_represent_all_pairs(heads):
    pairs = sample_pairs(heads)
    products = np.concatenate([(q @ k.T).ravel() for q, k in heads])
    chosen = np.sum(pairs.x * pairs.y, axis=1)
    assert np.mean(chosen) == pytest.approx(np.mean(products), abs=0.03)
    assert np.std(chosen) == pytest.approx(np.std(products), rel=0.1)
    squares = [np.mean(np.sum((q[:, None] + k) ** 2, axis=-1)) for q, k in heads]
    np.testing.assert_allclose(np.unique(pairs.square), np.sort(squares), rtol=1e-9)


def test_heads_of_several_sizes_count_alike(heads, monkeypatch):
    monkeypatch.setattr("robopolicy.plan.measure.DRAWS", 3)
    (q, k), *others = heads
    fewer = [(q[:40], k)]
    one, two = (measured_error("positive(m=8)", group, DIM) for group in (fewer, others))
    together = measured_error("positive(m=8)", [*fewer, *others], DIM)
    assert together == pytest.approx(np.sqrt((one**2 + 2 * two**2) / 3), rel=1e-6)


@pytest.mark.parametrize("bad", [0.0, np.nan])
def test_zero_and_nan_tokens_are_refused(heads, bad):
    (q, k), *others = heads
    spoilt = np.where(np.arange(len(q))[:, None] == 3, bad, q)
    with pytest.raises(ValueError, match="a query or key is zero or not finite"):
        sample_pairs([(spoilt, k), *others])

"""Specs: what they name, how they are written, and what is said about wrong ones."""

import jax
import numpy as np
import pytest

from robopolicy.attention import attention, canonical, feature_map
from robopolicy.attention.catalogue import COUPLINGS, MECHANISMS
from robopolicy.attention.positive import positive
from robopolicy.attention.projections import iid


@pytest.mark.parametrize(
    ("spec", "written"),
    [
        ("softmax", "softmax"),
        (" softmax ( ) ", "softmax"),
        ("angular_hybrid(m=8, n=8)", "angular_hybrid(m=8, n=8)"),
        ("angular_hybrid(n=4,m=08)", "angular_hybrid(m=8, n=4)"),
        ("  positive ( m = 256 ,\n coupling = iid ) ", "positive(m=256, coupling=iid)"),
        ("positive(m=256, coupling=orthogonal)", "positive(m=256)"),
        ("angular_hybrid(base=positive, m=8, n=8)", "angular_hybrid(m=8, n=8, base=positive)"),
        ("angular_hybrid(base=positive_antithetic, m=8, n=8)", "angular_hybrid(m=8, n=8)"),
    ],
)
def test_specs_have_one_canonical_form(spec: str, written: str) -> None:
    assert canonical(spec) == written
    assert canonical(written) == written
    attention(spec)


def test_a_spec_equals_the_call_of_its_function() -> None:
    key = jax.random.key(0)
    by_name, by_call = feature_map("positive(m=5, coupling=iid)"), positive(5, iid)
    np.testing.assert_array_equal(by_name.init(key, 3).omega.vectors, by_call.init(key, 3).omega.vectors)


def test_equal_specs_have_one_object() -> None:
    assert attention("positive(m=5)") is attention(" positive( m=05, coupling=orthogonal )")


@pytest.mark.parametrize("name", MECHANISMS)
def test_every_example_is_a_spec_of_its_own_mechanism(name: str) -> None:
    example = MECHANISMS[name].example
    assert example.startswith(f"{name}(")
    assert canonical(example) == example
    assert MECHANISMS[name].factory.__name__ == name


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("angular_hybird(m=8, n=8)", ["'angular_hybird'", "did you mean 'angular_hybrid'?", "softmax"]),
        ("zzz", ["unknown attention 'zzz'", "trigonometric_phase, positive, "]),
        ("favor(m=8)", ["unknown attention 'favor'", "angular_hybrid"]),
        ("positive", ["positive needs m", "positive(m=256)"]),
        ("angular_hybrid(m=8)", ["angular_hybrid needs n", "angular_hybrid(m=8, n=8)"]),
        ("positive(m=0)", ["m is '0'", "positive integer"]),
        ("positive(m=-3)", ["m is '-3'", "positive integer"]),
        ("positive(m=2.5)", ["m is '2.5'", "positive integer"]),
        ("positive(m=many)", ["m is 'many'", "positive integer"]),
        ("positive(m=8.0)", ["m is '8.0'", "positive integer"]),
        ("positive(m=True)", ["m is 'True'", "positive integer"]),
        ("positive(m=1048577)", ["m is '1048577'", "a positive integer of at most 1048576"]),
        ("angular_hybrid(m=8, n=1048577)", ["n is '1048577'", "at most 1048576"]),
        ("positive(m=" + 5000 * "9" + ")", ["m is '999", "at most 1048576"]),
        ("positive(m=8, n=8)", ["positive has no argument 'n'", "m, coupling"]),
        ("positive(m=8, couplng=iid)", ["'couplng'", "did you mean 'coupling'?"]),
        ("positive(m=8, coupling=orthgonal)", ["coupling 'orthgonal'", "did you mean 'orthogonal'?", "iid"]),
        ("angular_hybrid(m=8, n=8, base=softmax)", ["base 'softmax'", "positive_antithetic"]),
        ("positive(m=8, m=9)", ["'m' is given twice"]),
        ("positive(8)", ["'8'", "name=value"]),
        ("positive(m=8,)", ["name=value"]),
        ("positive(m==8)", ["'m==8'", "name=value"]),
        ("positive(m=8", ["it must be a spec such as", "angular_hybrid(m=8, n=8)"]),
        ("positive(m=8))", ["it must be a spec such as"]),
        ("", ["it must be a spec such as"]),
        ("__import__('os')", ["unknown attention '__import__'"]),
        ("softmax(m=8)", ["softmax takes no arguments"]),
        ("softmax(8)", ["softmax takes no arguments"]),
        (None, ["spec is None: it must be a string such as 'angular_hybrid(m=8, n=8)'"]),
        (3, ["spec is 3: it must be a string"]),
        (b"softmax", ["spec is b'softmax': it must be a string"]),
        (["softmax"], ["spec is ['softmax']: it must be a string"]),
        (np.eye(2), ["spec is array([[1., 0.], [0., 1.]]): it must be a string"]),
    ],
)
def test_wrong_specs_are_refused_in_one_line(spec: str, says: list[str]) -> None:
    for function in (attention, feature_map, canonical):
        with pytest.raises(ValueError, match=r".") as raised:
            function(spec)
        message = str(raised.value)
        assert "\n" not in message
        assert all(part in message for part in says), message


def test_softmax_has_no_feature_map() -> None:
    with pytest.raises(
        ValueError, match="softmax is exact and has no feature map; choose from trigonometric"
    ):
        feature_map("softmax")


@pytest.mark.slow
def test_no_draw_calls_lapack() -> None:
    # Two batched LAPACK calls in one program wait for each other for ever on a machine of two cores.
    specs = [m.example for m in MECHANISMS.values()]
    specs += [f"angular_hybrid(m=8, n=4, coupling={coupling})" for coupling in COUPLINGS]
    for spec in specs:
        lowered = jax.jit(lambda key, spec=spec: feature_map(spec).init(key, 8)).lower(jax.random.key(0))
        assert "lapack" not in lowered.as_text(), spec

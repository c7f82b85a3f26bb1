"""Mechanisms and tokens for the tests of attention: every mechanism of the catalogue, with small counts.

The quick part tests softmax and the angular hybrid, which contains most parts of the others. The slow part
tests every mechanism. Tests marked `full` combine parts that other tests check one by one.
"""

import re
from functools import lru_cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from robopolicy.attention import FeatureMap
from robopolicy.attention.catalogue import COUPLINGS, MECHANISMS

# Tests use tokens of width 4: six vectors are a full block of projections and half of one.
SMALL = {"m": 6, "n": 5, "query_clusters": 2, "key_clusters": 2}
QUICK = ("angular_hybrid",)
FAMILIES = (*QUICK, "trigonometric", "optimal_positive", "clustered_hybrid")


def small(name: str, **arguments: str) -> str:
    """The example of a mechanism with small counts and other arguments."""
    given = dict(re.findall(r"(\w+)=([^,)]+)", MECHANISMS[name].example))
    given |= {count: str(SMALL[count]) for count in MECHANISMS[name].counts} | arguments
    return f"{name}({', '.join(f'{a}={v}' for a, v in given.items())})"


def _variants() -> list[str]:
    """Every option of a mechanism that is not the default, except couplings, and constants by hand."""
    chosen = [
        small(name, **{argument: option})
        for name, mechanism in MECHANISMS.items()
        for argument, choice in mechanism.choices.items()
        for option in choice.options
        if argument != "coupling" and option != choice.default
    ]
    return [*chosen, small("generalized_exponential", A="-0.1+0.2j", s="-1")]


def _marked(spec: str, quick: bool, slow: bool):
    return pytest.param(spec, marks=() if quick else pytest.mark.slow if slow else pytest.mark.full, id=spec)


SPECS = [_marked(small(name), name in QUICK, True) for name in MECHANISMS]
VARIANTS = [_marked(spec, False, False) for spec in _variants()]
SAMPLE = [_marked(small(name), name in QUICK, name in FAMILIES) for name in MECHANISMS]
SAMPLE += [_marked(spec, False, False) for spec in _variants()]
SOFTMAX = pytest.param("softmax", id="softmax")
# Couplings change the draw only. The second map also uses the lengths of its vectors, which structured ones
# compute separately.
COUPLED = [
    _marked(small(name, coupling=coupling), False, (name, coupling) == ("optimal_positive", "fast_simplex"))
    for coupling in COUPLINGS
    for name in ("positive", "optimal_positive")
    if coupling != MECHANISMS[name].choices["coupling"].default
]


# Tests of closed forms cover the means of all others. Independent vectors compile fastest.
OPEN = [
    _marked(small(name, coupling="iid", **matrices), False, not matrices)
    for name in ("clustered_hybrid", "gaussian_mixture_hybrid")
    for matrices in ({}, {"matrices": "real"})
]


# Of scope module, so that all tests of a mechanism run in turn and share its compiled code.
@pytest.fixture(scope="module", params=[*SPECS, *VARIANTS, SOFTMAX])
def any_spec(request: pytest.FixtureRequest) -> str:
    """The spec of every mechanism."""
    return request.param


@pytest.fixture(scope="module", params=SAMPLE)
def spec(request: pytest.FixtureRequest) -> str:
    """The spec of a mechanism of every family with random features; of all of them in the full part."""
    return request.param


@pytest.fixture(
    scope="module", params=[_marked(p.values[0], False, p.marks != (pytest.mark.full,)) for p in SAMPLE]
)
def slow_spec(request: pytest.FixtureRequest) -> str:
    """Those of `spec`, and none in the quick part."""
    return request.param


@pytest.fixture(scope="module", params=[*SAMPLE, SOFTMAX])
def spec_or_softmax(request: pytest.FixtureRequest) -> str:
    """Those of `spec`, and softmax."""
    return request.param


@pytest.fixture(params=[*OPEN, *COUPLED])
def coupled_spec(request: pytest.FixtureRequest) -> str:
    """The spec of every mechanism whose error has no closed form, and of every coupling."""
    return request.param


@pytest.fixture
def small_spec():
    """(name, **arguments) -> the example of a mechanism with small counts and other arguments."""
    return small


@pytest.fixture(scope="session")
def tokens():
    """(key, count, width, norm=1) -> [count, width], random tokens of one length."""

    def draw(seed: int, count: int, width: int, norm: float = 1.0) -> Array:
        x = jax.random.normal(jax.random.key(seed), (count, width))
        return norm * x / jnp.linalg.norm(x, axis=1, keepdims=True)

    return draw


@pytest.fixture
def explicit_kernel():
    """(map, features, x, y) -> [T, S] in double precision, from the features written out."""

    def kernel(feature_map: FeatureMap, features, x: Array, y: Array, adapt: bool = True) -> np.ndarray:
        written_out = _written_out(feature_map, adapt)(features, x, y)
        (q, log_q), (k, log_k) = jax.tree.map(lambda a: np.asarray(a, np.float64), written_out)
        return (q @ k.T) * np.exp(log_q[:, None] + log_k)

    return kernel


@lru_cache
def _written_out(feature_map: FeatureMap, adapt: bool):
    @partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
    def sides(features, x, y):
        features = feature_map.adapt(features, x, y, None) if adapt else features
        queries, keys = feature_map.apply_q(features, x), feature_map.apply_k(features, y)
        return (queries.values, queries.log_scale), (keys.values, keys.log_scale)

    return sides

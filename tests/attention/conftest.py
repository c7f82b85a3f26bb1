"""What the tests of attention run over: every mechanism of the catalogue, made small, and tokens."""

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


def small(name: str, **arguments: str) -> str:
    """The example of a mechanism with small counts, and other arguments as given."""
    given = dict(re.findall(r"(\w+)=([^,)]+)", MECHANISMS[name].example))
    given |= {count: str(SMALL[count]) for count in MECHANISMS[name].counts} | arguments
    return f"{name}({', '.join(f'{a}={v}' for a, v in given.items())})"


def _variants() -> list[str]:
    """Every other choice that a mechanism offers, couplings apart, and constants that are given."""
    chosen = [
        small(name, **{argument: option})
        for name, mechanism in MECHANISMS.items()
        for argument, choice in mechanism.choices.items()
        for option in choice.options
        if argument != "coupling" and option != choice.default
    ]
    return [*chosen, small("generalized_exponential", A="-0.1+0.2j", s="-1")]


# The quick part takes one or two mechanisms of each family, the whole takes all.
QUICK = ("trigonometric", "positive", "generalized_exponential", "geometric_positive", "angular_hybrid")
QUICK += ("clustered_hybrid",)
SPECS = [
    pytest.param(small(name), marks=() if name in QUICK else pytest.mark.slow, id=small(name))
    for name in MECHANISMS
]
VARIANTS = [pytest.param(spec, marks=pytest.mark.slow) for spec in _variants()]
# Couplings change what is drawn and nothing after that, so only tests of draws run over these. The second
# map is the one that looks at the length of its vectors. The quick part takes those that compile fastest.
COUPLED = [
    pytest.param(
        small(name, coupling=coupling),
        marks=() if name == "positive" and coupling in ("iid", "simplex") else pytest.mark.slow,
        id=small(name, coupling=coupling),
    )
    for coupling in COUPLINGS
    for name in ("positive", "optimal_positive")
    if coupling != MECHANISMS[name].choices["coupling"].default
]


@pytest.fixture(params=[*SPECS, *VARIANTS])
def spec(request: pytest.FixtureRequest) -> str:
    """The spec of every mechanism with random features."""
    return request.param


@pytest.fixture(params=[*SPECS, *VARIANTS, *COUPLED])
def coupled_spec(request: pytest.FixtureRequest) -> str:
    """The spec of every mechanism with random features, and of every coupling."""
    return request.param


@pytest.fixture(params=[*SPECS, *VARIANTS, "softmax"])
def any_spec(request: pytest.FixtureRequest) -> str:
    """The spec of every mechanism."""
    return request.param


@pytest.fixture
def small_spec():
    """(name, **arguments) -> the example of a mechanism with small counts, and other arguments as given."""
    return small


@pytest.fixture
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

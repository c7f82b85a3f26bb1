"""What the tests of attention run over: one table of mechanisms, and tokens of one head."""

from functools import lru_cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from robopolicy.attention import FeatureMap

# m and n lie below, at and above the widths of the tests: blocks partly filled, full and repeated.
SPECS = [
    "trigonometric(m=6)",
    "positive(m=3)",
    "positive_antithetic(m=8)",
    "angular_hybrid(m=4, n=6)",
    "angular_hybrid(m=6, n=2, base=positive)",
]
# Couplings change what is drawn and nothing after that, so only tests of draws run over these.
OTHER_COUPLINGS = [
    "trigonometric(m=6, coupling=iid)",
    "positive(m=6, coupling=iid)",
    "positive_antithetic(m=6, coupling=iid)",
    "angular_hybrid(m=6, n=5, coupling=iid)",
]


@pytest.fixture(params=SPECS)
def spec(request: pytest.FixtureRequest) -> str:
    """The spec of every mechanism with random features."""
    return request.param


@pytest.fixture(params=[*SPECS, *OTHER_COUPLINGS])
def coupled_spec(request: pytest.FixtureRequest) -> str:
    """The spec of every mechanism with random features, under every coupling."""
    return request.param


@pytest.fixture(params=[*SPECS, "softmax"])
def any_spec(request: pytest.FixtureRequest) -> str:
    """The spec of every mechanism."""
    return request.param


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

    def kernel(feature_map: FeatureMap, features, x: Array, y: Array) -> np.ndarray:
        written_out = _written_out(feature_map)(features, x, y)
        (q, log_q), (k, log_k) = jax.tree.map(lambda a: np.asarray(a, np.float64), written_out)
        return (q @ k.T) * np.exp(log_q[:, None] + log_k)

    return kernel


@lru_cache
def _written_out(feature_map: FeatureMap):
    @partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
    def sides(features, x, y):
        queries, keys = feature_map.apply_q(features, x), feature_map.apply_k(features, y)
        return (queries.values, queries.log_scale), (keys.values, keys.log_scale)

    return sides

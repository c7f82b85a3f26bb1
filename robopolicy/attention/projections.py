"""Couplings: joint distributions of m projection vectors, each marginally N(0, I_D).

A coupling draws a Projection, which projects tokens. Most projections store their vectors; those of Hadamard
transforms (structured.py) store signs and lengths.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from math import inf
from numbers import Integral, Real
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray


class Projection(Protocol):
    """m drawn vectors omega, a pytree.

    Attributes:
      shape: (m, D).
    """

    @property
    def shape(self) -> tuple[int, int]: ...

    def project(self, x: Array) -> Array:
        """omega.x [T, m] for tokens x [T, D]."""
        ...

    def squares(self) -> Array:
        """|omega|^2, [m]."""
        ...


LARGEST = 1e9  # of a mechanism's numbers: float32 holds its fourth power

Coupling = Callable[[Array, int, int], Projection]
"""(key, m, dim) -> a projection of shape (m, dim)."""


class Dense(NamedTuple):
    """A projection that stores its vectors [m, D]."""

    vectors: Array

    @property
    def shape(self) -> tuple[int, int]:
        return self.vectors.shape[-2], self.vectors.shape[-1]

    def project(self, x: Array) -> Array:
        return x @ self.vectors.T

    def squares(self) -> Array:
        return jnp.sum(self.vectors**2, axis=-1)


def along(omega: Projection, x: Array) -> Array:
    """omega.x [T, m] for tokens x [T, D]. Raises ValueError if the widths differ."""
    check_width(x, omega.shape[1])
    return omega.project(x)


def check_width(x: Array, dim: int) -> None:
    """Raise ValueError unless x are tokens [T, dim]."""
    if x.ndim != 2 or x.shape[1] != dim:
        raise ValueError(f"tokens have shape {x.shape}; these features were drawn for [tokens, {dim}]")


def check_counts(**counts: int) -> None:
    """Raise ValueError naming the first of `counts` that is not a positive integer."""
    for name, count in counts.items():
        if isinstance(count, bool) or not isinstance(count, Integral) or count < 1:
            raise ValueError(f"{name} is {count!r}: it must be a positive integer")


def check_positive(below: float = inf, **numbers: float) -> None:
    """Raise ValueError naming the first of `numbers` that is not a number above 0 and below the limit.

    A number must also be 1/LARGEST or more, and at most LARGEST.
    """
    for name, number in numbers.items():
        if isinstance(number, bool) or not isinstance(number, Real) or not 0 < number < below:
            allowed = "a finite number above 0" if below == inf else f"a number above 0 and below {below:g}"
            raise ValueError(f"{name} is {number!r}: it must be {allowed}")
        check_size(name, number)


def check_size(name: str, number: complex, least: float = 1 / LARGEST) -> None:
    """Raise ValueError for a number whose powers, or those of its inverse, overflow float32."""
    if not least <= abs(number) <= LARGEST:
        allowed = f"{least:g} or more" if abs(number) < least else f"{LARGEST:g} or less"
        raise ValueError(f"{name} is {number!r}: its size must be {allowed}")


def vectors(omega: Projection) -> Array:
    """The vectors themselves, [m, D]."""
    return omega.project(jnp.eye(omega.shape[1])).T


def iid(key: Array, m: int, dim: int) -> Dense:
    """Independent Gaussian vectors."""
    return Dense(jax.random.normal(key, (m, dim)))


def orthogonal(key: Array, m: int, dim: int) -> Dense:
    """Blocks of `dim` orthogonal vectors, blocks independent of one another.

    Directions are Haar-distributed and norms are chi_dim, independent of the directions (Yu et al.,
    Orthogonal Random Features, section 3).
    """
    direction_key, norm_key = jax.random.split(key)
    rotations = _rotations(direction_key, m, dim)
    return Dense(_rows(rotations, m) * norms(norm_key, m, dim)[:, None])


def simplex(key: Array, m: int, dim: int) -> Dense:
    """Blocks of `dim` vectors to the corners of a simplex, rotated at random: D(S(R)), SimRF Eq. 8 and 9.

    Of all positive features whose directions are independent of their norms, these have the lowest error
    (SimRF Theorem 3.4). A draw takes hardly more work than `orthogonal`.
    """
    direction_key, norm_key = jax.random.split(key)
    return Dense(_rows(_corners(direction_key, m, dim), m) * norms(norm_key, m, dim)[:, None])


def simplex_plus(key: Array, m: int, dim: int, passes: int = 12) -> Dense:
    """`simplex`, then every vector rotated away from the sum of the others in its block, SimRF Eq. 17.

    Longer vectors end up at wider angles. Directions depend on norms, but not on the rotation of the block,
    so each vector stays Gaussian. After 12 passes over a block less than 1e-3 of the way remains.
    """
    direction_key, norm_key = jax.random.split(key)
    corners = _corners(direction_key, m, dim)
    # Vectors that fill up the last block have length zero, so they do not affect the others.
    lengths = jnp.pad(norms(norm_key, m, dim), (0, len(corners) * dim - m)).reshape(len(corners), dim)
    return Dense(_rows(_turn_away(corners * lengths[..., None], lengths, passes), m))


def halton(key: Array, m: int, dim: int) -> Dense:
    """The first m points of a scrambled Halton sequence through the normal quantile (Avron et al. 2016).

    Every point is uniform by itself, since each digit of each coordinate is permuted at random. In few
    dimensions the points fill the cube more evenly than independent ones.
    """
    shape = jax.ShapeDtypeStruct((m, dim), jnp.float32)
    seed = jax.random.bits(key, (4,), jnp.uint32)
    return Dense(jax.pure_callback(_halton_of(m, dim), shape, seed, vmap_method="sequential"))


@lru_cache(maxsize=64)
def _halton_of(m: int, dim: int) -> Callable[[NDArray[np.uint32]], NDArray[np.float32]]:
    # One object for each shape, so that JAX finds its compiled code again.
    return partial(_halton, m, dim)


def _halton(m: int, dim: int, seed: NDArray[np.uint32]) -> NDArray[np.float32]:
    from scipy import special
    from scipy.stats import qmc

    generator = np.random.default_rng([int(word) for word in np.asarray(seed)])
    points = qmc.Halton(dim, scramble=True, seed=generator).random(m)
    edge = np.finfo(np.float64).epsneg
    return special.ndtri(np.clip(points, edge, 1 - edge)).astype(np.float32)


def to_simplex(coordinates: Array) -> Array:
    """S applied to the last axis, in time linear in its length d (SimRF Eq. 9 and B.2.1).

    The rows of S are unit vectors with dot products -1/(d - 1); for d = 1 it is the identity.
    """
    d = coordinates.shape[-1]
    if d == 1:
        return coordinates
    total = jnp.sum(coordinates[..., :-1], axis=-1, keepdims=True)
    first = np.sqrt(d / (d - 1)) * coordinates[..., :-1] - (np.sqrt(d) + 1) / (d - 1) ** 1.5 * total
    return jnp.concatenate([first, total / np.sqrt(d - 1)], axis=-1)


def norms(key: Array, m: int, dim: int) -> Array:
    """m independent draws of chi_dim, the length of a Gaussian vector."""
    return jnp.linalg.norm(jax.random.normal(key, (m, dim)), axis=1)


def _rotations(key: Array, m: int, dim: int) -> Array:
    """Haar-distributed orthogonal matrices [blocks, dim, dim], in as many blocks as m rows need."""
    return _gram_schmidt(jax.random.normal(key, (-(-m // dim), dim, dim)))


def _corners(key: Array, m: int, dim: int) -> Array:
    """Unit vectors to the corners of randomly rotated simplexes [blocks, dim, dim]."""
    return to_simplex(_rotations(key, m, dim).swapaxes(-1, -2)).swapaxes(-1, -2)


# Compiled once for all draws of one shape.
@jax.jit
def _gram_schmidt(gaussian: Array) -> Array:
    """The Q of each block's QR decomposition, [blocks, dim, dim]; each column is orthogonalised twice.

    Its products keep all bits of float32 on GPUs, too. LAPACK's QR is not an option: two batched calls in one
    program deadlock on a machine of two cores.
    """
    product = partial(jnp.einsum, precision="highest")

    def place(column: Array, q: Array) -> Array:
        v = gaussian[:, :, column]
        for _ in range(2):  # the second pass removes the rounding errors of the first
            v = v - product("bij,bj->bi", q, product("bij,bi->bj", q, v))
        return q.at[:, :, column].set(v / jnp.linalg.norm(v, axis=1, keepdims=True))

    return jax.lax.fori_loop(0, gaussian.shape[-1], place, jnp.zeros_like(gaussian))


@partial(jax.jit, static_argnames="passes")
def _turn_away(block: Array, lengths: Array, passes: int) -> Array:
    """Each vector of a block [blocks, dim, dim] rotated away from the sum of the others, `passes` times."""
    dim = block.shape[-1]

    def turn(step: Array, block: Array) -> Array:
        i = step % dim
        others = jnp.sum(block, axis=1) - block[:, i]
        size = jnp.linalg.norm(others, axis=-1, keepdims=True)
        away = jnp.where(size > 0, -others / jnp.maximum(size, 1e-30) * lengths[:, i, None], block[:, i])
        return block.at[:, i].set(away)

    return jax.lax.fori_loop(0, passes * dim, turn, block)


def _rows(blocks: Array, m: int) -> Array:
    return blocks.reshape(-1, blocks.shape[-1])[:m]

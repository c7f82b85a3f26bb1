"""Draws of projection vectors: m vectors, each marginally N(0, I_D), coupled in a stated way.

A coupling draws a Projection, an object that projects tokens. Most store their vectors; those made of
Hadamard transforms (structured.py) store signs.
"""

from collections.abc import Callable
from functools import lru_cache, partial
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
        if isinstance(count, bool) or not isinstance(count, (int, np.integer)) or count < 1:
            raise ValueError(f"{name} is {count}: it must be a positive integer")


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
    """Blocks of `dim` vectors to the corners of a simplex, turned at random: D(S(R)), SimRF Eq. 8 and 9.

    Obtuse angles cover space better than right ones: the lowest error of all positive features whose
    directions do not depend on their norms (SimRF Theorem 3.4), from no more work than `orthogonal`.
    """
    direction_key, norm_key = jax.random.split(key)
    corners = to_simplex(_rotations(direction_key, m, dim).swapaxes(-1, -2)).swapaxes(-1, -2)
    return Dense(_rows(corners, m) * norms(norm_key, m, dim)[:, None])


def simplex_plus(key: Array, m: int, dim: int, passes: int = 12) -> Dense:
    """`simplex`, then every vector turned away from the sum of the others in its block, SimRF Eq. 17.

    Longer vectors end up at wider angles. Directions depend on norms, not on which way the block is turned,
    so each vector stays Gaussian. `passes` over a block leave less than 1e-3 of the way to go.
    """
    direction_key, norm_key = jax.random.split(key)
    rotations = _rotations(direction_key, m, dim)
    corners = to_simplex(rotations.swapaxes(-1, -2)).swapaxes(-1, -2)
    drawn = norms(norm_key, m, dim)
    # A block that is not full is arranged as the vectors it has: the others have length zero and no effect.
    lengths = jnp.pad(drawn, (0, len(corners) * dim - m)).reshape(len(corners), dim)
    return Dense(_rows(_turn_away(corners * lengths[..., None], lengths, passes), m))


def halton(key: Array, m: int, dim: int) -> Dense:
    """The first m points of a scrambled Halton sequence through the normal quantile (Avron et al. 2016).

    Every point is uniform by itself, as each digit of each coordinate is permuted at random; together they
    fill the cube more evenly than independent ones, in few dimensions.
    """
    shape = jax.ShapeDtypeStruct((m, dim), jnp.float32)
    seed = jax.random.bits(key, (4,), jnp.uint32)
    return Dense(jax.pure_callback(_halton_of(m, dim), shape, seed, vmap_method="sequential"))


@lru_cache(maxsize=64)
def _halton_of(m: int, dim: int) -> Callable[[NDArray[np.uint32]], NDArray[np.float32]]:
    # One object for one shape, so that compiled code is found again.
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
    """Haar-distributed orthogonal matrices [blocks, dim, dim], as many as hold m rows."""
    return _gram_schmidt(jax.random.normal(key, (-(-m // dim), dim, dim)))


# Loops are compiled, and a jitted function of the module is compiled once for all draws of one shape.
@jax.jit
def _gram_schmidt(gaussian: Array) -> Array:
    """The Q of each block's QR decomposition, [blocks, dim, dim]; each column is orthogonalised twice.

    LAPACK's QR will not do: two batched calls in one program deadlock on a machine of two cores.
    """

    def place(column: Array, q: Array) -> Array:
        v = gaussian[:, :, column]
        for _ in range(2):  # the second pass removes the rounding errors of the first
            v = v - jnp.einsum("bij,bj->bi", q, jnp.einsum("bij,bi->bj", q, v))
        return q.at[:, :, column].set(v / jnp.linalg.norm(v, axis=1, keepdims=True))

    return jax.lax.fori_loop(0, gaussian.shape[-1], place, jnp.zeros_like(gaussian))


@partial(jax.jit, static_argnames="passes")
def _turn_away(block: Array, lengths: Array, passes: int) -> Array:
    """Each vector of a block [blocks, dim, dim] turned away from the sum of the others, `passes` times."""
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

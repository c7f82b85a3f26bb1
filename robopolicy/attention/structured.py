"""Projections made of fast Walsh-Hadamard transforms: O(D log D) per token, stored as signs and lengths.

The directions are those of H D_3 H D_2 H D_1 with random signs D (Yu et al., Orthogonal Random Features,
Eq. 5; Choromanski et al. 2017), the norms are chi draws. Tokens are padded with zeros to a power of two, P.
Such directions take finitely many values, so the vectors are Gaussian only in the limit of large P. The
kernel estimate has a bias, whose sign depends on the direction of x + y; for D = P, it is zero on average
over all directions. At |x + y| = 2, that of `hadamard` is -32 to 33 % of the kernel for P = 2, -11 to 23 %
for P = 4, -3.4 to 4.4 % for P = 8, and -1.5 to 0.8 % for P = 16, with standard errors of up to 0.7 %. It
mostly increases with |x + y|: at 3, it is up to 64 % for P = 8 (benchmarks/papers/orf_fig3.py).
"""

from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax import Array

from robopolicy.attention.projections import norms, to_simplex


class Hadamard(NamedTuple):
    """m rows of blocks of H D_3 H D_2 H D_1, scaled.

    Attributes:
      first: [blocks, D], the signs of D_1, without those that would multiply the padding.
      rest: [blocks, 2, P], the signs of D_2 and D_3.
      norms: [m].
      square_norms: [m], of the vectors without their coordinates on the padding.
    """

    first: Array
    rest: Array
    norms: Array
    square_norms: Array

    @property
    def shape(self) -> tuple[int, int]:
        return self.norms.shape[-1], self.first.shape[-1]

    def project(self, x: Array) -> Array:
        return _flat(_directions(self.first, self.rest, x), self.norms)

    def squares(self) -> Array:
        return self.square_norms


class FastSimplex(Hadamard):
    """`Hadamard` with the directions of a simplex: D(S(HDHDHD x)) (SimRF section 4.2)."""

    def project(self, x: Array) -> Array:
        return _flat(to_simplex(_directions(self.first, self.rest, x)), self.norms)


Kind = TypeVar("Kind", bound=Hadamard)


def hadamard(key: Array, m: int, dim: int) -> Hadamard:
    """Structured orthogonal vectors (SORF), in blocks of P, the least power of two that is `dim` or more."""
    return _drawn(Hadamard, key, m, dim)


def fast_simplex(key: Array, m: int, dim: int) -> FastSimplex:
    """`simplex` with H D H D H D in place of the random rotation."""
    return _drawn(FastSimplex, key, m, dim)


def walsh_hadamard(x: Array) -> Array:
    """H x along the last axis, whose length P is a power of two, in P log2 P additions; H has entries +-1."""
    shape, span = x.shape, 1
    while span < shape[-1]:
        # Two levels at a time need the same additions and half the passes through memory.
        radix = min(4, shape[-1] // span)
        parts = jnp.moveaxis(x.reshape(*shape[:-1], -1, radix, span), -2, 0)
        sums, differences = parts[0::2] + parts[1::2], parts[0::2] - parts[1::2]
        if radix == 4:
            rows = [sums[0] + sums[1], differences[0] + differences[1]]
            rows += [sums[0] - sums[1], differences[0] - differences[1]]
        else:
            rows = [sums[0], differences[0]]
        x = jnp.stack(rows, axis=-2).reshape(shape)
        span *= radix
    return x


def _drawn(kind: type[Kind], key: Array, m: int, dim: int) -> Kind:
    first_key, rest_key, norm_key = jax.random.split(key, 3)
    size = 1 << (dim - 1).bit_length()
    blocks = -(-m // size)
    first = jax.random.rademacher(first_key, (blocks, dim), jnp.int8)
    rest = jax.random.rademacher(rest_key, (blocks, 2, size), jnp.int8)
    drawn = kind(first, rest, norms(norm_key, m, size), jnp.zeros(m))
    return drawn._replace(square_norms=jnp.sum(drawn.project(jnp.eye(dim)) ** 2, axis=0))


def _directions(first: Array, rest: Array, x: Array) -> Array:
    """Tokens [T, D] in the coordinates of every block, [T, blocks, P]."""
    size = rest.shape[-1]
    z = jnp.pad(x[:, None, :] * first.astype(x.dtype), ((0, 0), (0, 0), (0, size - x.shape[1])))
    for signs in (rest[:, 0], rest[:, 1]):
        z = walsh_hadamard(z) * signs.astype(x.dtype)
    return walsh_hadamard(z) * size**-1.5


def _flat(directions: Array, lengths: Array) -> Array:
    return directions.reshape(len(directions), -1)[:, : len(lengths)] * lengths

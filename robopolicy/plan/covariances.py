"""What two vectors that are drawn together add to the variance of an estimate.

The variance of a mean over m vectors is that of independent ones, which theory.py has in closed form, and the
covariances of all pairs of different vectors. These are zero between blocks; within a block they have a
closed form for some estimators (conformity.py), and are sampled for the others.
"""

from __future__ import annotations

from functools import partial
from threading import Lock

import jax
import numpy as np
from jax import Array

from robopolicy.attention.catalogue import COUPLINGS
from robopolicy.attention.conformity import BASES, ORTHOGONAL, SIMPLEX, coupled_mse
from robopolicy.attention.projections import Coupling, vectors
from robopolicy.attention.theory import Doubles
from robopolicy.plan.pairs import Pairs
from robopolicy.plan.vectors import ALIASES, TERMS, Base, Seen, expected

INDEPENDENT, WHOLE = "iid", "halton"
ALIKE = (ORTHOGONAL, SIMPLEX)  # any two vectors of a block are jointly distributed as any other two
STRUCTURED = ("hadamard", "fast_simplex")
NUMBERS, LEAST, MOST = 2**19, 32, 256  # numbers in a sample, and the fewest and most draws
CALLING = Lock()
POINTS = (16, 256)  # lengths of the sequences that are drawn; shorter ones are their beginnings


def block_sizes(coupling: str, m: int, dim: int) -> list[int]:
    """How many of m vectors are drawn together, block by block."""
    if coupling == INDEPENDENT:
        return [1] * m
    width = m if coupling == WHOLE else padded(dim) if coupling in STRUCTURED else dim
    full, rest = divmod(m, width)
    return [width] * full + [rest] * (rest > 0)


def padded(dim: int) -> int:
    """The power of two from `dim` up, which Hadamard matrices need."""
    return 1 << (dim - 1).bit_length()


class Covariances:
    """Of the estimates that vectors make of given pairs."""

    def __init__(self, pairs: Pairs, seed: int = 0) -> None:
        self.pairs, self.seed = pairs, seed
        self._seen: dict[tuple[str, int], Seen] = {}
        self._variances: dict[tuple[Base, str, int], Doubles] = {}
        self._means: dict[tuple[Base, Base, str, int], Doubles] = {}

    def added(self, first: Base, second: Base, coupling: str, m: int) -> Doubles:
        """[P]: what different vectors add to the covariance of two means over the same m vectors."""
        first, second = (b._replace(name=ALIASES.get(b.name, b.name)) for b in (first, second))
        total = np.zeros(len(self.pairs.x))
        for size in block_sizes(coupling, m, self.pairs.dim):
            if size > 1:
                total += size * (size - 1) * self._mean(first, second, coupling, size)
        return total / m**2

    def closed(self, base: Base, coupling: str) -> bool:
        """Whether the variance of an estimator has a closed form."""
        return coupling == INDEPENDENT or (base.name in BASES and coupling in ALIKE)

    def variance(self, base: Base, coupling: str, m: int) -> Doubles:
        """[P]: the variance of a mean over m vectors, sampled as a whole.

        For what does not vary much: a variance that covariances all but take away is lost in their noise.
        """
        total = np.zeros(len(self.pairs.x))
        for size in block_sizes(coupling, m, self.pairs.dim):
            which = (base, coupling, size)
            if which not in self._variances:
                sums = np.sum(self._centred(*which), axis=-1)
                self._variances[which] = np.mean(sums**2, axis=0)
            total += self._variances[which]
        return total / m**2

    def _mean(self, first: Base, second: Base, coupling: str, size: int) -> Doubles:
        """[P]: the covariance of two different vectors of a block, on average."""
        size = self.pairs.dim if coupling in ALIKE else size
        which = (first, second, coupling, size)
        if which not in self._means:
            closed = first == second and self.closed(first, coupling)
            self._means[which] = self._closed(first, coupling) if closed else self._sampled(*which)
        return self._means[which]

    def _closed(self, base: Base, coupling: str) -> Doubles:
        x, y = self.pairs.x, self.pairs.y
        # Of two vectors: MSE = (MSE of one + covariance) / 2.
        return 2 * coupled_mse(base.name, coupling, x, y, 2) - BASES[base.name][0](x, y, 1)

    def _sampled(self, first: Base, second: Base, coupling: str, size: int) -> Doubles:
        a, b = self._centred(first, coupling, size), self._centred(second, coupling, size)
        products = np.sum(a, axis=-1) * np.sum(b, axis=-1) - np.sum(a * b, axis=-1)
        found: Doubles = np.mean(products, axis=0) / (size * (size - 1))
        return found

    def _centred(self, base: Base, coupling: str, size: int) -> Doubles:
        """[N, P, b]: the estimates of every vector, less what they estimate."""
        found = TERMS[base.name](base, self.pairs, self._vectors(coupling, size))
        return found - expected(base, self.pairs)[:, None]

    def _vectors(self, coupling: str, size: int) -> Seen:
        """The first `size` vectors of draws that are as large, or larger."""
        drawn = size
        if coupling in STRUCTURED:
            drawn = padded(self.pairs.dim)
        elif coupling == WHOLE:
            drawn = next(length for length in POINTS if length >= size)
        if (coupling, drawn) not in self._seen:
            count = int(np.clip(NUMBERS // (drawn * len(self.pairs.x)), LEAST, MOST))
            keys = jax.random.split(jax.random.key(self.seed), count)
            # One draw after another: many decompositions at once can starve a pool of few threads, and so
            # can calls back to Python, which is why those of Halton sequences are not compiled.
            draw = _called_back if coupling == WHOLE else _compiled
            draws = [draw(COUPLINGS[coupling], drawn, self.pairs.dim, key) for key in keys]
            omega, squares = (np.stack(arrays).astype(np.float64) for arrays in zip(*draws, strict=True))
            x, y = (np.einsum("nbd,pd->npb", omega, a, optimize=True) for a in (self.pairs.x, self.pairs.y))
            self._seen[coupling, drawn] = Seen(x, y, squares[:, None])
        return Seen(*(a[..., :size] for a in self._seen[coupling, drawn]))


def _called_back(coupling: Coupling, size: int, dim: int, key: Array) -> tuple[Array, Array]:
    """`_draw`, one at a time whatever the number of threads, and done when it returns."""
    with CALLING:
        return jax.block_until_ready(_draw(coupling, size, dim, key))


@partial(jax.jit, static_argnums=(0, 1, 2), compiler_options={"xla_backend_optimization_level": 0})
def _compiled(coupling: Coupling, size: int, dim: int, key: Array) -> tuple[Array, Array]:
    """`_draw`, compiled in a hurry: it runs for milliseconds."""
    return _draw(coupling, size, dim, key)


def _draw(coupling: Coupling, size: int, dim: int, key: Array) -> tuple[Array, Array]:
    """The vectors [b, D] of a draw, and their squared lengths [b]."""
    omega = coupling(key, size, dim)
    return vectors(omega), omega.squares()

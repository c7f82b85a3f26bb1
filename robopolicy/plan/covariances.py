"""Covariances between projection vectors of one block, and their part in the variance of an estimate.

The variance of a mean over m vectors is the variance for independent vectors (theory.py) plus the covariances
of all pairs of different vectors. These are zero between blocks. Within a block they have a closed form for
some estimators (conformity.py) and are sampled for the others.
"""

from contextlib import nullcontext
from threading import Lock

import jax
import numpy as np
from jax import Array

from robopolicy.attention.catalogue import COUPLINGS
from robopolicy.attention.conformity import BASES, ORTHOGONAL, SIMPLEX, coupled_mse
from robopolicy.attention.projections import Coupling, vectors
from robopolicy.attention.theory import Doubles
from robopolicy.plan.pairs import Pairs
from robopolicy.plan.vectors import ALIASES, TERMS, Base, Projected, expected

INDEPENDENT, WHOLE = "iid", "halton"
ALIKE = (ORTHOGONAL, SIMPLEX)  # all pairs of different vectors of a block have the same joint distribution
STRUCTURED = ("hadamard", "fast_simplex")
NUMBERS, LEAST, MOST = 2**19, 32, 256  # numbers in a sample, and the fewest and most draws
CALLBACKS = Lock()
POINTS = (16, 256)  # lengths of the sampled sequences; shorter ones are their beginnings


def block_sizes(coupling: str, m: int, dim: int) -> list[int]:
    """The sizes of the blocks of m vectors."""
    if coupling == INDEPENDENT:
        return [1] * m
    width = m if coupling == WHOLE else padded(dim) if coupling in STRUCTURED else dim
    full, rest = divmod(m, width)
    return [width] * full + [rest] * (rest > 0)


def padded(dim: int) -> int:
    """The smallest power of two that is `dim` or more: the size of a Hadamard matrix."""
    return 1 << (dim - 1).bit_length()


class Covariances:
    """Covariances of the estimates for given pairs. Results are cached."""

    def __init__(self, pairs: Pairs, seed: int = 0) -> None:
        self.pairs, self.seed = pairs, seed
        self._projected: dict[tuple[str, int], Projected] = {}
        self._variances: dict[tuple[Base, str, int], Doubles] = {}
        self._means: dict[tuple[Base, Base, str, int], Doubles] = {}

    def added(self, first: Base, second: Base, coupling: str, m: int) -> Doubles:
        """[P]: the part of different vectors in the covariance of two means over the same m vectors."""
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
        """[P]: the variance of a mean over m vectors, from sampled means.

        If the covariances cancel nearly all of the variance, their sampling noise exceeds the difference.
        """
        total = np.zeros(len(self.pairs.x))
        for size in block_sizes(coupling, m, self.pairs.dim):
            key = (base, coupling, size)
            if key not in self._variances:
                sums = np.sum(self._centred(*key), axis=-1)
                self._variances[key] = np.mean(sums**2, axis=0)
            total += self._variances[key]
        return total / m**2

    def _mean(self, first: Base, second: Base, coupling: str, size: int) -> Doubles:
        """[P]: the mean covariance of two different vectors of a block."""
        size = self.pairs.dim if coupling in ALIKE else size
        key = (first, second, coupling, size)
        if key not in self._means:
            if first == second and self.closed(first, coupling):
                x, y = self.pairs.x, self.pairs.y
                # Of two vectors: MSE = (MSE of one + covariance) / 2.
                pair, one = coupled_mse(first.name, coupling, x, y, 2), BASES[first.name][0](x, y, 1)
                self._means[key] = 2 * pair - one
            else:
                a, b = self._centred(first, coupling, size), self._centred(second, coupling, size)
                products = np.sum(a, axis=-1) * np.sum(b, axis=-1) - np.sum(a * b, axis=-1)
                self._means[key] = np.mean(products, axis=0) / (size * (size - 1))
        return self._means[key]

    def _centred(self, base: Base, coupling: str, size: int) -> Doubles:
        """[N, P, b]: the estimates of every vector, minus their expectation."""
        terms = TERMS[base.name](base, self.pairs, self._project(coupling, size))
        return terms - expected(base, self.pairs)[:, None]

    def _project(self, coupling: str, size: int) -> Projected:
        """The pairs, projected on the first `size` vectors of each sampled block."""
        width = size
        if coupling in STRUCTURED:
            width = padded(self.pairs.dim)
        elif coupling == WHOLE:
            width = next(length for length in POINTS if length >= size)
        if (coupling, width) not in self._projected:
            count = int(np.clip(NUMBERS // (width * len(self.pairs.x)), LEAST, MOST))
            keys = jax.random.split(jax.random.key(self.seed), count)
            # Halton sequences call back into Python, which can deadlock a pool of few threads: they are drawn
            # one at a time, and not compiled.
            draw, alone = (_draw, CALLBACKS) if coupling == WHOLE else (_draw_compiled, nullcontext())
            with alone:
                draws = [
                    jax.block_until_ready(draw(COUPLINGS[coupling], width, self.pairs.dim, key))
                    for key in keys
                ]
            omega, squares = (np.stack(arrays).astype(np.float64) for arrays in zip(*draws, strict=True))
            x, y = (np.einsum("nbd,pd->npb", omega, a, optimize=True) for a in (self.pairs.x, self.pairs.y))
            self._projected[coupling, width] = Projected(x, y, squares[:, None])
        return Projected(*(a[..., :size] for a in self._projected[coupling, width]))


def _draw(coupling: Coupling, size: int, dim: int, key: Array) -> tuple[Array, Array]:
    """The vectors [b, D] of one draw, and their squared lengths [b]."""
    omega = coupling(key, size, dim)
    return vectors(omega), omega.squares()


# Compiled without optimisation, since it runs for milliseconds only.
_draw_compiled = jax.jit(
    _draw, static_argnums=(0, 1, 2), compiler_options={"xla_backend_optimization_level": 0}
)

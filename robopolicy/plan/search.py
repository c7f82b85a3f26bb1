"""The search: prices and errors of all mechanisms at all resolutions, and the mechanisms on each front.

Errors are comparable at one resolution only: the cost of coarser tokens, narrower heads or fewer kept tokens
to a policy shows in training. So each resolution has a front of its own.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from math import log2
from typing import NamedTuple

import jax
import numpy as np

from robopolicy.attention import attention
from robopolicy.attention.theory import Doubles
from robopolicy.costs.flops import count, count_step
from robopolicy.plan.covariances import INDEPENDENT, STRUCTURED
from robopolicy.plan.errors import Errors
from robopolicy.plan.families import ANGULAR, Shape, couplings, shapes
from robopolicy.plan.pairs import Pairs, in_width
from robopolicy.plan.vectors import Base
from robopolicy.policies.base import KEY
from robopolicy.policies.catalogue import PolicyConfig, blank_policy
from robopolicy.policies.iap_config import IAPConfig
from robopolicy.policies.iap_parts import Reader, View

EXACT = "softmax"
USELESS = 1.0  # the error of an estimate that is off by the size of the kernel
FEW, AT = 64, ((8, 16), (2, 4))  # tokens, m and n of the exact prices from which others are interpolated
USUAL = "orthogonal"
REFERENCE = Shape(ANGULAR, 8, 8, Base("positive_antithetic"), ", base=positive_antithetic")
SLACK = 1.05  # ratio of estimated prices from which a mechanism with a higher error is left out


class Resolution(NamedTuple):
    """The inputs of a policy's attention.

    Attributes:
      config: the policy with exact softmax.
      patch: side of a token, pixels.
      tokens: number in all images.
      keep: share of tokens that the policy keeps; None if it keeps all.
      head_dim: width of queries and keys.
    """

    config: PolicyConfig
    patch: int
    tokens: int
    keep: float | None
    head_dim: int


class Choice(NamedTuple):
    """A mechanism in a policy.

    Attributes:
      spec: of the mechanism.
      flops: of a policy step.
      error: of the kernel, as in errors.py.
      config: the whole policy.
    """

    spec: str
    flops: int
    error: float
    config: PolicyConfig


class Front(NamedTuple):
    """The mechanisms on the front of one resolution.

    Attributes:
      resolution: of all choices.
      rest: FLOPs of a step without attention.
      exact: exact softmax.
      choices: cheapest first, with falling errors; the last is softmax.
    """

    resolution: Resolution
    rest: int
    exact: Choice
    choices: list[Choice]


class Use(NamedTuple):
    """An operation of `queries` on `tokens` of width `dim`, for `heads` at once, `times` per step.

    `values` is the width of what it reads.
    """

    operation: str
    times: int
    heads: int
    tokens: int
    dim: int
    queries: int
    values: int


def uses_of(config: PolicyConfig) -> tuple[Use, ...]:
    """The uses of attention in a policy, each with how often it occurs in a step."""
    if isinstance(config, IAPConfig):
        counts = Counter(
            _use(config, reader, view) for reader in config.readers for view in config.views_of(reader)
        )
        return tuple(use._replace(times=times) for use, times in counts.items())
    dim = head_dim_of(config)
    return (Use("apply", config.depth, config.heads, config.tokens, dim, config.tokens, dim),)


def _use(config: IAPConfig, reader: Reader, view: View) -> Use:
    """How a reader's attention is used."""
    tokens, dim = config.token_count(view), config.head_dim
    operation = "apply" if config.variant in ("trans", "query") else "rank"
    choice = config.choice(reader)
    if config.asks and choice is not None:
        queries = len(reader.outputs) * choice.places(config.border)
        return Use(operation, 1, 1, tokens, dim, queries, config.width(view))
    return Use(operation, 1, 1, tokens, dim, tokens, dim)


def head_dim_of(config: PolicyConfig) -> int:
    """The width of queries and keys."""
    return config.head_dim if isinstance(config, IAPConfig) else config.width // config.heads


def with_head_dim(config: PolicyConfig, dim: int) -> PolicyConfig:
    """The policy with queries and keys of another width. Raises ValueError for a width it does not allow."""
    if isinstance(config, IAPConfig):
        return replace(config, head_dim=dim)
    if dim < 1 or config.width % dim:
        raise ValueError(f"head_dim is {dim}: it must divide the width {config.width}")
    return replace(config, heads=config.width // dim)


def price(spec: str, uses: Sequence[Use]) -> int:
    """FLOPs of attention with `spec` in a step."""
    return sum(use.times * _counted(spec, use._replace(times=1)) for use in uses)


@cache
def rest(resolution: Resolution) -> int:
    """FLOPs of a step apart from those of attention itself."""
    return count_step(blank_policy(resolution.config)).total - price(EXACT, uses_of(resolution.config))


def check_budget(budget: int, offered: Sequence[Resolution]) -> None:
    """Raise ValueError for a budget below the FLOPs of a step apart from those of attention itself."""
    least = min(map(rest, offered))
    if budget < least:
        raise ValueError(
            f"budget is {budget}: it must be above {least}, the FLOPs of a step besides attention"
        )


@cache
def _counted(spec: str, use: Use) -> int:
    mechanism = attention(spec)
    one = jax.eval_shape(lambda key: mechanism.init(key, use.dim), KEY)
    # All heads at once, as in policies: computations that they share count once.
    features = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((use.heads, *leaf.shape), leaf.dtype), one)
    shapes = [(use.queries, use.dim), (use.tokens, use.dim), (use.tokens, use.values)]
    each = [jax.ShapeDtypeStruct((use.heads, *shape), "float32") for shape in shapes]
    arguments = each[: 2 if use.operation == "rank" else 3]
    return count(jax.vmap(getattr(mechanism, use.operation)), features, *arguments).total


def _with_few(use: Use) -> Use:
    """The same use on `FEW` tokens, with as many queries for each."""
    return use._replace(tokens=FEW, queries=max(1, round(FEW * use.queries / use.tokens)))


class Search:
    """The search for one policy, on queries and keys like `pairs`."""

    def __init__(
        self, pairs: Pairs, head_dims: Sequence[int], on_width: Callable[[], None] = lambda: None
    ) -> None:
        """Predict the errors of all mechanisms for every width of heads.

        Args:
          pairs: queries and keys. In another width they have the same lengths and angles.
          head_dims: the widths, two or more each.
          on_width: called after each width.
        """
        self._errors: dict[int, Errors] = {}
        self._best: dict[int, list[tuple[Shape, str, float]]] = {}
        self._estimates: dict[tuple[Use, ...], Doubles] = {}
        with ThreadPoolExecutor() as pool:
            each = [Errors(pairs if dim == pairs.dim else in_width(pairs, dim)) for dim in head_dims]
            for dim, errors, best in zip(head_dims, each, pool.map(_best, each), strict=True):
                self._errors[dim], self._best[dim] = errors, best
                on_width()

    def reference(self, resolution: Resolution) -> Choice:
        """The angular hybrid of the papers."""
        return self.choice(REFERENCE, USUAL, resolution)

    def choice(self, shape: Shape, coupling: str, resolution: Resolution) -> Choice:
        """Any mechanism at one resolution."""
        error = self._errors[resolution.head_dim].of(shape, coupling)
        return _choice(shape.spec(coupling), error, resolution)

    def front(self, resolution: Resolution) -> Front:
        """The mechanisms at one resolution for which no other has both a lower price and a lower error."""
        exact = _choice(EXACT, 0.0, resolution)
        promising = self._promising(uses_of(resolution.config))
        choices = [exact, *(_choice(spec, error, resolution) for spec, error in promising)]
        return Front(resolution, rest(resolution), exact, undominated(choices))

    def _promising(self, uses: tuple[Use, ...]) -> list[tuple[str, float]]:
        """Specs and errors of mechanisms that may be on the front, from estimated prices."""
        known, few = self._best[uses[0].dim], tuple(map(_with_few, uses))
        if few not in self._estimates:
            self._estimates[few] = np.array([_estimated_price(shape, c, few) for shape, c, _ in known])
        prices, errors = self._estimates[few], np.array([error for _, _, error in known])
        return [
            (shape.spec(coupling), error)
            for (shape, coupling, error), own in zip(known, prices, strict=True)
            if not np.any(errors[prices * SLACK <= own] <= error)
        ]


def _choice(spec: str, error: float, resolution: Resolution) -> Choice:
    flops = rest(resolution) + price(spec, uses_of(resolution.config))
    return Choice(spec, flops, error, replace(resolution.config, attention=spec))


def _estimated_price(shape: Shape, coupling: str, few: tuple[Use, ...]) -> float:
    """A price interpolated linearly in the number of vectors, or in both numbers of a hybrid."""

    def at(m: int, n: int) -> int:
        return price(shape._replace(m=m, n=n).spec(INDEPENDENT), few)

    def surcharge(vectors: int) -> int:
        """The price of `vectors` of a structured coupling, less that of independent ones."""
        prices = [price(f"positive(m={vectors}, coupling={c})", few) for c in (coupling, INDEPENDENT)]
        return prices[0] - prices[1]

    (m, m2), (n, n2) = AT
    more = sum(surcharge(v) for v in (shape.m, shape.n) if v) if coupling in STRUCTURED else 0
    if not shape.n:
        return more + at(m, 0) + (at(m2, 0) - at(m, 0)) * (shape.m - m) / (m2 - m)
    u, w = (shape.m - m) / (m2 - m), (shape.n - n) / (n2 - n)
    low, high = ((1 - w) * at(i, n) + w * at(i, n2) for i in (m, m2))
    return more + (1 - u) * low + u * high


def choose(fronts: Sequence[Front], budget: int, most: float, own: int) -> tuple[Front, Choice]:
    """The choice among all fronts, and its front.

    Among choices within the budget whose error is `most` or less, it has the most tokens, then the largest
    share of kept tokens, then the width of heads whose ratio to the policy's own is nearest to 1, the wider
    of two, then the least error. If no choice has such an error, it has the least error within the budget. Of
    equal errors, the cheapest is taken.

    Args:
      fronts: one per resolution.
      budget: FLOPs of a step.
      most: the largest acceptable error.
      own: the policy's own width of heads.

    Raises ValueError for a budget below the price of every choice.
    """
    allowed = [(f, c) for f in fronts for c in f.choices if c.flops <= budget]
    if not allowed:
        front, cheapest = min(((f, f.choices[0]) for f in fronts), key=lambda pair: pair[1].flops)
        raise ValueError(
            f"budget is {budget}: the least that a step takes is {cheapest.flops}, with {cheapest.spec}, "
            f"{front.resolution.tokens} tokens and heads {front.resolution.head_dim} wide"
        )
    enough = [(f, c) for f, c in allowed if c.error <= most]

    def preference(pair: tuple[Front, Choice]) -> tuple[float, ...]:
        r = pair[0].resolution
        width = abs(log2(r.head_dim / own)), -r.head_dim
        return -r.tokens, -(r.keep or 1.0), *width, pair[1].error, pair[1].flops

    if enough:
        return min(enough, key=preference)
    return min(allowed, key=lambda pair: (pair[1].error, pair[1].flops))


def _best(errors: Errors) -> list[tuple[Shape, str, float]]:
    """Shapes with an error up to `USELESS`: with the best dense coupling, and with each structured one."""
    rows = []
    for shape in shapes(errors.pairs):
        each = [(errors.of(shape, c), c) for c in couplings(shape, errors.pairs.dim)]
        dense = [pair for pair in each if pair[1] not in STRUCTURED]
        # With equal errors, as for a single vector, the usual coupling.
        best = min(dense, key=lambda pair: (pair[0], pair[1] != USUAL))
        for error, coupling in (best, *(pair for pair in each if pair[1] in STRUCTURED)):
            if error <= USELESS:
                rows.append((shape, coupling, error))
    return rows


def undominated(choices: Sequence[Choice]) -> list[Choice]:
    """The choices with a lower error than all that cost the same or less, cheapest first."""
    front: list[Choice] = []
    for choice in sorted(choices, key=lambda c: (c.flops, c.error, c.spec)):
        if not front or choice.error < front[-1].error:
            front.append(choice)
    return front

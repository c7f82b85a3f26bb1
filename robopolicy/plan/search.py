"""The search: every mechanism at every resolution, its price and its error, and which ones no other beats.

Only at one resolution can prices and errors be held against each other: what coarser tokens, narrower heads
or fewer kept tokens cost a policy is for training to tell. So each resolution has a front of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
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

EXACT = "softmax"
USELESS = 1.0  # an estimate that is as far off as the kernel is large
FEW, AT = 64, ((8, 16), (2, 4))  # tokens, m and n for which prices are counted that others are judged by
USUAL = "orthogonal"
REFERENCE = Shape(ANGULAR, 8, 8, Base("positive_antithetic"), ", base=positive_antithetic")
SLACK = 1.05  # how much dearer a mechanism may look than a better one and still be counted


class Resolution(NamedTuple):
    """What a policy looks at and compares, apart from how it attends.

    Attributes:
      config: the policy with exact softmax.
      patch: side of a token, pixels.
      tokens: of all images.
      keep: share of the tokens that are kept, None where all are.
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
      error: of the kernel, as errors.py has it.
      config: the whole policy.
    """

    spec: str
    flops: int
    error: float
    config: PolicyConfig


class Front(NamedTuple):
    """What may be chosen at one resolution.

    Attributes:
      resolution: which.
      rest: FLOPs of a step without attention.
      exact: exact softmax.
      choices: cheapest first, each more exact than all before, softmax the last.
    """

    resolution: Resolution
    rest: int
    exact: Choice
    choices: list[Choice]


class Use(NamedTuple):
    """How a policy attends: an operation of so many heads at once, so many times a step, and on what."""

    operation: str
    times: int
    heads: int
    tokens: int
    dim: int


def uses_of(config: PolicyConfig) -> tuple[Use, ...]:
    """How the policy of `config` attends, images of other sizes apart."""
    if isinstance(config, IAPConfig):
        operation = "apply" if config.variant == "trans" else "rank"
        counts = Counter(config.token_count(view) for reader in config.readers for view in reader.views)
        return tuple(Use(operation, times, 1, tokens, config.head_dim) for tokens, times in counts.items())
    return (Use("apply", config.depth, config.heads, config.tokens, head_dim_of(config)),)


def head_dim_of(config: PolicyConfig) -> int:
    """The width of queries and keys."""
    return config.head_dim if isinstance(config, IAPConfig) else config.width // config.heads


def with_head_dim(config: PolicyConfig, dim: int) -> PolicyConfig:
    """The policy with queries and keys of another width.

    Raises ValueError for a width that it cannot have.
    """
    if isinstance(config, IAPConfig):
        return replace(config, head_dim=dim)
    if dim < 1 or config.width % dim:
        raise ValueError(f"head_dim is {dim}: it must divide the width {config.width}")
    return replace(config, heads=config.width // dim)


def price(spec: str, uses: Sequence[Use]) -> int:
    """FLOPs that attention by `spec` takes in a step."""
    return sum(use.times * _counted(spec, use._replace(times=1)) for use in uses)


@cache
def rest(resolution: Resolution) -> int:
    """FLOPs of a step without attention."""
    return count_step(blank_policy(resolution.config)).total - price(EXACT, uses_of(resolution.config))


def check_budget(budget: int, offered: Sequence[Resolution]) -> None:
    """Raise ValueError for a budget that does not pay for a step, even without attention."""
    least = min(map(rest, offered))
    if budget < least:
        raise ValueError(
            f"budget is {budget}: a step takes {least} FLOPs without attention, and more with it"
        )


@cache
def _counted(spec: str, use: Use) -> int:
    mechanism = attention(spec)
    one = jax.eval_shape(lambda key: mechanism.init(key, use.dim), KEY)
    # Several heads at once, as policies have them: what all of them share is paid for once.
    features, token = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct((use.heads, *leaf.shape), leaf.dtype),
        (one, jax.ShapeDtypeStruct((use.tokens, use.dim), "float32")),
    )
    arguments = (token,) * (2 if use.operation == "rank" else 3)
    return count(jax.vmap(getattr(mechanism, use.operation)), features, *arguments).total


class Search:
    """The search for one policy, on queries and keys like `pairs`."""

    def __init__(
        self, pairs: Pairs, head_dims: Sequence[int], on_width: Callable[[], None] = lambda: None
    ) -> None:
        """Predict the errors of all mechanisms for every width of heads.

        Args:
          pairs: what to predict errors on. For another width they keep their lengths and angles.
          head_dims: the widths, two or more each.
          on_width: called after each of them.
        """
        self._errors: dict[int, Errors] = {}
        self._best: dict[int, list[tuple[Shape, str, float]]] = {}
        self._looks: dict[tuple[Use, ...], Doubles] = {}
        with ThreadPoolExecutor() as pool:
            each = [Errors(pairs if dim == pairs.dim else in_width(pairs, dim)) for dim in head_dims]
            for dim, errors, best in zip(head_dims, each, pool.map(_best, each), strict=True):
                self._errors[dim], self._best[dim] = errors, best
                on_width()

    def reference(self, resolution: Resolution) -> Choice:
        """The angular hybrid of the papers."""
        return self.choice(REFERENCE, USUAL, resolution)

    def choice(self, shape: Shape, coupling: str, resolution: Resolution) -> Choice:
        """One mechanism at one resolution, whatever it is good for."""
        spec, uses = shape.spec(coupling), uses_of(resolution.config)
        flops = rest(resolution) + price(spec, uses)
        error = self._errors[resolution.head_dim].of(shape, coupling)
        return Choice(spec, flops, error, replace(resolution.config, attention=spec))

    def front(self, resolution: Resolution) -> Front:
        """The mechanisms at one resolution that no other one beats in price and in error."""
        config, uses = resolution.config, uses_of(resolution.config)
        without = rest(resolution)
        exact = Choice(EXACT, without + price(EXACT, uses), 0.0, config)
        offered = [exact]
        for spec, error in self._promising(uses):
            total = without + price(spec, uses)
            offered.append(Choice(spec, total, error, replace(config, attention=spec)))
        return Front(resolution, without, exact, undominated(offered))

    def _promising(self, uses: tuple[Use, ...]) -> list[tuple[str, float]]:
        """Specs and errors of what may be on the front, judged by prices that are not exact."""
        known, few = self._best[uses[0].dim], tuple(use._replace(tokens=FEW) for use in uses)
        if few not in self._looks:
            self._looks[few] = np.array([self._look(shape, coupling, few) for shape, coupling, _ in known])
        looks = self._looks[few]
        errors = np.array([error for _, _, error in known])
        found = []
        for (shape, coupling, error), look in zip(known, looks, strict=True):
            if not np.any(errors[looks * SLACK <= look] <= error):
                found.append((shape.spec(coupling), error))
        return found

    def _look(self, shape: Shape, coupling: str, few: tuple[Use, ...]) -> float:
        """About what a mechanism takes: linear in the number of vectors, or in both of a hybrid's."""

        def at(m: int, n: int) -> int:
            return price(shape._replace(m=m, n=n).spec(INDEPENDENT), few)

        def dearer(vectors: int) -> int:
            """What `vectors` of a structured coupling take more than as many others."""
            prices = [price(f"positive(m={vectors}, coupling={c})", few) for c in (coupling, INDEPENDENT)]
            return prices[0] - prices[1]

        (m, m2), (n, n2) = AT
        more = sum(dearer(v) for v in (shape.m, shape.n) if v) if coupling in STRUCTURED else 0
        if not shape.n:
            return more + at(m, 0) + (at(m2, 0) - at(m, 0)) * (shape.m - m) / (m2 - m)
        u, w = (shape.m - m) / (m2 - m), (shape.n - n) / (n2 - n)
        low, high = ((1 - w) * at(i, n) + w * at(i, n2) for i in (m, m2))
        return more + (1 - u) * low + u * high


def choose(fronts: Sequence[Front], budget: int, most: float, own: int) -> tuple[Front, Choice]:
    """The choice among all fronts, and the front that it is from.

    Of what the budget allows: the most tokens, then the most kept tokens, then heads as wide as the policy's
    own, at which some mechanism is exact enough; and there the most exact. Where there is none, that of least
    error.

    Args:
      fronts: one a resolution.
      budget: FLOPs of a step.
      most: the largest error that is exact enough.
      own: the policy's own width of heads.

    Raises ValueError for a budget that nothing meets.
    """
    allowed = [(f, c) for f in fronts for c in f.choices if c.flops <= budget]
    if not allowed:
        front, cheapest = min(((f, f.choices[0]) for f in fronts), key=lambda found: found[1].flops)
        raise ValueError(
            f"budget is {budget}: the least that a step takes is {cheapest.flops}, with {cheapest.spec}, "
            f"{front.resolution.tokens} tokens and heads {front.resolution.head_dim} wide"
        )
    enough = [(f, c) for f, c in allowed if c.error <= most]

    def preferred(found: tuple[Front, Choice]) -> tuple[float, ...]:
        r = found[0].resolution
        return -r.tokens, -(r.keep or 1.0), r.head_dim != own, found[1].error

    return min(enough, key=preferred) if enough else min(allowed, key=lambda found: found[1].error)


def _best(errors: Errors) -> list[tuple[Shape, str, float]]:
    """Shapes of some use, with the coupling of least error, and with each that has another price."""
    found = []
    for shape in shapes(errors.pairs):
        each = [(errors.of(shape, c), c) for c in couplings(shape, errors.pairs.dim)]
        alike = [own for own in each if own[1] not in STRUCTURED]
        # Where all are alike, as for a single vector, the usual one.
        best = min(alike, key=lambda own: (own[0], own[1] != USUAL))
        for error, coupling in (best, *(own for own in each if own[1] in STRUCTURED)):
            if error <= USELESS:
                found.append((shape, coupling, error))
    return found


def undominated(choices: Sequence[Choice]) -> list[Choice]:
    """Those that are more exact than all that cost as much or less, cheapest first."""
    front: list[Choice] = []
    for choice in sorted(choices, key=lambda c: (c.flops, c.error, c.spec)):
        if not front or choice.error < front[-1].error:
            front.append(choice)
    return front

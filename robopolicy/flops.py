"""The price of a function in floating-point operations, counted on its jaxpr.

Every primitive belongs to a class, and each class has a stated weight: a multiply-add is 2, and one
elementwise operation, transcendental function, comparison or addition of a reduction is 1 for each element
it works on. Moving data costs 0 but is listed. A sort or a top-k of n elements is n * ceil(log2 n)
comparisons. Loops count as often as they run, a conditional as its dearest branch. A primitive that is in
no class is an error: nothing is ever counted as zero because it was forgotten.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import ceil, log2, prod
from typing import Any

import jax
from jax.extend import core

COMPONENTS = (
    *("patches", "projections", "query map", "key map", "contraction", "ranking"),
    *("mask", "encoder", "head"),
)
OTHER = "other"

ELEMENTWISE = frozenset(
    "abs add add_any clamp div floor ceil round integer_pow mul neg rem select_n sign square sub".split()
)
TRANSCENDENTAL = frozenset(
    """atan2 cbrt cos cosh erf erf_inv exp exp2 expm1 log log1p logistic pow rsqrt sin sinh sqrt tan
    tanh""".split()
)
COMPARISON = frozenset("and eq ge gt is_finite le lt max min ne not or xor".split())
REDUCTION = frozenset("reduce_sum reduce_prod cumsum cumprod".split())
COMPARING_REDUCTION = frozenset(
    "argmax argmin cummax cummin reduce_and reduce_max reduce_min reduce_or".split()
)
SORT = frozenset("sort top_k".split())
MEMORY = frozenset(
    """bitcast_convert_type broadcast_in_dim concatenate convert_element_type copy dynamic_slice
    dynamic_update_slice expand_dims gather iota pad reshape rev scatter slice split squeeze stack
    stop_gradient transpose""".split()
)
SCATTER_ADD = frozenset(["scatter-add"])
CALLS = frozenset("pjit jit closed_call core_call remat2 checkpoint custom_jvp_call custom_vjp_call".split())
CLASSES = ("multiply-add", "elementwise", "transcendental", "comparison", "memory")


@dataclass(frozen=True)
class FlopCount:
    """Operations by component and class: `counts[(component, class)]`, in FLOPs, for `memory` in elements."""

    counts: Counter[tuple[str, str]]

    @property
    def total(self) -> int:
        """All FLOPs; memory movement is none."""
        return sum(n for (_, kind), n in self.counts.items() if kind != "memory")

    @property
    def by_component(self) -> dict[str, int]:
        """FLOPs of each part, in the order of `COMPONENTS`, parts without any left out."""
        found: Counter[str] = Counter()
        for (component, kind), n in self.counts.items():
            if kind != "memory":
                found[component] += n
        return {name: found[name] for name in (*COMPONENTS, OTHER) if found[name]}

    @property
    def by_class(self) -> dict[str, int]:
        """FLOPs of each class, and the elements moved as `memory`."""
        found: Counter[str] = Counter()
        for (_, kind), n in self.counts.items():
            found[kind] += n
        return {kind: found[kind] for kind in CLASSES}


def count(function: Callable[..., Any], *arguments: Any) -> FlopCount:
    """Count one call of `function` on arrays, or shapes (jax.ShapeDtypeStruct), in pytrees.

    Raises NotImplementedError naming a primitive that belongs to no class, or a loop of unknown length.
    """
    closed = jax.make_jaxpr(function)(*arguments)
    counts: Counter[tuple[str, str]] = Counter()
    _walk(closed.jaxpr, 1, "", counts)
    return FlopCount(counts)


def _walk(jaxpr: Any, times: int, outer: str, counts: Counter[tuple[str, str]]) -> None:
    for eqn in jaxpr.eqns:
        stack = f"{outer}/{eqn.source_info.name_stack}"
        name = eqn.primitive.name
        if name == "cond":
            branches = [_counted(branch, times, stack) for branch in _jaxprs(eqn.params["branches"])]
            totals = [FlopCount(branch).total for branch in branches]
            counts.update(branches[totals.index(max(totals))])
        elif name == "scan":
            inner = next(_jaxprs(eqn.params["jaxpr"]))
            _walk(inner, times * int(eqn.params["length"]), stack, counts)
        elif name == "while":
            raise NotImplementedError("while loops have no length that can be counted: use scan")
        elif name in CALLS:
            # A custom derivative carries several functions; the first is what is computed.
            _walk(next(_jaxprs(tuple(eqn.params.values()))), times, stack, counts)
        else:
            kind, flops = _price(eqn)
            if flops:
                counts[(_component(stack), kind)] += times * flops


def _counted(jaxpr: Any, times: int, stack: str) -> Counter[tuple[str, str]]:
    counts: Counter[tuple[str, str]] = Counter()
    _walk(jaxpr, times, stack, counts)
    return counts


def _jaxprs(value: Any) -> Iterator[Any]:
    """The jaxprs among the parameters of a primitive."""
    if isinstance(value, core.ClosedJaxpr):
        yield value.jaxpr
    elif isinstance(value, core.Jaxpr):
        yield value
    elif isinstance(value, (tuple, list)):
        for entry in value:
            yield from _jaxprs(entry)


def _component(stack: str) -> str:
    """The innermost scope that is a component; transformations write vmap(scope)."""
    inner = [part for part in re.split(r"[/()]", stack) if part in COMPONENTS]
    return inner[-1] if inner else OTHER


def _price(eqn: Any) -> tuple[str, int]:
    """The class of a primitive and what one execution costs."""
    name = eqn.primitive.name
    size_in = max((prod(v.aval.shape) for v in eqn.invars), default=0)
    size_out = sum(prod(v.aval.shape) for v in eqn.outvars)
    if name == "dot_general":
        (contracted, _), _ = eqn.params["dimension_numbers"]
        return "multiply-add", 2 * size_out * prod(eqn.invars[0].aval.shape[i] for i in contracted)
    if name == "conv_general_dilated":
        kernel = eqn.invars[1].aval.shape
        features = kernel[eqn.params["dimension_numbers"].rhs_spec[0]]
        return "multiply-add", 2 * size_out * prod(kernel) // features
    if name in ELEMENTWISE:
        repeats = abs(eqn.params["y"]) - 1 if name == "integer_pow" else 1
        return "elementwise", size_out * max(1, repeats)
    if name in TRANSCENDENTAL:
        return "transcendental", size_out
    if name in COMPARISON:
        return "comparison", size_out
    if name in REDUCTION:
        return "elementwise", size_in
    if name in COMPARING_REDUCTION:
        return "comparison", size_in
    if name in SORT:
        return "comparison", size_in * max(1, ceil(log2(max(2, size_in))))
    if name in SCATTER_ADD:
        return "elementwise", prod(eqn.invars[2].aval.shape)
    if name in MEMORY:
        return "memory", size_out
    raise NotImplementedError(f"primitive {name!r} is in no class: its FLOPs cannot be counted")

"""Counts the floating-point operations of a function on its jaxpr.

Every primitive belongs to a class with a fixed weight. A multiply-add counts 2. An elementwise operation, a
transcendental function, a comparison and an addition of a reduction count 1 for each element. A convolution
does not count padding. A power with an integer exponent counts the multiplications of repeated squaring. A
sort or top-k of n elements counts n * ceil(log2 n) comparisons. Moving data counts 0 but is listed. A loop
counts as often as it runs, a conditional as its most expensive branch. Operations that no result depends on
count nothing. A primitive without a class is an error, so that nothing counts as zero by mistake.

Memory traffic and peak memory are counted too, see memory.py.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil, log2, prod
from typing import Any

import jax
import numpy as np
from jax.extend import core
from jax.interpreters.partial_eval import dce_jaxpr

from robopolicy.costs.memory import bodies, peak_bytes, traffic
from robopolicy.naming import shown
from robopolicy.policies.base import KEY, PolicyFunctions, state_shape
from robopolicy.policies.policy import Policy

COMPONENTS = (
    *("patches", "normaliser", "projections", "query map", "key map", "contraction", "ranking"),
    *("mask", "encoder", "head"),
)
OTHER = "other"

ARITHMETIC = ("multiply-add", "elementwise", "transcendental", "comparison")
MOVED, TRAFFIC = "memory", "traffic"
PER_RESULT = {
    "elementwise": """abs add add_any ceil clamp clz div floor mul neg nextafter population_count
    reduce_precision rem round select_n shift_left shift_right_arithmetic shift_right_logical sign square
    sub""",
    "transcendental": """acos acosh asin asinh atan atan2 atanh cbrt cos cosh digamma erf erf_inv erfc exp
    exp2 expm1 lgamma log log1p logistic pow rsqrt sin sinh sqrt tan tanh""",
    "comparison": "and eq ge gt is_finite le lt max min ne not or xor",
    MOVED: """bitcast_convert_type broadcast_in_dim concatenate convert_element_type copy dynamic_slice
    dynamic_update_slice expand_dims gather iota pad reshape rev scatter slice split squeeze stack unstack
    stop_gradient transpose""",
}
"""Primitives by class with a cost of one per element of their results."""
PER_OPERAND = {
    "elementwise": "reduce_sum reduce_prod cumsum cumprod",
    "comparison": "argmax argmin cummax cummin reduce_and reduce_max reduce_min reduce_or",
}
"""Primitives by class with a cost of one per element of their largest operand."""
RESULT_CLASSES, OPERAND_CLASSES = (
    {name: kind for kind, names in table.items() for name in names.split()}
    for table in (PER_RESULT, PER_OPERAND)
)


@dataclass(frozen=True)
class FlopCount:
    """The cost of one call of a function.

    Attributes:
      counts: FLOPs by (component, class); elements moved for the class `memory`, bytes read and written for
        `traffic`.
      peak_bytes: peak memory, see `memory.peak_bytes`.
    """

    counts: Counter[tuple[str, str]]
    peak_bytes: int

    @property
    def total(self) -> int:
        """All FLOPs, without memory movement."""
        return sum(self.by_component.values())

    @property
    def by_component(self) -> dict[str, int]:
        """FLOPs of each component in the order of `COMPONENTS`, without those of zero."""
        return self._of_components(*ARITHMETIC)

    @property
    def by_class(self) -> dict[str, int]:
        """FLOPs of each class, and the elements moved as `memory`."""
        return {c: sum(self._of_components(c).values()) for c in (*ARITHMETIC, MOVED)}

    @property
    def traffic_by_component(self) -> dict[str, int]:
        """Bytes that each component reads and writes without fusion, see `memory.traffic`."""
        return self._of_components(TRAFFIC)

    def summary(self) -> dict[str, Any]:
        """The counts for JSON."""
        return {
            "total": self.total,
            "by_component": self.by_component,
            "by_class": self.by_class,
            "traffic_bytes": sum(self.traffic_by_component.values()),
            "traffic_by_component": self.traffic_by_component,
            "peak_bytes": self.peak_bytes,
        }

    def _of_components(self, *classes: str) -> dict[str, int]:
        sums: Counter[str] = Counter()
        for (component, kind), n in self.counts.items():
            if kind in classes:
                sums[component] += n
        return {name: sums[name] for name in (*COMPONENTS, OTHER) if sums[name]}


def count(function: Callable[..., Any], *arguments: Any) -> FlopCount:
    """Count one call of `function` on arrays, or shapes (jax.ShapeDtypeStruct), in pytrees.

    Raises NotImplementedError naming a primitive that belongs to no class, or a loop of unknown length.
    """
    closed = jax.make_jaxpr(function)(*arguments)
    # No compiler computes what no result depends on.
    needed, _ = dce_jaxpr(closed.jaxpr, [True] * len(closed.jaxpr.outvars), instantiate=True)
    return FlopCount(_counted(needed, 1, ""), peak_bytes(core.ClosedJaxpr(needed, closed.consts)))


def flops(policy: Policy) -> FlopCount:
    """The cost of a step of a policy, which does not depend on the parameters.

    Raises ValueError for anything but a Policy, and as `count`.
    """
    if not isinstance(policy, Policy):
        raise ValueError(f"policy is {shown(policy)}: it must be a Policy, such as robopolicy.load returns")
    return count_step(policy.functions)


def count_step(policy: PolicyFunctions) -> FlopCount:
    """Count one call of a policy's `act`, with its state. The count does not depend on the parameters."""
    shapes = jax.eval_shape(policy.init, KEY), jax.eval_shape(policy.init_features, KEY)
    return count(policy.act, *shapes, policy.observation, state_shape(policy, shapes[1]))


def check_summary(summary: Mapping[str, Any]) -> None:
    """Raise ValueError, naming the wrong entry, unless `summary` can come from `FlopCount.summary`."""
    names = {"by_component": {*COMPONENTS, OTHER}, "by_class": {*ARITHMETIC, MOVED}}
    names["traffic_by_component"] = names["by_component"]
    for name in FlopCount(Counter(), 0).summary():
        value = summary.get(name)
        numbers = list(value.values()) if name in names and isinstance(value, dict) else [value]
        if not all(type(number) is int and number >= 0 for number in numbers):
            raise ValueError(f"{name} is {value!r}: it must hold whole numbers of 0 or more")
        if name in names and not (isinstance(value, dict) and value.keys() <= names[name]):
            raise ValueError(f"{name} is {value!r}: its parts must be among {', '.join(sorted(names[name]))}")
    total, by_class = summary["total"], summary["by_class"]
    sums = sum(summary["by_component"].values()), sum(by_class.get(name, 0) for name in ARITHMETIC)
    if by_class.keys() != names["by_class"] or sums != (total, total):
        raise ValueError(f"total is {total}: components and classes must add up to it")
    moved = summary["traffic_bytes"]
    if sum(summary["traffic_by_component"].values()) != moved:
        raise ValueError(f"traffic_bytes is {moved}: the traffic of components must add up to it")


def _counted(jaxpr: Any, times: int, outer: str) -> Counter[tuple[str, str]]:
    """Counts of a jaxpr that runs `times`, under the name stack `outer`."""
    counts: Counter[tuple[str, str]] = Counter()
    for eqn in jaxpr.eqns:
        stack = f"{outer}/{eqn.source_info.name_stack}"
        component, name, inner = _component(stack), eqn.primitive.name, bodies(eqn)
        counts[component, TRAFFIC] += times * traffic(eqn)
        if inner:
            repeats = times * int(eqn.params["length"]) if name == "scan" else times
            branches = [_counted(body.jaxpr, repeats, stack) for body in inner]
            counts.update(max(branches, key=_total_cost))
        elif name == "while":
            raise NotImplementedError("the length of a while loop is unknown: use scan")
        else:
            kind, cost = _cost(eqn)
            counts[component, kind] += times * cost
    return counts


def _total_cost(counts: Mapping[tuple[str, str], int]) -> tuple[int, int]:
    """FLOPs, then bytes: the order in which branches are compared."""
    flops = sum(n for (_, kind), n in counts.items() if kind in ARITHMETIC)
    return flops, sum(n for (_, kind), n in counts.items() if kind == TRAFFIC)


def _component(stack: str) -> str:
    """The innermost scope that is a component. Transformations appear as vmap(scope)."""
    inner = [part for part in re.split(r"[/()]", stack) if part in COMPONENTS]
    return inner[-1] if inner else OTHER


def _cost(eqn: Any) -> tuple[str, int]:
    """The class of a primitive, and the cost of one execution."""
    name = eqn.primitive.name
    size_in = max((prod(v.aval.shape) for v in eqn.invars), default=0)
    size_out = sum(prod(v.aval.shape) for v in eqn.outvars)
    if name == "dot_general":
        (contracted, _), _ = eqn.params["dimension_numbers"]
        return "multiply-add", 2 * size_out * prod(eqn.invars[0].aval.shape[i] for i in contracted)
    if name == "conv_general_dilated":
        return "multiply-add", 2 * _multiply_adds(eqn)
    if name == "integer_pow":
        return "elementwise", size_out * _multiplications(eqn.params["y"])
    if name in ("sort", "top_k"):
        axis = eqn.params.get("dimension", eqn.params.get("axis", -1))
        length = eqn.invars[0].aval.shape[axis]
        rounds = max(1, ceil(log2(max(2, length))))
        return "comparison", size_in * rounds * eqn.params.get("num_keys", 1)
    if name == "scatter-add":
        return "elementwise", prod(eqn.invars[2].aval.shape)
    if name in RESULT_CLASSES:
        return RESULT_CLASSES[name], size_out
    if name in OPERAND_CLASSES:
        return OPERAND_CLASSES[name], size_in
    raise NotImplementedError(f"primitive {name!r} has no class: its FLOPs cannot be counted")


def _multiplications(power: int) -> int:
    """Multiplications of x ** power by repeated squaring, and one division if the power is negative."""
    size = abs(power)
    return max(0, size.bit_length() + size.bit_count() - 2) + (power < 0)


def _multiply_adds(eqn: Any) -> int:
    """Multiply-adds of a convolution, without padding and the holes of a dilated input."""
    image, kernel, out = (v.aval.shape for v in (*eqn.invars, *eqn.outvars))
    numbers = eqn.params["dimension_numbers"]
    out_n, out_c, *out_axes = numbers.out_spec
    pairs = 1
    for axis, out_axis in enumerate(out_axes):
        stride, (low, _) = eqn.params["window_strides"][axis], eqn.params["padding"][axis]
        gap, spread = eqn.params["lhs_dilation"][axis], eqn.params["rhs_dilation"][axis]
        taps = spread * np.arange(kernel[numbers.rhs_spec[2 + axis]])
        place = stride * np.arange(out[out_axis])[:, None] + taps - low
        inside = (place >= 0) & (place <= gap * (image[numbers.lhs_spec[2 + axis]] - 1))
        pairs *= int(np.sum(inside & (place % gap == 0)))
    return out[out_n] * out[out_c] * kernel[numbers.rhs_spec[1]] * pairs

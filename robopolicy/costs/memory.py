"""Counts memory traffic and peak memory of a function on its jaxpr, as if every primitive ran alone.

The state of a policy is what it keeps from step to step.

The counts assume no fusion, no cache, and no reuse of an operand's memory for a result. A compiler does
better, but the counts do not depend on the compiler.
"""

from collections.abc import Iterator
from math import prod
from typing import Any

import jax
from jax.extend import core

from robopolicy.policies.base import KEY, PolicyFunctions, state_shape

CALLS = frozenset("pjit jit closed_call core_call remat2 checkpoint custom_jvp_call custom_vjp_call".split())
VIEWS = frozenset("bitcast_convert_type expand_dims reshape squeeze stop_gradient".split())
"""Primitives whose result is their operand with another shape: they touch no memory."""
PARTIAL_READS = frozenset("dynamic_slice gather slice".split())
"""Primitives that read only as much of their first operand as they write."""


def bodies(eqn: Any) -> list[core.ClosedJaxpr]:
    """The jaxprs inside a primitive: all branches of a conditional, the body of a loop or call, else none."""
    name = eqn.primitive.name
    if name == "cond":
        return list(eqn.params["branches"])
    if name != "scan" and name not in CALLS:
        return []
    # A primitive with a custom derivative holds several functions; the first is the function itself.
    body = next(v for v in eqn.params.values() if isinstance(v, core.ClosedJaxpr | core.Jaxpr))
    return [body if isinstance(body, core.ClosedJaxpr) else core.ClosedJaxpr(body, ())]


def traffic(eqn: Any) -> int:
    """Bytes that a primitive reads and writes in one execution, without the jaxprs inside it.

    It reads every operand once, even if it appears twice, and writes every result. A loop copies the slices
    that its body reads and those that it stacks.
    """
    name = eqn.primitive.name
    if name in VIEWS or name == "cond" or name in CALLS:
        return 0
    if name == "scan":
        (body,) = bodies(eqn)
        sliced = [outer for outer, _ in _slices(eqn.invars, body.jaxpr.invars)]
        stacked = [outer for outer, _ in _slices(eqn.outvars, body.jaxpr.outvars)]
        return 2 * _size(*sliced, *stacked)
    written = _size(*eqn.outvars)
    if name in PARTIAL_READS:
        return 2 * written + _size(*_variables(eqn.invars[1:]))
    return written + _size(*dict.fromkeys(_variables(eqn.invars)))


def state_bytes(policy: PolicyFunctions) -> int:
    """Bytes of the state that a policy hands from each step to the next, 0 for a policy without state."""
    state = state_shape(policy, jax.eval_shape(policy.init_features, KEY))
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))


def peak_bytes(closed: core.ClosedJaxpr) -> int:
    """Peak memory: the largest number of bytes alive at any time.

    Arguments and constants live throughout. Any other array lives from the primitive that creates it to the
    last one that reads it or a view of it. The arrays inside a call or branch add to those around it. A loop
    adds one pass, the slices of the pass, and the loop's results. A conditional counts as its largest branch.
    """
    constants = {id(c): c.size * c.dtype.itemsize for c in _constants(closed)}
    return sum(constants.values()) + _size(*closed.jaxpr.invars) + _temporaries(closed.jaxpr)


def _temporaries(jaxpr: Any) -> int:
    """Peak bytes of the arrays that a jaxpr creates, including its results."""
    origin: dict[Any, Any] = {}  # from a view to its array
    last: dict[Any, int] = {}
    for place, eqn in enumerate(jaxpr.eqns):
        operands = [origin.get(v, v) for v in _variables(eqn.invars)]
        last |= dict.fromkeys(operands, place)
        if eqn.primitive.name in VIEWS and operands:
            origin[eqn.outvars[0]] = operands[0]
    last |= {origin.get(v, v): len(jaxpr.eqns) for v in _variables(jaxpr.outvars)}
    alive: dict[Any, int] = {}
    peak = 0
    for place, eqn in enumerate(jaxpr.eqns):
        created = {v: _size(v) for v in eqn.outvars if v not in origin}
        peak = max(peak, sum(alive.values()) + max(sum(created.values()), _inner_peak(eqn)))
        alive |= created
        # An unused result dies as soon as it is created.
        for v in (*created, *(origin.get(v, v) for v in _variables(eqn.invars))):
            if last.get(v, place) == place:
                alive.pop(v, None)
    return peak


def _inner_peak(eqn: Any) -> int:
    """Peak bytes of the jaxprs inside a primitive, including their results."""
    inside = max((_temporaries(body.jaxpr) for body in bodies(eqn)), default=0)
    if eqn.primitive.name != "scan":
        return inside
    (body,) = bodies(eqn)
    return _size(*eqn.outvars, *(inner for _, inner in _slices(eqn.invars, body.jaxpr.invars))) + inside


def _slices(outer: Any, inner: Any) -> list[tuple[Any, Any]]:
    """The arrays of a loop that its body reads or stacks in slices, each with its slice.

    Told by their shapes, which differ for these alone: the parameters of the primitive have other names in
    other versions of JAX.
    """
    return [(a, b) for a, b in zip(outer, inner, strict=True) if a.aval.shape != b.aval.shape]


def _variables(atoms: Any) -> list[Any]:
    """`atoms` without literals, which need no memory access."""
    return [atom for atom in atoms if not isinstance(atom, core.Literal)]


def _size(*atoms: Any) -> int:
    return sum(prod(atom.aval.shape) * atom.aval.dtype.itemsize for atom in atoms)


def _constants(closed: core.ClosedJaxpr) -> Iterator[Any]:
    """The constants of a jaxpr and of all jaxprs inside it, with repetitions."""
    yield from closed.consts
    for eqn in closed.jaxpr.eqns:
        for body in bodies(eqn):
            yield from _constants(body)

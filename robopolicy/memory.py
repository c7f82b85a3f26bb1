"""What a function does to memory, counted on its jaxpr as if every primitive ran alone.

Nothing is fused, nothing stays in a cache, and no result takes over the memory of an operand. A compiler does
better; how much better depends on the compiler, and these counts do not.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

from jax.extend import core

CALLS = frozenset("pjit jit closed_call core_call remat2 checkpoint custom_jvp_call custom_vjp_call".split())
VIEWS = frozenset("bitcast_convert_type expand_dims reshape squeeze stop_gradient".split())
"""Primitives whose result is their operand under another shape: they touch no memory."""
TAKERS = frozenset("dynamic_slice gather slice".split())
"""Primitives that read no more of their first operand than they write."""


def bodies(eqn: Any) -> list[core.ClosedJaxpr]:
    """The jaxprs that a primitive runs: the branches of a conditional, of which it runs one, or the body of a
    loop or a call. None for a primitive that does its work itself.
    """
    name = eqn.primitive.name
    if name == "cond":
        return list(eqn.params["branches"])
    if name != "scan" and name not in CALLS:
        return []
    found = [value for value in eqn.params.values() if isinstance(value, core.ClosedJaxpr | core.Jaxpr)]
    # A custom derivative carries several functions; the first is what is computed.
    body = found[0]
    return [core.ClosedJaxpr(body, ()) if isinstance(body, core.Jaxpr) else body]


def traffic(eqn: Any) -> int:
    """Bytes that a primitive reads and writes by itself, in one execution; what it runs is not counted.

    It reads every operand once, also one that it is given twice, and writes every result. A loop copies the
    slices that it hands to its body, and those that it stacks.
    """
    name = eqn.primitive.name
    if name in VIEWS or name == "cond" or name in CALLS:
        return 0
    if name == "scan":
        first, carried = _first_slice(eqn), eqn.params["num_carry"]
        return 2 * _size(*eqn.invars[first:], *eqn.outvars[carried:])
    written = _size(*eqn.outvars)
    if name in TAKERS:
        return 2 * written + _size(*_variables(eqn.invars[1:]))
    return written + _size(*dict.fromkeys(_variables(eqn.invars)))


def peak_bytes(closed: core.ClosedJaxpr) -> int:
    """The most bytes that are alive at a time.

    Arguments and constants live from first to last, and every other array from the primitive that makes it to
    the last one that reads it or a view of it. While a call or a branch runs, what it has alive comes on top
    of what is alive around it; so does one pass of a loop, beside the loop's results and the slices of the
    pass. Of a conditional, the branch that needs most counts.
    """
    constants = {id(c): c.size * c.dtype.itemsize for c in _constants(closed)}
    return sum(constants.values()) + _size(*closed.jaxpr.invars) + _temporaries(closed.jaxpr)


def _temporaries(jaxpr: Any) -> int:
    """The most bytes alive at a time of what a jaxpr makes, its results included."""
    origin: dict[Any, Any] = {}  # of a view
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
        made = {v: _size(v) for v in eqn.outvars if v not in origin}
        peak = max(peak, sum(alive.values()) + max(sum(made.values()), _running(eqn)))
        alive |= made
        # An unused result, too, is alive only while it is made.
        for v in (*made, *(origin.get(v, v) for v in _variables(eqn.invars))):
            if last.get(v, place) == place:
                alive.pop(v, None)
    return peak


def _running(eqn: Any) -> int:
    """What a primitive has alive while it runs others, its results included."""
    inside = max((_temporaries(body.jaxpr) for body in bodies(eqn)), default=0)
    if eqn.primitive.name != "scan":
        return inside
    (body,) = bodies(eqn)
    return _size(*eqn.outvars, *body.jaxpr.invars[_first_slice(eqn) :]) + inside


def _first_slice(eqn: Any) -> int:
    """Where among the operands of a loop those stand that it hands on in slices."""
    place: int = eqn.params["num_consts"] + eqn.params["num_carry"]
    return place


def _variables(atoms: Any) -> list[Any]:
    """Those of `atoms` that are no literals: these are part of an instruction."""
    return [atom for atom in atoms if not isinstance(atom, core.Literal)]


def _size(*atoms: Any) -> int:
    return sum(prod(atom.aval.shape) * atom.aval.dtype.itemsize for atom in atoms)


def _constants(closed: core.ClosedJaxpr) -> Iterator[Any]:
    """The arrays that a jaxpr and all that it runs hold; one that is held twice comes twice."""
    yield from closed.consts
    for eqn in closed.jaxpr.eqns:
        for body in bodies(eqn):
            yield from _constants(body)

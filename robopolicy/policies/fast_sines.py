"""Sines that XLA can vectorise on a CPU, in place of one call of the C library for each number.

Half the time of a training step with trigonometric features went into these calls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, wraps
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, jaxpr_as_fun

# pi / 2 in three parts; products of the first two with a number below 2^13 are exact in float32.
HALF_PI = (1.5703125, 4.837512969970703125e-4, 7.54978995489188216e-8)
SINE = (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)  # of x^7, x^5 and x^3, to pi / 4
COSINE = (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)  # of x^8, x^6 and x^4
# Calls that their own jaxpr can replace once nothing is differentiated any more.
CALLS = {
    **dict.fromkeys(("jit", "pjit"), "jaxpr"),
    **dict.fromkeys(("closed_call", "custom_jvp_call", "custom_vjp_call"), "call_jaxpr"),
}


def sine(angles: Array) -> Array:
    """sin of float32, within 1e-7 for angles up to 10,000; NaN for infinite ones.

    The angle is reduced to pi / 4 in three parts (Cody and Waite, 1980); polynomials are those of Cephes.
    """
    return _quarter(angles, 0)


def cosine(angles: Array) -> Array:
    """cos of float32, as `sine`."""
    return _quarter(angles, 1)


SINES = {"sin": sine, "cos": cosine}
MANY = 100_000  # in a call


def _quarter(angles: Array, turned: int) -> Array:
    """The sine of float32 angles + turned * pi / 2."""
    nearest = jnp.round(angles * np.float32(2 / np.pi))
    rest = angles
    for part in HALF_PI:
        rest = rest - nearest * np.float32(part)
    square = rest * rest
    odd = _polynomial(SINE, square) * square * rest + rest
    even = _polynomial(COSINE, square) * square * square - np.float32(0.5) * square + np.float32(1)
    quarter = nearest.astype(jnp.int32) + turned
    value = jnp.where(quarter & 1, even, odd)
    return jnp.where(quarter & 2, -value, value)


def _polynomial(coefficients: tuple[float, ...], x: Array) -> Array:
    """A polynomial by Horner's rule, its highest coefficient first."""
    value = jnp.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        value = value * x + np.float32(coefficient)
    return value


@lru_cache(maxsize=32)
def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` of pytrees of arrays, compiled. On a CPU, calls with `MANY` sines have fast ones.

    Fewer take little time, and keep the last bits of recorded episodes. The same function compiles once.
    """

    @wraps(function)
    def chosen(*arguments: Any) -> Any:
        if jax.default_backend() != "cpu":
            return function(*arguments)
        closed, shapes = jax.make_jaxpr(function, return_shape=True)(*arguments)
        leaves = jax.tree.leaves(arguments)
        results = _evaluated(closed, leaves) if _count(closed) >= MANY else jaxpr_as_fun(closed)(*leaves)
        return jax.tree.unflatten(jax.tree.structure(shapes), results)

    return jax.jit(chosen)


def with_fast_sines(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` of pytrees of arrays with `sine` and `cosine` in place of those of float32.

    Apply it to a gradient, not before differentiating.
    """

    def fast(*arguments: Any) -> Any:
        closed, shapes = jax.make_jaxpr(function, return_shape=True)(*arguments)
        return jax.tree.unflatten(jax.tree.structure(shapes), _evaluated(closed, jax.tree.leaves(arguments)))

    return fast


def _evaluated(closed: ClosedJaxpr, inputs: Sequence[Any]) -> list[Any]:
    """The outputs of a program, with fast sines."""
    jaxpr = closed.jaxpr
    values = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*closed.consts, *inputs], strict=True))

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, Literal) else values[atom]

    for equation in jaxpr.eqns:
        arguments, name = [read(atom) for atom in equation.invars], equation.primitive.name
        if _is_sine(equation):
            results = [SINES[name](arguments[0])]
        elif name in CALLS:
            results = _evaluated(equation.params[CALLS[name]], arguments)
        else:
            parameters = {key: _inside(value) for key, value in equation.params.items()}
            results = equation.primitive.bind(*arguments, **parameters)
            if not equation.primitive.multiple_results:
                results = [results]
        values.update(zip(equation.outvars, results, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _inside(parameter: Any) -> Any:
    """A parameter of an operation, fast sines in its programs, such as the body of a scan."""
    if isinstance(parameter, tuple):
        return tuple(_inside(part) for part in parameter) if _programs(parameter) else parameter
    if isinstance(parameter, Jaxpr):  # of a checkpoint
        return _inside(ClosedJaxpr(parameter, ())).jaxpr
    if not isinstance(parameter, ClosedJaxpr):
        return parameter
    return jax.make_jaxpr(lambda *inputs: _evaluated(parameter, inputs))(*parameter.in_avals)


def _count(program: ClosedJaxpr | Jaxpr) -> int:
    """The number of sines in a call of a program, those of all branches and of one round of a `while`."""
    jaxpr: Any = program.jaxpr if isinstance(program, ClosedJaxpr) else program
    total = 0
    for equation in jaxpr.eqns:
        if _is_sine(equation):
            total += prod(equation.outvars[0].aval.shape)
        for parameter in equation.params.values():
            parts = parameter if isinstance(parameter, tuple) else (parameter,)
            inner = sum(_count(part) for part in parts if isinstance(part, ClosedJaxpr | Jaxpr))
            total += inner * (equation.params["length"] if equation.primitive.name == "scan" else 1)
    return total


def _is_sine(equation: Any) -> bool:
    return equation.primitive.name in SINES and equation.outvars[0].aval.dtype == jnp.float32


def _programs(parts: tuple[Any, ...]) -> bool:
    return any(isinstance(part, ClosedJaxpr) for part in parts)

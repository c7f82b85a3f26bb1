"""Operations on each number by itself, of operands that are broadcast."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from onnx import TensorProto

from robopolicy.bundles.c_source.loops import literal
from robopolicy.bundles.c_source.operands import tensor
from robopolicy.bundles.c_source.program import Program
from robopolicy.bundles.c_source.reductions import reduce
from robopolicy.bundles.c_source.tensors import FLOAT, INTEGER, Tensor, UnsupportedError

Inputs = Sequence[Any]
Attributes = Mapping[str, Any]
INTEGERS = (TensorProto.INT32, TensorProto.INT64, TensorProto.INT8, TensorProto.INT16)


def binary(
    template: str, program: Program, inputs: Inputs, attributes: Attributes, _: int, kind: str | None = None
) -> list[Tensor]:
    """An operation of two numbers, as a text with {a} and {b}."""
    a, b = (tensor(program, one) for one in inputs)
    out = program.work(np.broadcast_shapes(a.shape, b.shape), kind or a.kind)
    program.map([a, b], out, lambda x, y: template.format(a=x, b=y))
    return [out]


def unary(template: str, kind: str | None, program: Program, inputs: Inputs, *_: Any) -> list[Tensor]:
    """An operation of one number, as a text with {a}."""
    a = tensor(program, inputs[0])
    out = program.work(a.shape, kind or a.kind)
    program.map([a], out, lambda x: template.format(a=x))
    return [out]


def by_rows(function: str, extra: str, program: Program, inputs: Inputs, *_: Any) -> list[Tensor]:
    """An elementary function of rows of numbers."""
    a = program.row(tensor(program, inputs[0]))
    out = program.work(a.shape, FLOAT)
    program.add_rows(
        lambda to, at: f"{function}({to.pointer}, {at.pointer}, {at.size}{extra});\n", [out], [a]
    )
    return [out]


def divide(program: Program, inputs: Inputs, attributes: Attributes, count: int) -> list[Tensor]:
    """Div of real numbers."""
    if tensor(program, inputs[0]).kind != FLOAT:
        raise UnsupportedError("operation Div of integers has no C source")
    return binary("{a} / {b}", program, inputs, attributes, count)


def extreme(
    function: str, sign: str, program: Program, inputs: Inputs, attributes: Attributes, _: int
) -> list[Tensor]:
    """Max or Min of any number of operands; NaN if one of them is NaN."""
    result, *others = (tensor(program, one) for one in inputs)
    for other in others:
        if result.values is not None:
            result, other = other, result
        out = program.work(np.broadcast_shapes(result.shape, other.shape), result.kind)
        if result.kind == FLOAT and other.values is None:
            program.map([result, other], out, lambda x, y: f"{function}({x}, {y})")
        else:
            # A constant limit is no NaN, and a comparison with NaN is false, so that NaN is kept.
            program.map([result, other], out, lambda x, y: f"{y} {sign} {x} ? {y} : {x}")
        result = out
    return [result]


def clip(program: Program, inputs: Inputs, attributes: Attributes, count: int) -> list[Tensor]:
    """Clip; a missing limit does not clip."""
    result = [tensor(program, inputs[0])]
    for place, function, sign in ((1, "larger", ">"), (2, "smaller", "<")):
        if place < len(inputs) and inputs[place] is not None:
            result = extreme(function, sign, program, [result[0], inputs[place]], attributes, count)
    return result


def relu(program: Program, inputs: Inputs, attributes: Attributes, count: int) -> list[Tensor]:
    """Relu."""
    return extreme("larger", ">", program, [inputs[0], np.zeros((), np.float32)], attributes, count)


def power(program: Program, inputs: Inputs, attributes: Attributes, count: int) -> list[Tensor]:
    """Pow with the exponent 0.5 or a small whole number."""
    exponent = inputs[1]
    if isinstance(exponent, Tensor) or np.unique(exponent).size != 1:
        raise UnsupportedError("operation Pow with exponents that differ has no C source")
    number = float(np.ravel(exponent)[0])
    if number == 0.5:
        return by_rows("sqrts", "", program, inputs)
    if number != int(number) or not 1 <= abs(number) <= 8:
        raise UnsupportedError(f"operation Pow with the exponent {number:g} has no C source")
    text = " * ".join(["{a}"] * int(abs(number)))
    return unary(text if number > 0 else f"1.0f / ({text})", None, program, inputs)


def cast(program: Program, inputs: Inputs, attributes: Attributes, count: int) -> list[Tensor]:
    """Cast between float32, integers and truths."""
    a, to = tensor(program, inputs[0]), attributes["to"]
    if to == TensorProto.FLOAT:
        return [a] if a.kind == FLOAT else unary("(float){a}", FLOAT, program, inputs)
    if to == TensorProto.BOOL:
        return unary("{a} != 0", INTEGER, program, inputs)
    if to not in INTEGERS:
        raise UnsupportedError(f"operation Cast to {TensorProto.DataType.Name(to)} has no C source")
    if a.kind == INTEGER:
        return [a]
    if a.kind == FLOAT:
        return unary("to_integer({a})", INTEGER, program, inputs)
    return unary("(int32_t){a}", INTEGER, program, inputs)


def cast_like(program: Program, inputs: Inputs, attributes: Attributes, count: int) -> list[Tensor]:
    """CastLike."""
    is_real = tensor(program, inputs[1]).kind == FLOAT
    to = TensorProto.FLOAT if is_real else TensorProto.INT32
    return cast(program, inputs[:1], {"to": to}, count)


def where(program: Program, inputs: Inputs, attributes: Attributes, _: int) -> list[Tensor]:
    """Where."""
    chosen, a, b = (tensor(program, one) for one in inputs)
    out = program.work(np.broadcast_shapes(chosen.shape, a.shape, b.shape), a.kind)
    program.map([chosen, a, b], out, lambda c, x, y: f"{c} ? {x} : {y}")
    return [out]


def is_infinite(program: Program, inputs: Inputs, attributes: Attributes, _: int) -> list[Tensor]:
    """IsInf."""
    most = literal(np.finfo(np.float32).max, FLOAT)
    signs = {"detect_positive": f"{{a}} > {most}", "detect_negative": f"{{a}} < -{most}"}
    parts = [text for name, text in signs.items() if attributes.get(name, 1)]
    return unary(" || ".join(parts) or "0", INTEGER, program, inputs)


def modulo(program: Program, inputs: Inputs, attributes: Attributes, count: int) -> list[Tensor]:
    """Mod: of integers with the sign of the divisor, of real numbers with the sign of the dividend."""
    kind = tensor(program, inputs[0]).kind
    if (kind == FLOAT) != bool(attributes.get("fmod", 0)):
        raise UnsupportedError(
            f"operation Mod of {kind} with fmod {attributes.get('fmod', 0)} has no C source"
        )
    function = "rest_of" if kind == FLOAT else "modulo"
    return binary(f"{function}({{a}}, {{b}})", program, inputs, attributes, count)


def softmax(program: Program, inputs: Inputs, attributes: Attributes, count: int) -> list[Tensor]:
    """Softmax along one axis."""
    a = tensor(program, inputs[0])
    axes = np.array([attributes.get("axis", -1)])
    keep = {"keepdims": 1}
    (most,) = reduce("Max", program, [a, axes], keep, 1)
    shifted = binary("{a} - {b}", program, [a, most], {}, 1)
    (powers,) = by_rows("exps", "", program, shifted)
    (total,) = reduce("Sum", program, [powers, axes], keep, 1)
    return binary("{a} / {b}", program, [powers, total], {}, 1)


SIGNS = {
    "Less": "<",
    "Greater": ">",
    "LessOrEqual": "<=",
    "GreaterOrEqual": ">=",
    "Equal": "==",
    "And": "&",
    "Or": "|",
    "Xor": "^",
}
UNARY: dict[str, tuple[str, str | None]] = {
    "Abs": ("{a} > 0 ? {a} : 0 - {a}", None),
    "Ceil": ("-downward(-{a})", None),
    "Floor": ("downward({a})", None),
    "IsNaN": ("{a} != {a}", INTEGER),
    "Neg": ("-{a}", None),
    "Not": ("!{a}", INTEGER),
    "Reciprocal": ("1.0f / {a}", None),
    "Round": ("nearest({a})", None),
    "Sign": ("{a} > 0 ? 1 : {a} < 0 ? -1 : {a}", None),
}
ROWS = {
    "Cos": ("sines", ", 1"),
    "Exp": ("exps", ""),
    "Log": ("logs", ""),
    "Sigmoid": ("sigmoids", ""),
    "Sin": ("sines", ", 0"),
    "Sqrt": ("sqrts", ""),
    "Tanh": ("tanhs", ""),
}
OPERATIONS: dict[str, Callable[..., list[Tensor]]] = {
    **{name: partial(binary, f"{{a}} {sign} {{b}}", kind=INTEGER) for name, sign in SIGNS.items()},
    **{name: partial(binary, f"{{a}} {s} {{b}}") for name, s in (("Add", "+"), ("Sub", "-"), ("Mul", "*"))},
    **{name: partial(unary, *parts) for name, parts in UNARY.items()},
    **{name: partial(by_rows, *parts) for name, parts in ROWS.items()},
    "Cast": cast,
    "CastLike": cast_like,
    "Clip": clip,
    "Div": divide,
    "IsInf": is_infinite,
    "Max": partial(extreme, "larger", ">"),
    "Min": partial(extreme, "smaller", "<"),
    "Mod": modulo,
    "Pow": power,
    "Relu": relu,
    "Softmax": softmax,
    "Where": where,
}

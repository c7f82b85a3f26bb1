"""The C function of a graph: its statements, its constants and the elementary functions that it calls."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import NamedTuple

import numpy as np

from robopolicy.bundles.c_source import choices, elementwise, layout, products, reductions
from robopolicy.bundles.c_source.arena import arrange, needed
from robopolicy.bundles.c_source.joining import joined
from robopolicy.bundles.c_source.loops import literal
from robopolicy.bundles.c_source.lowering import Lowered, lower
from robopolicy.bundles.c_source.program import block
from robopolicy.bundles.c_source.tensors import BYTE, FLOAT, INTEGER, Buffer

OPERATIONS = {
    **layout.OPERATIONS,
    **elementwise.OPERATIONS,
    **reductions.OPERATIONS,
    **products.OPERATIONS,
    **choices.OPERATIONS,
}
CALL = re.compile(r"\b(\w+)\(")
PART = re.compile(r"^// (\w+):(.*)\n", re.MULTILINE)
START = """\
#include <float.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* The same bits everywhere: no multiplication is joined with an addition, no number has more digits than its
   type. The other two settings let gcc use vectors; they change no result. */
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
#pragma GCC optimize("fp-contract=off", "no-trapping-math", "no-math-errno")
#endif
#if defined(__FAST_MATH__) || defined(__ASSOCIATIVE_MATH__) || defined(__RECIPROCAL_MATH__)
#error "policy.c needs exact arithmetic: compile it without -ffast-math and the flags that it consists of"
#endif
#if defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__
#error "policy.c refuses numbers that are not finite: compile it without -ffinite-math-only"
#endif
#if FLT_EVAL_METHOD != 0
#error "policy.c needs numbers of float precision: on 32-bit x86, compile it with -msse2 -mfpmath=sse"
#endif
"""
PRODUCTS = frozenset(("tile", *(f"columns_{size}" for size in products.WIDTHS)))
VECTORS = """\
/* From here on, gcc takes vectors at -O2, too: they change no result. Large products are slower with them. */
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 12
#pragma GCC optimize("vect-cost-model=cheap")
#endif
"""
IN_A_LINE = 8  # numbers of a constant


class Source(NamedTuple):
    """A graph in C.

    Attributes:
      text: the definition of `static int graph(inputs, state, outputs, next state, numbers, indices)`, with
        all that it needs. It returns 0, or 1 if a number that chooses a place is out of range.
      lowered: the graph.
      numbers, indices: sizes of its work memory, in floats and in int32_t.
    """

    text: str
    lowered: Lowered
    numbers: int
    indices: int


def c_source(model: bytes) -> Source:
    """The C source of an ONNX graph. Raises UnsupportedError, in one line, that names what has none."""
    lowered = lower(model, OPERATIONS)
    program = lowered.program
    results = [*lowered.outputs.values(), *(after for _, _, after in lowered.state.values())]
    goals = []
    for place, result in enumerate(results):
        goal = Buffer(f"out{place}", FLOAT, max(1, result.size), is_argument=True)
        goals.append(goal)
        program.copy(result, goal.plain.seen_as(goal.plain.view[: result.size].reshape(result.shape)))
    statements = joined(needed(program.statements, goals))
    arena = arrange(statements)
    used = {buffer for statement in statements for buffer in statement.reads}
    constants = [one for one in program.constants.values() if one in used]
    code = "".join(f"    {line}\n" for one in statements for line in block(one.code).splitlines())
    functions = "\n".join(one.function for one in statements if one.function)
    named = [one for one in constants if re.search(rf"\b{one.name}\b", functions + code)]
    starts = {FLOAT: "numbers", INTEGER: "indices"}
    pointers = "".join(
        f"    {one.kind} *const {one.name} = {starts[one.kind]} + {place};\n"
        for one, place in sorted(arena.places.items(), key=lambda pair: int(pair[0].name[1:]))
    )
    inputs = [*lowered.inputs.values(), *(before for _, before, _ in lowered.state.values())]
    arguments = [f"const {one.kind} *{one.buffer.name}" for one in inputs]
    arguments += [f"float *{goal.name}" for goal in goals]
    names = [one.buffer.name for one in inputs]
    unused = "".join(
        f"    (void){name};\n"
        for name in (*names, "numbers", "indices")
        if not re.search(rf"\b{name}\b", code + pointers)
    )
    body = (
        f"static int graph({', '.join([*arguments, 'float *numbers', 'int32_t *indices'])})\n"
        f"{{\n{pointers}    int wrong = 0;\n{unused}{code}    return wrong;\n}}\n"
    )
    text = "\n".join([START, *elementary(functions + code), *map(_definition, named), functions, body])
    return Source(text, lowered, max(1, arena.sizes[FLOAT]), max(1, arena.sizes[INTEGER]))


def elementary(code: str) -> list[str]:
    """The functions that `code` calls and those that they need: products, then those of elementary.c."""
    text = files(__package__).joinpath("elementary.c").read_text("utf-8")
    _, *parts = PART.split(text)
    functions: dict[str, tuple[list[str], str]] = {
        name: (others.split(), body.strip() + "\n")
        for name, others, body in zip(parts[::3], parts[1::3], parts[2::3], strict=True)
    }
    functions.update({f"columns_{size}": ([], products.columns(size)) for size in products.WIDTHS[:-1]})
    functions["tile"] = ([], products.tile())
    wanted, waiting = set[str](), [name for name in CALL.findall(code) if name in functions]
    while waiting:
        name = waiting.pop()
        if name not in wanted:
            wanted.add(name)
            waiting += functions[name][0]
    bodies = {name: body for name, (_, body) in functions.items() if name in wanted}
    alone = [body for name, body in bodies.items() if name in PRODUCTS]
    return [*alone, VECTORS, *(body for name, body in bodies.items() if name not in PRODUCTS)]


def _definition(constant: Buffer) -> str:
    assert constant.values is not None
    numbers = [literal(one, constant.kind) for one in constant.values]
    kind, values = constant.kind, constant.values
    if kind == INTEGER and values.min() >= 0 and values.max() <= np.iinfo(np.uint8).max:
        kind = BYTE
    lines = [", ".join(numbers[start : start + IN_A_LINE]) for start in range(0, len(numbers), IN_A_LINE)]
    inside = "".join(f"    {line},\n" for line in lines)
    return f"static const {kind} {constant.name}[{constant.size}] = {{\n{inside}}};\n"

"""Products of matrices: Gemm, MatMul, Einsum and Conv. The order of each sum is fixed by the source."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from robopolicy.bundles.c_source.elementwise import binary
from robopolicy.bundles.c_source.layout import pad
from robopolicy.bundles.c_source.loops import Nest, around, index, loops
from robopolicy.bundles.c_source.operands import tensor
from robopolicy.bundles.c_source.program import Program
from robopolicy.bundles.c_source.reductions import reduce
from robopolicy.bundles.c_source.tensors import FLOAT, Tensor, UnsupportedError

Inputs = Sequence[Any]
Attributes = Mapping[str, Any]
WIDTHS = (16, 8, 4, 1)  # of the functions that compute some columns of a row at once
ROWS = 4  # that large products compute at once
LARGE = 500_000  # multiplications


def columns(width: int) -> str:
    """The C function that computes `width` columns of a row of a product, each in a variable of its own."""
    names = [f"s{column}" for column in range(width)]
    sums = "".join(f"        {name} += x * row[{column}];\n" for column, name in enumerate(names))
    stores = "".join(f"    y[{column}] = {name};\n" for column, name in enumerate(names))
    return (
        f"/* {width} numbers of a row of a matrix product: the sums over i of a[i step] b[i width + j]. */\n"
        f"static void columns_{width}(float *restrict y, const float *restrict a, const float *restrict b,\n"
        "                       size_t depth, size_t step, size_t width)\n{\n"
        f"    float {', '.join(f'{name} = 0.0f' for name in names)};\n"
        "    for (size_t i = 0; i < depth; i++) {\n"
        "        const float x = a[i * step], *row = b + i * width;\n"
        f"{sums}    }}\n{stores}}}\n"
    )


def tile() -> str:
    """The C function that computes `WIDTHS[0]` columns of several rows at once, for large products."""
    width = WIDTHS[0]
    names = [[f"s{row}_{column}" for column in range(width)] for row in range(ROWS)]
    starts = "".join(f"    float {', '.join(f'{name} = 0.0f' for name in row)};\n" for row in names)
    values = ", ".join(f"x{row} = a[i * step + {row} * next]" for row in range(ROWS))
    sums = "".join(
        f"        {name} += x{row} * line[{column}];\n"
        for row, line in enumerate(names)
        for column, name in enumerate(line)
    )
    stores = "".join(
        f"    y[{row} * across + {column}] = {name};\n"
        for row, line in enumerate(names)
        for column, name in enumerate(line)
    )
    return (
        f"/* The same for {ROWS} rows, which are `across` apart in y and `next` in a. */\n"
        "static void tile(float *restrict y, const float *restrict a, const float *restrict b,\n"
        "                 size_t depth, size_t step, size_t width, size_t across, size_t next)\n{\n"
        f"{starts}    for (size_t i = 0; i < depth; i++) {{\n"
        f"        const float {values}, *line = b + i * width;\n"
        f"{sums}    }}\n{stores}}}\n"
    )


class _Sides(NamedTuple):
    """Two operands by their labels: those that both and the result have, those of one alone, the summed ones.

    `a` has the axes both, rows, summed; `b` both, summed, across.
    """

    both: str
    rows: str
    summed: str
    across: str
    a: Tensor
    b: Tensor

    def size(self, which: str) -> int:
        """The number of elements along the axes of a part."""
        start = len(self.both)
        length = {
            "rows": self.a.shape[start : start + len(self.rows)],
            "across": self.b.shape[start + len(self.summed) :],
            "summed": self.b.shape[start : start + len(self.summed)],
        }[which]
        return int(np.prod(length, dtype=int))

    @property
    def in_rows(self) -> bool:
        """Whether `b` has its columns in a row, and axes of sums that are one axis for `a`, too."""
        start = len(self.both)
        across = self.b.at((0,) * (start + len(self.summed)) + (Ellipsis,))
        nest = loops([across])
        return (
            len(nest.sizes) <= 1
            and all(steps in ((), (1,)) for steps in nest.strides)
            and len(self._summed().sizes) <= 1
        )

    def _summed(self) -> Any:
        start = len(self.both)
        a = self.a.at((0,) * (start + len(self.rows)) + (Ellipsis,))
        b = self.b.at((0,) * start + (Ellipsis, *(0,) * len(self.across)))
        return loops([a, b])

    @property
    def steps(self) -> tuple[int, int]:
        """How far summed elements are apart in `a` and in `b`."""
        nest = self._summed()
        return (nest.strides[0][0], nest.strides[1][0]) if nest.sizes else (0, 0)

    @property
    def cost(self) -> float:
        """An estimate of the time, to choose a side by."""
        across = self.size("across")
        work = self.size("rows") * across * self.size("summed")
        if self.in_dots:
            return 1.5 * work
        each = 1.0 if across >= 8 else 2.0 if across >= 4 else 6.0
        copy = 0 if self.in_rows or self.b.values is not None else 8 * self.b.size
        return each * work + copy

    @property
    def in_dots(self) -> bool:
        """Whether each result is a sum over elements that lie in a row on both sides, and there are few."""
        return self.size("across") < 4 and len(self._summed().sizes) == 1 and self.steps == (1, 1)


def contract(program: Program, a: Tensor, labels_a: str, b: Tensor, labels_b: str, out: str) -> Tensor:
    """The sum of products over all labels that `out` lacks, as `numpy.einsum` defines it."""
    if a.kind != FLOAT or b.kind != FLOAT:
        raise UnsupportedError("a product of matrices of integers has no C source")
    a, labels_a = _without(program, a, labels_a, labels_b + out)
    b, labels_b = _without(program, b, labels_b, labels_a + out)
    sides = min(
        _sides(a, labels_a, b, labels_b, out), _sides(b, labels_b, a, labels_a, out), key=attrgetter("cost")
    )
    made = _product(program, sides)
    labels = sides.both + sides.rows + sides.across
    return made.seen_as(made.view.transpose([labels.index(label) for label in out]))


def _without(program: Program, one: Tensor, labels: str, needed: str) -> tuple[Tensor, str]:
    """The operand with its sums over the labels that nothing else has."""
    alone = [place for place, label in enumerate(labels) if label not in needed]
    if not alone:
        return one, labels
    (one,) = reduce("Sum", program, [one, np.array(alone)], {"keepdims": 0}, 1)
    return one, "".join(label for label in labels if label in needed)


def _sides(a: Tensor, labels_a: str, b: Tensor, labels_b: str, out: str) -> _Sides:
    both = "".join(label for label in out if label in labels_a and label in labels_b)
    rows = "".join(label for label in out if label in labels_a and label not in labels_b)
    across = "".join(label for label in out if label in labels_b and label not in labels_a)
    summed = "".join(label for label in labels_b if label not in out)
    return _Sides(
        *(both, rows, summed, across),
        a.seen_as(a.view.transpose([labels_a.index(label) for label in both + rows + summed])),
        b.seen_as(b.view.transpose([labels_b.index(label) for label in both + summed + across])),
    )


def _product(program: Program, sides: _Sides) -> Tensor:
    start = len(sides.both)
    shape = [*sides.a.shape[: start + len(sides.rows)], *sides.b.shape[start + len(sides.summed) :]]
    out = program.work(shape, FLOAT)
    if not sides.in_dots and not sides.in_rows:
        sides = sides._replace(b=program.row(sides.b))
        if not sides.in_rows:
            sides = sides._replace(a=program.row(sides.a))
    render = partial(_dots if sides.in_dots else _by_columns, sides)
    if all(size == 1 for size in shape[:start]):
        program.add_rows(render, [out], [sides.a], [sides.b])
    else:  # each row needs another part of b
        program.add(render(out, sides.a), [sides.a, sides.b], [out])
    return out


def _dots(sides: _Sides, out: Tensor, a: Tensor) -> str:
    """Each number of a product by itself."""
    start, summed = len(sides.both), (0,) * len(sides.summed)
    rows = a.at((Ellipsis, *summed, *(np.newaxis,) * len(sides.across)))
    b = sides.b.at((slice(None),) * start + summed + (Ellipsis,))
    parts = [out, rows, _along(b, start, len(sides.rows))]
    at, x, y, nest = _in_nest(parts, out.shape)
    return nest.around(f"*({at}) = dot({x}, {y}, {sides.size('summed')});\n")


def _by_columns(sides: _Sides, out: Tensor, a: Tensor) -> str:
    """Some columns of a row of a product at once, and those of several rows if it is large."""
    start, across, depth = len(sides.both), sides.size("across"), sides.size("summed")
    first = out.at((Ellipsis, *(0,) * len(sides.across)))
    rows = a.at((Ellipsis, *(0,) * len(sides.summed)))
    b = sides.b.at((slice(None),) * start + (0,) * (len(sides.summed) + len(sides.across)) + (Ellipsis,))
    at, x, y, nest = _in_nest([first, rows, _along(b, start, len(sides.rows))], first.shape)
    step, width = sides.steps
    done, code = 0, ""
    is_large = sides.size("rows") * across * depth >= LARGE and across >= WIDTHS[0]
    if is_large and nest.sizes and nest.sizes[-1] % ROWS == 0 and nest.strides[2][-1] == 0:
        done, last = across - across % WIDTHS[0], nest.names[-1]
        code = (
            f"for (size_t {last} = 0; {last} < {nest.sizes[-1]}; {last} += {ROWS})\n"
            f"    for (size_t j = 0; j < {done}; j += {WIDTHS[0]})\n"
            f"        tile({at} + j, {x}, {y} + j, {depth}, {step}, {width}, {nest.strides[0][-1]}, "
            f"{nest.strides[1][-1]});\n"
        )
        code = around(nest.sizes[:-1], nest.names[:-1], code)
    body = ""
    for size in WIDTHS:
        times = (across - done) // size
        call = f"columns_{size}({at} + {{j}}, {x}, {y} + {{j}}, {depth}, {step}, {width});\n"
        if times == 1:
            body += call.format(j=done)
        elif times:
            loop = f"for (size_t j = {done}; j < {done + times * size}; j += {size})\n    "
            body += loop + call.format(j="j")
        done += times * size
    return code + (nest.around(body) if body else "")


def _along(b: Tensor, both: int, rows: int) -> Tensor:
    """A part of `b` with axes for rows after its axes of both; without these if they have one place each."""
    if all(size == 1 for size in b.shape[:both]):
        return b.seen_as(b.view.reshape(b.shape[both:]))
    return b.at((slice(None),) * both + (np.newaxis,) * rows + (Ellipsis,))


def _in_nest(parts: Sequence[Tensor], shape: Sequence[int]) -> tuple[str, str, str, Nest]:
    """Loops over three tensors that are broadcast to `shape`, and the addresses of their elements."""
    spread = [one.seen_as(np.broadcast_to(one.view, tuple(shape))) for one in parts]
    nest = loops(spread)
    at, x, y = (
        f"{one.buffer.name} + {index(one.offset, steps, nest.names)}"
        for one, steps in zip(spread, nest.strides, strict=True)
    )
    return at, x, y, nest


def gemm(program: Program, inputs: Inputs, attributes: Attributes, _: int) -> list[Tensor]:
    """Gemm: alpha a b + beta c."""
    a, b = (tensor(program, one) for one in inputs[:2])
    labels = ["km" if attributes.get("transA", 0) else "mk", "nk" if attributes.get("transB", 0) else "kn"]
    result = contract(program, a, labels[0], b, labels[1], "mn")
    alpha, beta = attributes.get("alpha", 1.0), attributes.get("beta", 1.0)
    if alpha != 1.0:
        (result,) = binary("{a} * {b}", program, [result, np.float32(alpha)], {}, 1)
    if len(inputs) < 3 or inputs[2] is None or beta == 0.0:
        return [result]
    if not isinstance(inputs[2], Tensor) and not np.any(inputs[2]):
        return [result]
    c = inputs[2]
    if beta != 1.0:
        (c,) = binary("{a} * {b}", program, [c, np.float32(beta)], {}, 1)
    return binary("{a} + {b}", program, [result, c], {}, 1)


def matmul(program: Program, inputs: Inputs, attributes: Attributes, _: int) -> list[Tensor]:
    """MatMul, with axes of batches in front."""
    a, b = (tensor(program, one) for one in inputs)
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    letters = "abcdefgh"[: len(batch)]
    labels_a = letters + "mk" if len(a.shape) > 1 else "k"
    labels_b = letters + "kn" if len(b.shape) > 1 else "k"
    out = letters + ("m" if len(a.shape) > 1 else "") + ("n" if len(b.shape) > 1 else "")
    if len(a.shape) > 1:
        a = a.seen_as(np.broadcast_to(a.view, (*batch, *a.shape[-2:])))
    if len(b.shape) > 1:
        b = b.seen_as(np.broadcast_to(b.view, (*batch, *b.shape[-2:])))
    return [contract(program, a, labels_a, b, labels_b, out)]


def einsum(program: Program, inputs: Inputs, attributes: Attributes, _: int) -> list[Tensor]:
    """Einsum with its output told and without an ellipsis; the operands are joined from the left."""
    equation = attributes["equation"].decode().replace(" ", "")
    if "..." in equation or "->" not in equation:
        raise UnsupportedError(f"operation Einsum {equation!r} has no C source")
    left, out = equation.split("->")
    for labels in (*left.split(","), out):
        if len(set(labels)) < len(labels):
            raise UnsupportedError(f"operation Einsum with the label {labels} of a diagonal has no C source")
    result, *others = (tensor(program, one) for one in inputs)
    labels, *waiting = left.split(",")
    while others:
        after = "".join([out, *waiting[1:]])
        both = dict.fromkeys(labels + waiting[0])
        kept = "".join(label for label in both if label in after) if waiting[1:] else out
        result = contract(program, result, labels, others.pop(0), waiting.pop(0), kept)
        labels = kept
    result, labels = _without(program, result, labels, out)
    return [result.seen_as(result.view.transpose([labels.index(label) for label in out]))]


def conv(program: Program, inputs: Inputs, attributes: Attributes, _: int) -> list[Tensor]:
    """Conv of one image in two dimensions, with any strides and pads."""
    image, weights = (tensor(program, one) for one in inputs[:2])
    dilated = any(size != 1 for size in attributes.get("dilations", [1]))
    padded = attributes.get("auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID")
    if len(image.shape) != 4 or image.shape[0] != 1 or attributes.get("group", 1) != 1 or dilated or padded:
        words = "in groups, dilated, padded by auto_pad, or of other shapes than one image"
        raise UnsupportedError(f"operation Conv {words} has no C source")
    pads = attributes.get("pads", [0, 0, 0, 0])
    if any(pads):
        top, left, bottom, right = pads
        sizes = np.array([0, 0, top, left, 0, 0, bottom, right])
        (image,) = pad(program, [image, sizes], {}, 1)
    down, along = attributes.get("strides", [1, 1])
    kernel = weights.shape[2:]
    windows = np.lib.stride_tricks.sliding_window_view(image.view[0], kernel, axis=(1, 2))
    patches = program.row(image.seen_as(windows[:, ::down, ::along].transpose(1, 2, 0, 3, 4)))
    result = contract(program, patches, "hwcyx", weights, "ocyx", "ohw")
    if len(inputs) > 2 and inputs[2] is not None:
        bias = tensor(program, inputs[2])
        bias = bias.at((slice(None), np.newaxis, np.newaxis))
        (result,) = binary("{a} + {b}", program, [result, bias], {}, 1)
    return [result.at(np.newaxis)]


OPERATIONS: dict[str, Callable[..., list[Tensor]]] = {
    "Conv": conv,
    "Einsum": einsum,
    "Gemm": gemm,
    "MatMul": matmul,
}

"""`policy.h` and `policy.c`: a bundle's graph with checks of readings and results, for robots."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from robopolicy.bundles.c_source.loops import literal
from robopolicy.bundles.c_source.source import Source, c_source
from robopolicy.bundles.c_source.tensors import BYTE, FLOAT, UnsupportedError
from robopolicy.runtime.manifest import Manifest, Value

KEYWORDS = frozenset(
    "auto break case char const continue default do double else enum extern float for goto if inline int "
    "long register restrict return short signed sizeof static struct switch typedef union unsigned void "
    "volatile while typeof typeof_unqual "
    # predefined by compilers
    "arm i386 linux unix "
    # and of C++, since its programs may include policy.h
    "alignas alignof and and_eq asm bitand bitor bool catch char16_t char32_t char8_t class co_await "
    "co_return co_yield compl concept const_cast consteval constexpr constinit decltype delete dynamic_cast "
    "explicit export false friend mutable namespace new noexcept not not_eq nullptr operator or or_eq "
    "private protected public reinterpret_cast requires static_assert static_cast template this "
    "thread_local throw true try typeid typename using virtual wchar_t xor xor_eq".split()
)
# Names that belong to compilers, and macros of the headers that the files include, and of policy.h.
RESERVED = re.compile(
    r"_[A-Z_]\w*|U?INT\w*_(C|MAX|MIN|WIDTH)|(PTRDIFF|SIG_ATOMIC|SIZE|WCHAR|WINT)_(MAX|MIN|WIDTH)|NULL|offsetof|"
    r"(DECIMAL|FLT|L?DBL)_\w+|(ROBO)?POLICY_\w+"
)
OWN = frozenset(("BEGUN", "X", "uint8_t"))  # names of the files that no input and no output may have
HEADER = """\
/* {name}: a policy of robopolicy as C99, generated from policy.onnx.

   It allocates nothing, keeps nothing and calls nothing but memcpy and memset. All memory is the caller's,
   so that several threads may each run a policy of their own. Before an episode, call policy_reset; at each
   step, policy_run. Every compiler and processor computes the same bits. */
#ifndef ROBOPOLICY_POLICY_H
#define ROBOPOLICY_POLICY_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {{
#endif

#define POLICY_GRAPH_SHA256 "{digest}"
#define POLICY_PERIOD_SECONDS {period!r}
#define POLICY_DEADLINE_SECONDS {deadline!r} /* from the readings on; a later command is useless */

/* X(name) for each member of policy_readings, in the order of the payload of a drive's OBSERVATION. */
#define POLICY_FOR_EACH_READING(X) {each}
/* What both ends of a drive must agree on: the payload of HELLO. */
#define POLICY_PROTOCOL_DIGEST {{{agreed}}}

/* What the functions return. */
enum {{
    POLICY_OK = 0,
    POLICY_NULL = 1, /* a pointer is null */
    POLICY_NOT_RESET = 2, /* the state was never given to policy_reset */
    POLICY_BAD_READING = 3, /* a reading is not finite, or out of its limits */
    POLICY_JUMP = 4, /* a reading is farther from that of the step before than a step may go */
    POLICY_BAD_RESULT = 5, /* a result or an index is out of its limits, or the next state is not finite */
    POLICY_BAD_STATE = 6 /* a number of the state is not finite: other code has changed it */
}};

typedef struct {{
{readings}}} policy_readings;

typedef struct {{
{results}}} policy_results;

/* What one step hands to the next. */
typedef struct {{
    uint32_t begun; /* whether policy_reset was called */
{state}}} policy_state;

/* Work memory of a step. Its content means nothing before and after. */
typedef struct {{
    float numbers[{numbers}];
    int32_t indices[{indices}];
    policy_results results;
{next}}} policy_work;

/* Begin an episode. */
int policy_reset(policy_state *state);

/* Check the state, and readings alone and against those of the step before. */
int policy_check(const policy_state *state, const policy_readings *readings);

/* Check readings, compute and check results. Unless it returns POLICY_OK, results and state do not change. */
int policy_run(policy_state *state, policy_work *work, const policy_readings *readings,
               policy_results *results);

#ifdef __cplusplus
}}
#endif

#endif
"""
CHECKS = """\
#define BEGUN 0x52504F4Cu

/* Whether all numbers of a row lie within limits; `each` is 1 where every number has its own, else 0. */
static int are_within(const float *x, const float *low, const float *high, size_t size, size_t each)
{
    int within = 1;
    for (size_t i = 0; i < size; i++)
        within &= (x[i] >= low[i * each]) & (x[i] <= high[i * each]);
    return within;
}
"""
FINITE = """
static int are_finite(const float *x, size_t size)
{
    int finite = 1;
    for (size_t i = 0; i < size; i++)
        finite &= x[i] - x[i] == 0.0f;
    return finite;
}
"""
BYTES = """
static int bytes_are_within(const uint8_t *x, const float *low, const float *high, size_t size)
{
    int within = 1;
    for (size_t i = 0; i < size; i++)
        within &= (x[i] >= low[0]) & (x[i] <= high[0]);
    return within;
}
"""
NEAR = """
static int are_near(const float *x, const float *last, const float *steps, size_t size)
{
    int near = 1;
    for (size_t i = 0; i < size; i++) {
        const float gone = x[i] < last[i] ? last[i] - x[i] : x[i] - last[i];
        near &= gone <= steps[i];
    }
    return near;
}
"""


class CFiles(NamedTuple):
    """The text of `policy.h` and `policy.c`."""

    header: str
    source: str


def c_files(model: bytes, manifest: Manifest, name: str) -> CFiles:
    """The C files of a bundle's graph. Raises UnsupportedError that names what has no C source."""
    for value in (*manifest.inputs, *manifest.outputs):
        if value in OWN or _is_reserved(value):
            raise UnsupportedError(f"{value!r} of the graph has another meaning in the C files")
    source = c_source(model)
    steps = {value.name: value for value in manifest.inputs.values() if np.isfinite(value.steps).any()}
    starts = source.lowered.state
    state = "".join(f"    float {array}[{before.size}];\n" for array, (_, before, _) in starts.items())
    if steps:
        state += "    uint32_t stepped; /* whether the arrays below hold the readings of the step before */\n"
        state += "".join(f"    float last_{one.name}[{len(one.entries)}];\n" for one in steps.values())
    following = "".join(f"    float next_{array}[{after.size}];\n" for array, (_, _, after) in starts.items())
    header = HEADER.format(
        name=_comment(name),
        digest=hashlib.sha256(model).hexdigest(),
        period=manifest.control_period,
        deadline=manifest.deadline,
        each=" ".join(f"X({name})" for name in sorted(manifest.inputs)),
        agreed=_lines([str(byte) for byte in manifest.digest]),
        readings="".join(map(_field, manifest.inputs.values())),
        results="".join(map(_field, manifest.outputs.values())),
        state=state,
        numbers=source.numbers,
        indices=source.indices,
        next=following,
    )
    parts = ['#include "policy.h"\n', source.text, CHECKS]
    parts += [FINITE] if starts else []
    parts += [NEAR] if steps else []
    limited = [one for one in manifest.inputs.values() if one.dtype == "uint8" and not one.unlimited]
    parts += [BYTES] if limited else []
    parts += ["", *_tables(manifest, steps.values())]
    parts += [_functions(source, manifest, steps)]
    return CFiles(header, "\n".join(parts))


def identifiers(names: Sequence[str]) -> list[str]:
    """Distinct names of C for the names of a vector's numbers."""
    made: list[str] = []
    for name in names:
        word = re.sub(r"\W", "_", name, flags=re.ASCII)
        word = f"_{word}" if word[0].isdigit() else f"{word}_" if _is_reserved(word) else word
        while word in made:
            word += "_"
        made.append(word)
    return made


def _is_reserved(word: str) -> bool:
    return word in KEYWORDS or RESERVED.fullmatch(word) is not None


def _lines(numbers: Sequence[str]) -> str:
    """Numbers as lines of a macro."""
    rows = (", ".join(numbers[start : start + 16]) for start in range(0, len(numbers), 16))
    return ", \\\n    ".join(rows)


def _comment(text: str) -> str:
    return text.replace("*/", "* /")


def _field(value: Value) -> str:
    """A member of a struct: a struct with named numbers, or an array."""
    if value.entries:
        lines = []
        limits = zip(value.low, value.high, value.steps, strict=True)
        for name, unit, (low, high, step) in zip(
            identifiers(value.entries), value.units, limits, strict=True
        ):
            words = f"{'' if unit == '1' else f'{_comment(unit)}, '}from {low:g} to {high:g}"
            words += f", at most {step:g} in a step" if np.isfinite(step) else ""
            lines.append(f"        float {name}; /* {words} */\n")
        return f"    struct {{\n{''.join(lines)}    }} {value.name};\n"
    kind = BYTE if value.dtype == "uint8" else FLOAT
    shape = " x ".join(map(str, value.shape))
    unit = "" if value.units[0] == "1" else f", {_comment(value.units[0])}"
    low, high = float(value.low), float(value.high)
    limits_of = f", from {low:g} to {high:g}" if abs(high) < 1e30 else ""
    size = int(np.prod(value.shape))
    return f"    {kind} {value.name}[{size}]; /* {shape}, row by row{unit}{limits_of} */\n"


def _tables(manifest: Manifest, steps: Iterable[Value]) -> list[str]:
    """Limits as constants, rounded as a runtime in Python rounds them."""
    lines, rows = list[str](), list[tuple[str, NDArray[Any]]]()
    for group, values in (("readings", manifest.inputs), ("results", manifest.outputs)):
        for value in values.values():
            if value.unlimited:
                continue
            for end, numbers in (("lowest", value.low), ("highest", value.high)):
                rows.append((f"{end}_{value.name}", np.ravel(numbers).astype(np.float32)))
            if value.entries:
                whole = f"sizeof(((policy_{group} *)0)->{value.name}) == {len(value.entries)} * sizeof(float)"
                lines.append(f"typedef char {value.name}_has_no_gaps[{whole} ? 1 : -1];")
    for value in steps:
        nearest = value.steps.astype(np.float32)
        below = np.nextafter(nearest, np.float32(0))
        rows.append((f"steps_{value.name}", np.where(nearest > value.steps, below, nearest)))
    for name, numbers in rows:
        inside = ", ".join(literal(number, FLOAT) for number in numbers)
        lines.append(f"static const float {name}[{len(numbers)}] = {{{inside}}};")
    return lines


def _pointer(value: Value, owner: str) -> str:
    """The address of a value's first number."""
    return f"(const float *)&{owner}->{value.name}" if value.entries else f"{owner}->{value.name}"


def _within(value: Value, owner: str) -> str:
    name = value.name
    if value.dtype == "uint8":
        return f"bytes_are_within({owner}->{name}, lowest_{name}, highest_{name}, {value.size})"
    size = int(np.prod(value.shape))
    each = 1 if value.entries else 0
    return f"are_within({_pointer(value, owner)}, lowest_{name}, highest_{name}, {size}, {each})"


def _functions(source: Source, manifest: Manifest, steps: dict[str, Value]) -> str:
    state, lowered = source.lowered.state, source.lowered
    sizes = {name: before.size for name, (_, before, _) in state.items()}
    reset = "".join(
        f"    for (size_t i = 0; i < {sizes[name]}; i++)\n"
        f"        state->{name}[i] = {literal(start, FLOAT)};\n"
        for name, (start, _, _) in state.items()
    )
    states = "".join(
        f"    if (!are_finite(state->{name}, {size}))\n        return POLICY_BAD_STATE;\n"
        for name, size in sizes.items()
    )
    jumps = "".join(
        f"    if (state->stepped && !are_near({_pointer(one, 'readings')}, state->last_{name}, steps_{name}, "
        f"{len(one.entries)}))\n        return POLICY_JUMP;\n"
        for name, one in steps.items()
    )
    checks = "".join(
        f"    if (!{_within(one, 'readings')})\n        return POLICY_BAD_READING;\n"
        for one in manifest.inputs.values()
        if not one.unlimited
    )
    inputs = [_pointer(manifest.inputs[name], "readings") for name in lowered.inputs]
    outputs = [
        f"(float *)&work->results.{name}" if manifest.outputs[name].entries else f"work->results.{name}"
        for name in lowered.outputs
    ]
    arguments = ", ".join(
        [
            *inputs,
            *(f"state->{name}" for name in state),
            *outputs,
            *(f"work->next_{name}" for name in state),
            "work->numbers",
            "work->indices",
        ]
    )
    results = "".join(
        f"    good &= {_within(one, '(&work->results)')};\n" for one in manifest.outputs.values()
    )
    results += "".join(
        f"    good &= are_finite(work->next_{name}, {size});\n" for name, size in sizes.items()
    )
    kept = "".join(f"    memcpy(state->{name}, work->next_{name}, sizeof state->{name});\n" for name in state)
    kept += "".join(
        f"    memcpy(state->last_{name}, &readings->{name}, sizeof state->last_{name});\n" for name in steps
    )
    kept += "    state->stepped = 1;\n" if steps else ""
    return f"""
int policy_reset(policy_state *state)
{{
    if (state == NULL)
        return POLICY_NULL;
    memset(state, 0, sizeof *state);
{reset}    state->begun = BEGUN;
    return POLICY_OK;
}}

int policy_check(const policy_state *state, const policy_readings *readings)
{{
    if (state == NULL || readings == NULL)
        return POLICY_NULL;
    if (state->begun != BEGUN)
        return POLICY_NOT_RESET;
{states}{checks}{jumps}    return POLICY_OK;
}}

int policy_run(policy_state *state, policy_work *work, const policy_readings *readings,
               policy_results *results)
{{
    int code, good;
    if (work == NULL || results == NULL)
        return POLICY_NULL;
    code = policy_check(state, readings);
    if (code != POLICY_OK)
        return code;
    good = !graph({arguments});
{results}    if (!good)
        return POLICY_BAD_RESULT;
{kept}    *results = work->results;
    return POLICY_OK;
}}
"""

"""The graph of rollout workers as C."""

from __future__ import annotations

from robopolicy.bundles.c_source.source import c_source
from robopolicy.bundles.c_source.tensors import BYTE
from robopolicy.runtime.compiled import CGraph
from robopolicy.runtime.graph import NEXT


def c_graph(model: bytes) -> CGraph:
    """The C source of a worker's graph. Raises UnsupportedError, in one line, that names what has none."""
    source = c_source(model)
    lowered = source.lowered
    before = {name: one for name, (_, one, _) in lowered.state.items()}
    after = {NEXT + name: one for name, (_, _, one) in lowered.state.items()}
    inputs, outputs = {**lowered.inputs, **before}, {**lowered.outputs, **after}
    arguments = [f"(const {one.kind} *)inputs[{place}]" for place, one in enumerate(inputs.values())]
    arguments += [f"outputs[{place}]" for place in range(len(outputs))]
    head = "int run_graph(const void *const *inputs, float *const *outputs, float *numbers, int32_t *indices)"
    run = f"\n{head};\n\n{head}\n{{\n    return graph({', '.join([*arguments, 'numbers', 'indices'])});\n}}\n"
    return CGraph(
        source.text + run,
        {name: (one.shape, "uint8" if one.kind == BYTE else "float32") for name, one in inputs.items()},
        {name: one.shape for name, one in outputs.items()},
        {name: start for name, (start, _, _) in lowered.state.items()},
        source.numbers,
        source.indices,
    )

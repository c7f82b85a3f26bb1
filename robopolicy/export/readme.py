"""The page that travels with a bundle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from robopolicy.runtime.bundle import GOLDEN, GRAPH, MANIFEST, STABLEHLO, SUMS


def readme(manifest: Mapping[str, Any]) -> str:
    """What a bundle is and how it is run, for people, from its manifest."""
    robot, flops, parity = manifest["robot"], manifest["flops"], manifest["parity"]
    period, versions = manifest["control_period"], manifest["versions"]
    parts = [
        f"# {manifest['name']}",
        f"A vision policy for the task {manifest['task']}, on a {robot['name']}, exported by robopolicy "
        f"{versions['robopolicy']}. Attention: `{manifest['attention']}`; {manifest['parameters']:,} "
        f"parameters; {flops['total']:,} FLOPs a step; a step every {1e3 * period:g} ms.",
        "## Run it",
        "    pip install robopolicy          numpy and onnxruntime come with it, and nothing else\n"
        "    robopolicy verify BUNDLE        the golden vectors, latency and memory on this machine",
        "```python\n"
        "from robopolicy.runtime import Policy\n\n"
        'policy = Policy.load("BUNDLE")  # this folder; every file is checked\n'
        "command = policy.act(readings)  # arrays by name, as below; out of its limits is refused by name\n"
        "```",
        "Do not work from within this folder: Python imports what lies where it is started.",
        "Normalisation, clipping and scaling are inside of the graph: give raw readings, and carry the "
        "command out as it is.",
        "## Inputs",
        *_values(manifest["inputs"]),
        "## Outputs",
        *_values(manifest["outputs"]),
        "## What is easily got wrong",
        _pitfalls(manifest),
        "## Robot",
        f"Joint order: {', '.join(f'`{name}`' for name in robot['joint_order'])}. Default pose "
        f"({robot['default_pose']['unit']}, in that order): "
        f"{', '.join(f'{angle:.4f}' for angle in robot['default_pose']['joints'])}. Joint angles are those "
        f"of {robot['model']}. {_sentence(robot['joint_control']['about'])} Their gains, the low level and "
        f"the cameras' intrinsics and poses are in {MANIFEST}.",
        "## How well it does",
        _results(manifest),
        "## Files",
        f"| file | what it is |\n|---|---|\n"
        f"| `{GRAPH}` | the policy, from readings to commands |\n"
        f"| `{STABLEHLO}` | the same for XLA, by `jax.export.deserialize`, readings ordered by name |\n"
        f"| `{GOLDEN}` | {parity['observations']} recorded observations and what the policy made of them |\n"
        f"| `{MANIFEST}` | all of this page and more, for programs |\n"
        f"| `{SUMS}` | `sha256sum -c {SUMS}` checks every file |",
    ]
    return "\n\n".join(parts) + "\n"


def _values(values: Mapping[str, Any]) -> list[str]:
    parts = []
    for name, told in values.items():
        shape = " x ".join(map(str, told["shape"]))
        clip = f" The graph clips it to [{told['clip'][0]:g}, {told['clip'][1]:g}]." if "clip" in told else ""
        about = f" {_sentence(told['about'])}" if "about" in told else ""
        head = f"### `{name}`\n\n{told['dtype']}, {shape}.{about}{clip}"
        if "entries" not in told:
            unit = "" if told["unit"] == "1" else f" {told['unit']}"
            limits = f" From {told['low']:g} to {told['high']:g}{unit}." if abs(told["low"]) < 1e30 else ""
            parts.append(f"{head}{limits}")
            continue
        rows = [
            f"| {index} | `{e['name']}` | {e['unit']} | {e['low']:g} | {e['high']:g} | {e.get('about', '')} |"
            for index, e in enumerate(told["entries"])
        ]
        table = "\n".join(["| | name | unit | from | to | |", "|---|---|---|---|---|---|", *rows])
        parts.append(f"{head}\n\n{table}")
    return parts


def _pitfalls(manifest: Mapping[str, Any]) -> str:
    period, deadline = 1e3 * manifest["control_period"], 1e3 * manifest["deadline"]
    points = [
        f"A step is {period:g} ms. A command that comes more than {deadline:g} ms after its observation is "
        "of no use.",
        *(
            f"`{f['input']}` holds the output `{f['output']}` from entry {f['first']} on, {f['about']}."
            for f in manifest["feedback"]
        ),
        *(f"Camera of `{name}`, frame: {told['frame']}." for name, told in manifest["cameras"].items()),
        f"Safe stop: {manifest['robot']['safe_stop']}. It is the robot's, and must not need the policy.",
        "The sums show that the files arrived whole, and not who made them.",
    ]
    return "\n".join(f"- {point}" for point in points)


def _results(manifest: Mapping[str, Any]) -> str:
    parity = manifest["parity"]
    lines = [
        f"- ONNX against JAX on {parity['observations']} recorded observations: at most "
        f"{parity['command_difference']:.1e} between commands, {parity['scores_difference']:.1e} between "
        "scores."
    ]
    training = manifest["training"]
    if training["records"]:
        told = ", ".join(
            f"{name} {value:.4g}" for name, value in training["last"].items() if _is_number(value)
        )
        lines.append(f"- The last of {training['records']} lines of its training's log: {told}.")
    for engine, told in manifest["evaluation"].items():
        numbers = ", ".join(
            f"{name.removesuffix('_mean').replace('_', ' ')} {value:.3g}"
            for name, value in told.items()
            if isinstance(value, float)
        )
        lines.append(f"- {told['episodes']} unseen episodes in simulation ({engine}): {numbers}.")
    if not manifest["evaluation"]:
        lines.append("- Its run kept no evaluation on unseen episodes.")
    return "\n".join(lines)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."

"""The README of a bundle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from robopolicy.bundles.model_card import front_matter, reach
from robopolicy.naming import counted
from robopolicy.runtime.bundle import C_HEADER, C_SOURCE, GOLDEN, GRAPH, MANIFEST, STABLEHLO, SUMS
from robopolicy.settings import is_finite


def readme(manifest: Mapping[str, Any]) -> str:
    """The README of a bundle, written from its manifest."""
    robot, flops, parity = manifest["robot"], manifest["flops"], manifest["parity"]
    period, versions = manifest["control_period"], manifest["versions"]
    parts = [
        front_matter(manifest["name"], manifest["task"], manifest["run"], manifest["evaluation"], "onnx"),
        f"# {manifest['name']}",
        f"A vision policy for the task {manifest['task']}, exported by robopolicy {versions['robopolicy']}. "
        f"Robot: {robot['name']}. Attention: `{manifest['attention']}`; {manifest['parameters']:,} "
        f"parameters; {flops['total']:,} FLOPs a step; a step every {1e3 * period:g} ms."
        + reach(manifest["policy"]),
        "## Run it",
        "    pip wheel --no-deps .           # in a checkout of robopolicy; no package index has it yet\n"
        "    pip install robopolicy-*.whl    # the wheel; it needs numpy and onnxruntime only\n"
        "    robopolicy verify BUNDLE        # checks golden vectors, latency and memory on this machine",
        "```python\n"
        "from robopolicy.runtime import BundlePolicy\n\n"
        'policy = BundlePolicy.load("BUNDLE")  # this folder; every file is checked\n'
        "command = policy.act(readings)  # arrays by name, see below; values out of their limits raise\n"
        "```",
        "Do not start Python inside this folder: it would import modules from there.",
        "Normalisation, clipping and scaling are inside the graph: pass raw readings, execute the command "
        "unchanged.",
        "## Inputs",
        *_values(manifest["inputs"]),
        "## Outputs",
        *_values(manifest["outputs"]),
        "## Pitfalls",
        _pitfalls(manifest),
        *_robot(robot, manifest["cameras"]),
        "## Results",
        _results(manifest),
        "## Files",
        f"| file | what it is |\n|---|---|\n"
        f"| `{GRAPH}` | the policy, from readings to commands |\n"
        f"| `{STABLEHLO}` | the same for XLA, read by `jax.export.deserialize`, readings ordered by name"
        f"{', then the arrays of the state' * any('start' in f for f in manifest['feedback'])} |\n"
        f"{_c_row(manifest)}"
        f"| `{GOLDEN}` | {parity['observations']} recorded observations and the policy's outputs |\n"
        f"| `{MANIFEST}` | all of this page and more, for programs |\n"
        f"| `{SUMS}` | `sha256sum -c {SUMS}` checks every file |",
    ]
    return "\n\n".join(parts) + "\n"


def _c_row(manifest: Mapping[str, Any]) -> str:
    if "c" not in manifest:
        return ""
    return (
        f"| `{C_SOURCE}`, `{C_HEADER}` | the same as C99 for a robot without Python: the header has the "
        "functions, and readings and commands by name |\n"
    )


def _robot(robot: Mapping[str, Any], cameras: Mapping[str, Any]) -> list[str]:
    """Heading and text of joints, low level and cameras, as far as the task describes them."""
    parts, elsewhere, pose = [], [], robot.get("default_pose")
    if "joint_order" in robot:
        parts.append(f"Joint order: {', '.join(f'`{name}`' for name in robot['joint_order'])}.")
    if pose:
        angles = ", ".join(f"{angle:.4f}" for angle in pose["joints"])
        parts.append(f"Default pose ({pose['unit']}, in that order): {angles}.")
    if "model" in robot:
        parts.append(f"Joint angles are those of {robot['model']}.")
    if "joint_control" in robot:
        parts.append(_sentence(robot["joint_control"]["about"]))
        elsewhere += ["their gains", "the low level"]
    if cameras:
        elsewhere.append("the cameras' intrinsics and poses")
    if elsewhere:
        *others, last = elsewhere
        named = f"{', '.join(others)} and {last}" if others else last
        parts.append(f"{named[0].upper()}{named[1:]} are in {MANIFEST}.")
    return ["## Robot", " ".join(parts)] if parts else []


def _values(values: Mapping[str, Any]) -> list[str]:
    parts = []
    for name, value in values.items():
        shape, clip = " x ".join(map(str, value["shape"])), value.get("clip")
        about = f" {_sentence(value['about'])}" if "about" in value else ""
        clipped = f" The graph clips it to [{clip[0]:g}, {clip[1]:g}]." if clip else ""
        head = f"### `{name}`\n\n{value['dtype']}, {shape}.{about}{clipped}"
        if "entries" in value:
            rows = ["| | name | unit | from | to | |", "|---|---|---|---|---|---|"]
            for index, e in enumerate(value["entries"]):
                limits = f"{e['low']:g} | {e['high']:g}"
                rows.append(f"| {index} | `{e['name']}` | {e['unit']} | {limits} | {e.get('about', '')} |")
            parts.append(head + "\n\n" + "\n".join(rows))
        elif abs(value["low"]) < 1e30:
            unit = "" if value["unit"] == "1" else f" {value['unit']}"
            parts.append(f"{head} From {value['low']:g} to {value['high']:g}{unit}.")
        else:
            parts.append(head)
    return parts


def _pitfalls(manifest: Mapping[str, Any]) -> str:
    period, deadline = 1e3 * manifest["control_period"], 1e3 * manifest["deadline"]
    points = [
        f"A step takes {period:g} ms. A command later than {deadline:g} ms after its observation is useless.",
        *(
            f"`{f['input']}` holds the output `{f['output']}` from entry {f['first']} on, {f['about']}."
            for f in manifest["feedback"]
        ),
        *(f"Camera of `{name}`, frame: {camera['frame']}." for name, camera in manifest["cameras"].items()),
        f"Safe stop: {manifest['robot']['safe_stop']}. The robot must do this without the policy.",
        "The checksums show that the files arrived undamaged, but not who made them.",
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
        numbers = ", ".join(
            f"{name} {value:.4g}" for name, value in training["last"].items() if is_finite(value)
        )
        until = counted(training["records"], "lines")
        lines.append(f"- The training log up to this policy has {until}. The last one: {numbers}.")
    for engine, results in manifest["evaluation"].items():
        numbers = ", ".join(
            f"{name.removesuffix('_mean').replace('_', ' ')} {value:.3g}"
            for name, value in results.items()
            if isinstance(value, float)
        )
        episodes = counted(results["episodes"], "unseen episodes")
        lines.append(f"- {episodes} in simulation ({engine}): {numbers}.")
    if not manifest["evaluation"]:
        lines.append("- There is no stored evaluation of this policy on unseen episodes.")
    return "\n".join(lines)


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."

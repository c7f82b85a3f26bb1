"""A small bundle made without JAX: the command grows with the mean of the image and with `felt`."""

import hashlib
import json

import numpy as np
import onnx
from onnx import TensorProto, helper

from robopolicy.bundles.c_source.interface import c_files
from robopolicy.runtime import BundlePolicy
from robopolicy.runtime.bundle import open_bundle
from robopolicy.runtime.golden import read_golden, write_golden

LEGS = ("left", "right")
ROWS = 6
STEP = 1.5  # rad, how far a reading may go in `stepping`


def graph(inputs=("image", "felt"), image_type=TensorProto.FLOAT, largest=0.3):
    """command = clip(mean(image) + 0.1 felt) * largest, action = command / largest, scores = felt."""
    image, felt = inputs
    constant = helper.make_tensor
    nodes = [
        helper.make_node("Cast", [image], ["seen"], to=TensorProto.FLOAT),
        helper.make_node("ReduceMean", ["seen"], ["mean"], keepdims=0),
        helper.make_node("Mul", [felt, "tenth"], ["push"]),
        helper.make_node("Add", ["push", "mean"], ["sum"]),
        helper.make_node("Clip", ["sum", "low", "high"], ["action"]),
        helper.make_node("Mul", ["action", "largest"], ["command"]),
        helper.make_node("Identity", [felt], ["scores"]),
    ]
    body = helper.make_graph(
        nodes,
        "toy",
        [
            helper.make_tensor_value_info(image, image_type, [4, 5]),
            helper.make_tensor_value_info(felt, TensorProto.FLOAT, [2]),
        ],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in ("command", "action", "scores")],
        [
            constant(name, TensorProto.FLOAT, [], [value])
            for name, value in (("tenth", 0.1), ("low", -1.0), ("high", 1.0), ("largest", largest))
        ],
    )
    model = helper.make_model(body, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.checker.check_model(model)
    return model.SerializeToString()


def entries(unit, largest):
    return [{"name": leg, "unit": unit, "low": -largest, "high": largest} for leg in LEGS]


def manifest():
    return {
        "schema": 2,
        "task": "toy",
        "control_period": 0.02,
        "deadline": 0.02,
        "inputs": {
            "image": {"shape": [4, 5], "dtype": "float32", "unit": "m", "low": 0.0, "high": 10.0},
            "felt": {"shape": [2], "dtype": "float32", "entries": entries("rad", 3.0)},
        },
        "outputs": {
            "command": {"shape": [2], "dtype": "float32", "entries": entries("m", 0.3)},
            "action": {"shape": [2], "dtype": "float32", "entries": entries("1", 1.0)},
            "scores": {"shape": [2], "dtype": "float32", "unit": "1", "low": -1e30, "high": 1e30},
        },
        "golden": {"observations": ROWS},
        "tolerances": {"command": 1e-5, "action": 1e-5, "scores": 1e-4},
        "requires": {"onnxruntime": "1.20"},
    }


def observations(count=ROWS):
    rng = np.random.default_rng(3)
    return {
        "image": rng.uniform(0, 0.5, (count, 4, 5)).astype(np.float32),
        "felt": rng.uniform(-2, 2, (count, 2)).astype(np.float32),
    }


def outputs(seen):
    action = np.clip(seen["image"].mean(axis=(1, 2))[:, None] + np.float32(0.1) * seen["felt"], -1, 1)
    return {"command": np.float32(0.3) * action, "action": action, "scores": seen["felt"]}


def seal(folder, manifest):
    """Write `manifest` and the checksums of the files in `folder`."""

    def digest(path):
        return hashlib.sha256(path.read_bytes()).hexdigest()

    files = [p for p in sorted(folder.iterdir()) if p.name not in ("manifest.json", "SHA256SUMS")]
    manifest = {**manifest, "files": {p.name: digest(p) for p in files}}
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")
    resum(folder)


def resum(folder):
    """Write the checksums of the files in `folder`, as a forger would."""
    files = [p for p in sorted(folder.iterdir()) if p.is_file() and p.name != "SHA256SUMS"]
    lines = [f"{hashlib.sha256(p.read_bytes()).hexdigest()}  {p.name}\n" for p in files]
    (folder / "SHA256SUMS").write_text("".join(lines))


def make_bundle(folder, **changes):
    """A valid bundle, but for `changes` to its manifest."""
    folder.mkdir()
    (folder / "policy.onnx").write_bytes(graph())
    (folder / "policy.stablehlo").write_bytes(b"not read by the runtime")
    (folder / "README.md").write_text("# toy\n")
    seen = observations()
    write_golden(folder / "golden.npz", {**seen, **outputs(seen)})
    seal(folder, {**manifest(), **changes})
    return folder


def write_c(folder, described, model=None):
    """Put the C files of the toy, or of another graph, into its bundle."""
    made = c_files(model or graph(), open_bundle(folder).manifest, "toy")
    (folder / "policy.c").write_text(made.source)
    (folder / "policy.h").write_text(made.header)
    seal(folder, described)


def stepping():
    """The toy's manifest, whose legs may turn no more than `STEP` from one step to the next."""
    described = manifest()
    for entry in described["inputs"]["felt"]["entries"]:
        entry["step"] = STEP
    return described


def played(bundle, runtime):
    policy = BundlePolicy.load(bundle, runtime)
    replay = policy.replay()
    return policy, [replay(seen) for seen, _ in read_golden(open_bundle(bundle))]


class ToyRobot:
    """Records its commands (None for hold) and the reasons of its stops."""

    def __init__(self, steps=20):
        self.left, self.commands, self.stops = steps, [], []
        self.readings = {name: array[0] for name, array in observations().items()}

    def finished(self):
        return self.left <= 0

    def observe(self):
        self.left -= 1
        return self.readings

    def act(self, command):
        self.commands.append(command)

    def hold(self):
        self.commands.append(None)

    def stop(self, reason):
        self.stops.append(reason)

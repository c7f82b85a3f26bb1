"""A small environment, importable by rollout workers, and the graph of a policy for it."""

import os
import signal
import sys
import time
from pathlib import Path
from typing import ClassVar

import gymnasium
import numpy as np
import onnx
from onnx import TensorProto, helper

ID = "toy:Toy-v0"
PARAMETERS = 3


class Toy(gymnasium.Env):
    """Rewards an action by its nearness to a point that the seed draws. `fault` happens on one seed.

    `closed` is a file that `close` writes after the fault, before it raises, too.
    """

    observation_space: ClassVar = gymnasium.spaces.Dict(
        {"point": gymnasium.spaces.Box(-1.0, 1.0, (PARAMETERS,), np.float32)}
    )
    action_space: ClassVar = gymnasium.spaces.Box(-np.inf, np.inf, (PARAMETERS,), np.float32)

    def __init__(self, fault: str = "", seed: int = -1, marker: str = "", closed: str = "") -> None:
        self._fault, self._seed, self._marker, self._closed = fault, seed, marker, closed
        self._is_broken = False

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed == self._seed and not self._already():
            if self._fault == "raise":
                self._is_broken = True
                raise RuntimeError("the toy is broken")
            if self._fault == "die":
                os.kill(os.getpid(), signal.SIGKILL)
            if self._fault == "hang":
                time.sleep(600)
        self._steps = 0
        self._point = self.np_random.uniform(-1, 1, PARAMETERS).astype(np.float32)
        return {"point": self._point.copy()}, {}

    def _already(self) -> bool:
        """Whether the fault has happened before; without a marker it happens in every episode."""
        if not self._marker:
            return False
        marker = Path(self._marker)
        if marker.exists():
            return True
        marker.touch()
        return False

    def step(self, action):
        self._steps += 1
        reward = -float(np.sum((action - self._point) ** 2))
        info = {"distance": float(self._steps), "success": True, "jax": "jax" in sys.modules}
        info["pid"] = str(os.getpid())  # no number, so that logs leave it out
        return {"point": self._point.copy()}, reward, self._steps == 3, False, info

    def close(self):
        if self._closed and self._is_broken:
            Path(self._closed).touch()
            raise OSError("the toy cannot be closed")


gymnasium.register(id="Toy-v0", entry_point=Toy)


def act(parameters, observation, state):
    return parameters * observation["point"], state


def normalising_act(parameters, observation, state, normaliser):
    shift, scale = normaliser.reshape(2, -1)
    return parameters * ((observation["point"] - shift) * scale), state


def summing_act(parameters, observation, state):
    total = state + observation["point"]
    return parameters * total, total


def normalising_graph() -> bytes:
    """action = parameters * (point - shift) * scale, with shift and scale in `normaliser`."""
    inputs = [
        helper.make_tensor_value_info("parameters", TensorProto.FLOAT, [PARAMETERS]),
        helper.make_tensor_value_info("normaliser", TensorProto.FLOAT, [2 * PARAMETERS]),
        helper.make_tensor_value_info("point", TensorProto.FLOAT, [PARAMETERS]),
    ]
    outputs = [helper.make_tensor_value_info("action", TensorProto.FLOAT, [PARAMETERS])]
    nodes = [
        helper.make_node("Split", ["normaliser"], ["shift", "scale"], num_outputs=2),
        helper.make_node("Sub", ["point", "shift"], ["centred"]),
        helper.make_node("Mul", ["centred", "scale"], ["normalised"]),
        helper.make_node("Mul", ["parameters", "normalised"], ["action"]),
    ]
    return _serialized(helper.make_graph(nodes, "toy", inputs, outputs))


def policy_graph() -> bytes:
    """action = parameters * point."""
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [PARAMETERS])
        for name in ("parameters", "point")
    ]
    outputs = [helper.make_tensor_value_info("action", TensorProto.FLOAT, [PARAMETERS])]
    node = helper.make_node("Mul", ["parameters", "point"], ["action"])
    return _serialized(helper.make_graph([node], "toy", inputs, outputs))


def _serialized(graph: onnx.GraphProto) -> bytes:
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.checker.check_model(model)
    return model.SerializeToString()

"""A planar arm with a colour camera, no engine and no legs, which meets the contract of a task."""

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict

from robopolicy.envs.task import Curriculum, Outcome, Quantity, Task

ID = "toy_arm:Arm-v0"
SIDE = 24


class Arm(Task):
    rate = 10
    actions = tuple(Quantity(f"joint_{n}", "rad", -0.2, 0.2) for n in range(3))
    vectors = {"joints": tuple(Quantity(f"joint_{n}", "rad", -np.pi, np.pi) for n in range(3))}  # noqa: RUF012
    outcomes = (Outcome("off", "off by", "{:7.2f} m", "{:.2f} m off"),)
    presets = ("easy", "far")
    curriculum = Curriculum(("easy", "far"), (-1.0,), (1, 2))
    observation_space = Dict(
        {"camera": Box(0, 255, (SIDE, SIDE, 3), np.uint8), "joints": Box(-4, 4, (3,), np.float32)}
    )
    action_space = Box(-1, 1, (3,), np.float32)

    def __init__(self, preset="easy"):
        self.preset = preset

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.joints, self.steps = np.zeros(3), 0
        self.goal = self.np_random.uniform(-0.5, 0.5, 3)
        return self._seen(), self._info()

    def step(self, action):
        self.joints = self.joints + 0.2 * np.asarray(action, float)
        self.steps += 1
        return self._seen(), -self._off(), False, self.steps == 4, self._info()

    def towards(self):
        return np.clip((self.goal - self.joints) / 0.2, -1, 1).astype(np.float32)

    players = {"guide": towards}  # noqa: RUF012

    def _off(self):
        return float(np.abs(self.goal - self.joints).max())

    def _seen(self):
        image = np.full((SIDE, SIDE, 3), 40 + 10 * self.steps, np.uint8)
        return {"camera": image, "joints": self.joints.astype(np.float32)}

    def _info(self):
        off = np.float32(self._off())  # values of NumPy are as good as Python's
        return {"off": off, "success": off < 0.01, "cause": "time"}


gymnasium.register(id="Arm-v0", entry_point="toy_arm:Arm")
gymnasium.register(id="Made-v0", entry_point=lambda: Arm())


class Plain(gymnasium.Env):
    observation_space, action_space = Arm.observation_space, Arm.action_space


gymnasium.register(id="Plain-v0", entry_point=Plain)

"""A planar arm of three joints that reaches for a dot, seen by one colour camera: a task that is not ours."""

from itertools import pairwise
from typing import Any, NamedTuple

import cv2
import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict

from robopolicy.envs.task import Outcome, Quantity, Task

LENGTHS = np.array([0.4, 0.35, 0.25])  # m, of the links
SIZE, REACH = (32, 24), 1.1  # pixels, and metres from the middle of the picture to its nearest edge
FASTEST, PERIOD, LONGEST = 2.0, 0.1, 30  # rad/s, s, steps
CLOSE = 0.12  # m


class Choice(NamedTuple):
    """What the demonstrator wants to do, and what it does."""

    executed: Any
    intended: Any


class Demonstrator:
    """Follows the gradient of the distance, with noise on what is executed."""

    def __init__(self, task, seed=0, noise=0.0):
        self.task, self.noise, self.rng = task, noise, np.random.default_rng(seed)

    def act(self):
        intended = self.task.reach()
        noisy = np.clip(intended + self.noise * self.rng.normal(size=3), -1, 1)
        return Choice(noisy.astype(np.float32), intended)


class PlanarArm(Task):
    """Observes `camera` [24, 32, 3] and the `joints` [3] (rad); an action turns each joint."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012 (gymnasium's own)
    rate = 1 / PERIOD
    actions = tuple(Quantity(f"turn_{n}", "rad/s", -FASTEST, FASTEST) for n in range(3))
    vectors = {"joints": tuple(Quantity(f"joint_{n}", "rad", -7.0, 7.0) for n in range(3))}  # noqa: RUF012
    outcomes = (Outcome("closeness", "closeness", "{:7.2f}", "{:.2f} of the way"),)
    players = {"oracle": lambda task: task.reach()}  # noqa: RUF012

    def __init__(self, render_mode=None, render_size=(480, 360)):
        self.render_mode, self.render_size = render_mode, render_size
        self.renderer = object()  # as tasks that draw with MuJoCo have one
        width, height = SIZE
        joints = Box(-7.0, 7.0, (3,), np.float32)
        self.observation_space = Dict({"camera": Box(0, 255, (height, width, 3), np.uint8), "joints": joints})
        self.action_space = Box(-1.0, 1.0, (3,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.joints = self.np_random.uniform(-0.3, 0.3, 3)
        self.joints[0] += np.pi / 2
        turn, far = self.np_random.uniform(0, np.pi), self.np_random.uniform(0.5, 0.9)
        self.dot = far * np.array([np.cos(turn), np.sin(turn)])
        self.steps, self.first = 0, self.distance()
        return self.observed(), self.outcome("")

    def step(self, action):
        before = self.distance()
        self.joints = np.clip(self.joints + FASTEST * PERIOD * np.clip(action, -1, 1), -6.9, 6.9)
        self.steps += 1
        reached, late = self.distance() < CLOSE, self.steps >= LONGEST
        reward = before - self.distance() + float(reached)
        info = self.outcome("reached" if reached else "time" if late else "")
        return self.observed(), reward, reached, late and not reached, info

    def outcome(self, cause):
        closeness = 1 - self.distance() / self.first
        return {"closeness": closeness, "success": cause == "reached", "cause": cause}

    def points(self):
        """The base, the elbows and the hand, [4, 2] (m)."""
        angles = np.cumsum(self.joints)
        links = LENGTHS[:, None] * np.stack([np.cos(angles), np.sin(angles)], axis=1)
        return np.concatenate([np.zeros((1, 2)), np.cumsum(links, axis=0)])

    def distance(self):
        return float(np.linalg.norm(self.points()[-1] - self.dot))

    def reach(self):
        """The action that brings the hand to the dot by the fastest way, [3]."""
        lever = self.points()[-1] - self.points()[:3]
        gradient = (self.dot - self.points()[-1]) @ np.stack([-lever[:, 1], lever[:, 0]])
        return np.clip(8 * gradient, -1, 1).astype(np.float32)

    def demonstrator(self, seed=0, noise=0.0):
        return Demonstrator(self, seed, noise)

    def picture(self, width, height):
        canvas = np.full((height, width, 3), 235, np.uint8)
        scale = min(width, height) / 2 / REACH

        def pixel(place):
            return int(width / 2 + scale * place[0]), int(height / 2 - scale * place[1])

        points, thick = [pixel(place) for place in self.points()], max(1, min(width, height) // 24)
        for start, end in pairwise(points):
            cv2.line(canvas, start, end, (40, 60, 160), thick)
        cv2.circle(canvas, pixel(self.dot), max(1, thick), (200, 30, 30), -1)
        return canvas

    def observed(self):
        return {"camera": self.picture(*SIZE), "joints": self.joints.astype(np.float32)}

    def render(self):
        return None if self.render_mode is None else self.picture(*self.render_size)


gymnasium.register(id="PlanarArm-v0", entry_point=PlanarArm)

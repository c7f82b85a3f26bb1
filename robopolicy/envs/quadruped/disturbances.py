"""Disturbances of an episode: friction, payload, weak motors and pushes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from robopolicy.envs.physics.base import Array, Conditions
from robopolicy.settings import check_interval, check_number


@dataclass(frozen=True)
class DisturbanceConfig:
    """Ranges of an episode's uniform draws. The defaults are the conditions that the low level assumes."""

    friction: tuple[float, float] = (0.8, 0.8)  # between toes and stones
    payload: tuple[float, float] = (0.0, 0.0)  # kg
    motor_strength: tuple[float, float] = (1.0, 1.0)  # share of the commanded torque
    push: float = 0.0  # m/s, largest change of the base's velocity by one push, in any horizontal direction
    push_interval: tuple[float, float] = (2.0, 4.0)  # s from the end of a push to the next one
    push_seconds: float = 0.1  # s, duration of a push

    def __post_init__(self) -> None:
        check_interval("friction", self.friction, 0.0)
        check_interval("payload", self.payload, 0.0)
        check_interval("motor_strength", self.motor_strength, 0.0)
        check_number("push", self.push, 0.0)
        check_interval("push_interval", self.push_interval, 0.0)
        check_number("push_seconds", self.push_seconds, 0.01)


class Disturbances:
    """The disturbances of one episode: `conditions`, and the force of pushes over time."""

    def __init__(
        self, config: DisturbanceConfig, mass: float, seconds: float, rng: np.random.Generator
    ) -> None:
        """`mass` is the mass of the robot (kg), `seconds` the longest duration of the episode."""
        self.conditions = Conditions(
            friction=rng.uniform(*config.friction),
            payload=rng.uniform(*config.payload),
            motor_strength=rng.uniform(*config.motor_strength),
        )
        self._config = config
        self._starts: list[float] = []
        self._forces: list[Array] = []
        time = 0.0
        while config.push and time < seconds:
            time += rng.uniform(*config.push_interval)
            angle, speed = rng.uniform(0.0, 2 * np.pi), config.push * rng.uniform()
            size = mass * speed / config.push_seconds
            self._starts.append(time)
            self._forces.append(size * np.array([np.cos(angle), np.sin(angle), 0.0]))
            time += config.push_seconds

    def force(self, time: float) -> Array | None:
        """The push [3] (N, world) at `time` (s); None between pushes."""
        for start, force in zip(self._starts, self._forces, strict=True):
            if start <= time < start + self._config.push_seconds:
                return force
        return None

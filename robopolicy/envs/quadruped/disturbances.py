"""What makes an episode harder than its stones: friction, payload, weak motors, pushes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from robopolicy.envs.checks import check_interval, check_number
from robopolicy.envs.physics.base import Array, Conditions


@dataclass(frozen=True)
class DisturbanceConfig:
    """Ranges from which every episode draws, uniformly; by default all is as the low level expects."""

    friction: tuple[float, float] = (0.8, 0.8)  # between toes and stones
    payload: tuple[float, float] = (0.0, 0.0)  # kg
    motor_strength: tuple[float, float] = (1.0, 1.0)  # share of the commanded torque
    push: float = 0.0  # m/s, largest change of the base's velocity by one push, sideways or along
    push_interval: tuple[float, float] = (2.0, 4.0)  # s between the ends of two pushes
    push_seconds: float = 0.1  # s, how long one lasts

    def __post_init__(self) -> None:
        check_interval("friction", self.friction, 0.0)
        check_interval("payload", self.payload, 0.0)
        check_interval("motor_strength", self.motor_strength, 0.0)
        check_number("push", self.push, 0.0)
        check_interval("push_interval", self.push_interval, 0.0)
        check_number("push_seconds", self.push_seconds, 0.01)


class Disturbances:
    """The draws of one episode: `conditions`, and the force of pushes over time."""

    def __init__(
        self, config: DisturbanceConfig, mass: float, seconds: float, rng: np.random.Generator
    ) -> None:
        """mass: kg that a push has to move; seconds: how long the episode can last."""
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

"""Physics that differ from episode to episode, so that a policy does not depend on those of one engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from robopolicy.envs.physics.arms import ArmsConditions
from robopolicy.settings import check_interval

Interval = tuple[float, float]
ONE: Interval = (1.0, 1.0)


@dataclass(frozen=True)
class RandomisedConfig:
    """Ranges of an episode's uniform draws: multiples of the nominal values, but for the latency.

    docs/bimanual-sweep.md has the reasons for the ranges of preset `randomised`.
    """

    friction: Interval = ONE  # of table, bowls and spatulas
    rolling_friction: Interval = ONE  # of the balls
    ball_mass: Interval = ONE
    response: Interval = ONE  # rate at which joints approach their targets
    latency: Interval = (0.0, 0.0)  # s, from a command to the arms' obedience

    def __post_init__(self) -> None:
        for name in ("friction", "rolling_friction", "ball_mass", "response"):
            check_interval(name, getattr(self, name), 0.1, 3.0)
        check_interval("latency", self.latency, 0.0, 0.1)


class DrawnPhysics(NamedTuple):
    """Physics of an episode; the mass of a ball is a multiple of the nominal one."""

    conditions: ArmsConditions = ArmsConditions()
    ball_mass: float = 1.0


def drawn_physics(config: RandomisedConfig, rng: np.random.Generator) -> DrawnPhysics:
    """Draw the physics of an episode; the nominal ones draw nothing."""
    if config == RandomisedConfig():
        return DrawnPhysics()
    friction, rolling, mass, response, latency = (
        rng.uniform(*ends)
        for ends in (
            config.friction,
            config.rolling_friction,
            config.ball_mass,
            config.response,
            config.latency,
        )
    )
    return DrawnPhysics(ArmsConditions(friction, rolling, response, latency), mass)

"""The cost of a control period of the low level, on one core.

    python benchmarks/control_period.py --robot go2 --rate 500 --seconds 10

The controller walks a robot over solid ground on MuJoCo, with random footholds, and replans its MPC every
10 ms. Each call of `Controller.step` is timed alone, in time of its thread, which the load of other programs
does not count. Expected: the 99th percentile stays below 1 ms at 500 Hz. Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace

import numpy as np

from robopolicy.control.controller import Controller
from robopolicy.control.robots import ROBOTS
from robopolicy.envs.physics.base import Box, Start
from robopolicy.envs.physics.mujoco import MujocoConfig, MujocoPhysics

PLANS = 0.01  # s between two plans of the MPC
GROUND = Box((0.0, 0.0, -0.5), (50.0, 3.0, 0.5))
WARM_UP = 1.0  # s, not counted: numba compiles


def times(name: str, rate: int, seconds: float) -> np.ndarray:
    """Time of each call of `Controller.step` (s). Raises RuntimeError if the robot falls."""
    robot = ROBOTS[name]
    config = replace(robot.walker, control_period=1 / rate, replan_every=round(PLANS * rate))
    engine = replace(MujocoConfig.of(robot), control_period=1 / rate, substeps=round(500 / rate))
    physics, controller = MujocoPhysics(robot, engine), Controller(robot, config)
    start = np.array([0.0, 0.0, config.height])
    physics.reset(Start([GROUND], start, robot.standing_joints(config.height)))
    controller.reset(physics.state())
    rng, largest = np.random.default_rng(0), 0.15 * robot.leg / ROBOTS["laikago"].leg
    spent = []
    for tick in range(round((WARM_UP + seconds) * rate)):
        if tick % round(0.05 * rate) == 0:
            offsets = np.stack([rng.uniform(-largest, largest, 4), np.zeros(4)], axis=1)
        state = physics.state()
        begun = time.thread_time_ns()
        commands = controller.step(state, offsets)
        spent.append(1e-9 * (time.thread_time_ns() - begun))
        physics.command(*commands)
        physics.step()
    if controller.reading.position[2] < robot.lowest_base:
        raise RuntimeError(f"{robot} fell")
    physics.close()
    return np.array(spent[round(WARM_UP * rate) :])


if __name__ == "__main__":
    description, form = __doc__, argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=description, formatter_class=form)
    parser.add_argument("--robot", choices=ROBOTS, default="go2")
    parser.add_argument("--rate", type=int, choices=(100, 250, 500), default=500, help="Hz")
    parser.add_argument("--seconds", type=float, default=10.0)
    arguments = parser.parse_args()
    spent = 1e3 * times(arguments.robot, arguments.rate, arguments.seconds)
    shares = {f"p{share}_ms": round(float(np.percentile(spent, share)), 3) for share in (50, 95, 99)}
    print(
        json.dumps(
            {
                "robot": arguments.robot,
                "rate": arguments.rate,
                "periods": len(spent),
                "mean_ms": round(float(spent.mean()), 3),
                **shares,
                "largest_ms": round(float(spent.max()), 3),
            }
        )
    )

"""The cost of a control period of the low level, on one core.

    python benchmarks/control_period.py --robot go2 --rate 500 --seconds 10

The controller walks a robot over solid ground on MuJoCo, with random footholds, and replans its MPC every
10 ms. It has the state by an estimate from the preset `sensors`' readings. The estimate and `Controller.step`
are timed alone, in time of their thread, which the load of other programs does not count. Expected: the 99th
percentile of both together stays below 1 ms at 500 Hz. Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace

import numpy as np

from robopolicy.control.controller import Controller
from robopolicy.control.estimate import StateEstimator
from robopolicy.control.robots import ROBOTS
from robopolicy.envs.physics.base import Box, Start
from robopolicy.envs.physics.mujoco import MujocoConfig, MujocoPhysics
from robopolicy.envs.quadruped.body_sensors import BodySensorConfig, BodySensors

PLANS = 0.01  # s between two plans of the MPC
GROUND = Box((0.0, 0.0, -0.5), (50.0, 3.0, 0.5))
WARM_UP = 1.0  # s, not counted: numba compiles


def times(name: str, rate: int, seconds: float) -> np.ndarray:
    """Times of each estimate and of each `Controller.step`, [N, 2] (s).

    Raises RuntimeError if the robot falls.
    """
    robot = ROBOTS[name]
    config = replace(robot.walker, control_period=1 / rate, replan_every=round(PLANS * rate))
    physics, controller = MujocoPhysics(robot, MujocoConfig.of(robot, 1 / rate)), Controller(robot, config)
    start = np.array([0.0, 0.0, config.height])
    physics.reset(Start([GROUND], start, robot.standing_joints(config.height)))
    sensors = BodySensors(BodySensorConfig(), 1 / rate, np.random.default_rng(1))
    estimator = StateEstimator(robot, period=1 / rate)
    controller.reset(estimator.reset(sensors.read(physics.state())))
    rng, largest = np.random.default_rng(0), 0.15 * robot.leg / ROBOTS["laikago"].leg
    spent = []
    for tick in range(round((WARM_UP + seconds) * rate)):
        if tick % round(0.05 * rate) == 0:
            offsets = np.stack([rng.uniform(-largest, largest, 4), np.zeros(4)], axis=1)
        sensed, stood = sensors.read(physics.state()), ~controller.swinging
        begun = time.thread_time_ns()
        state = estimator.update(sensed, stood)
        estimated = time.thread_time_ns()
        positions, torques, held = controller.step(state, offsets)
        spent.append([1e-9 * (estimated - begun), 1e-9 * (time.thread_time_ns() - estimated)])
        physics.command(positions - sensors.offsets, torques, held)
        physics.step()
    if physics.state().position[2] < robot.lowest_base:
        raise RuntimeError(f"{name} fell")
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
    parts = {"estimate": spent[:, 0], "controller": spent[:, 1], "both": spent.sum(axis=1)}
    figures = {
        name: {
            "mean_ms": round(float(part.mean()), 3),
            **{f"p{share}_ms": round(float(np.percentile(part, share)), 3) for share in (50, 95, 99)},
            "largest_ms": round(float(part.max()), 3),
        }
        for name, part in parts.items()
    }
    periods = {"robot": arguments.robot, "rate": arguments.rate, "periods": len(spent)}
    print(json.dumps(periods | figures, indent=1))

"""Fit the linear models of a robot's trot, the numbers of `robopolicy.control.robot.Trot`.

    python benchmarks/robot_trot.py --robot go2 --episodes 24
    python benchmarks/robot_trot.py --robot quadruped.json       # by its table

The robot trots over solid ground with random footholds, on MuJoCo. Each half period is a row: what the base
and the feet do in it, against what the oracle knows at its beginning. Expected for any robot that trots:
residuals of a few millimetres and centimetres a second. Prints the numbers for the table, and the residuals.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace

import numpy as np

from robopolicy.control.robot import Robot
from robopolicy.control.robots import robot_of
from robopolicy.envs.quadruped.presets import presets_of
from robopolicy.envs.quadruped.stepping_stones import SteppingStones


def half_periods(robot: Robot, episodes: int) -> list[dict[str, np.ndarray]]:
    """One row for each half period in which the commanded speed is known: its beginning and its outcome."""
    config = replace(presets_of(robot)["painted"], episode_seconds=20.0)
    env = SteppingStones(engine="mujoco", config=config)
    walker, rows = env.walker, []
    half = config.walker.gait.period / 2
    for seed in range(episodes):
        env.reset(seed=seed)
        rng, over, begun = np.random.default_rng(seed), False, None
        while not over:
            lifting, action = walker.lifting(), np.zeros(4, np.float32)
            if lifting.any():
                now, x = walker.reading, walker.reading.position[0]
                if begun is not None:
                    begun["moved"], begun["faster"] = x - begun["x"], now.velocity[0]
                    rows.append(begun)
                action[lifting] = rng.uniform(-1, 1, lifting.sum())
                desired = [
                    config.walker.speed * min(1.0, t / config.walker.ramp)
                    for t in (walker.time, walker.time + half)
                ]
                begun = {
                    "x": x,
                    "known": np.array([now.velocity[0], now.feet_world[~lifting, 0].mean() - x, *desired]),
                    "felt": np.array(
                        [now.velocity[1], now.position[1], now.attitude[0], now.angular_velocity[0]]
                    ),
                    "lifted": lifting,
                    "middle": walker.hips_world()[:, 1] + walker.robot.legs.plane,
                }
            _, _, ended, cut, _ = env.step(action)
            over = ended or cut
            if begun is not None and "landed" not in begun and not walker.swinging[begun["lifted"]].any():
                feet, lifted = walker.reading.feet_world, begun["lifted"]
                begun["landed"] = feet[lifted, 0].mean() - begun["x"]
                begun["beyond"] = (feet - walker.landings)[lifted, 0].mean()
                begun["aside"] = (feet[:, 1] - begun["middle"])[lifted].mean()
    env.close()
    return [row for row in rows if "landed" in row]


def fitted(rows: list[dict[str, np.ndarray]]) -> dict[str, object]:
    """The models and the standard deviations of their residuals."""
    known, felt = (np.array([row[name] for row in rows]) for name in ("known", "felt"))
    moved, faster, landed, aside = (
        np.array([row[name] for row in rows]) for name in ("moved", "faster", "landed", "aside")
    )
    with_landing = np.insert(known, 2, landed, axis=1)
    result: dict[str, object] = {"half_periods": len(rows)}
    result["overshoot"] = round(float(np.mean([row["beyond"] for row in rows])), 4)
    for name, inputs, output in (
        ("progress", known, moved),
        ("speed", with_landing, faster),
        ("sway", felt, aside),
    ):
        numbers = np.linalg.lstsq(inputs, output, rcond=None)[0]
        result[name] = numbers.round(4).tolist()
        result[f"{name}_residual"] = round(float((inputs @ numbers - output).std()), 5)
    return result


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--robot", default="go2", help="laikago, go2, or the JSON file of a table")
    parser.add_argument("--episodes", type=int, default=24)
    arguments = parser.parse_args()
    try:
        robot = robot_of(arguments.robot)
    except (ValueError, FileNotFoundError) as error:
        parser.error(str(error))
    print(json.dumps(fitted(half_periods(robot, arguments.episodes)), indent=1))

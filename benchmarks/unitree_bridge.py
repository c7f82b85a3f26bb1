"""A Go2 policy that drives a simulated Go2 over DDS, on the loopback and in another process.

    python benchmarks/unitree_bridge.py               # the table that is kept
    python benchmarks/unitree_bridge.py --measure     # plays again; half an hour on 2 idle cores

The bundle is that of `stepping-stones-go2`, exported to `bundle`. Each course is a drive of its own, from
seed 9000: in lock step, on a sound network and with faults, and in real time. With faults, 1 % of the low
states are dropped, 1 % delayed by up to four messages, 1 % swapped with the next one, and after 1 % comes a
forged one. The control is the same policy in one process with the simulator, by the true state (`paper`) and
by the sensors (`sensors`). Figures go to `benchmarks/unitree_bridge.json`.

Expected: at least 18 of 20 courses in each row; below 1 % of the policy's deadlines missed in real time where
cores are idle.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

import numpy as np

import robopolicy
from robopolicy.experiments.environments import Environment
from robopolicy.experiments.tables import aligned
from robopolicy.experiments.unitree_deployment import deploy_simulated_unitree
from robopolicy.experiments.unitree_faults import Faults
from robopolicy.writing import write_atomically

KEPT = Path(__file__).with_suffix(".json")
POLICY, FIRST = "stepping-stones-go2", 9000
FAULTS = Faults(drop=0.01, delay=0.01, swap=0.01, forge=0.01)
ROWS = {  # pace, faults
    "lock step": (0.0, Faults()),
    "lock step, faults": (0.0, FAULTS),
    "real time": (1.0, Faults()),
}


def control(preset: str, courses: int) -> dict:
    """How the policy crosses in one process."""
    where = Environment("stepping-stones", "mujoco", preset, others={"robot": "go2"})
    result = robopolicy.evaluate(POLICY, where, range(FIRST, FIRST + courses), workers=1).summary()
    return {name: result[name] for name in ("episodes", "success_rate", "distance_mean", "causes")}


def course(bundle: str, seed: int, pace: float, faults: Faults) -> dict:
    """One course over DDS."""
    result = deploy_simulated_unitree(bundle, episodes=1, seed=seed, pace=pace, faults=faults)
    names = ("steps", "deadlines_missed", "begun_late", "round_trip", "stopped")
    return {**{name: result[name] for name in names}, **result["played"][0], "load": os.getloadavg()[0]}


def table(kept: dict) -> list[tuple[str, ...]]:
    """A row for each way to play."""
    rows = [("row", "crossed", "deadlines missed", "late periods", "bridged", "ignored", "stops", "load")]
    for name, one in kept["control"].items():
        rows.append(
            (name, f"{round(one['success_rate'] * one['episodes'])} of {one['episodes']}", *("-",) * 6)
        )
    for name, courses in kept["dds"].items():
        low = [one["low_level"] for one in courses]
        steps, periods = (
            sum(one[key] for one in where) for key, where in (("steps", courses), ("periods", low))
        )
        missed, late = sum(one["deadlines_missed"] for one in courses), sum(one["late"] for one in low)
        rows.append(
            (
                name,
                f"{sum(one['success'] for one in courses)} of {len(courses)}",
                f"{missed} of {steps} ({missed / max(1, steps):.1%})",
                f"{late / max(1, periods):.1%}",
                f"{sum(one['bridged'] for one in low) / max(1, periods):.1%}",
                str(sum(sum(one["ignored"].values()) for one in low)),
                str(sum(one["stopped"] is not None for one in courses)),
                f"{np.mean([one['load'] for one in courses]):.1f}",
            )
        )
    return rows


def main() -> None:
    """Run as the docstring of this file says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--bundle", default="bundle")
    parser.add_argument("--courses", type=int, default=20)
    given = parser.parse_args()
    if given.measure:
        kept: dict = {"control": {}, "dds": {}}
        for name, (pace, faults) in ROWS.items():
            kept["dds"][name] = []
            for seed in range(FIRST, FIRST + given.courses):
                kept["dds"][name].append(course(given.bundle, seed, pace, faults))
                write_atomically(KEPT, json.dumps(kept, indent=1) + "\n")
        for preset in ("paper", "sensors"):
            kept["control"][preset] = control(preset, given.courses)
            write_atomically(KEPT, json.dumps(kept, indent=1) + "\n")
    print(*aligned(table(json.loads(KEPT.read_text()))), sep="\n")


if __name__ == "__main__":
    main()

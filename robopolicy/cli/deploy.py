"""robopolicy deploy"""

from __future__ import annotations

import json as json_format
import math
import sys
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from robopolicy.envs.physics import ENGINES
from robopolicy.envs.registry import chosen, make, task_class
from robopolicy.envs.task import check_ending, task_of
from robopolicy.experiments.evaluation import FIRST_SEED
from robopolicy.experiments.simulated_robot import SimulatedRobot
from robopolicy.naming import one_of

if TYPE_CHECKING:
    from robopolicy.envs.task import Task
    from robopolicy.runtime.link import Link
    from robopolicy.runtime.manifest import Manifest

ROBOTS = ("sim",)
MISSES, LOOPBACK = 3, "127.0.0.1"  # the runtime's, which is not imported for --help
LONGEST_WAIT = 3600.0  # s


@dataclass(frozen=True)
class Deploy:
    """Let a bundle drive a robot in real time, from a process of its own that holds the runtime alone.

    For example:
        robopolicy deploy bundle --robot sim

    Robot and policy talk over a socket (docs/export.md). A step without a command in time is held, and after
    some of them in a row, or at anything that the protocol does not allow, the robot stops safely.
    """

    bundle: tyro.conf.Positional[Path]
    """The folder that export wrote."""
    robot: str = "sim"
    """Which robot; sim is the simulated one. Others are driven from Python: examples/own_robot.py."""
    seconds: float = 60.0
    """How long, in wall-clock time; an episode that ends is followed by the next."""
    episodes: int | None = None
    """Whole episodes in place of --seconds."""
    seed: int = FIRST_SEED
    """Seed of the first episode."""
    engine: str | None = None
    """Physics engine, bullet or mujoco. Default: bullet where it is installed."""
    preset: str | None = None
    """Variant of the task; default: its first one, paper."""
    misses: int = MISSES
    """Steps in a row without a command in time that stop the robot."""
    wait: Annotated[bool, tyro.conf.arg(help="Wait for a policy that is started by somebody else.")] = False
    host: str = LOOPBACK
    """Where it is waited for; the default is this machine alone."""
    port: int = 0
    """Where it is waited for; 0 takes any port that is free."""
    json: Annotated[bool, tyro.conf.arg(help="Print the result as JSON on stdout.")] = False

    def run(self) -> int:
        """Drive and print; the exit code."""
        one_of("robot", self.robot, ROBOTS)
        if self.engine is not None:
            one_of("engine", self.engine, ENGINES)
        if not 0 < self.seconds < math.inf:
            raise ValueError(f"seconds is {self.seconds}: it must be a number above 0")
        for name, least in (("episodes", 1), ("seed", 0), ("misses", 1)):
            given = getattr(self, name)
            if given is not None and given < least:
                raise ValueError(f"{name} is {given}: it must be {least} or more")
        if not self.wait and (self.host, self.port) != (LOOPBACK, 0):
            raise ValueError(f"host is {self.host!r} and port {self.port}: they are for --wait")
        if not 0 <= self.port < 2**16:
            raise ValueError(f"port is {self.port}: it must be from 0 to 65535")
        from robopolicy.experiments import runs
        from robopolicy.runtime.bundle import open_bundle
        from robopolicy.runtime.policy import BundlePolicy

        bundle = open_bundle(self.bundle)
        BundlePolicy(bundle)  # raises here, before anything moves, what would fail in the other process
        manifest = bundle.manifest
        task = runs.task_of(str(self.bundle), manifest.data, "bundle")
        engine, preset = chosen(task, self.engine, self.preset)
        shown = task_class(task).settings_for({name: value.shape for name, value in manifest.inputs.items()})
        env = make(task, engine=engine, preset=preset, **shown)
        try:
            robot = SimulatedRobot(env, manifest.data)
            robot.rehearse(self.seed)
            with self._linked(manifest) as link:
                result = self._drive(robot, link, manifest, task_of(env))
                result |= {"engine": engine, "preset": preset}
        finally:
            env.close()
        print(json_format.dumps(result) if self.json else _words(result))
        return 0 if result["stopped"] is None else 1

    def _linked(self, manifest: Manifest) -> AbstractContextManager[Link]:
        """The connection to a policy, which is started here unless it is waited for."""
        from robopolicy.runtime.process import policy_process, remote_policy

        def told(why: str) -> None:
            print(f"robopolicy: {why}", file=sys.stderr)

        if not self.wait:
            return policy_process(self.bundle, manifest, told)
        return remote_policy(
            self.host,
            self.port,
            manifest,
            LONGEST_WAIT,
            lambda port: print(f"waiting for a policy at {self.host}:{port}", file=sys.stderr),
            told,
        )

    def _drive(self, robot: SimulatedRobot, link: Link, manifest: Manifest, task: Task) -> dict[str, Any]:
        from robopolicy.runtime.robot import Driver

        driver = Driver(link, manifest, self.misses)
        played: list[dict[str, Any]] = []
        left = math.inf if self.episodes else self.seconds
        while left > 1e-9 and len(played) < (self.episodes or math.inf) and driver.record.stopped is None:
            seed = self.seed + len(played)
            robot.begin(seed)
            before = driver.record.steps
            driver.run(robot, left)
            left -= (driver.record.steps - before) * manifest.control_period
            if robot.finished() and not robot.stopped:
                check_ending(task, robot.info)
            played.append(
                {
                    "seed": seed,
                    "steps": driver.record.steps - before,
                    "return": robot.total,
                    "success": bool(robot.info.get("success")),
                    "cause": robot.info["cause"],
                    "whole": not robot.stopped,
                    **{outcome.name: robot.info[outcome.name] for outcome in task.outcomes},
                }
            )
            if not self.json:
                print(_line(played[-1], task))
        whole = [episode for episode in played if episode["whole"]]
        return {
            "bundle": str(self.bundle),
            "task": manifest.data["task"],
            "control_period": manifest.control_period,
            "deadline": manifest.deadline,
            **driver.record.summary(),
            "episodes": len(whole),
            "success_rate": sum(e["success"] for e in whole) / len(whole) if whole else None,
            "played": played,
        }


def _line(played: dict[str, Any], task: Task) -> str:
    told = ", ".join(outcome.said.format(played[outcome.name]) for outcome in task.outcomes)
    return f"seed {played['seed']}: {told}, {played['steps']} steps, {played['cause']}"


def _words(result: dict[str, Any]) -> str:
    lines = [
        f"{result['steps']} steps of {1e3 * result['control_period']:g} ms in real time, "
        f"{result['deadlines_missed']} deadlines of {1e3 * result['deadline']:g} ms missed "
        f"({result['share_missed']:.2%}), {result['begun_late']} steps begun late by the robot"
    ]
    for name, title in (
        ("round_trip", "round trip"),
        ("thinking", "the policy's share of it"),
        ("jitter", "jitter of the steps"),
    ):
        if result[name] is not None:
            times = ", ".join(f"{part} {1e3 * value:.2f} ms" for part, value in result[name].items())
            lines.append(f"{title}: {times}")
    if result["episodes"]:
        lines.append(f"{result['episodes']} whole episodes, success {result['success_rate']:.1%}")
    if result["stopped"] is not None:
        lines.append(f"stopped safely: {result['stopped']}")
    return "\n".join(lines)

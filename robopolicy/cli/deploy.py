"""robopolicy deploy"""

from __future__ import annotations

import json as json_format
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, arg

from robopolicy.cli.options import Engine, Env, Json, Preset, Renderer, Seed
from robopolicy.envs.registry import RECORDED
from robopolicy.envs.task import Outcome
from robopolicy.experiments.deployment import InterruptedDrive, Listening, deploy
from robopolicy.experiments.evaluation import FIRST_SEED
from robopolicy.experiments.unitree_deployment import deploy_simulated_unitree, deploy_unitree
from robopolicy.naming import counted, one_of
from robopolicy.runtime.link import LOOPBACK
from robopolicy.runtime.policy import ONNX
from robopolicy.runtime.robot import MISSES

SIMULATED, UNITREE, SIMULATED_UNITREE = ROBOTS = ("sim", "go2", "go2-sim")


@dataclass(frozen=True)
class Deploy:
    """Drive a robot in real time by a bundle, which runs in a process with the runtime alone.

    For example:
        robopolicy deploy bundle --robot sim
        robopolicy deploy go2-bundle --robot go2-sim --pace 0    # over the topics of a Go2

    Robot and policy talk over a socket (docs/export.md). A step without a command in time is held. After
    several of them in a row, or after a breach of the protocol, the robot stops safely.
    """

    bundle: Positional[Path]
    """Folder that robopolicy export wrote."""
    robot: str = "sim"
    """Robot: sim, the simulated one; go2, a Unitree Go2 on DDS, or go2-sim, a simulated one on the loopback.
    A drive of a real Go2 was never tried: read docs/guides/unitree.md first. Others are driven from Python:
    examples/own_robot.py."""
    seconds: float | None = None
    """Wall-clock time, or the robot's with go2-sim. An episode that ends is followed by the next. Default:
    60."""
    episodes: int | None = None
    """Whole episodes instead of --seconds."""
    seed: Seed = FIRST_SEED
    env: Env = None
    engine: Engine = None
    preset: Preset = None
    renderer: Renderer = None
    misses: int = MISSES
    """Consecutive steps without a command in time that stop the robot."""
    runtime: str = ONNX
    """What runs the policy: onnx, or c, which compiles the bundle's policy.c."""
    interface: str | None = None
    """Network interface of the robot go2, such as eth0."""
    pace: float = 1.0
    """Seconds of go2-sim in a second: 1, or from 0.01 on in slow motion; 0 is the lock step."""
    wait: Annotated[bool, arg(help="Wait for a policy that another program starts.")] = False
    host: str = LOOPBACK
    """Address to wait at. The default is this machine alone."""
    port: int = 0
    """Port to wait at; 0 takes any free port."""
    json: Json = False

    def run(self) -> int:
        """Drive and print; returns the exit code."""
        one_of("robot", self.robot, ROBOTS)
        if self.robot != SIMULATED:
            self._refuse(wait=False, host=LOOPBACK, port=0)
        for name, default in (("host", LOOPBACK), ("port", 0)):
            if not self.wait and getattr(self, name) != default:
                raise ValueError(f"{name} is {getattr(self, name)!r}: it needs --wait")
        if self.wait and self.runtime != ONNX:
            raise ValueError(f"runtime is {self.runtime!r}: with --wait, the other program chooses it")
        try:
            result = self._drive()
        except InterruptedDrive as stop:
            self._print(stop.result)
            raise
        self._print(result)
        return 0 if result["stopped"] is None else 1

    def _print(self, result: dict[str, Any]) -> None:
        print(json_format.dumps(result) if self.json else _words(result))

    def _drive(self) -> dict[str, Any]:
        """Drive the robot; the result as JSON."""
        names = ["runtime", "seconds", "misses"]
        if self.robot == UNITREE:
            self._refuse(episodes=None, seed=FIRST_SEED, engine=None, preset=None, renderer=None)
            self._refuse(pace=1.0, env=None)
            if self.interface is None:
                raise ValueError(
                    "interface is missing: it must be the robot's network interface, such as eth0"
                )
            return deploy_unitree(self.bundle, self.interface, **self._named(names), on_message=_tell)
        self._refuse(interface=None)
        names += ["episodes", "seed", "preset"]
        told: dict[str, Any] = {
            "on_message": _tell,
            "on_episode": lambda *episode: None if self.json else print(_line(*episode)),
        }
        if self.robot == SIMULATED_UNITREE:
            self._refuse(engine=None, renderer=None, env=None)
            return deploy_simulated_unitree(self.bundle, **self._named([*names, "pace"]), **told)
        self._refuse(pace=1.0)
        listening = Listening(self.host, self.port) if self.wait else None
        named = self._named([*names, "engine", "renderer"])
        return deploy(self.bundle, **named, listening=listening, **told)

    def _named(self, names: Sequence[str]) -> dict[str, Any]:
        return {name: getattr(self, name) for name in names}

    def _refuse(self, **defaults: Any) -> None:
        """Raise ValueError for an option that the robot does not have."""
        for name, default in defaults.items():
            if getattr(self, name) != default:
                raise ValueError(
                    f"{name} is {getattr(self, name)!r}: the robot {self.robot} has no such option"
                )


def _tell(text: str) -> None:
    print(f"robopolicy: {text}", file=sys.stderr)


def _line(episode: dict[str, Any], outcomes: Sequence[Outcome]) -> str:
    words = "".join(f"{outcome.phrase.format(episode[outcome.name])}, " for outcome in outcomes)
    return f"seed {episode['seed']}: {words}{episode['steps']} steps, {episode['cause']}"


def _words(result: dict[str, Any]) -> str:
    paces = {1: "in real time", 0: "in lock step"}
    pace = paces.get(result.get("pace", 1)) or f"at {result['pace']:g} of real time"
    lines = [
        f"{result['steps']} steps of {1e3 * result['control_period']:g} ms {pace}, "
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
    if "low_level" in result:
        lines.append(_of_low_level(result["low_level"]))
    if result["episodes"]:
        success = "" if result["task"] == RECORDED else f", success {result['success_rate']:.1%}"
        lines.append(counted(result["episodes"], "whole episodes") + success)
    if result["stopped"] is not None:
        lines.append(f"stopped safely: {result['stopped']}")
    return "\n".join(lines)


def _of_low_level(counts: dict[str, Any]) -> str:
    """The line on the 500 Hz loop in the last episode."""
    times = ", ".join(f"{part} {1e3 * value:.2f} ms" for part, value in (counts["spent"] or {}).items())
    spent = f"; from state to command: {times}" if times else ""
    ignored = ", ".join(f"{count} by {kind}" for kind, count in counts["ignored"].items()) or "none"
    return (
        f"low level, last: {counts['periods']} periods of 2 ms, {counts['bridged']} bridged, "
        f"{counts['late']} late, messages ignored: {ignored}{spent}"
    )

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
from robopolicy.envs.task import Outcome
from robopolicy.experiments.deployment import Listening, deploy
from robopolicy.experiments.evaluation import FIRST_SEED
from robopolicy.naming import one_of
from robopolicy.runtime.link import LOOPBACK
from robopolicy.runtime.policy import ONNX
from robopolicy.runtime.robot import MISSES

ROBOTS = ("sim",)


@dataclass(frozen=True)
class Deploy:
    """Drive a robot in real time by a bundle, which runs in a process with the runtime alone.

    For example:
        robopolicy deploy bundle --robot sim

    Robot and policy talk over a socket (docs/export.md). A step without a command in time is held. After
    several of them in a row, or after a breach of the protocol, the robot stops safely.
    """

    bundle: Positional[Path]
    """Folder that robopolicy export wrote."""
    robot: str = "sim"
    """Robot: sim, the simulated one. Others are driven from Python: examples/own_robot.py."""
    seconds: float = 60.0
    """Wall-clock time. An episode that ends is followed by the next."""
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
    wait: Annotated[bool, arg(help="Wait for a policy that another program starts.")] = False
    host: str = LOOPBACK
    """Address to wait at. The default is this machine alone."""
    port: int = 0
    """Port to wait at; 0 takes any free port."""
    json: Json = False

    def run(self) -> int:
        """Drive and print; returns the exit code."""
        one_of("robot", self.robot, ROBOTS)
        if not self.wait and (self.host, self.port) != (LOOPBACK, 0):
            raise ValueError(f"host is {self.host!r} and port {self.port}: they are for --wait")
        if self.wait and self.runtime != ONNX:
            raise ValueError(f"runtime is {self.runtime!r}: with --wait, the other program chooses it")
        names = ("runtime", "seconds", "episodes", "seed", "engine", "preset", "renderer", "misses")
        result = deploy(
            self.bundle,
            **{name: getattr(self, name) for name in names},
            listening=Listening(self.host, self.port) if self.wait else None,
            on_message=lambda text: print(f"robopolicy: {text}", file=sys.stderr),
            on_episode=lambda *episode: None if self.json else print(_line(*episode)),
        )
        print(json_format.dumps(result) if self.json else _words(result))
        return 0 if result["stopped"] is None else 1


def _line(episode: dict[str, Any], outcomes: Sequence[Outcome]) -> str:
    words = ", ".join(outcome.phrase.format(episode[outcome.name]) for outcome in outcomes)
    return f"seed {episode['seed']}: {words}, {episode['steps']} steps, {episode['cause']}"


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

"""A bundle that drives the simulated robot in real time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from gymnasium import Env

from robopolicy.envs.physics import ENGINES
from robopolicy.envs.registry import make, task_class, with_defaults
from robopolicy.envs.task import Outcome, Task, check_ending, named, task_of
from robopolicy.experiments import runs
from robopolicy.experiments.evaluation import FIRST_SEED
from robopolicy.experiments.simulated_robot import SimulatedRobot
from robopolicy.naming import one_of, shown
from robopolicy.runtime.bundle import open_bundle
from robopolicy.runtime.link import LOOPBACK, Link
from robopolicy.runtime.manifest import Manifest
from robopolicy.runtime.policy import ONNX, BundlePolicy, C
from robopolicy.runtime.process import policy_process, remote_policy
from robopolicy.runtime.proof import prove
from robopolicy.runtime.robot import INTERRUPTED, MISSES, Driver, Record, Robot
from robopolicy.settings import check_count, is_finite

LONGEST_WAIT = 3600.0  # s
USUAL_DRIVE, LONGEST_DRIVE = 60.0, 1e6  # s
MANY = 10**9
Episode = dict[str, Any]


class Listening(NamedTuple):
    """The address at which `deploy` waits for a policy; port 0 takes any free port."""

    host: str = LOOPBACK
    port: int = 0


class InterruptedDrive(KeyboardInterrupt):
    """Ctrl-C during a drive, raised once the robot has stopped. `result` is what the drive would return."""

    def __init__(self, result: dict[str, Any]) -> None:
        super().__init__("the robot has stopped")
        self.result = result


def time_of_drive(seconds: float | None, episodes: int | None = None) -> float:
    """How long a drive lasts at most, s. Raises ValueError for bad arguments, and if both are given."""
    if episodes is not None:
        check_count("episodes", episodes, 1, MANY)
        if seconds is not None:
            raise ValueError(f"seconds is {seconds!r} and episodes {episodes}: give one of them")
        return math.inf
    if seconds is None:
        return USUAL_DRIVE
    if not (is_finite(seconds) and 0 < seconds <= LONGEST_DRIVE):
        raise ValueError(
            f"seconds is {shown(seconds)}: it must be a number above 0, and at most {LONGEST_DRIVE:g}"
        )
    return seconds


def drive(driver: Driver, robot: Robot, seconds: float) -> KeyboardInterrupt | None:
    """Drive a robot for up to `seconds` (s). Returns the interrupt by which Ctrl-C has stopped it."""
    try:
        driver.run(robot, seconds)
    except KeyboardInterrupt as interrupt:  # or in the safe stop at the end of `run`
        driver.record.stopped = INTERRUPTED
        return interrupt
    return None


def complete(result: dict[str, Any], interrupt: KeyboardInterrupt | None) -> dict[str, Any]:
    """Return `result`, or raise `InterruptedDrive` with it if the drive was interrupted."""
    if interrupt is not None:
        raise InterruptedDrive(result) from interrupt
    return result


def deploy(
    bundle: str | Path,
    *,
    seconds: float | None = None,
    episodes: int | None = None,
    seed: int = FIRST_SEED,
    engine: str | None = None,
    preset: str | None = None,
    renderer: str | None = None,
    misses: int = MISSES,
    listening: Listening | None = None,
    runtime: str = ONNX,
    on_message: Callable[[str], None] = lambda text: None,
    on_episode: Callable[[Episode, Sequence[Outcome]], None] = lambda episode, outcomes: None,
) -> dict[str, Any]:
    """Drive the simulated robot in real time by a bundle, which runs in its own process.

    Args:
      bundle: the folder that `export` wrote.
      seconds: wall-clock time, s; an episode that ends is followed by the next. Default: 60, or no limit with
        `episodes`.
      episodes: whole episodes instead of `seconds`.
      seed: of the first episode.
      engine, preset, renderer: of the task; None for the engine and the last preset that the policy was
        trained on, and for the task's defaults.
      misses: consecutive steps without a command in time that stop the robot.
      listening: where to wait for a policy that another program starts; None starts it here.
      runtime: what runs the policy here: onnx, or c, which compiles it and checks the manifest's hash.
      on_message: called with lines of text.
      on_episode: called with the result of each episode and the outcomes that the task declares.

    Returns deadlines, times and episodes as JSON. Raises ValueError, FileNotFoundError or
    BundleError, in one line, before anything moves, and `InterruptedDrive` after Ctrl-C while
    the policy drives.
    """
    if engine is not None:
        one_of("engine", engine, ENGINES)
    left = time_of_drive(seconds, episodes)
    check_count("seed", seed, 0, 2**32 - 1)
    check_count("misses", misses, 1, MANY)
    if listening is not None:
        check_count("port", listening.port, 0, 2**16 - 1)
    opened = open_bundle(bundle)
    # An error of the other process is raised here, before anything moves.
    policy = BundlePolicy(opened, runtime)
    if runtime == C:
        prove(opened, policy)
    manifest = opened.manifest
    task = runs.task_of(str(bundle), manifest.data, "bundle")
    run = manifest.data.get("run")
    trained = run if isinstance(run, dict) else {}
    preset = preset or runs.preset_of(trained)
    engine = engine or runs.engine_of(trained)
    engine, preset = with_defaults(task, engine, preset, renderer)
    shapes = {name: value.shape for name, value in manifest.inputs.items()}
    others = runs.others_in(trained) | task_class(task).settings_for(shapes)
    others |= {"renderer": renderer} if renderer else {}
    env = make(task, engine=engine, preset=preset, **others)

    def connected() -> AbstractContextManager[Link]:
        if listening is None:
            return policy_process(Path(bundle), manifest, on_message, runtime)
        return remote_policy(
            listening.host,
            listening.port,
            manifest,
            LONGEST_WAIT,
            lambda port: on_message(f"waiting for a policy at {listening.host}:{port}"),
            on_message,
        )

    try:
        _check_fit(env, manifest, f"preset is {preset!r}")
        robot = SimulatedRobot(env, manifest.data)
        robot.rehearse(seed)
        with connected() as link:
            driver = Driver(link, manifest, misses)
            played: list[Episode] = []
            interrupt = None
            while left > 1e-9 and len(played) < (episodes or math.inf) and driver.record.stopped is None:
                before = driver.record.steps
                robot.begin(seed + len(played))
                interrupt = drive(driver, robot, left)
                steps = driver.record.steps - before
                left -= steps * manifest.control_period
                played.append(_episode(robot, seed + len(played), steps, task_of(env)))
                on_episode(played[-1], task_of(env).outcomes)
    finally:
        env.close()
    result = result_of(bundle, manifest, driver.record, played) | {"engine": engine, "preset": preset}
    return complete(result, interrupt)


def result_of(
    bundle: str | Path, manifest: Manifest, record: Record, played: Sequence[Episode]
) -> dict[str, Any]:
    """Deadlines, times and episodes of a drive, as JSON can hold them."""
    whole = [episode for episode in played if episode["whole"]]
    return {
        "bundle": str(bundle),
        "task": manifest.data["task"],
        "control_period": manifest.control_period,
        "deadline": manifest.deadline,
        **record.summary(),
        "episodes": len(whole),
        "success_rate": sum(episode["success"] for episode in whole) / len(whole) if whole else None,
        "played": list(played),
    }


def _check_fit(env: Env[Any, Any], manifest: Manifest, where: str) -> None:
    """Raise ValueError, in one line, unless the task fits the bundle. `where`: what the inputs depend on."""
    task = task_of(env).describe()
    scale = manifest.data["outputs"]["command"].get("scale")
    for name, of_bundle, of_task in (
        ("control_period", manifest.control_period, task["control_period"]),
        ("scale of the command", scale, task["outputs"]["command"]["scale"]),
    ):
        if of_bundle != of_task:
            raise ValueError(f"bundle has the {name} {of_bundle}, and the task has {of_task}")
    spaces: Any = env.observation_space
    for name, value in manifest.inputs.items():
        there = spaces[name].shape if name in spaces.spaces else None
        if there != value.shape:
            raise ValueError(
                f"{where}: the bundle reads {name!r} of shape {list(value.shape)}, and the task shows "
                f"{'no such observation' if there is None else list(there)}"
            )


def _episode(robot: SimulatedRobot, seed: int, steps: int, task: Task) -> Episode:
    if robot.finished() and not robot.stopped:
        check_ending(named(task), task.outcomes, robot.info)
    info = {n: v.item() if isinstance(v, np.generic) else v for n, v in robot.info.items()}
    return {
        "seed": seed,
        "steps": steps,
        "return": robot.total,
        "success": bool(info.get("success")),
        "cause": info["cause"],
        "whole": not robot.stopped,
        **{outcome.name: info[outcome.name] for outcome in task.outcomes},
    }

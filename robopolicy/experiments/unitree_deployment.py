"""A bundle that drives a Go2 over DDS: a real one, or a simulated one in another process."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from robopolicy.envs.quadruped.presets import PRESETS
from robopolicy.envs.quadruped.stepping_stones import SteppingStones
from robopolicy.envs.task import Outcome
from robopolicy.experiments import runs
from robopolicy.experiments.deployment import LONGEST_DRIVE, MANY, complete, drive, result_of, time_of_drive
from robopolicy.experiments.evaluation import FIRST_SEED
from robopolicy.experiments.unitree_faults import Faults
from robopolicy.naming import one_line, one_of
from robopolicy.runtime.bundle import Bundle, open_bundle
from robopolicy.runtime.policy import ONNX, BundlePolicy
from robopolicy.runtime.process import policy_process
from robopolicy.runtime.robot import MISSES, Driver, Record
from robopolicy.settings import check_count, is_finite

ENDED = "the drive has ended"
SLOWEST = 0.01  # pace in slow motion
LOCK_STEP_PACE = 0.05  # below which a robot in lock step counts as lost
LOCK_STEP = 2.0  # s, for a policy
SIMULATED_DOMAIN = 1  # no real robot is on it
Episode = dict[str, Any]
Told = Callable[[Episode, Sequence[Outcome]], None]


def deploy_unitree(
    bundle: str | Path,
    interface: str,
    *,
    seconds: float | None = None,
    misses: int = MISSES,
    runtime: str = ONNX,
    on_message: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Drive the Go2 that publishes on a network interface, such as eth0, for `seconds` (s), by default 60.

    It rises, walks, and lies down at the end. If nothing that is published fits, `stopped` in the result says
    so. Other arguments, errors and results are those of `deployment.deploy`.
    """
    dds = _dds()
    longest = time_of_drive(seconds)
    opened = _opened(bundle, runtime, misses)
    manifest = opened.manifest
    from robopolicy.unitree import bridge

    with ExitStack() as stack:
        robot = stack.enter_context(bridge.UnitreeRobot(manifest, dds.Network(interface)))
        link = stack.enter_context(policy_process(Path(bundle), manifest, on_message, runtime))
        driver = Driver(link, manifest, misses, robot.wait)
        interrupt = _drive(driver, robot, longest)
        robot.rest()
        result = result_of(bundle, manifest, driver.record, []) | {"low_level": robot.summary()}
    return complete(result, interrupt)


def deploy_simulated_unitree(
    bundle: str | Path,
    *,
    seconds: float | None = None,
    episodes: int | None = None,
    seed: int = FIRST_SEED,
    preset: str | None = None,
    misses: int = MISSES,
    runtime: str = ONNX,
    pace: float = 1.0,
    faults: Faults | None = None,
    on_message: Callable[[str], None] = lambda text: None,
    on_episode: Told = lambda episode, outcomes: None,
) -> dict[str, Any]:
    """Drive a simulated Go2 on the loopback, as `deploy_unitree` a real one.

    Args:
      seconds: of the robot; a course that ends is followed by the next. Default: 60, or no limit with
        `episodes`.
      pace: seconds of the robot in a second: 1 is real time. The deadline becomes as much longer. 0 is the
        lock step: robot, low level and policy wait for each other.
      faults: of the network, between the robot and the bridge.

    Other arguments, errors and results are those of `deployment.deploy`.
    """
    dds = _dds()
    if pace != 0 and not (is_finite(pace) and SLOWEST <= pace <= 1):
        raise ValueError(f"pace is {pace}: it must be a number from {SLOWEST} to 1, or 0 for the lock step")
    check_count("seed", seed, 0, 2**32 - 1)
    left = time_of_drive(seconds, episodes)
    opened = _opened(bundle, runtime, misses)
    run = opened.manifest.data.get("run")
    trained = run if isinstance(run, dict) else {}
    preset = one_of("preset", preset or runs.preset_of(trained) or "paper", PRESETS)
    shapes = {name: value.shape for name, value in opened.manifest.inputs.items()}
    others = SteppingStones.settings_for(shapes) | runs.others_in(trained)
    manifest = opened.manifest
    slowest, waits = (pace, 0.0) if pace else (LOCK_STEP_PACE, LOCK_STEP)
    period, deadline = (seconds / slowest for seconds in (manifest.control_period, manifest.deadline))
    slow = manifest._replace(control_period=period, deadline=deadline)
    network = dds.Network(domain=SIMULATED_DOMAIN, tag=f"robopolicy-{os.getpid()}")
    from robopolicy.experiments.simulated_unitree import SimulatedGo2
    from robopolicy.unitree import bridge

    played: list[Episode] = []
    with ExitStack() as stack:
        # The robot's node outlives the world, and hears that it leaves the network.
        robot = stack.enter_context(
            bridge.UnitreeRobot(manifest, network, pace=slowest, waits=waits, ended=lambda: is_over())
        )
        world = stack.enter_context(SimulatedGo2(network, preset, others, pace, faults or Faults()))

        def is_over() -> bool:
            return world.played() is not None or robot.low.steps * manifest.control_period > left

        record, interrupt = Record(), None
        while left > 1e-9 and len(played) < (episodes or math.inf) and record.stopped is None:
            before = record.steps
            world.begin(seed + len(played))
            # The policy's process does not wait while a robot lies down, and time does not while it loads.
            with policy_process(Path(bundle), manifest, on_message, runtime) as link:
                driver = Driver(link, slow, misses, robot.wait)
                driver.record = record
                interrupt = _drive(driver, robot, LONGEST_DRIVE)
            is_cut = record.stopped is not None or world.played() is None
            robot.rest()
            ending, rest = world.end()
            steps = record.steps - before
            left -= steps * manifest.control_period
            played.append(
                {
                    "seed": seed + len(played),
                    "steps": steps,
                    **ending._asdict(),
                    "cause": f"stopped: {record.stopped or ENDED}" if is_cut else ending.cause,
                    "success": ending.success and not is_cut,
                    "whole": not is_cut,
                    "rest": rest._asdict(),
                    "low_level": robot.summary(),
                }
            )
            on_episode(played[-1], SteppingStones.outcomes)
        result = result_of(bundle, manifest, record, played) | {
            "low_level": robot.summary(),
            "engine": "mujoco",
            "preset": preset,
            "pace": pace,
        }
    return complete(result, interrupt)


def _dds() -> Any:
    """The module that needs Cyclone DDS. Raises ValueError if that is missing or cannot be loaded."""
    try:
        from robopolicy.unitree import dds
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "cyclonedds":
            raise
        raise ValueError(
            "robot is a Go2 on DDS, which needs Cyclone DDS: the extra unitree (docs/guides/unitree.md)"
        ) from error
    except Exception as error:  # Cyclone DDS has one of its own for its library
        raise ValueError(
            f"robot is a Go2 on DDS, and Cyclone DDS cannot be loaded: {one_line(str(error))}"
        ) from error
    return dds


def _drive(driver: Driver, robot: Any, seconds: float) -> KeyboardInterrupt | None:
    """Let the robot rise, and `drive` it. A stop on the way is one of the drive."""
    try:
        robot.begin()
    except ConnectionError as error:
        driver.record.stopped = str(error)
        return None
    return drive(driver, robot, seconds)


def _opened(bundle: str | Path, runtime: str, misses: int) -> Bundle:
    """The bundle, once it has been loaded and the arguments are checked."""
    check_count("misses", misses, 1, MANY)
    opened = open_bundle(bundle)
    BundlePolicy(opened, runtime)
    return opened

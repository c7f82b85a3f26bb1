"""The speed of the stepping-stones stack on one core: physics, low-level control, both cameras, a policy.

    python benchmarks/env_speed.py --engine mujoco

The oracle walks, so that every episode runs to its end. The policy acts at every step, and its action is
discarded. The engine then repeats each episode alone from the same commands, with the same physics steps bit
for bit. Resets are not counted. Times are CPU seconds.

Expected with 384 tokens (patches of 2 pixels) on an idle x86-64 core: 38 times real time with MuJoCo, 22
times with Bullet.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Callable
from time import process_time
from typing import Any

from robopolicy.envs.physics import default_engine
from robopolicy.envs.task import task_of
from robopolicy.experiments.default_policies import new_policy
from robopolicy.experiments.environments import Environment
from robopolicy.experiments.players import player

TASK = "stepping-stones"
PARTS = ("physics", "policy", "cameras", "MPC", "control", "task")
Json = dict[str, Any]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engine", default=default_engine(), help="bullet or mujoco; default: %(default)s")
    parser.add_argument("--preset", default="paper", help="terrain; default: %(default)s")
    parser.add_argument("--attention", default="angular_hybrid(m=8, n=8)", help="default: %(default)s")
    parser.add_argument("--patch", type=int, default=2, help="side of a token, pixels; default: %(default)s")
    parser.add_argument("--seconds", type=float, default=60.0, help="of simulation; default: %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="of the first terrain; default: %(default)s")
    parser.add_argument("--json", action="store_true", help="print the result as JSON on stdout")
    settings = parser.parse_args()
    try:
        result = _measure(settings)
    except ValueError as error:
        print(f"env_speed: {error}", file=sys.stderr)
        return 2
    print(json.dumps(result) if settings.json else _table(result))
    return 0


def _measure(settings: argparse.Namespace) -> Json:
    if not 0 < settings.seconds < math.inf:
        raise ValueError(f"seconds is {settings.seconds}: it must be a finite number above 0")
    if settings.seed < 0:
        raise ValueError(f"seed is {settings.seed}: it must be 0 or more")
    _use_one_core()
    environment = Environment.of(Environment(TASK, settings.engine, settings.preset))
    policy = new_policy(environment, settings.attention, patch=settings.patch)
    env = environment.make()
    act = player(policy, TASK).act_in(env, settings.seed)
    simulated, whole, bare = 0.0, 0.0, 0.0
    shares = dict.fromkeys(PARTS, 0.0)
    _episode(env, act, settings.seed)  # loads compiled code and touches memory
    seed = settings.seed
    while simulated < settings.seconds:
        seconds, spent, commands = _episode(env, act, seed)
        simulated, whole = simulated + seconds, whole + spent
        bare += _replayed(env, commands, seed)
        for part, time in _parts(env, act, seed).items():
            shares[part] += time
        seed += 1
        print(f"{simulated:.0f} of {settings.seconds:.0f} s", end="\r", file=sys.stderr, flush=True)
    env.close()
    total = sum(shares.values())
    return {
        "engine": settings.engine,
        "preset": settings.preset,
        "attention": settings.attention,
        "patch": settings.patch,
        "simulated_seconds": round(simulated, 3),
        "real_time_factor": simulated / whole,
        "engine_real_time_factor": simulated / bare,
        "ratio": whole / bare,
        "shares": {part: time / total for part, time in shares.items()},
    }


def _use_one_core() -> None:
    """Keep this process, and the threads that JAX is yet to start, on one core."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    flags = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flags}".strip()


def _episode(env: Any, act: Callable[[Any], Any], seed: int) -> tuple[float, float, list[Any]]:
    """Simulated seconds, CPU seconds, and every command that the engine was given."""
    task, commands = task_of(env), []
    give = task.physics.command

    def record(*command: Any) -> None:
        commands.append(command)
        give(*command)

    observation, _ = task.reset(seed=seed)
    spent, steps, done = 0.0, 0, False
    task.physics.command = record
    try:
        while not done:
            action = task.oracle_action()
            began = process_time()
            act(observation)
            observation, _, ended, cut, _ = task.step(action)
            spent += process_time() - began
            steps, done = steps + 1, ended or cut
    finally:
        del task.physics.command
    return steps * task.config.policy_period, spent, commands


def _replayed(env: Any, commands: list[Any], seed: int) -> float:
    """CPU seconds of the engine's steps alone."""
    task = task_of(env)
    task.reset(seed=seed)
    physics, spent = task.physics, 0.0
    for command in commands:
        physics.command(*command)
        began = process_time()
        physics.step()
        spent += process_time() - began
    return spent


def _parts(env: Any, act: Callable[[Any], Any], seed: int) -> dict[str, float]:
    """CPU seconds of every part of an episode, each without the parts that it calls."""
    task = task_of(env)
    observation, _ = task.reset(seed=seed)
    walker, spent, running = task.walker, dict.fromkeys(PARTS, 0.0), ["task"]
    last = process_time()

    def switch() -> None:
        nonlocal last
        now = process_time()
        spent[running[-1]] += now - last
        last = now

    def timed(part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            switch()
            running.append(part)
            try:
                return function(*arguments)
            finally:
                switch()
                running.pop()

        return call

    physics = task.physics
    owners = [(physics, name, "physics") for name in ("state", "command", "step")]
    owners += [
        (walker, "advance", "control"),
        (walker.mpc, "forces", "MPC"),
        (task.sensors, "images", "cameras"),
    ]
    for owner, name, part in owners:
        setattr(owner, name, timed(part, getattr(owner, name)))
    try:
        policy, done = timed("policy", act), False
        while not done:
            action = task.oracle_action()
            last = process_time()
            policy(observation)
            observation, _, ended, cut, _ = task.step(action)
            switch()
            done = ended or cut
    finally:
        for owner, name, _ in owners:
            delattr(owner, name)
    return spent


def _table(result: dict[str, Any]) -> str:
    lines = [
        f"{result['engine']}, {result['preset']} terrain, {result['attention']}, patch {result['patch']}",
        f"whole stack   {result['real_time_factor']:6.1f} times real time on one core",
        f"engine alone  {result['engine_real_time_factor']:6.1f} times real time, the same steps",
        f"ratio         {result['ratio']:6.2f}",
    ]
    lines += [f"{part:<12} {100 * share:6.1f} %" for part, share in result["shares"].items()]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())

"""robopolicy bench env"""

from __future__ import annotations

import json as json_format
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any

import tyro

from robopolicy.cli.bench_attention import one_core
from robopolicy.envs.physics import default_engine
from robopolicy.envs.task import task_of
from robopolicy.experiments.default_policies import new_policy
from robopolicy.experiments.environments import Environment
from robopolicy.experiments.players import player
from robopolicy.naming import one_of

PARTS = ("physics", "policy", "cameras", "MPC", "control", "task")


@dataclass(frozen=True)
class BenchEnv:
    """Time the whole stack on one core: physics, low-level control, both cameras and a policy.

    The oracle walks, so that every episode is a whole one; the policy is run at every step and its action
    thrown away. Each episode is then repeated by the engine alone, from the commands that it was given: the
    same physics steps, bit for bit. Reset is not counted. Times are CPU seconds.

    For example:
        robopolicy bench env --engine mujoco
    """

    task: Annotated[str, tyro.conf.arg(aliases=("--env",))] = "stepping-stones"
    """Task to time."""
    engine: str = field(default_factory=default_engine)
    """Physics engine, bullet or mujoco. Default: bullet where it is installed."""
    preset: str = "paper"
    """Terrain."""
    attention: str = "angular_hybrid(m=8, n=8)"
    """Attention of the policy."""
    patch: int = 2
    """Side of the policy's tokens, in pixels."""
    seconds: float = 60.0
    """Simulated seconds to time, at least; whole episodes are played."""
    seed: int = 0
    """Seed of the first terrain."""
    json: Annotated[bool, tyro.conf.arg(help="Print the result as JSON on stdout.")] = False

    def run(self) -> None:
        """Time and print."""
        one_of("task", self.task, ("stepping-stones",))
        if not 0 < self.seconds < float("inf"):
            raise ValueError(f"--seconds is {self.seconds}: it must be a finite number above 0")
        if self.seed < 0:
            raise ValueError(f"seed is {self.seed}: it must be 0 or more")
        environment = Environment.of(Environment(self.task, self.engine, self.preset))
        policy = new_policy(environment, self.attention, patch=self.patch)
        env = environment.make()
        one_core()
        act = player(policy, self.task).act_in(env, self.seed)
        simulated, whole, bare = 0.0, 0.0, 0.0
        shares = dict.fromkeys(PARTS, 0.0)
        _episode(env, act, self.seed)  # compiled code is loaded, memory touched
        seed = self.seed
        while simulated < self.seconds:
            seconds, spent, commands = _episode(env, act, seed)
            simulated, whole = simulated + seconds, whole + spent
            bare += _replayed(env, commands, seed)
            for part, time in _parts(env, act, seed).items():
                shares[part] += time
            seed += 1
            print(f"{simulated:.0f} of {self.seconds:.0f} s", end="\r", file=sys.stderr, flush=True)
        env.close()
        total = sum(shares.values())
        result = {
            "engine": self.engine,
            "preset": self.preset,
            "attention": self.attention,
            "patch": self.patch,
            "simulated_seconds": round(simulated, 3),
            "real_time_factor": simulated / whole,
            "engine_real_time_factor": simulated / bare,
            "ratio": whole / bare,
            "shares": {part: time / total for part, time in shares.items()},
        }
        print(json_format.dumps(result) if self.json else _table(result))


def _stones(env: Any) -> Any:
    """The task, whose engine, walker and sensors are timed one by one."""
    return task_of(env)


def _episode(env: Any, act: Callable[[Any], Any], seed: int) -> tuple[float, float, list[Any]]:
    """Simulated seconds, CPU seconds, and every command that the engine was given."""
    from time import process_time

    task, commands = _stones(env), []
    give = task.physics.command

    def noted(*command: Any) -> None:
        commands.append(command)
        give(*command)

    observation, _ = task.reset(seed=seed)
    spent, steps, done = 0.0, 0, False
    task.physics.command = noted
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
    from time import process_time

    task = _stones(env)
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
    from time import process_time

    task = _stones(env)
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

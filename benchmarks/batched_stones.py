"""The stepping stones as a JAX program: its speed by batch size, beside the pools of processes.

    python benchmarks/batched_stones.py              # some fifteen minutes; needs idle cores
    python benchmarks/batched_stones.py --seeds 100  # compares shipped policies on JAX and on MuJoCo instead

A shipped policy of 384 tokens plays at every step; both cameras draw. Batches run on the device that JAX
prefers; on a CPU, on one core. The pools play a generation of candidates around the policy in turns, first
with one worker, then with one for each core. A batch that does not fit in the memory is left out. Figures go
to a JSON file named after the device.

Expected on a CPU: one worker of the pool on JAX, 8 worlds at once, plays at least 1.3 times as fast as one of
the pool on MuJoCo; on both engines success differs by at most 2 points, and the mean return by at most 0.02.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

os.environ.setdefault("PJRT_NPROC", "1")  # with more threads, XLA hangs at a batch of 4,096 on a CPU

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import robopolicy
from robopolicy.control.robots import LAIKAGO
from robopolicy.envs.batched.cameras import image
from robopolicy.envs.batched.contacts import Drive
from robopolicy.envs.batched.contacts import step as physics_step
from robopolicy.envs.batched.course import in_view
from robopolicy.envs.batched.mpc import ground_forces
from robopolicy.envs.batched.stones import SteppingStonesBatch
from robopolicy.envs.batched.walker import clock, read
from robopolicy.experiments.environments import Environment
from robopolicy.experiments.evaluators import EvaluatorConfig
from robopolicy.training.es import ESConfig
from robopolicy.training.worlds import repeated
from robopolicy.writing import write_atomically

TASK, PRESET, PLAYER = "stepping-stones", "paper", "stepping-stones-angular-8x8"
SHIPPED = (PLAYER, *(f"{TASK}-{name}" for name in ("softmax", "positive-256", "planned", "no-vision")))
BATCHES = (1, 4, 16, 64, 256, 1024, 4096, 16384)
CANDIDATES, COURSES, ROUNDS, FIRST = 24, 3, 3, 9000
SIGMA = 0.15  # of candidates around the shipped policy: a third of their episodes end early
FOLDER = Path(__file__).parent / "stepping_stones"
Json = dict[str, Any]


def timed(program: Callable[..., Any], *arguments: Any, seconds: float) -> tuple[float, Json]:
    """Seconds a round of `program(rounds, *arguments)`, and what compiling it took.

    Rounds double until they fill `seconds`.
    """
    began = time.perf_counter()
    compiled = jax.jit(program).lower(jnp.array(1), *arguments).compile()
    compile_seconds = time.perf_counter() - began
    plan = compiled.memory_analysis()
    rounds, spent = 1, 0.0
    jax.block_until_ready(compiled(jnp.array(1), *arguments))
    while True:
        began = time.perf_counter()
        jax.block_until_ready(compiled(jnp.array(rounds), *arguments))
        spent = time.perf_counter() - began
        if spent >= seconds / 2 or rounds >= 64:
            return spent / rounds, {"compile_seconds": compile_seconds, "bytes": plan.temp_size_in_bytes}
        rounds *= 2


def measured(batch: SteppingStonesBatch, policy: robopolicy.Policy, count: int, seconds: float) -> Json:
    """A policy step of `count` worlds, and its parts."""
    config, act, first = batch.config, jax.vmap(policy.flat_act), repeated(policy.init_state(), count)
    courses = batch.courses(range(FIRST, FIRST + min(count, 64)))
    courses = jax.tree.map(lambda leaf: leaf[jnp.arange(count) % len(leaf)], courses)
    parameters = jnp.broadcast_to(jnp.asarray(policy.parameters), (count, policy.parameters.size))
    walks, seen = jax.jit(batch.reset)(courses)
    table = clock(config.walker, batch.ticks * batch.last)
    row = type(table)(*(jnp.asarray(column[0]) for column in table))
    drive = Drive(jnp.asarray(LAIKAGO.standing_joints(0.42), jnp.float32).reshape(4, 3), jnp.zeros((4, 3)),
                  jnp.ones((4, 3), bool), jnp.zeros(3))  # fmt: skip

    def whole(rounds: Any, courses: Any, parameters: Any, walks: Any, seen: Any) -> Any:
        def advance(_: Any, parts: Any) -> Any:
            walks, seen, state = parts
            actions, state = act(parameters, seen, state)
            return *batch.step(courses, walks, actions)[:2], state

        return lax.fori_loop(0, rounds, advance, (walks, seen, first))

    def in_rounds(part: Callable[..., Any]) -> Callable[..., Any]:
        """Rounds of a part that moves its own state a little, so that no round can be left out."""

        def program(rounds: Any, state: Any, *rest: Any) -> Any:
            return lax.fori_loop(0, rounds, lambda _, state: part(state, *rest), state)

        return program

    def physics(bodies: Any, courses: Any) -> Any:
        def one(body: Any, course: Any) -> Any:
            return physics_step(
                course.model, body, course.solids, drive, course.friction, course.strength, batch.engine
            )

        steps = batch.ticks * batch.engine.substeps
        return lax.fori_loop(0, steps, lambda _, bodies: jax.vmap(one)(bodies, courses), bodies)

    def plans(bodies: Any, courses: Any, landings: Any) -> Any:
        def one(body: Any, course: Any, landing: Any) -> Any:
            found = ground_forces(
                config.walker, course.body, read(body), row, landing, jnp.zeros(2), jnp.zeros(())
            )
            return body._replace(velocity=body.velocity + 1e-9 * found[0][0])

        return jax.vmap(one)(bodies, courses, landings)

    shown, no_balls = in_view(config.terrain), jnp.zeros((0, 3))

    def cameras(bodies: Any, courses: Any) -> Any:
        def one(body: Any, course: Any) -> Any:
            drawn = [
                image(camera, shown, course.tilts[i], body.position + course.eyes[i], jnp.zeros(()),
                      course.stones, course.floor, no_balls)
                for i, camera in enumerate(config.images.values())
            ]  # fmt: skip
            return body._replace(position=body.position + 1e-9 * sum(one.sum() for one in drawn))

        return jax.vmap(one)(bodies, courses)

    def policy_alone(parameters: Any, seen: Any) -> Any:
        return parameters + 1e-9 * act(parameters, seen, first)[0].sum(axis=1, keepdims=True)

    step, about = timed(whole, courses, parameters, walks, seen, seconds=seconds)
    each = walks.each
    replans = float(table.replans.mean()) * batch.ticks  # plans in a policy step
    parts = {
        "physics": timed(in_rounds(physics), each.body, courses, seconds=seconds)[0],
        "plans": replans * timed(in_rounds(plans), each.body, courses, each.landings, seconds=seconds)[0],
        "cameras": timed(in_rounds(cameras), each.body, courses, seconds=seconds)[0],
        "policy": timed(in_rounds(policy_alone), parameters, seen, seconds=seconds)[0],
    }
    return {
        "batch": count,
        "steps_per_second": count / step,
        "real_time_factor": count * config.policy_period / step,
        "compile_seconds": about["compile_seconds"],
        "bytes_per_world": about["bytes"] / count,
        "milliseconds": 1e3 * step,
        "parts_milliseconds": {name: 1e3 * part for name, part in parts.items()},
    }


def by_batch(batches: list[int], seconds: float) -> list[Json]:
    """The rows of the batches that fit."""
    batch, policy, rows = SteppingStonesBatch(PRESET), robopolicy.load(PLAYER), []
    for count in batches:
        try:
            with jax.default_matmul_precision("highest"):
                rows.append(measured(batch, policy, count, seconds))
        except jax.errors.JaxRuntimeError as error:
            print(f"batch {count}: {str(error).splitlines()[0]}", file=sys.stderr)
            break
        row = rows[-1]
        parts = ", ".join(f"{name} {value:.2f}" for name, value in row["parts_milliseconds"].items())
        print(
            f"batch {count:6}: {row['steps_per_second']:10,.0f} steps/s, "
            f"{row['real_time_factor']:8,.1f} times real time, "
            f"{row['bytes_per_world'] / 1e3:,.0f} kB a world, compiled in {row['compile_seconds']:.0f} s; "
            f"ms a step: {row['milliseconds']:.2f} (alone: {parts})",
            flush=True,
        )
    return rows


def pool(engine: str, policy: robopolicy.Policy, workers: int, places: int, episodes: int) -> Any:
    """A pool that plays `episodes` at a time."""
    search = ESConfig(population=episodes, episodes=(1,), held_out=episodes)
    evaluator = EvaluatorConfig(workers=workers, places=places if engine == "jax" else None)
    return evaluator.for_search([Environment(TASK, engine, PRESET)], policy, search)


def by_pool(places: dict[int, int]) -> list[Json]:
    """How fast the pools play, in turns, by number of workers; with the worlds that each has at once."""
    policy, rows = robopolicy.load(PLAYER), []
    noise = np.random.default_rng(0).normal(0.0, SIGMA, (CANDIDATES, policy.parameters.size))
    population = (policy.parameters + noise).astype(np.float32)
    for workers, at_once in places.items():
        factors: dict[str, list[float]] = {"jax": [], "mujoco": []}
        pools = {engine: pool(engine, policy, workers, at_once, CANDIDATES * COURSES) for engine in factors}
        try:
            for number in range(ROUNDS + 1):  # the first one starts workers and compiles
                seeds = range(FIRST + COURSES * number, FIRST + COURSES * (number + 1))
                for engine, playing in pools.items():
                    began = time.perf_counter()
                    played = playing.evaluate(population, seeds).episodes
                    spent = time.perf_counter() - began
                    if number:
                        steps = sum(one.steps for row in played for one in row)
                        factors[engine].append(0.05 * steps / spent)
        finally:
            for playing in pools.values():
                playing.close()
        medians = {engine: float(np.median(values)) for engine, values in factors.items()}
        ratio = medians["jax"] / medians["mujoco"]
        row = {"workers": workers, "places": at_once, "real_time_factor": medians, "ratio": ratio}
        rows.append({**row, "played": "generations of candidates"})
        print(
            f"{workers} workers: JAX, {at_once} worlds each, {medians['jax']:.1f} times real time; "
            f"MuJoCo {medians['mujoco']:.1f}; ratio {ratio:.2f}",
            flush=True,
        )
    return rows


def by_policy(seeds: int, workers: int) -> list[Json]:
    """Success (%) and mean return of shipped policies on both engines, on the same courses."""
    rows = []
    for name in SHIPPED:
        policy, row = robopolicy.load(name), {"policy": name, "seeds": seeds}
        returns = {}
        for engine in ("jax", "mujoco"):
            with closing(pool(engine, policy, workers, 16, seeds)) as playing:
                played = playing.evaluate(policy.parameters[None], range(FIRST, FIRST + seeds))
            returns[engine] = played.returns[0]
            success = 100 * np.mean([one.info["success"] for one in played.episodes[0]])
            row[engine] = {"success": float(success), "return": float(returns[engine].mean())}
        row["largest_difference"] = float(np.abs(returns["jax"] - returns["mujoco"]).max())
        rows.append(row)
        print(json.dumps(row), flush=True)
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batches", type=int, nargs="*", default=[*BATCHES], help="worlds at once")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each timing; default: %(default)s")
    parser.add_argument("--seeds", type=int, help="compare shipped policies over so many courses")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="default: %(default)s")
    settings = parser.parse_args()
    device = jax.devices()[0]
    kind = device.device_kind if device.platform != "cpu" else f"CPU with {settings.workers} cores"
    FOLDER.mkdir(exist_ok=True)
    label = re.sub(r"\W+", "-", kind.lower())
    if settings.seeds:
        rows, out = by_policy(settings.seeds, settings.workers), FOLDER / "batched-policies.json"
        write_atomically(out, json.dumps({"preset": PRESET, "policies": rows}, indent=2) + "\n")
        close = all(abs(row["jax"]["return"] - row["mujoco"]["return"]) <= 0.02 for row in rows)
        same = all(abs(row["jax"]["success"] - row["mujoco"]["success"]) <= 2 for row in rows)
        return 0 if close and same else 1
    pools = by_pool({1: 8, **({settings.workers: 12} if settings.workers > 1 else {})})
    figures = {"device": kind, "pools": pools, "batches": by_batch(settings.batches, settings.seconds)}
    write_atomically(FOLDER / f"batched-{label}.json", json.dumps(figures, indent=2) + "\n")
    return 0 if pools[0]["ratio"] >= 1.3 else 1


if __name__ == "__main__":
    sys.exit(main())

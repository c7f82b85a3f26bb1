"""C policies against onnxruntime, in turns on one core: latency of a call, and rollouts on MuJoCo.

    python benchmarks/c_runtime.py --measure    # 10 minutes; an idle machine gives the tails of the latency
    python benchmarks/c_runtime.py              # the figures that are kept, against what was expected

Expected: on the stepping stones, the median latency of C is at most half of onnxruntime's, and the 99th
percentile at most a third. The whole stack on MuJoCo, simulator and policy, plays the hybrid of 384 tokens at
least 1.2 times as fast with C.
"""

import argparse
import json
import os
import platform
import time
from importlib.resources import files
from pathlib import Path

import numpy as np

from robopolicy.bundles.c_source.worker import c_graph
from robopolicy.bundles.onnx import worker_graph
from robopolicy.experiments.environments import Environment
from robopolicy.experiments.runs import load, trained_on
from robopolicy.runtime.compiled import CompiledGraph
from robopolicy.runtime.graph import OnnxPolicy
from robopolicy.runtime.robot import percentiles
from robopolicy.training.rollout import run_episode
from robopolicy.writing import write_atomically

KEPT = Path(__file__).with_suffix(".json")
SHIPPED = sorted(one.name for one in (files("robopolicy.assets") / "policies").iterdir() if "-" in one.name)
HYBRID, SWEEP = "stepping-stones-angular-8x8", "bimanual-sweep-angular"
CALLS, WARM_UP, ROUNDS, SEED, STEPS = 4000, 20, 10, 50_000, 40
MEDIAN, TAIL, THROUGHPUT = 2.0, 3.0, 1.2  # how many times faster, at least


def both(name: str) -> tuple:
    """A shipped policy by onnxruntime and in C, and its environment on MuJoCo."""
    policy = load(name)
    graph = worker_graph(policy.config, policy.features)
    made = OnnxPolicy(graph, policy.parameters), CompiledGraph(c_graph(graph), policy.parameters)
    trained = trained_on(policy)
    environment = Environment(trained.task, "mujoco", trained.preset, None, trained.others)
    return made, Environment.of(environment).showing(policy.functions.observation_shapes).spec()


def seen(spec, policy) -> list:
    """Observations of some steps."""
    env, observations = spec.make(), []
    run_episode(env, policy, SEED, lambda step: observations.append(step.observation))
    env.close()
    return observations[:STEPS]


def latency(name: str) -> dict:
    """Seconds of a call of each, in turns: of the clock, and of the processor, which other programs leave."""
    policies, spec = both(name)
    observations = seen(spec, policies[0])
    calls = CALLS // 20 if name == SWEEP else CALLS
    clocks = {"clock": time.perf_counter, "processor": time.thread_time}
    seconds = {clock: np.empty((2, calls + WARM_UP)) for clock in clocks}
    for call in range(calls + WARM_UP):
        for place, policy in enumerate(policies):
            began = {clock: now() for clock, now in clocks.items()}
            policy(observations[call % len(observations)])
            for clock, now in clocks.items():
                seconds[clock][place, call] = now() - began[clock]
    found: dict = {"calls": calls}
    for clock in clocks:
        onnx, c = (percentiles(row[WARM_UP:]) for row in seconds[clock])
        found[clock] = {"onnx": onnx, "c": c, "times": {part: onnx[part] / c[part] for part in onnx}}
    return found


def throughput() -> dict:
    """Steps a second of the whole stack with each policy, in turns, by rounds of one episode."""
    policies, spec = both(HYBRID)
    env = spec.make()
    steps, seconds = np.zeros((2, ROUNDS)), np.zeros((2, ROUNDS))
    for number in range(-1, ROUNDS):
        for place in (0, 1) if number % 2 else (1, 0):
            began = time.process_time()
            episode = run_episode(env, policies[place], SEED + max(0, number))
            if number >= 0:
                steps[place, number], seconds[place, number] = episode.steps, time.process_time() - began
    env.close()
    rates = steps.sum(axis=1) / seconds.sum(axis=1)
    return {"policy": HYBRID, "rounds": ROUNDS, "onnx": rates[0], "c": rates[1], "times": rates[1] / rates[0]}


def measure() -> None:
    found = {
        "machine": {"processor": platform.machine(), "cores": os.cpu_count(), "load": os.getloadavg()[0]},
        "throughput": throughput(),
        "latency": {name: latency(name) for name in SHIPPED},
    }
    write_atomically(KEPT, json.dumps(found, indent=1) + "\n")


def report(found: dict) -> None:
    machine = found["machine"]
    print(f"{machine['cores']} cores of {machine['processor']}, load {machine['load']:.1f} before")
    for name, one in found["latency"].items():
        for clock in ("clock", "processor"):
            c, times = one[clock]["c"], one[clock]["times"]
            reached = times["p50"] >= MEDIAN and times["p99"] >= TAIL
            words = (
                f"{part} {1e3 * c[part]:.3f} ms, {times[part]:.2f} times as fast" for part in ("p50", "p99")
            )
            verdict = f": {'reached' if reached else 'MISSED'}" if name.startswith("stepping") else ""
            print(f"{name}, {clock}: {', '.join(words)}{verdict}")
    whole = found["throughput"]
    reached = whole["times"] >= THROUGHPUT
    print(
        f"whole stack on MuJoCo, {whole['policy']}: {whole['c']:.0f} steps a second against "
        f"{whole['onnx']:.0f}, {whole['times']:.2f} times: {'reached' if reached else 'MISSED'}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--measure", action="store_true")
    if parser.parse_args().measure:
        measure()
    report(json.loads(KEPT.read_text()))


if __name__ == "__main__":
    main()

"""An hour of a policy with a memory: its outputs are finite, the same bits twice, and cost what they did.

    python benchmarks/memory.py                               # every memory, two minutes each on an idle core
    python benchmarks/memory.py --only "trigonometric(m=32)"  # one of them
    python benchmarks/memory.py --steps 2000                  # a short one, which writes no file

The oracle walks a course of `front`; what it sees comes again and again, while odometry goes on. The graph of
each policy, whose parameters are random, answers 72,000 observations, an hour at 20 a second, in two runs on
one thread. Times are of the processor, so that other programs disturb them little. Figures go to
`benchmarks/memory-hour.json`.

Expected: all outputs are finite; both runs have the same bits; the bytes of the state and the FLOPs of a step
are the same after an hour as after a second; 99 % of the steps take less than 2 ms, and the median step of
the last minute takes within 10 % of that of the first.
"""

import argparse
import hashlib
import json
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from robopolicy.bundles.onnx import export_policy
from robopolicy.costs.flops import flops
from robopolicy.costs.memory import state_bytes
from robopolicy.experiments.default_policies import new_policy
from robopolicy.experiments.environments import Environment
from robopolicy.policies.policy import Policy
from robopolicy.runtime.graph import OnnxPolicy
from robopolicy.writing import write_atomically

HOUR, MINUTE, COURSE = 72_000, 1_200, 200  # steps
MEMORIES = {
    "trigonometric(m=32)": {"attention": "trigonometric(m=32)", "variant": "memory"},
    "trigonometric(m=128)": {"attention": "trigonometric(m=128)", "variant": "memory"},
    "positive_antithetic(m=128)": {"attention": "positive_antithetic(m=128)", "variant": "memory"},
    "angular_hybrid(m=8, n=8)": {"attention": "angular_hybrid(m=8, n=8)", "variant": "memory"},
    "all, map": {"attention": "all", "encoder": "map"},
    "all, gru": {"attention": "all", "encoder": "gru"},
}
MOST, DRIFT = 2.0, 0.1  # ms, and share of the first minute's median
OUT = Path(__file__).parent / "memory-hour.json"


def course(environment: Environment) -> list[dict]:
    """What the oracle observes on a course."""
    env = environment.make()
    observation, _ = env.reset(seed=9000)
    seen = []
    for _ in range(COURSE):
        seen.append(observation)
        observation, *_ = env.step(env.unwrapped.privileged_action("oracle"))
    env.close()
    return seen


def played(graph: OnnxPolicy, seen: list[dict], steps: int) -> tuple[str, np.ndarray, bool]:
    """The digest of all outputs of a graph, times of its steps (ms), and whether all outputs are finite."""
    graph.reset()
    digest, times, is_finite = hashlib.sha256(), np.empty(steps), True
    far = seen[-1]["odometry"] - seen[0]["odometry"]
    for step in range(steps):
        rounds, at = divmod(step, len(seen))
        odometry = seen[at]["odometry"] + rounds * far * np.float32([1, 0, 0])
        observation = {**seen[at], "odometry": odometry.astype(np.float32)}
        began = time.thread_time_ns()
        outputs = graph.run(observation)
        times[step] = 1e-6 * (time.thread_time_ns() - began)
        for array in outputs.values():
            is_finite &= bool(np.isfinite(array).all())
            digest.update(array.tobytes())
    return digest.hexdigest(), times, is_finite


def row(policy: Policy, seen: list[dict], steps: int, folder: Path) -> dict:
    """Figures of a policy."""
    noise = np.random.default_rng(0).normal(size=policy.parameters.size).astype(np.float32)
    policy = replace(policy, parameters=policy.parameters + 0.1 * noise)
    export_policy(policy.config, policy.features, folder / "policy.onnx", policy.parameters)
    graph = OnnxPolicy(folder / "policy.onnx")
    (first, times, is_finite), (second, *_) = (played(graph, seen, steps) for _ in range(2))
    ends = times[20 : 20 + MINUTE], times[-MINUTE:]
    return {
        "finite": is_finite,
        "same_bits": first == second,
        "digest": first,
        "state_bytes": state_bytes(policy.functions),
        "flops": flops(policy).total,
        "ms": {f"p{100 * share:g}": round(float(np.quantile(times, share)), 4) for share in (0.5, 0.99, 1)},
        "median_ms_first_minute": round(float(np.median(ends[0])), 4),
        "median_ms_last_minute": round(float(np.median(ends[1])), 4),
    }


def missed(name: str, figures: dict) -> list[str]:
    """The targets that a policy misses, in words."""
    first, last = figures["median_ms_first_minute"], figures["median_ms_last_minute"]
    targets = {
        "finite outputs": figures["finite"],
        "the same bits twice": figures["same_bits"],
        f"p99 below {MOST:g} ms": figures["ms"]["p99"] < MOST,
        "a last minute as fast as the first": abs(last - first) <= DRIFT * first,
    }
    return [f"{name} misses: {target}" for target, is_met in targets.items() if not is_met]


def main() -> int:
    """Play, print and keep figures; 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=HOUR)
    parser.add_argument("--only", choices=MEMORIES)
    arguments = parser.parse_args()
    steps, names = arguments.steps, [arguments.only] if arguments.only else list(MEMORIES)
    kept = json.loads(OUT.read_text()) if OUT.exists() else {}
    environment = Environment("stepping-stones", "mujoco", "front")
    seen, rows = course(environment), {}
    for name in names:
        policy = new_policy(environment, **MEMORIES[name])
        with tempfile.TemporaryDirectory() as folder:
            rows[name] = row(policy, seen, steps, Path(folder))
        print(name, json.dumps(rows[name]), flush=True)
        if steps == HOUR:
            write_atomically(OUT, json.dumps(kept | rows, indent=1) + "\n")
    failures = [line for name, figures in rows.items() for line in missed(name, figures)]
    print("\n".join(failures) or "all targets are met")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

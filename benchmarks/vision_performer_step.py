"""One step of the Vision-Performer on a 500 x 500 image on one core: attention linear, exact, and none.

    python benchmarks/vision_performer_step.py

A step is computed by JAX and by its exported graph, which evaluations and robots run. Mechanisms take turns,
so that what else the machine does meets all of them; the ratio of the shortest times is what counts.

Expected, with patches of 10 x 10 pixels (2,500 tokens): by JAX, angular_hybrid(m=8, n=8) takes at most half
the time of exact softmax.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from robopolicy.bundles.onnx import export_policy
from robopolicy.costs.flops import count_step
from robopolicy.experiments.default_policies import policy_config
from robopolicy.policies.base import PolicyFunctions, flatten
from robopolicy.policies.catalogue import PolicyConfig, blank_policy
from robopolicy.policies.controls import from_label
from robopolicy.policies.fast_sines import compiled
from robopolicy.runtime.graph import OnnxPolicy

HYBRID, EXACT = "angular_hybrid(m=8, n=8)", "softmax"
MECHANISMS = (HYBRID, "positive_antithetic(m=128)", "trigonometric(m=256)", EXACT)
SPECS = (*MECHANISMS, "all", "all, relu", "all, cnn", "none")
PATCHES = (10, 25)
ROUNDS = 15

Case = tuple[str, int]  # a spec and the side of a patch


def main() -> int:
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # JAX starts its threads only now
    cases = [(spec, patch) for patch in PATCHES for spec in SPECS]
    # One after the other, since each runtime allocates memory in its own way.
    by_jax, by_graph = (_shortest({case: way(*case) for case in cases}) for way in (_jax_step, _graph_step))
    for patch in PATCHES:
        print(f"{(500 // patch) ** 2} tokens of {patch} x {patch} pixels, preset small, one core")
        for spec in SPECS:
            columns = (
                f"{1e3 * best[spec, patch]:6.1f} ms {way} ({best[EXACT, patch] / best[spec, patch]:5.2f} x)"
                for way, best in (("by JAX", by_jax), ("by the graph", by_graph))
            )
            price = count_step(blank_policy(_config(spec, patch))).total
            print(f"  {spec:28}{', '.join(columns)}, {price / 1e6:8.1f} MFLOPs")
    print("x: times as fast as exact softmax")
    ratio = by_jax[EXACT, PATCHES[0]] / by_jax[HYBRID, PATCHES[0]]
    print(f"{'yes' if ratio >= 2 else 'NO '} {ratio:.2f} x, and 2 were expected")
    return 0 if ratio >= 2 else 1


def _config(spec: str, patch: int) -> PolicyConfig:
    attended, encoder = from_label(spec)
    return policy_config(attended, "bimanual-sweep", patch=patch, head="autoregressive", **encoder)


def _seen() -> dict[str, NDArray[Any]]:
    image = np.random.default_rng(0).integers(0, 256, (500, 500, 3), np.uint8)
    return {"image": image, "poses": np.zeros(14, np.float32)}


def _drawn(policy: PolicyFunctions) -> tuple[Any, Any]:
    return policy.init(jax.random.key(0)), policy.init_features(jax.random.key(1))


def _jax_step(spec: str, patch: int) -> Callable[[], object]:
    policy = blank_policy(_config(spec, patch))
    arguments = (*_drawn(policy), jax.tree.map(jax.numpy.asarray, _seen()), ())
    act = compiled(policy.act)
    return lambda: jax.block_until_ready(act(*arguments))


def _graph_step(spec: str, patch: int) -> Callable[[], object]:
    config, seen = _config(spec, patch), _seen()
    parameters, features = _drawn(blank_policy(config))
    with TemporaryDirectory() as folder:
        path = Path(folder) / "policy.onnx"
        export_policy(config, features, path)
        graph = OnnxPolicy(path, np.asarray(flatten(parameters)))
    return lambda: graph.run(seen)


def _shortest(steps: dict[Case, Callable[[], object]]) -> dict[Case, float]:
    """The shortest time (s) of each call in `ROUNDS`, after a first one."""
    for step in steps.values():
        step()
    times = dict.fromkeys(steps, np.inf)
    for _ in range(ROUNDS):
        for case, step in steps.items():
            began = time.perf_counter()
            step()
            times[case] = min(times[case], time.perf_counter() - began)
    return times


if __name__ == "__main__":
    sys.exit(main())

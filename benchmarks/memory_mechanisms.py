"""Mechanisms of a memory without training: one policy's parameters with the features of others.

    python benchmarks/memory_mechanisms.py               # the table that is kept
    python benchmarks/memory_mechanisms.py --measure     # plays again; eight minutes on 2 cores
    python benchmarks/memory_mechanisms.py --measure --only softmax

`stepping-stones-memory` was trained with `trigonometric(m=128)`. Here it keeps its 35 parameters, and its
memory has another mechanism, with three draws of features. Each draw plays 34 courses of `front` on MuJoCo,
from seed 8200, which the training and its evaluation did not use. So the table shows what errors of the
kernel cost at the width of that policy, and not what each mechanism learns. Figures go to
`benchmarks/memory_mechanisms.json`.

Expected: exact softmax crosses 95 % or more, and so does `trigonometric(m=128)`; fewer features cross fewer.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path

import numpy as np

import robopolicy
from robopolicy.costs.flops import flops
from robopolicy.costs.memory import state_bytes
from robopolicy.experiments.environments import Environment
from robopolicy.experiments.tables import aligned
from robopolicy.policies.policy import Policy
from robopolicy.writing import write_atomically

KEPT = Path(__file__).with_suffix(".json")
NAME, DRAWS, COURSES, FIRST = "stepping-stones-memory", 3, 34, 8200
SPECS = ("softmax", "trigonometric(m=32)", "trigonometric(m=128)", "angular_hybrid(m=8, n=8)")


def measured(spec: str) -> dict:
    """The courses that the policy crosses with the mechanism `spec`, and its costs."""
    trained = robopolicy.load(NAME)
    level = {name: np.asarray(image) for name, image in trained.features["level"].items()}
    config = replace(trained.config, attention=spec)
    front = Environment("stepping-stones", "mujoco", "front")
    rates = []
    for draw in range(1 if spec == "softmax" else DRAWS):
        other = replace(Policy.create(config, level, seed=draw), parameters=trained.parameters)
        seeds = range(FIRST + draw * COURSES, FIRST + (draw + 1) * COURSES)
        rates.append(robopolicy.evaluate(other, front, seeds, workers=2).success_rate)
    return {
        "success": rates,
        "flops": flops(other).total,
        "state_bytes": state_bytes(other.functions),
    }


def main() -> None:
    """Run as the docstring of this file says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--only", choices=SPECS, nargs="+", default=SPECS)
    options = parser.parse_args()
    kept = json.loads(KEPT.read_text()) if KEPT.is_file() else {}
    for spec in options.only if options.measure else ():
        kept[spec] = measured(spec)
        print(spec, kept[spec], flush=True)
        write_atomically(
            KEPT, json.dumps({name: kept[name] for name in SPECS if name in kept}, indent=1) + "\n"
        )
    rows = [("mechanism", "crossed of 34, each draw", "FLOPs", "bytes of state")]
    for spec, row in kept.items():
        crossed = ", ".join(f"{rate:.0%}" for rate in row["success"])
        rows.append((spec, crossed, f"{row['flops']:,}", f"{row['state_bytes']:,}"))
    print(*aligned(rows), sep="\n")


if __name__ == "__main__":
    main()

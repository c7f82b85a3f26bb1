"""The policy with a memory under odometry that drifts.

    python benchmarks/memory_drift.py               # the table that is kept
    python benchmarks/memory_drift.py --measure     # plays again; five minutes on 2 cores that others share

`stepping-stones-memory` was trained with a drift of 2 mm a step, and plays 50 unseen courses of `front` on
MuJoCo, from seed 9000, with each drift. Figures go to `benchmarks/memory_drift.json`.

Expected: with 0 and 2 mm at least 90 % of the courses; with 10 mm fewer.
"""

import argparse
import json
from pathlib import Path

import robopolicy
from robopolicy.experiments.environments import Environment
from robopolicy.experiments.tables import aligned
from robopolicy.writing import write_atomically

KEPT = Path(__file__).with_suffix(".json")
NAME, COURSES, DRIFTS = "stepping-stones-memory", range(9000, 9050), (0.0, 0.002, 0.01)


def measured(drift: float) -> dict:
    """The evaluation with a drift (m a step)."""
    front = Environment("stepping-stones", "mujoco", "front", others={"drift": drift})
    result = robopolicy.evaluate(NAME, front, COURSES, workers=2).summary()
    kept = (
        "policy",
        "preset",
        "engine",
        "episodes",
        "return_mean",
        "success_rate",
        "distance_mean",
        "causes",
    )
    return {"drift": drift, **{name: result[name] for name in kept}, "seeds": [COURSES[0], COURSES[-1]]}


def main() -> None:
    """Run as the docstring of this file says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--measure", action="store_true")
    if parser.parse_args().measure:
        write_atomically(KEPT, json.dumps([measured(drift) for drift in DRIFTS], indent=1) + "\n")
    rows = [("drift, mm a step", "crossed", "distance", "return")]
    for row in json.loads(KEPT.read_text()):
        rates = f"{row['success_rate']:.0%}", f"{row['distance_mean']:.2f} m", f"{row['return_mean']:.2f}"
        rows.append((f"{1e3 * row['drift']:g}", *rates))
    print(*aligned(rows), sep="\n")


if __name__ == "__main__":
    main()

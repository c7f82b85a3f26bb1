"""What evolution strategies lose besides episodes, and what a second worker brings.

    python benchmarks/es_throughput.py        # some five minutes; needs two idle cores

Trains the hybrid of 384 tokens on painted stones with MuJoCo, with one worker and with two in turn, and
compares the whole wall time of generations, checkpoints and logs included.

Expected: with two workers at least 90 % of the wall time of a generation is inside episodes, and generations
take at most 1 / 1.85 of their time with one.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

ROUNDS = 3
SETTINGS = (
    *("--engine", "mujoco", "--patch", "2", "--preset", "painted", "--evaluate-every", "99"),
    *("--population", "48", "--generations", "6"),
)


def generations(folder: Path, workers: int) -> list[dict]:
    """The records of a run; the first generation, in which workers start and compile, is left out."""
    command = [sys.executable, "-m", "robopolicy", "train", "es", "--out", str(folder), *SETTINGS]
    subprocess.run([*command, "--workers", str(workers)], check=True, stderr=subprocess.DEVNULL)
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    # The last one plays held-out courses besides.
    return [json.loads(line) for line in lines][2:-1]


def main() -> int:
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    walls: dict[int, list[float]] = {1: [], 2: []}
    shares: list[float] = []
    with tempfile.TemporaryDirectory() as scratch:
        for number in range(ROUNDS):
            for workers in walls:
                records = generations(Path(scratch) / f"{number}-{workers}", workers)
                walls[workers] += [r["wall_seconds"] for r in records]
                if workers == 2:
                    shares += [r["share_in_episodes"] for r in records]
    share, speedup = float(np.mean(shares)), float(np.median(walls[1]) / np.median(walls[2]))
    print(f"inside episodes, two workers: {share:.1%} (at least 90 %)")
    print(f"one worker to two: {speedup:.2f} times as fast (at least 1.85)")
    return 0 if share >= 0.9 and speedup >= 1.85 else 1


if __name__ == "__main__":
    sys.exit(main())

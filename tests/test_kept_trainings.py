"""The tables of trainings that benchmarks keep."""

import importlib
import json
from pathlib import Path

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
KEPT = BENCHMARKS / "bimanual_sweep" / "trained"


def test_trainings_from_other_weights_share_a_table_of_their_own(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(BENCHMARKS)
    trainings = importlib.import_module("kept_trainings")
    weak = json.loads((KEPT / "distracted-weak.json").read_text())["weak-hybrid-0"]
    strong = json.loads((KEPT / "distracted-strong.json").read_text())
    runs = {
        name: strong[name] for name in ("strong-from-weak-0", "strong-all-from-weak-0", "strong-hybrid-0")
    }
    parts = ("policy", "environment", "bc", "precision", "data")

    def keep(name, seed, **of_the_first):
        """A new run's folder, kept."""
        config = {part: strong["strong-from-weak-0"][part] for part in parts}
        trained = {part: weak[part] for part in parts[1:]} | {"task": "bimanual-sweep"}
        trained["bc"] = trained["bc"] | {"seed": seed} | of_the_first
        first = {"run": f"runs/weak-{seed}", "checkpoint": 24000, "parameters_sha256": f"{seed}"}
        (tmp_path / "config.json").write_text(
            json.dumps(config | {"bc": config["bc"] | {"seed": seed}, "init": first | {"trained": trained}})
        )
        (tmp_path / "metrics.jsonl").write_text("")
        runs[name] = trainings.kept_run(name, tmp_path, {})

    keep("strong-from-weak-1", 1, rollouts=20)
    keep("longer", 2, steps=48000)
    tables = [set(table) for table in trainings.by_budget(runs)]
    assert tables == [
        {"strong-from-weak-0", "strong-all-from-weak-0", "strong-from-weak-1"},
        {"strong-hybrid-0"},
        {"longer"},
    ]

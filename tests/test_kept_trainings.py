"""The tables of trainings that benchmarks keep."""

import importlib
import json
from pathlib import Path

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def test_trainings_from_other_weights_share_a_table_of_their_own(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    by_budget = importlib.import_module("kept_trainings").by_budget
    path = BENCHMARKS / "bimanual_sweep" / "trained" / "distracted-strong.json"
    kept = json.loads(path.read_text())
    names = ("strong-from-weak-0", "strong-all-from-weak-0", "strong-hybrid-0")
    first, *others = (kept[name] for name in names)

    def begun(name, **of_the_first):
        trained = first["init"]["trained"]
        return {"init": {"name": name, "trained": trained | {"bc": trained["bc"] | of_the_first}}}

    again = first | {"bc": first["bc"] | {"seed": 1}} | begun("weak-hybrid-1", seed=1, rollouts=20)
    longer = first | begun("weak-hybrid-0", steps=48000)
    runs = {"hybrid": first, "again": again, "all": others[0], "random": others[1], "longer": longer}
    assert [set(table) for table in by_budget(runs)] == [{"hybrid", "again", "all"}, {"random"}, {"longer"}]

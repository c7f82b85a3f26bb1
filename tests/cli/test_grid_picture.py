"""`robopolicy grid --picture`, and what a grid does with copies of its runs."""

import shutil
from pathlib import Path

import pytest
from made_grids import run

from robopolicy.cli import main
from robopolicy.viz import grid as viz

TABLE = Path("runs/table")


@pytest.fixture
def drawn(trainer, monkeypatch):
    """A grid of two mechanisms and two seeds. The list has the arguments of each call of `grid_picture`."""
    assert run("--attention", "none", "all", "--seeds", "0", "1") == 0
    told = []
    monkeypatch.setattr(viz, "grid_picture", lambda *given: told.append(given))
    return told


def shown(capsys, *words):
    capsys.readouterr()
    code = main(["grid", "runs/table", "--show", *words])
    return code, *capsys.readouterr()


@pytest.mark.slow
@pytest.mark.parametrize(("log", "said"), [("", "it has logged nothing yet"), ("x\n", "is not JSON")])
def test_a_run_with_a_damaged_log_has_no_curve_and_is_named(drawn, capsys, log, said):
    for seed in (0, 1):
        (TABLE / f"none-seed-{seed}" / "metrics.jsonl").write_text(log)
    code, out, err = shown(capsys, "--picture", "table.svg")
    assert code == 0
    assert "none against all: no difference shown" in out
    *_, first, second = err.splitlines()
    assert first.startswith("note: runs/table/none-seed-0 has no curve in the picture: ")
    assert said in second
    ((_, rows, panel, _),) = drawn
    assert [row["label"] for row in next(iter(rows.values()))] == ["none", "all"]
    assert [(curve.label, len(curve.runs)) for curve in panel.curves] == [("none", 0), ("all", 2)]


@pytest.mark.slow
def test_the_table_comes_before_a_picture_that_fails(drawn, capsys, monkeypatch):
    def fail(*given):
        raise OSError("no picture")

    monkeypatch.setattr(viz, "grid_picture", fail)
    code, out, err = shown(capsys, "--picture", "table.svg")
    assert (code, err) == (1, "robopolicy: no picture\n")
    assert "none against all: no difference shown" in out


@pytest.mark.slow
def test_runs_in_a_folder_of_the_grid_are_not_its_own(drawn, capsys):
    before = shown(capsys, "--json")
    copy = TABLE / "backup" / "none-seed-0"
    shutil.copytree(TABLE / "none-seed-0", copy)
    assert shown(capsys, "--json") == before
    (copy / "evaluation.json").write_text("{")
    assert shown(capsys, "--json") == before


@pytest.mark.slow
def test_rows_of_one_label_have_titles_of_their_own_in_the_picture(drawn, capsys):
    shutil.copytree(TABLE / "none-seed-0", TABLE / "none-seed-0-copy")
    code, _, err = shown(capsys, "--picture", "table.svg")
    assert code == 0
    assert err.count("has the settings and the seed of") == 1
    ((_, rows, panel, _),) = drawn
    titles = ["none (runs/table/none-seed-0)", "none (runs/table/none-seed-0-copy)", "all"]
    assert [row["label"] for row in next(iter(rows.values()))] == titles
    assert [curve.label for curve in panel.curves] == titles

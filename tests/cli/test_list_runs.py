"""`robopolicy runs`: a row for whatever is there."""

import json
import os
import shutil
from pathlib import Path

import pytest

import robopolicy
from robopolicy.cli import main

SHIPPED = Path(robopolicy.__file__).parent / "assets" / "policies"
RUN = SHIPPED / "stepping-stones-no-vision"


def listed(capsys, *words):
    capsys.readouterr()
    assert main(["runs", *map(str, words), "--json"]) == 0
    return {row["run"]: row for row in json.loads(capsys.readouterr().out)}


def age(path, seconds):
    for name in ("config.json", "metrics.jsonl"):
        written = (path / name).stat().st_mtime - seconds
        os.utime(path / name, (written, written))


@pytest.fixture
def runs(tmp_path):
    """Two runs, one of them within a folder, and what is none."""
    shutil.copytree(RUN, tmp_path / "first")
    shutil.copytree(RUN, tmp_path / "seeds" / "seed-0")
    age(tmp_path / "first", 3600)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "todo.txt").write_text("all of it")
    return tmp_path


def test_runs_are_found_at_any_depth_but_not_in_runs_newest_first(capsys, runs):
    shutil.copytree(RUN, runs / "first" / "copy")
    rows = listed(capsys, runs)
    assert list(rows) == ["seeds/seed-0", "first"]
    row = rows["first"]
    assert (row["task"], row["trainer"], row["attention"]) == ("stepping-stones", "es", "none")
    assert (row["status"], row["done"], row["total"]) == ("finished", 60, 60)
    assert row["measure"] == "held_out/return"
    assert row["flops"] == 108
    assert main(["runs", str(runs)]) == 0
    table = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in table] == ["run", "seeds/seed-0", "first"]
    assert "60/60" in table[1]
    assert f"return {row['best']:.2f}" in table[2]
    assert list(listed(capsys, runs / "first")) == [str(runs / "first")]


def test_a_price_in_the_config_is_taken_from_there(capsys, runs):
    path = runs / "first" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "flops": 12345}))
    assert listed(capsys, runs)["first"]["flops"] == 12345


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("config.json", b"{" * 10, "is not JSON"),
        ("config.json", b"[" * 100_000, "is not JSON: it is nested too deeply"),
        ("config.json", b'{"model": "gpt"}', "describes no run"),
        ("metrics.jsonl", b"{}\n", "line 1 of"),
        ("checkpoints/60/index/metadata", b"", "checkpoints/60 cannot be read"),
    ],
)
def test_a_damaged_run_is_a_row_that_says_what_is_wrong(capsys, runs, name, content, said):
    (runs / "first" / name).write_bytes(content)
    rows = listed(capsys, runs)
    assert rows["first"]["status"] == "damaged"
    assert said in rows["first"]["why"]
    assert rows["seeds/seed-0"]["status"] == "finished"
    assert main(["runs", str(runs)]) == 0
    out = capsys.readouterr().out
    assert said in out
    assert len(out.splitlines()) == 4


def test_a_policy_that_cannot_be_priced_is_damage_too(capsys, runs):
    path = runs / "first" / "config.json"
    config = json.loads(path.read_text())
    config["policy"]["attention"] = "sofmax\x1b[2J"
    path.write_text(json.dumps(config))
    assert "attention is 'sofmax" in listed(capsys, runs)["first"]["why"]
    assert main(["runs", str(runs)]) == 0
    assert "\x1b" not in capsys.readouterr().out


def test_a_run_that_has_lost_its_checkpoints_is_not_finished(capsys, runs):
    shutil.rmtree(runs / "first" / "checkpoints")
    row = listed(capsys, runs)["first"]
    assert (row["status"], row["done"], row["measure"]) == ("damaged", 60, "held_out/return")
    assert row["why"] == "it has come to its end, and its checkpoints are gone"


def test_links_are_followed_to_runs_and_no_further(capsys, runs):
    (runs / "linked").symlink_to(RUN)
    (runs / "circle").symlink_to(runs)
    assert set(listed(capsys, runs)) == {"linked", "first", "seeds/seed-0"}


def test_no_runs_is_no_error(capsys, tmp_path):
    assert listed(capsys, tmp_path) == {}
    assert main(["runs", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"no runs in {str(tmp_path)!r}\n"

"""`robopolicy grid`: every mechanism with every seed, trained, evaluated, compared and drawn."""

import json
import shutil
from contextlib import nullcontext
from pathlib import Path

import pytest
from made_grids import COMMON, run

from robopolicy.cli import DONE, INTERRUPTED, main
from robopolicy.experiments import grid
from robopolicy.training.checkpoint import RunFolder
from robopolicy.writing import write_new

PAIR = ("--attention", "none", "all", "--seeds", "0", "1")
TINY = (
    *(
        "--population",
        "2",
        "--episodes",
        "1",
        "--held-out",
        "2",
        "--episode-seconds",
        "0.5",
        "--workers",
        "1",
    ),
    *("--patch", "8", "--preset", "paper", "--engine", "mujoco", "--test-episodes", "2"),
)


@pytest.mark.slow
def test_every_cell_is_a_run_with_its_evaluation(trainer, tmp_path, capsys):
    assert run(*PAIR, "--json", "--picture", "table.svg") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["failed"], found["incomplete"]) == ({}, [])
    (rows,) = found["rows"].values()
    assert [row["attention"] for row in rows] == ["none", "all"]
    for row in rows:
        assert row["runs"] == [f"runs/table/{row['attention']}-seed-{seed}" for seed in (0, 1)]
        kept = [json.loads((tmp_path / name / "evaluation.json").read_text()) for name in row["runs"]]
        assert row["episode_returns"] == [one["mujoco"]["returns"] for one in kept]
        assert [one["mujoco"]["seeds"] for one in kept] == [[9000, 9001, 9002]] * 2
        assert row["return_interval"]["low"] <= row["return_interval"]["value"]
    assert "</svg>" in (tmp_path / "table.svg").read_text()
    assert main(["runs", "runs/table"]) == 0
    assert capsys.readouterr().out.count("finished") == 4


@pytest.mark.slow
def test_the_same_command_trains_what_is_missing_alone(trainer, capsys):
    trainer.ends["none-seed-1"] = 1
    assert run(*PAIR) == INTERRUPTED
    assert "stopped in none-seed-1; the same command continues" in capsys.readouterr().err
    assert trainer.trained[-1] == ("none-seed-1", False)
    before = list(trainer.trained)
    trainer.ends.clear()
    assert run(*PAIR) == 0
    assert trainer.trained[len(before) :] == [("none-seed-1", True), ("all-seed-1", False)]
    assert sorted(trainer.played) == ["all-seed-0", "all-seed-1", "none-seed-0", "none-seed-1"]
    assert run(*PAIR) == 0
    assert len(trainer.trained) == len(before) + 2


def test_a_request_to_stop_in_the_last_generation_stops_the_grid(trainer, capsys):
    trainer.stopped = ("none-seed-0",)
    assert run("--attention", "none", "--seeds", "0", "1") == INTERRUPTED
    assert "stopped in none-seed-0; the same command continues" in capsys.readouterr().err
    assert trainer.trained == [("none-seed-0", False)]
    assert trainer.played == []


@pytest.mark.slow
def test_mechanisms_and_seeds_may_be_added(trainer, capsys):
    assert run("--attention", "none", "--seeds", "0") == 0
    assert run("--attention", "none", "softmax", "--seeds", "0", "1") == 0
    assert [name for name, _ in trainer.trained] == [
        *("none-seed-0", "softmax-seed-0", "none-seed-1", "softmax-seed-1"),
    ]
    capsys.readouterr()
    assert main(["grid", "runs/table", "--show"]) == 0
    out = capsys.readouterr().out
    assert "none against softmax: no difference shown" in out
    assert "controls are missing: all; all, relu; all, cnn. Without them" in out
    assert len(trainer.trained) == 4


@pytest.mark.slow
def test_controls_of_a_variant_have_none(trainer, refused):
    for some in (("all", "softmax"), ("all, relu", "all, cnn", "none")):
        assert run("--variant", "query", "--attention", *some, "--seeds", "0") == 0
    configs = Path("runs/table").glob("*/config.json")
    variants = {path.parent.name: json.loads(path.read_text())["policy"]["variant"] for path in configs}
    assert variants.pop("softmax-seed-0") == "query"
    assert len(variants) == 4
    assert set(variants.values()) == {"mask"}
    assert "has 1 training" in refused("compare", "runs/table", "--claim")


@pytest.mark.rest_slow
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--sigma", "0.2"), "sigma is 0.2: the grid in 'runs/table' has 0.3"),
        (("--generations", "3"), "generations is 3: the grid in 'runs/table' has 2"),
        (("--episode-seconds", "2"), "episode_seconds is 2.0: the grid in 'runs/table' has None"),
        (("--head-dim", "4"), "head_dim is 4: the grid in 'runs/table' has 8"),
        (("--evaluator", "vector"), "evaluator is 'vector': the grid in 'runs/table' has 'local'"),
        (("--test-episodes", "4"), "test_episodes is 4: the grid in 'runs/table' has 3"),
    ],
)
def test_a_grid_that_was_changed_is_refused(trainer, refused, tmp_path, words, said):
    assert run("--attention", "none", "--seeds", "0") == 0
    before = (tmp_path / "runs/table/grid.json").read_text()
    assert said in refused("grid", "runs/table", *COMMON, "--attention", "none", "--seeds", "0", "5", *words)
    assert len(trainer.trained) == 1
    assert (tmp_path / "runs/table/grid.json").read_text() == before


@pytest.mark.slow
def test_the_number_of_workers_may_change(trainer):
    assert run("--attention", "none", "--seeds", "0") == 0
    assert run("--attention", "none", "--seeds", "1", "--workers", "2") == 0


@pytest.mark.slow
def test_a_grid_of_an_older_version_continues(trainer, tmp_path, capsys):
    assert run("--attention", "none", "--seeds", "0") == 0
    for file in (tmp_path / "runs/table").glob("**/*.json"):
        settings = json.loads(file.read_text())
        for part, name in (("es", "average"), ("policy", "memory_for")):
            settings.get(part, {}).pop(name, None)
        file.write_text(json.dumps(settings))
    capsys.readouterr()
    assert run("--attention", "none", "--seeds", "0", "1", "--json") == 0
    assert trainer.trained == [("none-seed-0", False), ("none-seed-1", False)]
    ((row,),) = json.loads(capsys.readouterr().out)["rows"].values()
    assert len(row["runs"]) == 2


@pytest.mark.slow
def test_a_run_that_fails_does_not_end_the_grid(trainer, capsys):
    trainer.ends["none-seed-0"] = RuntimeError("episode 7 failed\nthree times")
    assert run(*PAIR, "--json") == 1
    out, err = capsys.readouterr()
    assert json.loads(out)["failed"] == {"none-seed-0": "episode 7 failed three times"}
    assert "none-seed-0 failed: episode 7 failed three times" in err
    assert sorted(trainer.played) == ["all-seed-0", "all-seed-1", "none-seed-1"]
    trainer.ends.clear()
    assert run(*PAIR) == 0


@pytest.mark.slow
def test_a_run_with_other_settings_in_the_place_of_a_cell_is_not_taken_for_it(trainer, tmp_path, capsys):
    assert run("--attention", "none", "--seeds", "0") == 0
    shutil.copytree(tmp_path / "runs/table/none-seed-0", tmp_path / "runs/table/none-seed-1")
    assert run("--attention", "none", "--seeds", "1") == 1
    assert "seed is 1: the run 'none-seed-1' has 0" in capsys.readouterr().err


@pytest.mark.slow
def test_a_run_that_went_on_is_evaluated_again(trainer, tmp_path, capsys):
    assert run("--attention", "none", "--seeds", "0") == 0
    folder = RunFolder(tmp_path / "runs/table/none-seed-0")
    shutil.copytree(folder.checkpoints / "2", folder.checkpoints / "3")
    assert run("--attention", "none", "--seeds", "0") == 0
    assert trainer.played == ["none-seed-0"] * 2
    assert "none-seed-0' went on to generation 3, beyond its 2" in capsys.readouterr().err


@pytest.mark.slow
def test_a_run_that_a_resume_has_ended_early_is_trained_on(trainer, tmp_path):
    trainer.ends["none-seed-0"] = 1
    assert run("--attention", "none", "--seeds", "0") == INTERRUPTED
    limits = {"generations": 1, "stop_at": None, "stop_after": 1, "episode_budget": 0, "seconds_budget": 0.0}
    (tmp_path / "runs/table/none-seed-0/limits.json").write_text(json.dumps(limits))
    del trainer.ends["none-seed-0"]
    assert run("--attention", "none", "--seeds", "0") == 0
    assert trainer.trained == [("none-seed-0", False), ("none-seed-0", True)]


@pytest.mark.slow
@pytest.mark.parametrize("file", ["evaluation.json", "config.json"])
def test_a_damaged_run_hides_no_other(trainer, tmp_path, capsys, file):
    assert run("--attention", "none", "all", "--seeds", "0") == 0
    path = tmp_path / "runs/table/none-seed-0" / file
    path.write_text("{")
    capsys.readouterr()
    for words in (("--show",), (*COMMON, "--attention", "none", "--seeds", "0")):
        assert main(["grid", "runs/table", *words, "--json"]) == 1
        out, err = capsys.readouterr()
        found = json.loads(out)
        assert [row["label"] for rows in found["rows"].values() for row in rows] == ["all"]
        assert found["incomplete"] == ["none-seed-0"]
        assert f"{file}' is not JSON" in found["damaged"]["none-seed-0"]
        assert err.splitlines()[-1] == f"none-seed-0 failed: {found['damaged']['none-seed-0']}"


@pytest.mark.slow
def test_an_evaluation_with_a_number_that_is_not_finite_is_damaged(trainer, tmp_path, capsys):
    assert run("--attention", "none", "all", "--seeds", "0") == 0
    path = tmp_path / "runs/table/none-seed-0/evaluation.json"
    results = json.loads(path.read_text())
    results["mujoco"]["returns"][1] = float("nan")
    path.write_text(json.dumps(results))
    capsys.readouterr()
    assert main(["grid", "runs/table", "--show"]) == 1
    out, err = capsys.readouterr()
    assert "not complete: none-seed-0" in out
    assert err.splitlines()[-1].endswith(
        "evaluation.json' is no evaluation: it holds nan, which must be a finite number"
    )


def test_a_grid_without_a_complete_run_says_so(trainer, capsys):
    trainer.ends["none-seed-0"] = 1
    assert run(*PAIR, "--picture", "table.png") == INTERRUPTED
    assert capsys.readouterr().out == "not complete: none-seed-0\n"


def test_a_folder_that_holds_other_files_is_no_grid(trainer, refused, tmp_path):
    (tmp_path / "runs/table").mkdir(parents=True)
    (tmp_path / "runs/table/thesis.txt").write_text("years")
    assert "exists and holds no grid" in refused("grid", "runs/table", *COMMON, *PAIR)
    assert "holds no grid.json" in refused("grid", "runs/table", "--show")
    assert "No module named 'nowhere'" in refused("grid", "runs/table", "--show", "--env", "nowhere:X-v0")
    (tmp_path / "runs/file").touch()
    line = refused("grid", "runs/file", *COMMON, *PAIR)
    assert "folder is 'runs/file': it must be a folder, and is a file" in line
    assert trainer.trained == []


@pytest.mark.rest_slow
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is not JSON"),
        ("[]", "holds no JSON object"),
        ("{}", "it has no settings of task"),
        ('"environment": 1', "it has no settings of environment"),
        (
            '"test": {"test_episodes": "many", "test_engines": []}',
            "test_episodes is 'many': it must be of type",
        ),
        ('"test": {"test_episodes": -2, "test_engines": []}', "test_episodes is -2: it must be a whole"),
        (
            '"environment": {"engine": "mujoco", "episode_seconds": null, "presets": ["papr"]}',
            "presets is 'papr': it must be one of paper,",
        ),
        ('"test": {}', "test lacks the settings ['test_engines', 'test_episodes']"),
        (
            '"environment": {"path": 1}',
            "environment lacks the settings ['engine', 'episode_seconds', 'presets']",
        ),
    ],
)
def test_a_damaged_grid_is_refused(trainer, refused, tmp_path, text, said):
    assert run("--attention", "none", "--seeds", "0") == 0
    path = tmp_path / "runs/table/grid.json"
    whole = json.loads(path.read_text())
    path.write_text(json.dumps(whole | json.loads(f"{{{text}}}")) if text.startswith('"') else text)
    for words in (("--show",), (*COMMON, *PAIR)):
        line = refused("grid", "runs/table", *words)
        assert said in line
        assert "runs/table" in line


@pytest.mark.slow
def test_mechanisms_that_differ_in_a_sign_have_a_folder_each(trainer, tmp_path):
    specs = [f"generalized_exponential(m=4, A={a}, s=1)" for a in ("0.1", "-0.1", "0.1+0.2j", "0.1-0.2j")]
    parts = ("0.1-0j", "minus-0.1-0j", "0.1-0.2j", "0.1-minus-0.2j")
    names = [f"generalized_exponential-m-4-A-{part}-s-1-seed-0" for part in parts]
    assert run("--attention", *specs, "--seeds", "0") == DONE
    assert [name for name, _ in trainer.trained] == names
    # Folders of older versions have no signs in their names.
    table = tmp_path / "runs/table"
    shutil.rmtree(table / names[0])
    (table / names[1]).rename(table / names[0])
    assert run("--attention", specs[1], "--seeds", "0") == DONE
    assert len(trainer.trained) == len(specs)


def test_a_grid_that_another_process_begins_at_the_same_time_stays(trainer, refused, monkeypatch):
    def late(path, text):
        write_new(path, json.dumps({**json.loads(text), "es": {**json.loads(text)["es"], "sigma": 0.2}}))
        write_new(path, text)

    monkeypatch.setattr(grid, "write_new", late)
    line = refused("grid", "runs/table", *COMMON, "--attention", "none", "--seeds", "0")
    assert "sigma is 0.3: the grid in 'runs/table' has 0.2" in line
    assert trainer.trained == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--seeds", "0"), "attention is empty: a grid needs one or more"),
        (("--attention", "none"), "seeds is empty: a grid needs one or more"),
        (("--attention", "none", "none", "--seeds", "0"), "attention has none twice"),
        (("--attention", "none", "--seeds", "1", "1"), "seeds has 1 twice"),
        (
            ("--attention", "none", "--seeds", "0", "-1"),
            "seeds has -1: each must be a whole number from 0 to",
        ),
        (("--attention", "softmx", "--seeds", "0"), "did you mean 'softmax'?"),
        ((*PAIR, "--seed", "3"), "Unrecognized options: --seed, 3; did you mean --seeds?"),
        ((*PAIR, "--seeds", "2"), "--seeds is given 2 times"),
        (("--seeds", "0", "--attention"), "--attention is empty"),
        ((*PAIR, "--test-episodes", "0"), "test_episodes is 0"),
        ((*PAIR, "--test-engines", "bulet"), "did you mean 'bullet'?"),
        ((*PAIR, "--population", "1"), "population is 1"),
        ((*PAIR, "--evaluator", "cloud"), "evaluator is 'cloud'"),
        ((*PAIR, "--picture", "table.jpg"), "picture is 'table.jpg'"),
        ((*PAIR, "--show"), "picture and json alone, not patch, attention, seeds"),
        (("--show", "--sigma", "0.2", "--task", "bimanual-sweep"), "json alone, not task, patch, sigma"),
    ],
)
def test_a_bad_grid_is_refused_before_its_folder_is_made(refused, tmp_path, monkeypatch, words, said):
    monkeypatch.chdir(tmp_path)
    assert said in refused("grid", "runs/table", "--patch", "8", *words)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("words", [PAIR, (*PAIR[3:], *PAIR[:3]), ("--config", "grid.toml")], ids=" ".join)
def test_a_value_of_a_list_does_not_become_the_folder(refused, tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "grid.toml").write_text('attention = ["none", "all"]\nseeds = [0, 1]\n')
    assert "FOLDER is missing: it goes before the options" in refused("grid", *words)
    assert [path.name for path in tmp_path.iterdir()] == ["grid.toml"]


def test_a_folder_may_follow_lists_whose_only_values_are_behind_equals_signs(trainer, tmp_path):
    assert main(["grid", *COMMON, "--attention=none", "--seeds=0", "runs/table"]) == 0
    assert (tmp_path / "runs/table/none-seed-0").is_dir()


def test_the_folder_may_follow_an_option_of_one_value(trainer):
    assert main(["grid", *PAIR, *COMMON[:2], "runs/table", *COMMON[2:]]) == 0
    assert len(trainer.trained) == 4


def test_options_come_from_a_file(trainer, tmp_path):
    (tmp_path / "grid.toml").write_text('attention = ["none", "all"]\nseeds = [0]\n[search]\nsigma = 0.1\n')
    assert run("--config", "grid.toml") == 0
    assert [name for name, _ in trainer.trained] == ["none-seed-0", "all-seed-0"]
    assert json.loads((tmp_path / "runs/table/grid.json").read_text())["es"]["sigma"] == 0.1


@pytest.mark.slow
def test_a_grid_that_was_stopped_continues_to_the_same_bits(tmp_path, monkeypatch, capsys):
    words = ("--attention", "none", "--seeds", "0", "--generations", "3", *TINY)
    assert main(["grid", str(tmp_path / "whole"), *words]) == 0
    with monkeypatch.context() as patch:
        patch.setattr("robopolicy.training.loop.asked_to_stop", lambda: nullcontext(lambda: True))
        assert main(["grid", str(tmp_path / "parts"), *words]) == INTERRUPTED
    assert "stopped in none-seed-0" in capsys.readouterr().err
    assert not (tmp_path / "parts/none-seed-0/evaluation.json").exists()
    assert main(["grid", str(tmp_path / "parts"), *words]) == 0
    assert "resuming at generation 2 of 3" in capsys.readouterr().err
    runs = [tmp_path / name / "none-seed-0" for name in ("whole", "parts")]
    whole, parts = (RunFolder(run).load()[1] for run in runs)
    assert all((whole[name] == parts[name]).all() for name in whole if name != "progress/seconds")
    whole, parts = (json.loads((run / "evaluation.json").read_text())["mujoco"] for run in runs)
    assert whole["returns"] == parts["returns"]

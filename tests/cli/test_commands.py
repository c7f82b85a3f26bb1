"""All commands, on the whole path once, small."""

import json
import shlex
import subprocess
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import imageio.v2 as imageio
import pytest
from made_runs import PAPER, made_run

import robopolicy
from robopolicy.cli import main
from robopolicy.cli.train_es import TrainES
from robopolicy.experiments import evaluators, provenance
from robopolicy.experiments.environments import Environment, others_of
from robopolicy.experiments.evaluators import batch_of
from robopolicy.experiments.runs import played_on
from robopolicy.training.datasets import open_dataset

TINY = "--population 2 --generations 1 --episode-seconds 0.5 --workers 1 --patch 4 --held-out 2".split()
NORMALISED = "--engine mujoco --normalise --population 4".split()


@pytest.fixture(scope="session")
def normalised(once):
    """A tiny run whose policy normalises its observations, played by the pool of processes."""
    return once("normalised", lambda folder: train_es(folder / "run", *NORMALISED)) / "run"


def train_es(run, *words):
    assert main(["train", "es", "--out", str(run), *TINY, *words]) == 0


def last_record(run):
    return json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])


def test_flops_as_json(capsys):
    assert main(["flops", "--attention", "trigonometric(m=4)", "--patch", "4", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    controls = ["all", "all, relu", "all, cnn", "none"]
    assert [row["label"] for row in rows] == ["trigonometric(m=4)", "softmax", *controls]
    assert [row["attention"] for row in rows[2:]] == ["all", "all", "all", "none"]
    for row in rows:
        assert sum(row["by_component"].values()) == row["total"]


def test_the_papers_claim_holds_for_a_whole_policy_step(capsys):
    assert main(["flops", "--json"]) == 0
    totals = {row["attention"]: row["total"] for row in json.loads(capsys.readouterr().out)}
    assert totals["positive_antithetic(m=256)"] >= 3 * totals["angular_hybrid(m=8, n=8)"]
    assert "softmax" in totals


def test_a_change_anywhere_in_the_package_is_recorded(tmp_path, monkeypatch):
    package = tmp_path / "robopolicy"
    for file in ("__init__.py", "training/es.py", "experiments/provenance.py"):
        (package / file).parent.mkdir(parents=True, exist_ok=True)
        (package / file).touch()
    author = ("-c", "user.name=a", "-c", "user.email=a@b")
    for words in (("init", "-q"), ("add", "."), (*author, "commit", "-q", "-m", "first")):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    monkeypatch.setattr(provenance, "__file__", str(package / "experiments/provenance.py"))
    (tmp_path / "notes.txt").touch()
    assert provenance.git_revision()["modified"] is False
    (package / "training/es.py").write_text("changed")
    assert provenance.git_revision()["modified"] is True


@pytest.mark.parametrize("format", ["minari", "lerobot"])
def test_a_dataset_of_a_task_that_is_not_imported_names_the_remedy(refused, tmp_path, format):
    about = {"robopolicy": {"task": "own_arm:Arm-v0"}}
    files = {
        "minari": {"data/metadata.json": about, "data/main_data.hdf5": {}},
        "lerobot": {"meta/info.json": {}, "meta/robopolicy.json": {"keys": {}, "minari": about}},
    }
    for name, content in files[format].items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(json.dumps(content))
    line = refused("train", "bc", "--data", str(tmp_path), "--out", str(tmp_path / "run"))
    assert line.endswith(
        f"task of the dataset {str(tmp_path)!r} is 'own_arm:Arm-v0': import own_arm first, or give --env "
        "own_arm:Arm-v0\n"
    )


@pytest.mark.slow
def test_train_evaluate_price_film_and_export(capsys, refused, tmp_path, monkeypatch):
    run = str(tmp_path / "run")
    assert main(["train", "es", "--out", run, *TINY, "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["generation"] == 1
    assert record["episodes"] == 2
    made_with = json.loads((tmp_path / "run" / "config.json").read_text())
    assert {"python", "robopolicy", "jax", "mujoco", "onnxruntime"} <= made_with["versions"].keys()
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=Path(__file__).parent, capture_output=True, text=True
    )
    assert (made_with["git"] or {"commit": ""})["commit"] == head.stdout.strip()
    assert "exists" in refused("train", "es", "--out", run, *TINY)
    assert "sigma is 0.2: the run to resume has 0.3" in refused(
        "train", "es", "--out", run, *TINY, "--sigma", "0.2", "--resume"
    )
    # What is not given is as it was, and not the default of a new run. A stop names the command to go on.
    monkeypatch.setattr("robopolicy.training.loop.asked_to_stop", lambda: nullcontext(lambda: True))
    assert main(["train", "es", "--out", run, "--workers", "1", "--generations", "3", "--resume"]) == 130
    said = capsys.readouterr().err
    assert "resuming at generation 2 of 3" in said
    assert "next:" not in said
    (command,) = (line for line in said.splitlines() if line.startswith("stopped after generation 2"))
    monkeypatch.undo()
    assert main(shlex.split(command.split("go on with: robopolicy ")[1])) == 0
    said = capsys.readouterr().err
    assert "resuming at generation 3 of 3" in said
    assert said.splitlines()[-1] == f"next: robopolicy evaluate {run}"
    log = tmp_path / "run" / "metrics.jsonl"
    whole = log.read_text()
    assert [json.loads(line)["generation"] for line in whole.splitlines()] == [0, 1, 2, 3]

    # Without its checkpoints a run is not begun again over its log, unless that is asked for.
    resume = ["train", "es", "--out", run, "--workers", "1", "--resume"]
    (tmp_path / "run" / "checkpoints").rename(tmp_path / "checkpoints")
    assert "has a log up to generation 3, and it has no checkpoint" in refused(*resume)
    assert log.read_text() == whole
    (tmp_path / "checkpoints").rename(tmp_path / "run" / "checkpoints")
    assert "resume_from is 7: it must be a checkpoint of the run (1, 2, 3), or 0" in refused(
        *resume[:-1], "--resume-from", "7"
    )
    assert main([*resume[:-1], "--resume-from", "2", "--generations", "3"]) == 0
    assert "resuming at generation 3 of 3" in capsys.readouterr().err
    assert (tmp_path / "run" / "set-aside-1" / "metrics.jsonl").read_text() == whole
    assert len(log.read_text().splitlines()) == 4

    config = tmp_path / "run" / "config.json"
    kept = config.read_text()
    config.write_text(kept.replace('"hidden": 0', '"hidden": 7'))
    assert "and the policy in its config.json do not fit: parameters is" in refused("evaluate", run)
    config.write_text(kept)

    played = []
    for _ in range(2):
        command = ["evaluate", run, "--episodes", "2", "--episode-seconds", "1", "--json"]
        assert main(command) == 0
        played.append(json.loads(capsys.readouterr().out))
    assert played[0] == played[1]
    for name in ("episodes", "seeds", "return_mean", "success_rate", "distance_mean"):
        assert name in played[0]

    assert main(["flops", run, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["attention"] == "angular_hybrid(m=8, n=8)"

    films(capsys, tmp_path, run)

    assert main(["export", run, "--out", str(tmp_path / "bundle"), "--observations", "20", "--json"]) == 0
    parity = json.loads(capsys.readouterr().out)
    assert parity["observations"] == 20
    assert parity["command_difference"] <= 1e-5
    assert parity["scores_difference"] <= 1e-5

    bundle = str(tmp_path / "bundle")
    assert main(["verify", bundle, "--calls", "20", "--json"]) in (0, 1)  # a busy machine may be too slow
    verdict = json.loads(capsys.readouterr().out)
    assert verdict["same"] is True
    assert (verdict["observations"], verdict["calls"]) == (20, 20)
    words = ["--seconds", "1", "--misses", "1000", "--engine", "mujoco", "--json"]
    assert main(["deploy", bundle, *words]) == 0
    driven = json.loads(capsys.readouterr().out)
    assert driven["steps"] == 20
    assert driven["stopped"] is None
    assert driven["played"][-1]["cause"] == "stopped: the drive has ended"

    assert main(["flops", run, str(tmp_path / "bundle"), "--json"]) == 0
    of_run, of_bundle, exact, *_ = json.loads(capsys.readouterr().out)
    assert {**of_bundle, "policy": run} == of_run
    assert exact["attention"] == "softmax"


@pytest.mark.parametrize(("stopped", "code"), [(None, 0), ("the sensor failed", 1)])
def test_a_drive_that_was_stopped_is_no_success(monkeypatch, stopped, code):
    asked = {}

    def drive(bundle, **settings):
        asked.update(settings)
        return {"stopped": stopped}

    monkeypatch.setattr("robopolicy.cli.deploy.deploy", drive)
    words = "deploy bundle --seed 7 --preset hard --misses 9 --episodes 2 --json"
    assert main(words.split()) == code
    assert [asked[name] for name in ("seed", "preset", "misses", "episodes")] == [7, "hard", 9, 2]


def test_no_more_workers_start_than_there_are_episodes(monkeypatch):
    monkeypatch.setattr(evaluators, "worker_graph", lambda config, features: b"")
    monkeypatch.setattr(evaluators, "LocalPool", lambda e, model, workers, *more: workers)
    policy = SimpleNamespace(config=None, features=None, functions=SimpleNamespace(normalised=()))
    assert evaluators.EvaluatorConfig(workers=40).make([], policy, episodes=20) == 20
    assert evaluators.EvaluatorConfig(workers=2).make([], policy, episodes=20) == 2


@pytest.mark.slow
def test_a_lock_step_run_is_the_run_of_the_pool(normalised, tmp_path):
    train_es(tmp_path / "vector", *NORMALISED, "--evaluator", "vector", "--places", "3")
    pool, lock_step = last_record(normalised), last_record(tmp_path / "vector")
    for name in ("return_mean", "return_std", "held_out/return", "steps", "not_finite"):
        assert pool[name] == lock_step[name]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["normalised", "without vision"])
def test_a_policy_of_another_kind_goes_the_whole_way(request, capsys, refused, tmp_path, kind):
    if kind == "normalised":
        run = str(request.getfixturevalue("normalised"))
    else:
        run = str(tmp_path / "run")
        train_es(run, "--attention", "none")
    for which in ("", "@best", "@1"):
        assert main(["evaluate", run + which, "--episodes", "1", "--episode-seconds", "0.3"]) == 0
    assert "no checkpoint 7" in refused("evaluate", run + "@7")
    assert "checkpoint is 'bst'" in refused("evaluate", run + "@bst")
    bundle = str(tmp_path / "bundle")
    assert main(["export", run, "--out", bundle, "--observations", "5", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["command_difference"] <= 1e-5
    assert main(["verify", bundle, "--calls", "5", "--json"]) in (0, 1)
    assert json.loads(capsys.readouterr().out)["same"] is True
    assert main(["flops", run, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert all(sum(row["by_component"].values()) == row["total"] for row in rows)


@pytest.mark.parametrize(("baseline", "least"), [("oracle", 0.5), ("blind", 0.3), ("random", 0.0)])
def test_baselines_walk(capsys, baseline, least):
    words = [
        "evaluate",
        baseline,
        "--episodes",
        "1",
        "--episode-seconds",
        "2",
        "--preset",
        "painted",
        "--json",
    ]
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out)["distance_mean"] > least


@pytest.mark.slow
def test_the_sweep_is_demonstrated_recorded_evaluated_and_filmed(capsys, tmp_path):
    out = tmp_path / "sweep-v0"
    words = ["demos", "--episodes", "2", "--image-size", "64", "--balls", "4", "--out", str(out), "--json"]
    assert main(words) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["episodes"] == 2
    assert result["fraction_in_bowls_mean"] == 1.0
    opened = open_dataset(out, "bimanual-sweep")
    assert opened.about["seeds"] == result["seeds"]
    assert opened.about["renderer"]
    assert sum(opened.steps) == result["steps"]
    assert main(words) == 2
    assert "exists" in capsys.readouterr().err

    clone(capsys, tmp_path, out)

    sweep = ["--task", "bimanual-sweep", "--json"]
    assert main(["evaluate", "oracle", "--episodes", "1", *sweep]) == 0
    assert json.loads(capsys.readouterr().out)["fraction_in_bowls_mean"] > 0.9
    assert main(["evaluate", "random", "--episodes", "1", "--episode-seconds", "3", *sweep]) == 0
    assert json.loads(capsys.readouterr().out)["fraction_in_bowls_mean"] == 0.0
    film = ["rollout", "oracle", "--episode-seconds", "1", "--size", "240", "240"]
    assert main([*film, "--video", str(tmp_path / "sweep.mp4"), *sweep]) == 0
    result = json.loads(capsys.readouterr().out)
    (episode,) = result["episodes"]
    assert (episode["steps"], episode["cause"], episode["flops"]) == (10, "time", None)
    assert (tmp_path / "sweep.mp4").stat().st_size > 1000


def films(capsys, tmp_path, run):
    """Two policies side by side, five times slower than life, and on a sheet, too."""
    paths = [str(tmp_path / name) for name in ("walk.mp4", "walk.png")]
    files = [word for pair in zip(("--video", "--sheet"), paths, strict=True) for word in pair]
    short = ["--episode-seconds", "0.3", "--size", "320", "240", "--slow", "5", "--json"]
    assert main(["rollout", run, "oracle", *files, *short]) == 0
    result = json.loads(capsys.readouterr().out)
    assert [result[name] for name in ("video", "sheet")] == paths
    of_run, of_oracle = result["episodes"]
    assert (of_run["policy"], of_run["steps"], of_oracle["policy"]) == (run, 6, "oracle")
    assert of_run["flops"] > 1000
    with imageio.get_reader(paths[0]) as video:
        about = video.get_meta_data()
        assert (about["size"], about["fps"], video.count_frames()) == ((640, 240), 20.0, 30)
    height, width = imageio.imread(paths[1]).shape[:2]
    assert width > 2 * height  # the six steps in two rows of four


@pytest.mark.slow
def test_an_episode_is_recorded_for_rerun(capsys, tmp_path, monkeypatch):
    rerun = pytest.importorskip("rerun")
    words = ["rollout", "oracle", "--episode-seconds", "0.2", "--json", "--rerun"]
    assert main([*words, str(tmp_path / "walk.rrd")]) == 0
    assert json.loads(capsys.readouterr().out)["rerun"] == str(tmp_path / "walk.rrd")
    assert (tmp_path / "walk.rrd").read_bytes().startswith(b"RRF2")
    monkeypatch.setattr(rerun.MemoryRecording, "drain_as_bytes", lambda *_: 1 / 0)
    assert main([*words, str(tmp_path / "lost.rrd")]) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["walk.rrd"]


def clone(capsys, tmp_path, data):
    """Train on `data`, go on, evaluate, price and film; refuse what cannot be."""
    run = str(tmp_path / "clone")
    size = ["--preset", "tiny", "--patch", "16", "--attention", "positive(m=4)", "--samples", "16"]
    words = ["train", "bc", "--data", str(data), "--out", run, *size, "--batch", "8", "--validation", "0.5"]

    def refused(*more):
        assert main([*words, *more]) == 2
        _, err = capsys.readouterr()
        assert err.count("\n") == 1
        return err

    assert "patch is 7: it must divide the 64 rows and 64 columns" in refused("--patch", "7")
    assert "validation is 0.9" in refused("--validation", "0.9")
    assert "engine is 'bulet'" in refused("--engine", "bulet")
    assert "precision is 'float8'" in refused("--precision", "float8")
    assert "episode_seconds is 0.0" in refused("--episode-seconds", "0")
    assert "attention" in refused("--attention", "positve(m=4)")
    assert not (tmp_path / "clone").exists()

    played = ["--rollouts", "1", "--episode-seconds", "0.5", "--workers", "1"]
    assert main([*words, "--steps", "4", "--validate-every", "2", *played, "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert (record["step"], record["rollout/return"]) == (4, 0.0)
    assert record["waiting_share"] >= 0
    assert "exists" in refused()
    assert "width is 48: the run to resume has 32" in refused("--steps", "4", "--preset", "small", "--resume")
    assert "steps is 8: the run to resume has 4" in refused("--steps", "8", "--resume")
    assert main(["train", "bc", "--out", run, "--resume"]) == 0
    assert "nothing left to do" in capsys.readouterr().err

    short = ["--episode-seconds", "0.5"]  # the run says what its task is
    for checkpoint in (run, f"{run}@best"):
        assert main(["evaluate", checkpoint, "--episodes", "1", *short, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["fraction_in_bowls_mean"] == 0.0
    video = str(tmp_path / "clone.mp4")
    assert main(["rollout", run, "--video", video, "--size", "240", "240", *short]) == 0
    assert main(["flops", run, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out.splitlines()[-1])
    controls = ["all", "all, relu", "all, cnn", "none"]
    assert [row["label"] for row in rows] == ["positive(m=4)", "softmax", *controls]
    bundle = str(tmp_path / "bundle")
    assert main(["export", run, "--out", bundle, "--observations", "6"]) == 0
    capsys.readouterr()
    assert main(["verify", bundle, "--calls", "5", "--json"]) in (0, 1)
    assert json.loads(capsys.readouterr().out)["same"] is True
    assert main(["deploy", bundle, "--seconds", "0.5", "--misses", "1000", "--json"]) == 0
    driven = json.loads(capsys.readouterr().out)
    assert (driven["steps"], driven["played"][0]["fraction_in_bowls"]) == (5, 0.0)

    # A config that somebody has changed is not gone on with.
    config = tmp_path / "clone" / "config.json"
    whole = json.loads(config.read_text())
    earlier = {**whole["command"], "cache": None}  # of versions that had a cache of frames
    config.write_text(json.dumps({**whole, "command": earlier}))
    assert main(["train", "bc", "--out", run, "--resume"]) == 0
    capsys.readouterr()
    for part, value, said in (
        ({"command": {**whole["command"], "batch": "8"}}, "batch is '8'", "of type int"),
        ({"command": {**whole["command"], "data": 5}}, "data is 5", "it must be paths"),
        ({"command": {}}, "out is", "not of a cloning run"),
        ({"command": None}, "out is", "Python began its run, so train_bc(..., resume=True) continues it"),
        ({"bc": {**whole["bc"], "ema": 0.5}}, "ema is 0.999", "the run to resume has 0.5"),
    ):
        config.write_text(json.dumps({**whole, **part}))
        assert main(["train", "bc", "--out", run, "--resume"]) == 2
        line = capsys.readouterr().err
        assert value in line
        assert said in line


def test_settings_of_the_task_are_those_of_the_run_unless_others_are_given(tmp_path):
    hard = Environment("stepping-stones", "jax", "hard", others=others_of(("front",), 0.01))
    begun = TrainES(out=tmp_path, preset=("hard",), cameras=("front",), drift=0.01).environment
    assert begun == hard
    trained_on = {**PAPER, "presets": ["hard"], "others": {"cameras": ["front"], "drift": 0.01}}
    name = made_run(tmp_path / "front", environment=trained_on)
    again = TrainES(out=tmp_path / "front").stored_command()
    assert (again.cameras, again.drift) == (("front",), 0.01)
    assert played_on([name], None, None).others == trained_on["others"]
    steady = played_on([name], None, None, others=others_of((), 0.0)).make()
    assert steady.unwrapped.config.odometry.drift == 0.0
    assert steady.unwrapped.config.cameras == ("front",)
    clone = made_run(tmp_path / "clone", environment={"engine": "mujoco", "renderer": "opengl"})
    assert played_on([clone], None, None).others == {"renderer": "opengl"}
    assert played_on([clone], None, None, renderer="software").others == {"renderer": "software"}
    assert played_on([clone], None, "jax").others == played_on([clone, name], None, None).others == {}
    batch = batch_of(hard)()
    assert batch.config == robopolicy.make("stepping-stones", preset="hard", **hard.others).unwrapped.config

"""One battery over all commands, then the whole path once, small."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from robopolicy.cli import main
from robopolicy.training.datasets import open_dataset

COMMANDS = (
    ("train", "es"),
    ("demos",),
    ("evaluate",),
    ("rollout",),
    ("flops",),
    ("export",),
    ("bench", "attention"),
    ("bench", "env"),
)
COMPLETE = (
    ("train", "es", "--out", "run"),
    ("demos", "--out", "sweep-v0"),
    ("evaluate", "oracle"),
    ("rollout", "oracle", "--video", "walk.mp4"),
    ("flops",),
    ("export", "run", "--out", "bundle"),
    ("bench", "attention"),
    ("bench", "env"),
)
TINY = (
    "--population",
    "2",
    "--generations",
    "1",
    "--episode-seconds",
    "0.5",
    "--workers",
    "1",
    "--patch",
    "4",
    "--held-out",
    "2",
)


def capsys_cleared(capsys):
    """`capsys` without what was said so far."""
    capsys.readouterr()
    return capsys


def refused(capsys, *words: str) -> str:
    """Run a command that must be refused; returns the one line that it says."""
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1, err
    return err


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_shows_an_example(capsys, command):
    assert main([*command, "--help"]) == 0
    assert f"Example: robopolicy {' '.join(command)}" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("words", COMPLETE, ids=" ".join)
def test_an_unknown_option_is_one_line(capsys, words):
    assert "--nonsense" in refused(capsys, *words, "--nonsense", "1")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("walk",), "walk"),
        (("train",), "train es"),
        (("train", "es"), "--out"),
        (("evaluate", "oracle", "--episods", "3"), "did you mean --episodes?"),
        (("evaluate", "oracle", "--episodes", "many"), "many"),
        (("evaluate", "oracle", "--episodes", "0"), "episodes is 0"),
        (("evaluate", "oracle", "--task", "steping-stones"), "did you mean 'stepping-stones'?"),
        (("evaluate", "oracle", "--preset", "papr"), "did you mean 'paper'?"),
        (("evaluate", "oracle", "--engine", "bulet"), "did you mean 'bullet'?"),
        (("evaluate", "oracle", "--seed", "-1"), "seed is -1"),
        (("evaluate", "nobody"), "run is 'nobody'"),
        (
            ("evaluate", "stepping-stones-softmax", "--task", "bimanual-sweep"),
            "was trained on 'stepping-stones'",
        ),
        (("evaluate", "oracle", "--task", "bimanual-sweep", "--preset", "hard"), "preset is 'hard'"),
        (("train", "es", "--task", "bimanual-sweep", "--out", "run"), "task is 'bimanual-sweep'"),
        (("demos",), "--out"),
        (("demos", "--out", "sweep"), "such as sweep-v0"),
        (("demos", "--out", "sweep-v0", "--task", "stepping-stones"), "task is 'stepping-stones'"),
        (("demos", "--out", "sweep-v0", "--episodes", "0"), "episodes is 0"),
        (("demos", "--out", "sweep-v0", "--balls", "0"), "balls is 0"),
        (("demos", "--out", "sweep-v0", "--image-size", "5"), "image_size is 5"),
        (("demos", "--out", "sweep-v0", "--noise", "2"), "noise is 2"),
        (("demos", "--out", "sweep-v0", "--seed", "-1"), "seed is -1"),
        (("demos", "--out", "sweep-v0", "--workers", "0"), "workers is 0"),
        (("demos", "--out", "sweep-v0", "--engine", "bulet"), "did you mean 'bullet'?"),
        (("flops", "--attention", "angular_hybird(m=8, n=8)"), "did you mean 'angular_hybrid'"),
        (("flops", "--attention", "angular_hybrid(m=8, k=8)"), "k"),
        (("flops", "--attention", "positive(m=0)"), "m"),
        (("flops", "--patch", "7"), "patch is 7"),
        (("flops", "nobody"), "run is 'nobody'"),
        (("rollout", "oracle", "--video", "walk.avi"), ".mp4"),
        (("rollout", "oracle", "--video", "nowhere/walk.mp4"), "nowhere"),
        (("rollout", "oracle", "--video", "walk.mp4", "--size", "321", "240"), "size"),
        (("export", "nobody", "--out", "bundle"), "run is 'nobody'"),
        (("bench",), "bench attention"),
        (("bench", "env", "--engine", "bulet"), "did you mean 'bullet'?"),
        (("bench", "env", "--preset", "esy"), "preset is 'esy'"),
        (("bench", "env", "--seconds", "0"), "seconds is 0"),
        (("bench", "env", "--attention", "softmx"), "did you mean 'softmax'"),
        (("bench", "attention", "--tokens", "0"), "tokens is 0"),
        (("bench", "attention", "--dims", "-8"), "dims is -8"),
        (("bench", "attention", "--seconds", "0"), "seconds is 0"),
        (("bench", "attention", "--attention", "positve(m=8)"), "did you mean 'positive'?"),
    ],
)
def test_bad_input_is_one_line_that_names_it(capsys, tmp_path, monkeypatch, words, said):
    monkeypatch.chdir(tmp_path)
    assert said in refused(capsys, *words)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--attention", "softmx"), "did you mean 'softmax'"),
        (("--strategy", "pgpe", "--population", "7"), "population is 7"),
        (("--population", "0"), "population is 0"),
        (("--generations", "0"), "generations is 0"),
        (("--strategy", "opn_es"), "did you mean 'open_es'?"),
        (("--workers", "0"), "workers is 0"),
        (("--episode-seconds", "0"), "episode_seconds is 0"),
        (("--preset", "painted", "--preset", "painted"), "painted, painted"),
        (
            ("--preset", "painted", "--preset", "paper", "--advance-at", "1", "--advance-at", "2"),
            "advance_at",
        ),
        (("--variant", "msk"), "did you mean 'mask'?"),
        (("--evaluator", "cloud"), "evaluator is 'cloud'"),
        (("--evaluator", "locl"), "did you mean 'local'?"),
        (("--evaluator", "ray", "--address", "127.0.0.1:1"), "no Ray cluster answers there"),
        (("--address", "127.0.0.1:1"), "only the evaluator ray takes one"),
        (("--evaluator", "vector", "--places", "0"), "places is 0"),
        (("--deadline", "0"), "deadline is 0"),
        (("--deadline", "inf"), "deadline is inf"),
        (("--seed", "99999999999999999999"), "seed is 99999999999999999999"),
        (("--shaping", "rank"), "did you mean 'ranks'?"),
        (("--decay", "0"), "decay is 0"),
        (("--stop-at", "nan"), "stop_at is nan"),
        (("--wandb", "project", "--population", "1"), "population is 1"),
        (("--seed", "-2"), "seed is -2"),
        (("--sigma", "0"), "sigma is 0"),
        (("--resume",), "no run"),
    ],
)
def test_a_run_that_cannot_be_is_refused_before_its_folder_is_made(capsys, tmp_path, words, said):
    assert said in refused(capsys, "train", "es", "--out", str(tmp_path / "run"), *words)
    assert not list(tmp_path.iterdir())


def test_what_exists_is_not_overwritten(capsys, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.txt").write_text("years")
    assert "--resume" in refused(capsys, "train", "es", "--out", str(tmp_path / "run"))
    assert "exists" in refused(capsys, "export", str(tmp_path / "run"), "--out", str(tmp_path / "run"))
    assert [p.name for p in (tmp_path / "run").iterdir()] == ["thesis.txt"]


def test_flops_as_json(capsys):
    assert main(["flops", "--attention", "trigonometric(m=4)", "--patch", "4", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["attention"] for row in rows] == ["trigonometric(m=4)", "softmax"]
    for row in rows:
        assert sum(row["by_component"].values()) == row["total"]


def test_the_papers_claim_holds_for_a_whole_policy_step(capsys):
    assert main(["flops", "--json"]) == 0
    totals = {row["attention"]: row["total"] for row in json.loads(capsys.readouterr().out)}
    assert totals["positive_antithetic(m=256)"] >= 3 * totals["angular_hybrid(m=8, n=8)"]
    assert "softmax" in totals


@pytest.mark.slow
def test_attention_is_timed_against_exact_softmax():
    words = "--attention positive(m=8) --tokens 16 1536 2048 --dims 4 --seconds 0.001 --json".split()
    # In a process of its own, which it keeps on one core.
    command = [sys.executable, "-m", "robopolicy", "bench", "attention", *words]
    rows = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    timed = {(r["attention"], r["op"], r["tokens"]): r for r in rows}
    library = "jax.nn.dot_product_attention"
    operations = [("positive(m=8)", op) for op in ("map", "rank", "apply")]
    operations += [("softmax", "rank"), ("softmax", "apply"), (library, "apply")]
    assert set(timed) == {(*operation, tokens) for operation in operations for tokens in (16, 1536, 2048)}
    for (_, op, tokens), row in timed.items():
        assert row["dim"] == 4
        assert min(row["time_ms"], row["flops"], row["memory_bytes"]) > 0
        if op != "map":
            exact = timed["softmax", op, tokens]["time_ms"]
            assert row["vs_softmax"] == pytest.approx(exact / row["time_ms"])
    # Exact attention grows with the square of the tokens, the other in proportion.
    for name, power in (("softmax", 2), ("positive(m=8)", 1)):
        long, short = (timed[name, "apply", tokens]["flops"] for tokens in (2048, 1536))
        assert long / short == pytest.approx((2048 / 1536) ** power, rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["bullet", "mujoco"])
def test_the_stack_is_timed_against_its_engine(engine):
    words = f"bench env --engine {engine} --patch 4 --seconds 1 --preset painted --json".split()
    # In a process of its own, which it keeps on one core.
    command = [sys.executable, "-m", "robopolicy", *words]
    timed = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert timed["engine"] == engine
    assert timed["simulated_seconds"] >= 1.0
    assert timed["engine_real_time_factor"] > timed["real_time_factor"] > 0
    assert timed["ratio"] == pytest.approx(timed["engine_real_time_factor"] / timed["real_time_factor"])
    assert sum(timed["shares"].values()) == pytest.approx(1.0)
    assert min(timed["shares"].values()) > 0


@pytest.mark.slow
def test_train_evaluate_price_film_and_export(capsys, tmp_path):
    run = str(tmp_path / "run")
    assert main(["train", "es", "--out", run, *TINY, "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["generation"] == 1
    assert record["episodes"] == 2
    assert "exists" in refused(capsys, "train", "es", "--out", run, *TINY)
    assert "sigma is 0.2: the run to resume has 0.3" in refused(
        capsys, "train", "es", "--out", run, *TINY, "--sigma", "0.2", "--resume"
    )
    # What is not given is as it was, and not the default of a new run.
    assert main(["train", "es", "--out", run, "--workers", "1", "--generations", "2", "--resume"]) == 0
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["generation"] for line in lines] == [0, 1, 2]
    capsys.readouterr()

    config = tmp_path / "run" / "config.json"
    kept = config.read_text()
    config.write_text(kept.replace('"hidden": 0', '"hidden": 7'))
    assert "parameters: the policy in config.json has" in refused(capsys, "evaluate", run)
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

    video = tmp_path / "walk.mp4"
    assert (
        main(["rollout", run, "--video", str(video), "--episode-seconds", "0.3", "--size", "320", "240"]) == 0
    )
    assert video.stat().st_size > 1000
    capsys.readouterr()

    assert main(["export", run, "--out", str(tmp_path / "bundle"), "--observations", "20", "--json"]) == 0
    parity = json.loads(capsys.readouterr().out)
    assert parity["observations"] == 20
    assert parity["action_difference"] <= 1e-5
    assert parity["scores_difference"] <= 1e-5


@pytest.mark.slow
def test_a_lock_step_run_is_the_run_of_the_pool(capsys, tmp_path):
    told = {}
    for evaluator in ("local", "vector"):
        run = str(tmp_path / evaluator)
        words = ["--evaluator", evaluator, "--places", "3", "--normalise", "--population", "4"]
        assert main(["train", "es", "--out", run, *TINY, *words, "--json"]) == 0
        told[evaluator] = json.loads(capsys.readouterr().out)
    for name in ("return_mean", "return_std", "held_out/return", "steps", "not_finite"):
        assert told["local"][name] == told["vector"][name]


@pytest.mark.slow
def test_a_normalised_policy_and_one_without_vision_go_the_whole_way(capsys, tmp_path):
    for words in (["--normalise"], ["--attention", "none"]):
        run = str(tmp_path / words[0])
        assert main(["train", "es", "--out", run, *TINY, *words]) == 0
        for which in ("", "@best", "@1"):
            assert main(["evaluate", run + which, "--episodes", "1", "--episode-seconds", "0.3"]) == 0
        assert "no checkpoint 7" in refused(capsys_cleared(capsys), "evaluate", run + "@7")
        assert "checkpoint is 'bst'" in refused(capsys, "evaluate", run + "@bst")
        bundle = str(tmp_path / f"bundle{words[0]}")
        assert main(["export", run, "--out", bundle, "--observations", "5", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["action_difference"] <= 1e-5
        assert main(["flops", run, "--json"]) == 0
        rows = json.loads(capsys.readouterr().out)
        assert all(sum(row["by_component"].values()) == row["total"] for row in rows)


@pytest.mark.slow
def test_a_run_tells_what_it_was_made_with(tmp_path):
    run = tmp_path / "run"
    assert main(["train", "es", "--out", str(run), *TINY]) == 0
    config = json.loads((run / "config.json").read_text())
    assert {"python", "robopolicy", "jax", "mujoco", "onnxruntime"} <= config["versions"].keys()
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=Path(__file__).parent, capture_output=True, text=True
    )
    assert (config["git"] or {"commit": ""})["commit"] == head.stdout.strip()


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
    told = json.loads(capsys.readouterr().out)
    assert told["episodes"] == 2
    assert told["fraction_in_bowls_mean"] == 1.0
    opened = open_dataset(out, "bimanual-sweep", image_size=64)
    assert opened.about["seeds"] == told["seeds"]
    assert opened.about["renderer"]
    assert sum(opened.steps) == told["steps"]
    assert main(words) == 2
    assert "exists" in capsys.readouterr().err

    sweep = ["--task", "bimanual-sweep", "--json"]
    assert main(["evaluate", "oracle", "--episodes", "1", *sweep]) == 0
    assert json.loads(capsys.readouterr().out)["fraction_in_bowls_mean"] > 0.9
    assert main(["evaluate", "random", "--episodes", "1", "--episode-seconds", "3", *sweep]) == 0
    assert json.loads(capsys.readouterr().out)["fraction_in_bowls_mean"] == 0.0
    film = ["rollout", "oracle", "--episode-seconds", "1", "--size", "240", "240", "--engine", "bullet"]
    assert main([*film, "--video", str(tmp_path / "sweep.mp4"), *sweep]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["frames"], told["cause"]) == (10, "time")
    assert (tmp_path / "sweep.mp4").stat().st_size > 1000

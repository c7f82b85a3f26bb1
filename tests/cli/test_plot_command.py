"""`robopolicy plot`: the learning curves of runs."""

import json
import shutil

import numpy as np
import pytest

from robopolicy.cli import main
from robopolicy.costs.flops import count_step
from robopolicy.experiments.runs import find_run
from robopolicy.policies.catalogue import blank_policy, restore

ANGULAR, SOFTMAX, SWEEP = "stepping-stones-angular-8x8", "stepping-stones-softmax", "bimanual-sweep-angular"


@pytest.fixture
def copied(tmp_path):
    """Copies config and log of a shipped policy, changed; returns the folder."""

    def copy(name, run, *, seed=None, change=lambda config: None, log=lambda text: text):
        folder = tmp_path / run
        folder.mkdir()
        source, _ = find_run(name)
        config = json.loads((source / "config.json").read_text())
        if seed is not None:
            config["es" if "es" in config else "bc"]["seed"] = seed
        change(config)
        (folder / "config.json").write_text(json.dumps(config))
        (folder / "metrics.jsonl").write_text(log((source / "metrics.jsonl").read_text()))
        return str(folder)

    return copy


@pytest.fixture
def result_of(capsys, tmp_path):
    """Draws runs; returns what it says as JSON."""

    def run(*words):
        capsys.readouterr()
        out = tmp_path / "curves.svg"
        assert main(["plot", *words, "--out", str(out), "--json"]) == 0
        assert out.read_text().rstrip().endswith("</svg>")
        assert not list(tmp_path.glob(".*"))
        return json.loads(capsys.readouterr().out)

    return run


def records(name):
    return [json.loads(line) for line in (find_run(name)[0] / "metrics.jsonl").read_text().splitlines()]


def test_the_summary_equals_the_log(result_of):
    (curve,) = result_of(ANGULAR)["curves"]
    held = [r["held_out/return"] for r in records(ANGULAR) if "held_out/return" in r]
    ends = curve["series"]["held_out/return"]
    assert ends["points"] == [len(held)]
    assert (ends["first"], ends["last"], ends["highest"]) == (held[0], held[-1], max(held))
    assert ends["last_spread"] is None
    assert "loss" not in curve["series"]


def test_a_cloned_run_has_its_own_panels(result_of):
    found = result_of(SWEEP)
    assert found["by"] == "step"
    assert {"loss", "validation/loss", "validation/action_error"} <= found["curves"][0]["series"].keys()


def test_runs_that_differ_by_their_seeds_alone_are_one_curve(result_of, copied):
    def elsewhere(config):
        config["es"] |= {"checkpoint_every": 7, "keep_every": 7}
        config["git"] = None

    def shifted(text):
        lines = [json.loads(line) for line in text.splitlines()]
        moved = [r | {n: r[n] + 0.5 for n in ("held_out/return",) if n in r} for r in lines]
        return "".join(json.dumps(r) + "\n" for r in moved)

    second = copied(ANGULAR, "second", seed=1, change=elsewhere, log=shifted)
    other = copied(ANGULAR, "other", change=lambda config: config["es"].update(sigma=0.1))
    curves = result_of(ANGULAR, other, second, SOFTMAX)["curves"]
    assert [curve["runs"] for curve in curves] == [[ANGULAR, second], [other], [SOFTMAX]]
    spec = "angular_hybrid(m=8, n=8)"
    assert [curve["label"] for curve in curves] == [f"{spec} (sigma 0.3)", f"{spec} (sigma 0.1)", "softmax"]
    assert curves[0]["seeds"] == [0, 1]
    ends = curves[0]["series"]["held_out/return"]
    assert ends["last_spread"] == pytest.approx(0.5 / np.sqrt(2))
    assert ends["last"] == pytest.approx(curves[1]["series"]["held_out/return"]["last"] + 0.25)


def test_trainings_of_another_length_have_a_curve_of_their_own(result_of, copied):
    def longer(config):
        config["es"]["generations"] = 200

    runs = [copied(ANGULAR, f"longer-{seed}", seed=seed, change=longer) for seed in (0, 1)]
    curves = result_of(ANGULAR, *runs)["curves"]
    assert [curve["runs"] for curve in curves] == [[ANGULAR], runs]
    assert curves[1]["label"] == "angular_hybrid(m=8, n=8) (generations 200)"


def test_a_copy_of_a_run_is_no_second_seed(capsys, monkeypatch, tmp_path, copied):
    monkeypatch.setattr("robopolicy.viz.curves.learning_curves", lambda path, *drawn: None)
    copy, other = copied(ANGULAR, "copy"), copied(ANGULAR, "other", seed=1)
    assert main(["plot", ANGULAR, copy, other, "--out", str(tmp_path / "curves.svg"), "--json"]) == 0
    out, err = capsys.readouterr()
    both, alone = json.loads(out)["curves"]
    assert (both["runs"], both["seeds"]) == ([ANGULAR, other], [0, 1])
    assert (alone["runs"], alone["seeds"]) == ([copy], [0])
    assert alone["label"] == f"angular_hybrid(m=8, n=8) ({copy})"
    assert alone["series"]["held_out/return"]["last_spread"] is None
    assert err == f"{copy} has the settings and the seed of {ANGULAR}, and stays apart\n"


def test_the_flops_of_a_curve_are_those_of_its_steps(monkeypatch, result_of):
    import robopolicy.viz.curves as curves

    panels = []

    def draw(path, drawn, along, title):
        path.write_text("</svg>")
        panels.extend(drawn)

    monkeypatch.setattr(curves, "learning_curves", draw)
    result_of(ANGULAR, "--by", "flops")
    config = json.loads((find_run(ANGULAR)[0] / "config.json").read_text())
    price = count_step(blank_policy(restore(config["policy"]))).total
    (x, _) = panels[0].curves[0].runs[0]
    assert x[-1] == price * sum(r.get("steps", 0) for r in records(ANGULAR))
    (stage,) = panels[2].curves[0].changes
    painted = [r.get("steps", 0) for r in records(ANGULAR) if r.get("environment") == "painted"]
    assert stage > price * sum(painted)


def test_a_run_may_be_called_anything(result_of, copied):
    def change(config):
        config["es"] |= {"sigma": 0.1, "decay": 0.9, "elite": 0.4}  # more than a label names

    run = copied(ANGULAR, "$\\frac{$ <_a>", change=change)
    curves = result_of(ANGULAR, run)["curves"]
    assert curves[1]["label"] == "angular_hybrid(m=8, n=8) ($\\frac{$ <_a>)"


def test_a_run_in_progress_is_drawn_as_far_as_it_is(result_of, copied):
    half = copied(ANGULAR, "half", log=lambda text: text[: len(text) // 2])
    ends = result_of(half)["curves"][0]["series"]["return_mean"]
    assert 1 < ends["points"][0] < len(records(ANGULAR)) - 1


def test_values_that_are_not_finite_are_left_out(result_of, copied):
    bad = (
        '{"step": 2, "not_finite": "step 2: attention"}\n{"step": 250, "loss": NaN, "validation/loss": 30}\n'
    )
    run = copied(SWEEP, "bad", log=lambda text: bad + text.partition("\n")[2])
    series = result_of(run)["curves"][0]["series"]
    assert series["loss"]["points"] == [7]
    assert series["validation/loss"]["points"] == [8]


@pytest.mark.slow
def test_the_words_name_every_curve(capsys, tmp_path):
    out = tmp_path / "curves.png"
    assert main(["plot", ANGULAR, SOFTMAX, "--out", str(out), "--by", "episodes"]) == 0
    said = capsys.readouterr().out
    for words in (
        str(out),
        "over episodes",
        "angular_hybrid(m=8, n=8)",
        "softmax",
        "return on held-out seeds",
    ):
        assert words in said
    assert out.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "runs is empty"),
        (("nobody",), "run is 'nobody'"),
        ((f"{ANGULAR}@foo",), "checkpoint is 'foo': it must be last, best or a generation"),
        ((f"{ANGULAR}@999",), "999"),
        ((ANGULAR, ANGULAR), "each may occur once"),
        ((ANGULAR, SWEEP), f"{ANGULAR!r}, trained by es, and {SWEEP!r}, trained by bc"),
        ((ANGULAR, "--by", "step"), "by is 'step': it must be one of generation, episodes, seconds, flops"),
        ((SWEEP, "--by", "flops"), "by is 'flops': it must be one of step, seconds"),
        ((SOFTMAX, "--by", "seconds"), "has logged no wall_seconds"),
        ((ANGULAR, "--out", "curves.pdf"), "out is 'curves.pdf': its name must end in .png or .svg"),
    ],
)
def test_bad_input_of_plot_is_refused(refused, tmp_path, monkeypatch, words, said):
    monkeypatch.chdir(tmp_path)
    assert said in refused("plot", *words, *(() if "--out" in words else ("--out", "curves.svg")))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("log", "said"),
    [
        (lambda text: "", "it has logged nothing yet"),
        (lambda text: text[:40], "it has logged nothing yet"),
        (lambda text: text.replace("{", "", 1), "line 1 of"),
        (lambda text: text.replace('"generation": 7', '"generation": "7"'), "line 8 of"),
        (lambda text: text + text, "goes from generation 45 back to 0"),
        (
            lambda text: text.replace('"return_mean": ', '"return_mean": "high", "x": '),
            "return_mean is 'high'",
        ),
        (
            lambda text: text.replace('"generation": 45', f'"generation": {10**400}'),
            "numbers above 1e+300 for it",
        ),
        (lambda text: text.replace("painted", "\udcff"), "metrics.jsonl' is not JSON"),
    ],
)
def test_a_damaged_log_is_refused(refused, tmp_path, copied, log, said):
    run = copied(ANGULAR, "run")
    path = tmp_path / "run" / "metrics.jsonl"
    path.write_bytes(log(path.read_text()).encode(errors="surrogateescape"))
    assert said in refused("plot", run, "--out", str(tmp_path / "curves.svg"))


def test_flops_too_large_for_a_float_are_counted_again(result_of, copied):
    run = copied(ANGULAR, "run", change=lambda config: config.update(flops=10**400))
    ends = result_of(run, "--by", "flops")["curves"][0]["series"]["held_out/return"]
    assert ends["points"] == [len([r for r in records(ANGULAR) if "held_out/return" in r])]


def test_the_error_about_a_damaged_policy_names_its_run(refused, tmp_path, copied):
    run = copied(ANGULAR, "run", change=lambda config: config["policy"].update(kind="x"))
    out = ("--out", str(tmp_path / "curves.svg"))
    for words in (("plot", SOFTMAX, run, *out), ("compare", SOFTMAX, run, "--episodes", "1")):
        assert f"'{run}/config.json': policy kind is 'x'" in refused(*words)


def test_folders_that_are_no_runs_are_refused(refused, tmp_path, copied):
    out = ("--out", str(tmp_path / "curves.svg"))
    assert "describes no training" in refused(
        "plot", copied(ANGULAR, "a", change=lambda c: c.pop("es")), *out
    )
    run = copied(ANGULAR, "b")
    shutil.rmtree(run)
    (tmp_path / "b").mkdir()
    assert "holds no config.json" in refused("plot", run, *out)

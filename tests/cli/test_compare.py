"""`robopolicy compare`: runs on the same episodes, what they earn and what they cost."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from made_runs import PAPER, evaluation, made_run
from matplotlib.figure import Figure

from robopolicy.cli import main
from robopolicy.costs.flops import count_step
from robopolicy.experiments import comparison
from robopolicy.experiments.comparison import policies, verdicts
from robopolicy.experiments.comparison_table import table
from robopolicy.experiments.environments import Environment
from robopolicy.experiments.evaluators import EvaluatorConfig
from robopolicy.experiments.players import player
from robopolicy.experiments.runs import find_run, load
from robopolicy.experiments.train_es import checked_search
from robopolicy.experiments.trainings import difference
from robopolicy.policies.catalogue import blank_policy
from robopolicy.viz.trade_off import trade_off

ANGULAR, EXACT = "stepping-stones-angular-8x8", "stepping-stones-softmax"
SHORT = ("--episodes", "2", "--episode-seconds", "1.5")


def result_of(capsys, *words):
    capsys.readouterr()
    assert main(["compare", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_variants_of_one_mechanism_are_named(tmp_path):
    variants = [made_run(tmp_path / variant, "softmax", variant=variant) for variant in ("mask", "query")]
    names = [*variants, made_run(tmp_path / "all", "all")]
    place = Environment("stepping-stones", "mujoco", "paper")
    results = {name: evaluation(name, place, range(9000, 9003), 1.0).summary() for name in names}
    rows = comparison.rows_of(policies(names), results, {})
    assert sorted(comparison.titles(rows)) == ["all", "softmax, mask", "softmax, query"]


@pytest.mark.slow
def test_runs_of_one_policy_are_one_row_with_a_spread(capsys, tmp_path):
    picture = tmp_path / "compared.png"
    second = str(shutil.copytree(find_run(ANGULAR)[0], tmp_path / "second"))
    config = json.loads((tmp_path / "second" / "config.json").read_text())
    config["es"]["seed"] = 1
    (tmp_path / "second" / "config.json").write_text(json.dumps(config))
    rows = result_of(capsys, EXACT, ANGULAR, second, *SHORT, "--picture", str(picture))
    assert [row["runs"] for row in rows] == [[ANGULAR, second], [EXACT]]  # cheapest first
    for row in rows:
        config = load(row["runs"][0]).config
        assert row["attention"] == config.attention
        assert row["flops"] == count_step(blank_policy(config)).total
        assert row["latency_ms"] > 0
        assert row["return_mean"] == pytest.approx(np.mean(row["returns"]))
        assert 0 <= row["success_rate"] <= 1
    both, one = rows
    assert both["return_spread"] == pytest.approx(np.std(both["returns"], ddof=1))
    assert one["return_spread"] is None
    assert np.shape(both["episode_returns"]) == (2, 2)
    assert (
        both["return_interval"]["low"] <= both["return_interval"]["value"] <= both["return_interval"]["high"]
    )
    assert one["return_interval"] is None
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_only_trainings_that_differ_in_nothing_but_their_seeds_are_one_policy(tmp_path):
    names = [made_run(tmp_path / f"seed-{seed}", seed=seed) for seed in (0, 1)]
    names.append(made_run(tmp_path / "longer", seed=2, generations=9))
    names.append(made_run(tmp_path / "hard", seed=3, environment=PAPER | {"presets": ["hard"]}))
    names.append(made_run(tmp_path / "kept", seed=4, keep_every=5))
    names.append(made_run(tmp_path / "again", seed=0, generations=9))  # no copy of the first
    assert [group for _, group in policies(names)] == [
        [*names[:2], names[4]],
        [names[2], names[5]],
        [names[3]],
    ]


@pytest.mark.parametrize(("trainer", "later"), [("es", "average"), ("bc", "least_action")])
def test_runs_from_before_a_setting_are_like_those_with_its_default(trainer, later):
    older = {trainer: {"steps": 5}, "environment": {"presets": ["paper"]}}
    assert difference({"old": older, "new": {**older, trainer: {"steps": 5, later: 0.0}}}) == ""
    other = {trainer: {"steps": 5, later: 0.5}, "environment": {"presets": ["hard"]}}
    expected = f"presets is hard in the training of 'new' and paper in that of 'old' (others: {later})"
    assert difference({"old": older, "new": other}) == expected


def test_a_search_from_trained_weights_names_them():
    policy = load("stepping-stones-angular-8x8")
    untrained = replace(policy, run={})
    given = ("stepping-stones", None, (), EvaluatorConfig())
    configs = {n: checked_search(p, *given).settings for n, p in {"new": untrained, "old": policy}.items()}
    assert "init" not in configs["new"]
    assert "init is stepping-stones-angular-8x8 in the training of 'old' and not set" in difference(configs)
    first = configs["old"]["init"]
    configs["new"] = {**configs["old"], "init": {**first, "checkpoint": first["checkpoint"] - 1}}
    assert difference(configs).startswith("checkpoint of init is ")


def test_data_of_other_programs_are_told_apart_by_their_frames():
    clones = {n: {"bc": {"seed": 0}, "data": {"recording": None}, "frames_sha256": n} for n in "ab"}
    expected = "frames_sha256 is b in the training of 'b' and a in that of 'a'"
    assert difference(clones) == expected
    recorded = {n: {**config, "data": {"recording": {"seed": 0}}} for n, config in clones.items()}
    assert difference(recorded) == ""  # the frames of a recording differ between machines


def test_last_and_best_policies_are_not_pooled(tmp_path, capsys):
    names = [made_run(tmp_path / f"seed-{seed}", seed=seed) for seed in (0, 1)]
    chosen = [f"{names[0]}@2", names[1], names[0], f"{names[1]}@2"]
    assert [group for _, group in policies(chosen)] == [chosen[::3], chosen[1:3]]
    assert capsys.readouterr().err == ""


def test_verdicts_are_of_policies_with_several_trainings():
    def row(attention, *returns):
        return {"label": attention, "runs": [f"runs/{attention}-{i}" for i in range(len(returns))]} | {
            "episode_returns": [[each, each + 0.1, each - 0.1, each] for each in returns]
        }

    on_one_course = [row(name, 1, 2) | {"episode_returns": [[1.0], [2.0]]} for name in ("all", "none")]
    assert "n = 2 and 2 seeds, 1 course; " in verdicts(on_one_course)[0]
    good, bad, single = row("softmax", 7.0, 7.2, 7.1, 7.3), row("all", 1.0, 0.8, 1.2, 0.9), row("none", 0)
    first, last = verdicts([good, bad, single])
    assert first.startswith("softmax against all: softmax above all, p = 0.029, n = 4 and 4 seeds")
    assert first.endswith("the first is better in 100% of episodes (ties count half)")
    assert last.startswith("no verdict on policies of one training")
    assert "no difference shown" in verdicts([good, row("softmax", 7.3, 6.9, 7.1, 7.2)])[0]


@pytest.mark.slow
def test_p_is_corrected_for_all_pairs_of_a_table():
    def row(attention, *returns):
        runs = [f"runs/{attention}-{i}" for i in range(len(returns))]
        return {"label": attention, "runs": runs, "episode_returns": [[each] * 4 for each in returns]}

    high, low, few = row("all", 7.0, 7.2, 7.1, 7.3), row("none", 1.0, 0.8, 1.2, 0.9), row("few", 4.0, 4.1)
    equal = row("softmax", 7.1, 7.2, 7.0, 7.25)
    assert "all above none, p = 0.029," in verdicts([high, low, few])[0]  # one pair that can have a verdict
    assert not any("corrected" in line for line in verdicts([high, low, few]))
    *pairs, last = verdicts([high, low, equal])
    assert ["p = 0.043," in line for line in pairs] == [True, False, True]  # each alone has 0.029
    assert last == "p is corrected for 3 pairs (Benjamini and Hochberg)"


def test_returns_that_are_not_finite_are_refused_by_the_name_of_their_run(tmp_path):
    names = [made_run(tmp_path / f"seed-{seed}", "none", seed) for seed in (0, 1)]
    place = Environment("stepping-stones", "mujoco", "paper")
    results = {name: evaluation(name, place, range(9000, 9003), 1.0).summary() for name in names}
    results[names[1]]["returns"][2] = float("nan")
    with pytest.raises(ValueError, match=re.escape(f"{names[1]!r} has returns that are not finite")):
        comparison.rows_of(policies(names), results, {})


def test_a_row_holds_means_over_trainings_in_the_units_of_its_names(tmp_path):
    names = [made_run(tmp_path / f"seed-{seed}", "none", seed) for seed in (0, 1)]
    place, results = Environment("stepping-stones", "mujoco", "paper"), {}
    for name, level in zip(names, (1.0, 4.0), strict=True):
        results[name] = evaluation(name, place, range(9000, 9003), level).summary()
        results[name] |= {"distance_mean": level, "return_std": 2 * level, "success_rate": level / 8}
    (row,) = comparison.rows_of(policies(names), results, dict(zip(names, (0.001, 0.003), strict=True)))
    expected = {"return_mean": 2.51, "return_spread": 3 / 2**0.5, "return_std": 5.0, "latency_ms": 2.0}
    expected |= {"distance_mean": 2.5, "success_rate": 0.3125}
    assert {name: row[name] for name in expected} == pytest.approx(expected)


def test_a_picture_names_the_runs_of_policies_with_one_label(tmp_path, monkeypatch):
    names = [made_run(tmp_path / f"sigma-{sigma}", "none", sigma=sigma) for sigma in (0.1, 0.2)]
    drawn = []
    monkeypatch.setattr(comparison, "evaluate", lambda *given, **more: evaluation(*given, 1.0))
    monkeypatch.setattr("robopolicy.viz.trade_off.trade_off", lambda path, rows, title: drawn.extend(rows))
    place = Environment("stepping-stones", "mujoco", "paper")
    rows = comparison.compare(names, place, range(9000, 9003))
    comparison.draw_comparison(tmp_path / "compared.svg", rows, place.title)
    assert [row["label"] for row in drawn] == [f"none ({name})" for name in names]
    assert {row["label"] for row in rows} == {"none"}


def test_a_run_whose_name_has_control_characters_is_printed_without_them(tmp_path, capsys):
    names = [made_run(tmp_path / f"a\x1b[31m\n{sigma}", "none", sigma=sigma) for sigma in (0.1, 0.2)]
    names.append(made_run(tmp_path / "copy\x1b", "none", sigma=0.1))
    place = Environment("stepping-stones", "mujoco", "paper")
    results = {name: evaluation(name, place, range(9000, 9001), 1.0).summary() for name in names}
    text = table(comparison.rows_of(policies(names), results, {}), place.title)
    assert "(paper, mujoco), 1 unseen episode each; " in text
    assert f"none ({tmp_path}/a [31m 0.2) " in text
    assert f"{tmp_path}/copy has the settings" in (err := capsys.readouterr().err)
    assert "\x1b" not in text + err


@pytest.mark.slow
def test_policies_of_one_run_and_copies_of_it_are_no_seeds(capsys, tmp_path):
    runs = [ANGULAR, f"{ANGULAR}@best", str(shutil.copytree(find_run(ANGULAR)[0], tmp_path / "copy"))]
    rows = result_of(capsys, *runs, *SHORT)
    assert [row["runs"] for row in rows] == [[run] for run in runs]
    assert {row["return_spread"] for row in rows} == {None}


@pytest.mark.slow
def test_returns_equal_those_of_evaluate(capsys):
    rows = result_of(capsys, ANGULAR, EXACT, *SHORT)
    assert main(["evaluate", EXACT, *SHORT, "--json"]) == 0
    alone = json.loads(capsys.readouterr().out)
    assert rows[1]["return_mean"] == alone["return_mean"]
    assert rows[1]["distance_mean"] == alone["distance_mean"]


@pytest.mark.slow
def test_the_table_names_every_policy(capsys):
    assert main(["compare", ANGULAR, EXACT, *SHORT]) == 0
    out = capsys.readouterr().out
    for words in ("angular_hybrid(m=8, n=8)", "softmax", "latency", "parameters", "distance"):
        assert words in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "runs is empty"),
        ((ANGULAR,), "two or more"),
        ((ANGULAR, ANGULAR), "each of them once"),
        ((ANGULAR, "nowhere"), "'nowhere'"),
        ((ANGULAR, "bimanual-sweep-angular"), "all must be of one task"),
        ((ANGULAR, EXACT, "--episodes", "0"), "episodes is 0"),
        ((ANGULAR, EXACT, "--seed", "-1"), "seed is -1"),
        (
            (ANGULAR, EXACT, "--episodes", "100000000000"),
            "episodes is 100000000000: it must be a whole number",
        ),
        ((ANGULAR, EXACT, "--picture", "compared.jpg"), "must end in .png or .svg"),
        ((ANGULAR, EXACT, "--picture", "nowhere/compared.png"), "does not exist"),
        # Told by what `evaluate` runs too, whose tests of this are quicker: here a run is exported first.
        pytest.param((ANGULAR, EXACT, "--engine", "havok"), "havok", marks=pytest.mark.slow),
        pytest.param((ANGULAR, EXACT, "--preset", "lava"), "lava", marks=pytest.mark.slow),
    ],
)
def test_bad_input_of_compare_is_refused(refused, words, said):
    assert said in refused("compare", *words)


def test_a_run_that_is_damaged_is_refused_before_any_episode(refused, tmp_path):
    folder, _ = find_run(EXACT)
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    shutil.rmtree(copy / "checkpoints")
    assert str(copy) in refused("compare", ANGULAR, str(copy), *SHORT)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (lambda config: {"es": config["es"]}, "describes no policy: this is no run"),
        (
            lambda config: config | {"policy": config["policy"] | {"head_dim": 4}},
            "and the policy in its config.json do not fit: array draws/front/",
        ),
    ],
)
def test_settings_of_no_run_or_of_another_are_refused(refused, tmp_path, changed, said):
    copy = tmp_path / "copy"
    shutil.copytree(find_run(ANGULAR)[0], copy)
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(changed(config)))
    line = refused("compare", EXACT, str(copy), *SHORT)
    assert str(copy) in line
    assert said in line


@pytest.mark.parametrize("task", [None, "chess"])
def test_a_run_of_no_task_is_refused(refused, tmp_path, task):
    copy = tmp_path / "copy"
    shutil.copytree(find_run(EXACT)[0], copy)
    config = json.loads((copy / "config.json").read_text()) | {"task": task}
    (copy / "config.json").write_text(json.dumps(config))
    assert f"task of the run {str(copy)!r} is {task!r}" in refused("compare", ANGULAR, str(copy), *SHORT)


def test_one_run_under_two_names_is_refused(refused, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(find_run(EXACT)[0], copy)
    assert "each of them once" in refused("compare", str(copy), f"{copy}/", *SHORT)


def test_a_run_does_not_share_the_name_of_a_baseline(refused, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("random", "oracle"):
        made_run(tmp_path / name, "none")
        said = f"run is {name!r}: a baseline has this name, so write ./{name}\n"
        assert refused("compare", ANGULAR, name, *SHORT).endswith(said)
        assert refused("report", name, "--out", "page.html").endswith(said)
        for run in (f"./{name}", Path(name)):
            assert player(run, "stepping-stones").policy.config.label == "none"
    assert comparison.runs_in(["."]) == ["./oracle", "./random"]


@pytest.mark.parametrize("name", ["/proc/compared.png", "x" * 236 + ".png"])
def test_a_picture_that_cannot_be_written_is_refused_before_any_episode(refused, name):
    said = refused("compare", ANGULAR, EXACT, "--picture", name)
    assert f"picture is '{name[:50]}" in said
    assert "': nothing can be written there" in said


def test_a_disk_that_is_full_at_the_end_leaves_the_table(capsys, tmp_path, monkeypatch, full_disk):
    names = [made_run(tmp_path / f"sigma-{sigma}", "none", sigma=sigma) for sigma in (0.1, 0.2)]
    monkeypatch.setattr(comparison, "evaluate", lambda *given, **more: evaluation(*given[:3], 1.0))
    picture = tmp_path / "compared.svg"
    full_disk(picture.name)
    assert main(["compare", *names, *SHORT, "--picture", str(picture)]) == 1
    out, err = capsys.readouterr()
    assert f"\nnone ({names[1]}) " in out
    assert f"{picture}: the disk is full" in err


@pytest.mark.parametrize("ratio", [1, 1.002, 1.18, 2, 9.9])
def test_labels_of_flops_do_not_overlap(tmp_path, monkeypatch, ratio):
    drawn = []
    monkeypatch.setattr(Figure, "savefig", lambda self, path, **_: drawn.append(self) or path.touch())
    alike = {"returns": [7.5], "return_mean": 7.5, "return_interval": None}
    for count in (512_345, 1_342_092):
        rows = [{"label": str(flops), "flops": flops, **alike} for flops in (count, round(ratio * count))]
        trade_off(tmp_path / "a.png", rows, "stepping-stones")
        drawn[-1].draw_without_rendering()
        axis = drawn[-1].axes[0].xaxis
        boxes = [text.get_window_extent() for text in axis.get_ticklabels(which="both") if text.get_text()]
        assert len(boxes) > 1
        assert not any(box.overlaps(other) for n, box in enumerate(boxes) for other in boxes[:n])


def test_the_same_rows_give_the_same_picture_to_the_byte(tmp_path):
    middle = {"value": 7.55, "low": 7.5, "high": 7.6}
    alike = {"returns": [7.5, 7.6], "return_mean": 7.55, "return_interval": middle}
    rows = [{"label": f"positive(m={m})", "flops": m * 1e6, **alike} for m in (1, 20)]
    for name in ("a.svg", "b.svg"):
        trade_off(tmp_path / name, rows, "stepping-stones")
    drawn = (tmp_path / "a.svg").read_bytes()
    assert drawn == (tmp_path / "b.svg").read_bytes()

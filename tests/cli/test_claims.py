"""`robopolicy compare --claim`, and what `compare` says without it."""

import json
from pathlib import Path

import pytest
from made_runs import PAPER, evaluation, made_run

from robopolicy.cli import main
from robopolicy.experiments import comparison
from robopolicy.experiments.claims import check_claim

MECHANISMS = ("softmax", "all", "all, relu", "all, cnn", "none")


@pytest.fixture(scope="module")
def table(once):
    """A folder with four complete trainings of a mechanism and of each control."""

    def make(folder):
        for attention in MECHANISMS:
            for seed in range(4):
                made_run(folder / f"{attention}-{seed}", attention, seed)

    return once("claims", make)


@pytest.fixture
def played(monkeypatch):
    """No episode is played: a return is the length of the mechanism's name, and the seed."""

    def evaluate(name, environment, seeds, **more):
        more["on_begin"]()
        attention, seed = name.partition("@")[0].rpartition("/")[2].split("-")
        return evaluation(name, environment, seeds, len(attention) + 0.1 * int(seed))

    monkeypatch.setattr(comparison, "evaluate", evaluate)


@pytest.fixture
def no_episodes(monkeypatch):
    """A comparison must be refused before it plays."""
    monkeypatch.setattr(comparison, "evaluate", None)


def names(folder, *mechanisms, seeds=4):
    return [str(folder / f"{attention}-{seed}") for attention in mechanisms for seed in range(seeds)]


@pytest.mark.slow
def test_a_claim_of_four_trainings_each_beside_its_controls_is_accepted(table, played, capsys):
    assert main(["compare", str(table), "--claim", "--episodes", "3", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["label"], len(row["runs"])) for row in rows] == [
        (name, 4) for name in ("none", "all", "all, relu", "all, cnn", "softmax")
    ]
    assert main(["compare", str(table), "--claim", "--episodes", "3"]) == 0
    out = capsys.readouterr().out
    assert "n = 4 and 4 seeds, 3 courses" in out
    assert "controls" not in out


@pytest.mark.slow
def test_a_comparison_says_which_controls_it_lacks(table, played, capsys):
    assert main(["compare", *names(table, "softmax", "all"), "--episodes", "2"]) == 0
    out = capsys.readouterr().out
    assert "controls are missing: all, relu; all, cnn; none. Without them" in out
    assert "the trainings differ" not in out


@pytest.mark.slow
def test_a_comparison_says_in_what_trainings_differ(table, played, capsys, tmp_path):
    hard = PAPER | {"presets": ["hard"], "engine": "bullet"}
    first = names(table, "softmax")[0]
    other = made_run(tmp_path / "none-4", "none", 4, environment=hard, population=8)
    line = f"the trainings differ, not only the policies: presets is hard in the training of {other!r} and "
    line += f"paper in that of {first!r} (others: engine, population)\n"
    assert main(["compare", first, other, "--episodes", "2"]) == 0
    assert capsys.readouterr().out.endswith(line)
    assert main(["compare", first, other, "--episodes", "2", "--json"]) == 0
    out, err = capsys.readouterr()
    assert len(json.loads(out)) == 2
    assert err.endswith(line)


@pytest.mark.slow
def test_a_comparison_names_trainings_that_are_not_complete(table, played, capsys, tmp_path):
    short, longer = (made_run(tmp_path / f"none-{done}", "none", done, done=done) for done in (1, 3))
    ended = made_run(tmp_path / "none-4", "none", 4, done=1)
    limits = {"generations": 1, "stop_at": None, "stop_after": 1, "episode_budget": 0, "seconds_budget": 0.0}
    (tmp_path / "none-4" / "limits.json").write_text(json.dumps(limits))
    assert main(["compare", names(table, "softmax")[0], short, longer, ended, "--episodes", "2"]) == 0
    said = f"the training of {short!r} is stopped, after generation 1 of 2\n"
    said += f"the training of {longer!r} went on to generation 3, beyond its 2\n"
    said += f"the training of {ended!r} was ended at generation 1, before its 2\n"
    assert capsys.readouterr().out.endswith(said)


@pytest.mark.slow
def test_a_comparison_names_a_training_once_and_plays_one_with_a_damaged_log(table, played, capsys, tmp_path):
    short, damaged = (made_run(tmp_path / f"none-{done}", "none", done, done=done) for done in (1, 2))
    with Path(damaged, "metrics.jsonl").open("a") as log:
        log.write("{bad\n")
    assert main(["compare", short, f"{short}@1", damaged, "--episodes", "2"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("the training of")]
    assert lines[0] == f"the training of {short!r} is stopped, after generation 1 of 2"
    assert lines[1].startswith(f"the training of {damaged!r} is damaged (line 4 of")
    assert len(lines) == 2


@pytest.mark.slow
def test_a_claim_without_controls_is_refused(table, no_episodes, refused):
    line = refused("compare", *names(table, "softmax"), "--claim")
    assert "runs lacks the controls all; all, relu; all, cnn; none: a claim needs them" in line


@pytest.mark.slow
def test_a_claim_from_three_trainings_is_refused(table, no_episodes, refused):
    line = refused("compare", *names(table, *MECHANISMS)[1:], "--claim")
    assert "softmax has 3 trainings" in line
    assert "a claim needs 4 or more of each policy" in line


def test_a_claim_on_recorded_episodes_is_refused(tmp_path):
    name = made_run(tmp_path / "softmax-0", "softmax", 0)
    path = tmp_path / "softmax-0" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "task": "recorded"}))
    with pytest.raises(ValueError, match="it plays recorded episodes, and a claim"):
        check_claim([name], range(20000, 20003))


def test_a_claim_from_policies_of_other_generations_is_refused(table, no_episodes, refused):
    *others, last = names(table, *MECHANISMS)
    line = refused("compare", *others, f"{last}@2", "--claim")
    assert f"runs has the policy 2 of '{last}@2' and last of {others[0]!r}: a claim needs the same" in line


@pytest.mark.rest_slow
@pytest.mark.parametrize(("seed", "is_used"), [(7995, True), (8999, True), (7994, False), (9000, False)])
def test_a_claim_on_seeds_that_choose_policies_is_refused(table, no_episodes, refused, seed, is_used):
    # The last error is that of runs without controls.
    words = ("compare", *names(table, "softmax"), "--claim", "--episodes", "6", "--seed", str(seed))
    said = f"seed is {seed}: trainings choose policies on seeds from 8000 to 8999" if is_used else "controls"
    assert said in refused(*words)


ROUNDS = {
    "dataset 0": {"recording": None},
    "dataset 1": {"recording": {"seed": 9000, "episodes": 20, "keep_failed": True}},
}
REPLACED = {"recording": {"seed": 8819, "episodes": 20}}  # up to 220 seeds, if episodes fail


@pytest.mark.parametrize(
    "learned", [ROUNDS["dataset 1"], ROUNDS, REPLACED], ids=("one", "rounds", "replaced")
)
def test_a_claim_on_seeds_of_the_data_is_refused(table, no_episodes, refused, tmp_path, learned):
    other = made_run(tmp_path / "none-4", "none", 4)
    config = tmp_path / "none-4" / "config.json"
    whole = json.loads(config.read_text())
    first, last = (8819, 9038) if learned is REPLACED else (9000, 9019)
    said = f"the training of {other!r} may have data of seeds from {first} to {last}, so a claim needs others"
    for more in {"data": learned}, {"init": {"run": "first", "trained": {"bc": {}, "data": learned}}}:
        config.write_text(json.dumps({**whole, **more}))
        words = ("compare", *names(table, "softmax"), other, "--claim", "--episodes", "6", "--seed")
        assert f"seed is {last}: {said}" in refused(*words, f"{last}")
        assert said not in refused(*words, f"{last + 1}")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"data": [1]}, r"data is \[1\]: it must be settings by name"),
        ({"data": {"first": 3}}, "first is 3: it must be settings by name"),
        ({"data": {"recording": {"seed": "0", "episodes": 2}}}, "the seed of a recording is '0': it must be"),
        ({"init": {"trained": {"data": "x"}}}, "data is 'x': it must be settings by name"),
    ],
    ids=("data", "dataset", "seed", "init"),
)
def test_a_claim_on_a_damaged_description_of_data_is_refused(tmp_path, more, said):
    name = made_run(tmp_path / "softmax-0", "softmax", 0)
    path = tmp_path / "softmax-0" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **more}))
    with pytest.raises(ValueError, match=f"in the config.json of {name!r}, {said}"):
        check_claim([name], range(20000, 20003))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"environment": PAPER | {"presets": ["painted", "paper"]}}, "presets is painted, paper in the"),
        ({"environment": PAPER | {"engine": "bullet"}}, "engine is bullet in the training of"),
        ({"generations": 3, "done": 3}, "generations is 3 in the training of"),
        ({"population": 8}, "population is 8 in the training of"),
        ({"episodes": (2,)}, "episodes is 2 in the training of"),
        ({"stop_at": 7.5}, "stop_at is 7.5 in the training of"),
        ({"sigma": 0.1}, "sigma is 0.1 in the training of"),
        ({"done": 1}, "is stopped, after generation 1 of 2: a claim needs complete ones of the same budget"),
        (
            {"generations": 9, "episode_budget": 2, "done": 2},
            "went on to generation 2, beyond its 1: a claim needs complete ones of the same budget",
        ),
        ({"done": 3}, "went on to generation 3, beyond its 2: a claim needs complete ones of the same"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_claim_from_trainings_that_differ_is_refused(table, no_episodes, refused, tmp_path, changed, said):
    other = made_run(tmp_path / "none-4", "none", 4, **changed)
    line = refused("compare", *names(table, *MECHANISMS), other, "--claim")
    assert said in line
    assert other in line


@pytest.mark.slow
def test_seeds_and_checkpoints_may_differ_in_a_claim(table, played, tmp_path):
    other = made_run(tmp_path / "none-4", "none", 4, checkpoint_every=2, keep_every=2)
    assert main(["compare", *names(table, *MECHANISMS), other, "--claim", "--episodes", "2"]) == 0

"""`robopolicy plan`: what a budget buys."""

import json
import re
from dataclasses import replace

import pytest

from robopolicy.attention.catalogue import MECHANISMS
from robopolicy.cli import main
from robopolicy.experiments import memory_plan
from robopolicy.experiments.memory_plan import MEASURED
from robopolicy.experiments.runs import load, trained_on
from robopolicy.plan import families
from robopolicy.policies.policy import Policy
from robopolicy.training.rollout import Playing


def result_of(capsys, *words):
    capsys.readouterr()
    assert main(["plan", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.fixture(
    name="budget",
    params=[pytest.param("few", marks=pytest.mark.slow), pytest.param("all", marks=pytest.mark.full)],
)
def budget_of_mechanisms(request, monkeypatch):
    """A plan considers few mechanisms, or all; a budget that buys what is exact enough."""
    if request.param == "few":
        for sizes in ("SIZES", "HYBRID_SIZES", "COEFFICIENT_SIZES"):
            monkeypatch.setattr(families, sizes, (4, 8))
        monkeypatch.setattr(families, "COUPLINGS", ("orthogonal",))
        monkeypatch.setattr(families, "PHASES", ())
        return 1_400_000
    return 671_046


def test_a_plan_for_recorded_frames_is_measured_on_others(capsys, budget):
    plan = result_of(capsys, "--budget", str(budget), "--tokens", "384", "--verify", "2")
    choice, front = plan["choice"], plan["front"]
    assert choice in [{k: v for k, v in row.items() if k != "measured"} for row in front]
    assert choice["flops"] <= budget
    assert choice["error"] <= plan["error_allowed"]
    assert choice["tokens"] == 384
    assert plan["pairs"]["query_length"] == pytest.approx(1.0, abs=1e-3)  # as Appendix K has them
    for row in front:
        assert row["measured"] == pytest.approx(row["error"], rel=0.15)
    for row in plan["resolutions"]:
        assert row["reference"]["attention"] == "angular_hybrid(m=8, n=8)"
        assert row["without_attention"] < row["softmax"]


@pytest.mark.usefixtures("budget")
def test_the_table_shows_where_softmax_wins(capsys):
    words = ("--budget", "200000", "--tokens", "96", "--norm", "1.5", "--error", "0.2")
    assert main(["plan", *words]) == 0
    out = capsys.readouterr().out
    assert "queries and keys in random directions: 1.50 and 1.50 long" in out
    assert "exact softmax wins, as nothing cheaper has an error of 0.2 or less: 96 tokens (patch 4)" in out
    assert "choice: softmax with 96 tokens (patch 4)" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "Missing"),
        (("--budget", "0"), "budget is 0"),
        (("--budget", "many"), "budget"),
        (("--budget", "5", "--task", "chess"), "task is 'chess'"),
        (("--budget", "5", "--policy", "nobody"), "run is 'nobody'"),
        (
            ("--budget", "5", "--policy", "bimanual-sweep-angular", "--task", "stepping-stones"),
            "was trained on 'bimanual-sweep'",
        ),
        pytest.param(
            ("--budget", "5", "--policy", "bimanual-sweep-angular"),
            "budget is 5: it must be above 136593888",
            marks=pytest.mark.slow,
        ),
        (("--budget", "5", "--policy", "stepping-stones-no-vision"), "has no attention"),
        (
            ("--budget", "5", "--tokens", "100"),
            "tokens is 100: a patch that fits the image makes 24, 96, 384",
        ),
        (("--budget", "5", "--norm", "0.05"), "norm is 0.05: it must be a number from 0.1 to 10"),
        (("--budget", "5", "--norm", "1", "--engine", "ode"), "engine is 'ode'"),
        (("--budget", "5", "--norm", "1", "--engine", "mujoco"), "engine is 'mujoco': with norm no frames"),
        (("--budget", "5", "--verify", "1000"), "verify is 1000: it must be a whole number from 0 to 256"),
        (("--budget", "5", "--norm", "nan"), "norm is nan"),
        (("--budget", "5", "--error", "-1"), "error is -1"),
        (("--budget", "5", "--verify", "-1"), "verify is -1"),
        (("--budget", "5", "--verify", "2", "--norm", "1"), "verify is 2: with norm"),
        (("--budget", "5", "--engine", "ode"), "engine is 'ode'"),
    ],
)
def test_bad_input_is_one_line_that_names_it(refused, words, said):
    assert said in refused("plan", *words)


MEMORY = ("--policy", "stepping-stones-memory")


@pytest.mark.slow
def test_a_plan_for_a_memory_has_errors_of_reads_and_bytes_of_state(capsys, monkeypatch):
    monkeypatch.setattr(memory_plan, "SIZES", (32, 256))
    monkeypatch.setattr(memory_plan, "MEASURED", {name: counts[:1] for name, counts in MEASURED.items()})
    plan = result_of(capsys, "--budget", "3000000", *MEMORY)
    rows = {row["attention"]: row for row in plan["rows"]}
    few, many = (rows[f"trigonometric(m={m}, coupling=iid)"] for m in (32, 256))
    assert (few["error"], few["note"]) == (None, memory_plan.TOO_LARGE)
    assert 0.01 < many["error"] < 0.2
    assert many["state_bytes"] == 4 * (2 * 2 * 256 + 2)
    assert rows["softmax"]["error"] == 0.0
    notes = {row["note"] for spec, row in rows.items() if spec.startswith("angular_hybrid")}
    assert notes == {memory_plan.NO_FORMULA}
    listed = {spec.partition("(")[0] for spec in (*rows, *(row["attention"] for row in plan["beyond"]))}
    assert listed == {*MECHANISMS, "softmax"}
    assert plan["choice"]["flops"] <= 3_000_000
    assert {row["policy"] for row in plan["controls"]} >= {"all, map", "all, gru", "none"}


@pytest.mark.parametrize("option", ["tokens", "error", "norm"])
def test_a_plan_for_a_memory_refuses_options_without_effect(refused, option):
    line = refused("plan", "--budget", "3000000", *MEMORY, f"--{option}", "1")
    assert f"{option} is 1" in line
    assert "has a memory, and its plan takes no" in line


@pytest.mark.slow
def test_a_budget_that_buys_no_known_memory_is_refused_before_any_episode(refused, monkeypatch):
    monkeypatch.setattr(memory_plan, "recorded_windows", lambda *parts: pytest.fail("an episode is played"))
    monkeypatch.setattr(
        memory_plan, "specs", lambda: iter([("angular_hybrid(m=8, n=8)", "angular_hybrid", 0)])
    )
    line = refused("plan", "--budget", "600000", *MEMORY)
    assert line.endswith("--verify measures the errors of the 1 that it buys\n")
    line = refused("plan", "--budget", "1000", *MEMORY)
    assert re.search(
        r"budget is 1000: it buys no memory whose error is known; a step takes \d+ at least$", line
    )


@pytest.mark.slow
def test_an_episode_that_fills_the_memory_has_a_window(monkeypatch):
    def first_episode(env, seed):
        assert seed == 0, "a second episode begins"
        return Playing(env, seed)

    monkeypatch.setattr(memory_plan, "Playing", first_episode)
    shipped = load("stepping-stones-memory")
    trained = replace(shipped, config=replace(shipped.config, memory_steps=41))
    environment = replace(trained_on(shipped), engine="mujoco", episode_seconds=2.5)
    windows = memory_plan.recorded_windows(trained, environment, 1, 0)
    assert (len(windows), windows[0].k.shape[0]) == (1, 41)
    short = replace(environment, episode_seconds=0.5)
    with pytest.raises(ValueError, match="its episodes end before its memory is full"):
        memory_plan.recorded_windows(trained, short, 1, 0)


def test_heads_that_are_too_narrow_are_refused(refused, monkeypatch):
    trained = load("stepping-stones-softmax")
    narrow = Policy.create(replace(trained.config, head_dim=1), trained.features["level"])
    narrow = replace(narrow, run=trained.run)
    monkeypatch.setattr("robopolicy.experiments.planning.load", lambda name: narrow)
    assert "its queries and keys are 1 wide" in refused("plan", "--budget", "5")


def test_a_task_without_a_shipped_policy_needs_one_of_yours(refused):
    line = refused("plan", "--env", "planar_arm:PlanarArm-v0", "--budget", "5")
    assert "no shipped policy of planar_arm:PlanarArm-v0 has" in line
    assert line.endswith("; give --policy RUN\n")

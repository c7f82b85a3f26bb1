"""The trainer: learning, curriculum and ends of a run."""

import json
import time

import gymnasium
import jax
import numpy as np
import pytest
import toy
from toy_runs import FEATURES, START, Quadratic, config, log, run, trained_on_the_toy

from robopolicy.training.checkpoint import MEAN, RunFolder, load_policy
from robopolicy.training.es import ESConfig, generation_seeds, train
from robopolicy.training.evaluate import Evaluations
from robopolicy.training.metrics import read
from robopolicy.training.normaliser import Normaliser
from robopolicy.training.rollout import Episode, Moments
from robopolicy.training.wandb_sink import WandbSink


@pytest.mark.slow
def test_returns_rise_and_are_logged(tmp_path):
    folder = run(tmp_path / "run", generations=30, learning_rate=0.1)
    records = read(folder.metrics_path)
    assert [r["generation"] for r in records] == list(range(31))
    assert records[-1]["return_mean"] > records[1]["return_mean"] / 4
    assert records[-1]["held_out/return"] > records[0]["held_out/return"] / 4
    assert records[1]["episodes"] == 8
    assert records[1]["steps"] == 56
    assert any((folder.path / "tensorboard").iterdir())


@pytest.mark.slow
def test_a_search_that_diverges_ends_the_run_before_it_is_saved(tmp_path, monkeypatch):
    search = config().make_strategy()
    diverging = search._replace(mean=lambda state: search.mean(state) / (state.generation_counter < 4))
    monkeypatch.setattr(ESConfig, "make_strategy", lambda self: diverging)
    with pytest.raises(FloatingPointError, match=r"mean of generation 4 is not finite.*lower sigma"):
        run(tmp_path / "run")
    assert RunFolder(tmp_path / "run").generations() == [1, 2, 3]


def test_an_episode_before_the_first_generation_may_be_refused(tmp_path):
    seen = []
    folder = run(tmp_path / "run", generations=1, on_first=seen.append)
    assert len(seen) == config().held_out
    assert all("success" in info for info in seen)

    def refuse(info):
        raise ValueError("it has no success")

    with pytest.raises(ValueError, match=r"^it has no success$"):
        run(tmp_path / "refused", on_first=refuse)
    assert RunFolder(tmp_path / "refused").generations() == []
    assert folder.generations() == [1]


def test_a_time_budget_does_not_leave_the_last_generation_unevaluated(tmp_path):
    folder = run(tmp_path / "run", generations=50, evaluate_every=100, seconds_budget=1e-3)
    assert log(folder)[-1]["generation"] == 1
    assert "held_out/return" in log(folder)[-1]


@pytest.mark.slow
def test_weights_and_biases_logs_every_generation(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    folder = RunFolder(tmp_path / "run")
    folder.create({})
    sink = WandbSink("a-project", folder.path, {"population": 8})
    train(config(), run=folder, initial=START, features=FEATURES, evaluator=Quadratic(), sinks=[sink])
    (written,) = folder.path.glob("wandb/offline-run-*/run-*.wandb")
    expected = {"a-project", (folder.path / "wandb_id").read_text()}
    for record in read(folder.metrics_path):
        expected |= {json.dumps(record[name]) for name in record.keys() & {"return_mean", "held_out/return"}}
    for _ in range(300):  # the process of wandb writes the file, perhaps after the end of the run
        missing = {text for text in expected if text.encode() not in written.read_bytes()}
        if not missing:
            break
        time.sleep(0.1)
    assert not missing


@pytest.mark.slow
def test_a_stage_ends_when_three_generations_reach_its_threshold(tmp_path):
    records = read(run(tmp_path / "run", generations=30, learning_rate=0.1).metrics_path)[1:]
    played = [r["environment"] for r in records]
    moved = played.index("real")
    assert played == ["easy"] * moved + ["real"] * (30 - moved)
    assert np.mean([r["return_mean"] for r in records[moved - 3 : moved]]) >= -3.0
    assert np.mean([r["return_mean"] for r in records[moved - 4 : moved - 1]]) < -3.0


@pytest.mark.slow
@pytest.mark.parametrize("normalise", [False, True])
def test_a_run_does_not_depend_on_the_number_of_its_workers(tmp_path, normalise):
    settings = {"graph": toy.normalising_graph(), "watched": ("point",), "normalised": {"point": 3}}
    folders = [
        trained_on_the_toy(tmp_path / str(workers), workers, **(settings if normalise else {}))
        for workers in (1, 3)
    ]
    first, second = (folder.load()[1] for folder in folders)
    assert first.keys() == second.keys()
    for path in first.keys() - {"progress/seconds"}:
        np.testing.assert_array_equal(first[path], second[path], err_msg=path)
    assert log(folders[0]) == log(folders[1])


def test_statistics_ignore_episodes_with_observations_that_are_not_finite():
    def seen(total):
        return Episode(0.0, 1, {}, 0.0, {"point": Moments(2, np.array([total, 1.0]), np.array([total, 1.0]))})

    empty = Normaliser.empty({"point": 2})
    whole, broken = empty.after([[seen(3.0)]]), empty.after([[seen(np.nan), seen(3.0)], [seen(np.inf)]])
    np.testing.assert_array_equal(broken.vector(), whole.vector())


def test_an_observation_that_is_nearly_constant_is_scaled_by_a_hundred_at_most():
    seen = Episode(0.0, 2, {}, 0.0, {"point": Moments(2, np.array([6.0]), np.array([18.0]))})
    np.testing.assert_allclose(Normaliser.empty({"point": 1}).after([[seen]]).vector(), [3.0, 100.0])


@pytest.mark.slow
def test_statistics_cover_all_training_episodes(tmp_path):
    settings = {"graph": toy.normalising_graph(), "watched": ("point",), "normalised": {"point": 3}}
    folder = trained_on_the_toy(tmp_path / "run", 2, generations=4, **settings)
    # All three steps of an episode show the point that its seed draws; the seeds before the first count too.
    seeds = [seed for g in range(5) for seed in generation_seeds(config(episodes=(2,)), g)]
    weights = np.repeat([1] + [8] * 4, 2)  # candidates that played them
    points = np.array([gymnasium.make(toy.ID).reset(seed=seed)[0]["point"] for seed in seeds], np.float64)
    mean = np.average(points, axis=0, weights=weights)
    deviation = np.sqrt(np.average((points - mean) ** 2, axis=0, weights=weights))
    features = load_policy(folder.path)[1]
    np.testing.assert_allclose(features["normaliser/point/shift"], mean, rtol=1e-5)
    np.testing.assert_allclose(features["normaliser/point/scale"], 1 / deviation, rtol=1e-5)
    # The best policy keeps the statistics that it was best with.
    _, at_best = load_policy(folder.path, "best")
    assert not np.array_equal(at_best["normaliser/point/shift"], features["normaliser/point/shift"]) or (
        read(folder.metrics_path)[-1]["held_out/return"]
        == max(r.get("held_out/return", -np.inf) for r in read(folder.metrics_path))
    )


@pytest.mark.rest_slow
@pytest.mark.parametrize(
    ("changed", "last", "words"),
    [
        ({"episode_budget": 20}, 3, "20 episodes"),
        pytest.param({"seconds_budget": 1e-6}, 1, "1e-06 s", marks=pytest.mark.slow),
        ({"stop_at": -4.0, "learning_rate": 0.3}, None, "reached stop_at"),
        ({"stop_after": 2, "stage_limit": 1}, None, "2 evaluations"),
    ],
)
def test_a_run_ends_early_by_its_settings(tmp_path, changed, last, words):
    folder = RunFolder(tmp_path / "run")
    folder.create({})
    settings = config(**{"generations": 40, "evaluate_every": 1, **changed})
    evaluator = Quadratic(slope=0.0 if "stop_after" in changed else 1.0)
    record = train(settings, run=folder, initial=START, features=FEATURES, evaluator=evaluator)
    assert words in record["ended_by"]
    ended = read(folder.metrics_path)[-1]["generation"]
    assert ended < 40
    assert folder.generations()[-1] == ended
    assert last in (None, ended)
    # A resume does not continue it, unless its settings change.
    again = train(settings, run=folder, initial=START, features=FEATURES, evaluator=evaluator, resume=True)
    assert again is None


def test_a_stage_ends_at_its_limit_and_has_its_own_number_of_episodes(tmp_path):
    folder = run(tmp_path / "run", advance_at=(99.0,), stage_limit=4, episodes=(1, 3))
    records = read(folder.metrics_path)[1:]
    assert [r["environment"] for r in records] == ["easy"] * 4 + ["real"] * 2
    assert [r["episodes"] for r in records] == [8] * 4 + [24] * 2


def test_evaluations_count_as_stale_on_the_last_environment_alone(tmp_path):
    settings = {"advance_at": (99.0,), "stage_limit": 0, "evaluate_every": 1, "stop_after": 2}
    assert len(log(run(tmp_path / "run", Quadratic(slope=0.0), generations=4, **settings))) == 5


def test_held_out_episodes_are_the_same_in_every_run(tmp_path):
    asked = []

    class Asked(Quadratic):
        def evaluate(self, population, seeds, environment=-1, *more):
            asked.extend([list(seeds)] if environment == -1 else ())
            return super().evaluate(population, seeds, environment, *more)

    for seed in (5, 6):
        run(tmp_path / str(seed), Asked(), generations=1, held_out=3, seed=seed)
    assert asked == 4 * [[8000, 8001, 8002]]


def test_the_best_policy_is_the_mean_of_the_highest_held_out_return(tmp_path):
    returns = iter([0.0, 3.0, 7.0, 5.0, 6.0])

    class Scripted(Quadratic):
        def evaluate(self, population, seeds, environment=-1, *more):
            found = super().evaluate(population, seeds, environment, *more)
            level = next(returns) if environment == -1 else None
            each = ([one if level is None else one._replace(total=level) for one in row] for row in found[0])
            return Evaluations(list(each))

    folder = run(tmp_path / "run", Scripted(), generations=4, evaluate_every=1, keep_every=1)
    np.testing.assert_array_equal(load_policy(folder.path, "best")[0], folder.load(2)[1][MEAN])


def test_every_draw_of_a_search_has_a_key_of_its_own(tmp_path, monkeypatch):
    search, keys = config().make_strategy(), []

    def noted(function):
        def call(key, *arguments):
            keys.append(tuple(jax.random.key_data(key).tolist()))
            return function(key, *arguments)

        return call

    noting = search._replace(**{name: noted(getattr(search, name)) for name in ("init", "ask", "tell")})
    monkeypatch.setattr(ESConfig, "make_strategy", lambda self: noting)
    for seed in (5, 6):
        run(tmp_path / str(seed), generations=3, seed=seed)
    assert len(set(keys)) == len(keys) == 2 * (1 + 2 * 3)


@pytest.mark.slow
def test_the_result_is_a_mean_of_means_that_leaves_the_search_as_it_is(tmp_path):
    plain = run(tmp_path / "plain", keep_every=1)
    averaging = run(tmp_path / "averaging", keep_every=1, average=0.5)
    generations = plain.generations()
    centres, averages = (
        np.array([folder.load(generation)[1][MEAN] for generation in generations])
        for folder in (plain, averaging)
    )
    for last in range(len(generations)):
        weights = 0.5 ** np.arange(last, -1, -1)
        expected = weights @ centres[: last + 1] / weights.sum()
        np.testing.assert_allclose(averages[last], expected, rtol=1e-5, atol=1e-7)
    returns = [[record["return_mean"] for record in log(folder)[1:]] for folder in (plain, averaging)]
    assert returns[0] == returns[1]


def test_a_record_holds_best_and_deviation_of_the_mean_returns_of_candidates(tmp_path):
    played = []

    class Noting(Quadratic):
        def evaluate(self, *arguments):
            played.append(super().evaluate(*arguments))
            return played[-1]

    record = log(run(tmp_path / "run", Noting(), generations=1, episodes=(3,)))[1]
    (returns,) = (one.returns.mean(axis=1) for one in played if len(one.returns) > 1)
    assert record["return_best"] == pytest.approx(returns.max(), rel=1e-9)
    assert record["return_std"] == pytest.approx(returns.std(), rel=1e-9)


@pytest.mark.slow
def test_records_hold_the_share_of_time_in_episodes(tmp_path):
    records = read(trained_on_the_toy(tmp_path / "run", 1).metrics_path)
    assert all(0.0 < r["share_in_episodes"] < 1.0 for r in records[1:])


def test_the_share_of_time_in_episodes_is_of_all_workers(tmp_path):
    class Busy(Quadratic):
        def evaluate(self, *arguments):
            self.workers, found = 2, super().evaluate(*arguments)
            return Evaluations([[one._replace(seconds=0.5) for one in row] for row in found.episodes])

    record = read(run(tmp_path / "run", Busy(), generations=1, held_out=3).metrics_path)[1]
    seconds = record["share_in_episodes"] * 2 * record["wall_seconds"]
    assert seconds == pytest.approx(0.5 * (8 + 3))


def test_an_outcome_of_only_some_episodes_is_not_logged(tmp_path):
    class Forgetful(Quadratic):
        def evaluate(self, *arguments):
            evaluations = super().evaluate(*arguments)
            evaluations.episodes[-1][-1].info.pop("distance")
            return evaluations

    records = log(run(tmp_path / "run", Forgetful(), generations=1))
    assert all("success" in r and "distance" not in r for r in records[1:])


def test_an_outcome_does_not_replace_the_number_of_a_record(tmp_path):
    class Counting(Quadratic):
        def evaluate(self, *arguments):
            evaluations = super().evaluate(*arguments)
            for episode in (one for row in evaluations.episodes for one in row):
                episode.info.update(generation=0.5, episodes=0)
            return evaluations

    records = log(run(tmp_path / "run", Counting(), generations=2))
    assert [r["generation"] for r in records] == [0, 1, 2]
    assert records[1]["episodes"] == 8


@pytest.mark.slow
def test_returns_that_are_not_finite_are_counted_and_rank_last(tmp_path):
    folder = run(tmp_path / "run", Quadratic(broken=3), generations=30, learning_rate=0.1)
    records = read(folder.metrics_path)
    assert {r["not_finite"] for r in records[1:]} == {3}
    assert records[-1]["return_mean"] > records[1]["return_mean"] / 2


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"generations": 0}, "generations is 0"),
        ({"episodes": (0,)}, r"episodes is \(0,\)"),
        ({"episodes": (1, 2, 3)}, "one for each of 2 environments"),
        ({"held_out": 0}, "held_out is 0"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": 2**32}, "seed is 4294967296"),
        ({"population": "4"}, "^ESConfig: population is '4': it must be of type int$"),
        ({"generations": 2.5}, "^ESConfig: generations is 2.5: it must be of type int$"),
        ({"episodes": 1}, "^ESConfig: episodes is 1: it must be of type tuple"),
        ({"sigma": None}, "^ESConfig: sigma is None: it must be of type float$"),
        ({"stop_at": "9"}, "^ESConfig: stop_at is '9': it must be of type float \\| None$"),
        ({"sigma": np.zeros((20, 3))}, r"^ESConfig: sigma is array\(.*: it must be of type float$"),
        ({"sigma": 1e300}, r"sigma is 1e\+300"),
        ({"population": 7, "strategy": "open_es"}, "population is 7"),
        ({"advance_at": (float("nan"),)}, "advance_at is"),
        ({"stage_limit": -1}, "stage_limit is -1"),
        ({"stop_at": float("nan")}, "stop_at is nan"),
        ({"episode_budget": -5}, "episode_budget is -5"),
        ({"seconds_budget": float("nan")}, "seconds_budget is nan"),
        ({"seconds_budget": float("inf")}, "seconds_budget is inf"),
        ({"keep_every": -1}, "keep_every is -1"),
        ({"average": 1.0}, "average is 1.0"),
    ],
)
def test_bad_settings_are_refused_by_name(changed, words):
    with pytest.raises(ValueError, match=words):
        config(**changed)


def test_a_curriculum_needs_one_threshold_per_step(tmp_path):
    with pytest.raises(ValueError, match="2 environments need 1"):
        run(tmp_path / "run", advance_at=())


def test_every_generation_has_new_seeds_that_depend_on_the_config():
    four = config(episodes=(4,))
    assert generation_seeds(four, 1) == generation_seeds(config(episodes=(4,)), 1)
    both = four, config(episodes=(4,), seed=6)
    drawn = [seed for one in both for generation in range(20) for seed in generation_seeds(one, generation)]
    assert len(set(drawn)) == 160

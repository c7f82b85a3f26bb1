"""A run of `train es` that is resumed: what it keeps, refuses and prints."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from made_runs import PAPER, made_run

import robopolicy
from robopolicy.cli import main
from robopolicy.cli.options import command_to_resume
from robopolicy.cli.train_es import TrainES
from robopolicy.experiments import evaluators
from robopolicy.experiments.environments import Environment
from robopolicy.experiments.evaluators import EvaluatorConfig
from robopolicy.experiments.hooks import Hooks
from robopolicy.experiments.train_es import checked_search
from robopolicy.training.checkpoint import RunFolder
from robopolicy.training.es import ESConfig
from robopolicy.training.progress import Limits, Progress
from robopolicy.training.resume import note_limits


@pytest.mark.slow
def test_a_run_continues_with_the_evaluator_and_places_that_it_began_with(tmp_path, refused, monkeypatch):
    run = made_run(tmp_path / "run")
    config = tmp_path / "run" / "config.json"
    settings = json.loads(config.read_text())
    kept = (Environment("stepping-stones", "mujoco", "paper"), ESConfig(generations=3, episodes=(1,)))
    made = []

    def in_lock_step(*arguments):
        made.append(arguments[4])  # places
        raise RuntimeError("no episode is played")

    monkeypatch.setattr(evaluators, "LockStep", in_lock_step)
    other = "evaluator is 'local': the run to resume has 'vector'"

    def resume(**given):
        """The error that ends a resumed training."""
        with pytest.raises((ValueError, RuntimeError)) as error:
            robopolicy.train_es(robopolicy.load(run), *kept, out=run, resume=True, **given)
        return str(error.value)

    config.write_text(json.dumps({**settings, "evaluator": {"evaluator": "vector", "places": 4}}))
    for given in {}, {"workers": 1}, {"evaluator": EvaluatorConfig("vector")}:
        assert resume(**given) == "no episode is played"
    assert made == [4, 4, 4]
    assert resume(evaluator=EvaluatorConfig("local")) == other
    assert other in refused("train", "es", "--resume", "--out", run, "--evaluator", "local")
    changed = "places is 6: the run to resume has 4"
    assert resume(evaluator=EvaluatorConfig("vector", places=6)) == changed
    assert changed in refused("train", "es", "--resume", "--out", run, "--places", "6")
    # Older runs do not say how they were played.
    config.write_text(json.dumps(settings))
    assert resume(evaluator=EvaluatorConfig("vector", places=6)) == "no episode is played"

    # A cluster plays episodes of the engine jax one by one, and a pool many at once.
    on_jax = {**settings, "environment": {**PAPER, "engine": "jax"}}
    config.write_text(json.dumps({**on_jax, "evaluator": {"evaluator": "local", "places": None}}))
    monkeypatch.setattr("robopolicy.training.ray_pool.check_cluster", lambda address: None)
    line = refused("train", "es", "--resume", "--out", run, "--evaluator", "ray")
    assert "evaluator is 'ray': the run to resume has 'local'" in line


@pytest.mark.parametrize("began", [False, True])
@pytest.mark.parametrize("given", [False, True])
def test_a_flag_of_a_file_or_a_command_line_counts_whatever_the_run_began_with(
    tmp_path, monkeypatch, began, given
):
    run, file = made_run(tmp_path / "run"), tmp_path / "mine.toml"
    config = tmp_path / "run" / "config.json"
    settings = json.loads(config.read_text())
    config.write_text(json.dumps({**settings, "policy": {**settings["policy"], "normalise": began}}))
    file.write_text(f"normalise = {str(given).lower()}")
    ran = []
    monkeypatch.setattr(TrainES, "run", lambda self: ran.append(self.normalise))
    for words in ("--config", str(file)), (f"--{'' if given else 'no-'}normalise",):
        assert main(["train", "es", "--resume", "--out", run, *words]) == 0
    assert ran == [given, given]


def test_a_resumed_run_keeps_the_limits_of_its_last_resume(tmp_path):
    run = Path(made_run(tmp_path / "run", stop_at=7.0))
    limits = {"generations": 9, "stop_at": None, "stop_after": 0, "episode_budget": 0, "seconds_budget": 0.0}
    note_limits(RunFolder(run), Limits(**limits))
    search = TrainES(out=run).stored_command().search
    assert {name: getattr(search, name) for name in limits} == limits


@pytest.mark.slow
def test_a_resume_of_a_run_that_has_ended_early_does_not_say_that_it_goes_on(tmp_path, monkeypatch):
    run = made_run(tmp_path / "run")
    folder, resumed = RunFolder(tmp_path / "run"), []
    arrays = folder.load()[1] | Progress(episodes=8).arrays("progress/")
    shutil.rmtree(folder.checkpoints)
    folder.save(2, arrays)

    def no_episode(*_):
        raise RuntimeError("no episode is played")

    monkeypatch.setattr(EvaluatorConfig, "for_search", no_episode)
    for budget in 8, 9:
        config = ESConfig(generations=9, episodes=(1,), episode_budget=budget)
        with pytest.raises(RuntimeError, match="no episode is played"):
            robopolicy.train_es(
                robopolicy.load(run),
                Environment("stepping-stones", "mujoco", "paper"),
                config,
                out=run,
                resume=True,
                evaluator=EvaluatorConfig("vector"),
                hooks=Hooks(on_resume=resumed.append),
            )
    assert resumed == [3]


def test_a_search_that_began_with_trained_weights_begins_again_with_these_alone(tmp_path, refused):
    run = Path(made_run(tmp_path / "run"))
    first = robopolicy.load(run)
    first = replace(first, name="best walker", parameters=first.parameters + 1)  # no name of a run
    kept = (Environment("stepping-stones", "mujoco", "paper"), ESConfig(generations=3, episodes=(1,)))
    init = checked_search(first, *kept, (), EvaluatorConfig("local", workers=1)).settings["init"]
    assert (init["run"], "checkpoint" in init) == ("best walker", False)
    config = run / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "init": init}))
    said = "the run to resume begins again, and it began with the weights of 'best walker'"
    assert said in refused("train", "es", "--resume", "--out", str(run), "--resume-from", "0")
    assert RunFolder(run).generations() == [2]


def test_the_command_to_resume_repeats_that_a_setting_was_taken_away(tmp_path):
    new = TrainES(out=Path(made_run(tmp_path / "run", stop_at=7.0)))
    begun = new.stored_command()
    endless = replace(begun, resume=True, search=replace(begun.search, stop_at=None, generations=200))
    assert command_to_resume(endless, "es").endswith(f"--out {new.out} --generations 200 --stop-at None")
    assert "None" not in command_to_resume(new, "es")  # for which the run has chosen an engine

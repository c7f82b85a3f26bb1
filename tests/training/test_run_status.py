"""The status of a run, read from its files."""

import fcntl
import json
import os
import shutil
import time
from dataclasses import asdict
from pathlib import Path

import pytest
from toy_runs import FEATURES, START, Quadratic, config

import robopolicy
from robopolicy.training.checkpoint import CheckpointError, RunFolder
from robopolicy.training.es import train
from robopolicy.training.run_status import status

SHIPPED = RunFolder(Path(robopolicy.__file__).parent / "assets/policies/stepping-stones-no-vision")


def begun(path, **changed):
    folder = RunFolder(path)
    folder.create(json.loads(json.dumps({"es": asdict(config(**changed))})))
    return folder


def trained(folder, *, evaluator=None, on_record=None, resume=False, **changed):
    return train(
        config(**changed),
        run=folder,
        initial=START,
        features=FEATURES,
        evaluator=evaluator or Quadratic(),
        resume=resume,
        on_generation=on_record,
    )


def test_a_complete_run_is_finished():
    result = status(SHIPPED)
    assert (result.trainer, result.status, result.why) == ("es", "finished", "")
    assert (result.done, result.total) == (60, 60)
    returns = [record["held_out/return"] for record in result.records if "held_out/return" in record]
    assert (result.measure, result.best) == ("held_out/return", max(returns))
    assert result.written == SHIPPED.metrics_path.stat().st_mtime


@pytest.mark.rest_slow
@pytest.mark.parametrize(
    "ends",
    [
        {"stop_at": -1e9},
        {"stop_after": 1, "evaluate_every": 1, "advance_at": (-1e9,)},
        {"episode_budget": 16},
        {"seconds_budget": 1e-6},
    ],
    ids=lambda ends: next(iter(ends)),
)
def test_the_reason_of_an_early_end_is_that_of_the_trainer(tmp_path, ends):
    folder = begun(tmp_path / "run", generations=50, **ends)
    record = trained(folder, generations=50, evaluator=Quadratic(slope=0.0), **ends)
    result = status(folder)
    assert record["ended_by"]
    assert (result.status, result.why) == ("finished", record["ended_by"])
    assert result.done == record["generation"] == folder.generations()[-1] < result.total


def test_a_run_that_was_resumed_beyond_its_budget_names_where_that_ended(tmp_path):
    folder = begun(tmp_path / "run", generations=50, episode_budget=16)
    trained(folder, generations=50, episode_budget=16)
    assert (status(folder).done, status(folder).end) == (2, 2)
    trained(folder, generations=50, episode_budget=40, resume=True)
    result = status(folder)
    assert (result.status, result.done, result.end, result.total) == ("finished", 5, 2, 50)
    assert result.why == "the budget of 16 episodes is used up at generation 2, and it went on"


@pytest.mark.slow
def test_the_end_of_a_run_is_that_of_its_first_settings(tmp_path):
    longer = begun(tmp_path / "longer", generations=2, episode_budget=40)
    trained(longer, generations=2, episode_budget=40)
    trained(longer, generations=50, episode_budget=40, resume=True)
    result = status(longer)
    assert (result.status, result.done, result.total, result.end) == ("finished", 5, 50, 2)
    shorter = begun(tmp_path / "shorter", generations=5)
    trained(shorter, generations=2)
    trained(shorter, generations=3, resume=True)
    result = status(shorter)
    assert (result.status, result.done, result.total, result.end) == ("finished", 3, 3, 5)


@pytest.mark.slow
def test_a_run_that_was_resumed_beyond_its_end_and_killed_is_not_finished(tmp_path):
    def kill(record):
        if record["generation"] == 3:
            raise KeyboardInterrupt

    last = {"generations": 5}
    for name, begin in ("a", {"generations": 2}), ("b", {"generations": 50, "episode_budget": 16}):
        folder = begun(tmp_path / name, **begin)
        trained(folder, **begin)
        with pytest.raises(KeyboardInterrupt):
            trained(folder, on_record=kill, resume=True, **last)
        result = status(folder)
        assert (result.status, result.why) == ("stopped", "")
        assert (result.done, result.total, result.end) == (3, 5, 2)
        trained(folder, resume=True, **last)
        result = status(folder)
        assert (result.status, result.done, result.end) == ("finished", 5, 2)


def test_seconds_of_an_evaluation_after_the_last_generation_are_not_beyond_a_budget(tmp_path):
    folder = begun(tmp_path / "run", generations=50, seconds_budget=10.0)
    for ended in 2, 3:  # the trainer may have met 10 s in generation 2 or 3, and not later
        records = [
            {"generation": n, "return_mean": 0.0, "episodes": 8, "wall_seconds": 6.0}
            for n in range(1, ended + 1)
        ]
        folder.metrics_path.write_text("".join(json.dumps(record) + "\n" for record in records))
        assert status(folder).end == ended
    with folder.metrics_path.open("a") as file:
        file.write(json.dumps({**records[-1], "generation": 4}) + "\n")
    assert status(folder).end == 3


@pytest.mark.slow
def test_a_run_is_running_while_a_trainer_works_and_stopped_after(tmp_path):
    folder = begun(tmp_path / "run")
    assert status(folder).status == "starting"
    seen = []

    def interrupt(record):
        seen.append(status(folder).status)
        if record["generation"] == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trained(folder, on_record=interrupt)
    assert seen == ["running"] * 4
    assert (status(folder).status, status(folder).done) == ("stopped", 3)
    trained(folder, resume=True)
    assert status(folder).status == "finished"


def test_a_reader_does_not_block_a_trainer(tmp_path):
    folder = begun(tmp_path / "run")
    with folder.config_path.open() as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        assert not folder.is_locked()
    with folder.locked():
        assert folder.is_locked()
    assert not folder.is_locked()


@pytest.mark.slow
def test_the_error_of_a_run_stays_until_a_resume(tmp_path):
    class Broken(Quadratic):
        def evaluate(self, population, *arguments):
            if len(population) > 1:
                raise RuntimeError("the robot\nis broken")
            return super().evaluate(population, *arguments)

    folder = begun(tmp_path / "run")
    with pytest.raises(RuntimeError):
        trained(folder, evaluator=Broken())
    assert (status(folder).status, status(folder).why) == ("failed", "RuntimeError: the robot is broken")
    trained(folder, resume=True)
    assert status(folder).status == "finished"
    assert not folder.failure_path.exists()


def test_a_run_without_a_log_is_stopped_after_the_time_to_start(tmp_path):
    folder = begun(tmp_path / "run")
    before = time.time() - 1000
    os.utime(folder.config_path, (before, before))
    assert (status(folder).status, status(folder).why) == ("stopped", "before anything was logged")


def cloned(path, records, steps=10, saved=()):
    folder = RunFolder(path)
    folder.create({"bc": {"steps": steps}})
    folder.metrics_path.write_text("".join(json.dumps(record) + "\n" for record in records))
    for step in saved:
        for name, content in (("index/metadata", '{"arrays": []}'), ("arrays/_METADATA", "")):
            file = path / "checkpoints" / str(step) / name
            file.parent.mkdir(parents=True)
            file.write_text(content)
    return status(folder)


def test_the_measure_of_a_clone_is_its_return_or_else_its_loss(tmp_path):
    records = [{"step": 4, "validation/loss": 3.0}, {"step": 5, "not_finite": "x"}]
    result = cloned(tmp_path / "a", [*records, {"step": 8, "validation/loss": 4.0}])
    assert (result.status, result.done) == ("stopped", 8)
    assert (result.measure, result.best) == ("validation/loss", 3.0)
    result = cloned(tmp_path / "b", [*records, {"step": 10, "rollout/return": 7.0}], saved=[10])
    assert (result.status, result.measure, result.best) == ("finished", "rollout/return", 7.0)


def test_an_evaluation_after_a_stop_is_not_the_best(tmp_path):
    records = [{"step": 3, "validation/loss": 1.0, "unplanned": True}, {"step": 4, "validation/loss": 3.0}]
    assert cloned(tmp_path / "a", records).best == 3.0


@pytest.mark.parametrize(
    ("last", "saved", "expected"),
    [
        (10, [8, 10], ("finished", "")),
        (10, [8], ("stopped", "its last checkpoint is that of step 8")),
        (10, [], ("damaged", "it has come to its end, and its checkpoints are gone")),
        (8, [], ("stopped", "it has no checkpoint: --resume begins anew")),
        (8, [8], ("stopped", "")),
    ],
)
def test_a_finished_run_has_its_last_checkpoint(tmp_path, last, saved, expected):
    result = cloned(tmp_path / "run", [{"step": last, "validation/loss": 1.0}], saved=saved)
    assert (result.status, result.why) == expected


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("config.json", b"{", "is not JSON"),
        ("config.json", b"[]", "holds no JSON object"),
        ("config.json", b"{}", "describes no run"),
        ("config.json", b'{"es": {"generations": "many"}}', "generations in its config.json is 'many'"),
        ("config.json", b'{"es": {"generations": 99}}', "es in its config.json lacks stop_at"),
        ("checkpoints/60/index/metadata", b"{}", "checkpoints/60 is damaged"),
        ("config.json", b"[" * 10**5, "is not JSON"),
        ("metrics.jsonl", b"\xff\xfe\n", "line 1 of .* is not JSON"),
        ("metrics.jsonl", b"[]\n", "is no record of a generation"),
        ("limits.json", b"[]", "limits.json' holds no JSON object"),
        ("limits.json", b"{}", "limits.json': lacks the settings"),
        ("checkpoints/60/index/metadata", b'{"arrays": [', "checkpoints/60 cannot be read"),
        ("checkpoints/60/index/metadata", b'{"arrays": 5}', "checkpoints/60 is damaged"),
    ],
)
def test_damage_is_one_clear_error_with_its_place(tmp_path, name, content, words):
    run = RunFolder(shutil.copytree(SHIPPED.path, tmp_path / "run"))
    (run.path / name).write_bytes(content)
    with pytest.raises(CheckpointError, match=words):
        status(run)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("stop_at", "x", "stop_at is 'x': it must be of type float"),
        ("advance_at", {}, "advance_at is {}: it must be of type tuple"),
        ("evaluate_every", 0, "evaluate_every in its config.json is 0: it must be 1 or more"),
    ],
)
def test_the_error_names_a_bad_setting(tmp_path, name, value, words):
    run = RunFolder(shutil.copytree(SHIPPED.path, tmp_path / "run"))
    config = run.config()
    config["es"] |= {"generations": 99, name: value}
    run.config_path.write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match=words):
        status(run)


def test_the_error_names_a_bad_number_of_a_record(tmp_path):
    run = RunFolder(tmp_path / "run")
    run.create({"es": {**SHIPPED.config()["es"], "generations": 99}})
    run.metrics_path.write_text('{"generation": 1, "return_mean": "x"}\n')
    with pytest.raises(CheckpointError, match="return_mean of generation 1 is 'x': it must be a number"):
        status(run)


def test_numbers_out_of_range_do_not_count_as_best(tmp_path):
    records = [{"step": 1, "rollout/return": value} for value in (10**400, float("nan"), True, "9")]
    assert cloned(tmp_path / "a", records).best is None

"""A resumed run equals a run without a stop."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from toy_runs import Quadratic, log, run, trained_on_the_toy

from robopolicy.training.checkpoint import CheckpointError, RunFolder, load_policy
from robopolicy.training.metrics import read
from robopolicy.training.resume import resume_point, set_aside


class Killed(Quadratic):
    """Ends the run after so many evaluations."""

    def __init__(self, calls):
        super().__init__()
        self.calls = calls

    def evaluate(self, *arguments):
        self.calls -= 1
        if self.calls < 0:
            raise RuntimeError("killed")
        return super().evaluate(*arguments)


@pytest.mark.slow
def test_two_processes_cannot_train_in_one_folder(tmp_path):
    folder = run(tmp_path / "run")
    before = folder.metrics_path.read_text()
    with folder.locked(), pytest.raises(CheckpointError, match="is being trained by another process"):
        run(tmp_path / "run", resume=True, generations=9)
    assert folder.metrics_path.read_text() == before
    run(tmp_path / "run", resume=True, generations=9)
    assert folder.generations()[-1] == 9


@pytest.mark.slow
@pytest.mark.parametrize("line", ["junk", "", "[]", '{"a": 1}'])
def test_the_error_names_a_damaged_line_of_the_log(tmp_path, line):
    folder = run(tmp_path / "run")
    with folder.metrics_path.open("a") as file:
        file.write(line + "\n")
    with pytest.raises(CheckpointError, match=r"line 8 of .*metrics\.jsonl"):
        run(tmp_path / "run", resume=True, generations=9)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["open_es", "evojax_pgpe"])
def test_a_resumed_run_equals_a_run_without_a_stop(tmp_path, strategy):
    settings = {"strategy": strategy, "learning_rate": 0.2, "generations": 14, "average": 0.8}
    through = run(tmp_path / "through", **settings)
    assert {r.get("environment") for r in log(through)} == {None, "easy", "real"}
    stopped = run(tmp_path / "stopped", **{**settings, "generations": 5}, evaluate_every=5)
    # As if the run had been killed between logging a generation and saving it.
    with stopped.metrics_path.open("a") as file:
        file.write(json.dumps({"generation": 6, "return_mean": 99.0}) + "\n" + '{"generation": 7, "ret')
    run(tmp_path / "stopped", resume=True, **settings)
    np.testing.assert_array_equal(load_policy(through.path)[0], load_policy(stopped.path)[0])
    common = [
        [{k: v for k, v in r.items() if not k.startswith("held_out")} for r in log(f)]
        for f in (through, stopped)
    ]
    assert common[0] == common[1]


@pytest.mark.slow
def test_a_run_without_a_checkpoint_resumes_from_its_beginning(tmp_path):
    through = run(tmp_path / "through", generations=2)
    killed = run(tmp_path / "killed", generations=1)
    shutil.rmtree(killed.path / "checkpoints")
    run(tmp_path / "killed", resume=True, generations=2)
    assert log(killed) == log(through)
    np.testing.assert_array_equal(load_policy(killed.path)[0], load_policy(through.path)[0])


@pytest.mark.slow
def test_a_resume_loses_neither_log_nor_checkpoints(tmp_path):
    through = run(tmp_path / "through")
    lost = run(tmp_path / "lost")
    logged = lost.metrics_path.read_bytes()
    shutil.move(lost.path / "checkpoints", tmp_path / "kept")
    with pytest.raises(CheckpointError, match="a log up to generation 6, and it has no checkpoint"):
        run(lost.path, resume=True)
    assert lost.metrics_path.read_bytes() == logged
    shutil.move(tmp_path / "kept", lost.path / "checkpoints")

    with pytest.raises(ValueError, match=r"resume_from is 2: .* \(4, 5, 6\), or 0"):
        set_aside(lost, "generation", 2)
    for after in (4, 0):
        set_aside(lost, "generation", after)
        assert lost.generations() == ([4] if after else [])
        run(lost.path, resume=True)
        assert log(lost) == log(through)
        np.testing.assert_array_equal(load_policy(lost.path)[0], load_policy(through.path)[0])
    for aside, later in (("set-aside-1", {"5", "6"}), ("set-aside-2", {"4", "5", "6"})):
        assert (lost.path / aside / "metrics.jsonl").read_bytes().count(b"\n") == 7
        assert {path.name for path in (lost.path / aside).iterdir()} == {"metrics.jsonl", *later}


@pytest.mark.slow
def test_a_run_notes_the_longest_distance_between_its_checkpoints(tmp_path):
    """A part that saved seldom and was killed, then a part that saves often: no checkpoint is missing."""
    folder = run(tmp_path / "run", generations=2)
    with pytest.raises(RuntimeError, match="killed"):
        run(folder.path, Killed(calls=5), resume=True, generations=9, checkpoint_every=9)
    assert (folder.generations()[-1], log(folder)[-1]["generation"]) == (2, 6)
    run(folder.path, resume=True, generations=9)
    assert folder.generations()[-1] == 9


def test_a_note_of_a_run_that_is_no_text_is_one_clear_error(trained, tmp_path):
    folder = RunFolder(shutil.copytree(trained.path, tmp_path / "run"))
    (folder.path / "checkpoint_every.txt").write_bytes(b"\xff9")
    with pytest.raises(CheckpointError, match=r"checkpoint_every\.txt' holds .*: a number was expected"):
        resume_point(folder, "generation")


def test_a_checkpoint_is_saved_before_its_report(tmp_path):
    folder, seen = RunFolder(tmp_path / "run"), []
    run(folder.path, on_record=lambda record: seen.append((record["generation"], folder.generations())))
    assert [(number, saved[-1:]) for number, saved in seen] == [(n, [n] if n else []) for n in range(7)]


def test_a_refused_resume_changes_nothing_and_folders_set_aside_may_be_removed(tmp_path):
    folder = run(tmp_path / "run")
    whole = folder.metrics_path.read_text()
    folder.metrics_path.write_text(whole + "junk\n")
    with pytest.raises(CheckpointError, match="line 8"):
        set_aside(folder, "generation", 4)
    assert folder.generations() == [4, 5, 6]
    assert not list(folder.path.glob("set-aside-*"))
    folder.metrics_path.write_text(whole)
    set_aside(folder, "generation", 5)
    set_aside(folder, "generation", 4)
    shutil.rmtree(folder.path / "set-aside-1")
    set_aside(folder, "generation", 0)
    assert folder.generations() == []


def test_a_run_that_begins_again_keeps_a_copy_of_its_log(tmp_path):
    folder = run(tmp_path / "run", generations=1)
    whole = folder.metrics_path.read_bytes()
    shutil.rmtree(folder.path / "checkpoints")
    run(folder.path, resume=True, generations=1)
    assert (folder.path / "set-aside-1" / "metrics.jsonl").read_bytes() == whole


@pytest.mark.slow
def test_a_killed_run_resumes_to_the_same_bits(tmp_path):
    through = trained_on_the_toy(tmp_path / "through", 2, generations=12)
    code = (
        "import sys, toy_runs\n"
        "from pathlib import Path\n"
        "if __name__ == '__main__':\n"
        "    toy_runs.trained_on_the_toy(\n"
        "        Path(sys.argv[1]), 2, generations=12, resume=len(sys.argv) > 2,\n"
        "        on_record=lambda record: print(record['generation'], flush=True))\n"
    )
    killed, rng, resumed = tmp_path / "killed", np.random.default_rng(0), []
    for _ in range(6):
        trainer = subprocess.Popen(
            [sys.executable, "-c", code, str(killed), *resumed], stdout=subprocess.PIPE, text=True
        )
        # A generation of the toy and its checkpoint take some 0.1 s: this ends in the middle of anything.
        if trainer.stdout.readline():
            time.sleep(rng.uniform(0.0, 0.6))
        trainer.kill()
        trainer.communicate()
        resumed = ["resume"]
        if read(RunFolder(killed).metrics_path)[-1]["generation"] == 12:
            break
    folder = trained_on_the_toy(killed, 2, generations=12, resume=True)
    assert log(folder) == log(through)
    first, second = folder.load()[1], through.load()[1]
    for path in first.keys() - {"progress/seconds"}:
        np.testing.assert_array_equal(first[path], second[path], err_msg=path)


@pytest.mark.slow
def test_checkpoints_at_multiples_stay(tmp_path):
    folder = run(tmp_path / "run", generations=9, keep_every=2)
    assert folder.generations() == [2, 4, 6, 7, 8, 9]


@pytest.mark.slow
def test_a_resume_keeps_the_best_mean(tmp_path):
    # Steps so large that the search overshoots: its last mean is not its best.
    settings = {
        "strategy": "open_es",
        "sigma": 0.1,
        "learning_rate": 0.5,
        "evaluate_every": 2,
        "advance_at": (1.0,),
    }
    through = run(tmp_path / "through", generations=6, **settings)
    held_out = {r["generation"]: r["held_out/return"] for r in log(through) if "held_out/return" in r}
    best = max(held_out, key=held_out.get)
    assert 0 < best < 6
    stopped = run(tmp_path / "stopped", generations=best, **settings)
    np.testing.assert_array_equal(load_policy(stopped.path, "best")[0], load_policy(stopped.path)[0])
    at_best = load_policy(stopped.path)[0]
    run(tmp_path / "stopped", resume=True, generations=6, **settings)
    for folder in (through, stopped):
        np.testing.assert_array_equal(load_policy(folder.path, "best")[0], at_best)
        assert not np.array_equal(load_policy(folder.path)[0], at_best)


@pytest.mark.slow
def test_a_resume_of_a_complete_run_changes_nothing(tmp_path):
    folder = run(tmp_path / "run")
    before = log(folder)
    run(tmp_path / "run", resume=True)
    assert log(folder) == before


@pytest.mark.parametrize("request_", [signal.SIGINT, signal.SIGTERM], ids=("Ctrl-C", "SIGTERM"))
def test_ctrl_c_or_sigterm_saves_and_ends_the_run(tmp_path, request_):
    def interrupt(record):
        if record["generation"] == 2:
            os.kill(os.getpid(), request_)

    before = signal.getsignal(request_)  # which ignores Ctrl-C if the test runs in the background
    folder = run(tmp_path / "run", on_record=interrupt)
    assert log(folder)[-1]["generation"] == 3
    assert [record["generation"] for record in log(folder) if record.get("unplanned")] == [3]
    assert folder.generations()[-1] == 3
    assert signal.getsignal(request_) is before


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run of two generations; nobody changes it."""
    return run(tmp_path_factory.mktemp("trained") / "run", generations=2)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"initial": np.ones(6, np.float32)}, r"\[5\] parameters: this policy has \[6\]"),
        ({"features": {"draws/front": np.zeros(3, np.float32)}}, "features draws/front"),
        ({"strategy": "open_es"}, "state of the checkpoint is another one"),
    ],
)
def test_a_checkpoint_of_another_config_is_refused(trained, changed, words):
    before = load_policy(trained.path)[0]
    with pytest.raises(CheckpointError, match=words):
        run(trained.path, resume=True, **changed)
    np.testing.assert_array_equal(load_policy(trained.path)[0], before)

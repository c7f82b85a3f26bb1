"""Recordings and datasets: complete, lossless, reproducible, or refused."""

import errno
import fcntl
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import gymnasium
import h5py
import numpy as np
import pytest
import toy_demos
from toy_recordings import ABOUT, OUTCOMES, digest, recorded, spec

from robopolicy.training.demonstration import RecordingConfig, play
from robopolicy.training.evaluate import EpisodeError
from robopolicy.training.recording import partial_folder, record
from robopolicy.training.rollout import run_episode

SEEDS = [0, 1, 3, 4, 6]  # every third fails

RECORDER = """
import json
import sys
from pathlib import Path
from robopolicy.training.demonstration import RecordingConfig
from robopolicy.training.recording import record
from robopolicy.training.worker import EnvironmentSpec
if __name__ == "__main__":
    spec = EnvironmentSpec("toy_demos:Demos-v0", {"seconds": 0.03}, "toy")
    record(RecordingConfig(5), spec, Path(sys.argv[1]), json.loads(sys.argv[2]), 2)
"""


def test_minari_loads_every_pixel_of_successful_seeds(dataset):
    minari = pytest.importorskip("minari")
    loaded = minari.MinariDataset(dataset / "data")
    assert loaded.total_episodes == 5
    env = gymnasium.make(toy_demos.ID)
    for seed, episode in zip(SEEDS, loaded.iterate_episodes(), strict=True):
        seen = [env.reset(seed=seed)[0]]
        for action in episode.actions:
            seen.append(env.step(action)[0])
        np.testing.assert_array_equal(episode.observations["image"], [s["image"] for s in seen])
        np.testing.assert_array_equal(episode.observations["poses"], [s["poses"] for s in seen])
        assert len(episode.rewards) == len(episode.actions) == len(seen) - 1
        assert episode.terminations[-1]
    metadata = json.loads((dataset / "data" / "metadata.json").read_text())
    assert metadata["robopolicy"]["seeds"] == SEEDS
    assert metadata["robopolicy"]["scores"] == [1.0] * 5
    assert metadata["dataset_id"] == "toy-v0"


@pytest.mark.slow
def test_a_dataset_does_not_depend_on_the_number_of_its_workers(tmp_path):
    found = {digest(tmp_path / f"{w}-v0") for w in (1, 3) if recorded(tmp_path / f"{w}-v0", w)}
    assert len(found) == 1


@pytest.mark.slow
def test_the_folder_may_be_a_relative_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    recorded(Path("datasets/toy-v0"))
    assert digest(tmp_path / "datasets" / "toy-v0")


def test_failed_episodes_are_part_of_the_dataset_with_keep_failed(tmp_path):
    kept = recorded(tmp_path / "toy-v0", keep_failed=True)
    assert [episode.seed for episode in kept.episodes] == [0, 1, 2, 3, 4]
    assert [episode.success for episode in kept.episodes] == [True, True, False, True, True]


@pytest.mark.slow
def test_a_killed_recording_continues_with_complete_episodes(tmp_path):
    whole, killed = tmp_path / "whole-v0", tmp_path / "killed-v0"
    command = [sys.executable, "-c", RECORDER]
    settings = {"env": {**os.environ, "PYTHONPATH": str(Path(toy_demos.__file__).parent)}}
    subprocess.run([*command, str(whole), json.dumps(ABOUT)], check=True, **settings)
    interrupted = 0
    for number in range(30):
        recorder = subprocess.Popen([*command, str(killed), json.dumps(ABOUT)], **settings)
        time.sleep(1.2 + 0.15 * number)
        recorder.send_signal(signal.SIGKILL)
        if recorder.wait() == 0:
            break
        interrupted += 1
        assert not killed.exists() or digest(killed) == digest(whole)
        if killed.exists():
            break
    assert interrupted
    assert digest(killed) == digest(whole)
    assert not partial_folder(killed).exists() or killed.exists()


def test_the_error_names_a_demonstration_that_always_fails_and_the_others_stay(tmp_path):
    out, closed = tmp_path / "toy-v0", tmp_path / "closed"
    with pytest.raises(
        EpisodeError, match="demonstration of seed 3 failed 3 times: RuntimeError: the toy is broken"
    ):
        record(RecordingConfig(5, outcomes=OUTCOMES), spec(raises=3, closed=str(closed)), out, ABOUT, 1)
    assert not out.exists()
    assert closed.read_text() == 3 * "closed\n"
    assert {f.name for f in partial_folder(out).glob("*.hdf5")} == {"0.hdf5", "1.hdf5"}


def test_demonstrations_that_never_succeed_are_one_clear_error(tmp_path):
    with pytest.raises(EpisodeError, match=r"0 of 2[01] demonstrations succeeded, of 2 that are wanted"):
        record(RecordingConfig(2), spec(hopeless=True), tmp_path / "toy-v0", ABOUT, 2)


@pytest.mark.slow
def test_a_damaged_episode_is_recorded_again(tmp_path):
    out = tmp_path / "toy-v0"
    recorded(tmp_path / "whole-v0")
    with pytest.raises(EpisodeError):
        record(RecordingConfig(5, outcomes=OUTCOMES), spec(raises=6), out, ABOUT, 1)
    spoilt = partial_folder(out) / "1.hdf5"
    spoilt.write_bytes(spoilt.read_bytes()[:3000])
    (partial_folder(out) / "3.hdf5").unlink()
    settings = json.loads((partial_folder(out) / "settings.json").read_text())
    del settings["environment"]["raises"]
    (partial_folder(out) / "settings.json").write_text(json.dumps(settings))
    recorded(out)
    assert digest(out) == digest(tmp_path / "whole-v0")
    assert sorted(f.name for f in tmp_path.iterdir()) == ["toy-v0", "whole-v0"]


def test_the_rest_of_a_recorder_killed_at_its_end_is_removed(dataset, tmp_path):
    out = Path(shutil.copytree(dataset, tmp_path / "copy-v0"))
    partial_folder(out).mkdir()
    (partial_folder(out) / "0.hdf5").touch()
    partial_folder(out).rename(tmp_path / f".{partial_folder(out).name}")
    with pytest.raises(FileExistsError):
        record(RecordingConfig(5, outcomes=OUTCOMES), spec(), out, ABOUT, 1)
    assert [path.name for path in tmp_path.iterdir()] == ["copy-v0"]


@pytest.mark.slow
def test_the_episodes_of_a_recorder_killed_after_it_moved_the_dataset_are_removed(tmp_path, monkeypatch):
    out = tmp_path / "toy-v0"
    replace = os.replace

    def killed_after(source, target):
        replace(source, target)
        if target == out:
            raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", killed_after)
    with pytest.raises(KeyboardInterrupt):
        recorded(out)
    monkeypatch.undo()
    assert partial_folder(out).exists()
    with pytest.raises(FileExistsError):
        recorded(out)
    assert [path.name for path in tmp_path.iterdir()] == ["toy-v0"]


@pytest.mark.slow
def test_the_episodes_of_a_recorder_that_could_not_move_its_dataset_stay(copy, tmp_path, monkeypatch):
    out = tmp_path / "toy-v0"
    replace = os.replace

    def taken(source, target):
        if target == out:
            copy.rename(out)  # another recorder was faster
        replace(source, target)

    monkeypatch.setattr(os, "replace", taken)
    with pytest.raises(OSError, match="not empty"):
        recorded(out)
    monkeypatch.undo()
    with pytest.raises(FileExistsError):
        recorded(out)
    assert (partial_folder(out) / "dataset").exists()


def test_an_interrupted_recording_stays_where_another_dataset_has_its_name(copy, tmp_path):
    with pytest.raises(EpisodeError):
        record(RecordingConfig(5, outcomes=OUTCOMES), spec(raises=3), tmp_path / "toy-v0", ABOUT, 1)
    copy.rename(tmp_path / "toy-v0")
    with pytest.raises(FileExistsError):
        recorded(tmp_path / "toy-v0")
    assert (partial_folder(tmp_path / "toy-v0") / "1.hdf5").exists()


@pytest.mark.slow
def test_a_full_disk_is_one_clear_error_and_keeps_episodes(tmp_path, monkeypatch):
    out = tmp_path / "toy-v0"
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=1000))
    with pytest.raises(
        OSError, match=r"the disk is full \(.* MB free\); complete episodes are kept"
    ) as error:
        recorded(out)
    assert error.value.errno == errno.ENOSPC
    monkeypatch.undo()
    assert not out.exists()
    recorded(out)
    assert out.exists()


def test_two_processes_cannot_record_in_one_folder(tmp_path):
    out = tmp_path / "toy-v0"
    folder = partial_folder(out)
    folder.mkdir()
    with (folder / ".lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(ValueError, match="is being recorded by another process"):
            recorded(out)
    recorded(out)


@pytest.mark.slow
def test_a_disk_without_locks_is_not_taken_for_another_recorder(tmp_path, monkeypatch, capsys):
    def refuse(file, kind):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    recorded(tmp_path / "toy-v0")
    assert "has no locks: write to this folder from one process at a time" in capsys.readouterr().err


def test_an_interrupted_recording_refuses_other_settings(tmp_path):
    out = tmp_path / "toy-v0"
    with pytest.raises(EpisodeError):
        record(RecordingConfig(5, outcomes=OUTCOMES), spec(raises=3), out, ABOUT, 1)
    with pytest.raises(ValueError, match=r"noise is 0.5: the recording that was interrupted has 0.0"):
        record(RecordingConfig(5, noise=0.5, outcomes=OUTCOMES), spec(raises=3), out, ABOUT, 1)


@pytest.mark.parametrize(("content", "words"), [("{", "is not JSON"), ("[]", "lacks config, environment")])
def test_an_interrupted_recording_with_damaged_settings_is_refused(tmp_path, content, words):
    folder = partial_folder(tmp_path / "toy-v0")
    folder.mkdir()
    (folder / "settings.json").write_text(content)
    with pytest.raises(ValueError, match=f"settings.json' {words}.*delete the folder"):
        recorded(tmp_path / "toy-v0", workers=1)


@pytest.mark.parametrize(
    ("out", "settings", "error", "words"),
    [
        ("toy", {}, ValueError, "out is .*toy.*: Minari wants a name and a version, such as toy-v0"),
        ("my.toy-v0", {}, ValueError, "Minari wants a name and a version, such as my-toy-v0, with letters"),
        ("toy-v0", {"workers": 0}, ValueError, "workers is 0"),
        (".", {}, ValueError, "Minari wants a name"),
    ],
)
def test_bad_arguments_of_a_recording_are_refused(tmp_path, out, settings, error, words):
    with pytest.raises(error, match=words):
        recorded(tmp_path / out, **settings)
    assert list(tmp_path.iterdir()) == []


def test_an_existing_folder_stays_unchanged(copy):
    before = digest(copy)
    with pytest.raises(FileExistsError, match="exists: give another --out"):
        recorded(copy)
    assert digest(copy) == before


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"episodes": 0}, "episodes is 0"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": 2**32}, "seed is 4294967296"),
        ({"episodes": "5"}, "^RecordingConfig: episodes is '5': it must be of type int$"),
        ({"noise": None}, "^RecordingConfig: noise is None: it must be of type float$"),
        ({"outcomes": "success"}, "^RecordingConfig: outcomes is 'success': it must be of type tuple"),
        ({"keep_failed": np.zeros((9, 9, 9))}, r"^RecordingConfig: keep_failed is array\(.*type bool$"),
        ({"noise": float("nan")}, "noise is nan"),
    ],
)
def test_bad_settings_are_refused_by_name(changed, words):
    with pytest.raises(ValueError, match=words):
        RecordingConfig(**{"episodes": 5, **changed})


class OneArray:
    """Shows every picture in one array, and is its own demonstrator, whose actions are in one array, too."""

    def reset(self, *, seed):
        self.seen, self.executed = {"image": np.zeros((2, 2, 3), np.uint8)}, np.zeros(1, np.float32)
        return self.seen, {"success": True}

    def step(self, action):
        self.seen["image"] += 1
        return self.seen, 1, bool(self.seen["image"].max() == 3), False, {"success": True}

    def act(self):
        self.executed += 0.1
        return SimpleNamespace(executed=self.executed, intended=self.executed)

    def get_wrapper_attr(self, name):
        return lambda seed, noise: self


def test_a_task_that_draws_into_one_array_keeps_every_frame():
    _, content = play(OneArray(), 0, RecordingConfig(episodes=1), None)
    with h5py.File(io.BytesIO(content)) as file:
        assert file["observations/image"][:, 0, 0, 0].tolist() == [0, 1, 2, 3]
        np.testing.assert_allclose(file["actions"][:, 0], [0.1, 0.2, 0.3], rtol=1e-6)
        assert np.issubdtype(file["rewards"].dtype, np.floating)  # the task returns whole numbers
    episode = run_episode(OneArray(), lambda seen: np.zeros(1), 0, watched=("image",))
    np.testing.assert_array_equal(episode.moments["image"].total[0, 0], [3, 3, 3])  # of 0, 1 and 2


@pytest.mark.parametrize(("part", "value"), [("intended", 1.5), ("intended", np.nan), ("executed", -1.00001)])
def test_an_action_of_a_demonstrator_out_of_range_ends_the_recording(monkeypatch, part, value):
    env = OneArray()
    action = {"executed": np.zeros(2), "intended": np.zeros(2), part: np.array([0.0, value])}
    monkeypatch.setattr(env, "act", lambda: SimpleNamespace(**action))
    words = rf"^an {part} action of the task's demonstrator or of the policy has {value}: its numbers must"
    with pytest.raises(ValueError, match=words):
        play(env, 0, RecordingConfig(episodes=1), None)


def test_whole_actions_of_a_demonstrator_become_floats(monkeypatch):
    env = OneArray()
    monkeypatch.setattr(env, "act", lambda: SimpleNamespace(executed=[1, 0], intended=[True, False]))
    _, content = play(env, 0, RecordingConfig(episodes=1), None)
    with h5py.File(io.BytesIO(content)) as file:
        for name in ("actions", "infos/intended_action"):
            assert np.issubdtype(file[name].dtype, np.floating)
            assert file[name][:].tolist() == [[1, 0]] * 3

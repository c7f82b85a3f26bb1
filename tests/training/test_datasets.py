"""Recordings and datasets: complete, lossless, reproducible, or refused."""

import errno
import fcntl
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import gymnasium
import h5py
import numpy as np
import pytest
import toy_demos
from toy_recordings import ABOUT, OUTCOMES, TASK, recorded, spec

from robopolicy.training.datasets import DatasetError, check_alike, open_dataset
from robopolicy.training.demonstration import RecordingConfig
from robopolicy.training.evaluate import EpisodeError
from robopolicy.training.recording import partial_folder, record

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


def digest(dataset):
    return hashlib.sha256((dataset / "data" / "main_data.hdf5").read_bytes()).hexdigest()


@pytest.fixture
def copy(dataset, tmp_path):
    return Path(shutil.copytree(dataset, tmp_path / "copy-v0"))


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


def test_a_dataset_does_not_depend_on_the_number_of_its_workers(tmp_path):
    found = {digest(tmp_path / f"{w}-v0") for w in (1, 3) if recorded(tmp_path / f"{w}-v0", w)}
    assert len(found) == 1


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
    out = tmp_path / "toy-v0"
    with pytest.raises(
        EpisodeError, match="demonstration of seed 3 failed 3 times: RuntimeError: the toy is broken"
    ):
        record(RecordingConfig(5, outcomes=OUTCOMES), spec(raises=3), out, ABOUT, 1)
    assert not out.exists()
    assert {f.name for f in partial_folder(out).glob("*.hdf5")} == {"0.hdf5", "1.hdf5"}


def test_demonstrations_that_never_succeed_are_one_clear_error(tmp_path):
    with pytest.raises(EpisodeError, match=r"0 of 2[01] demonstrations succeeded, of 2 that are wanted"):
        record(RecordingConfig(2), spec(hopeless=True), tmp_path / "toy-v0", ABOUT, 2)


@pytest.fixture(scope="module")
def graph():
    """A policy whose action is an eighth everywhere and leaves [-1, 1] at the last number."""
    onnx = pytest.importorskip("onnx")
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    push = helper.make_tensor("push", kind, [12], [0.125] * 11 + [1.5])
    nodes = [
        helper.make_node("Slice", ["poses", "first", "last"], ["felt"]),
        helper.make_node("Mul", ["felt", "none"], ["nothing"]),
        helper.make_node("Add", ["nothing", "push"], ["action"]),
    ]
    ends = [helper.make_tensor(n, onnx.TensorProto.INT64, [1], [v]) for n, v in (("first", 0), ("last", 12))]
    body = helper.make_graph(
        nodes,
        "toy",
        [helper.make_tensor_value_info("poses", kind, [14])],
        [helper.make_tensor_value_info("action", kind, [12])],
        [push, helper.make_tensor("none", kind, [], [0.0]), *ends],
    )
    model = helper.make_model(body, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return model.SerializeToString()


def round_of(graph, out, workers=2, **config):
    settings = {"episodes": 4, "keep_failed": True, "outcomes": OUTCOMES, "beta": 0.5, "noise": 0.1, **config}
    return record(RecordingConfig(**settings), spec(unsolved=3), out, ABOUT, workers, policy=graph)


def test_a_round_has_the_actions_of_the_policy_and_the_labels_of_the_demonstrator(tmp_path, graph):
    played = round_of(graph, tmp_path / "toy-v0", beta=0.0)
    assert [one.seed for one in played.episodes] == [0, 1, 3, 4]
    assert [(one.seed, one.unsolved) for one in played.kept_out] == [(2, "all is lost")]
    opened = open_dataset(tmp_path / "toy-v0", TASK)
    assert opened.about["kept_out"] == {"2": "all is lost"}
    with h5py.File(opened.file) as file:
        actions = file["episode_0/actions"][()]
        np.testing.assert_array_equal(actions[:, :11], 0.125)
        np.testing.assert_array_equal(actions[:, 11], 1.0)
        np.testing.assert_array_equal(file["episode_0/infos/intended_action"][()], 0.0)


def test_a_round_does_not_depend_on_the_number_of_its_workers(tmp_path, graph):
    found = {digest(tmp_path / f"{w}-v0") for w in (1, 2) if round_of(graph, tmp_path / f"{w}-v0", w)}
    assert len(found) == 1
    with h5py.File(tmp_path / "1-v0" / "data" / "main_data.hdf5") as file:
        actions = np.concatenate([file[f"episode_{n}/actions"][()] for n in range(4)])
    by_policy = (actions[:, :11] == 0.125).all(axis=1)
    assert 0 < by_policy.sum() < len(by_policy)


def test_a_round_without_labels_is_one_clear_error(tmp_path, graph):
    config = RecordingConfig(2, keep_failed=True, beta=0.0)
    with pytest.raises(EpisodeError, match=r"0 of 20 episodes are labelled, of 2 .* such as: all is lost"):
        record(config, spec(unsolved=1), tmp_path / "toy-v0", ABOUT, 1, policy=graph)


def test_an_interrupted_round_refuses_another_policy(tmp_path, graph):
    out, config = tmp_path / "toy-v0", RecordingConfig(2, keep_failed=True, beta=0.0)
    before, after = ({**ABOUT, "policy": {"run": "runs/clone", "checkpoint": n}} for n in (250, 500))
    with pytest.raises(EpisodeError):
        record(config, spec(raises=1), out, before, 1, policy=graph)
    with pytest.raises(ValueError, match=r"policy checkpoint is 500: the recording .* interrupted has 250"):
        record(config, spec(raises=1), out, after, 1, policy=graph)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"task": "other"}, "it has task 'other', and '.*toy-v0' has 'toy'"),
        (
            {"columns": {"images": {"image": (48, 48, 3)}}},
            r"it has images .*\(48, 48, 3\).* has .*\(40, 40, 3\)",
        ),
        ({"columns": {"vectors": {}}}, "it has vectors {}, and"),
        ({"columns": {"actions": 7}}, "it has actions 7, and '.*toy-v0' has 12"),
        ({"path": None}, "toy-v0' twice: it must be given once"),
    ],
)
def test_rounds_that_differ_are_refused(dataset, changed, words):
    opened = open_dataset(dataset, TASK)
    changed = {"path": Path("other-v0"), **changed}
    changed["path"] = changed["path"] or dataset
    columns = opened.columns._replace(**changed.pop("columns", {}))
    check_alike([opened, replace(opened, path=Path("right-v0"))])
    with pytest.raises(DatasetError, match=words):
        check_alike([opened, replace(opened, columns=columns, **changed)])


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


def with_metadata(path, **changed):
    file = path / "data" / "metadata.json"
    metadata = json.loads(file.read_text())
    metadata["robopolicy"] |= changed
    file.write_text(json.dumps(metadata))


def without(path, name, rows):
    with h5py.File(path / "data" / "main_data.hdf5", "a") as file:
        array = file[name][()]
        del file[name]
        file[name] = array[:-rows]


def with_value(path, name, where, value):
    with h5py.File(path / "data" / "main_data.hdf5", "a") as file:
        file[name][where] = value


def retyped(path, name, dtype):
    with h5py.File(path / "data" / "main_data.hdf5", "a") as file:
        array = file[name][()]
        del file[name]
        file[name] = array.astype(dtype)


def removed(path, name):
    with h5py.File(path / "data" / "main_data.hdf5", "a") as file:
        del file[name]


def cut_short(path):
    for name in (
        "actions",
        "rewards",
        "terminations",
        "truncations",
        "infos/intended_action",
        "observations/image",
        "observations/poses",
    ):
        without(path, f"episode_2/{name}", 1)
    with h5py.File(path / "data" / "main_data.hdf5", "a") as file:
        file["episode_2"].attrs["total_steps"] -= 1


def with_vast_images(path):
    with h5py.File(path / "data" / "main_data.hdf5", "a") as file:
        del file["episode_0/observations/image"]
        vast = {"shape": (5, 10**6, 10**6, 3), "dtype": np.uint8, "chunks": (1, 64, 64, 3)}
        file.create_dataset("episode_0/observations/image", **vast)  # which nobody has written


def truncated(path):
    file = path / "data" / "main_data.hdf5"
    file.write_bytes(file.read_bytes()[:5000])


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda p: with_metadata(p, task="other"), "has task 'other': 'toy' was expected"),
        (lambda p: with_metadata(p, format=7), "has format 7: 1 was expected"),
        (lambda p: with_metadata(p, environment=3), "has environment 3: a dict was expected"),
        (lambda p: with_metadata(p, recording=None), "has recording None: a dict was expected"),
        (lambda p: with_metadata(p, renderer=1), "has renderer 1: a str was expected"),
        (
            lambda p: with_value(p, "episode_0/infos/intended_action", (2, 3), 1.5),
            r"episode 0 has infos/intended_action of 1.5: numbers in \[-1, 1\] were expected",
        ),
        (
            lambda p: with_value(p, "episode_3/actions", (0, 1), -7),
            r"episode 3 has actions of 7: numbers in \[-1, 1\] were expected",
        ),
        (
            lambda p: without(p, "episode_1/observations/image", 2),
            r"1 has observations/image of uint8\[4, .*uint8\[6, .* was expected",
        ),
        (lambda p: without(p, "episode_3/actions", 1), r"episode 3 has 4 actions: 5 were expected"),
        (cut_short, "episode 2 is cut short"),
        (
            lambda p: with_value(p, "episode_0/actions", (2, 3), np.nan),
            "episode 0 has actions that are not finite",
        ),
        (lambda p: with_value(p, "episode_4/terminations", 1, True), "episode 4 ends at step 2: it has 4"),
        (lambda p: retyped(p, "episode_1/observations/image", np.float32), "image of float32"),
        (
            lambda p: without(p, "episode_1/infos/intended_action", 1),
            r"infos/intended_action of float32\[4, 12\]",
        ),
        (
            lambda p: removed(p, "episode_2/observations/poses"),
            r"2 has observations \['image'\]: \['image', 'poses'\] were expected",
        ),
        (lambda p: removed(p, "episode_2/rewards"), "is damaged"),
        (lambda p: (p / "data" / "metadata.json").write_text("[]"), "holds no settings by name"),
        (truncated, "is damaged"),
        (lambda p: (p / "data" / "metadata.json").write_text("{"), "metadata.json' is not JSON"),
        (with_vast_images, "images image of 1000000 x 1000000: 1 to 4096 were expected"),
        (lambda p: (p / "data" / "metadata.json").write_text("{}"), "total_episodes None"),
    ],
)
def test_a_damaged_dataset_is_refused_with_the_reason(copy, spoil, words):
    open_dataset(copy, TASK)
    spoil(copy)
    with pytest.raises(DatasetError, match=words):
        open_dataset(copy, TASK)


def test_a_folder_without_a_dataset_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="is no Minari dataset"):
        open_dataset(tmp_path, TASK)

"""Run folders: no partial, foreign or lost files."""

import errno
import fcntl
import json
import logging
import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from io import BufferedWriter, FileIO
from threading import Barrier

import numpy as np
import pytest

from robopolicy.training.checkpoint import (
    CheckpointError,
    RunFolder,
    load_policy,
)
from robopolicy.training.metrics import MetricsLog

ARRAYS = {
    "mean": np.arange(4, dtype=np.float32),
    "best": np.arange(4, 8, dtype=np.float32),
    "stage": np.asarray(1),
    "recent": np.array([1.5, np.nan, np.nan]),
    "features/level/front": np.full((2, 3), 0.4, np.float32),
    "strategy/key": np.array([1, 2], np.uint32),
}


@pytest.fixture
def run(tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.create({"seed": 1})
    return folder


def spoil(run, generation):
    for file in (run.path / "checkpoints" / str(generation)).rglob("*"):
        if file.is_file():
            file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def test_arrays_are_restored_bit_for_bit_with_their_dtypes(run):
    run.save(3, ARRAYS)
    generation, arrays = run.load()
    assert generation == 3
    assert arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(arrays[name], array)


def test_a_run_is_locked_on_nfs_and_trains_without_support_for_locks(run, monkeypatch, capsys):
    flock = fcntl.flock

    def nfs(file, kind):
        if kind & fcntl.LOCK_EX and not file.writable():
            raise OSError(errno.EBADF, "Bad file descriptor")
        flock(file, kind)

    def without_locks(file, kind):
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", nfs)
    with run.locked():
        assert run.is_locked()
    monkeypatch.setattr(fcntl, "flock", without_locks)
    for _ in range(2):
        with run.locked():
            assert not run.is_locked()
    said = capsys.readouterr().err
    assert said.startswith(f"the file system of '{run.path}' has no locks")
    assert said.count("\n") == 1


@pytest.mark.parametrize("name", ["lr[0.1]", r"a\b", "a**b"])
def test_checkpoints_are_kept_in_a_folder_whose_name_looks_like_a_pattern(tmp_path, name):
    folder = RunFolder(tmp_path / name / "run")
    folder.create({})
    for generation in range(1, 6):
        folder.save(generation, ARRAYS)
    assert folder.generations() == [3, 4, 5]
    np.testing.assert_array_equal(folder.load()[1]["mean"], ARRAYS["mean"])
    assert [path.name for path in tmp_path.iterdir()] == [name]
    shutil.copytree(folder.path, tmp_path / "plain")
    assert RunFolder(tmp_path / "plain").load(4)[0] == 4


def test_a_folder_without_a_path_that_can_be_read_is_refused_before_a_run_begins(tmp_path, monkeypatch):
    (tmp_path / "[tmp]").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "[tmp]"))
    with pytest.raises(ValueError, match=r"lr\[0\.1\]'.*\[tmp\]' has \[: set TMPDIR"):
        RunFolder(tmp_path / "lr[0.1]").create({})
    assert not (tmp_path / "lr[0.1]").exists()
    RunFolder(tmp_path / "plain").create({})


def test_a_policy_is_that_of_the_latest_checkpoint(run):
    for generation in (1, 2):
        run.save(generation, ARRAYS | {"mean": np.full(4, generation, np.float32)})
    np.testing.assert_array_equal(load_policy(run.path)[0], np.full(4, 2.0))
    np.testing.assert_array_equal(load_policy(run.path, "best")[0], ARRAYS["best"])
    assert list(load_policy(run.path)[1]) == ["level/front"]


def test_the_last_three_checkpoints_stay(run):
    for generation in range(1, 6):
        run.save(generation, ARRAYS)
    assert run.generations() == [3, 4, 5]
    assert run.load(4)[0] == 4
    with pytest.raises(FileNotFoundError, match="no checkpoint 1"):
        run.load(1)


def test_the_error_for_a_damaged_checkpoint_names_the_last_good_one(run):
    for generation in (1, 2, 3):
        run.save(generation, ARRAYS)
    spoil(run, 3)
    with pytest.raises(
        CheckpointError, match=r"checkpoints/3' is damaged: .*the last good one is 2: .*--resume-from 2$"
    ):
        run.load()
    assert run.load(2)[0] == 2


def test_a_flipped_bit_in_any_file_never_changes_arrays(run):
    run.save(1, ARRAYS | {"mean": np.random.default_rng(0).normal(size=500).astype(np.float32)})
    _, saved = run.load()
    refused = 0
    for file in sorted(p for p in (run.path / "checkpoints" / "1").rglob("*") if p.is_file()):
        whole = file.read_bytes()
        spoilt = bytearray(whole)
        spoilt[len(whole) // 2] ^= 0x10
        file.write_bytes(spoilt)
        try:
            _, arrays = run.load()
        except CheckpointError:
            refused += 1
        else:
            for name, array in saved.items():
                np.testing.assert_array_equal(arrays[name], array, err_msg=str(file))
        file.write_bytes(whole)
    assert refused >= 2


def test_a_reader_does_not_remove_a_checkpoint_that_a_trainer_writes(run):
    run.save(1, ARRAYS)
    unfinished = run.path / "checkpoints" / "2.orbax-checkpoint-tmp"
    unfinished.mkdir()
    (unfinished / "part").write_text("x")
    load_policy(run.path)[0]
    assert (unfinished / "part").read_text() == "x"
    run.save(2, ARRAYS)  # the trainer itself removes it
    assert run.load()[0] == 2
    assert not unfinished.exists()


def test_a_checkpoint_whose_index_does_not_fit_its_arrays_is_refused(run):
    run.save(1, ARRAYS)
    (index,) = (run.path / "checkpoints" / "1" / "index").rglob("metadata")
    text = json.loads(index.read_text())
    for entry in text["arrays"]:
        if entry["path"] == "mean":
            entry["shape"] = [5]
    del text["crc32"]  # as in one from before it was recorded
    index.write_text(json.dumps(text))
    with pytest.raises(CheckpointError, match=r"mean as float32\[4\].*float32\[5\].*no good one is left"):
        run.load()


def test_a_folder_that_is_not_empty_stays_unchanged(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years")
    with pytest.raises(FileExistsError, match="--resume"):
        RunFolder(tmp_path / "mine").create({})
    assert [p.name for p in (tmp_path / "mine").iterdir()] == ["thesis.txt"]


def test_of_several_that_begin_a_run_in_one_folder_at_once_one_succeeds(tmp_path):
    folder, together = RunFolder(tmp_path / "new" / "run"), Barrier(8)

    def begin(seed):
        together.wait()
        folder.create({"seed": seed})

    with ThreadPoolExecutor(8) as threads:
        errors = [future.exception() for future in [threads.submit(begin, seed) for seed in range(8)]]
    assert errors.count(None) == 1
    assert folder.config() == {"seed": errors.index(None)}
    assert all("--resume" in str(error) for error in errors if error is not None)


def test_folders_without_a_run_are_refused(tmp_path, run):
    with pytest.raises(FileNotFoundError, match="nowhere': it does not exist, so it is no run"):
        RunFolder(tmp_path / "nowhere").config()
    with pytest.raises(FileNotFoundError, match=r"^run is .*config\.json, so it is no run$"):
        RunFolder(tmp_path).config()
    with pytest.raises(FileNotFoundError, match="no checkpoint yet"):
        run.load()
    run.config_path.write_text("{")
    with pytest.raises(CheckpointError, match="not JSON"):
        run.config()


def test_a_log_on_a_full_disk_raises_one_error(run, monkeypatch):
    full = FileIO("/dev/full", "w")
    monkeypatch.setattr("tensorboardX.record_writer.open_file", lambda path: BufferedWriter(full))
    log = MetricsLog(run.path, after=-1)
    with pytest.raises(OSError, match="go on with --resume") as error, closing(log):
        log.add({"generation": 0, "return_mean": 1.0})
    assert error.value.filename == str(run.path)


def test_a_full_disk_is_one_clear_error_and_keeps_older_checkpoints(run, monkeypatch, caplog):
    run.save(1, ARRAYS)

    def full(self, path, **options):
        logging.getLogger("absl").error("a traceback of a thread of orbax")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(RunFolder, "_manager", full)
    with pytest.raises(OSError, match="disk is full") as caught:
        run.save(2, ARRAYS)
    assert caught.value.errno == errno.ENOSPC
    assert caught.value.filename == str(run.path)
    assert not caplog.records
    monkeypatch.undo()
    assert run.load()[0] == 1

"""Files and folders are written whole or not at all, and a full disk is one error."""

import errno
import fcntl
import os
import pickle
import subprocess
import sys

import pytest

from robopolicy.writing import (
    DiskFullError,
    clear_about_full_disks,
    scratch,
    whole,
    write_atomically,
    write_new,
)


def hidden(path):
    return sorted(path.glob(".*.partial"))


def killed_in(place, **environment):
    """Run a process that exits without clean-up while it writes in `place`, an expression."""
    code = "import os; from pathlib import Path; from robopolicy.writing import scratch, whole"
    code += f"\nwith {place}: os._exit(9)"
    ended = subprocess.run([sys.executable, "-c", code], env={**os.environ, **environment})
    assert ended.returncode == 9


def test_a_file_or_folder_appears_once_it_is_complete(tmp_path):
    with whole(tmp_path / "a.txt") as partial:
        partial.write_text("all of it")
        assert not (tmp_path / "a.txt").exists()
    assert (tmp_path / "a.txt").read_text() == "all of it"
    with whole(tmp_path / "folder") as partial:
        partial.mkdir()
        (partial / "a.txt").write_text("all of it")
    assert os.listdir(tmp_path / "folder") == ["a.txt"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt", "folder"]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "config.json"
    write_atomically(path, "old")

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DiskFullError, match="disk is full"):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["config.json"]


def test_the_next_writer_removes_the_leftovers_of_a_killed_process(tmp_path):
    for name in ("a.txt", "a.txt.bak"):
        killed_in(f"whole(Path({str(tmp_path / name)!r})) as path, path.open('w')")
    mine = tmp_path / ".a.txt.mine.partial"
    mine.mkdir()
    assert len(hidden(tmp_path)) == 3
    write_atomically(tmp_path / "a.txt", "all of it")
    assert [path.name[:11] for path in hidden(tmp_path)] == [".a.txt.bak.", mine.name[:11]]


def test_two_writers_of_one_file_do_not_disturb_each_other(tmp_path):
    path = tmp_path / "a.txt"
    with whole(path) as first:
        first.write_text("first")
        with whole(path) as second:
            second.write_text("second")
        assert path.read_text() == "second"
        assert first.read_text() == "first"
    assert path.read_text() == "first"
    assert not hidden(tmp_path)


@pytest.mark.parametrize("linked", [True, False])
def test_a_new_file_is_written_once(tmp_path, monkeypatch, linked):
    def refuse(*paths):
        raise PermissionError(errno.EPERM, "Operation not permitted")

    if not linked:
        monkeypatch.setattr(os, "link", refuse)
    path = tmp_path / "a.txt"
    write_new(path, "first")
    with pytest.raises(FileExistsError, match=r"a\.txt"):
        write_new(path, "second")
    assert path.read_text() == "first"
    assert not hidden(tmp_path)


def test_without_locks_files_are_written_and_leftovers_stay(tmp_path, monkeypatch):
    killed_in(f"whole(Path({str(tmp_path / 'a.txt')!r}))")

    def unlockable(file, kind):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", unlockable)
    write_atomically(tmp_path / "a.txt", "all of it")
    assert (tmp_path / "a.txt").read_text() == "all of it"
    assert len(hidden(tmp_path)) == 1


def test_temporary_folders_of_killed_processes_are_removed(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    killed_in("scratch()", TMPDIR=str(tmp_path))
    assert len(hidden(tmp_path)) == 1
    with scratch() as folder:
        assert hidden(tmp_path) == [folder]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        OSError(errno.EDQUOT, "Disk quota exceeded", "/elsewhere"),
        RuntimeError("tensorstore: [28] No space left on device"),
    ],
    ids=repr,
)
def test_a_full_disk_is_one_error_with_the_path_and_the_free_space(tmp_path, error):
    path = tmp_path / "nowhere" / "a.txt"
    with pytest.raises(DiskFullError) as caught, clear_about_full_disks(path, "go on"):
        raise error
    assert caught.value.filename == str(path)
    assert caught.value.strerror.startswith("the disk is full (")
    assert caught.value.strerror.endswith(" MB free); go on")
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)  # workers send it


def test_other_errors_are_raised_unchanged(tmp_path):
    with pytest.raises(PermissionError) as caught, whole(tmp_path / "a.txt"):
        raise PermissionError(errno.EACCES, "Permission denied", "b.txt")
    assert caught.value.filename == "b.txt"


def test_errors_name_the_destination_and_not_the_hidden_path(tmp_path):
    with pytest.raises(FileNotFoundError) as caught, whole(tmp_path / "a.txt") as partial:
        partial.read_text()
    assert caught.value.filename == str(tmp_path / "a.txt")
    with pytest.raises(IsADirectoryError) as moved, whole(tmp_path) as partial:
        partial.touch()
    assert str(moved.value) == f"[Errno {errno.EISDIR}] Is a directory: '{tmp_path}'"


def test_the_error_names_the_full_one_of_two_disks(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    full = OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(DiskFullError) as caught, scratch(), whole(tmp_path / "a.txt"):
        raise full
    assert caught.value.filename == str(tmp_path / "a.txt")
    with pytest.raises(DiskFullError, match="set TMPDIR") as caught, scratch() as here, whole(here / "a.txt"):
        raise full
    assert caught.value.filename == str(tmp_path)
    with pytest.raises(DiskFullError) as caught, whole(tmp_path / "bundle") as out, whole(out):
        raise full
    assert caught.value.filename == str(tmp_path / "bundle")
    assert not list(tmp_path.iterdir())

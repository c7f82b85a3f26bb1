"""A full disk: every command gives one line with the place."""

from io import FileIO

import pytest

from robopolicy.cli import main

RUN = "stepping-stones-softmax"
SHORT = "--episode-seconds 0.2 --size 320 240"


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (f"plot {RUN} --out", "curves.svg"),
        (f"plot {RUN} --out", "curves.png"),
        ("flops --attention softmax --csv", "flops.csv"),
        ("flops --attention softmax --picture", "flops.svg"),
        pytest.param(f"report {RUN} --no-video --episodes 0 --out", "report.html", marks=pytest.mark.slow),
        (f"rollout oracle {SHORT} --video", "walk.mp4"),
        (f"rollout oracle {SHORT} --sheet", "walk.png"),
        pytest.param(f"export {RUN} --observations 1 --out", "bundle", marks=pytest.mark.slow),
    ],
)
def test_a_full_disk_is_one_line_that_names_the_place(capfd, tmp_path, full_disk, words, name):
    full_disk("policy.onnx" if name == "bundle" else name)
    assert main([*words.split(), str(tmp_path / name)]) == 1
    out, err = capfd.readouterr()
    assert out == ""
    *before, last = err.splitlines()
    assert last.startswith(f"robopolicy: {tmp_path / name}: the disk is full (")
    assert last.endswith(" MB free); free some space and run the command again")
    assert before in ([], ["filming oracle"], ["converting, and recording 1 observations ..."])
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_full_disk_of_temporary_files_is_named(capfd, tmp_path, monkeypatch, full_disk):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    full_disk("policy.onnx")
    assert main(["evaluate", RUN, "--episodes", "1", "--episode-seconds", "0.2"]) == 1
    begun, said = capfd.readouterr().err.splitlines()
    assert begun == "playing 1 episode"
    assert said.startswith(f"robopolicy: {tmp_path}: the disk is full (")
    assert said.endswith("or set TMPDIR to another folder")
    assert not list(tmp_path.iterdir())


def test_a_disk_that_is_full_already_is_found_before_any_work(capfd, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.TemporaryFile", lambda dir: FileIO("/dev/full", "w"))
    path = tmp_path / "report.html"
    assert main(["report", RUN, "--no-video", "--episodes", "0", "--out", str(path)]) == 1
    assert capfd.readouterr().err.startswith(f"robopolicy: {path}: the disk is full (")


def test_a_full_disk_behind_standard_output_is_one_line(capsys, monkeypatch):
    with open("/dev/full", "w") as full:
        monkeypatch.setattr("sys.stdout", full)
        assert main(["--version"]) == 1
    said = "robopolicy: standard output: the disk is full; free some space and run the command again\n"
    assert capsys.readouterr().err == said

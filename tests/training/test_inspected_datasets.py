"""`robopolicy inspect` on demonstrations: statistics, and pictures of episodes."""

import json
import shutil
from pathlib import Path

import cv2
import h5py
import imageio_ffmpeg
import numpy as np
import pytest
from toy_demos import SIZE

from robopolicy.cli import main
from robopolicy.training.datasets import open_dataset
from robopolicy.training.episodes import open_episode


def inspected(capsys, *words):
    capsys.readouterr()
    assert main(["inspect", *map(str, words), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def refused(capsys, *words):
    capsys.readouterr()
    assert main(["inspect", *map(str, words)]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    return err


def copied(dataset, tmp_path):
    return Path(shutil.copytree(dataset, tmp_path / "toy-v0"))


def test_a_dataset_has_statistics(capsys, dataset):
    seen, opened = inspected(capsys, dataset), open_dataset(dataset, "toy")
    assert (seen["kind"], seen["task"], seen["episodes"]) == ("dataset", "toy", 5)
    assert seen["lengths"] == list(opened.steps)
    assert seen["steps"] == sum(opened.steps)
    assert seen["observations"]["image"]["shape"] == [SIZE, SIZE, 3]
    assert seen["observations"]["poses"]["low"] == [0.0] * 14
    assert (seen["success_rate"], seen["score_mean"]) == (1.0, 1.0)
    assert seen["returns"] == [0.5 * steps for steps in opened.steps]
    assert max(map(abs, seen["actions"]["low"])) <= 0.1
    assert main(["inspect", str(dataset)]) == 0
    out = capsys.readouterr().out
    assert f"5 episodes, {sum(opened.steps)} steps" in out
    assert out.count("100.0%") == 1


def test_long_names_and_small_scores_keep_their_columns(capsys, dataset, tmp_path):
    copy = copied(dataset, tmp_path)
    with h5py.File(copy / "data/main_data.hdf5", "a") as file:
        for episode in file.values():
            episode.move("observations/poses", "observations/joint_positions")
    path = copy / "data/metadata.json"
    metadata = json.loads(path.read_text())
    metadata["robopolicy"]["scores"][0] = 9.588032358771768e-09
    path.write_text(json.dumps(metadata))
    assert main(["inspect", str(copy)]) == 0
    out = capsys.readouterr().out
    assert "\nimage           uint8[40, 40, 3]" in out
    assert "\njoint_positions float32[14]" in out
    assert main(["inspect", str(copy), "--episode", "0"]) == 0
    assert "  score         9.588e-09\n" in capsys.readouterr().out


def test_a_video_has_every_step_and_a_sheet_has_the_wanted_number(capsys, dataset, tmp_path):
    video, sheet = tmp_path / "e.mp4", tmp_path / "e.png"
    episode = inspected(capsys, dataset, "--episode", 2, "--video", video, "--sheet", sheet, "--frames", 3)
    opened = open_dataset(dataset, None)
    assert (episode["kind"], episode["episode"], episode["steps"]) == ("episode", 2, opened.steps[2])
    assert episode["return"] == 0.5 * opened.steps[2]
    assert (episode["seed"], episode["score"]) == (3, 1.0)
    assert imageio_ffmpeg.count_frames_and_secs(str(video))[0] == opened.steps[2]
    reader = imageio_ffmpeg.read_frames(str(video))
    width, height = next(reader)["size"]
    first = np.frombuffer(next(reader), np.uint8).reshape(height, width, 3)
    reader.close()
    times = width // SIZE
    with open_episode(opened, 2) as stored:
        image = stored.image(0)
    small = first[: SIZE * times].reshape(SIZE, times, SIZE, times, 3).mean(axis=(1, 3))
    assert np.abs(small.mean(axis=-1) - image.mean(axis=-1)).mean() < 8
    assert height > width  # captions lie under the picture, and not on it
    assert first[SIZE * times :].max() > 200
    page = cv2.imread(str(sheet))
    assert page.shape[1] > 3 * SIZE
    assert sorted(path.name for path in tmp_path.iterdir()) == ["e.mp4", "e.png"]


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, bool])
def test_rewards_may_be_whole_numbers_or_truth_values(capsys, dataset, tmp_path, dtype):
    copy = copied(dataset, tmp_path)
    with h5py.File(copy / "data" / "main_data.hdf5", "a") as file:
        for episode in file.values():
            steps = len(episode["rewards"])
            del episode["rewards"]
            episode["rewards"] = np.ones(steps, dtype)
    lengths = inspected(capsys, copy)["lengths"]
    assert inspected(capsys, copy)["returns"] == lengths
    first = inspected(capsys, copy, "--episode", 0, "--sheet", tmp_path / "e.png")
    assert first["rewards"] == [1.0] * lengths[0]
    assert {type(reward) for reward in first["rewards"]} == {float}


def test_a_sheet_may_have_fewer_frames_than_wanted(capsys, dataset, tmp_path):
    assert inspected(capsys, dataset, "--sheet", tmp_path / "e.png", "--frames", 100)["episode"] == 0
    assert (tmp_path / "e.png").is_file()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--episode", "5"), "episode is 5: the dataset has 0 to 4"),
        (("--episode", "-1"), "episode is -1"),
        (("--video", "e.avi"), "its name must end in .mp4"),
        (("--sheet", "e.svg"), "its name must end in .png"),
        (("--sheet", "nowhere/e.png"), "the folder 'nowhere' does not exist"),
        (("--sheet", "e.png", "--frames", "0"), "frames is 0"),
        (("--frames", "3"), "it needs a sheet"),
    ],
)
def test_bad_arguments_are_refused(capsys, dataset, tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    assert message in refused(capsys, dataset.resolve(), *words)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("content", [b"", b"[]", b"[" * 100_000, b'{"robopolicy": {}}', b"\xff", b'{"a": 1}'])
def test_damaged_metadata_is_one_clear_error(capsys, dataset, tmp_path, content):
    copy = copied(dataset, tmp_path)
    (copy / "data" / "metadata.json").write_bytes(content)
    assert str(copy) in refused(capsys, copy)


def test_the_error_names_a_damaged_image_and_no_file_is_written(capsys, dataset, tmp_path):
    copy = copied(dataset, tmp_path)
    with h5py.File(copy / "data" / "main_data.hdf5") as file:
        image = file["episode_1/observations/image"]
        place, length = image.id.get_chunk_info(2).byte_offset, image.id.get_chunk_info(2).size
    with (copy / "data" / "main_data.hdf5").open("r+b") as file:
        file.seek(place)
        file.write(b"\0" * length)
    message = refused(capsys, copy, "--episode", "1", "--video", tmp_path / "e.mp4")
    assert "image 2 of" in message
    assert [path.name for path in tmp_path.iterdir()] == ["toy-v0"]

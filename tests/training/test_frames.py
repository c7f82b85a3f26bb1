"""Single frames of a dataset, in any order."""

import json
import shutil
import zlib
from pathlib import Path

import h5py
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict
from toy_recordings import TASK, recorded

from robopolicy.training.batches import Batches, statistics
from robopolicy.training.datasets import DatasetError, open_dataset
from robopolicy.training.frames import Frames

SPACE = Dict(
    {
        "left": Box(0, 255, (6, 8, 3), np.uint8),
        "right": Box(0, 255, (5, 5, 3), np.uint8),
        "joints": Box(-9, 9, (3,), np.float64),
        "speed": Box(-9, 9, (1,), np.float32),
    }
)


JPEGS = np.empty(5, h5py.vlen_dtype(np.uint8))  # compressed images have different lengths
JPEGS[:] = [np.zeros(3 + n, np.uint8) for n in range(5)]


@pytest.fixture(scope="module")
def foreign(tmp_path_factory):
    """A dataset of two images, two vectors and three actions that another program recorded."""
    minari = pytest.importorskip("minari")
    from gymnasium.envs.registration import EnvSpec
    from minari.dataset.minari_storage import MinariStorage

    folder = tmp_path_factory.mktemp("foreign") / "arm-v0"
    folder.mkdir()
    spec = EnvSpec("Arm-v0", entry_point="arms:Arm", kwargs={"links": 2})
    storage = MinariStorage.new(
        folder / "data", SPACE, Box(-1, 1, (3,), np.float32), env_spec=spec, jpeg_encoding=False
    )
    SPACE.seed(0)
    buffers = []
    for number, steps in enumerate((4, 3)):
        seen = [SPACE.sample() for _ in range(steps + 1)]
        buffers.append(
            minari.data_collector.EpisodeBuffer(
                id=number,
                observations={name: [s[name] for s in seen] for name in SPACE},
                actions=[np.full(3, (number + step) / 10, np.float32) for step in range(steps)],
                rewards=[1.0] * steps,
                terminations=[False] * (steps - 1) + [True],
                truncations=[False] * steps,
                infos={},
            )
        )
    storage.update_episodes(buffers)
    storage.update_metadata({"dataset_id": "arm-v0", "minari_version": minari.__version__})
    return folder


def test_frames_hold_every_image_and_the_intended_action(dataset):
    minari = pytest.importorskip("minari")
    opened = open_dataset(dataset, TASK)
    with Frames(opened) as frames:
        assert len(frames) == sum(opened.steps)
        at = 0
        for number, episode in enumerate(minari.MinariDataset(opened.path / "data").iterate_episodes()):
            order = np.random.default_rng(number).permutation(len(episode))
            seen = episode.observations
            np.testing.assert_array_equal(frames.images(at + order)["image"], seen["image"][order])
            np.testing.assert_array_equal(frames.vectors["poses"][at + order], seen["poses"][order])
            np.testing.assert_array_equal(frames.action[at + order], 0.0)
            assert np.abs(episode.actions).max() > 0.05
            assert (frames.episode[at + order] == number).all()
            at += len(episode)


def test_frames_of_several_datasets_follow_each_other(dataset, tmp_path):
    recorded(tmp_path / "more-v0", episodes=2, seed=6)
    parts = [open_dataset(path, TASK) for path in (dataset, tmp_path / "more-v0")]
    with Frames(*parts) as both, Frames(parts[0]) as one, Frames(parts[1]) as two:
        assert len(both) == len(one) + len(two)
        np.testing.assert_array_equal(both.episode, [*one.episode, *(two.episode + len(parts[0].steps))])
        np.testing.assert_array_equal(both.vectors["poses"], [*one.vectors["poses"], *two.vectors["poses"]])
        np.testing.assert_array_equal(both.image(len(one) + 5, "image"), two.image(5, "image"))
        np.testing.assert_array_equal(both.image(5, "image"), one.image(5, "image"))


def test_a_dataset_of_another_program_needs_a_task(foreign):
    minari = pytest.importorskip("minari")
    with pytest.raises(DatasetError, match="does not say its task"):
        open_dataset(foreign, None)
    opened = open_dataset(foreign, "reach")
    assert opened.columns == ({"left": (6, 8, 3), "right": (5, 5, 3)}, {"joints": 3, "speed": 1}, 3)
    assert (opened.task, opened.about, opened.steps) == ("reach", {}, (4, 3))
    assert (opened.environment.id, opened.environment.settings) == ("Arm-v0", {"links": 2})
    whole = [
        episode.observations for episode in minari.MinariDataset(opened.path / "data").iterate_episodes()
    ]
    with Frames(opened) as frames:
        for name, found in {**frames.images(range(7)), **frames.vectors}.items():
            np.testing.assert_array_equal(found, np.concatenate([seen[name][:-1] for seen in whole]))
        np.testing.assert_allclose(frames.action[:, 2], [0.0, 0.1, 0.2, 0.3, 0.1, 0.2, 0.3])
        batch = Batches(frames, np.arange(7), 4, 0, None, 0.1).at(0)
        assert {n: a.shape for n, a in batch.observation.items()} == {
            "left": (4, 6, 8, 3),
            "right": (4, 5, 5, 3),
            "joints": (4, 3),
            "speed": (4, 1),
        }
        known = statistics(frames, np.arange(7), None)
    moved = (frames.vectors["joints"] - known["joints_shift"]) * known["joints_scale"]
    np.testing.assert_allclose(moved.mean(axis=0), 0.0, atol=1e-6)
    np.testing.assert_allclose(moved.std(axis=0), 1.0, atol=1e-5)
    assert (known["action_low"] < 0.0).all()
    assert (known["action_high"] > 0.3).all()


def with_metadata(path, **changed):
    file = path / "data" / "metadata.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changed}))


def replaced(path, name, array):
    with h5py.File(path / "data" / "main_data.hdf5", "a") as file:
        del file[name]
        file[name] = array


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda p: with_metadata(p, env_spec="{"), "has an env_spec that is not Minari's"),
        (lambda p: with_metadata(p, env_spec='{"id": 3, "kwargs": {}}'), "its id is 3"),
        (lambda p: replaced(p, "episode_0/observations", np.zeros((5, 3))), "has observations without names"),
        (
            lambda p: replaced(p, "episode_0/observations/speed", np.zeros((5, 1), np.int64)),
            r"observations/speed of int64\[5, 1\]: an image uint8\[steps, height, width, 3\] or a vector",
        ),
        (
            lambda p: replaced(p, "episode_0/observations/left", np.zeros((5, 6, 8), np.uint8)),
            r"observations/left of uint8\[5, 6, 8\]: an image uint8\[steps, height, width, 3\] or a vector",
        ),
        (
            lambda p: replaced(p, "episode_0/observations/left", JPEGS),
            r"observations/left of JPEG images, .* record with DataCollector\(env, jpeg_encoding=False\)",
        ),
        (
            lambda p: replaced(p, "episode_0/observations/left", np.zeros((5, 90), np.uint8)),
            "observations/left of JPEG images",
        ),
        (
            lambda p: replaced(p, "episode_0/observations/left", np.array(["a"] * 5, h5py.string_dtype())),
            r"observations/left of object\[5\]: an image",
        ),
        (
            lambda p: replaced(p, "episode_1/observations/right", np.zeros((4, 6, 6, 3), np.uint8)),
            r"episode 1 has observations/right of uint8\[4, 6, 6, 3\]: uint8\[4, 5, 5, 3\] was expected",
        ),
        (
            lambda p: replaced(p, "episode_0/actions", np.zeros(4, np.int64)),
            r"actions of int64\[4\]: vectors",
        ),
        (lambda p: replaced(p, "episode_1/actions", np.full((3, 3), 1.5)), r"actions of 1.5: numbers in"),
    ],
)
def test_an_unusable_dataset_is_refused_with_the_reason(foreign, tmp_path, spoil, words):
    copy = Path(shutil.copytree(foreign, tmp_path / "copy-v0"))
    open_dataset(copy, "reach")
    spoil(copy)
    with pytest.raises(DatasetError, match=words):
        open_dataset(copy, "reach")


def test_without_a_specification_the_environment_is_unknown(foreign, tmp_path):
    copy = Path(shutil.copytree(foreign, tmp_path / "copy-v0"))
    with_metadata(copy, env_spec=None)
    assert open_dataset(copy, "reach").environment is None


def test_the_error_names_a_damaged_frame(dataset, tmp_path):
    copy = Path(shutil.copytree(dataset, tmp_path / "copy-v0"))
    opened = open_dataset(copy, TASK)
    with h5py.File(opened.file) as file:
        chunk = file["episode_0/observations/image"].id.get_chunk_info(3)
    spoilt = bytearray(opened.file.read_bytes())
    spoilt[chunk.byte_offset : chunk.byte_offset + 40] = b"x" * 40
    opened.file.write_bytes(bytes(spoilt))
    with Frames(opened) as frames, pytest.raises(DatasetError, match="is damaged at image of frame 3"):
        frames.images([0, 3])


@pytest.mark.parametrize("damage", ["short", "cut", "checksum"])
def test_a_frame_of_other_bytes_is_damaged(dataset, tmp_path, damage):
    copy = Path(shutil.copytree(dataset, tmp_path / "copy-v0"))
    opened = open_dataset(copy, TASK)
    with h5py.File(opened.file, "r+") as file:
        images = file["episode_0/observations/image"]
        whole = zlib.compress(images[3].tobytes())
        chunks = {"short": zlib.compress(b"0" * 100), "cut": whole[:-2], "checksum": whole[:-4] + b"0000"}
        images.id.write_direct_chunk((3, 0, 0, 0), chunks[damage])
    with Frames(opened) as frames, pytest.raises(DatasetError, match="is damaged at image of frame 3"):
        frames.images([0, 3])


@pytest.mark.parametrize("filters", [(), ("gzip",), ("gzip", "gzip"), ("shuffle", "gzip")])
def test_images_are_read_through_any_filters(dataset, tmp_path, filters):
    copy = Path(shutil.copytree(dataset, tmp_path / "copy-v0"))
    opened = open_dataset(copy, TASK)
    with h5py.File(opened.file, "r+") as file:
        images = file["episode_0/observations"].pop("image")[()]
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_chunk((1, *images.shape[1:]))
        properties.set_fill_value(np.array(7, np.uint8))
        for name in filters:
            properties.set_deflate(4) if name == "gzip" else properties.set_shuffle()
        place, space = file["episode_0/observations"].id, h5py.h5s.create_simple(images.shape)
        stored = h5py.Dataset(h5py.h5d.create(place, b"image", h5py.h5t.NATIVE_UINT8, space, properties))
        stored[:3] = images[:3]  # the others are never written, and have the fill value
    with Frames(opened) as frames:
        np.testing.assert_array_equal(frames.images([0, 2])["image"], images[[0, 2]])
        assert (frames.image(3, "image") == 7).all()

"""Caches of single frames: what the dataset holds, or refused."""

import h5py
import numpy as np
import pytest
import toy_demos
from toy_recordings import TASK

from robopolicy.training.datasets import DatasetError, FrameCache, build_cache, cached, open_dataset


def test_a_cache_gives_every_frame_and_the_action_that_was_intended(dataset, tmp_path):
    minari = pytest.importorskip("minari")
    opened = open_dataset(dataset, TASK, image_size=toy_demos.SIZE)
    build_cache(opened, tmp_path / "frames.hdf5")
    assert [f.name for f in tmp_path.iterdir()] == ["frames.hdf5"]
    with FrameCache(tmp_path / "frames.hdf5", TASK) as cache:
        assert len(cache) == sum(opened.steps)
        assert cache.image_size == toy_demos.SIZE
        at = 0
        for number, episode in enumerate(minari.MinariDataset(opened.data).iterate_episodes()):
            steps = np.arange(len(episode))
            order = np.random.default_rng(number).permutation(steps)
            np.testing.assert_array_equal(cache.images(at + order), episode.observations["image"][order])
            np.testing.assert_array_equal(cache.poses[at + order], episode.observations["poses"][order])
            np.testing.assert_array_equal(cache.action[at + order], 0.0)
            assert np.abs(episode.actions).max() > 0.05
            assert (cache.episode[at + order] == number).all()
            np.testing.assert_array_equal(cache.step[at + order], order)
            at += len(episode)


def test_what_is_no_cache_is_refused(dataset, tmp_path):
    with pytest.raises(FileNotFoundError, match="does not exist"):
        FrameCache(tmp_path / "frames.hdf5", TASK)
    path = tmp_path / "frames.hdf5"
    path.write_bytes(b"nothing of the kind")
    with pytest.raises(DatasetError, match="is no cache of frames, or damaged"):
        FrameCache(path, TASK)
    with pytest.raises(DatasetError, match="is no cache of frames, or damaged"):
        FrameCache(dataset / "data" / "main_data.hdf5", TASK)
    build_cache(open_dataset(dataset, TASK), path)
    with pytest.raises(DatasetError, match="has task 'toy': 'other' was expected"):
        FrameCache(path, "other")
    with pytest.raises(DatasetError, match="images of 40 x 40: 500 x 500 was expected"):
        FrameCache(path, TASK, image_size=500)
    with h5py.File(path, "a") as file:
        rows = file["step"][()]
        del file["step"]
        file["step"] = rows[:-1]
    with pytest.raises(DatasetError, match=r"has columns of .* was expected"):
        FrameCache(path, TASK)


@pytest.mark.parametrize(
    ("column", "where", "value", "words"),
    [
        ("action", (2, 3), np.nan, "is damaged: poses must be finite, and actions numbers in"),
        ("action", (2, 3), 7.0, "is damaged: poses must be finite, and actions numbers in"),
        ("poses", (5, 0), np.inf, "is damaged: poses must be finite, and actions numbers in"),
        ("episode", slice(None), 0, "it is that of another dataset"),
    ],
)
def test_a_cache_whose_contents_are_not_the_datasets_is_refused(
    dataset, tmp_path, column, where, value, words
):
    opened, path = open_dataset(dataset, TASK), tmp_path / "frames.hdf5"
    said = []
    for _ in range(2):
        with cached(opened, path, said.append) as cache:
            assert len(cache) == sum(opened.steps)
    assert len(said) == 1  # it is written once
    with h5py.File(path, "a") as file:
        file[column][where] = value
    with pytest.raises(DatasetError, match=words), cached(opened, path, said.append):
        pass


def test_a_frame_that_cannot_be_read_is_named(dataset, tmp_path):
    path = tmp_path / "frames.hdf5"
    build_cache(open_dataset(dataset, TASK), path)
    with h5py.File(path) as file:
        chunk = file["image"].id.get_chunk_info(3)
    spoilt = bytearray(path.read_bytes())
    spoilt[chunk.byte_offset : chunk.byte_offset + 40] = b"x" * 40
    path.write_bytes(bytes(spoilt))
    with FrameCache(path, TASK) as cache, pytest.raises(DatasetError, match="is damaged at frame 3"):
        cache.images([0, 3])


def test_a_cache_that_has_no_place_is_refused(dataset, tmp_path):
    opened = open_dataset(dataset, TASK)
    for path, words in (
        (tmp_path, "it must be a file, and is a folder"),
        (tmp_path / "nowhere" / "frames.hdf5", "the folder for it does not exist"),
    ):
        with pytest.raises(DatasetError, match=words), cached(opened, path, print):
            pass

"""Damaged datasets are refused with the reason."""

import json

import h5py
import numpy as np
import pytest
from toy_recordings import TASK

from robopolicy.training.datasets import DatasetError, open_dataset


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


def with_vast_numbers(path):
    retyped(path, "episode_1/observations/poses", np.float64)
    with_value(path, "episode_1/observations/poses", (2, 3), 1e39)


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


def with_actions_by_name(path):
    with h5py.File(path / "data" / "main_data.hdf5", "a") as file:
        actions = file["episode_0/actions"][()]
        del file["episode_0/actions"]
        file["episode_0/actions/arm"] = actions


def emptied(path):
    without(path, "episode_2/actions", 4)
    with h5py.File(path / "data" / "main_data.hdf5", "a") as file:
        file["episode_2"].attrs["total_steps"] = 0


def truncated(path):
    file = path / "data" / "main_data.hdf5"
    file.write_bytes(file.read_bytes()[:5000])


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda p: with_metadata(p, task="other"), "has task 'other', not 'toy'"),
        (lambda p: with_metadata(p, format=7), "has format 7: 1 was expected"),
        (lambda p: with_metadata(p, environment=3), "has environment 3: a dict was expected"),
        (lambda p: with_metadata(p, recording=None), "has recording None: a dict was expected"),
        (lambda p: with_metadata(p, renderer=1), "has renderer 1: a str was expected"),
        (
            lambda p: with_value(p, "episode_0/infos/intended_action", (2, 3), 1.5),
            r"episode 0 has infos/intended_action of 1.5: numbers in \[-1, 1\] were expected",
        ),
        (
            lambda p: with_value(p, "episode_3/actions", (0, 1), -1.000051),
            r"episode 3 has actions of 1.000051: numbers in \[-1, 1\] were expected",
        ),
        (
            lambda p: without(p, "episode_1/observations/image", 2),
            r"1 has observations/image of uint8\[4, .*uint8\[6, .* was expected",
        ),
        (lambda p: without(p, "episode_3/actions", 1), r"episode 3 has 4 actions: 5 were expected"),
        (cut_short, "episode 2 is cut short"),
        (with_actions_by_name, "episode 0 has actions of several arrays: vectors were expected"),
        (
            with_vast_numbers,
            r"1 has observations/poses of 1e\+39: numbers in \[-3.402823e\+38, 3.402823e\+38\]",
        ),
        (emptied, "episode 2 has 0 actions: 0 were expected, from 1 to"),
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
        (
            lambda p: retyped(p, "episode_2/rewards", complex),
            r"2 has rewards of complex128.*: floating or integer or bool.* was expected",
        ),
        (lambda p: with_value(p, "episode_2/rewards", 1, np.nan), "2 has rewards that are not finite"),
        (lambda p: (p / "data" / "metadata.json").write_text("[]"), "holds no JSON object"),
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

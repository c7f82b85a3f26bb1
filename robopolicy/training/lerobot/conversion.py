"""Both ways between Minari datasets in HDF5 and LeRobot datasets.

A frame of LeRobot is what was observed before an action, with that action, so it has no observation after an
episode's last action. Minari has: there, a dataset from LeRobot repeats the last one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from gymnasium.spaces import Box, Dict
from numpy.typing import NDArray

from robopolicy.reading_json import read_object
from robopolicy.settings import is_finite
from robopolicy.training.datasets import INTENDED, METADATA, OURS, Dataset, DatasetError
from robopolicy.training.demonstration import LEVEL
from robopolicy.training.lerobot.metadata import (
    ACTION,
    IMAGES,
    NUMBERS,
    OBSERVATION,
    STATE,
    Choice,
    LeRobot,
    choose,
)
from robopolicy.training.lerobot.reading import numbers, pictures
from robopolicy.training.lerobot.writing import Column, Episode, write_lerobot

NEXT = "next."  # what follows an action
REWARD, DONE, TRUNCATED, EXECUTED = "next.reward", "next.done", "next.truncated", "executed_action"
OUTCOMES = ("bool", "int32", "int64", *NUMBERS)  # types of them
AXES = ("height", "width", "channels")
FORMAT = 1  # of meta/robopolicy.json


def to_lerobot(
    dataset: Dataset, folder: Path, rate: float, robot: str, names: Mapping[str, Sequence[str]]
) -> None:
    """Write a Minari dataset as a LeRobot dataset to the new folder `folder`.

    `action` is the intended action where the recording has one; `executed_action` is then the executed one.

    Args:
      dataset: a checked dataset.
      folder: it must not exist.
      rate: frames a second.
      robot: the type of the robot; "" if it is not known.
      names: the names of a vector's numbers by its name, and those of `action`.
    """
    columns = dataset.columns
    keys = {**{name: IMAGES + name for name in columns.images}, **_vector_keys([*columns.vectors])}
    about = dataset.about.get("lerobot", {})
    scale, tasks = np.asarray(about.get("scale", 1.0)), about.get("tasks")
    with h5py.File(dataset.file) as file:
        first = file["episode_0"]
        described = {
            **{keys[n]: Column("image", tuple(s), AXES) for n, s in columns.images.items()},
            **{
                keys[n]: Column(str(first[f"observations/{n}"].dtype), (size,), names.get(n))
                for n, size in columns.vectors.items()
            },
            ACTION: Column(str(first["actions"].dtype), (columns.actions,), names.get(ACTION)),
        }
        every = range(len(dataset.steps))
        types = [{key: a.dtype for key, a in _extra(file[f"episode_{n}"]).items()} for n in every]
        for key, array in _extra(first).items():
            # An outcome may be whole in one episode and not in another.
            common = np.result_type(*(each[key] for each in types if key in each))
            described[key] = Column(str(common), array.shape[1:] or (1,))

        def episodes() -> Iterator[Episode]:
            for number in range(len(dataset.steps)):
                episode = file[f"episode_{number}"]
                arrays: dict[str, Any] = _extra(episode)
                if EXECUTED in arrays:
                    arrays[EXECUTED] = _scaled(arrays[EXECUTED], scale)
                intended = INTENDED if EXECUTED in arrays else "actions"
                arrays[ACTION] = _scaled(episode[intended][()], scale)
                seen = {key: episode[f"observations/{name}"] for name, key in keys.items()}
                arrays |= {key: _Before(array, dataset.steps[number]) for key, array in seen.items()}
                yield Episode(str(tasks[number] if tasks else dataset.task.replace("-", " ")), arrays)

        minari = read_object(dataset.path / METADATA)
        ours = {"format": FORMAT, "keys": {key: name for name, key in keys.items()}, "minari": minari}
        write_lerobot(folder, described, episodes(), rate, robot, ours)


class _Before:
    """The observations before each of an episode's actions, read from the disk at every use."""

    def __init__(self, array: h5py.Dataset, steps: int) -> None:
        self._array, self._steps = array, steps

    def __len__(self) -> int:
        return self._steps

    def __iter__(self) -> Iterator[NDArray[Any]]:
        return (self._array[step] for step in range(self._steps))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self._array[: self._steps], dtype)


def _vector_keys(names: Sequence[str]) -> dict[str, str]:
    """The keys of vectors: the only one is the state, which LeRobot's own policies read."""
    if len(names) == 1:
        return {names[0]: STATE}
    return {name: OBSERVATION + name for name in names}


def _extra(episode: h5py.Group) -> dict[str, NDArray[Any]]:
    """The columns of an episode besides observations and the action, [S, ...] by key."""
    steps, infos = len(episode["actions"]), episode.get("infos", {})
    own = {
        REWARD: episode["rewards"][()] * 1.0,  # whole ones become float64
        DONE: episode["terminations"][()],
        TRUNCATED: episode["truncations"][()],
    }
    outcomes = {NEXT + n: a[1:] for n, a in sorted(infos.items()) if getattr(a, "shape", ()) == (steps + 1,)}
    # An outcome that is called reward, done or truncated replaces none of them, and is left out.
    return {**own, **outcomes, **own} | ({EXECUTED: episode["actions"][()]} if INTENDED in episode else {})


def _scaled(actions: NDArray[Any], scale: NDArray[Any]) -> NDArray[Any]:
    """Actions in their own unit, in the type that they have."""
    return (actions * scale).astype(actions.dtype)


def action_scale(source: LeRobot) -> NDArray[np.float64]:
    """The largest absolute value of each number of the actions, [A]; 1 for a number that is always zero.

    It becomes an action of 1 in Minari. It is 1 throughout for a dataset that this library has written of a
    task whose actions are in [-1, 1].
    """
    if "minari" in source.ours and "scale" not in _about(source).get("lerobot", {}):
        return np.ones(source.features[ACTION].shape[0])
    largest = [np.abs(numbers(source, n, ACTION)[ACTION]).max(axis=0) for n in range(len(source.episodes))]
    scale = np.max(largest, axis=0).astype(np.float64)
    return np.where(scale > 0, scale, 1.0)


def _about(source: LeRobot) -> dict[str, Any]:
    """What this library recorded of a dataset; {} for one of another program."""
    minari = source.ours.get("minari", {})
    about = minari.get(OURS, {}) if isinstance(minari, dict) else {}
    return about if isinstance(about, dict) else {}


def to_minari(
    source: LeRobot, folder: Path, name: str, cameras: Sequence[str], about: Mapping[str, Any]
) -> None:
    """Write a LeRobot dataset as a Minari dataset to the new folder `folder`.

    Args:
      source: a dataset whose metadata have been checked.
      folder: it must not exist; its parent does.
      name: the id of the Minari dataset.
      cameras: those to take; () for the only one, or for all of a dataset that this library has written.
      about: metadata for a dataset of another program.

    Actions of another program are divided by `action_scale`, so that they are in [-1, 1]. Raises DatasetError
    for what contradicts the metadata.
    """
    import minari
    from minari.dataset.minari_storage import MinariStorage

    choice, scale = choose(source, cameras), action_scale(source)
    about = _about(source) or about
    folder.mkdir()
    storage = MinariStorage.new(
        (folder / "data").absolute(),
        observation_space=_observation_space(source, choice),
        action_space=Box(-1.0, 1.0, source.features[ACTION].shape, np.float32),
        jpeg_encoding=False,
    )
    with h5py.File(folder / "data" / "main_data.hdf5", "w", track_order=True) as file:
        for number, row in enumerate(source.episodes):
            group = file.create_group(f"episode_{number}")
            group.attrs.update(id=number, total_steps=row.length, **_attributes(about, number))
            for path, array in _arrays(source, choice, number, scale).items():
                group.create_dataset(path, data=array)
            for camera, key in choice.images.items():
                _copy_images(group, f"observations/{camera}", source, number, key)
    stored = source.ours.get("minari", {})
    kept = {key: stored[key] for key in ("env_spec", "algorithm_name") if key in stored}
    steps = sum(row.length for row in source.episodes)
    storage.update_metadata(
        {
            "dataset_id": name,
            "minari_version": minari.__version__,
            "total_episodes": len(source.episodes),
            "total_steps": steps,
            "dataset_size": float(storage.get_size()),
            **kept,
            OURS: dict(about),
        }
    )


def _observation_space(source: LeRobot, choice: Choice) -> Dict:
    spaces: dict[str, Any] = {
        n: Box(0, 255, source.features[k].image, np.uint8) for n, k in choice.images.items()
    }
    for name, key in choice.vectors.items():
        feature = source.features[key]
        spaces[name] = Box(-np.inf, np.inf, feature.shape, np.dtype(feature.dtype).type)
    return Dict(spaces)


def _attributes(about: Mapping[str, Any], number: int) -> dict[str, Any]:
    """The seed and the score of an episode, where they are known."""
    lists = {name: about.get(f"{name}s") for name in ("seed", "score")}
    known = {n: each[number] for n, each in lists.items() if isinstance(each, list) and len(each) > number}
    return {n: value for n, value in known.items() if is_finite(value)}


def _arrays(source: LeRobot, choice: Choice, number: int, scale: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """All arrays of an episode but its images, by their path in HDF5."""
    features = source.features
    single = [
        k for k, f in features.items() if k.startswith(NEXT) and f.shape == (1,) and f.dtype in OUTCOMES
    ]
    executed = [EXECUTED] if EXECUTED in features and features[EXECUTED].is_vector else []
    found = numbers(source, number, *choice.vectors.values(), ACTION, *executed, *single)
    if executed and found[EXECUTED].shape != found[ACTION].shape:
        raise DatasetError(f"{source.where} has {EXECUTED} of another shape than {ACTION}")
    steps = source.episodes[number].length
    intended = (found[ACTION] / scale).astype(found[ACTION].dtype)
    actions = (found[EXECUTED] / scale).astype(intended.dtype) if executed else intended
    last = np.arange(steps) == steps - 1
    done = last & found[DONE][:, 0].astype(bool) if DONE in found else np.zeros(steps, bool)
    outcomes = {k: found[k][:, 0] for k in single if k not in (REWARD, DONE, TRUNCATED)}
    return {
        **{f"observations/{n}": _and_last(found[key]) for n, key in choice.vectors.items()},
        "actions": actions,
        "rewards": found[REWARD][:, 0].astype(float) if REWARD in found else np.zeros(steps),
        "terminations": done,
        "truncations": last & ~done,  # an episode that does not end by itself was cut
        **{f"infos/{key.removeprefix(NEXT)}": np.concatenate([a[:1], a]) for key, a in outcomes.items()},
        **({INTENDED: intended} if executed else {}),
    }


def _and_last(array: NDArray[Any]) -> NDArray[Any]:
    return np.concatenate([array, array[-1:]])


def _copy_images(group: h5py.Group, path: str, source: LeRobot, number: int, key: str) -> None:
    steps, shape = source.episodes[number].length, source.features[key].image
    gzip = {"compression": "gzip", "compression_opts": LEVEL, "chunks": (1, *shape)}
    images = group.create_dataset(path, (steps + 1, *shape), np.uint8, **gzip)
    for step, image in enumerate(pictures(source, number, key)):
        images[step] = image
    images[steps] = image

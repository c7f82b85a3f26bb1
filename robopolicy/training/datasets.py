"""Demonstrations as Minari datasets in HDF5, which are checked before anything is read from them.

Any dataset of Minari's will do whose observations are a dictionary of RGB images and float vectors, and whose
actions lie in [-1, 1]. Those that `robopolicy demos` has recorded say as well what they show.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
from numpy.typing import NDArray

from robopolicy.training.worker import EnvironmentSpec

FORMAT = 1
OURS = "robopolicy"  # of a dataset's metadata, where recordings say what they are
# Of an episode, pixels a side, and numbers in a vector or an action: more would not fit into memory.
MOST_STEPS, LARGEST_IMAGE, MOST_NUMBERS = 10**6, 4096, 4096
DAMAGE = (OSError, KeyError, TypeError, AttributeError, IndexError, ValueError, RuntimeError, MemoryError)
ROUNDING = 1e-6  # by which an action may leave [-1, 1]


class DatasetError(ValueError):
    """A dataset that is not what it should be."""


class Columns(NamedTuple):
    """What a step holds: shapes [H, W, 3] of images and sizes of vectors, by name; the size of an action."""

    images: Mapping[str, tuple[int, ...]]
    vectors: Mapping[str, int]
    actions: int


@dataclass(frozen=True)
class Dataset:
    """A Minari dataset that has been checked.

    Attributes:
      path: its folder.
      task: what it demonstrates.
      columns: what a step of it holds.
      steps: of each episode; its observations are one more.
      about: what its recording says: task, environment, renderer, versions, seeds, scores; {} where another
        program has recorded it.
      environment: what it was recorded in, by its recording, or else by Minari's `env_spec`; None where
        neither says so.
    """

    path: Path
    task: str
    columns: Columns
    steps: tuple[int, ...]
    about: Mapping[str, Any]
    environment: EnvironmentSpec | None

    @property
    def episode(self) -> NDArray[np.intp]:
        """The episode of each frame that has an action, [F]."""
        return np.repeat(np.arange(len(self.steps)), self.steps)

    @property
    def data(self) -> Path:
        """The folder to open with `minari.MinariDataset`."""
        return self.path / "data"

    @property
    def file(self) -> Path:
        """The HDF5 file, with a group `episode_N` for each episode."""
        return self.data / "main_data.hdf5"


def open_dataset(path: Path, task: str | None) -> Dataset:
    """Check a dataset of `task`, or with None of whatever its recording says, without decoding an image.

    A dataset that another program has recorded says nothing of its task, which must be given then.

    Raises FileNotFoundError where there is none, DatasetError where it is of another task or format, has
    other columns than images, vectors and actions in [-1, 1], lacks frames, or has an episode that is cut
    short: with what was expected and what was found.
    """
    where = repr(str(path))
    text, file = path / "data" / "metadata.json", path / "data" / "main_data.hdf5"
    if not text.is_file() or not file.is_file():
        raise FileNotFoundError(
            f"{where} is no Minari dataset in HDF5: it holds no data/metadata.json, main_data.hdf5"
        )
    try:
        metadata = json.loads(text.read_text())
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"{where}: data/metadata.json is not JSON: {error}") from error
    if not isinstance(metadata, dict):
        raise DatasetError(f"{where}: data/metadata.json holds no settings by name")
    about = metadata.get(OURS, {})
    if OURS in metadata:
        _check_about(where, about, task)
    elif task is None:
        raise DatasetError(f"{where} does not say its task: robopolicy demos did not record it")
    count = metadata.get("total_episodes")
    if type(count) is not int or count < 1:
        raise DatasetError(f"{where} has total_episodes {count!r}: a number of 1 or more was expected")
    try:
        with h5py.File(file) as stored:
            if len(stored) != count:
                raise DatasetError(f"{where} holds {len(stored)} episodes: {count} were expected")
            columns = _columns(f"{where}: episode 0", stored["episode_0"])
            found = [
                _steps(f"{where}: episode {number}", stored[f"episode_{number}"], columns)
                for number in range(count)
            ]
    except DatasetError:
        raise
    except DAMAGE as error:
        raise DatasetError(f"{where} is damaged: {error}") from error
    named = about["task"] if task is None else task
    return Dataset(path, named, columns, tuple(found), about, _environment(where, metadata, about, named))


def _check_about(where: str, about: Any, task: str | None) -> None:
    if not isinstance(about, dict):
        raise DatasetError(f"{where} has {OURS} {about!r}: settings by name were expected")
    found = about.get("task")
    if not isinstance(found, str) or task not in (None, found):
        wanted = "a task" if task is None else repr(task)
        raise DatasetError(f"{where} has task {found!r}: {wanted} was expected")
    if about.get("format") != FORMAT:
        raise DatasetError(f"{where} has format {about.get('format')!r}: {FORMAT} was expected")
    for name, kind in (("environment", dict), ("recording", dict), ("renderer", str)):
        if not isinstance(about.get(name), kind):
            raise DatasetError(f"{where} has {name} {about.get(name)!r}: a {kind.__name__} was expected")


def _environment(
    where: str, metadata: Mapping[str, Any], about: Mapping[str, Any], task: str
) -> EnvironmentSpec | None:
    settings = dict(about.get("environment", {}))
    if isinstance(settings.get("id"), str):
        return EnvironmentSpec(settings.pop("id"), settings, task)
    if (stored := metadata.get("env_spec")) is None:
        return None
    try:
        spec = json.loads(stored)
        name, settings = spec["id"], spec["kwargs"]
    except (ValueError, RecursionError, TypeError, KeyError) as error:
        raise DatasetError(f"{where} has an env_spec that is not Minari's: {error!r}") from error
    if not isinstance(name, str) or not isinstance(settings, dict):
        raise DatasetError(f"{where} has an env_spec that is not Minari's: its id is {name!r}")
    return EnvironmentSpec(name, settings, task)


def _columns(where: str, episode: h5py.Group) -> Columns:
    """What an episode's steps hold."""
    observations = episode["observations"]
    if not isinstance(observations, h5py.Group):
        raise DatasetError(f"{where} has observations without names: a dictionary of arrays was expected")
    images: dict[str, tuple[int, ...]] = {}
    vectors: dict[str, int] = {}
    for name in sorted(observations):
        array = observations[name]
        shape: tuple[int, ...] = array.shape[1:] if isinstance(array, h5py.Dataset) else ()
        if len(shape) == 3 and shape[2] == 3 and array.dtype == np.uint8:
            images[name] = shape
        elif len(shape) == 1 and np.issubdtype(array.dtype, np.floating):
            vectors[name] = shape[0]
        else:
            raise DatasetError(
                f"{where} has observations/{name} of {_kind(array)}: an image uint8[steps, height, width, "
                "3] or a vector floating[steps, numbers] was expected"
            )
    for name, shape in images.items():
        if not 1 <= min(shape[:2]) <= max(shape[:2]) <= LARGEST_IMAGE:
            raise DatasetError(
                f"{where} has images {name} of {shape[0]} x {shape[1]}: 1 to {LARGEST_IMAGE} were expected"
            )
    shape = episode["actions"].shape
    if len(shape) != 2:
        raise DatasetError(f"{where} has actions of {_kind(episode['actions'])}: vectors were expected")
    for name, size in {**vectors, "actions": shape[1]}.items():
        if not 1 <= size <= MOST_NUMBERS:
            raise DatasetError(f"{where} has {name} of {size} numbers: 1 to {MOST_NUMBERS} were expected")
    return Columns(images, vectors, shape[1])


def _kind(array: Any) -> str:
    return f"{array.dtype}{list(array.shape)}" if isinstance(array, h5py.Dataset) else "other observations"


def _steps(where: str, episode: h5py.Group, columns: Columns) -> int:
    """How many steps an episode has that is whole, with these columns."""
    steps = len(episode["actions"])
    if int(episode.attrs["total_steps"]) != steps or not 1 <= steps <= MOST_STEPS:
        raise DatasetError(
            f"{where} has {steps} actions: {episode.attrs['total_steps']} were expected, at most {MOST_STEPS}"
        )
    if (found := set(episode["observations"])) != (wanted := {*columns.images, *columns.vectors}):
        raise DatasetError(f"{where} has observations {sorted(found)}: {sorted(wanted)} were expected")
    shapes: dict[str, tuple[tuple[int, ...], type]] = {
        **{f"observations/{n}": ((steps + 1, *shape), np.uint8) for n, shape in columns.images.items()},
        **{f"observations/{n}": ((steps + 1, size), np.floating) for n, size in columns.vectors.items()},
        "actions": ((steps, columns.actions), np.floating),
        "rewards": ((steps,), np.floating),
        "terminations": ((steps,), np.bool_),
        "truncations": ((steps,), np.bool_),
    }
    if "infos" in episode and "intended_action" in episode["infos"]:
        shapes["infos/intended_action"] = ((steps, columns.actions), np.floating)
    for name, (shape, kind) in shapes.items():
        array = episode[name]
        if array.shape != shape or not np.issubdtype(array.dtype, kind):
            raise DatasetError(
                f"{where} has {name} of {_kind(array)}: {kind.__name__}{list(shape)} was expected"
            )
        if kind is np.floating and not np.isfinite(array[()]).all():
            raise DatasetError(f"{where} has {name} that are not finite: numbers were expected")
        acts = name in ("actions", "infos/intended_action")
        if acts and (largest := np.abs(array[()]).max()) > 1 + ROUNDING:
            raise DatasetError(f"{where} has {name} of {largest:.3g}: numbers in [-1, 1] were expected")
    ended = episode["terminations"][()] | episode["truncations"][()]
    if not ended[-1]:
        raise DatasetError(f"{where} is cut short: its last step does not end it")
    if ended[:-1].any():
        raise DatasetError(f"{where} ends at step {int(np.argmax(ended)) + 1}: it has {steps}")
    return steps

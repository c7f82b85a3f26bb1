"""Minari datasets of demonstrations in HDF5, checked before use.

Observations are a dictionary of RGB images and float vectors, and actions lie in [-1, 1]. Datasets that
`robopolicy demos` recorded also describe their content.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
from numpy.typing import NDArray

from robopolicy.reading_json import parse_json, read_object
from robopolicy.training.worker import EnvironmentSpec

FORMAT = 1
OURS = "robopolicy"  # key of the metadata that recordings of this library have
# Steps of an episode, pixels per side, and numbers in a vector or an action: more would not fit into memory.
MOST_STEPS, LARGEST_IMAGE, MOST_NUMBERS = 10**6, 4096, 4096
DAMAGE = (OSError, KeyError, TypeError, AttributeError, IndexError, ValueError, RuntimeError, MemoryError)
ROUNDING = 1e-6  # by which an action may leave [-1, 1]
LARGEST = float(np.finfo(np.float32).max)  # in which training reads vectors
METADATA, CONTENT = "data/metadata.json", "data/main_data.hdf5"
INTENDED = "infos/intended_action"  # of demonstrations whose executed actions differ
FLOATS, FLAGS = (np.floating,), (np.bool_,)
REALS = (np.floating, np.integer, np.bool_)


class DatasetError(ValueError):
    """A dataset that cannot be used."""


class Columns(NamedTuple):
    """The content of a step: shapes [H, W, 3] of images and sizes of vectors, by name; size of the action."""

    images: Mapping[str, tuple[int, ...]]
    vectors: Mapping[str, int]
    actions: int


@dataclass(frozen=True)
class Dataset:
    """A Minari dataset that has been checked.

    Attributes:
      path: its folder.
      task: the demonstrated task.
      columns: the content of a step.
      steps: of each episode; it has one observation more.
      about: metadata of its recording: task, environment, renderer, versions, seeds, scores; {} if another
        program recorded it.
      environment: the environment of the recording, from its metadata or else Minari's `env_spec`; None
        without both.
      file: the HDF5 file, with a group `episode_N` for each episode.
    """

    path: Path
    task: str
    columns: Columns
    steps: tuple[int, ...]
    about: Mapping[str, Any]
    environment: EnvironmentSpec | None
    file: Path

    @property
    def episode(self) -> NDArray[np.intp]:
        """The episode of each frame with an action, [F]."""
        return np.repeat(np.arange(len(self.steps)), self.steps)


def open_dataset(path: Path, task: str | None) -> Dataset:
    """Check a dataset without decoding images.

    Args:
      path: its folder.
      task: the task that it must demonstrate; None for that of its own metadata, which datasets of other
        programs do not have.

    Raises FileNotFoundError if it does not exist. Raises DatasetError, with the expected and the actual
    value, for another task or format, for columns other than images, vectors and actions in [-1, 1], and for
    missing frames or incomplete episodes.
    """
    where = repr(str(path))
    if not (path / METADATA).is_file() or not (path / CONTENT).is_file():
        raise FileNotFoundError(
            f"{where} is no Minari dataset in HDF5: it must hold {METADATA} and {CONTENT}"
        )
    metadata = read_object(path / METADATA, error=DatasetError)
    about = metadata.get(OURS, {})
    if OURS in metadata:
        _check_about(where, about, task)
    elif task is None:
        raise DatasetError(
            f"{where} does not say its task: robopolicy demos did not record it, and no env is given"
        )
    count = metadata.get("total_episodes")
    if type(count) is not int or count < 1:
        raise DatasetError(f"{where} has total_episodes {count!r}: a number of 1 or more was expected")
    try:
        with h5py.File(path / CONTENT) as file:
            _expect(len(file) == count, f"{where} holds {len(file)} episodes: {count} were expected")
            columns = _columns(f"{where}: episode 0", file["episode_0"])
            steps = tuple(
                _steps(f"{where}: episode {n}", file[f"episode_{n}"], columns) for n in range(count)
            )
    except DatasetError:
        raise
    except DAMAGE as error:
        raise DatasetError(f"{where} is damaged: {error}") from error
    name = about["task"] if task is None else task
    environment = _environment(where, metadata, about, name)
    return Dataset(path, name, columns, steps, about, environment, path / CONTENT)


def check_dataset_name(out: Path) -> None:
    """Raise ValueError unless a Minari dataset can have this name: letters, digits, _, - and a version."""
    if not re.fullmatch(r"[A-Za-z0-9_-]+-v[0-9]+", out.name):
        name = re.sub(r"[^A-Za-z0-9_-]+", "-", re.sub(r"-v[0-9]+$", "", out.name)) or "sweep"
        raise ValueError(
            f"out is {str(out)!r}: Minari wants a name and a version, such as {name}-v0, with letters, "
            "digits, _ and - only"
        )


def _recorded_parts(first: Dataset, other: Dataset) -> Iterator[tuple[str, Any, Any]]:
    """What copies of LeRobot datasets of other programs must also share, by its name."""
    if "lerobot" in first.about and "lerobot" in other.about:
        for part in ("rate", "names"):
            yield part, first.about.get(part), other.about.get(part)
        one, two = (dataset.about["lerobot"].get("scale") for dataset in (first, other))
        yield "largest actions", one, two


def check_alike(datasets: Sequence[Dataset]) -> None:
    """Raise DatasetError, naming the first difference, unless all datasets have one task and one format.

    Copies of LeRobot datasets also need one rate, the same names, and the same unit of each action.
    """
    first, *others = datasets
    for other in others:
        for part, one, two in (
            ("task", first.task, other.task),
            ("images", first.columns.images, other.columns.images),
            ("vectors", first.columns.vectors, other.columns.vectors),
            ("actions", first.columns.actions, other.columns.actions),
            *_recorded_parts(first, other),
        ):
            if one != two:
                raise DatasetError(
                    f"data is {str(other.path)!r}: it has {part} {two!r}, and {str(first.path)!r} has {one!r}"
                )
    paths = [dataset.path.resolve() for dataset in datasets]
    for number, path in enumerate(paths):
        if path in paths[:number]:
            raise DatasetError(f"data is {str(path)!r} twice: it must be given once")


def _expect(holds: bool, message: str) -> None:
    if not holds:
        raise DatasetError(message)


def _check_about(where: str, about: Any, task: str | None) -> None:
    _expect(isinstance(about, dict), f"{where} has {OURS} {about!r}: settings by name were expected")
    name = about.get("task")
    _expect(isinstance(name, str), f"{where} has task {name!r}: a task was expected")
    one_task = f"{where} has task {name!r}, not {task!r}: all data and --env must have one task"
    _expect(task in (None, name), one_task)
    version = about.get("format")
    _expect(version == FORMAT, f"{where} has format {version!r}: {FORMAT} was expected")
    parts = {"environment": dict, "recording": dict, "renderer": str}
    for part, kind in (parts | ({"lerobot": dict} if "lerobot" in about else {})).items():
        value = about.get(part)
        _expect(isinstance(value, kind), f"{where} has {part} {value!r}: a {kind.__name__} was expected")


def _environment(
    where: str, metadata: Mapping[str, Any], about: Mapping[str, Any], task: str
) -> EnvironmentSpec | None:
    settings = dict(about.get("environment", {}))
    if isinstance(settings.get("id"), str):
        return EnvironmentSpec(settings.pop("id"), settings, task)
    if (stored := metadata.get("env_spec")) is None:
        return None
    odd = f"{where} has an env_spec that is not Minari's:"
    try:
        spec = parse_json(stored, "env_spec")
        name, settings = spec["id"], spec["kwargs"]
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise DatasetError(f"{odd} {error!r}") from error
    _expect(isinstance(name, str) and isinstance(settings, dict), f"{odd} its id is {name!r}")
    return EnvironmentSpec(name, settings, task)


def _columns(where: str, episode: h5py.Group) -> Columns:
    """The content of an episode's steps."""
    observations, actions = episode["observations"], episode["actions"]
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
        elif isinstance(array, h5py.Dataset) and _is_jpeg(array):
            raise DatasetError(
                f"{where} has observations/{name} of JPEG images, as Minari stores them by default: record "
                "with DataCollector(env, jpeg_encoding=False)"
            )
        else:
            raise DatasetError(
                f"{where} has observations/{name} of {_kind(array)}: an image uint8[steps, height, width, "
                "3] or a vector floating[steps, numbers] was expected"
            )
    for name, (rows, columns, _) in images.items():
        fits = 1 <= min(rows, columns) <= max(rows, columns) <= LARGEST_IMAGE
        _expect(fits, f"{where} has images {name} of {rows} x {columns}: 1 to {LARGEST_IMAGE} were expected")
    right = isinstance(actions, h5py.Dataset) and actions.ndim == 2
    _expect(right, f"{where} has actions of {_kind(actions)}: vectors were expected")
    for name, size in {**vectors, "actions": actions.shape[1]}.items():
        fits = 1 <= size <= MOST_NUMBERS
        _expect(fits, f"{where} has {name} of {size} numbers: 1 to {MOST_NUMBERS} were expected")
    return Columns(images, vectors, actions.shape[1])


def _is_jpeg(array: h5py.Dataset) -> bool:
    """Whether each entry is bytes of an image: Minari stores those of one length as a matrix."""
    return h5py.check_vlen_dtype(array.dtype) == np.uint8 or (array.ndim == 2 and array.dtype == np.uint8)


def _kind(array: Any) -> str:
    return f"{array.dtype}{list(array.shape)}" if isinstance(array, h5py.Dataset) else "several arrays"


def _steps(where: str, episode: h5py.Group, columns: Columns) -> int:
    """The number of steps of an episode; raises DatasetError if it is incomplete or has other columns."""
    steps, total = len(episode["actions"]), episode.attrs["total_steps"]
    right = int(total) == steps and 1 <= steps <= MOST_STEPS
    _expect(right, f"{where} has {steps} actions: {total} were expected, from 1 to {MOST_STEPS}")
    names, wanted = set(episode["observations"]), {*columns.images, *columns.vectors}
    _expect(names == wanted, f"{where} has observations {sorted(names)}: {sorted(wanted)} were expected")
    shapes: dict[str, tuple[tuple[int, ...], tuple[type, ...]]] = {
        **{f"observations/{n}": ((steps + 1, *shape), (np.uint8,)) for n, shape in columns.images.items()},
        **{f"observations/{n}": ((steps + 1, size), FLOATS) for n, size in columns.vectors.items()},
        "actions": ((steps, columns.actions), FLOATS),
        "rewards": ((steps,), REALS),  # whole numbers of an environment stay whole in Minari
        "terminations": ((steps,), FLAGS),
        "truncations": ((steps,), FLAGS),
    }
    if INTENDED in episode:
        shapes[INTENDED] = shapes["actions"]
    for name, (shape, kinds) in shapes.items():
        array = episode[name]
        right = array.shape == shape and issubclass(array.dtype.type, kinds)
        wanted_kinds = " or ".join(kind.__name__ for kind in kinds)
        _expect(right, f"{where} has {name} of {_kind(array)}: {wanted_kinds}{list(shape)} was expected")
        if issubclass(array.dtype.type, FLOATS):
            largest = float(np.abs(array[()]).max())
            _expect(np.isfinite(largest), f"{where} has {name} that are not finite: numbers were expected")
            most = {"actions": 1, INTENDED: 1, "rewards": np.inf}.get(name, LARGEST)
            allowed = f"numbers in [{-most:.7g}, {most:.7g}] were expected"
            _expect(largest <= most + ROUNDING, f"{where} has {name} of {largest:.7g}: {allowed}")
    ended = episode["terminations"][()] | episode["truncations"][()]
    _expect(ended[-1], f"{where} is cut short: its last step does not end it")
    first = int(np.argmax(ended)) + 1
    _expect(first == steps, f"{where} ends at step {first}: it has {steps}")
    return steps

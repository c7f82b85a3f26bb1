"""Conversion of datasets of demonstrations between Minari and LeRobot; needs pyarrow."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from robopolicy.envs.registry import RECORDED, check_imported, gymnasium_id, task_class
from robopolicy.experiments.output_files import as_path, new_folder
from robopolicy.naming import shown
from robopolicy.settings import is_finite
from robopolicy.training.datasets import FORMAT, Dataset, DatasetError, check_dataset_name, open_dataset
from robopolicy.training.lerobot import is_lerobot
from robopolicy.training.lerobot.conversion import action_scale, to_lerobot, to_minari
from robopolicy.training.lerobot.metadata import ACTION, HIGHEST_RATE, LeRobot, choose, open_lerobot
from robopolicy.writing import whole


def convert(source: str | Path, out: str | Path, *, cameras: Sequence[str] = ()) -> dict[str, Any]:
    """Convert a Minari dataset to a LeRobot dataset, or the other way, into the new folder `out`.

    Args:
      source: the folder of the dataset, whose format decides on the other.
      out: folder to write, which appears once it is complete. A Minari dataset has a name and a version, as
        in arm-v0.
      cameras: of a LeRobot dataset, those to take; () for the only one, or for all of a dataset that this
        library has written.

    Returns the dataset's path, format and numbers. Raises ValueError, FileNotFoundError or FileExistsError,
    in one line, for bad input.
    """
    source, out = as_path("source", source), new_folder("out", out)
    if out.exists():
        raise FileExistsError(f"out is {str(out)!r}: it exists, and nothing is overwritten")
    opened: Dataset | LeRobot
    if is_lerobot(source):
        check_dataset_name(out)
        opened = open_lerobot(source)
        choose(opened, cameras)
    elif cameras:
        raise ValueError(
            f"cameras is {tuple(cameras)}: {str(source)!r} is no LeRobot dataset, so it has them all"
        )
    else:
        opened = open_dataset(source, None)
    out.parent.mkdir(parents=True, exist_ok=True)
    with whole(out) as partial:
        if isinstance(opened, Dataset):
            write_lerobot_of(opened, partial)
            steps, format = opened.steps, "lerobot"
        else:
            to_minari(opened, partial, out.name, cameras, about_of(opened, source, cameras))
            steps, format = open_copy(partial, source, None).steps, "minari"
    return {"dataset": str(out), "format": format, "episodes": len(steps), "steps": sum(steps)}


def open_copy(copy: Path, source: Path, task: str | None) -> Dataset:
    """A checked dataset that was copied from `source`, which errors name in place of the copy."""
    try:
        return open_dataset(copy, task)
    except DatasetError as error:
        raise DatasetError(str(error).replace(str(copy), str(source))) from error


def about_of(source: LeRobot, path: Path, cameras: Sequence[str]) -> dict[str, Any]:
    """The metadata of a LeRobot dataset of another program, as this library's recordings have them."""
    settings = {"dataset": str(path.absolute()), "cameras": list(cameras)}
    tasks = [" ".join(row.tasks) for row in source.episodes]
    choice = choose(source, cameras)
    names = {name: list(source.features[key].names) for name, key in choice.vectors.items()}
    return {
        "task": RECORDED,
        "format": FORMAT,
        "environment": {"id": gymnasium_id(RECORDED), **settings},
        "recording": {},
        "renderer": RECORDED,
        "rate": source.rate,
        "robot": source.robot,
        "names": {**names, ACTION: list(source.features[ACTION].names)},
        "lerobot": {"scale": action_scale(source).tolist(), "tasks": tasks},
    }


def write_lerobot_of(dataset: Dataset, folder: Path) -> None:
    """Write a Minari dataset as a LeRobot dataset to the new folder `folder`.

    Its rate is that of its metadata, or of its task. Raises ValueError if the task is not imported.
    """
    rate, names = dataset.about.get("rate"), dataset.about.get("names", {})
    if rate is None:  # recordings of earlier versions
        check_imported(dataset.task, f"task of the dataset {str(dataset.path)!r}")
        rate = task_class(dataset.task).rate
    _check_recorded(dataset, rate, names)
    to_lerobot(dataset, folder, float(rate), str(dataset.about.get("robot", "")), names)


def _check_recorded(dataset: Dataset, rate: Any, names: Any) -> None:
    """Raise DatasetError for metadata that a LeRobot dataset cannot hold."""
    copied, actions, episodes = dataset.about.get("lerobot", {}), dataset.columns.actions, len(dataset.steps)
    high = f"a number above 0, at most {HIGHEST_RATE:g}"
    scale, tasks = copied.get("scale", [1.0] * actions), copied.get("tasks", [""] * episodes)
    sizes = {**dataset.columns.vectors, ACTION: actions}
    named = isinstance(names, dict) and all(_lists(names[n], sizes[n], _is_text) for n in names if n in sizes)
    for part, value, holds, wanted in (
        ("rate", rate, _is_positive(rate) and rate <= HIGHEST_RATE, high),
        ("names", names, named, "lists of a name for each number, by vector"),
        ("scale", scale, _lists(scale, actions, _is_positive), f"a list of {actions} numbers above 0"),
        ("tasks", tasks, _lists(tasks, episodes, _is_text), f"a list of {episodes} texts"),
    ):
        if not holds:
            raise DatasetError(f"{str(dataset.path)!r} has {part} {shown(value)}: it must be {wanted}")


def _lists(value: Any, size: int, fits: Callable[[Any], bool]) -> bool:
    return isinstance(value, list) and len(value) == size and all(map(fits, value))


def _is_positive(value: Any) -> bool:
    return is_finite(value) and value > 0


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def as_lerobot(dataset: Path) -> Path:
    """The LeRobot dataset of a Minari dataset, in a folder beside it."""
    folder = dataset.with_name("lerobot")
    shutil.rmtree(folder, ignore_errors=True)  # of an interrupted recording
    write_lerobot_of(open_dataset(dataset, None), folder)
    return folder

"""Datasets of demonstrations, opened for training, in either format."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from robopolicy.envs.registry import RECORDED, check_imported
from robopolicy.reading_json import read_object
from robopolicy.training.datasets import METADATA, OURS, Dataset, open_dataset
from robopolicy.training.lerobot import OURS as STORED
from robopolicy.training.lerobot import is_foreign, is_lerobot
from robopolicy.writing import scratch


def task_of_data(path: Path) -> str | None:
    """The task that the metadata of a dataset name, `recorded` for LeRobot of another program; else None.

    Raises ValueError for a task that is not imported, and for metadata that are not JSON.
    """
    if is_foreign(path):
        return RECORDED
    file = path / (STORED if is_lerobot(path) else METADATA)
    metadata: Any = read_object(file) if file.is_file() else {}
    for key in ("minari", OURS) if is_lerobot(path) else (OURS,):
        metadata = metadata.get(key)
        if not isinstance(metadata, dict):
            return None
    name = metadata.get("task")
    return check_imported(name, f"task of the dataset {str(path)!r}") if isinstance(name, str) else None


@contextmanager
def opened_datasets(
    paths: Sequence[Path], task: str | None, cameras: Sequence[str]
) -> Iterator[list[Dataset]]:
    """Checked datasets in either format.

    A LeRobot dataset is read through a copy in a temporary folder, since videos and large row groups give no
    single frame quickly. Raises what `open_dataset`, `open_lerobot` and `choose` raise, FileNotFoundError for
    a missing folder, and ValueError for cameras without a LeRobot dataset.
    """
    for path in paths:
        if not path.is_dir():
            raise FileNotFoundError(f"data is {str(path)!r}: it must be the folder of a dataset")
    if cameras and not any(map(is_lerobot, paths)):
        raise ValueError(
            f"cameras is {tuple(cameras)}: only LeRobot datasets have a choice of cameras, and none is given"
        )
    with ExitStack() as stack:
        yield [
            _copied(path, stack.enter_context(scratch()) / "copy", task, cameras)
            if is_lerobot(path)
            else open_dataset(path, task)
            for path in paths
        ]


def _copied(path: Path, folder: Path, task: str | None, cameras: Sequence[str]) -> Dataset:
    """A LeRobot dataset as the Minari dataset `folder`, with its own path."""
    from robopolicy.experiments.conversion import about_of, open_copy  # pyarrow is an optional package
    from robopolicy.training.lerobot.conversion import to_minari
    from robopolicy.training.lerobot.metadata import open_lerobot

    source = open_lerobot(path)
    to_minari(source, folder, folder.name, cameras, about_of(source, path, cameras))
    return replace(open_copy(folder, path, task), path=path)

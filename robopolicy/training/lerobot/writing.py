"""Writes LeRobot datasets of format v3.0. Images are PNG in the rows: without loss, and read one by one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from robopolicy.training.lerobot import INFO, OURS, statistics
from robopolicy.training.lerobot.metadata import DATA, EPISODES, STATISTICS, TASKS, VERSION

FILES_IN_CHUNK, MEGABYTES = 1000, 100  # of data
IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
COUNTERS = ("timestamp", "frame_index", "episode_index", "index", "task_index")
LEVEL = 3  # of PNG's compression


class Column(NamedTuple):
    """A column to write: its type, its shape, and the names of its numbers or axes."""

    dtype: str
    shape: tuple[int, ...]
    names: Sequence[str] | None = None

    @property
    def arrow(self) -> pa.DataType:
        """Its type in the files."""
        if self.dtype == "image":
            return IMAGE
        number = pa.from_numpy_dtype(np.dtype(self.dtype))
        return number if self.shape == (1,) else pa.list_(number, self.shape[0])

    def described(self) -> dict[str, Any]:
        """As the metadata have it."""
        names = None if self.names is None else list(self.names)
        return {"dtype": self.dtype, "shape": list(self.shape), "names": names}


COUNTED = {
    "timestamp": Column("float32", (1,)),
    **dict.fromkeys(COUNTERS[1:], Column("int64", (1,))),
}


class Episode(NamedTuple):
    """An episode to write: its task in words, and its columns [S, ...] by key; images may be any sequence."""

    task: str
    columns: Mapping[str, Any]


def write_lerobot(
    folder: Path,
    columns: Mapping[str, Column],
    episodes: Iterator[Episode],
    rate: float,
    robot: str,
    ours: Mapping[str, Any],
) -> None:
    """Write a dataset to the new folder `folder`.

    Args:
      folder: it must not exist; the caller moves it into place once it is whole.
      columns: all but LeRobot's own counters, by key.
      episodes: in order, one or more.
      rate: frames a second.
      robot: the type of the robot; "" if it has none.
      ours: what LeRobot's metadata cannot hold, as JSON.
    """
    every = {**columns, **COUNTED}
    rows: list[dict[str, Any]] = []
    tasks: dict[str, int] = {}
    totals = _Totals(columns)
    with closing(_Data(folder, every)) as data:
        for number, episode in enumerate(episodes):
            task = tasks.setdefault(episode.task, len(tasks))
            length = len(next(iter(episode.columns.values())))
            first = rows[-1]["dataset_to_index"] if rows else 0
            counters = {
                "timestamp": np.arange(length, dtype=np.float32) / np.float32(rate),
                "frame_index": np.arange(length),
                "episode_index": np.full(length, number),
                "index": np.arange(first, first + length),
                "task_index": np.full(length, task),
            }
            chunk, file = data.write({**episode.columns, **counters})
            stats = totals.add({**episode.columns, **counters}, length)
            rows.append(
                {
                    "episode_index": number,
                    "tasks": [episode.task],
                    "length": length,
                    "data/chunk_index": chunk,
                    "data/file_index": file,
                    "dataset_from_index": first,
                    "dataset_to_index": first + length,
                    "meta/episodes/chunk_index": 0,
                    "meta/episodes/file_index": 0,
                    **{f"stats/{key}/{n}": v for key, each in stats.items() for n, v in each.items()},
                }
            )
    path = folder / EPISODES.format(chunk_index=0, file_index=0)
    path.parent.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows), path)
    _write_tasks(folder / TASKS, tasks)
    frames = rows[-1]["dataset_to_index"]
    info = {
        "codebase_version": VERSION,
        "robot_type": robot or None,
        "total_episodes": len(rows),
        "total_frames": frames,
        "total_tasks": len(tasks),
        "chunks_size": FILES_IN_CHUNK,
        "data_files_size_in_mb": MEGABYTES,
        "video_files_size_in_mb": 2 * MEGABYTES,
        "fps": int(rate) if float(rate).is_integer() else rate,
        "splits": {"train": f"0:{len(rows)}"},
        "data_path": DATA,
        "video_path": None,
        "features": {key: column.described() for key, column in every.items()},
    }
    for name, content in ((INFO, info), (STATISTICS, totals.whole(frames)), (OURS, ours)):
        (folder / name).write_text(json.dumps(content, indent=4) + "\n")


class _Data:
    """The files of rows, of some `MEGABYTES` each, with a row group for each episode."""

    def __init__(self, folder: Path, columns: Mapping[str, Column]) -> None:
        self._folder, self._columns, self._number = folder, columns, -1
        self._writer: pq.ParquetWriter | None = None
        images = {key: {"_type": "Image"} for key, column in columns.items() if column.dtype == "image"}
        about = json.dumps({"info": {"features": images}})
        self._schema = pa.schema(
            [(key, column.arrow) for key, column in columns.items()],
            metadata={"huggingface": about} if images else None,
        )

    def write(self, arrays: Mapping[str, Any]) -> tuple[int, int]:
        """Append an episode, and return the indices of its chunk and file."""
        parts = [_array(arrays[key], column) for key, column in self._columns.items()]
        if self._writer is None or self._path.stat().st_size >= MEGABYTES * 2**20:
            self.close()
            self._number += 1
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = pq.ParquetWriter(self._path, self._schema, compression="snappy")
        self._writer.write_table(pa.Table.from_arrays(parts, schema=self._schema))
        return divmod(self._number, FILES_IN_CHUNK)

    @property
    def _path(self) -> Path:
        chunk, file = divmod(self._number, FILES_IN_CHUNK)
        return self._folder / DATA.format(chunk_index=chunk, file_index=file)

    def close(self) -> None:
        """Complete the last file."""
        if self._writer is not None:
            self._writer.close()
        self._writer = None


class _Totals:
    """Statistics of each episode, and of all together."""

    def __init__(self, columns: Mapping[str, Column]) -> None:
        self._images = [key for key, column in columns.items() if column.dtype == "image"]
        self._histograms = {key: np.zeros((3, 256), np.int64) for key in self._images}
        self._numbers: dict[str, list[NDArray[Any]]] = {}

    def add(self, arrays: Mapping[str, Any], length: int) -> dict[str, statistics.Statistics]:
        """The statistics of an episode by key."""
        result = {}
        for key, array in arrays.items():
            if key in self._images:
                counts = statistics.histogram(array)
                self._histograms[key] += counts
                result[key] = statistics.of_images(counts, length)
            else:
                self._numbers.setdefault(key, []).append(array)
                result[key] = statistics.of_numbers(array)
        return result

    def whole(self, frames: int) -> dict[str, statistics.Statistics]:
        """The statistics of the dataset by key."""
        images = {key: statistics.of_images(c, frames) for key, c in self._histograms.items()}
        numbers = {key: statistics.of_numbers(np.concatenate(a)) for key, a in self._numbers.items()}
        return images | numbers


def _array(values: Any, column: Column) -> pa.Array:
    """The rows of a column as Arrow has them."""
    if column.dtype == "image":
        encoded = [{"bytes": _png(v), "path": f"frame-{n:06d}.png"} for n, v in enumerate(values)]
        return pa.array(encoded, IMAGE)
    array = np.ascontiguousarray(values, np.dtype(column.dtype))
    flat = pa.array(array.reshape(-1))
    return flat if column.shape == (1,) else pa.FixedSizeListArray.from_arrays(flat, column.shape[0])


def _png(image: NDArray[np.uint8]) -> bytes:
    done, content = cv2.imencode(
        ".png", cv2.cvtColor(image, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_PNG_COMPRESSION, LEVEL]
    )
    if not done:
        raise RuntimeError(f"an image of {list(image.shape)} cannot be encoded as PNG")
    return bytes(content)


def _write_tasks(path: Path, tasks: Mapping[str, int]) -> None:
    """Write the tasks in words and their numbers; LeRobot reads the words as the index of a pandas table."""
    columns = [("task_index", "int64", "int64"), ("task", "unicode", "object")]
    described = [
        {"name": n, "field_name": n, "pandas_type": kind, "numpy_type": numpy, "metadata": None}
        for n, kind, numpy in columns
    ]
    about = {"index_columns": ["task"], "column_indexes": [], "columns": described, "pandas_version": "2.0.0"}
    table = pa.table({"task_index": pa.array(tasks.values(), pa.int64()), "task": pa.array(tasks)})
    pq.write_table(table.replace_schema_metadata({"pandas": json.dumps(about)}), path)

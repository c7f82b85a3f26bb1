"""The frames of a LeRobot dataset, episode by episode."""

from __future__ import annotations

import subprocess
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import cv2
import imageio_ffmpeg
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from robopolicy.naming import shown
from robopolicy.training.datasets import DatasetError
from robopolicy.training.lerobot.metadata import DAMAGE, LeRobot

Arrays = dict[str, NDArray[Any]]
ORDER = "frame_index"


def numbers(dataset: LeRobot, number: int, *keys: str) -> Arrays:
    """Columns [S, ...] of an episode by key, of the shapes that the metadata have.

    Raises DatasetError for a shape that differs from the metadata, and for numbers that are not finite in
    float32.
    """
    table = _table(dataset, number, *keys)
    return {key: _column(dataset, number, key, table[key]) for key in keys}


def pictures(dataset: LeRobot, number: int, key: str) -> Generator[NDArray[np.uint8]]:
    """The colour images [H, W, 3] of an episode, in order.

    Raises DatasetError for one that cannot be decoded, or whose shape differs from the metadata.
    """
    feature, row = dataset.features[key], dataset.episodes[number]
    images: Iterator[NDArray[np.uint8] | None]
    if feature.dtype == "video":
        video, start = row.videos[key]
        images = _of_video(dataset, video, start, row.length)
    else:
        images = _of_column(dataset, number, key)
    count = 0
    for image in images:
        if image is None or image.shape != feature.image:
            actual = "none that can be decoded" if image is None else f"{list(image.shape)}"
            raise DatasetError(
                f"{dataset.where}: episode {number} has {key} {actual} at frame {count}: "
                f"{list(feature.image)} was expected"
            )
        yield image
        count += 1
    if count != row.length:
        raise DatasetError(
            f"{dataset.where}: episode {number} has {count} frames of {key}: {row.length} were expected"
        )


def _table(dataset: LeRobot, number: int, *keys: str) -> pa.Table:
    row = dataset.episodes[number]
    place = f"{dataset.where}: {row.data.relative_to(dataset.path)}"
    try:
        names = pq.read_schema(row.data).names
        missing = [key for key in keys if key not in names]
        if missing:
            raise DatasetError(f"{place} lacks the column {missing[0]!r}, which the metadata have")
        columns = [*keys, *({ORDER} & {*names})]
        table = pq.read_table(
            row.data, columns=columns, filters=[("episode_index", "=", number)], partitioning=None
        )
    except DatasetError:
        raise
    except DAMAGE as error:
        raise DatasetError(f"{place} is damaged: {error}") from error
    if table.num_rows != row.length:
        raise DatasetError(
            f"{place} has {table.num_rows} frames of episode {number}: {row.length} were expected"
        )
    if ORDER in columns and table[ORDER].to_pylist() != [*range(row.length)]:  # a video would not fit
        last = row.length - 1
        raise DatasetError(f"{place} has {ORDER} of episode {number} out of order: 0 to {last} was expected")
    return table


def _column(dataset: LeRobot, number: int, key: str, column: pa.ChunkedArray) -> NDArray[Any]:
    feature, rows = dataset.features[key], len(column)
    wanted, where = f"{feature.dtype}{list(feature.shape)}", f"{dataset.where}: episode {number}"
    try:
        kind, values = column.type, column.combine_chunks()
        if pa.types.is_nested(kind):
            lengths = set(pc.list_value_length(values).to_pylist())
            if lengths != set(feature.shape[:1]):
                raise DatasetError(
                    f"{where} has {key} of {sorted(lengths, key=str)} numbers: {wanted} was expected"
                )
            kind, values = kind.value_type, values.flatten()
        array = values.to_numpy(zero_copy_only=False)
    except DatasetError:
        raise
    except DAMAGE as error:
        raise DatasetError(f"{where} has {key} that cannot be read: {error}") from error
    if array.dtype != np.dtype(feature.dtype):
        raise DatasetError(f"{where} has {key} of {shown(str(kind))}: {wanted} was expected")
    if array.size != rows * feature.shape[0]:
        raise DatasetError(f"{where} has {key} of {array.size / rows:g} numbers: {wanted} was expected")
    if array.dtype.kind == "f" and not (np.abs(array) <= np.finfo(np.float32).max).all():
        raise DatasetError(f"{where} has {key} that are not finite in float32: numbers were expected")
    return array.reshape(rows, *feature.shape)


def _of_column(dataset: LeRobot, number: int, key: str) -> Iterator[NDArray[np.uint8] | None]:
    """Images that are encoded, one in each row."""
    column = _table(dataset, number, key)[key]
    for scalar in column:
        value = scalar.as_py()
        content = value.get("bytes") if isinstance(value, dict) else None
        decoded = None
        if content:
            decoded = cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_COLOR_RGB)
        yield None if decoded is None else np.asarray(decoded, np.uint8)


def _of_video(dataset: LeRobot, video: Path, start: float, count: int) -> Iterator[NDArray[np.uint8]]:
    """The frames of a video in the time that `count` of them take from `start` (s) on.

    A damaged video lacks some of them. Those of the next episode must not take their place.
    """
    half = 0.5 / dataset.rate  # a frame's own time may be rounded
    times = f"-ss {max(0.0, start - half):.6f} -to {start + count / dataset.rate - half:.6f}"
    # ffmpeg would read a relative path with a colon as a protocol.
    source = [imageio_ffmpeg.get_ffmpeg_exe(), *f"-v error -xerror {times} -i".split(), str(video.absolute())]
    with subprocess.Popen(
        [*source, *f"-an -frames:v {count + 1} -fps_mode passthrough -f image2pipe -vcodec ppm -".split()],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        process_group=0,  # Ctrl-C reaches this process only, which ends ffmpeg
    ) as ffmpeg:  # whose end closes the pipe, which ends ffmpeg
        assert ffmpeg.stdout is not None
        while ffmpeg.stdout.readline() == b"P6\n":  # each frame has its size in front
            columns, rows = map(int, ffmpeg.stdout.readline().split())
            ffmpeg.stdout.readline()
            content = ffmpeg.stdout.read(3 * rows * columns)
            if len(content) == 3 * rows * columns:
                yield np.frombuffer(content, np.uint8).reshape(rows, columns, 3)

"""The metadata of a LeRobot dataset of format v3.0, checked before any frame is read.

The format is that of huggingface/lerobot, `src/lerobot/datasets`: rows of numbers and encoded images in
data/*.parquet, videos in videos/*.mp4, and what they mean in meta/.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, prod
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from robopolicy.naming import GRAPH_NAMES, NAME, check_distinct, shown
from robopolicy.reading_json import read_object
from robopolicy.settings import is_finite
from robopolicy.training.datasets import LARGEST_IMAGE, MOST_NUMBERS, MOST_STEPS, DatasetError
from robopolicy.training.lerobot import INFO, OURS, is_lerobot

VERSION = "v3.0"
STATISTICS, TASKS = "meta/stats.json", "meta/tasks.parquet"
FILE = "chunk-{chunk_index:03d}/file-{file_index:03d}"
EPISODES, DATA = f"meta/episodes/{FILE}.parquet", f"data/{FILE}.parquet"
VIDEO = f"videos/{{video_key}}/{FILE}.mp4"
ACTION, STATE, OBSERVATION, IMAGES = "action", "observation.state", "observation.", "observation.images."
NUMBERS = ("float32", "float64")
PICTURES = ("image", "video")
MOST_EPISODES, HIGHEST_RATE = 10**6, 1000.0
DAMAGE = (pa.ArrowException, OSError, KeyError, OverflowError, TypeError, ValueError)
LONGEST_NAME = 200  # characters


class Feature(NamedTuple):
    """A column: its type, its shape, and the names of its numbers (of a picture: of its axes)."""

    dtype: str
    shape: tuple[int, ...]
    names: tuple[str, ...]
    is_depth: bool

    @property
    def image(self) -> tuple[int, ...]:
        """The shape [H, W, C] of a picture; older datasets describe it as [C, H, W], some without names."""
        first = self.names[0].startswith("channel") or (self.shape[0] == 3 != self.shape[2])
        return (*self.shape[1:], self.shape[0]) if first else self.shape

    @property
    def is_colour(self) -> bool:
        """Whether it is a picture in red, green and blue."""
        return self.dtype in PICTURES and self.image[2:] == (3,) and not self.is_depth

    @property
    def is_vector(self) -> bool:
        """Whether it is a vector of floats."""
        return self.dtype in NUMBERS and len(self.shape) == 1


class EpisodeRow(NamedTuple):
    """An episode: its number of frames, its tasks, its file, and its videos with their first time (s)."""

    length: int
    tasks: tuple[str, ...]
    data: Path
    videos: Mapping[str, tuple[Path, float]]


@dataclass(frozen=True)
class LeRobot:
    """A LeRobot dataset whose metadata has been checked.

    Attributes:
      path: its folder.
      rate: frames a second.
      robot: the type of the robot; "" if it is not known.
      features: columns by key.
      episodes: in order.
      ours: what this library has stored besides LeRobot's metadata; {} in datasets of other programs.
    """

    path: Path
    rate: float
    robot: str
    features: Mapping[str, Feature]
    episodes: tuple[EpisodeRow, ...]
    ours: Mapping[str, Any]

    @property
    def where(self) -> str:
        """Its path, for messages."""
        return repr(str(self.path))


class Choice(NamedTuple):
    """The keys of what a policy reads, by the names of observations."""

    images: Mapping[str, str]
    vectors: Mapping[str, str]


def open_lerobot(path: Path) -> LeRobot:
    """Check the metadata of a dataset, and that its files are there.

    Raises FileNotFoundError for a missing dataset or file, DatasetError, in one line, for another version or
    for metadata that make no sense.
    """
    where = repr(str(path))
    if not is_lerobot(path):
        raise FileNotFoundError(f"{where} is no LeRobot dataset: it holds no {INFO}")
    info = read_object(path / INFO, error=DatasetError)
    version = info.get("codebase_version")
    if version != VERSION:
        raise DatasetError(
            f"{where} has codebase_version {shown(version)}: {VERSION} was expected; lerobot converts older "
            "ones: python -m lerobot.datasets.v30.convert_dataset_v21_to_v30"
        )
    for name, wanted in (("data_path", DATA), ("video_path", VIDEO)):
        if info.get(name) not in (wanted, *([None] if name == "video_path" else [])):
            raise DatasetError(f"{where} has {name} {shown(info.get(name))}: {wanted!r} was expected")
    rate: Any = info.get("fps")
    if not is_finite(rate) or not 0 < float(rate) <= HIGHEST_RATE:
        high = f"a number above 0, at most {HIGHEST_RATE:g}"
        raise DatasetError(f"{where} has fps {shown(rate)}: {high}, was expected")
    features = _features(where, info.get("features"))
    robot: Any = info.get("robot_type")
    episodes = _episodes(path, where, info, [k for k, f in features.items() if f.dtype == "video"])
    robot = robot if _is_name(robot) else ""
    return LeRobot(path, float(rate), robot, features, episodes, _ours(path))


def choose(dataset: LeRobot, cameras: Sequence[str] = ()) -> Choice:
    """The observations and the action of a dataset.

    Images are the chosen cameras, vectors all features `observation.*` of numbers. A camera is given by its
    key, by the end of it, or by its name, which has underscores in place of other characters. Raises
    DatasetError for several cameras of which none is chosen, for a camera that it lacks, and for a dataset
    without an action; ValueError for a camera or the name of an observation that occurs twice.
    """
    if isinstance(cameras, str) or not isinstance(cameras, Sequence):
        raise DatasetError(f"cameras is {shown(cameras)}: it must be a tuple or a list of names")
    keys = dataset.ours.get("keys", {})
    observed = {key: feature for key, feature in dataset.features.items() if key.startswith(OBSERVATION)}
    colours = {key: _name(key, keys) for key, feature in observed.items() if feature.is_colour}
    vectors = {key: _name(key, keys) for key, feature in observed.items() if feature.is_vector}
    known = ", ".join(colours.values()) or "none"
    if not cameras and len(colours) > 1 and not keys:
        raise DatasetError(f"cameras is (): {dataset.where} has {known}; give those that the policy reads")
    spellings = {key: {key, _end(key), name} for key, name in colours.items()}
    for name in cameras:
        if not any(name in spelled for spelled in spellings.values()):
            raise DatasetError(f"cameras has {name!r}: {dataset.where} has {known}")
    check_distinct("cameras", cameras)
    images = {key: n for key, n in colours.items() if not cameras or spellings[key] & {*cameras}}
    check_distinct(f"observations of {dataset.where}", [*images.values(), *vectors.values()])
    action = dataset.features.get(ACTION)
    if action is None or not action.is_vector:
        about = "none" if action is None else f"{action.dtype}{list(action.shape)}"
        raise DatasetError(f"{dataset.where} has {ACTION} {about}: a vector of floats was expected")
    if not images and not vectors:
        raise DatasetError(f"{dataset.where} has no observation.* that a policy reads: {[*dataset.features]}")
    return Choice({n: key for key, n in images.items()}, {n: key for key, n in vectors.items()})


def _ours(path: Path) -> dict[str, Any]:
    """What this library has stored of a dataset; {} for one of another program."""
    if not (path / OURS).is_file():
        return {}
    ours = read_object(path / OURS, error=DatasetError)
    for name in ("keys", "minari"):
        if not isinstance(ours.get(name), dict):
            raise DatasetError(f"{str(path / OURS)!r} has {name} {shown(ours.get(name))}: {{}} was expected")
    for key, name in ours["keys"].items():
        if not isinstance(name, str) or not NAME.fullmatch(name) or "/" in name:
            raise DatasetError(f"{str(path / OURS)!r} has {shown(name)} as the name of {shown(key)}")
    return ours


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and value.isprintable() and 0 < len(value) <= LONGEST_NAME


def _end(key: str) -> str:
    """The key of an observation without what all keys begin with."""
    return key.removeprefix(IMAGES).removeprefix(OBSERVATION)


def _name(key: str, keys: Mapping[str, str]) -> str:
    """The name of an observation, as manifests have it: letters, digits and underscores."""
    if key in keys:
        return keys[key]
    short = re.sub(r"\W", "_", _end(key), flags=re.ASCII)
    return f"x_{short}" if short in GRAPH_NAMES else re.sub(r"^(?![A-Za-z])", "x", short)[:64]


def _features(where: str, described: Any) -> dict[str, Feature]:
    if not isinstance(described, dict) or not described:
        raise DatasetError(f"{where} has features {shown(described)}: columns by key were expected")
    features = {}
    for key, stored in described.items():
        one: dict[str, Any] = stored if isinstance(stored, dict) else {}
        shape: Any = one.get("shape")
        dtype = one.get("dtype")
        right = isinstance(shape, list) and all(type(side) is int and side > 0 for side in shape)
        if not right or not isinstance(dtype, str) or "/" in key:
            raise DatasetError(
                f"{where} has feature {key!r} {shown(stored)}: a dtype and a shape were expected"
            )
        if dtype in PICTURES and len(shape) != 3:
            raise DatasetError(f"{where} has feature {key!r} of shape {shape}: [H, W, C] was expected")
        if (dtype in PICTURES and max(shape) > LARGEST_IMAGE) or (
            dtype in NUMBERS and prod(shape) > MOST_NUMBERS
        ):
            raise DatasetError(f"{where} has feature {key!r} of shape {shape}: it is too large")
        info = one.get("info")
        flags: dict[str, Any] = info if isinstance(info, dict) else {}
        depth = bool(flags.get("is_depth_map") or flags.get("video.is_depth_map"))
        features[key] = Feature(dtype, tuple(shape), _names(key, one.get("names"), shape), depth)
    return features


def _names(key: str, names: Any, shape: Sequence[int]) -> tuple[str, ...]:
    """The names of a vector's numbers or of a picture's axes; LeRobot's may be a list, or lists by a name."""
    if isinstance(names, dict):
        names = next(iter(names.values()), None)
    wanted = shape[0] if len(shape) == 1 else len(shape)
    fits = isinstance(names, list) and len(names) == wanted and len(set(map(str, names))) == wanted
    if fits and all(map(_is_name, names)):
        return tuple(names)
    return tuple(f"{key.rpartition('.')[2]}_{number}" for number in range(wanted))


def _episodes(
    path: Path, where: str, info: Mapping[str, Any], videos: Sequence[str]
) -> tuple[EpisodeRow, ...]:
    count = info.get("total_episodes")
    if type(count) is not int or not 1 <= count <= MOST_EPISODES:
        raise DatasetError(f"{where} has total_episodes {shown(count)}: a number of 1 or more was expected")
    files = sorted(path.glob("meta/episodes/*/*.parquet"))
    if not files:
        raise FileNotFoundError(f"{where} holds no {EPISODES.format(chunk_index=0, file_index=0)}")
    columns = ["episode_index", "length", "tasks", "data/chunk_index", "data/file_index"]
    of_videos = ("chunk_index", "file_index", "from_timestamp")
    columns += [f"videos/{key}/{part}" for key in videos for part in of_videos]
    try:
        for file in files:
            missing = [c for c in columns if c not in pq.read_schema(file).names]
            if missing:
                raise DatasetError(f"{where}: {file.relative_to(path)} lacks the column {missing[0]!r}")
        rows = [row for file in files for row in pq.read_table(file, columns=columns).to_pylist()]
        rows.sort(key=lambda row: row["episode_index"])
        found = [row["episode_index"] for row in rows]
        if found != [*range(count)]:
            raise DatasetError(f"{where} describes {len(found)} episodes: {count} were expected, in order")
        episodes = tuple(_episode(path, where, row, videos) for row in rows)
    except DatasetError:
        raise
    except DAMAGE as error:
        raise DatasetError(f"{where} is damaged in meta/episodes: {error}") from error
    for file in dict.fromkeys(f for e in episodes for f in (e.data, *(v for v, _ in e.videos.values()))):
        if not file.is_file():
            raise FileNotFoundError(f"{where} holds no {file.relative_to(path)}, which its metadata name")
    return episodes


def _episode(path: Path, where: str, row: Mapping[str, Any], videos: Sequence[str]) -> EpisodeRow:
    length = row["length"]
    if type(length) is not int or not 1 <= length <= MOST_STEPS:
        raise DatasetError(
            f"{where} has an episode of {shown(length)} frames: 1 to {MOST_STEPS} were expected"
        )

    tasks = row["tasks"]
    if not isinstance(tasks, list):
        raise DatasetError(f"{where} has an episode with tasks {shown(tasks)}: a list of texts was expected")

    def file(pattern: str, part: str, **names: str) -> Path:
        indices = {name: int(row[f"{part}/{name}"]) for name in ("chunk_index", "file_index")}
        return path / pattern.format(**indices, **names)

    pictures = {
        key: (file(VIDEO, f"videos/{key}", video_key=key), float(row[f"videos/{key}/from_timestamp"]))
        for key in videos
    }
    for key, (_, start) in pictures.items():
        if not 0 <= start < inf:
            raise DatasetError(f"{where} has an episode of {key} from {start} s on: 0 or more was expected")
    return EpisodeRow(length, tuple(map(str, tasks)), file(DATA, "data"), pictures)

"""The contents of runs, bundles and datasets, as JSON can hold them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import h5py
import jax
import numpy as np
from numpy.typing import NDArray

from robopolicy.experiments.dataset_pictures import has_rewards, write_sheet, write_video
from robopolicy.experiments.opened_datasets import opened_datasets
from robopolicy.experiments.output_files import check_file
from robopolicy.experiments.run_table import flops_of
from robopolicy.experiments.runs import find_run, is_shipped, load
from robopolicy.naming import shown
from robopolicy.policies.base import unflatten
from robopolicy.policies.catalogue import by_path
from robopolicy.policies.policy import Policy
from robopolicy.reading_json import read_object
from robopolicy.runtime.bundle import open_bundle
from robopolicy.runtime.manifest import Value
from robopolicy.settings import check_count, is_finite
from robopolicy.training.checkpoint import RunFolder
from robopolicy.training.datasets import METADATA, OURS, Dataset
from robopolicy.training.episodes import open_episode
from robopolicy.training.resume import latest_limits
from robopolicy.training.run_status import status

FRAMES, MOST_FRAMES = 12, 100  # of a page
Contents = dict[str, Any]


def contents(
    name: str,
    episode: int | None = None,
    *,
    video: Path | None = None,
    sheet: Path | None = None,
    frames: int | None = None,
    cameras: Sequence[str] = (),
    task: str | None = None,
) -> Contents:
    """The contents of a run, a bundle or a dataset of Minari or LeRobot.

    Args:
      name: a run's folder or name, or the folder of a bundle or a dataset.
      episode: of a dataset; None for the whole dataset, and for episode 0 in pictures.
      video: .mp4 of the episode to write.
      sheet: .png with frames of the episode to write.
      frames: number of frames on it, 12 by default.
      cameras: of a LeRobot dataset, those to read; () for the only one, or for all of our own.
      task: of a Minari dataset of another program, which does not say it.

    Raises ValueError or FileNotFoundError, in one line, for bad input and for damaged files.
    """
    path = Path(name)
    if (path / "data").is_dir() and not (path / "config.json").is_file():
        check_file("video", video, (".mp4",))
        check_file("sheet", sheet, (".png",))
        if frames is not None:
            check_count("frames", frames, 1, MOST_FRAMES)
            if sheet is None:
                raise ValueError(f"frames is {frames}: it needs a sheet")
        foreign = (path / METADATA).is_file() and OURS not in read_object(path / METADATA)
        with opened_datasets([path], task if foreign else None, cameras) as (dataset,):
            return _dataset(dataset, episode, video, sheet, frames or FRAMES)
    try:
        folder, _ = find_run(name)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{error}, or the folder of a bundle or of a dataset") from error
    for option, value in (("episode", episode), ("video", video), ("sheet", sheet), ("frames", frames)):
        if value is not None:
            shown = str(value) if isinstance(value, Path) else value
            raise ValueError(f"{option} is {shown!r}: only a dataset has episodes")
    if cameras:
        raise ValueError(f"cameras is {tuple(cameras)}: only a LeRobot dataset has a choice of them")
    if any((path / file).exists() for file in ("manifest.json", "SHA256SUMS")):
        return bundle_contents(path)
    if not (folder / "config.json").is_file():
        raise ValueError(
            f"name is {name!r}: it must hold config.json as a run does, manifest.json as a "
            "bundle does, or data/ as a dataset does"
        )
    return run_contents(name)


def _dataset(
    dataset: Dataset, episode: int | None, video: Path | None, sheet: Path | None, frames: int
) -> Contents:
    if episode is None and video is None and sheet is None:
        return dataset_contents(dataset)
    result = episode_contents(dataset, episode or 0)
    if video is not None:
        write_video(video, dataset, episode or 0)
        result["video"] = str(video)
    if sheet is not None:
        write_sheet(sheet, dataset, episode or 0, frames)
        result["sheet"] = str(sheet)
    return result


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files in a folder."""
    return sum(file.stat().st_size for file in (path, *path.rglob("*")) if file.is_file())


def run_contents(name: str) -> Contents:
    """The contents of a run. Raises FileNotFoundError or ValueError for no run and for a damaged one."""
    path, which = find_run(name)
    folder = RunFolder(path)
    try:
        config = folder.config()
        if not isinstance(config.get("policy"), dict):
            raise ValueError("its config.json describes no policy")
        state, flops = status(folder), flops_of(config)
    except ValueError as error:
        raise ValueError(f"run is {name!r}: {error}") from error
    checkpoints = folder.generations()
    series: dict[str, list[float]] = {}
    for record in state.records:
        for key, value in record.items():
            if type(value) is int and not is_finite(value):
                raise ValueError(
                    f"{str(folder.metrics_path)!r}: {key} is {shown(value)}, too large for a float"
                )
            if type(value) in (int, float):
                series.setdefault(key, []).append(value)
    return {
        "kind": "run",
        "path": str(path),
        "checkpoint": which,
        "config": config,
        "limits": latest_limits(folder),
        **{n: getattr(state, n) for n in ("trainer", "status", "why", "done", "measure", "best")},
        "total": max(state.done, state.total),  # a resume may have set an earlier end
        # The files of a package are as old as its installation.
        "written": None if is_shipped(path) else state.written,
        "bytes": size_of(path),
        "checkpoints": {str(number): size_of(path / "checkpoints" / str(number)) for number in checkpoints},
        "records": len(state.records),
        "metrics": {
            key: {"first": values[0], "last": values[-1], "least": min(values), "most": max(values)}
            for key, values in series.items()
        },
        "flops": flops,
        **(_policy(load(name)) if checkpoints else {}),
    }


def _policy(policy: Policy) -> Contents:
    """Shapes of a policy's parameters and features, and the root mean square of the parameters."""
    arrays = by_path(jax.device_get(unflatten(policy.functions)(policy.parameters)))
    parameters = {
        path: {"shape": list(a.shape), "rms": float(np.sqrt(np.mean(a**2))) if a.size else 0.0}
        for path, a in arrays.items()
    }
    features = {path: list(np.shape(a)) for path, a in by_path(jax.device_get(policy.features)).items()}
    return {"parameter_count": policy.parameters.size, "parameters": parameters, "features": features}


def bundle_contents(path: Path) -> Contents:
    """The contents of a bundle. Raises ValueError or FileNotFoundError for a missing or damaged one."""
    manifest = open_bundle(path).manifest
    data = manifest.data
    return {
        "kind": "bundle",
        "path": str(path),
        "bytes": size_of(path),
        "files": {name: (path / name).stat().st_size for name in sorted(manifest.files)},
        "sums": "as listed",
        "control_period": manifest.control_period,
        "deadline": manifest.deadline,
        "observations": manifest.observations,
        "inputs": {name: _value(value) for name, value in manifest.inputs.items()},
        "outputs": {name: _value(value) for name, value in manifest.outputs.items()},
        "tolerances": manifest.tolerances,
        **{name: data.get(name) for name in ("task", "attention", "parameters", "flops", "requires")},
    }


def _value(value: Value) -> Contents:
    return {
        "shape": list(value.shape),
        "dtype": value.dtype,
        "units": list(value.units),
        "entries": list(value.entries),
        "low": value.low.tolist(),
        "high": value.high.tolist(),
    }


def dataset_contents(dataset: Dataset) -> Contents:
    """The contents of a dataset of demonstrations. Raises ValueError if it is damaged."""
    vectors = {name: f"observations/{name}" for name in dataset.columns.vectors}
    with h5py.File(dataset.file) as file:
        episodes = [file[f"episode_{number}"] for number in range(len(dataset.steps))]
        columns = {
            name: [episode[place][()] for episode in episodes]
            for name, place in {**vectors, "actions": "actions", "rewards": "rewards"}.items()
        }
    images = {
        name: {"shape": list(shape), "dtype": "uint8", "low": 0, "high": 255}
        for name, shape in dataset.columns.images.items()
    }
    about = dataset.about
    scores, successes = _numbers(dataset, "scores"), _numbers(dataset, "successes")
    return {
        "kind": "dataset",
        "path": str(dataset.path),
        "bytes": size_of(dataset.path),
        "task": dataset.task,
        **{name: about.get(name) for name in ("environment", "recording", "renderer", "versions")},
        "episodes": len(dataset.steps),
        "steps": sum(dataset.steps),
        "lengths": list(dataset.steps),
        "observations": {**images, **{name: _range(np.concatenate(columns[name])) for name in vectors}},
        "actions": _range(np.concatenate(columns["actions"])),
        "returns": [float(rewards.sum(dtype=float)) for rewards in columns["rewards"]]
        if has_rewards(dataset, np.concatenate(columns["rewards"]))
        else None,
        "seeds": _numbers(dataset, "seeds"),
        "scores": scores,
        "score_mean": float(np.mean(scores)) if scores else None,
        "success_rate": float(np.mean(successes)) if successes else None,
    }


def episode_contents(dataset: Dataset, number: int) -> Contents:
    """The contents of one episode. Raises ValueError if there is no such episode."""
    with open_episode(dataset, number) as episode:
        actions, rewards = episode.actions, episode.rewards
        scored = has_rewards(dataset, rewards)
    seeds, scores = (_numbers(dataset, name) for name in ("seeds", "scores"))
    return {
        "kind": "episode",
        "path": str(dataset.path),
        "episode": number,
        "steps": len(rewards),
        "seed": None if seeds is None else seeds[number],
        "score": None if scores is None else scores[number],
        "return": float(rewards.sum()) if scored else None,
        "rewards": rewards.tolist() if scored else None,
        "actions": _range(actions),
    }


def _range(values: NDArray[Any]) -> Contents:
    """Shape and dtype of a step's values, and the limits of each number over all steps."""
    low, high = (end.tolist() for end in (values.min(axis=0), values.max(axis=0)))
    return {"shape": list(values.shape[1:]), "dtype": str(values.dtype), "low": low, "high": high}


def _numbers(dataset: Dataset, name: str) -> list[float] | None:
    """One number for each episode from the recording; None without them."""
    values = dataset.about.get(name)
    if not isinstance(values, list) or len(values) != len(dataset.steps):
        return None
    return values if all(type(value) in (bool, int, float) for value in values) else None

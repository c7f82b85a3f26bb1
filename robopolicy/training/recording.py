"""Demonstrations, recorded by several processes into a Minari dataset that appears whole or not at all.

Every episode is a file of its own until all are there, so that a recording which is killed goes on with what
it has. Images are compressed without loss, one HDF5 chunk a frame.
"""

from __future__ import annotations

import errno
import fcntl
import io
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import h5py
import numpy as np

from robopolicy.training.capacity import check_workers
from robopolicy.training.datasets import OURS
from robopolicy.training.evaluate import DEADLINE, TRIES, EpisodeError
from robopolicy.training.pool import Processes
from robopolicy.training.worker import EnvironmentSpec, words
from robopolicy.writing import clear_about_full_disks, whole, write_atomically

GO_ON = "complete episodes are kept: free some space, and the same command goes on"
SPARE = 20_000_000  # bytes, for what a dataset holds besides
LEAST_TRIED, TRIED_FOR_ONE = 20, 10  # seeds, before too few succeed
LEVEL = 3  # of gzip: higher ones are slower and save nothing on rendered images


class Recorded(NamedTuple):
    """How a demonstration went; `score` is the first of the task's outcomes, or whether it succeeded."""

    seed: int
    steps: int
    score: float
    success: bool


@dataclass(frozen=True)
class RecordingConfig:
    """What is recorded: `episodes` of the seeds from `seed` on, with `noise` on the demonstrator's actions.

    Attributes:
      keep_failed: keep episodes that failed, too, in place of playing another seed for each.
      outcomes: numbers of `info` that are kept for every step; the first one, at the end, is the score.
    """

    episodes: int
    seed: int = 0
    noise: float = 0.0
    keep_failed: bool = False
    outcomes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.episodes < 1:
            raise ValueError(f"episodes is {self.episodes}: it must be 1 or more")
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"seed is {self.seed}: it must be from 0 to {2**32 - 1}")
        if not 0.0 <= self.noise <= 1.0:
            raise ValueError(f"noise is {self.noise}: it must be a number from 0 to 1")


def check_recording(out: Path, workers: int) -> None:
    """Raise ValueError for a name that is not Minari's or no workers, FileExistsError where `out` exists."""
    check_workers(workers)
    if not re.fullmatch(r"[A-Za-z0-9_-]+-v\d+", out.name):
        raise ValueError(
            f"out is {str(out)!r}: Minari wants a name and a version, such as {out.name or 'sweep'}-v0"
        )
    shutil.rmtree(_cleared_away(out), ignore_errors=True)  # left by a killed recorder
    if out.exists():
        raise FileExistsError(f"{str(out)!r} exists: give another --out")


def partial_folder(out: Path) -> Path:
    """Where the episodes of a recording that is not complete are kept."""
    return out.with_name(f"{out.name}.partial")


def _cleared_away(out: Path) -> Path:
    """Where the episodes of a recording that is complete are removed."""
    return out.with_name(f".{partial_folder(out).name}")


def record(
    config: RecordingConfig,
    environment: EnvironmentSpec,
    out: Path,
    about: Mapping[str, Any],
    workers: int,
    on_episode: Callable[[Recorded, int], None] | None = None,
) -> list[Recorded]:
    """Record a dataset, or go on with one that was interrupted; returns what was kept, by seed.

    The dataset has the same contents for the same config, whatever the number of `workers`.

    Args:
      config: what is recorded.
      environment: its task, which has a `demonstrator(seed, noise)`; `info` holds `success`.
      out: the folder of the dataset.
      about: is kept in it, with the seeds and the scores.
      workers: processes that record.
      on_episode: is called with every new episode, and with how many are kept so far.

    Raises FileExistsError where `out` exists, ValueError where an interrupted recording had another config,
    EpisodeError where an episode fails three times.
    """
    check_recording(out, workers)
    settings = {
        "config": config.__dict__,
        "environment": {"id": environment.id, **environment.settings},
        # Parts of one dataset are made alike: another renderer draws other pixels.
        "about": _flat({name: value for name, value in about.items() if name != "recording"}),
    }
    with _held(partial_folder(out), json.loads(json.dumps(settings))) as folder:
        if out.exists():  # another process has just completed it
            raise FileExistsError(f"{str(out)!r} exists: give another --out")
        done = _recorded(folder, config.keep_failed)
        given, most = (environment, str(folder), config), min(workers, config.episodes)
        with closing(Processes(_serve, given, most, DEADLINE)) as processes:
            _fill(config, done, processes, on_episode)
        kept = [done[seed] for seed in sorted(done) if config.keep_failed or done[seed].success]
        _assemble(folder, out, environment, kept, about)
    return kept


def _fill(
    config: RecordingConfig,
    done: dict[int, Recorded],
    processes: Processes,
    on_episode: Callable[[Recorded, int], None] | None,
) -> None:
    """Play seeds in turn until enough episodes are kept, adding to `done`."""

    def kept() -> int:
        return sum(config.keep_failed or r.success for r in done.values())

    playing: dict[int, int] = {}
    failures: dict[int, int] = {}
    again: list[int] = []
    upcoming = config.seed
    most = max(LEAST_TRIED, TRIED_FOR_ONE * config.episodes)
    while playing or kept() < config.episodes:
        if len(done) >= most and kept() < config.episodes:
            raise EpisodeError(
                f"{kept()} of {len(done)} demonstrations succeeded, of {config.episodes} that are wanted: "
                "give less noise, an easier task or --keep-failed"
            )
        for place in processes.free():
            # Never more than what is lacking, so that which seeds are played depends on nothing else.
            if kept() + len(playing) >= config.episodes:
                break
            while upcoming in done:
                upcoming += 1
            seed = again.pop() if again else upcoming
            upcoming += seed == upcoming
            playing[place] = seed
            processes.start(place, seed)
        for place, answer in processes.finished():
            seed = playing.pop(place)
            if isinstance(answer, OSError):  # of the disk, where another try fails, too
                raise answer
            if isinstance(answer, Recorded):
                done[seed] = answer
                if on_episode is not None:
                    on_episode(answer, kept())
                continue
            failures[seed] = failures.get(seed, 0) + 1
            if failures[seed] == TRIES:
                raise EpisodeError(f"the demonstration of seed {seed} failed {TRIES} times: {answer}")
            again.append(seed)


def _serve(
    connection: Connection[Any, Any], environment: EnvironmentSpec, folder: str, config: RecordingConfig
) -> None:
    """Record every seed on `connection`; answers are Recorded, or the words of an error."""
    env: gymnasium.Env[Any, Any] | None = None
    while True:
        try:
            seed: int = connection.recv()
        except (EOFError, OSError):  # the recorder is gone, or done
            break
        answer: Recorded | OSError | str
        try:
            env = env or environment.make()
            played, content = _play(env, seed, config)
            answer = played
            try:
                _keep(played, content, Path(folder))
            except OSError as error:
                answer = error
        except Exception as error:  # whatever an environment raises is the recorder's to report
            env, answer = None, words(error)
        try:
            connection.send(answer)
        except OSError:
            break
    if env is not None:
        env.close()


def _play(env: gymnasium.Env[Any, Any], seed: int, config: RecordingConfig) -> tuple[Recorded, bytes]:
    """Play one demonstration; how it went, and its HDF5 file, empty where it is not to be kept."""
    observation, info = env.reset(seed=seed)
    player: Any = env.get_wrapper_attr("demonstrator")(seed, config.noise)
    observations, infos = [observation], [info]
    executed, intended, rewards = [], [], []
    ends: list[bool] = []
    cuts: list[bool] = []
    while not (ends and (ends[-1] or cuts[-1])):
        action = player.act()
        observation, reward, ended, cut, info = env.step(action.executed)
        executed.append(action.executed)
        intended.append(action.intended)
        rewards.append(reward)
        ends.append(ended)
        cuts.append(cut)
        observations.append(observation)
        infos.append(info)
    last = infos[-1]
    score = float(last[config.outcomes[0]] if config.outcomes else last["success"])
    recorded = Recorded(seed, len(rewards), score, bool(last["success"]))
    if not (recorded.success or config.keep_failed):
        return recorded, b""
    content = io.BytesIO()
    with h5py.File(content, "w") as file:
        for name in sorted(observation):
            _write(file, f"observations/{name}", np.stack([seen[name] for seen in observations]))
        _write(file, "actions", np.stack(executed))
        _write(file, "rewards", np.array(rewards))
        _write(file, "terminations", np.array(ends))
        _write(file, "truncations", np.array(cuts))
        for name in config.outcomes:
            _write(file, f"infos/{name}", np.array([info[name] for info in infos]))
        _write(file, "infos/intended_action", np.stack(intended))
    return recorded, content.getvalue()


def _keep(recorded: Recorded, content: bytes, folder: Path) -> None:
    """Put an episode into `folder`. HDF5 itself crashes on a full disk, so its bytes are written here."""
    with clear_about_full_disks(folder, GO_ON):
        if content:
            with whole(folder / f"{recorded.seed}.hdf5") as partial, partial.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        write_atomically(folder / f"{recorded.seed}.json", json.dumps(recorded._asdict()))


def _write(file: h5py.File, name: str, array: np.ndarray) -> None:
    image = array.ndim == 4
    packed = (
        {"compression": "gzip", "compression_opts": LEVEL, "chunks": (1, *array.shape[1:])} if image else {}
    )
    file.create_dataset(name, data=array, **packed)


@contextmanager
def _held(folder: Path, settings: dict[str, Any]) -> Iterator[Path]:
    """The folder of unfinished work, new or with the same settings, locked for this process."""
    folder.mkdir(parents=True, exist_ok=True)
    path, lock = folder / "settings.json", folder / ".lock"
    with lock.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the kernel lets go when a recorder dies
        except OSError as error:
            raise ValueError(f"{str(folder)!r} is being recorded by another process") from error
        if not lock.exists() or os.fstat(file.fileno()).st_ino != lock.stat().st_ino:
            raise ValueError(f"{str(folder)!r} was just completed by another process")
        if not path.exists():
            with clear_about_full_disks(folder, GO_ON):
                write_atomically(path, json.dumps(settings))
        _refuse_changes(folder, _before(path, settings), settings)
        yield folder


def _before(path: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """The settings of an interrupted recording, in the same parts as `settings`."""
    try:
        before = json.loads(path.read_text())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{str(path)!r} is not JSON: {error}; delete the folder, and record anew") from error
    if not isinstance(before, dict) or not all(isinstance(before.get(part), dict) for part in settings):
        raise ValueError(f"{str(path)!r} lacks {', '.join(settings)}: delete the folder, and record anew")
    return before


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Settings within settings, by names such as `versions numpy`."""
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        flat |= _flat(value, f"{prefix}{name} ") if isinstance(value, Mapping) else {prefix + name: value}
    return flat


def _refuse_changes(folder: Path, before: dict[str, Any], now: dict[str, Any]) -> None:
    for part in now:
        for name in sorted(now[part].keys() | before[part].keys()):
            if now[part].get(name) != before[part].get(name):
                raise ValueError(
                    f"{name} is {now[part].get(name)!r}: the recording that was interrupted has "
                    f"{before[part].get(name)!r}; give that, or delete {str(folder)!r}"
                )


def _recorded(folder: Path, keep_failed: bool) -> dict[int, Recorded]:
    """What an interrupted recording has, by seed; an episode that a power cut has spoilt is played again."""
    found = {}
    for file in folder.glob("*.json"):
        if not file.stem.isdigit():
            continue
        try:
            recorded = Recorded(**json.loads(file.read_text()))
            if recorded.success or keep_failed:
                with h5py.File(file.with_suffix(".hdf5")) as episode:
                    seen = {len(array) for array in episode["observations"].values()}
                    whole = len(episode["actions"]) == recorded.steps and seen == {recorded.steps + 1}
            else:
                whole = True
        except (OSError, KeyError, TypeError, ValueError):
            whole = False
        if whole:
            found[recorded.seed] = recorded
    return found


def _writable(spec: Any) -> Any:
    """A spec that JSON can hold: a class that was registered itself is written as "module:Name"."""
    if callable(spec.entry_point):
        name = f"{spec.entry_point.__module__}:{spec.entry_point.__qualname__}"
        return replace(spec, entry_point=name)
    return spec


def _assemble(
    folder: Path,
    out: Path,
    environment: EnvironmentSpec,
    kept: list[Recorded],
    about: Mapping[str, Any],
) -> None:
    """Join the episodes to a dataset, put it to `out` and clear away what it was made of."""
    import minari
    from minari.dataset.minari_storage import MinariStorage

    whole = folder.absolute() / "dataset"  # Minari does not find the size of a folder by a relative path
    shutil.rmtree(whole, ignore_errors=True)
    whole.mkdir()
    env = environment.make()
    with clear_about_full_disks(folder, GO_ON):
        _check_space(folder, kept)
        storage = MinariStorage.new(
            whole / "data",
            observation_space=env.observation_space,
            action_space=env.action_space,
            env_spec=_writable(env.spec),
            jpeg_encoding=False,
        )
        env.close()
        with h5py.File(whole / "data" / "main_data.hdf5", "w", track_order=True) as file:
            for number, episode in enumerate(kept):
                group = file.create_group(f"episode_{number}")
                group.attrs.update(
                    id=number, seed=episode.seed, total_steps=episode.steps, score=episode.score
                )
                with h5py.File(folder / f"{episode.seed}.hdf5") as source:
                    for part in source:
                        source.copy(part, group)
        storage.update_metadata(
            {
                "dataset_id": out.name,
                "minari_version": minari.__version__,
                "total_episodes": len(kept),
                "total_steps": sum(episode.steps for episode in kept),
                "dataset_size": float(storage.get_size()),
                "algorithm_name": "scripted demonstrator",
                OURS: {
                    **about,
                    **{f"{name}s": [getattr(e, name) for e in kept] for name in ("seed", "score")},
                },
            }
        )
    os.replace(whole, out)
    # At one stroke, so that no part of it is ever taken for an interrupted recording.
    os.replace(folder, _cleared_away(out))
    shutil.rmtree(_cleared_away(out), ignore_errors=True)


def _check_space(folder: Path, kept: list[Recorded]) -> None:
    """Raise OSError where the episodes do not fit once more."""
    needed = sum((folder / f"{episode.seed}.hdf5").stat().st_size for episode in kept)
    if shutil.disk_usage(folder).free < needed + SPARE:
        raise OSError(errno.ENOSPC, "No space left on device")

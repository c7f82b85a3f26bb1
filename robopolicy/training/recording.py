"""Recording of demonstrations by several processes into a Minari dataset that appears whole or not at all.

Every episode is a file of its own until all are complete, so an interrupted recording continues with the
episodes that it has. Images are compressed without loss, one HDF5 chunk per frame.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import h5py

from robopolicy.reading_json import read_json
from robopolicy.runtime.graph import OnnxPolicy
from robopolicy.training.capacity import check_workers
from robopolicy.training.datasets import OURS, check_dataset_name
from robopolicy.training.demonstration import SEEDS, Recorded, RecordingConfig, play
from robopolicy.training.evaluate import DEADLINE, TRIES, EpisodeError
from robopolicy.training.pool import Processes
from robopolicy.training.worker import Environments, EnvironmentSpec, answer_all
from robopolicy.writing import clear_about_full_disks, lock_now, whole, write_atomically

CONTINUE = "complete episodes are kept: free some space, and the same command goes on"
SPARE = 20_000_000  # bytes of a dataset besides its episodes
MIN_TRIED, TRIED_PER_EPISODE = 20, 10  # seeds, before too few succeed
COMPLETE = "complete"  # file in the folder of the episodes that names their dataset, ready to move from there


class Recording(NamedTuple):
    """The result of a recording: the episodes of the dataset, and those that were kept out, by seed."""

    episodes: list[Recorded]
    kept_out: list[Recorded]


def check_recording(out: Path, workers: int) -> None:
    """Raise ValueError for a bad number of workers, FileExistsError if `out` exists.

    Removes what a recorder that was killed at its very end has left.
    """
    check_workers(workers)
    shutil.rmtree(_removed_folder(out), ignore_errors=True)
    if out.exists():
        moved = partial_folder(out) / COMPLETE
        if moved.is_file() and not (moved.parent / moved.read_text()).exists():
            _remove_episodes(out)
        raise FileExistsError(f"{str(out)!r} exists: give another --out")


def partial_folder(out: Path) -> Path:
    """The folder with the episodes of an unfinished recording."""
    return out.with_name(f"{out.name}.partial")


def _removed_folder(out: Path) -> Path:
    """The folder in which the episodes of a complete recording are removed."""
    return out.with_name(f".{partial_folder(out).name}")


def _remove_episodes(out: Path) -> None:
    """Remove the episodes of a complete recording."""
    # One rename, so that a part of the folder never looks like an interrupted recording.
    with suppress(FileNotFoundError):  # another process removes it, too
        os.replace(partial_folder(out), _removed_folder(out))
    shutil.rmtree(_removed_folder(out), ignore_errors=True)


def record(
    config: RecordingConfig,
    environment: EnvironmentSpec,
    out: Path,
    about: Mapping[str, Any],
    workers: int,
    on_episode: Callable[[Recorded, int], None] | None = None,
    policy: bytes | None = None,
    finish: Callable[[Path], Path] | None = None,
) -> Recording:
    """Record a dataset, or continue an interrupted recording.

    The dataset has the same contents for the same config, whatever the number of `workers`.

    Args:
      config: settings.
      environment: its task has a `demonstrator(seed, noise)`; `info` holds `success`.
      out: the folder of the dataset.
      about: metadata of the dataset, besides its seeds and scores.
      workers: number of processes.
      on_episode: called with every new episode, and with the number of episodes so far.
      policy: ONNX graph of the policy that acts in place of the demonstrator, which labels its episodes; see
        `RecordingConfig.beta`. `about` says which one it is.
      finish: makes of the complete Minari dataset, in a folder beside it, what moves to `out` in its place.

    Raises FileExistsError if `out` exists; ValueError for a bad name of a Minari dataset, for another config
    than that of an interrupted recording, and if another process records it; EpisodeError if an episode fails
    three times, too few succeed, or no seed is left; DiskFullError.
    """
    if finish is None:
        check_dataset_name(out)
    check_recording(out, workers)
    settings = {
        "config": vars(config),
        "environment": {"id": environment.id, **environment.settings},
        # All parts of a dataset have one origin: another renderer draws other pixels.
        "about": _flat({name: value for name, value in about.items() if name != "recording"}),
    }
    with _locked_folder(partial_folder(out), json.loads(json.dumps(settings))) as folder:
        if out.exists():  # another process has just completed it
            raise FileExistsError(f"{str(out)!r} exists: give another --out")
        done = _complete_episodes(folder, config)
        arguments = (environment, folder, config, policy)
        with closing(Processes(_serve, arguments, min(workers, config.episodes), DEADLINE)) as processes:
            _play_missing(config, done, processes, on_episode)
        played = [done[seed] for seed in sorted(done)]
        recording = Recording(
            [one for one in played if config.keeps(one)], [one for one in played if not config.keeps(one)]
        )
        player = "" if policy is None else "policy, labelled by a "
        _assemble(folder, out, environment, recording, f"{player}scripted demonstrator", about, finish)
    return recording


def _play_missing(
    config: RecordingConfig,
    done: dict[int, Recorded],
    processes: Processes,
    on_episode: Callable[[Recorded, int], None] | None,
) -> None:
    """Play seeds in turn and add them to `done`, until there are enough episodes."""

    def count() -> int:
        return sum(map(config.keeps, done.values()))

    playing: dict[int, int] = {}
    failures: Counter[int] = Counter()
    again: list[int] = []
    upcoming = (seed for seed in range(config.seed, SEEDS) if seed not in done)
    most = max(MIN_TRIED, TRIED_PER_EPISODE * config.episodes)
    while playing or count() < config.episodes:
        if len(done) >= most and count() < config.episodes:
            raise EpisodeError(_too_few(config, list(done.values()), count()))
        for place in processes.free():
            # Never more than are missing, so that the seeds do not depend on the number of workers.
            if count() + len(playing) >= config.episodes:
                break
            following = again.pop() if again else next(upcoming, None)
            if following is None:
                raise EpisodeError(f"seed is {config.seed}: none is left to replace episodes that failed")
            playing[place] = following
            processes.start(place, playing[place])
        for place, answer in processes.finished():
            seed = playing.pop(place)
            if isinstance(answer, OSError):  # of the disk, on which another try fails, too
                raise answer
            if isinstance(answer, Recorded):
                done[seed] = answer
                if on_episode is not None:
                    on_episode(answer, count())
                continue
            failures[seed] += 1
            if failures[seed] == TRIES:
                raise EpisodeError(f"the demonstration of seed {seed} failed {TRIES} times: {answer}")
            again.append(seed)


def most_seeds(episodes: int) -> int:
    """A bound on the seeds that a recording of `episodes` plays, also for episodes that it leaves out."""
    return max(MIN_TRIED, TRIED_PER_EPISODE * episodes) + episodes  # those in play when it gives up


def _too_few(config: RecordingConfig, played: list[Recorded], count: int) -> str:
    """The message after too many episodes that were kept out."""
    unsolved = [one.unsolved for one in played if one.unsolved]
    if unsolved:
        return (
            f"{count} of {len(played)} episodes are labelled, of {config.episodes} that are wanted: the "
            f"demonstrator has no action in others, such as: {unsolved[0]}; give a larger "
            "--beta or a better policy"
        )
    return (
        f"{count} of {len(played)} demonstrations succeeded, of {config.episodes} that are wanted: "
        "give less noise, an easier task or --keep-failed"
    )


def _serve(
    connection: Connection[Any, Any],
    environment: EnvironmentSpec,
    folder: Path,
    config: RecordingConfig,
    graph: bytes | None,
) -> None:
    """Answer every seed with Recorded, an OSError of the disk, or an error of the environment in words."""
    environments = Environments()
    policy = None if graph is None else OnnxPolicy(graph)

    def answer(seed: int) -> Recorded | OSError:
        with environments.using(0, environment) as env:
            recorded, content = play(env, seed, config, policy)
        try:
            _save(recorded, content, folder)
        except OSError as error:
            return error
        return recorded

    answer_all(connection, answer)
    environments.close()


def _save(recorded: Recorded, content: bytes, folder: Path) -> None:
    """Write an episode to `folder`. HDF5 itself crashes on a full disk, so it does not write the file."""
    with clear_about_full_disks(folder, CONTINUE):
        if content:
            with whole(folder / f"{recorded.seed}.hdf5") as partial, partial.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        write_atomically(folder / f"{recorded.seed}.json", json.dumps(recorded._asdict()))


@contextmanager
def _locked_folder(folder: Path, settings: dict[str, Any]) -> Iterator[Path]:
    """The folder of an unfinished recording, new or with the same settings, locked for this process."""
    folder.mkdir(parents=True, exist_ok=True)
    path, lock = folder / "settings.json", folder / ".lock"
    with lock.open("a") as file:
        if not lock_now(file, fcntl.LOCK_EX):
            raise ValueError(f"{str(folder)!r} is being recorded by another process")
        if not lock.exists() or os.fstat(file.fileno()).st_ino != lock.stat().st_ino:
            raise ValueError(f"{str(folder)!r} was just completed by another process")
        if not path.exists():
            with clear_about_full_disks(folder, CONTINUE):
                write_atomically(path, json.dumps(settings))
        _refuse_changes(path, settings)
        yield folder


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings by joined names, such as `versions numpy`."""
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        flat |= _flat(value, f"{prefix}{name} ") if isinstance(value, Mapping) else {prefix + name: value}
    return flat


def _refuse_changes(path: Path, settings: dict[str, Any]) -> None:
    """Raise ValueError unless the settings of the interrupted recording, at `path`, equal `settings`."""
    try:
        before = read_json(path)
    except ValueError as error:
        raise ValueError(f"{error}; delete the folder, and record anew") from error
    if not isinstance(before, dict) or not all(isinstance(before.get(part), dict) for part in settings):
        raise ValueError(f"{str(path)!r} lacks {', '.join(settings)}: delete the folder, and record anew")
    for part, new in settings.items():
        for name in sorted(new.keys() | before[part].keys()):
            if new.get(name) != before[part].get(name):
                raise ValueError(
                    f"{name} is {new.get(name)!r}: the recording that was interrupted has "
                    f"{before[part].get(name)!r}; give that, or delete {str(path.parent)!r}"
                )


def _complete_episodes(folder: Path, config: RecordingConfig) -> dict[int, Recorded]:
    """The episodes of an interrupted recording, by seed, without those that a power cut has damaged."""
    complete = {}
    for file in folder.glob("*.json"):
        if not file.stem.isdigit():
            continue
        try:
            recorded = Recorded(**json.loads(file.read_text()))
            if config.keeps(recorded):
                with h5py.File(file.with_suffix(".hdf5")) as episode:
                    lengths = {len(array) for array in episode["observations"].values()}
                    if len(episode["actions"]) != recorded.steps or lengths != {recorded.steps + 1}:
                        continue
        except (OSError, KeyError, TypeError, ValueError):
            continue
        complete[recorded.seed] = recorded
    return complete


def _assemble(
    folder: Path,
    out: Path,
    environment: EnvironmentSpec,
    recording: Recording,
    algorithm: str,
    about: Mapping[str, Any],
    finish: Callable[[Path], Path] | None,
) -> None:
    """Join the episodes into a dataset, move it to `out` and remove `folder`."""
    import minari
    from minari.dataset.minari_storage import MinariStorage

    episodes = recording.episodes
    dataset = folder.absolute() / "dataset"  # Minari needs an absolute path for the size of a folder
    shutil.rmtree(dataset, ignore_errors=True)
    (folder / COMPLETE).unlink(missing_ok=True)
    dataset.mkdir()
    with clear_about_full_disks(folder, CONTINUE):
        needed = sum((folder / f"{episode.seed}.hdf5").stat().st_size for episode in episodes)
        if shutil.disk_usage(folder).free < needed + SPARE:
            raise OSError(errno.ENOSPC, "No space left on device")
        with closing(environment.make()) as env:
            storage = MinariStorage.new(
                dataset / "data",
                observation_space=env.observation_space,
                action_space=env.action_space,
                env_spec=_json_spec(env.spec),
                jpeg_encoding=False,
            )
        with h5py.File(dataset / "data" / "main_data.hdf5", "w", track_order=True) as file:
            for number, episode in enumerate(episodes):
                group = file.create_group(f"episode_{number}")
                group.attrs.update(
                    id=number, seed=episode.seed, total_steps=episode.steps, score=episode.score
                )
                with h5py.File(folder / f"{episode.seed}.hdf5") as source:
                    for part in source:
                        source.copy(part, group)
        columns: dict[str, Any] = {f"{n}s": [getattr(e, n) for e in episodes] for n in ("seed", "score")}
        columns["successes"] = [one.success for one in episodes]
        columns["kept_out"] = {str(one.seed): one.unsolved or "no success" for one in recording.kept_out}
        storage.update_metadata(
            {
                "dataset_id": out.name,
                "minari_version": minari.__version__,
                "total_episodes": len(episodes),
                "total_steps": sum(episode.steps for episode in episodes),
                "dataset_size": float(storage.get_size()),
                "algorithm_name": algorithm,
                OURS: {**about, **columns},
            }
        )
        finished = dataset if finish is None else finish(dataset)
        (folder / COMPLETE).write_text(os.path.relpath(finished, folder))
    os.replace(finished, out)
    _remove_episodes(out)


def _json_spec(spec: Any) -> Any:
    """A spec that JSON can hold: "module:Name" in place of a class."""
    if callable(spec.entry_point):
        name = f"{spec.entry_point.__module__}:{spec.entry_point.__qualname__}"
        return replace(spec, entry_point=name)
    return spec

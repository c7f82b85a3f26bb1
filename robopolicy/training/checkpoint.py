"""Run folders: `config.json`, `metrics.jsonl` and `checkpoints/GENERATION/`. Nothing in them is a pickle.

`failure.txt` has the words of the error that ended the training, if one did; `checkpoint_every.txt` the
longest distance between two checkpoints, if a resume made it longer.

A checkpoint is written by orbax, which moves it into place when it is complete. Since orbax checks neither
shapes nor dtypes when it reads, and a flipped bit only in some of its files, all of these and a checksum are
recorded beside the arrays and checked here.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import sys
import time
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from robopolicy.writing import clear_about_full_disks, write_atomically

Arrays = dict[str, NDArray[Any]]

FEATURES = "features/"
MEAN = "mean"
BEST = "best"
BEST_FEATURES = "best_features/"  # those that differ from the latest
RESUME = "what was saved before is intact: free some space and go on with --resume"
GLANCE = 0.1  # s, longer than a look at whether a run is held


class CheckpointError(ValueError):
    """A run folder or a checkpoint that is not what it should be."""


@contextlib.contextmanager
def _quiet_orbax() -> Iterator[None]:
    """Orbax logs every step, and tracebacks from its threads; what goes wrong is raised anyway."""
    loggers = [logging.getLogger(name) for name in ("absl", "concurrent.futures", "asyncio")]
    levels, hook = [logger.level for logger in loggers], sys.unraisablehook
    try:
        for logger in loggers:
            logger.setLevel(logging.CRITICAL + 1)
        sys.unraisablehook = lambda unraisable: None
        yield
    except Exception:
        time.sleep(GLANCE)  # other reads are under way, and fail in their threads now that one has failed
        raise
    finally:
        sys.unraisablehook = hook
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


class RunFolder:
    """A folder that a training run keeps its results in."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def config_path(self) -> Path:
        return self.path / "config.json"

    @property
    def metrics_path(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def failure_path(self) -> Path:
        return self.path / "failure.txt"

    def check_new(self) -> None:
        """Raise FileExistsError where the folder holds anything."""
        left = f".{self.config_path.name}."  # by a process that was killed before the run began
        if self.path.exists() and (
            not self.path.is_dir() or any(not p.name.startswith(left) for p in self.path.iterdir())
        ):
            raise FileExistsError(
                f"{str(self.path)!r} exists: give another --out, or --resume to go on with it"
            )

    def create(self, config: Mapping[str, Any]) -> None:
        """Begin a new run. Raises FileExistsError, and touches nothing, where the folder holds anything."""
        self.check_new()
        with clear_about_full_disks(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            try:
                write_atomically(self.config_path, json.dumps(config, indent=2) + "\n")
            except OSError:
                self.path.rmdir()
                raise

    def config(self) -> dict[str, Any]:
        """What the run was started with. Raises FileNotFoundError or CheckpointError."""
        if not self.config_path.is_file():
            raise FileNotFoundError(f"{str(self.path)!r} is no run: it holds no config.json")
        try:
            config = json.loads(self.config_path.read_text())
        except (ValueError, RecursionError) as error:
            raise CheckpointError(f"{str(self.config_path)!r} is not JSON: {error}") from error
        if not isinstance(config, dict):
            raise CheckpointError(f"{str(self.config_path)!r} holds no settings by name")
        return config

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Keep other trainers out. Raises CheckpointError where one is at work in this folder."""
        with self.config_path.open() as file:
            # The kernel lets go when a trainer dies; `is_held` holds for a moment, too.
            free = _locked(file, fcntl.LOCK_EX)
            if not free:
                time.sleep(GLANCE)
                free = _locked(file, fcntl.LOCK_EX)
            if not free:
                raise CheckpointError(
                    f"{str(self.path)!r} is being trained by another process: wait for its end, or stop it"
                )
            yield

    def is_held(self) -> bool:
        """Whether a trainer is at work in this folder."""
        with self.config_path.open() as file:
            return not _locked(file, fcntl.LOCK_SH)

    @contextlib.contextmanager
    def failure_kept(self) -> Iterator[None]:
        """Write the words of an error that ends the training to `failure.txt`; remove any of before."""
        self.failure_path.unlink(missing_ok=True)
        try:
            yield
        except Exception as error:
            with contextlib.suppress(OSError):  # a full disk, which is then the error that is raised
                words = " ".join(f"{type(error).__name__}: {error}".split())
                write_atomically(self.failure_path, words + "\n")
            raise

    def _manager(self, *, writing: bool, keep_every: int = 0) -> Any:
        # Imported here: it takes a second, and not every command needs it.
        import orbax.checkpoint as ocp

        # Only the trainer may clean up: to a reader, what another process is writing looks like a left-over.
        options = (
            ocp.CheckpointManagerOptions(
                max_to_keep=3,
                keep_period=keep_every or None,
                enable_async_checkpointing=False,
                create=False,
                cleanup_tmp_directories=True,
            )
            if writing
            else ocp.CheckpointManagerOptions(read_only=True, create=False, save_interval_steps=0)
        )
        return ocp.CheckpointManager((self.path / "checkpoints").absolute(), options=options)

    def save(self, generation: int, arrays: Arrays, keep_every: int = 0) -> None:
        """Save `arrays` by path as the state after `generation`, and clear away all but the last three.

        Those at multiples of `keep_every` stay. Raises OSError on a full disk.
        """
        import orbax.checkpoint as ocp

        names = sorted(arrays)
        index = [{"path": name, **_description(arrays[name])} for name in names]
        with clear_about_full_disks(self.path, RESUME), _quiet_orbax():
            (self.path / "checkpoints").mkdir(exist_ok=True)
            with self._manager(writing=True, keep_every=keep_every) as manager:
                manager.save(
                    generation,
                    args=ocp.args.Composite(
                        index=ocp.args.JsonSave(
                            {"generation": generation, "arrays": index, "crc32": _checksum(index)}
                        ),
                        arrays=ocp.args.StandardSave({str(i): arrays[n] for i, n in enumerate(names)}),
                    ),
                )

    def generations(self) -> list[int]:
        """The generations that there are checkpoints of, in order."""
        folder = self.path / "checkpoints"
        found = folder.iterdir() if folder.is_dir() else ()
        names = [entry.name for entry in found if entry.name.isdecimal()]
        return sorted(int(name) for name in names if name == str(int(name)))

    def load(self, generation: int | None = None) -> tuple[int, Arrays]:
        """The latest checkpoint, or that of `generation`, as its generation and its arrays by path.

        Raises FileNotFoundError where there is none, CheckpointError where it is damaged or foreign; the
        message names the last good one before it.
        """
        have = self.generations()
        if not have:
            raise FileNotFoundError(f"{str(self.path)!r} holds no checkpoint yet")
        wanted = have[-1] if generation is None else generation
        if wanted not in have:
            raise FileNotFoundError(f"{str(self.path)!r} has no checkpoint {wanted}: it has {have}")
        try:
            return wanted, self._read(wanted)
        except CheckpointError as error:
            good = next((g for g in reversed(have) if g < wanted and self._readable(g)), None)
            raise CheckpointError(
                f"{error}; no good one is left: begin again with --resume-from 0, which keeps them"
                if good is None
                else f"{error}; the last good one is {good}: use it as {self.path!s}@{good}, or train on "
                f"from it with --resume-from {good}"
            ) from error

    def _readable(self, generation: int) -> bool:
        try:
            self._read(generation)
        except CheckpointError:
            return False
        return True

    def _read(self, generation: int) -> Arrays:
        import orbax.checkpoint as ocp

        where = self.path / "checkpoints" / str(generation)
        try:
            with _quiet_orbax(), self._manager(writing=False) as manager:
                stored = manager.restore(
                    generation,
                    args=ocp.args.Composite(index=ocp.args.JsonRestore(), arrays=ocp.args.StandardRestore()),
                )
            index, values = stored["index"]["arrays"], stored["arrays"]
            checksum = stored["index"].get("crc32", _checksum(index))
            saved = {str(entry.pop("path")): entry for entry in map(dict, index)}
            arrays = {name: np.asarray(values[str(i)]) for i, name in enumerate(saved)}
        except Exception as error:  # a damaged file may break in any layer of the libraries below
            why = error.strerror if isinstance(error, OSError) else None
            why = why or "a file in it is missing or is not what was saved"
            raise CheckpointError(f"{str(where)!r} is damaged: {why}") from error
        if checksum != _checksum(index):
            raise CheckpointError(f"{str(where)!r} is damaged: the list of its arrays is not what was saved")
        for name, array in arrays.items():
            found, was = _description(array), saved[name]
            if any(found[part] != was.get(part) for part in ("shape", "dtype")):
                raise CheckpointError(
                    f"{str(where)!r} holds {name} as {found['dtype']}{found['shape']}: "
                    f"it was saved as {was.get('dtype')}{was.get('shape')}"
                )
            if was.get("crc32", found["crc32"]) != found["crc32"]:
                raise CheckpointError(f"{str(where)!r} is damaged: {name} is not what was saved")
        return arrays


def _locked(file: IO[str], kind: int) -> bool:
    """Whether a lock of this kind could be had, at once."""
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _checksum(index: list[dict[str, Any]]) -> int:
    return zlib.crc32(json.dumps(index, sort_keys=True).encode())


def _description(array: NDArray[Any]) -> dict[str, Any]:
    return {
        "shape": list(array.shape),
        "dtype": str(array.dtype),
        "crc32": zlib.crc32(np.ascontiguousarray(array).tobytes()),
    }


def load_parameters(run: str | Path) -> NDArray[np.float32]:
    """The latest flat parameter vector [P] of a run. Raises as `RunFolder.load` does."""
    return load_policy(run)[0]


def load_best(run: str | Path) -> NDArray[np.float32]:
    """The flat parameters [P] that did best on held-out seeds so far. Raises as `RunFolder.load` does."""
    return load_policy(run, BEST)[0]


def load_features(run: str | Path) -> Arrays:
    """The features of a run's latest policy, by path. Raises as `RunFolder.load` does."""
    return load_policy(run)[1]


def load_policy(run: str | Path, which: str = "last") -> tuple[NDArray[np.float32], Arrays]:
    """Flat parameters [P] and features by path of a run's policy.

    `which` is `last`, `best` (on held-out seeds so far) or a generation that there is a checkpoint of.
    Raises ValueError for any other word, and as `RunFolder.load` does.
    """
    if which not in ("last", BEST) and not which.isdigit():
        raise ValueError(f"checkpoint is {which!r}: it must be last, best or a generation")
    _, arrays = RunFolder(Path(run)).load(int(which) if which.isdigit() else None)
    name = BEST if which == BEST else MEAN
    if name not in arrays:
        raise CheckpointError(f"{str(run)!r} holds no {name!r}: another program or version made it")
    features = _under(FEATURES, arrays) | (_under(BEST_FEATURES, arrays) if which == BEST else {})
    return np.asarray(arrays[name], np.float32), features


def _under(prefix: str, arrays: Arrays) -> Arrays:
    return {path.removeprefix(prefix): a for path, a in arrays.items() if path.startswith(prefix)}

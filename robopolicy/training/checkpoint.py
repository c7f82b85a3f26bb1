"""Run folders: `config.json`, `metrics.jsonl` and `checkpoints/GENERATION/`. None of them is a pickle.

`failure.txt` has the error that ended the training, if any; `checkpoint_every.txt` has the longest distance
between two checkpoints, if a resume made it longer; `limits.json` has the limits that a resume changed.

Orbax writes a checkpoint and moves it into place when it is complete. When it reads, it checks neither shapes
nor dtypes, and finds a flipped bit only in some of its files. So all of these, and checksums, are stored
beside the arrays and checked here.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import re
import sys
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robopolicy.reading_json import read_object
from robopolicy.writing import clear_about_full_disks, lock_now, scratch, write_atomically, write_new

Arrays = dict[str, NDArray[Any]]

FEATURES = "features/"
MEAN = "mean"
BEST = "best"
BEST_FEATURES = "best_features/"  # those that differ from the latest
RESUME = "what was saved before is intact: free some space and go on with --resume"
# Orbax reads a whole path as a pattern of names, and TensorStore a backslash as a slash.
MISREAD = re.compile(r"[*?\[\\]")
PAUSE = 0.1  # s, longer than another process holds a lock to look at a run


class CheckpointError(ValueError):
    """A damaged or foreign run folder or checkpoint."""


@contextlib.contextmanager
def _quiet_orbax() -> Iterator[None]:
    """Suppress orbax's logs of every step, and tracebacks from its threads; it raises all errors anyway."""
    loggers = [logging.getLogger(name) for name in ("absl", "concurrent.futures", "asyncio")]
    levels, hook = [logger.level for logger in loggers], sys.unraisablehook
    try:
        for logger in loggers:
            logger.setLevel(logging.CRITICAL + 1)
        sys.unraisablehook = lambda unraisable: None
        yield
    except Exception:
        time.sleep(PAUSE)  # reads in other threads fail, too, once one has failed
        raise
    finally:
        sys.unraisablehook = hook
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


class RunFolder:
    """The folder of a training run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config_path = path / "config.json"
        self.metrics_path = path / "metrics.jsonl"
        self.failure_path = path / "failure.txt"
        self.checkpoints = path / "checkpoints"

    def check_new(self) -> None:
        """Raise FileExistsError if the folder holds anything, ValueError if it can hold no checkpoints."""
        left = f".{self.config_path.name}."  # from a process that was killed before the run began
        if self.path.exists() and (
            not self.path.is_dir() or any(not p.name.startswith(left) for p in self.path.iterdir())
        ):
            raise self._exists()
        with self._readable():
            pass

    def _exists(self) -> FileExistsError:
        return FileExistsError(
            f"{str(self.path)!r} exists: name a new folder, or resume its run (--resume, resume=True)"
        )

    def create(self, config: Mapping[str, Any]) -> None:
        """Begin a new run. Raises FileExistsError, and changes nothing, if the folder holds anything.

        Of several processes that begin a run in one folder, one succeeds.
        """
        self.check_new()
        with clear_about_full_disks(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            try:
                write_new(self.config_path, json.dumps(config, indent=2) + "\n")
            except FileExistsError as error:
                raise self._exists() from error
            except OSError:
                with contextlib.suppress(OSError):  # another process has begun a run in it
                    self.path.rmdir()
                raise

    def config(self) -> dict[str, Any]:
        """The config of the run. Raises FileNotFoundError or CheckpointError."""
        if not self.config_path.is_file():
            if not self.path.exists():
                raise FileNotFoundError(f"run is {str(self.path)!r}: it does not exist, so it is no run")
            bundle = (self.path / "manifest.json").is_file()
            what = "is a bundle, for verify and deploy" if bundle else "holds no config.json, so it is no run"
            raise FileNotFoundError(f"run is {str(self.path)!r}: it {what}")
        return read_object(self.config_path, error=CheckpointError)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the run for this process. Raises CheckpointError if another process trains it."""
        with self.config_path.open("r+") as file:  # NFS locks a file exclusively only for writing
            free = lock_now(file, fcntl.LOCK_EX)
            if not free:  # perhaps by `is_locked`, for a moment
                time.sleep(PAUSE)
                free = lock_now(file, fcntl.LOCK_EX)
            if not free:
                raise CheckpointError(
                    f"{str(self.path)!r} is being trained by another process: wait for its end, or stop it"
                )
            yield

    def is_locked(self) -> bool:
        """Whether a process trains the run."""
        with self.config_path.open() as file:
            return not lock_now(file, fcntl.LOCK_SH)

    @contextlib.contextmanager
    def failure_saved(self) -> Iterator[None]:
        """Remove `failure.txt`, and write an error that ends the training to a new one."""
        self.failure_path.unlink(missing_ok=True)
        try:
            yield
        except Exception as error:
            with contextlib.suppress(OSError):  # of a full disk, which raises the original error
                line = " ".join(f"{type(error).__name__}: {error}".split())
                write_atomically(self.failure_path, line + "\n")
            raise

    @contextlib.contextmanager
    def _readable(self) -> Iterator[Path]:
        """The path of the checkpoints for orbax: a link, in place of one that it would misread.

        Raises ValueError if the folder of temporary files, which has the link, has such a path, too.
        """
        path = self.checkpoints.absolute()
        if not MISREAD.search(str(path)):
            yield path
            return
        with scratch() as folder:
            if wrong := MISREAD.search(str(folder)):
                raise ValueError(
                    f"{str(self.path)!r} has characters that need a link among temporary files, and "
                    f"{str(folder.parent)!r} has {wrong[0]}: set TMPDIR to another folder"
                )
            link = folder / path.name
            link.symlink_to(path)
            yield link

    def _manager(self, path: Path, **options: Any) -> Any:
        # Imported here: it takes a second, and not every command needs it.
        import orbax.checkpoint as ocp

        settings = ocp.CheckpointManagerOptions(create=False, **options)
        return ocp.CheckpointManager(path, options=settings)

    def save(self, generation: int, arrays: Arrays, keep_every: int = 0) -> None:
        """Save `arrays` by path as the state after `generation`, and remove all but the last three.

        Checkpoints at multiples of `keep_every` stay. Raises OSError on a full disk.
        """
        import orbax.checkpoint as ocp

        names = sorted(arrays)
        index = [{"path": name, **_description(arrays[name])} for name in names]
        content = {"generation": generation, "arrays": index, "crc32": _checksum(index)}
        with self._readable() as path, clear_about_full_disks(self.path, RESUME), _quiet_orbax():
            self.checkpoints.mkdir(exist_ok=True)
            # Only a writer cleans up: to a reader, an unfinished checkpoint looks like a left-over.
            with self._manager(
                path,
                max_to_keep=3,
                keep_period=keep_every or None,
                enable_async_checkpointing=False,
                cleanup_tmp_directories=True,
            ) as manager:
                numbered = ocp.args.StandardSave({str(i): arrays[name] for i, name in enumerate(names)})
                args = ocp.args.Composite(index=ocp.args.JsonSave(content), arrays=numbered)
                manager.save(generation, args=args)

    def generations(self) -> list[int]:
        """The generations with a checkpoint, in order."""
        names = [p.name for p in self.checkpoints.iterdir()] if self.checkpoints.is_dir() else []
        return sorted(int(name) for name in names if name.isdecimal() and name == str(int(name)))

    def load(self, generation: int | None = None) -> tuple[int, Arrays]:
        """The latest checkpoint, or that of `generation`: its generation and its arrays by path.

        Raises FileNotFoundError if it does not exist. Raises CheckpointError if it is damaged or foreign; the
        message names the last good one before it.
        """
        saved = self.generations()
        if not saved:
            raise FileNotFoundError(f"{str(self.path)!r} holds no checkpoint yet")
        wanted = saved[-1] if generation is None else generation
        if wanted not in saved:
            raise FileNotFoundError(f"{str(self.path)!r} has no checkpoint {wanted}: it has {saved}")
        with self._readable() as path:
            return wanted, self._read_or_advise(wanted, saved, path)

    def _read_or_advise(self, wanted: int, saved: Sequence[int], path: Path) -> Arrays:
        """The arrays of a checkpoint; the message of a CheckpointError names the last good one before it."""
        try:
            return self._read(wanted, path)
        except CheckpointError as error:
            for good in reversed([g for g in saved if g < wanted]):
                with contextlib.suppress(CheckpointError):
                    self._read(good, path)
                    remedy = (
                        f"the last good one is {good}: use it as {self.path!s}@{good}, or train on from it "
                        f"with --resume-from {good}"
                    )
                    break
            else:
                remedy = "no good one is left: begin again with --resume-from 0, which keeps them"
            raise CheckpointError(f"{error}; {remedy}") from error

    def _read(self, generation: int, path: Path) -> Arrays:
        import orbax.checkpoint as ocp

        where = repr(str(self.checkpoints / str(generation)))
        try:
            with _quiet_orbax(), self._manager(path, read_only=True, save_interval_steps=0) as manager:
                parts = {"index": ocp.args.JsonRestore(), "arrays": ocp.args.StandardRestore()}
                stored = manager.restore(generation, args=ocp.args.Composite(**parts))
            index, values = stored["index"]["arrays"], stored["arrays"]
            checksum = stored["index"].get("crc32", _checksum(index))
            expected = {str(entry["path"]): entry for entry in index}
            arrays = {name: np.asarray(values[str(i)]) for i, name in enumerate(expected)}
        except Exception as error:  # a damaged file may cause any error of the libraries below
            why = error.strerror if isinstance(error, OSError) else None
            why = why or "a file in it is missing or is not what was saved"
            raise CheckpointError(f"{where} is damaged: {why}") from error
        if checksum != _checksum(index):
            raise CheckpointError(f"{where} is damaged: the list of its arrays is not what was saved")
        for name, array in arrays.items():
            now, then = _description(array), expected[name]
            if any(now[part] != then.get(part) for part in ("shape", "dtype")):
                raise CheckpointError(
                    f"{where} holds {name} as {now['dtype']}{now['shape']}: "
                    f"it was saved as {then.get('dtype')}{then.get('shape')}"
                )
            if then.get("crc32", now["crc32"]) != now["crc32"]:
                raise CheckpointError(f"{where} is damaged: {name} is not what was saved")
        return arrays


def _checksum(index: list[dict[str, Any]]) -> int:
    return zlib.crc32(json.dumps(index, sort_keys=True).encode())


def _description(array: NDArray[Any]) -> dict[str, Any]:
    return {
        "shape": list(array.shape),
        "dtype": str(array.dtype),
        "crc32": zlib.crc32(np.ascontiguousarray(array).tobytes()),
    }


def under(prefix: str, arrays: Mapping[str, NDArray[Any]]) -> Arrays:
    """The arrays whose path begins with `prefix`, by the rest of it."""
    return {path.removeprefix(prefix): a for path, a in arrays.items() if path.startswith(prefix)}


def check_features(arrays: Mapping[str, NDArray[Any]], features: Mapping[str, Any]) -> None:
    """Raise CheckpointError if the features in the `arrays` of a checkpoint are not `features`, by path."""
    for path, array in features.items():
        if FEATURES + path not in arrays or not np.array_equal(arrays[FEATURES + path], array):
            raise CheckpointError(
                f"features {path} of the checkpoint are not those of this policy or data: resume with the "
                "policy and the data that the run began with"
            )


def load_policy(run: str | Path, which: str = "last") -> tuple[NDArray[np.float32], Arrays]:
    """The flat parameters [P] and the features by path of a run's policy.

    `which` is `last`, `best` (the one that did best) or a generation with a checkpoint. Raises ValueError
    for any other word, and what `RunFolder.load` raises.
    """
    if which not in ("last", BEST) and not which.isdecimal():
        raise ValueError(f"checkpoint is {which!r}: it must be last, best or a generation")
    _, arrays = RunFolder(Path(run)).load(int(which) if which.isdecimal() else None)
    name = BEST if which == BEST else MEAN
    if name not in arrays:
        raise CheckpointError(f"{str(run)!r} holds no {name!r}: another program or version made it")
    features = under(FEATURES, arrays) | (under(BEST_FEATURES, arrays) if which == BEST else {})
    return np.asarray(arrays[name], np.float32), features

"""What all trainers do with their arguments: check them, compare a resumed run, and return a run."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from robopolicy.experiments.evaluators import EvaluatorConfig, stored_evaluator
from robopolicy.experiments.hooks import Hooks
from robopolicy.experiments.output_files import new_folder
from robopolicy.experiments.runs import load, policy_in
from robopolicy.experiments.trainings import LATER
from robopolicy.naming import shown
from robopolicy.policies.catalogue import describe, newer
from robopolicy.policies.policy import Policy
from robopolicy.settings import check_count
from robopolicy.training.capacity import cores
from robopolicy.training.checkpoint import Arrays, RunFolder, check_features
from robopolicy.training.metrics import Record
from robopolicy.training.resume import resume_point, set_aside
from robopolicy.training.wandb_sink import WandbSink, check_installed

LAST_CHECKPOINT = 10**9
RESUMED = "the run to resume"
T = TypeVar("T")


class Run(NamedTuple):
    """A trained run.

    Attributes:
      folder: the run's folder.
      record: the last record of its log; None if a resumed run was complete already.
    """

    folder: Path
    record: Record | None

    def policy(self, which: str | int = "last") -> Policy:
        """The policy `last`, `best` (see `runs.load`) or of the checkpoint with this number."""
        return load(self.folder, which)


class Start(NamedTuple):
    """The checked arguments that all trainers share: the run's folder, and how to begin or resume it."""

    folder: RunFolder
    resume: bool
    resume_from: int | None
    wandb: str | None
    hooks: Hooks

    @classmethod
    def checked(
        cls,
        out: str | Path,
        resume: bool,
        resume_from: int | None,
        wandb: str | None,
        hooks: Hooks | None,
    ) -> Start:
        """Raises ValueError, FileExistsError or FileNotFoundError, in one line, for bad arguments."""
        hooks = of_type("hooks", hooks, Hooks)
        of_type("resume", resume, bool)
        if resume_from is not None:
            check_count("resume_from", resume_from, 0, LAST_CHECKPOINT)
            if not resume:
                raise ValueError(f"resume_from is {resume_from}: it needs resume=True")
        folder = RunFolder(new_folder("out", out))
        if resume:
            folder.config()
        else:
            folder.check_new()
        return cls(folder, resume, resume_from, wandb, hooks)

    def check_resume(
        self,
        settings: Mapping[str, Any],
        parts: Sequence[str],
        may_change: Sequence[str],
        counter: str,
        total: int,
        features: Mapping[str, Any] | None = None,
        over: Callable[[Arrays], str] = lambda arrays: "",
    ) -> None:
        """Check a run to resume, and call `on_resume` if it goes on; does nothing for a new run.

        Args:
          settings: config.json of the training.
          parts: its parts that must equal those of the run.
          may_change: settings that may differ.
          counter: `generation` or `step`.
          total: the last one.
          features: features of the policy, by path, that must equal those of the run.
          over: the arrays of a checkpoint -> why the run has ended early there, "" if it has not.

        Raises ValueError that names the first setting that differs; CheckpointError for a damaged run.
        """
        if not self.resume:
            return
        before = self.folder.config()
        if isinstance(before.get("policy"), dict):
            before["policy"] = plain("policy", describe(policy_in(self.folder.path, before)))
        check_same(RESUMED, parts, before, settings, may_change)
        saved = self.folder.generations()
        if features is not None and saved and self.resume_from != 0 and self.resume_from in (None, *saved):
            check_features(self.folder.load(self.resume_from)[1], features)
        with self.folder.locked():
            if self.resume_from is not None:
                set_aside(self.folder, counter, self.resume_from)
            done = resume_point(self.folder, counter)
        if done < total and not (self.folder.generations() and over(self.folder.load(done)[1])):
            self.hooks.on_resume(done + 1)

    def sinks(self) -> list[WandbSink]:
        """Where records go besides the run's log; a new run that Weights & Biases refuses is removed."""
        if self.wandb is None:
            return []
        try:
            return [WandbSink(self.wandb, self.folder.path, self.folder.config())]
        except ValueError:
            if not self.resume:
                shutil.rmtree(self.folder.path, ignore_errors=True)
            raise


def check_same(
    whose: str,
    parts: Sequence[str],
    before: Mapping[str, Any],
    settings: Mapping[str, Any],
    may_change: Sequence[str] = (),
) -> None:
    """Raise ValueError that names the first of the `settings` which differs from those `before`.

    Args:
      whose: what has the settings `before`, in words.
      parts: names of the parts to compare: one setting each, or several by name.
      before, settings: the parts by name, as JSON reads them.
      may_change: settings that may differ.
    """
    for part in parts:
        if part not in before:
            raise ValueError(f"{whose} has a config.json without {part!r}")
        old, new = before[part], settings[part]
        if not isinstance(old, dict) or not isinstance(new, dict):
            old, new = {part: old}, {part: new}
        old = {**_later(part, new), **old}
        differ = [n for n in {**new, **old} if n not in may_change and old.get(n) != new.get(n)]
        if differ:
            name = min(differ, key=lambda n: _has_parts(old.get(n)) or _has_parts(new.get(n)))
            where, had, has = _difference(name, old.get(name), new.get(name))
            raise ValueError(f"{where} is {has!r}: {whose} has {had!r}")


def _has_parts(value: Any) -> bool:
    """Whether a setting is a list of parts, such as cameras, which follow from plain settings."""
    return isinstance(value, list) and any(isinstance(part, dict) for part in value)


def _difference(name: str, old: Any, new: Any) -> tuple[str, Any, Any]:
    """The first setting that differs in two unequal values of the setting `name`, and what each has.

    Where only one of them is an object with a `name`, such as the table of a robot, that name is returned.
    """
    if name == "others":  # a run has none where no further setting was given
        old, new = old or {}, new or {}
    if isinstance(old, dict) and isinstance(new, dict):
        differ = [part for part in sorted(old.keys() | new.keys()) if old.get(part) != new.get(part)]
        for first in differ[:1]:
            return _difference(f"{name} {first}", old.get(first), new.get(first))
    had, has = (value.get("name", value) if isinstance(value, dict) else value for value in (old, new))
    return name, had, has


def _later(part: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Those `settings` of a part that files of older versions lack, with their defaults."""
    defaults = newer(settings["kind"]) if part == "policy" and "kind" in settings else LATER.get(part, {})
    return {name: value for name, value in defaults.items() if name in settings}


def checked_evaluator(
    evaluator: EvaluatorConfig | None,
    workers: int | None,
    wandb: str | None,
    whose: str = "",
    before: Mapping[str, Any] | None = None,
) -> EvaluatorConfig:
    """The evaluator, or the local one with `workers`; raises ValueError for one that cannot run.

    `whose` names a run or grid to continue, in words, and `before` has its settings: the evaluator must be of
    the same kind, or ValueError is raised. A `wandb` project without the package wandb raises it, too.
    """
    if evaluator is not None and workers is not None:
        raise ValueError(f"workers is {workers}: the evaluator has its own, so give one of them")
    if evaluator is None:
        kind = stored_evaluator(whose, before or {}).get("evaluator", "local")
        evaluator = EvaluatorConfig(kind, cores() if workers is None else workers)
    evaluator = of_type("evaluator", evaluator, EvaluatorConfig)
    if before is not None:
        evaluator = evaluator.continuing(whose, before)
    evaluator.check()
    if wandb is not None:
        check_installed(wandb)
    return evaluator


def of_type(argument: str, value: T | None, kind: type[T]) -> T:
    """`value`, or `kind()` for None; raises ValueError for a value of another type."""
    if value is None:
        return kind()
    if not isinstance(value, kind):
        raise ValueError(f"{argument} is {shown(value)}: it must be of type {kind.__name__}")
    return value


def plain(argument: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """`settings` as JSON reads them back; raises ValueError for what JSON cannot hold."""
    try:
        result: dict[str, Any] = json.loads(json.dumps(settings))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{argument} holds what JSON cannot hold: {error}") from error
    return result

"""Evaluations that a run keeps beside its policy, in `evaluation.json`: one for each engine."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from robopolicy.envs.registry import task_class
from robopolicy.experiments.environments import Environment
from robopolicy.experiments.evaluation import evaluate
from robopolicy.experiments.runs import find_run
from robopolicy.naming import one_line
from robopolicy.reading_json import read_json, read_object
from robopolicy.settings import is_finite
from robopolicy.training.checkpoint import RunFolder
from robopolicy.writing import write_atomically

FILE = "evaluation.json"
CHECKPOINT = "checkpoint"  # the number of the checkpoint that was evaluated; older files have none

OTHERS = ("episode_seconds", "robot", "cameras", "drift")  # that a result records where they were given

Kept = dict[str, Any]


def is_of(result: Mapping[str, Any], name: str, say: Callable[[str], None]) -> bool:
    """Whether a result in a run's `evaluation.json` is of the policy `name`; otherwise `say` that it is not.

    One that names no checkpoint is of the last one.
    """
    folder, which = find_run(name)
    last = max(RunFolder(folder).generations(), default=None)
    played = result.get(CHECKPOINT, last)
    if which == str(played) or (which == "last" and played == last):
        return True
    used, engine = last if which == "last" else which, result.get("engine")
    say(f"{name}: its evaluation on {engine} is left out: it is of checkpoint {played}, not {used}")
    return False


def stored_evaluation(
    name: str, environment: Environment, say: Callable[[str], None] = lambda line: None
) -> Kept | None:
    """The stored evaluation of a run's policy; None without one for its checkpoint in `environment`.

    `say` is called with a line about one that is of another checkpoint. Raises ValueError, in one line, if it
    is damaged.
    """
    path = find_run(name)[0] / FILE
    if not path.is_file():
        return None
    results = read_json(path)
    if isinstance(results, dict) and str(environment.engine) not in results:
        return None
    try:
        result = results[str(environment.engine)]
        wanted = environment.recorded
        if any(result[n] != wanted[n] for n in ("engine", "preset")):
            return None
        if any(result.get(n) != wanted.get(n) for n in OTHERS):
            return None
        outcomes = task_class(result["task"]).outcomes
        result = {o.mean: o.before for o in outcomes if o.before is not None} | result
        _check_numbers(result, [o.mean for o in outcomes])
    except KeyError as error:
        raise ValueError(f"{str(path)!r} is no evaluation: it lacks {error}") from error
    except ValueError as error:
        raise ValueError(one_line(f"{str(path)!r} is no evaluation: {error}")) from error
    except (TypeError, AttributeError) as error:
        raise ValueError(f"{str(path)!r} is no evaluation: it must hold results by engine") from error
    return dict(result) | {"kept": True} if is_of(result, name, say) else None


def _check_numbers(result: Mapping[str, Any], outcomes: Sequence[str]) -> None:
    """Raise ValueError, KeyError, TypeError or AttributeError for what no evaluation writes."""
    returns = list(result["returns"])
    means = [result[name] for name in ("return_mean", "return_std", "success_rate", *outcomes)]
    for number in (*returns, *means):
        if not is_finite(number):
            raise ValueError(f"it holds {number!r}, which must be a finite number")
    counts = list(result["causes"].values())
    if not all(isinstance(count, int) and count > 0 for count in counts):
        raise ValueError(f"its causes are {result['causes']}: they must be counts")
    if not len(returns) == len(result["seeds"]) == sum(counts) > 0:
        raise ValueError("its episodes do not add up")
    if not math.isclose(result["return_mean"], math.fsum(returns) / len(returns), rel_tol=1e-6, abs_tol=1e-6):
        raise ValueError(f"its return_mean is {result['return_mean']}, not the mean of its returns")
    if not 0 <= result["success_rate"] <= 1:
        raise ValueError(f"its success_rate is {result['success_rate']}: it must be a share")


def evaluation_of_last(run: Path, environment: Environment, seeds: Sequence[int]) -> Kept | None:
    """The stored evaluation of a run's last checkpoint in `environment` on `seeds`; None without one.

    Raises ValueError, in one line, if the file is damaged.
    """
    found = stored_evaluation(str(run), environment)
    if found is None or found["seeds"] != list(seeds):
        return None
    return found if CHECKPOINT in found else None


def evaluate_and_keep(
    run: Path,
    environment: Environment,
    seeds: Sequence[int],
    *,
    workers: int = 1,
    on_begin: Callable[[], None] = lambda: None,
) -> None:
    """Evaluate a run's last checkpoint and add the result to its `evaluation.json`, unless it is there.

    Args:
      run: its folder.
      environment: where it plays; one result is kept for each engine.
      seeds: seeds of the episodes.
      workers: processes that play them. The result does not depend on their number.
      on_begin: called once the episodes begin.

    Raises ValueError, in one line, for a file that is damaged, and what `evaluate` raises.
    """
    if evaluation_of_last(run, environment, seeds) is not None:
        return
    # By its number: a training that is resumed meanwhile writes later checkpoints.
    number, _ = RunFolder(run).load()
    played = evaluate(f"{run}@{number}", environment, seeds, workers=workers, on_begin=on_begin)
    path = run / FILE
    results = read_object(path) if path.is_file() else {}
    results[str(environment.engine)] = played.summary() | {"policy": str(run), CHECKPOINT: number}
    write_atomically(path, json.dumps(results) + "\n")

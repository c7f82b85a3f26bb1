"""Which comparisons may be quoted: enough trainings, alike, complete, and beside their controls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from robopolicy.envs.registry import RECORDED
from robopolicy.experiments.comparison import missing_controls, policies
from robopolicy.experiments.flop_table import EXACT
from robopolicy.experiments.runs import config_of, find_run
from robopolicy.experiments.statistics import FEWEST_OF_VERDICT
from robopolicy.experiments.trainings import TRAINED, difference
from robopolicy.naming import shown
from robopolicy.policies.catalogue import PolicyConfig
from robopolicy.policies.controls import attending
from robopolicy.settings import check_count
from robopolicy.training.checkpoint import CheckpointError, RunFolder
from robopolicy.training.demonstration import SEEDS
from robopolicy.training.recording import most_seeds
from robopolicy.training.rollout import HELD_OUT_FROM, MOST_HELD_OUT
from robopolicy.training.run_status import FAILED, FINISHED, TRAINERS, status


def check_claim(names: Sequence[str], seeds: Sequence[int]) -> None:
    """Raise ValueError, in one line, if a comparison of runs on `seeds` shows less than it seems to.

    It must have four trainings or more of each policy; all of them complete, and on the same presets and
    engine with the same budget and the same settings of the search, and all last or all best policies; and
    the controls of the policy. No seed may be one that chose a policy in training, or one of its data, whose
    config.json has the first seed and the number of episodes.
    """
    if seeds[0] < HELD_OUT_FROM + MOST_HELD_OUT and seeds[-1] >= HELD_OUT_FROM:
        used = f"{HELD_OUT_FROM} to {HELD_OUT_FROM + MOST_HELD_OUT - 1}"
        raise ValueError(
            f"seed is {seeds[0]}: trainings choose policies on seeds from {used}, so a claim needs others"
        )
    configs = {name: config_of(find_run(name)[0]) for name in names}
    for name, settings in configs.items():
        if settings.get("task") == RECORDED:
            raise ValueError(f"run is {name!r}: it plays recorded episodes, and a claim needs unseen ones")
    _check_unseen(configs, seeds)
    if short := next(filter(None, map(off_budget, names)), ""):
        raise ValueError(f"{short}: a claim needs complete ones of the same budget")
    first, which = names[0], find_run(names[0])[1]
    for name in names:
        if (other := find_run(name)[1]) != which:
            raise ValueError(
                f"runs has the policy {other} of {name!r} and {which} of {first!r}: a claim needs the same"
            )
    if differs := difference(configs):
        raise ValueError(f"{differs}: a claim needs the same")
    together = policies(names)
    _check_alike([config for config, _ in together])
    missing = missing_controls(
        [{"label": c.label, "controls": [control.label for control in c.controls()]} for c, _ in together]
    )
    if missing:
        raise ValueError(f"runs lacks the controls {'; '.join(missing)}: a claim needs them, too")
    for config, group in together:
        if len(group) < FEWEST_OF_VERDICT:
            count = f"{len(group)} training{'s' * (len(group) > 1)}"
            raise ValueError(
                f"{config.label} has {count} ({', '.join(group)}): a claim needs {FEWEST_OF_VERDICT} or "
                "more of each policy"
            )


def _check_unseen(configs: Mapping[str, Mapping[str, Any]], seeds: Sequence[int]) -> None:
    """Raise ValueError if a training, by its config.json, may have data of one of the `seeds`."""
    for name, config in configs.items():
        for first, count in _recorded(name, config):
            if first <= seeds[-1] and seeds[0] < first + count:
                raise ValueError(
                    f"seed is {seeds[0]}: the training of {name!r} may have data of seeds from "
                    f"{first} to {first + count - 1}, so a claim needs others"
                )


def _recorded(name: str, config: Mapping[str, Any]) -> Iterator[tuple[int, int]]:
    """First seed and number of seeds of the datasets of a training, and of that of its first weights.

    Later seeds replace episodes that failed, so a dataset may hold any of those that its recording tries.
    Raises ValueError if the `config` of the run `name` is damaged there.
    """
    where = f"in the config.json of {name!r}"
    data = _part(where, config, "data")
    for origin in [data] if "recording" in data else [_part(where, data, path) for path in data]:
        recording = _part(where, origin, "recording")  # empty in data of another program
        if {"seed", "episodes"} <= recording.keys():
            check_count(f"{where}, the seed of a recording", recording["seed"], 0, SEEDS - 1)
            count = recording["episodes"]
            check_count(f"{where}, episodes of a recording", count, 1, SEEDS)
            # A round of a policy keeps failed episodes, but none that the demonstrator cannot label.
            keeps_all = recording.get("keep_failed") and not origin.get("policy")
            yield recording["seed"], count if keeps_all else most_seeds(count)
    trained = _part(where, _part(where, config, "init"), TRAINED)
    if trained:
        yield from _recorded(name, trained)


def _part(where: str, settings: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The settings called `name` in `settings`, empty for none; raises ValueError for anything else."""
    value = settings.get(name)
    if not isinstance(value, Mapping | None):
        raise ValueError(f"{where}, {name} is {shown(value)}: it must be settings by name")
    return value or {}


def _check_alike(configs: Sequence[PolicyConfig]) -> None:
    """Raise ValueError if policies differ in more than what is compared."""
    configs = sorted(configs, key=lambda config: not config.attends)
    first, *others = [asdict(attending(config, EXACT)) for config in configs]
    for config, other in zip(configs[1:], others, strict=True):
        for name, value in other.items():
            # A control has no attention, so its variant says nothing.
            if value != first[name] and (config.attends or name != "variant"):
                raise ValueError(
                    f"{name} is {value} in the policy of {config.label} and {first[name]} in that of "
                    f"{configs[0].label}: a claim needs the same"
                )


def off_budget(name: str) -> str:
    """In words, how the training of the run `name` differs from its budget; empty if it is complete."""
    try:
        state = status(RunFolder(find_run(name)[0]))
    except CheckpointError as error:
        return f"the training of {name!r} is damaged ({error})"
    counter = TRAINERS[state.trainer].counter
    if state.status != FINISHED:
        is_now = "has failed" if state.status == FAILED else f"is {state.status}"
        return f"the training of {name!r} {is_now}, after {counter} {state.done} of {state.total}"
    if state.done > state.end:
        return f"the training of {name!r} went on to {counter} {state.done}, beyond its {state.end}"
    if state.done < state.end:
        return f"the training of {name!r} was ended at {counter} {state.done}, before its {state.end}"
    return ""

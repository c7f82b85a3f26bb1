"""Which trainings are alike: those that differ in nothing but their seeds belong together."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from robopolicy.naming import one_line
from robopolicy.training.run_status import TRAINERS

FRAMES = "frames_sha256"  # of all frames of a clone's data
# Parts of a config.json that are no settings.
NOT_SETTINGS = ("versions", "git", "command", "flops", FRAMES)
# What may differ: the policy, which is compared, and what no training depends on.
MAY_DIFFER = (*NOT_SETTINGS, "policy", "evaluator")
LATER = {"es": {"average": 0.0}, "bc": {"least_action": 0.0}}  # that older runs lack, with their defaults
NO_MATTER = {f"{name}/{part}" for name in TRAINERS for part in ("seed", "checkpoint_every", "keep_every")}
# In `init`: the settings of the training whose weights a training began with, and the head of these if the
# training has another one.
TRAINED, FORMER_HEAD = "trained", "head"


def own_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """The parts of a config.json that describe a training, without its policy."""
    return {name: value for name, value in config.items() if name not in MAY_DIFFER}


def trained_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """What `init` keeps of the config.json of the training of the first weights."""
    return own_settings(config) | {n: v for n, v in config.items() if n == FRAMES}


def search_settings(config: Mapping[str, Any]) -> dict[str, str]:
    """The settings of a training's config.json that trainings of one policy share, as text by path.

    Trainings that began with the weights of others share the settings of these, too, but not their seeds.
    """
    own = own_settings(config)
    if FRAMES in config and _of_other_programs(config):
        own[FRAMES] = config[FRAMES]
    if _described(config):
        first = config["init"]
        named = {name: first[name] for name in ("checkpoint", FORMER_HEAD) if name in first}
        own["init"] = {**named, **search_settings(first[TRAINED])}
    defaults = {leaf for name, settings in LATER.items() for leaf in leaves(settings, name)}
    return dict(leaf for leaf in leaves(own) if leaf[0] not in NO_MATTER and leaf not in defaults)


def _of_other_programs(config: Mapping[str, Any]) -> bool:
    """Whether some of a training's data were not recorded here, so that only their frames describe them.

    The frames of our own recordings differ between machines.
    """
    data = config.get("data")
    data = data if isinstance(data, dict) else {}
    origins = [data] if "recording" in data else data.values()
    return any(isinstance(origin, dict) and not origin.get("recording", True) for origin in origins)


def _first(config: Mapping[str, Any]) -> dict[str, Any]:
    """What a config.json says of the weights that its training began with; empty for random ones."""
    first = config.get("init")
    return first if isinstance(first, dict) else {}


def difference(configs: Mapping[str, Mapping[str, Any]]) -> str:
    """In words, how the first training that is not alike differs from the first one; empty if all are alike.

    `configs` has the config.json of each run by its name.
    """
    (first, config), *others = configs.items()
    for name, other in others:
        wanted, found = search_settings(config), search_settings(other)
        if _described(config) != _described(other):  # one of them has no settings of its first weights
            wanted, found = _with_run(wanted, config), _with_run(found, other)
        differ = [path for path in wanted.keys() | found.keys() if wanted.get(path) != found.get(path)]
        if trainer_of(config) != trainer_of(other):
            return f"{name!r} and {first!r} have different trainers"
        if differ:
            most, *rest = sorted(differ, key=lambda path: (not path.startswith("environment/presets"), path))
            here, there = (settings.get(most, "not set") for settings in (found, wanted))
            what = setting_name(most)
            words = f"{what} is {here} in the training of {name!r} and {there} in that of {first!r}"
            more = dict.fromkeys(map(setting_name, rest))
            return f"{words} (others: {', '.join(more)})" if more else words
    return ""


def _described(config: Mapping[str, Any]) -> bool | None:
    """Whether a config.json has the settings of the training of its first weights; None for random ones."""
    first = _first(config)
    return isinstance(first.get(TRAINED), dict) if first else None


def _with_run(settings: Mapping[str, str], config: Mapping[str, Any]) -> dict[str, str]:
    """`settings` with the name of the run of the first weights in place of all else about these."""
    others = {path: value for path, value in settings.items() if not path.startswith("init/")}
    first = _first(config)
    return {**others, "init": str(first.get("run"))} if first else others


def setting_name(path: str) -> str:
    """The name of a setting for messages and labels, from its path."""
    name = path.rpartition("/")[2]
    return f"{name} of init" if path.startswith("init/") else name


def leaves(tree: Any, path: str = "") -> list[tuple[str, str]]:
    """The settings of a config as text, with their paths."""
    if isinstance(tree, list) and not any(isinstance(entry, dict | list) for entry in tree):
        return [(path, ", ".join(_plain(entry) for entry in tree))]
    if not isinstance(tree, dict):
        return [(path, _plain(tree))]
    return [leaf for name, branch in tree.items() for leaf in leaves(branch, f"{path}/{name}".strip("/"))]


def _plain(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():  # 1.0 and 1 are one setting
        value = int(value)
    return value if isinstance(value, str) else json.dumps(value)


def trainer_of(config: Mapping[str, Any]) -> str | None:
    """The one trainer that a config has settings of; None for none or several."""
    kinds = [kind for kind in TRAINERS if isinstance(config.get(kind), dict)]
    return kinds[0] if len(kinds) == 1 else None


def training(name: str, config: Mapping[str, Any]) -> str:
    """All settings that a training depends on, its seed included; `name` for a config without a seed."""
    kind = trainer_of(config)
    if kind is None or config[kind].get("seed") is None:
        return name
    weights = _first(config).get("parameters_sha256")
    parts = [config["policy"], search_settings(config), config[kind]["seed"], weights]
    return json.dumps(parts, sort_keys=True)


def apart(names: Sequence[str], trainings: Sequence[str]) -> list[int]:
    """For each run, the number of runs before it with the same training: copies are no other seeds.

    A line on stderr names each copy.
    """
    counts = []
    for place, name in enumerate(names):
        before = [names[n] for n in range(place) if trainings[n] == trainings[place]]
        if before:
            line = f"{name} has the settings and the seed of {before[0]}, and stays apart"
            print(one_line(line), file=sys.stderr)
        counts.append(len(before))
    return counts

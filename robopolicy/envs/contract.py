"""What the members of a task must be; `task.check_task` and `task.check_class` refuse anything else."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Dict

from robopolicy.envs.members import Camera, Curriculum, Mirror, Outcome, Quantity
from robopolicy.settings import is_finite

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")  # of an observation, as manifests have it
REQUIRED = {
    "observation_space": "a gymnasium.spaces.Dict of arrays",
    "action_space": "a gymnasium.spaces.Box of numbers in [-1, 1]",
    "rate": "how many actions it takes in a second",
    "actions": "a Quantity for each number of an action",
    "vectors": "Quantities for each vector that it observes, by its name",
}
# The entries of the info at an episode's end: their meaning, their type, and its name.
ENDING: dict[str, tuple[str, Any, str]] = {
    "success": ("whether the episode succeeded", bool | np.bool_, "True or False"),
    "cause": ("why the episode ended, in a few words", str, "text"),
}
METHODS = (
    *("settings_for", "images", "camera", "privileged_action", "halt", "shapes", "reference_images"),
    *("marks", "view", "caption", "robot", "describe"),
)
RESERVED = ("return", "steps", "seed", *ENDING)  # names that results of an episode have besides outcomes


def _is_tuple(value: Any, is_right: Callable[[Any], bool]) -> bool:
    # A set has no order, and a text is a sequence of letters.
    return isinstance(value, tuple | list) and all(map(is_right, value))


def _is_mapping(value: Any, is_right: Callable[[Any], bool] = lambda entry: True) -> bool:
    return isinstance(value, Mapping) and all(isinstance(n, str) and is_right(v) for n, v in value.items())


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _is_positive(value: Any) -> bool:
    return is_finite(value) and value > 0


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _is_interval(value: Any) -> bool:
    return _is_tuple(value, is_finite) and len(value) == 2 and value[0] <= value[1]


def _is_note(value: Any) -> bool:
    return _is_mapping(value) and ("clip" not in value or _is_interval(value["clip"]))


def _is_camera(value: Any) -> bool:
    if not isinstance(value, Camera) or not _is_interval((value.low, value.high)):
        return False
    clips = value.clip is None or _is_interval(value.clip)
    return clips and (value.pinhole is None or _is_mapping(value.pinhole))


def _is_outcome(value: Any) -> bool:
    if not isinstance(value, Outcome) or not _is_text(value.name) or value.name in RESERVED:
        return False
    try:
        return all(text.format(1.0) for text in (value.title, value.shown, value.said))
    except (AttributeError, LookupError, TypeError, ValueError):
        return False


def _is_quantity(value: Any) -> bool:
    return isinstance(value, Quantity) and _is_text(value.name) and _is_interval((value.low, value.high))


def _is_curriculum(value: Any) -> bool:
    return (
        isinstance(value, Curriculum)
        and _is_tuple(value.presets, _is_text)
        and _is_tuple(value.advance_at, is_finite)
        and _is_tuple(value.episodes, _is_count)
    )


def _differ(value: Any, is_right: Callable[[Any], bool]) -> bool:
    """Whether `value` is a tuple of right entries with different names."""
    return _is_tuple(value, is_right) and len({getattr(v, "name", v) for v in value}) == len(value)


def _or_none(is_right: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or is_right(value)


MEMBERS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "rate": (_is_positive, "a number of actions a second above 0"),
    "control_period": (_is_positive, "a number of seconds above 0"),
    "deadline": (_is_positive, "a number of seconds above 0"),
    "actions": (
        lambda value: _differ(value, _is_quantity),
        "a tuple of Quantities with different names and finite limits",
    ),
    "vectors": (
        lambda value: _is_mapping(value, lambda v: _differ(v, _is_quantity)),
        "tuples of Quantities with different names and finite limits, by the names of vectors",
    ),
    "outcomes": (
        lambda value: _differ(value, _is_outcome),
        "a tuple of Outcomes that format a number, each with its own name, not called " + ", ".join(RESERVED),
    ),
    "cameras": (lambda value: _is_mapping(value, _is_camera), "Cameras with finite limits, by name"),
    "notes": (lambda value: _is_mapping(value, _is_note), "notes with a clip of two numbers, by name"),
    "feedback": (lambda value: _is_tuple(value, _is_mapping), "a tuple of entries by name"),
    "players": (lambda value: _is_mapping(value, callable), "functions by name"),
    "presets": (lambda value: _differ(value, _is_text), "a tuple of different names"),
    "curriculum": (_or_none(_is_curriculum), "a Curriculum of names, numbers and counts, or None"),
    "policy_settings": (_is_mapping, "settings by name"),
    "demonstrator": (_or_none(callable), "a function or None"),
    "demo_settings": (_is_mapping, "settings by name"),
    "mirror": (
        _or_none(lambda value: isinstance(value, Mirror) and all(map(callable, value))),
        "a Mirror of three functions or None",
    ),
    "holds_last_action": (lambda value: isinstance(value, bool), "True or False"),
    "ticks": (_is_count, "a whole number of 1 or more"),
    "on_tick": (_or_none(callable), "a function or None"),
    **dict.fromkeys(METHODS, (callable, "a method")),
}


def wrong_members(owner: Any) -> Iterator[tuple[str, str]]:
    """Each member of a task or of its class that is wrong by itself, and what it must be."""
    for member, (is_right, words) in MEMBERS.items():
        value = getattr(owner, member, property())
        if not isinstance(value, property) and not is_right(value):
            yield member, f"it must be {words}"


def wrong_spaces(task: Any) -> Iterator[tuple[str, str]]:
    """Each space of a task that is wrong, and what is wrong with it."""
    space, actions = task.observation_space, task.action_space
    if not (isinstance(space, Dict) and space.spaces and all(isinstance(b, Box) for b in space.values())):
        yield "observation_space", "it must be a Dict of Boxes, one at least"
        return
    for name, box in space.items():
        if not NAME.fullmatch(name):
            yield "observation_space", f"{name!r} must be letters, digits and underscores"
        if len(box.shape or ()) == 1 and box.dtype != np.float32:
            yield "observation_space", f"{name!r} must be float32"
    unit = isinstance(actions, Box) and actions.low.ndim == 1 and np.issubdtype(actions.dtype, np.floating)
    if not unit or (actions.low != -1).any() or (actions.high != 1).any():
        yield "action_space", "it must be a Box of one axis in [-1, 1], of floats"


def wrong_pairs(task: Any) -> Iterator[tuple[str, str]]:
    """Each member of a task that does not fit another one, and why not."""
    yield from _wrong_counts("actions", task.actions, task.action_space)
    for quantity in task.actions:
        if not quantity.low == -quantity.high < 0:
            yield "actions", f"{quantity.name!r} must have a high above 0 and a low of -high"
    vectors = {name: box for name, box in task.observation_space.items() if len(box.shape) == 1}
    for name in dict.fromkeys((*vectors, *task.vectors)):
        if name not in vectors:
            yield "vectors", f"{name!r} is no vector of observation_space"
        elif name not in task.vectors:
            yield "vectors", f"it has no {name!r}, a vector of observation_space"
        else:
            yield from _wrong_counts("vectors", task.vectors[name], vectors[name], f"of {name!r}, ")
    for member, names, kind in (("cameras", task.images(), "image"), ("notes", vectors, "vector")):
        for name in getattr(task, member).keys() - names:
            yield member, f"{name!r} is no {kind} of observation_space"
    stages = task.curriculum
    if stages is not None and not (stages.presets and set(stages.presets) <= set(task.presets)):
        yield "curriculum", "it must be a Curriculum of presets that the task has"
    elif stages is not None:
        count = len(stages.presets)
        if len(stages.advance_at) != count - 1 or len(stages.episodes) not in (1, count):
            yield "curriculum", "it needs advance_at for each preset but the last, and episodes for each"


def _wrong_counts(member: str, quantities: Any, box: Any, which: str = "") -> Iterator[tuple[str, str]]:
    if (count := len(quantities)) != box.shape[0]:
        yield member, f"{which}it has {count} Quantities, and its space has {box.shape[0]} numbers"

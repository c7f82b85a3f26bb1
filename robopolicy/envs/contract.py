"""What the members of a task must be; `task.check_task` and `task.check_class` refuse anything else."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np
from gymnasium.spaces import Box, Dict, Space

from robopolicy.settings import is_finite

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")  # of an observation, as manifests have it
REQUIRED = {
    "observation_space": "a gymnasium.spaces.Dict of arrays",
    "action_space": "a gymnasium.spaces.Box of numbers in [-1, 1]",
    "rate": "how many actions it takes in a second",
    "actions": "a Quantity for each number of an action",
    "vectors": "Quantities for each vector that it observes, by its name",
}


def is_outcome(value: Any) -> bool:
    """Whether `value` is a finite number, or True or False."""
    return is_bool(value) or is_finite(value)


def is_bool(value: Any) -> bool:
    """Whether `value` is True or False, of Python or NumPy."""
    return isinstance(value, bool | np.bool_)


# The entries of the info at an episode's end: their meaning, what they must be, and its name.
ENDING: dict[str, tuple[str, Callable[[Any], bool], str]] = {
    "success": ("whether the episode succeeded", is_bool, "True or False"),
    "cause": ("why the episode ended, in a few words", lambda value: isinstance(value, str), "text"),
}
RESERVED = ("return", "steps", "seed", *ENDING)  # names that results of an episode have besides outcomes


def matches(value: Any, annotation: Any) -> bool:
    """Whether `value` has the type that a member of `Task` is annotated with; numbers must be finite."""
    kind, arguments = get_origin(annotation) or annotation, get_args(annotation)
    if kind is Any:
        return True
    if kind is UnionType:
        return any(matches(value, one) for one in arguments)
    if kind is tuple:
        if not isinstance(value, tuple | list):  # a set has no order, and a text is a sequence of letters
            return False
        each = arguments[:1] * len(value) if arguments[-1] is Ellipsis else arguments
        return len(value) == len(each) and all(map(matches, value, each))
    if kind is Mapping:
        if not isinstance(value, Mapping):
            return False
        return all(matches(n, arguments[0]) and matches(entry, arguments[1]) for n, entry in value.items())
    if kind is Callable:
        return callable(value)
    if kind is float:
        return is_finite(value)
    if kind is int and isinstance(value, bool):
        return False
    return isinstance(value, kind) and all(matches(getattr(value, n), of) for n, of in _fields(kind).items())


@cache
def _fields(kind: type) -> dict[str, Any]:
    """The types of the fields of a NamedTuple, and none of another class."""
    return get_type_hints(kind) if issubclass(kind, tuple) else {}


SOUND = "Quantities with different names, steps above 0 and finite limits, low first"


def _are_sound(quantities: Any) -> bool:
    names = {quantity.name for quantity in quantities}
    are_in_order = all(q.low <= q.high and (q.step is None or q.step > 0) for q in quantities)
    return len(names) == len(quantities) and "" not in names and are_in_order


def _is_clip(value: Any) -> bool:
    return matches(value, tuple[float, float]) and value[0] < value[1]


def _are_formats(outcomes: Any) -> bool:
    names = {outcome.name for outcome in outcomes}
    try:
        texts = [text.format(1.0) for outcome in outcomes for text in (outcome.cell, outcome.phrase)]
    except (AttributeError, LookupError, TypeError, ValueError):
        return False
    return all(texts) and len(names) == len(outcomes) and not names & {"", *RESERVED}


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def _is_feedback(one: Mapping[str, Any]) -> bool:
    texts = all(_is_text(one.get(name)) for name in ("input", "output", "about"))
    return texts and matches(one.get("first"), int) and one["first"] >= 0 and "start" not in one


# What a member must be besides its type.
RULES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "rate": (lambda value: value > 0, "a number of actions a second above 0"),
    "control_period": (lambda value: value > 0, "a number of seconds above 0"),
    "deadline": (lambda value: value > 0, "a number of seconds above 0"),
    "actions": (_are_sound, f"a tuple of {SOUND}"),
    "vectors": (
        lambda value: all(map(_are_sound, value.values())),
        f"tuples of {SOUND}, by the names of vectors",
    ),
    "outcomes": (
        _are_formats,
        "a tuple of Outcomes that format a number, each with its own name, not called " + ", ".join(RESERVED),
    ),
    "cameras": (
        lambda value: all(c.low < c.high and (c.clip is None or _is_clip(c.clip)) for c in value.values()),
        "Cameras with finite limits and clips, low first, by name",
    ),
    "notes": (
        lambda value: all(
            _is_clip(note.get("clip", (0, 1))) and _is_text(note.get("about", "-")) for note in value.values()
        ),
        "notes with a clip of two numbers, low first, and text about it, by name",
    ),
    "feedback": (
        lambda value: all(map(_is_feedback, value)),
        "a tuple of objects with the texts `input`, `output` and `about`, the count `first`, and no `start`",
    ),
    "presets": (lambda value: len({*value} - {""}) == len(value), "a tuple of different names"),
    "curriculum": (
        lambda value: value is None or all(episodes >= 1 for episodes in value.episodes),
        "a Curriculum of tuples of names, numbers and counts, or None",
    ),
    "ticks": (lambda value: value >= 1, "a whole number of 1 or more"),
}


def is_depth(space: Space[Any]) -> bool:
    """Whether a space is of depth images [H, W] (float32), which begin at 0."""
    return (
        isinstance(space, Box) and len(space.shape) == 2 and space.dtype == np.float32 and not space.low.any()
    )


def has_reach(space: Any) -> bool:
    """Whether the space of depth images has pixels, each with a finite largest depth above 0."""
    return bool(space.high.size and np.isfinite(space.high).all() and space.high.min() > 0)


def is_colour(space: Space[Any]) -> bool:
    """Whether a space is of colour images [H, W, 3] (uint8)."""
    return isinstance(space, Box) and space.shape[2:] == (3,) and np.issubdtype(space.dtype, np.uint8)


def wrong_spaces(task: Any) -> Iterator[tuple[str, str]]:
    """Each space of a task that is wrong, and what is wrong with it."""
    space, actions = task.observation_space, task.action_space
    if not (isinstance(space, Dict) and space.spaces and all(isinstance(b, Box) for b in space.values())):
        yield "observation_space", "it must be a Dict of Boxes, one at least"
        return
    for name, box in space.items():
        if not NAME.fullmatch(name):
            yield "observation_space", f"{name!r} must be letters, digits and underscores"
        axes = len(box.shape or ())
        if axes == 1 and box.dtype != np.float32:
            yield "observation_space", f"{name!r} must be float32"
        elif axes == 3 and not is_colour(box):
            yield "observation_space", f"{name!r} must be a colour image, uint8 [H, W, 3]"
        elif axes == 2 and box.dtype != np.float32:
            yield "observation_space", f"{name!r} must be float32, as depth images [H, W] from 0 are"
        elif is_depth(box) and name not in task.cameras and not has_reach(box):
            yield "observation_space", f"{name!r} must have pixels, each with a finite high above 0"
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
        for name in getattr(task, member):
            if name not in names:
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

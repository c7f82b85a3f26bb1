"""Attention mechanisms by name, and the parser of specs such as `angular_hybrid(m=8, n=8)`.

A spec is a name and keyword arguments, written like a call: counts are positive integers, choices are
names. White space does not matter. Adding a mechanism is one entry in MECHANISMS.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, NamedTuple

from robopolicy.attention.base import Attention, FeatureMap
from robopolicy.attention.hybrid import angular_hybrid
from robopolicy.attention.linear import linear
from robopolicy.attention.positive import (
    positive,
    positive_antithetic,
    positive_antithetic_features,
    positive_features,
)
from robopolicy.attention.projections import Coupling, Estimator, iid, orthogonal
from robopolicy.attention.softmax import softmax
from robopolicy.attention.trigonometric import trigonometric


class Choice(NamedTuple):
    """What a named argument may be, and what it is when left out."""

    options: Mapping[str, Any]
    default: str


class Mechanism(NamedTuple):
    """A factory and the arguments that its specs take.

    Attributes:
      factory: called with every argument by keyword.
      counts: names of required positive integers.
      choices: named options, each with a default.
      example: a spec, for error messages.
    """

    factory: Callable[..., FeatureMap]
    counts: tuple[str, ...]
    choices: Mapping[str, Choice]
    example: str


COUPLINGS: dict[str, Coupling] = {"iid": iid, "orthogonal": orthogonal}
POSITIVE_BASES: dict[str, Estimator] = {
    "positive": positive_features,
    "positive_antithetic": positive_antithetic_features,
}
_COUPLING = {"coupling": Choice(COUPLINGS, "orthogonal")}
_ANGULAR = {**_COUPLING, "base": Choice(POSITIVE_BASES, "positive_antithetic")}

MECHANISMS: dict[str, Mechanism] = {
    "trigonometric": Mechanism(trigonometric, ("m",), _COUPLING, "trigonometric(m=256)"),
    "positive": Mechanism(positive, ("m",), _COUPLING, "positive(m=256)"),
    "positive_antithetic": Mechanism(positive_antithetic, ("m",), _COUPLING, "positive_antithetic(m=256)"),
    "angular_hybrid": Mechanism(angular_hybrid, ("m", "n"), _ANGULAR, "angular_hybrid(m=8, n=8)"),
}
"""Every mechanism with random features. `softmax`, which has none, is known to `attention` alone."""


@lru_cache(maxsize=256)
def attention(spec: str) -> Attention:
    """The attention that a spec names; one object for one spec, so that compiled code is found again.

    Raises ValueError, in one line, for a spec that names nothing.
    """
    name, arguments = _parse(spec)
    return softmax() if name == "softmax" else linear(_build(name, arguments))


@lru_cache(maxsize=256)
def feature_map(spec: str) -> FeatureMap:
    """The feature map that a spec names. Raises ValueError, in one line, also for softmax, which has none."""
    name, arguments = _parse(spec)
    if name == "softmax":
        raise ValueError(f"softmax is exact and has no feature map; choose from {_listed(MECHANISMS)}")
    return _build(name, arguments)


def canonical(spec: str) -> str:
    """The one way to write a spec, with defaults left out: equal mechanisms have equal strings.

    Raises ValueError, in one line, for a spec that names nothing.
    """
    name, arguments = _parse(spec)
    if name == "softmax":
        return name
    choices = MECHANISMS[name].choices
    kept = [f"{k}={v}" for k, v in arguments.items() if k not in choices or v != choices[k].default]
    return f"{name}({', '.join(kept)})"


def _build(name: str, arguments: Mapping[str, str]) -> FeatureMap:
    mechanism = MECHANISMS[name]
    counts = {argument: int(arguments[argument]) for argument in mechanism.counts}
    chosen = {argument: c.options[arguments[argument]] for argument, c in mechanism.choices.items()}
    return mechanism.factory(**counts, **chosen)


def _parse(spec: str) -> tuple[str, dict[str, str]]:
    """The name, and all arguments in the mechanism's order, defaults filled in and values checked."""
    call = re.fullmatch(r"\s*(\w+)\s*(?:\(([^()]*)\))?\s*", spec)
    if call is None:
        raise ValueError(
            f"{spec!r} is not an attention spec; write one like {MECHANISMS['angular_hybrid'].example}"
        )
    name, inside = call[1], (call[2] or "").strip()
    if name != "softmax" and name not in MECHANISMS:
        raise ValueError(f"unknown attention {name!r}{_nearest(name, [*MECHANISMS, 'softmax'])}")
    given = _arguments(spec, inside)
    if name == "softmax":
        if given:
            raise ValueError(f"softmax takes no arguments, got {inside!r}")
        return name, {}
    mechanism = MECHANISMS[name]
    known = [*mechanism.counts, *mechanism.choices]
    for argument in given:
        if argument not in known:
            raise ValueError(f"{name} has no argument {argument!r}{_nearest(argument, known)}")
    arguments = {}
    for argument in mechanism.counts:
        arguments[argument] = _count(name, argument, given.get(argument), mechanism.example)
    for argument, choice in mechanism.choices.items():
        value = given.get(argument, choice.default)
        if value not in choice.options:
            raise ValueError(f"{name}: unknown {argument} {value!r}{_nearest(value, choice.options)}")
        arguments[argument] = value
    return name, arguments


def _arguments(spec: str, inside: str) -> dict[str, str]:
    given: dict[str, str] = {}
    for part in inside.split(",") if inside else []:
        pair = re.fullmatch(r"\s*(\w+)\s*=\s*([^\s=]+)\s*", part)
        if pair is None:
            raise ValueError(
                f"{part.strip()!r} in {spec!r} is not an argument; write name=value, for instance m=8"
            )
        if pair[1] in given:
            raise ValueError(f"argument {pair[1]!r} is given twice in {spec!r}")
        given[pair[1]] = pair[2]
    return given


def _count(name: str, argument: str, value: str | None, example: str) -> str:
    if value is None:
        raise ValueError(f"{name} needs {argument}, a positive integer, as in {example}")
    if not re.fullmatch(r"[0-9]+", value) or int(value) == 0:
        raise ValueError(f"{name}: {argument} is {value!r}; it must be a positive integer, as in {example}")
    return str(int(value))


def _nearest(value: str, allowed: Iterable[str]) -> str:
    near = get_close_matches(value, list(allowed), n=1)
    return (f"; did you mean {near[0]!r}?" if near else ";") + f" choose from {_listed(allowed)}"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)

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
from robopolicy.attention.clustered import (
    COMPLEX,
    REAL,
    Matrices,
    clustered_hybrid,
    gaussian_mixture_hybrid,
)
from robopolicy.attention.discrete import geometric, geometric_positive, poisson, poisson_positive
from robopolicy.attention.estimator import Estimator
from robopolicy.attention.exponential import complex_exponential, generalized_exponential
from robopolicy.attention.hybrid import angular_hybrid, gaussian_hybrid
from robopolicy.attention.linear import linear
from robopolicy.attention.positive import (
    optimal_positive,
    optimal_positive_estimator,
    positive,
    positive_antithetic,
    positive_antithetic_estimator,
    positive_estimator,
)
from robopolicy.attention.projections import Coupling, halton, iid, orthogonal, simplex, simplex_plus
from robopolicy.attention.softmax import softmax
from robopolicy.attention.structured import fast_simplex, hadamard
from robopolicy.attention.trigonometric import trigonometric, trigonometric_phase


class Choice(NamedTuple):
    """What a named argument may be, and what it is when left out."""

    options: Mapping[str, Any]
    default: str


class Number(NamedTuple):
    """An argument that is a number.

    Attributes:
      read: str -> the number; raises ValueError for what is none.
      kind: what it must be, for error messages.
      default: what it is when left out; None leaves it to the mechanism.
      required: whether it must be given.
    """

    read: Callable[[str], Any]
    kind: str
    default: Any = None
    required: bool = False


class Mechanism(NamedTuple):
    """A factory and the arguments that its specs take.

    Attributes:
      factory: called with every argument by keyword.
      counts: names of required positive integers.
      choices: named options, each with a default.
      numbers: named numbers.
      example: a spec, for error messages, pictures and tests.
    """

    factory: Callable[..., FeatureMap]
    counts: tuple[str, ...]
    choices: Mapping[str, Choice]
    numbers: Mapping[str, Number]
    example: str


LARGEST_COUNT = 2**20
"""The most vectors, or clusters, of a spec: more make features of an image that 32 bits cannot index."""

COUPLINGS: dict[str, Coupling] = {
    "iid": iid,
    "orthogonal": orthogonal,
    "hadamard": hadamard,
    "simplex": simplex,
    "fast_simplex": fast_simplex,
    "simplex_plus": simplex_plus,
    "halton": halton,
}
POSITIVE_BASES: dict[str, Estimator] = {
    "positive": positive_estimator,
    "positive_antithetic": positive_antithetic_estimator,
    "optimal_positive": optimal_positive_estimator,
}
MATRICES: dict[str, Matrices] = {"real": REAL, "complex": COMPLEX}

_COUPLING = {"coupling": Choice(COUPLINGS, "orthogonal")}
_HYBRID = {**_COUPLING, "base": Choice(POSITIVE_BASES, "positive_antithetic")}
_CLUSTERED = {**_COUPLING, "matrices": Choice(MATRICES, "complex")}
_CLUSTERS = ("query_clusters", "key_clusters")


def _positive_number(default: float | None = None) -> Number:
    return Number(float, "a number", default)


MECHANISMS: dict[str, Mechanism] = {
    "trigonometric": Mechanism(trigonometric, ("m",), _COUPLING, {}, "trigonometric(m=256)"),
    "trigonometric_phase": Mechanism(
        trigonometric_phase, ("m",), _COUPLING, {}, "trigonometric_phase(m=256)"
    ),
    "positive": Mechanism(positive, ("m",), _COUPLING, {}, "positive(m=256)"),
    "positive_antithetic": Mechanism(
        positive_antithetic, ("m",), _COUPLING, {}, "positive_antithetic(m=256)"
    ),
    "optimal_positive": Mechanism(optimal_positive, ("m",), _COUPLING, {}, "optimal_positive(m=256)"),
    "generalized_exponential": Mechanism(
        generalized_exponential,
        ("m",),
        _COUPLING,
        {"A": Number(complex, "a complex number such as -0.1+0.2j"), "s": Number(int, "1 or -1")},
        "generalized_exponential(m=128)",
    ),
    "complex_exponential": Mechanism(
        complex_exponential,
        ("m",),
        _COUPLING,
        {"A": Number(complex, "a complex number such as 0.9+0.5j", required=True)},
        "complex_exponential(m=128, A=0.9+0.5j)",
    ),
    "poisson": Mechanism(poisson, ("m",), {}, {"rate": _positive_number()}, "poisson(m=256)"),
    "poisson_positive": Mechanism(
        poisson_positive, ("m",), {}, {"rate": _positive_number()}, "poisson_positive(m=256)"
    ),
    "geometric": Mechanism(geometric, ("m",), {}, {"p": _positive_number()}, "geometric(m=256)"),
    "geometric_positive": Mechanism(
        geometric_positive, ("m",), {}, {"p": _positive_number()}, "geometric_positive(m=256)"
    ),
    "angular_hybrid": Mechanism(angular_hybrid, ("m", "n"), _HYBRID, {}, "angular_hybrid(m=8, n=8)"),
    "gaussian_hybrid": Mechanism(
        gaussian_hybrid,
        ("m", "n"),
        _HYBRID,
        {"sigma": _positive_number(1.0), "radius": _positive_number(1.0)},
        "gaussian_hybrid(m=8, n=8)",
    ),
    "clustered_hybrid": Mechanism(
        clustered_hybrid,
        ("m", *_CLUSTERS),
        _CLUSTERED,
        {},
        "clustered_hybrid(m=64, query_clusters=3, key_clusters=2)",
    ),
    "gaussian_mixture_hybrid": Mechanism(
        gaussian_mixture_hybrid,
        ("m", "n", *_CLUSTERS),
        _CLUSTERED,
        {"width": _positive_number(0.5)},
        "gaussian_mixture_hybrid(m=8, n=8, query_clusters=2, key_clusters=2)",
    ),
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
    mechanism = MECHANISMS[name]
    defaults = {a: choice.default for a, choice in mechanism.choices.items()}
    defaults |= {a: number.default for a, number in mechanism.numbers.items()}
    kept = [f"{a}={_written(v)}" for a, v in arguments.items() if a not in defaults or v != defaults[a]]
    return f"{name}({', '.join(kept)})"


def _build(name: str, arguments: Mapping[str, Any]) -> FeatureMap:
    choices = MECHANISMS[name].choices
    chosen = {a: choices[a].options[v] if a in choices else v for a, v in arguments.items()}
    try:
        return MECHANISMS[name].factory(**chosen)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _parse(spec: str) -> tuple[str, dict[str, Any]]:
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
    known = [*mechanism.counts, *mechanism.numbers, *mechanism.choices]
    for argument in given:
        if argument not in known:
            raise ValueError(f"{name} has no argument {argument!r}{_nearest(argument, known)}")
    arguments: dict[str, Any] = {}
    for argument in mechanism.counts:
        arguments[argument] = _count(name, argument, given.get(argument), mechanism.example)
    for argument, number in mechanism.numbers.items():
        arguments[argument] = _number(name, argument, given.get(argument), number, mechanism.example)
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


def _count(name: str, argument: str, value: str | None, example: str) -> int:
    if value is None:
        raise ValueError(f"{name} needs {argument}, a positive integer, as in {example}")
    if not re.fullmatch(r"[0-9]{1,99}", value) or not 1 <= int(value) <= LARGEST_COUNT:
        raise ValueError(
            f"{name}: {argument} is {value!r}; it must be a positive integer of at most {LARGEST_COUNT}, "
            f"as in {example}"
        )
    return int(value)


def _number(name: str, argument: str, value: str | None, number: Number, example: str) -> Any:
    if value is None:
        if number.required:
            raise ValueError(f"{name} needs {argument}, {number.kind}, as in {example}")
        return number.default
    try:
        return number.read(value)
    except ValueError:
        raise ValueError(f"{name}: {argument} is {value!r}; it must be {number.kind}") from None


def _written(value: Any) -> str:
    return str(value).strip("()") if isinstance(value, complex) else f"{value}"


def _nearest(value: str, allowed: Iterable[str]) -> str:
    near = get_close_matches(value, list(allowed), n=1)
    return (f"; did you mean {near[0]!r}?" if near else ";") + f" choose from {_listed(allowed)}"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)

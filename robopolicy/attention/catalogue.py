"""Attention mechanisms by name, and the parser of specs such as `angular_hybrid(m=8, n=8)`.

A spec is a name with keyword arguments, written like a call. Counts are positive integers, choices are names.
White space has no meaning. A new mechanism needs one entry in MECHANISMS.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from robopolicy.attention.base import Attention, FeatureMap
from robopolicy.attention.clustered import COMPLEX, REAL, Matrices, clustered_hybrid, gaussian_mixture_hybrid
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
from robopolicy.naming import closest, shown


class Choice(NamedTuple):
    """A named argument: its options by name, and the name of the default."""

    options: Mapping[str, Any]
    default: str


class Number(NamedTuple):
    """An argument that is a number.

    Attributes:
      read: str -> the number; raises ValueError for any other text.
      kind: the allowed values, for error messages.
      default: the value of an omitted argument; with None, the mechanism chooses.
      required: whether a spec must have the argument.
    """

    read: Callable[[str], Any]
    kind: str
    default: Any = None
    required: bool = False


class Mechanism(NamedTuple):
    """A factory and the arguments of its specs.

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
"""The most vectors, or clusters, of a spec: 32 bits cannot index the features of an image with more."""

COUPLINGS: dict[str, Coupling] = {
    draw.__name__: draw for draw in (iid, orthogonal, hadamard, simplex, fast_simplex, simplex_plus, halton)
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


def _count(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,99}", text) or not 1 <= int(text) <= LARGEST_COUNT:
        raise ValueError
    return int(text)


def _positive_number(default: float | None = None) -> Number:
    return Number(float, "a number", default)


_COUNT = Number(_count, f"a positive integer of at most {LARGEST_COUNT}", required=True)
_EXPONENT = {"A": Number(complex, "a complex number such as -0.1+0.2j"), "s": Number(int, "1 or -1")}
_MULTIPLE = {"A": Number(complex, "a complex number such as 0.9+0.5j", required=True)}
_GAUSSIAN = {"sigma": _positive_number(1.0), "radius": _positive_number(1.0)}
_RATE, _P = {"rate": _positive_number()}, {"p": _positive_number()}

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
        generalized_exponential, ("m",), _COUPLING, _EXPONENT, "generalized_exponential(m=128)"
    ),
    "complex_exponential": Mechanism(
        complex_exponential, ("m",), _COUPLING, _MULTIPLE, "complex_exponential(m=128, A=0.9+0.5j)"
    ),
    "poisson": Mechanism(poisson, ("m",), {}, _RATE, "poisson(m=256)"),
    "poisson_positive": Mechanism(poisson_positive, ("m",), {}, _RATE, "poisson_positive(m=256)"),
    "geometric": Mechanism(geometric, ("m",), {}, _P, "geometric(m=256)"),
    "geometric_positive": Mechanism(geometric_positive, ("m",), {}, _P, "geometric_positive(m=256)"),
    "angular_hybrid": Mechanism(angular_hybrid, ("m", "n"), _HYBRID, {}, "angular_hybrid(m=8, n=8)"),
    "gaussian_hybrid": Mechanism(
        gaussian_hybrid, ("m", "n"), _HYBRID, _GAUSSIAN, "gaussian_hybrid(m=8, n=8)"
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
"""Every mechanism with random features. `softmax`, which has none, is a spec of `attention` only."""


def attention(spec: str) -> Attention:
    """The attention of a spec; one object for equal specs, so that JAX finds its compiled code again.

    Raises ValueError, in one line, for anything but a spec.
    """
    name, arguments = _parse(spec)
    return _attention(name, tuple(arguments.items()))


def feature_map(spec: str) -> FeatureMap:
    """The feature map of a spec. Raises ValueError, in one line, also for softmax, which has none."""
    name, arguments = _parse(spec)
    if name == "softmax":
        raise ValueError(f"softmax is exact and has no feature map; choose from {', '.join(MECHANISMS)}")
    return _feature_map(name, tuple(arguments.items()))


def canonical(spec: str) -> str:
    """The spec in its only canonical form, without defaults: equal mechanisms have equal strings.

    Raises ValueError, in one line, for anything but a spec; `attention` also checks the range of numbers.
    """
    name, arguments = _parse(spec)
    if name == "softmax":
        return name
    mechanism = MECHANISMS[name]
    defaults = {a: choice.default for a, choice in mechanism.choices.items()}
    defaults |= {a: number.default for a, number in mechanism.numbers.items()}
    written = [f"{a}={_text(v)}" for a, v in arguments.items() if a not in defaults or v != defaults[a]]
    return f"{name}({', '.join(written)})"


@lru_cache(maxsize=256)
def _attention(name: str, arguments: tuple[tuple[str, Any], ...]) -> Attention:
    return softmax() if name == "softmax" else linear(_feature_map(name, arguments))


@lru_cache(maxsize=256)
def _feature_map(name: str, arguments: tuple[tuple[str, Any], ...]) -> FeatureMap:
    mechanism = MECHANISMS[name]
    choices = mechanism.choices
    values = {a: choices[a].options[v] if a in choices else v for a, v in arguments}
    try:
        return mechanism.factory(**values)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _parse(spec: str) -> tuple[str, dict[str, Any]]:
    """The name, and all arguments in the mechanism's order, checked, with their defaults."""
    example = MECHANISMS["angular_hybrid"].example
    if not isinstance(spec, str):
        raise ValueError(f"spec is {shown(spec)}: it must be a string such as {example!r}")
    call = re.fullmatch(r"\s*(\w+)\s*(?:\(([^()]*)\))?\s*", spec)
    if call is None:
        raise ValueError(f"attention is {spec!r}: it must be a spec such as {example!r}")
    name, inside = call[1], (call[2] or "").strip()
    if name == "softmax":
        if inside:
            raise ValueError(f"softmax takes no arguments, got {inside!r}")
        return name, {}
    if name not in MECHANISMS:
        raise ValueError(f"unknown attention {name!r}{_nearest(name, [*MECHANISMS, 'softmax'])}")
    mechanism = MECHANISMS[name]
    numbers = {**dict.fromkeys(mechanism.counts, _COUNT), **mechanism.numbers}
    known = [*numbers, *mechanism.choices]
    texts = _texts(spec, inside)
    for argument in texts:
        if argument not in known:
            raise ValueError(f"{name} has no argument {argument!r}{_nearest(argument, known)}")
    arguments: dict[str, Any] = {}
    for argument, number in numbers.items():
        arguments[argument] = _number(name, argument, texts.get(argument), number)
    for argument, choice in mechanism.choices.items():
        value = texts.get(argument, choice.default)
        if value not in choice.options:
            raise ValueError(f"{name}: unknown {argument} {value!r}{_nearest(value, choice.options)}")
        arguments[argument] = value
    return name, arguments


def _texts(spec: str, inside: str) -> dict[str, str]:
    """The arguments between the parentheses of a spec, as text."""
    texts: dict[str, str] = {}
    for part in inside.split(",") if inside else []:
        pair = re.fullmatch(r"\s*(\w+)\s*=\s*([^\s=]+)\s*", part)
        if pair is None:
            raise ValueError(
                f"{part.strip()!r} in {spec!r} is not an argument; write name=value, for instance m=8"
            )
        if pair[1] in texts:
            raise ValueError(f"argument {pair[1]!r} is given twice in {spec!r}")
        texts[pair[1]] = pair[2]
    return texts


def _number(name: str, argument: str, text: str | None, number: Number) -> Any:
    if text is None and not number.required:
        return number.default
    example = MECHANISMS[name].example
    if text is None:
        raise ValueError(f"{name} needs {argument}, {number.kind}, as in {example}")
    try:
        return number.read(text)
    except ValueError:
        message = f"{name}: {argument} is {text!r}; it must be {number.kind}, as in {example}"
        raise ValueError(message) from None


def _text(value: Any) -> str:
    return str(value).strip("()") if isinstance(value, complex) else f"{value}"


def _nearest(value: str, allowed: Iterable[str]) -> str:
    return f"{closest(value, allowed) or ';'} choose from {', '.join(allowed)}"

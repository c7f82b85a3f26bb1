"""Checks of settings accept what JSON may hold, and refuse everything else with a precise message."""

import math
import re
from dataclasses import dataclass

import pytest

from robopolicy.naming import shown
from robopolicy.settings import check_count, check_interval, check_number, check_types


@dataclass
class Walk:
    steps: int = 1
    speed: float = 1.0
    limit: float | None = None
    pair: tuple[int, int] = (1, 2)
    names: tuple[str, ...] = ()
    fast: bool = False


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"steps": 3, "speed": 0.5, "limit": 2.0, "pair": [3, 4], "names": ["a", "b"], "fast": True},
        {"speed": 2, "limit": None, "pair": (3, 4), "names": []},
        {"nobody": "knows"},
    ],
)
def test_values_from_json_match_their_types(settings):
    check_types("setting", settings, Walk)


@pytest.mark.parametrize(
    ("name", "value", "annotation"),
    [
        ("steps", "3", "int"),
        ("steps", 3.0, "int"),
        ("steps", True, "int"),
        ("steps", None, "int"),
        ("speed", "fast", "float"),
        ("speed", False, "float"),
        ("limit", [], "float | None"),
        ("pair", [1], "tuple[int, int]"),
        ("pair", [1, "2"], "tuple[int, int]"),
        ("names", "ab", "tuple[str, ...]"),
        ("names", [1], "tuple[str, ...]"),
        ("fast", 1, "bool"),
    ],
)
def test_a_value_of_another_type_is_refused_by_name(name, value, annotation):
    message = f"setting {name} is {value!r}: it must be of type {annotation}"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        check_types("setting", {"steps": 1, name: value}, Walk)


@pytest.mark.parametrize(
    ("check", "value", "limits", "allowed"),
    [
        (check_count, 0, (1, 9), "a whole number from 1 to 9"),
        (check_count, 10**30, (1, 9), "a whole number from 1 to 9"),
        (check_count, True, (1, 9), "a whole number from 1 to 9"),
        (check_count, 2.0, (1, 9), "a whole number from 1 to 9"),
        (check_number, 10**400, (0.0,), "a number of 0 or more"),
        (check_number, math.nan, (0.0, 2.0), "a number from 0 to 2"),
        (check_number, math.inf, (0.0,), "a number of 0 or more"),
        (check_number, True, (0.0, 2.0), "a number from 0 to 2"),
        (check_interval, (2, 1), (0.0,), "two numbers of 0 or more, the smaller one first"),
        (check_interval, (0, 10**400), (0.0,), "two numbers of 0 or more, the smaller one first"),
    ],
)
def test_a_number_out_of_its_range_is_refused_with_the_range(check, value, limits, allowed):
    with pytest.raises(ValueError, match=f"^depth is {re.escape(shown(value))}: it must be {allowed}$"):
        check("depth", value, *limits)
    check("depth", {check_count: 9, check_number: 2, check_interval: (0, 2)}[check], *limits)

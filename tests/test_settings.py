"""Settings that come back from JSON are what they were."""

import re
from dataclasses import dataclass

import pytest

from robopolicy.settings import check_types


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
def test_what_json_may_hold_for_a_type_passes(settings):
    check_types("setting", settings, Walk)


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
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
def test_what_is_of_another_type_is_refused_by_name(name, value, wanted):
    said = f"setting {name} is {value!r}: it must be of type {wanted}"
    with pytest.raises(ValueError, match=f"^{re.escape(said)}$"):
        check_types("setting", {"steps": 1, name: value}, Walk)

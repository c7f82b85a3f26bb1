"""Reading JSON of other programs and older versions. Every room may import this module.

Each function raises an `error` of the caller's choice, in one line that names the source.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def read_json(path: Path, *, error: type[ValueError] = ValueError) -> Any:
    """The value in the UTF-8 JSON file at `path`. Raises OSError, or `error` naming the file."""
    return parse_json(path.read_bytes(), repr(str(path)), error=error)


def read_object(path: Path, *, error: type[ValueError] = ValueError) -> dict[str, Any]:
    """The JSON object in the file at `path`. Raises as `read_json`, and `error` for any other value."""
    value = read_json(path, error=error)
    if not isinstance(value, dict):
        raise error(f"{str(path)!r} holds no JSON object")
    return value


def parse_json(
    text: str | bytes, source: str, *, allow_nan: bool = True, error: type[ValueError] = ValueError
) -> Any:
    """The value of a JSON text; bytes must be UTF-8.

    Args:
      text: the document.
      source: the document's name in error messages.
      allow_nan: accept NaN and Infinity, as `json.dumps` does.
      error: the class of the exception.

    Raises `error` for a text that is not JSON or is nested too deeply for Python to read.
    """
    try:
        decoded = text if isinstance(text, str) else text.decode()
        return json.loads(decoded, parse_constant=None if allow_nan else _refuse_constant)
    except RecursionError as cause:
        raise error(f"{source} is not JSON: it is nested too deeply") from cause
    except ValueError as cause:  # covers UnicodeDecodeError and JSONDecodeError
        raise error(f"{source} is not JSON: {cause}") from cause


def parse_json_lines(text: bytes, source: str, *, error: type[ValueError] = ValueError) -> list[Any]:
    """The values of JSON lines (UTF-8), without an unfinished last line, which a killed process leaves.

    Raises `error` naming the first line that is not JSON.
    """
    lines = text.split(b"\n")[:-1]
    return [parse_json(line, f"line {n} of {source}", error=error) for n, line in enumerate(lines, 1)]


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number")

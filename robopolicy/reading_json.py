"""Reading JSON that another program, or an older version, may have written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def read_json(path: Path) -> Any:
    """The value in the UTF-8 JSON file at `path`. Raises OSError, or ValueError naming the file."""
    return parse_json(path.read_bytes(), repr(str(path)))


def parse_json(text: str | bytes, source: str, *, allow_nan: bool = True) -> Any:
    """The value of a JSON text; bytes must be UTF-8.

    Args:
      text: the document.
      source: names the document in error messages.
      allow_nan: accept NaN and Infinity, as `json.dumps` does.

    Raises ValueError, in one line that begins with `source`, for a text that is not JSON or is nested too
    deeply for Python to read.
    """
    try:
        decoded = text if isinstance(text, str) else text.decode()
        return json.loads(decoded, parse_constant=None if allow_nan else _refuse_constant)
    except RecursionError as error:
        raise ValueError(f"{source} is not JSON: it is nested too deeply") from error
    except ValueError as error:  # covers UnicodeDecodeError and JSONDecodeError
        raise ValueError(f"{source} is not JSON: {error}") from error


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number")

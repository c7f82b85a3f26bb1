"""JSON from elsewhere is read, or refused in one line that names its source."""

import math
import re

import pytest

from robopolicy.reading_json import parse_json, parse_json_lines, read_json, read_object


def test_a_file_is_read(tmp_path):
    (tmp_path / "a.json").write_text('{"name": "µ", "loss": NaN}', encoding="utf-8")
    content = read_json(tmp_path / "a.json")
    assert content["name"] == "µ"
    assert math.isnan(content["loss"])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "Expecting value"),
        (b"{", "Expecting property name"),
        (b"\xff", "'utf-8' codec can't decode"),
        (b"[" * 100_000, "it is nested too deeply"),
        (b"1" * 5000, "integer string conversion"),
    ],
)
def test_invalid_json_is_refused_with_its_path(tmp_path, text, reason):
    path = tmp_path / "a.json"
    path.write_bytes(text)
    with pytest.raises(ValueError, match=reason) as caught:
        read_json(path)
    assert str(caught.value).startswith(f"{str(path)!r} is not JSON: ")
    assert len(str(caught.value).splitlines()) == 1


def test_nan_can_be_refused():
    with pytest.raises(ValueError, match=r"^a line is not JSON: NaN is not a number$"):
        parse_json("[NaN]", "a line", allow_nan=False)


class FileError(ValueError):
    pass


@pytest.mark.parametrize("content", [b"[1]", b"\xff", b"5"])
def test_a_file_without_an_object_is_refused_with_the_error_of_the_caller(tmp_path, content):
    path = tmp_path / "a.json"
    path.write_bytes(content)
    with pytest.raises(FileError, match=rf"^{re.escape(repr(str(path)))} (is not JSON|holds no JSON object)"):
        read_object(path, error=FileError)
    path.write_text('{"a": 1}')
    assert read_object(path, error=FileError) == {"a": 1}


def test_lines_are_read_up_to_an_unfinished_one_and_refused_by_number():
    assert parse_json_lines(b'{"a": 1}\n[2]\n{"b', "the log") == [{"a": 1}, [2]]
    assert parse_json_lines(b"", "the log") == []
    for content in (b"1\n{\n", b"1\n\xff\n", b"1\n\n"):
        with pytest.raises(FileError, match=r"^line 2 of the log is not JSON: "):
            parse_json_lines(content, "the log", error=FileError)

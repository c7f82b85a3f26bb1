"""JSON from elsewhere is read, or refused in one line that names its source."""

import math

import pytest

from robopolicy.reading_json import parse_json, read_json


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

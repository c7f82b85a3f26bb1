"""Which Python `make install` takes, with what it installs, and what it says if it cannot."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LINKED = ("make", "sh", "rm", "touch", "mkdir", "date")
# A Python of another version, whose venv has a pip that writes down its arguments.
PYTHON = """#!/bin/sh
[ -z "{broken}" ] || exit 127
[ "$1" != -c ] || exec {real} -c "import sys; sys.version_info = {version}; sys.modules.update({hidden}); $2"
echo "$(basename $0) $*" >> log
mkdir -p "$3/bin"
printf '#!/bin/sh\\necho "pip $*" >> log\\n' > "$3/bin/pip"
chmod +x "$3/bin/pip"
"""
UV = '#!/bin/sh\necho "uv $*" >> log\nmkdir -p .venv\n'

pytestmark = pytest.mark.skipif(not shutil.which("make"), reason="make is not installed")


@pytest.fixture
def install(tmp_path):
    """`install(pythons, uv, *words)`: the exit code of make, its errors, and the lines of what it ran."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in (*LINKED, "basename", "chmod"):
        (programs / name).symlink_to(shutil.which(name))

    def write(name, text):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)

    def run(pythons, uv=False, *words):
        for name, minor in pythons.items():
            hidden = "dict(ensurepip=None)" if minor == "bare" else "{}"
            version = (3, 13) if minor in ("bare", "broken") else (3, minor)
            broken = "yes" if minor == "broken" else ""
            write(name, PYTHON.format(real=sys.executable, version=version, hidden=hidden, broken=broken))
        if uv:
            write("uv", UV)
        variables = {"PATH": str(programs), "HOME": os.environ.get("HOME", "/")}
        made = subprocess.run(
            ["make", "install", *words],
            cwd=tmp_path,
            env=variables,
            capture_output=True,
            text=True,
            timeout=60,
        )
        log = tmp_path / "log"
        errors = [line for line in made.stderr.splitlines() if not line.startswith("make: ***")]
        return made.returncode, errors, log.read_text().splitlines() if log.exists() else []

    return run


PIP = "pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable .[all,dev]"


@pytest.mark.rest_slow
@pytest.mark.parametrize(
    ("pythons", "words", "taken"),
    [
        ({"python3": 12, "python3.14": 14}, (), "python3"),
        ({"python3": 10, "python3.11": 11, "python3.13": 13}, (), "python3.13"),
        ({"python3": 15, "python3.14": "broken", "python3.12": 12}, (), "python3.12"),
        ({"python3.11": 11}, (), "python3.11"),
        ({"python3": 13, "python3.12": 12}, ("PYTHON=python3.12",), "python3.12"),
    ],
)
def test_it_takes_python3_if_it_fits_and_otherwise_the_newest_that_runs(install, pythons, words, taken):
    code, errors, ran = install(pythons, False, *words)
    assert (code, errors) == (0, [])
    assert ran == [f"{taken} -m venv .venv", PIP]


@pytest.mark.parametrize(
    ("pythons", "taken"), [({"python3": 10, "python3.12": 12}, "python3.12"), ({}, ">=3.11,<3.15")]
)
def test_it_takes_uv_where_it_is_which_needs_no_python(install, pythons, taken):
    code, errors, ran = install(pythons, True)
    assert (code, errors) == (0, [])
    options = "--quiet --python .venv/bin/python --constraint constraints.txt --editable .[all,dev]"
    assert ran == [f"uv venv --quiet --seed --python {taken} .venv", f"uv pip install {options}"]


def test_it_takes_pip_where_uv_is_not_wanted(install):
    assert install({"python3": 13}, True, "UV=")[2] == ["python3 -m venv .venv", PIP]


@pytest.mark.parametrize(
    ("pythons", "words", "said"),
    [
        ({}, (), "robopolicy needs Python 3.11 to 3.14: install one of them, or uv, which fetches one"),
        ({"python3": 10}, (), "robopolicy needs Python 3.11 to 3.14: install one of them, or uv"),
        ({"python3": 13, "python3.9": 9}, ("PYTHON=python3.9",), "PYTHON is python3.9: it must be a Python"),
        ({"python3": 13}, ("PYTHON=python4",), "PYTHON is python4: it must be a Python from 3.11 to 3.14"),
        ({"python3": "bare"}, (), "python3 lacks the module ensurepip: install python3-venv"),
    ],
)
def test_it_says_in_one_line_what_is_missing(install, pythons, words, said):
    code, errors, ran = install(pythons, False, *words)
    assert code == 2
    (line,) = errors
    assert line.startswith(said)
    assert ran == []

"""Every command line of the documentation is parsed, and one of each kind runs with reduced settings."""

import argparse
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from dataclasses import MISSING, fields, replace
from importlib.resources import files
from itertools import pairwise

import documented
import gymnasium
import jax
import pytest
from documented import ROOT, Line, commands, of_program, ships

from robopolicy.attention import canonical
from robopolicy.cli import main
from robopolicy.policies.controls import CONTROLS, from_label
from robopolicy.runtime.__main__ import main as runtime

# Reduced settings, appended to a command: the last of two equal options counts.
EPISODE = {"--episodes": "1", "--episode-seconds": "0.5"}
SEARCH = {
    "--population": "2",
    "--generations": "1",
    "--episode-seconds": "0.5",
    "--workers": "1",
    "--patch": "4",
    "--held-out": "2",
}
SMALL = {
    "train es": {"--out": "runs/new", **SEARCH},
    "train es --resume": {"--generations": "2", "--workers": "1"},
    "grid": {**SEARCH, "--test-episodes": "1"},
    "train bc": {
        "--out": "runs/new",
        "--preset": "tiny",
        "--patch": "16",
        "--samples": "16",
        "--batch": "8",
        "--validation": "0.5",
        "--steps": "2",
        "--validate-every": "2",
        "--workers": "1",
        "--episode-seconds": "0.5",
    },
    "train bc --resume": {"--workers": "1"},
    "demos": {
        "--out": "datasets/new-v0",
        "--episodes": "1",
        "--image-size": "64",
        "--balls": "2",
        "--workers": "1",
    },
    "convert": {"--out": "datasets/new-v0"},
    "evaluate": EPISODE,
    "evaluate --env": {"--episodes": "1"},
    "rollout": {"--video": "film.mp4", "--episode-seconds": "0.3", "--size": "320 240"},
    "flops": {},
    "plan": {"--budget": "671046", "--tokens": "96"},
    "plan --task bimanual-sweep": {"--tokens": "400"},
    "compare": EPISODE,
    "plot": {"--out": "curves.png"},
    "runs": {},
    "inspect": {},
    "report": {"--out": "report.html", **EPISODE, "--size": "320 240"},
    "doctor": {},
    "export": {"--out": "bundle", "--observations": "5"},
    "verify": {"--calls": "20"},
    "deploy": {"--seconds": "0.5", "--misses": "1000"},
}
# Reduced settings of options that a command has.
SMALLER = {
    "train es": {"--attention": "angular_hybrid(m=8,n=8)", "--head-dim": "8"},  # which is converted already
    "train bc": {"--rollouts": "1"},
    "plan": {"--verify": "1"},
    "inspect": {"--episode": "0"},
    "deploy": {"--pace": "0"},  # what a busy machine does not stop
}
# The settings of the run that it begins with.
SMALL["train bc --init"] = SMALL["train bc"] | {"--attention": "positive(m=4)"}
# Fewer values of options that may be given once.
FEWER = {"grid": {"--attention": ["all", "none"], "--seeds": ["0"]}}
# Commands that another test runs.
ELSEWHERE = {"doctor": "tests/doctor/test_doctor.py"}
# Words that need optional packages.
EXTRAS = {
    **dict.fromkeys(("convert", "lerobot", "datasets/arm", "datasets/arm-v0", "runs/arm"), "pyarrow"),
    **{"ray": "ray", "--rerun": "rerun", "--wandb": "wandb"},
    **dict.fromkeys(("go2-sim", "--interface"), "cyclonedds"),
}
NOT_OF_SPOT = ("--episode-seconds", "--patch")
NOT_OF_ARM = ("--episode-seconds",)
# Commands that fail on a busy machine.
MAY_FAIL = ("verify",)
# Without its robot, a command says so after some seconds.
NO_ROBOT = "stopped safely: nothing came on rt/lowstate"


def split(line: Line) -> tuple[str, list[str]]:
    """The name of a command and its arguments."""
    for name in commands():
        size = len(name.split())
        if " ".join(line.words[:size]) == name:
            return name, list(line.words[size:])
    return "", list(line.words)


def small(name: str, words: list[str]) -> dict[str, str]:
    special = (f"{name} {option}" for option in ("--resume", "--env", "--init") if option in words)
    which = next(filter(SMALL.get, special), name)
    if name == "plan" and "bimanual-sweep" in words:
        which = "plan --task bimanual-sweep"
    if any(word.startswith("spot:") for word in words):  # a task without these settings
        return {option: v for option, v in SMALL[which].items() if option not in NOT_OF_SPOT}
    if any(word in ("runs/arm", "datasets/arm", "datasets/arm-v0") for word in words):
        return {option: v for option, v in SMALL[which].items() if option not in NOT_OF_ARM}
    needed = {"--attention"} if "--encoder" in words else set()  # these encoders need no attention
    settings = SMALL[which] | {option: v for option, v in SMALLER.get(name, {}).items() if option in words}
    return {option: value for option, value in settings.items() if option not in needed}


def fewer(name: str, words: list[str]) -> list[str]:
    """The words with the values of `FEWER`."""
    result: list[str] = []
    option = ""
    for word in words:
        option = word if word.startswith("--") else option
        values = FEWER.get(name, {}).get(option)
        result += [word] if values is None else [option, *values] if word == option else []
    return result


def options(words: list[str]) -> frozenset[str]:
    return frozenset(word for word in words if word.startswith("--"))


def kinds(words: list[str]) -> tuple[str, ...]:
    """The kinds of a command's positional arguments: shipped policies are runs."""
    end = next((i for i, word in enumerate(words) if word.startswith("--")), len(words))
    return tuple("runs" if ships(word) else word.split("/")[0] for word in words[:end])


def is_spoken_of(line: Line, name: str, words: list[str]) -> bool:
    """Whether running text only names a command, or the first word of several commands."""
    return (
        not line.whole and not words
        if name
        else any(known.split()[: len(words)] == words for known in commands())
    )


def completed(line: Line, name: str, words: list[str]) -> list[str]:
    """The arguments, with required ones that running text leaves out."""
    if line.whole or not name or "--help" in words:
        return words
    needed = {f"--{f.name}" for f in fields(commands()[name]) if f.default is f.default_factory is MISSING}
    missing = [(option, value) for option, value in SMALL[name].items() if option in needed.difference(words)]
    return [*words, *(word for pair in missing for word in pair)]


LINES = of_program("robopolicy")
SAID = [
    (name, completed(line, name, words))
    for line in LINES
    for name, words in [split(line)]
    if name and "--help" not in words and not is_spoken_of(line, name, words)
]


def on_the_sweep(words: list[str]) -> bool:
    return any(word.startswith(("bimanual-sweep", "runs/clone", "runs/quick")) for word in words)


def parts(name: str, words: list[str]) -> set[tuple[object, ...]]:
    """What a command line demonstrates: its options, and the kinds of its arguments."""
    about = (name, "about", tuple(dict.fromkeys(kinds(words))), on_the_sweep(words))
    return {about} | {(name, option) for option in options(words)}


def few(lines: list[tuple[str, list[str]]]) -> list[tuple[str, list[str]]]:
    """Lines that have together all parts of `lines`: again and again the one with most new parts."""
    left, chosen = set().union(*(parts(*line) for line in lines)), []
    while left:
        chosen.append(max(lines, key=lambda line: len(parts(*line) & left)))
        left -= parts(*chosen[-1])
    return chosen


# One of each kind. Those beyond a few combine parts that the few have one by one.
RUN = list(
    {
        (name, options(words), kinds(words), on_the_sweep(words)): (name, words)
        for name, words in SAID
        if name not in ELSEWHERE
    }.values()
)
FEW = few(RUN)


@pytest.fixture
def accepted(monkeypatch):
    """Commands do nothing once they are parsed, and import no module of the reader."""
    monkeypatch.setattr("robopolicy.cli.import_task", lambda name: None)
    for command in commands().values():
        monkeypatch.setattr(command, "run", lambda self: 0)
        if hasattr(command, "stored_command"):
            monkeypatch.setattr(command, "stored_command", lambda self: replace(self, resume=False))


@pytest.mark.parametrize("line", LINES, ids=lambda line: " ".join(line.words))
def test_a_command_line_is_parsed(accepted, capsys, line):
    name, words = split(line)
    if not is_spoken_of(line, name, words):
        code = main([*name.split(), *completed(line, name, words)])
        assert code == 0, f"{line.where}: {capsys.readouterr().err}"


def test_placeholders_of_command_lines_have_values():
    assert {word for line in LINES for word in line.words if re.fullmatch("[A-Z]{2,}", word)} == set()


def test_documented_mechanisms_exist():
    specs = {after for _, words in SAID for word, after in pairwise(words) if word == "--attention"}
    assert specs
    for spec in specs:
        attended, _ = from_label(spec)
        if attended not in CONTROLS:
            canonical(attended)


def test_documented_policies_are_shipped():
    named = {word.partition("@")[0] for _, words in SAID for word in words if ships(word)}
    assert named <= {folder.name for folder in (files("robopolicy.assets") / "policies").iterdir()}


def test_every_command_has_reduced_settings():
    assert {name.split(" --")[0] for name in SMALL} == set(commands())


def test_every_command_is_documented():
    assert {name for name, _ in RUN} | ELSEWHERE.keys() == set(commands())
    for name, test in ELSEWHERE.items():
        assert name in (ROOT / test).read_text()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        pytest.param(*line, id=" ".join([line[0], *line[1]]), marks=getattr(pytest.mark, mark))
        for line in RUN
        for mark in ["slow" if line in FEW else "full"]
    ],
)
def test_a_documented_command_runs(here, fewer_plans, monkeypatch, capsys, name, words):
    for word in EXTRAS.keys() & {name, *words}:
        pytest.importorskip(EXTRAS[word])
    # As in a new process, in which a command imports the reader's module itself.
    monkeypatch.delitem(sys.modules, "spot", raising=False)
    monkeypatch.delitem(gymnasium.registry, "Spot-v0", raising=False)
    less = [word for option, value in small(name, words).items() for word in (option, *value.split(" "))]
    for option, folder in pairwise([*words, *less]):
        if option == "--out" and "--resume" not in words:  # what a command makes must not exist
            shutil.rmtree(here / folder, ignore_errors=True)
    if name == "grid":  # the others name a run
        shutil.rmtree(here / words[0], ignore_errors=True)
    words = fewer(name, words)
    # Shipped policies are large; runs of their names are tiny, but have no odometry that drifts.
    tiny = "--drift" not in words
    line = [*name.split(), *(f"runs/{word}" if tiny and ships(word) else word for word in words), *less]
    if "--resume" in words:
        jax.clear_caches()  # a resume draws the features again, with the bits of the run
    code = main(line)
    if "--interface" in words:
        assert NO_ROBOT in capsys.readouterr().out
        return
    assert code in ((0, 1) if name in MAY_FAIL else (0,)), capsys.readouterr().err


class Parsed(Exception):  # noqa: N818 (no error)
    """A parser has read all arguments."""


@pytest.fixture
def parsers_end(monkeypatch):
    """Scripts end once they have parsed their arguments."""
    parse = argparse.ArgumentParser.parse_args

    def parse_and_end(self, args=None, namespace=None):
        parse(self, args, namespace)
        raise Parsed

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_and_end)


@pytest.mark.parametrize("line", of_program("python"), ids=lambda line: " ".join(line.words))
def test_a_script_accepts_its_documented_arguments(parsers_end, monkeypatch, line):
    if line.words[:2] == ("-m", "robopolicy.runtime"):
        if line.whole or len(line.words) > 3:
            with pytest.raises(Parsed):
                runtime(line.words[2:])
        return
    script = ROOT / line.words[0]
    assert script in documented.SCRIPTS, f"{line.where}: no such script"
    if not re.search("argparse|import record|record import", script.read_text()):
        assert len(line.words) == 1, "it has arguments, and parses none"
        return
    monkeypatch.setattr(sys, "argv", [str(script), *line.words[1:]])
    monkeypatch.syspath_prepend(str(script.parent))
    with pytest.raises(Parsed):
        runpy.run_path(str(script), run_name="__main__")


def test_documented_make_targets_exist():
    words = sorted({word for line in of_program("make") for word in line.words})
    assert words
    made = subprocess.run(["make", "--dry-run", *words], cwd=ROOT, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr


def test_documented_extras_exist():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert documented.extras()
    assert documented.extras() <= set(extras)

"""Damaged runs, bundles, datasets and command lines, hundreds of them, seeded: a right result or one line."""

import contextlib
import io
import json
import random
import re
import shutil
import signal
import sys
import traceback
import warnings
from pathlib import Path

import pytest
from mutations import changed_folder, changed_words, contents

import robopolicy
from robopolicy.cli import main
from robopolicy.costs.flops import count_step
from robopolicy.policies.catalogue import blank_policy, restore
from robopolicy.training.demonstration import RecordingConfig
from robopolicy.training.recording import record

sys.path.insert(0, str(Path(__file__).parents[1] / "runtime"))
sys.path.insert(0, str(Path(__file__).parents[1] / "training"))

from toy_bundle import make_bundle, resum
from toy_recordings import ABOUT, spec

SHIPPED = Path(robopolicy.__file__).parent / "assets" / "policies"
LIMIT, PATIENCE = 120, 300  # s of a processor that a command may take, and s that it may wait
LONGEST = 1050  # characters of a complaint
INTERNAL = re.compile(r"Traceback|\b(?!Floating)[A-Z]\w+(?:Error|Exception)\b")  # FloatingPointError is ...
TALKS = (
    "train",
    "verify",
    "export",
    "evaluate",
    "compare",
    "report",
    "plot",
)  # say on stderr how far they are
SHORT = ("--episodes", "1", "--episode-seconds", "0.2", "--engine", "mujoco")
TINY = (
    *("train", "es", "--attention", "softmax", "--patch", "8", "--preset", "painted", "--engine", "mujoco"),
    *("--population", "2", "--generations", "2", "--held-out", "1", "--episode-seconds", "0.2"),
)

# Commands that read what is damaged. FOLDER is the damaged one, SOUND another that is not.
READS = {
    "run": (
        ("runs", "FOLDER"),
        ("runs", "FOLDER", "--json"),
        ("inspect", "FOLDER"),
        ("inspect", "FOLDER@best", "--json"),
        ("flops", "FOLDER"),
    ),
    "bundle": (("inspect", "FOLDER"), ("verify", "FOLDER", "--calls", "3"), ("flops", "FOLDER")),
}
READS_LONGER = {
    "run": (
        ("plot", "FOLDER", "--out", "curves.svg"),
        ("plot", "FOLDER", "SOUND", "--out", "curves.png", "--by", "flops"),
        ("report", "FOLDER", "--out", "page.html", "--no-video", "--episodes", "0"),
        ("evaluate", "FOLDER", *SHORT),
        ("compare", "FOLDER", "SOUND", *SHORT, "--json"),
    ),
    "clone": (
        ("inspect", "FOLDER"),
        ("runs", "FOLDER", "--json"),
        ("flops", "FOLDER", "--per-second"),
        ("plot", "FOLDER", "--out", "curves.svg"),
        ("train", "bc", "--out", "FOLDER", "--resume"),
    ),
    "dataset-v0": (
        ("inspect", "FOLDER"),
        ("inspect", "FOLDER", "--json"),
        ("inspect", "FOLDER", "--episode", "1"),
        ("train", "bc", "--data", "FOLDER", "--preset", "tiny", "--batch", "999", "--out", "new"),
    ),
    "tiny": (
        ("train", "es", "--out", "FOLDER", "--resume", "--generations", "3", "--workers", "1"),
        ("train", "es", "--out", "FOLDER", "--resume-from", "1", "--generations", "2", "--workers", "1"),
    ),
}


class TooLongError(BaseException):
    """A command has used up its time; no command catches this."""


@contextlib.contextmanager
def limited():
    """Raise TooLongError from whatever does not end."""

    def end(signum, frame):
        raise TooLongError

    timers = {signal.SIGPROF: (signal.ITIMER_PROF, LIMIT), signal.SIGALRM: (signal.ITIMER_REAL, PATIENCE)}
    before = {number: signal.signal(number, end) for number in timers}
    try:
        for timer, seconds in timers.values():
            signal.setitimer(timer, seconds)
        yield
    finally:
        for number, (timer, _) in timers.items():
            signal.setitimer(timer, 0)
            signal.signal(number, before[number])


def outcome(words):
    """The exit code of a command, or how it ended without one; stdout, stderr, and its warnings."""
    streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="replace") for _ in range(2)]
    with (
        warnings.catch_warnings(record=True) as given,
        contextlib.redirect_stdout(streams[0]),
        contextlib.redirect_stderr(streams[1]),
    ):
        warnings.simplefilter("always")
        try:
            code = main(words)
        except BaseException:
            code = traceback.format_exc()[-1500:]
    for stream in streams:
        stream.flush()
    out, err = (stream.buffer.getvalue().decode() for stream in streams)
    return code, out, err, [str(w.message) for w in given if issubclass(w.category, RuntimeWarning)]


def faults(words, folder):
    """Run a command; what is wrong with what it did, and with what it did to the files in a folder."""
    before = contents(folder)
    with limited():
        code, out, err, given = outcome(words)
    if code not in (0, 1, 2):
        return [f"ended with {code}"]
    lines = err.splitlines()
    complaints = [line for line in lines if line.startswith("robopolicy: ")]
    checks = {
        "warns": given,
        "must complain in one line, the last": code and complaints != lines[-1:],
        "complains, and ends with 0": complaints and not code,
        "says more than that": words[:1] not in [[talks] for talks in TALKS] and lines != complaints,
        "complains at too great length": any(len(line) > LONGEST for line in complaints),
        "shows its inside": INTERNAL.search(err + out),
        "prints control characters": not all(c.isprintable() or c == "\n" for c in out + err),
        "ran out of memory": "allocate" in err,
        "prints no JSON": "--json" in words and not code and not _is_json(out) and "--help" not in words,
        "lost or changed files": _lost(before, contents(folder), err),
    }
    return [f"{what} ({wrong}): {code} {err[-700:]!r}" for what, wrong in checks.items() if wrong]


def _is_json(text):
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _lost(before, after, err):
    """Files that were changed or taken away, but for what a run that says where it goes on may change."""
    lost = [path for path, was in before.items() if after.get(path, "nothing") != was]
    resumed = re.search(r"resuming at generation (\d+)", err)
    if resumed:
        # Later checkpoints may have moved, and later records are made again.
        lost = [path for path in lost if before[path] not in (None, *after.values())]
        lost = [
            path
            for path in lost
            if path.name != "metrics.jsonl"
            or not _records(before[path], int(resumed[1])) <= _records(after[path])
        ]
    return [str(path) for path in lost]


def _records(log, until=10**9):
    """The records of a log before generation `until`."""
    records = [json.loads(line) for line in log.decode().split("\n")[:-1]]
    return {json.dumps(record, sort_keys=True) for record in records if record["generation"] < until}


def copied(kind, words, sound, scratch):
    """A command line for what is sound but for FOLDER, a new copy in `scratch`, which held others before."""
    for left in scratch.iterdir():
        shutil.rmtree(left) if left.is_dir() else left.unlink()
    shutil.copytree(sound / kind, scratch / kind)
    named = {"FOLDER": str(scratch / kind), "SOUND": str(sound / kind)}
    return [re.sub("FOLDER|SOUND", lambda found: named[found[0]], word) for word in words]


def one(number, sound, scratch, reads, seed=0):
    """Damage something in `scratch`, use it; words for everything that went wrong."""
    rng = random.Random(f"{seed}/{number}")
    kind, words = rng.choice([(kind, words) for kind in sorted(reads) for words in reads[kind]])
    words = copied(kind, words, sound, scratch)
    if rng.random() < 0.2:
        words, where = changed_words(words, rng), "words"
    else:
        where = changed_folder(scratch / kind, rng)
        if kind == "bundle" and rng.random() < 0.7:
            with contextlib.suppress(OSError):
                resum(scratch / kind)
    said = " ".join(word[:100] for word in words)
    return [f"{seed}/{number} {kind}, {where}: {said!r}\n   {fault}" for fault in faults(words, scratch)]


def check(numbers, sound, scratch, reads):
    """Use what is sound, which imports all that is needed, and then what is damaged."""
    for kind, commands in reads.items():
        for words in commands:
            code, _, err, _ = outcome(copied(kind, words, sound, scratch))
            assert code == (2 if words[:2] == ("train", "bc") else 0), err
    wrong = [fault for number in numbers for fault in one(number, sound, scratch, reads)]
    assert not wrong, "\n".join(wrong)


def _make_sound(folder):
    shutil.copytree(SHIPPED / "stepping-stones-softmax", folder / "run")
    shutil.copytree(SHIPPED / "bimanual-sweep-angular", folder / "clone")
    config = json.loads((folder / "run" / "config.json").read_text())
    price = count_step(blank_policy(restore(config["policy"]))).summary()
    make_bundle(folder / "bundle", task=config["task"], policy=config["policy"], run=config, flops=price)


def _make_more(folder):
    _make_sound(folder)
    about = {**ABOUT, "task": "bimanual-sweep", "environment": {"engine": "mujoco", "balls": 3}}
    record(RecordingConfig(episodes=2), spec(), folder / "dataset-v0", about, workers=1)
    assert main([*TINY, "--out", str(folder / "tiny"), "--workers", "1"]) == 0


@pytest.fixture(scope="module")
def sound(once):
    """A folder with a sound one of everything that costs nothing to make."""
    return once("sound", _make_sound)


@pytest.fixture(scope="module")
def more(once):
    """The same, with a dataset and a run that is trained in seconds."""
    return once("more", _make_more)


@pytest.mark.slow
def test_damage_gives_a_right_result_or_one_line(sound, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    check(range(60), sound, tmp_path, READS)


@pytest.mark.parametrize(
    "part",
    [pytest.param(part, marks=pytest.mark.slow if part < 2 else pytest.mark.full) for part in range(4)],
)
def test_hundreds_of_cases_of_damage_give_a_right_result_or_one_line(part, more, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    reads = {kind: READS.get(kind, ()) + READS_LONGER.get(kind, ()) for kind in READS | READS_LONGER}
    check(range(110 * part, 110 * (part + 1)), more, tmp_path, reads)

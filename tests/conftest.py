"""For all tests."""

import atexit
import fcntl
import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest
from warm_converter import Converter

if "PYTEST_XDIST_WORKER" not in os.environ:
    # What commands keep in the user's cache folder is new for every run of the tests, whose workers share it.
    os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, os.environ["XDG_CACHE_HOME"], ignore_errors=True)
CONVERTER = Converter()
atexit.register(CONVERTER.end)
TESTS = Path(__file__).parent
LONGEST = (
    *("cli/test_fuzz.py", "cli/test_commands.py", "test_third_task.py", "docs/test_documented_python.py"),
    *("test_install.py", "cli/test_plan_command.py", "test_shipped.py", "docs/test_documented_commands.py"),
)


@pytest.hookimpl(tryfirst=True)  # before pytest selects by marks
def pytest_collection_modifyitems(items):
    """Mark all but the first case of `rest_slow` tests, and put files with the longest tests first.

    The order lets the workers of pytest-xdist end together.
    """
    quick = set()
    for item in items:
        is_quick = not any(map(item.get_closest_marker, ("slow", "full")))
        if item.get_closest_marker("rest_slow") and is_quick:
            test = item.nodeid.partition("[")[0]
            if test in quick:
                item.add_marker(pytest.mark.slow)
            quick.add(test)
    first = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: first.get(item.path.relative_to(TESTS).as_posix(), len(first)))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter):
    """The number of tests that lack PyBullet, in one line before the last."""
    result = yield
    from installed_engines import NO_BULLET

    number = sum(NO_BULLET in str(report.longrepr) for report in terminalreporter.getreports("skipped"))
    if number:
        terminalreporter.line(f"{number} tests of Bullet skipped: {NO_BULLET}")
    return result


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Policies are converted in one process, but for those of commands that have a process of their own."""
    if onnx := sys.modules.get("robopolicy.bundles.onnx"):
        onnx._converter = CONVERTER


@pytest.fixture(scope="session")
def shared(tmp_path_factory):
    """A folder that all workers of pytest-xdist share, and which is new for every run of the tests."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "shared"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def once(shared):
    """`once(name, make)` returns a folder that `make(folder)` fills once for all workers of pytest-xdist.

    Tests only read such a folder. What they change, they copy first.
    """

    def made(name, make):
        folder, done = shared / name, shared / f"{name}.done"
        with (shared / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not done.exists():
                shutil.rmtree(folder, ignore_errors=True)  # of a worker that failed
                folder.mkdir()
                make(folder)
                done.touch()
        return folder

    return made


@pytest.fixture
def fewer_plans(monkeypatch):
    """Plans are for one frame, and consider a few mechanisms of the many."""
    from robopolicy.experiments import planning
    from robopolicy.plan import families, measure

    monkeypatch.setattr(planning, "FRAMES", 1)
    for sizes in ("SIZES", "HYBRID_SIZES", "COEFFICIENT_SIZES"):
        monkeypatch.setattr(families, sizes, (8,))
    monkeypatch.setattr(families, "COUPLINGS", ("orthogonal",))
    monkeypatch.setattr(families, "POSITIVE_BASES", ("positive_antithetic",))
    monkeypatch.setattr(families, "PHASES", ())
    monkeypatch.setattr(measure, "DRAWS", 20)


@pytest.fixture
def full_disk(monkeypatch):
    """Redirects files of a name to /dev/full, which behaves like a full disk."""
    lock = fcntl.flock

    def of(name):
        def lock_and_fill(file, kind):
            lock(file, kind)
            folder = Path(file.name).parent
            if folder.name.startswith(f".{name}."):
                (folder / name).symlink_to("/dev/full")

        monkeypatch.setattr(fcntl, "flock", lock_and_fill)

    return of

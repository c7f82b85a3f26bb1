"""What works on this machine, what is missing, what is wrong, and what mends it."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any, NamedTuple

from robopolicy.doctor.checkups import ENGINES, ODD_NAMES, series

OK, ABSENT, WRONG = "ok", "absent", "wrong"
WORKSTATION = ("sim", "train", "tools")  # extras that are of use together; the others each by itself
LEFT_OUT = ("all",)
PATIENCE = 180.0  # s, for a series of checks
LEAST_DISK, LEAST_MEMORY = 1e9, 1e9  # bytes
MENDS = {
    "bullet": "pip install --force-reinstall pybullet; or give --engine mujoco",
    "mujoco": "pip install --force-reinstall mujoco; or give --engine bullet",
    "jax": "pip install --force-reinstall jax jaxlib flax",
    "ffmpeg": "pip install --force-reinstall imageio-ffmpeg",
    "mujoco pictures": "install OpenGL (apt-get install libegl1 libgl1), or libosmesa6 and set "
    "MUJOCO_GL=osmesa; with --engine bullet no OpenGL is needed",
}


class Finding(NamedTuple):
    """What was found.

    Attributes:
      area, name: what was looked at.
      state: ok, absent (an extra that nobody has asked for) or wrong.
      told: what there is to say.
      fix: a command or a sentence that mends it, or "".
    """

    area: str
    name: str
    state: str
    told: str
    fix: str = ""


Versions = Callable[[str], str | None]


def found_version(package: str) -> str | None:
    """What is installed of a package; None for nothing."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def examine() -> Iterator[Finding]:
    """Look at everything, part by part."""
    yield Finding("machine", "python", OK, f"{platform.python_version()} at {sys.executable}")
    yield from machine(Path.cwd())
    packages = list(packages_of(requires_of(), found_version))
    missing = {one.name for one in packages if one.state != OK}
    wanted = [one.name for one in packages if one.state == OK and one.area != "extras"]
    names = [f"imports={','.join(wanted)}", "jax", *ENGINES, "ffmpeg"]
    if "pybullet" in missing and sys.version_info >= (3, 12):
        names.remove("bullet")
    # Half of the cores: what is looked at uses several by itself.
    with ThreadPoolExecutor(max(1, (os.cpu_count() or 1) // 2)) as several:
        told = dict(zip(names, several.map(run_series, names), strict=True))
    broken = {one.name: one for one in told.pop(names[0]) if one.state == WRONG}
    yield from (_with_import(one, broken.get(one.name)) for one in packages)
    for findings in told.values():
        yield from findings


def requires_of() -> list[str]:
    """What robopolicy says that it needs; nothing where it was not installed but lies there."""
    try:
        return requires("robopolicy") or []
    except PackageNotFoundError:
        return []


def machine(folder: Path) -> Iterator[Finding]:
    """Cores, memory and disks."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    yield Finding("machine", "cores", OK, f"{cores} for this process")
    try:
        pages, size = (os.sysconf(name) for name in ("SC_AVPHYS_PAGES", "SC_PAGE_SIZE"))
        yield _enough("memory", pages * size, LEAST_MEMORY, "end other programs, or give fewer --workers")
    except (ValueError, OSError):  # a system that does not tell
        yield Finding("machine", "memory", OK, "this system does not tell")
    yield _disk("disk", folder)
    try:
        yield _disk("temporary", Path(tempfile.gettempdir()))
    except FileNotFoundError as error:
        fix = "set TMPDIR to a folder that can be written to"
        yield Finding("machine", "temporary", WRONG, error.strerror or str(error), fix)


def _disk(name: str, where: Path) -> Finding:
    free = shutil.disk_usage(where).free
    return _enough(name, free, LEAST_DISK, f"free some space on the disk of {where}", f" at {where}")


def _enough(name: str, found: float, least: float, fix: str, where: str = "") -> Finding:
    enough = found >= least
    told = f"{found / 1e9:.1f} GB free{where}"
    return Finding("machine", name, OK if enough else WRONG, told, "" if enough else fix)


def packages_of(requirements: Sequence[str], installed: Versions) -> Iterator[Finding]:
    """Every package that is required, and every extra of which nothing is needed here."""
    yield Finding("packages", "robopolicy", OK, f"{installed('robopolicy')} at {Path(__file__).parents[1]}")
    if not requirements:
        fix = "pip install 'robopolicy[all]', or in a checkout: pip install --editable '.[all]'"
        yield Finding(
            "packages", "requirements", WRONG, "robopolicy is not installed, it only lies here", fix
        )
        return
    try:
        from packaging.requirements import Requirement
    except ImportError as error:
        yield Finding("packages", "packaging", WRONG, str(error), "pip install packaging")
        return
    read = [Requirement(one) for one in requirements]
    yield from (_package(one, installed, "robopolicy") for one in read if _holds(one, ""))
    extras = sorted({extra for one in read for extra in _extras(one)} - {*WORKSTATION, *LEFT_OUT})
    for extra in (*WORKSTATION, *extras):
        own = [one for one in read if extra in _extras(one) and _holds(one, extra)]
        lacking = [one.name for one in own if installed(one.name) is None]
        if extra in WORKSTATION and len(lacking) < len(own):
            yield from (_package(one, installed, f"robopolicy[{extra}]") for one in own)
        elif lacking:
            told = f"lacks {', '.join(lacking)}"
            yield Finding("extras", extra, ABSENT, told, f"pip install 'robopolicy[{extra}]'")
        else:
            told = ", ".join(f"{one.name} {installed(one.name)}" for one in own)
            yield Finding("extras", extra, OK, told)


def _holds(requirement: Any, extra: str) -> bool:
    """Whether something is required here, with this extra or, for "", with none."""
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})


def _extras(requirement: Any) -> set[str]:
    """The extras in whose list a requirement stands."""
    return set(re.findall(r"extra == ['\"]([\w-]+)['\"]", str(requirement.marker or "")))


def _package(requirement: Any, installed: Versions, of: str) -> Finding:
    found = installed(requirement.name)
    if found is None:
        return Finding("packages", requirement.name, WRONG, "is not installed", f"pip install '{of}'")
    if not requirement.specifier.contains(found, prereleases=True):
        told = f"{found}, and {requirement.specifier} is needed"
        return Finding("packages", requirement.name, WRONG, told, f"pip install --upgrade '{of}'")
    return Finding("packages", requirement.name, OK, found)


def _with_import(package: Finding, broken: Finding | None) -> Finding:
    """What is installed may still not work."""
    if broken is None:
        return package
    told = f"{package.told}, and cannot be imported: {broken.told}"
    fix = _mended(broken.told, f"pip install --force-reinstall {package.name}")
    return package._replace(state=WRONG, told=told, fix=fix)


def _mended(error: str, otherwise: str) -> str:
    """What mends an error: the package that it misses, where it misses one."""
    missed = re.search(r"No module named '(\w+)|needs the package (\w+)", error)
    if missed is None:
        return otherwise
    name = missed[1] or missed[2]
    by_module = {module.partition(".")[0]: package for package, module in ODD_NAMES.items()}
    return f"pip install --force-reinstall {by_module.get(name, name)}"


def run_series(name: str) -> list[Finding]:
    """Make a series of checks in a process of its own; what ends that is what its next check found."""
    area = name.partition("=")[0]
    command = [sys.executable, "-m", "robopolicy.doctor.checkups", name]
    try:
        run = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=PATIENCE)
        out, ended = run.stdout, _ended(run.returncode, run.stderr)
    except subprocess.TimeoutExpired as error:
        out = (error.stdout or b"").decode(errors="replace")
        ended = f"it took longer than {PATIENCE:g} s"
    answers = {}
    for line in out.splitlines():
        told = json.loads(line)
        answers[told["name"]] = told
    findings = []
    for check in series(name):
        told = answers.get(check, {"told": "", "wrong": ended})
        if told["wrong"]:
            fix = _mended(told["wrong"], MENDS.get(f"{area} {check}", MENDS.get(area, "")))
            findings.append(Finding(area, check, WRONG, told["wrong"], fix))
        else:
            findings.append(Finding(area, check, OK, told["told"]))
    return findings


def _ended(code: int, stderr: str) -> str:
    if code < 0:
        return f"it was ended by {signal.Signals(-code).name}"
    last = [line for line in stderr.splitlines() if line.strip()][-1:]
    return last[0].strip() if last else f"it ended with code {code}"


def words(findings: Iterable[Finding]) -> str:
    """All of them, area by area; what is wrong once more at the end, with what mends it."""
    findings = list(findings)
    lines: list[str] = []
    width = max(len(one.name) for one in findings)
    for area in dict.fromkeys(one.area for one in findings):
        lines.append(area)
        for one in findings:
            if one.area == area:
                mark = {OK: " ", ABSENT: "-", WRONG: "!"}[one.state]
                fix = f"; {one.fix}" if one.state == ABSENT else ""
                lines.append(f" {mark} {one.name.ljust(width)}  {one.told}{fix}".rstrip())
    wrong = [one for one in findings if one.state == WRONG]
    lines += ["", f"{len(wrong)} wrong" if wrong else "nothing is wrong"]
    for fix in dict.fromkeys(one.fix for one in wrong):
        first, *others = [one for one in wrong if one.fix == fix]
        lines.append(f" ! {first.area}, {first.name}: {first.told}")
        if others:
            lines.append(f"   so, too: {', '.join(f'{one.area} {one.name}' for one in others)}")
        lines.append(f"   mended by: {fix}")
    return "\n".join(lines)


def told(findings: Iterable[Finding]) -> str:
    """All of them, as JSON."""
    rows = [one._asdict() for one in findings]
    return json.dumps({"sound": all(row["state"] != WRONG for row in rows), "findings": rows})


def report(as_json: bool) -> int:
    """Look, print; the exit code."""
    findings = list(examine())
    print(told(findings) if as_json else words(findings))
    return 1 if any(one.state == WRONG for one in findings) else 0

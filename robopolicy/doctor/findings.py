"""Finds out what works on this machine, what is missing, what is broken, and how to fix it."""

from __future__ import annotations

import json
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

from robopolicy.doctor import advice
from robopolicy.doctor.checkups import ENGINES, MODULE_NAMES, OPTIONAL, PACKAGES, series
from robopolicy.reading_json import parse_json_lines
from robopolicy.training.capacity import cores, machine_memory

OK, ABSENT, WRONG = "ok", "absent", "wrong"
WORKSTATION = ("sim", "train", "tools")  # extras that are installed together
IGNORED_EXTRAS = ("all",)
TIMEOUT = 180.0  # s, for a series of checks
LEAST_DISK, LEAST_MEMORY = 1e9, 1e9  # bytes


class Finding(NamedTuple):
    """The result of one check.

    Attributes:
      area, name: the check.
      state: "ok", "absent" (an extra, or OpenGL, that is not here) or "wrong".
      detail: a version, a device or an error.
      fix: a command or a sentence that fixes it, or "".
    """

    area: str
    name: str
    state: str
    detail: str
    fix: str = ""


Versions = Callable[[str], str | None]


def installed_version(package: str) -> str | None:
    """The installed version of a package; None if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def examine() -> Iterator[Finding]:
    """Run all checks."""
    yield Finding("machine", "python", OK, f"{platform.python_version()} at {sys.executable}")
    yield from machine(Path.cwd())
    requirements = requires("robopolicy") if installed_version("robopolicy") else None
    packages = list(packages_of(requirements or [], installed_version))
    importable = [one.name for one in packages if one.state == OK]
    needed = {"jax": "jax", **{name: PACKAGES[name] for name in ENGINES}, "ffmpeg": "imageio-ffmpeg"}
    installed = [name for name, package in needed.items() if installed_version(package)]
    names = [f"imports={','.join(importable)}", *installed]
    # Half of the cores, since a check may use several.
    with ThreadPoolExecutor(max(1, cores() // 2)) as pool:
        results = dict(zip(names, pool.map(run_series, names), strict=True))
    broken = {one.name: one for one in results.pop(names[0]) if one.state == WRONG}
    for one in packages:
        if one.name in broken:
            error = broken[one.name].detail
            fix = _fix_for(error, advice.install(one.name, again=True))
            detail = f"{one.detail}, and cannot be imported: {error}"
            yield one._replace(state=WRONG, detail=detail, fix=fix)
        else:
            yield one
    for findings in results.values():
        yield from findings


def machine(folder: Path) -> Iterator[Finding]:
    """Check cores, memory, and the disks of `folder` and of temporary files."""
    yield Finding("machine", "cores", OK, f"{cores()} for this process")
    try:  # free pages alone would count neither files that Linux forgets on demand nor a container's limit
        (available,) = re.findall(r"MemAvailable: +(\d+) kB", Path("/proc/meminfo").read_text())
        free = min(1024 * int(available), machine_memory())
        yield _space("memory", free, LEAST_MEMORY, "end other programs, or use fewer --workers")
    except (ValueError, OSError):  # a system without this file
        yield Finding("machine", "memory", OK, "unknown on this system")
    for name, find in (("disk", lambda: str(folder)), ("temporary", tempfile.gettempdir)):
        try:
            where = find()
        except FileNotFoundError as error:
            fix = "set TMPDIR to a folder that can be written to"
            yield Finding("machine", name, WRONG, error.strerror or str(error), fix)
        else:
            fix = f"free some space on the disk of {where}"
            yield _space(name, shutil.disk_usage(where).free, LEAST_DISK, fix, f" at {where}")


def _space(name: str, free: float, least: float, fix: str, where: str = "") -> Finding:
    detail = f"{free / 1e9:.1f} GB free{where}"
    return Finding("machine", name, *((OK, detail, "") if free >= least else (WRONG, detail, fix)))


def packages_of(requirements: Sequence[str], installed: Versions) -> Iterator[Finding]:
    """Check every required package, and every extra: as one if it is missing, else by package.

    `installed` maps a package to its version or None.
    """
    yield Finding("packages", "robopolicy", OK, f"{installed('robopolicy')} at {Path(__file__).parents[1]}")
    if not requirements:
        detail = "robopolicy runs from a folder in which it is not installed"
        yield Finding("packages", "requirements", WRONG, detail, advice.install_checkout())
        return
    try:
        from packaging.requirements import Requirement
    except ImportError as error:
        yield Finding("packages", "packaging", WRONG, str(error), advice.install("packaging"))
        return
    parsed = [Requirement(one) for one in requirements]
    yield from (_package(one, installed) for one in parsed if _applies(one, ""))
    extras = sorted({extra for one in parsed for extra in _extras(one)} - {*WORKSTATION, *IGNORED_EXTRAS})
    for extra in (*WORKSTATION, *extras):
        own = [one for one in parsed if extra in _extras(one) and _applies(one, extra)]
        missing = [one for one in own if installed(one.name) is None]
        if not own:
            yield Finding("extras", extra, ABSENT, f"has no package for {advice.machine()}")
        elif extra in WORKSTATION and len(missing) < len(own):
            yield from (_package(one, installed) for one in own)
        elif missing:
            detail = f"lacks {', '.join(one.name for one in missing)}"
            yield Finding("extras", extra, ABSENT, detail, _install(*missing))
        else:
            yield from (_package(one, installed)._replace(area="extras") for one in own)


def _applies(requirement: Any, extra: str) -> bool:
    """Whether a requirement applies on this machine, with this extra or, for "", without any."""
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})


def _extras(requirement: Any) -> set[str]:
    """The extras that a requirement belongs to."""
    return set(re.findall(r"extra == ['\"]([\w-]+)['\"]", str(requirement.marker or "")))


def _install(*requirements: Any) -> str:
    """The command that installs the requirements."""
    return advice.install(*(f"{one.name}{one.specifier}" for one in requirements))


def _package(requirement: Any, installed: Versions) -> Finding:
    current = installed(requirement.name)
    if current is None:
        return Finding("packages", requirement.name, WRONG, "is not installed", _install(requirement))
    if not requirement.specifier.contains(current, prereleases=True):
        detail = f"{current}, and {requirement.specifier} is needed"
        return Finding("packages", requirement.name, WRONG, detail, _install(requirement))
    return Finding("packages", requirement.name, OK, current)


def _fix_for(error: str, default: str) -> str:
    """The command that installs the library or requirement that an error names as missing, or `default`."""
    if fix := advice.for_error(error):
        return fix
    match = re.search(r"No module named '(\w+)|needs the package (\w+)", error)
    name = (match[1] or match[2]) if match else ""
    by_module = {module.partition(".")[0]: package for package, module in MODULE_NAMES.items()}
    package = by_module.get(name, name)
    if package == "pybullet" and not advice.has_bullet_wheel():
        return default
    known = requires("robopolicy") if installed_version("robopolicy") else None
    # A module may have another name than its package, which reinstalling the default brings.
    is_ours = any(re.match(rf"{re.escape(package)}\b(?!-)", one, re.IGNORECASE) for one in known or [package])
    return advice.install(package, again=True) if package and is_ours else default


def run_series(name: str) -> list[Finding]:
    """Run a series of checks in a process of its own. If the process ends early, its other checks fail."""
    area = name.partition("=")[0]
    command = [sys.executable, "-P", "-m", "robopolicy.doctor.checkups", name]
    try:
        run = subprocess.run(command, capture_output=True, timeout=TIMEOUT)
        out, reason = run.stdout, _exit_reason(run.returncode, run.stderr.decode(errors="replace"))
    except subprocess.TimeoutExpired as error:
        out, reason = error.stdout or b"", f"it took longer than {TIMEOUT:g} s"
    lines = parse_json_lines(out, f"the output of the checks {name!r}")
    results = {result["name"]: result for result in lines}
    findings = []
    for check in series(name):
        result = results.get(check, {"wrong": reason})
        if result["wrong"]:
            others = [one for one in ENGINES if one != area and installed_version(PACKAGES[one])]
            fix = _fix_for(result["wrong"], advice.for_check(area, check, others))
            state = ABSENT if check in OPTIONAL else WRONG
            findings.append(Finding(area, check, state, result["wrong"], fix))
        else:
            findings.append(Finding(area, check, OK, result["result"]))
    return findings


def _exit_reason(code: int, stderr: str) -> str:
    if code < 0:
        return f"it was ended by {signal.Signals(-code).name}"
    last = [line for line in stderr.splitlines() if line.strip()][-1:]
    return last[0].strip() if last else f"it ended with code {code}"


def as_text(findings: Iterable[Finding]) -> str:
    """All findings by area, and at the end a summary of the wrong ones with their fixes."""
    findings = list(findings)
    lines: list[str] = []
    width = max(len(one.name) for one in findings)
    for area in dict.fromkeys(one.area for one in findings):
        lines.append(area)
        for one in findings:
            if one.area == area:
                mark = {OK: " ", ABSENT: "-", WRONG: "!"}[one.state]
                fix = f"; {one.fix}" if one.state == ABSENT and one.fix else ""
                lines.append(f" {mark} {one.name.ljust(width)}  {one.detail}{fix}".rstrip())
    wrong = [one for one in findings if one.state == WRONG]
    lines += ["", f"{len(wrong)} wrong" if wrong else "nothing is wrong"]
    for fix in dict.fromkeys(one.fix for one in wrong):
        first, *others = [one for one in wrong if one.fix == fix]
        lines.append(f" ! {first.area}, {first.name}: {first.detail}")
        if others:
            lines.append(f"   also: {', '.join(f'{one.area} {one.name}' for one in others)}")
        if fix:
            lines.append(f"   fix: {fix}")
    return "\n".join(lines)


def as_json(findings: Iterable[Finding]) -> str:
    """All findings as JSON."""
    rows = [one._asdict() for one in findings]
    return json.dumps({"sound": all(row["state"] != WRONG for row in rows), "findings": rows})


def report(json_output: bool) -> int:
    """Run all checks and print the findings. Returns the exit code: 1 if something is wrong."""
    findings = list(examine())
    print(as_json(findings) if json_output else as_text(findings))
    return 1 if any(one.state == WRONG for one in findings) else 0

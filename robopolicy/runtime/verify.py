"""Whether a bundle does on this machine what it did where it was made, and in time."""

from __future__ import annotations

import platform
import re
import resource
import sys
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnxruntime

from robopolicy.runtime.bundle import open_bundle
from robopolicy.runtime.golden import read_golden
from robopolicy.runtime.policy import Policy

CALLS, MOST_CALLS = 10_000, 10_000_000
WARM_UP = 20
SHOWN = 4 * 2**20  # bytes of observations that take turns in timing: more would not fit on every robot


class Verdict(NamedTuple):
    """How a bundle did.

    Attributes:
      observations: golden vectors played.
      differences, tolerances: largest absolute difference of each output, and what it may be.
      calls: how many were timed; latency: s, of the median, the 99th percentile and the worst.
      control_period, deadline: s; a command that comes later than the deadline is of no use.
      memory: bytes resident at most, of this process.
      machine: what it ran on.
    """

    observations: int
    differences: dict[str, float]
    tolerances: dict[str, float]
    calls: int
    latency: dict[str, float]
    control_period: float
    deadline: float
    memory: int
    machine: dict[str, str]

    @property
    def same(self) -> bool:
        """Whether it gives the recorded outputs."""
        return all(self.differences[name] <= most for name, most in self.tolerances.items())

    @property
    def in_time(self) -> bool:
        """Whether 99 of 100 calls end before the deadline."""
        return self.latency["p99"] <= self.deadline

    def told(self) -> dict[str, Any]:
        """All of it as JSON holds it."""
        return {**self._asdict(), "same": self.same, "in_time": self.in_time}

    def words(self) -> str:
        """All of it as a person reads it."""
        differences = ", ".join(
            f"{name} {found:.1e} (may be {self.tolerances[name]:.0e})"
            for name, found in self.differences.items()
        )
        times = ", ".join(f"{name} {1e3 * value:.2f} ms" for name, value in self.latency.items())
        if not self.same:
            verdict = "it does not do what it did where it was made: do not run it"
        elif not self.in_time:
            verdict = "it is too slow for this machine"
        else:
            verdict = (
                f"fit to run here: 99 of 100 calls take {self.latency['p99'] / self.deadline:.1%} of the "
                f"deadline or less, {self.latency['p99'] / self.control_period:.1%} of the control period"
            )
        return (
            f"{self.observations} golden vectors, largest differences: {differences}\n"
            f"{self.calls} calls on one thread: {times}; the control period is "
            f"{1e3 * self.control_period:g} ms, the deadline {1e3 * self.deadline:g} ms\n"
            f"memory: {self.memory / 1e6:.0f} MB resident at most\n"
            f"{verdict}"
        )


def verify(
    folder: str | Path, calls: int = CALLS, on_part: Callable[[str], None] = lambda _: None
) -> Verdict:
    """Play the golden vectors, time `calls` calls; `on_part` is told what is going on.

    Raises ValueError for no calls or too many, BundleError or FileNotFoundError for what is no sound bundle,
    ArithmeticError where the policy gives numbers out of its limits.
    """
    if not 1 <= calls <= MOST_CALLS:
        raise ValueError(f"calls is {calls}: it must be from 1 to {MOST_CALLS}")
    bundle = open_bundle(folder)
    policy, manifest = Policy(bundle), bundle.manifest
    bundle = bundle._replace(graph=b"")  # which the policy has, and is not to count twice as memory
    on_part(f"playing {manifest.observations} golden vectors")
    differences = dict.fromkeys(manifest.outputs, 0.0)
    for observation, recorded in read_golden(bundle):
        for name, found in policy.run(observation).items():
            off = float(np.abs(found.astype(np.float64) - recorded[name]).max())
            # A recorded number that is none would otherwise never count as a difference.
            differences[name] = max(differences[name], off if off == off else float("inf"))
    on_part(f"timing {calls} calls")
    each = sum(value.size for value in manifest.inputs.values())
    some = islice(read_golden(bundle), max(1, SHOWN // each))
    latencies = _latencies(policy, [seen for seen, _ in some], calls)
    return Verdict(
        manifest.observations,
        differences,
        manifest.tolerances,
        calls,
        {
            "p50": float(np.quantile(latencies, 0.5)),
            "p99": float(np.quantile(latencies, 0.99)),
            "max": float(latencies.max()),
        },
        manifest.control_period,
        manifest.deadline,
        resident(),
        {
            "processor": platform.machine(),
            "system": platform.system(),
            "python": platform.python_version(),
            "onnxruntime": onnxruntime.__version__,
        },
    )


def _latencies(policy: Policy, observations: list[Any], calls: int) -> np.ndarray:
    for number in range(WARM_UP):
        policy.act(observations[number % len(observations)])
    found = np.empty(calls)
    for number in range(calls):
        observation = observations[number % len(observations)]
        began = time.perf_counter()
        policy.act(observation)
        found[number] = time.perf_counter() - began
    return found


def resident() -> int:
    """Bytes that this process held in memory at most."""
    status = Path("/proc/self/status")
    if status.exists():  # what getrusage tells on Linux began with the process that started this one
        told = re.search(r"VmHWM:\s*(\d+) kB", status.read_text())
        if told is not None:
            return 1024 * int(told[1])
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else 1024 * most

"""Checks a bundle on this machine: outputs equal to the recorded ones, and latency within the deadline."""

from __future__ import annotations

import platform
import re
import resource
import sys
import time
from collections.abc import Callable
from itertools import cycle, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from robopolicy.runtime.bundle import open_bundle
from robopolicy.runtime.golden import largest_differences, read_golden
from robopolicy.runtime.policy import BundlePolicy
from robopolicy.runtime.robot import percentiles
from robopolicy.settings import check_count

CALLS, MOST_CALLS = 10_000, 10_000_000
WARM_UP = 20
TIMED_BYTES = 4 * 2**20  # of the observations that timing repeats; all may not fit in a robot's memory


class Verdict(NamedTuple):
    """Results of `verify`.

    Attributes:
      observations: number of golden vectors.
      differences: largest absolute difference of each output; tolerances: its limit.
      calls: number of timed calls; latency: median, 99th percentile and maximum, s.
      control_period, deadline: s; a command after the deadline is useless.
      memory: peak resident memory of this process, bytes.
      machine: processor, operating system, versions.
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
        """Whether all outputs are within their tolerances."""
        return all(self.differences[name] <= most for name, most in self.tolerances.items())

    @property
    def in_time(self) -> bool:
        """Whether 99 % of the calls end before the deadline."""
        return self.latency["p99"] <= self.deadline

    def as_dict(self) -> dict[str, Any]:
        """The verdict for JSON."""
        return {**self._asdict(), "same": self.same, "in_time": self.in_time}

    def as_text(self) -> str:
        """The verdict for a terminal."""
        differences = ", ".join(
            f"{name} {difference:.1e} (limit {self.tolerances[name]:.0e})"
            for name, difference in self.differences.items()
        )
        times = ", ".join(f"{name} {1e3 * value:.2f} ms" for name, value in self.latency.items())
        if not self.same:
            verdict = "its outputs differ from the recorded ones: do not run it"
        elif not self.in_time:
            verdict = "it is too slow on this machine"
        else:
            verdict = (
                f"fit to run here: 99 % of the calls take at most {self.latency['p99'] / self.deadline:.1%} "
                f"of the deadline, {self.latency['p99'] / self.control_period:.1%} of the control period"
            )
        return (
            f"{self.observations} golden vectors, largest differences: {differences}\n"
            f"{self.calls} calls on one thread: {times}; the control period is "
            f"{1e3 * self.control_period:g} ms, the deadline {1e3 * self.deadline:g} ms\n"
            f"peak resident memory: {self.memory / 1e6:.0f} MB\n"
            f"{verdict}"
        )


def verify(
    folder: str | Path, calls: int = CALLS, on_progress: Callable[[str], None] = lambda _: None
) -> Verdict:
    """Compare a bundle's outputs with its golden vectors, and time `calls` calls.

    `on_progress` is called with a short text before each stage. Raises ValueError for `calls` out of range,
    BundleError or FileNotFoundError for a bad bundle, ArithmeticError if an output is out of its limits.
    """
    check_count("calls", calls, 1, MOST_CALLS)
    bundle = open_bundle(folder)
    policy, manifest = BundlePolicy(bundle), bundle.manifest
    bundle = bundle._replace(graph=b"")  # frees a copy, which would count as memory
    on_progress(f"playing {manifest.observations} golden vectors")
    differences = largest_differences(policy.replay(), read_golden(bundle))
    on_progress(f"timing {calls} calls")
    each = sum(value.size for value in manifest.inputs.values())
    some = islice(read_golden(bundle), max(1, TIMED_BYTES // each))
    latency = percentiles(_latencies(policy, [observation for observation, _ in some], calls))
    return Verdict(
        manifest.observations,
        differences,
        manifest.tolerances,
        calls,
        latency,
        manifest.control_period,
        manifest.deadline,
        peak_resident(),
        {
            "processor": platform.machine(),
            "system": platform.system(),
            "python": platform.python_version(),
            "onnxruntime": onnxruntime.__version__,
        },
    )


def _latencies(policy: BundlePolicy, observations: list[Any], calls: int) -> NDArray[np.float64]:
    seconds = np.empty(WARM_UP + calls)
    for number, (row, observation) in zip(range(len(seconds)), cycle(enumerate(observations)), strict=False):
        if row == 0 or row in policy.manifest.begins:
            policy.reset()
        began = time.perf_counter()
        policy.act(observation)
        seconds[number] = time.perf_counter() - began
    return seconds[WARM_UP:]


def peak_resident() -> int:
    """Peak resident memory of this process, bytes."""
    status = Path("/proc/self/status")
    if status.exists():  # on Linux, ru_maxrss includes the parent process before exec
        peak = re.search(r"VmHWM:\s*(\d+) kB", status.read_text())
        if peak is not None:
            return 1024 * int(peak[1])
    maximum = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return maximum if sys.platform == "darwin" else 1024 * maximum

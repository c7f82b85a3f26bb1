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

from robopolicy.naming import one_of
from robopolicy.runtime.bundle import C_SOURCE, open_bundle
from robopolicy.runtime.compiled import outputs_digest
from robopolicy.runtime.compiler import compiler, footprint
from robopolicy.runtime.golden import Arrays, kept, largest_differences, read_golden
from robopolicy.runtime.policy import ONNX, RUNTIMES, BundlePolicy, C
from robopolicy.runtime.robot import percentiles
from robopolicy.settings import check_count

CALLS, MOST_CALLS = 10_000, 10_000_000
WARM_UP = 20
TIMED_BYTES = 4 * 2**20  # of the observations that timing repeats; all may not fit in a robot's memory


class Compiled(NamedTuple):
    """What `verify` finds for a bundle's C files; `Verdict` has their outputs and latency.

    Attributes:
      compiler: its command.
      outputs: SHA-256 of all outputs; expected: that of the manifest, or None.
      from_onnx: largest absolute difference of each output from onnxruntime's.
      onnx_latency: of onnxruntime, in turns with C, s.
      code: of instructions and constants at -O2; stack: of a step; None where the compiler does not tell.
      work, state, readings: memory that the caller provides. All sizes in bytes.
    """

    compiler: str
    outputs: str
    expected: str | None
    from_onnx: dict[str, float]
    onnx_latency: dict[str, float]
    code: int | None
    stack: int | None
    work: int
    state: int
    readings: int

    def as_text(self, latency: dict[str, float]) -> str:
        """Lines for a terminal; `latency` is that of C."""
        ratios = ", ".join(
            f"{name} {1e3 * value:.2f} ms, {value / latency[name]:.1f} times that of C"
            for name, value in self.onnx_latency.items()
        )
        proof = {None: "no hash in the manifest to compare with", self.outputs: "as in the manifest"}
        differences = ", ".join(f"{name} {value:.1e}" for name, value in self.from_onnx.items())
        code, stack = (
            "unknown" if size is None else f"{size / 1e3:.1f} kB" for size in (self.code, self.stack)
        )
        return (
            f"C compiled by {self.compiler}, largest differences from onnxruntime: {differences}\n"
            f"SHA-256 of all outputs: {self.outputs[:16]}..., "
            f"{proof.get(self.expected, f'in the manifest {str(self.expected)[:16]}...')}\n"
            f"onnxruntime in turns with it: {ratios}\n"
            f"code {code}, stack {stack}, work memory {self.work / 1e3:.1f} kB, readings "
            f"{self.readings / 1e3:.1f} kB, state {self.state / 1e3:.1f} kB\n"
        )


class Verdict(NamedTuple):
    """Results of `verify`.

    Attributes:
      observations: number of golden vectors.
      differences: largest absolute difference of each output; tolerances: its limit.
      calls: number of timed calls; latency: median, 99th percentile and maximum, s.
      control_period, deadline: s; a command after the deadline is useless.
      memory: peak resident memory of this process, bytes.
      machine: processor, operating system, versions.
      c: what `verify` with the runtime c adds, else None.
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
    c: Compiled | None = None

    @property
    def same(self) -> bool:
        """Whether all outputs are within their tolerances, and have the manifest's hash if it has one."""
        within = all(self.differences[name] <= most for name, most in self.tolerances.items())
        return within and (self.c is None or self.c.expected in (None, self.c.outputs))

    @property
    def in_time(self) -> bool:
        """Whether 99 % of the calls end before the deadline."""
        return self.latency["p99"] <= self.deadline

    def as_dict(self) -> dict[str, Any]:
        """The verdict for JSON."""
        c = None if self.c is None else self.c._asdict()
        return {**self._asdict(), "c": c, "same": self.same, "in_time": self.in_time}

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
            f"{'' if self.c is None else self.c.as_text(self.latency)}"
            f"{verdict}"
        )


def verify(
    folder: str | Path,
    calls: int = CALLS,
    on_progress: Callable[[str], None] = lambda _: None,
    runtime: str = ONNX,
) -> Verdict:
    """Compare a bundle's outputs with its golden vectors, and time `calls` calls.

    With the `runtime` c it compiles the C files, and compares them with onnxruntime, too. `on_progress` is
    called with a short text before each stage. Raises ValueError for `calls` or `runtime` out of range,
    BundleError or FileNotFoundError for a bad bundle, CompilerError without a compiler or if it fails,
    ArithmeticError if an output is out of its limits.
    """
    check_count("calls", calls, 1, MOST_CALLS)
    one_of("runtime", runtime, RUNTIMES)
    bundle = open_bundle(folder)
    if runtime == C:
        on_progress(f"compiling {C_SOURCE}")
    policy, manifest = BundlePolicy(bundle, runtime), bundle.manifest
    other = BundlePolicy(bundle) if runtime == C else None
    sources = dict(bundle.c_files)
    bundle = bundle._replace(graph=b"", c_files={})  # frees copies, which would count as memory
    on_progress(f"playing {manifest.observations} golden vectors")
    made = list[Arrays]()
    play = policy.replay() if other is None else kept(policy.replay(), made)
    differences = largest_differences(play, read_golden(bundle))
    from_onnx = {}
    if other is not None:
        pairs = zip((observation for observation, _ in read_golden(bundle)), made, strict=True)
        from_onnx = largest_differences(other.replay(), pairs)
    on_progress(f"timing {calls} calls")
    each = sum(value.size for value in manifest.inputs.values())
    some = islice(read_golden(bundle), max(1, TIMED_BYTES // each))
    policies = [policy] if other is None else [policy, other]
    latency, *others = map(percentiles, _latencies(policies, [observation for observation, _ in some], calls))
    compiled = None
    if runtime == C:
        size, found = footprint(sources), policy.c_sizes
        compiled = Compiled(
            *(" ".join(compiler()), outputs_digest(manifest, made), manifest.c_outputs, from_onnx, others[0]),
            *(size.code, size.stack, found["work"], found["state"], found["readings"]),
        )
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
        compiled,
    )


def _latencies(policies: list[BundlePolicy], observations: list[Any], calls: int) -> NDArray[np.float64]:
    """Seconds of each call of each policy, which take turns."""
    seconds = np.empty((len(policies), WARM_UP + calls))
    for number, (row, observation) in zip(
        range(WARM_UP + calls), cycle(enumerate(observations)), strict=False
    ):
        for place, policy in enumerate(policies):
            if row == 0 or row in policy.manifest.begins:
                policy.reset()
            began = time.perf_counter()
            policy.act(observation)
            seconds[place, number] = time.perf_counter() - began
    return seconds[:, WARM_UP:]


def peak_resident() -> int:
    """Peak resident memory of this process, bytes."""
    status = Path("/proc/self/status")
    if status.exists():  # on Linux, ru_maxrss includes the parent process before exec
        peak = re.search(r"VmHWM:\s*(\d+) kB", status.read_text())
        if peak is not None:
            return 1024 * int(peak[1])
    maximum = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return maximum if sys.platform == "darwin" else 1024 * maximum

"""Golden vectors: what a policy sees when it acts, and what it makes of it, recorded by several processes."""

from __future__ import annotations

import os
from contextlib import closing
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from robopolicy.bundles.bundle import Recording
from robopolicy.bundles.outputs import Units, outputs
from robopolicy.policies.base import unflatten
from robopolicy.policies.catalogue import by_path, describe, policy_of, restore
from robopolicy.policies.policy import Policy
from robopolicy.training.pool import Processes
from robopolicy.training.worker import EnvironmentSpec, words

FIRST_SEED = 20_000  # of the episodes that observations are recorded in
PARTS = 8  # recorded side by side, each from an episode of its own
DEADLINE = 600.0  # s, for a part

Arrays = dict[str, NDArray[Any]]


class Part(NamedTuple):
    """A part of the recording: `size` observations of the episodes of `seed` and every `PARTS`th after it."""

    seed: int
    size: int


class Told(NamedTuple):
    """A policy as a process is told of it: as it is written down, with the units of what goes in and out."""

    description: dict[str, Any]
    features: Arrays
    parameters: NDArray[np.float32]
    clips: dict[str, tuple[float, float]]
    scale: tuple[float, ...]


def record_golden(trained: Policy, environment: EnvironmentSpec, units: Units, count: int) -> Recording:
    """`count` observations of the policy at work, with its outputs; the same whatever the number of cores.

    Raises RuntimeError where a part fails.
    """
    told = Told(
        describe(trained.config),
        by_path(trained.features),
        trained.parameters,
        dict(units.clips),
        units.scale,
    )
    parts = min(PARTS, count)
    waiting = [Part(FIRST_SEED + k, count // parts + (k < count % parts)) for k in range(parts)]
    starts = dict(
        zip([part.seed for part in waiting], np.cumsum([0, *(p.size for p in waiting)]), strict=False)
    )
    whole: tuple[Arrays, Arrays] = ({}, {})
    recorded = 0
    workers = min(os.cpu_count() or 1, parts)
    with closing(Processes(_serve, (environment, told), workers, DEADLINE)) as processes:
        playing: dict[int, Part] = {}
        while recorded < count:
            for place in processes.free():
                if waiting:
                    playing[place] = waiting.pop(0)
                    processes.start(place, playing[place])
            for place, answer in processes.finished():
                if isinstance(answer, str):
                    raise RuntimeError(f"recording observations failed: {answer}")
                part = playing.pop(place)
                _put(whole, answer, starts[part.seed], count)
                recorded += part.size
    about = {
        "observations": count,
        "seeds": f"{FIRST_SEED} to {FIRST_SEED + parts - 1}, and on by {PARTS} where an episode ends early",
        "environment": {"id": environment.id, **environment.settings},
    }
    return Recording(*whole, about)


def _put(whole: tuple[Arrays, Arrays], part: tuple[Arrays, Arrays], start: int, count: int) -> None:
    """Put the arrays of a part into those of `count` rows; all of them at once may be most of the memory."""
    for into, arrays in zip(whole, part, strict=True):
        for name, array in arrays.items():
            if name not in into:
                into[name] = np.empty((count, *array.shape[1:]), array.dtype)
            into[name][start : start + len(array)] = array


def _serve(connection: Connection[Any, Any], environment: EnvironmentSpec, told: Told) -> None:
    """Record every part on `connection`; answers are observations and outputs, or the words of an error."""
    # One thread a process, so that results do not depend on how many there are.
    flags = os.environ.get("XLA_FLAGS", "")
    os.environ["XLA_FLAGS"] = f"{flags} --xla_cpu_multi_thread_eigen=false"
    jax.config.update("jax_platforms", "cpu")
    recorder = None
    while True:
        try:
            part: Part = connection.recv()
        except (EOFError, OSError):  # the exporter is gone, or done
            break
        answer: tuple[Arrays, Arrays] | str
        try:
            recorder = recorder or _Recorder(environment, told)
            answer = recorder.record(part)
        except Exception as error:  # whatever an environment raises is the exporter's to report
            answer = words(error)
        try:
            connection.send(answer)
        except OSError:  # as above
            break


class _Recorder:
    def __init__(self, environment: EnvironmentSpec, told: Told) -> None:
        policy, features = policy_of(restore(told.description), told.features)
        compute = jax.jit(outputs(policy, Units(told.clips, told.scale)))
        tree = unflatten(policy)(told.parameters)
        self._names = list(policy.observation)
        self._compute = lambda seen: jax.device_get(compute(tree, features, seen))
        self._env = environment.make()

    def record(self, part: Part) -> tuple[Arrays, Arrays]:
        seed, done = part.seed, True
        seen: dict[str, list[NDArray[Any]]] = {name: [] for name in self._names}
        made: dict[str, list[NDArray[np.float32]]] = {}
        observation: Any = None
        for _ in range(part.size):
            if done:
                observation, _ = self._env.reset(seed=seed)
                seed += PARTS
            now = {name: observation[name] for name in self._names}
            outputs = self._compute(now)
            for kept, arrays in ((seen, now), (made, outputs)):
                for name, array in arrays.items():
                    kept.setdefault(name, []).append(array)
            observation, _, ended, cut, _ = self._env.step(outputs["action"])
            done = ended or cut
        return _stacked(seen), _stacked(made)


def _stacked(kept: dict[str, list[NDArray[Any]]]) -> Arrays:
    return {name: np.stack(rows) for name, rows in kept.items()}

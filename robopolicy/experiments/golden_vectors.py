"""Golden vectors: observations of a policy at work and its outputs, recorded by several processes."""

from __future__ import annotations

import os
from contextlib import closing
from functools import cache
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
from robopolicy.training.capacity import cores
from robopolicy.training.evaluate import DEADLINE
from robopolicy.training.pool import Processes
from robopolicy.training.worker import EnvironmentSpec, answer_all

FIRST_SEED = 20_000  # of the recorded episodes
PARTS = 8  # recorded in parallel, each from its own episodes

Arrays = dict[str, NDArray[Any]]


class Part(NamedTuple):
    """A part of the recording: `size` observations of the episodes of `seed` and every `PARTS`th after it."""

    seed: int
    size: int


class Source(NamedTuple):
    """A policy in the form that is sent to processes, with the units of its inputs and outputs."""

    description: dict[str, Any]
    features: Arrays
    parameters: NDArray[np.float32]
    clips: dict[str, tuple[float, float]]
    scale: tuple[float, ...]


def record_golden(trained: Policy, environment: EnvironmentSpec, units: Units, count: int) -> Recording:
    """`count` observations of a policy at work, with its outputs; the number of cores does not matter.

    Raises RuntimeError if a part fails.
    """
    features = by_path(trained.features)
    source = Source(describe(trained.config), features, trained.parameters, dict(units.clips), units.scale)
    parts = min(PARTS, count)
    waiting = [Part(FIRST_SEED + k, count // parts + (k < count % parts)) for k in range(parts)]
    starts = {part.seed: sum(before.size for before in waiting[:k]) for k, part in enumerate(waiting)}
    whole: tuple[Arrays, Arrays] = ({}, {})
    recorded, begins = 0, list[int]()
    workers = min(cores(), parts)
    with closing(Processes(_serve, (environment, source), workers, DEADLINE)) as processes:
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
                _put(whole, answer[:2], starts[part.seed], count)
                begins += [starts[part.seed] + row for row in answer[2]]
                recorded += part.size
    about = {
        "observations": count,
        "seeds": f"{FIRST_SEED} to {FIRST_SEED + parts - 1}, and on by {PARTS} where an episode ends early",
        "begins": sorted(begins),
        "environment": {"id": environment.id, **environment.settings},
    }
    return Recording(*whole, about)


def _put(whole: tuple[Arrays, Arrays], part: tuple[Arrays, Arrays], start: int, count: int) -> None:
    """Copy the arrays of a part into those of `count` rows, since two copies of all may not fit in memory."""
    for into, arrays in zip(whole, part, strict=True):
        for name, array in arrays.items():
            if name not in into:
                into[name] = np.empty((count, *array.shape[1:]), array.dtype)
            into[name][start : start + len(array)] = array


def _serve(connection: Connection[Any, Any], environment: EnvironmentSpec, source: Source) -> None:
    """Answer every part on `connection` with observations and outputs, or with an error in one line."""
    # One thread a process, so that results do not depend on the number of processes.
    flags = os.environ.get("XLA_FLAGS", "")
    os.environ["XLA_FLAGS"] = f"{flags} --xla_cpu_multi_thread_eigen=false"
    jax.config.update("jax_platforms", "cpu")
    recorder = cache(lambda: _Recorder(environment, source))
    answer_all(connection, lambda part: recorder().record(part))


class _Recorder:
    """Plays a policy on its own environment."""

    def __init__(self, environment: EnvironmentSpec, source: Source) -> None:
        policy, features = policy_of(restore(source.description), source.features)
        compute = jax.jit(outputs(policy, Units(source.clips, source.scale)))
        tree = unflatten(policy)(source.parameters)
        self._names = list(policy.observation)
        self._compute = lambda read, state: jax.device_get(compute(tree, features, read, state))
        self._first = policy.init_state(features)
        self._env = environment.make()

    def record(self, part: Part) -> tuple[Arrays, Arrays, list[int]]:
        """Observations [size, ...] and outputs [size, ...] of a part by name, and where episodes begin."""
        seed, done, state = part.seed, True, self._first
        begins: list[int] = []
        observations: list[Arrays] = []
        answers: list[Arrays] = []
        observation: Any = None
        for _ in range(part.size):
            if done:
                observation, _ = self._env.reset(seed=seed)
                seed, state = seed + PARTS, self._first
                begins.append(len(answers))
            observations.append({name: np.array(observation[name]) for name in self._names})
            answer, state = self._compute(observations[-1], state)
            answers.append(answer)
            observation, _, ended, cut, _ = self._env.step(answers[-1]["action"])
            done = ended or cut
        return _stacked(observations), _stacked(answers), begins


def _stacked(steps: list[Arrays]) -> Arrays:
    return {name: np.stack([step[name] for step in steps]) for name in steps[0]}

"""LeRobot datasets as a task: a robot without a simulator, whose episodes are those that were recorded.

An environment shows the frames of an episode in order, whatever the actions. That is enough to clone a
policy, to measure its actions against the recorded ones, and to export it with golden vectors from the robot.
"""

from __future__ import annotations

import weakref
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict
from numpy.typing import NDArray

from robopolicy.envs.members import Description, Outcome, Quantity
from robopolicy.envs.task import Task
from robopolicy.training.lerobot.conversion import action_scale
from robopolicy.training.lerobot.metadata import ACTION, Choice, LeRobot, choose, open_lerobot
from robopolicy.training.lerobot.reading import numbers, pictures

UNIT = "1"  # LeRobot has no units
SPARE = 1.0  # of a reading's range, by which a sound value may leave it on either side
NARROWEST = 1e-3  # range of a reading that never changes


class Recorded(Task):
    """Plays LeRobot datasets: the seed chooses the episode, and actions change nothing.

    The reward is minus the mean difference between an action and the recorded one, in shares of the largest
    action of the datasets.
    """

    rate = 30.0  # of most datasets; an environment has that of its own
    outcomes = (Outcome("action_error", "action error", "{:12.4f}", "action error {:.4f}"),)

    def __init__(self, dataset: str | Sequence[str] | None = None, cameras: Sequence[str] = ()) -> None:
        """Open one dataset, or several of the same rate, observations, joints and largest actions.

        Args:
          dataset: its folder, or a list of folders.
          cameras: those that are observed, by name or key; () for the only one.

        Raises ValueError without a dataset and for datasets that differ, and what `open_lerobot` and `choose`
        raise.
        """
        folders = [dataset] if isinstance(dataset, str) else dataset
        if not isinstance(folders, list | tuple) or not folders or not all(type(f) is str for f in folders):
            raise ValueError(
                f"dataset is {dataset!r}: it must be the folder of a LeRobot dataset, or several"
            )
        sources = [open_lerobot(Path(folder)) for folder in folders]
        choices = [choose(source, cameras) for source in sources]
        first, choice = sources[0], choices[0]
        for source, other in zip(sources, choices, strict=True):
            if _parts(source, other) != _parts(first, choice):
                raise ValueError(
                    f"dataset has {source.where}: its rate, observations, joints and largest actions must be "
                    f"those of {first.where}"
                )
        self._episodes = [
            (source, its, number)
            for source, its in zip(sources, choices, strict=True)
            for number in range(len(source.episodes))
        ]
        self._scale = action_scale(first)
        self.rate, self._robot = first.rate, first.robot or "unknown"
        self._shown: dict[str, Generator[NDArray[np.uint8]]] = {}
        weakref.finalize(self, _end, self._shown)  # also at the interpreter's end, while modules are there
        self._mean_action = np.concatenate(
            [self._actions(number) for number in range(len(self._episodes))], dtype=float
        ).mean(axis=0)
        features = first.features
        self.actions = tuple(
            Quantity(name, UNIT, -float(size), float(size))
            for name, size in zip(features[ACTION].names, self._scale, strict=True)
        )
        read = [self._vectors(number) for number in range(len(self._episodes))]
        self.vectors = {
            name: _quantities(features[key].names, np.concatenate([one[name] for one in read]))
            for name, key in choice.vectors.items()
        }
        self.observation_space = Dict(
            {
                **{n: Box(0, 255, features[key].image, np.uint8) for n, key in choice.images.items()},
                **{n: Box(*_limits(q), dtype=np.float32) for n, q in self.vectors.items()},
            }
        )
        self.action_space = Box(-1.0, 1.0, features[ACTION].shape, np.float32)

    def _actions(self, number: int) -> NDArray[np.float32]:
        """The actions of an episode, in [-1, 1]."""
        source, _, own = self._episodes[number]
        return (numbers(source, own, ACTION)[ACTION] / self._scale).astype(np.float32)

    def _vectors(self, number: int) -> dict[str, NDArray[np.float32]]:
        """The vectors of an episode, [S, N] by name."""
        source, choice, own = self._episodes[number]
        found = numbers(source, own, *choice.vectors.values())
        return {name: found[key].astype(np.float32) for name, key in choice.vectors.items()}

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Begin episode `seed` modulo the number of episodes; without a seed, a random one."""
        super().reset(seed=seed)
        self.close()
        count = len(self._episodes)
        number = int(self.np_random.integers(count)) if seed is None else seed % count
        self._step, self._error = 0, 0.0
        self._wanted = self._actions(number)
        self._seen = self._vectors(number)
        source, choice, own = self._episodes[number]
        self._shown.update({n: pictures(source, own, key) for n, key in choice.images.items()})
        self._now = self._next()
        return self._now, {"action_error": 0.0}

    def step(self, action: NDArray[Any]) -> tuple[dict[str, NDArray[Any]], float, bool, bool, dict[str, Any]]:
        """Compare an action with the recorded one, and go on to the next frame."""
        error = float(np.abs(np.asarray(action) - self._wanted[self._step]).mean())
        self._step, self._error = self._step + 1, self._error + error
        over = self._step == len(self._wanted)
        if not over:
            self._now = self._next()
        info: dict[str, Any] = {"action_error": self._error / self._step}
        if over:
            info |= {"success": False, "cause": "the recording has ended"}
        return self._now, -error, False, over, info

    def close(self) -> None:
        """End what decodes the videos of the episode."""
        _end(self._shown)

    def _next(self) -> dict[str, NDArray[Any]]:
        images = {name: next(frames) for name, frames in self._shown.items()}
        return {**images, **{name: array[self._step] for name, array in self._seen.items()}}

    def _recorded(self) -> NDArray[np.float32]:
        return self._wanted[min(self._step, len(self._wanted) - 1)]

    def _mean(self) -> NDArray[np.float32]:
        return self._mean_action.astype(np.float32)

    players = {"oracle": _recorded, "mean": _mean}  # noqa: RUF012

    def robot(self) -> Description:
        """The robot that the first dataset names."""
        return {**super().robot(), "name": self._robot}


def _end(shown: Mapping[str, Generator[NDArray[np.uint8]]]) -> None:
    for frames in shown.values():
        frames.close()


def _quantities(entries: Sequence[str], rows: NDArray[np.float32]) -> tuple[Quantity, ...]:
    """The numbers of a vector, with limits from its data [S, N], beyond which a reading is refused."""
    low, high = (end.astype(float) for end in (rows.min(axis=0), rows.max(axis=0)))
    spare = SPARE * np.maximum(high - low, NARROWEST)
    return tuple(
        Quantity(n, UNIT, float(a), float(b))
        for n, a, b in zip(entries, low - spare, high + spare, strict=True)
    )


def _parts(source: LeRobot, choice: Choice) -> tuple[Any, ...]:
    """What several datasets must share: rate, observations and joints by name, and units of actions."""
    features = source.features
    images = {name: features[key].image for name, key in choice.images.items()}
    vectors = {name: features[key].names for name, key in choice.vectors.items()}
    return source.rate, images, vectors, features[ACTION].names, action_scale(source).tolist()


def _limits(quantities: Sequence[Quantity]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    ends = ([getattr(q, end) for q in quantities] for end in ("low", "high"))
    low, high = (np.array(end, np.float32) for end in ends)
    return low, high


gymnasium.register(id="robopolicy/Recorded-v0", entry_point=f"{__name__}:Recorded")

"""One episode of a recording: who acts in it, who labels it, and its file."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import gymnasium
import h5py
import numpy as np
from numpy.typing import NDArray

from robopolicy.runtime.graph import OnnxPolicy
from robopolicy.settings import check_count, check_number
from robopolicy.training.capacity import check_settings
from robopolicy.training.datasets import ROUNDING
from robopolicy.training.rollout import copied

LEVEL = 3  # of gzip: higher ones are slower and save nothing on rendered images
SEEDS = 2**32  # that generators of random numbers take
COIN = 5  # of the random numbers that decide who acts


class Recorded(NamedTuple):
    """The result of an episode; `score` is the first of the task's outcomes, or else its success.

    `unsolved` is the reason why the demonstrator had no action for a state of a policy; "" if it had.
    """

    seed: int
    steps: int
    score: float
    success: bool
    unsolved: str = ""


@dataclass(frozen=True)
class RecordingConfig:
    """Settings of a recording: `episodes` of the seeds from `seed` on.

    Attributes:
      episodes: number of episodes.
      seed: the first seed.
      noise: standard deviation of noise on the demonstrator's actions, from 0 to 1.
      keep_failed: keep failed episodes, too, in place of another seed for each.
      outcomes: numbers of `info` to store for every step; the last value of the first one is the score.
      beta: probability that the demonstrator acts in a step, and not the policy: beta of DAgger (Ross, Gordon
        and Bagnell, AISTATS 2011, Algorithm 3.1). 1 without a policy.

    Raises ValueError for a setting of another type or out of range.
    """

    episodes: int
    seed: int = 0
    noise: float = 0.0
    keep_failed: bool = False
    outcomes: tuple[str, ...] = ()
    beta: float = 1.0

    def __post_init__(self) -> None:
        check_settings(self, {"episodes": 1})
        check_count("episodes", self.episodes, 1, SEEDS)
        check_count("seed", self.seed, 0, SEEDS - self.episodes)
        for name in ("noise", "beta"):
            check_number(name, getattr(self, name), 0.0, 1.0)

    def keeps(self, recorded: Recorded) -> bool:
        """Whether an episode becomes part of the dataset."""
        return (recorded.success or self.keep_failed) and not recorded.unsolved


def play(
    env: gymnasium.Env[Any, Any], seed: int, config: RecordingConfig, policy: OnnxPolicy | None
) -> tuple[Recorded, bytes]:
    """An episode and its HDF5 file, which is empty for an episode that is not kept.

    The demonstrator says in every step what it intends. A policy acts in the share 1 - beta of the steps; it
    also observes the others. Its episode ends where the demonstrator has no action. Raises ValueError for an
    episode that is kept, if a number of the demonstrator's actions is not in [-1, 1].
    """
    observation, info = env.reset(seed=seed)
    player: Any = env.get_wrapper_attr("demonstrator")(seed, config.noise)
    coin = np.random.default_rng([seed, COIN])
    if policy is not None:
        policy.reset()
    observations, infos, steps = [copied(observation)], [dict(info)], []
    ended = cut = False
    unsolved = ""
    while not (ended or cut or unsolved):
        action = player.act()
        executed = action.executed
        if policy is not None:
            acted = np.clip(policy(observation), -1.0, 1.0)
            executed = executed if coin.random() < config.beta else acted
            unsolved = getattr(action, "unsolved", "")
        observation, reward, ended, cut, info = env.step(executed)
        steps.append((np.array(executed), np.array(action.intended), reward, ended, cut))
        observations.append(copied(observation))
        infos.append(dict(info))
    score = float(info[config.outcomes[0]] if config.outcomes else info["success"])
    recorded = Recorded(seed, len(steps), score, bool(info["success"]), unsolved)
    if not config.keeps(recorded):
        return recorded, b""
    executed, intended, rewards, ends, cuts = zip(*steps, strict=True)
    arrays = {
        **{f"observations/{n}": np.stack([row[n] for row in observations]) for n in sorted(observation)},
        "actions": _stacked("executed", executed),
        "rewards": np.array(rewards) * 1.0,  # readers want real numbers, and a task may return whole ones
        "terminations": np.array(ends),
        "truncations": np.array(cuts),
        **{f"infos/{name}": np.array([row[name] for row in infos]) for name in config.outcomes},
        "infos/intended_action": _stacked("intended", intended),
    }
    content = io.BytesIO()
    with h5py.File(content, "w") as file:
        for name, array in arrays.items():
            gzip = {"compression": "gzip", "compression_opts": LEVEL, "chunks": (1, *array.shape[1:])}
            file.create_dataset(name, data=array, **(gzip if array.ndim == 4 else {}))
    return recorded, content.getvalue()


def _stacked(part: str, actions: Sequence[Any]) -> NDArray[np.floating]:
    """The actions of S steps [S, A], in floats. Raises ValueError unless their numbers are in [-1, 1]."""
    numbers = np.stack(actions) * 1.0
    sizes = np.abs(numbers)
    if not sizes.max() <= 1 + ROUNDING:  # also for NaN
        raise ValueError(
            f"an {part} action of the task's demonstrator or of the policy has "
            f"{numbers.flat[sizes.argmax()]:.7g}: its numbers must be in [-1, 1]"
        )
    return numbers

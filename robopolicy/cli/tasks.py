"""The tasks by the names that commands know them by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from robopolicy.naming import one_of

if TYPE_CHECKING:
    import gymnasium

    from robopolicy.policies.iap import IAPConfig
    from robopolicy.policies.vision_performer import VisionPerformerConfig

STONES, SWEEP = "stepping-stones", "bimanual-sweep"
ID = "robopolicy:robopolicy/SteppingStones-v0"
CURRICULUM = ("painted", "paper")
ADVANCE_AT = (3.85,)  # of a painted course's 4 m; the oracle earns 3.91, a policy that looks at nothing 2.4
EPISODES = (1, 3)  # on real stones a single course may let the whole population fall at its first gap


class Outcome(NamedTuple):
    """A number that an episode's last `info` tells.

    Its name there, that of its mean in JSON, its title, and its look in a table and in a sentence.
    """

    name: str
    mean: str
    title: str
    shown: str
    said: str


class Task(NamedTuple):
    """A task: gymnasium's id, what an episode tells besides its return, settings for players that look at
    nothing, and how many actions it asks for in a second.
    """

    id: str
    outcomes: tuple[Outcome, ...]
    unseen: dict[str, Any]
    rate: int


TASKS = {
    STONES: Task(ID, (Outcome("distance", "distance_mean", "distance", "{:7.2f} m", "{:.2f} m"),), {}, 20),
    SWEEP: Task(
        "robopolicy:robopolicy/BimanualSweep-v0",
        (
            Outcome("fraction_in_bowls", "fraction_in_bowls_mean", "in bowls", "{:7.1%}", "{:.0%} in bowls"),
            Outcome("spilled", "spilled_mean", "spilled", "{:7.2f} balls", "{:g} spilled"),
        ),
        {"image_size": None},
        10,
    ),
}


@dataclass(frozen=True)
class Rollouts:
    """How a task is played: engine, presets (None: the task's own choice), seconds (None: the preset's)."""

    engine: str
    presets: tuple[str, ...] = ("paper",)
    episode_seconds: float | None = None

    def settings(self, preset: str) -> dict[str, Any]:
        """Keyword arguments of `gymnasium.make`."""
        return {"engine": self.engine, "preset": preset, "episode_seconds": self.episode_seconds}


def check_task(name: str, allowed: Sequence[str] = (STONES,)) -> None:
    """Raise ValueError unless `name` is a task, and one that a command can do."""
    one_of("task", name, allowed)


def make(rollouts: Rollouts, preset: str, **more: Any) -> gymnasium.Env[Any, Any]:
    """The environment of the stepping-stones task; raises ValueError for settings that it does not know."""
    import gymnasium

    return gymnasium.make(ID, **rollouts.settings(preset), **more)


def make_task(
    task: str, engine: str, preset: str, episode_seconds: float | None, **more: Any
) -> gymnasium.Env[Any, Any]:
    """The environment of any task; raises ValueError for settings that it does not know."""
    import gymnasium

    settings: dict[str, Any] = {"engine": engine, "preset": preset, "episode_seconds": episode_seconds}
    return gymnasium.make(TASKS[task].id, **settings, **more)


def policy_config(attention: str, **settings: Any) -> IAPConfig:
    """The policy that this task is trained with, on the mechanism that `attention` specifies."""
    from robopolicy.envs.quadruped.stepping_stones import PROPRIOCEPTION
    from robopolicy.policies.iap import IAPConfig

    return IAPConfig(canonical_spec(attention), PROPRIOCEPTION, **settings)


def cloned_config(
    attention: str, *, preset: str = "small", image: int = 500, patch: int | None = None, **settings: Any
) -> VisionPerformerConfig:
    """The policy that the bimanual sweep is cloned with: `preset` names its size, a patch fits the image."""
    from robopolicy.policies.vision_performer import PRESETS, VisionPerformerConfig, default_patch

    size: dict[str, Any] = PRESETS[one_of("preset", preset, PRESETS)]
    patch = default_patch(image) if patch is None else patch
    return VisionPerformerConfig(canonical_spec(attention), image=image, patch=patch, **size, **settings)


def canonical_spec(attention: str) -> str:
    """The one way to write a mechanism, or `none`. Raises ValueError for what is neither."""
    from robopolicy.attention import canonical
    from robopolicy.policies.iap import NO_VISION

    return attention if attention == NO_VISION else canonical(attention)


def level_depth(rollouts: Rollouts) -> dict[str, Any]:
    """What the cameras see over level ground."""
    env = make(rollouts, rollouts.presets[0])
    level: dict[str, Any] = env.unwrapped.level_depth()  # type: ignore[attr-defined]
    env.close()
    return level


def distinct(presets: Sequence[str]) -> tuple[str, ...]:
    """`presets` as given; raises ValueError where one comes twice."""
    if len(set(presets)) < len(presets):
        raise ValueError(f"preset is given as {', '.join(presets)}: each may be named once")
    return tuple(presets)

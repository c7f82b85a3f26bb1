"""The contract of a task: the members by which commands use an environment.

A task subclasses `Task`. It must have `rate`, `actions`, `vectors` and the two spaces; all other members have
defaults. `check_task` refuses an environment by the name of the first member that is missing or wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from inspect import get_annotations
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

from robopolicy.envs.contract import (
    ENDING,
    REQUIRED,
    RULES,
    is_colour,
    is_depth,
    is_outcome,
    matches,
    wrong_pairs,
    wrong_spaces,
)
from robopolicy.envs.members import Camera, Curriculum, Description, Mirror, Outcome, Quantity, Shape
from robopolicy.envs.physics.base import View
from robopolicy.naming import one_line


class Task(gymnasium.Env[dict[str, Any], NDArray[np.float32]]):
    """An environment with the contract that training, evaluation, films and export rely on.

    Observations are a `gymnasium.spaces.Dict` of float32 vectors [N], depth images [H, W] (float32, from 0)
    and colour images [H, W, 3] (uint8); policies do not see any other array. Actions are numbers in [-1, 1].
    Every `info` holds all `outcomes`; that of an episode's end holds `success` (bool) and `cause` (str), too.

    Attributes:
      rate: actions a second, set on the class, too. Required.
      actions: the meaning of each number of an action. Required.
      vectors: the numbers of each observed vector, by its name; {} for none. Required.
      outcomes: results of an episode besides its return; the first one is the score of a demonstration.
      cameras: image observations by name; the space of an image describes it by default.
      notes: for some vectors, additions to the manifest: `clip` [low, high] of its numbers, and `about`.
      feedback: which inputs repeat an output of the step before, for the manifest.
      players: players that read the simulation, by name: functions of the task that return an action.
      presets: values of the keyword `preset`; the first one is the default.
      curriculum: what evolution strategies train on; None for the first preset alone.
      policy_settings: the policy that this task trains by default: its `kind`, and settings of that kind.
      demonstrator: (seed, noise) -> a player of one episode whose `act()` returns `executed` and `intended`
        actions in [-1, 1]; None for none. It is called before every step, also of an episode that a policy
        plays. It may return `unsolved`, too: why no action solves the state, or "".
      demo_settings: keyword arguments of the environment that demonstrations are recorded in.
      mirror: the mirror image of a demonstration; None for a task without symmetry.
      holds_last_action: whether a step without a command repeats the last action; if not, it acts by zeros.
      batch: (settings by name) -> many environments at once as JAX programs, for the engine jax
        (`training.worlds.Worlds`); None for none.
      ticks: the number of pictures that a step can make; `on_tick`, if set, is called for each.
    """

    rate: float
    actions: tuple[Quantity, ...]
    vectors: Mapping[str, tuple[Quantity, ...]]
    outcomes: tuple[Outcome, ...] = ()
    cameras: Mapping[str, Camera] = {}
    notes: Mapping[str, Mapping[str, Any]] = {}
    feedback: tuple[Mapping[str, Any], ...] = ()
    players: Mapping[str, Callable[[Any], NDArray[np.float32]]] = {}
    presets: tuple[str, ...] = ()
    curriculum: Curriculum | None = None
    policy_settings: Mapping[str, Any] = {}
    demonstrator: Callable[..., Any] | None = None
    demo_settings: Mapping[str, Any] = {}
    mirror: Mirror | None = None
    holds_last_action: bool = False
    batch: Callable[..., Any] | None = None
    ticks: int = 1
    on_tick: Callable[[], None] | None = None

    @property
    def control_period(self) -> float:
        """Seconds between two actions."""
        return 1 / float(self.rate)

    @property
    def deadline(self) -> float:
        """Seconds from an observation to the last moment at which its action is of use."""
        return self.control_period

    @classmethod
    def settings_for(cls, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
        """Keyword arguments with which the task shows observations of these shapes, by name, and no others.

        No shapes at all stand for players that look at nothing.
        """
        return {}

    def images(self) -> dict[str, Box]:
        """The spaces of the image observations, by name."""
        spaces: Any = self.observation_space
        return {name: space for name, space in spaces.items() if is_depth(space) or is_colour(space)}

    def camera(self, name: str) -> Camera:
        """The camera of the image observation `name`."""
        if name in self.cameras:
            return self.cameras[name]
        box = self.images()[name]
        if is_depth(box):
            return Camera("m", 0.0, float(box.high.max()), "depth along the optical axis")
        return Camera("1", 0.0, 255.0, "red, green and blue of every pixel, first row at the top")

    def privileged_action(self, name: str) -> NDArray[np.float32]:
        """The action of one of `players` now.

        Raises ValueError for another name, and for a player that returns anything but an action's numbers.
        """
        if name not in self.players:
            known = ", ".join(self.players) or "none"
            raise ValueError(f"player is {name!r}: {named(self)} has {known}")
        action = self.players[name](self)
        if np.shape(action) != self.action_space.shape:
            raise ValueError(
                f"environment {named(self)!r}: players has {name!r}, which returns an action of shape "
                f"{np.shape(action)}: it must be {self.action_space.shape}"
            )
        return action

    def halt(self) -> None:
        """The safe stop: from now on come to rest, whatever the actions. Does nothing by default."""

    def shapes(self) -> dict[str, Shape]:
        """The things in the world now, by name, for three-dimensional recordings."""
        return {}

    def reference_images(self) -> dict[str, NDArray[np.float32]]:
        """What depth cameras show of an empty scene, such as level ground: [H, W] (m) by name."""
        return {}

    def marks(self) -> NDArray[np.float64]:
        """Points to ring in pictures, [N, 3] (m, world)."""
        return np.empty((0, 3))

    def view(self) -> View | None:
        """The camera that `render` uses; None if its pictures have no marks."""
        return None

    def caption(self, action: NDArray[np.float32]) -> list[str]:
        """Lines under a film that explain `action`; a film of a colour image has room for one."""
        return []

    def robot(self) -> Description:
        """The robot in a manifest: `name` and `safe_stop` at least."""
        return {"name": type(self).__name__, "safe_stop": "not described: the operator of the robot decides"}

    def describe(self) -> Description:
        """All that someone who connects a real robot needs, as JSON holds it."""
        cameras = {name: self.camera(name) for name in dict.fromkeys((*self.cameras, *self.images()))}
        return {
            "control_period": float(self.control_period),
            "deadline": float(self.deadline),
            "inputs": {
                **{name: camera.described(name) for name, camera in cameras.items()},
                **{name: self._vector(name) for name in self.vectors},
            },
            "outputs": {
                "command": {
                    "scale": [float(quantity.high) for quantity in self.actions],
                    "entries": [quantity.described() for quantity in self.actions],
                }
            },
            "feedback": [dict(one) for one in self.feedback],
            "cameras": {name: dict(c.pinhole) for name, c in cameras.items() if c.pinhole is not None},
            "robot": self.robot(),
        }

    def _vector(self, name: str) -> Description:
        notes = self.notes.get(name, {})
        clip = {"clip": list(map(float, notes["clip"]))} if "clip" in notes else {}
        about = {"about": notes["about"]} if "about" in notes else {}
        return {**clip, "entries": [quantity.described() for quantity in self.vectors[name]], **about}


def named(env: gymnasium.Env[Any, Any]) -> str:
    """The id of an environment, or the name of its class."""
    return env.spec.id if env.spec is not None else type(env).__name__


def task_of(env: gymnasium.Env[Any, Any], name: str | None = None) -> Task:
    """The task itself, without gymnasium's wrappers; raises what `check_task` raises."""
    task: Any = env.unwrapped
    check_task(task, name)
    checked: Task = task
    return checked


def check_task(env: gymnasium.Env[Any, Any], name: str | None = None) -> None:
    """Raise ValueError, in one line, for the first member of the contract that is missing or wrong.

    `name` is the name of the environment in the message; its id by default.
    """
    where = f"environment {(named(env) if name is None else name)!r}"
    if isinstance(env, gymnasium.Wrapper):
        raise ValueError(f"{where} is wrapped: give its env.unwrapped")
    _check_present(where, type(env), {*vars(env)}, tuple(REQUIRED))
    for wrong in (_wrong_members, wrong_spaces, wrong_pairs):
        _refuse(where, env, wrong(env))


def check_class(found: type, name: str) -> None:
    """Raise ValueError for the first member that is missing or wrong in the class of the environment `name`.

    Spaces, `actions` and `vectors` may be attributes of its environments instead.
    """
    where = f"environment {name!r}"
    _check_present(where, found, {"observation_space", "action_space"}, ("rate",))
    _refuse(where, found, _wrong_members(found))


def check_ending(name: str, outcomes: Sequence[Outcome], info: Mapping[str, Any]) -> None:
    """Raise ValueError if the `info` at the end of an episode lacks a promised entry, or has a wrong one.

    `name` is that of the environment in the message, and `outcomes` are those that its task declares.
    """
    declared = {o.name: (f"the outcome {o.title!r}", is_outcome, "a finite number") for o in outcomes}
    for member, (about, is_right, words) in {**ENDING, **declared}.items():
        where = f"in the info of an episode's end: {about}"
        if member not in info:
            raise ValueError(f"environment {name!r} has no {member!r} {where}")
        if not is_right(info[member]):
            value = f"{member!r} as {info[member]!r}"
            raise ValueError(one_line(f"environment {name!r} has {value} {where}; it must be {words}"))


def _wrong_members(owner: Any) -> Iterator[tuple[str, str]]:
    """Each member of a task or of its class that is wrong by itself, and what it must be."""
    for member, annotation in TYPES.items():
        value = getattr(owner, member, property())
        if isinstance(value, property) and member in ("actions", "vectors", "control_period", "deadline"):
            continue  # the environments of a class have them
        is_right, words = RULES.get(member, (None, f"of type {Task.__annotations__.get(member)}"))
        if not matches(value, annotation) or (is_right is not None and not is_right(value)):
            yield member, f"it must be {words}"
    for member in vars(Task):
        if member not in TYPES and not member.startswith("_") and not callable(getattr(owner, member)):
            yield member, "it must be a method"


def _refuse(where: str, owner: Any, wrong: Iterator[tuple[str, str]]) -> None:
    """Raise ValueError for the first member of `wrong`, if there is one."""
    for member, words in wrong:
        raise ValueError(one_line(f"{where}: {member} is {getattr(owner, member)!r}: {words}"))


def _check_present(where: str, found: type, own: set[str], required: Sequence[str]) -> None:
    inherited = () if issubclass(found, Task) else [name for name in vars(Task) if not name.startswith("_")]
    first = dict.fromkeys((*required, *(("actions", "vectors") if inherited else ())))
    for member in (*first, *inherited):
        if not hasattr(found, member) and member not in own:
            about = REQUIRED.get(member, "it comes with the base class robopolicy.envs.task.Task")
            raise ValueError(f"{where} has no member {member!r}: {about}")


# The members of a task that are no methods, with their types.
TYPES = get_annotations(Task, eval_str=True) | {"control_period": float, "deadline": float}

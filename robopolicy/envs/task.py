"""The contract of a task: what an environment says of itself, so that every command can use it.

A task subclasses `Task`. It must give `rate`, `actions`, `vectors` and the two spaces; all other members have
defaults. `check_task` refuses an environment by the name of the first member that it lacks or gets wrong.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict
from numpy.typing import NDArray

from robopolicy.envs.described import Description
from robopolicy.envs.physics.base import View
from robopolicy.envs.shapes import Shape
from robopolicy.settings import is_finite

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")  # of an observation, as manifests have it


class Quantity(NamedTuple):
    """One number of a vector or of an action: its name, its unit, and the interval of any sound value.

    "1" is the unit of a number without one. Of an action, `high` is the physical value of an action of one,
    and `low` is -high.
    """

    name: str
    unit: str
    low: float
    high: float
    about: str = ""

    def described(self) -> Description:
        """As JSON holds it."""
        told: Description = {
            "name": self.name,
            "unit": self.unit,
            "low": float(self.low),
            "high": float(self.high),
        }
        return {**told, "about": self.about} if self.about else told


class Outcome(NamedTuple):
    """A number that an episode's last `info` holds: its name there, its title, and its formats.

    `shown` formats it in a table and `said` in a sentence, as in "{:7.2f} m" and "{:.2f} m".
    """

    name: str
    title: str
    shown: str
    said: str

    @property
    def mean(self) -> str:
        """The name of its mean in JSON."""
        return f"{self.name}_mean"


class Curriculum(NamedTuple):
    """What evolution strategies train on unless told otherwise.

    `presets` in order, mean returns to `advance_at` from all but the last, `episodes` of a candidate on each.
    """

    presets: tuple[str, ...]
    advance_at: tuple[float, ...]
    episodes: tuple[int, ...]


class Camera(NamedTuple):
    """An image observation: unit and interval of its pixels.

    `clip` is what readings are clipped to, as in training; `pinhole` is what `described.pinhole` returns.
    """

    unit: str
    low: float
    high: float
    about: str = ""
    clip: tuple[float, float] | None = None
    pinhole: Mapping[str, Any] | None = None


class Mirror(NamedTuple):
    """What mirrors a demonstration: functions of images [..., H, W, 3], vectors and actions [..., N]."""

    images: Callable[[NDArray[np.uint8]], NDArray[np.uint8]]
    vectors: Callable[[NDArray[Any]], NDArray[Any]]
    actions: Callable[[NDArray[Any]], NDArray[Any]]


class Task(gymnasium.Env[dict[str, Any], NDArray[np.float32]]):
    """An environment with the contract that training, evaluation, films and export rely on.

    Observations are a `gymnasium.spaces.Dict` of float32 vectors [N], depth images [H, W] (float32, from 0)
    and colour images [H, W, 3] (uint8); policies do not see any other array. Actions are numbers in [-1, 1].
    Every `info` holds all `outcomes`, and that of an episode's end `success` (bool) and `cause` (str), too.

    Attributes:
      rate: actions a second. Required.
      actions: the meaning of each number of an action. Required.
      vectors: the numbers of each observed vector, by its name; {} for none. Required.
      outcomes: what an episode tells besides its return; the first one is the score of a demonstration.
      cameras: image observations by name; one that is left out is described by its space.
      notes: for some vectors, what a manifest adds: `clip` [low, high] of its numbers, and `about`.
      feedback: which inputs repeat an output of the step before, for the manifest.
      players: players that read the simulation, by name: functions of the task that return an action.
      presets: variants, as the keyword `preset` takes them; the first one is the default.
      curriculum: what evolution strategies train on; None for the first preset alone.
      policy_settings: the policy that this task trains by default: its `kind`, and settings of that kind.
      demonstrator: (seed, noise) -> a player of one episode whose `act()` returns `executed` and `intended`
        actions; None where there is none.
      demo_settings: keyword arguments that demonstrations are recorded with.
      mirror: the mirror image of a demonstration, None where the task has no symmetry.
      holds_last_action: what a step without a command does: repeat the last action, or act by zeros.
      ticks: pictures that a step can give; `on_tick`, where it is set, is called for each.
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
    ticks: int = 1
    on_tick: Callable[[], None] | None = None

    @property
    def control_period(self) -> float:
        """Seconds between two actions."""
        return 1 / self.rate

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
        spaces = self.observation_space.spaces if isinstance(self.observation_space, Dict) else {}
        return {n: s for n, s in spaces.items() if isinstance(s, Box) and (is_depth(s) or is_colour(s))}

    def camera(self, name: str) -> Camera:
        """What is known of the image observation `name`."""
        if name in self.cameras:
            return self.cameras[name]
        box = self.images()[name]
        if is_depth(box):
            return Camera("m", 0.0, float(box.high.max()), "depth along the optical axis")
        return Camera("1", 0.0, 255.0, "red, green and blue of every pixel, first row at the top")

    def privileged_action(self, name: str) -> NDArray[np.float32]:
        """The action of one of `players` now. Raises ValueError for a player that the task has not."""
        if name not in self.players:
            known = ", ".join(self.players) or "none"
            raise ValueError(f"player is {name!r}: {named(self)} has {known}")
        return self.players[name](self)

    def halt(self) -> None:
        """The safe stop: from now on come to rest, whatever the actions. Does nothing by default."""

    def shapes(self) -> dict[str, Shape]:
        """What stands in the world now, by name, for three-dimensional recordings."""
        return {}

    def reference_images(self) -> dict[str, NDArray[np.float32]]:
        """What depth cameras show of an empty scene, such as level ground: [H, W] (m) by name."""
        return {}

    def marks(self) -> NDArray[np.float64]:
        """Points to ring in pictures, [N, 3] (m, world)."""
        return np.empty((0, 3))

    def view(self) -> View | None:
        """The camera that `render` uses; None where nothing is to be marked in its pictures."""
        return None

    def caption(self, action: NDArray[np.float32]) -> list[str]:
        """Lines under a film that explain `action`; a film of a colour image has room for one."""
        return []

    def robot(self) -> Description:
        """What a manifest says of the robot: `name` and `safe_stop` at least."""
        return {"name": type(self).__name__, "safe_stop": "not described: it is up to whoever runs the robot"}

    def describe(self) -> Description:
        """What anyone who connects a real robot has to know, as JSON holds it."""
        cameras = {name: self.camera(name) for name in dict.fromkeys((*self.cameras, *self.images()))}
        seen = {name: camera for name, camera in cameras.items() if name in self.images()}
        return {
            "control_period": self.control_period,
            "deadline": self.deadline,
            "inputs": {
                **{name: _image(name, camera) for name, camera in seen.items()},
                **{name: self._vector(name) for name in self.vectors},
            },
            "outputs": {
                "command": {
                    "scale": [float(quantity.high) for quantity in self.actions],
                    "entries": [quantity.described() for quantity in self.actions],
                }
            },
            "feedback": [dict(one) for one in self.feedback],
            "cameras": {name: dict(c.pinhole) for name, c in seen.items() if c.pinhole is not None},
            "robot": self.robot(),
        }

    def _vector(self, name: str) -> Description:
        notes = self.notes.get(name, {})
        clip = {"clip": list(notes["clip"])} if "clip" in notes else {}
        about = {"about": notes["about"]} if "about" in notes else {}
        return {**clip, "entries": [quantity.described() for quantity in self.vectors[name]], **about}


def _image(name: str, camera: Camera) -> Description:
    told: Description = {"unit": camera.unit, "low": float(camera.low), "high": float(camera.high)}
    if camera.clip is not None:
        told["clip"] = list(camera.clip)
    if camera.pinhole is not None:
        told["camera"] = name
    return {**told, "about": camera.about} if camera.about else told


def is_depth(space: gymnasium.Space[Any]) -> bool:
    """Whether a space is of depth images [H, W] (float32), which begin at 0."""
    return isinstance(space, Box) and len(space.shape) == 2 and not space.low.any()


def is_colour(space: gymnasium.Space[Any]) -> bool:
    """Whether a space is of colour images [H, W, 3] (uint8)."""
    return (
        isinstance(space, Box)
        and len(space.shape) == 3
        and space.shape[2] == 3
        and np.issubdtype(space.dtype, np.uint8)
    )


REQUIRED = {
    "observation_space": "a gymnasium.spaces.Dict of arrays",
    "action_space": "a gymnasium.spaces.Box of numbers in [-1, 1]",
    "rate": "how many actions it takes in a second",
    "actions": "a Quantity for each number of an action",
    "vectors": "Quantities for each vector that it observes, by its name",
}
ENDING = {"success": "whether the episode succeeded", "cause": "why the episode ended, in a few words"}
RESERVED = ("return", "steps", "seed", *ENDING)  # names that results of an episode have besides outcomes


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
    """Raise ValueError, in one line, for the first member of the contract that `env` lacks or gets wrong.

    `name` is what the environment is called in the message; its id by default.
    """
    where = f"environment {(named(env) if name is None else name)!r}"
    if isinstance(env, gymnasium.Wrapper):
        raise ValueError(f"{where} is wrapped: give its env.unwrapped")
    _check_members(where, type(env), {*vars(env)}, tuple(REQUIRED))
    task: Any = env
    for member, wrong in _wrong(task):
        if wrong:
            raise ValueError(f"{where}: {member} is {getattr(task, member)!r}: {wrong}")


def check_class(found: type, name: str) -> None:
    """Raise ValueError for the first member that the class of the environment `name` lacks.

    Spaces, `actions` and `vectors` may be attributes of its environments instead.
    """
    _check_members(f"environment {name!r}", found, {"observation_space", "action_space"}, ("rate",))


def _check_members(where: str, found: type, own: set[str], required: Sequence[str]) -> None:
    inherited = () if issubclass(found, Task) else [name for name in vars(Task) if not name.startswith("_")]
    first = dict.fromkeys((*required, *(("actions", "vectors") if inherited else ())))
    for member in (*first, *inherited):
        if not hasattr(found, member) and member not in own:
            about = REQUIRED.get(member, "it comes with the base class robopolicy.envs.task.Task")
            raise ValueError(f"{where} has no member {member!r}: {about}")


def check_ending(task: Task, info: Mapping[str, Any]) -> None:
    """Raise ValueError where the `info` at the end of an episode lacks what the contract promises."""
    for member, about in (*ENDING.items(), *((o.name, f"the outcome {o.title!r}") for o in task.outcomes)):
        if member not in info:
            raise ValueError(
                f"environment {named(task)!r} has no {member!r} in the info of an episode's end: {about}"
            )


def _wrong(task: Any) -> Iterator[tuple[str, str]]:
    """Each member that is checked, and what is wrong with it or ""."""
    space, actions = task.observation_space, task.action_space
    boxes = isinstance(space, Dict) and all(isinstance(box, Box) for box in space.spaces.values())
    yield "observation_space", "" if boxes and space.spaces else "it must be a Dict of Boxes, one at least"
    names = [name for name in space.spaces if not NAME.fullmatch(name)]
    yield "observation_space", f"{names[0]!r} must be letters, digits and underscores" if names else ""
    unit = isinstance(actions, Box) and len(actions.shape) == 1
    unit = unit and bool((actions.low == -1).all() and (actions.high == 1).all())
    yield "action_space", "" if unit else "it must be a Box of one axis in [-1, 1]"
    rated = is_finite(task.rate) and task.rate > 0
    yield "rate", "" if rated else "it must be a number of actions a second above 0"
    count = actions.shape[0]
    yield "actions", _wrong_quantities(task.actions, count)
    odd = [q.name for q in task.actions if not q.low == -q.high < 0]
    yield "actions", f"{odd[0]!r} must have a high above 0 and a low of -high" if odd else ""
    lines = {name: box for name, box in space.spaces.items() if len(box.shape) == 1}
    yield "vectors", "" if isinstance(task.vectors, Mapping) else "it must be Quantities by name"
    for name in dict.fromkeys((*lines, *task.vectors)):
        if name not in lines:
            yield "vectors", f"{name!r} is no vector of observation_space"
        elif name not in task.vectors:
            yield "vectors", f"it has no {name!r}, a vector of observation_space"
        else:
            wrong = _wrong_quantities(task.vectors[name], lines[name].shape[0])
            yield "vectors", f"of {name!r}, {wrong}" if wrong else ""
    floats = [name for name, box in lines.items() if box.dtype != np.float32]
    yield "observation_space", f"{floats[0]!r} must be float32" if floats else ""
    outcomes = [one for one in task.outcomes if not isinstance(one, Outcome) or one.name in RESERVED]
    yield "outcomes", f"each must be an Outcome, not called {', '.join(RESERVED)}" if outcomes else ""
    yield "curriculum", _wrong_curriculum(task.curriculum, task.presets)


def _wrong_quantities(found: Any, count: int) -> str:
    if not isinstance(found, tuple | list) or not all(isinstance(one, Quantity) for one in found):
        return "it must be a tuple of Quantities"
    if len(found) != count:
        return f"it has {len(found)} Quantities, and its space has {count} numbers"
    twice = len({one.name for one in found}) < len(found)
    return "two Quantities have the same name" if twice else ""


def _wrong_curriculum(found: Any, presets: tuple[str, ...]) -> str:
    if found is None:
        return ""
    if not isinstance(found, Curriculum) or not found.presets or not set(found.presets) <= set(presets):
        return "it must be a Curriculum of presets that the task has"
    count = len(found.presets)
    fits = len(found.advance_at) == count - 1 and len(found.episodes) in (1, count)
    return "" if fits else "it needs advance_at for each preset but the last, and episodes for each"

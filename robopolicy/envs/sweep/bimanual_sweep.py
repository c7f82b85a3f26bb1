"""The bimanual sweep: two arms with spatulas bring red balls into green bowls (HRF, Appendix K.2).

The papers give 12 degrees of freedom, 500 x 500 RGB, the arms' Cartesian poses and the reward; places, sizes,
rates and limits are ours, and docs/bimanual-sweep.md gives the reason for each.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Dict, Space
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from robopolicy.envs.drawing.scene import Scene
from robopolicy.envs.members import Description, Mirror, Outcome, Shape
from robopolicy.envs.physics import ARM_ENGINES, make_arms
from robopolicy.envs.physics.arms import ArmsPhysics, Bowl, Placement
from robopolicy.envs.physics.base import Array, View
from robopolicy.envs.simulated import LONGEST_EPISODE, Observation, SimulatedTask, Step
from robopolicy.envs.sweep import description, drawn, kinematics, mirror
from robopolicy.envs.sweep.demonstrator import Demonstrator
from robopolicy.envs.sweep.description import ACTION, ARMS
from robopolicy.envs.sweep.distractions import CAMERA, NOMINAL, DistractionConfig, drawn_look
from robopolicy.envs.sweep.randomised import RandomisedConfig, drawn_physics
from robopolicy.envs.sweep.scatter import scattered, scattered_others
from robopolicy.envs.sweep.workspace import Target, Workspace, WorkspaceConfig
from robopolicy.naming import one_of
from robopolicy.settings import check_count, check_fields, check_number, check_types

POSE_SIZE = 7  # x, y, z, then the quaternion w, x, y, z
FALLEN = -0.01  # m, height of a ball's centre below which it has left the table
PERIOD = 0.1  # s, of control
LEAD = 0.1  # m, the farthest that a target is ahead of its spatula along each axis, before a step's move


@dataclass(frozen=True)
class BimanualSweepConfig:
    """The whole task. Times in seconds, lengths in metres, angles in radians, masses in kilograms."""

    balls: int = 20
    ball_radius: float = 0.016
    ball_mass: float = 0.02
    scatter: float = 0.18  # balls lie within this of the table's middle, in x and y
    spacing: float = 0.004  # between two balls, at first
    bowls: tuple[Bowl, ...] = (Bowl((-0.34, 0.0)), Bowl((0.34, 0.0)))
    bases: float = 0.81  # distance of each arm's base from the middle
    start: tuple[float, float, float] = (0.0, 0.27, 0.12)  # of the right spatula; the left one mirrors it
    table: tuple[float, float] = (0.5, 0.85)  # half its sides
    workspace: WorkspaceConfig = field(default_factory=WorkspaceConfig)
    largest_move: float = 0.04  # of a spatula in a step, along each axis
    largest_turn: float = 0.2
    episode_seconds: float = 40.0
    image_size: int | None = 500  # pixels a side; None for no image
    ball_positions: bool = False  # whether they are observed, of those to sweep
    distractions: DistractionConfig = field(default_factory=DistractionConfig)
    randomised: RandomisedConfig = field(default_factory=RandomisedConfig)

    def __post_init__(self) -> None:
        check_count("balls", self.balls, 1, 50)
        if self.image_size is not None:
            check_count("image_size", self.image_size, 32, 1024)
        check_number("episode_seconds", self.episode_seconds, PERIOD, LONGEST_EPISODE)
        check_fields(self)
        for side in self.table:
            check_number("table", side, 0.02, 2.0)
        for name, low, high in (
            ("ball_radius", 0.005, 0.03),
            ("ball_mass", 1e-3, 1.0),
            ("scatter", 0.01, min(self.table) - self.ball_radius),
            ("spacing", 0.0, 0.1),
            ("largest_move", 1e-3, 0.1),
            ("largest_turn", 1e-3, 0.3),
            ("bases", 0.3, 1.5),
        ):
            check_number(name, getattr(self, name), low, high)
        for axis, place, low in zip("xyz", self.start, (-2.0, 0.0, 0.0), strict=True):
            check_number(f"start {axis}", place, low, 2.0)
        if not self.bowls:
            raise ValueError("bowls is (): there must be one at least")
        for bowl in self.bowls:
            if np.shape(bowl.center) != (2,):
                raise ValueError(f"bowls: center is {bowl.center!r}: it must be two numbers")
            for axis, place in zip("xy", bowl.center, strict=True):
                check_number(f"bowls: center {axis}", place, -2.0, 2.0)
            for name in ("radius", "height", "wall"):
                check_number(f"bowls: {name}", getattr(bowl, name), 1e-3, 1.0)
        for one, other in combinations(self.bowls, 2):
            if math.dist(one.center, other.center) < one.radius + other.radius - 1e-9:
                raise ValueError(
                    f"bowls at {one.center} and {other.center} overlap: their centres must be "
                    f"{one.radius + other.radius:g} m apart or more"
                )


_COLOURS = DistractionConfig(colours=0.2, lamp_turn=20.0, ambient=0.1)
_MIDDLE = replace(_COLOURS, textures=0.4, camera_turn=5.0, camera_shift=0.02, other_balls=3)
_DISTRACTIONS = {
    "distracted": _MIDDLE,
    "distracted-weak": DistractionConfig(0.1, 10.0, 0.05, 0.2, 2.5, 0.01, 2),
    "distracted-strong": DistractionConfig(0.3, 40.0, 0.2, 0.8, 10.0, 0.04, 4),
    # One dimension alone, at the middle strength.
    "distracted-colours": _COLOURS,
    "distracted-textures": DistractionConfig(textures=_MIDDLE.textures),
    "distracted-camera": DistractionConfig(
        camera_turn=_MIDDLE.camera_turn, camera_shift=_MIDDLE.camera_shift
    ),
    "distracted-balls": DistractionConfig(other_balls=_MIDDLE.other_balls),
    "distracted-changing": replace(_MIDDLE, look_steps=10),
}
PRESETS = {
    "paper": BimanualSweepConfig(),
    "state": BimanualSweepConfig(ball_positions=True),
    **{name: BimanualSweepConfig(distractions=its) for name, its in _DISTRACTIONS.items()},
    "randomised": BimanualSweepConfig(
        randomised=RandomisedConfig((0.7, 1.4), (0.5, 1.5), (0.5, 1.5), (0.7, 1.3), (0.0, 0.06))
    ),
}


class BimanualSweep(SimulatedTask):
    """Observation: `image` [S, S, 3] uint8 and `poses` [14] of the spatulas. Action: [12], named by `ACTION`.

    `poses` are position (m) and quaternion (w, x, y, z; w >= 0) of the left and the right spatula in the
    table's frame: x towards the camera, y from the left arm to the right one, z up, the middle of the table's
    top at the origin. Preset `state` adds `balls` [N, 3] (m). An action moves the target of each spatula by
    up to 4 cm along and 0.2 rad about each axis.

    The reward of a step is the share of balls in bowls; an episode that ends early earns the rest of its time
    at once. With other balls, which have to stay on the table, each that has left it takes from the reward
    what a ball in a bowl adds. `info` holds `in_bowls` (a count for each bowl), `fraction_in_bowls`,
    `wrong_in_bowls` (other balls in bowls), `spilled` (balls of either kind off the table), `out_of_reach`
    (arms whose target was clipped to their reach), `success` (all in bowls, and all other balls on the table)
    and `cause`, the reason for the end of the episode ("" while it runs).

    After a reset, `target` holds the targets of the spatulas, `joint_targets` [2, 7] (rad) the angles of the
    arms' joints for them, `clipped` the arms whose last target was out of reach, and `look` how the scene
    looks.
    """

    engines = ARM_ENGINES
    rate = 10
    actions = description.moves(BimanualSweepConfig.largest_move, BimanualSweepConfig.largest_turn)
    vectors = {"poses": description.poses()}  # noqa: RUF012
    outcomes = (
        Outcome("fraction_in_bowls", "in bowls", "{:7.1%}", "{:.0%} in bowls"),
        Outcome("spilled", "spilled", "{:7.2f} balls", "{:g} spilled"),
        Outcome("wrong_in_bowls", "wrong", "{:7.2f} balls", "{:g} wrong", before=0.0),
    )
    notes = {"poses": {"about": description.ABOUT_POSES}}  # noqa: RUF012
    presets = tuple(PRESETS)
    policy_settings = {  # noqa: RUF012
        "kind": "vision-performer",
        "images": {"image": (500, 500)},
        "vectors": {"poses": len(ARMS) * POSE_SIZE},
        "actions": len(ACTION),
    }
    demo_settings = {"balls": 20, "image_size": 500}  # noqa: RUF012
    mirror = Mirror(mirror.mirrored_images, mirror.mirrored_poses, mirror.mirrored_actions)
    _oracle: Demonstrator | None = None
    look = NOMINAL
    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012 (gymnasium's own)

    def __init__(
        self,
        engine: str | None = None,
        preset: str = "paper",
        renderer: str = "software",
        balls: int | None = None,
        image_size: int | None = 500,
        episode_seconds: float | None = None,
        render_mode: str | None = None,
        render_size: tuple[int, int] = (500, 500),
        config: BimanualSweepConfig | None = None,
    ) -> None:
        """`config` replaces `preset`, `balls` and `image_size`; `render_size` is (width, height).

        `image_size` None leaves out the image, which takes a third of a step's time.
        """
        super().__init__(engine, renderer, render_mode, render_size)
        check_types("BimanualSweep", {"config": config}, BimanualSweep.__init__)
        if config is None:
            config = replace(PRESETS[one_of("preset", preset, PRESETS)], image_size=image_size)
            if balls is not None:
                config = replace(config, balls=balls)
        if episode_seconds is not None:
            config = replace(config, episode_seconds=episode_seconds)
        if self.renderer != "software" and config.distractions.needs_software():
            raise ValueError(
                f"renderer is {self.renderer!r}: it must be 'software' where colours, light, textures or "
                "other balls are drawn"
            )
        self.config = config
        self.bases = np.array([[0.0, -config.bases, np.pi / 2], [0.0, config.bases, -np.pi / 2]])
        self.workspace = Workspace(config.workspace, self.bases)
        self._joints_at_start = self.workspace.settled(self.start())
        self.physics: ArmsPhysics = make_arms(self.engine, kinematics.TOOL, visible=self.renderer == "tiny")
        self.actions = description.moves(config.largest_move, config.largest_turn)
        if config.image_size is not None:
            is_drawn = config.distractions.moves_camera()
            self.cameras = {"image": description.camera(config.image_size, CAMERA, self.renderer, is_drawn)}
        bound = np.tile(np.array([2.0] * 3 + [1.0] * 4, np.float32), 2)
        spaces: dict[str, Space[Any]] = {"poses": Box(-bound, bound, dtype=np.float32)}
        if config.image_size is not None:
            spaces["image"] = Box(0, 255, (config.image_size, config.image_size, 3), np.uint8)
        if config.ball_positions:
            spaces["balls"] = Box(-2.0, 2.0, (config.balls, 3), np.float32)
        self.observation_space = Dict(spaces)
        self.action_space = Box(-1.0, 1.0, (len(ACTION),), np.float32)

    @classmethod
    def settings_for(cls, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
        """The size of the image, or None for no image, which takes a third of a step's time."""
        return {"image_size": shapes["image"][0] if "image" in shapes else None}

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Scatter the balls. The world is built anew: a seed fixes every bit."""
        super().reset(seed=seed, options=options)
        config = self.config
        places = self._scattered()
        physics = drawn_physics(config.randomised, self.np_random)
        self._draw_look(self.np_random)
        if config.distractions.look_steps:
            # Of its own: how long an episode lasts must not change what a later one draws.
            (self._later_looks,) = self.np_random.spawn(1)
        self.target = self.start()
        self.joint_targets = self._joints_at_start.copy()
        balls = (places, config.ball_radius, config.ball_mass * physics.ball_mass)
        world = (config.bowls, config.table, physics.conditions)
        self.physics.reset(Placement(self.bases, self.joint_targets, *balls, *world))
        self._steps, self._halted = 0, False
        self._oracle = None
        self.clipped: list[str] = []
        self._read()
        self._running = True
        return self.observation(), self.info("")

    def _draw_look(self, rng: np.random.Generator) -> None:
        look = drawn_look(self.config.distractions, rng)
        if look is not self.look:
            self.look, self._scene = look, None

    def start(self) -> Target:
        """The first target of the spatulas."""
        x, y, z = self.config.start
        return Target(np.array([[x, -y, z], [x, y, z]]), np.zeros((2, 3)))

    def _scattered(self) -> NDArray[np.float64]:
        """Centres of all balls [N + M, 3], apart from each other; those that have to stay come last."""
        config, rng = self.config, self.np_random
        apart = 2 * config.ball_radius + config.spacing
        others = scattered_others(config.distractions.other_balls, config.scatter, apart, rng)
        radius = config.ball_radius
        places = np.concatenate([scattered(config.balls, config.scatter, apart, others, radius, rng), others])
        return np.column_stack([places, np.full(len(places), config.ball_radius)])

    def step(self, action: NDArray[np.float32]) -> Step:
        """Advance by one control period."""
        self.check_running("step")
        config = self.config
        moves, turns = self.checked(action).astype(float).reshape(2, 2, 3).swapaxes(0, 1)
        if not self._halted:
            self._steer(config.largest_move * moves, config.largest_turn * turns)
        self.physics.command(self.joint_targets)
        self.physics.step()
        self._read()
        self._steps += 1
        look_steps = config.distractions.look_steps
        if look_steps and self._steps % look_steps == 0:
            self._draw_look(self._later_looks)
        last = round(config.episode_seconds / PERIOD)
        fraction = self._in_bowls.sum() / config.balls
        left = config.balls - self._in_bowls.sum() - _off_table(self.balls)
        cause = "" if left else ("all balls in bowls" if fraction == 1 else "no ball left on the table")
        reward = (fraction - self._others_gone() / config.balls) * (1 + (last - self._steps if cause else 0))
        return self.stepped(reward, cause, self._steps >= last)

    def _steer(self, moves: NDArray[np.float64], turns: NDArray[np.float64]) -> None:
        """Move the target, for each arm as far as it reaches."""
        positions = self.physics.tools()[0]
        # Farther ahead, a target would push a spatula through what holds it up.
        ahead = np.clip(self.target.positions - positions, -LEAD, LEAD)
        wanted = self.workspace.moved(Target(positions + ahead, self.target.turns), moves, turns)
        followed = self.workspace.follow(self.target, wanted, self.joint_targets)
        self.joint_targets, self.target, clipped = followed
        self.clipped = [name for name, is_clipped in zip(ARMS, clipped, strict=True) if is_clipped]

    def halt(self) -> None:
        """The safe stop: both spatulas stay at their present places, whatever the actions.

        Raises RuntimeError before the first reset.
        """
        self.check_begun("halt")
        self._halted, self.clipped = True, []
        # Inverse kinematics may find no joints for the present poses near those of targets that led them.
        self.target, self.joint_targets = self.workspace.target(*self.physics.tools()), self.physics.joints()
        self.physics.command(self.joint_targets)

    def _read(self) -> None:
        self.balls, self.others = np.split(self.physics.balls(), [self.config.balls])
        self.held = self._held(self.balls)  # [N, bowls]
        self._in_bowls = self.held.sum(axis=0)
        self._wrong = int(self._held(self.others).sum())

    def _held(self, balls: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Whether each of `balls` [N, 3] lies in each bowl, [N, bowls]."""
        bowls = np.array([(*bowl.center, bowl.radius, bowl.height) for bowl in self.config.bowls])
        away = np.linalg.norm(balls[:, None, :2] - bowls[:, :2], axis=2)
        height = balls[:, 2, None]
        held: NDArray[np.bool_] = (away < bowls[:, 2]) & (height < bowls[:, 3]) & (height > FALLEN)
        return held

    def _others_gone(self) -> int:
        """How many of the balls that have to stay have left the table."""
        return self._wrong + _off_table(self.others)

    def info(self, cause: str) -> dict[str, Any]:
        fraction = float(self._in_bowls.sum() / self.config.balls)
        return {
            "in_bowls": [int(count) for count in self._in_bowls],
            "fraction_in_bowls": fraction,
            "wrong_in_bowls": self._wrong,
            "spilled": _off_table(self.balls) + _off_table(self.others),
            "out_of_reach": list(self.clipped),
            "success": fraction == 1.0 and not self._others_gone(),
            "cause": cause,
        }

    def observation(self) -> Observation:
        positions, rotations = self.physics.tools()
        quaternions = Rotation.from_matrix(rotations).as_quat(canonical=True, scalar_first=True)
        out: Observation = {
            "poses": np.concatenate([positions, quaternions], axis=1).astype(np.float32).ravel()
        }
        if self.config.image_size is not None:
            out["image"] = self.picture(self.view(), self.config.image_size, self.config.image_size)
        if self.config.ball_positions:
            out["balls"] = np.clip(self.balls, -2.0, 2.0).astype(np.float32)
        return out

    def demonstrator(self, seed: int = 0, noise: float = 0.0) -> Demonstrator:
        """A player of the episode that `reset` has begun, which reads the places of the balls.

        Raises ValueError for a seed that is not from 0 to 2^32 - 1, or a noise that is not from 0 to 1.
        """
        self.check_running("demonstrator")
        return Demonstrator(self, seed, noise)

    def oracle_action(self) -> NDArray[np.float32]:
        """The next action of a demonstrator without noise, [12]."""
        if self._oracle is None:
            self._oracle = self.demonstrator()
        return self._oracle.act().executed

    players = {"oracle": oracle_action}  # noqa: RUF012

    def view(self) -> View:
        """The camera, which stands still as long as the look stays."""
        return self.look.camera

    def shapes(self) -> dict[str, Shape]:
        """Table, bowls, balls and arms now, by name."""
        self.check_begun("shapes")
        return drawn.shapes(self)

    def scene(self) -> Scene:
        """What the software renderer draws."""
        self.check_begun("scene")
        return drawn.scene(self)

    def poses(self) -> Array:
        """Poses [M, 4, 4] (to world) of what moves."""
        self.check_begun("poses")
        return drawn.poses(self)

    def robot(self) -> Description:
        """Both arms and their low level."""
        return description.robot(self, LEAD)


def _off_table(balls: NDArray[np.float64]) -> int:
    return int((balls[:, 2] < FALLEN).sum())

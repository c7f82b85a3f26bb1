"""The stepping-stones task: a robot crosses a row of stones, seen by two depth cameras (HRF, Appendix K.1).

The paper fixes the stones and the cameras' size; observation, action, reward, rates and poses are ours,
and docs/stepping-stones.md gives the reason for each.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Dict, Space
from numpy.typing import NDArray

from robopolicy.control.kinematics import LEGS, Legs, leg_balls
from robopolicy.control.odometry import Odometry
from robopolicy.control.proprioception import proprioception
from robopolicy.control.reading import Reading
from robopolicy.control.robot import Robot
from robopolicy.control.robots import LAIKAGO, robot_of
from robopolicy.envs.drawing.scene import Scene
from robopolicy.envs.members import Curriculum, Description, Outcome, Shape
from robopolicy.envs.physics import loaded, make_physics
from robopolicy.envs.physics.base import Array, Physics, Start, View
from robopolicy.envs.quadruped import description, drawn
from robopolicy.envs.quadruped.body_sensors import BodySensors, SensedState, TrueState
from robopolicy.envs.quadruped.cameras import DepthCamera, Ground
from robopolicy.envs.quadruped.description import ODOMETRY
from robopolicy.envs.quadruped.oracle import OracleConfig, foothold_offsets, shifted
from robopolicy.envs.quadruped.presets import (
    PRESETS,
    SteppingStonesConfig,
    default_policy,
    draw,
    presets_of,
)
from robopolicy.envs.quadruped.walker import Walker
from robopolicy.envs.simulated import Observation, SimulatedTask, Step
from robopolicy.naming import one_of
from robopolicy.settings import check_types

BOUND = np.float32(50.0)  # of proprioception: far beyond anything before an episode has ended


def _balls(legs: Legs, reading: Reading) -> Array:
    """The balls [N, 3] (m, world) that cameras see of the legs."""
    in_yaw = leg_balls(legs, reading.joints) @ reading.base_to_yaw.T
    return reading.position + in_yaw @ reading.to_yaw


class SteppingStones(SimulatedTask):
    """Observation: two depth images (m) and proprioception, named by `PROPRIOCEPTION`. Action: [4] floats.

    The action moves the landing of each foot (FR, FL, RR, RL) along x by up to `largest_offset`; the action
    of the step in which a foot lifts off applies to its whole swing. On `sparse`, the action has [8] floats:
    four more move landings to the left by up to `largest_aside`, and proprioception is named by
    `LATERAL_PROPRIOCEPTION`. `front` has the front camera alone, and `odometry` [3]. `info` holds `distance`
    (m), `success` and `cause`, the reason for the end of the episode ("" while it runs). A step calls
    `on_tick`, if it is set, after each of its control periods.
    """

    rate: float = 20
    actions = description.footholds(SteppingStonesConfig.largest_offset)
    vectors = {"proprioception": description.proprioception()}  # noqa: RUF012
    outcomes = (Outcome("distance", "distance", "{:z7.2f} m", "{:z.2f} m"),)
    cameras = description.depth_cameras()
    notes = {"proprioception": {"clip": (-float(BOUND), float(BOUND))}}  # noqa: RUF012
    feedback = (description.FEEDBACK,)
    presets = tuple(PRESETS)
    # A painted course has 4 m: the oracle earns 3.91, a policy that looks at nothing 2.4. On real stones a
    # single course may let the whole population fall at its first gap.
    curriculum = Curriculum(("painted", "paper"), advance_at=(3.85,), episodes=(1, 3))
    policy_settings = default_policy(SteppingStonesConfig())
    # A foot that lifts off now does better by what the policy wanted a step ago than by no offset at all.
    holds_last_action = True
    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 20}  # noqa: RUF012 (gymnasium's own)

    def __init__(
        self,
        engine: str | None = None,
        preset: str = "paper",
        renderer: str = "software",
        episode_seconds: float | None = None,
        render_mode: str | None = None,
        render_size: tuple[int, int] = (960, 540),
        config: SteppingStonesConfig | None = None,
        cameras: tuple[str, ...] | None = None,
        drift: float | None = None,
        robot: str | Path | Robot = LAIKAGO.name,
    ) -> None:
        """`config` replaces the one that `preset` and `robot` name; `render_size` is (width, height).

        cameras: `front`, `belly` or both, in place of those of the preset.
        drift: of the odometry (m a policy step), in place of that of the preset.
        robot: a name in `robopolicy.control.robots.ROBOTS`, a table of your own, or its JSON file's path.
        """
        super().__init__(engine, renderer, render_mode, render_size)
        check_types("SteppingStones", {"config": config}, SteppingStones.__init__)
        if config is None:
            config = presets_of(robot_of(robot))[one_of("preset", preset, PRESETS)]
        if episode_seconds is not None:
            config = replace(config, episode_seconds=episode_seconds)
        self.config = config = config.seen_by(cameras, drift)
        if self.engine == "jax":
            loaded("jax", "batched.course").check_friction(config)
        self.physics: Physics = make_physics(
            self.engine,
            config.robot,
            visible=self.renderer == "tiny",
            control_period=config.walker.control_period,
        )
        self.walker = Walker(config.robot, config.walker)
        self.rate = 1 / config.policy_period
        self.metadata = {**self.metadata, "render_fps": int(self.rate) if self.rate % 1 == 0 else self.rate}
        self.actions = description.footholds(config.largest_offset, config.largest_aside)
        self.policy_settings = default_policy(config)
        names = self.policy_settings["proprioception"]
        self.vectors = {"proprioception": description.proprioception(names, config.robot)}
        self.cameras = description.depth_cameras(config.images)
        self.ticks = round(config.policy_period / config.walker.control_period)
        images = {
            name: Box(0.0, camera.reach, (camera.height, camera.width), np.float32)
            for name, camera in config.images.items()
        }
        spaces: dict[str, Space[Any]] = {
            **images,
            "proprioception": Box(-BOUND, BOUND, (len(names),), np.float32),
        }
        if config.odometry is not None:
            self.vectors["odometry"] = ODOMETRY
            most = np.array([quantity.high for quantity in ODOMETRY], np.float32)
            spaces["odometry"] = Box(-most, most, dtype=np.float32)
            self._odometer = -most, most
        self.observation_space = Dict(spaces)
        self.action_space = Box(-1.0, 1.0, (len(self.actions),), np.float32)

    @staticmethod
    def batch(**settings: Any) -> Any:
        """`robopolicy.envs.batched.stones.SteppingStonesBatch` with these settings."""
        return loaded("jax", "batched.stones").SteppingStonesBatch(**settings)

    @property
    def control_period(self) -> float:
        """See `Task`."""
        return self.config.policy_period

    @property
    def deadline(self) -> float:
        """A control period of the low level."""
        return self.config.walker.control_period

    def reference_images(self) -> dict[str, NDArray[np.float32]]:
        """The images of the cameras over unbroken level ground at the nominal height, in metres."""
        height = self.config.walker.height
        return {name: DepthCamera(camera).level_image(height) for name, camera in self.config.images.items()}

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Draw a terrain and put the robot at its start. The world is built anew: a seed fixes every bit."""
        super().reset(seed=seed, options=options)
        config = self.config
        self.terrain, self._disturbances, self.sensors = draw(config, self.np_random)
        start = np.array([0.0, 0.0, config.walker.height])
        self._ground = Ground(self.terrain)
        self._scene = None
        self._lowest_foot = float(self.terrain.tops.min()) - config.deepest_foot
        joints = config.robot.standing_joints(config.walker.height)
        self.physics.reset(Start(self.terrain.solids(), start, joints, self._disturbances.conditions))
        self.walker.begin(self.physics, self._knowledge())
        self._look()
        self._odometry = Odometry(config.robot.legs, self.walker.reading)
        self._previous = np.zeros(len(self.actions), np.float32)
        self._steps = 0
        self._running = True
        return self.observation(), self.info("")

    def step(self, action: NDArray[np.float32]) -> Step:
        """Advance by one policy period."""
        self.check_running("step")
        action = self.checked(action)
        config, walker = self.config, self.walker
        before = walker.truth.position[0]
        walker.offsets[:, 0] = config.largest_offset * action[: len(LEGS)].astype(float)
        if config.largest_aside:
            walker.offsets[:, 1] = config.largest_aside * action[len(LEGS) :].astype(float)
        lifting = walker.lifting()
        reward = -config.reward.effort * float(np.abs(walker.offsets[lifting]).sum())
        cause = ""
        for _ in range(self.ticks):
            push = self._disturbances.force(walker.time)
            if push is not None:
                self.physics.push(push)
            touched = walker.advance()
            if config.odometry is not None:
                self._odometry.update(walker.reading, ~walker.swinging)
            self._look()
            if self.on_tick is not None:
                self.on_tick()
            if touched.any():
                margins = self.terrain.margin(walker.truth.feet_world[touched])
                shortfalls = (config.reward.edge_margin - margins) / config.reward.edge_margin
                reward -= config.reward.edge * float(np.clip(shortfalls, 0.0, 1.0).sum())
            cause = self._end()
            if cause:
                break
        if config.odometry is not None and config.odometry.drift:
            self._odometry.place += config.odometry.drift * self.np_random.standard_normal(2)
        self._previous = action
        self._steps += 1
        reward += config.reward.progress * float(walker.truth.position[0] - before)
        if cause and cause != "goal":
            reward -= config.reward.fall
        return self.stepped(
            reward, cause, self._steps * config.policy_period >= config.episode_seconds - 1e-9
        )

    def _knowledge(self) -> TrueState:
        config = self.config
        if config.body_sensors is None:
            return TrueState()
        period = config.walker.control_period
        sensors = BodySensors(config.body_sensors, period, self.np_random)
        return SensedState(config.robot, sensors, period)

    def _end(self) -> str:
        config, reading = self.config, self.walker.truth
        x, y, z = reading.position.tolist()
        upright = z - self.walker.true_ground >= config.lowest_base and reading.tilt <= config.largest_tilt
        if self.walker.has_diverged or not upright:
            return "fall"
        if reading.lowest_foot - config.robot.foot_radius < self._lowest_foot:
            return "foot in a gap"
        if abs(y) > config.widest_drift:
            return "drift"
        return "goal" if x >= config.terrain.goal else ""

    def info(self, cause: str) -> dict[str, Any]:
        return {
            "distance": float(self.walker.truth.position[0]),
            "success": cause == "goal",
            "cause": cause,
        }

    def observation(self) -> Observation:
        body = proprioception(self.walker, self._previous, lateral=self.config.largest_aside > 0)
        bounded = np.clip(body, -BOUND, BOUND).astype(np.float32)
        seen = {**self.sensors.images(self._ground), "proprioception": bounded}
        if self.config.odometry is not None:
            place = [*self._odometry.place, self.walker.reading.attitude[2]]
            seen["odometry"] = np.clip(place, *self._odometer).astype(np.float32)
        return seen

    def _look(self) -> None:
        reading = self.walker.truth
        balls = partial(_balls, self.config.robot.legs, reading) if self.config.sensors.legs else None
        self.sensors.see(reading.position, float(reading.attitude[2]), balls)

    def oracle_action(self) -> NDArray[np.float32]:
        """The action of a policy that reads the places of the stones, [4] or [8]."""
        self.check_begun("oracle_action")
        largest, aside = self.config.largest_offset, self.config.largest_aside
        rows = shifted(self.terrain.rows(), *self.walker.misplaced[:2])
        offsets = foothold_offsets(self.walker, rows, largest, aside, OracleConfig())
        parts = [offsets[:, 0] / largest] + ([offsets[:, 1] / aside] if aside else [])
        return np.concatenate(parts).astype(np.float32)

    players = {"oracle": oracle_action}  # noqa: RUF012

    def halt(self) -> None:
        """The safe stop: no further foot lifts off, whatever the actions, and the robot stands."""
        self.walker.halt()

    def view(self) -> View:
        """The camera that follows the robot."""
        self.check_begun("view")
        x, _, _ = self.walker.truth.position
        return View(eye=(x - 0.15, -2.2, 1.1), target=(x - 0.15, 0.0, 0.29), field_of_view=38.0)

    def marks(self) -> NDArray[np.float64]:
        """Landing points of the feet in the air, [N, 3] (m, world)."""
        self.check_begun("marks")
        return self.walker.landings[self.walker.swinging] - self.walker.misplaced

    def shapes(self) -> dict[str, Shape]:
        """Stones, robot and footholds now, by name."""
        self.check_begun("shapes")
        return drawn.shapes(self)

    def scene(self) -> Scene:
        """What the software renderer draws."""
        self.check_begun("scene")
        return drawn.scene(self)

    def poses(self) -> Array:
        """Poses [M, 4, 4] (to world) of the robot's parts."""
        self.check_begun("poses")
        return drawn.poses(self)

    def caption(self, action: NDArray[np.float32]) -> list[str]:
        """The commanded footholds."""
        scale, words = [self.config.largest_offset], "ahead"
        if self.config.largest_aside:
            scale, words = [*scale, self.config.largest_aside], "ahead, to the left"
        offsets = 100 * np.array(scale) * action.reshape(len(scale), len(LEGS)).T
        feet = "   ".join(
            f"{leg} {', '.join(f'{part:+.0f}' for part in offset)}"
            for leg, offset in zip(LEGS, offsets, strict=True)
        )
        return [
            f"footholds of feet that lift off now, cm {words}:  {feet}",
            "ringed: where feet in the air land",
        ]

    def robot(self) -> Description:
        """The robot and its low level."""
        return description.low_level(self.config.robot, self.config.walker, self.physics)

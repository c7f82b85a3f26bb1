"""The stepping-stones task: a Laikago crosses a row of stones, seen by two depth cameras (HRF, Appendix K.1).

The paper fixes the stones and the cameras' size; observation, action, reward, rates and poses are ours,
and docs/stepping-stones.md gives the reason for each.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Box, Dict
from numpy.typing import NDArray

from robopolicy.envs.drawing.scene import Scene
from robopolicy.envs.members import Curriculum, Description, Outcome, Shape
from robopolicy.envs.physics import loaded, make_physics
from robopolicy.envs.physics.base import Array, Physics, Start, View
from robopolicy.envs.quadruped import description, drawn
from robopolicy.envs.quadruped.cameras import CAMERAS, NO_BALLS, DepthCamera, Ground
from robopolicy.envs.quadruped.description import LATERAL_PROPRIOCEPTION, PROPRIOCEPTION
from robopolicy.envs.quadruped.difficulty import DisturbanceConfig, Disturbances, SensorConfig, Sensors
from robopolicy.envs.quadruped.kinematics import FOOT_RADIUS, LEGS, leg_balls
from robopolicy.envs.quadruped.oracle import OracleConfig, foothold_offsets
from robopolicy.envs.quadruped.stance import StanceConfig
from robopolicy.envs.quadruped.terrain import ScatteredConfig, Terrain, TerrainConfig, drawn_terrain
from robopolicy.envs.quadruped.walker import Walker, WalkerConfig, standing_joints
from robopolicy.envs.simulated import LONGEST_EPISODE, Observation, SimulatedTask, Step
from robopolicy.naming import one_of
from robopolicy.settings import check_number

ROBOT_MASS = 25.6  # kg, for the size of pushes
BOUND = np.float32(50.0)  # of proprioception: far beyond anything before an episode has ended


@dataclass(frozen=True)
class RewardConfig:
    """The reward of a step. Progress is in metres, so that a full crossing earns about its length."""

    progress: float = 1.0  # earned for each metre ahead
    edge: float = 0.15  # lost for a touchdown over a gap; rises from 0 at `edge_margin`
    edge_margin: float = 0.03  # m
    effort: float = 0.08  # lost for each metre of foothold offset, at lift-off
    fall: float = 3.0  # lost once, if the episode ends before the goal by anything but time


@dataclass(frozen=True)
class SteppingStonesConfig:
    """The whole task. Times in seconds, lengths in metres, angles in radians."""

    terrain: TerrainConfig = field(default_factory=TerrainConfig)
    walker: WalkerConfig = field(default_factory=WalkerConfig)
    reward: RewardConfig = field(default_factory=RewardConfig)
    disturbances: DisturbanceConfig = field(default_factory=DisturbanceConfig)
    sensors: SensorConfig = field(default_factory=SensorConfig)
    policy_period: float = 0.05
    largest_offset: float = 0.15  # of a foothold, for an action of one
    largest_aside: float = 0.0  # the same to the left; 0 for actions without this part
    episode_seconds: float = 20.0
    lowest_base: float = 0.28  # over what it stands on; below it the robot has fallen
    largest_tilt: float = 0.6  # roll or pitch
    deepest_foot: float = 0.06  # toe below the lowest stone: a foot in a gap
    widest_drift: float = 0.25  # of the base from the middle

    def __post_init__(self) -> None:
        period = self.walker.control_period
        check_number("policy_period", self.policy_period, period, 1.0)
        if abs(self.policy_period / period - round(self.policy_period / period)) > 1e-9:
            raise ValueError(
                f"policy_period is {self.policy_period}: it must be a multiple of control_period, {period}"
            )
        check_number("largest_offset", self.largest_offset, 0.01, 0.3)
        check_number("largest_aside", self.largest_aside, 0.01 if self.largest_aside else 0.0, 0.15)
        check_number("episode_seconds", self.episode_seconds, self.policy_period, LONGEST_EPISODE)


# A foot on a raised stone slides ahead unless it is braked, and a payload lowers the base.
RUGGED = WalkerConfig(stance=StanceConfig(grip=40.0, pose_weights=(5.0, 5.0, 20.0, 0.0, 0.0, 40.0)))
PRESETS = {
    "paper": SteppingStonesConfig(),
    "painted": SteppingStonesConfig(terrain=TerrainConfig(painted=True, goal=4.0)),
    "dust": SteppingStonesConfig(sensors=SensorConfig(noise=0.01, blobs=4, legs=True)),
    "dust-thick": SteppingStonesConfig(sensors=SensorConfig(noise=0.02, blobs=10, legs=True)),
    "hard": SteppingStonesConfig(
        terrain=TerrainConfig(length=(0.45, 0.75), gap=(0.12, 0.25), height_step=0.04, yaw=0.1),
        disturbances=DisturbanceConfig(
            friction=(0.5, 1.0), payload=(0.0, 3.0), motor_strength=(0.9, 1.1), push=0.2
        ),
        sensors=SensorConfig(noise=0.005, dropout=0.01, latency=0.02, mount_shift=0.005, mount_tilt=1.0),
        walker=RUGGED,
    ),
    "extreme": SteppingStonesConfig(
        terrain=TerrainConfig(length=(0.4, 0.65), gap=(0.15, 0.30), height_step=0.07, yaw=0.2),
        disturbances=DisturbanceConfig(
            friction=(0.4, 1.0), payload=(0.0, 6.0), motor_strength=(0.8, 1.1), push=0.3
        ),
        sensors=SensorConfig(noise=0.01, dropout=0.05, latency=0.04, mount_shift=0.01, mount_tilt=2.0),
        walker=RUGGED,
    ),
    "sparse": SteppingStonesConfig(terrain=ScatteredConfig(), largest_aside=0.1),
    "sparse-dirty": SteppingStonesConfig(
        terrain=ScatteredConfig(),
        largest_aside=0.1,
        sensors=SensorConfig(noise=0.01, blobs=4, legs=True, mount_tilt=4.0),
    ),
}


def default_policy(config: SteppingStonesConfig) -> Description:
    """The policy that is trained by default."""
    reach = (config.largest_offset, config.largest_aside)[: 1 + bool(config.largest_aside)]
    return {
        "kind": "iap",
        "proprioception": LATERAL_PROPRIOCEPTION if config.largest_aside else PROPRIOCEPTION,
        "footholds": description.reading(config.walker.height, reach),
    }


class Draw(NamedTuple):
    """What an episode draws."""

    terrain: Terrain
    disturbances: Disturbances
    sensors: Sensors


def draw(config: SteppingStonesConfig, rng: np.random.Generator) -> Draw:
    """Draw an episode."""
    return Draw(
        drawn_terrain(config.terrain, rng),
        Disturbances(config.disturbances, ROBOT_MASS, config.episode_seconds, rng),
        Sensors(CAMERAS, config.sensors, config.walker.control_period, rng),
    )


class SteppingStones(SimulatedTask):
    """Observation: two depth images (m) and proprioception, named by `PROPRIOCEPTION`. Action: [4] floats.

    The action moves the landing of each foot (FR, FL, RR, RL) along x by up to `largest_offset`; the action
    of the step in which a foot lifts off applies to its whole swing. On `sparse`, the action has [8] floats:
    four more move landings to the left by up to `largest_aside`, and proprioception is named by
    `LATERAL_PROPRIOCEPTION`. `info` holds `distance`
    (m), `success` and `cause`, the reason for the end of the episode ("" while it runs). A step calls
    `on_tick`, if it is set, after each of its control periods.
    """

    rate: float = 20
    actions = description.footholds(SteppingStonesConfig.largest_offset)
    vectors = {"proprioception": description.proprioception()}  # noqa: RUF012
    outcomes = (Outcome("distance", "distance", "{:7.2f} m", "{:.2f} m"),)
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
    ) -> None:
        """`config` replaces the one that `preset` names; `render_size` is (width, height)."""
        super().__init__(engine, renderer, render_mode, render_size)
        if config is None:
            config = PRESETS[one_of("preset", preset, PRESETS)]
        if episode_seconds is not None:
            config = replace(config, episode_seconds=episode_seconds)
        self.config = config
        self.physics: Physics = make_physics(self.engine, visible=self.renderer == "tiny")
        self.walker = Walker(config.walker)
        self.rate = 1 / config.policy_period
        self.actions = description.footholds(config.largest_offset, config.largest_aside)
        self.policy_settings = default_policy(config)
        names = self.policy_settings["proprioception"]
        self.vectors = {"proprioception": description.proprioception(names)}
        self.ticks = round(config.policy_period / config.walker.control_period)
        images = {
            name: Box(0.0, camera.reach, (camera.height, camera.width), np.float32)
            for name, camera in CAMERAS.items()
        }
        proprioception = Box(-BOUND, BOUND, (len(names),), np.float32)
        self.observation_space = Dict({**images, "proprioception": proprioception})
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
        """The images of the cameras over unbroken level ground at the nominal height, [24, 32] (m) each."""
        height = self.config.walker.height
        return {name: DepthCamera(camera).level_image(height) for name, camera in CAMERAS.items()}

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
        joints = standing_joints(config.walker.height)
        self.physics.reset(Start(self.terrain.solids(), start, joints, self._disturbances.conditions))
        self.walker.reset(self.physics)
        self._look()
        self._previous = np.zeros(len(self.actions), np.float32)
        self._steps = 0
        self._running = True
        return self.observation(), self.info("")

    def step(self, action: NDArray[np.float32]) -> Step:
        """Advance by one policy period."""
        self.check_running("step")
        action = self.checked(action)
        config, walker = self.config, self.walker
        before = walker.reading.position[0]
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
            self._look()
            if self.on_tick is not None:
                self.on_tick()
            if touched.any():
                margins = self.terrain.margin(walker.reading.feet_world[touched])
                shortfalls = (config.reward.edge_margin - margins) / config.reward.edge_margin
                reward -= config.reward.edge * float(np.clip(shortfalls, 0.0, 1.0).sum())
            cause = self._end()
            if cause:
                break
        self._previous = action
        self._steps += 1
        reward += config.reward.progress * float(walker.reading.position[0] - before)
        if cause and cause != "goal":
            reward -= config.reward.fall
        return self.stepped(
            reward, cause, self._steps * config.policy_period >= config.episode_seconds - 1e-9
        )

    def _end(self) -> str:
        config, reading = self.config, self.walker.reading
        x, y, z = reading.position.tolist()
        # After a divergence of the engine, comparisons with NaN are false: the robot has fallen, too.
        upright = z - self.walker.ground >= config.lowest_base and reading.tilt <= config.largest_tilt
        if not upright:
            return "fall"
        if reading.lowest_foot - FOOT_RADIUS < self._lowest_foot:
            return "foot in a gap"
        if abs(y) > config.widest_drift:
            return "drift"
        return "goal" if x >= config.terrain.goal else ""

    def info(self, cause: str) -> dict[str, Any]:
        return {
            "distance": float(self.walker.reading.position[0]),
            "success": cause == "goal",
            "cause": cause,
        }

    def observation(self) -> Observation:
        walker, reading = self.walker, self.walker.reading
        phase = 2 * np.pi * walker.time / self.config.walker.gait.period
        proprioception = np.concatenate(
            [
                reading.attitude[:2],
                reading.angular_velocity,
                reading.velocity,
                reading.feet.ravel(),
                [np.sin(phase), np.cos(phase)],
                self._previous,
                walker.nominal_landings(),
                walker.nominal_asides() if self.config.largest_aside else [],
            ]
        )
        bounded = np.clip(proprioception, -BOUND, BOUND).astype(np.float32)
        return {**self.sensors.images(self._ground), "proprioception": bounded}

    def _look(self) -> None:
        reading, balls = self.walker.reading, NO_BALLS
        if self.config.sensors.legs:
            in_yaw = leg_balls(reading.joints) @ reading.base_to_yaw.T
            balls = reading.position + in_yaw @ reading.to_yaw
        self.sensors.see(reading.position, float(reading.attitude[2]), balls)

    def oracle_action(self) -> NDArray[np.float32]:
        """The action of a policy that reads the places of the stones, [4]."""
        largest, aside = self.config.largest_offset, self.config.largest_aside
        offsets = foothold_offsets(self.walker, self.terrain.rows(), largest, aside, OracleConfig())
        parts = [offsets[:, 0] / largest] + ([offsets[:, 1] / aside] if aside else [])
        return np.concatenate(parts).astype(np.float32)

    players = {"oracle": oracle_action}  # noqa: RUF012

    def halt(self) -> None:
        """The safe stop: no further foot lifts off, whatever the actions, and the robot stands."""
        self.walker.halt()

    def view(self) -> View:
        """The camera that follows the robot."""
        x, _, _ = self.walker.reading.position
        return View(eye=(x - 0.15, -2.2, 1.1), target=(x - 0.15, 0.0, 0.29), field_of_view=38.0)

    def marks(self) -> NDArray[np.float64]:
        """Landing points of the feet in the air, [N, 3] (m, world)."""
        return self.walker.landings[self.walker.swinging]

    def shapes(self) -> dict[str, Shape]:
        """Stones, robot and footholds now, by name."""
        return drawn.shapes(self)

    def scene(self) -> Scene:
        """What the software renderer draws."""
        return drawn.scene(self)

    def poses(self) -> Array:
        """Poses [M, 4, 4] (to world) of the robot's parts."""
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
        """The Laikago and its low level."""
        return description.robot(self.config.walker, self.physics)

"""The courses of a batch: terrain, conditions and cameras of every world, as arrays.

They are drawn on the host in the order of `SteppingStones.reset`, so a seed gives the same course here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from robopolicy.control.kinematics import LEGS
from robopolicy.control.robots import LAIKAGO
from robopolicy.envs.batched.dynamics import Array, Model
from robopolicy.envs.batched.mpc import Body
from robopolicy.envs.physics.base import Box, Conditions, Start
from robopolicy.envs.physics.mujoco import BASE, MujocoPhysics, mujoco
from robopolicy.envs.quadruped.presets import PRESETS, Draw, SteppingStonesConfig, draw
from robopolicy.envs.quadruped.terrain import ScatteredConfig, TerrainConfig
from robopolicy.settings import check_counts

RAISED = 10.0  # rounding errors of a metre, at the start: else rounding decides whether a toe touches
AWAY = -1000.0  # m, height of boxes that a course does not have
LAST_SEED = 2**32 - 1  # the noise of cameras has seeds of 32 bits
LEAST_FRICTION = 0.05  # with less, contacts are too stiff for float32
LINKS = ("hip", "upper", "lower")
IN_VIEW = {TerrainConfig: 8, ScatteredConfig: 56}  # stones that a camera sees at most, on the presets
GROUND = Box((0.0, 0.0, -0.5), (1.0, 1.0, 0.5))


class Course(NamedTuple):
    """One world, or with a leading axis one for each world of a batch.

    Attributes:
      model, body: the robot with its payload, and the MPC's model of it, without.
      friction, strength: [], of the contacts and of the motors.
      solids: [B, 8], boxes to stand on. stones: [B, 8] and floor: [8], those that are seen. Rows of boxes
        hold centre, half extents (m), and cosine and sine of the yaw.
      edges: [B, 5], start and end (m along the middle) of each stone, slope of its ends, and its right and
        left side (m), which are infinite if touchdowns beside a stone cost nothing.
      lowest: [] (m), height of a toe that is in a gap.
      push_starts, push_forces: [K] (s) and [K, 3] (N, world).
      eyes, tilts: [C, 3] (m) and [C] (rad), the cameras on the base.
      seed: [], of the cameras' noise.
    """

    model: Any
    body: Any
    friction: Array
    strength: Array
    solids: Array
    stones: Array
    floor: Array
    edges: Array
    lowest: Array
    push_starts: Array
    push_forces: Array
    eyes: Array
    tilts: Array
    seed: Array


class Robot:
    """The Laikago of MuJoCo's model, at its start, with payloads."""

    def __init__(self, config: SteppingStonesConfig) -> None:
        self._physics, height = MujocoPhysics(LAIKAGO), config.walker.height
        self._start = Start([GROUND], np.array([0.0, 0.0, height]), LAIKAGO.standing_joints(height))
        self._physics.reset(self._start)
        mass, center, inertia = self._physics.mass_properties()
        self.body = Body(np.float64(mass), np.linalg.inv(inertia), center)

    def model(self, payload: float) -> Model:
        """The model with `payload` (kg), in NumPy float64."""
        self._physics.reset(self._start._replace(conditions=Conditions(payload=payload)))
        return model_of(self._physics)


def check_robot(robot: Any) -> None:
    """Raise ValueError, in one line, for another robot than the one that these programs have."""
    if robot not in (LAIKAGO, LAIKAGO.name):
        name = getattr(robot, "name", robot)
        raise ValueError(
            f"robot is {name!r}: the engine jax has {LAIKAGO.name} alone; mujoco and bullet have all robots"
        )


def check_friction(config: SteppingStonesConfig) -> None:
    """Raise ValueError, in one line, for a range of friction that these programs do not compute rightly."""
    friction = config.disturbances.friction
    if friction[0] < LEAST_FRICTION:
        raise ValueError(
            f"friction is {friction}: on the engine jax it must be {LEAST_FRICTION} or more; mujoco and "
            "bullet have less"
        )


def model_of(physics: MujocoPhysics) -> Model:
    """The model of MuJoCo's robot as it is now, payload included, in NumPy float64."""
    m = physics.model
    links = np.array([[m.body(f"{leg}_{link}").id for link in LINKS] for leg in LEGS])
    toes = np.array([m.body(f"{leg}_toe").id for leg in LEGS])
    masses, coms = m.body_mass[links], m.body_ipos[links]
    inertias = np.array([[_inertia(m, link) for link in leg] for leg in links])
    for leg, toe in enumerate(toes):  # a toe is welded to the last link
        turn = _rotation(m.body_quat[toe])
        place, mass = m.body_pos[toe] + turn @ m.body_ipos[toe], m.body_mass[toe]
        both = masses[leg, -1] + mass
        center = (masses[leg, -1] * coms[leg, -1] + mass * place) / both
        inertias[leg, -1] += _shifted(masses[leg, -1], coms[leg, -1] - center)
        inertias[leg, -1] += turn @ _inertia(m, toe) @ turn.T + _shifted(mass, place - center)
        masses[leg, -1], coms[leg, -1] = both, center
    return Model(
        m.body_mass[BASE],
        m.body_ipos[BASE].copy(),
        _inertia(m, BASE),
        m.body_pos[links],
        np.array([[_rotation(m.body_quat[link]) for link in leg] for leg in links]),
        m.jnt_axis[m.body_jntadr[links]],
        masses,
        coms,
        inertias,
        m.body_pos[toes],
        m.body_invweight0[toes, 0],
    )


def _inertia(model: Any, body: int) -> Any:
    turn = _rotation(model.body_iquat[body])
    return turn @ np.diag(model.body_inertia[body]) @ turn.T


def _shifted(mass: float, arm: Any) -> Any:
    """What a mass at `arm` [3] adds to an inertia [3, 3]."""
    return mass * (arm @ arm * np.eye(3) - np.outer(arm, arm))


def _rotation(quaternion: Any) -> Any:
    out = np.zeros(9)
    mujoco.mju_quat2Mat(out, quaternion)
    return out.reshape(3, 3)


def courses(config: SteppingStonesConfig, seeds: Sequence[int], dtype: Any) -> Course:
    """The courses of `seeds`, as the environment draws them, with a leading axis.

    Raises ValueError, in one line, for no seed, and for one that is not a whole number from 0 to 2^32 - 1.
    """
    if not len(seeds):
        raise ValueError(f"seeds is {seeds}: there must be one at least")
    check_counts("seeds", seeds, 0, LAST_SEED)
    robot = Robot(config)
    drawn = [draw(config, np.random.default_rng(np.random.PCG64(seed))) for seed in seeds]
    boxes = most_stones(config.terrain)
    rows = [_course(config, *one, robot, boxes) for one in zip(drawn, seeds, strict=True)]
    stacked = jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves), dtype), *rows)
    return stacked._replace(seed=jnp.asarray(np.array(seeds, np.uint32)))


def most_stones(terrain: TerrainConfig) -> int:
    """The largest number of stones in a course."""
    pitch = terrain.length[0] + terrain.gap[0]
    rows, across = max(0, math.ceil((terrain.goal + 1.0 - terrain.first_edge[0]) / pitch)), 1
    if isinstance(terrain, ScatteredConfig):
        across = math.ceil((terrain.width + terrain.aside[1]) / (terrain.breadth[0] + terrain.aside[0]))
    return 2 + rows * across


def in_view(terrain: TerrainConfig) -> int:
    """The largest number of stones that a camera sees; of another terrain than the presets', all stones."""
    is_known = any(terrain == preset.terrain for preset in PRESETS.values())
    return IN_VIEW[type(terrain)] if is_known else most_stones(terrain)


def _most_pushes(config: SteppingStonesConfig) -> int:
    """The largest number of pushes in an episode."""
    disturbances = config.disturbances
    apart = disturbances.push_interval[0] + disturbances.push_seconds
    return 1 + (math.ceil(config.episode_seconds / apart) if disturbances.push else 0)


def _course(config: SteppingStonesConfig, drawn: Draw, seed: int, robot: Robot, boxes: int) -> Course:
    terrain, disturbances, sensors = drawn
    conditions = disturbances.conditions
    edges = terrain.rows()
    if not isinstance(terrain.config, ScatteredConfig):
        edges[:, 3:] = -np.inf, np.inf
    pushes = _most_pushes(config)
    starts, forces = np.full(pushes, np.inf), np.zeros((pushes, 3))
    count = len(disturbances.starts)
    starts[:count], forces[:count] = disturbances.starts, np.reshape(disturbances.forces, (-1, 3))
    cameras = [camera.config for camera in sensors.cameras.values()]
    return Course(
        robot.model(conditions.payload),
        robot.body,
        np.float64(conditions.friction),
        np.float64(conditions.motor_strength),
        rows_of(terrain.solids(), boxes + 1),
        rows_of(terrain.stones(), boxes),
        rows_of([terrain.floor()], 1)[0],
        np.concatenate([edges, np.full((boxes - len(edges), 5), (AWAY, AWAY, 0.0, -np.inf, np.inf))]),
        np.float64(terrain.tops.min() - config.deepest_foot),
        starts,
        forces,
        np.array([camera.position for camera in cameras]),
        np.radians([camera.tilt for camera in cameras]),
        np.float64(seed),
    )


def rows_of(boxes: Sequence[Box], count: int) -> Any:
    """Boxes as rows, and fillers that nothing meets."""
    rows = [(*box.center, *box.half, np.cos(box.yaw), np.sin(box.yaw)) for box in boxes]
    return np.array(rows + [(AWAY, 0.0, AWAY, 0.1, 0.1, 0.1, 1.0, 0.0)] * (count - len(rows)))

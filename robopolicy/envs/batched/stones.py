"""Stepping stones in many worlds at once, as pure functions of arrays.

    batch = SteppingStonesBatch("paper")
    courses = batch.courses(range(64))
    walks, observation = batch.reset(courses)
    walks, observation, reward, done = batch.step(courses, walks, actions)

All worlds of a batch share one clock, so the gait's schedule is not batched. Courses, rewards and ends are
those of the environment `SteppingStones`; noise and dropout of the cameras have its distributions, drawn by
JAX. A world that has ended stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from robopolicy.control.kinematics import LEGS
from robopolicy.control.odometry import anchors
from robopolicy.control.reading import Reading
from robopolicy.control.robots import LAIKAGO
from robopolicy.envs.batched.cameras import image
from robopolicy.envs.batched.contacts import FOOT_RADIUS
from robopolicy.envs.batched.contacts import step as physics_step
from robopolicy.envs.batched.course import RAISED, Course, check_friction, check_robot, courses, in_view
from robopolicy.envs.batched.dynamics import Array, State
from robopolicy.envs.batched.mpc import ground_forces
from robopolicy.envs.batched.walker import (
    Clock,
    ahead,
    clock,
    commands,
    desired_velocity,
    hips_ahead,
    leg_balls,
    read,
    sway,
)
from robopolicy.envs.physics.mujoco import MujocoConfig
from robopolicy.envs.quadruped.description import ODOMETRY
from robopolicy.envs.quadruped.difficulty import with_blobs
from robopolicy.envs.quadruped.presets import PRESETS, SteppingStonesConfig
from robopolicy.envs.quadruped.stepping_stones import BOUND
from robopolicy.naming import one_of
from robopolicy.settings import check_types

ODOMETER = np.array([[q.low, q.high] for q in ODOMETRY], np.float32).T
CAUSES = ("", "fall", "foot in a gap", "drift", "goal", "time")
PRECISION = "highest"  # some accelerators round factors of products to ten bits by default
LONGEST = 600.0  # s; the table of the gait takes 0.1 MB a second
RUNNING, FALL, GAP, DRIFT, GOAL, TIME = range(len(CAUSES))


class Walk(NamedTuple):
    """One world in an episode; with a leading axis, those of a batch.

    Attributes:
      body: the robot. lift_offs, landings: [4, 3] (m, world) of the feet's swings. asides: [4] (m), shifts
        of these landings to the left. forces: [4, 3] (N) of the MPC's last plan.
      previous: [4] or [8], the last action. seen: [H, 4] or more, `_pose` of the last control periods, the
        oldest first.
      cause: [], index in `CAUSES`. total: [], the return. distance: [] (m).
      odometry: [2] (m), the place of the base by its legs.
      unsettled: [], plans whose active set has not settled. key: of the cameras' noise.
    """

    body: State
    lift_offs: Array
    landings: Array
    asides: Array
    forces: Array
    previous: Array
    seen: Array
    cause: Array
    total: Array
    distance: Array
    odometry: Array
    unsettled: Array
    key: Array


class Walks(NamedTuple):
    """A batch of walks; `steps` [] is the number of policy steps that all of them have taken."""

    steps: Array
    each: Walk


class SteppingStonesBatch:
    """The task for a batch of worlds. Its methods are pure, so they can be compiled and vectorised."""

    causes = CAUSES

    def __init__(
        self,
        preset: str = "paper",
        episode_seconds: float | None = None,
        config: SteppingStonesConfig | None = None,
        dtype: Any = jnp.float32,
        cameras: tuple[str, ...] | None = None,
        drift: float | None = None,
        robot: Any = LAIKAGO.name,
    ) -> None:
        """`config` replaces the one that `preset` names; `cameras` and `drift` as in `SteppingStones`.

        float64 needs JAX's 64-bit mode. Raises ValueError, in one line, for another robot than the Laikago,
        for episodes of more than `LONGEST`, for sensors of the body, and as `check_friction`.
        """
        check_types("SteppingStonesBatch", {"config": config}, SteppingStonesBatch.__init__)
        check_robot(robot if config is None else config.robot)
        if config is None:
            config = PRESETS[one_of("preset", preset, PRESETS)]
        if episode_seconds is not None:
            config = replace(config, episode_seconds=episode_seconds)
        if config.episode_seconds > LONGEST:
            raise ValueError(
                f"episode_seconds is {config.episode_seconds}: many worlds in one program play at most "
                f"{LONGEST:.0f}; the engine mujoco plays longer episodes"
            )
        if config.body_sensors is not None:
            raise ValueError(
                "body_sensors are set, as in the preset sensors: many worlds in one program know their true "
                "states; the engines mujoco and bullet have sensors"
            )
        check_friction(config)
        if dtype != jax.dtypes.canonicalize_dtype(jnp.float64):
            bits = 8 * jnp.dtype(dtype).itemsize
            raise ValueError(f"dtype has {bits} bits: JAX_ENABLE_X64 must be 1 for 64, and 0 for 32")
        self.config = config = config.seen_by(cameras, drift)
        self.dtype = dtype
        self.actions = len(LEGS) * (1 + bool(config.largest_aside))
        self.engine = MujocoConfig.of(config.robot, config.walker.control_period)
        self.ticks = round(config.policy_period / config.walker.control_period)
        self.last = int(np.ceil(config.episode_seconds / config.policy_period - 1e-9))
        # One row more for the observation after the last step.
        table = clock(config.walker, self.ticks * self.last + 1)
        self._clock = Clock(*(jnp.asarray(c, dtype if c.dtype == float else None) for c in table))
        self._delay = round(config.sensors.latency / config.walker.control_period)

    def courses(self, seeds: Sequence[int]) -> Course:
        """The courses of `seeds`, drawn on the host.

        Raises ValueError, in one line, for no seed, and for one that is no whole number from 0 to 2^32 - 1.
        """
        return courses(self.config, seeds, self.dtype)

    def reset(self, courses: Course) -> tuple[Walks, dict[str, Array]]:
        """All robots at their starts, and the first observation."""
        with jax.default_matmul_precision(PRECISION):
            return self._reset(courses)

    def _reset(self, courses: Course) -> tuple[Walks, dict[str, Array]]:
        walks = Walks(jnp.array(0), jax.vmap(self._begun)(jax.vmap(jax.random.key)(courses.seed)))
        return walks, self._observed(courses, walks)

    def _begun(self, key: Array) -> Walk:
        height, dtype = self.config.walker.height, self.dtype
        zeros = jnp.zeros(3, dtype)
        joints = jnp.asarray(LAIKAGO.standing_joints(height).reshape(4, 3), dtype)
        upright = jnp.array([1.0, 0.0, 0.0, 0.0], dtype)
        place = jnp.array([0.0, 0.0, height + RAISED * jnp.finfo(dtype).eps], dtype)
        body = State(place, upright, joints, zeros, zeros, jnp.zeros_like(joints))
        reading, zero = read(body), jnp.zeros((), dtype)
        feet, place = reading.feet_world, self._pose(reading).astype(dtype)
        seen = jnp.broadcast_to(place, (1 + self._delay, len(place)))
        count = jnp.array(0)
        still, previous = jnp.zeros(len(LEGS), dtype), jnp.zeros(self.actions, dtype)
        start = jnp.zeros(2, dtype)
        return Walk(body, feet, feet, still, 0 * feet, previous, seen, count, zero, zero, start, count, key)

    def step(
        self, courses: Course, walks: Walks, actions: Array
    ) -> tuple[Walks, dict[str, Array], Array, Array]:
        """One policy step of all worlds with `actions` [N, A]: walks, observation, rewards [N], done [N]."""
        with jax.default_matmul_precision(PRECISION):
            return self._step(courses, walks, actions)

    def _step(
        self, courses: Course, walks: Walks, actions: Array
    ) -> tuple[Walks, dict[str, Array], Array, Array]:
        first = self.ticks * walks.steps
        actions = jnp.clip(jnp.asarray(actions, self.dtype), -1.0, 1.0)
        lifts = self._row(first).lifts
        starts = walks.each.body.position[:, 0]
        is_running = walks.each.cause == RUNNING

        def tick(parts: tuple[Walk, Array], index: Array) -> tuple[tuple[Walk, Array], None]:
            each, penalties = parts
            now, later = self._row(first + index), first + index + 1
            following, lost = jax.vmap(partial(self._tick, now, later))(courses, each, actions)
            keep = each.cause == RUNNING
            return (_chosen(keep, following, each), penalties + jnp.where(keep, lost, 0.0)), None

        zeros = jnp.zeros(len(actions), self.dtype)
        (each, penalties), _ = lax.scan(tick, (walks.each, zeros), jnp.arange(self.ticks))
        reward = self.config.reward
        offsets = jnp.abs(self._offsets(actions))
        effort = jnp.sum(jnp.where(lifts, offsets, 0.0), axis=(1, 2))
        rewards = reward.progress * (each.body.position[:, 0] - starts) - penalties - reward.effort * effort
        has_failed = (each.cause != RUNNING) & (each.cause != GOAL)
        rewards = rewards - reward.fall * has_failed
        rewards = jnp.where(is_running, rewards, 0.0)
        is_late = walks.steps + 1 >= self.last
        cause = jnp.where((each.cause == RUNNING) & is_late, TIME, each.cause)
        distance = jnp.where(is_running, each.body.position[:, 0], each.distance)
        previous = jnp.where(is_running[:, None], actions, each.previous)
        drifted = jnp.where(is_running[:, None], self._drifted(each, walks.steps), each.odometry)
        each = each._replace(odometry=drifted)
        each = each._replace(cause=cause, previous=previous, total=each.total + rewards, distance=distance)
        walks = Walks(walks.steps + 1, each)
        return walks, self._observed(courses, walks), rewards, cause != RUNNING

    def _drifted(self, each: Walk, steps: Array) -> Array:
        """The odometry [N, 2] after a policy step."""
        odometry = self.config.odometry
        if odometry is None or not odometry.drift:
            return each.odometry

        def drift(key: Array) -> Array:
            # No tick of an episode is so high, so these keys are not those of the images.
            key = jax.random.fold_in(key, 2**30 + steps)
            return odometry.drift * jax.random.normal(key, (2,), self.dtype)

        return each.odometry + jax.vmap(drift)(each.key)

    def outcomes(self, walks: Walks) -> dict[str, Array]:
        """The results of episodes that have ended, [N] each; `cause` is an index in `causes`."""
        each = walks.each
        return {"distance": each.distance, "success": each.cause == GOAL, "cause": each.cause}

    def _offsets(self, actions: Array) -> Array:
        """Shifts (m) of the landings [..., R, 4] ahead and, if the preset has them, to the left."""
        config, shape = self.config, (*actions.shape[:-1], -1, len(LEGS))
        reach = (config.largest_offset, config.largest_aside)[: self.actions // len(LEGS)]
        return jnp.array(reach, self.dtype)[:, None] * actions.reshape(shape)

    def _row(self, tick: Array) -> Clock:
        return Clock(*(column[tick] for column in self._clock))

    def _tick(
        self, now: Clock, later: Array, course: Course, walk: Walk, action: Array
    ) -> tuple[Walk, Array]:
        """A control period of one world, and what its touchdowns lose."""
        config, reading = self.config.walker, read(walk.body)
        height = jnp.sum(jnp.where(now.stands, reading.feet_world[:, 2], 0.0)) / jnp.sum(now.stands)
        offsets = self._offsets(action)
        goals = hips_ahead(reading) + ahead(config, reading, now.ramp) + offsets[0]
        asides = jnp.where(now.lifts, offsets[1], walk.asides) if len(offsets) > 1 else walk.asides
        lift_offs = jnp.where(now.lifts[:, None], reading.feet_world, walk.lift_offs)
        landings = walk.landings.at[:, 0].set(jnp.where(now.lifts, goals, walk.landings[:, 0]))
        ground, desired = height - FOOT_RADIUS, desired_velocity(config, reading, now.ramp)
        forces, has_settled = lax.cond(
            now.replans,
            lambda: ground_forces(config, course.body, reading, now, landings, desired, ground),
            lambda: (walk.forces, jnp.array(True)),
        )
        time = (later - 1) * config.control_period
        push = self._push(course, time)
        target = height - config.swing.touchdown_press
        drive, landings = commands(
            config, reading, now, desired, forces, lift_offs, landings, asides, target, push
        )

        def advance(_: int, body: State) -> State:
            return physics_step(
                course.model, body, course.solids, drive, course.friction, course.strength, self.engine
            )

        body = lax.fori_loop(0, self.engine.substeps, advance, walk.body)
        before, reading = reading, read(body)
        lost = self._lost(course, reading, now.touches)
        place = self._pose(reading)
        walk = walk._replace(
            body=body,
            lift_offs=lift_offs,
            landings=landings,
            asides=asides,
            forces=forces,
            seen=jnp.concatenate([walk.seen[1:], place[None]]),
            cause=self._cause(course, reading, ground),
            odometry=self._moved(walk, before, reading, now.stands),
            unsettled=walk.unsettled + ~has_settled,
        )
        return walk, lost

    def _moved(self, walk: Walk, before: Reading, reading: Reading, stands: Array) -> Array:
        """The odometry after a control period, as `control.odometry`."""
        if self.config.odometry is None:
            return walk.odometry
        motions = anchors(LAIKAGO.legs, before, jnp) - anchors(LAIKAGO.legs, reading, jnp)
        return walk.odometry + jnp.mean(motions, axis=0, where=stands[:, None])

    def _pose(self, reading: Reading) -> Array:
        """What the cameras need: place (m) and yaw (rad) of the base and, if they see them, of the legs."""
        parts = [reading.position, reading.attitude[2:]]
        if self.config.sensors.legs:
            in_yaw = leg_balls(reading.joints) @ reading.base_to_yaw.T
            parts.append((reading.position + in_yaw @ reading.to_yaw).ravel())
        return jnp.concatenate(parts)

    def _push(self, course: Course, time: Array) -> Array:
        seconds = self.config.disturbances.push_seconds
        is_on = (course.push_starts <= time) & (time < course.push_starts + seconds)
        return jnp.sum(jnp.where(is_on[:, None], course.push_forces, 0.0), axis=0)

    def _lost(self, course: Course, reading: Reading, touches: Array) -> Array:
        reward, feet = self.config.reward, reading.feet_world
        x, y = feet[:, :1], feet[:, 1:2]
        start, end, slope, right, left = course.edges.T
        along = jnp.minimum(x - (start - y * slope), end - y * slope - x)
        inside = jnp.minimum(along, jnp.minimum(y - right, left - y))
        shortfall = jnp.clip(1 - inside.max(axis=1) / reward.edge_margin, 0.0, 1.0)
        return reward.edge * jnp.sum(jnp.where(touches, shortfall, 0.0))

    def _cause(self, course: Course, reading: Reading, ground: Array) -> Array:
        config, (x, y, z) = self.config, reading.position
        # NaN makes comparisons false: a diverged robot has fallen.
        is_upright = (z - ground >= config.lowest_base) & (reading.tilt <= config.largest_tilt)
        cause = jnp.where(x >= config.terrain.goal, GOAL, RUNNING)
        cause = jnp.where(jnp.abs(y) > config.widest_drift, DRIFT, cause)
        cause = jnp.where(reading.lowest_foot - FOOT_RADIUS < course.lowest, GAP, cause)
        return jnp.where(is_upright, cause, FALL)

    def _observed(self, courses: Course, walks: Walks) -> dict[str, Array]:
        tick = self.ticks * walks.steps
        before = self._row(jnp.maximum(tick - 1, 0))
        is_new = tick == 0
        stands = before.stands | is_new
        ramp = jnp.minimum(1.0, tick * self.config.walker.control_period / self.config.walker.ramp)
        return jax.vmap(partial(self._view, tick, stands, ramp.astype(self.dtype)))(courses, walks.each)

    def _view(self, tick: Array, stands: Array, ramp: Array, course: Course, walk: Walk) -> dict[str, Array]:
        config, reading = self.config.walker, read(walk.body)
        phase = (2 * np.pi / config.gait.period * config.control_period) * tick.astype(self.dtype)
        nominal = jnp.where(stands, ahead(config, reading, ramp), walk.landings[:, 0] - hips_ahead(reading))
        parts = [
            reading.attitude[:2],
            reading.angular_velocity,
            reading.velocity,
            reading.feet.ravel(),
            jnp.stack([jnp.sin(phase), jnp.cos(phase)]),
            walk.previous,
            nominal,
        ]
        if self.config.largest_aside:
            parts.append(sway(reading) + jnp.where(stands, 0.0, walk.asides))
        vector = jnp.clip(jnp.concatenate(parts), -BOUND, BOUND)
        images = self._images(tick, course, walk)
        seen = {**images, "proprioception": vector.astype(jnp.float32)}
        if self.config.odometry is not None:
            place = jnp.clip(jnp.append(walk.odometry, reading.attitude[2]), *ODOMETER)
            seen["odometry"] = place.astype(jnp.float32)
        return seen

    def _images(self, tick: Array, course: Course, walk: Walk) -> dict[str, Array]:
        place, yaw, sensors = walk.seen[0, :3], walk.seen[0, 3], self.config.sensors
        balls = walk.seen[0, 4:].reshape(-1, 3)
        c, s = jnp.cos(yaw), jnp.sin(yaw)
        turn = jnp.array([[c, s, 0.0], [-s, c, 0.0], [0.0, 0.0, 1.0]], self.dtype)
        images = {}
        cameras = self.config.images
        keys = jax.random.split(jax.random.fold_in(walk.key, tick), 2 * len(cameras))
        for index, (name, camera) in enumerate(cameras.items()):
            eye = place + course.eyes[index] @ turn
            stones = (course.tilts[index], eye, yaw, course.stones, course.floor, balls)
            depth = image(camera, in_view(self.config.terrain), *stones)
            if sensors.noise:
                noise = jax.random.normal(keys[2 * index], depth.shape, depth.dtype)
                depth = jnp.clip(depth + sensors.noise * depth**2 * noise, 0.0, camera.reach)
            if sensors.blobs:
                key = jax.random.fold_in(keys[2 * index], 1)
                draws = jax.random.uniform(key, (sensors.blobs, 4), depth.dtype)
                depth = with_blobs(sensors, depth, draws, camera.reach, jnp)
            if sensors.dropout:
                is_lost = jax.random.uniform(keys[2 * index + 1], depth.shape) < sensors.dropout
                depth = jnp.where(is_lost, 0.0, depth)
            images[name] = depth.astype(jnp.float32)
        return images


def _chosen(keep: Array, new: Any, old: Any) -> Any:
    """`new` where `keep` [N], else `old`, in all leaves."""

    def leaf(a: Array, b: Array) -> Array:
        return jnp.where(keep.reshape(keep.shape + (1,) * (a.ndim - 1)), a, b)

    return jax.tree.map(leaf, new, old)

"""One quadruped by the dynamics of the batch: the engine `jax`."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import NDArray

from robopolicy.control.robot import Robot
from robopolicy.envs.batched.contacts import Drive, step
from robopolicy.envs.batched.course import RAISED, check_robot, model_of, rows_of
from robopolicy.envs.batched.dynamics import Array, State
from robopolicy.envs.physics.base import BodyState, Conditions, Start, View
from robopolicy.envs.physics.floating import body_state
from robopolicy.envs.physics.mujoco import MujocoConfig, MujocoPhysics

LEG = (4, 3)
ROOM = 16  # boxes: their number is rounded up to a multiple, since another one compiles the step anew


class JaxPhysics:
    """The Laikago on boxes; implements `Physics`, in float32 and on the CPU.

    MuJoCo compiles the model and supplies its numbers. Toes collide with one box at a time.
    """

    settings = staticmethod(MujocoConfig.of)

    def __init__(self, robot: Robot, config: MujocoConfig | None = None, *, visible: bool = False) -> None:
        """`visible` has no effect: this engine draws nothing. Raises ValueError for another robot."""
        check_robot(robot)
        if jax.dtypes.canonicalize_dtype(np.float64) != np.float32:
            raise ValueError("JAX_ENABLE_X64 is set: the engine jax computes in float32, and needs it unset")
        self.config = config or MujocoConfig.of(robot)
        self._source = MujocoPhysics(robot, self.config)
        self._state: State | None = None

    def reset(self, start: Start) -> None:
        self._source.reset(start)
        self._conditions: Conditions = start.conditions
        place = np.array(start.position, np.float32)
        place[2] += RAISED * np.finfo(np.float32).eps
        with self._on_cpu():
            single = partial(jnp.asarray, dtype=jnp.float32)
            self._model = jax.tree.map(single, model_of(self._source))
            self._boxes = single(rows_of(start.boxes, -(-len(start.boxes) // ROOM) * ROOM))
            zeros = jnp.zeros(3)
            joints = single(np.reshape(start.joint_positions, LEG))
            self._state = State(single(place), single(start.quaternion), joints, zeros, zeros, jnp.zeros(LEG))
        self.command(np.zeros(12), np.zeros(12), np.zeros(12, bool))
        self._push = np.zeros(3, np.float32)

    @staticmethod
    def _on_cpu() -> Any:
        # One world on an accelerator waits for each of its small programs.
        return jax.default_device(jax.local_devices(backend="cpu")[0])

    @property
    def _now(self) -> State:
        if self._state is None:
            self._source.check_open()
            raise RuntimeError("physics needs a reset first")
        return self._state

    def state(self) -> BodyState:
        place, turn, joints, *rates = (np.asarray(part, float).ravel() for part in self._now)
        qpos, qvel = np.concatenate([place, turn, joints]), np.concatenate(rates)
        state: BodyState = body_state(qpos, qvel, np.arange(len(joints)))
        return state

    def command(self, positions: Array, torques: Array, position_controlled: NDArray[np.bool_]) -> None:
        held = np.reshape(position_controlled, LEG)
        targets, forces = (np.reshape(part, LEG).astype(np.float32) for part in (positions, torques))
        self._drive = Drive(targets, np.where(held, np.float32(0.0), forces), held, np.zeros(3, np.float32))

    def push(self, force: Array) -> None:
        self._push = np.asarray(force, np.float32)

    def step(self) -> None:
        now, conditions = self._now, self._conditions
        drive = self._drive._replace(push=self._push)
        with self._on_cpu():
            self._state = _stepped(
                self.config,
                self._model,
                now,
                self._boxes,
                drive,
                conditions.friction,
                conditions.motor_strength,
            )
        self._push = np.zeros(3, np.float32)

    def render(self, view: View, width: int, height: int) -> NDArray[np.uint8]:
        raise RuntimeError("engine 'jax' has no renderer: renderer 'software' draws its worlds")

    def mass_properties(self) -> tuple[float, Array, Array]:
        state, data = self.state(), self._source.data
        data.qpos[7:] = state.joint_positions
        return self._source.mass_properties()

    def close(self) -> None:
        """Release the engine; a second call does nothing."""
        self._source.close()
        self._state = None


@partial(jax.jit, static_argnums=0)
def _stepped(
    config: MujocoConfig,
    model: Any,
    state: State,
    boxes: Array,
    drive: Drive,
    friction: float,
    strength: float,
) -> State:
    """The state after a control period."""

    def advance(_: int, state: State) -> State:
        return step(model, state, boxes, drive, friction, strength, config)

    return lax.fori_loop(0, config.substeps, advance, state)

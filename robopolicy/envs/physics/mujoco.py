"""The Laikago in MuJoCo: the only file that imports that engine."""

from __future__ import annotations

import ctypes.util
import math
import os
from dataclasses import dataclass
from importlib.resources import files

import numba
import numpy as np
from numpy.typing import NDArray

if "DISPLAY" not in os.environ and ctypes.util.find_library("EGL"):
    # MuJoCo selects its OpenGL backend on import, and the default needs a display.
    os.environ.setdefault("MUJOCO_GL", "egl")
import mujoco

from robopolicy.envs.physics.base import UPRIGHT, Array, BodyState, Box, Conditions, View

FEET = ("FR_toe", "FL_toe", "RR_toe", "RL_toe")
BASE = 1  # body; 0 is the world
AWAY = -1000.0  # m, height of the boxes that an episode does not use


@dataclass(frozen=True)
class MujocoConfig:
    """Settings of the engine; docs/stepping-stones.md gives the reasons."""

    control_period: float = 0.01  # s
    substeps: int = 5  # physics steps per control period, 2 ms each
    solver_iterations: int = 8
    # Of a position-controlled joint. Errors decay with 75 1/s, as with Bullet's motors.
    stiffness: float = 600.0  # N m/rad
    damping: float = 8.0  # N m s/rad
    motor_torque: float = 60.0  # N m, limit of a position-controlled joint
    contact_time: float = 0.01  # s, time constant of contacts: feet penetrate by a millimetre
    contact_impedance: float = 0.9  # with 0.99 a standing robot vibrates and creeps


def white_sky(spec: mujoco.MjSpec) -> None:
    """Add a white background."""
    white = [1.0, 1.0, 1.0]
    kind, flat = mujoco.mjtTexture.mjTEXTURE_SKYBOX, mujoco.mjtBuiltin.mjBUILTIN_FLAT
    spec.add_texture(type=kind, builtin=flat, rgb1=white, rgb2=white, width=16, height=96)


_first_drawn_in: int | None = None  # process id; in a forked process OpenGL would hang


class Painter:
    """Draws pictures of one model. Close it before the model is deleted."""

    def __init__(self) -> None:
        self._renderer: mujoco.Renderer | None = None

    def draw(
        self, model: mujoco.MjModel, data: mujoco.MjData, view: View, width: int, height: int
    ) -> NDArray[np.uint8]:
        """A picture [height, width, 3].

        Raises RuntimeError without OpenGL, and in a process forked from one that has drawn.
        """
        global _first_drawn_in
        if _first_drawn_in not in (None, os.getpid()):
            raise RuntimeError(
                "MuJoCo cannot draw in a process that was forked from one that has drawn: spawn it instead, "
                'as with gymnasium.make_vec(..., vector_kwargs={"context": "spawn"})'
            )
        _first_drawn_in = os.getpid()
        if self._renderer is None or (self._renderer.width, self._renderer.height) != (width, height):
            self.close()
            model.vis.global_.offwidth, model.vis.global_.offheight = width, height
            try:
                self._renderer = mujoco.Renderer(model, height, width)
            except Exception as error:
                raise RuntimeError(
                    f"MuJoCo cannot draw here: {str(error).splitlines()[0]}; it needs OpenGL, for example "
                    "MUJOCO_GL=egl or osmesa; the bullet engine draws without it"
                ) from error
        eye, target = np.array(view.eye), np.array(view.target)
        ahead = target - eye
        camera = mujoco.MjvCamera()
        camera.lookat, camera.distance = target, float(np.linalg.norm(ahead))
        camera.azimuth = math.degrees(math.atan2(ahead[1], ahead[0]))
        camera.elevation = math.degrees(math.asin(ahead[2] / camera.distance))
        model.vis.global_.fovy = view.field_of_view
        self._renderer.update_scene(data, camera)
        return np.asarray(self._renderer.render())

    def close(self) -> None:
        """Release the renderer; a second call does nothing."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None


class MujocoPhysics:
    """Laikago (`assets/laikago.xml`, with the numbers of Bullet's model) on boxes; implements `Physics`.

    Only the toes collide, as in Bullet. The model is compiled once for a number of boxes; each reset writes
    all boxes and conditions.
    """

    def __init__(self, config: MujocoConfig | None = None, *, visible: bool = False) -> None:
        """`visible` has no effect: rendering costs nothing here until a picture is drawn."""
        self.config = config or MujocoConfig()
        self._model: mujoco.MjModel | None = None
        self._closed = False
        self._painter = Painter()
        self._boxes = 0

    def reset(
        self,
        boxes: list[Box],
        position: Array,
        joint_positions: Array,
        conditions: Conditions,
        quaternion: tuple[float, float, float, float] = UPRIGHT,
    ) -> None:
        if self._closed:
            raise RuntimeError("physics is closed: make a new environment")
        if len(boxes) > self._boxes:
            self._compile(-(-len(boxes) // 16) * 16)
        model, data, config = self._model, self._data, self.config
        assert model is not None
        self._strength = conditions.motor_strength
        model.geom_friction[self._toes, 0] = conditions.friction
        model.actuator_forcerange[:] = np.array([-1.0, 1.0]) * config.motor_torque * self._strength
        model.body_mass[BASE] = self._base_mass + conditions.payload
        self._place(boxes)
        mujoco.mj_setConst(model, data)
        mujoco.mj_resetData(model, data)
        self._hold(np.zeros(12, bool))
        data.qpos[:7] = (*position, *quaternion)
        data.qpos[7:] = joint_positions
        mujoco.mj_forward(model, data)

    def _compile(self, boxes: int) -> None:
        config = self.config
        self._painter.close()  # it belongs to the previous model
        spec = mujoco.MjSpec.from_string((files("robopolicy.assets") / "laikago.xml").read_text())
        for index in range(boxes):
            spec.worldbody.add_geom(
                name=f"box_{index}",
                type=mujoco.mjtGeom.mjGEOM_BOX,
                size=[1.0, 1.0, 1.0],
                contype=2,
                conaffinity=1,
            )
        spec.visual.headlight.ambient = [0.35, 0.35, 0.35]
        spec.visual.headlight.diffuse = [0.2, 0.2, 0.2]
        spec.worldbody.add_light(
            pos=[0, -2, 4],
            dir=[0.3, 0.5, -1],
            type=mujoco.mjtLightType.mjLIGHT_DIRECTIONAL,
            diffuse=[0.6, 0.6, 0.6],
        )
        white_sky(spec)
        for motor in spec.actuators:
            # Without this flag MuJoCo ignores the force range that every reset writes.
            motor.forcelimited = True
            motor.forcerange = [-config.motor_torque, config.motor_torque]
        option = spec.option
        option.timestep = config.control_period / config.substeps
        option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
        option.cone = mujoco.mjtCone.mjCONE_PYRAMIDAL
        option.iterations = config.solver_iterations
        # Resets move the boxes after compilation, which the midphase's data would not reflect.
        option.disableflags |= mujoco.mjtDisableBit.mjDSBL_MIDPHASE
        self._model = model = spec.compile()
        self._data = mujoco.MjData(model)
        self._boxes = boxes
        self._box_ids = np.array([model.geom(f"box_{index}").id for index in range(boxes)])
        self._toes = np.array([model.geom(name).id for name in FEET])
        self._base_mass = float(model.body_mass[BASE])
        model.geom_solref[self._toes] = (config.contact_time, 1.0)
        model.geom_solimp[self._toes, :2] = config.contact_impedance

    def _place(self, boxes: list[Box]) -> None:
        model, ids = self._model, self._box_ids
        assert model is not None
        spare = self._boxes - len(boxes)
        half = np.array([box.half for box in boxes] + [(0.1, 0.1, 0.1)] * spare)
        yaw = np.array([box.yaw for box in boxes] + [0.0] * spare) / 2
        model.geom_size[ids] = half
        model.geom_aabb[ids] = np.concatenate([np.zeros_like(half), half], axis=1)
        model.geom_rbound[ids] = np.linalg.norm(half, axis=1)
        model.geom_pos[ids] = [box.center for box in boxes] + [(0.0, 0.0, AWAY)] * spare
        zero = np.zeros_like(yaw)
        model.geom_quat[ids] = np.stack([np.cos(yaw), zero, zero, np.sin(yaw)], axis=1)
        shades = np.array([box.shade for box in boxes] + [0.5] * spare)
        model.geom_rgba[ids, :3] = shades[:, None]

    def _hold(self, held: NDArray[np.bool_]) -> None:
        """Switch the position servo of each joint [12] on or off."""
        model, config = self._model, self.config
        assert model is not None
        self._held = held.tobytes()
        model.actuator_gainprm[:, 0] = config.stiffness * held
        model.actuator_biasprm[:, 1] = -config.stiffness * held
        model.actuator_biasprm[:, 2] = -config.damping * held

    def state(self) -> BodyState:
        data = self._running()
        return BodyState(*_state(data.qpos, data.qvel))

    def command(self, positions: Array, torques: Array, position_controlled: NDArray[np.bool_]) -> None:
        data = self._running()
        if position_controlled.tobytes() != self._held:
            self._hold(position_controlled)
        data.ctrl[:] = positions
        _apply(data.qfrc_applied, torques, position_controlled, self._strength)

    def push(self, force: Array) -> None:
        self._running().xfrc_applied[BASE, :3] = force

    def step(self) -> None:
        data = self._running()
        mujoco.mj_step(self._model, data, nstep=self.config.substeps)
        data.xfrc_applied[BASE, :3] = 0.0

    def foot_contacts(self) -> NDArray[np.bool_]:
        geoms = self._running().contact.geom
        return np.array([bool((geoms == toe).any()) for toe in self._toes])

    def ray_distances(self, origins: Array, directions: Array, reach: float) -> Array:
        data = self._located()
        geom, groups = np.zeros(1, np.int32), np.array([1, 0, 0, 0, 0, 0], np.uint8)
        hits = [
            mujoco.mj_ray(self._model, data, o, d, groups, 1, BASE, geom)
            for o, d in zip(np.asarray(origins, float), np.asarray(directions, float), strict=True)
        ]
        distances = np.array(hits)
        return np.where((distances < 0) | (distances > reach), reach, distances)

    def render(self, view: View, width: int, height: int) -> NDArray[np.uint8]:
        data = self._located()
        model = self._model
        assert model is not None
        return self._painter.draw(model, data, view, width, height)

    def mass_properties(self) -> tuple[float, Array, Array]:
        data, model = self._located(), self._model
        assert model is not None
        masses = model.body_mass.copy()
        masses[BASE] = self._base_mass
        mass = float(masses.sum())
        center = masses @ data.xipos / mass
        inertia = np.zeros((3, 3))
        for m, place, axes, principal in zip(
            masses, data.xipos, data.ximat.reshape(-1, 3, 3), model.body_inertia, strict=True
        ):
            r = place - center
            inertia += axes @ np.diag(principal) @ axes.T + m * (r @ r * np.eye(3) - np.outer(r, r))
        base = data.xmat[BASE].reshape(3, 3)
        return mass, base.T @ (center - data.xpos[BASE]), base.T @ inertia @ base

    def mass_matrix(self) -> Array:
        data, model = self._located(), self._model
        assert model is not None
        mujoco.mj_crb(model, data)
        full = np.zeros((model.nv, model.nv))
        mujoco.mj_fullM(model, data, full)
        turn = self._world_axes()
        return np.asarray(turn @ full @ turn.T)

    def gravity_torques(self) -> Array:
        data = self._located()
        velocity = data.qvel.copy()
        data.qvel[:] = 0.0
        mujoco.mj_fwdVelocity(self._model, data)
        forces = data.qfrc_bias.copy()
        data.qvel[:] = velocity
        return np.asarray(self._world_axes() @ forces)

    def foot_positions(self) -> Array:
        return np.asarray(self._located().geom_xpos[self._toes].copy())

    def foot_jacobians(self) -> Array:
        data, model = self._located(), self._model
        assert model is not None
        mujoco.mj_comPos(model, data)
        jacobians = np.zeros((4, 3, model.nv))
        for jacobian, toe in zip(jacobians, self._toes, strict=True):
            mujoco.mj_jac(model, data, jacobian, None, data.geom_xpos[toe], model.geom_bodyid[toe])
        return np.asarray(jacobians @ self._world_axes().T)

    def contact_forces(self) -> Array:
        data = self._running()
        forces, one = np.zeros((4, 3)), np.zeros(6)
        for index in range(data.ncon):
            contact = data.contact[index]
            mujoco.mj_contactForce(self._model, data, index, one)
            toe = np.flatnonzero(np.isin(self._toes, contact.geom))
            # The frame's first axis points from the first geom to the second; the force acts on the second.
            sign = 1.0 if contact.geom[1] in self._toes else -1.0
            forces[toe] += sign * contact.frame.reshape(3, 3).T @ one[:3]
        return forces

    def close(self) -> None:
        self._painter.close()
        self._model = None
        self._closed = True

    def _running(self) -> mujoco.MjData:
        if self._model is None:
            raise RuntimeError(
                "physics is closed: make a new environment" if self._closed else "physics needs a reset first"
            )
        return self._data

    def _located(self) -> mujoco.MjData:
        """The data with updated positions of all bodies: a step leaves those of its beginning."""
        data = self._running()
        mujoco.mj_kinematics(self._model, data)
        mujoco.mj_comPos(self._model, data)
        return data

    def _world_axes(self) -> Array:
        """Matrix [18, 18] that rotates the base moments of a generalised force from body to world axes."""
        turn = np.eye(18)
        turn[3:6, 3:6] = self._data.xmat[BASE].reshape(3, 3)
        return turn


@numba.njit(cache=True)
def _state(qpos: Array, qvel: Array) -> tuple[Array, ...]:
    """The entries of a `BodyState`."""
    w, x, y, z = qpos[3:7]
    rotation = np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )
    angular = np.empty(3)  # MuJoCo gives a floating body's angular velocity in body axes
    for axis in range(3):
        angular[axis] = (rotation[axis] * qvel[3:6]).sum()
    return qpos[:3].copy(), rotation, qvel[:3].copy(), angular, qpos[7:].copy(), qvel[6:].copy()


@numba.njit(cache=True)
def _apply(applied: Array, torques: Array, held: NDArray[np.bool_], strength: float) -> None:
    """Write the torques of the joints that are not held, behind the six entries of the base."""
    for joint in range(len(torques)):
        applied[6 + joint] = 0.0 if held[joint] else strength * torques[joint]

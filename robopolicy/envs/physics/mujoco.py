"""A quadruped in MuJoCo: the only file that imports that engine."""

from __future__ import annotations

import ctypes.util
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

if "DISPLAY" not in os.environ and ctypes.util.find_library("EGL"):
    # MuJoCo selects its OpenGL backend on import, and the default needs a display.
    os.environ.setdefault("MUJOCO_GL", "egl")
import mujoco

from robopolicy.control.robot import Robot
from robopolicy.control.robots import LAIKAGO
from robopolicy.envs.physics.base import UPRIGHT, Array, BodyState, Box, Start, View, substeps
from robopolicy.envs.physics.fit import check_fit, check_names
from robopolicy.envs.physics.floating import body_state
from robopolicy.naming import one_line

BASE = 1  # the trunk, by `read_model`; body 0 is the world
AWAY = -1000.0  # m, height of the boxes that an episode does not use
DIVERGED = slice(int(mujoco.mjtWarning.mjWARN_BADQPOS), int(mujoco.mjtWarning.mjWARN_BADQACC) + 1)


@dataclass(frozen=True)
class MujocoConfig:
    """Settings of the engine; docs/stepping-stones.md gives the reasons."""

    control_period: float = 0.01  # s
    substeps: int = 5  # physics steps per control period, 2 ms each
    solver_iterations: int = 8
    # Of a position-controlled joint. Errors decay with 75 1/s, as with Bullet's motors.
    stiffness: float = LAIKAGO.stiffness  # N m/rad
    damping: float = LAIKAGO.damping  # N m s/rad
    motor_torque: float | tuple[float, ...] = LAIKAGO.held_torque  # N m, limit of such a joint, one or [12]
    contact_time: float = 0.01  # s, time constant of contacts: feet penetrate by a millimetre
    contact_impedance: float = 0.9  # with 0.99 a standing robot vibrates and creeps

    @classmethod
    def of(cls, robot: Robot, control_period: float = 0.01) -> MujocoConfig:
        """The settings for `robot` and a control period (s)."""
        return cls(
            control_period=control_period,
            substeps=substeps(control_period),
            stiffness=robot.stiffness,
            damping=robot.damping,
            motor_torque=robot.held_torque,
        )


_first_drawn_in: int | None = None  # process id; in a forked process OpenGL would hang


class MujocoWorld:
    """A model, its data, and pictures of it."""

    def __init__(self) -> None:
        self._data: mujoco.MjData | None = None
        self._closed = False
        self._renderer: mujoco.Renderer | None = None

    def check_open(self) -> None:
        """Raise RuntimeError after `close`."""
        if self._closed:
            raise RuntimeError("physics is closed: make a new environment")

    @property
    def data(self) -> mujoco.MjData:
        """The engine's state. Raises RuntimeError before the first reset and after `close`."""
        if self._data is None:
            self.check_open()
            raise RuntimeError("physics needs a reset first")
        return self._data

    @property
    def model(self) -> mujoco.MjModel:
        """The model of `data`; raises the same errors."""
        return self.data.model

    def load(self, spec: mujoco.MjSpec) -> None:
        """Compile a model of `spec`, and make its `data`."""
        self._release_renderer()  # it belongs to the previous model
        self._data = mujoco.MjData(spec.compile())

    def render(self, view: View, width: int, height: int) -> NDArray[np.uint8]:
        """A picture [height, width, 3].

        Raises RuntimeError without OpenGL, and in a process forked from one that has drawn.
        """
        global _first_drawn_in
        model, data = self.model, self.data
        if _first_drawn_in not in (None, os.getpid()):
            raise RuntimeError(
                "MuJoCo cannot draw in a process that was forked from one that has drawn: spawn it instead, "
                'as with gymnasium.make_vec(..., vector_kwargs={"context": "spawn"})'
            )
        _first_drawn_in = os.getpid()
        if self._renderer is None or (self._renderer.width, self._renderer.height) != (width, height):
            self._release_renderer()
            model.vis.global_.offwidth, model.vis.global_.offheight = width, height
            try:
                self._renderer = mujoco.Renderer(model, height, width)
            except Exception as error:
                raise RuntimeError(
                    f"MuJoCo cannot draw here: {str(error).splitlines()[0]}; it needs OpenGL, for example "
                    "MUJOCO_GL=egl or osmesa; renderer 'software' draws without it"
                ) from error
        ahead = np.array(view.target) - np.array(view.eye)
        camera = mujoco.MjvCamera()
        camera.lookat, camera.distance = view.target, float(np.linalg.norm(ahead))
        camera.azimuth = math.degrees(math.atan2(ahead[1], ahead[0]))
        camera.elevation = math.degrees(math.asin(ahead[2] / camera.distance))
        model.vis.global_.fovy = view.field_of_view
        self._renderer.update_scene(data, camera)
        return np.asarray(self._renderer.render())

    def close(self) -> None:
        """Release the engine; a second call does nothing."""
        self._release_renderer()
        self._data = None
        self._closed = True

    def _release_renderer(self) -> None:
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None


def set_scene(spec: mujoco.MjSpec, config: Any, headlight: tuple[float, float], **light: Any) -> None:
    """Set integrator, physics step and white sky; `headlight` (ambient, diffuse), and a `light` from afar."""
    spec.option.timestep = config.control_period / config.substeps
    spec.option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    spec.visual.headlight.ambient, spec.visual.headlight.diffuse = np.repeat(headlight, 3).reshape(2, 3)
    spec.worldbody.add_light(type=mujoco.mjtLightType.mjLIGHT_DIRECTIONAL, **light)
    white = [1.0, 1.0, 1.0]
    kind, flat = mujoco.mjtTexture.mjTEXTURE_SKYBOX, mujoco.mjtBuiltin.mjBUILTIN_FLAT
    spec.add_texture(type=kind, builtin=flat, rgb1=white, rgb2=white, width=16, height=96)


class MujocoPhysics(MujocoWorld):
    """A quadruped on boxes; implements `Physics`.

    Only the toes collide, as in Bullet. The model is compiled once for a number of boxes; each reset writes
    all boxes and conditions.
    """

    settings = staticmethod(MujocoConfig.of)

    def __init__(self, robot: Robot, config: MujocoConfig | None = None, *, visible: bool = False) -> None:
        """`visible` has no effect: rendering costs nothing here until a picture is drawn.

        Raises ValueError, in one line, for a model that is no MJCF, and for one that the robot's table does
        not fit.
        """
        super().__init__()
        self._robot = robot
        self.config = config or MujocoConfig.of(robot)
        self._order = self._fitted()
        self._boxes = 0

    def reset(self, start: Start) -> None:
        self.check_open()
        if len(start.boxes) > self._boxes:
            self._build(-(-len(start.boxes) // 16) * 16)
        conditions = start.conditions
        model, data = self.model, self.data
        self._strength = conditions.motor_strength
        model.geom_friction[self.toes, 0] = conditions.friction
        model.actuator_forcerange[:] = self._torques * self._strength
        model.body_mass[BASE] = self._base_mass + conditions.payload
        self._place(start.boxes)
        mujoco.mj_setConst(model, data)
        mujoco.mj_resetData(model, data)
        self._hold(np.zeros(12, bool))
        data.qpos[:7] = (*start.position, *start.quaternion)
        data.qpos[7 + self._order] = start.joint_positions
        mujoco.mj_forward(model, data)

    def _build(self, boxes: int) -> None:
        config = self.config
        spec = self._spec()
        self._torques = np.outer(np.broadcast_to(config.motor_torque, 12), [-1.0, 1.0])
        for index in range(boxes):
            spec.worldbody.add_geom(
                name=f"box_{index}",
                type=mujoco.mjtGeom.mjGEOM_BOX,
                size=[1.0, 1.0, 1.0],
                contype=2,
                conaffinity=1,
            )
        set_scene(spec, config, (0.35, 0.2), pos=[0, -2, 4], dir=[0.3, 0.5, -1], diffuse=[0.6, 0.6, 0.6])
        for joint, limits in zip(self._robot.joints, self._torques, strict=True):
            kind = mujoco.mjtTrn.mjTRN_JOINT
            motor = spec.add_actuator(name=joint, target=joint, trntype=kind)
            motor.biastype = mujoco.mjtBias.mjBIAS_AFFINE
            motor.gainprm[0] = 0.0  # `_hold` switches it on
            # Without this flag MuJoCo ignores the force range that every reset writes.
            motor.forcelimited = True
            motor.forcerange = limits
        option = spec.option
        option.cone = mujoco.mjtCone.mjCONE_PYRAMIDAL
        option.iterations = config.solver_iterations
        # Resets move the boxes after compilation, which the midphase's data would not reflect.
        option.disableflags |= mujoco.mjtDisableBit.mjDSBL_MIDPHASE
        self.load(spec)
        model = self.model
        self._boxes = boxes
        self._box_ids = np.array([model.geom(f"box_{index}").id for index in range(boxes)])
        self.toes = np.array([model.geom(name).id for name in self._robot.toes])
        self._base_mass = float(model.body_mass[BASE])
        model.geom_solref[self.toes] = (config.contact_time, 1.0)
        model.geom_solimp[self.toes, :2] = config.contact_impedance

    def _spec(self) -> mujoco.MjSpec:
        """The robot's model, of which toes alone collide, without its own motors, keyframes and sensors."""
        spec, toes = read_model(self._robot.model_path, str(self._robot)), self._robot.toes
        for geom in spec.geoms:
            geom.contype, geom.conaffinity = (1, 2) if geom.name in toes else (0, 0)
            geom.priority = int(geom.name in toes)  # their friction holds
        for part in (*spec.actuators, *spec.keys, *spec.sensors):  # keys and sensors may need the motors
            spec.delete(part)
        return spec

    def _fitted(self) -> NDArray[np.int64]:
        """The place of each joint [12] of the table among the model's.

        Raises ValueError, in one line, for a model that the table does not fit.
        """
        robot, spec = self._robot, self._spec()
        order = _order(robot, spec)
        model = compiled(spec, robot.model_path, str(robot))
        data = mujoco.MjData(model)
        toes = [model.geom(name).id for name in robot.toes]
        data.qpos[:7] = (*np.zeros(3), *UPRIGHT)

        def places(joints: Array) -> Array:
            data.qpos[7 + order] = joints
            mujoco.mj_kinematics(model, data)
            return np.array(data.geom_xpos[toes])

        balls = model.geom_type[toes] == mujoco.mjtGeom.mjGEOM_SPHERE
        radii = [size if ball else None for size, ball in zip(model.geom_size[toes, 0], balls, strict=True)]
        check_fit(robot, robot.model, float(model.body_mass.sum()), radii, places)
        return order

    def _place(self, boxes: list[Box]) -> None:
        model, ids = self.model, self._box_ids
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
        model, config = self.model, self.config
        self._held = held.tobytes()
        model.actuator_gainprm[:, 0] = config.stiffness * held
        model.actuator_biasprm[:, 1] = -config.stiffness * held
        model.actuator_biasprm[:, 2] = -config.damping * held

    def state(self) -> BodyState:
        state: BodyState = body_state(self.data.qpos, self.data.qvel, self._order)
        return state

    def command(self, positions: Array, torques: Array, position_controlled: NDArray[np.bool_]) -> None:
        if position_controlled.tobytes() != self._held:
            self._hold(position_controlled)
        self.data.ctrl[:] = positions
        _apply(self.data.qfrc_applied, self._order, torques, position_controlled, self._strength)

    def servo(
        self, positions: Array, velocities: Array, stiffness: Array, damping: Array, torques: Array
    ) -> None:
        """Command each joint [12] as motors with gains of their own do.

        Its torque is `torques` (N m) + `stiffness` (N m/rad) (`positions` - angle) + `damping` (N m s/rad)
        (`velocities` - rate). The limits of the robot's table hold for the part by angle and rate, and for
        the rest.
        """
        model = self.model
        self._held = b""  # the next `command` sets its gains
        model.actuator_gainprm[:, 0] = stiffness
        model.actuator_biasprm[:, 1], model.actuator_biasprm[:, 2] = -stiffness, -damping
        self.data.ctrl[:] = np.where(stiffness > 0, positions, 0.0)
        most = self._torques[:, 1]
        rest = np.clip(torques + np.where(damping > 0, damping * velocities, 0.0), -most, most)
        _apply(self.data.qfrc_applied, self._order, rest, np.zeros(12, bool), self._strength)

    def land_on_trunk(self) -> None:
        """Let the trunk collide with the boxes, as the toes do, so that a robot can lie."""
        model = self.model
        trunk = model.geom_bodyid == BASE
        model.geom_contype[trunk], model.geom_conaffinity[trunk] = 1, 2
        model.body_contype[BASE], model.body_conaffinity[BASE] = 1, 2

    def push(self, force: Array) -> None:
        self.data.xfrc_applied[BASE, :3] = force

    def step(self) -> None:
        data = self.data
        mujoco.mj_step(self.model, data, nstep=self.config.substeps)
        data.xfrc_applied[BASE, :3] = 0.0
        if data.warning.number[DIVERGED].any():
            data.qpos[:] = np.nan  # MuJoCo has set it to the model's own, as if the robot were there

    def render(self, view: View, width: int, height: int) -> NDArray[np.uint8]:
        self.locate()
        return super().render(view, width, height)

    def mass_properties(self) -> tuple[float, Array, Array]:
        self.locate()
        data, model = self.data, self.model
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

    def locate(self) -> None:
        """Update the places of all bodies in `data`: a step leaves those of its beginning."""
        mujoco.mj_kinematics(self.model, self.data)
        mujoco.mj_comPos(self.model, self.data)


def read_model(path: Path, whose: str) -> mujoco.MjSpec:
    """The MJCF file at `path` of a robot whose trunk floats.

    Raises ValueError, in one line that begins with `whose`, for another file.
    """
    try:
        spec = mujoco.MjSpec.from_file(str(path))
    except ValueError as error:
        raise ValueError(one_line(f"{whose}: its model {path} is not read: {error}")) from error
    trunk = next(iter(spec.worldbody.bodies), None)
    if trunk is None or not trunk.joints or trunk.joints[0].type != mujoco.mjtJoint.mjJNT_FREE:
        raise ValueError(f"{whose}: the first body of its model {path} must be the trunk, with a free joint")
    return spec


def compiled(spec: mujoco.MjSpec, path: Path, whose: str) -> mujoco.MjModel:
    """The model of a `spec` from the file at `path`.

    Raises ValueError, in one line that begins with `whose`, if MuJoCo cannot compile it.
    """
    try:
        return spec.compile()
    except ValueError as error:
        raise ValueError(one_line(f"{whose}: its model {path} does not compile: {error}")) from error


def _order(robot: Robot, spec: mujoco.MjSpec) -> NDArray[np.int64]:
    """The place of each joint [12] of `robot` among those behind the free joint of its model.

    Raises ValueError unless the model has these joints alone, and the toes.
    """
    joints = spec.joints[1:]  # the first is that of the trunk
    hinges = [joint.name for joint in joints if joint.type == mujoco.mjtJoint.mjJNT_HINGE]
    check_names(robot, robot.model, hinges, {geom.name for geom in spec.geoms})
    for joint in joints:
        if joint.name not in robot.joints:
            raise ValueError(f"{robot} lacks the joint {joint.name!r} of its model {robot.model}")
    return np.array([hinges.index(name) for name in robot.joints])


@numba.njit(cache=True)
def _apply(
    applied: Array, order: NDArray[np.int64], torques: Array, held: NDArray[np.bool_], strength: float
) -> None:
    """Write the torques of the joints that are not held, behind the six entries of the base."""
    for joint in range(len(torques)):
        applied[6 + order[joint]] = 0.0 if held[joint] else strength * torques[joint]

"""A quadruped in PyBullet: the only file that imports that engine."""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import sys
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from robopolicy.control.robot import Robot
from robopolicy.control.robots import LAIKAGO
from robopolicy.envs.physics.base import (
    NEAR,
    STONES_LIGHT,
    Array,
    BodyState,
    Conditions,
    Lighting,
    Start,
    View,
    substeps,
)
from robopolicy.envs.physics.fit import check_fit, check_names


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Discard the output of C code: PyBullet prints when it is imported and when it connects."""
    c_library = ctypes.CDLL(None)
    sys.stdout.flush()
    sys.stderr.flush()
    c_library.fflush(None)
    saved = [(stream, os.dup(stream)) for stream in (1, 2)]
    with open(os.devnull, "wb") as sink:
        for stream, _ in saved:
            os.dup2(sink.fileno(), stream)
    try:
        yield
    finally:
        c_library.fflush(None)
        for stream, copy in saved:
            os.dup2(copy, stream)
            os.close(copy)


with quiet():
    import pybullet
    import pybullet_data
    from pybullet_utils.bullet_client import BulletClient


@dataclass(frozen=True)
class BulletConfig:
    """Settings of the engine; docs/stepping-stones.md gives the reasons."""

    control_period: float = 0.01  # s
    substeps: int = 5  # physics steps per control period, 2 ms each
    solver_iterations: int = 10
    motor_torque: float | tuple[float, ...] = LAIKAGO.held_torque  # N m, limit of a held joint, one or [12]
    position_gain: float = 0.15  # share of the position error that a motor removes in a physics step
    velocity_gain: float = 0.8

    @classmethod
    def of(cls, robot: Robot, control_period: float = 0.01) -> BulletConfig:
        """The settings for `robot` and a control period (s)."""
        return cls(
            control_period=control_period,
            substeps=substeps(control_period),
            motor_torque=robot.held_torque,
        )


class BulletWorld:
    """A connection to Bullet. `close`, or the end of the object, closes it."""

    config: Any

    def __init__(self) -> None:
        with quiet():
            self._client: BulletClient | None = BulletClient(pybullet.DIRECT)
        # Disconnect before the interpreter's shutdown disables PyBullet's own clean-up.
        self._disconnect = weakref.finalize(self, lambda client: client.disconnect(), self._client)

    @property
    def client(self) -> BulletClient:
        """The functions of `pybullet` for this world. Raises RuntimeError after `close`."""
        if self._client is None:
            raise RuntimeError("physics is closed: make a new environment")
        return self._client

    def __reduce__(self) -> NoReturn:
        # A copy would have the number of the same connection, and close it at its end.
        raise TypeError("an environment on bullet cannot be copied or pickled: make a new one")

    def clear(self) -> BulletClient:
        """Empty the world down to gravity, with deterministic contacts, and return `client`."""
        self.client.resetSimulation()
        self.client.setPhysicsEngineParameter(
            fixedTimeStep=self.config.control_period,
            numSubSteps=self.config.substeps,
            numSolverIterations=self.config.solver_iterations,
            deterministicOverlappingPairs=1,
        )
        self.client.setGravity(0.0, 0.0, -9.81)
        return self.client

    def step(self) -> None:
        self.client.stepSimulation()

    def picture(self, view: View, width: int, height: int, lighting: Lighting) -> NDArray[np.uint8]:
        """A picture [height, width, 3] by TinyRenderer, without shadows, which would double the time."""
        bullet = self.client
        image = bullet.getCameraImage(
            width,
            height,
            bullet.computeViewMatrix(view.eye, view.target, (0.0, 0.0, 1.0)),
            bullet.computeProjectionMatrixFOV(view.field_of_view, width / height, NEAR, lighting.far),
            shadow=0,
            renderer=bullet.ER_TINY_RENDERER,
            flags=bullet.ER_NO_SEGMENTATION_MASK,
            lightDirection=lighting.direction,
            lightAmbientCoeff=lighting.ambient,
        )[2]
        return np.asarray(image, np.uint8).reshape(height, width, 4)[..., :3].copy()

    def close(self) -> None:
        self._disconnect()
        self._client = None


class BulletPhysics(BulletWorld):
    """A quadruped on boxes; implements `Physics`.

    Only the toes collide, which halves the engine's time. An episode ends before a trunk or a shin could
    touch anything.
    """

    settings = staticmethod(BulletConfig.of)

    def __init__(self, robot: Robot, config: BulletConfig | None = None, *, visible: bool = False) -> None:
        """`visible` loads the visual shapes for rendering, which takes 80 ms per reset.

        Raises ValueError, in one line, for a model that is no URDF, and for one that the robot's table does
        not fit.
        """
        super().__init__()
        self.config = config or BulletConfig.of(robot)
        self._torques = np.broadcast_to(self.config.motor_torque, 12)
        self._visible = visible
        self.client.setAdditionalSearchPath(pybullet_data.getDataPath())
        self._urdf = robot.urdf_path
        self._find(robot)
        self._conditions = Conditions()

    def _find(self, robot: Robot) -> None:
        """Find the joints and toes of `robot` by their names: `joints` and `toes` are Bullet's numbers."""
        bullet = self.clear()
        if not robot.urdf:
            raise ValueError(f"{robot} has no URDF, which Bullet needs: use the engine mujoco")
        try:
            with quiet():
                self.robot = bullet.loadURDF(self._urdf, flags=bullet.URDF_IGNORE_VISUAL_SHAPES)
        except pybullet.error as error:
            raise ValueError(f"{robot}: its model {self._urdf} is not read by Bullet") from error
        found = [bullet.getJointInfo(self.robot, link) for link in range(bullet.getNumJoints(self.robot))]
        numbers = (
            {info[1].decode(): info[0] for info in found},
            {info[12].decode(): info[0] for info in found},
        )
        check_names(robot, robot.urdf, *numbers)
        self.joints, self.toes = (
            tuple(known[name] for name in names)
            for names, known in zip((robot.joints, robot.toes), numbers, strict=True)
        )
        self._weigh_base()
        links = range(-1, len(found))
        mass = sum(bullet.getDynamicsInfo(self.robot, link)[0] for link in links)
        check_fit(robot, robot.urdf, mass, [self._radius(toe) for toe in self.toes], self._places)

    def _radius(self, toe: int) -> float | None:
        """The radius (m) of the link `toe`, None if it is no sphere."""
        bullet = self.client
        shapes = bullet.getCollisionShapeData(self.robot, toe)
        balls = [sizes[0] for _, _, kind, sizes, *_ in shapes if kind == bullet.GEOM_SPHERE]
        return balls[0] if len(balls) == len(shapes) == 1 else None

    def _places(self, joints: Array) -> Array:
        """The toes' centres [4, 3] (m) in the base frame, for joint angles [12] (rad)."""
        bullet = self.client
        for joint, angle in zip(self.joints, joints, strict=True):
            bullet.resetJointState(self.robot, joint, angle, 0.0)
        toes = np.array([bullet.getLinkState(self.robot, toe, 0, 1)[0] for toe in self.toes])
        base = self.state()
        return (toes - base.position) @ base.rotation

    def _weigh_base(self) -> None:
        self._base_mass, _, _, center, axes = self.client.getDynamicsInfo(self.robot, -1)[:5]
        self._base_center, self._axes = np.array(center), _matrix(axes)

    def reset(self, start: Start) -> None:
        bullet = self.clear()
        self._conditions = conditions = start.conditions
        for box in start.boxes:
            shape = bullet.createCollisionShape(bullet.GEOM_BOX, halfExtents=box.half)
            visual = bullet.createVisualShape(
                bullet.GEOM_BOX, halfExtents=box.half, rgbaColor=(box.shade, box.shade, box.shade, 1.0)
            )
            turn = (0.0, 0.0, math.sin(box.yaw / 2), math.cos(box.yaw / 2))
            body = bullet.createMultiBody(0.0, shape, visual, box.center, turn)
            bullet.changeDynamics(body, -1, lateralFriction=1.0)  # Bullet multiplies it by the toes'
        self.robot = bullet.loadURDF(
            self._urdf,
            start.position,
            (*start.quaternion[1:], start.quaternion[0]),
            flags=bullet.URDF_USE_INERTIA_FROM_FILE
            | (0 if self._visible else bullet.URDF_IGNORE_VISUAL_SHAPES),
        )
        for link in range(-1, bullet.getNumJoints(self.robot)):
            if link in self.toes:
                # The URDF's friction anchors would hold a toe on an edge where Coulomb friction lets it slip.
                bullet.changeDynamics(
                    self.robot,
                    link,
                    lateralFriction=conditions.friction,
                    frictionAnchor=0,
                    spinningFriction=0.0,
                )
            else:
                bullet.setCollisionFilterGroupMask(self.robot, link, 0, 0)
            bullet.changeDynamics(self.robot, link, linearDamping=0.0, angularDamping=0.0)
        self._weigh_base()
        if conditions.payload:
            inertia = bullet.getDynamicsInfo(self.robot, -1)[2]
            bullet.changeDynamics(
                self.robot, -1, mass=self._base_mass + conditions.payload, localInertiaDiagonal=inertia
            )
        for joint, angle in zip(self.joints, start.joint_positions, strict=True):
            bullet.resetJointState(self.robot, joint, angle, 0.0)

    def state(self) -> BodyState:
        bullet = self.client
        joints = bullet.getJointStates(self.robot, self.joints)
        # Bullet gives the pose and the velocity of the base's centre of mass, in principal axes.
        center, quaternion = bullet.getBasePositionAndOrientation(self.robot)
        linear, angular = bullet.getBaseVelocity(self.robot)
        rotation = _matrix(quaternion) @ self._axes.T
        offset = rotation @ self._base_center
        (x, y, z), (a, b, c) = angular, offset.tolist()
        around = y * c - z * b, z * a - x * c, x * b - y * a  # np.cross takes over ten times as long
        return BodyState(
            np.array(center) - offset,
            rotation,
            np.array(linear) - around,
            np.array(angular),
            np.array([joint[0] for joint in joints]),
            np.array([joint[1] for joint in joints]),
        )

    def command(self, positions: Array, torques: Array, position_controlled: NDArray[np.bool_]) -> None:
        bullet, config, strength = self.client, self.config, self._conditions.motor_strength
        held = np.flatnonzero(position_controlled)
        pushed = np.flatnonzero(~position_controlled)
        if held.size:
            # Bullet limits a motor's impulse per physics step to that of a whole control period.
            limits = strength * self._torques[held] / config.substeps
            bullet.setJointMotorControlArray(
                self.robot,
                [self.joints[i] for i in held],
                bullet.POSITION_CONTROL,
                targetPositions=positions[held].tolist(),
                forces=limits.tolist(),
                positionGains=[config.position_gain] * held.size,
                velocityGains=[config.velocity_gain] * held.size,
            )
        if pushed.size:
            joints = [self.joints[i] for i in pushed]
            # The motor of a joint stays active until its force is set to zero.
            bullet.setJointMotorControlArray(
                self.robot, joints, bullet.VELOCITY_CONTROL, forces=[0.0] * pushed.size
            )
            bullet.setJointMotorControlArray(
                self.robot, joints, bullet.TORQUE_CONTROL, forces=(strength * torques[pushed]).tolist()
            )

    def push(self, force: Array) -> None:
        bullet = self.client
        center = bullet.getBasePositionAndOrientation(self.robot)[0]
        bullet.applyExternalForce(self.robot, -1, force.tolist(), center, bullet.WORLD_FRAME)

    def render(self, view: View, width: int, height: int) -> NDArray[np.uint8]:
        return self.picture(view, width, height, STONES_LIGHT)

    def mass_properties(self) -> tuple[float, Array, Array]:
        bullet = self.client
        masses, centers, inertias = [], [], []
        poses = {-1: bullet.getBasePositionAndOrientation(self.robot)}
        for link in range(bullet.getNumJoints(self.robot)):
            poses[link] = bullet.getLinkState(self.robot, link, computeForwardKinematics=1)[:2]
        for link, (center, quaternion) in poses.items():
            info = bullet.getDynamicsInfo(self.robot, link)
            rotation = _matrix(quaternion)
            masses.append(self._base_mass if link == -1 else info[0])
            centers.append(center)
            inertias.append(rotation @ np.diag(info[2]) @ rotation.T)
        mass = float(np.sum(masses))
        center = np.array(masses) @ np.array(centers) / mass
        inertia = np.sum(inertias, axis=0)
        for m, r in zip(masses, np.array(centers) - center, strict=True):
            inertia = inertia + m * (r @ r * np.eye(3) - np.outer(r, r))
        base = self.state()
        return mass, base.rotation.T @ (center - base.position), base.rotation.T @ inertia @ base.rotation


def _matrix(quaternion: tuple[float, ...]) -> Array:
    """The rotation [3, 3] of Bullet's quaternion (x, y, z, w)."""
    return np.array(pybullet.getMatrixFromQuaternion(quaternion)).reshape(3, 3)

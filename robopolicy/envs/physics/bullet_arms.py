"""Two KUKA arms with spatulas, balls and bowls in PyBullet."""

from __future__ import annotations

import math
import shutil
import tempfile
import weakref
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from robopolicy.envs.physics.arms import GREEN, RED, WOOD, Placement, arm_with_spatula, bowl_walls
from robopolicy.envs.physics.base import Array, View
from robopolicy.envs.physics.bullet import BulletClient, disconnect, empty_world, pybullet, quiet

ARM_JOINTS = 7
SPATULA = 7  # its link, behind those of the joints


@dataclass(frozen=True)
class BulletArmsConfig:
    """Settings of the engine."""

    control_period: float = 0.1  # s
    substeps: int = 24  # physics steps a control period
    solver_iterations: int = 10
    motor_torque: tuple[float, ...] = (320.0, 320.0, 176.0, 176.0, 110.0, 40.0, 40.0)  # N m, the maker's
    position_gain: float = 0.08  # share of the position error that a motor removes in a physics step
    velocity_gain: float = 1.0
    friction: float = 0.4
    rolling_friction: float = 0.003  # m; Bullet multiplies it with the friction of what a ball rolls on
    table_height: float = 0.1  # m, its thickness


class BulletArms:
    """`kuka_iiwa/model.urdf` of pybullet_data twice, each with our spatula, behind `ArmsPhysics`.

    Of an arm only the spatula collides.
    """

    def __init__(self, tool: Array, config: BulletArmsConfig | None = None) -> None:
        """`tool` [4, 4] is the spatula's place in the frame of an arm's last link."""
        self.config = config or BulletArmsConfig()
        with quiet():
            self._client: BulletClient | None = BulletClient(pybullet.DIRECT)
        # Disconnect before the interpreter takes PyBullet's own clean-up apart.
        self._disconnect = weakref.finalize(self, disconnect, self._client)
        # Not TemporaryDirectory, which warns where an environment is dropped and not closed.
        folder = tempfile.mkdtemp()
        self._remove = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self._arm = Path(folder) / "arm.urdf"
        self._arm.write_text(arm_with_spatula(tool))
        self._arms: list[int] = []
        self._balls: list[int] = []

    @property
    def _bullet(self) -> BulletClient:
        if self._client is None:
            raise RuntimeError("physics is closed: make a new environment")
        return self._client

    def reset(self, placement: Placement) -> None:
        bullet, config = self._bullet, self.config
        empty_world(bullet, config.control_period, config.substeps, config.solver_iterations)
        self._build_table(placement)
        self._arms = [
            self._load_arm(base, joints)
            for base, joints in zip(placement.bases, placement.joints, strict=True)
        ]
        shape = bullet.createCollisionShape(bullet.GEOM_SPHERE, radius=placement.ball_radius)
        visual = bullet.createVisualShape(bullet.GEOM_SPHERE, radius=placement.ball_radius, rgbaColor=RED)
        self._balls = []
        for center in placement.balls:
            ball = bullet.createMultiBody(placement.ball_mass, shape, visual, center.tolist())
            bullet.changeDynamics(
                ball,
                -1,
                lateralFriction=1.0,  # Bullet multiplies it with the other body's
                rollingFriction=config.rolling_friction,
                spinningFriction=config.rolling_friction,
                linearDamping=0.0,
                angularDamping=0.0,
            )
            self._balls.append(ball)

    def _build_table(self, placement: Placement) -> None:
        bullet, config = self._bullet, self.config
        half = [*placement.table, config.table_height / 2]
        table = bullet.createMultiBody(
            0.0,
            bullet.createCollisionShape(bullet.GEOM_BOX, halfExtents=half),
            bullet.createVisualShape(bullet.GEOM_BOX, halfExtents=half, rgbaColor=WOOD),
            (0.0, 0.0, -half[2]),
        )
        bullet.changeDynamics(table, -1, lateralFriction=config.friction)
        for bowl in placement.bowls:
            sizes, places, turns = bowl_walls(bowl)
            kinds = [bullet.GEOM_BOX] * len(sizes)
            body = bullet.createMultiBody(
                0.0,
                bullet.createCollisionShapeArray(
                    kinds, halfExtents=sizes, collisionFramePositions=places, collisionFrameOrientations=turns
                ),
                bullet.createVisualShapeArray(
                    kinds,
                    halfExtents=sizes,
                    visualFramePositions=places,
                    visualFrameOrientations=turns,
                    rgbaColors=[GREEN] * len(sizes),
                ),
                (*bowl.center, 0.0),
            )
            bullet.changeDynamics(body, -1, lateralFriction=config.friction)
            floor = bullet.createVisualShape(
                bullet.GEOM_CYLINDER, radius=bowl.radius, length=0.002, rgbaColor=GREEN
            )
            bullet.createMultiBody(0.0, -1, floor, (*bowl.center, 0.0))  # balls lie on the table below it

    def _load_arm(self, base: Array, joints: Array) -> int:
        bullet, config = self._bullet, self.config
        x, y, yaw = base
        turn = (0.0, 0.0, math.sin(yaw / 2), math.cos(yaw / 2))
        arm: int = bullet.loadURDF(str(self._arm), (x, y, 0.0), turn, useFixedBase=1)
        for link in range(-1, bullet.getNumJoints(arm)):
            if link != SPATULA:
                bullet.setCollisionFilterGroupMask(arm, link, 0, 0)
            bullet.changeDynamics(arm, link, linearDamping=0.0, angularDamping=0.0)
        bullet.changeDynamics(arm, SPATULA, lateralFriction=config.friction)
        for joint, angle in enumerate(joints):
            bullet.resetJointState(arm, joint, angle, 0.0)
        return arm

    def command(self, joints: Array) -> None:
        bullet, config = self._bullet, self.config
        for arm, angles in zip(self._arms, joints, strict=True):
            bullet.setJointMotorControlArray(
                arm,
                range(ARM_JOINTS),
                bullet.POSITION_CONTROL,
                targetPositions=angles.tolist(),
                forces=config.motor_torque,
                positionGains=[config.position_gain] * ARM_JOINTS,
                velocityGains=[config.velocity_gain] * ARM_JOINTS,
            )

    def step(self) -> None:
        self._bullet.stepSimulation()

    def joints(self) -> Array:
        bullet = self._bullet
        return np.array([[s[0] for s in bullet.getJointStates(arm, range(ARM_JOINTS))] for arm in self._arms])

    def tools(self) -> tuple[Array, Array]:
        bullet = self._bullet
        states = [bullet.getLinkState(arm, SPATULA, 0, 1) for arm in self._arms]
        turns = [np.array(bullet.getMatrixFromQuaternion(state[5])).reshape(3, 3) for state in states]
        return np.array([state[4] for state in states]), np.array(turns)

    def balls(self) -> Array:
        bullet = self._bullet
        return np.array([bullet.getBasePositionAndOrientation(ball)[0] for ball in self._balls])

    def render(self, view: View, width: int, height: int) -> NDArray[np.uint8]:
        bullet = self._bullet
        image = bullet.getCameraImage(
            width,
            height,
            bullet.computeViewMatrix(view.eye, view.target, (0.0, 0.0, 1.0)),
            bullet.computeProjectionMatrixFOV(view.field_of_view, width / height, 0.05, 5.0),
            lightDirection=(1.0, -0.6, 2.0),
            shadow=0,
            renderer=bullet.ER_TINY_RENDERER,
            flags=bullet.ER_NO_SEGMENTATION_MASK,
        )[2]
        return np.asarray(image, np.uint8).reshape(height, width, 4)[..., :3].copy()

    def close(self) -> None:
        self._disconnect()
        self._client = None
        self._remove()

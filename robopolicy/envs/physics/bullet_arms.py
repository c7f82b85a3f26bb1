"""Two KUKA arms with spatulas, balls and bowls in PyBullet."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray

from robopolicy.envs.physics.arms import (
    ARM,
    FLOOR,
    GREEN,
    RED,
    TABLE_LIGHT,
    THICKNESS,
    WOOD,
    ArmsConditions,
    Placement,
    bowl_walls,
    late_substeps,
    roll_pitch_yaw,
)
from robopolicy.envs.physics.base import Array, View
from robopolicy.envs.physics.bullet import BulletWorld, pybullet_data
from robopolicy.writing import scratch

ARM_JOINTS = 7
SPATULA = 7  # link of the spatula
NONE = -1  # in place of a shape


@dataclass(frozen=True)
class BulletArmsConfig:
    """Settings of the engine."""

    control_period: float = 0.1  # s
    substeps: int = 24  # physics steps per control period
    solver_iterations: int = 10
    motor_torque: tuple[float, ...] = (320.0, 320.0, 176.0, 176.0, 110.0, 40.0, 40.0)  # N m, the maker's
    position_gain: float = 0.08  # share of the position error that a motor removes in a physics step
    velocity_gain: float = 1.0
    friction: float = 0.4
    rolling_friction: float = 0.003  # m; Bullet multiplies it by the friction of the surface below a ball
    table_height: float = THICKNESS  # m, thickness of the table top


class BulletArms(BulletWorld):
    """Two arms `kuka_iiwa/model.urdf` of pybullet_data with our spatulas; implements `ArmsPhysics`.

    A test holds the arms to `assets/iiwa/iiwa.xml`. Only the spatula of an arm collides.
    """

    def __init__(self, tool: Array, config: BulletArmsConfig | None = None, *, visible: bool = False) -> None:
        """`tool` [4, 4] is the spatula's pose in the frame of an arm's last link.

        `visible` loads the visual shapes for rendering, which takes 7 of 55 ms of a reset.
        """
        super().__init__()
        self.config = config or BulletArmsConfig()
        self._visible = visible
        self._arm = arm_with_spatula(tool)
        self._arms: list[int] = []
        self._balls: list[int] = []
        self._conditions = ArmsConditions()
        self._obeyed = self._commanded = np.empty((0, ARM_JOINTS))

    def reset(self, placement: Placement) -> None:
        bullet, config, conditions = self.clear(), self.config, placement.conditions
        self._conditions, self._obeyed = conditions, placement.joints
        self._commanded = placement.joints
        # Bullet multiplies a ball's rolling friction by the friction of the surface below it.
        rolling = config.rolling_friction * conditions.rolling_friction / conditions.friction
        self._build_table(placement)
        self._arms = [
            self._load_arm(base, joints)
            for base, joints in zip(placement.bases, placement.joints, strict=True)
        ]
        shape = bullet.createCollisionShape(bullet.GEOM_SPHERE, radius=placement.ball_radius)
        visual = self._visual(bullet.GEOM_SPHERE, radius=placement.ball_radius, rgbaColor=RED)
        self._balls = []
        for center in placement.balls:
            ball = bullet.createMultiBody(placement.ball_mass, shape, visual, center.tolist())
            bullet.changeDynamics(
                ball,
                -1,
                lateralFriction=1.0,  # Bullet multiplies it by the other body's
                rollingFriction=rolling,
                spinningFriction=rolling,
                linearDamping=0.0,
                angularDamping=0.0,
            )
            self._balls.append(ball)

    def _build_table(self, placement: Placement) -> None:
        bullet, config = self.client, self.config
        friction = config.friction * placement.conditions.friction
        half = [*placement.table, config.table_height / 2]
        table = bullet.createMultiBody(
            0.0,
            bullet.createCollisionShape(bullet.GEOM_BOX, halfExtents=half),
            self._visual(bullet.GEOM_BOX, halfExtents=half, rgbaColor=WOOD),
            (0.0, 0.0, -half[2]),
        )
        bullet.changeDynamics(table, -1, lateralFriction=friction)
        for bowl in placement.bowls:
            sizes, places, turns = bowl_walls(bowl)
            kinds = [bullet.GEOM_BOX] * len(sizes)
            walls = bullet.createCollisionShapeArray(
                kinds, halfExtents=sizes, collisionFramePositions=places, collisionFrameOrientations=turns
            )
            visual = NONE
            if self._visible:
                visual = bullet.createVisualShapeArray(
                    kinds,
                    halfExtents=sizes,
                    visualFramePositions=places,
                    visualFrameOrientations=turns,
                    rgbaColors=[GREEN] * len(sizes),
                )
            body = bullet.createMultiBody(0.0, walls, visual, (*bowl.center, 0.0))
            bullet.changeDynamics(body, -1, lateralFriction=friction)
            # Balls lie on the table. Without a floor the physics would not be the same to the bit.
            floor = self._visual(bullet.GEOM_CYLINDER, radius=bowl.radius, length=FLOOR, rgbaColor=GREEN)
            bullet.createMultiBody(0.0, NONE, floor, (*bowl.center, 0.0))

    def _visual(self, kind: int, **shape: Any) -> int:
        """A visual shape, or none."""
        if not self._visible:
            return NONE
        visual: int = self.client.createVisualShape(kind, **shape)
        return visual

    def _load_arm(self, base: Array, joints: Array) -> int:
        bullet, config = self.client, self.config
        x, y, yaw = base
        turn = (0.0, 0.0, math.sin(yaw / 2), math.cos(yaw / 2))
        with scratch() as folder:
            (folder / "arm.urdf").write_text(self._arm)
            arm: int = bullet.loadURDF(
                str(folder / "arm.urdf"),
                (x, y, 0.0),
                turn,
                useFixedBase=1,
                flags=bullet.URDF_USE_INERTIA_FROM_FILE
                | (0 if self._visible else bullet.URDF_IGNORE_VISUAL_SHAPES),
            )
        for link in range(-1, bullet.getNumJoints(arm)):
            if link != SPATULA:
                bullet.setCollisionFilterGroupMask(arm, link, 0, 0)
            bullet.changeDynamics(arm, link, linearDamping=0.0, angularDamping=0.0)
        friction = config.friction * self._conditions.friction
        bullet.changeDynamics(arm, SPATULA, lateralFriction=friction)
        for joint, angle in enumerate(joints):
            bullet.resetJointState(arm, joint, angle, 0.0)
        return arm

    def command(self, joints: Array) -> None:
        self._commanded = joints
        if self._late() == 0:
            self._obey(joints, self.config.substeps)

    def step(self) -> None:
        late, substeps = self._late(), self.config.substeps
        if late == 0:
            super().step()
            return
        for joints, count in ((self._obeyed, late), (self._commanded, substeps - late)):
            if count:
                span = self.config.control_period * count / substeps
                self.client.setPhysicsEngineParameter(fixedTimeStep=span, numSubSteps=count)
                self._obey(joints, count)
                super().step()
        self._obeyed = self._commanded

    def _late(self) -> int:
        return late_substeps(self._conditions.latency, self.config.control_period, self.config.substeps)

    def _obey(self, joints: Array, substeps: int) -> None:
        """Set the motors for the next `substeps`."""
        bullet, config = self.client, self.config
        # Bullet limits a motor's impulse per physics step to that of all of them.
        limits = [torque / substeps for torque in config.motor_torque]
        gain = config.position_gain * self._conditions.response
        for arm, angles in zip(self._arms, joints, strict=True):
            bullet.setJointMotorControlArray(
                arm,
                range(ARM_JOINTS),
                bullet.POSITION_CONTROL,
                targetPositions=angles.tolist(),
                forces=limits,
                positionGains=[gain] * ARM_JOINTS,
                velocityGains=[config.velocity_gain] * ARM_JOINTS,
            )

    def joints(self) -> Array:
        bullet = self.client
        return np.array([[s[0] for s in bullet.getJointStates(arm, range(ARM_JOINTS))] for arm in self._arms])

    def tools(self) -> tuple[Array, Array]:
        bullet = self.client
        states = [bullet.getLinkState(arm, SPATULA, 0, 1) for arm in self._arms]
        turns = [np.array(bullet.getMatrixFromQuaternion(state[5])).reshape(3, 3) for state in states]
        return np.array([state[4] for state in states]), np.array(turns)

    def balls(self) -> Array:
        bullet = self.client
        return np.array([bullet.getBasePositionAndOrientation(ball)[0] for ball in self._balls])

    def ball_turns(self) -> Array:
        bullet = self.client
        turns = [bullet.getBasePositionAndOrientation(ball)[1] for ball in self._balls]
        return np.array([bullet.getMatrixFromQuaternion(turn) for turn in turns]).reshape(-1, 3, 3)

    def render(self, view: View, width: int, height: int) -> NDArray[np.uint8]:
        return self.picture(view, width, height, TABLE_LIGHT)


def arm_with_spatula(tool: Array) -> str:
    """URDF, with absolute mesh paths, of the arm and the spatula at `tool` [4, 4] on its last link."""
    folder = Path(pybullet_data.getDataPath()) / "kuka_iiwa"
    arm = ElementTree.parse(folder / "model.urdf").getroot()
    for mesh in arm.iter("mesh"):
        mesh.set("filename", str(folder / mesh.attrib["filename"]))
    arm.append(_spatula())
    joint = ElementTree.SubElement(arm, "joint", name="spatula", type="fixed")
    ElementTree.SubElement(joint, "parent", link="lbr_iiwa_link_7")
    ElementTree.SubElement(joint, "child", link="spatula")
    turn = " ".join(f"{angle:.17g}" for angle in roll_pitch_yaw(tool))
    place = " ".join(f"{value:.9g}" for value in tool[:3, 3])
    ElementTree.SubElement(joint, "origin", xyz=place, rpy=turn)
    return ElementTree.tostring(arm, encoding="unicode")


def _spatula() -> ElementTree.Element:
    """URDF of the spatula in the description of the arm."""
    model = ElementTree.parse(ARM).getroot()
    body = _found(model, ".//body[@name='spatula']")
    link = ElementTree.Element("link", name="spatula")
    own = _found(body, "inertial").attrib
    inertial = ElementTree.SubElement(link, "inertial")
    ElementTree.SubElement(inertial, "origin", xyz=own["pos"])
    ElementTree.SubElement(inertial, "mass", value=own["mass"])
    moments = zip(("ixx", "iyy", "izz", "ixy", "ixz", "iyz"), own["fullinertia"].split(), strict=True)
    ElementTree.SubElement(inertial, "inertia", dict(moments))
    for geom in body.findall("geom"):
        is_box = "size" in geom.attrib
        shape = ElementTree.SubElement(link, "collision" if is_box else "visual")
        ElementTree.SubElement(shape, "origin", xyz=geom.get("pos", "0 0 0"))
        geometry = ElementTree.SubElement(shape, "geometry")
        if is_box:
            sides = " ".join(str(2 * float(half)) for half in geom.attrib["size"].split())
            ElementTree.SubElement(geometry, "box", size=sides)
            continue
        file = _found(model, f".//mesh[@name='{geom.attrib['mesh']}']").attrib["file"]
        ElementTree.SubElement(geometry, "mesh", filename=str((ARM.parent / file).resolve()))
        color = _found(model, f".//default[@class='{geom.attrib['class']}']/geom").attrib["rgba"]
        material = ElementTree.SubElement(shape, "material", name="steel")
        ElementTree.SubElement(material, "color", rgba=color)
    return link


def _found(parent: ElementTree.Element, path: str) -> ElementTree.Element:
    element = parent.find(path)
    assert element is not None, path
    return element

"""Two KUKA arms with spatulas, balls and bowls in MuJoCo."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from robopolicy.envs.physics.arms import (
    ARM,
    FLOOR,
    GREEN,
    RED,
    THICKNESS,
    WOOD,
    ArmsConditions,
    Placement,
    bowl_walls,
    late_substeps,
    roll_pitch_yaw,
)
from robopolicy.envs.physics.base import Array
from robopolicy.envs.physics.mujoco import MujocoWorld, mujoco, set_scene

ARM_JOINTS = 7
ARMS = ("left_", "right_")


@dataclass(frozen=True)
class MujocoArmsConfig:
    """Settings of the engine."""

    control_period: float = 0.1  # s
    substeps: int = 40  # physics steps per control period
    rate: float = 20.0  # 1/s, at which a joint approaches its target
    rotor: float = 0.1  # kg m2, inertia that a motor adds to its joint: without it the wrist vibrates
    motor_torque: tuple[float, ...] = (320.0, 320.0, 176.0, 176.0, 110.0, 40.0, 40.0)  # N m, the maker's
    friction: float = 0.4
    rolling_friction: float = 0.0012  # m
    contact_time: float = 0.006  # s, time constant of contacts


class MujocoArms(MujocoWorld):
    """Two arms `assets/iiwa/iiwa.xml` with spatulas; implements `ArmsPhysics`.

    Only the spatula of an arm collides. Gravity does not act on the arms: Bullet's motors compensate for it.
    """

    def __init__(self, tool: Array, config: MujocoArmsConfig | None = None, *, visible: bool = False) -> None:
        """`tool` [4, 4] is the spatula's pose in the frame of an arm's last link.

        `visible` has no effect: rendering costs nothing here until a picture is drawn.
        """
        super().__init__()
        self.config = config or MujocoArmsConfig()
        self._tool = tool
        self._conditions = ArmsConditions()
        self._commanded = np.empty((0, ARM_JOINTS))

    def reset(self, placement: Placement) -> None:
        self.check_open()
        self._conditions, self._commanded = placement.conditions, placement.joints
        spec = self._scene(placement)
        for prefix, (x, y, yaw) in zip(ARMS, placement.bases, strict=True):
            frame = spec.worldbody.add_frame(
                pos=[x, y, 0.0], quat=[np.cos(yaw / 2), 0.0, 0.0, np.sin(yaw / 2)]
            )
            spec.attach(self._arm_spec(), prefix=prefix, frame=frame)
        self.load(spec)
        model, data = self.model, self.data
        joints = [[f"{p}lbr_iiwa_joint_{j + 1}" for j in range(ARM_JOINTS)] for p in ARMS]
        self._joints = np.array([[model.joint(name).qposadr[0] for name in names] for names in joints])
        self._hands = np.array([model.body(f"{p}lbr_iiwa_link_7").id for p in ARMS])
        self._balls = np.array([model.body(f"ball_{i}").id for i in range(len(placement.balls))])
        data.qpos[self._joints] = placement.joints
        data.ctrl[:] = placement.joints.ravel()
        mujoco.mj_forward(model, data)
        # The motors become servos that are critically damped for the initial inertia.
        inertia = np.zeros((model.nv, model.nv))
        mujoco.mj_fullM(model, data, inertia)
        moved = model.jnt_dofadr[model.actuator_trnid[:, 0]]
        rate = self.config.rate * self._conditions.response
        stiffness = rate**2 * np.diag(inertia)[moved]
        model.actuator_gainprm[:, 0] = stiffness
        model.actuator_biasprm[:, 1] = -stiffness
        model.actuator_biasprm[:, 2] = -2.0 * stiffness / rate

    def _scene(self, placement: Placement) -> mujoco.MjSpec:
        """Table, bowls, balls and light."""
        config, spec = self.config, mujoco.MjSpec()
        light = {"pos": [0.5, -0.5, 2.0], "dir": [-0.3, 0.3, -1.0], "diffuse": [0.5, 0.5, 0.5]}
        set_scene(spec, config, (0.4, 0.25), castshadow=0, **light)
        spec.visual.map.znear = 0.01
        contact = {
            "friction": self._friction(),
            "solref": [config.contact_time, 1.0],
            "condim": 6,
        }
        box, world = mujoco.mjtGeom.mjGEOM_BOX, spec.worldbody
        half = [*placement.table, THICKNESS / 2]
        world.add_geom(type=box, size=half, pos=[0.0, 0.0, -half[2]], rgba=WOOD, **contact)
        for bowl in placement.bowls:
            for size, place, (x, y, z, w) in zip(*bowl_walls(bowl), strict=True):
                where = [bowl.center[0] + place[0], bowl.center[1] + place[1], place[2]]
                world.add_geom(type=box, size=size, pos=where, quat=[w, x, y, z], rgba=GREEN, **contact)
            world.add_geom(
                type=mujoco.mjtGeom.mjGEOM_CYLINDER,
                size=[bowl.radius, FLOOR / 2, 0.0],
                pos=[*bowl.center, 0.0],
                rgba=GREEN,
                contype=0,
                conaffinity=0,
            )
        for index, center in enumerate(placement.balls):
            body = world.add_body(name=f"ball_{index}", pos=center.tolist())
            body.add_freejoint()
            body.add_geom(
                type=mujoco.mjtGeom.mjGEOM_SPHERE,
                size=[placement.ball_radius, 0.0, 0.0],
                mass=placement.ball_mass,
                rgba=RED,
                **contact,
            )
        return spec

    def _friction(self) -> list[float]:
        """Of every contact: sliding, spinning and rolling."""
        rolling = self.config.rolling_friction * self._conditions.rolling_friction
        return [self.config.friction * self._conditions.friction, rolling, rolling]

    def _arm_spec(self) -> mujoco.MjSpec:
        config = self.config
        spec = mujoco.MjSpec.from_file(str(ARM))
        for body in spec.bodies[1:]:
            body.gravcomp = 1.0
        spatula = spec.body("spatula")
        spatula.pos, spatula.alt.euler = self._tool[:3, 3], roll_pitch_yaw(self._tool)
        for geom in spatula.geoms:
            if geom.contype:
                geom.friction = self._friction()
                geom.solref = [config.contact_time, 1.0]
        for joint, torque in zip(spec.joints, config.motor_torque, strict=True):
            motor = spec.add_actuator(name=joint.name, target=joint.name, trntype=mujoco.mjtTrn.mjTRN_JOINT)
            joint.armature = config.rotor
            motor.forcerange = [-torque, torque]
            motor.biastype = mujoco.mjtBias.mjBIAS_AFFINE
            motor.ctrllimited = False
        return spec

    def command(self, joints: Array) -> None:
        self._commanded = joints

    def step(self) -> None:
        config = self.config
        late = late_substeps(self._conditions.latency, config.control_period, config.substeps)
        if late:
            mujoco.mj_step(self.model, self.data, nstep=late)
        self.data.ctrl[:] = self._commanded.ravel()
        if late < config.substeps:
            mujoco.mj_step(self.model, self.data, nstep=config.substeps - late)
        mujoco.mj_kinematics(self.model, self.data)

    def joints(self) -> Array:
        return np.asarray(self.data.qpos[self._joints])

    def tools(self) -> tuple[Array, Array]:
        data = self.data
        turns = data.xmat[self._hands].reshape(-1, 3, 3)
        return data.xpos[self._hands] + turns @ self._tool[:3, 3], turns @ self._tool[:3, :3]

    def balls(self) -> Array:
        return np.asarray(self.data.xpos[self._balls])

    def ball_turns(self) -> Array:
        return np.asarray(self.data.xmat[self._balls].reshape(-1, 3, 3))

"""The robots that the package knows."""

from __future__ import annotations

import math
from typing import Any

from robopolicy.control.kinematics import LEGS
from robopolicy.control.robot import CameraConfig, Robot, Trot, WalkerConfig
from robopolicy.control.stance import StanceConfig
from robopolicy.naming import one_of

# A foot on a raised stone slides ahead unless it is braked, and a payload lowers the base.
_RUGGED = StanceConfig(grip=40.0, pose_weights=(5.0, 5.0, 20.0, 0.0, 0.0, 40.0))


def _of_legs(*joints: str) -> tuple[str, ...]:
    return tuple(f"{leg}_{joint}_joint" for leg in LEGS for joint in joints)


LAIKAGO = Robot(
    name="laikago",
    title="Laikago",
    source="laikago/laikago_toes_zup_lores.urdf of pybullet_data",
    model="laikago.xml",
    urdf="laikago/laikago_toes_zup_lores.urdf",
    joints=_of_legs("hip_motor_2_chassis", "upper_leg_2_hip_motor", "lower_leg_2_upper_leg"),
    toes=("toeFR", "toeFL", "toeRR", "toeRL"),
    hips=(
        (0.199095, -0.0817145, -0.03),
        (0.199095, 0.0817145, -0.03),
        (-0.238195, -0.0817145, -0.03),
        (-0.238195, 0.0817145, -0.03),
    ),
    turns=(-1.0, 1.0, -1.0, 1.0),
    lateral=(0.053565 - 0.02069, 0.055855 - 0.02069, 0.053565 - 0.02069, 0.055855 - 0.02069),
    thigh=(0.20833, 0.1422),
    shank=(0.25, 0.022),
    foot_radius=0.03,
    trunk=(0.25, 0.085, 0.06),
    mass=25.6,
    center=(-0.0217, 0.0, -0.041),
    inertia=((0.6, 0.0, 0.0), (0.0, 1.27, 0.0), (0.0, 0.0, 1.34)),
    lowest_base=0.28,
    # The model has neither limits of joints nor any below 100 N m of torques.
    limits=((-math.inf, math.inf),) * 12,
    torques=(math.inf,) * 12,
    held_torque=60.0,
    stiffness=600.0,
    damping=8.0,
    walker=WalkerConfig(),
    rugged=WalkerConfig(stance=_RUGGED),
    # Of 3,017 half periods; residuals of 2.4 mm, 0.011 m/s and, of the sway, 12 mm.
    trot=Trot(
        progress=(0.0496, -0.0986, 0.1578, 0.0422),
        speed=(0.0909, -0.4508, 0.3050, 0.2123, 0.6322),
        overshoot=0.006,
        sway=(-0.0861, -0.3329, -0.9704, 0.0345),
    ),
    front=CameraConfig(position=(0.25, 0.0, 0.0), tilt=30.0, fields=(75.0, 75.0)),
    belly=CameraConfig(position=(0.0, 0.0, -0.05), tilt=0.0, fields=(90.0, 80.0)),
)
ROBOTS = {robot.name: robot for robot in (LAIKAGO,)}


def robot_of(robot: Any) -> Robot:
    """A robot by its name in `ROBOTS`, or as it is; raises ValueError, in one line, for anything else."""
    return robot if isinstance(robot, Robot) else ROBOTS[one_of("robot", robot, ROBOTS)]

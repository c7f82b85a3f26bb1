"""The description of the stepping stones for a real robot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

import numpy as np

from robopolicy.control.gait import OFFSETS
from robopolicy.control.kinematics import LEGS
from robopolicy.control.proprioception import PROPRIOCEPTION
from robopolicy.control.robot import CameraConfig, Robot, WalkerConfig
from robopolicy.control.robots import LAIKAGO
from robopolicy.envs.members import Camera, Description, Quantity
from robopolicy.envs.physics.base import Physics
from robopolicy.envs.quadruped.cameras import CAMERAS
from robopolicy.envs.simulated import measured, pinhole

ODOMETER = 1e4  # m
ODOMETER_STEP = 0.25  # m in a control period, ten times what the robot walks; a larger one is a jump
FARTHEST = 100.0  # m: a larger depth is in another unit, or is no reading
# By the beginning of its name: unit, largest absolute value of a sound reading, and what it is.
VALUES = {
    "roll": ("rad", np.pi, "of the base, about x ahead"),
    "pitch": ("rad", np.pi, "of the base, about y to the left; positive nose down"),
    "angular_velocity": ("rad/s", 50.0, "of the base, in axes turned with its yaw only, z up"),
    "velocity": ("m/s", 10.0, "of the base, in axes turned with its yaw only, x ahead, z up"),
    "foot": ("m", 2.0, "toe's centre relative to the base, in axes turned with its yaw only"),
    "gait": ("1", 1.0, "sine or cosine of the phase of the gait, 2 pi for a period; FR and RL lift off at 0"),
    "previous_action": (
        "1",
        1.0,
        "the output `action` of the step before, not `command`, as it was carried out; 0 at first",
    ),
    "nominal_landing": (
        "m",
        5.0,
        "how far ahead of its hip (the abduction joint) a foot would land if it lifted off now by a command "
        "of 0: v (t_swing + t_stance / 2) - capture (v_desired - v), v the speed ahead, t_swing = (1 - duty) "
        "period, t_stance = duty period; of a foot in the air, where it is going to land. Ahead is along the "
        "course",
    ),
    "nominal_aside": (
        "m",
        5.0,
        "how far to the left of straight ahead of its leg's plane a foot would land if it lifted off now by "
        "a command of 0: {sway[0]} v + {sway[1]} y + {sway[2]} roll + {sway[3]} of its rate, v the speed "
        "of the base to the left and y its place to the left of the course's middle; the plane is "
        "{right:.1f} mm (right) or {left:.1f} mm (left) outside of the "
        "hip; of a foot in the air, where it is going to land",
    ),
}
ODOMETRY = (
    Quantity("odometry_x", "m", -ODOMETER, ODOMETER, "place of the base ahead of its start", ODOMETER_STEP),
    Quantity("odometry_y", "m", -ODOMETER, ODOMETER, "the same to the left", ODOMETER_STEP),
    Quantity("odometry_yaw", "rad", -np.pi, np.pi, "yaw of the base, by the IMU"),
)
# The settings with each unit.
_SETTINGS = {
    "s": "control_period ramp braking period step_period contact_time capture",
    "m": "height apex touchdown_press",
    "m/s": "speed",
    "1/s: speed for each metre off the middle, rate for each radian of yaw": "centring heading",
    "1": "duty friction contact_impedance",
    "100 N": "accuracy",
    "a count": "steps substeps solver_iterations",
    "1: share of the error that is removed in a physics step": "position_gain velocity_gain",
    "control periods": "replan_every",
    "1 of roll, pitch, yaw (1/rad2) and x, y, z (1/m2)": "pose_weights",
    "1 of their rates, in rad/s and m/s": "rate_weights",
    "1/N2": "force_weight",
    "a quarter of the weight, least and most of a standing leg's vertical force": "force_limits",
    "N s/m": "grip",
    "N m/rad": "stiffness",
    "N m s/rad": "damping",
    "N m, the largest of a joint that follows positions": "motor_torque",
}
UNITS = {name: unit for unit, names in _SETTINGS.items() for name in names.split()}
FEEDBACK = {
    "input": "proprioception",
    "first": PROPRIOCEPTION.index(f"previous_action_{LEGS[0]}"),
    "output": "action",
    "about": "of the step before, as it was carried out: of a step without a command in time the "
    "action that was kept; 0 at first",
}


def footholds(largest: float, aside: float = 0.0) -> tuple[Quantity, ...]:
    """The numbers of an action that moves landings by up to `largest` metres, and by `aside` sideways."""
    parts = [("x", largest, "ahead")] + ([("y", aside, "to the left")] if aside else [])
    about = (
        "how far {} of its nominal landing this foot is to land; it takes the command of "
        "the step in which it lifts off, and keeps it until it has landed"
    )
    return tuple(
        Quantity(f"foothold_{leg}_{axis}", "m", -most, most, about.format(side))
        for axis, most, side in parts
        for leg in LEGS
    )


def proprioception(names: tuple[str, ...] = PROPRIOCEPTION, robot: Robot = LAIKAGO) -> tuple[Quantity, ...]:
    """The numbers of `names` of a robot."""
    right, left = (1e3 * lateral for lateral in robot.lateral[:2])
    words = {"sway": robot.trot.sway, "right": right, "left": left}
    kinds = [max((kind for kind in VALUES if name.startswith(kind)), key=len) for name in names]
    rows = [(name, *VALUES[kind]) for name, kind in zip(names, kinds, strict=True)]
    return tuple(Quantity(name, unit, -most, most, about.format(**words)) for name, unit, most, about in rows)


def reading(
    robot: Robot, height: float, reach: tuple[float, ...], cameras: Mapping[str, CameraConfig]
) -> Description:
    """What a policy has to know to find footholds in the images, with the base of `robot` at `height` (m).

    reach: how far (m) an action of 1 moves a landing, ahead and, if it does, to the left.
    """
    places = robot.legs.hips[:, :2] + np.stack([np.zeros(4), robot.legs.plane], axis=1)
    mounts = {
        name: {
            "mount": (camera.position[0], height + camera.position[2]),
            "tilt": camera.tilt,
            "fields": camera.fields,
        }
        for name, camera in cameras.items()
    }
    feet = {leg: tuple(place.round(6).tolist()) for leg, place in zip(LEGS, places, strict=True)}
    return {"reach": reach, "feet": feet, "mounts": mounts}


def depth_cameras(cameras: Mapping[str, CameraConfig] = CAMERAS) -> dict[str, Camera]:
    """The depth cameras."""
    return {
        name: Camera(
            "m",
            0.0,
            FARTHEST,
            "depth along the optical axis (not along the ray); first row farthest ahead, first column "
            f"farthest left. What is farther than {camera.reach:g} m reads as {camera.reach:g}: give that "
            "where a camera says that something is too far. The robot's own legs were in the images "
            "on `dust`, `dust-thick` and `sparse-dirty` alone: leave them out for other presets. A 0 for no "
            "reading was seen in training on presets with dropout alone",
            (0.0, camera.reach),
            _pinhole(camera),
        )
        for name, camera in cameras.items()
    }


def low_level(robot: Robot, walker: WalkerConfig, physics: Physics) -> Description:
    """The robot and its low level."""
    return {
        "name": robot.title,
        "model": robot.source,
        "joint_order": list(robot.joints),
        "leg_order": list(LEGS),
        "default_pose": {
            "unit": "rad",
            "joints": (robot.standing_joints(walker.height).round(9) + 0.0).tolist(),
        },
        "joint_control": {
            "period": walker.control_period,
            "about": "legs in the air follow positions, legs on the ground the torques of a convex MPC",
            "engine": type(physics).__name__,
            "gains": measured(asdict(physics.config), UNITS),
        },
        "low_level": {
            **measured(asdict(walker), UNITS),
            "lift_off": {leg: float(at) for leg, at in zip(LEGS, OFFSETS, strict=True)},
            "lift_off_unit": "a period of the gait, after its beginning",
        },
        "safe_stop": "no further foot lifts off, feet in the air land, and all four stand at zero speed",
    }


def _pinhole(camera: CameraConfig) -> Description:
    tilt = np.radians(camera.tilt)
    right, down = np.array([0.0, -1.0, 0.0]), -np.array([np.cos(tilt), 0.0, np.sin(tilt)])
    axes = np.stack([right, down, np.cross(right, down)], axis=1)
    across, along = np.tan(np.radians(camera.fields) / 2)
    frame = "base, on a mount that turns with its yaw and stays level; x ahead, y left, z up"
    return pinhole(camera.width, camera.height, (across, along), np.array(camera.position), axes, frame)

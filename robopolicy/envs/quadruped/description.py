"""What whoever walks a real Laikago with a policy of the stepping stones has to know."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from robopolicy.envs.described import Description, entry, measured, pinhole
from robopolicy.envs.quadruped.cameras import CAMERAS, CameraConfig
from robopolicy.envs.quadruped.gait import OFFSETS
from robopolicy.envs.quadruped.kinematics import LEGS
from robopolicy.envs.quadruped.stepping_stones import PROPRIOCEPTION, SteppingStones
from robopolicy.envs.quadruped.walker import standing_joints

FARTHEST = 100.0  # m: what no depth camera reads is a reading in another unit, or none
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
}
UNITS = {
    **dict.fromkeys(("control_period", "ramp", "braking", "period", "step_period", "contact_time"), "s"),
    **dict.fromkeys(("height", "apex", "touchdown_press"), "m"),
    **dict.fromkeys(
        ("centring", "heading"), "1/s: speed for each metre off the middle, rate for each radian of yaw"
    ),
    **dict.fromkeys(("duty", "friction", "contact_impedance", "accuracy"), "1"),
    **dict.fromkeys(("steps", "substeps", "solver_iterations"), "a count"),
    **dict.fromkeys(
        ("position_gain", "velocity_gain"), "1: share of the error that is removed in a physics step"
    ),
    "speed": "m/s",
    "capture": "s",
    "replan_every": "control periods",
    "pose_weights": "1 of roll, pitch, yaw (1/rad2) and x, y, z (1/m2)",
    "rate_weights": "1 of their rates, in rad/s and m/s",
    "force_weight": "1/N2",
    "force_limits": "a quarter of the weight, least and most of a standing leg's vertical force",
    "stiffness": "N m/rad",
    "damping": "N m s/rad",
    "motor_torque": "N m, the largest of a joint that follows positions",
}
JOINTS = tuple(
    f"{leg}_{joint}_joint"
    for leg in LEGS
    for joint in ("hip_motor_2_chassis", "upper_leg_2_hip_motor", "lower_leg_2_upper_leg")
)


def describe(env: SteppingStones) -> Description:
    """Inputs, outputs, cameras, rates, robot and its low level, by name."""
    config, walker = env.config, env.config.walker
    largest = config.largest_offset
    return {
        "control_period": config.policy_period,
        "deadline": walker.control_period,
        "inputs": {
            **{name: _depth(name, camera) for name, camera in CAMERAS.items()},
            "proprioception": {
                "clip": [float(bound) for bound in _bounds(env)],
                "entries": [_proprioception(name) for name in PROPRIOCEPTION],
            },
        },
        "outputs": {
            "command": {
                "scale": [largest] * len(LEGS),
                "entries": [
                    entry(
                        f"foothold_{leg}_x",
                        "m",
                        -largest,
                        largest,
                        "how far ahead of its nominal landing this foot is to land; it takes the command of "
                        "the step in which it lifts off, and keeps it until it has landed",
                    )
                    for leg in LEGS
                ],
            }
        },
        "feedback": [
            {
                "input": "proprioception",
                "first": PROPRIOCEPTION.index(f"previous_action_{LEGS[0]}"),
                "output": "action",
                "about": "of the step before, as it was carried out: of a step without a command in time the "
                "action that was kept; 0 at first",
            }
        ],
        "cameras": {name: _camera(camera) for name, camera in CAMERAS.items()},
        "robot": {
            "name": "Laikago",
            "model": "laikago/laikago_toes_zup_lores.urdf of pybullet_data",
            "joint_order": list(JOINTS),
            "leg_order": list(LEGS),
            "default_pose": {
                "unit": "rad",
                "joints": (standing_joints(walker.height).round(9) + 0.0).tolist(),
            },
            "joint_control": {
                "period": walker.control_period,
                "about": "legs in the air follow positions, legs on the ground the torques of a convex MPC",
                "engine": type(env.physics).__name__,
                "gains": measured(asdict(env.physics.config), UNITS),
            },
            "low_level": {
                **measured(asdict(walker), UNITS),
                "lift_off": {leg: float(at) for leg, at in zip(LEGS, OFFSETS, strict=True)},
                "lift_off_unit": "a period of the gait, after its beginning",
            },
            "safe_stop": "no further foot lifts off, feet in the air land, and all four stand at zero speed",
        },
    }


def _bounds(env: SteppingStones) -> tuple[float, float]:
    space: Any = env.observation_space["proprioception"]
    return float(space.low.min()), float(space.high.max())


def _proprioception(name: str) -> Description:
    kind = max((kind for kind in VALUES if name.startswith(kind)), key=len)
    unit, largest, about = VALUES[kind]
    return entry(name, unit, -largest, largest, about)


def _depth(name: str, camera: CameraConfig) -> Description:
    return {
        "unit": "m",
        "low": 0.0,
        "high": FARTHEST,
        "clip": [0.0, camera.reach],
        "camera": name,
        "about": "depth along the optical axis (not along the ray); first row farthest ahead, first column "
        f"farthest left. What is farther than {camera.reach:g} m reads as {camera.reach:g}: give that where "
        "a camera says that something is too far. The robot's own legs were never in the images: leave them "
        "out. A 0 for no reading was seen in training on presets with dropout alone",
    }


def _camera(camera: CameraConfig) -> Description:
    tilt = np.radians(camera.tilt)
    right, down = np.array([0.0, -1.0, 0.0]), -np.array([np.cos(tilt), 0.0, np.sin(tilt)])
    axes = np.stack([right, down, np.cross(right, down)], axis=1)
    across, along = np.tan(np.radians(camera.fields) / 2)
    frame = "base, on a mount that turns with its yaw and stays level; x ahead, y left, z up"
    return pinhole(camera.width, camera.height, (across, along), np.array(camera.position), axes, frame)

"""What whoever walks a real Laikago with a policy of the stepping stones has to know."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from robopolicy.envs.described import Description, entry, pinhole
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
    "previous_action": ("1", 1.0, "the output `action` of the step before, not `command`; 0 at first"),
    "nominal_landing": (
        "m",
        5.0,
        "where the foot would land along x from its hip if it lifted off now with a command of 0; of a foot "
        "in the air, where it is going to land",
    ),
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
                "engine": {"name": type(env.physics).__name__, **asdict(env.physics.config)},
            },
            "low_level": {
                **asdict(walker),
                "lift_off": {leg: float(at) for leg, at in zip(LEGS, OFFSETS, strict=True)},
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
        "about": "depth along the optical axis; first row farthest ahead, first column farthest left; 0 "
        "where there is no reading",
    }


def _camera(camera: CameraConfig) -> Description:
    tilt = np.radians(camera.tilt)
    right, down = np.array([0.0, -1.0, 0.0]), -np.array([np.cos(tilt), 0.0, np.sin(tilt)])
    axes = np.stack([right, down, np.cross(right, down)], axis=1)
    across, along = np.tan(np.radians(camera.fields) / 2)
    frame = "base, on a mount that turns with its yaw and stays level; x ahead, y left, z up"
    return pinhole(camera.width, camera.height, (across, along), np.array(camera.position), axes, frame)

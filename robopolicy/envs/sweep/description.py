"""What whoever sweeps with two real arms has to know."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np

from robopolicy.envs.described import Description, entry, measured, pinhole
from robopolicy.envs.sweep import kinematics
from robopolicy.envs.sweep.bimanual_sweep import ACTION, ARMS, CAMERA, LEAD, PERIOD, BimanualSweep

FRAME = "table: x towards the camera, y from the left arm to the right one, z up, origin in its top's middle"
REACH = 2.0  # m from the table's middle, beyond which no arm is
ROUNDING = 1e-4  # of a unit quaternion


UNITS = {
    **dict.fromkeys(("control_period", "contact_time"), "s"),
    **dict.fromkeys(("x", "y", "height", "gap", "table_height", "rolling_friction"), "m"),
    **dict.fromkeys(("substeps", "solver_iterations"), "a count"),
    **dict.fromkeys(("position_gain", "velocity_gain"), "1: share of the error removed in a physics step"),
    "turn": "rad, away from upright",
    "rate": "1/s, at which a joint approaches its target",
    "rotor": "kg m2",
    "motor_torque": "N m, of each joint",
    "friction": "1",
}


def describe(env: BimanualSweep) -> Description:
    """Inputs, outputs, camera, rates, robot and its low level, by name."""
    config = env.config
    poses = [
        part
        for arm in ARMS
        for part in (
            *(entry(f"{arm}_{axis}", "m", -REACH, REACH, "of the spatula's lip") for axis in "xyz"),
            *(
                entry(f"{arm}_quaternion_{part}", "1", -1 - ROUNDING, 1 + ROUNDING, "w is never negative")
                for part in "wxyz"
            ),
        )
    ]
    inputs: Description = {
        "poses": {"entries": poses, "about": f"pose of each spatula in the frame of the {FRAME}"}
    }
    cameras: Description = {}
    if config.image_size is not None:
        inputs["image"] = {
            "unit": "1",
            "low": 0.0,
            "high": 255.0,
            "camera": "image",
            "about": "red, green and blue of every pixel, first row at the top",
        }
        cameras["image"] = _camera(config.image_size)
    scale = np.array([config.largest_move if "_move_" in name else config.largest_turn for name in ACTION])
    return {
        "control_period": PERIOD,
        "deadline": PERIOD,
        "inputs": inputs,
        "outputs": {
            "command": {
                "scale": scale.tolist(),
                "entries": [_command(name, size) for name, size in zip(ACTION, scale.tolist(), strict=True)],
            }
        },
        "feedback": [],
        "cameras": cameras,
        "robot": {
            "name": "two KUKA LBR iiwa with spatulas",
            "model": "kuka_iiwa/model.urdf of pybullet_data, twice",
            "joint_order": [
                f"{arm}/lbr_iiwa_joint_{joint + 1}" for arm in ARMS for joint in range(kinematics.JOINTS)
            ],
            "bases": {
                arm: dict(zip(("x", "y", "yaw"), base, strict=True))
                for arm, base in zip(ARMS, env.bases.tolist(), strict=True)
            },
            "default_pose": {
                "unit": "rad",
                "joints": env.workspace.settled(env.start()).round(9).ravel().tolist(),
            },
            "joint_control": {
                "period": PERIOD,
                "about": "every joint follows the angle that inverse kinematics gives for its spatula",
                "engine": type(env.physics).__name__,
                "gains": measured(asdict(env.physics.config), UNITS),
            },
            "low_level": {
                "workspace": measured(asdict(config.workspace), UNITS),
                "lead": {
                    "value": LEAD,
                    "unit": "m, that a target may be ahead along each axis",
                },
                "tool": {
                    "pose": kinematics.TOOL.round(9).tolist(),
                    "unit": "m, a homogeneous transform",
                    "about": "the spatula's frame in that of the arm's last link: x ahead, to the other arm "
                    "while upright, z up the handle, origin at the lip's lower face; `poses` are of it",
                },
            },
            "safe_stop": "both spatulas are held where they are",
        },
    }


def _command(name: str, largest: float) -> Description:
    arm, kind, axis = name.split("_")
    about = f"how far the {arm} spatula's target goes on along {axis} of the table's frame in this step"
    if kind == "turn":
        about = (
            f"{axis} of the rotation vector, in the table's frame, by which the {arm} spatula's target turns "
            "on in this step, from the left: new = turn * old"
        )
    return entry(name, "m" if kind == "move" else "rad", -largest, largest, about)


def _camera(size: int) -> Description:
    eye, target = np.array(CAMERA.eye), np.array(CAMERA.target)
    ahead = (target - eye) / np.linalg.norm(target - eye)
    right = np.cross(ahead, [0.0, 0.0, 1.0])
    right /= np.linalg.norm(right)
    axes = np.stack([right, np.cross(ahead, right), ahead], axis=1)
    tangent = float(np.tan(np.radians(CAMERA.field_of_view) / 2))
    return pinhole(size, size, (tangent, tangent), eye, axes, FRAME)

"""The description of the sweep for two real arms."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import numpy as np

from robopolicy.envs.members import Camera, Description, Quantity
from robopolicy.envs.physics.base import View
from robopolicy.envs.simulated import SAMPLES, measured, pinhole
from robopolicy.envs.sweep import kinematics

if TYPE_CHECKING:
    from robopolicy.envs.sweep.bimanual_sweep import BimanualSweep

FRAME = "table: x towards the camera, y from the left arm to the right one, z up, origin in its top's middle"
REACH = 2.0  # m from the table's middle, beyond which no arm is
ROUNDING = 1e-4  # of a unit quaternion

# The settings with each unit.
_SETTINGS = {
    "s": "control_period contact_time",
    "m": "x y height gap table_height rolling_friction",
    "a count": "substeps solver_iterations",
    "1: share of the error removed in a physics step": "position_gain velocity_gain",
    "rad, away from upright": "turn",
    "1/s, at which a joint approaches its target": "rate",
    "kg m2": "rotor",
    "N m, of each joint": "motor_torque",
    "1": "friction",
}
UNITS = {name: unit for unit, names in _SETTINGS.items() for name in names.split()}
ARMS = ("left", "right")
ACTION = tuple(f"{arm}_{kind}_{axis}" for arm in ARMS for kind in ("move", "turn") for axis in "xyz")
ABOUT_POSES = f"pose of each spatula in the frame of the {FRAME}"


def poses() -> tuple[Quantity, ...]:
    """Place and quaternion of both spatulas."""
    one = 1 + ROUNDING
    return tuple(
        part
        for arm in ARMS
        for part in (
            *(Quantity(f"{arm}_{axis}", "m", -REACH, REACH, "of the spatula's lip") for axis in "xyz"),
            *(Quantity(f"{arm}_quaternion_{w}", "1", -one, one, "w is never negative") for w in "wxyz"),
        )
    )


def moves(largest_move: float, largest_turn: float) -> tuple[Quantity, ...]:
    """The numbers of an action, which moves (m) and turns (rad) both spatulas."""
    return tuple(_command(name, largest_move if "_move_" in name else largest_turn) for name in ACTION)


def camera(size: int, view: View, renderer: str, is_drawn: bool) -> Camera:
    """The camera, of images [size, size, 3]; `is_drawn` if it is moved a little from `view`."""
    about = "red, green and blue of every pixel, first row at the top"
    if is_drawn:
        about += "; another pose near this one is drawn"
    return Camera("1", 0.0, 255.0, about, pinhole=_pinhole(size, view, renderer))


def robot(env: BimanualSweep, lead: float) -> Description:
    """Both arms and their low level; `lead` is how far a target may be ahead before a move (m)."""
    return {
        "name": "two KUKA LBR iiwa with spatulas",
        "model": "assets/iiwa/iiwa.xml of robopolicy, twice",
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
            "period": env.control_period,
            "about": "every joint follows the angle that inverse kinematics gives for its spatula",
            "engine": type(env.physics).__name__,
            "gains": measured(asdict(env.physics.config), UNITS),
        },
        "low_level": {
            "workspace": measured(asdict(env.config.workspace), UNITS),
            "lead": {
                "value": lead,
                "unit": "m, that a target may be ahead along each axis before the step's move",
            },
            "tool": {
                "pose": kinematics.TOOL.round(9).tolist(),
                "unit": "m, a homogeneous transform",
                "about": "the spatula's frame in that of the arm's last link: x ahead, to the other arm "
                "while upright, z up the handle, origin at the lip's lower face; `poses` are of it",
            },
        },
        "safe_stop": "both spatulas are held where they are",
    }


def _command(name: str, largest: float) -> Quantity:
    arm, kind, axis = name.split("_")
    about = f"how far the {arm} spatula's target goes on along {axis} of the table's frame in this step"
    if kind == "turn":
        about = (
            f"{axis} of the rotation vector, in the table's frame, by which the {arm} spatula's target turns "
            "on in this step, from the left: new = turn * old"
        )
    return Quantity(name, "m" if kind == "move" else "rad", -largest, largest, about)


def _pinhole(size: int, view: View, renderer: str) -> Description:
    eye, target = np.array(view.eye), np.array(view.target)
    ahead = (target - eye) / np.linalg.norm(target - eye)
    right = np.cross(ahead, [0.0, 0.0, 1.0])
    right /= np.linalg.norm(right)
    axes = np.stack([right, np.cross(ahead, right), ahead], axis=1)
    tangent = float(np.tan(np.radians(view.field_of_view) / 2))
    return pinhole(size, size, (tangent, tangent), eye, axes, FRAME, SAMPLES[renderer])

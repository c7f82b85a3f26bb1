"""Whether the table of a robot fits its model."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence

import numpy as np

from robopolicy.control.kinematics import foot_positions
from robopolicy.control.robot import Robot
from robopolicy.control.state import Array

TOLERANCE = 1e-3  # m, of a toe and its radius
MASS_TOLERANCE = 0.02  # share of the mass
TURN = 0.3  # rad


def check_names(robot: Robot, model: str, joints: Container[str], toes: Container[str]) -> None:
    """Raise ValueError, in one line, for a joint or a toe of the table that its `model` lacks."""
    for kind, names, known in (("joint", robot.joints, joints), ("toe", robot.toes, toes)):
        for name in names:
            if name not in known:
                raise ValueError(f"{robot} has the {kind} {name!r}, which its model {model} lacks")


def check_fit(
    robot: Robot, model: str, mass: float, radii: Sequence[float | None], toes: Callable[[Array], Array]
) -> None:
    """Raise ValueError, in one line, unless the lengths and the mass of a table are those of its `model`.

    mass: of the model (kg). radii: of its toes [4] (m), None for one that is no sphere. toes: the toes'
    centres [4, 3] (m, base frame) for joints [12] (rad), by the model. The standing pose is compared, and
    that with each joint turned in its turn.
    """
    for name, radius in zip(robot.toes, radii, strict=True):
        if radius is None:
            raise ValueError(f"{robot} has the toe {name!r}: in its model {model} it must be a sphere")
        if abs(radius - robot.foot_radius) > TOLERANCE:
            raise ValueError(
                f"{robot} has a foot_radius of {robot.foot_radius} m: its model {model} has the toe {name!r} "
                f"with {radius:.4g} m"
            )
    standing = robot.standing_joints(robot.walker.height)
    middle = np.clip(robot.limits, -np.pi, np.pi).mean(axis=1)
    _compare(robot, model, "it stands", standing, toes)
    for at, name in enumerate(robot.joints):
        turned = standing.copy()
        turned[at] += TURN if standing[at] < middle[at] else -TURN
        _compare(robot, model, f"it stands with {name!r} at {turned[at]:.3f} rad", turned, toes)
    if abs(mass - robot.mass) > MASS_TOLERANCE * mass:
        raise ValueError(f"{robot} has a mass of {robot.mass} kg: its model {model} has {mass:.4g} kg")


def _compare(robot: Robot, model: str, pose: str, joints: Array, toes: Callable[[Array], Array]) -> None:
    ours, theirs = foot_positions(robot.legs, joints.reshape(4, 3)), toes(joints)
    at = int(np.abs(ours - theirs).max(axis=1).argmax())
    if not np.abs(ours[at] - theirs[at]).max() <= TOLERANCE:
        raise ValueError(
            f"{robot}: when {pose}, its model {model} has the toe {robot.toes[at]!r} at "
            f"{theirs[at].round(3).tolist()} m, its table at {ours[at].round(3).tolist()} m"
        )

"""A first table for a robot, by its MuJoCo model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from robopolicy.control.kinematics import LEGS
from robopolicy.control.robot import JOINTS, UNLIMITED, CameraConfig, Robot
from robopolicy.control.robots import GO2, ROBOTS
from robopolicy.control.state import Array
from robopolicy.envs.physics.base import Box, Start
from robopolicy.envs.physics.mujoco import MujocoPhysics, compiled, mujoco, read_model
from robopolicy.naming import check_name
from robopolicy.settings import check_number

ALIKE = 1e-3  # m, by which the legs of a robot may differ
PARALLEL = 0.999  # cosine


def first_table(
    name: str, model: str | Path, joints: Sequence[str], toes: Sequence[str], height: float, urdf: str = ""
) -> Robot:
    """A table for the quadruped of the MJCF file `model`, to begin with.

    Names, lengths, mass, inertia, limits and torques are those of the model. All else is the Go2's: speed,
    height of a swing and places of the cameras in units of the leg, gains in units of mass times length
    squared, which an inertia has. The robot counts as fallen below 65 % of `height`. Replace what you know
    better, and the models of the trot once they are fitted. The table has the whole paths of the models.

    Args:
      joints: names [12], of the legs FR, FL, RR, RL in this order, each abduction, hip, knee.
      toes: names [4] of the spheres with which these legs stand.
      height: of the base over the ground (m) in the trot.
      urdf: the same robot for Bullet, if it has one.

    Raises ValueError, in one line, for the name of a robot of the package, for a height that is no positive
    number, for a model that is no MJCF, lacks one of the names, does not limit a torque, or has legs of
    another kind, and as a table does.
    """
    check_name("a robot", name)
    if name in ROBOTS:
        raise ValueError(f"name is {name!r}, that of a robot of the package: use another")
    check_number("height", height, ALIKE)
    begun = replace(
        GO2,
        **_of_model(Path(model).resolve(), joints, toes),
        name=name,
        title=name,
        source=str(model),
        urdf=str(Path(urdf).resolve()) if Path(urdf).is_file() else urdf,
        center=(0.0, 0.0, 0.0),
        lowest_base=0.65 * height,
        walker=replace(GO2.walker, height=height),
        rugged=replace(GO2.rugged, height=height),
    )
    leg, mass = begun.leg / GO2.leg, begun.mass / GO2.mass
    inertia = mass * leg**2
    swing = replace(GO2.walker.swing, apex=leg * GO2.walker.swing.apex)
    walker = replace(begun.walker, speed=leg * GO2.walker.speed, swing=swing)
    stance = replace(GO2.rugged.stance, grip=mass * GO2.rugged.stance.grip)
    center, tensor = _balance(begun)
    return replace(
        begun,
        center=center,
        inertia=tensor,
        held_torque=begun.torques,
        stiffness=inertia * GO2.stiffness,
        damping=inertia * GO2.damping,
        walker=walker,
        rugged=replace(walker, stance=stance),
        front=_moved(GO2.front, leg),
        belly=_moved(GO2.belly, leg),
    )


def _of_model(path: Path, joints: Sequence[str], toes: Sequence[str]) -> dict[str, Any]:
    """The fields of a table that a model holds."""
    where = f"model {str(path)!r}"
    if len(joints) != JOINTS or len(toes) != len(LEGS):
        raise ValueError(
            f"{where} needs the names of {JOINTS} joints and {len(LEGS)} toes: there are {len(joints)} and "
            f"{len(toes)}"
        )
    spec = read_model(path, "robot")
    for kind, names, parts in (("joint", joints, spec.joints), ("toe", toes, spec.geoms)):
        known = [part.name for part in parts if part.name]
        for name in names:
            if name not in known:
                raise ValueError(f"{where} has no {kind} {name!r}: it has {', '.join(known) or 'no names'}")
    built = compiled(spec, path, "robot")
    data = mujoco.MjData(built)
    data.qpos[:] = 0.0
    data.qpos[3] = 1.0
    mujoco.mj_kinematics(built, data)
    ids, balls = (
        [getattr(built, kind)(n).id for n in names] for kind, names in (("joint", joints), ("geom", toes))
    )
    anchors, axes = data.xanchor[ids].reshape(4, 3, 3), data.xaxis[ids].reshape(4, 3, 3)
    ends = data.geom_xpos[balls]
    _check_axes(where, joints, axes)
    limited = built.jnt_limited[ids].astype(bool)[:, None]
    return {
        "model": str(path),
        "joints": tuple(joints),
        "toes": tuple(toes),
        "hips": _rounded(np.stack([anchors[:, 1, 0], *anchors[:, 0, 1:].T], axis=1)),
        "turns": _rounded(np.sign(axes[:, 0, 0])),
        "lateral": _rounded(np.abs(ends[:, 1] - anchors[:, 0, 1])),
        "thigh": _common(where, "from hip to knee", anchors[:, 1] - anchors[:, 2]),
        "shank": _common(where, "from knee to toe", anchors[:, 2] - ends),
        "foot_radius": float(built.geom_size[balls[0], 0]),
        "trunk": _rounded(np.ptp(anchors[:, 0], axis=0) / 2 + [0.0, 0.0, 0.05]),
        "mass": round(float(built.body_mass.sum()), 4),
        "limits": _rounded(np.where(limited, built.jnt_range[ids], [-UNLIMITED, UNLIMITED])),
        "torques": _torques(where, built, joints, ids),
    }


def _balance(robot: Robot) -> tuple[Any, Any]:
    """The centre of mass and the inertia of a robot that stands, as a table has them."""
    physics = MujocoPhysics(robot)
    place = np.array([0.0, 0.0, robot.walker.height])
    physics.reset(
        Start([Box((0.0, 0.0, -0.5), (1.0, 1.0, 0.5))], place, robot.standing_joints(robot.walker.height))
    )
    _, center, inertia = physics.mass_properties()
    physics.close()
    return _rounded(center), _rounded((inertia + inertia.T) / 2)


def _moved(camera: CameraConfig, scale: float) -> CameraConfig:
    x, y, z = camera.position
    return replace(camera, position=(scale * x, scale * y, scale * z))


def _check_axes(where: str, joints: Sequence[str], axes: Array) -> None:
    """Abductions turn about x, in either direction, hips and knees about y to the left."""
    for name, axis, kind in zip(joints, axes.reshape(JOINTS, 3), (0, 1, 1) * 4, strict=True):
        along = abs(axis[0]) if kind == 0 else axis[1]
        if not along > PARALLEL:
            wanted = "x, ahead or back" if kind == 0 else "y, to the left"
            raise ValueError(
                f"{where} turns {name!r} about {axis.round(3).tolist()} with all joints at 0: it must be "
                f"{wanted}"
            )


def _common(where: str, what: str, parts: Array) -> tuple[float, float]:
    """Down and back [2] (m) of a part of the legs, of which all four are alike."""
    lengths = parts[:, [2, 0]]
    if np.ptp(lengths, axis=0).max() > ALIKE:
        raise ValueError(
            f"{where} has legs that differ: {what}, down and back, {lengths.round(4).tolist()} m"
        )
    down, back = lengths.mean(axis=0).round(6).tolist()
    return down, back


def _torques(where: str, model: Any, joints: Sequence[str], ids: Sequence[int]) -> tuple[float, ...]:
    """Largest torques [12] (N m), by the motors or the joints."""
    most = []
    kinds = mujoco.mjtTrn.mjTRN_JOINT, mujoco.mjtTrn.mjTRN_JOINTINPARENT  # others number tendons or sites
    of_joints = np.isin(model.actuator_trntype, kinds)
    for name, joint in zip(joints, ids, strict=True):
        limits = [model.jnt_actfrcrange[joint, 1]] if model.jnt_actfrclimited[joint] else []
        for motor in np.flatnonzero(of_joints & (model.actuator_trnid[:, 0] == joint)):
            if model.actuator_gaintype[motor] != mujoco.mjtGain.mjGAIN_FIXED:
                continue  # such as a damper
            gear = abs(model.actuator_gear[motor, 0])
            if model.actuator_forcelimited[motor]:
                limits.append(gear * model.actuator_forcerange[motor, 1])
            elif model.actuator_ctrllimited[motor] and _is_motor(model, motor):
                gain = abs(model.actuator_gainprm[motor, 0])
                limits.append(gear * gain * model.actuator_ctrlrange[motor, 1])
        if not limits:
            raise ValueError(f"{where} limits no torque of {name!r}: give its joint an actuatorfrcrange")
        most.append(float(min(limits)))
    return tuple(most)


def _is_motor(model: Any, actuator: Any) -> bool:
    """Whether the force of an actuator of constant gain is at most that of its control."""
    kinds = mujoco.mjtDyn.mjDYN_NONE, mujoco.mjtDyn.mjDYN_FILTER, mujoco.mjtDyn.mjDYN_FILTEREXACT
    is_alone = model.actuator_biastype[actuator] == mujoco.mjtBias.mjBIAS_NONE
    is_bounded = np.isin(model.actuator_dyntype[actuator], kinds)
    return bool(is_alone and is_bounded and model.actuator_gainprm[actuator, 0])


def _rounded(values: Array) -> Any:
    """Tuples in place of an array."""
    rounded = np.asarray(values, float).round(6).tolist()
    return tuple(tuple(row) if isinstance(row, list) else row for row in rounded)

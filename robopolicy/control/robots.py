"""The robots that the package knows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from os.path import isfile
from pathlib import Path
from typing import Any

from robopolicy.control.gait import SwingConfig
from robopolicy.control.kinematics import LEGS
from robopolicy.control.robot import UNLIMITED, CameraConfig, Robot, Trot, WalkerConfig
from robopolicy.control.stance import StanceConfig
from robopolicy.naming import one_of
from robopolicy.reading_json import read_object
from robopolicy.settings import from_json

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
    center=(-0.0226, 0.0003, -0.0386),
    inertia=((0.579, 0.0, -0.038), (0.0, 1.255, 0.001), (-0.038, 0.001, 1.347)),
    lowest_base=0.28,
    # The model limits no joint's angle, and no torque below 100 N m.
    limits=((-UNLIMITED, UNLIMITED),) * 12,
    torques=(UNLIMITED,) * 12,
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
_LEG = (0.213 + 0.213) / LAIKAGO.leg  # the Go2's leg in units of the Laikago's
_GO2_WALKER = WalkerConfig(
    speed=0.6 * _LEG,
    replan_every=1,  # with 3, the roll of this lighter trunk oscillates
    height=0.31,
    swing=SwingConfig(apex=0.10 * _LEG),
)
GO2 = Robot(
    name="go2",
    title="Go2",
    source="unitree_go2/go2.xml of mujoco_menagerie",
    model="go2/go2.xml",
    urdf="go2/go2.urdf",
    joints=_of_legs("hip", "thigh", "calf"),
    toes=tuple(f"{leg}_foot" for leg in LEGS),
    hips=((0.1934, -0.0465, 0.0), (0.1934, 0.0465, 0.0), (-0.1934, -0.0465, 0.0), (-0.1934, 0.0465, 0.0)),
    turns=(1.0, 1.0, 1.0, 1.0),
    lateral=(0.0955,) * 4,
    thigh=(0.213, 0.0),
    shank=(0.213, 0.002),
    foot_radius=0.022,
    trunk=(0.1881, 0.04675, 0.057),
    mass=15.206,
    center=(-0.0015, 0.0, -0.0232),
    inertia=((0.179, 0.0, -0.017), (0.0, 0.490, 0.0), (-0.017, 0.0, 0.533)),
    lowest_base=0.2,
    limits=(
        *((-1.0472, 1.0472), (-1.5708, 3.4907), (-2.7227, -0.83776)) * 2,
        *((-1.0472, 1.0472), (-0.5236, 4.5379), (-2.7227, -0.83776)) * 2,
    ),
    torques=(23.7, 23.7, 45.43) * 4,
    held_torque=(23.7, 23.7, 45.43) * 4,
    stiffness=250.0,
    damping=3.33,
    walker=_GO2_WALKER,
    rugged=replace(_GO2_WALKER, stance=replace(_RUGGED, grip=40.0 * 15.206 / 25.6)),
    # Of 549 half periods (benchmarks/robot_trot.py); residuals of 3.8 mm, 0.022 m/s and, of the sway, 9 mm.
    trot=Trot(
        progress=(0.1048, -0.1590, 0.0951, 0.0557),
        speed=(0.2198, -0.4964, 0.4769, -0.0287, 0.6982),
        overshoot=0.007,
        sway=(-0.3912, -0.7990, -2.1435, 0.0156),
    ),
    front=CameraConfig(position=(0.25 * _LEG, 0.0, 0.0), tilt=30.0, fields=(75.0, 75.0)),
    belly=CameraConfig(position=(0.0, 0.0, -0.05 * _LEG), tilt=0.0, fields=(90.0, 80.0)),
)
ROBOTS = {robot.name: robot for robot in (LAIKAGO, GO2)}


TABLE = ".json"  # how the name of a file with a table ends


def robot_of(robot: Any) -> Robot:
    """A robot by its name in `ROBOTS`, as it is, by the JSON file of its table, or from that JSON object.

    Raises FileNotFoundError or ValueError, in one line, for anything else.
    """
    if isinstance(robot, str | Path) and str(robot).endswith(TABLE):
        return read_table(Path(robot))
    if isinstance(robot, Mapping):
        table: Robot = from_json("robot:", Robot, robot)
        return table
    return robot if isinstance(robot, Robot) else ROBOTS[one_of("robot", robot, (*ROBOTS, f"TABLE{TABLE}"))]


def read_table(path: Path) -> Robot:
    """The table in a JSON file, `json.dumps(asdict(robot))`, or that of the run whose config.json it is.

    Its models are found beside the file, and in the current folder. Raises FileNotFoundError, and ValueError,
    in one line, for a file that holds no table, and for a table with the name of a robot of the package.
    """
    if not isfile(path):  # `Path.is_file` raises OSError for a name that is too long, before Python 3.14
        raise FileNotFoundError(f"robot is {str(path)!r}: there is no such file")
    table: Mapping[str, Any] = read_object(path)
    if "environment" in table:
        table = _of_run(path, table)
    robot: Robot = from_json(f"{str(path)!r}:", Robot, table)
    if robot.name in ROBOTS:
        raise ValueError(
            f"{str(path)!r}: name is {robot.name!r}, that of a robot of the package: use another"
        )
    return replace(robot, model=_beside(path, robot.model), urdf=_beside(path, robot.urdf))


def _beside(path: Path, file: str) -> str:
    """A `file` relative to the folder of `path`, or else to the current one; as named if it is in neither."""
    found = [place for place in (path.parent / file, Path(file)) if isfile(place)]
    return str(found[0].resolve()) if found else file


def table_of(robot: str | Path) -> str | dict[str, Any]:
    """What a run records of a robot: its name, or the JSON object of its table."""
    return asdict(read_table(Path(robot))) if str(robot).endswith(TABLE) else str(robot)


def _of_run(path: Path, config: Mapping[str, Any]) -> Mapping[str, Any]:
    environment = config["environment"]
    others = environment.get("others") if isinstance(environment, Mapping) else None
    robot = others.get("robot") if isinstance(others, Mapping) else None
    if not isinstance(robot, Mapping):
        raise ValueError(f"{str(path)!r} is of a run without a table of its robot")
    return robot

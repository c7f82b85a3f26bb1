"""A Go2 that stands still and ignores commands, and the manifest of a bundle for it."""

import json

import numpy as np

from robopolicy.control.robots import GO2
from robopolicy.envs.quadruped.stepping_stones import SteppingStones
from robopolicy.runtime.manifest import parse
from robopolicy.unitree.low_level import LowLevel
from robopolicy.unitree.records import LOW_STATE, sealed

STANDING = GO2.standing_joints(GO2.walker.height)
SCALE = np.full(4, 0.1, np.float32)


def state(tick, **changes):
    """The low state of a robot that stands, at `tick` (ms)."""
    made = np.zeros((), LOW_STATE)
    made["imu_state"]["quaternion"][0], made["imu_state"]["accelerometer"][2] = 1.0, 9.81
    made["motor_state"]["q"][:12], made["motor_state"]["temperature"][:12] = STANDING, 35
    made["motor_state"]["lost"][:12] = 1000  # packets since it was switched on
    made["tick"] = tick
    for change in changes.values():
        change(made)
    return sealed(made)


def low_level(**more):
    """A low level that has been told to walk."""
    low = LowLevel(GO2, GO2.walker, 0.05, SCALE, 0.01, **more)
    low.walk()
    return low


def manifest(robot="go2", change=lambda data: None):
    """The manifest of a bundle of the stepping stones for `robot`."""
    env = SteppingStones(engine="mujoco", robot=robot)
    data = env.describe()
    env.close()
    for name, value in data["inputs"].items():
        value["shape"] = list(env.observation_space[name].shape)
        value["dtype"] = "float32"
    data["outputs"]["command"] |= {"shape": [4], "dtype": "float32"}
    data |= {"schema": 2, "golden": {"observations": 1}, "tolerances": {"command": 1e-4}, "files": {}}
    change(data)
    return parse(json.dumps(data).encode())

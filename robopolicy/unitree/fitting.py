"""Which bundles drive a robot over the bridge, and the low level that they were trained with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from robopolicy.control.kinematics import LEGS
from robopolicy.control.proprioception import LATERAL_PROPRIOCEPTION, PROPRIOCEPTION
from robopolicy.control.robot import Robot, WalkerConfig
from robopolicy.runtime.manifest import Manifest, Value
from robopolicy.settings import check_number, from_json
from robopolicy.unitree.checks import PERIOD


class Fit(NamedTuple):
    """What the bridge takes from a bundle.

    Attributes:
      walker: the low level's settings; scale: [4 or 8] (m), of an action of one.
      cameras: its depth images by name.
    """

    walker: WalkerConfig
    scale: NDArray[np.float32]
    cameras: dict[str, Value]


def fit(manifest: Manifest, robot: Robot) -> Fit:
    """What the bridge takes from the bundle of `manifest` for `robot`.

    Raises ValueError, in one line, for a bundle of another robot, with other commands than footholds, with
    readings that do not exist, without its low level or scale, or with steps between the robot's messages.
    """
    described = manifest.data.get("robot")
    name = described.get("name") if isinstance(described, Mapping) else None
    if not isinstance(described, Mapping) or name != robot.title:
        raise ValueError(f"bundle is for the robot {name!r}: it must be for {robot.title!r}")
    periods = 1e3 * manifest.control_period / PERIOD
    if round(periods) < 1 or abs(periods - round(periods)) > 1e-6:
        raise ValueError(
            f"bundle has the control_period {manifest.control_period}: it must be a multiple of "
            f"{1e-3 * PERIOD}"
        )
    command = manifest.outputs["command"].entries
    axes = "xy" if len(command) > len(LEGS) else "x"
    footholds = tuple(f"foothold_{leg}_{axis}" for axis in axes for leg in LEGS)
    if command != footholds:
        raise ValueError(f"bundle commands {', '.join(command)}: the bridge takes {', '.join(footholds)}")
    cameras = {}
    for key, value in manifest.inputs.items():
        if key == "proprioception":
            names = LATERAL_PROPRIOCEPTION if axes == "xy" else PROPRIOCEPTION
            if value.entries != names:
                raise ValueError(f"bundle reads proprioception that is not of {len(footholds)} footholds")
        elif key == "odometry":
            if value.shape != (3,):
                raise ValueError(f"bundle reads odometry of shape {list(value.shape)}: it must be [3]")
        elif len(value.shape) == 2 and value.dtype == "float32":
            cameras[key] = value
        else:
            raise ValueError(f"bundle reads {key!r}, which is no depth image: the bridge has no such reading")
    scale = manifest.data["outputs"]["command"].get("scale")
    if scale is None:
        raise ValueError(f"bundle has no scale of its command: it must be {len(command)} numbers")
    for each in scale:
        check_number("bundle: scale of the command", each, 1e-6, 1.0)
    low_level = described.get("low_level")
    if not isinstance(low_level, Mapping):
        raise ValueError("bundle does not describe its low level")
    settings = {key: _bare(part) for key, part in low_level.items() if not key.startswith("lift_off")}
    walker = from_json("bundle: low_level", WalkerConfig, settings)
    return Fit(walker, np.array(scale, np.float32), cameras)


def _bare(part: Any) -> Any:
    """A setting without its unit, settings within settings included."""
    if not isinstance(part, Mapping):
        return part
    return part["value"] if "value" in part else {name: _bare(inner) for name, inner in part.items()}

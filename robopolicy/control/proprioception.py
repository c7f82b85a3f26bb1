"""What a policy knows of the robot's body and gait."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from robopolicy.control.controller import Controller
from robopolicy.control.kinematics import LEGS
from robopolicy.control.state import Array

PROPRIOCEPTION = (
    *("roll", "pitch"),
    *(f"angular_velocity_{axis}" for axis in "xyz"),
    *(f"velocity_{axis}" for axis in "xyz"),
    *(f"foot_{leg}_{axis}" for leg in LEGS for axis in "xyz"),
    *("gait_sin", "gait_cos"),
    *(f"previous_action_{leg}" for leg in LEGS),
    *(f"nominal_landing_{leg}" for leg in LEGS),
)
# With landings to the side, the previous action and the nominal landing have their part, too.
_AFTER = PROPRIOCEPTION.index(f"nominal_landing_{LEGS[0]}")
LATERAL_PROPRIOCEPTION = (
    *PROPRIOCEPTION[:_AFTER],
    *(f"previous_action_{leg}_y" for leg in LEGS),
    *PROPRIOCEPTION[_AFTER:],
    *(f"nominal_aside_{leg}" for leg in LEGS),
)


def proprioception(controller: Controller, previous: NDArray[np.float32], *, lateral: bool) -> Array:
    """The vector of the stepping stones, [30] or, with landings to the side, [38].

    Base, feet and gait, the `previous` action [4 or 8], and where feet land without an offset; the names of
    its numbers are `PROPRIOCEPTION` and `LATERAL_PROPRIOCEPTION`.
    """
    reading = controller.reading
    phase = 2 * np.pi * controller.time / controller.config.gait.period
    return np.concatenate(
        [
            reading.attitude[:2],
            reading.angular_velocity,
            reading.velocity,
            reading.feet.ravel(),
            [np.sin(phase), np.cos(phase)],
            previous,
            controller.nominal_landings(),
            controller.nominal_asides() if lateral else [],
        ]
    )

"""An exported graph against the policy that it was made from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = Mapping[str, NDArray[Any]]


def differences(
    graph: Callable[[Arrays], Arrays], recorded: Iterable[tuple[Arrays, Arrays]]
) -> dict[str, float]:
    """The largest absolute difference of every output over pairs of an observation and recorded outputs.

    Actions may be choices, which hide small differences until they flip; `scores`, by which they were chosen,
    do not.
    """
    found: dict[str, float] = {}
    for observation, outputs in recorded:
        made = graph(observation)
        for name, output in outputs.items():
            off = float(np.abs(np.asarray(output, np.float64) - made[name]).max())
            found[name] = max(found.get(name, 0.0), off)
    return found

"""How a policy does on demonstrations that it is not trained on."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from robopolicy.training.batches import Batch
from robopolicy.training.descent import Descent
from robopolicy.training.frames import Frames
from robopolicy.training.metrics import VALIDATION_LOSS, Record

LOOKED_AT = 256  # frames, at most
ACTED_ON = 64  # of them, for which an action is chosen


class HeldOut:
    """Frames set aside, in batches, each of which is spread over all their episodes."""

    def __init__(self, frames: Frames, aside: NDArray[np.intp], size: int) -> None:
        self._data = frames
        count = min(len(aside), LOOKED_AT)
        parts = max(count // size, 1) if count else 0
        count = min(parts * size, count)
        chosen = aside[np.linspace(0, len(aside) - 1, count).astype(int)] if count else aside
        self._parts = [chosen[first::parts] for first in range(parts)]

    def looked_at(self, descent: Descent, parameters: Any) -> Record:
        """Mean loss and mean absolute error of actions, by name, but for those that are not finite."""
        losses, errors, acted = [], [], 0
        for part in self._parts:
            batch = Batch.read(self._data, part)
            losses.append(descent.loss(parameters, batch))
            if acted < ACTED_ON:
                actions = np.asarray(descent.actions(parameters, batch))
                errors.append(float(np.abs(actions - batch.action).mean()))
                acted += len(part)
        found = {VALIDATION_LOSS: losses, "validation/action_error": errors}
        means = {name: float(np.mean(values)) for name, values in found.items() if values}
        return {name: mean for name, mean in means.items() if np.isfinite(mean)}

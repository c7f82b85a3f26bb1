"""How a policy does on demonstrations that it is not trained on."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from robopolicy.training.batches import Batch
from robopolicy.training.datasets import FrameCache
from robopolicy.training.descent import Descent
from robopolicy.training.metrics import Record

VALIDATION_LOSS = "validation/loss"
LOOKED_AT = 256  # frames, at most
ACTED_ON = 64  # of them, for which an action is chosen


class HeldOut:
    """Frames set aside, evenly over their episodes, in batches; what does not fill a batch is left out."""

    def __init__(self, cache: FrameCache, frames: NDArray[np.intp], size: int) -> None:
        self._cache = cache
        count = min(len(frames), LOOKED_AT)
        chosen = frames[np.linspace(0, len(frames) - 1, count).astype(int)] if count else frames
        size = min(size, count)
        self._parts = [chosen[at : at + size] for at in range(0, count - size + 1, size)] if count else []

    def looked_at(self, descent: Descent, parameters: Any) -> Record:
        """Mean loss and mean absolute error of actions, by name; nothing where nothing was set aside."""
        losses, errors, acted = [], [], 0
        for part in self._parts:
            batch = self._read(part)
            losses.append(descent.loss(parameters, batch))
            if acted < ACTED_ON:
                actions = np.asarray(descent.actions(parameters, batch))
                errors.append(float(np.abs(actions - batch.action).mean()))
                acted += len(part)
        if not losses:
            return {}
        return {VALIDATION_LOSS: float(np.mean(losses)), "validation/action_error": float(np.mean(errors))}

    def _read(self, part: NDArray[np.intp]) -> Batch:
        cache = self._cache
        poses, action = (array[part].astype(np.float32) for array in (cache.poses, cache.action))
        return Batch(cache.images(part), poses, action)

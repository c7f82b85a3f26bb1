"""Faults of a network between a robot and its low level, drawn by seed."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from robopolicy.settings import check_number
from robopolicy.unitree.records import SLOTS, Record, sealed

LONGEST_DELAY = 4  # messages


@dataclass(frozen=True)
class Faults:
    """Shares of the messages, each at most 0.5.

    Attributes:
      drop: that never arrive.
      delay: that arrive up to `LONGEST_DELAY` messages later, with all messages after them.
      swap: that arrive after the next one.
      forge: after which a forged one arrives.
    """

    drop: float = 0.0
    delay: float = 0.0
    swap: float = 0.0
    forge: float = 0.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            check_number(name, value, 0.0, 0.5)


class FaultyLine:
    """Passes low states on, with faults."""

    def __init__(self, faults: Faults, rng: np.random.Generator) -> None:
        self._faults, self._rng = faults, rng
        self._queue: list[Record] = []
        self._held = 0  # messages until the queue moves
        self._swapped: Record | None = None

    def send(self, state: Record) -> list[Record]:
        """What arrives now, in its order."""
        faults = self._faults
        dropped, delayed, swapped, forged = self._rng.random(4) < (
            *(faults.drop, faults.delay, faults.swap),
            faults.forge,
        )
        if not dropped:
            self._queue.append(state)
        if self._held:
            self._held -= 1
        elif delayed:
            self._held = int(self._rng.integers(1, LONGEST_DELAY + 1))
        if self._held:
            return []
        arrived, self._queue = self._queue, []
        late, self._swapped = self._swapped, None
        if swapped and arrived:
            self._swapped = arrived.pop()
        arrived += [late] if late is not None else []
        if forged:
            which = list(FORGERIES)[self._rng.integers(len(FORGERIES))]
            arrived.append(FORGERIES[which](state.copy(), self._rng))
        return arrived


def _flipped(state: Record, rng: np.random.Generator) -> Record:
    """One bit is wrong."""
    content = state.reshape(1).view(np.uint8)
    content[rng.integers(20, 1100)] ^= np.uint8(1 << rng.integers(8))
    return state


def _thrown(state: Record, rng: np.random.Generator) -> Record:
    """The joints are elsewhere."""
    state["motor_state"]["q"][:12] += rng.normal(0.0, 1.0, 12)
    return _ahead(state)


def _infinite(state: Record, rng: np.random.Generator) -> Record:
    state["motor_state"]["dq"][rng.integers(12)] = math.nan
    return _ahead(state)


def _of_the_future(state: Record, rng: np.random.Generator) -> Record:
    state["tick"] += 10**6
    return sealed(state)


def _of_more_joints(state: Record, rng: np.random.Generator) -> Record:
    """The robot has wheels, too."""
    state["motor_state"]["q"][12:SLOTS] = rng.normal(0.0, 1.0, SLOTS - 12)
    return _ahead(state)


def _replayed(state: Record, rng: np.random.Generator) -> Record:
    """An old state comes again."""
    state["tick"] -= 400
    return sealed(state)


def _ahead(state: Record) -> Record:
    """The checksum is right, and the tick is the next one."""
    state["tick"] += 2
    return sealed(state)


FORGERIES: dict[str, Callable[[Record, np.random.Generator], Record]] = {
    "flipped": _flipped,
    "thrown": _thrown,
    "infinite": _infinite,
    "of the future": _of_the_future,
    "of more joints": _of_more_joints,
    "replayed": _replayed,
}

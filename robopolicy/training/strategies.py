"""Evolution strategies by name, from evosax, EvoJAX and the robotics literature, behind one seam.

A strategy here maximises, keeps all of its state in a pytree of arrays that is handed in and out, and draws
only from the keys that it is given (EvoJAX's from one that is part of its state).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from robopolicy.naming import one_of
from robopolicy.training import evojax_strategies, evosax_strategies
from robopolicy.training.robotics_ars import robotics_ars
from robopolicy.training.shaping import SHAPINGS, shaped, untied
from robopolicy.training.strategy import Settings, Strategy

LARGEST = 1e6  # sigma or learning rate: far beyond any use, and far from overflow

__all__ = ["STRATEGIES", "Entry", "Settings", "Strategy", "strategy"]


class Entry(NamedTuple):
    """A strategy of the catalogue: how it is made, whether it draws in pairs, its default shaping."""

    make: Callable[[Settings], Strategy]
    antithetic: bool
    shaping: str


def _evosax(make: evosax_strategies.Make) -> Callable[[Settings], Strategy]:
    return lambda settings: evosax_strategies.wrap(make, settings)


def _evojax(kind: evojax_strategies.Kind) -> Callable[[Settings], Strategy]:
    return lambda settings: evojax_strategies.wrap(kind, settings)


def _by_rank(make: Callable[[Settings], Strategy]) -> Callable[[Settings], Strategy]:
    return lambda settings: untied(make(settings))


STRATEGIES: dict[str, Entry] = {
    "open_es": Entry(_evosax(evosax_strategies.open_es), True, "ranks"),
    "pgpe": Entry(_evosax(evosax_strategies.pgpe), True, "ranks"),
    "ars": Entry(_evosax(evosax_strategies.ars), True, "raw"),
    "snes": Entry(_by_rank(_evosax(evosax_strategies.plain("SNES"))), False, "raw"),
    "xnes": Entry(_by_rank(_evosax(evosax_strategies.plain("xNES"))), False, "raw"),
    "sep_cma_es": Entry(_by_rank(_evosax(evosax_strategies.plain("Sep_CMA_ES"))), False, "raw"),
    "cma_es": Entry(_by_rank(_evosax(evosax_strategies.plain("CMA_ES"))), False, "raw"),
    "evojax_pgpe": Entry(_evojax(evojax_strategies.PGPE), True, "ranks"),
    "evojax_cma_es": Entry(_by_rank(_evojax(evojax_strategies.CMA_ES)), False, "raw"),
    "evojax_crfmnes": Entry(_by_rank(_evojax(evojax_strategies.CRFMNES)), True, "raw"),
    "evojax_ars": Entry(_evojax(evojax_strategies.ARS), True, "raw"),
    "robotics_ars": Entry(robotics_ars, True, "raw"),
}


def strategy(name: str, settings: Settings) -> Strategy:
    """The strategy called `name`. Raises ValueError for an unknown name or settings that it cannot take."""
    entry = STRATEGIES[one_of("strategy", name, STRATEGIES)]
    one_of("shaping", settings.shaping, ("default", *SHAPINGS))
    if settings.population < 2:
        raise ValueError(f"population is {settings.population}: it must be 2 or more")
    if entry.antithetic and settings.population % 2:
        raise ValueError(f"population is {settings.population}: {name} draws in pairs, so it must be even")
    for field in ("sigma", "learning_rate"):
        _within(field, getattr(settings, field), 0.0, LARGEST)
    for field in ("decay", "elite"):
        _within(field, getattr(settings, field), 0.0, 1.0)
    if not (np.isfinite(settings.weight_decay) and settings.weight_decay >= 0):
        raise ValueError(f"weight_decay is {settings.weight_decay}: it must be a number from 0 on")
    shaping = entry.shaping if settings.shaping == "default" else settings.shaping
    return shaped(entry.make(settings), shaping, settings.weight_decay)


def _within(field: str, value: float, low: float, high: float) -> None:
    if not low < value <= high:
        raise ValueError(f"{field} is {value}: it must be a number above {low:g} and at most {high:g}")

"""The catalogue of evolution strategies, from evosax, EvoJAX and the robotics literature.

Every strategy here maximises, keeps all of its state in a pytree of arrays that functions take and return,
and draws only from the keys that it receives (those of EvoJAX from a key that is part of the state).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from robopolicy.naming import one_of
from robopolicy.settings import check_number
from robopolicy.training import evojax_strategies as evojax
from robopolicy.training import evosax_strategies as evosax
from robopolicy.training.robotics_ars import robotics_ars
from robopolicy.training.shaping import SHAPINGS, shaped, untied
from robopolicy.training.strategy import Settings, Strategy

LARGEST = 1e6  # sigma or learning rate: far beyond any use, and far from overflow


class Entry(NamedTuple):
    """A strategy of the catalogue.

    Attributes:
      make: settings -> strategy.
      antithetic: whether it draws in pairs.
      shaping: its default, a name in `SHAPINGS`.
      by_rank: whether it adapts to ranks alone, which need ties broken at random.
    """

    make: Callable[[Settings], Strategy]
    antithetic: bool
    shaping: str
    by_rank: bool = False


STRATEGIES: dict[str, Entry] = {
    "open_es": Entry(partial(evosax.wrap, evosax.open_es), True, "ranks"),
    "pgpe": Entry(partial(evosax.wrap, evosax.pgpe), True, "ranks"),
    "ars": Entry(partial(evosax.wrap, evosax.ars), True, "raw"),
    "snes": Entry(partial(evosax.wrap, evosax.plain("SNES")), False, "raw", by_rank=True),
    "xnes": Entry(partial(evosax.wrap, evosax.plain("xNES")), False, "raw", by_rank=True),
    "sep_cma_es": Entry(partial(evosax.wrap, evosax.plain("Sep_CMA_ES")), False, "raw", by_rank=True),
    "cma_es": Entry(partial(evosax.wrap, evosax.plain("CMA_ES")), False, "raw", by_rank=True),
    "evojax_pgpe": Entry(partial(evojax.wrap, evojax.PGPE), True, "ranks"),
    "evojax_cma_es": Entry(partial(evojax.wrap, evojax.CMA_ES), False, "raw", by_rank=True),
    "evojax_crfmnes": Entry(partial(evojax.wrap, evojax.CRFMNES), True, "raw", by_rank=True),
    "evojax_ars": Entry(partial(evojax.wrap, evojax.ARS), True, "raw"),
    "robotics_ars": Entry(robotics_ars, True, "raw"),
}


def strategy(name: str, settings: Settings) -> Strategy:
    """The strategy `name`. Raises ValueError for an unknown name, or for settings out of range."""
    entry = STRATEGIES[one_of("strategy", name, STRATEGIES)]
    one_of("shaping", settings.shaping, ("default", *SHAPINGS))
    if settings.population < 2:
        raise ValueError(f"population is {settings.population}: it must be 2 or more")
    if entry.antithetic and settings.population % 2:
        raise ValueError(f"population is {settings.population}: {name} draws in pairs, so it must be even")
    for field, highest in (("sigma", LARGEST), ("learning_rate", LARGEST), ("decay", 1.0), ("elite", 1.0)):
        value = getattr(settings, field)
        if not 0.0 < value <= highest:
            raise ValueError(f"{field} is {value}: it must be a number above 0 and at most {highest:g}")
    check_number("weight_decay", settings.weight_decay, 0.0)
    made = entry.make(settings)
    shaping = entry.shaping if settings.shaping == "default" else settings.shaping
    return shaped(untied(made) if entry.by_rank else made, shaping, settings.weight_decay)

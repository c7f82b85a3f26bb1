"""A batch of toy worlds: a point runs for as many steps as its seed says, and sees where it is."""

from types import SimpleNamespace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

PARAMETERS = 40  # enough that another order of a sum rounds differently


class Courses(NamedTuple):
    place: jax.Array
    steps: jax.Array


class Points(NamedTuple):
    place: jax.Array
    left: jax.Array


class ToyWorlds:
    """Rewards are actions times places; an episode of seed s takes 2 + s % 5 steps."""

    causes = ("", "time")
    actions, last = PARAMETERS, 6

    def courses(self, seeds):
        seeds = np.array(seeds)
        place = np.stack([np.sin(seeds + k) for k in range(PARAMETERS)], axis=1)
        return Courses(jnp.asarray(place, jnp.float32), jnp.asarray(2 + seeds % 5, jnp.int32))

    def reset(self, courses):
        state = Points(courses.place, courses.steps)
        return state, {"point": state.place}

    def step(self, courses, state, actions):
        runs = state.left > 0
        place = jnp.where(runs[:, None], jnp.sin(state.place + 0.1 * actions), state.place)
        rewards = jnp.where(runs, (actions * state.place).sum(axis=1), 0.0)
        state = Points(place, state.left - runs)
        return state, {"point": place}, rewards, state.left <= 0

    def outcomes(self, state):
        far = state.place[:, 0]
        return {"distance": far, "success": far > 0, "cause": jnp.ones(len(far), jnp.int32)}


class ToyPolicy:
    """What a pool and the adapters need of a policy."""

    parameters = np.zeros(PARAMETERS, np.float32)
    features = ()
    first_state = ()

    def __init__(self, normalised=()):
        self.normalised = normalised

    @property
    def functions(self):  # made where they are used, since a function in a function cannot be pickled
        return SimpleNamespace(normalised=self.normalised, init_state=lambda features: self.first_state)

    def init_state(self):
        return self.first_state

    def flat_act(self, *arguments):
        return act(*arguments)

    def flat_act_with(self, features, *arguments):
        return self.flat_act(*arguments)


def act(parameters, observation, state, normaliser=None):
    seen = observation["point"]
    if normaliser is not None:
        shift, scale = normaliser.reshape(2, -1)
        seen = (seen - shift) * scale
    return jnp.tanh(parameters * seen), state


class SummingPolicy(ToyPolicy):
    """Its state is the sum of all places that it has seen in an episode, and its action reads the sum."""

    first_state = (np.zeros(PARAMETERS, np.float32),)

    def flat_act(self, parameters, observation, state):
        total = state[0] + observation["point"]
        return jnp.tanh(parameters * total), (total,)


def expected(population, seeds, sums=False):
    """Returns [N, E] in float64, of `SummingPolicy` with `sums`."""
    totals = np.zeros((len(population), len(seeds)))
    for n, parameters in enumerate(np.asarray(population, float)):
        for e, seed in enumerate(seeds):
            place, total = np.sin(seed + np.arange(PARAMETERS)), 0.0
            for _ in range(2 + seed % 5):
                total = total + place if sums else place
                action = np.tanh(parameters * total)
                totals[n, e] += action @ place
                place = np.sin(place + 0.1 * action)
    return totals

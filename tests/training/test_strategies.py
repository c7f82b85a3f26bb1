"""One battery over all evolution strategies."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from robopolicy.policies.catalogue import by_path, from_path
from robopolicy.training.strategies import ANTITHETIC, STRATEGIES, Settings, sanitised, strategy

SETTINGS = Settings(population=16, sigma=0.1, learning_rate=0.05)
KEY = jax.random.key(3)
START = jnp.ones(6)
TARGET = 0.3


def returns_of(population):
    return -jnp.sum((population - TARGET) ** 2, axis=1)


def advance(search, state, generations, broken=0):
    for generation in generations:
        population, state = search.ask(jax.random.fold_in(KEY, 2 * generation), state)
        told = jax.random.fold_in(KEY, 2 * generation + 1)
        returns = np.array(returns_of(population))
        returns[:broken] = np.nan
        state = search.tell(told, population, jnp.asarray(sanitised(returns)[0]), state)
    return state


@pytest.mark.parametrize("name", STRATEGIES)
def test_it_maximises_though_some_returns_are_not_numbers(name):
    search = strategy(name, SETTINGS)
    state = advance(search, search.init(KEY, START), range(40), broken=2)
    before, after = returns_of(START[None]), returns_of(search.mean(state)[None])
    assert after > before / 4  # both are below 0


@pytest.mark.slow
@pytest.mark.parametrize("name", STRATEGIES)
def test_a_state_written_down_and_read_back_goes_on_to_the_same_bits(name):
    search = strategy(name, SETTINGS)
    through = advance(search, search.init(KEY, START), range(6))
    half = by_path(advance(search, search.init(KEY, START), range(3)))
    # A fresh object, as in another process: nothing may hide outside of the state.
    other = strategy(name, SETTINGS)
    read_back = jax.tree.map(jnp.asarray, from_path(other.init(KEY, START), half))
    resumed = advance(other, read_back, range(3, 6))
    for path, array in by_path(through).items():
        np.testing.assert_array_equal(array, by_path(resumed)[path], err_msg=path)


@pytest.mark.parametrize("name", STRATEGIES)
def test_the_first_population_lies_around_the_mean_at_sigma(name):
    settings = Settings(population=64, sigma=0.25, learning_rate=0.05)
    search = strategy(name, settings)
    population, _ = search.ask(KEY, search.init(KEY, START))
    assert population.shape == (64, 6)
    # 384 draws: the standard error of the deviation is 3.6%, so 20% is over five of them.
    assert float(jnp.std(population - START)) == pytest.approx(0.25, rel=0.2)


@pytest.mark.parametrize("name", STRATEGIES)
def test_draws_come_in_pairs_where_the_catalogue_says_so(name):
    search = strategy(name, SETTINGS)
    population, _ = search.ask(KEY, search.init(KEY, START))
    steps = np.asarray(population - START)
    # Every candidate has its opposite, to rounding of the sum.
    paired = all(np.abs(steps + step).max(axis=1).min() < 1e-5 for step in steps)
    assert paired == (name in ANTITHETIC)


@pytest.mark.parametrize("name", ["open_es", "pgpe", "snes", "sep_cma_es", "cma_es"])
def test_only_the_order_of_returns_counts(name):
    search = strategy(name, SETTINGS)
    population, state = search.ask(KEY, search.init(KEY, START))
    returns = returns_of(population)
    plain, bent = (
        search.mean(search.tell(KEY, population, r, state)) for r in (returns, jnp.exp(3 * returns))
    )
    np.testing.assert_array_equal(plain, bent)


@pytest.mark.parametrize("name", ANTITHETIC)
def test_odd_populations_are_refused_where_draws_come_in_pairs(name):
    with pytest.raises(ValueError, match=r"population is 7.*even"):
        strategy(name, SETTINGS._replace(population=7))


@pytest.mark.parametrize(
    ("name", "changed", "words"),
    [
        ("open_ess", {}, "strategy is 'open_ess'.*did you mean 'open_es'"),
        ("snes", {"population": 1}, "population is 1"),
        ("snes", {"sigma": 0.0}, "sigma is 0.0"),
        ("snes", {"sigma": float("nan")}, "sigma is nan"),
        ("snes", {"learning_rate": -1.0}, "learning_rate is -1.0"),
    ],
)
def test_bad_settings_are_refused_by_name(name, changed, words):
    with pytest.raises(ValueError, match=words):
        strategy(name, SETTINGS._replace(**changed))


def test_returns_that_are_not_finite_become_the_worst_and_are_counted():
    clean, broken = sanitised(np.array([1.0, np.nan, -2.0, np.inf, -np.inf]))
    np.testing.assert_array_equal(clean, [1.0, -2.0, -2.0, -2.0, -2.0])
    assert broken == 3
    with pytest.raises(FloatingPointError):
        sanitised(np.array([np.nan, np.inf]))

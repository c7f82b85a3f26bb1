"""The same tests for all evolution strategies."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from robopolicy.policies.catalogue import by_path, from_path
from robopolicy.training.robotics_ars import orthogonal_directions
from robopolicy.training.strategies import SHAPINGS, STRATEGIES, exploration, sanitised, strategy
from robopolicy.training.strategy import Settings

SETTINGS = Settings(population=16, sigma=0.1, learning_rate=0.05)
KEY = jax.random.key(3)
START = jnp.ones(6)
TARGET = 0.3
ANTITHETIC = [name for name, entry in STRATEGIES.items() if entry.antithetic]
BY_RANK = [name for name, entry in STRATEGIES.items() if entry.shaping == "ranks"]
# Quick tests use one or two strategies of each library.
QUICK = ("open_es", "snes", "evojax_pgpe", "robotics_ars")
UNTIED = ["snes", "xnes", "sep_cma_es", "cma_es", "evojax_cma_es", "evojax_crfmnes"]
BY_RANK += UNTIED


def some_quick(names, quick=QUICK):
    return [pytest.param(name, marks=() if name in quick else pytest.mark.slow) for name in names]


def returns_of(population):
    return -jnp.sum((population - TARGET) ** 2, axis=1)


def advance(search, state, generations, broken=0):
    for generation in generations:
        population, state = search.ask(jax.random.fold_in(KEY, 2 * generation), state)
        key = jax.random.fold_in(KEY, 2 * generation + 1)
        returns = np.array(returns_of(population))
        returns[:broken] = np.nan
        state = search.tell(key, population, jnp.asarray(sanitised(returns)[0]), state)
    return state


@pytest.mark.slow
@pytest.mark.parametrize("name", STRATEGIES)
def test_a_strategy_maximises_with_some_returns_that_are_not_finite(name):
    search = strategy(name, SETTINGS)
    state = advance(search, search.init(KEY, START), range(40), broken=2)
    before, after = returns_of(START[None]), returns_of(search.mean(state)[None])
    assert after > before / 4  # both are below 0


@pytest.mark.slow
@pytest.mark.parametrize("name", STRATEGIES)
def test_a_restored_state_continues_bit_for_bit(name):
    search = strategy(name, SETTINGS)
    through = advance(search, search.init(KEY, START), range(6))
    half = by_path(advance(search, search.init(KEY, START), range(3)))
    # A new object, as in another process: the state must be complete.
    strategy.cache_clear()
    other = strategy(name, SETTINGS)
    read_back = jax.tree.map(jnp.asarray, from_path(other.init(KEY, START), half))
    resumed = advance(other, read_back, range(3, 6))
    for path, array in by_path(through).items():
        np.testing.assert_array_equal(array, by_path(resumed)[path], err_msg=path)


@pytest.mark.slow
@pytest.mark.parametrize("name", STRATEGIES)
def test_sigma_is_the_deviation_of_the_first_population(name):
    settings = Settings(population=64, sigma=0.25, learning_rate=0.05)
    search = strategy(name, settings)
    start = jnp.ones(60)
    population, _ = search.ask(KEY, search.init(KEY, start))
    assert population.shape == (64, 60)
    # 1920 draws and their opposites: the standard error of the deviation is 1.6%, so 10% is six of them.
    # CR-FM-NES begins with one random direction stretched by about 1.4, which adds 1% to it.
    assert float(jnp.std(population - start)) == pytest.approx(0.25, rel=0.1)


@pytest.mark.parametrize("name", some_quick(STRATEGIES))
def test_antithetic_strategies_draw_in_pairs(name):
    search = strategy(name, SETTINGS)
    population, _ = search.ask(KEY, search.init(KEY, START))
    steps = np.asarray(population - START)
    # Every candidate has its opposite, to rounding of the sum.
    paired = all(np.abs(steps + step).max(axis=1).min() < 1e-5 for step in steps)
    assert paired == (name in ANTITHETIC)


@pytest.mark.parametrize("name", some_quick(BY_RANK))
def test_strategies_by_rank_use_the_order_of_returns_alone(name):
    search = strategy(name, SETTINGS)
    population, state = search.ask(KEY, search.init(KEY, START))
    returns = returns_of(population)
    plain, bent = (
        search.mean(search.tell(KEY, population, r, state)) for r in (returns, jnp.exp(3 * returns))
    )
    np.testing.assert_array_equal(plain, bent)


@pytest.mark.slow
@pytest.mark.parametrize("name", STRATEGIES)
def test_equal_returns_do_not_move_the_mean_and_leave_a_state_that_can_be_restored(name):
    search = strategy(name, SETTINGS)
    first = state = search.init(KEY, START)
    for _ in range(3):
        population, state = search.ask(KEY, state)
        state = search.tell(KEY, population, jnp.full(len(population), 2.0), state)
    assert by_path(state).keys() == by_path(first).keys()
    np.testing.assert_array_equal(search.mean(state), START)


@pytest.mark.slow
@pytest.mark.parametrize("name", UNTIED)
def test_ties_are_broken_at_random(name):
    search = strategy(name, SETTINGS)
    population, state = search.ask(KEY, search.init(KEY, START))
    ordered = returns_of(population)
    first, second = np.argsort(np.asarray(ordered))[-2:]
    swapped = ordered.at[first].set(ordered[second]).at[second].set(ordered[first])
    tied = ordered.at[first].set(ordered[second])
    possible = [np.asarray(search.mean(search.tell(KEY, population, r, state))) for r in (ordered, swapped)]
    met = set()
    for number in range(12):  # both come up, but for one key in two thousand
        mean = np.asarray(search.mean(search.tell(jax.random.key(number), population, tied, state)))
        met.add(next(i for i, one in enumerate(possible) if np.array_equal(mean, one)))
    assert met == {0, 1}


@pytest.mark.parametrize("name", ANTITHETIC)
def test_antithetic_strategies_refuse_odd_populations(name):
    with pytest.raises(ValueError, match=r"population is 7.*even"):
        strategy(name, SETTINGS._replace(population=7))


@pytest.mark.parametrize(
    ("name", "changed", "words"),
    [
        ("open_ess", {}, "strategy is 'open_ess'.*did you mean 'open_es'"),
        ("snes", {"population": 1}, "population is 1: it must be 2 or more for snes"),
        ("evojax_pgpe", {"population": 2}, "population is 2: it must be 4 or more for evojax_pgpe"),
        ("snes", {"sigma": 0.0}, "sigma is 0.0"),
        ("snes", {"sigma": float("nan")}, "sigma is nan"),
        ("snes", {"sigma": 1e-320}, "sigma is 1e-320: it must be a number from 1e-09 to"),
        ("snes", {"learning_rate": -1.0}, "learning_rate is -1.0"),
        ("snes", {"decay": 1.1}, "decay is 1.1"),
        ("ars", {"elite": 0.0}, "elite is 0.0"),
        ("snes", {"shaping": "rank"}, "shaping is 'rank'.*did you mean 'ranks'"),
        ("snes", {"weight_decay": -0.1}, "weight_decay is -0.1"),
        ("snes", {"weight_decay": 1e308}, r"weight_decay is 1e\+308"),
    ],
)
def test_bad_settings_are_refused_by_name(name, changed, words):
    with pytest.raises(ValueError, match=words):
        strategy(name, SETTINGS._replace(**changed))


@pytest.mark.parametrize("shaping", some_quick(SHAPINGS, ("raw", "ranks")))
def test_every_shaping_learns_and_keeps_the_order_of_returns(shaping):
    search = strategy("open_es", SETTINGS._replace(shaping=shaping))
    state = advance(search, search.init(KEY, START), range(40))
    assert returns_of(search.mean(state)[None]) > returns_of(START[None]) / 4
    shaped = np.asarray(SHAPINGS[shaping](jnp.array([3.0, -1.0, 7.0, 0.5])))
    np.testing.assert_array_equal(np.argsort(shaped), [1, 3, 0, 2])


# The same lines charge all of them for their weights: one of each library that compiles quickly.
@pytest.mark.parametrize("name", some_quick(STRATEGIES, ("open_es", "evojax_pgpe")))
def test_weight_decay_pulls_to_zero_with_equal_returns(name):
    search = strategy(name, SETTINGS._replace(weight_decay=0.5))
    state = search.init(KEY, START)
    for generation in range(40):
        population, state = search.ask(jax.random.fold_in(KEY, generation), state)
        state = search.tell(KEY, population, jnp.zeros(16), state)
    assert float(jnp.mean(search.mean(state) ** 2)) < 0.5


def test_weight_decay_is_the_cost_of_a_mean_squared_parameter():
    free, charged = (strategy("robotics_ars", SETTINGS._replace(weight_decay=cost)) for cost in (0.0, 0.5))
    population, state = free.ask(KEY, free.init(KEY, START))
    returns = returns_of(population)
    found = charged.mean(charged.tell(KEY, population, returns, state))
    less = returns - 0.5 * jnp.mean(population**2, axis=1)
    np.testing.assert_allclose(found, free.mean(free.tell(KEY, population, less, state)), rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in STRATEGIES if "es" not in name or name == "open_es"])
def test_steps_and_spread_shrink_with_the_decay(name):
    def moves(decay):
        search = strategy(name, SETTINGS._replace(decay=decay))
        state = advance(search, search.init(KEY, START), range(12))
        before = search.mean(state)
        return float(jnp.linalg.norm(search.mean(advance(search, state, range(12, 13))) - before))

    # 0.6^12 is 0.002: what is left of a step is far below any difference between directions.
    assert moves(0.6) < 0.1 * moves(1.0)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["open_es", "ars", "evojax_ars", "robotics_ars"])
def test_sigma_decays_after_every_generation(name):
    """6,000 pairs of numbers: the deviation's standard error is 0.9 %, so 6 % is off once in 10^10 times."""
    search = strategy(name, SETTINGS._replace(population=200, decay=0.5))
    start = jnp.ones(60)
    state = search.init(KEY, start)
    for generation in range(3):
        population, _ = search.ask(jax.random.fold_in(KEY, generation), state)
        spread = float(jnp.std(population - search.mean(state)))
        assert spread == pytest.approx(SETTINGS.sigma * 0.5**generation, rel=0.06)
        state = advance(search, state, [generation])


@pytest.mark.rest_slow
@pytest.mark.parametrize(("count", "size"), [(4, 6), (6, 6), (10, 4)])
def test_orthogonal_directions_are_orthogonal_within_a_block(count, size):
    directions = np.asarray(orthogonal_directions(KEY, count, size))
    assert directions.shape == (count, size)
    for start in range(0, count, size):
        block = directions[start : start + size]
        gram = block @ block.T
        np.testing.assert_allclose(gram, np.diag(np.diag(gram)), atol=1e-4)


def test_orthogonal_directions_are_as_long_as_normal_vectors():
    # The mean squared length of 600 is 12 with a standard error of 0.2: 1.0 is five of them.
    squares = np.sum(np.asarray(orthogonal_directions(KEY, 600, 12)) ** 2, axis=1)
    assert squares.mean() == pytest.approx(12.0, abs=1.0)
    assert squares.std() == pytest.approx(24.0**0.5, rel=0.2)


def test_robotics_ars_learns_from_its_best_directions_alone():
    search = strategy("robotics_ars", Settings(population=8, sigma=0.1, learning_rate=0.1, elite=0.25))
    state = search.init(KEY, START)
    population, state = search.ask(KEY, state)
    steps = np.asarray(population[:4] - START) / 0.1
    # Direction 2 has the best side of all, though direction 0 has the larger difference.
    returns = jnp.array([1.0, 0.0, 2.0, 0.0, -9.0, 0.0, 1.0, 0.0])
    moved = np.asarray(search.mean(search.tell(KEY, population, returns, state)) - START)
    np.testing.assert_allclose(moved, 0.1 * (2.0 - 1.0) * steps[2] / 0.5, rtol=1e-4)


def test_returns_that_are_not_finite_become_the_lowest_and_are_counted():
    clean, broken = sanitised(np.array([1.0, np.nan, -2.0, np.inf, -np.inf]))
    np.testing.assert_array_equal(clean, [1.0, -2.0, -2.0, -2.0, -2.0])
    assert broken == 3
    with pytest.raises(FloatingPointError):
        sanitised(np.array([np.nan, np.inf]))


@pytest.mark.parametrize("name", some_quick(STRATEGIES))
def test_the_measured_sigma_fits_the_settings(name):
    """384 normal numbers: a sigma off by a third would come up by chance less than once in 10^15 times."""
    search = strategy(name, SETTINGS._replace(population=64))
    state = search.init(KEY, START)
    population, _ = search.ask(KEY, state)
    measured = exploration(population, search.mean(state), np.asarray(returns_of(population), float))
    assert measured["sigma"] == pytest.approx(SETTINGS.sigma, rel=1 / 3)


def test_the_gradient_of_a_slope_is_the_slope():
    """Its norm's standard error is 1 % of it: off by 6 % once in 10^8 seeds."""
    slope, centre = np.array([3.0, -4.0, 0.0]), np.array([1.0, 2.0, 3.0])
    population = np.random.default_rng(0).normal(centre, 0.2, (30_000, 3))
    measured = exploration(population, centre, 7.0 + population @ slope)
    assert measured["sigma"] == pytest.approx(0.2, rel=0.02)
    assert measured["gradient_norm"] == pytest.approx(5.0, rel=0.06)
    beside = exploration(np.array([[1.0], [3.0]]), np.zeros(1), np.zeros(2))  # the centre, not their mean
    assert beside["sigma"] == pytest.approx(5.0**0.5)
    assert exploration(np.tile(centre, (4, 1)), centre, np.arange(4.0)) == {
        "sigma": 0.0,
        "gradient_norm": 0.0,
    }

"""The oracle of the stepping stones: where it puts the feet, and that it looks ahead."""

from dataclasses import replace

import numpy as np
import pytest

from robopolicy.envs.quadruped.oracle import shifted
from robopolicy.envs.quadruped.presets import PRESETS
from robopolicy.envs.quadruped.stepping_stones import SteppingStones
from robopolicy.envs.quadruped.terrain import Terrain, TerrainConfig

SECONDS = 5.0


def footholds(env: SteppingStones, seed: int) -> np.ndarray:
    """Margins (m) of all touchdowns of the oracle in the first seconds of an episode that must not fail."""
    env.reset(seed=seed)
    margins, swinging = [], env.walker.swinging

    def record() -> None:
        nonlocal swinging
        landed = swinging & ~env.walker.swinging
        margins.extend(env.terrain.margin(env.walker.reading.feet_world[landed]))
        swinging = env.walker.swinging

    env.on_tick = record
    over = False
    while not over:
        _, _, ended, cut, info = env.step(env.oracle_action())
        over = ended or cut
    assert info["cause"] == "time"
    return np.array(margins)


@pytest.mark.parametrize(
    ("gap", "yaw", "least"),
    [((0.10, 0.20), 0.0, 0.035), ((0.30, 0.30), 0.0, 0.01), ((0.15, 0.15), 0.28, 0.01)],
)
def test_the_oracle_lands_inside_the_stones(gap, yaw, least):
    # Offsets of 15 cm reach just both edges of a gap of 30 cm from its middle: margins need a plan ahead.
    paper = PRESETS["paper"]
    config = replace(paper, terrain=replace(paper.terrain, gap=gap, yaw=yaw), episode_seconds=SECONDS)
    env = SteppingStones(engine="mujoco", config=config)
    margins = np.concatenate([footholds(env, seed) for seed in range(3)])
    assert len(margins) > 3 * 30
    assert margins.min() > least


def test_the_oracle_crosses_scattered_stones_where_a_blind_robot_falls():
    config = replace(PRESETS["sparse"], episode_seconds=SECONDS)
    env = SteppingStones(engine="mujoco", config=config)
    margins = np.concatenate([footholds(env, seed) for seed in range(2)])
    assert margins.min() > 0.0
    env.on_tick = None
    env.reset(seed=0)
    over = False
    while not over:
        _, _, over, _, info = env.step(np.zeros(8, np.float32))
    assert info["cause"] == "foot in a gap"


def test_the_oracle_moves_only_feet_that_lift_off_by_at_most_the_largest_offset():
    env = SteppingStones(engine="mujoco", preset="extreme")
    env.reset(seed=1)
    moved = 0
    for _ in range(40):
        action, lifting = env.oracle_action(), env.walker.lifting()
        assert not action[~lifting].any()
        assert np.abs(action).max() <= 1.0
        moved += int((action != 0).sum())
        env.step(action)
    assert moved > 5


def test_shifted_stones_have_their_edges_where_the_shift_puts_them():
    stones = Terrain(TerrainConfig(yaw=0.19), np.random.default_rng(0)).rows()
    moved = shifted(stones, 0.1, 0.05)
    for y in (-0.2, 0.0, 0.2):
        edges = stones[:, :2] - stones[:, 2:3] * (y - 0.05) + 0.1
        np.testing.assert_allclose(moved[:, :2] - moved[:, 2:3] * y, edges)
    np.testing.assert_allclose(moved[:, 3:], stones[:, 3:] + 0.05)


def test_the_oracle_depends_on_the_state_alone():
    env = SteppingStones(engine="mujoco", preset="hard")
    env.reset(seed=3)
    for _ in range(20):
        action = env.oracle_action()
        np.testing.assert_array_equal(env.oracle_action(), action)
        env.step(action)

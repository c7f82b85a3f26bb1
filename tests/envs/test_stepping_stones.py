"""What an episode on stepping stones is: its ends, its rewards, its actions and observations."""

from dataclasses import replace

import gymnasium
import numpy as np
import pytest
from installed_engines import EACH_OF_QUADRUPEDS

import robopolicy
from robopolicy.control.proprioception import LATERAL_PROPRIOCEPTION, PROPRIOCEPTION
from robopolicy.envs.quadruped.presets import PRESETS
from robopolicy.envs.quadruped.stepping_stones import SteppingStones

ID = "robopolicy:robopolicy/SteppingStones-v0"
STILL = np.zeros(4, np.float32)


@pytest.fixture(scope="module", params=EACH_OF_QUADRUPEDS)
def env(request):
    env = gymnasium.make(ID, engine=request.param)
    yield env
    env.close()


def play(env, seed: int, choose) -> tuple[float, dict]:
    env.reset(seed=seed)
    total = 0.0
    while True:
        _, reward, ended, cut, info = env.step(choose())
        total += reward
        if ended or cut:
            return total, info


@pytest.mark.slow
def test_oracle_crosses_and_blind_falls(env):
    task = env.unwrapped
    seeds = range(9000, 9010)
    crossed = sum(play(env, seed, task.oracle_action)[1]["success"] for seed in seeds)
    fallen = sum(not play(env, seed, lambda: STILL)[1]["success"] for seed in seeds)
    assert crossed >= 9
    assert fallen >= 8


def test_blind_falls_at_a_gap_and_loses_reward(env):
    total, info = play(env, 1, lambda: STILL)
    assert info["cause"] == "foot in a gap"
    assert not info["success"]
    assert total < -2.0


def test_painted_stones_carry_a_foot_that_misses_and_reduce_the_reward():
    env = gymnasium.make(ID, preset="painted", episode_seconds=3.0)
    task = env.unwrapped
    blind, info = play(env, 1, lambda: STILL)
    assert info["cause"] == "time"
    assert info["distance"] > 1.2
    oracle, _ = play(env, 1, task.oracle_action)
    assert oracle > blind + 0.1
    env.close()


def test_action_is_latched_at_lift_off_and_moves_the_landing():
    env = gymnasium.make(ID, preset="painted")
    walker = env.unwrapped.walker
    landings = {}
    for offset in (0.0, 1.0):
        env.reset(seed=0)
        env.step(np.full(4, offset, np.float32))
        for _ in range(4):  # FR and RL are in the air; what comes now is too late for them
            env.step(np.full(4, -1.0, np.float32))
        landings[offset] = walker.reading.feet_world[:, 0].copy()
    moved = landings[1.0] - landings[0.0]
    np.testing.assert_allclose(moved[[0, 3]], 0.15, atol=0.03)
    np.testing.assert_allclose(moved[[1, 2]], 0.0, atol=0.03)
    rewards = []
    for late in (0.0, 1.0):  # an offset that moves no foot costs nothing
        env.reset(seed=0)
        env.step(STILL)
        rewards.append(env.step(np.full(4, late, np.float32))[1])
    assert rewards[0] == rewards[1]
    env.close()


def test_an_action_to_the_side_moves_the_landing_to_the_left():
    env = SteppingStones(config=replace(PRESETS["painted"], largest_aside=0.1))
    assert env.action_space.shape == (8,)
    assert [quantity.name for quantity in env.actions[3:5]] == ["foothold_RL_x", "foothold_FR_y"]
    landings = {}
    for aside in (0.0, 0.5):
        env.reset(seed=0)
        action = np.zeros(8, np.float32)
        action[4:] = aside
        for step in range(5):
            observation, *_ = env.step(action if step == 0 else np.zeros(8, np.float32))
            names = zip(LATERAL_PROPRIOCEPTION, observation["proprioception"], strict=True)
            assert dict(names)["previous_action_FR_y"] == (aside if step == 0 else 0.0)
        landings[aside] = env.walker.reading.feet_world.copy()
    moved = landings[0.5] - landings[0.0]
    np.testing.assert_allclose(moved[[0, 3], 1], 0.05, atol=0.015)
    np.testing.assert_allclose(moved[[1, 2], 1], 0.0, atol=0.015)
    np.testing.assert_allclose(moved[:, 0], 0.0, atol=0.015)
    env.close()


@pytest.mark.parametrize(
    ("limits", "push", "cause"),
    [
        ({"widest_drift": 0.005}, 1500.0, "drift"),
        ({"widest_drift": 0.005}, -1500.0, "drift"),
        ({"largest_tilt": 0.0}, 0.0, "fall"),
    ],
)
def test_an_episode_ends_beyond_a_limit(limits, push, cause):
    task = SteppingStones("mujoco", config=replace(PRESETS["paper"], **limits))
    task.reset(seed=1)
    task.physics.push(np.array([0.0, push, 0.0]))
    _, reward, ended, _, info = task.step(STILL)
    assert (ended, info["cause"], info["success"]) == (True, cause, False)
    assert reward < -2.9
    task.close()


@pytest.mark.parametrize("engine", EACH_OF_QUADRUPEDS)
def test_an_engine_that_diverges_ends_the_episode_as_a_fall_with_finite_numbers(
    engine, monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)  # MuJoCo writes a log
    task = SteppingStones(engine, render_mode="rgb_array", render_size=(40, 30))
    task.reset(seed=1)
    for _ in range(3):
        _, _, _, _, before = task.step(STILL)
    task.physics.push(np.full(3, np.nan))
    seen, reward, ended, _, info = task.step(STILL)
    assert ended
    assert info == {"distance": before["distance"], "success": False, "cause": "fall"}
    assert reward == -task.config.reward.fall
    assert task.observation_space.contains(seen)
    assert task.render().shape == (30, 40, 3)
    task.close()


def test_names_of_an_observation_match_its_values(env):
    observation, _ = env.reset(seed=5)
    named = dict(zip(PROPRIOCEPTION, observation["proprioception"], strict=True))
    assert named["foot_FL_y"] > 0 > named["foot_FR_y"]
    assert named["foot_FR_x"] > 0 > named["foot_RR_x"]
    assert named["foot_FR_z"] == pytest.approx(-0.39, abs=0.01)
    for _ in range(10):
        observation, *_ = env.step(np.array([0.5, 0.0, 0.0, 0.0], np.float32))
    named = dict(zip(PROPRIOCEPTION, observation["proprioception"], strict=True))
    assert named["velocity_x"] > 0.3
    assert named["previous_action_FR"] == 0.5
    assert named["gait_cos"] == pytest.approx(1.0, abs=1e-5)  # a whole period has passed


@pytest.mark.slow
def test_odometry_is_where_the_legs_have_gone():
    errors = {}
    for drift in (0.0, 0.01):
        env, errors[drift] = SteppingStones("mujoco", "front", drift=drift), []
        env.reset(seed=1)
        over = False
        while not over:
            seen, _, ended, cut, _ = env.step(env.oracle_action())
            place = [*env.walker.reading.position[:2], env.walker.reading.attitude[2]]
            errors[drift].append(seen["odometry"] - place)
            over = ended or cut
    exact, drifting = np.array(errors[0.0]), np.array(errors[0.01])
    assert np.abs(exact).max() < 0.08  # 1 % of the course
    steps = np.diff(drifting - exact[: len(drifting)], axis=0)
    assert 0.008 < steps[:, :2].std() < 0.012  # five standard deviations of 600 draws
    np.testing.assert_allclose(steps[:, 2], 0.0, atol=1e-6)


def test_a_robot_with_fewer_cameras_has_odometry():
    env = robopolicy.make("stepping-stones", preset="hard", cameras=("front",))
    seen, _ = env.reset(seed=0)
    assert seen.keys() == env.observation_space.spaces.keys() == {"front_depth", "proprioception", "odometry"}
    assert env.observation_space.contains(seen)
    for settings, said in (
        ({"cameras": ("rear",)}, "cameras is 'rear': it must be one of front, belly"),
        ({"cameras": "front"}, "cameras is 'front': it must be a tuple of names"),
        ({"cameras": ()}, r"cameras is \(\): it must name one or more of front, belly"),
        ({"drift": 0.01}, "drift is 0.01: the robot has odometry with the front or belly camera alone"),
        (
            {"preset": "front", "cameras": ("front", "belly")},
            r"cameras is \('front', 'belly'\): .* must be front or belly alone",
        ),
        ({"preset": "front", "drift": 0.2}, "drift is 0.2: it must be a number from 0 to 0.1"),
    ):
        with pytest.raises(ValueError, match=said):
            robopolicy.make("stepping-stones", **settings)

"""The stepping-stones task as its users see it."""

import subprocess
import sys

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from robopolicy.envs.physics import ENGINES

ID = "robopolicy:robopolicy/SteppingStones-v0"
STILL = np.zeros(4, np.float32)

DIGEST = """
import hashlib, sys
import gymnasium, numpy as np
name = "robopolicy:robopolicy/SteppingStones-v0"
env = gymnasium.make(name, engine=sys.argv[1], preset="hard", episode_seconds=2.0)
for seed in map(int, sys.argv[2:]):
    observation, _ = env.reset(seed=seed)
    rng = np.random.default_rng(seed)
    done = False
    text = b""
    while not done:
        for name in sorted(observation):
            text += observation[name].tobytes()
        observation, reward, ended, cut, info = env.step(rng.uniform(-1, 1, 4).astype(np.float32))
        text += np.float64(reward).tobytes()
        done = ended or cut
    print(seed, hashlib.sha256(text).hexdigest())
"""


@pytest.fixture(scope="module", params=ENGINES)
def env(request):
    made = gymnasium.make(ID, engine=request.param)
    yield made
    made.close()


def play(env, seed: int, choose) -> tuple[float, dict]:
    env.reset(seed=seed)
    total = 0.0
    while True:
        _, reward, ended, cut, info = env.step(choose())
        total += reward
        if ended or cut:
            return total, info


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("engine", ENGINES)
def test_gymnasiums_checker_has_nothing_to_say(engine):
    # MuJoCo draws through OpenGL, which not every machine has; Bullet draws everywhere.
    drawing = {"render_mode": "rgb_array", "render_size": (160, 120)} if engine == "bullet" else {}
    env = gymnasium.make(ID, engine=engine, **drawing)
    check_env(env.unwrapped, skip_render_check=not drawing)
    env.close()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("engine", ENGINES)
def test_stable_baselines_checker_has_nothing_to_say(engine):
    checker = pytest.importorskip("stable_baselines3.common.env_checker")
    # Flattened, as that library's own policies need it: any depth image but uint8 of 36 x 36 makes it warn.
    env = gymnasium.wrappers.FlattenObservation(gymnasium.make(ID, engine=engine).unwrapped)
    checker.check_env(env)
    env.close()


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_two_processes_and_any_order_of_episodes_give_the_same_bits(engine):
    def digests(*seeds: int) -> dict[str, str]:
        run = [sys.executable, "-c", DIGEST, engine, *map(str, seeds)]
        lines = subprocess.run(run, capture_output=True, text=True, check=True).stdout.splitlines()
        return {digest: seed for seed, digest in map(str.split, lines)}

    forwards = digests(1, 2, 3)
    assert len(forwards) == 3
    assert forwards == digests(3, 1, 2)


@pytest.mark.slow
def test_oracle_crosses_and_blind_falls(env):
    task = env.unwrapped
    seeds = range(9000, 9010)
    crossed = sum(play(env, seed, task.oracle_action)[1]["success"] for seed in seeds)
    fallen = sum(not play(env, seed, lambda: STILL)[1]["success"] for seed in seeds)
    assert crossed >= 9
    assert fallen >= 8


def test_blind_falls_at_a_gap_and_pays_for_it(env):
    total, info = play(env, 1, lambda: STILL)
    assert info["cause"] == "foot in a gap"
    assert not info["success"]
    assert total < -2.0


def test_painted_stones_carry_a_foot_that_misses_and_charge_for_it():
    env = gymnasium.make(ID, preset="painted", episode_seconds=3.0)
    task = env.unwrapped
    blind, info = play(env, 1, lambda: STILL)
    assert info["cause"] == "time"
    assert info["distance"] > 1.2
    told, _ = play(env, 1, task.oracle_action)
    assert told > blind + 0.1
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
    env.close()


def test_observation_names_hold_what_they_say(env):
    from robopolicy.envs.quadruped.stepping_stones import PROPRIOCEPTION

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


@pytest.mark.parametrize("engine", ENGINES)
def test_pictures_show_the_robot_and_have_the_asked_size(engine):
    env = gymnasium.make(ID, engine=engine, render_mode="rgb_array", render_size=(160, 90))
    env.reset(seed=0)
    try:
        picture = env.render()
    except RuntimeError as error:
        assert engine == "mujoco"
        pytest.skip(str(error))
    assert picture.shape == (90, 160, 3)
    assert picture.std() > 10
    env.close()


@pytest.mark.parametrize(
    ("action", "words"),
    [
        (np.array([0.0, np.nan, 0.0, 0.0], np.float32), "nan"),
        (np.array([0.0, np.inf, 0.0, 0.0], np.float32), "inf"),
        (np.array([0.0, 1.5, 0.0, 0.0], np.float32), r"\[-1, 1\]"),
        (np.zeros(3, np.float32), r"\(3,\)"),
        (np.array(["a"] * 4), "dtype"),
    ],
)
def test_a_bad_action_is_refused_by_name_and_costs_nothing(env, action, words):
    task = env.unwrapped
    task.reset(seed=0)
    with pytest.raises(ValueError, match=f"action .*{words}"):
        task.step(action)
    task.step(STILL)


def test_stepping_outside_an_episode_is_refused():
    env = gymnasium.make(ID, episode_seconds=0.1).unwrapped
    with pytest.raises(RuntimeError, match="reset"):
        env.step(STILL)
    env.reset(seed=0)
    env.step(STILL)
    env.step(STILL)
    with pytest.raises(RuntimeError, match="reset"):
        env.step(STILL)
    env.reset(seed=0)
    env.step(STILL)
    env.close()
    env.close()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"engine": "bulet"}, "engine is 'bulet'.*did you mean 'bullet'"),
        ({"preset": "paintd"}, "preset is 'paintd'.*did you mean 'painted'"),
        ({"episode_seconds": 0.0}, "episode_seconds is 0.0"),
        ({"episode_seconds": float("nan")}, "episode_seconds is nan"),
        ({"episode_seconds": "long"}, "episode_seconds is 'long'"),
        ({"render_size": (0, 5)}, "render_size is"),
    ],
)
def test_bad_settings_are_refused_by_name(settings, words):
    with pytest.raises(ValueError, match=words):
        gymnasium.make(ID, **settings)

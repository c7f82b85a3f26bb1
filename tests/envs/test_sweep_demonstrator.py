"""The demonstrator of the bimanual sweep."""

from dataclasses import replace

import gymnasium
import numpy as np
import pytest
from installed_engines import each_engine, needs_bullet

from robopolicy.envs.sweep import kinematics
from robopolicy.envs.sweep.bimanual_sweep import ACTION, BimanualSweepConfig

ID = "robopolicy:robopolicy/BimanualSweep-v0"
STILL = np.zeros(len(ACTION), np.float32)


@needs_bullet
@pytest.mark.slow
def test_arms_of_the_demonstrator_never_touch(tmp_path):
    from robopolicy.envs.physics.bullet import BulletClient, pybullet
    from robopolicy.envs.physics.bullet_arms import arm_with_spatula

    env = gymnasium.make(ID, engine="bullet", image_size=None).unwrapped
    env.reset(seed=3)
    # The arms once more in a world of their own, where all of their links collide.
    urdf = tmp_path / "arm.urdf"
    urdf.write_text(arm_with_spatula(kinematics.TOOL))
    world = BulletClient(pybullet.DIRECT)
    turns = [world.getQuaternionFromEuler((0.0, 0.0, yaw)) for *_, yaw in env.bases]
    arms = [
        world.loadURDF(str(urdf), (x, y, 0.0), turn, useFixedBase=1)
        for (x, y, _), turn in zip(env.bases, turns, strict=True)
    ]
    pairs = set()
    for _ in range(100):
        env.step(env.oracle_action())
        for arm, joints in zip(arms, env.physics.joints(), strict=True):
            for joint, angle in enumerate(joints):
                world.resetJointState(arm, joint, angle)
        pairs |= {(point[3], point[4]) for point in world.getClosestPoints(*arms, 0.02)}
    world.disconnect()
    assert pairs == {(7, 7)}  # the spatulas, and nothing behind them


@each_engine
def test_a_demonstrator_with_noise_brings_the_balls_into_bowls_in_time(engine):
    env = gymnasium.make(ID, engine=engine, image_size=None, balls=8)
    env.reset(seed=0)
    player = env.unwrapped.demonstrator(0, noise=0.1)
    ended, cut = False, False
    while not (ended or cut):
        _, _, ended, cut, info = env.step(player.act().executed)
    assert info["fraction_in_bowls"] >= 0.9


def test_the_demonstrator_is_deterministic_and_separates_noise_from_intent():
    env = gymnasium.make(ID, image_size=None).unwrapped

    def actions(seed, noise):
        env.reset(seed=0)
        player = env.demonstrator(seed, noise)
        acted = [player.act()]
        for _ in range(9):
            env.step(acted[-1].executed)
            acted.append(player.act())
        return np.array([action[:2] for action in acted])

    calm = actions(1, 0.0)
    np.testing.assert_array_equal(calm[:, 0], calm[:, 1])
    np.testing.assert_array_equal(actions(1, 0.1), actions(1, 0.1))
    noisy = actions(1, 0.1)
    assert 0.05 < np.std(noisy[:, 0] - noisy[:, 1]) < 0.15
    assert not np.array_equal(noisy, actions(2, 0.1))
    with pytest.raises(ValueError, match=r"noise is 1\.5"):
        env.demonstrator(0, 1.5)
    with pytest.raises(ValueError, match=r"seed is 'a'"):
        env.demonstrator("a")


def strayed(env, seed, steps):
    """A demonstrator that labels `steps` of a bad policy; returns it and the last info."""
    env.reset(seed=seed)
    player, rng = env.demonstrator(seed), np.random.default_rng(seed)
    bias = rng.normal(0, 0.3, len(ACTION))
    for _ in range(steps):
        noise = bias + 0.3 * rng.standard_normal(len(ACTION))
        *_, info = env.step(np.clip(0.5 * player.act().intended + noise, -1, 1).astype(np.float32))
    return player, info


def test_labels_do_not_depend_on_the_earlier_actions_of_the_demonstrator():
    env = gymnasium.make(ID, image_size=None, balls=8).unwrapped
    env.reset(seed=0)
    acting = env.demonstrator(0, noise=0.1)
    ended = False
    while not ended:
        action = acting.act()
        np.testing.assert_array_equal(env.demonstrator(1).act().intended, action.intended)
        *_, ended, _, _ = env.step(action.executed)


@pytest.mark.slow
def test_with_noise_some_strokes_go_to_a_random_stripe():
    """Otherwise no demonstration shows balls left in front of spatulas that come from the far bowl."""
    env = gymnasium.make(ID, image_size=None, balls=8).unwrapped
    astray = 0
    for seed in range(4):
        env.reset(seed=seed)
        player, ended = env.demonstrator(seed, noise=0.1), False
        while not ended:
            action = player.act()
            astray += np.abs(action.executed - action.intended).max() > 0.8  # eight times the noise
            *_, ended, cut, _ = env.step(action.executed)
            ended = ended or cut
    assert astray > 10


@pytest.mark.slow
def test_no_stroke_to_a_random_stripe_lasts_for_ever():
    wide = replace(BimanualSweepConfig(image_size=None), scatter=0.25)
    env = gymnasium.make(ID, engine="mujoco", config=wide).unwrapped
    for seed in range(6):
        env.reset(seed=seed)
        player, astray, ended = env.demonstrator(seed, noise=0.1), [0], False
        while not ended:
            action = player.act()
            strays = np.abs(action.executed - action.intended).max() > 0.8
            astray.append(strays * (astray[-1] + 1))
            *_, ended, cut, _ = env.step(action.executed)
            ended = ended or cut
        assert max(astray) < 30


@pytest.mark.slow
@pytest.mark.parametrize("steps", [30, 100])
def test_a_demonstrator_goes_on_from_where_a_bad_policy_has_come(steps):
    env = gymnasium.make(ID, image_size=None, episode_seconds=60).unwrapped
    brought, left = 0, 0
    for seed in range(4):
        player, info = strayed(env, seed, steps)
        before, out, ended = sum(info["in_bowls"]), info["spilled"], False
        while not ended:
            action = player.act()
            *_, ended, cut, info = env.step(action.intended)
            ended = ended or cut or bool(action.unsolved)
        brought, left = brought + sum(info["in_bowls"]) - before, left + 20 - before - out
    assert brought >= 0.95 * left


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 7])
def test_a_demonstrator_makes_progress_or_says_that_it_cannot(seed):
    """Tipped spatulas have pushed balls outwards; one of them would come down on a ball there."""
    env = gymnasium.make(ID, engine="mujoco", image_size=None, episode_seconds=60).unwrapped
    env.reset(seed=seed)
    places, tip = np.array([[0.05, -0.15, 0.02], [0.05, 0.15, 0.02]]), np.array([[-0.7, 0, 0], [0.7, 0, 0]])
    for _ in range(60):
        moves = (places - env.target.positions) / env.config.largest_move
        turns = (tip - env.target.turns) / env.config.largest_turn
        env.step(np.clip(np.concatenate([moves, turns], axis=1).ravel(), -1, 1).astype(np.float32))
    player, last, best = env.demonstrator(), 0, 0
    for step in range(400):
        action = player.act()
        *_, ended, _, info = env.step(action.executed)
        if action.unsolved or ended:
            break
        if sum(info["in_bowls"]) > best:
            last, best = step, sum(info["in_bowls"])
        assert step - last < 100
    assert best >= 12


def test_a_demonstrator_says_that_no_ball_is_in_reach():
    far = replace(BimanualSweepConfig(image_size=None), balls=1, scatter=0.4)
    env = gymnasium.make(ID, config=far).unwrapped
    for seed in range(3, 30):
        env.reset(seed=seed)
        if abs(env.balls[0, 1]) > 0.3:
            break
    player = env.demonstrator()
    said = []
    for _ in range(15):
        said.append(player.act().unsolved)
        env.step(STILL)
    assert said[0] == ""
    assert said[-1] == "no ball is left that both spatulas can take"


def test_a_demonstration_needs_a_reset():
    env = gymnasium.make(ID, image_size=None).unwrapped
    with pytest.raises(RuntimeError, match="call reset"):
        env.oracle_action()

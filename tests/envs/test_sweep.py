"""The bimanual sweep as its users see it, and the kinematics under it."""

from dataclasses import replace

import gymnasium
import numpy as np
import pytest
from installed_engines import EACH_ENGINE, each_engine
from scipy.spatial.transform import Rotation

from robopolicy.envs.physics.arms import Bowl
from robopolicy.envs.sweep import kinematics
from robopolicy.envs.sweep.bimanual_sweep import ACTION, BimanualSweepConfig
from robopolicy.envs.sweep.workspace import LIP, Target, WorkspaceConfig

ID = "robopolicy:robopolicy/BimanualSweep-v0"
STILL = np.zeros(len(ACTION), np.float32)
LEFT_Y = ACTION.index("left_move_y")


@pytest.fixture(scope="module", params=EACH_ENGINE)
def env(request):
    env = gymnasium.make(ID, engine=request.param, image_size=None)
    yield env
    env.close()


def play(env, seed, choose):
    env.reset(seed=seed)
    total, steps = 0.0, 0
    while True:
        _, reward, ended, cut, info = env.step(choose())
        total, steps = total + reward, steps + 1
        if ended or cut:
            return total, steps, info


@pytest.mark.slow
def test_the_demonstrator_fills_the_bowls_and_chance_does_not(env):
    for seed in range(3):
        assert play(env, seed, env.unwrapped.oracle_action)[2]["fraction_in_bowls"] >= 0.9
    rng = np.random.default_rng(0)
    for seed in range(3):
        info = play(env, seed, lambda: rng.uniform(-1, 1, len(ACTION)).astype(np.float32))[2]
        assert info["fraction_in_bowls"] <= 0.1
        assert info["cause"] == "time"


def test_an_episode_that_ends_early_earns_the_rest_of_its_time():
    env = gymnasium.make(ID, image_size=None, balls=3)
    total, steps, info = play(env, 2, env.unwrapped.oracle_action)
    assert (info["cause"], info["success"]) == ("all balls in bowls", True)
    assert sum(info["in_bowls"]) == 3
    last = round(10 * env.unwrapped.config.episode_seconds)
    assert steps < last
    assert last - steps + 1 <= total < last


@each_engine
def test_balls_that_leave_the_table_are_spilled_and_end_the_episode(engine):
    # A table as wide as a spatula, which one stroke sweeps clear.
    tiny = BimanualSweepConfig(image_size=None, balls=4, scatter=0.04, table=(0.06, 0.06))
    env = gymnasium.make(ID, engine=engine, config=tiny).unwrapped
    env.reset(seed=1)
    stroke = STILL.copy()
    stroke[LEFT_Y], stroke[LEFT_Y + 1] = 1.0, -1.0
    total, info = 0.0, {"cause": ""}
    while not info["cause"]:
        _, reward, _, _, info = env.step(stroke)
        total += reward
    assert info["spilled"] == 4
    assert info["cause"] == "no ball left on the table"
    assert (total, info["success"]) == (0.0, False)


@each_engine
def test_spatulas_reach_their_targets_and_observations_have_their_poses(engine):
    env = gymnasium.make(ID, engine=engine, preset="state", image_size=None).unwrapped
    observation, _ = env.reset(seed=0)
    balls = observation["balls"]
    assert balls.shape == (20, 3)
    assert np.abs(balls[:, :2]).max() <= 0.18
    action = STILL.copy()
    action[LEFT_Y], action[ACTION.index("left_turn_x")] = 0.5, 0.25
    for _ in range(4):
        env.step(action)
    for _ in range(10):
        observation, *_, info = env.step(STILL)
    np.testing.assert_allclose(env.target.positions, [[0, -0.19, 0.12], [0, 0.27, 0.12]], atol=1e-9)
    poses = observation["poses"].reshape(2, 7)
    np.testing.assert_allclose(poses[:, :3], env.target.positions, atol=2e-3)
    turns = (
        Rotation.from_quat(poses[:, 3:], scalar_first=True) * env.workspace.rotations(env.target.turns).inv()
    )
    assert turns.magnitude().max() < 5e-3
    np.testing.assert_allclose(env.target.turns[0], [0.2, 0, 0], atol=1e-9)
    assert (poses[:, 3] >= 0).all()
    assert info["out_of_reach"] == []


def test_turns_go_on_from_the_left_up_to_their_largest():
    env = gymnasium.make(ID, engine="mujoco", image_size=None).unwrapped
    env.reset(seed=0)
    tipped = Target(env.target.positions, np.array([[0.3, 0.0, 0.0], [0.0, 0.0, 0.0]]))
    turns = np.array([[0.0, 0.0, 0.2], [0.0, 1.5, 0.0]])
    moved = env.workspace.moved(tipped, np.zeros((2, 3)), turns).turns
    wanted = Rotation.from_rotvec(turns[0]) * Rotation.from_rotvec(tipped.turns[0])
    largest = env.workspace.config.turn
    np.testing.assert_allclose(moved, [wanted.as_rotvec(), [0.0, largest, 0.0]], atol=1e-12)
    env.close()


def test_targets_in_a_corner_are_brought_inside_and_apart():
    env = gymnasium.make(ID, engine="mujoco", image_size=None).unwrapped
    env.reset(seed=0)
    for side in (-1.0, 1.0):
        far = Target(side * np.array([[0.5, 0.6, 0.0], [0.5, 0.6, 0.0]]), np.zeros((2, 3)))
        inside = env.workspace.moved(far, np.zeros((2, 3)), np.zeros((2, 3)))
        assert env.workspace.clear(inside)
        assert np.abs(inside.positions[:, :2]).max() == pytest.approx(0.45)
    env.close()


@each_engine
def test_a_mirrored_action_gives_the_mirrored_motion(engine):
    env = gymnasium.make(ID, engine=engine, preset="state", balls=1, image_size=None).unwrapped
    action = np.linspace(-0.9, 1.0, len(ACTION), dtype=np.float32)
    ends = []
    for each in (action, env.mirror.actions(action)):
        before = env.reset(seed=0)[0]["poses"]
        for _ in range(3):
            seen, *_ = env.step(each)
        ends.append(seen["poses"])
    np.testing.assert_allclose(env.mirror.vectors(before), before, atol=1e-4)
    np.testing.assert_allclose(env.mirror.vectors(ends[0]), ends[1], atol=5e-3)
    assert np.abs(ends[0] - before).max() > 0.05
    env.close()


@pytest.mark.rest_slow
@each_engine
def test_spatulas_stay_above_the_table_and_apart_for_any_actions(engine):
    env = gymnasium.make(ID, engine=engine, image_size=None).unwrapped
    env.reset(seed=0)
    rng = np.random.default_rng(1)
    for _ in range(12):
        action = rng.uniform(-1, 1, len(ACTION)).astype(np.float32)
        action[2], action[8], action[LEFT_Y], action[7] = -1.0, -1.0, 1.0, -1.0  # down, and at each other
        for _ in range(10):
            env.step(action)
        positions, rotations = env.physics.tools()
        fronts = positions + LIP * rotations[:, :, 0]
        assert positions[:, 2].min() > -0.015
        assert fronts[:, 2].min() > -0.015
        assert fronts[1, 1] - fronts[0, 1] > -0.015
        joints = env.physics.joints()
        assert (np.abs(joints) <= kinematics.LIMIT + 0.04).all()
    for _ in range(30):
        *_, info = env.step(np.array([0, -1, -1, 0, 0, 0, 0, 1, -1, 0, 0, 0], np.float32))
    assert info["out_of_reach"]


@pytest.mark.slow
def test_targets_keep_their_distance_and_joints_their_branch_for_any_actions():
    env = gymnasium.make(ID, image_size=None).unwrapped
    for seed in range(3):
        env.reset(seed=seed)
        rng = np.random.default_rng(seed)
        for step in range(120):
            if step % 15 == 0:
                action = rng.integers(-1, 2, len(ACTION)).astype(np.float32)
            before = env.joint_targets.copy()
            env.step(action)
            assert env.workspace.clear(env.target)
            assert np.abs(env.joint_targets - before).max() <= 0.5
            assert (env.joint_targets[:, 3] <= -0.1).all()
            assert np.abs(env.target.positions[:, :2]).max() <= 0.45 + 1e-9


def test_half_a_turn_is_not_mistaken_for_none():
    target = kinematics.forward(kinematics.REST)[0] @ np.diag([1.0, -1.0, -1.0, 1.0])
    solution = kinematics.inverse(target, kinematics.REST)
    assert not solution.reached or np.abs(kinematics.forward(solution.joints)[0] - target).max() < 1e-2


@each_engine
def test_an_environment_keeps_no_temporary_files(engine, tmp_path, monkeypatch):
    """A process that is killed would leave them."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    env = gymnasium.make(ID, engine=engine, image_size=None)
    env.reset(seed=0)
    assert not list(tmp_path.iterdir())
    env.close()


def test_inverse_kinematics_undo_forward_within_limits_and_jacobians_differentiate():
    rng = np.random.default_rng(0)
    for _ in range(50):
        joints = kinematics.REST + rng.uniform(-0.4, 0.4, 7)
        target = kinematics.forward(joints)[0]
        solution = kinematics.inverse(target, kinematics.REST)
        assert solution.reached
        np.testing.assert_allclose(kinematics.forward(solution.joints)[0], target, atol=1e-3)
        assert (solution.joints <= kinematics.UPPER).all()
        assert (solution.joints >= kinematics.LOWER).all()
        step = 1e-6 * rng.standard_normal(7)
        moved = (kinematics.forward(joints + step)[0] - target)[:3, 3]
        np.testing.assert_allclose(moved, (kinematics.forward(joints)[1] @ step)[:3], atol=1e-10)


def test_joints_come_back_with_the_pose_and_never_jump():
    start = kinematics.inverse(kinematics.forward(kinematics.REST)[0], kinematics.REST).joints
    joints, home = start, kinematics.forward(start)[0]
    for turn in range(3):
        for angle in np.linspace(0, 2 * np.pi, 60):
            target = home.copy()
            target[:3, 3] += [0.1 * np.sin(angle), 0.15 * (1 - np.cos(angle)), 0.05 * np.sin(2 * angle)]
            solution = kinematics.inverse(target, joints)
            assert solution.reached, (turn, angle)
            assert np.abs(solution.joints - joints).max() < 0.15
            joints = solution.joints
    np.testing.assert_allclose(joints, start, atol=0.02)


def test_a_pose_out_of_reach_gives_the_nearest_one_as_not_reached():
    target = kinematics.forward(kinematics.REST)[0]
    target[:3, 3] = [1.5, 0.0, 0.2]
    solution = kinematics.inverse(target, kinematics.REST)
    assert not solution.reached
    assert np.isfinite(solution.joints).all()
    before, after = (kinematics.forward(joints)[0][:3, 3] for joints in (kinematics.REST, solution.joints))
    assert np.linalg.norm(after - target[:3, 3]) < np.linalg.norm(before - target[:3, 3])


@pytest.mark.parametrize("size", [96, 256, 500])
def test_images_show_balls_and_bowls_in_the_requested_size(size):
    env = gymnasium.make(ID, image_size=size)
    image = env.reset(seed=0)[0]["image"].astype(int)
    assert image.shape == (size, size, 3)
    red = (image[..., 0] > 120) & (image[..., 1] < 60) & (image[..., 2] < 60)
    green = (image[..., 1] > 60) & (image[..., 0] < image[..., 1] - 30)
    assert 0.003 < red.mean() < 0.05
    assert 0.02 < green.mean() < 0.2
    assert gymnasium.make(ID, image_size=None).observation_space.keys() == {"poses"}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"preset": "sate"}, "preset is 'sate'.*did you mean 'state'"),
        ({"balls": 0}, "balls is 0"),
        ({"balls": 51}, "balls is 51"),
        ({"image_size": 8}, "image_size is 8"),
        ({"image_size": 96.0}, "image_size is 96.0"),
    ],
)
def test_bad_settings_are_refused_by_name(settings, words):
    with pytest.raises(ValueError, match=words):
        gymnasium.make(ID, **settings)


@pytest.mark.parametrize(
    "changed",
    [
        {"bowls": ()},
        {"scatter": 0.6},
        {"largest_move": float("nan")},
        {"ball_mass": 0.0},
        {"distractions": None},
        {"table": 0.5},
        {"table": (float("nan"), 0.85)},
        {"bowls": None},
        {"bases": 5.0},
        {"bases": float("nan")},
    ],
)
def test_bad_constants_are_refused_by_name(changed):
    with pytest.raises(ValueError, match=f"{next(iter(changed))} is"):
        BimanualSweepConfig(**changed)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: WorkspaceConfig(gap=float("nan")), "^gap is nan: it must be a number from 0 to 0.5$"),
        (lambda: WorkspaceConfig(height=(0.35, 0.0)), r"^height is \(0.35, 0.0\): it must be two numbers"),
        (lambda: BimanualSweepConfig(bowls=(Bowl((0.0, 0.0), -0.1),)), "^bowls: radius is -0.1: it must be"),
        (
            lambda: BimanualSweepConfig(bowls=(Bowl((0.0, 0.0)), Bowl((0.15, 0.0), 0.06))),
            r"^bowls at \(0\.0, 0\.0\) and \(0\.15, 0\.0\) overlap: .* 0\.16 m apart or more$",
        ),
    ],
)
def test_bad_places_are_refused_by_name(make, words):
    with pytest.raises(ValueError, match=words):
        make()


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"start": (float("nan"), 0.27, 0.12)}, "start x is nan: it must be a number from -2 to 2"),
        ({"start": (0.0, -0.27, 0.12)}, r"start y is -0\.27: it must be a number from 0 to 2"),
        ({"start": (0.0, 0.7, 0.12)}, r"start is \(0\.0, 0\.7, 0\.12\): both arms must .*apart"),
        ({"start": (0.0, 0.05, 0.12)}, r"start is \(0\.0, 0\.05, 0\.12\): both arms must .*apart"),
        ({"bases": 0.4}, r"start is \(0\.0, 0\.27, 0\.12\): both arms must .*apart"),
    ],
)
def test_a_start_that_the_arms_do_not_reach_is_refused(changed, words):
    with pytest.raises(ValueError, match=f"^{words}$"):
        gymnasium.make(ID, engine="mujoco", config=BimanualSweepConfig(image_size=None, **changed))


def test_bowls_may_touch():
    assert len(BimanualSweepConfig(bowls=(Bowl((0.1, 0.0), 0.1), Bowl((0.3, 0.0), 0.1))).bowls) == 2


def test_a_scatter_that_has_no_room_is_refused():
    crowded = replace(BimanualSweepConfig(image_size=None), balls=50, scatter=0.05)
    with pytest.raises(ValueError, match="no room for 50 balls"):
        gymnasium.make(ID, config=crowded).reset(seed=0)

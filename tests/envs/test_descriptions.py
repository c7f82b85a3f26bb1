"""Cameras as they are described, and the safe stops."""

import gymnasium
import numpy as np
import pytest
from engine_readings import readings
from installed_engines import EACH_ENGINE, each_engine

from robopolicy.envs.registry import TASKS
from robopolicy.envs.task import task_of


def rays(camera):
    """Directions [H, W, 3] of unit depth through the middles of pixels, in the frame of the pose."""
    columns = (np.arange(camera["width"]) + 0.5 - camera["cx"]) / camera["fx"]
    rows = (np.arange(camera["height"]) + 0.5 - camera["cy"]) / camera["fy"]
    x, y = np.meshgrid(columns, rows)
    return np.stack([x, y, np.ones_like(x)], axis=-1) @ np.array(camera["rotation"]).T


def test_described_poses_of_depth_cameras_match_their_images():
    env = gymnasium.make(TASKS["stepping-stones"], engine="mujoco")
    cameras = task_of(env).describe()["cameras"]
    level, height = env.unwrapped.reference_images(), env.unwrapped.config.walker.height
    env.close()
    assert cameras.keys() == level.keys()
    for name, camera in cameras.items():
        down = -rays(camera)[..., 2]
        expected = (height + camera["position"][2]) / down
        seen = level[name] < 2.0
        assert seen.mean() > 0.5
        np.testing.assert_allclose(level[name][seen], expected[seen], rtol=1e-5)


def test_the_described_camera_projects_a_ball_to_its_pixels():
    env = gymnasium.make(TASKS["bimanual-sweep"], balls=1)
    camera = task_of(env).describe()["cameras"]["image"]
    for seed in range(3):
        observation, _ = env.reset(seed=seed)
        ball = env.unwrapped.balls[0]
        x, y, z = (ball - np.array(camera["position"])) @ np.array(camera["rotation"])
        column, row = camera["fx"] * x / z + camera["cx"], camera["fy"] * y / z + camera["cy"]
        red, green, blue = observation["image"][int(row), int(column)].astype(int)
        assert red > 100
        assert max(green, blue) < red / 2
    env.close()


@pytest.fixture(scope="module", params=EACH_ENGINE)
def stones(request):
    env = gymnasium.make(TASKS["stepping-stones"], engine=request.param).unwrapped
    yield env
    env.close()


@pytest.mark.parametrize("steps", [0, 1, 37, 40, 45, 53])  # at 0, 40 and 45 feet are about to lift off
def test_a_walking_robot_comes_to_a_stand_and_stays(stones, steps):
    env = stones
    env.reset(seed=3)
    for _ in range(steps):
        env.step(env.oracle_action())
    stands = readings(env.physics).foot_contacts() & ~env.walker.lifting()
    env.halt()
    assert not env.walker.lifting().any()
    for _ in range(20):
        _, _, ended, _, info = env.step(np.ones(4, np.float32))
        assert not ended, info
        assert readings(env.physics).foot_contacts()[stands].all(), "a foot that stood has lifted off"
    stood = env.walker.reading.position
    for _ in range(50):
        _, _, ended, _, info = env.step(np.ones(4, np.float32))
        assert not ended, info
    assert np.abs(env.walker.reading.position - stood).max() < 0.005
    assert readings(env.physics).foot_contacts().all()


def test_a_robot_walks_again_after_a_halt_and_a_reset(stones):
    stones.reset(seed=3)
    stones.halt()
    for _ in range(10):
        stones.step(np.zeros(4, np.float32))
    stones.reset(seed=3)
    for _ in range(20):
        stones.step(stones.oracle_action())
    assert stones.walker.reading.position[0] > 0.2


@each_engine
def test_halted_spatulas_stay_in_place(engine):
    env = gymnasium.make(TASKS["bimanual-sweep"], engine=engine, image_size=None).unwrapped
    env.reset(seed=0)
    for _ in range(20):
        env.step(env.oracle_action())
    env.halt()
    held = env.physics.tools()[0]
    for _ in range(10):
        env.step(np.ones(12, np.float32))
    assert np.abs(env.physics.tools()[0] - held).max() < 0.02
    env.reset(seed=0)
    start = env.physics.tools()[0]
    for _ in range(3):
        env.step(np.ones(12, np.float32))
    assert np.abs(env.physics.tools()[0] - start).max() > 0.02
    env.close()

"""Cameras as they are described, and the safe stops."""

import os
import subprocess
import sys
from dataclasses import replace

import gymnasium
import numpy as np
import pytest
from engine_readings import readings
from installed_engines import EACH_ENGINE, each_engine, needs_bullet

from robopolicy.control.robots import LAIKAGO
from robopolicy.envs.quadruped.presets import SteppingStonesConfig
from robopolicy.envs.quadruped.stepping_stones import SteppingStones
from robopolicy.envs.registry import TASKS
from robopolicy.envs.sweep.bimanual_sweep import BimanualSweep, BimanualSweepConfig
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


def seen_off(engine, renderer):
    """Mean pixels to the right and down, from where the described camera projects balls to their places."""
    radius = 0.03
    config = BimanualSweepConfig(balls=1, ball_radius=radius, image_size=256)
    env = BimanualSweep(engine, renderer=renderer, config=config)
    camera = env.describe()["cameras"]["image"]
    off = []
    for seed in range(6):
        observation, _ = env.reset(seed=seed)
        x, y, z = (env.balls[0] - np.array(camera["position"])) @ np.array(camera["rotation"])
        depth = z - radius**2 / z  # of the middle of the ellipse that a pinhole camera sees of a ball
        expected = camera["fx"] * x / depth + camera["cx"], camera["fy"] * y / depth + camera["cy"]
        red, green, blue = np.moveaxis(observation["image"].astype(int), -1, 0)
        rows, columns = np.nonzero(red > 1.5 * np.maximum(green, blue) + 10)
        near = np.hypot(columns + 0.5 - expected[0], rows + 0.5 - expected[1]) < 15  # the table mirrors red
        off.append((columns[near].mean() + 0.5 - expected[0], rows[near].mean() + 0.5 - expected[1]))
    env.close()
    return np.mean(off, axis=0)


@pytest.mark.parametrize(
    ("engine", "renderer"),
    [("mujoco", "software"), pytest.param("bullet", "tiny", marks=[needs_bullet, pytest.mark.slow])],
)
def test_the_described_camera_projects_a_ball_to_its_pixels(engine, renderer):
    np.testing.assert_allclose(seen_off(engine, renderer), 0.0, atol=0.1)


@pytest.mark.slow
def test_the_described_camera_of_opengl_projects_a_ball_to_its_pixels():
    # In a process of its own, which a broken OpenGL may end.
    script = "from test_descriptions import seen_off; print(*seen_off('mujoco', 'opengl'))"
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, env=variables
    )
    if "MuJoCo cannot draw here" in run.stderr:
        pytest.skip("there is no OpenGL")
    assert run.returncode == 0, run.stderr
    # The darkest part of a ball is not red enough to be found.
    np.testing.assert_allclose([float(word) for word in run.stdout.split()], 0.0, atol=0.25)


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


def test_without_braking_no_foot_is_in_the_air_after_a_halt():
    env = SteppingStones("mujoco", config=SteppingStonesConfig(walker=replace(LAIKAGO.walker, braking=0.0)))
    env.reset(seed=3)
    for _ in range(37):
        env.step(env.oracle_action())
    env.halt()
    for _ in range(20):
        env.step(np.zeros(4, np.float32))
    assert not env.walker.swinging.any()
    env.close()


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
    # Near the edge of its reach, no joints near those of its target give the left arm's present pose.
    env.reset(seed=56)
    for signs in "-+++-+-+++++", "-+-+++++-+--", "+---++++---+":
        for _ in range(5):
            env.step(np.array([float(f"{sign}1") for sign in signs], np.float32))
    env.halt()
    held = env.physics.tools()[0]
    for _ in range(10):
        env.step(np.ones(12, np.float32))
    assert np.abs(env.physics.tools()[0] - held).max() < 0.003
    env.reset(seed=0)
    start = env.physics.tools()[0]
    for _ in range(3):
        env.step(np.ones(12, np.float32))
    assert np.abs(env.physics.tools()[0] - start).max() > 0.02
    env.close()

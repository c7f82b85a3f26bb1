"""One battery over the engines' arms: they are one arm, that of our description and of the kinematics."""

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import gymnasium
import numpy as np
import pytest
from arm_readings import readings
from installed_engines import INSTALLED, each_engine, needs_bullet
from scipy.spatial.transform import Rotation

from robopolicy.envs.physics import make_arms
from robopolicy.envs.physics.arms import ARM, ArmsConditions, Bowl, Placement
from robopolicy.envs.sweep import drawn, kinematics, workspace

ID = "robopolicy:robopolicy/BimanualSweep-v0"
BASES = np.array([[0.0, -0.81, np.pi / 2], [0.1, 0.81, -1.2]])


def placement(joints):
    """Both arms at `joints` [2, 7], and a ball."""
    return Placement(BASES, joints, np.array([[0, 0, 0.016]]), 0.016, 0.02, (Bowl((0.34, 0.0)),), (0.5, 0.85))


@pytest.fixture(scope="module")
def engines():
    made = {name: make_arms(name, kinematics.TOOL, visible=True) for name in INSTALLED}
    yield made
    for physics in made.values():
        physics.close()


@pytest.fixture
def read(engines, seed):
    """Random joints [2, 7] of both arms, and the readings of each engine's arms there."""
    rng = np.random.default_rng(seed)
    joints = rng.uniform(-kinematics.LIMIT, kinematics.LIMIT, (2, 7))
    motion = rng.uniform(-1, 1, 7), rng.uniform(-5, 5, 7)
    for physics in engines.values():
        physics.reset(placement(joints))
    return joints, {
        name: [readings(physics, arm, *motion) for arm in range(2)] for name, physics in engines.items()
    }


@pytest.mark.parametrize("seed", range(6))
def test_the_kinematics_are_those_of_the_engines(engines, read, seed):
    joints, of_engines = read
    for name, arms in of_engines.items():
        places, turns = engines[name].tools()
        np.testing.assert_allclose(engines[name].joints(), joints, atol=1e-12)
        for arm, (x, y, yaw) in enumerate(BASES):
            base = kinematics.frame((0, 0, yaw), (x, y, 0))
            points = kinematics.line(joints[arm]) @ base[:3, :3].T + base[:3, 3]
            np.testing.assert_allclose(arms[arm]["place"], points[1:], atol=1e-6)
            tool = base @ kinematics.forward(joints[arm])[0]
            for turn in (arms[arm]["rotation"][-1], turns[arm]):
                np.testing.assert_allclose(turn, tool[:3, :3], atol=1e-6)
            np.testing.assert_allclose(places[arm], tool[:3, 3], atol=1e-6)
            limits = [-kinematics.LIMIT, kinematics.LIMIT]
            np.testing.assert_allclose(np.transpose(arms[arm]["limits"]), limits, atol=1e-12)


@needs_bullet
@pytest.mark.parametrize("seed", range(6))
def test_engines_agree_on_the_arms(read, seed):
    for bullet, ours in zip(*(read[1][name] for name in ("bullet", "mujoco")), strict=True):
        assert np.abs(bullet["gravity"]).max() > 1.0
        for name, value in bullet.items():
            # Bullet gives the frames of links in single precision.
            atol = 1e-6 if name in ("place", "rotation") else 1e-9
            np.testing.assert_allclose(ours[name], value, atol=atol, err_msg=name)


def test_the_description_has_the_tool_and_its_measures_where_the_task_has_them():
    tree = ElementTree.parse(ARM)
    body = tree.find(".//body[@name='spatula']")
    pose = kinematics.frame(*(numbers(body, name) for name in ("euler", "pos")))
    np.testing.assert_allclose(pose, kinematics.TOOL, atol=1e-12)
    boxes = [(numbers(geom, "pos"), numbers(geom, "size")) for geom in body.findall("geom[@size]")]
    corners = np.array([(place - half, place + half) for place, half in boxes])
    low, high = corners[:, 0].min(axis=0), corners[:, 1].max(axis=0)
    ends = [0.0, -workspace.HALF_WIDTH, 0.0], [workspace.LIP, workspace.HALF_WIDTH, workspace.BACK]
    np.testing.assert_allclose([low, high], ends, atol=1e-12)
    middle, half = np.array(drawn.BLADE)
    np.testing.assert_allclose([(middle - half)[:2], (middle + half)[:2]], [low[:2], high[:2]], atol=1e-12)


def numbers(element, name):
    return np.array(element.get(name).split(), float)


@needs_bullet
def test_meshes_are_those_of_the_package_that_their_licence_names():
    import pybullet_data

    theirs = Path(pybullet_data.getDataPath()) / "kuka_iiwa" / "meshes"
    meshes = sorted(ARM.parent.glob("*.obj"))
    assert len(meshes) == 8
    for mesh in meshes:
        lines = (theirs / mesh.name).read_text().splitlines()
        kept = [line for line in lines if line.split()[0] in ("v", "vn", "f")]
        assert mesh.read_text().splitlines() == kept
    header = (theirs.parent / "model.urdf").read_text().split("LICENSE:")[1].split("<robot")[0]
    words = header.replace("<!--", " ").replace("-->", " ").split()
    assert " ".join(words) in " ".join((ARM.parent / "LICENSE").read_text().split())


@needs_bullet
def test_visual_shapes_change_no_bit_of_the_physics():
    played, pictures = [], []
    for visible in (True, False):
        env = gymnasium.make(ID, engine="bullet", image_size=None).unwrapped
        env.physics.close()
        env.physics = make_arms("bullet", kinematics.TOOL, visible=visible)
        env.reset(seed=0)
        states = []
        for _ in range(40):
            env.step(env.oracle_action())
            states.append(np.concatenate([env.physics.joints(), env.physics.balls()], axis=None))
        played.append(np.array(states))
        pictures.append(env.physics.render(env.view(), 32, 32))
        env.close()
    np.testing.assert_array_equal(*played)
    assert np.ptp(played[0][:, 14:], axis=0).max() > 0.05  # the spatulas have moved balls
    assert not np.array_equal(*pictures)


@each_engine
def test_late_arms_stay_at_rest_until_the_first_command(engine):
    physics, joints = make_arms(engine, kinematics.TOOL, visible=False), np.tile(kinematics.REST, (2, 1))
    late = placement(joints)._replace(conditions=ArmsConditions(latency=0.05))
    for _ in range(2):
        physics.reset(late)
        physics.step()
        np.testing.assert_allclose(physics.joints(), joints, atol=1e-3)
        physics.command(joints + 0.2)
    physics.close()


@each_engine
def test_balls_turn_as_they_roll(engine):
    env = gymnasium.make(ID, engine=engine, image_size=None).unwrapped
    env.reset(seed=0)
    np.testing.assert_array_equal(env.physics.ball_turns(), np.tile(np.eye(3), (20, 1, 1)))
    cosines = []
    for _ in range(30):
        places, turns = env.physics.balls(), env.physics.ball_turns()
        env.step(env.oracle_action())
        moves = env.physics.balls() - places
        rolled = (np.linalg.norm(moves, axis=1) > 0.005) & (np.abs(moves[:, 2]) < 1e-3)
        turned = env.physics.ball_turns() @ turns.transpose(0, 2, 1)
        for move, turn in zip(moves[rolled], Rotation.from_matrix(turned[rolled]).as_rotvec(), strict=True):
            axis = np.cross([0.0, 0.0, 1.0], move)
            cosines.append(turn @ axis / np.linalg.norm(turn) / np.linalg.norm(axis))
    assert len(cosines) > 20
    assert np.median(cosines) > 0.9


@pytest.mark.slow
def test_the_sweep_needs_no_pybullet():
    code = """
import sys
sys.modules.update(dict.fromkeys(["pybullet", "pybullet_data", "pybullet_utils"]))
import gymnasium
env = gymnasium.make("robopolicy:robopolicy/BimanualSweep-v0", preset="state", image_size=None)
observation, _ = env.reset(seed=0)
for _ in range(3):
    observation, *_ = env.step(env.unwrapped.oracle_action())
print(env.unwrapped.engine, sorted(observation), env.unwrapped.describe()["robot"]["model"])
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "mujoco ['balls', 'poses'] assets/iiwa/iiwa.xml of robopolicy, twice"

"""One battery over the physics engines: their readings, and that they agree."""

import os
import subprocess
import sys

import numpy as np
import pytest
from engine_readings import readings
from installed_engines import EACH_ENGINE, EACH_OF_QUADRUPEDS, INSTALLED, needs_bullet

from robopolicy.control.kinematics import foot_positions
from robopolicy.control.robots import LAIKAGO
from robopolicy.envs.physics import make_arms, make_physics
from robopolicy.envs.physics.base import UPRIGHT, Box, Conditions, Start, View
from robopolicy.envs.sweep.kinematics import TOOL

GROUND = [Box((0.0, 0.0, -0.5), (3.0, 3.0, 0.5))]
HELD, NO_TORQUE = np.ones(12, bool), np.zeros(12)
STANDING = LAIKAGO.standing_joints(0.42)
MASS, GRAVITY = 25.567, 9.81


@pytest.fixture(scope="module")
def engines():
    made = {name: make_physics(name, LAIKAGO, visible=False) for name in INSTALLED}
    yield made
    for physics in made.values():
        physics.close()


@pytest.fixture(params=EACH_ENGINE)
def physics(request, engines):
    return engines[request.param]


def start(physics, height, joints=STANDING, boxes=GROUND, quaternion=UPRIGHT, **conditions) -> None:
    physics.reset(Start(boxes, np.array([0.0, 0.0, height]), joints, Conditions(**conditions), quaternion))


def run(physics, periods: int, positions=STANDING, torques=NO_TORQUE, held=HELD) -> None:
    for _ in range(periods):
        physics.command(positions, torques, held)
        physics.step()


def pose(seed: int) -> tuple[np.ndarray, tuple[float, ...]]:
    """Random joint angles, and a random orientation of the base."""
    rng = np.random.default_rng(seed)
    joints = rng.uniform([-0.4, -0.6, -1.3], [0.4, 0.8, 0.2], (4, 3)).ravel()
    quaternion = rng.normal((3.0, 0.0, 0.0, 0.0))
    return joints, tuple((quaternion / np.linalg.norm(quaternion)).tolist())


@needs_bullet
@pytest.mark.parametrize("seed", range(6))
def test_engines_agree_on_the_robot(engines, seed):
    read = {}
    for name, physics in engines.items():
        joints, quaternion = pose(seed)
        start(physics, 3.0, joints, quaternion=quaternion)
        state, of = physics.state(), readings(physics)
        read[name] = {
            "rotation": state.rotation,
            "mass matrix": of.mass_matrix(),
            "gravity": of.gravity_torques(),
            "feet": of.foot_positions(),
            "jacobians": of.foot_jacobians(),
            "inertia": physics.mass_properties()[2],
            "centre of mass": physics.mass_properties()[1],
        }
    assert np.linalg.norm(read["bullet"]["rotation"] - np.eye(3)) > 0.1
    for name, of_bullet in read["bullet"].items():
        np.testing.assert_allclose(of_bullet, read["mujoco"][name], atol=1e-6, err_msg=name)


def test_readings_are_consistent(physics):
    joints, quaternion = pose(1)
    start(physics, 3.0, joints, quaternion=quaternion)
    state, read = physics.state(), readings(physics)
    jacobians, before = read.foot_jacobians(), read.foot_positions()
    feet = (
        state.position + foot_positions(LAIKAGO.legs, state.joint_positions.reshape(4, 3)) @ state.rotation.T
    )
    np.testing.assert_allclose(before, feet, atol=1e-5)  # the file's pi has six digits
    inertia = read.mass_matrix()
    np.testing.assert_allclose(inertia, inertia.T, atol=1e-9)
    assert np.linalg.eigvalsh(inertia).min() > 0
    np.testing.assert_allclose(inertia[:3, :3], MASS * np.eye(3), atol=1e-9)
    mass, center, _ = physics.mass_properties()
    assert mass == pytest.approx(MASS)
    np.testing.assert_allclose(
        read.gravity_torques()[3:6],
        np.cross(state.rotation @ center, [0.0, 0.0, MASS * GRAVITY]),
        atol=1e-4,
    )
    # Each column of the Jacobians against finite differences of the feet.
    step = 1e-6
    for joint in range(12):
        start(physics, 3.0, joints + step * np.eye(12)[joint], quaternion=quaternion)
        moved = (readings(physics).foot_positions() - before) / step
        np.testing.assert_allclose(jacobians[:, :, 6 + joint], moved, atol=1e-4)
    np.testing.assert_allclose(jacobians[:, :, :3], np.tile(np.eye(3), (4, 1, 1)), atol=1e-12)
    turned = np.cross(np.eye(3)[None], (before - state.position)[:, None])  # [feet, axis, 3]
    np.testing.assert_allclose(jacobians[:, :, 3:6], turned.transpose(0, 2, 1), atol=1e-9)


@needs_bullet
def test_contact_forces_of_a_standing_robot_sum_to_its_weight(engines):
    stood = {}
    for name, physics in engines.items():
        start(physics, 0.42)
        run(physics, 150)
        assert readings(physics).foot_contacts().all()
        forces = readings(physics).contact_forces()
        # The tolerance covers the remaining motion after 1.5 s.
        assert forces[:, 2].sum() == pytest.approx(MASS * GRAVITY, rel=0.02)
        np.testing.assert_allclose(forces[:, :2].sum(axis=0), 0.0, atol=2.0)
        assert np.abs(physics.state().linear_velocity).max() < 0.01
        stood[name] = physics.state().position[2]
    # The servos deflect under the weight; the engines differ by less than a centimetre.
    assert abs(stood["bullet"] - stood["mujoco"]) < 0.01


@needs_bullet
def test_a_robot_falls_freely_until_its_feet_touch_the_ground(engines):
    heights = {}
    for name, physics in engines.items():
        start(physics, 0.62)
        fallen = []
        for _ in range(120):
            run(physics, 1)
            fallen.append(physics.state().position[2])
        heights[name] = np.array(fallen)
        # 0.2 m take 0.202 s. Symplectic Euler steps of 2 ms fall g t dt / 2 deeper than a parabola.
        t = 0.01 * np.arange(1, 19)
        np.testing.assert_allclose(heights[name][:18], 0.62 - GRAVITY * t * (t + 0.002) / 2, atol=1e-3)
    np.testing.assert_allclose(heights["bullet"][-1], heights["mujoco"][-1], atol=0.01)
    np.testing.assert_allclose(heights["bullet"].min(), heights["mujoco"].min(), atol=0.03)


@needs_bullet
def test_held_joints_follow_their_targets_in_both_engines(engines):
    # A step of 0.3 rad in every joint, as much as in a swing, in free fall.
    paths = {}
    for name, physics in engines.items():
        start(physics, 50.0)
        angles = []
        for _ in range(20):
            run(physics, 1, STANDING + 0.3)
            angles.append(physics.state().joint_positions - STANDING)
        paths[name] = np.array(angles)
        np.testing.assert_allclose(paths[name][-1], 0.3, atol=0.03)
    difference = np.abs(paths["bullet"] - paths["mujoco"])
    assert difference[2:].max() < 0.15
    assert difference[8:].max() < 0.05


@needs_bullet
def test_a_torque_accelerates_its_joint_equally_in_both_engines(engines):
    # 5 N m on one knee in the air for a period: both engines give the joint the same speed.
    speeds = []
    for physics in engines.values():
        start(physics, 50.0)
        torques = np.zeros(12)
        torques[2] = 5.0
        run(physics, 1, torques=torques, held=np.zeros(12, bool))
        speeds.append(physics.state().joint_velocities[2])
    assert speeds[0] > 1.0
    assert speeds[0] == pytest.approx(speeds[1], rel=0.01)


@needs_bullet
def test_a_held_joint_obeys_its_torque_limit(engines):
    # A knee in the air, 2 rad from its target, against the same knee under the limit as a torque.
    target, knee = STANDING.copy(), np.arange(12) == 2
    target[2] += 2.0
    for strength in (1.0, 0.5):
        held = []
        for physics in engines.values():
            limit = physics.config.motor_torque
            speeds = []
            for torque, hold in ((limit, HELD & False), (0.0, knee)):
                start(physics, 50.0, motor_strength=strength)
                run(physics, 1, target, torque * knee, hold)
                speeds.append(physics.state().joint_velocities[2])
            assert speeds[1] == pytest.approx(speeds[0], rel=0.02), (physics.config, strength)
            held.append(speeds[1])
        assert held[0] == pytest.approx(held[1], rel=0.02)


@pytest.mark.slow
def test_jax_follows_mujoco_and_has_its_mass():
    boxes = [Box((0.0, 0.0, -0.5), (3.0, 3.0, 0.5)), Box((0.25, 0.1, 0.0), (0.2, 0.1, 0.03), yaw=0.2)]
    rng = np.random.default_rng(4)
    commands = [(rng.normal(0, 0.1, 12), rng.normal(0, 5, 12), rng.random(12) < 0.7) for _ in range(15)]
    followed = []
    for name in ("mujoco", "jax"):
        physics = make_physics(name, LAIKAGO, visible=False)
        start(physics, 0.42, boxes=boxes, friction=0.6, payload=3.0, motor_strength=0.9)
        states = [physics.state()]
        for index, (moved, torques, held) in enumerate(commands):
            if index == 5:
                physics.push(np.array([60.0, -40.0, 0.0]))
            run(physics, 1, STANDING + moved, torques, held)
            states.append(physics.state())
        followed.append([np.concatenate([np.ravel(part) for part in state]) for state in states])
        followed.append([np.concatenate([np.ravel(part) for part in physics.mass_properties()])])
        physics.close()
    of_mujoco, mass, of_jax, mass_of_jax = map(np.array, followed)
    assert np.abs(of_mujoco[-1] - of_mujoco[0]).max() > 0.1
    np.testing.assert_allclose(of_jax, of_mujoco, atol=2e-3)  # float32; joint rates reach 20 rad/s
    np.testing.assert_allclose(mass_of_jax, mass, atol=1e-5)


@pytest.mark.slow
def test_jax_draws_nothing_itself():
    physics = make_physics("jax", LAIKAGO, visible=True)
    with pytest.raises(RuntimeError, match="a reset first"):
        physics.state()
    start(physics, 0.42)
    view = View((1.0, 1.0, 1.0), (0.0, 0.0, 0.0), 60.0)
    with pytest.raises(RuntimeError, match="engine 'jax' has no renderer: renderer 'software' draws"):
        physics.render(view, 64, 48)


def test_friction_payload_and_motor_strength_take_effect(physics):
    def slide(friction: float) -> float:
        start(physics, 0.42, friction=friction)
        run(physics, 60)
        for _ in range(30):
            physics.push(np.array([90.0, 0.0, 0.0]))
            run(physics, 1)
        return float(physics.state().position[0])

    assert slide(0.8) + 0.02 < slide(0.2)

    start(physics, 0.42, payload=5.0)
    assert physics.mass_properties()[0] == pytest.approx(MASS)
    run(physics, 150)
    assert readings(physics).contact_forces()[:, 2].sum() == pytest.approx((MASS + 5.0) * GRAVITY, rel=0.02)

    def knee(strength: float) -> float:
        start(physics, 50.0, motor_strength=strength)
        run(physics, 1, torques=np.full(12, 1.0), held=np.zeros(12, bool))
        return float(physics.state().joint_velocities[2])

    assert knee(0.5) == pytest.approx(0.5 * knee(1.0), rel=0.02)


def test_a_push_gives_its_momentum_and_ends_with_the_period(physics):
    start(physics, 50.0)
    physics.push(np.array([0.0, 200.0, 0.0]))
    run(physics, 1)
    pushed = physics.state().linear_velocity[1]
    assert pushed == pytest.approx(200.0 * 0.01 / MASS, rel=0.1)  # the legs deflect a little
    run(physics, 5)
    assert physics.state().linear_velocity[1] == pytest.approx(pushed, rel=0.05)


@needs_bullet
def test_engines_agree_on_where_rays_end(engines):
    rng = np.random.default_rng(0)
    boxes = [Box((0.6 * i, 0.1 * i, -0.3), (0.2, 0.3, 0.2 + 0.02 * i), yaw=0.3 * i) for i in range(6)]
    origins = np.tile([1.0, 0.0, 0.8], (400, 1))
    directions = rng.normal(size=(400, 3)) * [0.8, 0.2, 0.3] - [0.0, 0.0, 1.0]
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    distances = []
    for physics in engines.values():
        physics.reset(Start(boxes, np.array([0.0, 50.0, 5.0]), STANDING))
        distances.append(readings(physics).ray_distances(origins, directions, 3.0))
    assert 100 < np.sum(distances[0] < 3.0) < 395
    # A ray that grazes an edge may hit or miss it: one in a hundred.
    assert np.mean(np.abs(distances[0] - distances[1]) > 1e-3) < 0.01


DIGEST = """
import sys, numpy as np
from robopolicy.envs.physics import make_physics
from robopolicy.envs.physics.base import Box, Conditions, Start
from robopolicy.control.robots import LAIKAGO
physics = make_physics(sys.argv[1], LAIKAGO, visible=False)
for count, friction in eval(sys.argv[2]):
    boxes = [Box((0.0, 0.0, -0.5), (3.0, 3.0, 0.5))] * count
    place, conditions = np.array([0.0, 0.0, 0.5]), Conditions(friction=friction)
    physics.reset(Start(boxes, place, LAIKAGO.standing_joints(0.42), conditions))
    for tick in range(50):
        physics.command(LAIKAGO.standing_joints(0.42) + 0.1 * np.sin(tick), np.zeros(12), np.ones(12, bool))
        physics.step()
    print(count, friction, physics.state().position.tobytes().hex())
"""


SLOWER = [
    pytest.param("bullet", marks=[pytest.mark.slow, needs_bullet]),
    pytest.param("jax", marks=pytest.mark.slow),
]


@pytest.mark.parametrize("engine", [*SLOWER, "mujoco"])
def test_episodes_are_reproducible_across_processes_and_orders_of_resets(engine, monkeypatch, capsys):
    # 20 boxes exceed the number for which MuJoCo's model is compiled first.
    monkeypatch.setattr(sys, "argv", ["-c", engine, "[(1, 0.8), (20, 0.8), (1, 0.3)]"])
    exec(DIGEST, {})
    here = capsys.readouterr().out.splitlines()
    assert len({*here}) == 3
    command = [sys.executable, "-c", DIGEST, engine, "[(1, 0.3), (1, 0.8), (20, 0.8)]"]
    other = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert {*here} == {*other}


@pytest.mark.parametrize("engine", EACH_OF_QUADRUPEDS)
def test_a_closed_engine_refuses_calls(engine):
    physics = make_physics(engine, LAIKAGO, visible=False)
    start(physics, 0.42)
    physics.close()
    physics.close()
    for use in (physics.state, physics.step, lambda: start(physics, 0.42)):
        with pytest.raises(RuntimeError, match="closed"):
            use()


@pytest.mark.parametrize(
    "make", [lambda e: make_physics(e, LAIKAGO, visible=False), lambda e: make_arms(e, TOOL, visible=False)]
)
@pytest.mark.parametrize(
    ("engine", "package"),
    [("bullet", "pybullet: install it on Python 3.11 .* 'mujoco'"), ("mujoco", "mujoco")],
)
def test_an_engine_that_is_not_installed_is_named(monkeypatch, make, engine, package):
    monkeypatch.setattr("robopolicy.envs.physics.find_spec", lambda name: None)
    with pytest.raises(
        ModuleNotFoundError, match=f"engine is '{engine}', which needs the package {package}$"
    ):
        make(engine)


@pytest.mark.slow
def test_an_import_error_of_mujoco_names_the_opengl_backend():
    code = """
from robopolicy.envs.physics import make_arms, make_physics
from robopolicy.control.robots import LAIKAGO
from robopolicy.envs.sweep.kinematics import TOOL
makes = (
    lambda: make_physics("mujoco", LAIKAGO, visible=False),
    lambda: make_arms("mujoco", TOOL, visible=False),
)
for make in makes:
    try:
        make()
    except RuntimeError as error:
        print(str(error).splitlines()[0])
"""
    wrong = {**os.environ, "MUJOCO_GL": "nonsense"}
    run = subprocess.run([sys.executable, "-c", code], env=wrong, capture_output=True, text=True, check=True)
    lines = run.stdout.splitlines()
    assert len(lines) == 2
    assert all(line.startswith("mujoco cannot be loaded, with MUJOCO_GL=nonsense: ") for line in lines)


def test_an_error_after_the_import_is_not_converted(monkeypatch):
    def fail(self, *args, **kwargs):
        raise TypeError("the model is broken")

    monkeypatch.setattr("robopolicy.envs.physics.mujoco.MujocoPhysics.__init__", fail)
    monkeypatch.setattr("robopolicy.envs.physics.mujoco_arms.MujocoArms.__init__", fail)
    for make in (
        lambda: make_physics("mujoco", LAIKAGO, visible=False),
        lambda: make_arms("mujoco", TOOL, visible=False),
    ):
        with pytest.raises(TypeError, match="the model is broken"):
            make()

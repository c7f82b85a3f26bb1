"""The low level of the walker against the engines and against direct calculations."""

import numpy as np
import pytest
from engine_readings import readings
from installed_engines import EACH_ENGINE
from scipy.spatial.transform import Rotation

from robopolicy.control.commands import commands, foot_velocities
from robopolicy.control.gait import TrotConfig, path
from robopolicy.control.gait import standing as gait_stands
from robopolicy.control.kinematics import foot_positions, jacobians, joint_angles, leg_lines
from robopolicy.control.reading import read
from robopolicy.control.robots import LAIKAGO
from robopolicy.control.stance import FORCE_UNIT, ConvexMPC, Plan, StanceConfig
from robopolicy.envs.physics import make_physics
from robopolicy.envs.physics.base import BodyState, Start
from robopolicy.envs.quadruped.cameras import CAMERAS, DepthCamera, Ground
from robopolicy.envs.quadruped.terrain import Terrain, TerrainConfig
from robopolicy.envs.quadruped.walker import Walker

LEGS = LAIKAGO.legs


@pytest.mark.parametrize("entry", [(2, 0), (2, 1)])
def test_a_nan_in_the_rotation_gives_a_nan_tilt(entry):
    rotation = np.eye(3)
    rotation[entry] = np.nan
    zeros = np.zeros(3)
    assert np.isnan(read(BodyState(zeros, rotation, zeros, zeros, np.zeros(12), np.zeros(12)), LEGS).tilt)


@pytest.mark.parametrize("attitude", [(-0.5, 0.2), (0.1, -0.5)])
def test_the_tilt_is_the_larger_of_roll_and_pitch_to_either_side(attitude):
    rotation, zeros = Rotation.from_euler("xy", attitude).as_matrix(), np.zeros(3)
    reading = read(BodyState(zeros, rotation, zeros, zeros, np.zeros(12), np.zeros(12)), LEGS)
    np.testing.assert_allclose(reading.attitude[:2], attitude)
    assert reading.tilt == pytest.approx(0.5)


@pytest.fixture(scope="module", params=EACH_ENGINE)
def physics(request):
    engine = make_physics(request.param, LAIKAGO, visible=False)
    yield engine
    engine.close()


def random_joints(count: int) -> np.ndarray:
    rng = np.random.default_rng(7)
    low, high = np.array([-2.0, -0.6, -1.3]), np.array([2.0, 0.8, 0.2])  # some feet are above their hips
    return rng.uniform(low, high, (count, 4, 3))


def test_forward_kinematics_equal_the_engines(physics):
    terrain = Terrain(TerrainConfig(), np.random.default_rng(0))
    for joints in random_joints(4):
        physics.reset(Start(terrain.solids(), np.array([0.0, 0.0, 3.0]), joints.ravel()))
        expected = readings(physics).foot_positions() - [0.0, 0.0, 3.0]
        np.testing.assert_allclose(foot_positions(LEGS, joints), expected, atol=1e-5)


def test_inverse_kinematics_and_jacobians_match_forward_kinematics():
    for joints in random_joints(50):
        np.testing.assert_allclose(joint_angles(LEGS, foot_positions(LEGS, joints)), joints, atol=1e-9)
        step = 1e-6
        numeric = [
            (foot_positions(LEGS, joints + step * d) - foot_positions(LEGS, joints - step * d)) / (2 * step)
            for d in np.eye(3)
        ]
        np.testing.assert_allclose(jacobians(LEGS, joints), np.stack(numeric, axis=2), atol=1e-7)


def test_leg_lines_have_the_lengths_of_the_legs():
    for joints in random_joints(20):
        lines = leg_lines(LEGS, joints)
        np.testing.assert_allclose(lines[:, -1], foot_positions(LEGS, joints), atol=1e-12)
        lengths = np.linalg.norm(np.diff(lines, axis=1), axis=2)
        np.testing.assert_allclose(lengths[:, 0], [0.032875, 0.035165] * 2, atol=1e-9)
        np.testing.assert_allclose(lengths[:, 1], np.hypot(0.20833, 0.1422), atol=1e-9)
        np.testing.assert_allclose(lengths[:, 2], np.hypot(0.25, 0.022), atol=1e-9)


def test_the_leg_stretches_towards_a_foot_out_of_reach():
    joints = joint_angles(LEGS, foot_positions(LEGS, np.zeros((4, 3))) + np.array([0.0, 0.0, -1.0]))
    assert np.isfinite(joints).all()
    assert foot_positions(LEGS, joints)[:, 2].max() < -0.5


def test_trot_swings_diagonal_pairs_and_always_stands_on_one():
    trot = TrotConfig()
    times = np.arange(0, 3, 0.01)
    standing = np.array([gait_stands(t, trot.period, trot.swing) for t in times])
    np.testing.assert_array_equal(standing[:, 0], standing[:, 3])
    np.testing.assert_array_equal(standing[:, 1], standing[:, 2])
    assert (standing.sum(axis=1) >= 2).all()
    late = times >= trot.period
    assert standing[late].mean() == pytest.approx(0.6, abs=0.01)
    assert standing[times < 0.25, 1].all()


def test_swing_starts_at_lift_off_ends_at_landing_and_clears_the_ground():
    lift_off, landing = np.array([0.0, 0.1, 0.03]), np.array([0.3, 0.12, 0.025])
    np.testing.assert_allclose(path(lift_off, landing, 0.0, 0.1), lift_off)
    np.testing.assert_allclose(path(lift_off, landing, 1.0, 0.1), landing)
    middle = path(lift_off, landing, 0.5, 0.1)
    assert middle[0] == pytest.approx(0.8 * 0.3)
    assert middle[2] == pytest.approx(0.0275 + 0.1)


def test_mpc_carries_the_weight_when_standing_still_and_stays_in_the_friction_cone():
    mass, config = 25.567, StanceConfig()
    mpc = ConvexMPC(mass, np.diag([0.6, 1.27, 1.34]), config)
    feet = np.tile(
        foot_positions(LEGS, LAIKAGO.standing_joints(0.42).reshape(4, 3)) - [-0.0217, 0, -0.041],
        (config.steps, 1, 1),
    )
    standing = np.ones((config.steps, 4), bool)
    pose, still = np.array([0.0, 0, 0, 0, 0, 0.379]), np.zeros(6)
    forces = mpc.forces(Plan(pose, still, still, 0.379, feet, standing))
    assert forces[:, 2].sum() == pytest.approx(mass * 9.81, rel=0.03)
    torque = np.cross(feet[0], forces).sum(axis=0)
    np.testing.assert_allclose(torque, 0.0, atol=0.5)
    pushed = mpc.forces(Plan(pose, np.array([0, 0, 0, 2.0, 0, 0]), still, 0.379, feet, standing))
    assert pushed[:, 0].sum() < -30.0
    assert (np.abs(pushed[:, :2]) <= config.friction * pushed[:, 2:] + 0.1).all()
    standing[:, 0] = False
    lifted = mpc.forces(Plan(pose, still, still, 0.379, feet, standing))
    np.testing.assert_array_equal(lifted[0], 0.0)


def test_mpc_forces_stay_in_their_pyramids_for_random_states():
    config = StanceConfig()
    mpc = ConvexMPC(25.567, np.diag([0.6, 1.27, 1.34]), config)
    trot = TrotConfig()
    nominal = foot_positions(LEGS, LAIKAGO.standing_joints(0.42).reshape(4, 3))
    rng = np.random.default_rng(11)
    highest = config.force_limits[1] * 25.567 * 9.81 / 4
    for _ in range(400):
        pose = rng.normal(size=6) * [0.3, 0.3, 0.3, 0, 0, 0.05] + [0, 0, 0, 0, 0, 0.379]
        rates = rng.normal(size=6) * [2, 2, 2, 1, 1, 1]
        start = rng.uniform(0.3, 5.0)
        standing = np.array(
            [gait_stands(start + 0.04 * k, trot.period, trot.swing) for k in range(config.steps)]
        )
        feet = nominal + rng.normal(size=(config.steps, 4, 3)) * 0.05
        forces = mpc.forces(Plan(pose, rates, np.zeros(6), 0.379, feet, standing))
        assert (np.abs(forces[:, :2]) <= config.friction * forces[:, 2:] + 1e-6).all()
        assert forces[:, 2].max() <= highest + 1e-6
        np.testing.assert_array_equal(forces[~standing[0]], 0.0)


def test_the_mpcs_quadratic_is_the_cost_of_its_own_plan():
    # The cost of random forces by simulating the rigid body, against u.P u / 2 + q.u.
    rng = np.random.default_rng(4)
    config = StanceConfig()
    mass, inertia = 25.0, np.diag([0.3, 0.9, 1.0])
    mpc = ConvexMPC(mass, inertia, config)
    pose, rates = rng.normal(size=6) * [0.1, 0.1, 0, 0, 0, 0] + [0, 0, 0, 0, 0, 0.4], rng.normal(size=6) * 0.3
    desired, height = np.array([0, 0, 0.2, 0.6, -0.1, 0.0]), 0.42
    standing = np.tile([[True, False, False, True]], (config.steps, 1))
    standing[3:] = ~standing[3:]
    feet = rng.normal(size=(config.steps, 4, 3)) * 0.2 - [0.0, 0.0, 0.4]

    def cost(forces: np.ndarray) -> float:
        now, speed = pose.copy(), rates.copy()
        total = 0.5 * config.force_weight * np.sum(forces**2)
        target = np.array([0.0, 0.0, 0.0, pose[3], pose[4], height])
        for k in range(config.steps):
            push = forces[k][standing[k]]
            spin = np.linalg.solve(inertia, np.cross(feet[k][standing[k]], push).sum(axis=0))
            gain = np.concatenate([spin, push.sum(axis=0) / mass - [0.0, 0.0, 9.81]])
            now = now + config.step_period * speed + 0.5 * config.step_period**2 * gain
            speed = speed + config.step_period * gain
            target = target + config.step_period * desired * [0, 0, 1, 1, 1, 0]
            total += 0.5 * np.array(config.pose_weights) @ (now - target) ** 2
            total += 0.5 * np.array(config.rate_weights) @ (speed - desired) ** 2
        return float(total)

    P, q = mpc.quadratic(Plan(pose, rates, desired, height, feet, standing))
    assert P.shape == (3 * standing.sum(),) * 2
    for _ in range(5):
        forces = np.zeros((config.steps, 4, 3))
        forces[standing] = rng.normal(size=(standing.sum(), 3)) * 50
        u = forces[standing].ravel() / FORCE_UNIT
        expected = cost(forces) - cost(np.zeros_like(forces))
        assert u @ P @ u / 2 + q @ u == pytest.approx(expected, rel=1e-9)


def test_terrain_has_the_papers_sizes_and_margin_has_the_right_sign():
    config = TerrainConfig()
    for seed in range(50):
        terrain = Terrain(config, np.random.default_rng(seed))
        lengths = (terrain.ends - terrain.starts)[1:-1]
        gaps = terrain.starts[1:] - terrain.ends[:-1]
        assert ((lengths >= 0.5) & (lengths <= 0.8)).all()
        assert ((gaps >= 0.1) & (gaps <= 0.2)).all()
        assert terrain.ends[-1] > config.goal + 1.0
        middles = (terrain.starts + terrain.ends) / 2
        np.testing.assert_allclose(terrain.margin(ahead(middles)), (terrain.ends - terrain.starts) / 2)
        np.testing.assert_allclose(terrain.margin(ahead(terrain.ends[:-1] + gaps / 2)), -gaps / 2)
        np.testing.assert_allclose(terrain.margin(ahead(terrain.starts)), 0.0, atol=1e-12)


def ahead(x: np.ndarray) -> np.ndarray:
    """Points on the middle of the row."""
    return np.stack([x, np.zeros_like(x)], axis=-1)


def test_edges_of_turned_stones_are_those_of_their_boxes():
    config = TerrainConfig(height_step=0.04, yaw=0.19)
    terrain = Terrain(config, np.random.default_rng(0))
    assert np.ptp(terrain.tops) <= 0.04
    assert 0.1 < np.abs(terrain.yaws).max() <= 0.19
    for y in (-0.2, 0.0, 0.2):
        starts, ends = terrain.edges(np.array(y))
        for box, start, end, top in zip(terrain.stones(), starts, ends, terrain.tops, strict=True):
            assert box.center[2] + box.half[2] == pytest.approx(top)
            for x in (start, end):
                assert terrain.margin(np.array([x, y])) == pytest.approx(0.0, abs=1e-12)
                along = (x - box.center[0]) * np.cos(box.yaw) + y * np.sin(box.yaw)
                assert abs(along) == pytest.approx(box.half[0])
    with pytest.raises(ValueError, match=r"yaw is 0\.2"):
        TerrainConfig(painted=True, yaw=0.2, gap=(0.2, 0.3))


@pytest.mark.parametrize("name", sorted(CAMERAS))
def test_depth_equals_the_engines_own_ray_cast_to_a_millimetre(physics, name):
    camera = DepthCamera(CAMERAS[name])
    rng = np.random.default_rng(3)
    for seed in range(8):
        config = TerrainConfig(height_step=0.05, yaw=0.19) if seed % 2 else TerrainConfig()
        terrain = Terrain(config, np.random.default_rng(seed))
        base, yaw = np.array([rng.uniform(0, 7), rng.uniform(-0.1, 0.1), 0.42]), rng.uniform(-0.2, 0.2)
        # The robot is far away, since the engine's rays would hit its legs.
        physics.reset(Start(terrain.solids(), np.array([0.0, 50.0, 5.0]), np.zeros(12)))
        eye, rays = camera.pose(base, yaw)
        length = np.linalg.norm(rays, axis=1)
        reach = camera.config.reach * length.max()
        distance = readings(physics).ray_distances(
            np.tile(eye, (len(rays), 1)), rays / length[:, None], reach
        )
        expected = np.minimum(distance / length, camera.config.reach).reshape(24, 32)
        difference = np.abs(camera.image(Ground(terrain), base, yaw) - expected)
        # A ray that grazes an edge may hit or miss it: fewer than one in a hundred.
        assert np.mean(difference > 1e-3) < 0.01


def test_level_image_equals_the_image_of_an_endless_stone():
    endless = Terrain(TerrainConfig(width=20.0, first_edge=(30.0, 30.0)), np.random.default_rng(0))
    for config in CAMERAS.values():
        camera = DepthCamera(config)
        np.testing.assert_allclose(
            camera.image(Ground(endless), np.array([3.0, 0.0, 0.42]), 0.0),
            camera.level_image(0.42),
            atol=1e-5,
        )


def test_first_row_is_ahead_and_first_column_is_left():
    camera = DepthCamera(CAMERAS["belly_depth"])
    rays = camera.rays.reshape(24, 32, 3)
    assert rays[0, 16, 0] > 0 > rays[-1, 16, 0]
    assert rays[12, 0, 1] > 0 > rays[12, -1, 1]


def test_the_velocities_of_the_feet_are_the_changes_of_their_places():
    rng, step = np.random.default_rng(4), 1e-6
    for _ in range(20):
        joints, rates = rng.normal(0.0, 0.3, 12), rng.normal(0.0, 5.0, 12)
        attitude, spin = rng.normal(0.0, 0.3, 3), rng.normal(0.0, 2.0, 3)
        place, velocity = rng.normal(0.0, 1.0, 3), rng.normal(0.0, 1.0, 3)
        before = Rotation.from_euler("xyz", attitude)
        after = Rotation.from_rotvec(step * spin) * before
        now = read(BodyState(place, before.as_matrix(), velocity, spin, joints, rates), LEGS)
        moved = place + step * velocity, after.as_matrix(), velocity, spin, joints + step * rates, rates
        later = read(BodyState(*moved), LEGS)
        expected = (later.feet_world - now.feet_world) / step @ now.to_yaw.T
        np.testing.assert_allclose(foot_velocities(now, jacobians(LEGS, now.joints)), expected, atol=1e-4)


def test_grip_pushes_a_standing_foot_against_its_velocity():
    zeros, joints = np.zeros(3), LAIKAGO.standing_joints(0.42)
    rates = np.random.default_rng(4).normal(0.0, 1.0, 12)
    reading = read(BodyState(zeros, np.eye(3), zeros, zeros, joints, rates), LEGS)
    stands, still, feet = np.ones(4, bool), np.zeros(2), np.zeros((4, 3))

    def held_by(grip: float) -> np.ndarray:
        timing = np.array([0.5, 0.2, 0.3, 0.03, 0.1, grip])
        return commands(LEGS, reading, stands, 0.0, still, feet, feet, feet.copy(), np.zeros(4), timing, 0.0)[
            1
        ]

    np.testing.assert_array_equal(held_by(0.0), 0.0)
    torques = held_by(40.0)
    gradients = jacobians(LEGS, joints.reshape(4, 3))
    for leg in range(4):
        own = slice(3 * leg, 3 * leg + 3)
        force = -40.0 * gradients[leg] @ rates[own]
        np.testing.assert_allclose(torques[own], gradients[leg].T @ force)


@pytest.mark.parametrize(("aside", "yaw"), [(0.0, 0.0), (0.1, 0.2)])
def test_walker_trots_straight_at_its_speed_on_level_ground(physics, aside, yaw):
    terrain = Terrain(TerrainConfig(painted=True), np.random.default_rng(0))
    walker = Walker(LAIKAGO)
    place, turn = np.array([0.0, aside, 0.42]), (np.cos(yaw / 2), 0.0, 0.0, np.sin(yaw / 2))
    physics.reset(Start(terrain.solids(), place, LAIKAGO.standing_joints(0.42), quaternion=turn))
    walker.begin(physics)
    for _ in range(400):
        walker.advance()
    reading = read(physics.state(), LEGS)
    assert 1.8 < reading.position[0] < 2.5
    assert abs(reading.position[1]) < 0.05
    assert np.abs(reading.attitude).max() < 0.1
    assert 0.38 < reading.position[2] < 0.46

"""The batch of worlds in JAX against the environment on MuJoCo: ticks, plans, closed loops, cameras."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import robopolicy
from robopolicy.control.odometry import OdometryConfig
from robopolicy.control.robots import LAIKAGO
from robopolicy.control.stance import FORCE_UNIT, ConvexMPC
from robopolicy.envs.batched.cameras import image as depth_image
from robopolicy.envs.batched.contacts import Drive
from robopolicy.envs.batched.contacts import step as physics_step
from robopolicy.envs.batched.course import Robot
from robopolicy.envs.batched.dynamics import State
from robopolicy.envs.batched.mpc import Bounds, minimum
from robopolicy.envs.batched.stones import CAUSES, SteppingStonesBatch
from robopolicy.envs.physics.base import Box, Conditions, Start
from robopolicy.envs.physics.mujoco import MujocoPhysics
from robopolicy.envs.quadruped.difficulty import DisturbanceConfig, SensorConfig, with_blobs
from robopolicy.envs.quadruped.presets import PRESETS, SteppingStonesConfig
from robopolicy.envs.quadruped.stepping_stones import SteppingStones
from robopolicy.envs.quadruped.terrain import ScatteredConfig, Terrain, TerrainConfig

pytestmark = pytest.mark.slow  # XLA compiles each program for seconds

SEEDS = range(3)
# The dust differs from `paper` in the images alone: the legs here, its noise and spots below.
ELSEWHERE = ("dust", "dust-thick", "sparse-dirty", "sensors")
CONFIGS = {name: PRESETS[name] for name in PRESETS if name not in ELSEWHERE}
for name in ("hard", "extreme"):  # the noise of their cameras is tested below
    exact = replace(PRESETS[name].sensors, noise=0.0, dropout=0.0)
    CONFIGS[name] = replace(PRESETS[name], sensors=exact)
CONFIGS["front"] = replace(PRESETS["front"], odometry=OdometryConfig(drift=0.0))
CONFIGS["legs"] = replace(PRESETS["paper"], sensors=SensorConfig(legs=True))


def test_worlds_that_know_their_true_states_refuse_sensors():
    with pytest.raises(ValueError, match=r"^body_sensors are set, as in the preset sensors: many worlds"):
        SteppingStonesBatch("sensors")


def test_a_config_of_another_type_is_refused_by_name():
    with pytest.raises(ValueError, match=r"^SteppingStonesBatch config is {}: it must be of type Stepping"):
        SteppingStonesBatch(config={})


@pytest.mark.parametrize("made", [partial(SteppingStones, "jax"), SteppingStonesBatch])
def test_a_friction_that_float32_does_not_resolve_is_refused_on_jax(made):
    config = replace(PRESETS["paper"], disturbances=DisturbanceConfig(friction=(0.04, 1.0)))
    words = r"^friction is \(0\.04, 1\.0\): on the engine jax it must be 0\.05 or more; mujoco and bullet .*$"
    with pytest.raises(ValueError, match=words):
        made(config=config)


def state_of(data):
    """A copy of MuJoCo's state: JAX may share memory with arrays that it is given."""
    q, v = data.qpos.copy(), data.qvel.copy()
    return State(q[:3], q[3:7], q[7:].reshape(4, 3), v[:3], v[3:6], v[6:].reshape(4, 3))


def difference(ours, data):
    """The largest difference of any entry of the state."""
    pairs = zip(ours, state_of(data), strict=True)
    return max(float(np.abs(np.asarray(a) - b).max()) for a, b in pairs)


@pytest.mark.parametrize(("precision", "most"), [(64, 1e-11), (32, 1e-3)])
def test_a_control_period_is_mujocos(precision, most):
    # Random commands, pushes and states: rates are up to 100 rad/s.
    with jax.enable_x64(precision == 64):
        dtype = jnp.float64 if precision == 64 else jnp.float32
        rng, robot = np.random.default_rng(0), Robot(PRESETS["paper"])
        physics = MujocoPhysics(LAIKAGO)
        ground = Box((0.0, 0.0, -0.25), (5.0, 1.0, 0.25))
        boxes = jnp.asarray([[*ground.center, *ground.half, 1.0, 0.0]], dtype)
        period = jax.jit(partial(_period, config=physics.config))
        worst = 0.0
        for _ in range(6):
            friction, payload, strength = rng.uniform([0.4, 0.0, 0.8], [1.0, 6.0, 1.1])
            conditions = Conditions(friction, payload, strength)
            start = Start([ground], np.array([0, 0, 0.419]), LAIKAGO.standing_joints(0.42), conditions)
            physics.reset(start)
            physics.data.qvel[:] = rng.normal(0, 0.5, 18)
            model = jax.tree.map(partial(jnp.asarray, dtype=dtype), robot.model(payload))
            for _ in range(20):
                before = jax.tree.map(partial(jnp.asarray, dtype=dtype), state_of(physics.data))
                held = np.repeat(rng.random(4) < 0.5, 3)
                targets, torques = (
                    LAIKAGO.standing_joints(0.42) + rng.normal(0, 0.3, 12),
                    rng.normal(0, 15, 12),
                )
                push = rng.normal(0, 30, 3)
                physics.command(targets, torques, held)
                physics.push(push)
                physics.step()
                drive = Drive(
                    jnp.asarray(targets.reshape(4, 3), dtype),
                    jnp.asarray(torques.reshape(4, 3), dtype),
                    jnp.asarray(held.reshape(4, 3)),
                    jnp.asarray(push, dtype),
                )
                after = period(model, before, boxes, drive, friction, strength)
                worst = max(worst, difference(after, physics.data))
    assert worst < most


def _period(model, state, boxes, drive, friction, strength, config):
    for _ in range(config.substeps):
        state = physics_step(model, state, boxes, drive, friction, strength, config)
    return state


@pytest.mark.parametrize(("precision", "most"), [(64, 1e-6), (32, 1e-2)])
def test_the_plan_of_the_mpc_is_the_exact_minimum(monkeypatch, precision, most):
    solved, solve = [], ConvexMPC._solve
    env = robopolicy.make("stepping-stones", engine="mujoco", preset="hard").unwrapped

    def recorded(self, quadratic, linear):
        forces = solve(self, quadratic, linear)
        solved.append((quadratic, linear, forces, self._low[-1], self._high[-1]))
        return forces

    monkeypatch.setattr(ConvexMPC, "_solve", recorded)
    rng = np.random.default_rng(5)
    for seed in range(3):
        env.reset(seed=seed)
        over = False
        while not over:
            _, _, ended, cut, _ = env.step(rng.uniform(-1, 1, 4).astype(np.float32))
            over = ended or cut
    bound = 0
    with jax.enable_x64(precision == 64):
        solver = jax.jit(lambda P, q, low, high: minimum(P, q, Bounds(0.45, low, high)))
        for quadratic, linear, expected, low, high in solved:
            forces, has_settled = solver(quadratic, linear, low, high)
            assert has_settled
            assert np.abs(np.ravel(forces) - expected).max() * FORCE_UNIT < most
            sides = np.abs(expected.reshape(-1, 3)[:, :2]).max(axis=1)
            bound += (sides > 0.449999 * expected.reshape(-1, 3)[:, 2]).any()
    assert bound > 5  # plans with a force on the side of its pyramid


def test_float64_follows_float32_in_one_process():
    env = robopolicy.make("stepping-stones", engine="jax")
    env.reset(seed=0)
    env.step(np.zeros(4, np.float32))
    with jax.enable_x64(True):
        batch = SteppingStonesBatch(dtype=jnp.float64)
        walks, _ = batch.reset(courses := batch.courses(SEEDS))
        step = partial(jax.eval_shape, batch.step)
        assert step(courses, walks, jnp.zeros((len(SEEDS), 4)))[2].dtype == jnp.float64


@pytest.mark.parametrize("preset", CONFIGS)
@pytest.mark.parametrize(("precision", "most"), [(64, 1e-7), (32, 1e-4)])
def test_closed_loops_are_those_of_the_environment(preset, precision, most):
    with jax.enable_x64(precision == 64):
        config, dtype = CONFIGS[preset], jnp.float64 if precision == 64 else jnp.float32
        batch = SteppingStonesBatch(config=config, dtype=dtype)
        courses = batch.courses(SEEDS)
        reset, step = jax.jit(batch.reset), jax.jit(batch.step)
        walks, observation = reset(courses)
        envs = [SteppingStones("mujoco", config=config) for _ in SEEDS]
        expected = [env.reset(seed=seed)[0] for env, seed in zip(envs, SEEDS, strict=True)]
        running, totals, causes = set(SEEDS), np.zeros(len(SEEDS)), [""] * len(SEEDS)
        rng, shares = np.random.default_rng(5), []
        while running:
            for i in running:
                shares += _check_observation(observation, expected[i], i, precision)
            actions = rng.uniform(-1, 1, (len(SEEDS), batch.actions)).astype(np.float32)
            for i in running:
                actions[i] = np.clip(0.2 * actions[i] + envs[i].oracle_action(), -1, 1)
            walks, observation, rewards, done = step(courses, walks, actions)
            for i in sorted(running):
                expected[i], reward, ended, cut, info = envs[i].step(actions[i])
                assert np.abs(walks.each.body.position[i] - envs[i].walker.reading.position).max() < most
                assert float(rewards[i]) == pytest.approx(reward, abs=30 * most)
                assert bool(done[i]) == (ended or cut)
                totals[i] += reward
                if ended or cut:
                    running.remove(i)
                    causes[i] = info["cause"]
        assert [CAUSES[int(cause)] for cause in walks.each.cause] == causes
        assert np.asarray(walks.each.total) == pytest.approx(totals, abs=30 * most)
        assert not np.asarray(walks.each.unsettled).any()
        assert np.mean(shares) < 1e-4  # 1e-5 in `hard`


@pytest.mark.parametrize(
    "terrain",
    [
        TerrainConfig(length=(0.12, 0.15), gap=(0.05, 0.08)),
        ScatteredConfig(length=(0.10, 0.12), gap=(0.05, 0.08), breadth=(0.10, 0.12), aside=(0.05, 0.08)),
    ],
)
def test_cameras_see_all_stones_of_a_terrain_of_ones_own(terrain):
    config = SteppingStonesConfig(terrain=terrain)
    batch = SteppingStonesBatch(config=config)
    _, seen = jax.jit(batch.reset)(batch.courses([3]))
    expected = SteppingStones("mujoco", config=config).reset(seed=3)[0]
    assert max(_check_observation(seen, expected, 0, 32)) < 0.003  # 2 of 768 pixels, at edges


def _check_observation(ours, expected, index, precision):
    """The share of pixels that differ in each depth image: none in float64, at most a row in float32.

    A ray along an edge may see either side of it, and a whole row of rays may run along one edge.
    """
    most, shares = 1e-5 if precision == 64 else 1e-3, []
    for name, value in expected.items():
        differs = ~(np.abs(ours[name][index] - value) <= most)  # NaN differs
        assert differs.sum() <= (0 if value.ndim == 1 or precision == 64 else value.shape[1]), name
        if value.ndim > 1:
            shares.append(differs.mean())
    return shares


def test_noise_and_dropout_of_the_cameras_have_the_environments_distribution():
    batch, count = SteppingStonesBatch("extreme"), 40
    same = batch.courses([7] * count)
    _, noisy = jax.jit(batch.reset)(same._replace(seed=jnp.arange(count, dtype=jnp.uint32)))
    clean = SteppingStonesBatch("paper")
    course = batch.courses([7] * count)
    _, exact = jax.jit(clean.reset)(course)
    for name, image in exact.items():
        if name == "proprioception":
            continue
        depth, seen = np.asarray(image), np.asarray(noisy[name])
        inner = (depth > 0.1) & (depth < 1.8)
        share = (seen[inner] == 0).mean()
        sensors = batch.config.sensors
        # Four standard deviations each: a false alarm in 10,000 seeds.
        assert abs(share - sensors.dropout) < 4 * np.sqrt(sensors.dropout / inner.sum())
        kept = inner & (seen > 0)
        relative = (seen[kept] - depth[kept]) / depth[kept] ** 2
        assert abs(relative.std() / sensors.noise - 1) < 4 / np.sqrt(2 * kept.sum())
        assert abs(relative.mean()) < 4 * sensors.noise / np.sqrt(kept.sum())


@pytest.mark.parametrize(
    ("seeds", "words"),
    [
        ([], r"seeds is \[\]: there must be one at least"),
        ([0, 2**32], "seeds has 4294967296: each must be a whole number from 0 to 4294967295"),
        ([-1], "seeds has -1: each must be a whole number from 0 to 4294967295"),
        ([0.5], r"seeds has 0\.5: each must be a whole number from 0 to 4294967295"),
    ],
)
def test_courses_have_seeds_of_32_bits(seeds, words):
    with pytest.raises(ValueError, match=f"^{words}$"):
        SteppingStonesBatch("paper").courses(seeds)


def test_a_course_may_end_on_its_first_stone():
    terrain = TerrainConfig(goal=0.5, first_edge=(3.0, 3.5))
    batch = SteppingStonesBatch(config=replace(PRESETS["paper"], terrain=terrain))
    expected = Terrain(terrain, np.random.default_rng(np.random.PCG64(7))).rows()
    np.testing.assert_allclose(batch.courses([7]).edges[0, :1, :2], expected[:, :2], rtol=1e-6)


def test_a_camera_in_a_leg_does_not_see_it():
    camera, eye = replace(LAIKAGO.belly, width=8, height=6), jnp.array([0.3, 0.0, 0.37])
    ground = jnp.array([0.0, 0.0, -0.5, 5.0, 5.0, 0.5, 1.0, 0.0])
    ball = eye - jnp.array([0.0, 0.0, 0.02])
    clean, seen = (
        depth_image(camera, 1, jnp.float32(0.0), eye, jnp.float32(0.0), ground[None], ground, balls)
        for balls in (jnp.empty((0, 3)), ball[None])
    )
    np.testing.assert_array_equal(seen, clean)


def test_spots_are_those_of_the_environment():
    config, rng = PRESETS["dust-thick"].sensors, np.random.default_rng(0)
    image, draws = rng.uniform(0.0, 2.0, (24, 32)).astype(np.float32), rng.random((10, 4), np.float32)
    ours = jax.jit(lambda image, draws: with_blobs(config, image, draws, 2.0, jnp))(image, draws)
    np.testing.assert_allclose(ours, with_blobs(config, image, draws, 2.0, np), atol=1e-6)
    batch = SteppingStonesBatch("dust")
    _, seen = jax.jit(batch.reset)(batch.courses([7, 8]))
    plain = SteppingStonesBatch(config=replace(PRESETS["dust"], sensors=SensorConfig(legs=True)))
    _, clean = jax.jit(plain.reset)(plain.courses([7, 8]))
    wrong = np.abs(np.asarray(seen["belly_depth"]) - clean["belly_depth"]).reshape(2, -1) > 0.05
    assert wrong.any(axis=1).all()
    assert wrong.mean() < 0.5
    assert (wrong[0] != wrong[1]).any()


def test_a_world_that_diverges_falls_and_leaves_the_others_as_they_are():
    batch = SteppingStonesBatch("paper")
    courses = batch.courses(SEEDS)
    walks, _ = batch.reset(courses)
    step = jax.jit(batch.step)
    _, _, expected, _ = step(courses, walks, jnp.zeros((3, 4)))
    broken = walks.each.body.velocity.at[1, 0].set(jnp.nan)
    spoilt = walks._replace(each=walks.each._replace(body=walks.each.body._replace(velocity=broken)))
    after, _, rewards, done = step(courses, spoilt, jnp.zeros((3, 4)))
    assert done.tolist() == [False, True, False]
    assert CAUSES[int(after.each.cause[1])] == "fall"
    assert np.isnan(rewards[1])  # so that the candidate counts as diverged
    np.testing.assert_array_equal(rewards[jnp.array([0, 2])], expected[jnp.array([0, 2])])

"""What makes episodes harder: disturbances, imperfect cameras, and the presets that combine them."""

import gc
import weakref
from dataclasses import replace

import gymnasium
import numpy as np
import pytest
from installed_engines import EACH_OF_QUADRUPEDS

from robopolicy.control.gait import TrotConfig
from robopolicy.control.kinematics import LIMB_RADIUS
from robopolicy.control.robot import WalkerConfig
from robopolicy.control.robots import GO2
from robopolicy.envs.quadruped.body_sensors import BodySensorConfig
from robopolicy.envs.quadruped.cameras import CAMERAS, DepthCamera, Ground
from robopolicy.envs.quadruped.difficulty import (
    DisturbanceConfig,
    Disturbances,
    SensorConfig,
    Sensors,
    with_blobs,
)
from robopolicy.envs.quadruped.presets import PRESETS, RewardConfig, SteppingStonesConfig
from robopolicy.envs.quadruped.stepping_stones import SteppingStones
from robopolicy.envs.quadruped.terrain import ScatteredConfig, ScatteredTerrain, Terrain, TerrainConfig

ID = "robopolicy:robopolicy/SteppingStones-v0"
GROUND = Ground(Terrain(TerrainConfig(), np.random.default_rng(0)))
PERIOD = 0.01


def seen(config: SensorConfig, seed: int = 0, frames: int = 30) -> list[dict[str, np.ndarray]]:
    """Images from a base that moves on by 1 cm a control period."""
    sensors = Sensors(CAMERAS, config, PERIOD, np.random.default_rng(seed))
    images = []
    for frame in range(frames):
        base = np.array([0.01 * frame, 0.0, 0.42])
        sensors.see(base, 0.0, lambda base=base: base - [[0.0, 0.1, 0.2]])
        images.append(sensors.images(GROUND))
    return images


def test_perfect_cameras_see_what_is_there():
    for frame, images in enumerate(seen(SensorConfig(), frames=5)):
        for name, image in images.items():
            base = np.array([0.01 * frame, 0.0, 0.42])
            balls = base - [[0.0, 0.1, 0.2]]
            np.testing.assert_array_equal(image, DepthCamera(CAMERAS[name]).image(GROUND, base, 0.0, balls))


def test_latency_is_counted_in_control_periods():
    prompt, late = seen(SensorConfig()), seen(SensorConfig(latency=0.04))
    for frame in range(4, 30):
        np.testing.assert_array_equal(late[frame]["front_depth"], prompt[frame - 4]["front_depth"])
    np.testing.assert_array_equal(late[2]["front_depth"], prompt[0]["front_depth"])
    assert np.any(late[10]["front_depth"] != prompt[10]["front_depth"])


def test_noise_grows_with_the_square_of_depth_and_stays_in_range():
    clean = np.array([i["belly_depth"] for i in seen(SensorConfig(), frames=200)])
    noisy = np.array([i["belly_depth"] for i in seen(SensorConfig(noise=0.02), frames=200)])
    assert noisy.min() >= 0.0
    assert noisy.max() <= CAMERAS["belly_depth"].reach
    spread = (noisy - clean) / clean**2
    # 150 000 draws: the estimate of 0.02 is good to 0.2 %.
    assert spread.std() == pytest.approx(0.02, rel=0.02)
    assert abs(spread.mean()) < 3e-4


def test_dropout_reads_zero_at_its_rate():
    images = np.array([i["front_depth"] for i in seen(SensorConfig(dropout=0.1), frames=200)])
    # 150 000 pixels: a standard error of 0.0008.
    assert np.mean(images == 0.0) == pytest.approx(0.1, abs=0.004)


def test_spots_of_wrong_depth_are_few_and_elsewhere_in_every_image():
    clean = np.array([i["belly_depth"] for i in seen(SensorConfig(), frames=50)])
    config = SensorConfig(blobs=3, blob_radius=(2.0, 2.0), blob_error=0.2)
    wrong = np.array([i["belly_depth"] for i in seen(config, frames=50)]) - clean
    assert 0.15 < np.abs(wrong).max() <= 3 * 0.2  # where spots overlap, errors add
    # A disc of radius 2 covers 14 pixels or fewer, and less at an edge of the image.
    count = (wrong != 0).reshape(50, -1).sum(axis=1)
    assert 15 < count.mean() <= count.max() <= 42
    assert (wrong != 0).any(axis=0).mean() > 0.5


def test_a_spot_hides_the_same_share_of_a_finer_image():
    config = SensorConfig(blobs=1, blob_radius=(3.0, 3.0))
    draws = np.array([[0.5, 0.5, 0.0, 1.0]], np.float32)
    shares = [
        np.mean(with_blobs(config, np.ones((24 * finer, 32 * finer), np.float32), draws, 2.0, np) > 1)
        for finer in (1, 4)
    ]
    np.testing.assert_allclose(shares, np.pi * 3**2 / (24 * 32), rtol=0.15)


def test_cameras_see_legs_where_they_are():
    # One ball straight below the belly camera, one far off its images.
    base, below = np.array([0.3, 0.0, 0.42]), np.array([[0.3, 0.0, 0.2], [5.0, 0.0, 0.2]])
    camera = DepthCamera(CAMERAS["belly_depth"])
    clean, image = camera.image(GROUND, base, 0.0), camera.image(GROUND, base, 0.0, below)
    rows, columns = np.nonzero(image != clean)
    assert set(rows) <= {9, 10, 11, 12, 13, 14}
    assert set(columns) <= {13, 14, 15, 16, 17, 18}
    # From the camera, 5 cm below the base, to the top of the ball.
    assert image.min() == pytest.approx(0.37 - 0.2 - LIMB_RADIUS, abs=2e-3)


@pytest.mark.parametrize("far", [0.01, 1.2])
def test_a_camera_in_a_leg_does_not_see_it(far):
    base, camera = np.array([0.3, 0.0, 0.42]), DepthCamera(CAMERAS["belly_depth"])
    ball = base + camera.config.position - [0.0, 0.0, far * LIMB_RADIUS]
    clean, image = camera.image(GROUND, base, 0.0), camera.image(GROUND, base, 0.0, ball[None])
    assert np.array_equal(image, clean) == (far < 1)
    assert (image > 0).all()


def test_legs_hide_stones_on_dust_and_nowhere_else():
    images = {}
    for name in ("paper", "dust"):
        config = PRESETS[name]
        config = replace(config, sensors=replace(config.sensors, noise=0.0, blobs=0))
        env = SteppingStones("mujoco", config=config)
        images[name] = env.reset(seed=0)[0]["belly_depth"]
        feet = env.walker.reading.feet
    nearer = images["paper"] - images["dust"]
    assert (nearer >= 0).all()
    hidden = nearer > 0.02
    assert 0.03 < hidden.mean() < 0.4
    # Standing, the left legs are in the left half of the image, and as large as the right ones.
    assert hidden[:, :16].sum() == pytest.approx(hidden[:, 16:].sum(), rel=0.1)
    assert feet[1, 1] > 0.1


def test_a_mount_has_one_error_for_the_whole_episode():
    config = SensorConfig(mount_shift=0.05, mount_tilt=5.0)
    first, again, other = seen(config, 1, 3), seen(config, 1, 3), seen(config, 2, 3)
    np.testing.assert_array_equal(first[2]["front_depth"], again[2]["front_depth"])
    assert np.any(first[2]["front_depth"] != other[2]["front_depth"])
    still = Sensors(CAMERAS, config, PERIOD, np.random.default_rng(1))
    for _ in range(3):
        still.see(np.array([0.0, 0.0, 0.42]), 0.0)
        np.testing.assert_array_equal(still.images(GROUND)["front_depth"], first[0]["front_depth"])


def test_disturbances_stay_in_their_ranges_and_follow_the_seed():
    config = DisturbanceConfig(
        friction=(0.4, 1.0), payload=(1.0, 6.0), motor_strength=(0.8, 1.1), push=0.3, push_seconds=0.1
    )
    samples = [Disturbances(config, 25.0, 20.0, np.random.default_rng(seed)) for seed in range(200)]
    for name in ("friction", "payload", "motor_strength"):
        low, high = getattr(config, name)
        values = np.array([getattr(d.conditions, name) for d in samples])
        assert low <= values.min() < low + 0.05 * (high - low)
        assert high >= values.max() > high - 0.05 * (high - low)
    for disturbances in samples[:20]:
        times = np.arange(0.0, 20.0, 0.01)
        forces = [disturbances.force(t) for t in times]
        pushed = np.array([force is not None for force in forces])
        assert not pushed[:200].any()
        starts = times[1:][pushed[1:] & ~pushed[:-1]]
        assert ((np.diff(starts) >= 2.0) & (np.diff(starts) <= 4.2)).all()
        speeds = [np.linalg.norm(f) * 0.1 / 25.0 for f in forces if f is not None]
        assert 0.0 < max(speeds) <= 0.3
    forces = np.concatenate([disturbances.forces for disturbances in samples])
    assert len({tuple(quarter) for quarter in forces[:, :2] > 0}) == 4
    again = Disturbances(config, 25.0, 20.0, np.random.default_rng(3))
    assert again.conditions == samples[3].conditions


def test_scattered_stones_have_gaps_on_all_sides():
    config = ScatteredConfig()
    for seed in range(10):
        terrain = ScatteredTerrain(config, np.random.default_rng(seed))
        again = ScatteredTerrain(config, np.random.default_rng(seed))
        np.testing.assert_array_equal(terrain.slabs, again.slabs)
        small = terrain.slabs[1:-1]
        for low, high, sizes in ((0, 1, config.length), (2, 3, config.breadth)):
            side = small[:, high] - small[:, low]
            assert ((side >= sizes[0] - 1e-9) & (side <= sizes[1] + 1e-9)).all()
        middles = (small[:, [0, 2]] + small[:, [1, 3]]) / 2
        halves = (small[:, [1, 3]] - small[:, [0, 2]]) / 2
        np.testing.assert_allclose(terrain.margin(middles), halves.min(axis=1))
        for axis in range(2):
            beyond = middles.copy()
            beyond[:, axis] += halves[:, axis] + 0.04  # half of the smallest gap
            inner = np.abs(beyond[:, 1]) < 0.5
            assert (terrain.margin(beyond[inner]) <= -0.04 + 1e-9).all()
        boxes = terrain.stones()[1:-1]
        np.testing.assert_allclose([box.center[:2] for box in boxes], middles)
        np.testing.assert_allclose([box.half[:2] for box in boxes], halves)
        assert all(box.center[2] + box.half[2] == 0.0 for box in boxes)


@pytest.mark.parametrize("preset", sorted(PRESETS))
@pytest.mark.parametrize("engine", EACH_OF_QUADRUPEDS)
def test_every_preset_plays_on_every_engine_by_its_seed(engine, preset):
    env = gymnasium.make(ID, engine=engine, preset=preset, episode_seconds=1.0)
    results = []
    for _ in range(2):
        observation, _ = env.reset(seed=5)
        while True:
            assert env.observation_space.contains(observation)
            observation, _, ended, cut, info = env.step(env.unwrapped.oracle_action())
            if ended or cut:
                break
        results.append((info["distance"], observation["proprioception"].tobytes()))
    assert results[0] == results[1]
    assert results[0][0] > 0.3
    env.close()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: TerrainConfig(painted="no"), "TerrainConfig painted is 'no': it must be of type bool"),
        (lambda: SensorConfig(legs="no"), "SensorConfig legs is 'no': it must be of type bool"),
        (lambda: WalkerConfig(gait=None), "WalkerConfig gait is None: it must be of type TrotConfig"),
        (lambda: WalkerConfig(gait=TrotConfig(duty=0.519)), "duty is 0.519: .* must be 0.52 or more"),
        (lambda: TerrainConfig(gap=(0.3, 0.1)), r"gap is \(0.3, 0.1\)"),
        (lambda: TerrainConfig(length=(-1.0, -0.5)), "length is"),
        (lambda: TerrainConfig(goal=float("nan")), "goal is nan"),
        (lambda: TerrainConfig(yaw=0.5), r"yaw is 0.5: it must be a number from 0 to 0.19"),
        (lambda: TerrainConfig(height_step=-1.0), "height_step is -1.0"),
        (lambda: DisturbanceConfig(friction=(-1.0, 0.5)), "friction is"),
        (lambda: DisturbanceConfig(payload=(2.0,)), "payload is"),
        (lambda: DisturbanceConfig(push=float("inf")), "push is inf"),
        (lambda: SensorConfig(dropout=1.5), "dropout is 1.5"),
        (lambda: SensorConfig(latency=-0.1), "latency is -0.1"),
        (lambda: BodySensorConfig(gyroscope_bias=-0.1), "gyroscope_bias is -0.1"),
        (lambda: BodySensorConfig(rate_noise=float("nan")), "rate_noise is nan"),
        (
            lambda: SteppingStonesConfig(body_sensors=BodySensorConfig(delay=0.02)),
            "delay is 0.02: it must be a number from 0 to 0.01",
        ),
        (lambda: SteppingStonesConfig(robot="go2"), "robot is 'go2'"),
        (lambda: SteppingStonesConfig(walker=3), "walker is 3: it must be of type WalkerConfig"),
        (lambda: SteppingStonesConfig(cameras=("top",)), "it must name one or more of front, belly"),
        (lambda: SteppingStonesConfig(cameras=5), "cameras is 5: it must name one or more of front, belly"),
        (lambda: SteppingStonesConfig(policy_period=0.033), "policy_period is 0.033"),
        (lambda: SteppingStonesConfig(policy_period=0.1), "half the gait's period, 0.25, must be a multiple"),
        (lambda: SteppingStonesConfig(robot=GO2), "robot 'go2' stands with 'FR_calf_joint' at -0.739"),
        (lambda: BodySensorConfig(accelerometer_bias=0.3), "accelerometer_bias is 0.3: .* from 0 to 0.2"),
        (lambda: SteppingStonesConfig(largest_offset=3.0), "largest_offset is 3.0"),
        (lambda: SteppingStonesConfig(largest_aside=3.0), "largest_aside is 3.0"),
        (
            lambda: SteppingStonesConfig(widest_drift=float("nan")),
            "^widest_drift is nan: it must be a number",
        ),
        (lambda: RewardConfig(fall=float("nan")), "^fall is nan: it must be a number"),
        (lambda: RewardConfig(edge_margin=0.0), "^edge_margin is 0.0: it must be a number"),
        (lambda: ScatteredConfig(breadth=(0.2, 0.1)), r"breadth is \(0.2, 0.1\)"),
        (lambda: ScatteredConfig(painted=True), "painted is True"),
    ],
)
def test_bad_settings_of_the_stones_are_refused_by_name(make, words):
    with pytest.raises(ValueError, match=words):
        make()


@pytest.mark.parametrize("engine", EACH_OF_QUADRUPEDS)
def test_vector_environments_play_the_episodes_of_single_ones(engine):
    settings = {"engine": engine, "episode_seconds": 0.5}
    action = np.zeros((2, 4), np.float32)
    together = gymnasium.make_vec(ID, num_envs=2, vectorization_mode="sync", **settings)
    together.reset(seed=[3, 4])
    for _ in range(5):
        stepped, *_ = together.step(action)
    together.close()
    for index, seed in enumerate((3, 4)):
        alone = gymnasium.make(ID, **settings)
        alone.reset(seed=seed)
        for _ in range(5):
            observation, *_ = alone.step(action[index])
        for name, values in observation.items():
            np.testing.assert_array_equal(stepped[name][index], values)
        alone.close()


@pytest.mark.slow
@pytest.mark.parametrize("engine", EACH_OF_QUADRUPEDS)
def test_hundreds_of_episodes_leave_memory_as_it_was(engine):
    def resident() -> int:
        with open("/proc/self/statm") as pages:
            return int(pages.read().split()[1])

    env = gymnasium.make(ID, engine=engine, preset="hard", episode_seconds=0.25)
    for episode in range(400):
        if episode == 50:
            after_fifty = resident()
        env.reset(seed=episode)
        while not any(env.step(np.zeros(4, np.float32))[2:4]):
            pass
    # Within 5 %; other tests of this process may already have made it large, so at most 20 MB in any case.
    assert resident() - after_fifty < min(0.05 * after_fifty, 20e6 / 4096)
    env.close()


def test_an_environment_that_is_dropped_is_freed_at_once():
    env = gymnasium.make(ID, engine="mujoco", preset="dust")
    env.reset(seed=0)
    env.step(np.zeros(4, np.float32))
    dropped = weakref.ref(env.unwrapped)
    gc.disable()  # Bullet's client would wait for it
    try:
        del env
        assert dropped() is None
    finally:
        gc.enable()

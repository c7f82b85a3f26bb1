"""The estimate of a robot's state: a known motion with feet that stand, bad readings, and the sensors."""

import re
from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from robopolicy.control.estimate import EstimatorConfig, Sensed, StateEstimator
from robopolicy.control.gait import cycle, path, standing
from robopolicy.control.kinematics import foot_positions, jacobians, joint_angles
from robopolicy.control.odometry import Odometry
from robopolicy.control.reading import read
from robopolicy.control.robots import GO2
from robopolicy.control.state import BodyState
from robopolicy.envs.quadruped.body_sensors import BodySensorConfig, BodySensors, SensedState
from robopolicy.envs.quadruped.stepping_stones import SteppingStones

PERIOD, SECONDS = 0.01, 8.0
POINT_FEET = replace(GO2, foot_radius=1e-6)  # feet that do not roll
NO_FAULTS = BodySensorConfig(**dict.fromkeys(vars(BodySensorConfig()), 0.0))


def base(time):
    """Place, rotation, velocity and angular velocity of a base that starts at rest and sways."""
    ahead, faster = 0.5 * (time - 0.5 * (1 - np.exp(-2 * time))), 0.5 * (1 - np.exp(-2 * time))
    place = np.array([ahead, 0.02 * (1 - np.cos(4 * time)), 0.3 + 0.005 * (1 - np.cos(9 * time))])
    velocity = np.array([faster, 0.08 * np.sin(4 * time), 0.045 * np.sin(9 * time)])
    yaw, pitch = 0.1 * (1 - np.cos(time)), 0.03 * (1 - np.cos(7 * time))
    heading = Rotation.from_euler("z", yaw)
    rotation = (heading * Rotation.from_euler("y", pitch)).as_matrix()
    spin = np.array([0.0, 0.0, 0.1 * np.sin(time)]) + heading.apply([0.0, 0.21 * np.sin(7 * time), 0.0])
    return place, rotation, velocity, spin


def walk():
    """States of a trot with known feet, and which feet stood in the control period before each."""
    gait, legs = POINT_FEET.walker.gait, POINT_FEET.legs
    below = legs.hips + np.stack([np.zeros(4), legs.plane, np.zeros(4)], axis=1)
    feet, lift_offs, states, stood = None, None, [], []
    for tick in range(round(SECONDS / PERIOD)):
        time = tick * PERIOD
        place, rotation, velocity, spin = base(time)
        stands = standing(time, gait.period, gait.swing)
        nominal = place + below @ rotation.T + 0.5 * gait.stance * velocity
        nominal[:, 2] = 0.0
        feet = nominal.copy() if feet is None else feet
        lift_offs = feet.copy() if lift_offs is None else lift_offs
        for leg in np.flatnonzero(~stands):
            share = cycle(time, gait.period)[leg] / gait.swing
            lift_offs[leg] = feet[leg] if share == 0.0 else lift_offs[leg]
            feet[leg] = path(lift_offs[leg], nominal[leg], share, 0.05)
        feet[stands, 2] = 0.0
        reach = (feet - place) @ rotation
        joints = joint_angles(legs, reach)
        # What the joints do for feet that stand; the rates of other legs are not used.
        moving = -(velocity @ rotation) - np.cross(rotation.T @ spin, reach)
        rates = np.linalg.solve(jacobians(legs, joints), moving[..., None])[..., 0]
        states.append(BodyState(place, rotation, velocity, spin, joints.ravel(), rates.ravel()))
        stood.append(stands)
    return states, [np.ones(4, bool), *stood[:-1]]


STATES, STOOD = walk()


def readings(config, seed=0, turn=0.0):
    """What sensors read of the walk; `turn` (rad) is where the IMU's x axis points."""
    sensors = BodySensors(config, PERIOD, np.random.default_rng(seed))
    z = Rotation.from_euler("z", turn)
    for state in STATES:
        yield sensors.read(
            state._replace(
                rotation=z.as_matrix() @ state.rotation,
                linear_velocity=z.apply(state.linear_velocity),
                angular_velocity=z.apply(state.angular_velocity),
            )
        )


def estimates(sensed, stood=STOOD, config=None):
    sensed, estimator = list(sensed), StateEstimator(POINT_FEET, config, PERIOD)
    states = [estimator.reset(sensed[0])]
    for each, stands in zip(sensed[1:], stood[1:], strict=True):
        states.append(estimator.update(each, stands))
    return states


def errors(states):
    """Root mean square of the velocity's error (m/s), and the largest error of the place (m)."""
    pairs = list(zip(states, STATES, strict=True))
    velocity = np.array([one.linear_velocity - other.linear_velocity for one, other in pairs])
    place = np.array([one.position - other.position for one, other in pairs])
    return float(np.sqrt((velocity**2).mean())), float(np.abs(place).max())


def test_exact_sensors_give_the_motion():
    velocity, place = errors(estimates(readings(NO_FAULTS)))
    assert velocity < 1e-4
    assert place < 1e-4


@pytest.mark.parametrize("seed", range(3))
def test_faulty_sensors_give_the_motion_over_three_metres(seed):
    velocity, place = errors(estimates(readings(BodySensorConfig(), seed)))
    assert velocity < 0.005
    assert place < 0.05


@pytest.mark.parametrize("stood", [False, True])
def test_without_the_contacts_the_estimate_is_lost(stood):
    # No foot ever stands, and the IMU is alone; or feet in the air count as standing.
    velocity, place = errors(estimates(readings(BodySensorConfig()), [np.full(4, stood)] * len(STATES)))
    assert velocity > 0.02
    assert place > 0.3


def test_where_the_imu_points_at_the_start_does_not_matter():
    one, other = (estimates(readings(NO_FAULTS, turn=turn))[-1] for turn in (0.0, 2.0))
    for part, same in zip(one, other, strict=True):
        np.testing.assert_allclose(part, same, atol=1e-9)


def rocking(time):
    """The state of a robot at `time` that rocks over feet, which roll on the ground without slipping."""
    legs, height, step = GO2.legs, GO2.walker.height, 1e-5
    stood = GO2.standing_joints(height).reshape(4, 3)
    toes = foot_positions(legs, stood) + np.array([0.0, 0.0, height])

    def pose(time):
        share = 1 - np.cos(3 * time)
        rotation = Rotation.from_euler("xyz", [0.1 * share, -0.06 * share, 0.0])
        place, joints = np.array([0.02 * share, -0.015 * share, height - 0.01 * share]), stood
        for _ in range(20):
            across = -0.06 * share + (joints - stood)[:, 1:].sum(axis=1)
            along = 0.1 * share + legs.turns * (joints - stood)[:, 0]
            rolled = legs.foot_radius * np.stack([across, -along, 0 * along], axis=1)
            joints = joint_angles(legs, (toes + rolled - place) @ rotation.as_matrix())
        return place, rotation, joints.ravel()

    (before, turn, low), (after, later, high) = pose(time - step), pose(time + step)
    place, rotation, joints = pose(time)
    spin = (later * turn.inv()).as_rotvec() / (2 * step)
    return BodyState(
        place,
        rotation.as_matrix(),
        (after - before) / (2 * step),
        spin,
        joints,
        (high - low) / (2 * step),
    )


def test_feet_that_roll_do_not_move_the_base():
    states = [rocking(PERIOD * tick) for tick in range(200)]
    sensors, estimator = BodySensors(NO_FAULTS, PERIOD, np.random.default_rng(0)), StateEstimator(GO2)
    estimator.reset(sensors.read(states[0]))
    odometry, stand = Odometry(GO2.legs, read(states[0], GO2.legs)), np.ones(4, bool)
    for state in states[1:]:
        estimated = estimator.update(sensors.read(state), stand)
        odometry.update(read(state, GO2.legs), stand)
        np.testing.assert_allclose(odometry.place, state.position[:2], atol=1e-6)
        np.testing.assert_allclose(estimated.position, state.position, atol=2e-4)
        np.testing.assert_allclose(estimated.linear_velocity, state.linear_velocity, atol=2e-3)


def test_feet_that_have_just_touched_down_tell_nothing():
    sensed, since = [], np.full(4, 99)
    for each, stands in zip(readings(NO_FAULTS), STOOD, strict=True):
        since = np.where(stands, since + 1, 0)
        sliding = np.repeat(since <= round(EstimatorConfig().settling / PERIOD), 3)
        sensed.append(each._replace(joint_velocities=each.joint_velocities + 5.0 * sliding))
    velocity, place = errors(estimates(sensed))
    assert velocity < 1e-4
    assert place < 1e-4


def test_the_bias_at_rest_counts_as_gravity():
    bias = [0.0, 0.0, 0.5]
    sensed = [each._replace(accelerometer=each.accelerometer + bias) for each in readings(NO_FAULTS)]
    velocity, _ = errors(estimates(sensed))
    assert velocity < 0.005


def test_the_same_readings_give_the_same_bits():
    sensed = list(readings(BodySensorConfig()))[:50]
    used = StateEstimator(POINT_FEET, period=PERIOD)
    ends = []
    for estimator in (used, used, StateEstimator(POINT_FEET, period=PERIOD)):
        estimator.reset(sensed[0])
        ends.append([estimator.update(each, stands) for each, stands in zip(sensed, STOOD, strict=False)])
    np.testing.assert_array_equal(*(np.concatenate([np.concatenate(s, None) for s in e]) for e in ends[:2]))
    np.testing.assert_array_equal(*(np.concatenate([np.concatenate(s, None) for s in e]) for e in ends[1:]))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        *(({name: np.nan}, f"{name} holds a number that is not finite") for name in Sensed._fields),
        ({"gyroscope": np.zeros(4)}, "gyroscope has the shape [4]: it must be [3]"),
        ({"orientation": np.zeros(4)}, "orientation has the norm 0: it must be a quaternion of norm 1"),
    ],
)
def test_a_bad_reading_is_refused_by_its_name_and_changes_nothing(wrong, message):
    sensed = list(readings(BodySensorConfig()))[:3]
    estimator = StateEstimator(POINT_FEET, period=PERIOD)
    bad = sensed[1]
    for name, value in wrong.items():
        if np.isscalar(value):
            value = np.append(getattr(bad, name)[:-1], value)
        bad = bad._replace(**{name: value})
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        estimator.reset(bad)
    estimator.reset(sensed[0])
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        estimator.update(bad, STOOD[1])
    with pytest.raises(ValueError, match=r"^standing has the shape \[3\]: it must be \[4\]$"):
        estimator.update(sensed[1], np.ones(3, bool))
    expected = estimates(sensed, STOOD[:3])[-1]
    estimator.update(sensed[1], STOOD[1])
    for part, same in zip(estimator.update(sensed[2], STOOD[2]), expected, strict=True):
        np.testing.assert_array_equal(part, same)


def test_readings_may_be_lists_and_views_but_no_other_types():
    sensed = list(readings(BodySensorConfig()))[:2]
    expected = estimates(sensed, STOOD[:2])[-1]
    views = [Sensed(*(np.repeat(part, 2)[::2] for part in one)) for one in sensed]
    lists = [Sensed(*(part.tolist() for part in one)) for one in sensed]
    for given in (views, lists):
        for part, same in zip(estimates(given, STOOD[:2])[-1], expected, strict=True):
            np.testing.assert_array_equal(part, same)
    longer = [one._replace(orientation=1.05 * one.orientation) for one in sensed]
    for part, same in zip(estimates(longer, STOOD[:2])[-1], expected, strict=True):
        np.testing.assert_allclose(part, same, atol=1e-12)
    estimator = StateEstimator(POINT_FEET, period=PERIOD)
    estimator.reset(sensed[0])
    with pytest.raises(ValueError, match=r"^gyroscope has the type <U1: it must hold real numbers$"):
        estimator.update(sensed[1]._replace(gyroscope=np.array(["a", "b", "c"])), STOOD[1])
    with pytest.raises(ValueError, match=r"^standing has the type float64: it must be bool$"):
        estimator.update(sensed[1], np.full(4, np.nan))


def test_an_estimate_begins_at_rest():
    (sensed,) = list(readings(NO_FAULTS))[:1]
    estimator = StateEstimator(GO2)
    with pytest.raises(RuntimeError, match=r"^call reset before update$"):
        estimator.update(sensed, np.ones(4, bool))
    with pytest.raises(
        ValueError, match=r"^accelerometer reads 2 m/s\^2: it must be within 1 of 9.81 at rest"
    ):
        estimator.reset(sensed._replace(accelerometer=np.array([0.0, 0.0, 2.0])))
    with pytest.raises(ValueError, match=r"^ahead is nan: it must be a number"):
        estimator.reset(sensed, np.nan)
    with pytest.raises(ValueError, match=r"^slip is -1.0: it must be"):
        EstimatorConfig(slip=-1.0)
    with pytest.raises(ValueError, match=r"^period is 0: it must be"):
        StateEstimator(GO2, period=0)


@pytest.mark.slow
def test_sensors_read_late_and_in_steps():
    late, coarse = replace(NO_FAULTS, delay=0.004), replace(NO_FAULTS, joint_step=0.01, rate_step=0.1)
    for exact, delayed, stepped, before, now in zip(
        *map(readings, (NO_FAULTS, late, coarse)), [STATES[0], *STATES], STATES, strict=False
    ):
        expected = 0.4 * before.joint_positions + 0.6 * now.joint_positions
        np.testing.assert_allclose(delayed.joint_positions, expected, atol=1e-12)
        turned = Rotation.from_quat(np.roll(delayed.orientation, -1)).inv() * Rotation.from_quat(
            np.roll(exact.orientation, -1)
        )
        np.testing.assert_allclose(turned.as_rotvec(), 0.004 * exact.gyroscope, atol=1e-9)
        for name, step in (("joint_positions", 0.01), ("joint_velocities", 0.1)):
            steps = getattr(stepped, name) / step
            np.testing.assert_allclose(steps, np.round(steps), atol=1e-9)
            assert np.abs(getattr(stepped, name) - getattr(exact, name)).max() <= step / 2 + 1e-12


def test_faults_of_sensors_fit_each_other():
    names = ("accelerometer_bias", "gyroscope_bias", "joint_offset")
    sensors = BodySensors(replace(NO_FAULTS, **dict.fromkeys(names, 0.05)), PERIOD, np.random.default_rng(0))
    sensed = [sensors.read(STATES[0]) for _ in range(100)]
    turn = Rotation.from_quat(np.roll(sensed[-1].orientation, -1))
    # An IMU at rest takes what it feels for gravity, and turns with its gyroscope.
    up = turn.apply(sensed[-1].accelerometer)
    np.testing.assert_allclose(up[:2], 0.0, atol=1e-3)
    assert np.abs(sensed[-1].accelerometer[:2]).min() > 5e-3
    yaw = PERIOD * sum(each.gyroscope[2] for each in sensed)
    assert turn.as_euler("xyz")[2] == pytest.approx(yaw, rel=1e-3)
    # A joint stops where its own sensor reads the target.
    target = STATES[0].joint_positions
    stopped = SensedState(GO2, sensors, PERIOD).targets(target)
    assert np.abs(stopped - target).max() > 0.01
    angles = sensors.read(STATES[0]._replace(joint_positions=stopped)).joint_positions
    np.testing.assert_allclose(angles, target)


def test_a_walker_with_sensors_knows_its_state_nearly():
    # Feet that do not roll would make the estimate short by 6 %.
    env = SteppingStones(engine="mujoco", preset="sensors", episode_seconds=6.0)
    walker, speeds, grounds = env.walker, [], []
    seen, _ = env.reset(seed=1)

    def record():
        speeds.append(walker.reading.velocity - walker.truth.velocity)
        grounds.append(walker.true_ground)

    env.on_tick = record
    over = False
    while not over:
        seen, _, ended, cut, info = env.step(env.oracle_action())
        over = ended or cut
    assert info["cause"] == "time"
    assert info["distance"] == walker.truth.position[0] != walker.reading.position[0]
    np.testing.assert_allclose(seen["proprioception"][5:8], walker.reading.velocity, atol=1e-6)
    assert 0.001 < np.sqrt((np.array(speeds) ** 2).mean()) < 0.02
    assert np.abs(walker.misplaced[:2]).max() < 0.03 * info["distance"]
    np.testing.assert_allclose(grounds, 0.0, atol=0.01)
    env.close()

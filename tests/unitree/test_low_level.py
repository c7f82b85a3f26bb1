"""The low level of a Go2: it walks by messages, ignores bad ones, and comes to rest by itself.

The robot of most tests stands still and ignores commands, which takes no simulator.
"""

from dataclasses import replace

import numpy as np
import pytest
from unitree_peers import SCALE, STANDING, low_level, state

from robopolicy.control.robots import GO2
from robopolicy.unitree.checks import SafetyConfig
from robopolicy.unitree.low_level import LowLevel, Phase
from robopolicy.unitree.records import checksum, sealed

WALKS = 600  # ms: it stands for 200, then walks


def play(low, messages, until=WALKS, acts=True):
    """Give `messages(tick)`, a list, every 2 ms. Returns the phases in their order, and all commands."""
    phases, commands = [low.phase], []
    for tick in range(2, until + 2, 2):
        heard = [low.update(message) for message in messages(tick)]
        if not any(heard):
            low.missing(0.002)
        if acts:
            low.act(0.3 * SCALE)
        if low.phase is not phases[-1]:
            phases.append(low.phase)
        commands.append(low.command.copy())
    return phases, commands


def sound(tick):
    return [state(tick)]


def in_milliseconds(tick):
    return [state(tick - 1), state(tick)]


def around_the_end_of_the_count(tick):
    return [state((tick - WALKS // 2) % 2**32)]


@pytest.mark.parametrize("messages", [sound, in_milliseconds, around_the_end_of_the_count])
def test_it_stands_and_walks(messages):
    low = low_level()
    phases, commands = play(low, messages)
    assert phases == [Phase.WAITING, Phase.STANDING, Phase.WALKING]
    assert low.steps == 8  # every 50 ms from its first
    assert low.readings["proprioception"].shape == (30,)
    assert low.reason is None
    assert not low.ignored
    for command in commands:
        assert command["crc"] == checksum(command)
        motors, spare = command["motor_cmd"][:12], command["motor_cmd"][12:]
        assert (np.abs(motors["tau"]) <= GO2.torques).all()
        held = motors["kp"] > 0
        assert not motors["tau"][held].any()
        assert not motors["kd"][~held].any()
        assert not any(spare[name].any() for name in ("kp", "kd", "tau"))
    assert any((command["motor_cmd"]["tau"] != 0).any() for command in commands)
    assert low.periods == WALKS // 2 - 1


def test_its_plans_are_as_far_apart_as_in_training():
    walker, trained = low_level().walker, GO2.walker
    every = trained.replan_every * trained.control_period
    assert walker.replan_every * walker.control_period == pytest.approx(every)


def test_no_joint_is_sent_beyond_its_limits():
    narrow = np.stack([STANDING - 0.1, STANDING + 0.1], axis=1)
    low = LowLevel(replace(GO2, limits=tuple(map(tuple, narrow.tolist()))), GO2.walker, 0.05, SCALE, 0.01)
    low.walk()
    phases, commands = play(low, sound)
    assert phases[-1] is Phase.WALKING, low.reason
    motors = np.array([command["motor_cmd"][:12] for command in commands])
    held = motors["kp"] > 0
    beyond = np.abs(motors["q"] - STANDING)[held]
    assert beyond.max() == pytest.approx(0.1, abs=1e-6)


LIES = np.array([0.0, 1.36, -2.65] * 4)


def bent_to(joints, tick):
    return [state(tick, joints=lambda made: made["motor_state"]["q"].__setitem__(slice(0, 12), joints))]


def test_a_robot_that_lies_rises_slowly():
    low = low_level()

    def obeys(tick):
        rises = low.phase in (Phase.WAITING, Phase.RISING)
        joints = low.command["motor_cmd"]["q"][:12] if tick > 2 else LIES
        return bent_to(joints, tick) if rises else [state(tick)]

    phases, commands = play(low, obeys, until=2600)
    assert phases == [Phase.WAITING, Phase.RISING, Phase.STANDING, Phase.WALKING]
    targets = np.array([command["motor_cmd"]["q"][:12] for command in commands[:1000]])
    np.testing.assert_allclose(targets[0], LIES, atol=0.01)
    np.testing.assert_allclose(targets[-1], STANDING, atol=0.01)
    assert np.abs(np.diff(targets, axis=0)).max() < 0.003


def test_a_robot_that_does_not_rise_lies_down_again():
    low = low_level()
    phases, _ = play(low, lambda tick: bent_to(LIES, tick), until=5000)
    assert phases == [Phase.WAITING, Phase.RISING, Phase.LYING, Phase.DAMPED]
    assert low.reason.startswith("the robot did not stand up: joint 'FR_calf_joint' is at -2.65 rad, and -1.")


def felt(*readings):
    """States of a robot whose accelerometer has `readings` (m/s^2) in turn."""

    def messages(tick):
        reading = 0.0, 0.0, readings[tick // 2 % len(readings)]
        return [state(tick, change=lambda made: made["imu_state"].__setitem__("accelerometer", reading))]

    return messages


def test_an_accelerometer_with_noise_does_not_stop_it():
    low = low_level()
    play(low, felt(8.6, 11.0), until=400)  # 9.8 on average; each is refused as gravity
    assert low.phase is Phase.WALKING, low.reason


def test_an_accelerometer_without_gravity_lays_it_down():
    low = low_level()
    phases, _ = play(low, felt(11.0), until=3000)
    assert phases == [Phase.WAITING, Phase.STANDING, Phase.LYING, Phase.DAMPED]
    assert low.reason.startswith("the robot does not stand still: accelerometer reads 11")


def test_its_yaw_counts_from_the_first_state():
    def turned(tick):
        half = 0.5 * (0.3 + 0.0005 * min(tick, 100))
        yaw = np.cos(half), 0.0, 0.0, np.sin(half)
        return [state(tick, change=lambda made: made["imu_state"].__setitem__("quaternion", yaw))]

    low = low_level()
    play(low, turned, until=300)
    assert low.readings["odometry"][2] == pytest.approx(0.049, abs=1e-4)


def test_the_same_messages_give_the_same_commands():
    first, second = (play(low_level(), sound)[1] for _ in range(2))
    assert [command.tobytes() for command in first] == [command.tobytes() for command in second]


def test_missing_messages_do_not_stop_its_clock():
    def few(tick):
        return [state(tick)] if tick % 10 == 0 else []

    low = low_level()
    play(low, few)
    assert low.phase is Phase.WALKING
    assert low.steps == 8
    assert (low.periods, low.bridged) == (295, 236)


def dropped(tick):
    return [] if tick == 400 else [state(tick)]


def doubled(tick):
    return [state(tick), state(tick)]


def swapped(tick):
    return [state(tick + 2), state(tick)] if tick % 4 else []


def flipped(tick):
    made = state(tick)
    made["imu_state"]["rpy"][0] = 1.0
    return [made] if tick % 8 == 0 else [state(tick)]


def put(field, value, tick):
    """A message that comes after the sound one, one tick ahead, with its checksum right."""

    def change(made):
        where = made
        *path, last = field
        for part in path:
            where = where[part]
        where[last] = value

    return state(tick + 2, change=change)


def forged(*field, value):
    def messages(tick):
        return [state(tick), put(field, value, tick)] if tick % 50 == 0 else [state(tick)]

    return messages


@pytest.mark.parametrize(
    ("messages", "kind"),
    [
        (dropped, None),
        (doubled, "old"),
        (swapped, "old"),
        (flipped, "checksum"),
        (forged("motor_state", "dq", value=np.nan), "not finite"),
        (forged("imu_state", "gyroscope", value=np.inf), "not finite"),
        (forged("imu_state", "gyroscope", value=1e6), "range"),
        (forged("imu_state", "accelerometer", value=-1e4), "range"),
        (forged("motor_state", 3, "dq", value=1e4), "range"),
        (forged("imu_state", "quaternion", value=0.0), "quaternion"),
        (forged("motor_state", "q", value=0.5), "joint count"),
        (forged("motor_state", 1, "q", value=2.0), "jump"),
        (forged("tick", value=10**6), "jump"),
    ],
)
def test_bad_messages_are_ignored(messages, kind):
    low = low_level()
    play(low, messages)
    assert low.phase is Phase.WALKING, low.reason
    assert set(low.ignored) == ({kind} if kind else set())


def after_400(message):
    return lambda tick: message(tick) if tick > 400 else [state(tick)]


def tilted(*axis):
    """By 0.9 rad about an axis [3]."""
    quaternion = np.cos(0.45), *(np.sin(0.45) * np.array(axis))
    return after_400(
        lambda tick: [
            state(tick, change=lambda made: made["imu_state"].__setitem__("quaternion", quaternion))
        ]
    )


def bent(rate):
    """The calf turns by `rate` (rad/s)."""

    def messages(tick):
        angle = STANDING[2] + 1e-3 * rate * max(0, tick - 400)
        return [state(tick, change=lambda made: made["motor_state"]["q"].__setitem__(2, angle))]

    return messages


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        (after_400(lambda tick: []), "no valid rt/lowstate for 42 ms"),
        (
            after_400(lambda tick: [state(400)]),
            "no valid rt/lowstate for 42 ms: rt/lowstate has the tick 400",
        ),
        (after_400(lambda tick: [put(("motor_state", "q"), 0.3, tick - 2)]), "a Go2 has 12 motors"),
        (after_400(lambda tick: [put(("motor_state", "q"), np.nan, tick - 2)]), "q of a motor is not finite"),
        *((tilted(*axis), "the trunk is tilted by 0.9 rad") for axis in ((1, 0, 0), (0, 1, 0), (0, -1, 0))),
        *((bent(rate), "joint 'FR_calf_joint' is at") for rate in (10.0, -20.0)),
        (
            after_400(lambda tick: [put(("motor_state", 4, "temperature"), 90, tick - 2)]),
            "motor 'FL_thigh_joint' has 90 degrees",
        ),
        (
            after_400(lambda tick: [put(("motor_state", 0, "lost"), 1051, tick - 2)]),
            "motor 'FR_hip_joint' has lost 51 packets",
        ),
    ],
)
def test_a_robot_that_cannot_be_read_or_is_unsafe_is_damped(messages, said):
    low = low_level()
    phases, _ = play(low, messages, until=1200)
    assert phases[-2:] == [Phase.WALKING, Phase.DAMPED]
    assert said in low.reason
    assert len(low.reason.splitlines()) == 1
    motors = low.command["motor_cmd"][:12]
    assert not motors["kp"].any()
    assert not motors["tau"].any()
    assert not motors["dq"].any()
    assert (motors["kd"] == SafetyConfig.damping).all()
    assert low.command["crc"] == checksum(low.command)
    assert low.rests


def test_a_low_level_that_fails_damps(monkeypatch):
    monkeypatch.setattr("robopolicy.control.stance.SOLVED", None)
    low = LowLevel(GO2, replace(GO2.walker, speed=5.0), 0.05, SCALE, 0.01)
    low.walk()
    phases, _ = play(low, sound)
    assert phases[-1] is Phase.DAMPED
    assert low.reason.startswith("the low level failed: the MPC found no ground forces")


def test_settings_with_which_no_robot_stands_are_refused():
    low = LowLevel(GO2, replace(GO2.walker, height=9.0), 0.05, SCALE, 0.01)
    with pytest.raises(ValueError, match="bundle has a low level that does not walk: joint 'FR_calf_joint'"):
        low.rehearse()


@pytest.mark.parametrize("apart", [0.0009, 0.002])
def test_a_damped_robot_rests_after_half_a_second_without_valid_messages(apart):
    low = low_level()
    low.damp("the test ends")
    for _ in range(round(0.4 / apart)):
        low.missing(apart)
    assert not low.rests
    for _ in range(round(0.2 / apart)):
        low.missing(apart)
    assert low.rests


def test_a_rehearsal_includes_the_stop():
    low = low_level()
    low.rehearse()
    assert (low.phase, low.reason) == (Phase.LYING, "the rehearsal ends")


REST = [Phase.HALTING, Phase.LYING, Phase.DAMPED]


def test_a_silent_driver_is_a_stop():
    low = low_level()
    phases, _ = play(low, sound, until=5000, acts=False)
    assert phases[2:] == [Phase.WALKING, *REST]
    assert low.reason == "the driver was silent for 4 steps"
    assert low.steps == 5


@pytest.mark.parametrize("reason", ["the policy stops", ""])
def test_a_stop_lays_the_robot_down_and_is_kept(reason):
    low = low_level()
    play(low, sound)
    low.stop(reason)
    low.stop("the drive has ended")
    low.act(SCALE)
    phases, commands = play(low, lambda tick: [state(tick + WALKS)], until=4500)
    assert phases[1:] == REST
    assert low.reason == (reason or "no reason was given")
    assert low.rests
    held = np.array([command["motor_cmd"]["q"][:12] for command in commands[1000:1650]])
    assert np.abs(np.diff(held, axis=0)).max() < 0.01, "the joints do not jump"


def test_the_gait_of_a_halt_is_on_the_clock_of_the_robot():
    def halted(missing):
        low = low_level()
        play(low, sound)
        low.stop("the test ends")
        _, commands = play(low, lambda tick: [state(tick + WALKS)] * (tick > missing), until=300)
        return np.array([command["motor_cmd"]["kp"][:12] > 0 for command in commands])

    whole, late = halted(0), halted(20)
    assert (whole[1:] != whole[:-1]).any()
    np.testing.assert_array_equal(late[20:], whole[20:])


def test_a_stop_before_the_first_step_lays_it_down():
    low = low_level()
    play(low, sound, until=100)
    low.stop("no policy came")
    phases, _ = play(low, lambda tick: [state(tick + 100)], until=3000)
    assert phases[1:] == REST[1:]


def test_a_command_moves_the_feet_that_have_just_lifted_off():
    def swung(at, command=(0.1,) * 4):
        low = LowLevel(GO2, GO2.walker, 0.05, np.full(len(command), 0.1, np.float32), 0.01)
        low.walk()
        for tick in range(2, 302, 2):
            low.update(sealed(state(tick)))
            if tick == at:
                low.act(np.array(command, np.float32))
            else:
                low.hold()
        return low.command["motor_cmd"]["q"][:12].copy(), low.overdue

    (never, _), (now, in_time), (late, _), (too_late, overdue) = (swung(at) for at in (0, 206, 212, 230))
    assert np.abs(never - now)[[1, 10]].min() > 0.05, "FR and RL lift off at 204 ms"
    np.testing.assert_array_equal(now, late)
    np.testing.assert_array_equal(never, too_late)
    assert (in_time, overdue) == (0, 1)
    aside, _ = swung(206, (0.0,) * 4 + (0.1, 0.0, 0.0, 0.0))
    assert abs(never - aside)[0] > 0.05, "FR alone lands to the side"
    np.testing.assert_array_equal(never[3:], aside[3:])

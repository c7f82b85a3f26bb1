"""The tables of robots: their checks, their models in the engines, and the controller without an engine."""

import json
import re
from dataclasses import asdict, replace

import numpy as np
import pytest
from engine_readings import readings
from installed_engines import EACH_ENGINE

from robopolicy.control.controller import Controller
from robopolicy.control.kinematics import foot_positions, jacobians, joint_angles
from robopolicy.control.reading import read
from robopolicy.control.robots import GO2, LAIKAGO, ROBOTS, robot_of
from robopolicy.control.state import BodyState
from robopolicy.envs.physics import make_physics
from robopolicy.envs.physics.base import Box, Start
from robopolicy.envs.quadruped.presets import presets_of
from robopolicy.envs.quadruped.stepping_stones import SteppingStones
from robopolicy.envs.quadruped.walker import Walker

GROUND = [Box((0.0, 0.0, -0.5), (3.0, 3.0, 0.5))]


@pytest.fixture(params=[GO2, LAIKAGO], ids=lambda robot: robot.name)
def robot(request):
    return request.param


@pytest.fixture(params=EACH_ENGINE)
def physics(request, robot):
    engine = make_physics(request.param, robot, visible=False)
    yield engine
    engine.close()


def stood(robot, physics, height=None, joints=None):
    """`physics` with `robot` at `height` (m), on its nominal height over the ground by default."""
    height = robot.walker.height if height is None else height
    joints = robot.standing_joints(robot.walker.height) if joints is None else joints
    physics.reset(Start(GROUND, np.array([0.0, 0.0, height]), joints))


def poses(robot):
    rng = np.random.default_rng(7)
    return robot.standing_joints(robot.walker.height) + rng.uniform(-0.3, 0.3, (6, 12))


def test_the_lengths_of_the_table_are_those_of_the_models(robot, physics):
    for joints in poses(robot):
        stood(robot, physics, 3.0, joints)
        expected = readings(physics).foot_positions() - [0.0, 0.0, 3.0]
        np.testing.assert_allclose(
            foot_positions(robot.legs, joints.reshape(4, 3)), expected, atol=1e-5
        )  # pi has six digits in Laikago's


def test_the_masses_of_the_table_are_those_of_the_models(robot, physics):
    stood(robot, physics)
    mass, center, inertia = physics.mass_properties()
    assert robot.mass == pytest.approx(mass, rel=2e-3)
    np.testing.assert_allclose(robot.center, center, atol=1e-3)
    np.testing.assert_allclose(robot.inertia, inertia, atol=1e-3)


def test_kinematics_invert_and_differentiate(robot):
    legs, step = robot.legs, 1e-6
    for joints in poses(robot).reshape(-1, 4, 3):
        np.testing.assert_allclose(joint_angles(legs, foot_positions(legs, joints)), joints, atol=1e-9)
        numeric = [
            (foot_positions(legs, joints + step * d) - foot_positions(legs, joints - step * d)) / (2 * step)
            for d in np.eye(3)
        ]
        np.testing.assert_allclose(jacobians(legs, joints), np.stack(numeric, axis=2), atol=1e-7)


def test_a_falling_go2_turns_alike_in_both_engines():
    # Its trunk's centre of mass is not at the origin of the base, where Bullet would put it.
    ends = []
    quaternion = (0.9, 0.2, -0.3, 0.2)
    quaternion = tuple((np.array(quaternion) / np.linalg.norm(quaternion)).tolist())
    for param in EACH_ENGINE:
        pytest.importorskip({"bullet": "pybullet", "mujoco": "mujoco"}[param.values[0]])
        physics = make_physics(param.values[0], GO2, visible=False)
        joints = GO2.standing_joints(0.31)
        physics.reset(Start(GROUND, np.array([0.0, 0.0, 3.0]), joints, quaternion=quaternion))
        for _ in range(10):
            physics.command(joints + 0.2, np.full(12, 0.5), np.arange(12) % 3 == 0)
            physics.step()
        ends.append(physics.state())
        physics.close()
    np.testing.assert_allclose(ends[0].position, ends[1].position, atol=5e-4)
    np.testing.assert_allclose(ends[0].rotation, ends[1].rotation, atol=2e-3)
    np.testing.assert_allclose(ends[0].linear_velocity, ends[1].linear_velocity, atol=5e-3)
    np.testing.assert_allclose(ends[0].angular_velocity, ends[1].angular_velocity, atol=2e-2)


def test_the_limits_of_go2s_table_are_those_of_its_model():
    physics = make_physics("mujoco", GO2, visible=False)
    stood(GO2, physics)
    ranges = [physics.model.joint(name).range for name in GO2.joints]
    np.testing.assert_allclose(GO2.limits, ranges, atol=1e-12)
    torques = [physics.model.actuator(name).forcerange for name in GO2.joints]
    np.testing.assert_allclose(np.outer(GO2.torques, [-1.0, 1.0]), torques)
    physics.close()


@pytest.mark.parametrize("engine", EACH_ENGINE)
@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"joints": ("FR_tail_joint", *GO2.joints[1:])}, "the joint 'FR_tail_joint', which its model"),
        ({"toes": (*GO2.toes[:3], "nose")}, "the toe 'nose', which its model"),
    ],
)
def test_a_name_that_the_model_lacks_is_refused(engine, wrong, words):
    with pytest.raises(ValueError, match=f"^robot 'go2' has {words} go2/go2.[a-z]+ lacks$"):
        make_physics(engine, replace(GO2, **wrong), visible=False)


@pytest.mark.parametrize("engine", EACH_ENGINE)
@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (
            {"joints": (*GO2.joints[3:], *GO2.joints[:3])},
            ": when it stands with 'FL_hip_joint' at -0.300 rad",
        ),
        ({"toes": (GO2.toes[1], GO2.toes[0], *GO2.toes[2:])}, ": when it stands, its model"),
        ({"turns": (-1.0, 1.0, 1.0, 1.0)}, ": when it stands with 'FR_hip_joint' at -0.300 rad, its model"),
        ({"shank": (0.215, 0.002)}, ": when it stands, its model"),
        ({"mass": 12.0}, " has a mass of 12.0 kg: its model go2/go2.[a-z]+ has 15.21 kg$"),
        (
            {"foot_radius": 0.06},
            " has a foot_radius of 0.06 m: its model go2/go2.[a-z]+ has the toe 'FR_foot' with 0.022 m$",
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_table_that_does_not_fit_its_model_is_refused(engine, wrong, words):
    with pytest.raises(ValueError, match=f"^robot 'go2'{words}"):
        make_physics(engine, replace(GO2, **wrong), visible=False)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"joints": GO2.joints[:11]}, "robot 'go2' has joints of the shape [11]: it must be [12]"),
        (
            {"toes": (*GO2.toes[:3], "FR_foot")},
            "robot 'go2' has toes FR_foot, FL_foot, RR_foot, FR_foot: each",
        ),
        (
            {"limits": ((1.0, -1.0), *GO2.limits[1:])},
            "robot 'go2' has limits 1.0 and -1.0 of 'FR_hip_joint': low must be below high, both from",
        ),
        (
            {"limits": ((-1.0, np.inf), *GO2.limits[1:])},
            "robot 'go2' has limits -1.0 and inf of 'FR_hip_joint': low must be below high, both from",
        ),
        (
            {"torques": (0.0, *GO2.torques[1:])},
            "robot 'go2' has a torque of 0.0 for 'FR_hip_joint': it must be above 0",
        ),
        ({"turns": (1.0, 1.0, 1.0, 0.5)}, "robot 'go2' has turns (1.0, 1.0, 1.0, 0.5): each must be 1 or -1"),
        ({"mass": -1.0}, "robot 'go2': mass is -1.0: it must be a number"),
        ({"center": (np.nan, 0.0, 0.0)}, "robot 'go2' has center (nan, 0.0, 0.0): its numbers"),
        ({"held_torque": (np.nan,) * 12}, "robot 'go2' has held_torque (nan, "),
        ({"held_torque": (20.0,) * 3}, "robot 'go2' has held_torque of the shape [3]: it must be [12]"),
        ({"stiffness": 10**400}, "robot 'go2' has stiffness 1000"),
        ({"belly": replace(GO2.belly, tilt=10**400)}, "robot 'go2' has belly {'position': ("),
        ({"torques": (10**20, *GO2.torques[1:])}, "robot 'go2' has a torque of 1000000"),
        ({"limits": ((-(10**20), 1.0), *GO2.limits[1:])}, "robot 'go2' has limits -1000000"),
        ({"trot": replace(GO2.trot, overshoot=np.inf)}, "robot 'go2' has trot {'progress': ("),
        ({"held_torque": -1.0}, "robot 'go2': held_torque is -1.0: it must be a number"),
        ({"front": replace(GO2.front, reach=0.0)}, "robot 'go2': reach of front is 0.0: it must be a number"),
        ({"thigh": (0.0, 0.0)}, "robot 'go2': the length of thigh is 0.0: it must be a number"),
        ({"inertia": ((0.0, 0.0, 0.0),) * 3}, "robot 'go2' has the inertia ((0.0, 0.0, 0.0)"),
        (
            {"inertia": ((1.0, 0.0), (0.0, 1.0))},
            "robot 'go2': inertia is ((1.0, 0.0), (0.0, 1.0)): it must be of type",
        ),
        (
            {"walker": replace(GO2.walker, height=0.44)},
            "robot 'go2' stands with 'FR_calf_joint' at ",
        ),
        (
            {"walker": replace(GO2.walker, height=0.5)},
            "robot 'go2': height of walker is 0.5: it must be a number from 0.0220094 to 0.448009",
        ),
        ({"lowest_base": 0.31}, "robot 'go2': lowest_base is 0.31: it must be below the height of walker"),
        ({"rugged": replace(GO2.rugged, height=0.5)}, "robot 'go2': height of rugged is 0.5: it must be"),
        (
            {"trot": replace(GO2.trot, speed=(0.2,) * 4)},
            "robot 'go2': trot: speed is (0.2, 0.2, 0.2, 0.2): it",
        ),
        ({"name": ""}, "the name of a robot is '': it must be"),
    ],
)
def test_a_bad_table_is_refused_in_one_line(wrong, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}") as refused:
        replace(GO2, **wrong)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("table", [GO2, LAIKAGO], ids=str)
def test_a_table_comes_back_from_the_json_of_a_run(table):
    assert robot_of(json.loads(json.dumps(asdict(table)))) == table
    with pytest.raises(ValueError, match=r"^robot: lacks the settings .*'belly'"):
        robot_of({"name": "mine"})


def test_an_unknown_robot_is_refused():
    with pytest.raises(ValueError, match=r"^robot is 'spot': it must be one of laikago, go2"):
        robot_of("spot")
    with pytest.raises(ValueError, match=r"^robot is 'go2': the engine jax has laikago alone"):
        SteppingStones(engine="jax", robot="go2")


def test_courses_are_in_units_of_the_leg():
    share = (0.213 + np.hypot(0.213, 0.002)) / (np.hypot(0.20833, 0.1422) + np.hypot(0.25, 0.022))
    for name, of_laikago in presets_of(LAIKAGO).items():
        config = presets_of(GO2)[name]
        for part in ("gap", "length", "first_edge", "height_step"):
            wide, narrow = getattr(of_laikago.terrain, part), getattr(config.terrain, part)
            np.testing.assert_allclose(narrow, share * np.array(wide), rtol=1e-4)
        assert config.largest_offset == pytest.approx(share * of_laikago.largest_offset, rel=1e-4)
        payload = np.array(of_laikago.disturbances.payload) * GO2.mass / LAIKAGO.mass
        np.testing.assert_allclose(config.disturbances.payload, payload)
        assert (config.terrain.goal, config.terrain.width) == (
            of_laikago.terrain.goal,
            of_laikago.terrain.width,
        )


def scaled(scale):
    """A Go2 of another size, as far as presets ask."""
    legs = {name: tuple(scale * part for part in getattr(GO2, name)) for name in ("thigh", "shank")}
    walkers = {"walker": GO2.walker, "rugged": GO2.rugged}
    walkers = {name: replace(walker, height=scale * walker.height) for name, walker in walkers.items()}
    return replace(GO2, **legs, **walkers, lowest_base=scale * GO2.lowest_base)


@pytest.mark.parametrize("scale", [0.263, 0.5, 2.0, 2.361])
def test_every_preset_is_one_for_small_and_large_legs(scale):
    assert presets_of(scaled(scale)).keys() == presets_of(GO2).keys()


@pytest.mark.parametrize("scale", [0.25, 2.5])
def test_legs_of_which_presets_have_no_course_are_refused(scale):
    leg = re.escape(f"{scaled(scale).leg}")
    words = rf"the length of its leg is {leg}: it must be a number from 0\.112 to 1\.006"
    with pytest.raises(ValueError, match=f"^robot 'go2': {words}$"):
        presets_of(scaled(scale))


def test_the_controller_alone_gives_the_commands_that_a_simulated_robot_gets(robot):
    ends = []
    for alone in (True, False):
        physics = make_physics("mujoco", robot, visible=False)
        stood(robot, physics)
        offsets = np.array([[0.05, 0.0], [-0.05, 0.02], [0.0, 0.0], [0.03, -0.02]])
        if alone:
            controller = Controller(robot)
            controller.reset(physics.state(), physics.mass_properties())
            for _ in range(120):
                commands = controller.step(physics.state(), offsets)
                assert (np.abs(commands.torques) <= robot.torques).all()
                physics.command(*commands)
                physics.step()
        else:
            walker = Walker(robot)
            walker.begin(physics)
            walker.offsets[:] = offsets
            for _ in range(120):
                walker.advance()
        ends.append(physics.state())
        physics.close()
    assert ends[0].position[0] > 0.2
    for one, other in zip(*ends, strict=True):
        np.testing.assert_array_equal(one, other)


def test_torques_stay_within_the_table():
    weak = replace(GO2, torques=(2.0,) * 12)
    physics = make_physics("mujoco", weak, visible=False)
    stood(weak, physics)
    controller = Controller(weak)
    controller.reset(physics.state())
    torques = controller.step(physics.state()).torques
    assert np.abs(torques).max() == 2.0
    physics.close()


STATE = BodyState(
    np.array([0.0, 0.0, GO2.walker.height]),
    np.eye(3),
    np.array([0.3, 0.1, 0.0]),
    np.zeros(3),
    GO2.standing_joints(GO2.walker.height),
    np.zeros(12),
)


def test_offsets_that_come_late_move_the_feet_in_the_air():
    prompt, late = Controller(GO2), Controller(GO2)
    offsets = np.tile([0.05, 0.03], (4, 1))
    for controller in (prompt, late):
        controller.reset(STATE)
    prompt.step(STATE, offsets)
    late.step(STATE)
    late.retarget(late.swinging, offsets)
    shifts = np.where([True, False, False, True], 0.03, 0.0)
    np.testing.assert_allclose(late.nominal_asides() - late.sway(), shifts, atol=1e-12)
    for _ in range(40):  # until the other feet are in the air
        np.testing.assert_allclose(late.step(STATE).positions, prompt.step(STATE).positions, atol=1e-9)
    assert late.swinging.tolist() == [False, True, True, False]


def test_a_controller_is_reset_with_another_body():
    heavy, torques = (2 * GO2.mass, np.array(GO2.center), 2 * np.array(GO2.inertia)), []
    for bodies in ([heavy], [None, heavy]):
        controller = Controller(GO2)
        for body in bodies:
            controller.reset(STATE, body)
        torques.append(controller.step(STATE).torques)
    np.testing.assert_array_equal(*torques)


def test_the_controller_refuses_what_no_robot_can_follow():
    state, controller = STATE, Controller(GO2)
    with pytest.raises(RuntimeError, match=r"^call reset before step$"):
        controller.step(state)
    controller.reset(state)
    with pytest.raises(ValueError, match=r"^position holds a number that is not finite$"):
        controller.step(state._replace(position=np.array([0.0, np.nan, 0.3])))
    with pytest.raises(ValueError, match=r"^joint_velocities has the shape \[11\]: it must be \[12\]$"):
        controller.reset(state._replace(joint_velocities=np.zeros(11)))
    with pytest.raises(ValueError, match=r"^rotation is \[\[0.0, .*: its rows must be orthonormal$"):
        controller.step(state._replace(rotation=np.zeros((3, 3))))
    with pytest.raises(ValueError, match=r"^offsets holds a number that is not finite$"):
        controller.step(state, np.full((4, 2), np.inf))
    assert np.isfinite(controller.step(state, np.zeros((4, 2))).torques).all()
    compiled = read.nopython_signatures
    controller.step(BodyState(*(part.astype(np.float32).tolist() for part in state)))
    controller.step(BodyState(*(np.repeat(part, 2, axis=-1)[..., ::2].astype(np.float32) for part in state)))
    assert read.nopython_signatures == compiled


@pytest.mark.parametrize("wrong", [{"control_period": 0.0}, {"replan_every": 0}, {"braking": float("nan")}])
def test_a_bad_rate_of_the_low_level_is_refused(wrong):
    with pytest.raises(ValueError, match=f"^{next(iter(wrong))} is "):
        replace(GO2.walker, **wrong)


@pytest.mark.parametrize("engine", EACH_ENGINE)
def test_at_500_hz_the_world_moves_no_faster(engine):
    paper, ways = presets_of(GO2)["paper"], []
    for walker in (GO2.walker, replace(GO2.walker, control_period=0.002, replan_every=5)):
        env = SteppingStones(engine=engine, config=replace(paper, walker=walker))
        env.reset(seed=0)
        for _ in range(16):
            *_, info = env.step(env.oracle_action())
        assert env.walker.time == pytest.approx(0.8)
        ways.append(info["distance"])
        env.close()
    assert ways[1] == pytest.approx(ways[0], rel=0.1)
    assert ways[0] > 0.2
    with pytest.raises(ValueError, match=r"^control_period is 0.005: engines need a multiple of 0.002$"):
        SteppingStones(engine=engine, config=replace(paper, walker=replace(GO2.walker, control_period=0.005)))


@pytest.mark.slow
@pytest.mark.parametrize("engine", EACH_ENGINE)
def test_the_oracle_walks_go2_over_stones_where_a_blind_robot_falls(engine):
    causes = []
    for player in ("oracle", "blind"):
        env = SteppingStones(engine=engine, robot="go2", episode_seconds=4.0)
        env.reset(seed=9000)
        over = False
        while not over:
            action = env.oracle_action() if player == "oracle" else np.zeros(4, np.float32)
            _, _, ended, cut, info = env.step(action)
            over = ended or cut
        causes.append(info["cause"])
        env.close()
    assert causes == ["time", "foot in a gap"]


def test_a_description_names_the_robot():
    env = SteppingStones(engine="mujoco", robot="go2")
    described = env.describe()["robot"]
    assert described["name"] == "Go2"
    assert described["joint_order"] == list(GO2.joints)
    assert described["joint_control"]["gains"]["motor_torque"]["value"] == list(GO2.torques)
    env.close()
    assert list(ROBOTS) == ["laikago", "go2"]

"""A robot that is not of the package: its table by its model, in a file, and on the stones."""

import json
import re
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from installed_engines import needs_bullet

from robopolicy.control.robots import GO2, robot_of
from robopolicy.envs.physics import make_physics
from robopolicy.envs.physics.measured import first_table
from robopolicy.envs.quadruped.stepping_stones import SteppingStones

MODEL = Path(__file__).parents[2] / "examples" / "quadruped.xml"
LEGS = ("rf", "lf", "rh", "lh")
JOINTS = tuple(f"{leg}_{joint}" for leg in LEGS for joint in ("haa", "hfe", "kfe"))
TOES = tuple(f"{leg}_toe" for leg in LEGS)


@pytest.fixture(scope="module")
def table():
    """The table of a robot whose model has its hind legs first, and right legs that turn the other way."""
    return first_table("mine", MODEL, JOINTS, TOES, height=0.36)


@pytest.fixture
def changed(tmp_path):
    """Writes the model with a text replaced, and returns its path."""

    def write(old, new):
        text = MODEL.read_text()
        assert old in text
        path = tmp_path / "changed.xml"
        path.write_text(text.replace(old, new))
        return path

    return write


def walked(robot):
    """The distance in 0.8 s (m), and the robot's shapes there."""
    env = SteppingStones(engine="mujoco", robot=robot)
    env.reset(seed=0)
    for _ in range(16):
        *_, info = env.step(env.oracle_action())
    feet, poses = env.walker.truth.feet_world, env.poses()
    env.close()
    return info["distance"], feet, poses


def test_a_first_table_is_that_of_the_model_and_walks(table):
    assert table.turns == (-1.0, 1.0, -1.0, 1.0)
    assert (table.thigh, table.shank, table.lateral) == ((0.24, 0.0), (0.25, 0.0), (0.085,) * 4)
    assert table.mass == pytest.approx(20.5)
    assert table.limits[:3] == ((-0.9, 0.9), (-1.0, 3.2), (-2.6, -0.5))
    assert table.torques == (30.0, 30.0, 50.0) * 4
    distance, feet, poses = walked(table)
    assert distance > 0.2
    # Toes are drawn where they are: pictures take joints in the model's order.
    for foot in feet:
        assert np.abs(poses[:, :3, 3] - foot).max(axis=1).min() < 0.01


def test_a_first_table_of_the_go2_has_its_numbers(tmp_path):
    path = tmp_path / "go2.xml"
    limited = '<default><joint actuatorfrcrange="-23.7 23.7"/>'
    path.write_text(GO2.model_path.read_text().replace("<default>", limited, 1))
    ours = first_table("mine", path, GO2.joints, GO2.toes, 0.31)
    assert ours.torques == (23.7,) * 12
    for name in ("hips", "turns", "lateral", "thigh", "shank", "limits", "mass", "center", "inertia"):
        np.testing.assert_allclose(getattr(ours, name), getattr(GO2, name), atol=1e-3)
    assert ours.walker.speed == pytest.approx(GO2.walker.speed)


def test_a_model_may_have_the_name_of_one_of_the_package(table, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("laikago.xml", "go2.urdf"):
        Path(name).write_bytes(MODEL.read_bytes())
    ours = first_table("mine", "laikago.xml", JOINTS, TOES, 0.36, "go2.urdf")
    places = {"model": str(tmp_path / "laikago.xml"), "urdf": str(tmp_path / "go2.urdf")}
    assert ours == replace(table, **places, source="laikago.xml")


def test_a_first_table_has_the_torques_of_motors_of_joints(changed, table):
    tendon = '<tendon><fixed name="cord"><joint joint="rf_haa" coef="1"/></fixed></tendon><actuator>'
    cords = '<motor tendon="cord" forcerange="-0.5 0.5"/>' * 20  # a tendon's number is a joint's, too
    path = changed("<actuator>", tendon + cords)
    text = path.read_text().replace('joint="rf_haa" force', 'jointinparent="rf_haa" force')
    motor = '<motor name="lf_haa" joint="lf_haa" forcerange="-30 30"/>'
    assert motor in text
    general = '<general name="lf_haa" joint="lf_haa" gainprm="2" gear="3" ctrlrange="-5 5" dyntype="filter"/>'
    others = [
        '<damper joint="lf_haa" kv="1" ctrlrange="0 1" forcerange="-5 5"/>',
        '<general joint="lf_haa" gaintype="affine" gainprm="0.1 0 -1" ctrlrange="-5 5"/>',
        '<general joint="lf_haa" gainprm="0" ctrlrange="-5 5"/>',
        '<general joint="lf_haa" dyntype="integrator" gainprm="2" ctrlrange="-1 1"/>',
    ]
    path.write_text(text.replace(motor, general + "".join(others)))
    assert first_table("mine", path, JOINTS, TOES, 0.36).torques == table.torques


def test_a_model_may_have_keyframes_and_sensors_of_its_motors(changed, table):
    still = '<keyframe><key name="home" qpos="0 0 0.4 1 0 0 0 {0}" ctrl="{0}"/></keyframe>'.format("0 " * 12)
    sensors = '<sensor><actuatorfrc actuator="rf_haa"/><jointpos joint="rf_haa"/></sensor>'
    path = changed("</mujoco>", f"{still}{sensors}</mujoco>")
    ours = first_table("mine", path, JOINTS, TOES, 0.36)
    assert ours == replace(table, model=str(path), source=str(path))


def test_a_first_table_needs_torques(changed):
    path = changed('forcerange="-30 30"', "")
    with pytest.raises(
        ValueError, match=r"limits no torque of 'rf_haa': give its joint an actuatorfrcrange$"
    ):
        first_table("mine", path, JOINTS, TOES, 0.36)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"rf_haa" axis', '"tail" axis', "has no joint 'rf_haa': it has lh_haa, "),
        ('geom name="rf_toe"', "geom", "has no toe 'rf_toe': it has lh_toe, rh_toe, lf_toe"),
        ('"rf_hfe" axis="0 1 0"', '"rf_hfe" axis="0 -1 0"', "turns 'rf_hfe' about [0.0, -1.0, 0.0] with all"),
        ('"rf_haa" axis="-1 0 0"', '"rf_haa" axis="0 1 0"', "turns 'rf_haa' about [0.0, 1.0, 0.0] with all"),
        ('"rf_shank" pos="0 0 -0.24"', '"rf_shank" pos="0 0 -0.2"', "has legs that differ: from hip to knee"),
        ('name="lf_toe"', 'name="lf_toe" size="0.04"', "has a foot_radius of 0.025 m: its model "),
        ('name="lf_toe"', 'name="lf_toe" type="box" size="0.1 0.1 0.1"', "changed.xml it must be a sphere"),
        ("<freejoint/>", "", "must be the trunk, with a free joint"),
        ("<worldbody>", "<worldbody><body name='floor'/>", "must be the trunk, with a free joint"),
        ("<mujoco", "<robot", "is not read: "),
        ('type="box" size="0.21', 'type="box" size="-1', "changed.xml does not compile: Error: size "),
        (
            '<geom type="box"',
            '<body><joint name="tail" axis="0 1 0"/><geom size="0.02"/></body><geom type="box"',
            "lacks the joint 'tail' of its model",
        ),
    ],
)
def test_a_model_that_does_not_fit_is_refused_in_one_line(changed, old, new, words):
    path = changed(old, new)
    text = path.read_text()
    for name in ("rf_haa", "rf_toe"):  # motors of what has another name now
        if f'name="{name}" axis' not in text:
            text = text.replace(f'<motor name="{name}" joint="{name}" forcerange="-30 30"/>', "")
    path.write_text(text)
    with pytest.raises(ValueError, match=re.escape(words)) as refused:
        first_table("mine", path, JOINTS, TOES, 0.36)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("height", [np.nan, -0.3, "0.36"])
def test_a_height_that_is_no_length_is_refused_by_its_name(height):
    with pytest.raises(ValueError, match=rf"^height is {height!r}: it must be a number of 0\.001 or more$"):
        first_table("mine", MODEL, JOINTS, TOES, height)


def test_a_table_has_a_name_of_its_own():
    with pytest.raises(ValueError, match=r"^name is 'go2', that of a robot of the package: use another$"):
        first_table("go2", MODEL, JOINTS, TOES, 0.36)
    with pytest.raises(ValueError, match=r"^the name of a robot is \['go2'\]: it must be "):
        first_table(["go2"], MODEL, JOINTS, TOES, 0.36)


@pytest.mark.parametrize("width", [0, -4, 32.0, 5000])
def test_images_have_a_size(width):
    with pytest.raises(ValueError, match=rf"^robot 'fine': width of belly is {width}: it must be a whole"):
        replace(GO2, name="fine", belly=replace(GO2.belly, width=width))


def test_only_toes_collide_whatever_the_model_says(table):
    physics = make_physics("mujoco", table, visible=False)
    spec = physics._spec()
    assert {geom.name for geom in spec.geoms if geom.contype or geom.conaffinity} == set(TOES)
    assert not spec.actuators
    physics.close()


@needs_bullet
def test_bullet_says_that_a_robot_has_no_urdf(table):
    with pytest.raises(
        ValueError, match=r"^robot 'mine' has no URDF, which Bullet needs: use the engine mujoco"
    ):
        make_physics("bullet", table, visible=False)


@needs_bullet
def test_a_toe_of_bullet_is_a_sphere():
    table = replace(GO2, toes=("FR_calf", *GO2.toes[1:]))
    words = r"has the toe 'FR_calf': in its model go2/go2\.urdf it must be a sphere$"
    with pytest.raises(ValueError, match=f"^robot 'go2' {words}"):
        make_physics("bullet", table, visible=False)


def test_a_table_is_read_with_the_model_beside_it(table, tmp_path, monkeypatch):
    (tmp_path / "quadruped.xml").write_bytes(MODEL.read_bytes())
    path = tmp_path / "quadruped.json"
    path.write_text(json.dumps(asdict(replace(table, model="quadruped.xml"))))
    monkeypatch.chdir(tmp_path.parent)
    read = robot_of(str(path))
    assert robot_of(path) == read
    (tmp_path.parent / "elsewhere.json").write_bytes(path.read_bytes())
    monkeypatch.chdir(tmp_path)  # the model is in the current folder, and not beside the table
    assert robot_of("../elsewhere.json") == read
    assert read == replace(table, model=str(tmp_path / "quadruped.xml"))
    run = tmp_path / "config.json"
    run.write_text(json.dumps({"environment": {"others": {"robot": asdict(read)}}}))
    assert robot_of(str(run)) == read


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "there is no such file"),
        ("[]", "holds no JSON object"),
        ('{"name": "mine"}', "lacks the settings "),
        (json.dumps(asdict(GO2)), "name is 'go2', that of a robot of the package: use another"),
        ('{"environment": {"others": {"robot": "go2"}}}', "is of a run without a table of its robot"),
    ],
)
def test_a_file_that_is_no_table_is_refused(tmp_path, content, words):
    path = tmp_path / "quadruped.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises((ValueError, FileNotFoundError), match=re.escape(words)) as refused:
        robot_of(str(path))
    with pytest.raises(FileNotFoundError, match="there is no such file"):
        robot_of("x" * 300 + ".json")
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)

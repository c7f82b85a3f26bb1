"""The software renderer: against TinyRenderer and OpenGL, against geometry, and with bad input."""

import hashlib
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from installed_engines import needs_bullet

import robopolicy
from robopolicy.envs.drawing.meshes import ball, box, capsule, cylinder, read_obj
from robopolicy.envs.drawing.robot import Robot, read_robot
from robopolicy.envs.drawing.scene import Part, Scene, pose
from robopolicy.envs.physics import ARM_ENGINES
from robopolicy.envs.physics.arms import ARM
from robopolicy.envs.physics.base import Lighting, View
from robopolicy.envs.sweep.bimanual_sweep import CAMERA

LIGHT = Lighting((0.3, -1.0, 2.0), ambient=0.6, far=20.0)
RED = (1.0, 0.0, 0.0)
AHEAD = View(eye=(0.0, -2.0, 0.0), target=(0.0, 0.0, 0.0), field_of_view=60.0)
TABLE_FROM_ABOVE = View(eye=(0.0, 0.0, 1.5), target=(0.0, 0.0, 0.0), field_of_view=50.0)
BESIDE_AN_ARM = View(eye=(0.6, 0.75, 0.4), target=(0.0, 0.5, 0.3), field_of_view=70.0)

DIGEST = """
import hashlib, robopolicy
env = robopolicy.make("bimanual-sweep", engine="mujoco", image_size=200)
print(hashlib.sha256(env.reset(seed=5)[0]["image"].tobytes()).hexdigest())
"""

SILHOUETTES = """
import sys, robopolicy
masks = []
for renderer in ("opengl", "software"):
    settings = {"render_mode": "rgb_array", "render_size": (320, 240)}
    env = robopolicy.make(sys.argv[1], engine="mujoco", renderer=renderer, **settings)
    env.reset(seed=2)
    masks.append((env.render() < 245).any(axis=2))
    env.close()
print(masks[0].mean(), (masks[0] != masks[1]).mean())
"""


def swept(engine, steps, **settings):
    """The sweep after some steps of the demonstrator."""
    env = robopolicy.make("bimanual-sweep", engine=engine, **settings).unwrapped
    env.reset(seed=11)
    for _ in range(steps):
        env.step(env.oracle_action())
    return env


def picture_of(*still, view=AHEAD, width=120, height=90, moving=(), poses=()):
    """A picture of parts, as `Scene` draws them."""
    scene = Scene(list(still), list(moving), LIGHT)
    return scene.picture(view, width, height, np.array(list(poses)).reshape(-1, 4, 4))


def at(part, *place):
    """A part at a place."""
    return part, pose(place)


@pytest.mark.rest_slow
@needs_bullet
@pytest.mark.parametrize("steps", [0, 25, 70])
def test_pictures_of_the_sweep_are_those_of_tinyrenderer(steps):
    env = swept("bullet", steps, renderer="tiny")
    ours = swept("bullet", steps)
    size = ours.config.image_size
    expected, picture = env.picture(CAMERA, size, size), ours.picture(CAMERA, size, size)
    differs = (picture != expected).any(axis=2)
    assert differs.sum() < 20
    assert np.abs(picture[differs].astype(int) - expected[differs]).max(initial=0) <= 1


@pytest.mark.slow
@needs_bullet
@pytest.mark.parametrize("view", [TABLE_FROM_ABOVE, BESIDE_AN_ARM], ids=["above", "beside"])
def test_other_views_and_shapes_of_pictures_are_those_of_tinyrenderer(view):
    # Bullet's up is z; straight down it has no right, so the eye is a little off.
    view = view._replace(eye=(view.eye[0] + 1e-3, *view.eye[1:]))
    expected = swept("bullet", 30, renderer="tiny").picture(view, 320, 200)
    picture = swept("bullet", 30).picture(view, 320, 200)
    assert (picture != expected).any(axis=2).sum() < 20


@needs_bullet
def test_tinyrenderer_draws_the_same_with_and_without_a_render_mode():
    pictures = []
    for mode in (None, "rgb_array"):
        settings = {"engine": "bullet", "renderer": "tiny", "render_mode": mode}
        env = robopolicy.make("stepping-stones", **settings).unwrapped
        env.reset(seed=1)
        pictures.append(env.picture(env.view(), 160, 120))
        env.close()
    np.testing.assert_array_equal(*pictures)


@needs_bullet
def test_both_engines_give_the_same_picture_of_the_same_state():
    pictures = [
        robopolicy.make("bimanual-sweep", engine=engine).reset(seed=4)[0]["image"] for engine in ARM_ENGINES
    ]
    np.testing.assert_array_equal(*pictures)


@pytest.mark.slow
@pytest.mark.parametrize("task", ["stepping-stones", "bimanual-sweep"])
def test_silhouettes_are_those_of_opengl(task):
    # In a process of its own, which a broken OpenGL may end.
    run = subprocess.run(
        [sys.executable, "-c", SILHOUETTES, task], capture_output=True, text=True, timeout=120
    )
    if "MuJoCo cannot draw here" in run.stderr:
        pytest.skip("there is no OpenGL")
    assert run.returncode == 0, run.stderr
    covered, differing = map(float, run.stdout.split())
    assert covered > 0.2
    assert differing < 0.01


@pytest.mark.slow
def test_another_process_and_another_level_of_optimisation_give_the_same_bits(tmp_path):
    env = robopolicy.make("bimanual-sweep", engine="mujoco", image_size=200)
    digest = hashlib.sha256(env.reset(seed=5)[0]["image"].tobytes()).hexdigest()
    for level in ("0", "2"):
        variables = {**os.environ, "NUMBA_OPT": level, "NUMBA_CACHE_DIR": str(tmp_path / level)}
        run = subprocess.run(
            [sys.executable, "-c", DIGEST], capture_output=True, text=True, env=variables, timeout=300
        )
        assert run.stdout.strip() == digest, run.stderr


def test_a_ball_is_where_a_pinhole_camera_sees_it():
    # 60 degrees over 300 rows: 1 m at a distance of 2 m is 300 / 2 / tan 30 / 2 = 129.9 pixels.
    picture = picture_of(at(Part(ball(0.2), RED), 0.5, 0.0, 0.25), width=400, height=300)
    rows, columns = np.nonzero(picture[..., 1] < 100)
    assert columns.mean() == pytest.approx(200 + 129.9 * 0.5, abs=2.0)
    assert rows.mean() == pytest.approx(150 - 129.9 * 0.25, abs=2.0)
    # 80 faces cover 0.94 of the disc or more.
    assert 0.9 < len(rows) / (np.pi * (129.9 * 0.2) ** 2) < 1.03


def test_what_is_nearer_hides_what_is_farther_whatever_the_order():
    near, far = Part(box((0.2, 0.2, 0.2)), RED), Part(box((0.5, 0.1, 0.5)), (0.0, 1.0, 0.0))
    pictures = [
        picture_of(at(near, 0, 0, 0), at(far, 0, 1, 0)),
        picture_of(at(far, 0, 1, 0), at(near, 0, 0, 0)),
        picture_of(at(far, 0, 1, 0), moving=[near], poses=[pose((0, 0, 0))]),
        picture_of(at(near, 0, 0, 0), moving=[far], poses=[pose((0, 1, 0))]),
    ]
    assert pictures[0][45, 60, 0] > 100 > pictures[0][45, 60, 1]
    for picture in pictures[1:]:
        np.testing.assert_array_equal(picture, pictures[0])


def test_what_reaches_behind_the_eye_is_cut_off_there():
    # A floor 1 m below an eye that looks along it: all below the horizon is floor, as far as the camera sees.
    floor = Part(box((50.0, 50.0, 0.5)), RED)
    view = View(eye=(0.0, 0.0, 1.0), target=(0.0, 1.0, 1.0), field_of_view=90.0)
    picture = picture_of(at(floor, 0, 0, -0.5), view=view, width=100, height=200)
    horizon = 100 + round(100 / LIGHT.far)
    assert (picture[horizon + 1 :, :, 1] == 0).all()
    assert (picture[: horizon - 1] == 255).all()


def test_a_view_of_arrays_that_moves_is_drawn_anew():
    scene, none = Scene([at(Part(ball(0.2), RED), 0, 0, 0)], [], LIGHT), np.empty((0, 4, 4))
    eye = np.array(AHEAD.eye)
    before = scene.picture(AHEAD._replace(eye=eye), 60, 40, none)
    eye[0] = 0.5
    after = scene.picture(AHEAD._replace(eye=eye), 60, 40, none)
    expected = picture_of(
        at(Part(ball(0.2), RED), 0, 0, 0), view=AHEAD._replace(eye=(0.5, -2.0, 0.0)), width=60, height=40
    )
    assert (before != after).any()
    np.testing.assert_array_equal(after, expected)


def test_straight_down_the_camera_sees_y_to_the_left():
    view = View(eye=(0.0, 0.0, 3.0), target=(0.0, 0.0, 0.0), field_of_view=60.0)
    picture = picture_of(at(Part(ball(0.2), RED), 0.0, 0.8, 0.0), view=view)
    assert np.nonzero(picture[..., 1] < 100)[1].mean() < 40


@pytest.mark.parametrize("mesh", [ball(0.3), box((0.1, 0.2, 0.3)), capsule(0.1, 0.4), cylinder(0.2, 0.3)])
def test_shapes_are_closed_and_look_outwards(mesh):
    # The divergence theorem: the flux of position through a closed surface is three times its volume.
    a, b, c = (mesh.vertices[mesh.corners[:, k]] for k in range(3))
    assert (np.cross(b - a, c - a) * a).sum(axis=1).min() > 0
    edges = np.sort(
        np.concatenate([mesh.corners[:, [0, 1]], mesh.corners[:, [1, 2]], mesh.corners[:, [2, 0]]])
    )
    assert (np.unique(edges, axis=0, return_counts=True)[1] == 2).all()
    assert np.linalg.norm(mesh.normals, axis=1) == pytest.approx(1)


GOOD_OBJ = "v 0 0 0\nv 1 0 0\nv 0 1 0\nvn 0 0 1\nf 1//1 2//1 3//1\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "has no faces"),
        (GOOD_OBJ.replace("f", "#"), "has no faces"),
        (GOOD_OBJ.replace("3//1", "4//1"), "names a corner that the mesh lacks"),
        (GOOD_OBJ.replace("3//1", "0//1"), "names a corner that the mesh lacks"),
        (GOOD_OBJ.replace("3//1", "3"), "faces must be triangles"),
        (GOOD_OBJ.replace("1 0 0", "one 0 0"), "faces must be triangles"),
        (GOOD_OBJ.replace("vn 0 0 1", "vn 0 0 0"), "normal of length zero"),
        (GOOD_OBJ.replace("f ", "v 1 1 0\n") + 3 * "f 1//1 2//1 4//1 3//1\n", "faces must be triangles"),
        (GOOD_OBJ.replace("3//1", "99999999999//1"), "faces must be triangles"),
        (GOOD_OBJ.replace("1 0 0", "nan 0 0"), "not three finite numbers"),
        (GOOD_OBJ.replace("vn 0 0 1", "vn 0 1"), "not three finite numbers"),
    ],
)
def test_a_bad_mesh_is_refused_in_one_line(tmp_path, text, words):
    path = tmp_path / "bad.obj"
    path.write_text(text)
    with pytest.raises(ValueError, match=f"^mesh {re.escape(str(path))} .*{words}.*$"):
        read_obj(path)


def test_a_file_that_is_no_text_has_no_faces(tmp_path):
    path = tmp_path / "binary.obj"
    path.write_bytes(bytes(range(128, 256)))
    with pytest.raises(ValueError, match=r"^mesh .*binary\.obj has no faces$"):
        read_obj(path)


def test_a_mesh_that_is_missing_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"^mesh .*none\.obj does not exist$"):
        read_obj(tmp_path / "none.obj")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"width": 0}, "width is 0: it must be a whole number from 1 to 8192"),
        ({"height": 0}, "height is 0: it must be a whole number from 1 to 8192"),
        (
            {"view": AHEAD._replace(eye=(0.0, 0.1, 0.0))},
            r"its eye at \(0, 0.1, 0\), which is inside",
        ),
        ({"view": AHEAD._replace(eye=AHEAD.target)}, "its target must be another point than its eye"),
        ({"view": AHEAD._replace(field_of_view=180.0)}, "view.field_of_view is 180.0"),
    ],
)
def test_a_bad_view_is_refused_in_one_line(settings, words):
    cube = Part(box((0.2, 0.2, 0.2)), RED)
    with pytest.raises(ValueError, match=f"^[^\n]*{words}[^\n]*$"):
        picture_of(at(cube, 0, 0, 0), **settings)
    with pytest.raises(ValueError, match=f"^[^\n]*{words}[^\n]*$"):
        picture_of(moving=[cube], poses=[pose((0, 0, 0))], **settings)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"renderer": "gpu"}, "^renderer is 'gpu'"),
        ({"renderer": ["software"]}, r"^renderer is \['software'\]: it must be one of"),
        ({"renderer": "tiny", "engine": "mujoco"}, "it must be 'software' or 'opengl'$"),
        ({"renderer": "opengl", "engine": "bullet"}, "it must be 'software' or 'tiny'$"),
    ],
)
@pytest.mark.parametrize("task", ["stepping-stones", "bimanual-sweep"])
def test_a_renderer_that_does_not_draw_an_engine_is_refused(task, settings, words):
    with pytest.raises(ValueError, match=words):
        robopolicy.make(task, **settings)


@pytest.mark.parametrize(
    ("poses", "words"),
    [
        (np.tile(np.eye(4), (2, 1, 1)), r"poses has shape \[2, 4, 4\]: it must be \[1, 4, 4\]"),
        (np.eye(4), r"poses has shape \[4, 4\]"),
        ([pose((np.nan, 0, 0))], "poses holds NaN"),
    ],
)
def test_poses_that_are_none_of_the_bodies_are_refused(poses, words):
    cube = Part(box((0.2, 0.2, 0.2)), RED)
    with pytest.raises(ValueError, match=f"^{words}.*$"):
        Scene([], [cube], LIGHT).picture(AHEAD, 60, 40, poses)


@pytest.mark.parametrize(
    ("shape", "sizes"),
    [(ball, (0.0,)), (box, ((0.1, 0.1, 0.0),)), (cylinder, (0.1, np.inf)), (capsule, (np.nan, 0.1))],
)
def test_a_shape_of_no_size_is_refused_in_one_line(shape, sizes):
    with pytest.raises(ValueError, match=r"^(radius|half extent|length) is [^\n]*: it must be a number"):
        shape(*sizes)


TETRAHEDRON = (
    "v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1\nvn 0 0 1\n"
    "f 1//1 3//1 2//1\nf 1//1 2//1 4//1\nf 1//1 4//1 3//1\nf 2//1 3//1 4//1\n"
)
ROBOT = """<mujoco>
  <compiler meshdir="parts"/>
  <asset>
    <mesh name="solid" file="solid.obj" scale="0.5 -2 1"/>
    <material name="paint" rgba="1 0 0 1"/>
  </asset>
  <worldbody>
    <geom type="mesh" mesh="solid" material="paint"/>
    <geom type="sphere" size="0.1" group="3"/>
  </worldbody>
</mujoco>"""


def test_a_robot_looks_as_its_description_says(tmp_path):
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "solid.obj").write_text(TETRAHEDRON)
    (tmp_path / "robot.xml").write_text(ROBOT)
    (part,) = Robot(tmp_path / "robot.xml").parts
    assert part.colour == (1, 0, 0)
    assert part.mesh.vertices.min(axis=0).tolist() == [0, -2, 0]
    assert part.mesh.vertices.max(axis=0).tolist() == [0.5, 0, 1]
    a, b, c = (part.mesh.vertices[part.mesh.corners[:, k]] for k in range(3))
    # The divergence theorem: the flux through a surface that looks outwards is six times its volume.
    assert (np.cross(b - a, c - a) * a).sum() == pytest.approx(1)


def test_threads_do_not_move_the_robots_of_each_other():
    robot, base = read_robot(ARM), np.eye(4)
    angles = [np.full(7, angle) for angle in (0.1, 0.2)]
    expected = [robot.poses(joints, base) for joints in angles]

    def differing(place):
        return sum((robot.poses(angles[place], base) != expected[place]).any() for _ in range(5000))

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(differing, range(2))) == [0, 0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("<mujoco><worldbody>", "is not read"),
        ("no MJCF", "is not read"),
        ("<mujoco><worldbody><body><freejoint/></body></worldbody></mujoco>", "does not compile"),
    ],
)
def test_a_file_that_is_no_robot_is_refused_in_one_line(tmp_path, text, words):
    (tmp_path / "robot.xml").write_text(text)
    with pytest.raises(ValueError, match=rf"^robot[^\n]*robot\.xml {words}: [^\n]*$"):
        Robot(tmp_path / "robot.xml")

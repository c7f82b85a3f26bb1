"""Which bundles and images fit a Go2."""

import numpy as np
import pytest
from unitree_peers import manifest

from robopolicy.control.robots import GO2
from robopolicy.unitree.fitting import fit
from robopolicy.unitree.images import Image, depth_image, depth_of

TOPIC = "rt/front_depth"


def test_a_bundle_of_the_go2_fits():
    found = fit(manifest(), GO2)
    assert found.walker == GO2.walker
    assert sorted(found.cameras) == ["belly_depth", "front_depth"]
    assert found.scale.shape == (4,)


def renamed(data):
    data["outputs"]["command"]["entries"][0]["name"] = "torque_FR"


def unknown(data):
    data["inputs"]["lidar"] = {"shape": [8], "dtype": "float32", "low": 0, "high": 1, "unit": "m"}


def reordered(data):
    entries = data["inputs"]["proprioception"]["entries"]
    entries[0], entries[1] = entries[1], entries[0]


def undescribed(data):
    del data["robot"]["low_level"]


def slower(data):
    del data["robot"]["low_level"]["speed"]


def fast(data):
    data["robot"]["low_level"]["speed"]["value"] = 100.0


def short(data):
    for name in ("pose_weights", "rate_weights"):
        data["robot"]["low_level"]["stance"][name]["value"] = [1.0] * 3


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (renamed, "bundle commands torque_FR"),
        (unknown, "bundle reads 'lidar'"),
        (reordered, "proprioception that is not of 4 footholds"),
        (undescribed, "does not describe its low level"),
        (slower, r"low_level lacks the settings \['speed'\]"),
        (fast, "speed is 100.0: it must be a number from -5 to 5"),
        (short, r"pose_weights is \(1.0, 1.0, 1.0\): it must be 6 numbers"),
        (lambda data: data.update(control_period=0.025), "control_period 0.025: .* multiple of 0.002$"),
        (lambda data: data.update(control_period=1e-4, deadline=1e-4), "control_period 0.0001: it must be a"),
        (
            lambda data: data["outputs"]["command"].pop("scale"),
            "no scale of its command: it must be 4 numbers",
        ),
        (lambda data: data["outputs"]["command"].update(scale=[1e-9] * 4), "scale of the command is 1e-09"),
    ],
)
def test_another_bundle_is_refused(change, said):
    with pytest.raises(ValueError, match=said) as caught:
        fit(manifest(change=change), GO2)
    assert len(str(caught.value).splitlines()) == 1


def test_a_bundle_of_another_robot_is_refused():
    with pytest.raises(ValueError, match="bundle is for the robot 'Laikago': it must be for 'Go2'"):
        fit(manifest("laikago"), GO2)


def test_depth_in_metres_and_millimetres():
    depth = np.array([[0.5, np.nan, np.inf], [1.25, -9.0, 3.0]], np.float32)
    metres = depth_image(depth, 5, "camera")
    expected = [[0.5, 0.0, 2.0], [1.25, 0.0, 2.0]]
    np.testing.assert_array_equal(depth_of(TOPIC, metres, (2, 3), 2.0), np.array(expected, np.float32))
    for order, is_bigendian in (("<", 0), (">", 1)):
        rows = np.array([[500, 0, 9000, 7], [1250, 0, 3000, 7]], f"{order}u2").tobytes()
        image = Image(0, "camera", 2, 3, "16UC1", is_bigendian, 8, rows)
        np.testing.assert_allclose(depth_of(TOPIC, image, (2, 3), 2.0), expected, rtol=1e-6)


GOOD = depth_image(np.zeros((2, 3), np.float32), 0, "camera")


@pytest.mark.parametrize(
    ("image", "said"),
    [
        (GOOD._replace(width=4), "rt/front_depth has 2 x 4 pixels: the bundle reads 2 x 3"),
        (GOOD._replace(encoding="rgb8"), "rt/front_depth has the encoding 'rgb8'"),
        (GOOD._replace(data=GOOD.data[:-1]), "rt/front_depth has 23 bytes in rows of 12"),
        (GOOD._replace(step=8), "in rows of 8: it must have 2 rows of at least 12"),
    ],
)
def test_another_image_is_refused(image, said):
    with pytest.raises(ValueError, match=said):
        depth_of(TOPIC, image, (2, 3), 2.0)

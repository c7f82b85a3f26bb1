"""A picture of a memory from above: gaps are dark, and the robot is where it is."""

import numpy as np

from robopolicy.experiments.default_policies import policy_config
from robopolicy.policies import top_view as places
from robopolicy.viz.top_view import ROBOT, top_view


def test_gaps_are_dark_and_the_robot_is_over_them():
    (rows, columns), around = places.places()
    ground = np.zeros((rows, columns), np.float32)
    ground[around[:, 0].reshape(rows, columns) > 0.5] = 1.0  # a gap ahead
    hips = places.hips(policy_config("softmax", "stepping-stones", preset="front", variant="memory"))
    marks = np.array([[-0.3, 0.3]])
    picture = top_view(ground, places.pixels(hips), places.pixels(marks), scale=4)
    assert picture.shape == (4 * rows, 4 * columns, 3)
    assert (picture[:8] == 0).all()
    assert (picture[-8:] == 210).all()
    blue = np.argwhere((picture == ROBOT).all(axis=2)) / 4
    corners = np.array([[0.25, 0.2], [-0.25, -0.2]])  # of a box that holds the hips, farthest ahead and left
    (left, top), (right, bottom) = places.pixels(corners)
    assert len(blue) > 100
    assert top < blue[:, 0].min() < blue[:, 0].max() < bottom
    assert left < blue[:, 1].min() < blue[:, 1].max() < right
    ring = np.argwhere(~np.isin(picture, (0, 210)).all(axis=2) & (picture[..., 0] > picture[..., 2] + 50)) / 4
    np.testing.assert_allclose(ring.mean(axis=0)[::-1], places.pixels(marks)[0], atol=0.5)

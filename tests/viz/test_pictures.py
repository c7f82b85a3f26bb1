"""Pictures and videos."""

import resource

import cv2
import imageio_ffmpeg
import numpy as np
import pytest

from robopolicy.experiments.environments import Environment
from robopolicy.experiments.films import film
from robopolicy.viz.contact_sheet import GAP, contact_sheet
from robopolicy.viz.overlay import (
    BAND,
    MARGIN,
    PAPER,
    captioned,
    centred,
    compose,
    depth_picture,
    grey_picture,
    heat_picture,
    projected,
)
from robopolicy.viz.video import open_video

LEVEL = np.full((24, 32), 0.4, np.float32)


def test_exactly_the_masked_pixels_are_red():
    mask = np.random.default_rng(0).random((24, 32)) > 0.5
    depth = LEVEL + np.linspace(0, 0.5, 32, dtype=np.float32)
    picture = depth_picture(depth, LEVEL, mask, 4).astype(int)
    assert picture.shape == (96, 128, 3)
    red = (picture[..., 0] > picture[..., 1] + 30)[::4, ::4]
    np.testing.assert_array_equal(red, ~mask)
    grey = depth_picture(depth, LEVEL, None, 1).astype(int)
    assert (grey[..., 0] == grey[..., 2]).all()
    assert (np.diff(grey[0, :, 0]) <= 0).all()


def test_larger_numbers_of_an_image_of_any_unit_are_brighter():
    image = np.array([[-3.0, 0.0], [2.0, 7.0]], np.float32)
    grey = grey_picture(image, None, 1)[..., 0].astype(int)
    assert grey[0, 0] == 0 < grey[0, 1] < grey[1, 0] < grey[1, 1]
    image[0, 1] = np.inf
    with_infinity = grey_picture(image, None, 1)[..., 0].astype(int)
    assert with_infinity[0, 1] == with_infinity[0, 0] == 0 < with_infinity[1, 0]
    assert np.ptp(grey_picture(np.zeros((2, 2), np.float32), None, 1)) == 0


def test_panels_and_captions_are_inside_the_frame():
    frame = np.full((360, 640, 3), 200, np.uint8)
    panel = np.full((96, 128, 3), 90, np.uint8)
    out = compose(frame, {"front camera": panel, "belly camera": panel}, ["one line", "another"])
    assert out.shape == frame.shape
    np.testing.assert_array_equal(out[MARGIN + BAND : MARGIN + BAND + 96, MARGIN : MARGIN + 128], panel)
    assert (frame == 200).all()
    assert (out[200, 320] == 200).all()
    assert out[-40:].max() > 200
    assert out[-40:].min() < 100


def test_a_long_caption_ends_inside_a_picture_of_any_width():
    for width in range(240, 481, 2):
        out = captioned(
            np.zeros((1, width, 3), np.uint8), ["footholds of feet that lift off now, cm ahead: FR -15"]
        )
        assert out[1:].max() > 200
        assert (out[1:, -4:] == PAPER).all()


def test_a_video_has_the_given_size_rate_and_frames(tmp_path):
    path = tmp_path / "walk.mp4"
    with open_video(path, 20) as video:
        for shade in range(30):
            video.add(np.full((90, 162, 3), shade * 8, np.uint8))
    reader = imageio_ffmpeg.read_frames(str(path))
    meta = next(reader)
    reader.close()
    assert meta["size"] == (162, 90)
    assert meta["fps"] == 20
    assert meta["codec"] == "h264"
    assert imageio_ffmpeg.count_frames_and_secs(str(path)) == (30, pytest.approx(1.5, abs=0.06))
    assert [p.name for p in tmp_path.iterdir()] == ["walk.mp4"]


def test_a_video_that_fails_leaves_nothing(tmp_path):
    def film():
        with open_video(tmp_path / "walk.mp4", 20) as video:
            video.add(np.zeros((90, 160, 3), np.uint8))
            raise ArithmeticError("the robot is gone")

    with pytest.raises(ArithmeticError):
        film()
    assert not list(tmp_path.iterdir())


def test_a_video_that_exceeds_the_disk_leaves_nothing(tmp_path):
    """ffmpeg ends, and the next frame meets a broken pipe."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def film():
        with open_video(tmp_path / "walk.mp4", 20) as video:
            for seed in range(5):
                video.add(np.random.default_rng(seed).integers(0, 255, (90, 160, 3), np.uint8))

    resource.setrlimit(resource.RLIMIT_FSIZE, (4000, before[1]))
    try:
        with pytest.raises(OSError, match=r"walk\.mp4"):
            film()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not list(tmp_path.iterdir())


def test_an_invalid_path_of_a_video_is_refused(tmp_path):
    for path, message in (
        (tmp_path / "walk.avi", r"\.mp4"),
        (tmp_path / "nowhere" / "walk.mp4", "does not exist"),
    ):
        with pytest.raises(ValueError, match=message), open_video(path, 20):
            pass


def test_a_frame_of_another_size_is_refused(tmp_path):
    with open_video(tmp_path / "walk.mp4", 20) as video:
        video.add(np.zeros((90, 160, 3), np.uint8))
        with pytest.raises(ValueError, match=r"shape \(90, 162, 3\): the first .* \(90, 160, 3\)"):
            video.add(np.zeros((90, 162, 3), np.uint8))
    assert imageio_ffmpeg.count_frames_and_secs(str(tmp_path / "walk.mp4"))[0] == 1


def test_a_contact_sheet_shows_every_frame_in_order(tmp_path):
    frames = [np.full((50, 60, 3), shade, np.uint8) for shade in (40, 80, 120, 160, 200)]
    contact_sheet(tmp_path / "sheet.png", frames, ["a", "b", "c", "d", "e"], columns=3)
    sheet = cv2.imread(str(tmp_path / "sheet.png"))
    cell_height, cell_width = (sheet.shape[0] - GAP) // 2, (sheet.shape[1] - GAP) // 3
    for number, shade in enumerate((40, 80, 120, 160, 200)):
        row, column = divmod(number, 3)
        assert (sheet[row * cell_height + 40, column * cell_width + 40] == shade).all()
    assert [p.name for p in tmp_path.iterdir()] == ["sheet.png"]


@pytest.mark.slow
def test_a_sheet_of_several_players_shows_each_as_large_as_one_alone(tmp_path):
    environment = Environment("stepping-stones", "mujoco", None, 0.05)
    for players, across in ((["blind"], 1), (["blind", "random", "oracle"], 2)):
        film(players, environment, sheet=tmp_path / "sheet.png", size=(480, 240))
        assert cv2.imread(str(tmp_path / "sheet.png")).shape[1] == across * 480 + 2 * GAP


@pytest.mark.parametrize(
    ("frames", "captions", "columns"),
    [(0, 0, 4), (2, 1, 4), (2, 2, 0)],
    ids=["frames", "captions", "columns"],
)
def test_invalid_arguments_of_a_contact_sheet_are_refused(tmp_path, frames, captions, columns):
    with pytest.raises(ValueError, match=r"(frames|captions|columns) (is|are) "):
        contact_sheet(
            tmp_path / "s.png", [np.zeros((50, 60, 3), np.uint8)] * frames, ["x"] * captions, columns
        )
    assert not list(tmp_path.iterdir())


def test_heat_covers_the_tokens_and_rises_with_their_rank():
    rank = np.array([[0.1, 0.5, 1.0], [1.5, 2.0, 9.0]], np.float32)
    heat = heat_picture(rank, np.full((20, 30, 3), 128, np.uint8)).astype(int)
    cells = heat[5::10, 5::10]
    np.testing.assert_array_equal(heat[:10, :10], np.broadcast_to(cells[0, 0], (10, 10, 3)))
    np.testing.assert_array_equal(cells[0, 0], cells[0, 1])  # half of the mean or less
    np.testing.assert_array_equal(cells[1, 1], cells[1, 2])  # twice or more
    yellow = (cells[..., 0] - cells[..., 2]).ravel()[1:5]
    assert (np.diff(yellow) > 0).all()


def test_points_are_projected_by_a_pinhole_camera():
    view = ((0.0, -2.0, 1.0), (0.0, 0.0, 1.0), 90.0)
    points = np.array([[0.0, 0.0, 1.0], [2.0, 0.0, 1.0], [0.0, 2.0, 3.0]])
    places = projected(points, view, (400, 200))
    np.testing.assert_allclose(places, [[200, 100], [300, 100], [200, 50]], atol=1e-9)


def test_panels_are_centred_side_by_side():
    colours = {"camera": (90, 0, 0), "attention": (0, 200, 0)}
    panels = {name: np.full((40, 40, 3), colour, np.uint8) for name, colour in colours.items()}
    out = centred(panels, 200, 120)
    assert out.shape == (120, 200, 3)
    for name, colour in colours.items():
        rows, columns = np.nonzero((out == colour).all(axis=2))
        assert (rows.max() - rows.min() + 1, columns.max() - columns.min() + 1) == (40, 40)
        assert (columns.mean() > 100) == (name == "attention")

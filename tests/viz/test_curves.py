"""Learning curves of plain data."""

import numpy as np
import pytest
from matplotlib import rc_context
from matplotlib.figure import Figure

from robopolicy.viz.curves import Curve, Panel, learning_curves, mean_and_spread
from robopolicy.viz.grid import grid_picture


def points(xs, ys):
    return np.array(xs, float), np.array(ys, float)


def test_the_mean_covers_the_x_that_all_seeds_share():
    runs = [points([0, 10, 20, 30], [0, 10, 20, 30]), points([5, 20], [0, 30])]
    x, (mean, spread) = mean_and_spread(runs)
    np.testing.assert_array_equal(x, [5, 10, 20])
    np.testing.assert_allclose(mean, [2.5, 10, 25])
    np.testing.assert_allclose(spread, [5 / np.sqrt(2), 0, 10 / np.sqrt(2)])


def test_seeds_without_a_shared_x_have_no_mean():
    x, (mean, _) = mean_and_spread([points([0, 1], [3, 4]), points([2, 3], [5, 6])])
    assert len(x) == len(mean) == 0


@pytest.fixture
def figure_of(monkeypatch, tmp_path):
    """A function that draws panels and returns the figure."""
    figures = []
    monkeypatch.setattr(Figure, "savefig", lambda self, path, **_: figures.append(self) or path.touch())

    def draw(panels, title="title"):
        learning_curves(tmp_path / "curves.svg", panels, "generation", title)
        return figures[-1]

    return draw


def test_every_run_is_a_line_and_seeds_have_a_mean_and_a_band(figure_of):
    seeds = Curve("softmax", [points([0, 1, 2], [1, 2, 3]), points([0, 1, 2], [3, 2, 1])])
    alone = Curve("positive", [points([0, 1], [5, 6])])
    (axes,) = figure_of([Panel("return", [seeds, alone])]).axes
    lines = [line.get_ydata().tolist() for line in axes.lines]
    assert lines == [[1, 2, 3], [3, 2, 1], [2, 2, 2], [5, 6]]
    assert len(axes.collections) == 1
    assert axes.get_xlabel() == "generation"


@pytest.mark.filterwarnings("error")
def test_letters_that_the_font_lacks_do_not_warn(tmp_path):
    labels = [Curve(name, [points([0, 1], [0, 2])]) for name in ("走行", "softmax")]
    learning_curves(tmp_path / "curves.png", [Panel("return", labels)], "generation", "走行")
    assert (tmp_path / "curves.png").is_file()


def test_a_mean_of_one_point_is_a_marker_with_an_error_bar(figure_of):
    seeds = Curve("softmax", [points([0, 1], [0, 2]), points([1, 2], [4, 5])])
    (axes,) = figure_of([Panel("return", [seeds])]).axes
    ((mean, _, (bar,)),) = axes.containers
    assert (mean.get_xdata().tolist(), mean.get_ydata().tolist()) == ([1], [3])
    assert mean.get_marker() == "o"
    (ends,) = bar.get_segments()
    np.testing.assert_allclose(ends[:, 1], [3 - np.sqrt(2), 3 + np.sqrt(2)])


def test_a_curve_has_the_same_style_in_every_panel(figure_of):
    full, empty = Curve("b", [points([0, 1], [1, 2])]), Curve("a", [])
    figure = figure_of([Panel("return", [Curve("a", full.runs), full]), Panel("success", [empty, full])])
    first, second = figure.axes
    assert first.lines[1].get_color() == second.lines[0].get_color()
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["a", "b"]


def test_nothing_is_clipped_or_overlaps(figure_of):
    names = [f"{name}(m=256, coupling=halton)" for name in ("positive", "angular_hybrid", "trigonometric")]
    curves = [Curve(name, [points([0, 1e6], [n, 1])] * 2, [5e5]) for n, name in enumerate(names)]
    figure = figure_of([Panel(f"number {n} of what is logged in training", curves, n == 0) for n in range(5)])
    figure.draw_without_rendering()
    boxes = [axes.get_tightbbox() for axes in figure.axes]
    boxes += [figure.legends[0].get_window_extent(), figure._suptitle.get_window_extent()]
    for index, box in enumerate(boxes):
        assert figure.bbox.x0 <= box.x0 < box.x1 <= figure.bbox.x1
        assert figure.bbox.y0 <= box.y0 < box.y1 <= figure.bbox.y1
        assert not any(box.overlaps(other) for other in boxes[:index])


@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_the_same_curves_give_the_same_bytes_under_any_user_style(tmp_path, suffix):
    panel = Panel("loss", [Curve("softmax", [points([1, 2, 3], [1e3, 10, 1])])])
    for name, style in (("a", {}), ("b", {"font.size": 20, "axes.grid": False, "svg.fonttype": "none"})):
        with rc_context(style):
            learning_curves(tmp_path / f"{name}{suffix}", [panel], "step", None)
    assert (tmp_path / f"a{suffix}").read_bytes() == (tmp_path / f"b{suffix}").read_bytes()


def test_curves_that_end_far_apart_have_a_logarithmic_axis_without_its_zero(figure_of):
    cheap, dear = points([0, 1e3, 2e3], [0, 1, 2]), points([0, 1e6, 2e6], [0, 1, 2])
    (axes,) = figure_of([Panel("return", [Curve("none", [cheap] * 2), Curve("softmax", [dear])])]).axes
    assert axes.get_xscale() == "log"
    assert all(line.get_xdata().min() > 0 for line in axes.lines)
    (axes,) = figure_of([Panel("return", [Curve("none", [cheap]), Curve("all", [cheap])])]).axes
    assert axes.get_xscale() == "linear"


def test_a_policy_of_a_grid_has_one_colour_in_all_panels(monkeypatch, tmp_path):
    figures = []
    monkeypatch.setattr(Figure, "savefig", lambda self, path, **_: figures.append(self) or path.touch())
    names = ("none", "positive_antithetic(m=256, coupling=halton)")
    middle = {"value": 2.0, "low": 1.0, "high": 4.0}
    rows = [
        {"label": name, "flops": 100**n, "returns": [1, 3], "return_mean": 2, "return_interval": middle}
        for n, name in enumerate(names, 1)
    ]
    curves = Panel("return", [Curve(name, [points([1, 2], [n, 1])] * 2) for n, name in enumerate(names)])
    grid_picture(tmp_path / "table.png", {"mujoco": rows, "bullet": rows}, curves, "FLOPs")
    (figure,) = figures
    *tests, training = figure.axes
    assert [axes.get_title() for axes in figure.axes] == ["mujoco", "bullet", "return"]
    drawn = [line.get_color() for line in training.lines]
    assert drawn == [drawn[0]] * 3 + [drawn[3]] * 3
    for axes in tests:
        assert [bar[0].get_color() for bar in axes.containers] == [drawn[0], drawn[3]]
        ends = axes.containers[0][2][0].get_segments()[0]
        assert ends[:, 1].tolist() == [1.0, 4.0]
    figure.draw_without_rendering()
    boxes = [axes.get_tightbbox() for axes in figure.axes] + [figure.legends[0].get_window_extent()]
    for index, box in enumerate(boxes):
        assert figure.bbox.x0 <= box.x0 < box.x1 <= figure.bbox.x1
        assert figure.bbox.y0 <= box.y0 < box.y1 <= figure.bbox.y1
        assert not any(box.overlaps(other) for other in boxes[:index])

"""The style of all plots, and how they are saved."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from matplotlib import style
from matplotlib.figure import Figure

from robopolicy.writing import whole

STYLE = "robopolicy.viz.robopolicy"  # matplotlib's name for robopolicy.mplstyle in this folder
# Okabe and Ito's palette, which is safe for colour-blind readers, and a grey.
COLOURS = (
    *("#000000", "#e69f00", "#56b4e9", "#009e73", "#f0e442", "#0072b2", "#d55e00", "#cc79a7"),
    "#999999",
)


@contextmanager
def styled() -> Iterator[None]:
    """Use the project's style for figures, independently of the user's own settings."""
    with style.context(STYLE, after_reset=True):
        yield


def save(figure: Figure, path: Path) -> None:
    """Write `figure` to a .png or .svg, atomically. Call it inside `styled`.

    The same figure gives the same bytes. A letter that the font lacks is drawn as an empty box.
    """
    no_dates = {"Date": None} if path.suffix == ".svg" else {"Software": None}
    with whole(path) as partial, warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Glyph \d+ .* missing from font")  # the name of a run may have any
        figure.savefig(partial, format=path.suffix[1:], metadata=no_dates)


@contextmanager
def picture(path: Path, size: tuple[float, float]) -> Iterator[Figure]:
    """Yield a figure of `size` (inches), and save it as a .png or .svg at the end."""
    with styled():
        figure = Figure(figsize=size)
        yield figure
        save(figure, path)

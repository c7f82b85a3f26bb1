"""What all plots have in common: their style, and how they come to the disk."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from matplotlib import style
from matplotlib.figure import Figure

STYLE = "robopolicy.viz.robopolicy"  # as matplotlib looks for it: robopolicy.mplstyle in this room
# Okabe and Ito's, which people tell apart whatever colours they see, and a grey.
COLOURS = (
    *("#000000", "#e69f00", "#56b4e9", "#009e73", "#f0e442", "#0072b2", "#d55e00", "#cc79a7"),
    "#999999",
)


@contextmanager
def styled() -> Iterator[None]:
    """Figures look like those of the project, whatever style their user has made the usual one."""
    with style.context(STYLE, after_reset=True):
        yield


def save(figure: Figure, path: Path) -> None:
    """Write `figure` to a .png or .svg, whole or not at all; its style must be on (`styled`).

    The same drawing gives the same bytes.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    no_dates = {"Date": None} if path.suffix == ".svg" else {"Software": None}
    try:
        figure.savefig(partial, format=path.suffix[1:], metadata=no_dates)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def picture(path: Path, size: tuple[float, float]) -> Iterator[Figure]:
    """A figure of `size` (inches) to draw on, which becomes a .png or .svg once it is whole."""
    with styled():
        figure = Figure(figsize=size)
        yield figure
        save(figure, path)

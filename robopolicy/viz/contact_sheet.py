"""Many frames on one page."""

from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np

from robopolicy.viz.overlay import PAPER, Picture, write
from robopolicy.writing import whole

WIDEST, NARROWEST = 480, 240  # pixels, of a picture on the sheet
GAP, LINE = 6, 22  # pixels


def contact_sheet(
    path: Path, frames: Sequence[Picture], captions: Sequence[str], columns: int = 4, across: int = 1
) -> None:
    """Write a .png of `frames` [H, W, 3] of one size, row by row, atomically.

    Args:
      path: the .png.
      frames: the first is top left. Large frames are reduced, small ones enlarged by a whole factor.
      captions: one for each frame.
      columns: frames in a row.
      across: pictures side by side in a frame, which may be as many times wider: their words stay legible.

    Raises ValueError for no frames, frames of several sizes, another number of captions, or columns below 1.
    """
    if not frames or len({frame.shape for frame in frames}) > 1:
        raise ValueError(f"frames are {len(frames)}: there must be one or more, all of one size")
    if len(captions) != len(frames):
        raise ValueError(f"captions are {len(captions)}: each of the {len(frames)} frames must have one")
    if columns < 1:
        raise ValueError(f"columns is {columns}: it must be 1 or more")
    cells = [_cell(frame, caption, across * WIDEST) for frame, caption in zip(frames, captions, strict=True)]
    columns = min(columns, len(cells))
    rows = -(-len(cells) // columns)
    height, width = cells[0].shape[:2]
    sheet = np.full((rows * (height + GAP) + GAP, columns * (width + GAP) + GAP, 3), PAPER, np.uint8)
    for number, cell in enumerate(cells):
        top, left = (GAP + (number // columns) * (height + GAP), GAP + (number % columns) * (width + GAP))
        sheet[top : top + height, left : left + width] = cell
    _, png = cv2.imencode(".png", sheet[..., ::-1])
    with whole(path) as partial:
        partial.write_bytes(png.tobytes())


def _cell(frame: Picture, caption: str, widest: int) -> Picture:
    """A resized frame, of `widest` pixels at most, over its caption."""
    height, width = frame.shape[:2]
    if width > widest:
        sized = cv2.resize(frame, (widest, round(height * widest / width)), interpolation=cv2.INTER_AREA)
    else:
        factor = -(-NARROWEST // width)
        sized = np.repeat(np.repeat(frame, factor, axis=0), factor, axis=1)
    band = np.full((LINE, sized.shape[1], 3), PAPER, np.uint8)
    write(band, caption, (4, LINE - 7), 0.42)
    return np.concatenate([sized, band])

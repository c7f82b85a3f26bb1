"""Many frames on one page."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np

from robopolicy.viz.overlay import PAPER, Picture, write

WIDEST, NARROWEST = 480, 240  # pixels, of a frame on the sheet
GAP, LINE = 6, 22  # pixels


def contact_sheet(path: Path, frames: Sequence[Picture], captions: Sequence[str], columns: int = 4) -> None:
    """Write `frames` [H, W, 3], all of one size, row by row to a .png that appears once it is whole.

    Args:
      path: what to write.
      frames: the first stands top left; large ones are made smaller, small ones larger by whole pixels.
      captions: one under each frame, as many as there are frames.
      columns: frames in a row.

    Raises ValueError for no frames, frames of several sizes, captions that do not match, columns below 1.
    """
    if not frames or len({frame.shape for frame in frames}) > 1:
        raise ValueError(f"frames are {len(frames)}: there must be one or more, all of one size")
    if len(captions) != len(frames):
        raise ValueError(f"captions are {len(captions)}: each of the {len(frames)} frames must have one")
    if columns < 1:
        raise ValueError(f"columns is {columns}: it must be 1 or more")
    cells = [_cell(frame, caption) for frame, caption in zip(frames, captions, strict=True)]
    columns = min(columns, len(cells))
    rows = -(-len(cells) // columns)
    height, width = cells[0].shape[:2]
    sheet = np.full((rows * (height + GAP) + GAP, columns * (width + GAP) + GAP, 3), PAPER, np.uint8)
    for number, cell in enumerate(cells):
        top, left = (GAP + (number // columns) * (height + GAP), GAP + (number % columns) * (width + GAP))
        sheet[top : top + height, left : left + width] = cell
    partial = path.with_name(f".{path.stem}.{os.getpid()}.png")
    try:
        if not cv2.imwrite(str(partial), sheet[..., ::-1]):
            raise OSError(f"{str(path)!r} could not be written")
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def _cell(frame: Picture, caption: str) -> Picture:
    """A frame as wide as the sheet has them, over its caption."""
    height, width = frame.shape[:2]
    if width > WIDEST:
        sized = cv2.resize(frame, (WIDEST, round(height * WIDEST / width)), interpolation=cv2.INTER_AREA)
    else:
        times = -(-NARROWEST // width)
        sized = np.repeat(np.repeat(frame, times, axis=0), times, axis=1)
    band = np.full((LINE, sized.shape[1], 3), PAPER, np.uint8)
    write(band, caption, (4, LINE - 7), 0.42)
    return np.concatenate([sized, band])

"""What distracts in an episode of the sweep: colours and light, textures, the camera, and other balls.

The three dimensions of the Distracting Control Suite (Stone et al., 2021, arXiv:2101.02722), in its static
setting unless `look_steps` is set, and one of ours: balls of another colour that have to stay.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from robopolicy.envs.drawing.textures import CELLS, PATTERNS, Texture
from robopolicy.envs.physics.arms import GREEN, RED, TABLE_LIGHT, WOOD
from robopolicy.envs.physics.base import Array, Lighting, View
from robopolicy.settings import check_count, check_number

CAMERA = View(eye=(0.95, 0.0, 0.75), target=(0.02, 0.0, 0.0), field_of_view=45.0)
BLUE = (0.1, 0.25, 0.85, 1.0)  # of balls that have to stay
DARKEST = 0.02  # of a drawn colour
TABLE_CELLS, BACKGROUND_CELLS = (0.04, 0.12), (0.1, 0.4)  # m, and halves of a picture's height


@dataclass(frozen=True)
class DistractionConfig:
    """The largest differences of a scene from the nominal one; the defaults have none."""

    colours: float = (
        0.0  # of red, green and blue (0 to 1), for balls, other balls, bowls, table and arms each
    )
    lamp_turn: float = 0.0  # deg, of the direction to the lamp, about two axes
    ambient: float = 0.0  # of the share of the light that reaches all faces alike
    textures: float = 0.0  # share of a pattern in the colours of table and background
    camera_turn: float = 0.0  # deg, of the camera about its target, sideways and up
    camera_shift: float = 0.0  # m, of the target along x and y, and of the camera's distance from it
    other_balls: int = 0  # that have to stay on the table
    look_steps: int = 0  # after which the look is drawn anew; 0 for one look in an episode

    def __post_init__(self) -> None:
        check_number("colours", self.colours, 0.0, 0.3)
        check_number("lamp_turn", self.lamp_turn, 0.0, 45.0)
        check_number("ambient", self.ambient, 0.0, 0.4)
        check_number("textures", self.textures, 0.0, 1.0)
        check_number("camera_turn", self.camera_turn, 0.0, 30.0)
        check_number("camera_shift", self.camera_shift, 0.0, 0.2)
        check_count("other_balls", self.other_balls, 0, 8)
        check_count("look_steps", self.look_steps, 0, 10_000)

    def moves_camera(self) -> bool:
        """Whether the camera's pose is drawn."""
        return bool(self.camera_turn or self.camera_shift)

    def needs_software(self) -> bool:
        """Whether only the software renderer draws it: the engines' own draw the nominal scene."""
        return any((self.colours, self.lamp_turn, self.ambient, self.textures, self.other_balls))


class Colours(NamedTuple):
    """Colours (red, green, blue and perhaps alpha, from 0 to 1); `arms` [3] is added to those of the arms."""

    balls: tuple[float, ...] = RED
    other_balls: tuple[float, ...] = BLUE
    bowls: tuple[float, ...] = GREEN
    table: tuple[float, ...] = WOOD
    arms: tuple[float, ...] = (0.0, 0.0, 0.0)


class Look(NamedTuple):
    """How the scene looks; textures are None for plain surfaces."""

    camera: View = CAMERA
    lighting: Lighting = TABLE_LIGHT
    colours: Colours = Colours()
    table: Texture | None = None
    background: Texture | None = None


NOMINAL = Look()


def drawn_look(config: DistractionConfig, rng: np.random.Generator) -> Look:
    """Draw how the scene looks.

    The numbers drawn do not depend on the strengths, unless all are 0: then none is drawn. So configs with
    equal numbers of balls and other balls differ in the size of the changes alone.
    """
    if config == DistractionConfig(other_balls=config.other_balls, look_steps=config.look_steps):
        return NOMINAL
    changes = rng.uniform(-1.0, 1.0, (len(Colours._fields), 3))
    lamp = rng.uniform(-1.0, 1.0, 3)
    camera = rng.uniform(-1.0, 1.0, 5)
    patterns = [_texture(config.textures, cells, rng) for cells in (TABLE_CELLS, BACKGROUND_CELLS)]
    colours = _colours(config.colours * changes) if config.colours else NOMINAL.colours
    table, background = patterns if config.textures else (None, None)
    return Look(_camera(config, camera), _lighting(config, lamp), colours, table, background)


def shifted(colour: tuple[float, ...], by: Array | tuple[float, ...]) -> tuple[float, ...]:
    """`colour` with `by` [3] added, within what can be seen."""
    return tuple(np.clip(np.add(colour[:3], by), DARKEST, 1.0).tolist())


def _colours(changes: Array) -> Colours:
    *shifts, arms = changes
    bodies = (shifted(colour, by) for colour, by in zip(Colours(), shifts, strict=False))
    return Colours(*bodies)._replace(arms=tuple(arms.tolist()))


def _camera(config: DistractionConfig, changes: Array) -> View:
    if not config.moves_camera():
        return CAMERA
    sideways, up = np.radians(config.camera_turn) * changes[:2]
    away = np.subtract(CAMERA.eye, CAMERA.target)
    distance = np.linalg.norm(away) + config.camera_shift * changes[4]
    azimuth, elevation = (
        math.atan2(away[1], away[0]) + sideways,
        math.asin(away[2] / np.linalg.norm(away)) + up,
    )
    level = math.cos(elevation)
    ahead = np.array([level * math.cos(azimuth), level * math.sin(azimuth), math.sin(elevation)])
    target = np.array(CAMERA.target) + config.camera_shift * np.append(changes[2:4], 0.0)
    return View(_triple(target + distance * ahead), _triple(target), CAMERA.field_of_view)


def _lighting(config: DistractionConfig, changes: Array) -> Lighting:
    if config.lamp_turn == config.ambient == 0:
        return TABLE_LIGHT
    x, y, z = TABLE_LIGHT.direction
    sideways, up = np.radians(config.lamp_turn) * changes[:2]
    azimuth, elevation = math.atan2(y, x) + sideways, math.atan2(z, math.hypot(x, y)) + up
    level = math.cos(elevation)
    direction = (level * math.cos(azimuth), level * math.sin(azimuth), math.sin(elevation))
    return TABLE_LIGHT._replace(
        direction=direction, ambient=TABLE_LIGHT.ambient + config.ambient * changes[2]
    )


def _texture(share: float, sizes: tuple[float, float], rng: np.random.Generator) -> Texture:
    pattern = PATTERNS[rng.integers(len(PATTERNS))]
    angle, size = rng.uniform(0.0, 2 * math.pi), rng.uniform(*sizes)
    axes = np.array([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]]) / size
    return Texture(pattern, rng.random((CELLS, CELLS)), axes, rng.random((2, 3)), share)


def _triple(values: Array) -> tuple[float, float, float]:
    x, y, z = values.tolist()
    return x, y, z

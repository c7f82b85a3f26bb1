"""What makes episodes harder: friction, payload, weak motors and pushes, and faults of the depth cameras."""

from __future__ import annotations

from bisect import bisect
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robopolicy.envs.physics.base import Array, Conditions
from robopolicy.envs.quadruped.cameras import NO_BALLS, CameraConfig, DepthCamera, Ground
from robopolicy.settings import check_count, check_fields, check_interval, check_number

BLOB_COLUMNS = 32  # of the images in whose pixels the radii of spots are given


@dataclass(frozen=True)
class DisturbanceConfig:
    """Ranges of an episode's uniform draws. The defaults are the nominal conditions."""

    friction: tuple[float, float] = (0.8, 0.8)  # between toes and stones
    payload: tuple[float, float] = (0.0, 0.0)  # kg
    motor_strength: tuple[float, float] = (1.0, 1.0)  # share of the commanded torque
    push: float = 0.0  # m/s, largest change of the base's velocity by one push, in any horizontal direction
    push_interval: tuple[float, float] = (2.0, 4.0)  # s from the end of a push to the next one
    push_seconds: float = 0.1  # s, duration of a push

    def __post_init__(self) -> None:
        check_interval("friction", self.friction, 0.0)
        check_interval("payload", self.payload, 0.0)
        check_interval("motor_strength", self.motor_strength, 0.0)
        check_number("push", self.push, 0.0)
        check_interval("push_interval", self.push_interval, 0.0)
        check_number("push_seconds", self.push_seconds, 0.01)


class Disturbances:
    """The disturbances of one episode.

    Attributes:
      conditions: what holds for all of it.
      starts, forces: of its pushes (s), and [3] (N, world).
    """

    def __init__(
        self, config: DisturbanceConfig, mass: float, seconds: float, rng: np.random.Generator
    ) -> None:
        """`mass` is the mass of the robot (kg), `seconds` the longest duration of the episode."""
        self.conditions = Conditions(
            friction=rng.uniform(*config.friction),
            payload=rng.uniform(*config.payload),
            motor_strength=rng.uniform(*config.motor_strength),
        )
        self._config = config
        self.starts: list[float] = []
        self.forces: list[Array] = []
        time = 0.0
        while config.push and time < seconds:
            time += rng.uniform(*config.push_interval)
            angle, speed = rng.uniform(0.0, 2 * np.pi), config.push * rng.uniform()
            size = mass * speed / config.push_seconds
            self.starts.append(time)
            self.forces.append(size * np.array([np.cos(angle), np.sin(angle), 0.0]))
            time += config.push_seconds

    def force(self, time: float) -> Array | None:
        """The push [3] (N, world) at `time` (s); None between pushes."""
        last = bisect(self.starts, time) - 1
        is_on = last >= 0 and time < self.starts[last] + self._config.push_seconds
        return self.forces[last] if is_on else None


@dataclass(frozen=True)
class SensorConfig:
    """Faults of the depth cameras; none by default."""

    noise: float = 0.0  # m, standard deviation at a depth of 1 m; it grows with the square of the depth
    dropout: float = 0.0  # share of missing pixels, which read 0 m
    latency: float = 0.0  # s from exposure to observation, rounded to control periods of the low level
    mount_shift: float = 0.0  # m, largest error of a camera's position along each axis; one draw per episode
    mount_tilt: float = 0.0  # deg, largest error of its tilt
    blobs: int = 0  # spots of wrong depth in each image, at random places
    blob_radius: tuple[float, float] = (1.0, 4.0)  # pixels of an image with BLOB_COLUMNS columns
    blob_error: float = 0.3  # m, largest error of the depth in a spot
    legs: bool = False  # whether the cameras see the robot's legs

    def __post_init__(self) -> None:
        check_number("noise", self.noise, 0.0)
        check_number("dropout", self.dropout, 0.0, 1.0)
        check_number("latency", self.latency, 0.0, 1.0)
        check_number("mount_shift", self.mount_shift, 0.0)
        check_number("mount_tilt", self.mount_tilt, 0.0, 20.0)
        check_count("blobs", self.blobs, 0, 1000)
        check_interval("blob_radius", self.blob_radius, 0.0)
        check_number("blob_error", self.blob_error, 0.0)
        check_fields(self)


class Sensors:
    """The `cameras` of one episode, by name."""

    def __init__(
        self,
        cameras: Mapping[str, CameraConfig],
        config: SensorConfig,
        period: float,
        rng: np.random.Generator,
    ) -> None:
        """`period` is the time between two calls of `see`, s."""
        self._config = config
        self._rng = rng
        self.cameras = {name: DepthCamera(_mounted(camera, config, rng)) for name, camera in cameras.items()}
        self._seen: deque[tuple[Array, float, Callable[[], Array] | None]]
        self._seen = deque(maxlen=1 + round(config.latency / period))

    def see(self, base: Array, yaw: float, balls: Callable[[], Array] | None = None) -> None:
        """Record the pose of the base, one per period.

        `balls` returns the balls [N, 3] (m, world) that cameras see of the legs in this pose. It is called
        only if an image is made of the pose.
        """
        self._seen.append((base, yaw, balls))

    def images(self, ground: Ground) -> dict[str, NDArray[np.float32]]:
        """Depth images [height, width] (m) by camera, delayed by the latency or from the first pose."""
        base, yaw, balls = self._seen[0]
        legs = NO_BALLS if balls is None else balls()
        return {
            name: self._with_faults(camera.image(ground, base, yaw, legs), camera.config.reach)
            for name, camera in self.cameras.items()
        }

    def _with_faults(self, image: NDArray[np.float32], reach: float) -> NDArray[np.float32]:
        config, rng = self._config, self._rng
        if config.noise:
            noisy = image + config.noise * image**2 * rng.standard_normal(image.shape, np.float32)
            image = np.clip(noisy, 0.0, reach).astype(np.float32)
        is_lost = rng.random(image.shape) < config.dropout if config.dropout else None
        if config.blobs:
            image = with_blobs(config, image, rng.random((config.blobs, 4), np.float32), reach, np)
        return image if is_lost is None else np.where(is_lost, np.float32(0.0), image)


def with_blobs(config: SensorConfig, image: Any, draws: Any, reach: float, arrays: Any) -> Any:
    """An image [height, width] (m) with spots of wrong depth. `arrays` is NumPy or its counterpart in JAX.

    draws: row, column, radius and error of each spot, [blobs, 4] in [0, 1).
    """
    height, width = image.shape
    rows, columns = np.arange(height, dtype=np.float32)[:, None], np.arange(width, dtype=np.float32)
    low, high = (radius * width / BLOB_COLUMNS for radius in config.blob_radius)
    for row, column, size, error in draws:
        radius = low + (high - low) * size
        is_in = (rows - height * row) ** 2 + (columns - width * column) ** 2 < radius**2
        wrong = arrays.clip(image + config.blob_error * (2 * error - 1), 0.0, reach)
        image = arrays.where(is_in, wrong, image).astype(image.dtype)
    return image


def _mounted(camera: CameraConfig, config: SensorConfig, rng: np.random.Generator) -> CameraConfig:
    shift = config.mount_shift * rng.uniform(-1.0, 1.0, 3)
    x, y, z = (np.array(camera.position) + shift).tolist()
    tilt = camera.tilt + config.mount_tilt * rng.uniform(-1.0, 1.0)
    return replace(camera, position=(x, y, z), tilt=tilt)

"""Checks that may end a process or hang it; each series of them runs in a process of its own.

    python -m robopolicy.doctor.checkups SERIES

prints a line of JSON for each check as soon as it is done: its name, what it found, what went wrong or "".
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

TASKS = {"stepping stones": "SteppingStones-v0", "bimanual sweep": "BimanualSweep-v0"}
ENGINES = ("bullet", "mujoco")
SHIPPED = "stepping-stones-angular-8x8"
ODD_NAMES = {
    "imageio-ffmpeg": "imageio_ffmpeg",
    "opencv-python-headless": "cv2",
    "orbax-checkpoint": "orbax.checkpoint",
    "scikit-learn": "sklearn",
    "tensorboardx": "tensorboardX",
}

Check = Callable[[], str]


def imports(package: str) -> str:
    """Import a package by the name that pip has for it."""
    import_module(ODD_NAMES.get(package, package))
    return ""


def step(engine: str, task: str) -> str:
    """Make a task and do one step of it."""
    import gymnasium

    env = gymnasium.make(f"robopolicy:robopolicy/{TASKS[task]}", engine=engine)
    try:
        env.reset(seed=0)
        env.step(env.action_space.sample() * 0)
    finally:
        env.close()
    return "one step done"


def draw(engine: str) -> str:
    """Draw the stepping stones, and tell with what."""
    import gymnasium

    from robopolicy.envs.physics import renderer

    name = f"robopolicy:robopolicy/{TASKS['stepping stones']}"
    env = gymnasium.make(name, engine=engine, render_mode="rgb_array", render_size=(240, 240))
    try:
        env.reset(seed=0)
        picture: Any = env.render()
        by = _gl_renderer() if engine == "mujoco" else ""
    finally:
        env.close()
    if picture.max() == picture.min():
        raise RuntimeError("the picture is empty")
    return renderer(engine) + by


def _gl_renderer() -> str:
    """What draws for OpenGL: a device, or a program such as llvmpipe."""
    from OpenGL import GL

    told = GL.glGetString(GL.GL_RENDERER)
    return f", {told.decode()}" if told else ""


def devices() -> str:
    """The devices that JAX computes on, with their memory where they tell it."""
    import jax
    import jax.numpy as jnp

    if float(jax.jit(lambda x: x @ x)(jnp.ones((8, 8))).sum()) != 512.0:
        raise RuntimeError("a product of matrices comes out wrong")
    told = []
    for device in jax.devices():
        stats = device.memory_stats() or {}
        memory = f" ({stats['bytes_limit'] / 1e9:.0f} GB)" if "bytes_limit" in stats else ""
        told.append(f"{device.platform}:{device.id} {device.device_kind}{memory}")
    return ", ".join(told)


def act() -> str:
    """Load a shipped policy and let it act once."""
    from importlib.resources import files

    import jax
    import numpy as np

    from robopolicy.policies.base import unflatten
    from robopolicy.policies.catalogue import policy_of, restore
    from robopolicy.training.checkpoint import RunFolder, load_policy

    run = Path(str(files("robopolicy.assets"))) / "policies" / SHIPPED
    parameters, arrays = load_policy(run)
    policy, features = policy_of(restore(RunFolder(run).config()["policy"]), arrays)
    seen = {name: np.zeros(shape, np.float32) for name, shape in policy.observation_shapes.items()}
    action = np.asarray(jax.jit(policy.act)(unflatten(policy)(parameters), features, seen))
    if not np.isfinite(action).all():
        raise RuntimeError(f"its action is {action.tolist()}")
    return f"{SHIPPED} acts"


def film() -> str:
    """Encode a few frames."""
    import imageio_ffmpeg
    import numpy as np

    from robopolicy.viz.video import open_video

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "film.mp4"
        with open_video(path, 10) as video:
            for shade in range(5):
                video.add(np.full((64, 64, 3), 40 * shade, np.uint8))
        size = path.stat().st_size
    return f"ffmpeg {imageio_ffmpeg.get_ffmpeg_version()}, five frames in {size} bytes"


def series(name: str) -> dict[str, Check]:
    """The checks of a series, by name, in the order in which they are made."""
    kind, _, rest = name.partition("=")
    if kind == "imports":
        return {package: partial(imports, package) for package in rest.split(",")}
    if kind in ENGINES:
        return {**{task: partial(step, kind, task) for task in TASKS}, "pictures": partial(draw, kind)}
    return {"jax": {"devices": devices, "policy": act}, "ffmpeg": {"video": film}}[kind]


@contextlib.contextmanager
def _quiet() -> Iterator[io.TextIOWrapper]:
    """Standard output for answers alone: what libraries print goes to stderr, also from C."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    with answers:
        yield answers


def main(name: str) -> None:
    """Make the checks of a series."""
    with _quiet() as answers:
        for check, made in series(name).items():
            told = wrong = ""
            try:
                told = made()
            except BaseException as error:  # whatever is broken, however, is what is looked for
                first = next((line for line in str(error).splitlines() if line.strip()), "")
                wrong = f"{type(error).__name__}: {first}".rstrip(": ")
            answers.write(json.dumps({"name": check, "told": told, "wrong": wrong}) + "\n")
            answers.flush()


if __name__ == "__main__":
    main(sys.argv[1])

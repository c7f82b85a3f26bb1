"""Checks that may crash or hang a process. Each series of them runs in a process of its own.

    python -m robopolicy.doctor.checkups SERIES

prints a line of JSON after each check: `name`, `result`, and the error `wrong` or "".
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

TASKS = {"stepping stones": "SteppingStones-v0", "bimanual sweep": "BimanualSweep-v0"}
PACKAGES = {"bullet": "pybullet", "mujoco": "mujoco"}
ENGINES = tuple(PACKAGES)
SHIPPED = "stepping-stones-angular-8x8"
MODULE_NAMES = {  # of packages whose module has another name
    "imageio-ffmpeg": "imageio_ffmpeg",
    "mkdocs-material": "material",
    "mkdocstrings-python": "mkdocstrings_handlers.python",
    "opencv-python-headless": "cv2",
    "orbax-checkpoint": "orbax.checkpoint",
    "pytest-xdist": "xdist",
    "rerun-sdk": "rerun",
    "scikit-learn": "sklearn",
    "tensorboardx": "tensorboardX",
}

OWN_RENDERERS = {"bullet": "tiny", "mujoco": "opengl"}
OPTIONAL = ("opengl",)  # many machines have no OpenGL, and no picture needs it by default

Check = Callable[[], str]


def imports(package: str) -> str:
    """Import the module of a package."""
    import_module(MODULE_NAMES.get(package, package))
    return ""


def step(engine: str, task: str) -> str:
    """Make the environment of a task and take one step."""
    import gymnasium

    env = gymnasium.make(f"robopolicy:robopolicy/{TASKS[task]}", engine=engine)
    try:
        env.reset(seed=0)
        env.step(env.action_space.sample() * 0)
    finally:
        env.close()
    return "one step done"


def draw(engine: str, renderer: str) -> str:
    """Draw the stepping stones. Returns OpenGL's device or program, if that draws."""
    import gymnasium

    name = f"robopolicy:robopolicy/{TASKS['stepping stones']}"
    pictures: Any = {"render_mode": "rgb_array", "render_size": (240, 240)}
    env = gymnasium.make(name, engine=engine, renderer=renderer, **pictures)
    device = None
    try:
        env.reset(seed=0)
        picture: Any = env.render()
        if renderer == "opengl":
            from OpenGL import GL

            device = GL.glGetString(GL.GL_RENDERER)
    finally:
        env.close()
    if picture.max() == picture.min():
        raise RuntimeError("the picture is empty")
    return device.decode() if device else "drawn"


def devices() -> str:
    """The devices of JAX, with their memory if they report it."""
    import jax
    import jax.numpy as jnp

    if float(jax.jit(lambda x: x @ x)(jnp.ones((8, 8))).sum()) != 512.0:
        raise RuntimeError("JAX computes a wrong matrix product")
    names = []
    for device in jax.devices():
        stats = device.memory_stats() or {}
        memory = f" ({stats['bytes_limit'] / 1e9:.0f} GB)" if "bytes_limit" in stats else ""
        names.append(f"{device.platform}:{device.id} {device.device_kind}{memory}")
    return ", ".join(names)


def act() -> str:
    """Load a shipped policy and compute one action."""
    from importlib.resources import files

    import numpy as np

    from robopolicy.policies.catalogue import policy_of, restore
    from robopolicy.policies.policy import Policy
    from robopolicy.training.checkpoint import RunFolder, load_policy

    run = Path(str(files("robopolicy.assets"))) / "policies" / SHIPPED
    config = restore(RunFolder(run).config()["policy"])
    parameters, arrays = load_policy(run)
    policy = Policy(config, parameters, policy_of(config, arrays)[1], SHIPPED)
    shapes = policy.functions.observation_shapes
    action = policy.act({name: np.zeros(shape, np.float32) for name, shape in shapes.items()})
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
    """The checks of a series, by name, in order."""
    kind, _, rest = name.partition("=")
    if kind == "imports":
        return {package: partial(imports, package) for package in rest.split(",")}
    if kind in ENGINES:
        own = OWN_RENDERERS[kind]
        steps: dict[str, Check] = {task: partial(step, kind, task) for task in TASKS}
        return {**steps, "pictures": partial(draw, kind, "software"), own: partial(draw, kind, own)}
    stones = "stepping stones"  # the only task that has the engine jax
    jax: dict[str, Check] = {"devices": devices, "policy": act, stones: partial(step, "jax", stones)}
    return {"jax": jax, "ffmpeg": {"video": film}}[kind]


def main(name: str) -> None:
    """Run the checks of a series and print their results.

    Everything else that is printed, also from C, goes to standard error.
    """
    with os.fdopen(os.dup(1), "w") as results:
        os.dup2(2, 1)
        for title, check in series(name).items():
            result = wrong = ""
            try:
                result = check()
            except BaseException as error:  # any failure is a finding
                first = next((line for line in str(error).splitlines() if line.strip()), "")
                wrong = f"{type(error).__name__}: {first}".rstrip(": ")
            results.write(json.dumps({"name": title, "result": result, "wrong": wrong}) + "\n")
            results.flush()


if __name__ == "__main__":
    main(sys.argv[1])

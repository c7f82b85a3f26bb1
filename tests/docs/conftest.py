"""A folder of tiny runs, datasets and bundles, in which the documentation's commands run."""

import json
import shutil
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import documented
import jax
import numpy as np
import pytest

from robopolicy.attention import projections
from robopolicy.cli import main
from robopolicy.training.lerobot import OURS

ES = "--population 2 --generations 1 --episode-seconds 0.5 --workers 1 --patch 4 --held-out 2"
SPOT = "--env spot:Spot-v0 --population 2 --generations 1 --workers 1 --held-out 2"
DEMOS = "--episodes 2 --image-size 64 --balls 2 --workers 1"
BC = (
    "--attention positive(m=4) --preset tiny --patch 16 --samples 16 --batch 8 --validation 0.5 --steps 2 "
    "--validate-every 2 --workers 1"
)


@contextmanager
def unoptimised():
    """JAX compiles without optimisation, which would take longer than everything else in these tests."""
    _optimise(False)
    try:
        yield
    finally:
        _optimise(True)


def _optimise(on):
    jax.config.update("jax_disable_most_optimizations", not on)
    # These keep what they have compiled, and their last bits depend on the setting.
    projections._gram_schmidt.clear_cache()
    projections._turn_away.clear_cache()


@pytest.fixture(scope="session")
def world(once):
    """A folder with runs/, datasets/ and bundles, all of them tiny."""

    def make(folder):
        with unoptimised(), pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)  # runs remember where their data is
            jax.clear_caches()  # what other tests compiled with optimisation draws features with other bits
            _make()

    return once("world", make)


@pytest.fixture
def here(world, tmp_path, monkeypatch):
    """The current folder: a copy of the world."""
    copy = tmp_path / "world"
    shutil.copytree(world, copy)
    monkeypatch.chdir(copy)
    with unoptimised():
        yield copy


def _record_arm(folder):
    """A LeRobot dataset of another program: an arm whose camera shows its first joint."""
    from robopolicy.training.lerobot.writing import Column, Episode, write_lerobot

    joints = [f"joint_{number}.pos" for number in range(6)]
    columns = {
        "observation.images.front": Column("image", (64, 64, 3), ("height", "width", "channels")),
        "observation.state": Column("float32", (6,), joints),
        "action": Column("float32", (6,), joints),
    }

    def episode(number):
        state = np.random.default_rng(number).uniform(-90, 90, (8, 6)).astype(np.float32)
        images = [np.full((64, 64, 3), level, np.uint8) for level in state[:, 0] + 100]
        arrays = (images, state, -state)
        return Episode("reach", dict(zip(columns, arrays, strict=True)))

    write_lerobot(folder, columns, map(episode, range(2)), 30, "so101_follower", {})
    (folder / OURS).unlink()


def _make_quadruped():
    """The model of a robot that is not of the package, and its table, by the Python of its page."""
    _, table, *_ = documented.python_blocks(documented.ROOT / "docs/guides/own-quadruped.md")
    shutil.copy(documented.ROOT / "examples/quadruped.xml", "quadruped.xml")
    exec(compile(f"from pathlib import Path\n{table}", "table.py", "exec"), {})


def _make():
    def do(words):
        assert main(words.split()) == 0, words

    spot, *_ = documented.python_blocks(documented.ROOT / "docs/guides/own-environment.md")
    Path("spot.py").write_text(spot)
    do(f"train es --out runs/mine {ES}")
    do(f"train es --out runs/spot-2 {SPOT}")
    do(f"demos --out datasets/sweep-v0 {DEMOS}")
    do(f"train bc --data datasets/sweep-v0 --out runs/clone {BC}")
    do("export runs/mine --out bundle --observations 5")
    do(f"train es --robot go2 --engine mujoco --out runs/go2 {ES}")
    do("export runs/go2 --out go2-bundle --observations 5")
    _make_quadruped()
    do(f"train es --robot quadruped.json --engine mujoco --out runs/quadruped {ES}")
    do("export runs/quadruped --out quadruped-bundle --observations 5")
    if find_spec("pyarrow"):
        _record_arm(Path("datasets/arm"))
        do(f"train bc --data datasets/arm --out runs/arm {BC}")
    for seed, (name, cloned) in enumerate(documented.runs().items(), 1):
        if not Path("runs", name).exists():
            shutil.copytree(Path("runs", "clone" if cloned else "mine"), Path("runs", name))
            path = Path("runs", name, "config.json")
            config = json.loads(path.read_text())
            config["bc" if cloned else "es"]["seed"] = seed
            path.write_text(json.dumps(config))
    for name in ("small", "round-0", "round-1", "bullet", "mujoco", "bullet-5", "mujoco-5"):
        shutil.copytree("datasets/sweep-v0", f"datasets/{name}-v0")
    shutil.copytree("runs", "experiments")

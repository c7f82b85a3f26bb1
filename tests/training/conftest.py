"""Rollout workers find the toy environment through the path of modules; tests share compilations."""

import os
import shutil
import sys
from pathlib import Path

import jax
import pytest
from jax.experimental.compilation_cache import compilation_cache

HERE = str(Path(__file__).parent)
sys.path.insert(0, HERE)
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [HERE, os.environ.get("PYTHONPATH")]))

# Every training compiles its functions anew, and most of them are equal: a cache for one run of the tests, if
# the environment names none.
CACHE = {
    "jax_compilation_cache_dir": os.path.join(os.environ["XDG_CACHE_HOME"], "jax"),
    "jax_persistent_cache_min_compile_time_secs": 0.1,
}
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    for name, value in CACHE.items():
        os.environ[name.upper()] = str(value)  # for processes that tests start
        jax.config.update(name, value)
    compilation_cache.reset_cache()


@pytest.fixture(scope="session")
def dataset(tmp_path_factory):
    """Five demonstrations of the toy, with noise. No test may change them."""
    from toy_recordings import recorded  # on the path only now

    out = tmp_path_factory.mktemp("recorded") / "toy-v0"
    recorded(out, noise=0.1)
    return out


@pytest.fixture
def arm(tmp_path):
    """A LeRobot dataset of another program."""
    from toy_lerobot import write_arm  # which needs pyarrow

    write_arm(tmp_path / "arm")
    return tmp_path / "arm"


@pytest.fixture
def copy(dataset, tmp_path):
    """The same demonstrations, for a test that changes them."""
    return Path(shutil.copytree(dataset, tmp_path / "copy-v0"))

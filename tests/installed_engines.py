"""The engines as parameters of tests; what needs Bullet is skipped where PyBullet is not installed.

`EACH_ENGINE` are the engines of both tasks. The quadruped has a third, which takes seconds to compile.
"""

import pytest

from robopolicy.envs.physics import ARM_ENGINES, is_installed

NO_BULLET = "pybullet is not installed"
needs_bullet = pytest.mark.skipif(not is_installed("bullet"), reason=NO_BULLET)
INSTALLED = [name for name in ARM_ENGINES if is_installed(name)]
EACH_ENGINE = [pytest.param(name, marks=needs_bullet if name == "bullet" else ()) for name in ARM_ENGINES]
EACH_OF_QUADRUPEDS = [*EACH_ENGINE, pytest.param("jax", marks=pytest.mark.slow)]
each_engine = pytest.mark.parametrize("engine", EACH_ENGINE)

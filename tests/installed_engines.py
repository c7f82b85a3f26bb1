"""The engines as parameters of tests; what needs Bullet is skipped where PyBullet is not installed."""

import pytest

from robopolicy.envs.physics import ENGINES, is_installed

NO_BULLET = "pybullet is not installed"
needs_bullet = pytest.mark.skipif(not is_installed("bullet"), reason=NO_BULLET)
INSTALLED = [name for name in ENGINES if is_installed(name)]
EACH_ENGINE = [pytest.param(name, marks=needs_bullet if name == "bullet" else ()) for name in ENGINES]
each_engine = pytest.mark.parametrize("engine", EACH_ENGINE)

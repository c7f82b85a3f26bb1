import pytest
from toy_bundle import make_bundle


@pytest.fixture
def bundle(tmp_path):
    return make_bundle(tmp_path / "bundle")

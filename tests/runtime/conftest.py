import pytest
from toy_bundle import make_bundle, manifest, write_c


@pytest.fixture
def bundle(tmp_path):
    return make_bundle(tmp_path / "bundle")


@pytest.fixture
def with_c(bundle):
    write_c(bundle, manifest())
    return bundle

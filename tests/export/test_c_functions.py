"""The elementary functions of C policies against float64, dense over their ranges and at special numbers."""

import ctypes
import shutil
import subprocess

import numpy as np
import pytest
from installed_compilers import needs_compiler

from robopolicy.bundles.c_source.source import START, elementary
from robopolicy.runtime.compiler import library

pytestmark = needs_compiler
ROWS = ("exps", "logs", "sqrts", "tanhs", "sigmoids")
INF, NAN = np.inf, np.nan
TINY = np.float32(1.2e-38)  # the least number of full precision
EVERY = 1009  # bit pattern of all floats
SPECIAL = np.array(
    [0.0, -0.0, INF, -INF, NAN, 1e-45, -1e-45, 1.2e-38, 3.4e38, -3.4e38, 1.0, -1.0], np.float32
)


@pytest.fixture(scope="module")
def functions():
    """Every function of rows by name, and `sin`, `cos`, `floor` and `fmod`."""
    text = START + "\n".join(
        elementary(" ".join(f"{name}()" for name in (*ROWS, "sines", "downward", "nearest", "rest_of")))
    )
    for name in ROWS:
        text += f"void call_{name}(float *y, const float *x, size_t n) {{ {name}(y, x, n); }}\n"
    for name, quarters in (("sin", 0), ("cos", 1)):
        text += f"void call_{name}(float *y, const float *x, size_t n) {{ sines(y, x, n, {quarters}); }}\n"
    for name in ("downward", "nearest"):
        loop = f"for (size_t i = 0; i < n; i++) y[i] = {name}(x[i]);"
        text += f"void call_{name}(float *y, const float *x, size_t n) {{ {loop} }}\n"
    loop = "for (size_t i = 0; i < n; i++) y[i] = rest_of(x[i], x[n + i]);"
    text += f"void call_rest_of(float *y, const float *x, size_t n) {{ {loop} }}\n"
    loaded = library({"functions.c": text})

    def call(name, x, size=None):
        x = np.ascontiguousarray(x, np.float32)
        y = np.empty(x.size if size is None else size, np.float32)
        pointers = (array.ctypes.data_as(ctypes.c_void_p) for array in (y, x))
        getattr(loaded, f"call_{name}")(*pointers, ctypes.c_size_t(y.size))
        return y

    return call


def all_floats():
    """Floats of every exponent and sign, not-a-number and infinities among them."""
    return np.arange(0, 2**32, EVERY, dtype=np.uint64).astype(np.uint32).view(np.float32)


def units(found, exact, least):
    """Errors in units in the last place of the exact result, or in `least` where that is larger.

    What is not a number must be none on both sides.
    """
    with np.errstate(over="ignore"):
        rounded = exact.astype(np.float32)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(rounded))
    finite = np.isfinite(rounded) & np.isfinite(found)
    beyond = ~finite & ~np.isnan(rounded)
    np.testing.assert_array_equal(found[beyond], rounded[beyond])
    size = np.abs(rounded[finite])
    unit = np.where(size < least, least, np.spacing(size)).astype(np.float64)
    return np.abs(found[finite] - exact[finite]) / unit


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


@pytest.mark.rest_slow
@pytest.mark.parametrize(
    ("name", "exact", "bound", "least"),
    [
        ("exps", np.exp, 2.0, np.float32(0)),
        ("logs", np.log, 1.0, np.float32(0)),
        ("sqrts", np.sqrt, 1.1, np.float32(0)),
        ("tanhs", np.tanh, 2.0, np.float32(0)),
        ("sigmoids", sigmoid, 3.0, TINY),
    ],
)
def test_it_is_within_its_bound_for_floats_of_all_sizes(functions, name, exact, bound, least):
    dense = np.linspace(-110, 110, 1_000_001).astype(np.float32)
    for x in (all_floats(), dense, np.abs(dense) / 100, SPECIAL):
        with np.errstate(all="ignore"):
            wanted = exact(x.astype(np.float64))
        assert units(functions(name, x), wanted, least).max(initial=0.0) <= bound


@pytest.mark.parametrize(("name", "exact"), [("sin", np.sin), ("cos", np.cos)])
def test_angles_of_all_sizes_are_within_the_bound(functions, name, exact):
    near = np.linspace(-8192, 8192, 2_000_001).astype(np.float32)
    for x in (near, near / 1000, all_floats(), SPECIAL):
        with np.errstate(all="ignore"):
            wanted = exact(x.astype(np.float64))
        found = functions(name, x)
        np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))
        assert np.nanmax(np.abs(found - wanted)) <= 1.2e-7


def test_whole_numbers_are_exact(functions):
    x = np.concatenate([all_floats(), np.linspace(-20, 20, 100_001), np.arange(-9.5, 9, 1.0)]).astype(
        np.float32
    )
    np.testing.assert_array_equal(functions("downward", x), np.floor(x))
    np.testing.assert_array_equal(functions("nearest", x), np.rint(x))


def test_the_rest_of_a_division_is_exact(functions):
    rng = np.random.default_rng(0)
    sizes = (2, 20_000)
    x = np.concatenate(
        [
            rng.uniform(-100, 100, sizes),
            np.stack([rng.integers(-500, 500, 20_000), rng.integers(1, 64, 20_000)]),
            rng.normal(size=sizes) * 10.0 ** rng.integers(-40, 6, sizes),
            np.stack([SPECIAL, np.full_like(SPECIAL, 3.0)]),
            np.stack([np.full_like(SPECIAL, 3.0), SPECIAL]),
        ],
        axis=1,
    ).astype(np.float32)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(functions("rest_of", x, x.shape[1]), np.fmod(x[0], x[1]))


def has_gcc_12():
    if shutil.which("gcc") is None:
        return False
    told = subprocess.run(["gcc", "-dumpversion"], capture_output=True, text=True).stdout
    return int(told.split(".")[0]) >= 12


@pytest.mark.skipif(not has_gcc_12(), reason="gcc 12 is not installed")
@pytest.mark.parametrize("name", ["exps", "sines", "logs", "tanhs"])
def test_gcc_computes_rows_by_vectors(tmp_path, name):
    more = ", 0" if name == "sines" else ""
    text = START + "\n".join(elementary(f"{name}()"))
    text += f"void call(float *y, const float *x, size_t n) {{ {name}(y, x, n{more}); }}\n"
    (tmp_path / "rows.c").write_text(text)
    words = ["gcc", "-std=c99", "-O2", "-mavx2", "-S", "-fopt-info-vec-optimized", "rows.c"]
    if "x86" not in subprocess.run(["gcc", "-dumpmachine"], capture_output=True, text=True).stdout:
        words.remove("-mavx2")
    told = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True).stderr
    assert "loop vectorized" in told

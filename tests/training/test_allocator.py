"""Memory that a training frees and allocates again."""

import ctypes
import subprocess
import sys

import pytest

PAGES = 10 * 2**10  # of 4 KiB in a buffer of 40 MiB; glibc maps those above 32 MiB by default
COUNTED = """
import resource

from robopolicy.cli import main

main(["train", "bc", "--help"])

import jax
import jax.numpy as jnp

doubled = jax.jit(lambda x: 2 * x)
x = jnp.ones(10 * 2**20)
faults = []
for _ in range(60):
    doubled(x).block_until_ready()
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
print(faults[-1] - faults[-11])
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "gnu_get_libc_version"), reason="needs glibc")
def test_cloning_reuses_the_pages_of_large_buffers():
    done = subprocess.run([sys.executable, "-c", COUNTED], capture_output=True, text=True, check=True)
    assert int(done.stdout.split()[-1]) < 10 * PAGES / 2  # the heap grows in the first calls

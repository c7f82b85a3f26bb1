"""For all tests."""

import os

# Two batched QR decompositions at once, as in draws for many keys, each wait for a thread of JAX's pool while
# they hold one: with the two threads that it has on two cores, for ever. JAX reads the pool's size from here.
os.environ.setdefault("NPROC", "8")

"""The C library's allocator, which by default returns large buffers to the system."""

import ctypes

# Parameters of glibc's mallopt, from its malloc.h.
M_TRIM_THRESHOLD, M_MMAP_MAX, M_ARENA_MAX = -1, -4, -8
NEVER = -1


def keep_freed_memory() -> None:
    """From now on, glibc keeps all memory that this process frees for later allocations.

    XLA allocates the temporaries of a step anew. By default, glibc maps buffers above 32 MiB, so the system
    clears all of their pages in each step. Call this before JAX starts its threads: a thread that has
    allocated before keeps a heap of its own, of 64 MiB at most. Without glibc, nothing changes.
    """
    library = ctypes.CDLL(None)
    if hasattr(library, "gnu_get_libc_version"):
        for parameter, value in ((M_TRIM_THRESHOLD, NEVER), (M_MMAP_MAX, 0), (M_ARENA_MAX, 1)):
            library.mallopt(parameter, value)

"""How the process uses memory."""

import ctypes

TRIM_THRESHOLD, TOP_PAD, MMAP_MAX = -1, -2, -4  # the names of glibc's options, from malloc.h
LARGEST = 2**31 - 1


def keep_memory() -> bool:
    """Keep memory that was freed for what comes next, instead of giving it back and asking for it again.

    glibc gives every large block back to the system, which then clears each page of the next one: up to two fifths of
    the time of a training step. Kept, the process stays as large as it once was. Only where the C library is glibc.

    Returns:
        Whether it could be done.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return all(mallopt(option, value) for option, value in ((MMAP_MAX, 0), (TRIM_THRESHOLD, LARGEST), (TOP_PAD, 2**26)))

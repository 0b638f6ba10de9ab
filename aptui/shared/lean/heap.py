"""Memory of the C library that this process keeps without need; where it is not glibc nothing happens.

Tests: `tests/tui/test_start.py`.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress

_M_ARENA_MAX = -8
"""`mallopt(3)`."""


def use_one_heap() -> None:
    """Let threads that begin from now on share one heap: of several, each keeps what its thread once needed.

    Nobody waits for it: threads of Python take turns anyway.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)


def give_memory_back() -> None:
    """Give the system what was needed for a while: glibc would keep it, 7 MB after a hundred thousand jobs were read."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)

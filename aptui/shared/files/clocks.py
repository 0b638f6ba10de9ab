"""Clocks of file systems: whether a file may change once more without a change of its times.

A file system's clock stands still between two ticks. Of two changes within one tick the second leaves no trace in the times.

Tests: `tests/engine/live/test_coarse_clock.py`.
"""

from __future__ import annotations

RACY_NS = 2_000_000_000
"""The longest tick of any file system (FAT)."""
_MILLISECOND_NS = 1_000_000


def is_coarse(ctime_ns: int) -> bool:
    """Whether the clock of a file's file system seems to count in milliseconds, in seconds or in pairs of seconds."""
    return not ctime_ns % _MILLISECOND_NS


def is_settled(stamp: tuple[int, ...], read_ns: int) -> bool:
    """Whether every change after `read_ns` will change the times of a file that has this stamp.

    A stamp is (size, mtime_ns, ctime_ns, inode).
    """
    return max(stamp[1:3]) < read_ns - RACY_NS


def stamp_read_at(stamp: tuple[int, ...], read_ns: int) -> tuple[int, ...]:
    """Return the stamp to remember of a file whose reading began at `read_ns`.

    While the file may still change without a change of its times, the mtime of this stamp is 0, so that no later stamp equals it.
    """
    return stamp if not stamp or is_settled(stamp, read_ns) else (stamp[0], 0, *stamp[2:])

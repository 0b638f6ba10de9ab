"""Clocks of file systems: whether a file can still change while its times stay equal.

A file system's clock stands still between two ticks. If a file changes twice within one tick, its times do not show the second
change.

Tests: `tests/engine/live/test_coarse_clock.py`.
"""

from __future__ import annotations

RACY_NS = 2_000_000_000
"""The longest tick of any file system (FAT)."""
_MILLISECOND_NS = 1_000_000


def is_coarse(ctime_ns: int) -> bool:
    """Whether the clock of a file's file system seems to have a tick of a millisecond, a second or two seconds."""
    return not ctime_ns % _MILLISECOND_NS


def is_settled(stamp: tuple[int, ...], read_ns: int) -> bool:
    """Whether every change of a file after `read_ns` also changes the times in its stamp (size, mtime_ns, ctime_ns, inode).

    The result is False if the file was modified shortly before `read_ns`: a later change in the same tick of the file system's
    clock would leave the times equal.
    """
    return max(stamp[1:3]) < read_ns - RACY_NS


def stamp_read_at(stamp: tuple[int, ...], read_ns: int) -> tuple[int, ...]:
    """Return the stamp to store for a file that was read from `read_ns` on.

    If a later change could leave the file's times equal, the mtime of the returned stamp is 0. Then the next check finds a
    difference, and reads the file again.
    """
    return stamp if not stamp or is_settled(stamp, read_ns) else (stamp[0], 0, *stamp[2:])

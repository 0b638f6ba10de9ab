"""Leases: detect whether another process has a file open for writing.

The kernel then refuses a read lease (fcntl(2), F_SETLEASE): two system calls, about 2 µs.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os


def is_open_for_writing(path: str | bytes) -> bool | None:
    """Return whether another process holds the file at `path` open for writing; None if the kernel cannot tell."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        return is_being_written(descriptor)
    finally:
        os.close(descriptor)


def is_being_written(descriptor: int) -> bool | None:
    """Return whether another process holds this file, open for reading here, open for writing; None if the kernel cannot tell.

    A lease needs the file's owner (or root) and a file system that supports leases; most network file systems do not. The
    caller must ignore SIGIO: it arrives when another process opens the file in the microseconds that the lease is held.
    """
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except OSError as error:
        return True if error.errno in (errno.EAGAIN, errno.EBUSY) else None
    with contextlib.suppress(OSError):
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    return False

"""Several processes, one store: leases for its use, its clean-up, and uploads meanwhile.

A lease is a locked file: it ends with its process, however that dies. While anybody has one, what was used a short while ago stays.
Whoever puts something in shares a lock with others who do; removing files needs it alone, for a moment. No lock is trusted for
correctness: a record whose blob is gone is a miss.

Tests: `tests/sharing/stores/test_maintenance.py`.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from collections.abc import Iterator


class Lease:
    """Says that a process uses the store at `root`, until it is closed or the process ends."""

    def __init__(self, root: str) -> None:
        folder = os.path.join(root, "leases")
        os.makedirs(folder, exist_ok=True)
        name = f"{os.getpid()}-{secrets.token_hex(4)}"
        hidden, self._path = os.path.join(folder, f".{name}"), os.path.join(folder, name)
        self._descriptor = os.open(hidden, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with contextlib.suppress(OSError):
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.rename(hidden, self._path)  # nobody sees it before it is locked

    def close(self) -> None:
        """Give the lease back; once is enough."""
        if self._descriptor < 0:
            return
        with contextlib.suppress(OSError):
            os.unlink(self._path)
        os.close(self._descriptor)
        self._descriptor = -1


def living(root: str) -> int:
    """Return how many leases there are; those of processes that died are removed."""
    folder, count = os.path.join(root, "leases"), 0
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir(folder):
            count += not name.startswith(".") and not _is_dead(os.path.join(folder, name))
    return count


@contextlib.contextmanager
def share_with_gc(root: str) -> Iterator[None]:
    """Put something in while nothing is removed."""
    with _lock(os.path.join(root, "lock"), fcntl.LOCK_SH):
        yield


@contextlib.contextmanager
def alone(root: str) -> Iterator[None]:
    """Remove something while nothing is put in."""
    with _lock(os.path.join(root, "lock"), fcntl.LOCK_EX):
        yield


@contextlib.contextmanager
def cleaning(root: str) -> Iterator[bool]:
    """Be the one who cleans up; yields False when somebody else does."""
    descriptor = os.open(os.path.join(root, "gc"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        yield False
    else:
        yield True
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _lock(path: str, how: int) -> Iterator[None]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, how)
        yield
    finally:
        os.close(descriptor)


def _is_dead(path: str) -> bool:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.unlink(path)
    except BlockingIOError:
        return False
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return True

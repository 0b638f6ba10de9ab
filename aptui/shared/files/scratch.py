"""Temporary folders. If a process is killed, the next process that makes such folders removes the folder of the killed process.

A process holds a lock on its folder, which the kernel releases when the process ends. A folder without a lock is abandoned.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

_TRIES = 8
"""Maximum number of attempts to make a folder; an attempt fails if another process removes the new folder before it is locked."""


@contextlib.contextmanager
def scratch_folder(prefix: str) -> Iterator[Path]:
    """Make a temporary folder whose name begins with `prefix`, and remove it at the end of the block.

    Abandoned folders of this user are removed, too.

    Raises:
        OSError: the folder cannot be made.
    """
    _remove_abandoned(prefix)
    for _ in range(_TRIES):
        with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as folder:
            try:
                descriptor = _claim(folder)
            except (BlockingIOError, FileNotFoundError):
                continue
            try:
                yield Path(folder)
            finally:
                os.close(descriptor)
            return
    raise FileNotFoundError(f"every temporary folder that was created in '{tempfile.gettempdir()}' disappeared")


@contextlib.contextmanager
def interrupt_on_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end a verb as Ctrl+C does, so that the verb removes its temporary folders.

    A signal that this process ignores stays ignored.
    """
    numbers = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, signal.default_int_handler) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _remove_abandoned(prefix: str) -> None:
    for path in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        with contextlib.suppress(OSError):
            if path.lstat().st_uid != os.geteuid():
                continue
            descriptor = _claim(str(path))
            try:
                shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(descriptor)


def _claim(folder: str) -> int:
    """Lock a folder and return its descriptor.

    Raises:
        BlockingIOError: another process holds the lock.
        FileNotFoundError: the folder was removed in the meantime.
        OSError: the path is a link, or is not a folder.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(os.fstat(descriptor), os.lstat(folder)):
            raise FileNotFoundError(folder)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor

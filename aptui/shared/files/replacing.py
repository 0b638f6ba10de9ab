"""Files that are written whole or not at all: beside their place under a hidden name, then put there in one step.

Devices, pipes and what `/dev/stdout` or `>(gzip)` of a shell stand for are no such places: what is there stays, and is written to.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from aptui.shared.errors import HostError, KnownError, UserError

PRIVATE = 0o600
"""Mode of what is its user's alone."""


@contextmanager
def replacing(
    path: Path, *, mode: int = 0o666, is_synced: bool = True, what: str = "", folder: Path | None = None
) -> Iterator[BinaryIO]:
    """Give out a file to write to; when all went well it becomes `path`, else it goes and `path` is as it was.

    A device or pipe gets what is written as it comes.

    Args:
        mode: of the new file, less the process's umask.
        is_synced: it outlives a power cut.
        what: the file in messages, as somebody named it; "" = nobody did, its path.
        folder: where the new file is written, on the same file system; None = beside `path`.

    Raises:
        UserError: its folder is not there, or somebody named one. HostError: it cannot be written.
    """
    if path.is_dir():
        raise _a_folder(what) if what else HostError(f"'{path}' cannot be written: it is a folder", hint="move it away")
    what = what or f"'{path}'"
    try:
        if is_stream(path):
            with open(path, "wb") as stream:
                yield stream
            return
    except OSError as error:
        raise not_written(what, error) from error
    begun = (folder or path.parent) / f".{path.name}.{os.getpid()}.new"
    try:
        with open(begun, "wb", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW, mode)) as stream:
            yield stream
            stream.flush()
            if is_synced:
                os.fsync(stream.fileno())
        begun.replace(path)
    except OSError as error:
        raise not_written(what, error) from error
    finally:
        with suppress(OSError):
            begun.unlink()


def is_stream(path: Path) -> bool:
    """Whether nothing may take the place of what is there: a device, a pipe, or a name for an open file."""
    try:
        is_file = stat.S_ISREG(path.stat().st_mode)
    except OSError:
        return False  # nothing is there yet, or whoever opens it says why not
    return not is_file or (path.is_symlink() and path.is_relative_to("/dev")) or path.is_relative_to("/proc")


def refuse_unwritable(file: str) -> None:
    """Say before an hour of work that its report could not be written.

    Raises:
        UserError: its folder is not there, or it is one. HostError: it may not be written.
    """
    path = Path(os.path.abspath(file))
    if not path.parent.is_dir():
        raise not_written(f"'{file}'", FileNotFoundError())
    if path.is_dir():
        raise _a_folder(f"'{file}'")
    needed = path if is_stream(path) else path.parent
    if not os.access(needed, os.W_OK):
        raise HostError(f"'{file}' cannot be written: permission denied", hint=f"check the permissions of '{needed}'")


def _a_folder(what: str) -> UserError:
    return UserError(f"{what} cannot be written: it is a folder", hint="name a file in it")


def not_written(what: str, error: OSError) -> KnownError:
    """Return what to raise when a file that somebody named cannot be written."""
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return UserError(f"{what} cannot be written: its folder is not there", hint="create the folder, or name another file")
    reason = error.strerror or str(error)
    return HostError(f"{what} cannot be written: {reason}", hint="check its permissions and the free space on its disk")


def replace_bytes(path: Path, data: bytes, *, mode: int = 0o666, is_synced: bool = True, what: str = "") -> None:
    """Write a whole file; see `replacing`."""
    with replacing(path, mode=mode, is_synced=is_synced, what=what) as stream:
        stream.write(data)


@contextmanager
def lock_file(path: Path) -> Iterator[None]:
    """Hold the lock of `path`, a file `<path>.lock` beside it that only its user can read; other processes wait.

    Raises:
        OSError: the lock file cannot be opened.
    """
    descriptor = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def file_stamp(path: Path) -> tuple[int, int, int] | None:
    """Return (inode, modification time in ns, size), which differ once the file was replaced; None = it does not exist."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size

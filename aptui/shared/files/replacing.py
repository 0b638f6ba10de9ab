"""Files that are written whole or not at all, and files that other processes are writing.

A file is written under a hidden name in the folder of its path, then renamed in one step. Devices, pipes and names such as
`/dev/stdout` or `>(gzip)` of a shell are not replaced; the bytes are written to them.
"""

from __future__ import annotations

import errno
import fcntl
import glob
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO

from aptui.shared.errors import HostError, KnownError, UserError

# The functions below detect whether another process has a file open for writing.
#
# If so, the kernel refuses a read lease on the file (fcntl(2), F_SETLEASE). The check takes two system calls, about 2 µs.


def is_open_for_writing(path: str | bytes) -> bool | None:
    """Return whether another process has the file at `path` open for writing; None = unknown."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        return is_being_written(descriptor)
    finally:
        os.close(descriptor)


def is_being_written(descriptor: int) -> bool | None:
    """Return whether another process has a file open for writing; None = unknown. `descriptor` is open for reading.

    A lease needs the file's owner (or root) and a file system that supports leases; most network file systems do not. The
    caller must ignore SIGIO: it arrives when another process opens the file in the microseconds that the lease is held.
    """
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except OSError as error:
        return True if error.errno in (errno.EAGAIN, errno.EBUSY) else None
    with suppress(OSError):
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    return False


PRIVATE = 0o600
"""Mode of a file that only its user can read and write."""


@contextmanager
def replacing(
    path: Path, *, mode: int = 0o666, is_synced: bool = True, what: str = "", folder: Path | None = None
) -> Iterator[BinaryIO]:
    """Yield a file to write to. On success it replaces `path`; on an error it is deleted and `path` is unchanged.

    A device or pipe is written to directly.

    Args:
        mode: mode of the new file, before the process's umask applies.
        is_synced: sync the file, so that it survives a power cut.
        what: how messages name the file, if the user gave it in an option or setting; "" = messages use the path.
        folder: folder in which the new file is written before it replaces `path`; must be on the same file system. None = the
            folder of `path`.

    Raises:
        UserError: its folder does not exist, or the user named a folder. HostError: it cannot be written.
    """
    if path.is_dir():
        raise _a_folder(what) if what else HostError(f"'{path}' cannot be written: it is a folder", hint="move the folder away")
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


def list_begun(path: Path) -> list[str]:
    """Return the hidden files that killed processes left before they replaced `path`."""
    return glob.glob(f"{glob.escape(str(path.parent))}/.{glob.escape(path.name)}.*.new")


def is_stream(path: Path) -> bool:
    """Whether the file at a path cannot be replaced, only written to: a device, a pipe, or a name for an open file."""
    try:
        is_file = stat.S_ISREG(path.stat().st_mode)
    except OSError:
        return False  # the file does not exist yet, or the attempt to open it will report the error
    return not is_file or (path.is_symlink() and path.is_relative_to("/dev")) or path.is_relative_to("/proc")


def describe_unwritable(folder: str | Path) -> str:
    """Return why files cannot be written to a folder, "" if they can. A missing folder must be one that can be made."""
    place = os.path.abspath(folder)
    while not os.path.lexists(place):
        place = os.path.dirname(place)
    if not os.path.isdir(place):
        return f"'{place}' is not a folder"
    return "" if os.access(place, os.W_OK | os.X_OK) else f"'{place}' cannot be written"


def refuse_unwritable(file: str) -> None:
    """Raise an error if a file cannot be written; called before the long work that makes the file's content.

    Raises:
        UserError: its folder does not exist, or the path is a folder. HostError: writing is not permitted.
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
    return UserError(f"{what} cannot be written: it is a folder", hint="name a file in that folder")


def not_written(what: str, error: OSError) -> KnownError:
    """Return the error to raise when a file that the user named cannot be written."""
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return UserError(f"{what} cannot be written: its folder does not exist", hint="create the folder, or name another file")
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


def open_regular(path: str | bytes | Path) -> BufferedReader:
    """Return an opened file for reading, which the caller closes. A pipe or a device is refused, as by `read_regular`.

    Raises:
        OSError: the file cannot be read, or is not a regular file.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except BlockingIOError:  # a file server holds a lease on the file, and gives it up if the open waits
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a regular file", os.fspath(path))
    return open(descriptor, "rb")


def read_regular(path: str | bytes | Path, limit: int = -1, *, is_tail: bool = False) -> bytes:
    """Return the bytes of a file, at most `limit` of them; -1 = all. With `is_tail`, the last bytes instead of the first.

    A pipe or a device is not read, because its content might never end. Files of a project or cache may come from another machine.

    Raises:
        OSError: the file cannot be read, or is not a regular file.
    """
    with open_regular(path) as file:
        if is_tail:
            size = os.fstat(file.fileno()).st_size
            limit = min(limit, size)  # `read` reserves memory for all the bytes that it is asked for
            file.seek(size - limit)
        return file.read(limit)


def read_private(path: str, what: str, limit: int) -> bytes:
    """Return at most `limit` bytes of a file with a secret; `what` names the secret in messages, for example "the key".

    Raises:
        UserError: the file cannot be read, or other users can read it.
    """
    try:
        with open(path, "rb") as file:
            mode, data = os.fstat(file.fileno()).st_mode, file.read(limit)
    except OSError as error:
        hint = "copy the file to this path" if isinstance(error, FileNotFoundError) else "check its permissions"
        raise UserError(f"{what} cannot be read: {error.strerror}", where=path, hint=hint) from None
    if mode & 0o077:
        raise UserError(f"other users can read {what}", where=path, hint=f"run: chmod 600 '{path}'")
    return data


def file_stamp(path: Path) -> tuple[int, int, int] | None:
    """Return (inode, modification time in ns, size) of a file, to detect its replacement; None = the file does not exist."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size

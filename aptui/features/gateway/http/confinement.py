"""Files below a folder and nowhere else, with any path: the kernel resolves it, from a descriptor of the folder.

`openat2` refuses symbolic links, `..` out of the folder, and absolute paths, in one step that nobody can come between. Where the
kernel (5.6) or a container's filter does not offer it, each part of the path is opened on its own, without following links. Both
refuse the same paths.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from typing import Protocol

_OPENAT2 = 437
"""The number of the system call, one for all architectures (Linux's syscall tables)."""
_NO_MAGICLINKS, _NO_SYMLINKS, _BENEATH = 0x02, 0x04, 0x08
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK  # a pipe in the place of a file must not stop us
_NOT_OFFERED = frozenset({errno.ENOSYS, errno.EPERM, errno.E2BIG, errno.EINVAL})
_TRIES = 64
"""How often a path is resolved again when a rename elsewhere came between (EAGAIN of openat2)."""


class _OpenHow(ctypes.Structure):
    """`struct open_how` of openat2(2)."""

    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


class Opener(Protocol):
    """Opens a path below a folder; `flags` are added to those for reading."""

    def __call__(self, folder: int, path: bytes, flags: int = 0) -> int:
        """Return a descriptor. Raises OSError."""
        ...


def open_confined(folder: int, path: bytes, flags: int = 0) -> int:
    """Return a descriptor for reading `path`, which lies below the folder that `folder` is a descriptor of.

    Raises:
        FileNotFoundError, NotADirectoryError: there is none. PermissionError: the path leads elsewhere, or we may not.
        OSError: it cannot be opened.
    """
    return _opener(folder, path, flags)


def open_confined_file(folder: int, path: bytes) -> tuple[int, os.stat_result]:
    """Return a descriptor of a regular file below a folder, and what it is.

    Raises:
        OSError: as `open_confined`; IsADirectoryError, PermissionError: it is no regular file.
    """
    descriptor = open_confined(folder, path)
    try:
        found = os.fstat(descriptor)
        if stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError(errno.EISDIR, "is a folder")
        if not stat.S_ISREG(found.st_mode):
            raise PermissionError(errno.EACCES, "is no file")
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor, found


def refuse_odd(path: bytes) -> None:
    """Raise PermissionError for a path that is empty or absolute, climbs, or holds a NUL."""
    if not path or path.startswith(b"/") or b"\0" in path or b".." in path.split(b"/"):
        raise PermissionError(errno.EACCES, "is no path below the folder")


def open_by_kernel(folder: int, path: bytes, flags: int = 0) -> int:
    """Open with openat2(2).

    Raises:
        OSError: as `open_confined`; with ENOSYS, EPERM, E2BIG or EINVAL the kernel does not offer it.
    """
    refuse_odd(path)
    how = _OpenHow(_READ | flags, 0, _BENEATH | _NO_MAGICLINKS | _NO_SYMLINKS)
    for _ in range(_TRIES):
        descriptor: int = _libc.syscall(
            _OPENAT2, folder, ctypes.c_char_p(path), ctypes.byref(how), ctypes.c_size_t(ctypes.sizeof(how))
        )
        if descriptor >= 0:
            return descriptor
        code = ctypes.get_errno()
        if code not in (errno.EAGAIN, errno.EINTR):
            break
    if code in (errno.EXDEV, errno.ELOOP):
        raise PermissionError(errno.EACCES, "leads out of the folder, or over a link")
    raise OSError(code, os.strerror(code))


def open_by_parts(folder: int, path: bytes, flags: int = 0) -> int:
    """Open part by part, following no link.

    Raises:
        OSError: as `open_confined`.
    """
    refuse_odd(path)
    parts = [part for part in path.split(b"/") if part not in (b"", b".")]
    here = folder
    try:
        for part in parts[:-1]:
            below = _open_part(part, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, here)
            if here != folder:
                os.close(here)
            here = below
        ends_in_folder = os.O_DIRECTORY if path.endswith((b"/", b"/.")) or not parts else 0
        return _open_part(parts[-1] if parts else b".", _READ | flags | ends_in_folder, here)
    finally:
        if here != folder:
            os.close(here)


def _open_part(part: bytes, flags: int, folder: int) -> int:
    try:
        return os.open(part, flags | os.O_NOFOLLOW, dir_fd=folder)
    except OSError as error:
        is_link = error.errno == errno.ELOOP or (error.errno == errno.ENOTDIR and _is_link(part, folder))
        if is_link:
            raise PermissionError(errno.EACCES, "leads over a link") from None
        raise


def _is_link(part: bytes, folder: int) -> bool:
    try:
        return stat.S_ISLNK(os.stat(part, dir_fd=folder, follow_symlinks=False).st_mode)
    except OSError:
        return False


def has_openat2(folder: int) -> bool:
    """Whether the kernel offers openat2 to this process; `folder` is any folder's descriptor."""
    try:
        os.close(open_by_kernel(folder, b"."))
    except OSError as error:
        return error.errno not in _NOT_OFFERED
    return True


def _choose() -> Opener:
    descriptor = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return open_by_kernel if has_openat2(descriptor) else open_by_parts
    finally:
        os.close(descriptor)


class ConfinedRoot:
    """A folder, held open; when another one has taken its place it is that one."""

    def __init__(self, path: bytes) -> None:
        self._path = path
        self._descriptor = -1
        self._identity = (0, 0)

    def open_file(self, path: bytes) -> tuple[int, os.stat_result]:
        """Return a descriptor of a file below it, and what it is; raises OSError as `open_confined_file`."""
        return open_confined_file(self.descriptor(), path)

    def descriptor(self) -> int:
        """Return a descriptor of the folder, for use at once; raises OSError when there is none."""
        found = os.stat(self._path)
        if self._descriptor < 0 or (found.st_dev, found.st_ino) != self._identity:
            self.close()
            self._descriptor = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            self._identity = found.st_dev, found.st_ino
        return self._descriptor

    def close(self) -> None:
        """Let go of it."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
_opener = _choose()

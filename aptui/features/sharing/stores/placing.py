"""Places files by reflink, hard link or copy, transfers and checks bytes, and locks the store for several processes."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import secrets
import stat
import time
from collections.abc import Iterable, Iterator

from aptui.shared.result_store import Mismatch, StoreError, StoreFull, StoreRefused

# Verified transfers from and to a store. Bytes with a wrong digest are not published, and do not stay at a target.

CHUNK_BYTES = 1 << 20
"""Number of bytes that are read and written at a time."""
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_REFUSED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


def write_verified(chunks: Iterable[bytes], target: str, digest: str, size: int) -> None:
    """Write `chunks` to the new file `target`, at most `size` bytes.

    Raises:
        Mismatch: the length or the SHA-256 is wrong. An error during writing deletes `target`.
        FileExistsError: `target` exists; it is not changed.
    """
    hasher, left = hashlib.sha256(), size
    with open(target, "xb", buffering=0) as file:
        try:
            for chunk in chunks:
                left -= len(chunk)
                if left < 0:
                    raise Mismatch(f"stored file {digest} is longer than {size} bytes")
                hasher.update(chunk)
                write_all(file.fileno(), chunk)
            if left:
                raise Mismatch(f"stored file {digest} ends {left} bytes too early")
            if hasher.hexdigest() != digest:
                raise Mismatch(f"the bytes of stored file {digest} do not match its name")
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(target)
            raise


def read_verified(path: str, digest: str) -> Iterator[bytes]:
    """Yield the bytes of a file.

    Yield the last chunk only if the digest is right, so that an upload of wrong bytes cannot complete.

    Raises:
        Mismatch: the file has changed.
    """
    hasher, held = hashlib.sha256(), b""
    with open(path, "rb", buffering=0) as file:
        while chunk := file.read(CHUNK_BYTES):
            hasher.update(chunk)
            if held:
                yield held
            held = chunk
    if hasher.hexdigest() != digest:
        raise Mismatch(f"'{path}' changed after it was made, so it is not shared")
    yield held


def digest_of(path: str) -> str:
    """Return the SHA-256 of a file's bytes in hex."""
    with open(path, "rb", buffering=0, opener=open_noatime) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def open_noatime(path: str, flags: int) -> int:
    """Open a file without changing its access time, for `open(opener=…)`. For files of other owners, the access time changes."""
    try:
        return os.open(path, flags | os.O_NOATIME)
    except PermissionError:
        return os.open(path, flags)


@contextlib.contextmanager
def name_errors(address: str) -> Iterator[None]:
    """Convert OS errors to errors of a store."""
    try:
        yield
    except OSError as error:
        text = error.strerror or str(error)
        if error.errno in _FULL:
            raise StoreFull(f"no space is left on the disk: {text}", where=address) from error
        if error.errno in _REFUSED:
            raise StoreRefused(text, where=address) from error
        raise StoreError(text, where=address) from error


def write_all(descriptor: int, data: bytes) -> None:
    """Write all bytes to a file without a buffer."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


# A lease is a locked file, and its lock ends with the process. While any lease exists, a cleanup does not remove recently used
# results. Writers share another lock, and a cleanup holds this lock exclusively while it removes files. Results are correct even if
# the locks fail, because a record whose blob is missing counts as a miss.


class Lease:
    """A lease of the store at `root`, valid until the lease is closed or the process ends."""

    def __init__(self, root: str) -> None:
        folder = os.path.join(root, "leases")
        os.makedirs(folder, exist_ok=True)
        name = f"{os.getpid()}-{secrets.token_hex(4)}"
        hidden, self._path = os.path.join(folder, f".{name}"), os.path.join(folder, name)
        self._descriptor = os.open(hidden, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with contextlib.suppress(OSError):
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.rename(hidden, self._path)  # renamed after locking, so that other processes never see an unlocked lease

    def close(self) -> None:
        """Release the lease; further calls do nothing."""
        if self._descriptor < 0:
            return
        with contextlib.suppress(OSError):
            os.unlink(self._path)
        os.close(self._descriptor)
        self._descriptor = -1


def living(root: str) -> int:
    """Return the number of leases of running processes, and remove the leases of killed processes."""
    folder, count = os.path.join(root, "leases"), 0
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir(folder):
            count += not name.startswith(".") and not _is_dead(os.path.join(folder, name))
    return count


def share_with_gc(root: str) -> contextlib.AbstractContextManager[None]:
    """Hold the shared lock: files may be added, not removed."""
    return _lock(root, fcntl.LOCK_SH)


def alone(root: str) -> contextlib.AbstractContextManager[None]:
    """Hold the exclusive lock: files may be removed."""
    return _lock(root, fcntl.LOCK_EX)


@contextlib.contextmanager
def cleaning(root: str) -> Iterator[bool]:
    """Hold the lock of a cleanup during the `with` block; yield False if another process holds the lock."""
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
def _lock(root: str, how: int) -> Iterator[None]:
    descriptor = os.open(os.path.join(root, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
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


_FICLONE = 0x40049409
"""Request number of ioctl_ficlone(2), which makes two files share their bytes until one of the files is written."""
_MEMO = "user.aptui"
"""Name of the extended attribute with the note that a file's bytes were checked."""
_SLACK_NS = 50_000_000
"""Maximum time (ns) between writing the attribute `_MEMO` and this program's own changes of the inode, for example by chmod.

A later change time shows that another program changed the file: programs can reset the modification time, but not the change time.
"""
_CANNOT = frozenset(
    {errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.ENOTTY, errno.ENOSYS, errno.EPERM, errno.EMLINK, errno.EACCES}
)
"""Errors of file systems that cannot make reflinks or hard links."""
_no_reflinks: set[tuple[int, int]] = set()
"""Pairs of devices between which reflinks are not possible: (device of the source, device of the target's folder)."""


def reflink(source: str, target: str) -> bool:
    """Make the new file `target` share the bytes of `source`; return False, without a file, if the file system cannot."""
    pair = (os.stat(source).st_dev, os.stat(os.path.dirname(target)).st_dev)
    if pair in _no_reflinks:
        return False
    with open(source, "rb") as read, open(target, "xb") as write:
        try:
            fcntl.ioctl(write.fileno(), _FICLONE, read.fileno())
        except OSError as error:
            os.unlink(target)
            if error.errno not in _CANNOT:
                raise
            _no_reflinks.add(pair)
            return False
    return True


def link(source: str, target: str) -> bool:
    """Make `target` a hard link to the file `source`; return False if the file system cannot."""
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _CANNOT:
            raise
        return False
    return True


def copy(source: str, target: str) -> None:
    """Copy `source` to the new file `target`; after an error `target` does not exist."""
    with open(source, "rb", buffering=0) as read, open(target, "xb", buffering=0) as write:
        try:
            while os.copy_file_range(read.fileno(), write.fileno(), CHUNK_BYTES * 64):
                pass
        except OSError:
            os.lseek(read.fileno(), 0, os.SEEK_SET)
            write.truncate(0)
            write.seek(0)
            try:
                while chunk := read.read(CHUNK_BYTES):
                    write_all(write.fileno(), chunk)
            except OSError:
                os.unlink(target)
                raise


def remember(path: str) -> None:
    """Write the note "the bytes of the file were checked" as an extended attribute, if the file system supports these attributes.

    All hard links of the file share the note. It becomes invalid if size or modification time change, if the inode changes more
    than `_SLACK_NS` after the note was written, or if the machine reboots. So all files are checked again after a power cut.
    """
    with contextlib.suppress(OSError):
        state = os.stat(path)
        os.setxattr(path, _MEMO, f"{_note(state)} {time.time_ns()}".encode())


def is_remembered(path: str, state: os.stat_result) -> bool:
    """Whether the file is unchanged since its check."""
    try:
        note, _, noted_ns = os.getxattr(path, _MEMO).decode("ascii", "replace").rpartition(" ")
        return note == _note(state) and state.st_ctime_ns <= int(noted_ns) + _SLACK_NS
    except (OSError, ValueError):
        return False


def is_executable(state: os.stat_result) -> bool:
    """Whether any user may execute the file."""
    return bool(state.st_mode & 0o111)


def make_executable(path: str) -> None:
    """Allow all users who may read a file to execute it."""
    mode = stat.S_IMODE(os.stat(path).st_mode)
    os.chmod(path, mode | (mode & 0o444) >> 2)


def make_read_only(path: str) -> None:
    """Remove all write permissions: a file with several names must not be changed by accident."""
    os.chmod(path, stat.S_IMODE(os.stat(path).st_mode) & ~0o222)


def _boot() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return str(os.getpid())


_BOOT = _boot()


def _note(state: os.stat_result) -> str:
    return f"{_BOOT} {state.st_ino} {state.st_size} {state.st_mtime_ns}"

"""Files in a worker: read, hash, copy, sync; no builder is involved here.

A file is read once for both hashes. `fstat` of the open file must return the same before and after the read. If it does not, the
bytes may mix two versions of the file: the outcome is STALE, and the scanner checks the file again.
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import chain
from types import ModuleType
from typing import Any

import xxhash

from aptui.core.orders import CopyOrder, HashOrder, HashResult, Outcome, RunResult, StagedProduct
from aptui.core.paths import os_path
from aptui.shared.files import clocks, lfs, replacing

CHUNK_BYTES = 1 << 20
SYNC_EACH_BELOW = 32
"""Minimum number of files that share one `syncfs`; fewer files are synced one by one (an fsync takes at most 1 ms)."""

_READ_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
"""Flags for reading. O_NONBLOCK prevents a hang when a FIFO is opened; it has no effect on regular files."""
_START_WRITING = 2
"""SYNC_FILE_RANGE_WRITE of sync_file_range(2).

The flag only starts the writing; `fsync` waits until it has ended, and reports errors.
"""
_READING = "the error occurred while the file was read"
_WRITE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

StatKey = tuple[int, int, int, int]
FileHash = tuple[bytes, int, int]
"""(SHA-256, XXH64 with seed 0, size in bytes)."""


class FileChanged(Exception):
    """The file changed while it was read, is gone, or is no longer a regular file."""


class _NotHere(Exception):
    """The source is a Git LFS pointer in place of its content, and the builder does not take pointers."""


def stat_key(result: os.stat_result) -> StatKey:
    """Return (size, mtime_ns, ctime_ns, inode); a file counts as unchanged if all are equal."""
    return result.st_size, result.st_mtime_ns, result.st_ctime_ns, result.st_ino


def open_regular(path: str, flags: int = 0) -> tuple[int, os.stat_result]:
    """Open a file for reading and return (descriptor, its stat).

    Raises:
        FileChanged: it is gone, or not a regular file.
        OSError: it cannot be read.
    """
    try:
        descriptor = os.open(path, _READ_FLAGS | flags)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise FileChanged("the file was deleted") from error
    result = os.fstat(descriptor)
    if not stat.S_ISREG(result.st_mode):
        os.close(descriptor)
        raise FileChanged("not a regular file")
    return descriptor, result


def hash_open(descriptor: int, copy_to: int = -1, copy: _Copy | None = None) -> FileHash:
    """Read an open file from its start and hash it. Also write its bytes to `copy_to` (a descriptor, -1 = none) and `copy`."""
    sha, xxh, size = hashlib.sha256(), xxhash.xxh64(), 0
    os.lseek(descriptor, 0, os.SEEK_SET)
    while data := _read(descriptor, CHUNK_BYTES):
        sha.update(data)
        xxh.update(data)
        size += len(data)
        if copy_to >= 0:
            write_all(copy_to, data)
        if copy is not None:
            copy.write(data)
    return sha.digest(), xxh.intdigest(), size


def read_small(descriptor: int, size: int) -> bytes:
    """Read a file of fewer than `CHUNK_BYTES` with one call.

    The call requests one byte more than `size`, the size before the read, to notice that the file grew.

    A larger buffer would be several times slower than the read itself, because all its memory is mapped and unmapped.
    """
    return _read(descriptor, size + 1)


def _read(descriptor: int, count: int) -> bytes:
    """Read from an open file. An error has the note `_READING`, which distinguishes it from an error of writing a copy."""
    try:
        return os.read(descriptor, count)
    except OSError as error:
        error.add_note(_READING)
        raise


def hash_file(path: str, *, sees_through: bool = False, copy: _Copy | None = None) -> tuple[FileHash, os.stat_result]:
    """Hash the file at `path`; return the hashes, and the stat of the file when it was read.

    Args:
        sees_through: for a Git LFS pointer, return the digest of the file that it stands for.
        copy: also receives the bytes, unless the file is a Git LFS pointer.

    Raises:
        FileChanged, OSError: as `open_regular`; FileChanged also if another process wrote to the file in the meantime.
    """
    descriptor, before = open_regular(path)
    try:
        data, pointed = b"", b""
        if before.st_size < CHUNK_BYTES:
            data = read_small(descriptor, before.st_size)
            pointed = lfs.read_pointed(data) if sees_through else b""
            found = pointed or hashlib.sha256(data).digest(), xxhash.xxh64_intdigest(data), len(data)
        else:
            found = _hash_large(descriptor, before, copy)
        # Check for writing processes before the times are compared: if a process stops writing between the two checks, the times
        # show its change.
        if copy is not None and copy.is_being_written(descriptor):
            raise FileChanged("another process is writing the file")
        if found[2] != before.st_size or stat_key(os.fstat(descriptor)) != stat_key(before):
            raise FileChanged("the file changed while it was read")
        if copy is not None and before.st_size < CHUNK_BYTES and not pointed:
            copy.make(data, found[0], before.st_mode)
    except BaseException:
        if copy is not None:
            copy.give_up()
        raise
    finally:
        os.close(descriptor)
    return found, before


def _hash_large(descriptor: int, before: os.stat_result, copy: _Copy | None) -> FileHash:
    if copy is None or copy.is_known:  # a known file is often unchanged, and then needs no copy
        return hash_open(descriptor)
    copy.begin(before.st_mode)
    found = hash_open(descriptor, copy=copy)
    copy.end()
    return found


_MOST_KNOWN = 20_000
_known_digests: dict[tuple[str, bool], tuple[StatKey, str]] = {}
"""{(path, sees_through): (stamp, digest)}, cached because, for example, all shaders depend on the same headers."""


def digest_file(path: str, *, sees_through: bool = False) -> str:
    """Return the SHA-256 of a file in hex, cached until its stamp changes.

    Args:
        sees_through: as for `hash_file`.

    Raises:
        FileChanged, OSError: as `hash_file`.
    """
    read_ns = time.time_ns()
    known = _known_digests.get((path, sees_through))
    if known and known[0] == stat_key(os.stat(path)):
        return known[1]
    (digest, _, _), found = hash_file(path, sees_through=sees_through)
    if clocks.is_settled(stat_key(found), read_ns):
        if len(_known_digests) >= _MOST_KNOWN:
            _known_digests.clear()
        _known_digests[path, sees_through] = stat_key(found), digest.hex()
    return digest.hex()


def is_pointer(path: str, size: int) -> bool:
    """Whether the file at `path`, which has `size` bytes, is a Git LFS pointer."""
    if size >= lfs.LONGEST_POINTER_BYTES:
        return False
    try:
        with open(path, "rb", buffering=0) as file:
            return bool(lfs.read_pointed(file.read(lfs.LONGEST_POINTER_BYTES)))
    except OSError:
        return False


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of `data`; one `write` may write only a part (2 GiB limit, signals)."""
    written = os.write(descriptor, data)
    while written < len(data):
        written += os.write(descriptor, memoryview(data)[written:])


@cache
def _load_libc() -> tuple[ModuleType, Any]:
    """Return ctypes and the C library; ctypes is imported here, because the import takes 1.5 ms and few processes need it."""
    import ctypes

    return ctypes, ctypes.CDLL(None, use_errno=True)


def sync_file(path: str) -> None:
    """Make the bytes of one file durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_open(descriptors: Sequence[int]) -> dict[int, str]:
    """Make the bytes of open files durable; return {descriptor: error} of the files for which that failed.

    All writes are started before the first wait, so that the files share one commit of the file system's journal.
    """
    failed: dict[int, str] = {}
    if len(descriptors) > 1:
        ctypes, libc = _load_libc()
        for descriptor in descriptors:
            libc.sync_file_range(descriptor, ctypes.c_int64(0), ctypes.c_int64(0), _START_WRITING)
    for descriptor in descriptors:
        try:
            os.fsync(descriptor)
        except OSError as error:
            failed[descriptor] = reason(error)
    return failed


def sync_file_system(path: str) -> None:
    """Make everything on the file system that holds `path` durable (syncfs(2), which the standard library lacks)."""
    ctypes, libc = _load_libc()
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if libc.syncfs(descriptor) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), path)
    finally:
        os.close(descriptor)


# ------------------------------------------------------------------------------------------------------------------- orders


def hash_files(order: HashOrder) -> HashResult:
    """Hash the files of a `HashOrder`.

    The result has an error for each file that cannot be read, and None for each file that is gone or changed while it was read.
    """
    files: list[tuple[bytes, int, int, int, int, int] | None] = []
    errors = []
    copies = _Copies(order)
    for index, text in enumerate(order.paths):
        try:
            (digest, hash64, size), found = hash_file(os_path(text), sees_through=True, copy=copies.of(index))
        except FileChanged:
            files.append(None)
        except OSError as error:
            files.append((b"", 0, -1, 0, 0, 0))
            errors.append((index, reason(error)))
        else:
            files.append((digest, hash64, size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino))
    staged = copies.durable()
    return HashResult(order.order, tuple(files), tuple(errors), staged, copies.list_unasked(staged))


def discard_copies(order: HashOrder) -> None:
    """Remove the copies that a dead worker staged for an order; the next worker copies the files again."""
    for path in chain.from_iterable(order.copies):
        _discard(path)


class _Copy:
    """Copies of one file, written while the file is hashed. Either all copies are made, or none."""

    def __init__(self, paths: Sequence[str], known: bytes, *, is_synced: bool, asks_writers: bool) -> None:
        self._paths, self._known, self._is_synced = paths, known, is_synced
        self._asks_writers, self.is_asked = asks_writers, False
        self._began_ns = time.perf_counter_ns()
        self._targets: list[int] = []
        self._created: list[str] = []
        self.is_known = bool(known)
        self.is_made = False
        self.took_ms = 0

    def is_being_written(self, descriptor: int) -> bool:
        """Whether another process holds the file open for writing; False if unknown."""
        is_written = replacing.is_being_written(descriptor) if self._asks_writers else None
        self.is_asked = is_written is False
        return is_written is True

    def make(self, data: bytes, digest: bytes, mode: int) -> None:
        """Make the copies of a small file with the content `data`, unless `digest` equals the known digest."""
        if digest != self._known:
            self.begin(mode)
            self.write(data)
            self.end()

    def begin(self, mode: int) -> None:
        """Create the empty files."""
        try:
            for path in self._paths:
                self._targets.append(_create(path, mode))
                self._created.append(path)
        except OSError:
            self.give_up()

    def write(self, data: bytes) -> None:
        """Append bytes of the file to each of its copies."""
        try:
            for target in self._targets:
                write_all(target, data)
        except OSError:
            self.give_up()

    def end(self) -> None:
        """Sync the copies if necessary, and close them; called after the last `write`."""
        try:
            for target in self._targets if self._is_synced else ():
                os.fsync(target)
        except OSError:
            self.give_up()
        self.is_made = bool(self._targets)
        self._close()
        self.took_ms = (time.perf_counter_ns() - self._began_ns) // 1_000_000

    def give_up(self) -> None:
        """Remove the copies after an error; the copy jobs then copy the file themselves, and report the error."""
        self._close()
        self.is_made = False
        while self._created:
            _discard(self._created.pop())

    def _close(self) -> None:
        while self._targets:
            os.close(self._targets.pop())


class _Copies:
    """The copies that one `HashOrder` requests."""

    def __init__(self, order: HashOrder) -> None:
        self._order = order
        self._wanted: dict[int, _Copy] = {}
        self._syncs_each = sum(map(bool, order.copies)) < SYNC_EACH_BELOW

    def of(self, index: int) -> _Copy | None:
        """Return the copies to make of the file at `index`, None if the order requests no copies of it."""
        paths = self._order.copies[index] if self._order.copies else ()
        if not paths:
            return None
        known, asks_writers = self._order.known[index], self._order.asks_writers
        self._wanted[index] = _Copy(paths, known, is_synced=self._syncs_each, asks_writers=asks_writers)
        return self._wanted[index]

    def list_unasked(self, staged: Sequence[tuple[int, int]]) -> tuple[int, ...]:
        """Return the indexes of staged files whose sources were read without a check whether another process was writing them."""
        return tuple(index for index, _took_ms in staged if not self._wanted[index].is_asked) if self._order.asks_writers else ()

    def durable(self) -> tuple[tuple[int, int], ...]:
        """Make the copies durable; return (index, milliseconds) of the files that were copied."""
        made = {index: copy for index, copy in self._wanted.items() if copy.is_made}
        if made and not self._syncs_each:
            try:
                sync_file_system(os.path.dirname(os_path(self._order.copies[next(iter(made))][0])))
            except OSError:
                for copy in made.values():
                    copy.give_up()
                return ()
        return tuple((index, copy.took_ms) for index, copy in made.items())


def copy_files(orders: Sequence[CopyOrder]) -> list[RunResult]:
    """Perform copy orders; return their results in the same order when the copies are durable.

    An error of one file becomes the result of its order.
    """
    syncs_each = len(orders) < SYNC_EACH_BELOW
    results = [_copy_one(order, syncs_each) for order in orders]
    staged = next((result.products[0].staged for result in results if result.products and result.products[0].staged), "")
    if staged and not syncs_each:
        try:
            sync_file_system(os.path.dirname(os_path(staged)))
        except OSError as error:
            text = f"the staging folder cannot be saved on the disk: {reason(error)}"
            return [_fail(result.run_key, text) if result.products else result for result in results]
    return results


def _copy_one(order: CopyOrder, is_synced: bool) -> RunResult:
    started_ns = time.perf_counter_ns()
    try:
        product = _stage(order, is_synced)
    except FileChanged as error:
        return RunResult(order.run_key, Outcome.STALE, f"source: {error}")
    except _NotHere:
        return _fail(order.run_key, f"{lfs.NOT_HERE}{lfs.OR_COPY}")
    except OSError as error:
        is_of_source = error.filename == order.path or _READING in getattr(error, "__notes__", ())
        verb = "read source" if is_of_source else "write the copy"
        return _fail(order.run_key, f"cannot {verb}: {reason(error)}")
    return RunResult(
        order.run_key,
        Outcome.SUCCEEDED,
        "",
        (product,),
        _digest_of_source(order, product),
        duration_ms=(time.perf_counter_ns() - started_ns) // 1_000_000,
        is_durable=True,
    )


def _digest_of_source(order: CopyOrder, product: StagedProduct) -> bytes:
    """Return the digest of the source: the digest of the copied bytes, or of the file that a Git LFS pointer stands for."""
    if order.takes_pointers and product.size < lfs.LONGEST_POINTER_BYTES:
        with open(os_path(product.staged or order.path), "rb") as file:
            return lfs.read_pointed(file.read(lfs.LONGEST_POINTER_BYTES)) or product.digest
    return product.digest


def _stage(order: CopyOrder, is_synced: bool) -> StagedProduct:
    try:
        source, before = open_regular(os_path(order.path))
    except OSError as error:
        error.filename = order.path
        raise
    try:
        if before.st_size < CHUNK_BYTES:
            found, staged = _stage_small(order, source, before, is_synced)
        else:
            found, staged = _stage_large(order, source, before, is_synced)
        if found[2] != before.st_size or stat_key(os.fstat(source)) != stat_key(before):
            _discard(staged)
            raise FileChanged("the file changed while it was read")
    finally:
        os.close(source)
    return StagedProduct(staged, "", 0, b"", 1, *found)


def _stage_small(order: CopyOrder, source: int, before: os.stat_result, is_synced: bool) -> tuple[FileHash, str]:
    data = read_small(source, before.st_size)
    if not order.takes_pointers and lfs.read_pointed(data):
        raise _NotHere
    found = hashlib.sha256(data).digest(), xxhash.xxh64_intdigest(data), len(data)
    if found[0] == order.present_digest or found[2] != before.st_size:
        return found, ""
    with _open_staged(order.staged, before.st_mode, is_synced=is_synced) as target:
        write_all(target, data)
    return found, order.staged


def _stage_large(order: CopyOrder, source: int, before: os.stat_result, is_synced: bool) -> tuple[FileHash, str]:
    if order.present_digest:
        # Read before copying: reading a changed file twice is cheaper than writing an unchanged file once.
        found = hash_open(source)
        if found[0] == order.present_digest:
            return found, ""
    with _open_staged(order.staged, before.st_mode, is_synced=is_synced) as target:
        found = hash_open(source, target)
    return found, order.staged


@contextmanager
def _open_staged(path: str, mode: int, *, is_synced: bool) -> Iterator[int]:
    """Yield the descriptor of a new file; remove the file when writing or syncing fails."""
    target = _create(path, mode)
    try:
        yield target
        if is_synced:
            os.fsync(target)
    except OSError:
        _discard(path)
        raise
    finally:
        os.close(target)


def _create(staged: str, mode: int) -> int:
    # A product is writable for its owner, and it is executable if its source is executable.
    path, mode = os_path(staged), 0o666 | (mode & 0o111)
    try:
        return os.open(path, _WRITE_FLAGS, mode)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return os.open(path, _WRITE_FLAGS, mode)


def _discard(staged: str) -> None:
    if staged:
        try:
            os.unlink(os_path(staged))
        except OSError:
            pass  # if this fails, the next start removes the file when it empties the staging folder


def copy_into(path: str, staged: str, flags: int = 0) -> FileHash:
    """Copy the file at `path` to the new file `staged` and return the hashes of its bytes.

    Raises:
        FileChanged, OSError: as `hash_file`.
    """
    source, before = open_regular(path, flags)
    try:
        target = os.open(staged, _WRITE_FLAGS, 0o666 | (before.st_mode & 0o111))
        try:
            found = hash_open(source, target)
        finally:
            os.close(target)
        if stat_key(os.fstat(source)) != stat_key(before):
            raise FileChanged("the file changed while it was read")
    finally:
        os.close(source)
    return found


def reason(error: OSError) -> str:
    """Return the reason of an OSError without number and path: `No space left on device`."""
    return error.strerror or str(error)


def _fail(run_key: int, text: str) -> RunResult:
    return RunResult(run_key, Outcome.FAILED, text, errors=1)


def digest_listing(folder: str) -> str:
    """Return a digest of the names in a folder, in hex; "" when it cannot be listed."""
    try:
        names = sorted(os.listdir(os.fsencode(folder)))
    except OSError:
        return ""
    return hashlib.sha256(b"\0".join(names)).hexdigest()

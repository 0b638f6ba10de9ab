"""Verified transfers from and to a store: only bytes with the right digest are published or stay at a target.

Tests: `tests/features/sharing/stores/test_streams.py`.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
from collections.abc import Iterable, Iterator

from aptui.shared.result_store import Mismatch, StoreError, StoreFull, StoreRefused

CHUNK_BYTES = 1 << 20
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_REFUSED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


def write_verified(chunks: Iterable[bytes], target: str, digest: str, size: int) -> None:
    """Write `chunks` to the new file `target`, at most `size` bytes.

    Raises:
        Mismatch: the length or the SHA-256 is wrong. After any error there is no file `target`.
        FileExistsError: the file exists; it stays.
    """
    hasher, left = hashlib.sha256(), size
    with open(target, "xb", buffering=0) as file:
        try:
            for chunk in chunks:
                left -= len(chunk)
                if left < 0:
                    raise Mismatch(f"blob {digest} is longer than {size} bytes")
                hasher.update(chunk)
                write_all(file.fileno(), chunk)
            if left:
                raise Mismatch(f"blob {digest} ends {left} bytes too early")
            if hasher.hexdigest() != digest:
                raise Mismatch(f"blob {digest} has other bytes than its name says")
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(target)
            raise


def read_verified(path: str, digest: str) -> Iterator[bytes]:
    """Yield the bytes of a file, the last chunk only if the digest is right: an upload of wrong bytes cannot complete.

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
        raise Mismatch(f"'{path}' changed since it was made; it is not shared")
    yield held


def digest_of(path: str) -> str:
    """Return the SHA-256 of a file's bytes in hex."""
    with open(path, "rb", buffering=0, opener=open_noatime) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def open_noatime(path: str, flags: int) -> int:
    """Open a file without changing its access time, for `open(opener=…)`; only its owner may do that."""
    try:
        return os.open(path, flags | os.O_NOATIME)
    except PermissionError:
        return os.open(path, flags)


@contextlib.contextmanager
def name_errors(address: str) -> Iterator[None]:
    """Convert OS errors to those of a store."""
    try:
        yield
    except OSError as error:
        text = error.strerror or str(error)
        if error.errno in _FULL:
            raise StoreFull(f"no space is left: {text}", where=address) from error
        if error.errno in _REFUSED:
            raise StoreRefused(text, where=address) from error
        raise StoreError(text, where=address) from error


def write_all(descriptor: int, data: bytes) -> None:
    """Write all bytes to a file without a buffer."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]

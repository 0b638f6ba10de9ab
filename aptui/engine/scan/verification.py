"""Verification of bytes: whether sources still have their stored bytes, for a full scan.

Each process of an up-to-date check has a separate reader. The reader only answers whether a folder is unchanged; the scan finds out
which files differ. Neither `stat` nor XXH64 is needed: a file whose bytes have the stored SHA-256 is unchanged, even if its times
differ.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Self

from aptui.core.model import Digest
from aptui.engine.scan.walk import Entry, FolderPart, text_of
from aptui.shared.files import lfs
from aptui.store.db.archive import DatabaseArchive

_CHUNK_BYTES = 1 << 20
_READ_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK


class Verification:
    """Compares files with the digests of the folder table.

    A database connection must not be used across a fork, so make the object after the fork.

    Args:
        database: the asset database.
    """

    def __init__(self, database: Path) -> None:
        self._archive = DatabaseArchive(database, {})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_ending: object) -> None:
        self._archive.close()

    def is_same(self, folder: str, entries: list[tuple[FolderPart, list[Entry]]]) -> bool:
        """Return whether every file of a relative folder still has its stored digest; files without a stored digest are ignored."""
        digests: dict[tuple[int, str], Digest] = {
            (scan_folder, fact.rel): fact.digest
            for scan_folder, (_digest, facts) in self._archive.folders.folder_parts(folder).items()
            for fact in facts
            if fact.digest
        }
        for part, files in entries:
            prefix, scan_folder = (f"{part.rel}/" if part.rel else ""), part.scan_folder.id
            for name, size, *_stat in files:
                digest = digests.get((scan_folder, prefix + text_of(name)))
                if digest and not has_digest(f"{part.path}/{name}", size, digest):
                    return False
        return True


def has_digest(path: str, size: int, digest: Digest) -> bool:
    """Return whether the file at `path`, of `size` bytes, has this SHA-256, or is a Git LFS pointer that names it."""
    try:
        descriptor = os.open(path, _READ_FLAGS)
    except OSError:
        return False
    try:
        if size >= _CHUNK_BYTES:
            return _digest_of(descriptor) == digest
        data = os.read(descriptor, size + 1)
        return len(data) == size and (hashlib.sha256(data).digest() == digest or lfs.read_pointed(data) == digest)
    except OSError:
        return False
    finally:
        os.close(descriptor)


def _digest_of(descriptor: int) -> bytes:
    sha, buffer = hashlib.sha256(), bytearray(_CHUNK_BYTES)
    view = memoryview(buffer)
    while count := os.readv(descriptor, [buffer]):
        sha.update(view[:count])
    return sha.digest()

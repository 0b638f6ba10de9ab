"""Opens products such that the file matches its database row, while engines replace products.

A commit first writes a note of the files that it will rename, then renames them, and removes the note in the transaction that
writes the new rows (`engine.cache`). So a file matches its row if there is no note for the row, and nothing was written between
reading the row and opening the file. Else the opener tries again. A note that stays is from an engine that was killed; then the
opener compares the file's digest with the row.

Small files that are requested repeatedly stay open until the database is written.

The opener works in the event loop: its system calls take microseconds, less than passing the work to a thread.

Tests: `tests/features/gateway/http/test_http_files.py`.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from pathlib import Path

from aiohttp import web
from msgspec import Struct

from aptui.core.paths import cache_path, from_text
from aptui.shared.errors import HostError
from aptui.shared.files.confinement import ConfinedRoot
from aptui.store.queries import product_files
from aptui.store.queries.change_tail import CurrentDatabase, Moment
from aptui.store.queries.product_files import ProductFile

_TIMEOUT_S = 1.0
"""Maximum duration of a commit, in seconds; after it the opener compares the file's digest with the row."""
_RETRY_S = 0.01
_KNOWN_MOST = 4_096
_OPEN_MOST, _OPEN_BYTES = 64, 1 << 20
"""Maximum number and size of files that stay open: a deleted file keeps its disk space while it is open."""
_BLOCK_BYTES = 1 << 20


class OpenedProduct(Struct):
    """A product with its open file. Each user closes it; several users may share it.

    Args:
        users: number of users, including the opener while it keeps the file open.
    """

    product: ProductFile
    descriptor: int
    modified_s: int
    size: int
    users: int = 1

    def close(self) -> None:
        """Release it; the last user closes the file."""
        self.users -= 1
        if self.users == 0:
            os.close(self.descriptor)
            self.descriptor = -1


class ProductOpener:
    """The products of one cache; used in the event loop's thread only."""

    def __init__(self, database: Path, cache: Path) -> None:
        self._database = CurrentDatabase(database)
        self._root = ConfinedRoot(os.fsencode(cache))
        self._known: dict[str, ProductFile | None] = {}
        """Rows that were read since the last write."""
        self._open_files: dict[str, OpenedProduct] = {}
        """Small files that were opened since the last write."""
        self._moment: Moment | None = None

    def close(self) -> None:
        """Close all files and the database."""
        self._close_files()
        self._database.close()
        self._root.close()

    def find(self, name: str) -> ProductFile | None:
        """Return the row of the product with this name.

        Raises:
            KnownError: the database does not exist.
        """
        moment = self._database.moment()
        if moment != self._moment or len(self._known) > _KNOWN_MOST:
            self._known.clear()
            self._close_files()
            self._moment = moment
        if name not in self._known:
            self._known[name] = self._database.ask(lambda reader: product_files.find(reader, name))
        return self._known[name]

    async def take(self, name: str) -> OpenedProduct | None:
        """Return the product with this name and its open file, None = it does not exist.

        Raises:
            HostError: the file does not match the database. KnownError: the database does not exist.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _TIMEOUT_S
        while True:
            product = self.find(name)
            if product is None:
                return None
            opened = self._find_opened(name)
            if opened is not None:
                return opened
            taken = None if product.is_moving else self._open(product)
            if taken is not None:
                if self._is_unchanged(taken):
                    self._keep(name, taken)
                    return taken
                taken.close()
            if loop.time() > deadline:
                return await self._take_read(product)
            await asyncio.sleep(_RETRY_S)

    def _find_opened(self, name: str) -> OpenedProduct | None:
        """Return the open product, unless its file was changed."""
        taken = self._open_files.get(name)
        if taken is None:
            return None
        found = os.fstat(taken.descriptor)
        if not found.st_nlink or (found.st_size, int(found.st_mtime)) != (taken.size, taken.modified_s):
            self._open_files.pop(name).close()
            return None
        taken.users += 1
        return taken

    def _keep(self, name: str, taken: OpenedProduct) -> None:
        if taken.size <= _OPEN_BYTES:
            while len(self._open_files) >= _OPEN_MOST:
                self._open_files.pop(next(iter(self._open_files))).close()
            taken.users += 1
            self._open_files[name] = taken

    def _close_files(self) -> None:
        while self._open_files:
            self._open_files.popitem()[1].close()

    def _open(self, product: ProductFile) -> OpenedProduct | None:
        try:
            descriptor, found = self._root.open_file(from_text(cache_path(product.name)))
        except OSError:
            return None  # the file was deleted, or replaced by a folder or link: the engine will restore it
        return OpenedProduct(product, descriptor, int(found.st_mtime), found.st_size)

    def _is_unchanged(self, taken: OpenedProduct) -> bool:
        """Whether nothing was written since the row was read, and the file has the size of the row."""
        return taken.size == taken.product.size and self._database.moment() == self._moment

    async def _take_read(self, product: ProductFile) -> OpenedProduct:
        """Open a product whose file another program may have changed; its digest must match the row."""
        taken = self._open(product)
        try:
            if taken is not None and taken.size == product.size:
                digest = await asyncio.to_thread(_digest, taken.descriptor)
                if digest == product.digest:
                    return taken
        except BaseException:
            if taken is not None:
                taken.close()
            raise
        if taken is not None:
            taken.close()
        raise HostError(f"the cache and the database differ about '{product.name}'", hint="the engine makes it again; ask later")


def _digest(descriptor: int) -> bytes:
    digest, at = hashlib.sha256(), 0
    while data := os.pread(descriptor, _BLOCK_BYTES, at):
        digest.update(data)
        at += len(data)
    return digest.digest()


PRODUCT_OPENER = web.AppKey("product_opener", ProductOpener)

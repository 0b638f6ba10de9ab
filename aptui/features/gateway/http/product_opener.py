"""Opens products of the cache so that the file is the one its row describes, while engines replace others.

A commit writes down on the disk what it is about to rename, renames, and records the new rows in the transaction that takes the
note back (`engine.cache`). So if a product's row is there with no such note, the file is opened, and nothing was written meanwhile,
the file is the row's. Else it is tried again. What stays noted is an engine that died there: then the file's bytes are read, and
must be the row's.

Small files that are asked for again stay open until anything is written: what was the row's file then is so still.

All of this happens in the event loop: it is microseconds, less than a thread would take to be asked.

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
"""How long a commit may take to be over with a product."""
_RETRY_S = 0.01
_KNOWN_MOST = 4_096
_OPEN_MOST, _OPEN_BYTES = 64, 1 << 20
"""Files that are kept open, and how long each may be: a deleted one keeps its place on the disk while it is."""
_BLOCK_BYTES = 1 << 20


class OpenedProduct(Struct):
    """A product with its open file, which whoever takes it closes; several may have taken the same one.

    Args:
        users: who have it, the opener among them while it keeps it.
    """

    product: ProductFile
    descriptor: int
    modified_s: int
    size: int
    users: int = 1

    def close(self) -> None:
        """Give it back; the last one closes the file."""
        self.users -= 1
        if self.users == 0:
            os.close(self.descriptor)
            self.descriptor = -1


class ProductOpener:
    """The products of one cache; for the event loop's thread."""

    def __init__(self, database: Path, cache: Path) -> None:
        self._database = CurrentDatabase(database)
        self._root = ConfinedRoot(os.fsencode(cache))
        self._known: dict[str, ProductFile | None] = {}
        """What was looked up since anything was written."""
        self._open_files: dict[str, OpenedProduct] = {}
        """Those that were taken since, and are small."""
        self._moment: Moment | None = None

    def close(self) -> None:
        """Let go of everything."""
        self._let_go()
        self._database.close()
        self._root.close()

    def find(self, name: str) -> ProductFile | None:
        """Return the product of this name.

        Raises:
            KnownError: there is no database.
        """
        moment = self._database.moment()
        if moment != self._moment or len(self._known) > _KNOWN_MOST:
            self._known.clear()
            self._let_go()
            self._moment = moment
        if name not in self._known:
            self._known[name] = self._database.ask(lambda reader: product_files.find(reader, name))
        return self._known[name]

    async def take(self, name: str) -> OpenedProduct | None:
        """Return the product of this name with its open file, None when there is none.

        Raises:
            HostError: the cache does not have what the database says. KnownError: there is no database.
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
                if self._is_the_one(taken):
                    self._keep(name, taken)
                    return taken
                taken.close()
            if loop.time() > deadline:
                return await self._take_read(product)
            await asyncio.sleep(_RETRY_S)

    def _find_opened(self, name: str) -> OpenedProduct | None:
        """Return the product as it was taken before, unless somebody touched its file."""
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

    def _let_go(self) -> None:
        while self._open_files:
            self._open_files.popitem()[1].close()

    def _open(self, product: ProductFile) -> OpenedProduct | None:
        try:
            descriptor, found = self._root.open_file(from_text(cache_path(product.name)))
        except OSError:
            return None  # somebody deleted it, or put something odd in its place: the engine will see to it
        return OpenedProduct(product, descriptor, int(found.st_mtime), found.st_size)

    def _is_the_one(self, taken: OpenedProduct) -> bool:
        """Whether nothing was written since the product was looked up, and the file is as long as it should be."""
        return taken.size == taken.product.size and self._database.moment() == self._moment

    async def _take_read(self, product: ProductFile) -> OpenedProduct:
        """Take a product that somebody else may have touched, if its bytes are those of its row."""
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

"""Queries of an asset database from an event loop: each query runs in a thread, with one of a few readers.

Tests: `tests/features/gateway/ws/test_client_sessions.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from aptui.shared.errors import HostError
from aptui.store.db.schema import translate_errors
from aptui.store.queries.reader import Reader, open_reader
from aptui.store.queries.serving import Served, products_named

T = TypeVar("T")

_THREADS = 4
_TRIES, _PAUSE_S = 50, 0.01
"""Maximum number of queries, and their interval (seconds), until the database has the rows of a notice."""


class Database:
    """The asset database of a cache. Queries run in threads, so that no client waits for the query of another client."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="database")
        self._idle: queue.LifoQueue[tuple[int, Reader]] = queue.LifoQueue()

    async def ask(self, question: Callable[[Reader], T]) -> T:
        """Run a query in a thread and return its result; the query sees one snapshot.

        Raises:
            KnownError: the database does not exist yet or cannot be read.
        """
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._answer, question)

    def _answer(self, question: Callable[[Reader], T]) -> T:
        with translate_errors(self.path):
            inode, reader = self._acquire()
            try:
                with reader.snapshot():
                    answer = question(reader)
            except BaseException:
                with contextlib.suppress(Exception):
                    reader.close()
                raise
            self._idle.put((inode, reader))
            return answer

    def _acquire(self) -> tuple[int, Reader]:
        """Return (inode of the database file, an idle or new reader of this file)."""
        try:
            inode = os.stat(self.path).st_ino
        except OSError:
            raise HostError(
                "nothing was processed yet: there is no asset database", hint="try again when the engine has started"
            ) from None
        with contextlib.suppress(queue.Empty):
            while True:
                known, reader = self._idle.get_nowait()
                if known == inode:
                    return known, reader
                reader.close()  # this reader has an earlier database file, which was replaced
        return inode, open_reader(self.path)

    async def read_products(self, digests: Mapping[str, str], moment: tuple[int, int]) -> dict[str, Served]:
        """Return {name: product} of products with these digests, as new as a moment (epoch, seq) of the engine.

        The engine reports a commit shortly before the database has its rows.
        """
        for _try in range(_TRIES):
            now, rows = await self.ask(lambda reader: (reader.moment(), products_named(reader, digests)))
            found = {row.name: row for row in rows}
            if now >= moment or all(name in found and found[name].digest.hex() == digest for name, digest in digests.items()):
                break
            await asyncio.sleep(_PAUSE_S)
        return found

    def close(self) -> None:
        """Wait for running queries and close the database."""
        self._threads.shutdown(wait=True, cancel_futures=True)
        with contextlib.suppress(queue.Empty):
            while True:
                self._idle.get_nowait()[1].close()

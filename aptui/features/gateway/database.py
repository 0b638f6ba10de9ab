"""Queries of clients to the asset database, answered in threads, so that no client waits for another's query.

Tests: `tests/features/gateway/access/test_guard.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from aptui.shared.errors import HostError
from aptui.store.db.schema import translate_errors
from aptui.store.queries.reader import Reader, open_reader

T = TypeVar("T")

_THREADS = 4


class Database:
    """The asset database of a cache, whichever file that is just now."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="database")
        self._rested: queue.LifoQueue[tuple[int, Reader]] = queue.LifoQueue()

    async def ask(self, question: Callable[[Reader], T]) -> T:
        """Return the answer to `question`, which sees one moment of the database; it runs in a thread.

        Raises:
            KnownError: there is no database yet, or it cannot be read.
        """
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._answer, question)

    def _answer(self, question: Callable[[Reader], T]) -> T:
        with translate_errors(self.path):
            inode, reader = self._take()
            try:
                with reader.snapshot():
                    answer = question(reader)
            except BaseException:
                with contextlib.suppress(Exception):
                    reader.close()
                raise
            self._rested.put((inode, reader))
            return answer

    def _take(self) -> tuple[int, Reader]:
        try:
            inode = os.stat(self.path).st_ino
        except OSError:
            raise HostError(
                "nothing was processed yet: there is no asset database", hint="ask again when the engine has begun"
            ) from None
        with contextlib.suppress(queue.Empty):
            while True:
                known, reader = self._rested.get_nowait()
                if known == inode:
                    return known, reader
                reader.close()  # the file is another one: somebody made the cache anew
        return inode, open_reader(self.path)

    def close(self) -> None:
        """Wait for what is being asked, and let go of the file."""
        self._threads.shutdown(wait=True, cancel_futures=True)
        with contextlib.suppress(queue.Empty):
            while True:
                self._rested.get_nowait()[1].close()

"""The shared objects of the gateway: configuration, database, connection to the engine, access rules, and the event pulse.

Tests: `tests/features/gateway/peers/test_proxy.py`, `tests/features/gateway/access/test_guard.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from aiohttp import web

from aptui.shared.errors import HostError
from aptui.store.db.schema import translate_errors
from aptui.store.queries.reader import Reader, open_reader

if TYPE_CHECKING:
    from collections.abc import Callable

    from aptui.config.configuration import Config
    from aptui.features.gateway.access.guard import ConnectionLimits, Guard
    from aptui.features.gateway.engine_link import EngineLink


@dataclass(slots=True)
class GatewayContext:
    """One gateway.

    Args:
        config: configuration of the project; `config.settings` is that of the gateway.
        database: runs queries in threads.
        engine: connection to the engine.
        guard: access rules.
        pulse: beats after each batch of notices.
        reread: returns the current configuration, None = it does not change.
        port: the port it listens at, 0 = not yet.
        connections: its connections; `app` is its application. Both are None before the gateway listens.
    """

    config: Config
    database: Database
    engine: EngineLink
    guard: Guard
    pulse: NewsPulse
    reread: Callable[[], Config] | None = None
    port: int = 0
    connections: ConnectionLimits | None = None
    app: web.Application | None = None


CONTEXT = web.AppKey("room", GatewayContext)


def context_of(request: web.Request) -> GatewayContext:
    """Return the context of a request, also in nested applications."""
    return request.config_dict[CONTEXT]


T = TypeVar("T")

_THREADS = 4


class Database:
    """The asset database of a cache. Queries run in threads, so that no client waits for the query of another client."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="database")
        self._rested: queue.LifoQueue[tuple[int, Reader]] = queue.LifoQueue()

    async def ask(self, question: Callable[[Reader], T]) -> T:
        """Run a query in a thread and return its result; the query sees one snapshot.

        Raises:
            KnownError: the database does not exist yet or cannot be read.
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
                "nothing was processed yet: there is no asset database", hint="try again when the engine has started"
            ) from None
        with contextlib.suppress(queue.Empty):
            while True:
                known, reader = self._rested.get_nowait()
                if known == inode:
                    return known, reader
                reader.close()  # the file was replaced: the cache was recreated
        return inode, open_reader(self.path)

    def close(self) -> None:
        """Wait for running queries and close the database."""
        self._threads.shutdown(wait=True, cancel_futures=True)
        with contextlib.suppress(queue.Empty):
            while True:
                self._rested.get_nowait()[1].close()


class NewsPulse:
    """Wakes requests that wait for any event; `ws.news` reports the events themselves."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Future[None]] = set()

    def beat(self) -> None:
        """Wake all waiting requests."""
        waiting, self._waiting = self._waiting, set()
        for each in waiting:
            if not each.done():
                each.set_result(None)

    async def wait(self, limit_s: float) -> None:
        """Return at the next beat, or after `limit_s`."""
        beat = asyncio.get_running_loop().create_future()
        self._waiting.add(beat)
        try:
            await asyncio.wait((beat,), timeout=limit_s)
        finally:
            self._waiting.discard(beat)

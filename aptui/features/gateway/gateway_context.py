"""What every part of the gateway shares: the configuration, the database, the engine's link, the guard.

Who is connected is `ws.sessions`' business.

Tests: `tests/features/gateway/peers/test_proxy.py`.
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

    from aptui.config.model import Config
    from aptui.features.gateway.access.guard import ConnectionLimits, Guard
    from aptui.features.gateway.engine_link import EngineLink


@dataclass(slots=True)
class GatewayContext:
    """One gateway.

    Args:
        config: of the project; `config.serve` says where it listens.
        database: questions to the asset database, answered in threads.
        engine: words to the engine and its news.
        guard: who may come in, and what they may do.
        pulse: beats after each batch of news.
        reread: returns the configuration as it is now, None = it stays as it is.
        port: the one it listens at, 0 = not yet.
        connections: its sockets, and `app` its application, once there are.
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
    """Return the room of a request, in applications inside the application too."""
    return request.config_dict[CONTEXT]


# Queries of clients to the asset database, answered in threads, so that no client waits for another's query.

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


# The moments at which anything has happened, for requests that wait. What happened is told by `ws.news`.


class NewsPulse:
    """Lets requests wait until anything has happened."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Future[None]] = set()

    def beat(self) -> None:
        """Wake whoever waits."""
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

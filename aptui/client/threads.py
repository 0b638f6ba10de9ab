"""`Client`: a connection to a gateway for threads, each call of which waits.

Tests: `tests/serve/ws/test_sessions.py`.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as Late
from typing import Any, Self, TypeVar

from aptui.client.connection import AsyncClient, ClientNotice, Disconnected
from aptui.serve.protocol.requests import Welcome

T = TypeVar("T")


class Client:
    """`AsyncClient` for threads: each call waits; any thread may call. Make one with `connect`."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="aptui client", daemon=True)
        self._thread.start()
        self._client: AsyncClient | None = None

    @property
    def welcome(self) -> Welcome:
        """What the gateway said when it let us in last."""
        return self._connected.welcome

    @classmethod
    def connect(cls, url: str, *, token: str, tls: ssl.SSLContext | None = None, **more: Any) -> Self:
        """Connect and say hello; arguments and errors as of `AsyncClient.connect`."""
        client = cls()
        try:
            client._client = client._wait(AsyncClient.connect(url, token=token, tls=tls, **more))  # of its own class
        except BaseException:
            client.close()
            raise
        return client

    def ask(self, request: Any, timeout_s: float | None = None) -> Any:
        """Return the answer to a request; see `AsyncClient.ask`."""
        return self._wait(self._connected.ask(request, timeout_s))

    def read_product(self, timeout_s: float | None = None, **what: Any) -> bytes:
        """Return the bytes of a product; see `AsyncClient.read_product`."""
        return self._wait(self._connected.read_product(timeout_s, **what))

    def next_notice(self, timeout_s: float | None = None) -> ClientNotice | None:
        """Return the next notification, None if none came in time; None as time = wait for ever.

        Raises:
            Disconnected: the connection has ended, and all were returned.
        """
        waiting = asyncio.run_coroutine_threadsafe(_next(self._connected.notices()), self._loop)
        try:
            return waiting.result(timeout_s)
        except Late:
            waiting.cancel()
            return None

    def notices(self, timeout_s: float | None = None) -> Iterator[ClientNotice]:
        """Yield notifications until none came for `timeout_s` seconds."""
        while (received := self.next_notice(timeout_s)) is not None:
            yield received

    def close(self) -> None:
        """End the connection."""
        if self._loop.is_closed():
            return
        if self._client is not None:
            self._wait(self._client.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    @property
    def _connected(self) -> AsyncClient:
        if self._client is None or self._loop.is_closed():
            raise Disconnected("the connection is closed")
        return self._client

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        waiting: Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return waiting.result()
        except KeyboardInterrupt:
            waiting.cancel()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


async def _next(notices: AsyncIterator[ClientNotice]) -> ClientNotice:
    return await anext(notices)

"""Accepts connections of our HTTP servers: limits them in all and per address, and ends TLS handshakes that take too long.

asyncio reports a connection to its protocol only after the TLS handshake. Until then nothing counts it, so a thousand silent
connections would use up the file descriptors. This module counts a connection before its handshake. Without room, the oldest
connection ends if it has a minimum age; else the new one stays in the kernel's queue, so that bursts are served in turn.

Tests: `tests/features/gateway/access/test_guard.py`.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import Counter
from collections.abc import Callable

from msgspec import Struct

from aptui.shared.connections.addresses import is_loopback

HANDSHAKE_LIMIT_S = 5.0
PENDING_LIMIT = 128
"""Maximum number of connections before the end of their TLS handshake."""
PER_ADDRESS_LIMIT = 64
"""Maximum number of pending connections of one address; addresses of this machine are not limited separately."""
MIN_AGE_S = 0.5
"""Minimum age (seconds) of a pending connection that is closed to make room for a new one."""
BACKLOG = 512
"""Connections in the kernel's queue."""
_REFUSED_LIMIT = 4
"""Pending connections from a refused address: enough to tell the client why."""
_BATCH = 64
"""Connections accepted in one turn of the loop; each costs tens of KiB."""
_RETRY_S = 0.05
_NO_DESCRIPTORS_RETRY_S = 1.0


class _Pending(Struct, eq=False):
    """A connection before its handshake has ended."""

    channel: socket.socket
    address: str
    began_s: float
    task: asyncio.Task[None] | None = None


class Acceptor:
    """Accepts connections on a bound socket.

    Args:
        listening: the socket.
        factory: makes the protocol of a connection; called after the TLS handshake.
        context: TLS context, None = no TLS.
        free_capacity: called before each connection with the minimum age in seconds of a connection that may end for it; returns
            whether one more connection fits.
        refuses: returns why clients at an address are refused, "" = they are not. The protocol sends them the reason, after TLS;
            few such connections are accepted at a time.
        limit: maximum number of pending connections.
        handshake_s: timeout of a TLS handshake.
    """

    def __init__(
        self,
        listening: socket.socket,
        factory: Callable[[], asyncio.Protocol],
        *,
        context: ssl.SSLContext | None = None,
        free_capacity: Callable[[float], bool] = lambda _age_s: True,
        refuses: Callable[[str], str] = lambda _address: "",
        limit: int = PENDING_LIMIT,
        handshake_s: float = HANDSHAKE_LIMIT_S,
    ) -> None:
        self._listening, self._factory, self._context = listening, factory, context
        self._free_capacity, self._refuses, self._limit, self._handshake_s = free_capacity, refuses, limit, handshake_s
        self._pending: dict[_Pending, None] = {}
        self._per_address: Counter[str] = Counter()
        self._retry: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()

    def start(self) -> int:
        """Start accepting and return the port."""
        self._listening.setblocking(False)
        self._listening.listen(BACKLOG)
        self._loop.add_reader(self._listening.fileno(), self._accept)
        return int(self._listening.getsockname()[1])

    async def close(self) -> None:
        """Stop accepting and end pending connections."""
        if self._retry is not None:
            self._retry.cancel()
        self._loop.remove_reader(self._listening.fileno())
        self._listening.close()
        tasks = [pending.task for pending in self._pending if pending.task is not None]
        for pending in list(self._pending):
            self._cancel(pending)
        await asyncio.gather(*tasks, return_exceptions=True)

    def _accept(self) -> None:
        for _ in range(_BATCH):
            has_capacity = len(self._pending) < self._limit or self._cancel_oldest(MIN_AGE_S)
            if not (has_capacity and self._free_capacity(MIN_AGE_S)):
                self._pause(_RETRY_S)
                return
            try:
                channel, place = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:  # no file descriptors are left; without a pause the listening socket would wake the loop forever
                self._cancel_oldest(0.0) or self._free_capacity(0.0)
                self._pause(_NO_DESCRIPTORS_RETRY_S)
                return
            self._begin(channel, str(place[0]))

    def _cancel_oldest(self, age_s: float) -> bool:
        oldest = next(iter(self._pending), None)
        if oldest is None or self._loop.time() - oldest.began_s < age_s:
            return False
        self._cancel(oldest)
        return True

    def _pause(self, seconds: float) -> None:
        self._loop.remove_reader(self._listening.fileno())
        self._retry = self._loop.call_later(seconds, self._continue)

    def _continue(self) -> None:
        self._retry = None
        self._loop.add_reader(self._listening.fileno(), self._accept)
        self._accept()

    def _begin(self, channel: socket.socket, address: str) -> None:
        channel.setblocking(False)
        count = self._per_address[address]
        is_too_much = count >= PER_ADDRESS_LIMIT and not is_loopback(address)
        if is_too_much or (count >= _REFUSED_LIMIT and self._refuses(address)):
            channel.close()
            return
        pending = _Pending(channel, address, self._loop.time())
        self._pending[pending] = None
        self._per_address[address] += 1
        pending.task = self._loop.create_task(self._connect(pending))

    async def _connect(self, pending: _Pending) -> None:
        limit_s = self._handshake_s if self._context is not None else None
        try:
            await self._loop.connect_accepted_socket(
                self._factory, pending.channel, ssl=self._context, ssl_handshake_timeout=limit_s, ssl_shutdown_timeout=limit_s
            )
        except (OSError, ssl.SSLError, asyncio.CancelledError):
            pending.channel.close()  # noise, a port scan, or a client that does not trust the certificate: not worth a report
        finally:
            self._forget(pending)

    def _cancel(self, pending: _Pending) -> None:
        self._forget(pending)
        if pending.task is not None:
            pending.task.cancel()

    def _forget(self, pending: _Pending) -> None:
        if pending in self._pending:
            del self._pending[pending]
            self._per_address[pending.address] -= 1
            if not self._per_address[pending.address]:
                del self._per_address[pending.address]

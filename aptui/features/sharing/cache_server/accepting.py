"""Accepts sockets: counted in all and per address, TLS within seconds; the rest waits in the kernel.

asyncio tells a protocol of a connection after its TLS handshake; until then nobody would have counted it, and a thousand silent
sockets would use up the descriptors. Here a socket is looked at before its handshake. Where there is no room, those that have had
their chance go first, and if there are none, the next one is left in the kernel's queue: a crowd that means well is taken in one
after the other.

Tests: `tests/features/gateway/access/test_guard.py`.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from collections import Counter
from collections.abc import Callable

from msgspec import Struct

HANDSHAKE_LIMIT_S = 5.0
PENDING_LIMIT = 128
"""Sockets that have not agreed on TLS yet, or have not reached their protocol."""
PER_ADDRESS_LIMIT = 64
"""Sockets of one other machine that are pending; addresses of this machine have no limit of their own."""
CHANCE_S = 0.5
"""How long a socket may say nothing whole before it makes room for the next."""
BACKLOG = 512
"""Connections that wait in the kernel."""
_REFUSED_LIMIT = 4
"""Pending sockets of an address from which nobody may come in: enough to be told why."""
_ACCEPTS = 64
"""Connections taken in at once: each costs tens of KiB."""
_AGAIN_S = 0.05
_NO_DESCRIPTORS_AGAIN_S = 1.0
EndConnection = Callable[[float], bool]


class _Pending(Struct, eq=False):
    """A socket on its way to its protocol."""

    channel: socket.socket
    address: str
    began_s: float
    task: asyncio.Task[None] | None = None


class Acceptor:
    """Takes connections in on a socket that is bound.

    Args:
        listening: the socket.
        factory: makes the protocol of a connection, called when TLS is agreed.
        context: TLS, None = none.
        end_connection: called before each connection with the minimum age in seconds of a connection that may be ended for it;
            returns whether one more connection fits.
        refuses: whether nobody at an address may come in; its protocol tells them why, after TLS, but few of them at a time.
        limit: pending sockets.
    """

    def __init__(
        self,
        listening: socket.socket,
        factory: Callable[[], asyncio.Protocol],
        *,
        context: ssl.SSLContext | None = None,
        end_connection: EndConnection = lambda _age_s: True,
        refuses: Callable[[str], object] = lambda _address: "",
        limit: int = PENDING_LIMIT,
        handshake_s: float = HANDSHAKE_LIMIT_S,
    ) -> None:
        self._listening, self._factory, self._context = listening, factory, context
        self._end_connection, self._refuses, self._limit, self._handshake_s = end_connection, refuses, limit, handshake_s
        self._pending: dict[_Pending, None] = {}
        self._of_address: Counter[str] = Counter()
        self._again: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()

    def start(self) -> int:
        """Begin to take connections in, and return the port."""
        self._listening.setblocking(False)
        self._listening.listen(BACKLOG)
        self._loop.add_reader(self._listening.fileno(), self._accept)
        return int(self._listening.getsockname()[1])

    async def close(self) -> None:
        """Take none in any more, and let go of those that have not come through."""
        if self._again is not None:
            self._again.cancel()
        self._loop.remove_reader(self._listening.fileno())
        self._listening.close()
        tasks = [pending.task for pending in self._pending if pending.task is not None]
        for pending in list(self._pending):
            self._send_away(pending)
        await asyncio.gather(*tasks, return_exceptions=True)

    def _accept(self) -> None:
        for _ in range(_ACCEPTS):
            if not self._can_accept():
                self._pause(_AGAIN_S)
                return
            try:
                channel, place = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:  # no descriptors are left; the socket would wake the loop for ever
                self._drop_oldest(0.0) or self._end_connection(0.0)
                self._pause(_NO_DESCRIPTORS_AGAIN_S)
                return
            self._take(channel, str(place[0]))

    def _can_accept(self) -> bool:
        return (len(self._pending) < self._limit or self._drop_oldest(CHANCE_S)) and self._end_connection(CHANCE_S)

    def _drop_oldest(self, age_s: float) -> bool:
        oldest = next(iter(self._pending), None)
        if oldest is None or self._loop.time() - oldest.began_s < age_s:
            return False
        self._send_away(oldest)
        return True

    def _pause(self, seconds: float) -> None:
        self._loop.remove_reader(self._listening.fileno())
        self._again = self._loop.call_later(seconds, self._go_on)

    def _go_on(self) -> None:
        self._again = None
        self._loop.add_reader(self._listening.fileno(), self._accept)
        self._accept()

    def _take(self, channel: socket.socket, address: str) -> None:
        channel.setblocking(False)
        if self._are_too_many(address):
            channel.close()
            return
        pending = _Pending(channel, address, self._loop.time())
        self._pending[pending] = None
        self._of_address[address] += 1
        pending.task = self._loop.create_task(self._let_in(pending))

    def _are_too_many(self, address: str) -> bool:
        count = self._of_address[address]
        if count >= PER_ADDRESS_LIMIT and not _is_loopback(address):
            return True
        return count >= _REFUSED_LIMIT and bool(self._refuses(address))

    async def _let_in(self, pending: _Pending) -> None:
        limit_s = self._handshake_s if self._context is not None else None
        try:
            await self._loop.connect_accepted_socket(
                self._factory, pending.channel, ssl=self._context, ssl_handshake_timeout=limit_s, ssl_shutdown_timeout=limit_s
            )
        except (OSError, ssl.SSLError, asyncio.CancelledError):
            pending.channel.close()  # noise, a scan, a client that knows another authority: nobody's news
        finally:
            self._forget(pending)

    def _send_away(self, pending: _Pending) -> None:
        self._forget(pending)
        if pending.task is not None:
            pending.task.cancel()

    def _forget(self, pending: _Pending) -> None:
        if pending in self._pending:
            del self._pending[pending]
            self._of_address[pending.address] -= 1
            if not self._of_address[pending.address]:
                del self._of_address[pending.address]


def _is_loopback(address: str) -> bool:
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    return (getattr(found, "ipv4_mapped", None) or found).is_loopback

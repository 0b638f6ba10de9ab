"""Limits the connections of our HTTP servers: their number, and the time for the TLS handshake and for each request's headers.

A slow client (one byte per minute) or a thousand silent clients must not block other clients. Above the limit, the oldest
connection without a running request is closed; a connection is also closed if its request is not complete in time. Servers derive
their own classes from `HttpSocket` and `SocketLimits`.

aiohttp is an optional dependency: only servers import this module.

Tests: `tests/features/sharing/test_slow_clients.py`, `tests/features/gateway/access/test_guard.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import ssl
import struct
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestHandler
from msgspec import Struct

from aptui.shared.connections.addresses import is_loopback
from aptui.shared.errors import BusyError, UserError
from aptui.shared.floods import ErrorReports

# `Acceptor` accepts the connections of our HTTP servers. It limits the number of connections, in total and for each address, and
# ends TLS handshakes that take too long.
#
# asyncio reports a connection to its protocol only after the TLS handshake. A thousand silent connections would use up the file
# descriptors before any limit of the protocol applies. So `Acceptor` counts a connection before its handshake. At the maximum
# number, a new connection is accepted only if the oldest one has reached a minimum age and can be closed. Otherwise the new
# connection stays in the kernel's queue, so that all connections of a burst are served.

HANDSHAKE_LIMIT_S = 5.0
PENDING_LIMIT = 128
"""Maximum number of connections before the end of their TLS handshake."""
PER_ADDRESS_LIMIT = 64
"""Maximum number of pending connections of one address; addresses of this machine are not limited separately."""
MIN_AGE_S = 0.5
"""Minimum age (seconds) of a pending connection that is closed to make room for a new one."""
BACKLOG = 512
"""Maximum number of connections in the kernel's queue."""
_REFUSED_LIMIT = 4
"""Maximum number of pending connections of a refused address; its clients only receive the reason."""
_BATCH = 64
"""Maximum number of connections accepted in one turn of the loop; each costs tens of KiB."""
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
        factory: makes the protocol of a connection; called after the TLS handshake.
        context: TLS context, None = no TLS.
        free_capacity: called with a minimum age (seconds) before a connection is accepted; returns whether a connection fits.
            To make room, it may end a connection that has at least this age.
        refuses: returns why clients at an address are refused, "" = they are accepted. The protocol sends the reason to a refused
            client after the TLS handshake. Of each refused address, only `_REFUSED_LIMIT` connections are accepted at a time.
        limit: maximum number of pending connections.
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
        """Stop accepting connections, and end the connections whose TLS handshake is still pending."""
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
            pending.channel.close()  # not reported: port scans and clients that do not trust the certificate cause this error
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


SPARE_CONNECTIONS = 128
"""Maximum number of additional connections while all regular connections are in use. They are accepted only to answer with 503."""
_CHECK_S = 1.0
_STOP_S = 2.0
"""Timeout (seconds) for running requests when a server stops."""
_FULL_TEXT = b"too many connections: try again in a moment\n"
_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain; charset=utf-8\r\nRetry-After: 1\r\nConnection: close\r\n"
    b"Content-Length: %d\r\n\r\n%s" % (len(_FULL_TEXT), _FULL_TEXT)
)


class HttpSocket(RequestHandler):
    """One connection.

    Attributes:
        opened_s: time at which the connection was accepted.
        began_s: time at which the current request began to arrive, None after the request is complete. The first request counts as
            begun when the connection is accepted.
    """

    __slots__ = ("_limits", "began_s", "opened_s")

    def __init__(self, *values: Any, limits: SocketLimits, **more: Any) -> None:
        super().__init__(*values, **more)
        self._limits = limits
        self.opened_s = 0.0
        self.began_s: float | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Register the connection. If there are too many, end the oldest idle connection; this may be the new connection itself."""
        self.opened_s = self.began_s = asyncio.get_running_loop().time()
        super().connection_made(transport)
        self._limits.add(self)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Unregister the connection."""
        self._limits.forget(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Start the header timeout with the first byte of a request."""
        if self.began_s is None and not self.is_busy:
            self.began_s = asyncio.get_running_loop().time()
        super().data_received(data)

    def note_request(self) -> None:
        """Stop the header timeout, because the request is complete; called by request handlers."""
        self.began_s = None

    @property
    def is_busy(self) -> bool:
        """Whether a request is being answered."""
        return self._current_request is not None

    def end(self) -> None:
        """Close this connection to make room for a new connection; a client that waits for an answer gets 503."""
        if self.began_s is None or not isinstance(self.transport, asyncio.Transport):
            self.drop()
            return
        self.transport.write(_FULL)
        self.transport.abort()  # the kernel has the answer already; a graceful close would keep the descriptor open

    def drop(self) -> None:
        """Close at once and discard unsent data.

        Otherwise the kernel would try to send the data for many minutes (socket(7), SO_LINGER).
        """
        if self.transport is None:
            return
        with contextlib.suppress(OSError):
            self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    def log_exception(self, *args: Any, **more: Any) -> None:
        """Report our own errors at a bounded rate; invalid requests and lost connections are not reported."""
        error = more.get("exc_info")
        if isinstance(error, HttpProcessingError):
            # The traceback refers to the error and to the request's bytes; deleting the traceback breaks the reference cycle.
            error.__traceback__ = None
        elif not isinstance(error, ConnectionError) and self._limits.reports.admits(type(error).__name__):
            super().log_exception(*args, **more)


class SocketLimits:
    """All connections of one server."""

    def __init__(self, limit: int, header_limit_s: float) -> None:
        self._limit, self._header_limit_s = limit, header_limit_s
        self.all: dict[HttpSocket, None] = {}
        """Open connections, the oldest first."""
        self.reports = ErrorReports()
        self._timer: asyncio.TimerHandle | None = None

    def make_socket(self, *values: Any, **more: Any) -> HttpSocket:
        """Return the handler of a new connection; a server overrides this method to use a handler class of its own."""
        return HttpSocket(*values, limits=self, **more)

    def list_idle(self) -> Iterable[HttpSocket]:
        """Return the connections that can be closed to make room for a new connection, the oldest first."""
        return (each for each in self.all if not each.is_busy)

    def is_over(self) -> bool:
        """Whether there are too many connections."""
        return len(self.all) > self._limit

    def has_capacity(self) -> bool:
        """Whether one more connection fits without ending another."""
        return len(self.all) < self._limit

    def add(self, connection: HttpSocket) -> None:
        """Register a connection; while there are too many, end the oldest idle connection."""
        self.all[connection] = None
        while self.is_over() and (oldest := next(iter(self.list_idle()), None)) is not None:
            self.forget(oldest)
            oldest.end()
        self._check_later()

    def free_capacity(self, age_s: float) -> bool:
        """Return whether the server may accept one more connection.

        At the maximum number of connections, end the oldest idle connection if it is at least `age_s` old.
        """
        if self.has_capacity():
            return True
        oldest = next((each for each in self.list_idle() if not each.is_busy), None)  # a subclass may list busy connections, too
        if oldest is None:
            return len(self.all) < self._limit + SPARE_CONNECTIONS
        if asyncio.get_running_loop().time() - oldest.opened_s < age_s:
            return False
        self.forget(oldest)
        oldest.end()
        return True

    def forget(self, connection: HttpSocket) -> None:
        """Unregister a connection."""
        self.all.pop(connection, None)

    def check(self) -> None:
        """Drop the connections whose current request did not arrive in time."""
        self._timer = None
        before_s = asyncio.get_running_loop().time() - self._header_limit_s
        for connection in list(self.all):
            if connection.is_busy:
                connection.began_s = None
            elif connection.began_s is not None and connection.began_s < before_s:
                connection.drop()
        self._check_later()

    def _check_later(self) -> None:
        if self._timer is None and self.all:
            self._timer = asyncio.get_running_loop().call_later(min(_CHECK_S, self._header_limit_s / 4), self.check)

    def close(self) -> None:
        """Stop the checks of header timeouts."""
        if self._timer is not None:
            self._timer.cancel()


def bind(address: str, port: int, option: str) -> socket.socket:
    """Return a bound socket; `option` names the setting or option with the port.

    Raises:
        BusyError: another program has the port. UserError: the port is invalid, or this machine does not have the address.
    """
    if not 0 <= port < 1 << 16:
        raise UserError(f"{port} is not a port number", hint="give a number from 0 to 65535; 0 means any free port")
    try:
        family, kind, number, _name, place = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except (OSError, UnicodeError):
        raise UserError(f"'{address}' is not an address", hint="use an address of this machine, such as 127.0.0.1") from None
    bound = socket.socket(family, kind, number)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(place)
    except OSError as error:
        bound.close()
        if error.errno == errno.EADDRINUSE:
            raise BusyError(
                f"port {port} of {address} is in use", hint=f"choose another port with '{option}'; 0 means any free port"
            ) from None
        hint = f"choose another port with '{option}', or an address of this machine"
        raise UserError(f"cannot listen at {address} port {port}: {error.strerror}", hint=hint) from None
    return bound


def load_tls(certificate: str, key: str, certificate_option: str, key_option: str) -> ssl.SSLContext:
    """Return the TLS context of a server; the options are the settings or options that name the two files.

    Raises:
        UserError: the certificate or its key cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key)
    except ssl.SSLError as error:
        raise UserError(
            f"'{certificate}' and '{key}' are not a certificate and its key: {error.reason or error}",
            hint=f"name PEM files: the certificate chain in {certificate_option}, its private key in {key_option}",
        ) from None
    except OSError as error:
        raise UserError(
            f"certificate '{certificate}' or key '{key}' cannot be read: {error.strerror}",
            hint=f"check their permissions, or fix {certificate_option} and {key_option}",
        ) from None
    return context


def refuse_invalid_dates(request: web.BaseRequest) -> None:
    """Refuse a request that has a date outside the calendar in a condition; aiohttp's answers with a file fail at such a date.

    Raises:
        web.HTTPBadRequest: a date is invalid.
    """
    try:
        _dates = request.if_modified_since, request.if_unmodified_since, request.if_range
    except OverflowError:  # aiohttp reads years of any length
        raise web.HTTPBadRequest(text="a date in the header of this request is invalid") from None


class LimitedServer:
    """An HTTP server with connection limits; call `open` first, and `close` at the end.

    Args:
        app: the application; its signal `on_shutdown` ends long requests.
        acceptor: further arguments of `Acceptor`.
        handler_args: further arguments of aiohttp's request handler.
    """

    def __init__(
        self, app: web.Application, limits: SocketLimits, *, acceptor: dict[str, Any] | None = None, **handler_args: Any
    ) -> None:
        # Request bodies are never decompressed, so that decompression bombs are harmless.
        self._runner = _Runner(app, limits, access_log=None, auto_decompress=False, shutdown_timeout=_STOP_S, **handler_args)
        self._limits, self._options = limits, acceptor or {}
        self._acceptor: Acceptor | None = None

    async def open(self, listening: socket.socket) -> int:
        """Accept connections on a bound socket, and return the port."""
        await self._runner.setup()
        assert self._runner.server is not None
        self._acceptor = Acceptor(listening, self._runner.server, free_capacity=self._limits.free_capacity, **self._options)
        return self._acceptor.start()

    async def close(self) -> None:
        """Stop accepting, end all connections, and release everything."""
        if self._acceptor is not None:
            await self._acceptor.close()
        await self._runner.cleanup()
        self._limits.close()


class _Runner(web.AppRunner):
    __slots__ = ("_limits",)

    def __init__(self, app: web.Application, limits: SocketLimits, **more: Any) -> None:
        super().__init__(app, **more)
        self._limits = limits

    async def _make_server(self) -> web.Server:
        made = await super()._make_server()
        return _SocketFactory(made.request_handler, request_factory=made.request_factory, limits=self._limits, **made._kwargs)  # noqa: SLF001  # aiohttp offers no other way


class _SocketFactory(web.Server):
    def __init__(self, *values: Any, limits: SocketLimits, **more: Any) -> None:
        super().__init__(*values, **more)
        self._limits = limits

    def __call__(self) -> RequestHandler:
        return self._limits.make_socket(self, loop=self._loop, **self._kwargs)

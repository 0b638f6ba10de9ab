"""The sockets of O3DE's asset processor protocol: frames, limits, negotiation, and one session per client."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

from aptui.features.o3de.binary_stream import crc_of
from aptui.features.o3de.connection.connection_settings import ConnectionSettings
from aptui.features.o3de.connection.o3de_messages import (
    BY_TYPE,
    NEGOTIATION,
    NOTIFICATIONS,
    O3deExchange,
    O3deMessage,
    Shape,
    decode,
    encode,
)
from aptui.link import places
from aptui.shared.connections.addresses import entry_for, host_names, is_loopback, parse_address
from aptui.shared.errors import KnownError

API_VERSION = 7
OWN_NAME = "ASSETPROCESSOR"
PROCESS_ID, PLATFORMS, BRANCH_TOKEN, PROJECT = range(4)
"""Keys of the values in a negotiation."""
ANSWER_FLAG = 1 << 31
_HEAD = struct.Struct("<III")
_CLIENTS_LIMIT, _SILENT_LIMIT = 64, 32
"""Maximum number of clients, and maximum number of clients that have not negotiated.

Above the second limit, the client that has waited longest for its negotiation is disconnected.
"""
MOST_BYTES = 16 << 20
"""Maximum payload of a client in bytes; clients write larger files in parts."""
_NEGOTIATION_BYTES = 1 << 16
_NEGOTIATION_S = 5.0
_FRAME_S, _WRITE_S = 30.0, 30.0
"""Timeout for receiving the rest of a frame, and for a client that does not read (seconds)."""
_QUEUE_BYTES, _BUSY_BYTES = 64 << 20, 4 << 20
"""Maximum number of unsent bytes for a client, and the number above which the server stops reading the client's requests."""
_REQUESTS_LIMIT = 32
"""Maximum number of requests of one client that are answered at a time; at this limit, the server stops reading from the client."""
_REPORTS_LIMIT, _NAME_LENGTH = 64, 200
_BACKLOG_MOST = 100_000
"""Maximum number of notifications that are stored until the client has received the list of all products."""


class Answers(Protocol):
    """Answers the requests of one client."""

    def find_handler(self, name: str) -> tuple[Callable[[O3deMessage], Awaitable[dict[str, Any] | None]], bool] | None:
        """Return the function that answers a request, and whether requests of this kind are answered in the order of arrival."""

    def close(self) -> None:
        """Release everything that the client holds."""


class RefusedClient(Exception):
    """A client must be disconnected; the text is the reason, a sentence that begins with the client's name."""


def refuse(settings: ConnectionSettings, name: str, version: int, facts: dict[int, str]) -> str:
    """Return why a client's negotiation is refused, "" = it is accepted."""
    token, project = facts.get(BRANCH_TOKEN, ""), facts.get(PROJECT, "")
    if version != API_VERSION:
        return f"{name} uses version {version} of the protocol; this engine uses version {API_VERSION}"
    if name != "UNITTEST" and facts.get(PROCESS_ID, "") == str(os.getpid()):
        return f"{name} sent the process id of this engine instead of its own"
    if settings.branch_token and token.lower() != settings.branch_token.lower():
        return f"{name} belongs to another engine: its branch token is '{token}', not '{settings.branch_token}'"
    if project.lower() != settings.project.lower():
        return f"{name} has another project open: '{project}', not '{settings.project}'"
    return ""


class O3deSession:
    """The connection of one client: its frames, its tasks, and the messages that wait to be sent."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.name = "a client"
        self.is_local = False
        """Whether the client runs on this machine as the same user as the engine, or as root."""
        self.platforms: tuple[str, ...] = ()
        self.backlog: list[tuple[Shape, bytes]] | None = []
        """Notifications that are stored until the client has the list of all products; None = notifications are sent at once."""
        self.needs_bulk = True
        """Whether the list of all products must be sent: at first, and again after notifications were lost."""
        self._queue: deque[bytes] = deque()
        self.queued_bytes = 0
        self._wake, self._is_empty = asyncio.Event(), asyncio.Event()
        self._is_empty.set()
        self.why_ended = ""
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task that is cancelled when the connection ends."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def end_tasks(self) -> None:
        """End all tasks."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def read(self, most_bytes: int, limit_s: float | None = None) -> tuple[int, int, bytes]:
        """Return type, serial and payload of the next frame; `limit_s` is the timeout until the frame begins.

        Raises:
            RefusedClient: the frame is too large, or not complete in time. EOFError, OSError: the connection ended.
        """
        try:
            async with asyncio.timeout(limit_s):
                first = await self._reader.readexactly(1)
            async with asyncio.timeout(_FRAME_S):
                number, size, serial = _HEAD.unpack(first + await self._reader.readexactly(_HEAD.size - 1))
                if size > most_bytes:
                    raise RefusedClient(f"{self.name} sent a message of {size:,} bytes; the limit is {most_bytes:,} bytes")
                return number, serial, await self._reader.readexactly(size)
        except TimeoutError:
            raise RefusedClient(f"{self.name} did not send a whole message in time") from None

    def send(self, number: int, serial: int, payload: bytes) -> None:
        """Queue a frame."""
        if self.why_ended:
            return
        self._queue.append(_HEAD.pack(number, len(payload), serial) + payload)
        self.queued_bytes += len(payload) + _HEAD.size
        self._is_empty.clear()
        self._wake.set()
        if self.queued_bytes > _QUEUE_BYTES:
            self.end(f"{self.name} reads too slowly: more than {_QUEUE_BYTES >> 20} MiB of messages wait to be sent")

    def send_now(self, shape: Shape, payload: bytes) -> None:
        """Queue a notification, even if the client has not received the list of all products yet."""
        self.send(crc_of(NOTIFICATIONS[shape.name]), 0, payload)

    def notify(self, shape: Shape, payload: bytes) -> None:
        """Queue a notification. If the client does not have the list of all products yet, store the notification in `backlog`."""
        if self.backlog is None:
            self.send_now(shape, payload)
        elif len(self.backlog) < _BACKLOG_MOST:
            self.backlog.append((shape, payload))
        else:
            self.end(f"{self.name} reads too slowly: too many notifications wait to be sent")

    def release_backlog(self) -> None:
        """Send the notifications in `backlog`, because the client has received the list of all products."""
        waiting, self.backlog = self.backlog or [], [] if self.needs_bulk else None
        for shape, payload in waiting:
            self.send_now(shape, payload)

    async def wait_until_sent(self) -> None:
        """Wait until the client has read everything, or until its connection has ended."""
        await self._is_empty.wait()

    async def write_all(self) -> None:
        """Write queued frames until the connection ends."""
        try:
            while not self.why_ended:
                await self._wake.wait()
                self._wake.clear()
                while self._queue and not self.why_ended:
                    frame = self._queue.popleft()
                    self._writer.write(frame)
                    async with asyncio.timeout(_WRITE_S):
                        await self._writer.drain()
                    self.queued_bytes -= len(frame)
                self._is_empty.set()
        except TimeoutError:
            self.end(f"{self.name} does not read its messages")
        except OSError:  # the next `read` fails, too
            self._is_empty.set()

    def end(self, why: str) -> None:
        """Disconnect the client."""
        self.why_ended = self.why_ended or why
        self._is_empty.set()
        self._wake.set()
        self._writer.transport.abort()


class O3deServer:
    """Serves clients at a listening socket.

    Args:
        answers: returns the `Answers` object of a session.
        on_connect: called with a session after its client has negotiated; sends the list of all products.
        report: called with a sentence about a refused client; each sentence is reported only once.
    """

    def __init__(
        self,
        settings: ConnectionSettings,
        answers: Callable[[O3deSession], Answers],
        on_connect: Callable[[O3deSession], Awaitable[None]],
        report: Callable[[str], object] = lambda _text: None,
    ) -> None:
        self._settings, self._answers, self._on_connect, self._report = settings, answers, on_connect, report
        self._reported: set[str] = set()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._addresses: dict[str, set[Any]] = {}
        self._silent: dict[O3deSession, None] = {}
        """Sessions before the negotiation of the protocol, the oldest first."""
        self.sessions: set[O3deSession] = set()
        """Sessions after a successful negotiation of the protocol."""

    async def start(self, listening: socket.socket) -> None:
        """Serve clients of a listening socket."""
        for name in host_names((*self._settings.allowed, *self._settings.rejected)):
            with contextlib.suppress(OSError, UnicodeError):
                found = await asyncio.get_running_loop().getaddrinfo(name, None, type=socket.SOCK_STREAM)
                self._addresses[name] = {parse_address(str(place[0])) for *_, place in found}
        self._server = await asyncio.start_server(self._serve, sock=listening)

    async def close(self) -> None:
        """End all sessions."""
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def broadcast(self, shape: Shape, payload: bytes, platform: str = "", only: str = "") -> None:
        """Send a notification to the clients of a platform ("" = all clients); `only` restricts it to clients with this name."""
        for session in list(self.sessions):
            if (not platform or platform in session.platforms) and (not only or session.name.upper() == only):
                session.notify(shape, payload)

    # ------------------------------------------------------------------------------------------------------------ sessions

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        session = O3deSession(reader, writer)
        self._silent[session] = None
        if len(self._silent) > _SILENT_LIMIT:
            next(iter(self._silent)).end("too many connected clients have not begun O3DE's protocol")
        try:
            remote = str((writer.get_extra_info("peername") or ("",))[0])
            session.is_local = is_loopback(remote) and places.loopback_uid(writer.get_extra_info("socket")) in (os.geteuid(), 0)
            why = self.why_refused(remote, is_local=session.is_local)
            if why:
                raise RefusedClient(why)
            _keep_alive(writer.get_extra_info("socket"))
            await self._negotiate(session)
            self._silent.pop(session, None)
            await self._talk(session)
        except RefusedClient as error:
            self._say(str(error))
        except (EOFError, OSError):
            pass  # the client has disconnected
        except asyncio.CancelledError:
            pass  # the server is stopping
        finally:
            self._silent.pop(session, None)
            self._tasks.discard(task)
            if session.why_ended:
                self._say(session.why_ended)
            writer.close()

    def why_refused(self, remote: str, *, is_local: bool) -> str:
        """Return why a client at an address is refused, "" = it is accepted.

        Every user of the machine can connect to the loopback address. So a program of another user needs an entry in the
        list of allowed addresses even if it runs on this machine.
        """
        settings, address = self._settings, parse_address(remote)
        if len(self.sessions) >= _CLIENTS_LIMIT:
            return f"more than {_CLIENTS_LIMIT} clients are connected"
        if address is None:
            return "the address of a client is unknown"
        if is_local:
            return ""
        if entry_for(address, settings.rejected, self._addresses) is not None:
            return f"{address} is in the rejected list"
        if entry_for(address, settings.allowed, self._addresses) is None:
            return f"{address} is not in the allowed list" if not address.is_loopback else "a program of another user is refused"
        return ""

    def _say(self, why: str) -> None:
        if why not in self._reported and len(self._reported) < _REPORTS_LIMIT:
            self._reported.add(why)
            self._report(why)

    async def _negotiate(self, session: O3deSession) -> None:
        number, serial, payload = await session.read(_NEGOTIATION_BYTES, _NEGOTIATION_S)
        if number != NEGOTIATION.type_number:
            raise RefusedClient("a client that does not speak O3DE's protocol connected")
        try:
            request = decode(NEGOTIATION.request, payload)
        except ValueError as error:
            raise RefusedClient(f"a client's negotiation is damaged: {error}") from None
        facts = {key: _shorten(value) for key, value in request["NegotiationInfo"].items()}
        session.name = _shorten(request["Identifier"]) or "a client"
        session.platforms = tuple(filter(None, (each.strip().lower() for each in facts.get(PLATFORMS, "").split(","))))
        own = {
            PROCESS_ID: str(os.getpid()),
            BRANCH_TOKEN: self._settings.branch_token or facts.get(BRANCH_TOKEN, ""),
            PROJECT: self._settings.project,
        }
        answer = O3deMessage(NEGOTIATION.request, {"ApiVersion": API_VERSION, "Identifier": OWN_NAME, "NegotiationInfo": own})
        session.send(number, serial, encode(answer))
        why = refuse(self._settings, session.name, request["ApiVersion"], facts)
        if why:
            # The answer must be sent before the connection ends, because the client shows its user which version, branch token or
            # project differs.
            session.begin(session.write_all())
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(session.wait_until_sent(), _NEGOTIATION_S)
            await session.end_tasks()
            raise RefusedClient(why)

    async def _talk(self, session: O3deSession) -> None:
        answers = self._answers(session)
        self.sessions.add(session)
        session.begin(session.write_all())
        session.begin(self._welcome(session))
        free = asyncio.Semaphore(_REQUESTS_LIMIT)
        try:
            while True:
                if session.queued_bytes > _BUSY_BYTES:
                    await session.wait_until_sent()
                number, serial, payload = await session.read(MOST_BYTES)
                exchange = BY_TYPE.get(number)
                found = None if exchange is None else answers.find_handler(exchange.request.name)
                if exchange is None or found is None:
                    if serial and not serial & ANSWER_FLAG:
                        # send an empty answer, because a client of O3DE waits for an answer without a timeout
                        session.send(number, serial | ANSWER_FLAG, b"")
                    continue
                try:
                    request = decode(exchange.request, payload)
                except ValueError as error:
                    raise RefusedClient(f"{session.name} sent a damaged message: {error}") from None
                handle, is_ordered = found
                if is_ordered:
                    await self._answer(session, exchange, serial, handle(request))
                    continue
                await free.acquire()
                job = session.begin(self._answer(session, exchange, serial, handle(request)))
                job.add_done_callback(lambda _done: free.release())
        finally:
            self.sessions.discard(session)
            await session.end_tasks()
            answers.close()

    def send_bulk_again(self) -> None:
        """Send all products to every client, because clients may have missed notifications."""
        for session in self.sessions:
            session.needs_bulk = True
            if session.backlog is None:
                session.backlog = []
                session.begin(self._welcome(session))

    async def _welcome(self, session: O3deSession) -> None:
        while session.needs_bulk:
            session.needs_bulk = False
            with contextlib.suppress(KnownError):  # before the first run, the project has no asset database and no products
                await self._on_connect(session)
            session.release_backlog()

    async def _answer(
        self, session: O3deSession, exchange: O3deExchange, serial: int, work: Awaitable[dict[str, Any] | None]
    ) -> None:
        try:
            try:
                values = await work
            except KnownError:
                values = {}  # the answer has the default value of each field, for example "not found" or "failed"
            if values is not None and serial and exchange.response is not None:
                session.send(exchange.type_number, serial | ANSWER_FLAG, encode(O3deMessage(exchange.response, values)))
        except Exception as error:  # noqa: BLE001 - a bug of aptui ends one connection, and is reported
            session.end(f"a request of {session.name} failed ({exchange.request.name}): {type(error).__name__}: {error}")


def _shorten(text: str) -> str:
    """Return a text of a client without control characters, cut to the maximum length of a name."""
    return "".join(filter(str.isprintable, text))[:_NAME_LENGTH]


def _keep_alive(channel: socket.socket) -> None:
    channel.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

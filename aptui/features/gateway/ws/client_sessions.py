"""The open WebSockets, one client each: handshake, outgoing queue and requests; `routing` answers the requests.

Notifications are encoded once for all clients with the same subscription and sent at once. If a client has not read the previous
notifications, new notifications are queued. A queue of more than a thousand notifications is dropped, and the client starts again
with `resync`. So a slow client uses a limited amount of memory and does not delay other clients.

Tests: `tests/features/gateway/ws/test_client_sessions.py`, `tests/features/gateway/ws/test_frames.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import struct
import zlib
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from aiohttp import ClientWebSocketResponse, WSMsgType, web
from aiohttp.abc import AbstractStreamWriter
from msgspec import Struct
from msgspec.structs import replace

from aptui import __version__
from aptui.features.gateway import gateway_context, wire_codec
from aptui.features.gateway.access.guard import SUBPROTOCOL, ClientIdentity, require
from aptui.features.gateway.access.tokens import LOCAL
from aptui.features.gateway.gateway_context import CONTEXT, GatewayContext
from aptui.features.gateway.wire_codec import RequestMistake, Scope, without_paths
from aptui.features.gateway.wire_records import Asset, AssetChanged, AssetRemoved, Catalog, Hello, Notice, Resync, Welcome
from aptui.shared.errors import KnownError
from aptui.store.db.schema import uuid_text, wire_asset_id
from aptui.store.queries.reader import Reader
from aptui.store.queries.serving import Served, catalog_page

if TYPE_CHECKING:
    from aptui.store.queries.serving import Database


# WebSocket frames (RFC 6455, RFC 7692), each built once for all its receivers. If a thousand clients have the same subscription, a
# message is encoded and compressed once, and each client costs one system call. A message is compressed independently of other
# messages, for clients that offered `permessage-deflate`.
#
# aiohttp opens the connection, reads, and handles control frames. This module writes all messages after the upgrade, because the
# writer of aiohttp compresses each message in the context of the earlier messages of the connection.

_LAST, _DEFLATED = 0x80, 0x40
_WINDOW = 15
"""Window size of the compression; a client that requires a smaller window gets uncompressed messages."""
_WORTH_BYTES = 512
"""Minimum length (bytes) of a message that is compressed."""
_TAIL = b"\x00\x00\xff\xff"
"""The bytes at the end of a flushed block; they are removed from each message (RFC 7692 §7.2.1)."""

Socket: TypeAlias = web.WebSocketResponse | ClientWebSocketResponse


class FrameMessage:
    """A message to one or many clients."""

    __slots__ = ("_deflated", "_plain", "data", "kind")

    def __init__(self, data: bytes, kind: WSMsgType = WSMsgType.TEXT) -> None:
        self.data, self.kind = data, kind
        self._plain = self._deflated = b""

    def frame(self, *, is_deflated: bool) -> bytes:
        """Return the frame, which is created on first use. Only long messages are compressed."""
        if is_deflated and self.kind is WSMsgType.TEXT and len(self.data) >= _WORTH_BYTES:
            self._deflated = self._deflated or _frame(_LAST | _DEFLATED | self.kind, _deflate(self.data))
            return self._deflated
        self._plain = self._plain or _frame(_LAST | self.kind, self.data)
        return self._plain


def _frame(first: int, payload: bytes) -> bytes:
    """Return an unmasked frame, as servers send them."""
    length = len(payload)
    if length < 126:
        return bytes((first, length)) + payload
    if length < 1 << 16:
        return struct.pack("!BBH", first, 126, length) + payload
    return struct.pack("!BBQ", first, 127, length) + payload


def _deflate(data: bytes) -> bytes:
    made = zlib.compressobj(level=1, wbits=-_WINDOW)
    return (made.compress(data) + made.flush(zlib.Z_SYNC_FLUSH)).removesuffix(_TAIL)


class Wire:
    """Sends messages to one client.

    Args:
        transport, writer: transport and writer of the WebSocket, if the client connected to the gateway. None if the gateway
            connected to a device: then aiohttp sends the messages, because it must mask each frame.
    """

    __slots__ = ("_is_deflated", "_socket", "_transport", "_writer", "sent_bytes")

    def __init__(
        self, socket: Socket, transport: asyncio.WriteTransport | None = None, writer: AbstractStreamWriter | None = None
    ) -> None:
        self._socket, self._transport, self._writer = socket, transport, writer
        self._is_deflated = transport is not None and socket.compress == _WINDOW
        self.sent_bytes = 0

    def try_send(self, message: FrameMessage) -> bool:
        """Send a message if all earlier messages have left the buffer; return whether the message was sent."""
        transport = self._transport
        if transport is None or self._socket.closed or transport.is_closing() or transport.get_write_buffer_size():
            return False
        self._write(transport, message)
        return True

    async def send(self, message: FrameMessage) -> None:
        """Send a message; waits while the client does not read.

        Raises:
            ConnectionError: the connection has ended.
        """
        if self._transport is None or self._writer is None:
            self.sent_bytes += len(message.data)
            await self._socket.send_frame(message.data, message.kind)
            return
        if self._socket.closed or self._transport.is_closing():
            raise ConnectionResetError("the client has disconnected")
        self._write(self._transport, message)
        await self._writer.drain()

    def _write(self, transport: asyncio.WriteTransport, message: FrameMessage) -> None:
        frame = message.frame(is_deflated=self._is_deflated)
        self.sent_bytes += len(frame)
        transport.write(frame)


def asset_of(row: Served) -> Asset:
    """Return the record of a product from its database row."""
    platform, _, path = row.name.partition("/")
    needs = tuple((wire_asset_id(uuid, sub_id), flags) for uuid, sub_id, flags in row.needs)
    former = tuple(wire_asset_id(row.uuid, sub_id) for sub_id in row.legacy)
    return Asset(
        wire_asset_id(row.uuid, row.sub_id), platform, path, uuid_text(row.asset_type), row.size, row.digest.hex(), needs, former
    )


async def pages(database: Database, platforms: Sequence[str], size: int) -> AsyncIterator[tuple[tuple[int, int], Catalog]]:
    """Yield ((epoch, seq), part of the catalog) for each page of the catalog.

    Each page is read by a short query. (epoch, seq) is the event at which the first page was read.

    Raises:
        KnownError: the database cannot be read.
    """
    moment: tuple[int, int] | None = None
    for platform in platforms:
        after = ""
        while True:
            now, rows = await database.ask(partial(_page, platform=platform, after=after, size=size))
            is_first, moment = moment is None, moment or now
            is_over = len(rows) < size
            yield moment, Catalog(tuple(map(asset_of, rows)), is_first, is_over and platform == platforms[-1])
            if is_over:
                break
            after = rows[-1].name


def _page(reader: Reader, platform: str, after: str, size: int) -> tuple[tuple[int, int], list[Served]]:
    return reader.moment(), catalog_page(reader, platform, after, size)


HELLO_LIMIT_S = 30.0
"""Timeout for a client's hello, in seconds."""
_HEARTBEAT_S = 30.0
"""Interval of pings in seconds; a connection ends if a ping is not answered."""
_CLOSE_LIMIT_S = 2.0
"""Timeout (seconds) for a client's answer to a close frame."""
_REQUESTS_AT_ONCE = 16
"""Maximum number of running requests per client; at this number, the gateway stops reading from the client."""
_CATALOG_PAGE = 500
"""Maximum number of assets in one message of a catalog."""
_NAME_LENGTH = 80
"""Maximum length of a client's name, which is sent to the engine and every screen."""
_SHARE = 0.75
"""Maximum share of all clients that one token may use, so that it cannot lock out the clients with other tokens."""
_FALLEN_BEHIND = "the client reads too slowly"

_CHECK_S = 0.005
"""Interval (seconds) of the checks whether clients have read their messages."""
Wanted: TypeAlias = tuple[frozenset[str], frozenset[str]]
"""The requested notifications: (platforms, names of notifications). An empty set means all platforms or all names."""
Subscription: TypeAlias = tuple[Wanted, bool]
"""(requested notifications, whether absolute paths are included). Clients with equal subscriptions get the same bytes."""


class Frame(Struct, frozen=True):
    """Notifications as sent to a client, up to the event (`epoch`, `seq`)."""

    epoch: int
    seq: int
    notices: tuple[object, ...]
    message: FrameMessage


def frame_of(epoch: int, seq: int, notices: Sequence[object]) -> Frame:
    """Return notifications as a frame."""
    return Frame(epoch, seq, tuple(notices), FrameMessage(wire_codec.encode_notices(epoch, seq, notices).encode()))


REVOKED = "the token was revoked or has expired"


class RequestAnswer(NamedTuple):
    """An answer, the bytes to send after it, and a function that is called after sending, even if sending failed."""

    record: object
    stream: AsyncIterator[bytes] | None = None
    close: Callable[[], object] = bool


class WireSession:
    """The session of one client: its WebSocket, its subscription, and the notifications that wait for it.

    Args:
        wire: sends the messages of the session; None = aiohttp sends them.
    """

    def __init__(
        self,
        context: GatewayContext,
        sessions: WireSessions,
        socket: Socket,
        identity: ClientIdentity,
        number: int,
        wire: Wire | None = None,
    ) -> None:
        self.context, self.identity, self.number = context, identity, number
        self._sessions = sessions
        self.hello: Hello | None = None
        self.since_s = self.last_s = monotonic()
        self.last_request = ""
        self.received_bytes = 0
        self._socket, self._wire = socket, wire or Wire(socket)
        self._queue: deque[Frame] = deque()
        self.waiting_count = 0
        """Number of queued notifications."""
        self._lost = ""
        self._catalog_due = False
        self._is_writing = False
        """Whether `_write` is sending queued notifications; new notifications are then queued, too."""
        self._wake = asyncio.Event()
        self._slots = asyncio.Semaphore(_REQUESTS_AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def wanted(self) -> Wanted:
        """The client's subscription."""
        hello = self.hello
        return (frozenset(hello.platforms), frozenset(hello.notices)) if hello else (frozenset(), frozenset())

    @property
    def sent_bytes(self) -> int:
        """Number of sent bytes."""
        return self._wire.sent_bytes

    # ------------------------------------------------------------------------------------------------------------- sending

    def queue(self, frame: Frame) -> None:
        """Send these notifications at once if the client has read all earlier ones; otherwise queue them.

        If the queue would become too long, drop it; then the client gets a `resync`.
        """
        if not (self._queue or self._is_writing or self._lost or self._catalog_due) and self._wire.try_send(frame.message):
            return
        if self.waiting_count + len(frame.notices) > wire_codec.QUEUE_LIMIT:
            self.drop_queue(_FALLEN_BEHIND)
            return
        self._queue.append(frame)
        self.waiting_count += len(frame.notices)
        self._wake.set()

    def drop_queue(self, why: str) -> None:
        """Drop the queue; the client gets a `resync` and then only new notifications."""
        self._queue.clear()
        self.waiting_count, self._lost = 0, why
        self._wake.set()

    def send_catalog(self) -> None:
        """Send the whole catalog before the queued notifications."""
        self._catalog_due = True
        self._wake.set()

    async def _write(self) -> None:
        """Send the queue in order; the only task that sends notifications."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            self._is_writing = True
            while self._lost or self._catalog_due or self._queue:
                if self._lost:
                    why, self._lost = self._lost, ""
                    self._catalog_due = self._catalog_due or (self.hello is not None and self.hello.wants_catalog)
                    engine = self.context.engine
                    await self.send(wire_codec.encode_notices(engine.epoch, engine.seq, [Resync(why)]))
                elif self._catalog_due:
                    self._catalog_due = False
                    await self._write_catalog()
                else:
                    frame = self._queue.popleft()
                    self.waiting_count -= len(frame.notices)
                    await self._wire.send(frame.message)
            self._is_writing = False

    async def _write_catalog(self) -> None:
        """Send the catalog page by page: a slow client must not keep a transaction open.

        Notifications from before the catalog are dropped.
        """
        platforms = self.wanted[0] or self.context.platforms
        try:
            async for moment, part in pages(self.context.database, sorted(platforms), _CATALOG_PAGE):
                if part.is_first:
                    self._forget_older(*moment)
                await self.send(wire_codec.encode_notices(*moment, [part]))
        except KnownError as error:
            engine = self.context.engine
            await self.send(wire_codec.encode_notices(engine.epoch, engine.seq, [Resync(f"the catalog cannot be read: {error}")]))

    def _forget_older(self, epoch: int, seq: int) -> None:
        remaining: deque[Frame] = deque()
        for frame in self._queue:
            if frame.epoch == epoch and frame.seq <= seq:
                left = tuple(each for each in frame.notices if not isinstance(each, (AssetChanged, AssetRemoved)))
                if left:
                    remaining.append(frame_of(frame.epoch, frame.seq, left))
            else:
                remaining.append(frame)
        self._queue = remaining
        self.waiting_count = sum(len(frame.notices) for frame in remaining)

    async def send(self, text: str) -> None:
        """Send a text message; waits while the client does not read."""
        await self._wire.send(FrameMessage(text.encode()))

    async def send_bytes(self, data: bytes) -> None:
        """Send a binary message."""
        await self._wire.send(FrameMessage(data, WSMsgType.BINARY))

    # ----------------------------------------------------------------------------------------------------------- receiving

    async def serve(self) -> None:
        """Exchange hello and welcome, then answer requests until the connection ends."""
        writer = gateway_context.begin(self._write(), "sending notifications")
        try:
            if await self._read_hello():
                for callback in self._sessions.hello_callbacks:
                    callback(self)
                async for message in self._socket:
                    if message.type is not WSMsgType.TEXT:
                        await self.close(1003, "requests must be text frames")
                        break
                    await self._handle_request(message.data)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            await gateway_context.end(writer, *self._tasks)

    async def _read_hello(self) -> bool:
        try:
            message = await self._socket.receive(timeout=HELLO_LIMIT_S)
        except TimeoutError:
            await self.close(1002, "the client did not send 'hello' in time")
            return False
        if message.type is not WSMsgType.TEXT:
            if message.type is WSMsgType.BINARY:
                await self.close(1003, "requests must be text frames")
            return False
        number = 0
        try:
            number, _name, request = wire_codec.decode_request(message.data)
            self._refuse_unknown(request)
        except RequestMistake as mistake:
            await self.send(wire_codec.encode_refusal(mistake.number or number, mistake.what, mistake.hint, mistake.code))
            await self.close(1002, mistake.what)
            return False
        self.hello = replace(
            request, client=request.client[:_NAME_LENGTH], platforms=_once(request.platforms), notices=_once(request.notices)
        )
        context = self.context
        scopes = tuple(scope.value for scope in Scope if self.identity.may(scope))
        epoch = context.engine.epoch if context.engine.is_here else 0
        welcome = Welcome(
            wire_codec.VERSION, __version__, context.config.name, context.platforms, self.number, scopes, epoch, context.engine.seq
        )
        await self.send(wire_codec.encode_answer(number, welcome))
        if request.wants_catalog:
            self.send_catalog()
        return True

    def _refuse_unknown(self, request: object) -> None:
        """Refuse a client with another protocol, another project, or unknown names."""
        if not isinstance(request, Hello):
            raise RequestMistake("the first request must be 'hello'", wire_codec.ADVICE)
        if request.protocol != wire_codec.VERSION:
            what = f"the gateway uses protocol version {wire_codec.VERSION}, but the client uses version {request.protocol}"
            raise RequestMistake(what, "install the same version of aptui on both sides")
        name = self.context.config.name
        if request.project and request.project.lower() != name.lower():
            raise RequestMistake(f"this is the project '{name}', not '{request.project[:100]}'", "check the address and port")
        for platform in request.platforms:
            self.context.refuse_unknown(platform)
        for name in request.notices:
            if name not in wire_codec.NOTICES:
                raise RequestMistake(
                    f"'{name[:40]}' is not a notification", f"the notifications are {', '.join(wire_codec.NOTICES)}"
                )

    async def _handle_request(self, text: str) -> None:
        self.received_bytes += len(text)
        try:
            number, name, request = wire_codec.decode_request(text)
        except RequestMistake as mistake:
            await self.send(wire_codec.encode_refusal(mistake.number, mistake.what, mistake.hint, mistake.code))
            return
        if not self.context.guard.is_known(self.identity):
            await self.send(wire_codec.encode_refusal(number, REVOKED, code=1))
            await self.close(1008, REVOKED)
            return
        self.last_request, self.last_s = name, monotonic()
        await self._slots.acquire()
        task = gateway_context.begin(self._answer(number, name, request), f"the request '{name}'")
        self._tasks.add(task)
        task.add_done_callback(self._on_answered)

    def _on_answered(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._slots.release()

    async def _answer(self, number: int, name: str, request: Any) -> None:
        try:
            answered = await self._sessions.answer(self, name, request)
        except RequestMistake as mistake:
            await self.send(wire_codec.encode_refusal(number, mistake.what, mistake.hint, mistake.code))
        except KnownError as error:
            await self.send(wire_codec.encode_refusal(number, error.what, error.hint, error.exit_code))
        except Exception:
            await self.send(wire_codec.encode_refusal(number, "internal error of the gateway", "please report this", 2))
            raise
        else:
            try:
                await self.send(wire_codec.encode_answer(number, answered.record))
                if answered.stream is not None:
                    await self._send_stream(number.to_bytes(4, "big"), answered.stream)
            finally:
                answered.close()

    async def _send_stream(self, head: bytes, stream: AsyncIterator[bytes]) -> None:
        async for piece in stream:
            await self.send_bytes(head + piece)
        await self.send_bytes(head)

    async def close(self, code: int, why: str) -> None:
        """End the connection with a reason."""
        with contextlib.suppress(Exception):
            await asyncio.wait_for(self._socket.close(code=code, message=why.encode()[:120]), 2 * _CLOSE_LIMIT_S)


Answering: TypeAlias = Callable[[WireSession, str, Any], Awaitable[RequestAnswer]]
"""(client, name of the request, the request) → its answer; raises `RequestMistake` or `KnownError` if it is refused."""


class WireSessions:
    """The sessions of all clients of a gateway.

    Args:
        limit: maximum number of clients; clients with the token of the gateway's owner do not count for the others.
    """

    def __init__(self, limit: int, answer: Answering) -> None:
        self.limit, self.answer = limit, answer
        self.all: dict[int, WireSession] = {}
        self.hello_callbacks: list[Callable[[WireSession], object]] = []
        """Functions that are called with each client after its hello. From then on, the client gets every notification."""
        self.end_callbacks: list[Callable[[WireSession], object]] = []
        """Functions that are called with each client that has disconnected."""
        self._count = 0
        self._opening: Counter[str] = Counter()
        """{name of a token: number of its WebSockets that are open or are being opened}."""

    def __iter__(self) -> Iterator[WireSession]:
        return iter([session for session in self.all.values() if session.hello is not None])

    @property
    def has_clients(self) -> bool:
        """Whether any client receives notifications."""
        return any(session.hello is not None for session in self.all.values())

    def publish(self, epoch: int, seq: int, notices: Sequence[Notice]) -> list[WireSession]:
        """Send notifications to all subscribed clients.

        Return the clients that had an empty queue before the call and have queued notifications now.
        """
        frames: dict[Subscription, Frame | None] = {}
        late = []
        for session in self:
            subscription = wanted, may_see_paths = session.wanted, session.identity.may_see_paths
            if subscription not in frames:
                chosen = [notice for notice in notices if is_wanted(notice, *wanted)]
                notices_for = chosen if may_see_paths else list(map(without_paths, chosen))
                frames[subscription] = frame_of(epoch, seq, notices_for) if chosen else None
            frame = frames[subscription]
            if frame is not None:
                was_ready = not session.waiting_count
                session.queue(frame)
                if was_ready and session.waiting_count:
                    late.append(session)
        return late

    def drop_queues(self, why: str) -> None:
        """Drop the queues of all clients, which get a `resync`."""
        for session in self:
            session.drop_queue(why)

    async def connect(self, request: web.Request) -> web.StreamResponse:
        """Open a WebSocket for requests, answers and notifications; `/v1/protocol` describes them."""
        identity = require(request, Scope.READ)
        self._refuse_excess(identity)
        self._opening[identity.name] += 1
        try:
            socket = web.WebSocketResponse(
                protocols=(SUBPROTOCOL,),
                heartbeat=_HEARTBEAT_S,
                timeout=_CLOSE_LIMIT_S,
                max_msg_size=wire_codec.FRAME_LIMIT_BYTES,
            )
            writer = await socket.prepare(request)
            wire = Wire(socket, request.transport, writer)
            with self.take_in(request.config_dict[CONTEXT], socket, identity, wire) as session:
                await session.serve()
        finally:
            self._opening[identity.name] -= 1
            self._opening += Counter()  # adding an empty Counter removes the names whose count is zero
            transport = request.transport
            if transport is not None and not transport.is_closing() and transport.get_write_buffer_size():
                transport.abort()  # `close` would wait forever for a client that does not read
        return socket

    def _refuse_excess(self, identity: ClientIdentity) -> None:
        """Refuse a client if there are too many. One token may use a share of the clients; the gateway's owner counts apart."""
        count = self._opening[identity.name]
        others = self._opening.total() - self._opening[LOCAL]
        if (count if identity.is_owner else others) >= self.limit:
            text = f"{self.limit} clients are connected already, which is the limit ('serve.clients_limit')\n"
            raise web.HTTPServiceUnavailable(text=text)
        if not identity.is_owner and count >= math.ceil(self.limit * _SHARE):
            text = f"{count} clients with the token '{identity.name}' are connected already, which is the limit for one token\n"
            raise web.HTTPServiceUnavailable(text=text)

    @contextlib.contextmanager
    def take_in(
        self, context: GatewayContext, socket: Socket, identity: ClientIdentity, wire: Wire | None = None
    ) -> Iterator[WireSession]:
        """Keep a client registered during the `with` block; the caller closes the WebSocket."""
        self._count += 1
        session = self.all[self._count] = WireSession(context, self, socket, identity, self._count, wire)
        try:
            yield session
        finally:
            del self.all[session.number]
            for callback in self.end_callbacks:
                callback(session)

    async def close(self) -> None:
        """End all sessions."""
        await asyncio.gather(
            *(session.close(1001, "the gateway stops") for session in list(self.all.values())), return_exceptions=True
        )


SESSIONS = web.AppKey("sessions", WireSessions)


def _once(words: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(words))


async def wait_until_taken(sessions: Sequence[WireSession], limit_s: float) -> None:
    """Wait until the queues of these clients are empty, at most `limit_s` seconds."""
    deadline_s = monotonic() + limit_s
    while any(session.waiting_count for session in sessions) and monotonic() < deadline_s:
        await asyncio.sleep(_CHECK_S)


def is_wanted(notice: Notice, platforms: frozenset[str], names: frozenset[str]) -> bool:
    """Whether a subscription includes a notification."""
    if names and wire_codec.name_of(type(notice)) not in names:
        return False
    platform = _platform_of(notice)
    return not platforms or not platform or platform in platforms


def _platform_of(notice: object) -> str:
    """Return the platform of a notification; "" = all platforms."""
    about = getattr(notice, "asset", None) or getattr(notice, "job", None) or notice
    platform: str = getattr(about, "platform", "")
    return "" if platform in ("all", "common") else platform

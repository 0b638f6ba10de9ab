"""A client of a gateway over the public protocol: `Client` for threads, `AsyncClient` for event loops.

    with Client.connect("http://127.0.0.1:45650", token=…, platforms=("linux",), wants_catalog=True) as client:
        state = client.ask(WaitReady(term="textures/grass.png"))
        for notice in client.notices():
            …

A client reconnects when the connection is lost (the engine restarts, the network fails); a `Resync` then reports that notifications
may be missing. `Device` waits for gateways that connect to it.

Tests: `tests/features/gateway/ws/test_client_sessions.py`, `tests/features/gateway/ws/test_routing.py`,
`tests/features/gateway/peers/test_peer_connections.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import ssl
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as Late
from pathlib import Path
from typing import Any, Self, TypeVar, cast
from urllib.parse import urlsplit

import aiohttp
from aiohttp import web
from msgspec import Struct, field

from aptui.features.gateway import wire_codec
from aptui.features.gateway.gateway_context import HttpSession
from aptui.features.gateway.wire_codec import REQUEST_NAMES, REQUESTS, RequestMistake
from aptui.features.gateway.wire_records import Hello, ReadProduct, Resync, Welcome
from aptui.shared.connections.addresses import is_loopback
from aptui.shared.connections.peers import DEVICE_PATH
from aptui.shared.errors import BusyError, HostError, KnownError, UserError
from aptui.shared.printing import sanitize

__all__ = ["AsyncClient", "Client", "ClientNotice", "Device", "Disconnected", "Refusal", "local"]

MESSAGE_LIMIT_BYTES = 64 << 20
"""Maximum length of a message from a gateway."""
_CONNECT_LIMIT_S = 10.0
"""Timeout for connecting, and for the gateway's answer to hello, in seconds."""
_HEARTBEAT_S = 30.0
"""Interval of pings in seconds; a connection ends if a ping is not answered."""
_WINDOW = 15
"""Window size (binary logarithm of the bytes) for compressing messages to and from a gateway on another machine."""
_CLOSE_LIMIT_S = 2.0
"""Timeout (seconds) for closing a connection; afterwards the connection is dropped."""
_MOST_UNREAD = 100_000
"""Maximum number of unread notifications; above this number all notifications are dropped and replaced by one `Resync`."""
_DATA_TYPES = (aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.BINARY)
_REASON_LENGTH = 300
"""Maximum number of bytes to read of the reason that a gateway sends when it refuses a handshake."""
_TEMPORARY_CODES = frozenset({None, 1001, 1006, 1012, 1013})
"""Close codes after which a client reconnects.

Any other code means that the gateway refused the client, or that the client itself closed the connection.
"""
_RECONNECT_S = 300.0
"""Default time (seconds) for which a client tries to reconnect."""
_PAUSES_S = (0.2, 5.0)
"""(pause before the first attempt to reconnect, maximum pause before an attempt), in seconds."""


class Refusal(KnownError):
    """The gateway refuses a request; `code` as in the protocol: 1 not allowed, 2 gateway error, 3 invalid request, 4 busy."""

    def __init__(self, what: str, *, hint: str = "", code: int = 3) -> None:
        super().__init__(what, hint=hint)
        self.code = code
        self.exit_code = {2: HostError.exit_code, 4: BusyError.exit_code}.get(code, UserError.exit_code)


class Disconnected(HostError):
    """The connection has ended, or could not be made."""


class ClientNotice(Struct, frozen=True):
    """A notification with the engine's epoch and event number."""

    epoch: int
    seq: int
    notice: object


class _PendingRequest(Struct):
    """A request without a complete answer.

    Args:
        answer: gets the answer or the error.
        has_bytes: whether the bytes of a product follow the record. Then the request is complete when the last bytes have arrived.
        pieces: received bytes of the product.
    """

    answer: asyncio.Future[object]
    record: type[Any]
    pieces: list[bytes] = field(default_factory=list)
    has_bytes: bool = False
    answered: object = None


class _Way(Struct, frozen=True):
    """Parameters for connecting to a gateway. `place` is called before each attempt and returns (URL, token)."""

    place: Callable[[], tuple[str, str]]
    tls: ssl.SSLContext | None
    hello: Hello
    reconnect_s: float


class AsyncClient:
    """A client's connection to a gateway; `connect` makes it."""

    def __init__(
        self,
        session: HttpSession | None,
        socket: aiohttp.ClientWebSocketResponse | web.WebSocketResponse,
        way: _Way | None = None,
    ) -> None:
        self._session, self._socket, self._way = session, socket, way
        self._asked: dict[int, _PendingRequest] = {}
        self._count = 0
        self._unread: deque[ClientNotice] = deque()
        self._has_unread = asyncio.Event()
        self._online = asyncio.Event()
        self._online.set()
        self._end: KnownError | None = None
        self._began, self._pause_s = asyncio.get_running_loop().time(), _PAUSES_S[0]
        self._reader = asyncio.get_running_loop().create_task(self._run())
        self.welcome = Welcome(0, "", "", (), 0, (), 0, 0)

    @classmethod
    async def connect(
        cls,
        url: str,
        *,
        token: str,
        tls: ssl.SSLContext | None = None,
        reconnect_s: float = _RECONNECT_S,
        place: Callable[[], tuple[str, str]] | None = None,
        **hello: Any,
    ) -> Self:
        """Connect to the gateway at `url` (`http://…` or `https://…`) and send hello.

        A lost connection is restored: pending requests end with `Disconnected`, and the next notification is a `Resync`.

        Args:
            tls: accepted certificates, None = the certificates that this machine trusts.
            reconnect_s: how long to try to reconnect before `Disconnected` ends the client; 0 = never reconnect.
            place: returns (URL, token) for each further attempt; URL and token may change when the gateway restarts.
            hello: fields of `wire_records.Hello`.

        Raises:
            Disconnected: no gateway answers. Refusal: the gateway refuses this client.
        """
        request = _make_hello(hello)
        way = _Way(place or (lambda: (url, token)), tls, request, reconnect_s)
        session, client = HttpSession(timeout=aiohttp.ClientTimeout(total=None, connect=_CONNECT_LIMIT_S)), None
        try:
            client = cls(session, await _dial(session.http, url, token, tls), way)
            client.welcome = await client.ask(request)
        except BaseException:
            await (client.close() if client is not None else session.close())
            raise
        return client

    @classmethod
    async def accept(cls, socket: web.WebSocketResponse, **hello: Any) -> Self:
        """Send hello to a gateway that connected to this device; arguments and errors as in `connect`."""
        client = cls(None, socket)
        try:
            client.welcome = await client.ask(_make_hello(hello), _CONNECT_LIMIT_S)
        except BaseException:
            await client.close()
            raise
        return client

    async def wait_for_end(self) -> None:
        """Wait until the connection has ended."""
        await asyncio.wait([self._reader])

    async def ask(self, request: Any, timeout_s: float | None = None) -> Any:
        """Return the answer to a request as its record (`wire_records`).

        Raises:
            Refusal: the gateway refuses. Disconnected: the connection has ended. TimeoutError: `timeout_s` has passed.
        """
        async with asyncio.timeout(timeout_s):
            asked = await self._send_request(request)
            return await asked.answer

    async def read_product(self, timeout_s: float | None = None, **what: Any) -> bytes:
        """Return the bytes of a product; `what` are fields of `wire_records.ReadProduct`.

        Raises:
            Refusal, Disconnected: see `ask`.
        """
        async with asyncio.timeout(timeout_s):
            asked = await self._send_request(ReadProduct(**what))
            await asked.answer
        return b"".join(asked.pieces)

    async def _send_request(self, request: Any) -> _PendingRequest:
        await self._online.wait()
        if self._end is not None:
            raise self._end
        asked, frame = self._register(request)
        try:
            await self._socket.send_str(frame)
        except (ConnectionError, RuntimeError) as error:
            asked.answer.cancel()
            raise self._end or Disconnected(
                f"the connection to the gateway has ended: {error}", hint="send the request again"
            ) from None
        return asked

    def _register(self, request: Any) -> tuple[_PendingRequest, str]:
        """Return a new pending request and its frame."""
        self._count += 1
        number = self._count
        answer: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        record = REQUESTS[REQUEST_NAMES[type(request)]].answer
        asked = self._asked[number] = _PendingRequest(answer, record, has_bytes=isinstance(request, ReadProduct))
        answer.add_done_callback(lambda _answer: self._asked.pop(number, None))
        return asked, wire_codec.encode_request(number, request)

    async def notices(self) -> AsyncIterator[ClientNotice]:
        """Yield notifications as they arrive.

        Raises:
            Disconnected: the connection has ended, and all notifications were yielded.
        """
        while True:
            while self._unread:
                yield self._unread.popleft()
            if self._end is not None:
                raise self._end
            self._has_unread.clear()
            await self._has_unread.wait()

    async def close(self) -> None:
        """End the connection."""
        self._finish(Disconnected("the connection to the gateway is closed"))
        with contextlib.suppress(Exception):
            await asyncio.wait_for(self._socket.close(), _CLOSE_LIMIT_S)
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)
        if self._session is not None:
            await self._session.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # -------------------------------------------------------------------------------------------- reading and reconnecting

    async def _run(self) -> None:
        """Read from the connection; reconnect when it is lost."""
        try:
            while True:
                code, end = await self._read()
                if self._way is None or self._way.reconnect_s <= 0 or code not in _TEMPORARY_CODES or self._end is not None:
                    self._finish(end)
                    return
                self._online.clear()
                self._fail_pending(end)
                await self._reconnect(self._way, str(end))
                self._online.set()
        except KnownError as error:
            self._finish(error)
        finally:
            self._finish(Disconnected("the connection to the gateway has ended"))

    async def _read(self) -> tuple[int | None, Disconnected]:
        """Read messages until the connection ends; return the close code and the reason."""
        code, why = None, ""
        try:
            while (message := await self._socket.receive()).type in _DATA_TYPES:
                if message.type is aiohttp.WSMsgType.TEXT:
                    self._handle_message(wire_codec.decode_message(message.data))
                else:
                    self._handle_bytes(message.data)
        except RequestMistake as mistake:
            return 1002, Disconnected(f"the gateway sent an invalid message: {mistake.what}")
        if message.type is aiohttp.WSMsgType.CLOSE:
            code, why = message.data, f": {sanitize(message.extra)}" if message.extra else ""
        # Prefer the close code that the gateway sent. Our socket reports 1006 over TLS, because our closing frame does not arrive.
        code = code or self._socket.close_code
        number = f" (code {code})" if code not in (None, 1000) else ""
        return code, Disconnected(f"the connection to the gateway has ended{number}{why}")

    async def _reconnect(self, way: _Way, why: str) -> None:
        """Reconnect, with growing pauses between the attempts.

        Raises:
            KnownError: `reconnect_s` has passed, or the gateway refuses this client.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + way.reconnect_s
        if loop.time() - self._began >= _PAUSES_S[1]:  # a connection that ended early does not reset the pause
            self._pause_s = _PAUSES_S[0]
        assert self._session is not None
        while True:
            await asyncio.sleep(self._pause_s * random.uniform(0.5, 1.0))  # random, because many clients must not reconnect at once
            self._pause_s = min(2 * self._pause_s, _PAUSES_S[1])
            try:
                url, token = way.place()
                self._socket = await _dial(self._session.http, url, token, way.tls)
                await self._send_hello(way.hello)
            except (Disconnected, HostError, Refusal) as error:
                is_refused = isinstance(error, Refusal) and error.exit_code != BusyError.exit_code
                if is_refused or loop.time() + self._pause_s > until:
                    raise
            else:
                self._began = loop.time()
                return
            finally:
                self._fail_pending(Disconnected(why))

    async def _send_hello(self, hello: Hello) -> None:
        """Send hello on a new socket, which only this function reads. Queue a `Resync`, because notifications may be missing.

        Raises:
            Disconnected: the new connection breaks before the answer. Refusal: the gateway refuses this client.
        """
        self._queue_notice(ClientNotice(0, 0, Resync("the connection to the gateway was lost and restored")))
        asked, frame = self._register(hello)
        try:
            await self._socket.send_str(frame)
            while not asked.answer.done():
                message = await self._socket.receive(_CONNECT_LIMIT_S)
                if message.type is not aiohttp.WSMsgType.TEXT:
                    raise Disconnected("the gateway closed the connection without answering 'hello'")
                self._handle_message(wire_codec.decode_message(message.data))
        except OSError as error:
            raise Disconnected(f"the gateway did not answer 'hello': {error or 'timeout'}") from None
        self.welcome = cast(Welcome, asked.answer.result())

    def _handle_message(self, message: wire_codec.WireMessage) -> None:
        for plain in message.notices:
            record = wire_codec.record_of(plain)
            if record is not None:
                self._queue_notice(ClientNotice(message.epoch, message.seq, record))
        asked = self._asked.get(message.number)
        if asked is None or asked.answer.done():
            return
        if message.refusal is not None:
            refusal = message.refusal
            asked.answer.set_exception(Refusal(refusal["what"], hint=refusal.get("hint", ""), code=refusal.get("code", 3)))
        elif message.answer is not None:
            asked.answered = wire_codec.as_record(message.answer, asked.record)
            if not asked.has_bytes:
                asked.answer.set_result(asked.answered)

    def _handle_bytes(self, data: bytes) -> None:
        asked = self._asked.get(int.from_bytes(data[:4], "big"))
        if asked is None or asked.answer.done():
            return
        if len(data) > 4:
            asked.pieces.append(data[4:])
        else:
            asked.answer.set_result(asked.answered)

    def _queue_notice(self, received: ClientNotice) -> None:
        if len(self._unread) >= _MOST_UNREAD:
            self._unread.clear()
            received = ClientNotice(received.epoch, received.seq, Resync("the program did not read its notifications in time"))
        self._unread.append(received)
        self._has_unread.set()

    def _finish(self, end: KnownError) -> None:
        if self._end is None:
            self._end = end
        self._has_unread.set()
        self._online.set()
        self._fail_pending(self._end)

    def _fail_pending(self, end: KnownError) -> None:
        for asked in list(self._asked.values()):
            if not asked.answer.done():
                asked.answer.set_exception(end)
                asked.answer.exception()  # mark the exception as read, because asyncio logs unread exceptions


def _make_hello(fields: dict[str, Any]) -> Hello:
    return Hello(**{"protocol": wire_codec.VERSION, "client": "aptui.features.gateway.client", **fields})


async def _dial(http: aiohttp.ClientSession, url: str, token: str, tls: ssl.SSLContext | None) -> aiohttp.ClientWebSocketResponse:
    """Return a WebSocket to the gateway.

    Raises:
        Disconnected: no gateway answers. Refusal: the gateway refuses this client.
    """
    try:
        return await http.ws_connect(
            url.rstrip("/") + wire_codec.PATH,
            headers={"Authorization": f"Bearer {token}"},
            max_msg_size=MESSAGE_LIMIT_BYTES,
            heartbeat=_HEARTBEAT_S,
            compress=0 if is_loopback(urlsplit(url).hostname or "") else _WINDOW,
            ssl=tls if tls is not None else True,
        )
    except aiohttp.WSServerHandshakeError as error:
        raise _as_refused_handshake(url, error.status, await _reason(http, url, token, tls, error.status)) from None
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
        raise _unreachable(url, error) from None


def _unreachable(url: str, error: Exception) -> Disconnected:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        hint = "add '--ca FILE' to trust it, where FILE is the 'serve.tls_cert' of the gateway's project"
        return Disconnected(f"the certificate of '{url}' is not trusted: {error.certificate_error}", hint=hint)
    what = f"no gateway answers at '{url}': {error or type(error).__name__}"
    return Disconnected(what, hint="run 'aptui gateway', or set 'serve.enabled' so that the engine starts it")


async def _reason(http: aiohttp.ClientSession, url: str, token: str, tls: ssl.SSLContext | None, status: int) -> str:
    """Return the reason for a refused handshake, "" = unknown.

    The library aiohttp drops the gateway's answer, so a plain request fetches the reason.
    """
    headers = {"Authorization": f"Bearer {token}"}
    try:
        async with http.get(
            url.rstrip("/") + wire_codec.PATH,
            headers=headers,
            ssl=tls if tls is not None else True,
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(total=_CONNECT_LIMIT_S),
        ) as response:
            is_plain = response.status == status and response.content_type == "text/plain"
            return (await response.content.read(_REASON_LENGTH)).decode("utf-8", "replace").strip() if is_plain else ""
    except (aiohttp.ClientError, TimeoutError, OSError):
        return ""


def _as_refused_handshake(url: str, status: int, why: str) -> KnownError:
    reason = f": {sanitize(why)}" if why else ""
    reasons = {
        401: Refusal("the gateway does not accept this token", hint="run 'aptui token add NAME' to make a token", code=1),
        403: Refusal(
            f"the gateway refused the connection{reason}",
            hint="check 'serve.allowed', 'serve.rejected' and the token's scopes",
            code=1,
        ),
        421: Refusal(f"the gateway does not accept the host name in '{url}'", hint="add the name to 'serve.hosts'"),
        503: Refusal("the gateway has too many clients", hint="try again later, or raise 'serve.clients_limit'", code=4),
    }
    return reasons.get(status) or Disconnected(f"'{url}' is not a gateway: it answers with status {status}")


class Device:
    """A device: listens for gateways, and acts as a client of each gateway that connects.

    Args:
        hello: fields of `wire_records.Hello`, sent to each gateway.
    """

    def __init__(self, **hello: Any) -> None:
        self._hello = hello
        self._runner: web.AppRunner | None = None
        self.dialled: asyncio.Queue[AsyncClient] = asyncio.Queue()
        """Queue of new connections, one for each gateway that accepted the hello."""

    async def open(self, address: str = "127.0.0.1", port: int = 0, tls: ssl.SSLContext | None = None) -> int:
        """Listen and return the port; `tls` has the certificate, which gateways on other machines require."""
        app = web.Application()
        app.router.add_get(DEVICE_PATH, self._accept)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        await web.TCPSite(self._runner, address, port, ssl_context=tls).start()
        return int(self._runner.addresses[0][1])

    async def close(self) -> None:
        """Close all connections and stop listening."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _accept(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(heartbeat=_HEARTBEAT_S, max_msg_size=MESSAGE_LIMIT_BYTES)
        await socket.prepare(request)
        client = await AsyncClient.accept(socket, **self._hello)
        self.dialled.put_nowait(client)
        try:
            await client.wait_for_end()
        finally:
            await client.close()
        return socket


T = TypeVar("T")


class Client:
    """`AsyncClient` for threads: each call blocks; any thread may call. Make one with `connect`."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="aptui client", daemon=True)
        self._thread.start()
        self._client: AsyncClient | None = None

    @property
    def welcome(self) -> Welcome:
        """The gateway's last answer to a hello. A reconnect replaces it."""
        return self._connected.welcome

    @classmethod
    def connect(cls, url: str, *, token: str, tls: ssl.SSLContext | None = None, **more: Any) -> Self:
        """Connect and send hello; arguments and errors as in `AsyncClient.connect`."""
        client = cls()
        try:
            client._client = client._wait(AsyncClient.connect(url, token=token, tls=tls, **more))
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
        """Return the next notification, or None if no notification arrived within `timeout_s` seconds.

        With `timeout_s` None, wait without a limit.

        Raises:
            Disconnected: the connection has ended, and all notifications were returned.
        """
        waiting: Future[ClientNotice] = asyncio.run_coroutine_threadsafe(anext(self._connected.notices()), self._loop)  # type: ignore[arg-type]  # a coroutine in fact
        try:
            return waiting.result(timeout_s)
        except Late:
            waiting.cancel()
            return None

    def notices(self, timeout_s: float | None = None) -> Iterator[ClientNotice]:
        """Yield notifications until no notification has arrived for `timeout_s` seconds."""
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
            raise Disconnected("the connection to the gateway is closed")
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


def local(cache_dir: Path) -> tuple[str, str]:
    """Return (URL, token) of the gateway that this user runs for a cache.

    Raises:
        HostError: no gateway is running.
    """
    from aptui.link import places

    found = places.find_gateway(cache_dir)
    if found is None or not found.is_alive:
        why = f": {found.problem}" if found is not None and found.problem else ""
        raise HostError(
            f"no gateway is running{why}", hint="run 'aptui gateway', or set 'serve.enabled' so that the engine starts it"
        )
    return found.url, found.token

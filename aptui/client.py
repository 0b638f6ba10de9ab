"""A client of a gateway over the public protocol alone: `Client` for threads, `AsyncClient` for event loops.

with Client.connect("http://127.0.0.1:45650", token=…, platforms=("linux",), wants_catalog=True) as client:
    state = client.ask(WaitReady(term="textures/grass.png"))
    for notice in client.notices():
        …

Tests: `tests/serve/ws/test_answers.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from collections import deque
from collections.abc import AsyncIterator, Coroutine, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as Late
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self, TypeVar
from urllib.parse import urlsplit

import aiohttp

from aptui.serve.access.admission import is_loopback
from aptui.serve.protocol import codec
from aptui.serve.protocol.codec import REQUESTS, RequestMistake
from aptui.serve.protocol.notices import Resync
from aptui.serve.protocol.requests import Hello, ReadProduct, Welcome
from aptui.shared.errors import BusyError, HostError, KnownError, UserError
from aptui.shared.peers import DEVICE_PORT
from aptui.shared.sanitize import sanitize

if TYPE_CHECKING:
    from pathlib import Path

    from aiohttp import web

    from aptui.serve.peers.device import Device

T = TypeVar("T")

MESSAGE_LIMIT_BYTES = 64 << 20
_CONNECT_LIMIT_S = 10.0
_WINDOW = 15
"""Of the compression that is offered to a gateway on another machine."""
_KEPT = 100_000
"""Notifications that are kept for who does not take them; more, and all are dropped for one `Resync`."""
_SPOKEN = (aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.BINARY)
_REASON_LENGTH = 300
_REQUEST_NAMES = {exchange.request: name for name, exchange in REQUESTS.items()}


class Refused(KnownError):
    """The gateway refuses what was asked; `code` as in the protocol: 1 you may not, 2 its trouble, 3 your mistake, 4 busy."""

    def __init__(self, what: str, *, hint: str = "", code: int = 3) -> None:
        super().__init__(what, hint=hint)
        self.code = code
        self.exit_code = {2: HostError.exit_code, 4: BusyError.exit_code}.get(code, UserError.exit_code)


class Disconnected(HostError):
    """The connection has ended, or none came about."""


@dataclass(frozen=True, slots=True)
class Heard:
    """A notification and its place in the engine's life."""

    epoch: int
    seq: int
    notice: object


@dataclass(slots=True)
class _Asked:
    answer: asyncio.Future[object]
    record: type[Any]
    pieces: list[bytes] = field(default_factory=list)
    has_bytes: bool = False
    answered: object = None


class AsyncClient:
    """A connection; make one with `connect`."""

    def __init__(self, http: aiohttp.ClientSession | None, socket: aiohttp.ClientWebSocketResponse | web.WebSocketResponse) -> None:
        self._http, self._socket = http, socket
        self._asked: dict[int, _Asked] = {}
        self._count = 0
        self._kept: deque[Heard] = deque()
        self._fresh = asyncio.Event()
        self._end: KnownError | None = None
        self._reader = asyncio.get_running_loop().create_task(self._read())
        self.welcome = Welcome(0, "", "", (), 0, (), 0, 0)

    @classmethod
    async def connect(cls, url: str, *, token: str, tls: ssl.SSLContext | None = None, **hello: Any) -> Self:
        """Connect to the gateway at `url` (`http://…` or `https://…`) and say hello.

        Args:
            token: of this client.
            tls: what certificates are trusted, None = those of the system.
            hello: fields of `requests.Hello`.

        Raises:
            Disconnected: nobody is there, or it is no gateway. Refused: it does not let us in.
        """
        http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None, connect=_CONNECT_LIMIT_S))
        client = None
        try:
            socket = await http.ws_connect(
                url.rstrip("/") + codec.PATH,
                headers={"Authorization": f"Bearer {token}"},
                max_msg_size=MESSAGE_LIMIT_BYTES,
                heartbeat=30.0,
                compress=0 if is_loopback(urlsplit(url).hostname or "") else _WINDOW,
                ssl=tls if tls is not None else True,
            )
            client = cls(http, socket)
            welcome = await client.ask(Hello(codec.VERSION, hello.pop("client", "aptui.client"), **hello))
            assert isinstance(welcome, Welcome)
            client.welcome = welcome
        except aiohttp.WSServerHandshakeError as error:
            why = await _reason(http, url, token, tls, error.status)
            await http.close()
            raise _refused_handshake(url, error.status, why) from None
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            await http.close()
            raise Disconnected(f"no gateway answers at '{url}': {error or type(error).__name__}") from None
        except BaseException:
            await (client.close() if client is not None else http.close())
            raise
        return client

    @classmethod
    async def over(cls, socket: web.WebSocketResponse, **hello: Any) -> Self:
        """Say hello to a gateway that dialled us; arguments and errors as of `connect`."""
        client = cls(None, socket)
        try:
            client.welcome = await client.ask(Hello(codec.VERSION, hello.pop("client", "aptui.client"), **hello), _CONNECT_LIMIT_S)
        except BaseException:
            await client.close()
            raise
        return client

    async def ended(self) -> None:
        """Wait until the connection has ended."""
        await asyncio.wait([self._reader])

    async def ask(self, request: Any, timeout_s: float | None = None) -> Any:
        """Return the answer to a request, in its record (`requests`).

        Raises:
            Refused: the gateway refuses. Disconnected: the connection has ended. TimeoutError: it took longer than `timeout_s`.
        """
        asked = await self._say(request)
        return await asyncio.wait_for(asked.answer, timeout_s)

    async def read_product(self, timeout_s: float | None = None, **what: Any) -> bytes:
        """Return the bytes of a product; `what` are fields of `requests.ReadProduct`.

        Raises:
            Refused, Disconnected: as `ask`.
        """
        asked = await self._say(ReadProduct(**what), has_bytes=True)
        await asyncio.wait_for(asked.answer, timeout_s)
        return b"".join(asked.pieces)

    async def _say(self, request: Any, *, has_bytes: bool = False) -> _Asked:
        if self._end is not None:
            raise self._end
        self._count += 1
        number = self._count
        has_bytes = has_bytes or isinstance(request, ReadProduct)
        answer: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        asked = self._asked[number] = _Asked(answer, REQUESTS[_REQUEST_NAMES[type(request)]].answer, has_bytes=has_bytes)
        answer.add_done_callback(lambda _answer: self._asked.pop(number, None))
        try:
            await self._socket.send_str(codec.encode_request(number, request))
        except (ConnectionError, RuntimeError) as error:
            answer.cancel()
            raise self._end or Disconnected(f"the connection has ended: {error}") from None
        return asked

    async def notices(self) -> AsyncIterator[Heard]:
        """Yield notifications as they come.

        Raises:
            Disconnected: the connection has ended, and all were yielded.
        """
        while True:
            while self._kept:
                yield self._kept.popleft()
            if self._end is not None:
                raise self._end
            self._fresh.clear()
            await self._fresh.wait()

    async def close(self) -> None:
        """End the connection."""
        self._finish(Disconnected("the connection is closed"))
        with contextlib.suppress(Exception):
            await asyncio.wait_for(self._socket.close(), 2.0)
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)
        if self._http is not None:
            await self._http.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # ----------------------------------------------------------------------------------------------------------- listening

    async def _read(self) -> None:
        code, why = None, ""
        try:
            while (message := await self._socket.receive()).type in _SPOKEN:
                if message.type is aiohttp.WSMsgType.TEXT:
                    self._take(codec.decode_said(message.data))
                else:
                    self._take_bytes(message.data)
            if message.type is aiohttp.WSMsgType.CLOSE:
                code, why = message.data, f": {sanitize(message.extra)}" if message.extra else ""
        except RequestMistake as mistake:
            self._finish(Disconnected(f"the gateway says what nobody understands: {mistake.what}"))
        finally:
            # What the gateway said, not how its connection ended: over TLS no answer reaches it any more, which would be 1006.
            code = code or self._socket.close_code
            number = f" (code {code})" if code not in (None, 1000) else ""
            self._finish(Disconnected(f"the connection to the gateway has ended{number}{why}"))

    def _take(self, said: codec.WireMessage) -> None:
        for plain in said.notices:
            record = codec.record_of(plain)
            if record is not None:
                self._keep(Heard(said.epoch, said.seq, record))
        asked = self._asked.get(said.number)
        if asked is None or asked.answer.done():
            return
        if said.refusal is not None:
            refusal = said.refusal
            asked.answer.set_exception(Refused(refusal["what"], hint=refusal.get("hint", ""), code=refusal.get("code", 3)))
        elif said.answer is not None:
            asked.answered = codec.converted(said.answer, asked.record)
            if not asked.has_bytes:
                asked.answer.set_result(asked.answered)

    def _take_bytes(self, data: bytes) -> None:
        asked = self._asked.get(int.from_bytes(data[:4], "big"))
        if asked is None or asked.answer.done():
            return
        if len(data) > 4:
            asked.pieces.append(data[4:])
        else:
            asked.answer.set_result(asked.answered)

    def _keep(self, heard: Heard) -> None:
        if len(self._kept) >= _KEPT:
            self._kept.clear()
            heard = Heard(heard.epoch, heard.seq, Resync("nobody took what was heard"))
        self._kept.append(heard)
        self._fresh.set()

    def _finish(self, end: KnownError) -> None:
        if self._end is None:
            self._end = end
        self._fresh.set()
        for asked in list(self._asked.values()):
            if not asked.answer.done():
                asked.answer.set_exception(self._end)
                asked.answer.exception()  # looked at: nobody may be waiting


class Client:
    """`AsyncClient` for threads: each call waits; any thread may call. Make one with `connect`."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="aptui client", daemon=True)
        self._thread.start()
        self._client: AsyncClient | None = None
        self.welcome = Welcome(0, "", "", (), 0, (), 0, 0)

    @classmethod
    def connect(cls, url: str, *, token: str, tls: ssl.SSLContext | None = None, **hello: Any) -> Self:
        """Connect and say hello; arguments and errors as of `AsyncClient.connect`."""
        client = cls()
        try:
            client._client = client._wait(AsyncClient.connect(url, token=token, tls=tls, **hello))  # of its own class
        except BaseException:
            client.close()
            raise
        client.welcome = client._client.welcome
        return client

    def ask(self, request: Any, timeout_s: float | None = None) -> Any:
        """Return the answer to a request; see `AsyncClient.ask`."""
        return self._wait(self._connected.ask(request, timeout_s))

    def read_product(self, timeout_s: float | None = None, **what: Any) -> bytes:
        """Return the bytes of a product; see `AsyncClient.read_product`."""
        return self._wait(self._connected.read_product(timeout_s, **what))

    def next_notice(self, timeout_s: float | None = None) -> Heard | None:
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

    def notices(self, timeout_s: float | None = None) -> Iterator[Heard]:
        """Yield notifications until none came for `timeout_s` seconds."""
        while (heard := self.next_notice(timeout_s)) is not None:
            yield heard

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


async def _next(heard: AsyncIterator[Heard]) -> Heard:
    return await anext(heard)


def local(cache_dir: Path) -> tuple[str, str]:
    """Return (URL, token) of this user's own gateway of a cache.

    Raises:
        HostError: none runs.
    """
    from aptui.link import gateways

    found = gateways.found(cache_dir)
    if found is None or not found.is_alive:
        why = f": {found.problem}" if found is not None and found.problem else ""
        raise HostError(f"no gateway runs{why}", hint="'aptui gateway' runs one; 'serve.enabled' has the engine do it")
    return found.url, found.token


async def _reason(http: aiohttp.ClientSession, url: str, token: str, tls: ssl.SSLContext | None, status: int) -> str:
    """Return why we are not let in, "" = nobody says: what a handshake that failed said of it is lost, so it is asked for again."""
    headers = {"Authorization": f"Bearer {token}"}
    try:
        async with http.get(
            url.rstrip("/") + codec.PATH,
            headers=headers,
            ssl=tls if tls is not None else True,
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(total=_CONNECT_LIMIT_S),
        ) as said:
            is_plain = said.status == status and said.content_type == "text/plain"
            return (await said.content.read(_REASON_LENGTH)).decode("utf-8", "replace").strip() if is_plain else ""
    except (aiohttp.ClientError, TimeoutError, OSError):
        return ""


def _refused_handshake(url: str, status: int, why: str) -> KnownError:
    told = f": {sanitize(why)}" if why else ""
    reasons = {
        401: Refused("the gateway does not know this token", hint="'aptui token add NAME' makes one", code=1),
        403: Refused(f"the gateway does not let us in{told}", hint="look at its lists, and at the token's scopes", code=1),
        421: Refused(f"the gateway is not called what stands in '{url}'", hint="'serve.hosts' has its names"),
        503: Refused("the gateway has too many clients", hint="'serve.clients_limit' says how many there may be", code=4),
    }
    return reasons.get(status) or Disconnected(f"'{url}' is no gateway: it answers {status}")


def make_device(**hello: Any) -> Device[AsyncClient]:
    """Return what listens for gateways that dial us; `hello`: fields of `requests.Hello`, said to each of them."""
    from aptui.serve.peers.device import Device

    return Device(lambda socket: AsyncClient.over(socket, **hello), MESSAGE_LIMIT_BYTES)


async def _listen(address: str, port: int, tls: ssl.SSLContext | None, hello: dict[str, Any]) -> None:
    """Be a device: print what every gateway that dials us says, as JSON Lines."""
    listening = make_device(**hello)
    print(f"listening at {address} port {await listening.open(address, port, tls)}", flush=True)
    tasks: set[asyncio.Task[None]] = set()
    try:
        while True:
            client = await listening.dialled.get()
            print(codec.encoded({"dialled_by": client.welcome}), flush=True)
            task = asyncio.get_running_loop().create_task(_print(client))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
    finally:
        await listening.close()


async def _print(client: AsyncClient) -> None:
    try:
        async for heard in client.notices():
            print(codec.encode_notices(heard.epoch, heard.seq, [heard.notice]), flush=True)
    except Disconnected as error:
        print(codec.encoded({"gone": str(error)}), flush=True)


def _certified(file: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    return context


def main() -> None:
    """Be `python -m aptui.client listen`: a device that a gateway dials."""
    from argparse import ArgumentParser

    parser = ArgumentParser(prog="python -m aptui.client", description="be a device that listens until a gateway dials it")
    parser.add_argument("deed", choices=["listen"])
    parser.add_argument("--address", default="127.0.0.1", help="where to listen")
    parser.add_argument("--port", type=int, default=DEVICE_PORT, help="where to listen; 0 = any")
    parser.add_argument("--certificate", help="PEM file: certificate chain and key; a gateway on another machine wants one")
    parser.add_argument("--name", default="device", help="what to call ourselves")
    parser.add_argument("--platform", action="append", default=[], help="what to hear of; all unless said")
    parser.add_argument("--catalog", action="store_true", help="hear the whole catalog first")
    given = parser.parse_args()
    hello = {"client": given.name, "platforms": tuple(given.platform), "wants_catalog": given.catalog}
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_listen(given.address, given.port, _certified(given.certificate) if given.certificate else None, hello))


if __name__ == "__main__":
    from aptui.client import main as run  # by its name: else its errors would be there twice

    run()

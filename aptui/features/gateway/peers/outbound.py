"""A device that the gateway dials, again and again while it is wanted; once connected, the device is the client of that WebSocket.

A device at a loopback address, as USB forwarding gives it one, is dialled without TLS, every other with it: it becomes a client
that may read all products, and whoever has taken its address must not. Who it is, its certificate says (`trust`).

Tests: `tests/features/gateway/peers/test_peers.py`.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import ssl
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import TYPE_CHECKING, Generic, Protocol, TypeAlias, TypeVar

import aiohttp
from aiohttp import web

from aptui.features.gateway import tasks
from aptui.features.gateway.access.admission import is_loopback
from aptui.features.gateway.protocol import codec
from aptui.features.gateway.tasks import Wires
from aptui.shared.connections.addresses import parse_address
from aptui.shared.connections.peers import Dial, PeerState
from aptui.shared.errors import UserError

if TYPE_CHECKING:
    import ssl

    from aptui.config.sections.serve import GatewaySettings


PATH = "/v1/device"
"""What a device answers at."""
RETRY_S = (0.5, 5.0)
"""How long to wait before the next try: the first, as in the reference, and the longest."""
_CONNECT_LIMIT_S = 10.0
_HEARTBEAT_S = 30.0
_STEADY_S = 5.0
"""A connection that held so long was one; one that ends sooner counts as a try that failed."""
Socket = aiohttp.ClientWebSocketResponse
Serving = Callable[["OutboundConnections", Socket], Awaitable[None]]
Trust: TypeAlias = ssl.SSLContext | aiohttp.Fingerprint | bool
"""Which certificates are believed; True = those that this machine believes."""


class OutboundConnections:
    """One connection that people made.

    Args:
        dial: what they said.
        http: what dials.
        trust: whom to believe that it is a device of ours.
        serve: serves a connected device to its end.
        refuses: returns why an address is not dialled, "" = it is.
        changed: called when `state` or `trouble` changed.
    """

    def __init__(
        self,
        dial: Dial,
        http: aiohttp.ClientSession,
        trust: Trust,
        serve: Serving,
        refuses: Callable[[str], str],
        changed: Callable[[], object],
    ) -> None:
        self.dial, self.state, self.trouble = dial, PeerState.DISCONNECTED, ""
        self._http, self._trust, self._serve, self._refuses, self._changed = http, trust, serve, refuses, changed
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to dial."""
        self._task = tasks.begin(self._run(), f"the connection to '{self.dial.id}'")

    async def close(self) -> None:
        """Hang up, and dial no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._turn(PeerState.DISCONNECTED, "")

    @property
    def url(self) -> str:
        """What is dialled."""
        address = parse_address(self.dial.address)
        host = f"[{self.dial.address}]" if address is not None and ":" in self.dial.address else self.dial.address
        scheme = "ws" if is_loopback(self.dial.address) else "wss"
        return f"{scheme}://{host}:{self.dial.port}{PATH}"

    async def _run(self) -> None:
        wait_s = RETRY_S[0]
        while True:
            self._turn(PeerState.CONNECTING, self.trouble)
            began_s = monotonic()
            trouble = await self._try()
            if monotonic() - began_s >= _STEADY_S and not trouble:
                wait_s = RETRY_S[0]
            self._turn(PeerState.CONNECTING, trouble)
            await asyncio.sleep(wait_s)
            wait_s = min(1.5 * wait_s, RETRY_S[1])

    async def _try(self) -> str:
        """Connect and serve; return why it did not come to that, "" where it did."""
        why = self._refuses(self.dial.address)
        if why:
            return why
        try:
            opening = self._http.ws_connect(
                self.url, ssl=self._trust, heartbeat=_HEARTBEAT_S, max_msg_size=codec.FRAME_LIMIT_BYTES, compress=0
            )
            socket = await asyncio.wait_for(opening, _CONNECT_LIMIT_S)
        except TimeoutError:
            return "no answer from there"
        except aiohttp.WSServerHandshakeError as error:
            return f"that is no aptui device: it answers {error.status}"
        except (aiohttp.ClientConnectorCertificateError, aiohttp.ClientSSLError, aiohttp.ServerFingerprintMismatch) as error:
            return _distrust(error)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return _reason(error)
        try:
            self._turn(PeerState.CONNECTED, "")
            await self._serve(self, socket)
        except (aiohttp.ClientError, OSError) as error:
            return _reason(error)
        finally:
            await socket.close()
        return ""

    def _turn(self, state: PeerState, trouble: str) -> None:
        if (state, trouble) != (self.state, self.trouble):
            self.state, self.trouble = state, trouble
            self._changed()


class _Pins(aiohttp.Fingerprint):
    """Devices that are known by their certificates; aiohttp knows one fingerprint, we several."""

    def __init__(self, digests: frozenset[bytes]) -> None:
        super().__init__(next(iter(digests)))
        self._digests = digests

    def check(self, transport: asyncio.Transport) -> None:
        """Let through who has one of the certificates; called before anything is said.

        Raises:
            aiohttp.ServerFingerprintMismatch: somebody else.
        """
        certificate = transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
        digest = hashlib.sha256(certificate).digest()
        if digest not in self._digests:
            raise aiohttp.ServerFingerprintMismatch(self.fingerprint, digest, *transport.get_extra_info("peername")[:2])


def trust(serve: GatewaySettings) -> Trust:
    """Return which devices are believed: those with a pinned certificate, else those whose certificate an authority signed.

    Raises:
        UserError: the configuration names no such certificate or file.
    """
    if serve.dial_fingerprints:
        return _Pins(frozenset(map(_digest, serve.dial_fingerprints)))
    if not serve.dial_ca:
        return True
    try:
        return ssl.create_default_context(cafile=serve.dial_ca)
    except ssl.SSLError:
        raise UserError(f"'{serve.dial_ca}' holds no certificate", hint="'serve.dial_ca' is a PEM file") from None
    except OSError as error:
        raise UserError(
            f"'serve.dial_ca' '{serve.dial_ca}' cannot be read: {error.strerror}",
            hint="check its permissions, or name another file",
        ) from None


def _digest(fingerprint: str) -> bytes:
    text = fingerprint.lower().removeprefix("sha256:").replace(":", "")
    try:
        digest = bytes.fromhex(text)
    except ValueError:
        digest = b""
    if len(digest) != hashlib.sha256().digest_size:
        raise UserError(
            f"'serve.dial_fingerprints': '{fingerprint}' is no SHA-256 of a certificate",
            hint="'openssl x509 -noout -fingerprint -sha256 -in FILE' tells it",
        )
    return digest


def _distrust(error: aiohttp.ClientError) -> str:
    if isinstance(error, aiohttp.ServerFingerprintMismatch):
        return f"its certificate is none of 'serve.dial_fingerprints': it is sha256:{error.got.hex()}"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        why = getattr(error.certificate_error, "verify_message", "") or "it is not valid"
        return f"its certificate is not believed ({why}): 'serve.dial_ca' or 'serve.dial_fingerprints' says which are"
    return "it speaks no TLS that we know, and without TLS only this machine's own address is dialled"


def client(wires: Wires) -> aiohttp.ClientSession:
    """Return what dials: without cookies, proxies of the environment, or going where an answer sends it."""
    trace = aiohttp.TraceConfig()
    trace.on_request_redirect.append(_refuse_redirect)
    connector = aiohttp.TCPConnector(socket_factory=wires.make)
    return aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar(), trust_env=False, trace_configs=[trace])


async def _refuse_redirect(*_arguments: object) -> None:
    raise aiohttp.ClientError("that is no aptui device: it redirects elsewhere")


def _reason(error: BaseException) -> str:
    """Return the system's word for why nobody can be reached."""
    number = error.errno if isinstance(error, OSError) else None
    if number is not None and number > 0:
        return os.strerror(number).lower()
    return str(getattr(error, "strerror", None) or error or type(error).__name__).lower()


# A device that listens, for tests and people.
#
# A gateway that dials it becomes a connection of whoever listens, on which it hears and asks.


class DialledConnection(Protocol):
    """What a device asks of its side of a connection."""

    async def wait_for_end(self) -> None:
        """Wait until the connection has ended."""

    async def close(self) -> None:
        """End it."""


C = TypeVar("C", bound=DialledConnection)


class Device(Generic[C]):
    """What listens.

    Args:
        greet: says hello to a gateway that dialled, and returns the connection.
        message_limit_bytes: of what a gateway may say at once.
    """

    def __init__(self, greet: Callable[[web.WebSocketResponse], Awaitable[C]], message_limit_bytes: int) -> None:
        self._greet, self._message_limit_bytes = greet, message_limit_bytes
        self._runner: web.AppRunner | None = None
        self.dialled: asyncio.Queue[C] = asyncio.Queue()
        """A connection for each gateway that dialled and took our hello."""

    async def open(self, address: str = "127.0.0.1", port: int = 0, tls: ssl.SSLContext | None = None) -> int:
        """Listen, and return the port; `tls` holds the certificate, which a gateway elsewhere wants to see."""
        app = web.Application()
        app.router.add_get(PATH, self._take)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, address, port, ssl_context=tls)
        await site.start()
        return int(self._runner.addresses[0][1])

    async def close(self) -> None:
        """Hang up."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _take(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(heartbeat=_HEARTBEAT_S, max_msg_size=self._message_limit_bytes)
        await socket.prepare(request)
        client = await self._greet(socket)
        self.dialled.put_nowait(client)
        try:
            await client.wait_for_end()
        finally:
            await client.close()
        return socket

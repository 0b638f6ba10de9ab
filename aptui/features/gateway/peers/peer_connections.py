"""Incoming and outgoing connections of the gateway: checked against its lists, changed on request, reported to the engine.

`peer_settings` stores changes. The gateway checks the configuration and the stored file for changes once per second. A change of a
list does not end accepted connections. The screen can change the configuration and the stored file while no engine is running. The
engine, and through it every screen, gets a report at once when a connection begins, ends or is refused. While data is transferred,
the engine gets one report per second. Long reports are shortened and sent less often, because the engine must read them.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import ipaddress
import os
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeAlias

import aiohttp
from aiohttp import web
from msgspec.structs import replace

from aptui.core.notices import PeerOrdered
from aptui.features.gateway import engine_requests, gateway_context, wire_codec
from aptui.features.gateway.access.guard import ClientIdentity
from aptui.features.gateway.gateway_context import CONTEXT, GatewayContext, HttpSession
from aptui.features.gateway.peers import peer_settings
from aptui.features.gateway.wire_codec import Scope
from aptui.features.gateway.ws.client_sessions import SESSIONS, WireSession, WireSessions
from aptui.shared.connections.addresses import (
    Address,
    canonical,
    entry_for,
    host_names,
    is_loopback,
    parse_address,
    plain,
    url_host,
)
from aptui.shared.connections.peers import (
    DEVICE_PATH,
    Dial,
    GatewayReport,
    Peer,
    PeerAction,
    PeerOrder,
    PeerSettings,
    PeerState,
    TurnedAway,
)
from aptui.shared.errors import KnownError, UserError
from aptui.shared.files.replacing import file_stamp

if TYPE_CHECKING:
    from aptui.config.settings import GatewaySettings
    from aptui.link.codec import NoticeLine


# Decides by address whether a client may connect: has the allowed and rejected lists, resolves their host names, and records
# refused clients. `guard` checks the tokens.

_MOST_REJECTED = 256
"""Maximum number of remembered addresses, so that a client with many addresses does not fill the memory."""
_NAMES_FRESH_S = 60.0
"""Time (seconds) after which the host names are resolved again."""
_NAMES_AGAIN_S = 5.0
"""Minimum interval (seconds) between resolutions of the host names.

A refused client triggers a resolution, because its host may have a new address.
"""
_NAMES_LIMIT_S = 5.0
"""Timeout for resolving one host name, in seconds."""
_LOCAL_FRESH_S = 5.0
"""Time (seconds) for which the list of this machine's addresses is used before it is read again."""
_NETWORK = Path("/proc/net")
_parsed = lru_cache(maxsize=256)(parse_address)
"""`parse_address` with a cache, because it is called for each request."""
Resolve = Callable[[str], Awaitable[Iterable[Address]]]


class Admission:
    """The allowed and rejected lists, applied to clients.

    Args:
        settings: the lists; `adopt` replaces them.
        resolve: returns the addresses of a host name.
        local: returns the addresses of this machine.
    """

    def __init__(
        self, settings: PeerSettings, *, resolve: Resolve | None = None, local: Callable[[], frozenset[Address]] | None = None
    ) -> None:
        self.settings = settings
        self._resolve, self._find_local = resolve or resolve_name, local or local_addresses
        self._known: dict[str, frozenset[Address]] = {}
        self._local: tuple[float, frozenset[Address]] = (float("-inf"), frozenset())
        self._resolved_s = float("-inf")
        self._resolving: asyncio.Task[None] | None = None
        self.turned_away: dict[str, TurnedAway] = {}
        """{address: record of its refused connections}, the latest refusal last."""

    async def adopt(self, settings: PeerSettings) -> None:
        """Replace the settings, which have the allowed and rejected lists, and resolve the host names in the lists.

        Wait until each host name is resolved, or its resolution has failed.
        """
        self.settings = settings
        await self.refresh()

    # ------------------------------------------------------------------------------------------ decisions about addresses

    def check(self, remote: str) -> str:
        """Return why a client at `remote` is refused, "" = it is accepted. Record the refusal."""
        why = self.why_not(remote)
        if why:
            self._refresh_soon()
            now_ms = time.time_ns() // 1_000_000
            before = self.turned_away.pop(remote, None) or TurnedAway(remote, why, 0, now_ms, now_ms)
            self.turned_away[remote] = replace(before, why=why, count=before.count + 1, last_ms=now_ms)
            while len(self.turned_away) > _MOST_REJECTED:
                del self.turned_away[next(iter(self.turned_away))]
        return why

    def why_not(self, remote: str) -> str:
        """Return why a client at `remote` would be refused, "" = it would be accepted. Record nothing."""
        address = _parsed(remote)
        if address is None:
            return "the address of the client is unknown"
        if address.is_loopback or address in self._local_addresses():
            return ""
        denied = self.find_denial(address)
        if denied or not self.settings.has_allow_list or entry_for(address, self.settings.allowed, self._known) is not None:
            return denied
        return f"{address} is not in the allowed list"

    def find_denial(self, address: Address) -> str:
        """Return which entry rejects an address, "" = no entry."""
        entry = entry_for(address, self.settings.rejected, self._known)
        if entry is None:
            return ""
        return f"{address} is in the rejected list" + (f" ('{entry}')" if entry != str(address) else "")

    def forget(self, entry: str) -> None:
        """Forget the recorded refusals of addresses that match a list entry; `entry` is in canonical form."""
        for each in list(self.turned_away):
            address = parse_address(each)
            if address is not None and entry_for(address, [entry], self._known) is not None:
                del self.turned_away[each]

    def _local_addresses(self) -> frozenset[Address]:
        if monotonic() - self._local[0] > _LOCAL_FRESH_S:
            self._local = (monotonic(), self._find_local())
        return self._local[1]

    # ---------------------------------------------------------------------------------------------------------- host names

    async def refresh(self) -> None:
        """Resolve all host names. If a name cannot be resolved now, its previous addresses stay in use."""
        self._resolved_s = monotonic()
        names = list(dict.fromkeys(host_names((*self.settings.allowed, *self.settings.rejected))))
        found = await asyncio.gather(*(self._addresses(name) for name in names))
        self._known.update(zip(names, found, strict=True))  # `adopt` may have resolved the names of newer lists since

    async def _addresses(self, name: str) -> frozenset[Address]:
        try:
            return frozenset(await asyncio.wait_for(self._resolve(name), _NAMES_LIMIT_S))
        except (OSError, UnicodeError, TimeoutError):
            return self._known.get(name, frozenset())

    def refresh_names(self) -> None:
        """Resolve the host names again if their addresses are old; called once per second."""
        if monotonic() - self._resolved_s > _NAMES_FRESH_S:
            self._refresh_soon()

    def _refresh_soon(self) -> None:
        is_due = monotonic() - self._resolved_s > _NAMES_AGAIN_S and (self._resolving is None or self._resolving.done())
        if is_due and host_names((*self.settings.allowed, *self.settings.rejected)):
            self._resolving = gateway_context.begin(self.refresh(), "resolving names")

    async def close(self) -> None:
        """Stop resolving."""
        await gateway_context.end(self._resolving)


async def resolve_name(name: str) -> set[Address]:
    """Return the addresses of a host name; the system's resolver runs in a thread.

    Raises:
        OSError: the name cannot be resolved.
    """
    answers = await asyncio.get_running_loop().getaddrinfo(name, None, type=socket.SOCK_STREAM)
    return {address for *_, place in answers if (address := parse_address(str(place[0]))) is not None}


def local_addresses(network: Path = _NETWORK) -> frozenset[Address]:
    """Return the addresses of this machine's interfaces from the kernel (proc(5): `fib_trie`, `if_inet6`)."""
    found: set[Address] = set()
    leaf = ""
    for line in _lines(network / "fib_trie"):
        leaf = line.partition("|-- ")[2].strip() or leaf
        if line.split() == ["/32", "host", "LOCAL"]:
            found.add(ipaddress.IPv4Address(leaf))
    for line in _lines(network / "if_inet6"):
        found.add(plain(ipaddress.IPv6Address(bytes.fromhex(line.split()[0]))))
    return frozenset(found)


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text("ascii").splitlines()
    except OSError:
        return []


# Outgoing connections. While a connection is enabled, the gateway connects to its device, and connects again after each failed
# attempt and each end of the connection. The connected device is the client of the WebSocket's protocol.
#
# The gateway uses TLS unless the device has a loopback address (USB forwarding), because a device may read all products, and
# because another machine could have the address of the device. The certificate identifies the device (`trust`).

RETRY_S = (0.5, 5.0)
"""Delay before the second attempt to connect (as in O3DE), and maximum delay, in seconds."""
_DIAL_LIMIT_S = 10.0
"""Timeout for connecting to a device, in seconds."""
_HEARTBEAT_S = 30.0
"""Interval of pings in seconds; a connection ends if a ping is not answered."""
_STEADY_S = 5.0
"""Minimum duration (seconds) of a successful connection; a shorter connection counts as a failed attempt."""
Socket = aiohttp.ClientWebSocketResponse
Serving = Callable[["OutboundConnection", Socket], Awaitable[None]]
Trust: TypeAlias = ssl.SSLContext | aiohttp.Fingerprint | bool
"""Accepted certificates; True = the certificates that this machine trusts."""


class OutboundConnection:
    """One outgoing connection.

    Args:
        serve: serves a connected device until the connection ends.
        refuses: returns why the gateway must not connect to an address, "" = it may connect.
        changed: called when `state` or `trouble` has changed.
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
        """Start connecting."""
        self._task = gateway_context.begin(self._run(), f"the connection to '{self.dial.id}'")

    async def close(self) -> None:
        """End the connection and stop."""
        await gateway_context.end(self._task)
        self._set_state(PeerState.DISCONNECTED, "")

    @property
    def url(self) -> str:
        """The URL of the device."""
        scheme = "ws" if is_loopback(self.dial.address) else "wss"
        return f"{scheme}://{url_host(self.dial.address)}:{self.dial.port}{DEVICE_PATH}"

    async def _run(self) -> None:
        wait_s = RETRY_S[0]
        while True:
            self._set_state(PeerState.CONNECTING, self.trouble)
            began_s = monotonic()
            trouble = await self._connect_and_serve()
            if monotonic() - began_s >= _STEADY_S and not trouble:
                wait_s = RETRY_S[0]
            self._set_state(PeerState.CONNECTING, trouble)
            await asyncio.sleep(wait_s)
            wait_s = min(1.5 * wait_s, RETRY_S[1])

    async def _connect_and_serve(self) -> str:
        """Connect to the device, and serve it until the connection ends; return the error of connecting or serving, "" = none."""
        why = self._refuses(self.dial.address)
        if why:
            return why
        try:
            opening = self._http.ws_connect(
                self.url, ssl=self._trust, heartbeat=_HEARTBEAT_S, max_msg_size=wire_codec.FRAME_LIMIT_BYTES, compress=0
            )
            socket = await asyncio.wait_for(opening, _DIAL_LIMIT_S)
        except TimeoutError:
            return "no answer"
        except aiohttp.WSServerHandshakeError as error:
            return f"this is not an aptui device: it answers with status {error.status}"
        except aiohttp.ClientResponseError:
            return "this is not an aptui device: its answer is not valid HTTP"  # the error's text has the answer, of any length
        except (aiohttp.ClientConnectorCertificateError, aiohttp.ClientSSLError, aiohttp.ServerFingerprintMismatch) as error:
            return _certificate_problem(error)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return _reason(error)
        try:
            self._set_state(PeerState.CONNECTED, "")
            await self._serve(self, socket)
        except (aiohttp.ClientError, OSError) as error:
            return _reason(error)
        finally:
            await socket.close()
        return ""

    def _set_state(self, state: PeerState, trouble: str) -> None:
        if (state, trouble) != (self.state, self.trouble):
            self.state, self.trouble = state, trouble
            self._changed()


class _Pins(aiohttp.Fingerprint):
    """Pinned certificates of devices; aiohttp supports one fingerprint only."""

    def __init__(self, digests: frozenset[bytes]) -> None:
        super().__init__(next(iter(digests)))
        self._digests = digests

    def check(self, transport: asyncio.Transport) -> None:
        """Check the certificate; called before any data is sent.

        Raises:
            aiohttp.ServerFingerprintMismatch: the certificate is not pinned.
        """
        certificate = transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
        digest = hashlib.sha256(certificate).digest()
        if digest not in self._digests:
            raise aiohttp.ServerFingerprintMismatch(self.fingerprint, digest, *transport.get_extra_info("peername")[:2])


def trust(serve: GatewaySettings) -> Trust:
    """Return the accepted certificates of devices.

    If certificates are pinned, only these are accepted. Otherwise certificates of the configured authority are accepted. If no
    authority is configured, the result is True: certificates that this machine trusts are accepted.

    Raises:
        UserError: a fingerprint or the file of the configuration is invalid.
    """
    if serve.dial_fingerprints:
        return _Pins(frozenset(map(_digest, serve.dial_fingerprints)))
    if not serve.dial_ca:
        return True
    try:
        return ssl.create_default_context(cafile=serve.dial_ca)
    except ssl.SSLError:
        raise UserError(f"'{serve.dial_ca}' contains no certificate", hint="'serve.dial_ca' is a PEM file") from None
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
            f"'serve.dial_fingerprints': '{fingerprint}' is not the SHA-256 of a certificate",
            hint="run 'openssl x509 -noout -fingerprint -sha256 -in FILE' to print it",
        )
    return digest


def _certificate_problem(error: aiohttp.ClientError) -> str:
    if isinstance(error, aiohttp.ServerFingerprintMismatch):
        return f"the certificate of the device, sha256:{error.got.hex()}, is not in 'serve.dial_fingerprints'"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        why = getattr(error.certificate_error, "verify_message", "") or "the certificate is invalid"
        return f"the certificate of the device is not trusted ({why}); set 'serve.dial_ca' or 'serve.dial_fingerprints'"
    return "the device does not support TLS, which is required for all addresses except those of this machine"


def open_http() -> HttpSession:
    """Return an HTTP session that ignores cookies, redirects, and the environment's proxies."""
    trace = aiohttp.TraceConfig()
    trace.on_request_redirect.append(_refuse_redirect)
    return HttpSession(cookie_jar=aiohttp.DummyCookieJar(), trust_env=False, trace_configs=[trace])


async def _refuse_redirect(*_arguments: object) -> None:
    raise aiohttp.ClientError("this is not an aptui device: it redirects elsewhere")


def _reason(error: BaseException) -> str:
    number = error.errno if isinstance(error, OSError) else None
    if number is not None and number > 0:
        return os.strerror(number).lower()
    return str(getattr(error, "strerror", None) or error or type(error).__name__).lower()


DEVICE_SCOPES = frozenset({Scope.READ, Scope.ESCALATE})
"""Scopes of a device that the gateway connected to. The device has no token; the user trusts its address."""
_CHECK_S = 1.0
"""Interval of the checks for changed settings and old addresses, in seconds."""
_GATHER_S = 0.05
"""Delay of a report in seconds; changes within this time are reported together."""
_LISTED_MOST, _LISTED_PER_S = 256, 128
"""Limits of the reports about connected clients that the gateway sends to the engine.

A report lists at most `_LISTED_MOST` clients that connected to the gateway. After a report of n clients, the gateway waits
n / `_LISTED_PER_S` seconds if n is above `_LISTED_PER_S`.
"""
_BEGAN_MS = time.time_ns() // 1_000_000 - int(monotonic() * 1000)
"""Wall-clock time (ms) at which the monotonic clock was 0.

Times in reports are computed from this constant, so that two reports without a change between them are equal.
"""


class Peers:
    """All connections of a gateway.

    Args:
        admission: the allowed and rejected lists; only tests pass them.
    """

    def __init__(self, context: GatewayContext, sessions: WireSessions, admission: Admission | None = None) -> None:
        self.context, self.sessions = context, sessions
        self.configured = peer_settings.read_peer_settings(context.config.serve)
        self.admission = admission or Admission(self.configured)
        self.trouble = ""
        self._file = context.config.cache_dir / peer_settings.PLACE
        self._stamps: tuple[tuple[int, int, int] | None, ...] = ()
        self._diallers: dict[str, OutboundConnection] = {}
        self._sessions: dict[str, WireSession] = {}
        """{id of an outgoing connection: its session}."""
        self._trust = trust(context.config.serve)
        self._http: HttpSession | None = None
        self._reported: GatewayReport | None = None
        self._is_changed = asyncio.Event()
        self._settings_lock = asyncio.Lock()
        """Lock that is held while settings change, so that orders are applied one after another."""
        self._tasks: set[asyncio.Task[None]] = set()

    # ------------------------------------------------------------------------------------------------------ start and end

    async def open(self) -> None:
        """Read the settings, then start connecting and reporting."""
        self._http = open_http()
        await self._read()
        self.sessions.hello_callbacks.append(self._on_change)
        self.sessions.end_callbacks.append(self._on_change)
        self.context.engine.listeners.append(self.take_news)
        self.context.engine.change_callbacks.append(self.on_engine_change)
        self._begin_task(self._check())
        self._begin_task(self._report())

    async def close(self) -> None:
        """End all outgoing connections and stop reporting."""
        await asyncio.gather(gateway_context.end(*self._tasks), *(dialler.close() for dialler in self._diallers.values()))
        self._diallers.clear()
        await self.admission.close()
        if self._http is not None:
            await self._http.close()

    def _begin_task(self, work: Any) -> None:
        task = gateway_context.begin(work, "a background task of the gateway's connections")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # ------------------------------------------------------------------------------------------- allowed and rejected lists

    def refuses(self, remote: str) -> str:
        """Return why a client is refused, "" = it is accepted. The guard calls this for each connection and each request."""
        why = self.admission.check(remote)
        if why and self.admission.turned_away[remote].count == 1:  # `_check` reports further refusals once per second
            self._on_change()
        return why

    async def _use_settings(self, settings: PeerSettings) -> None:
        await self.admission.adopt(settings)
        for session in list(self.sessions.all.values()):
            refuses = self._find_denial if session in self._sessions.values() else self.admission.why_not
            if why := refuses(session.identity.address):
                self._begin_task(session.close(1008, why))
        await self._dial(settings)
        self._on_change()

    # ------------------------------------------------------------------------------------------------------------- dialling

    async def _dial(self, settings: PeerSettings) -> None:
        wanted = {each.id: each for each in settings.connections if each.is_auto}
        for name in [name for name, each in self._diallers.items() if wanted.get(name) != each.dial]:
            await self._diallers.pop(name).close()
        for name in wanted.keys() - self._diallers.keys():
            assert self._http is not None
            dialler = OutboundConnection(
                wanted[name], self._http.http, self._trust, self._serve, self._find_denial, self._on_change
            )
            self._diallers[name] = dialler
            dialler.start()

    def _find_denial(self, remote: str) -> str:
        address = parse_address(remote)
        if address is not None:
            return self.admission.find_denial(address)
        return f"{remote} is in the rejected list" if canonical(remote) in self.admission.settings.rejected else ""

    async def _serve(self, dialler: OutboundConnection, socket: Socket) -> None:
        """Serve a connected device."""
        identity = ClientIdentity(dialler.dial.id, DEVICE_SCOPES, dialler.dial.address)
        with self.sessions.take_in(self.context, socket, identity) as session:
            self._sessions[dialler.dial.id] = session
            try:
                await session.serve()
            finally:
                self._sessions.pop(dialler.dial.id, None)

    # --------------------------------------------------------------------------------------------------------------- orders

    def take_news(self, batch: Sequence[NoticeLine]) -> None:
        """Apply the orders that the engine passes on."""
        for news in batch:
            if isinstance(news.notice, PeerOrdered):
                self._begin_task(self.order(news.notice.order))

    def on_engine_change(self, is_here: bool) -> None:
        """When an engine has connected, send it the current report, even if the report did not change."""
        self._reported = None
        if is_here:
            self._on_change()

    async def order(self, order: PeerOrder) -> None:
        """Apply a user's order. If the settings cannot be changed, the gateway's next report to the engine contains the error."""
        if order.action is PeerAction.DISCONNECT:
            session = self.sessions.all.get(order.number)
            if session is not None:
                await session.close(1008, "disconnected by a user")
            return
        async with self._settings_lock:
            self.trouble = ""
            try:
                project_dir = self.context.config.project_dir if self.context.reread is not None else None
                change = await asyncio.to_thread(peer_settings.change_settings, self._file, self.configured, order, project_dir)
            except KnownError as error:
                self.trouble = str(error)
            else:
                settings, self.configured = change.settings, change.configured
                self._stamps = self._file_stamps()
                if order.action in (PeerAction.ALLOW, PeerAction.REJECT, PeerAction.FORGET):
                    self.admission.forget(canonical(order.entry))
                await self._use_settings(settings)
        self._on_change()

    async def _read(self) -> None:
        async with self._settings_lock:
            reread = self.context.reread
            if reread is not None:
                with contextlib.suppress(KnownError):  # the engine reports errors of the configuration
                    self.configured = peer_settings.read_peer_settings((await asyncio.to_thread(reread)).serve)
            settings = await asyncio.to_thread(peer_settings.read_stored, self._file)
            self._stamps = self._file_stamps()  # read the stamps last, because `read_stored` may rename a damaged file
            self.trouble = settings.trouble
            await self._use_settings(settings.effective_settings(self.configured))

    def _file_stamps(self) -> tuple[tuple[int, int, int] | None, ...]:
        layers = self.context.config.layers if self.context.reread is not None else ()
        return tuple(map(file_stamp, (self._file, *(Path(file) for file, _digest in layers))))

    # ------------------------------------------------------------------------------------------------ reports to the engine

    def report(self) -> GatewayReport:
        """Return the current report."""
        serve, settings = self.context.config.serve, self.admission.settings
        dialled = [self._make_dialled_peer(each) for each in settings.connections]
        incoming = [session for session in self.sessions if session not in self._sessions.values()]
        listed = map(_incoming, islice(incoming, _LISTED_MOST))
        turned_away = tuple(reversed(self.admission.turned_away.values()))
        unlisted = len(incoming) - _LISTED_MOST
        trouble = self.trouble or (f"{unlisted} more clients are connected than this list shows" if unlisted > 0 else "")
        overridden = tuple(peer_settings.overridden(settings, self.configured))
        return GatewayReport(serve.address, self.context.port, settings, (*dialled, *listed), turned_away, trouble, overridden)

    def _make_dialled_peer(self, dial: Dial) -> Peer:
        dialler, session = self._diallers.get(dial.id), self._sessions.get(dial.id)
        state = dialler.state if dialler else PeerState.DISCONNECTED
        peer = Peer(
            0, dial.id, True, state, dial.address, dial.port, is_enabled=dial.is_auto, trouble=dialler.trouble if dialler else ""
        )
        return _with_session(peer, session) if session is not None else peer

    def _on_change(self, *_session: object) -> None:
        self._is_changed.set()

    async def _check(self) -> None:
        """Once per second, check for changed files, resolve names again, and report transferred bytes."""
        while True:
            await asyncio.sleep(_CHECK_S)
            if self._file_stamps() != self._stamps:
                await self._read()
            self.admission.refresh_names()
            self._on_change()

    async def _report(self) -> None:
        while True:
            await self._is_changed.wait()
            await asyncio.sleep(_GATHER_S)
            self._is_changed.clear()
            report = self.report()
            if report != self._reported and self.context.engine.is_here:
                with contextlib.suppress(KnownError):  # a report that the engine did not get is sent again after the next check
                    await self.context.engine.ask(engine_requests.ReportPeers(report))
                    self._reported = report
                    await asyncio.sleep(len(report.peers) / _LISTED_PER_S if len(report.peers) > _LISTED_PER_S else 0)


def _incoming(session: WireSession) -> Peer:
    name = session.hello.client if session.hello else ""
    return _with_session(Peer(0, name, False, PeerState.CONNECTED, session.identity.address, 0), session)


def _with_session(peer: Peer, session: WireSession) -> Peer:
    return replace(
        peer,
        number=session.number,
        platforms=tuple(session.hello.platforms) if session.hello else (),
        scopes=tuple(scope.value for scope in Scope if session.identity.may(scope)),
        identity=session.identity.name,
        since_ms=_moment(session.since_s),
        last_ms=_moment(session.last_s) if session.last_request else 0,
        last_request=session.last_request,
        received_bytes=session.received_bytes,
        sent_bytes=session.sent_bytes,
    )


def _moment(at_s: float) -> int:
    """Convert a time of the monotonic clock to ms since 1970."""
    return _BEGAN_MS + int(at_s * 1000)


def add_routes(app: web.Application) -> None:
    """Apply the lists to the application's clients, and open the connections when the application starts."""
    peers = Peers(app[CONTEXT], app[SESSIONS])
    app[CONTEXT].guard.admissions.append(peers.refuses)
    app.on_startup.append(lambda _app: peers.open())
    app.on_cleanup.append(lambda _app: peers.close())

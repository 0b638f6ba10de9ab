"""Connections of the gateway, in and out, and its lists of peers: stored, changed on request, and reported to the engine.

What people say is written into the configuration where it can be, else into a file below the cache (`link.peer_file`); both are
looked at once a second, and nobody is hung up on because they changed. The screen changes them too while no engine carries its
words. `report` is what the engine, and so every screen, hears: at once when a connection came, went or was refused, and once a
second while bytes flow; what is long is told less often, for the engine has to read it, and it has an end.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from itertools import islice
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from aiohttp import web
from msgspec.structs import replace

from aptui.core.notices import PeerOrdered
from aptui.features.gateway import engine_requests, peer_file, peer_lists, tasks
from aptui.features.gateway.access.admission import Admission, AdmissionRefusal
from aptui.features.gateway.access.guard import ClientIdentity
from aptui.features.gateway.context import CONTEXT
from aptui.features.gateway.peers.outbound import OutboundConnections, Socket, client, trust
from aptui.features.gateway.protocol.codec import Scope
from aptui.features.gateway.tasks import Wires
from aptui.features.gateway.ws.sessions import SESSIONS
from aptui.shared.connections.addresses import canonical, parse_address
from aptui.shared.connections.peers import Dial, GatewayReport, Peer, PeerAction, PeerOrder, PeerSettings, PeerState
from aptui.shared.errors import KnownError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    import aiohttp

    from aptui.features.gateway.context import GatewayContext
    from aptui.features.gateway.ws.sessions import WireSession, WireSessions
    from aptui.link.codec import NoticeLine

DEVICE_SCOPES = frozenset({Scope.READ, Scope.ESCALATE})
"""What a device may do that people had us dial: it has no token, its address is what they trust."""
_CHECK_S = 1.0
_GATHER_S = 0.05
"""What changes together is told together."""
_LISTED_MOST, _LISTED_PER_S = 256, 128
"""Clients of one report; where there are more than the second number, so many a second."""
_BEGAN_MS = time.time_ns() // 1_000_000 - int(monotonic() * 1000)
"""When our clock began: one number, so that a report that says nothing new looks the same."""


class Peers:
    """All connections of a gateway.

    Args:
        context: shared objects of the gateway.
        sessions: who is connected.
        admission: the lists; tests give their own.
    """

    def __init__(self, context: GatewayContext, sessions: WireSessions, admission: Admission | None = None) -> None:
        self.context, self.sessions = context, sessions
        self.configured = peer_lists.read_peer_settings(context.config.serve)
        self.admission = admission or Admission(self.configured)
        self.trouble = ""
        self._file = context.config.cache_dir / peer_file.PLACE
        self._stamps: tuple[peer_file.Stamp | None, ...] = ()
        self._diallers: dict[str, OutboundConnections] = {}
        self._sessions: dict[str, WireSession] = {}
        """{id of a connection that we made: its session}."""
        self._trust = trust(context.config.serve)
        self._http: aiohttp.ClientSession | None = None
        self._wires = Wires()
        self._reported: GatewayReport | None = None
        self._is_changed = asyncio.Event()
        self._alone = asyncio.Lock()
        """Held while settings change: orders are done one after the other."""
        self._tasks: set[asyncio.Task[None]] = set()

    # ----------------------------------------------------------------------------------------------------------- its life

    async def open(self) -> None:
        """Read what is kept, and begin to dial and to tell."""
        self._http = client(self._wires)
        await self._read()
        self.sessions.greets.append(self._on_change)
        self.sessions.leaves.append(self._on_change)
        self.context.engine.listeners.append(self.take_news)
        self.context.engine.also_came.append(self.engine_came)
        self._do(self._check())
        self._do(self._report())

    async def close(self) -> None:
        """Hang up, and tell no more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, *(dialler.close() for dialler in self._diallers.values()), return_exceptions=True)
        self._diallers.clear()
        await self.admission.close()
        if self._http is not None:
            await self._http.close()
            await self._wires.end()

    def _do(self, work: Any) -> None:
        task = tasks.begin(work, "a task of the connections")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # ------------------------------------------------------------------------------------------------------------ the lists

    def check(self, remote: str) -> AdmissionRefusal | None:
        """Return why a caller may not come in, None = they may."""
        refusal = self.admission.check(remote)
        if refusal is not None and refusal.is_first:  # how often is told once a second
            self._on_change()
        return refusal

    def refuses(self, remote: str) -> str:
        """Return why a caller may not come in, "" = they may; as `guard.Guard.admissions` wants it."""
        refusal = self.check(remote)
        return refusal.why if refusal is not None else ""

    async def _adopt(self, settings: PeerSettings) -> None:
        await self.admission.adopt(settings)
        for session in list(self.sessions.all.values()):
            refuses = self._find_denial if session in self._sessions.values() else self.admission.why_not
            if why := refuses(session.identity.address):
                self._do(session.close(1008, why))
        await self._dial(settings)
        self._on_change()

    # ------------------------------------------------------------------------------------------------------------- dialling

    async def _dial(self, settings: PeerSettings) -> None:
        wanted = {each.id: each for each in settings.connections if each.is_auto}
        for name in [name for name, each in self._diallers.items() if wanted.get(name) != each.dial]:
            await self._diallers.pop(name).close()
        for name in wanted.keys() - self._diallers.keys():
            assert self._http is not None
            dialler = OutboundConnections(wanted[name], self._http, self._trust, self._serve, self._find_denial, self._on_change)
            self._diallers[name] = dialler
            dialler.start()

    def _find_denial(self, remote: str) -> str:
        address = parse_address(remote)
        if address is not None:
            return self.admission.find_denial(address)
        return f"{remote} is rejected" if canonical(remote) in self.admission.settings.rejected else ""

    async def _serve(self, dialler: OutboundConnections, socket: Socket) -> None:
        """Be the server of a device that answered."""
        identity = ClientIdentity(dialler.dial.id, DEVICE_SCOPES, dialler.dial.address)
        with self.sessions.take_in(self.context, socket, identity) as session:
            self._sessions[dialler.dial.id] = session
            try:
                await session.serve()
            finally:
                self._sessions.pop(dialler.dial.id, None)

    # --------------------------------------------------------------------------------------------------------------- orders

    def take_news(self, batch: Sequence[NoticeLine]) -> None:
        """Do what the engine passes on from people."""
        for news in batch:
            if isinstance(news.notice, PeerOrdered):
                self._do(self.order(news.notice.order))

    def engine_came(self, is_here: bool) -> None:
        """Tell an engine that came everything."""
        self._reported = None
        if is_here:
            self._on_change()

    async def order(self, order: PeerOrder) -> None:
        """Do what people said; what keeps it from being done is told."""
        if order.action is PeerAction.DISCONNECT:
            session = self.sessions.all.get(order.number)
            if session is not None:
                await session.close(1008, "disconnected by a person")
            return
        async with self._alone:
            self.trouble = ""
            try:
                project_dir = self.context.config.project_dir if self.context.reread is not None else None
                change = await asyncio.to_thread(peer_file.change, self._file, self.configured, order, project_dir)
            except KnownError as error:
                self.trouble = str(error)
            else:
                settings, self.configured = change.settings, change.configured
                self._stamps = self._now()
                if order.action in (PeerAction.ALLOW, PeerAction.REJECT, PeerAction.FORGET):
                    self.admission.forget(canonical(order.entry))
                await self._adopt(settings)
        self._on_change()

    async def _read(self) -> None:
        async with self._alone:
            reread = self.context.reread
            if reread is not None:
                with contextlib.suppress(KnownError):  # the engine tells what is wrong with it
                    self.configured = peer_lists.read_peer_settings((await asyncio.to_thread(reread)).serve)
            settings = await asyncio.to_thread(peer_file.read, self._file)
            self._stamps = self._now()  # a damaged file is not there any more
            self.trouble = settings.trouble
            await self._adopt(settings.in_force(self.configured))

    def _now(self) -> tuple[peer_file.Stamp | None, ...]:
        layers = self.context.config.layers if self.context.reread is not None else ()
        return tuple(map(peer_file.stamp, (self._file, *(Path(file) for file, _digest in layers))))

    # -------------------------------------------------------------------------------------------------------------- telling

    def report(self) -> GatewayReport:
        """Return how things are."""
        serve, settings = self.context.config.serve, self.admission.settings
        dialled = [self._make_dialled_peer(each) for each in settings.connections]
        incoming = [session for session in self.sessions if session not in self._sessions.values()]
        listed = map(_incoming, islice(incoming, _LISTED_MOST))
        turned_away = tuple(reversed(self.admission.turned_away.values()))
        unlisted = len(incoming) - _LISTED_MOST
        trouble = self.trouble or (f"{unlisted} more clients are connected than are listed" if unlisted > 0 else "")
        overridden = tuple(peer_file.overridden(settings, self.configured))
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
        """Once a second: the file that others may have changed, names that may have new addresses, bytes that flowed."""
        while True:
            await asyncio.sleep(_CHECK_S)
            if self._now() != self._stamps:
                await self._read()
            self.admission.refresh_old()
            self._on_change()

    async def _report(self) -> None:
        while True:
            await self._is_changed.wait()
            await asyncio.sleep(_GATHER_S)
            self._is_changed.clear()
            report = self.report()
            if report != self._reported and self.context.engine.is_here:
                with contextlib.suppress(KnownError):  # an engine that comes back is told everything
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
    """Return the time of day of a moment of our clock."""
    return _BEGAN_MS + int(at_s * 1000)


PEERS = web.AppKey("peers", Peers)


def add_routes(app: web.Application) -> None:
    """Let the lists decide who comes in, and the connections live as long as the application."""
    peers = app[PEERS] = Peers(app[CONTEXT], app[SESSIONS])
    app[CONTEXT].guard.admissions.append(peers.refuses)

    async def living(_app: web.Application) -> AsyncIterator[None]:
        await peers.open()
        yield
        await peers.close()

    app.cleanup_ctx.append(living)

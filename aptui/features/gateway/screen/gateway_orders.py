"""Changes of the gateway's connections: through the engine where a gateway runs, else in the file it reads when it starts.

Tests: `tests/features/gateway/screen/test_screen.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from aptui.features.gateway.engine_requests import OrderPeers
from aptui.features.gateway.peers import peer_settings
from aptui.link import gateways
from aptui.shared.connections.addresses import apply_order
from aptui.shared.connections.peers import GatewayReport, Peer, PeerOrder, PeerSettings, PeerState, TurnedAway
from aptui.shared.errors import KnownError
from aptui.tui.background import BackgroundTask
from aptui.tui.data.session import SessionState
from aptui.tui.screens.listing import ListedRow
from aptui.tui.terminal.safety import glyph
from aptui.tui.widgets.cells import Cell
from aptui.tui.widgets.table import Column
from aptui.tui.words import clock, size_text

if TYPE_CHECKING:
    from aptui.tui.pane import Shell


# Rows of the gateway's part of the Connections screen: its connections, allowed and rejected peers; nothing is drawn here.

PEERS = (
    Column("state", "Status", 14),
    Column("id", "Id", 0, 7, weight=2),
    Column("address", "Address", 0, 12, weight=2),
    Column("port", "Port", 5, align="right"),
    Column("platforms", "Platforms", 0, 9, drop_rank=2),
    Column("enabled", "On", 4),
    Column("received", "In", 7, align="right"),
    Column("sent", "Out", 7, align="right"),
    Column("last", "Last", 8),
    Column("request", "Request", 0, 16, drop_rank=3),
)
ALLOWED = (Column("entry", "Who", 0, 12, weight=3), Column("note", "", 6, drop_rank=1))
REJECTED = (Column("entry", "Who", 0, 12, weight=2), Column("note", "Why", 0, 10, weight=3, is_prose=True))
_ROLES = {PeerState.CONNECTED: "completed", PeerState.CONNECTING: "pending", PeerState.DISCONNECTED: "cancelled"}
Fact = tuple[str, str, str]


class Keys:
    """Numbers for what has none: a row keeps its own while it is shown."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}

    def of(self, name: str) -> int:
        """Return the number of a name."""
        return self._known.setdefault(name, len(self._known) + 1)


def peers_of(report: GatewayReport | None, settings: PeerSettings) -> tuple[Peer, ...]:
    """Return the connections; without a gateway those that people made, none of them connected."""
    if report is not None:
        return report.peers
    return tuple(
        Peer(0, each.id, True, PeerState.DISCONNECTED, each.address, each.port, is_enabled=each.is_auto)
        for each in settings.connections
    )


def peer_rows(peers: Sequence[Peer], keys: Keys) -> list[ListedRow]:
    """Return a row for each connection."""
    return [_peer(each, keys) for each in peers]


def _peer(each: Peer, keys: Keys) -> ListedRow:
    role = "warning" if each.trouble and each.state is not PeerState.CONNECTED else _ROLES[each.state]
    none = Cell(glyph("none"), "muted")
    is_here = each.number > 0
    cells = {
        "state": Cell(f"{glyph(role)} {each.state}", role),
        "id": Cell(each.id, "title"),
        "address": Cell(each.address),
        "port": Cell(f"{each.port}" if each.port else "", "muted"),
        "platforms": Cell(", ".join(each.platforms) or ("all" if is_here else ""), "muted"),
        "enabled": Cell("[x]" if each.is_enabled else "[ ]") if each.is_dialled else Cell("auto", "muted"),
        "received": Cell(size_text(each.received_bytes)) if is_here else none,
        "sent": Cell(size_text(each.sent_bytes)) if is_here else none,
        "last": Cell(clock(each.last_ms)) if each.last_ms else none,
        "request": Cell(each.last_request, "muted"),
    }
    order = {"port": each.port, "received": each.received_bytes, "sent": each.sent_bytes, "last": each.last_ms}
    return ListedRow(keys.of(f"dial {each.id}" if each.is_dialled else f"session {each.number}"), cells, order, each)


def peer_facts(each: Peer | None) -> list[Fact]:
    """Return what more there is to say about a connection."""
    if each is None:
        return []
    if not each.number:
        trouble = each.trouble or ("" if each.is_enabled else "switched off: aptui does not connect to it")
        return [("", each.id, "title"), ("", trouble, "warning" if each.trouble else "muted")]
    return [
        ("", f"{each.id} at {each.address}", "title"),
        ("platforms", ", ".join(each.platforms) or "all platforms", ""),
        ("may", ", ".join(each.scopes), ""),
        ("token", "" if each.is_dialled else each.identity, ""),
        ("since", clock(each.since_ms) if each.since_ms else "", ""),
        ("In and Out", "messages, without what is downloaded", "muted"),
    ]


def list_allowed_rows(settings: PeerSettings, keys: Keys) -> list[ListedRow]:
    """Return a row for each entry of the allowed list; this machine is always first."""
    here = ListedRow(keys.of(""), {"entry": Cell("this machine", "muted"), "note": Cell("always", "muted")})
    return [here, *(ListedRow(keys.of(entry), {"entry": Cell(entry)}, data=entry) for entry in settings.allowed)]


def list_rejected_rows(settings: PeerSettings, turned_away: Sequence[TurnedAway], keys: Keys) -> list[ListedRow]:
    """Return a row for each entry of the rejected list, and for each address that was turned away besides."""
    came = {each.address: each for each in turned_away}
    parts = [
        ListedRow(
            keys.of(entry),
            {"entry": Cell(entry), "note": Cell(_arrival(came.get(entry)), "muted")},
            data=entry,
        )
        for entry in settings.rejected
    ]
    return [*parts, *(_make_turned_away(each, keys) for each in turned_away if each.address not in settings.rejected)]


def _make_turned_away(each: TurnedAway, keys: Keys) -> ListedRow:
    why = each.why.removeprefix(f"{each.address} is ")
    cells = {"entry": Cell(each.address, "warning"), "note": Cell(f"{why}: {_times(each)}")}
    return ListedRow(keys.of(each.address), cells, data=each.address)


def _arrival(each: TurnedAway | None) -> str:
    return "rejected by you" if each is None else f"refused {_times(each)}"


def _times(each: TurnedAway) -> str:
    return clock(each.last_ms) if each.count == 1 else f"{each.count:,} times, last {clock(each.last_ms)}"


_Found = tuple[PeerSettings, PeerSettings, str, str]
"""(what is kept, what is configured, what is wrong with what is kept, why no gateway runs)."""


class Orders:
    """The settings as they are known, and the way to change them.

    Args:
        changed: called, in the app's thread, when what the file says was read.
    """

    def __init__(self, shell: Shell, changed: Callable[[], object]) -> None:
        self._shell, self._changed = shell, changed
        self.file = shell.session.cache_dir / peer_settings.PLACE
        self._task = BackgroundTask("aptui-connections", shell.in_ui)
        self._settings = PeerSettings()
        self._overridden: tuple[str, ...] = ()
        self._had_gateway = False
        self._waiting: list[tuple[PeerOrder, str]] = []
        self.trouble = ""
        self.problem = ""
        """Why no gateway runs although the configuration wants one, as the engine says; "" = nobody knows of a reason."""

    @property
    def report(self) -> GatewayReport | None:
        """What the gateway tells, None = none runs as far as anybody knows."""
        return self._shell.session.gateway if self.is_attached else None

    @property
    def is_attached(self) -> bool:
        """Whether an engine is there, which would have a gateway started."""
        return self._shell.session.state is SessionState.ATTACHED

    @property
    def settings(self) -> PeerSettings:
        """The gateway's, or those that are kept."""
        report = self.report
        return report.settings if report is not None else self._settings

    @property
    def overridden(self) -> tuple[str, ...]:
        """Which keys of the configuration do not hold, because they were changed here and could not be written."""
        report = self.report
        return report.overridden if report is not None else self._overridden

    def follow(self) -> None:
        """Note what the gateway says; when there is none any more, look what it left."""
        report = self.report
        had_gateway, self._had_gateway = self._had_gateway, report is not None
        if report is not None:
            self._settings = report.settings
        elif had_gateway:
            self.read()

    def close(self) -> None:
        """Wait for what is being written."""
        self._task.close()

    def read(self) -> None:
        """Look what is kept, while no gateway says."""
        if self.report is None:
            self._task.start(lambda _task: self._read(), self._take_gateway, self._show_failure)

    def do(self, order: PeerOrder, done: str) -> None:
        """Have something done; `done` is said when it was taken. What cannot be is told."""
        if not self._shell.can_ask:
            self._shell.show_toast("nothing can be changed here: the screen only reads", "warning")
            return
        try:
            apply_order(self.settings, order)
        except KnownError as error:
            self._shell.show_toast(str(error), "error", 10)
            return
        if self.report is not None:
            self._shell.ask(OrderPeers(order), done)
        else:
            self._waiting.append((order, done))
            self._write()

    def _write(self) -> None:
        """Do what waits, one after the other."""
        if not self._waiting:
            return
        order, done = self._waiting[0]

        def take_result(change: peer_settings.PeerChange) -> None:
            self._waiting.pop(0)
            self._shell.show_toast(done)
            self._take_gateway((change.settings, change.configured, "", self.problem))

        self._task.start(lambda _task: self._change(order), take_result, self._show_failure)

    def _change(self, order: PeerOrder) -> peer_settings.PeerChange:
        config = self._shell.config
        return peer_settings.change_settings(
            self.file, self._read_configured(), order, config.project_dir if config is not None else None
        )

    def _read(self) -> _Found:
        settings, configured = peer_settings.read_stored(self.file, puts_aside=self._shell.can_ask), self._read_configured()
        record = gateways.find_gateway(self._shell.session.cache_dir)
        return settings.in_force(configured), configured, settings.trouble, record.problem if record is not None else ""

    def _read_configured(self) -> PeerSettings:
        """Return what the configuration says now, which may be more than when the screen began."""
        config = self._shell.config
        if config is None:
            return PeerSettings()
        from aptui.config.load import load  # for start-up

        try:
            config = load(config.project_dir)
        except KnownError:  # somebody is writing it: the engine tells what is wrong with it
            pass
        return peer_settings.read_peer_settings(config.serve)

    def _take_gateway(self, found: _Found) -> None:
        self._settings, configured, self.trouble, self.problem = found
        self._overridden = tuple(peer_settings.overridden(self._settings, configured))
        self._changed()
        self._write()

    def _show_failure(self, error: KnownError) -> None:
        self._waiting.clear()
        self._shell.show_toast(str(error), "error", 10)

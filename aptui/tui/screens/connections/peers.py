"""Rows of the gateway's part of the Connections screen: its connections, allowed and rejected peers; nothing is drawn here.

Tests: `tests/tui/screens/connections/test_pane.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from aptui.shared.connections.peers import GatewayReport, Peer, PeerSettings, PeerState, TurnedAway
from aptui.tui.screens.common.listed import ListedRow
from aptui.tui.terminal.safety import glyph
from aptui.tui.widgets.cells import Cell
from aptui.tui.widgets.columns import Column
from aptui.tui.words import clock, size_text

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

"""Connections of the gateway: sessions, addresses that it dials, lists of allowed and rejected peers, and orders about them.

Records; no rules.

Tests: `tests/features/gateway/peers/test_peer_connections.py`.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct, field

DEVICE_PORT = 22_229
"""Port of devices by default, as in O3DE."""
DEVICE_PATH = "/v1/device"
"""HTTP path of a device's WebSocket."""


class Dial(Struct, frozen=True):
    """A device or editor that the gateway dials; `is_auto`: again and again while it is not connected."""

    id: str
    address: str
    port: int = DEVICE_PORT
    is_auto: bool = True


class PeerSettings(Struct, frozen=True):
    """What people say about connections: whom to dial, and the lists, whose entries are canonical (`core.addresses`).

    Args:
        has_allow_list: whether only `allowed` may come in. `rejected` never may, and this machine always.
    """

    connections: tuple[Dial, ...] = ()
    allowed: tuple[str, ...] = ()
    rejected: tuple[str, ...] = ()
    has_allow_list: bool = True

    def dial(self, name: str) -> Dial | None:
        """Return the connection with this id."""
        return next((each for each in self.connections if each.id == name), None)


class PeerState(StrEnum):
    """How a connection is."""

    DISCONNECTED = "disconnected"
    CONNECTING = "connecting"
    CONNECTED = "connected"


class Peer(Struct, frozen=True):
    """A connection of the gateway.

    Args:
        number: of its session; 0 = not connected.
        id: that of the connection people made, or what a client calls itself.
        is_dialled: people made it; others came by themselves and vanish when they go.
        identity: the name of its token.
        is_enabled: it is dialled while it is not connected.
        last_ms: when it last asked for something, `last_request` what; 0 = it has not.
        trouble: why it is not connected.
    """

    number: int
    id: str
    is_dialled: bool
    state: PeerState
    address: str
    port: int
    platforms: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()
    identity: str = ""
    is_enabled: bool = False
    since_ms: int = 0
    last_ms: int = 0
    last_request: str = ""
    received_bytes: int = 0
    sent_bytes: int = 0
    trouble: str = ""


class TurnedAway(Struct, frozen=True):
    """An address that was not let in: `why`, how often, since when and when last."""

    address: str
    why: str
    count: int
    first_ms: int
    last_ms: int


class GatewayReport(Struct, frozen=True):
    """What a gateway tells of itself: where it listens, its connections, its lists; `trouble` "" or what is wrong with them.

    `overridden` are keys of the configuration that do not hold, because people changed them where they could not be written.
    """

    address: str
    port: int
    settings: PeerSettings
    peers: tuple[Peer, ...] = ()
    turned_away: tuple[TurnedAway, ...] = ()
    trouble: str = ""
    overridden: tuple[str, ...] = ()


class PeerAction(StrEnum):
    """What people have done about connections."""

    ADD = "add"
    EDIT = "edit"
    REMOVE = "remove"
    ENABLE = "enable"
    DISABLE = "disable"
    DISCONNECT = "disconnect"
    ALLOW = "allow"
    REJECT = "reject"
    FORGET = "forget"
    LIST_ON = "list_on"
    LIST_OFF = "list_off"


class PeerOrder(Struct, frozen=True):
    """One action of a person on a connection.

    Args:
        id: the connection that is edited, removed, enabled or disabled.
        dial: what it becomes, for `add` and `edit`.
        number: the session that is disconnected.
        entry: what is allowed, rejected (each moves it from the other list) or forgotten.
    """

    action: PeerAction = field(name="deed")
    id: str = ""
    dial: Dial | None = None
    number: int = 0
    entry: str = ""

"""Records of the gateway's connections: sessions, configured devices, lists of allowed and rejected peers, and actions of users.

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
    """A device or editor that the gateway connects to; with `is_auto` the gateway connects again when the connection is lost."""

    id: str
    address: str
    port: int = DEVICE_PORT
    is_auto: bool = field(default=True, name="auto")


class PeerSettings(Struct, frozen=True):
    """Settings of connections: devices to connect to, allowed addresses and rejected addresses.

    Addresses are written in the form that `shared.connections.addresses.canonical` returns.

    The names of the fields in JSON are the keys below `serve:` in the configuration.

    Args:
        has_allow_list: whether only addresses in `allowed` may connect. Addresses in `rejected` may never connect, and this machine
            may always connect.
    """

    connections: tuple[Dial, ...] = ()
    allowed: tuple[str, ...] = ()
    rejected: tuple[str, ...] = ()
    has_allow_list: bool = field(default=True, name="allow_list")

    def dial(self, name: str) -> Dial | None:
        """Return the connection with this id."""
        return next((each for each in self.connections if each.id == name), None)


class PeerState(StrEnum):
    """State of a connection."""

    DISCONNECTED = "disconnected"
    CONNECTING = "connecting"
    CONNECTED = "connected"


class Peer(Struct, frozen=True):
    """A connection of the gateway.

    Args:
        number: number of its session; 0 = not connected.
        id: id of a configured connection, or the name that a client gives itself.
        is_dialled: whether the user configured the connection; other connections are not listed after they end.
        identity: name of its token.
        is_enabled: whether the gateway reconnects when the connection is lost.
        last_ms: time of its last request, whose name is `last_request`; 0 = none.
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
    """An address that was refused, with the reason, the number of refusals, and the times of the first and last refusal."""

    address: str
    why: str
    count: int
    first_ms: int
    last_ms: int


class GatewayReport(Struct, frozen=True):
    """A report of the gateway: its address, its connections and its settings; `trouble` is a problem of the settings or "".

    `overridden` are keys of the configuration that a user changed on the screen, and whose change could not be saved in the file.
    """

    address: str
    port: int
    settings: PeerSettings
    peers: tuple[Peer, ...] = ()
    turned_away: tuple[TurnedAway, ...] = ()
    trouble: str = ""
    overridden: tuple[str, ...] = ()


class PeerAction(StrEnum):
    """Actions on connections."""

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
    """An action on connections that a user requests.

    Args:
        id: the connection to edit, remove, enable or disable.
        dial: the new values, for `add` and `edit`.
        number: the session to disconnect.
        entry: the entry to allow, reject or remove; an entry to allow or reject is moved from the other list.
    """

    action: PeerAction = field(name="deed")
    id: str = ""
    dial: Dial | None = None
    number: int = 0
    entry: str = ""

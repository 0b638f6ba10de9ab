"""Applies orders about connections to the settings, or refuses them; used by the screen and the gateway.

Tests: `tests/features/gateway/peers/test_peer_connections.py`.
"""

from __future__ import annotations

from msgspec.structs import replace

from aptui.shared.connections.addresses import canonical, is_host_name, parse_address
from aptui.shared.connections.peers import Dial, PeerAction, PeerOrder, PeerSettings
from aptui.shared.errors import UserError

_LAST_PORT = 65_535
_ID_LENGTH = 80


def apply_order(settings: PeerSettings, order: PeerOrder) -> PeerSettings:
    """Return the settings after an order.

    Raises:
        UserError: the order is not possible, with the reason.
    """
    match order.action:
        case PeerAction.ADD | PeerAction.EDIT | PeerAction.REMOVE | PeerAction.ENABLE | PeerAction.DISABLE:
            return replace(settings, connections=_change_dialled(settings, order))
        case PeerAction.ALLOW | PeerAction.REJECT | PeerAction.FORGET:
            return _put_entry(settings, order)
        case PeerAction.LIST_ON | PeerAction.LIST_OFF:
            return replace(settings, has_allow_list=order.action is PeerAction.LIST_ON)
        case PeerAction.DISCONNECT:
            return settings


def _change_dialled(settings: PeerSettings, order: PeerOrder) -> tuple[Dial, ...]:
    before, is_new = settings.connections, order.action is PeerAction.ADD
    known = settings.dial(order.id)
    if known is None and not is_new:
        raise UserError(f"there is no connection '{order.id}'", hint="it was removed meanwhile; list them again")
    if order.action is PeerAction.REMOVE:
        return tuple(each for each in before if each.id != order.id)
    if order.action in (PeerAction.ENABLE, PeerAction.DISABLE):
        assert known is not None
        becomes = replace(known, is_auto=order.action is PeerAction.ENABLE)
    else:
        becomes = check_dial(order.dial)
        if any(each.id == becomes.id and each is not known for each in before):
            raise UserError(f"there is a connection '{becomes.id}' already", hint="give it another id")
    return (*before, becomes) if is_new else tuple(becomes if each is known else each for each in before)


def _put_entry(settings: PeerSettings, order: PeerOrder) -> PeerSettings:
    entry = canonical(order.entry)
    address = parse_address(entry)
    if order.action is PeerAction.REJECT and (entry == "localhost" or (address is not None and address.is_loopback)):
        raise UserError("this machine may always come in", hint="reject another address")
    allowed, rejected = ([each for each in entries if each != entry] for entries in (settings.allowed, settings.rejected))
    if order.action is PeerAction.ALLOW:
        allowed.append(entry)
    elif order.action is PeerAction.REJECT:
        rejected.append(entry)
    return replace(settings, allowed=tuple(allowed), rejected=tuple(rejected))


def check_dial(dial: Dial | None) -> Dial:
    """Return a connection in canonical form.

    Raises:
        UserError: its id, address or port is invalid; the text begins with the field.
    """
    if dial is None:
        raise UserError("the connection is missing", hint="say its id, address and port")
    name, address = dial.id.strip(), dial.address.strip().strip("[]")
    if not name or not name.isprintable() or len(name) > _ID_LENGTH:
        raise UserError(f"id: expected 1 to {_ID_LENGTH} characters")
    if parse_address(address) is None and not is_host_name(address):
        raise UserError("address: expected an address or a host name", hint="as '192.168.1.20' or 'tablet.local'")
    if not 0 < dial.port <= _LAST_PORT:
        raise UserError(f"port: expected a number from 1 to {_LAST_PORT}")
    return Dial(name, address, dial.port, dial.is_auto)

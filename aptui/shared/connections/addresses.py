"""Entries of the allowed and rejected lists: host names, addresses and ranges. Decides which addresses an entry matches.

This module does not resolve names.

Tests: `tests/features/gateway/peers/test_peer_connections.py`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from msgspec.structs import replace

from aptui.shared.connections.peers import Dial, PeerAction, PeerOrder, PeerSettings
from aptui.shared.errors import UserError

EVERYONE = "/0"
"""The entry that matches every address, of both families."""
_LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)\Z")
_SEPARATORS = re.compile(r"[, \t\n\r]+")
_NAME_LENGTH = 253
Address = IPv4Address | IPv6Address
Range = IPv4Network | IPv6Network


def split(text: str) -> list[str]:
    """Return the entries of a list: separated by commas, blanks, tabs or line ends, as in O3DE's `allowed_list`."""
    return [word for word in _SEPARATORS.split(text) if word]


def canonical(entry: str) -> str:
    """Return the canonical form of an entry: a host name in lower case, an address, or a range with its first address.

    Raises:
        UserError: the entry is invalid.
    """
    word = entry.strip().lower()
    if word == EVERYONE:
        return word
    address, slash, _ = word.partition("/")
    try:
        if slash:
            found = _unmap(ip_network(word, strict=False))
            return str(found)
        return str(plain(ip_address(word.strip("[]"))))
    except ValueError:
        pass
    if slash:
        raise UserError(
            f"'{entry}' is not a range of addresses",
            hint=f"write it as '192.168.1.0/24' or '2001:db8::/32'; '{EVERYONE}' means every address",
        )
    if is_host_name(address):
        return address.rstrip(".")
    raise UserError(
        f"'{entry}' is neither a host name nor an address", hint="write it as 'tablet.local', '192.168.1.20' or '192.168.1.0/24'"
    )


def is_host_name(word: str) -> bool:
    """Whether a text can be a host name; a text that ends in a number is not a host name but an invalid address (RFC 1123 §2.1)."""
    labels = word.lower().rstrip(".").split(".")
    return len(word) <= _NAME_LENGTH and all(map(_LABEL.match, labels)) and not labels[-1].isdecimal()


def is_loopback(host: str) -> bool:
    """Whether a name or address always means this machine, as `localhost` or 127.0.0.1 does."""
    found = parse_address(host)
    return found.is_loopback if found is not None else host == "localhost"


def plain(address: Address) -> Address:
    """Return an IPv6 address without its zone id; an IPv4-mapped IPv6 address becomes an IPv4 address (RFC 4291 §2.5.5.2)."""
    if isinstance(address, IPv6Address):
        return address.ipv4_mapped or IPv6Address(int(address))
    return address


def url_host(host: str) -> str:
    """Return a host name or address as it is written in a URL: an IPv6 address is in brackets (RFC 3986 §3.2.2)."""
    return f"[{host}]" if ":" in host else host


def parse_address(text: str) -> Address | None:
    """Return an address, None if the text is not an address (a local socket does not have one)."""
    try:
        return plain(ip_address(text))
    except ValueError:
        return None


def _unmap(network: Range) -> Range:
    if isinstance(network, IPv6Network) and network.network_address.ipv4_mapped and network.prefixlen >= 96:
        return IPv4Network((int(network.network_address.ipv4_mapped), network.prefixlen - 96))
    return network


def host_names(entries: Iterable[str]) -> list[str]:
    """Return the entries that are host names."""
    return [entry for entry in entries if entry != EVERYONE and "/" not in entry and parse_address(entry) is None]


def entry_for(address: Address, entries: Iterable[str], known: Mapping[str, Collection[Address]]) -> str | None:
    """Return the first canonical entry that matches an address.

    Args:
        known: {host name: its addresses}; other names match no address.
    """
    for entry in entries:
        if entry == EVERYONE or address in known.get(entry, ()):
            return entry
        if "/" in entry:
            if address in ip_network(entry):
                return entry
        elif str(address) == entry:
            return entry
    return None


# The functions below change the configured connections and lists, and refuse invalid changes.
#
# The screen and the gateway both call these functions, so that the same rules apply to both.

_LAST_PORT = 65_535
_ID_LENGTH = 80


def apply_order(settings: PeerSettings, order: PeerOrder) -> PeerSettings:
    """Return a copy of the settings with the change that a user requests in `order`.

    Raises:
        UserError: the change is not possible; the text gives the reason.
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
        raise UserError(
            f"'{order.id}' is not a connection", hint="list the connections again; this connection may have been removed"
        )
    if order.action is PeerAction.REMOVE:
        return tuple(each for each in before if each.id != order.id)
    if order.action in (PeerAction.ENABLE, PeerAction.DISABLE):
        assert known is not None
        becomes = replace(known, is_auto=order.action is PeerAction.ENABLE)
    else:
        becomes = check_dial(order.dial)
        if any(each.id == becomes.id and each is not known for each in before):
            raise UserError(f"there is already a connection '{becomes.id}'", hint="give the new connection another id")
    return (*before, becomes) if is_new else tuple(becomes if each is known else each for each in before)


def _put_entry(settings: PeerSettings, order: PeerOrder) -> PeerSettings:
    entry = canonical(order.entry)
    address = parse_address(entry)
    if order.action is PeerAction.REJECT and (entry == "localhost" or (address is not None and address.is_loopback)):
        raise UserError("connections from this machine cannot be rejected", hint="reject another address")
    allowed, rejected = ([each for each in entries if each != entry] for entries in (settings.allowed, settings.rejected))
    if order.action is PeerAction.ALLOW:
        allowed.append(entry)
    elif order.action is PeerAction.REJECT:
        rejected.append(entry)
    return replace(settings, allowed=tuple(allowed), rejected=tuple(rejected))


def check_dial(dial: Dial | None) -> Dial:
    """Check the id, address and port of a device or editor, and return them in canonical form.

    Raises:
        UserError: its id, address or port is invalid; the text begins with the field.
    """
    if dial is None:
        raise UserError("the request does not describe a connection", hint="name the id, address and port of a device or editor")
    name, address = dial.id.strip(), dial.address.strip().strip("[]")
    if not name or not name.isprintable() or len(name) > _ID_LENGTH:
        raise UserError(f"id: expected 1 to {_ID_LENGTH} characters")
    if parse_address(address) is None and not is_host_name(address):
        raise UserError("address: expected an address or a host name", hint="write it as '192.168.1.20' or 'tablet.local'")
    if not 0 < dial.port <= _LAST_PORT:
        raise UserError(f"port: expected a number from 1 to {_LAST_PORT}")
    return Dial(name, address, dial.port, dial.is_auto)

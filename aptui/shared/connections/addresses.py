"""Entries of the allowed and rejected lists (host names, addresses, ranges), and which addresses they match.

Names are never looked up here.

Tests: `tests/features/gateway/peers/test_peer_connections.py`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from aptui.shared.errors import UserError

EVERYONE = "/0"
"""The entry that names every address, of both families."""
_LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)\Z")
_SEPARATORS = re.compile(r"[, \t\n\r]+")
_NAME_LENGTH = 253
Address = IPv4Address | IPv6Address
Range = IPv4Network | IPv6Network


def split(text: str) -> list[str]:
    """Return the entries of a list that people wrote: between commas, blanks, tabs and line ends, as in O3DE's `allowed_list`."""
    return [word for word in _SEPARATORS.split(text) if word]


def canonical(entry: str) -> str:
    """Return the one form of an entry: a host name in lower case, an address, or a range with its first address.

    Raises:
        UserError: it is none of these.
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
            f"'{entry}' is no range of addresses", hint=f"as '192.168.1.0/24' or '2001:db8::/32'; '{EVERYONE}' is everyone"
        )
    if is_host_name(address):
        return address.rstrip(".")
    raise UserError(
        f"'{entry}' is neither a host name nor an address", hint="as 'tablet.local', '192.168.1.20' or '192.168.1.0/24'"
    )


def is_host_name(word: str) -> bool:
    """Whether this can be the name of a machine; what ends in a number is an address, or a mistake in one (RFC 1123 §2.1)."""
    labels = word.lower().rstrip(".").split(".")
    return len(word) <= _NAME_LENGTH and all(map(_LABEL.match, labels)) and not labels[-1].isdecimal()


def is_loopback(host: str) -> bool:
    """Whether a name or address certainly means this machine."""
    found = parse_address(host)
    return found.is_loopback if found is not None else host == "localhost"


def plain(address: Address) -> Address:
    """Return an address without its zone, and an IPv4 address that came as IPv6 as what it is."""
    if isinstance(address, IPv6Address):
        return address.ipv4_mapped or IPv6Address(int(address))
    return address


def parse_address(text: str) -> Address | None:
    """Return the address that somebody calls from; None = it is none (a local socket)."""
    try:
        return plain(ip_address(text))
    except ValueError:
        return None


def _unmap(network: Range) -> Range:
    if isinstance(network, IPv6Network) and network.network_address.ipv4_mapped and network.prefixlen >= 96:
        return IPv4Network((int(network.network_address.ipv4_mapped), network.prefixlen - 96))
    return network


def host_names(entries: Iterable[str]) -> list[str]:
    """Return those entries that are names of machines."""
    return [entry for entry in entries if entry != EVERYONE and "/" not in entry and parse_address(entry) is None]


def entry_for(address: Address, entries: Iterable[str], known: Mapping[str, Collection[Address]]) -> str | None:
    """Return the first of the canonical entries that names an address.

    Args:
        known: {host name: its addresses}; a name that is not there names nobody.
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

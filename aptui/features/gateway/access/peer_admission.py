"""Admits clients by address: the allowed and rejected lists, host names, and a record of refused clients. `guard` checks tokens.

Tests: `tests/features/gateway/peers/test_peer_connections.py`.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import time
from collections.abc import Awaitable, Callable, Iterable
from functools import lru_cache
from pathlib import Path
from time import monotonic

from msgspec import Struct
from msgspec.structs import replace

from aptui.features.gateway import tasks
from aptui.shared.connections.addresses import Address, entry_for, host_names, parse_address, plain
from aptui.shared.connections.peers import PeerSettings, TurnedAway

_MOST_REJECTED = 256
"""Maximum number of remembered addresses: a client with many addresses must not fill our memory."""
_NAMES_FRESH_S = 60.0
_NAMES_AGAIN_S = 5.0
"""Minimum interval between resolutions of the host names, which a refused client triggers: it may have one of the names."""
_NAMES_LIMIT_S = 5.0
_LOCAL_FRESH_S = 5.0
_NETWORK = Path("/proc/net")
_parsed = lru_cache(maxsize=256)(parse_address)
"""`parse_address` with a cache, because it is called for each request."""
Resolve = Callable[[str], Awaitable[Iterable[Address]]]


class AdmissionRefusal(Struct, frozen=True):
    """Why a client is refused; `is_first`: no client at this address was refused before."""

    why: str
    is_first: bool = False


class Admission:
    """The allowed and rejected lists, applied to clients.

    Args:
        settings: the lists.
        resolve: returns the addresses of a host name.
        local: returns the addresses of this machine.
    """

    def __init__(
        self, settings: PeerSettings, *, resolve: Resolve | None = None, local: Callable[[], frozenset[Address]] | None = None
    ) -> None:
        self._settings = settings
        self._resolve, self._ask_local = resolve or resolve_name, local or local_addresses
        self._known: dict[str, frozenset[Address]] = {}
        self._local: tuple[float, frozenset[Address]] = (float("-inf"), frozenset())
        self._asked_s = float("-inf")
        self._asking: asyncio.Task[None] | None = None
        self.turned_away: dict[str, TurnedAway] = {}
        """{address: record of its refusals}, the latest last."""

    @property
    def settings(self) -> PeerSettings:
        """The lists."""
        return self._settings

    async def adopt(self, settings: PeerSettings) -> None:
        """Use other lists; returns once their names are resolved or cannot be resolved now."""
        self._settings = settings
        await self.refresh()

    # ---------------------------------------------------------------------------------------------------------- who calls

    def check(self, remote: str) -> AdmissionRefusal | None:
        """Return why a client at `remote` is refused, None = it is not; a refusal is recorded."""
        why = self.why_not(remote)
        if not why:
            return None
        self._refresh_soon()
        now_ms = time.time_ns() // 1_000_000
        before = self.turned_away.pop(remote, None)
        if before is None:
            self.turned_away[remote] = TurnedAway(remote, why, 1, now_ms, now_ms)
            while len(self.turned_away) > _MOST_REJECTED:
                del self.turned_away[next(iter(self.turned_away))]
        else:
            self.turned_away[remote] = replace(before, why=why, count=before.count + 1, last_ms=now_ms)
        return AdmissionRefusal(why, before is None)

    def why_not(self, remote: str) -> str:
        """Return why a client at `remote` is refused, "" = it is not; nothing is recorded."""
        address = _parsed(remote)
        if address is None:
            return "the address of the client is unknown"
        if address.is_loopback or address in self._local_now():
            return ""
        denied = self.find_denial(address)
        if denied or not self._settings.has_allow_list or entry_for(address, self._settings.allowed, self._known) is not None:
            return denied
        return f"{address} is not on the allowed list"

    def find_denial(self, address: Address) -> str:
        """Return why an address is rejected, "" = it is not."""
        entry = entry_for(address, self._settings.rejected, self._known)
        if entry is None:
            return ""
        return f"{address} is rejected" if entry == str(address) else f"{address} is rejected by '{entry}'"

    def forget(self, entry: str) -> None:
        """Delete the recorded refusals of all addresses that match this canonical entry."""
        for each in list(self.turned_away):
            address = parse_address(each)
            if address is not None and entry_for(address, [entry], self._known) is not None:
                del self.turned_away[each]

    def _local_now(self) -> frozenset[Address]:
        if monotonic() - self._local[0] > _LOCAL_FRESH_S:
            self._local = (monotonic(), self._ask_local())
        return self._local[1]

    # --------------------------------------------------------------------------------------------------------------- names

    async def refresh(self) -> None:
        """Resolve all names; a name that cannot be resolved now keeps its addresses."""
        self._asked_s = monotonic()
        names = list(dict.fromkeys(host_names((*self._settings.allowed, *self._settings.rejected))))
        found = await asyncio.gather(*(self._addresses(name) for name in names))
        self._known = dict(zip(names, found, strict=True))

    async def _addresses(self, name: str) -> frozenset[Address]:
        try:
            return frozenset(await asyncio.wait_for(self._resolve(name), _NAMES_LIMIT_S))
        except (OSError, UnicodeError, TimeoutError):
            return self._known.get(name, frozenset())

    def refresh_names(self) -> None:
        """Resolve the names again if their addresses are old; called regularly."""
        if monotonic() - self._asked_s > _NAMES_FRESH_S:
            self._refresh_soon()

    def _refresh_soon(self) -> None:
        is_due = monotonic() - self._asked_s > _NAMES_AGAIN_S and (self._asking is None or self._asking.done())
        if is_due and host_names((*self._settings.allowed, *self._settings.rejected)):
            self._asking = tasks.begin(self.refresh(), "resolving names")

    async def close(self) -> None:
        """Stop resolving."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)


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

"""The file in which a project keeps its connection settings (`shared.peers.PeerSettings`).

The gateway and the screen both change it.

Tests: `tests/serve/peers/test_peers.py`.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from aptui.shared.addresses import canonical
from aptui.shared.errors import HostError, KnownError
from aptui.shared.peer_rules import applied, checked
from aptui.shared.peers import Dial, PeerOrder, PeerSettings

if TYPE_CHECKING:
    from aptui.config.serve import GatewaySettings

PLACE = Path(".aptui", "connections.json")
"""Below the cache."""
_DAMAGED = ".damaged"
Stamp = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class PeerLists:
    """What is kept: None = nothing yet, so the configuration says; `trouble` is "" or what was wrong with the file."""

    settings: PeerSettings | None
    trouble: str = ""


class _Row(msgspec.Struct):
    id: str
    address: str
    port: int
    auto: bool = True


class _Form(msgspec.Struct):
    connections: list[_Row] = []
    allowed: list[str] = []
    rejected: list[str] = []
    allow_list: bool = True


def stamp(file: Path) -> Stamp | None:
    """Return what changes when the file does; None = there is none."""
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def read(file: Path, *, puts_aside: bool = True) -> PeerLists:
    """Return the stored settings.

    A file that is not ours is set aside so that nothing in it is lost, unless the caller may change nothing.
    """
    try:
        data = file.read_bytes()
    except FileNotFoundError:
        return PeerLists(None)
    except OSError as error:
        return PeerLists(None, f"'{file}' cannot be read: {error.strerror}")
    try:
        return PeerLists(_settings(msgspec.json.decode(data, type=_Form)))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, KnownError) as error:
        aside = file.with_name(file.name + _DAMAGED)
        if puts_aside:
            with contextlib.suppress(OSError):
                os.replace(file, aside)
        where = f"; it is kept as '{aside.name}'" if puts_aside else ""
        return PeerLists(None, f"'{file}' was damaged ({error}){where}, and what the configuration says holds")


def configured(serve: GatewaySettings) -> PeerSettings:
    """Return what the configuration says.

    Raises:
        UserError: an entry of its lists, or a connection, is none.
    """
    dials = tuple(map(checked, serve.connections))
    allowed, rejected = (tuple(dict.fromkeys(map(canonical, entries))) for entries in (serve.allowed, serve.rejected))
    return PeerSettings(dials, allowed, rejected, serve.has_allow_list)


def change(file: Path, otherwise: PeerSettings, order: PeerOrder) -> PeerSettings:
    """Do what people said to what is kept, or to what the configuration says while nothing is, and return what is kept now.

    Raises:
        UserError: it cannot be done. HostError: the file cannot be written.
    """
    with _alone(file):
        settings = applied(read(file).settings or otherwise, order)
        _write(file, settings)
    return settings


def _settings(form: _Form) -> PeerSettings:
    dials = {row.id: checked(Dial(row.id, row.address, row.port, row.auto)) for row in form.connections}
    allowed, rejected = (tuple(dict.fromkeys(map(canonical, entries))) for entries in (form.allowed, form.rejected))
    return PeerSettings(tuple(dials.values()), allowed, rejected, form.allow_list)


def _write(file: Path, settings: PeerSettings) -> None:
    form: dict[str, Any] = {
        "allow_list": settings.has_allow_list,
        "allowed": settings.allowed,
        "rejected": settings.rejected,
        "connections": [
            {"id": each.id, "address": each.address, "port": each.port, "auto": each.is_auto} for each in settings.connections
        ],
    }
    begun = file.with_name(f"{file.name}.{os.getpid()}")
    try:
        with open(begun, "w", encoding="utf-8", opener=_private) as stream:
            json.dump(form, stream, indent=2)
            stream.write("\n")
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(begun, file)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(begun)
        raise HostError(f"'{file}' cannot be written: {error.strerror}", hint="look at its disk") from error


@contextlib.contextmanager
def _alone(file: Path) -> Iterator[None]:
    """Keep other processes from changing the file meanwhile."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        lock = open(file.with_name(f"{file.name}.lock"), "ab", opener=_private)  # noqa: SIM115  # closed below
    except OSError as error:
        raise HostError(f"'{file.parent}' cannot be written: {error.strerror}", hint="look at its disk") from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _private(name: str, flags: int) -> int:
    return os.open(name, flags | os.O_CLOEXEC, 0o600)

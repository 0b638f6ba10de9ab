"""Changes that people make to connection settings (`PeerSettings`) while the gateway runs, or while none does.

They are written into the YAML that says so (`config.peer_lists`). What cannot be written there (no such file, no permission,
`--set`) is kept in a file below the cache, which remembers what the configuration said then: where that says something else since,
it is the newer one and holds. What differs from the configuration is an override: the screen, `config --explain` and `doctor` show
it with its place.

Tests: `tests/features/gateway/peers/test_peers.py`.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from aptui.config.dirs import OWN_FOLDER
from aptui.features.gateway import peer_lists
from aptui.shared.connections.addresses import canonical
from aptui.shared.connections.peer_rules import apply_order, check_dial
from aptui.shared.connections.peers import Dial, PeerOrder, PeerSettings
from aptui.shared.errors import HostError, KnownError
from aptui.shared.files.replacing import PRIVATE, replace_bytes
from aptui.shared.forms import prepare_form

PLACE = Path(OWN_FOLDER, "connections.json")
"""Below the cache."""
_DAMAGED = ".damaged"
Stamp = tuple[int, int, int]


class PeerLists(Struct, frozen=True):
    """What is kept: None = nothing yet, so the configuration says; `trouble` is "" or what was wrong with the file.

    Args:
        configured: what the configuration said when the file was written, None = nobody noted it.
    """

    settings: PeerSettings | None
    trouble: str = ""
    configured: PeerSettings | None = None

    def in_force(self, configured: PeerSettings) -> PeerSettings:
        """Return what holds: of each list what people changed, unless the configuration says something else since."""
        if self.settings is None:
            return configured
        before = self.configured
        if before is None:
            return self.settings
        newer = {name: getattr(configured, name) for name in peer_lists.KEYS if getattr(configured, name) != getattr(before, name)}
        return replace(self.settings, **newer)


class PeerChange(Struct, frozen=True):
    """What holds after a change, and what the configuration says then."""

    settings: PeerSettings
    configured: PeerSettings


class _Row(msgspec.Struct):
    id: str
    address: str
    port: int
    auto: bool = True


class _Lists(msgspec.Struct):
    connections: list[_Row] = []
    allowed: list[str] = []
    rejected: list[str] = []
    allow_list: bool = True


class _Form(_Lists):
    configured: _Lists | None = None


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
        form = msgspec.json.decode(data, type=prepare_form(_Form))
        return PeerLists(_settings(form), configured=_settings(form.configured) if form.configured is not None else None)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, KnownError) as error:
        aside = file.with_name(file.name + _DAMAGED)
        if puts_aside:
            with contextlib.suppress(OSError):
                os.replace(file, aside)
        where = f"; it is kept as '{aside.name}'" if puts_aside else ""
        return PeerLists(None, f"'{file}' was damaged ({error}){where}, and what the configuration says holds")


def change(file: Path, otherwise: PeerSettings, order: PeerOrder, project_dir: Path | None = None) -> PeerChange:
    """Do what people said to what is in force.

    Args:
        otherwise: what the configuration says.
        project_dir: whose YAML is written; None = the file alone is.

    Raises:
        UserError: it cannot be done. HostError: the file cannot be written.
    """
    with _alone(file):
        settings = apply_order(read(file).in_force(otherwise), order)
        written = peer_lists.write_back(project_dir, settings, otherwise) if project_dir is not None else ()
        fields = [field for field, key in peer_lists.KEYS.items() if key in written]
        configured = replace(otherwise, **{field: getattr(settings, field) for field in fields})
        if project_dir is not None and settings == configured:
            file.unlink(missing_ok=True)
        else:
            _write(file, settings, configured)
    return PeerChange(settings, configured)


def overridden(settings: PeerSettings, configured: PeerSettings) -> dict[str, Any]:
    """Return {key of the configuration: what holds instead of its value}."""
    plain = peer_lists.plain(settings)
    return {
        f"serve.{key}": plain[key] for name, key in peer_lists.KEYS.items() if getattr(settings, name) != getattr(configured, name)
    }


def _settings(form: _Lists) -> PeerSettings:
    dials = {row.id: check_dial(Dial(row.id, row.address, row.port, row.auto)) for row in form.connections}
    allowed, rejected = (tuple(dict.fromkeys(map(canonical, entries))) for entries in (form.allowed, form.rejected))
    return PeerSettings(tuple(dials.values()), allowed, rejected, form.allow_list)


def _write(file: Path, settings: PeerSettings, configured: PeerSettings) -> None:
    form = {**peer_lists.plain(settings), "configured": peer_lists.plain(configured)}
    replace_bytes(file, json.dumps(form, indent=2).encode() + b"\n", mode=PRIVATE)


@contextlib.contextmanager
def _alone(file: Path) -> Iterator[None]:
    """Keep other processes from changing the file meanwhile."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        lock = open(file.with_name(f"{file.name}.lock"), "ab", opener=_private)  # noqa: SIM115  # closed below
    except OSError as error:
        raise HostError(f"'{file.parent}' cannot be written: {error.strerror}", hint="check its disk") from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _private(name: str, flags: int) -> int:
    return os.open(name, flags | os.O_CLOEXEC, 0o600)

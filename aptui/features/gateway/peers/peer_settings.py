"""Changes that people make to connection settings (`PeerSettings`) while the gateway runs, or while none does.

They are written into the YAML that says so (`config.peer_lists`). What cannot be written there (no such file, no permission,
`--set`) is kept in a file below the cache, which remembers what the configuration said then: where that says something else since,
it is the newer one and holds. What differs from the configuration is an override: the screen, `config --explain` and `doctor` show
it with its place.

Tests: `tests/features/gateway/peers/test_peer_connections.py`.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from aptui.config.dirs import OWN_FOLDER
from aptui.shared.connections.addresses import apply_order, canonical, check_dial
from aptui.shared.connections.peers import Dial, PeerOrder, PeerSettings
from aptui.shared.errors import HostError, KnownError
from aptui.shared.files.replacing import PRIVATE, replace_bytes
from aptui.shared.forms import prepare_form

if TYPE_CHECKING:
    from aptui.config.settings import GatewaySettings


# Who may connect, and whom the gateway dials, as the files of the configuration say it; and how people's changes get into them.

KEYS = {"has_allow_list": "allow_list", "allowed": "allowed", "rejected": "rejected", "connections": "connections"}
"""{field of the settings: key below `serve:`}."""


def read_peer_settings(serve: GatewaySettings) -> PeerSettings:
    """Return what the configuration says.

    Raises:
        UserError: an entry of its lists, or a connection, is none.
    """
    dials = tuple(map(check_dial, serve.connections))
    allowed, rejected = (tuple(dict.fromkeys(map(canonical, entries))) for entries in (serve.allowed, serve.rejected))
    return PeerSettings(dials, allowed, rejected, serve.has_allow_list)


def as_plain(settings: PeerSettings) -> dict[str, Any]:
    """Return {key below `serve:`: its value}."""
    return {
        "allow_list": settings.has_allow_list,
        "allowed": list(settings.allowed),
        "rejected": list(settings.rejected),
        "connections": [
            {"id": each.id, "address": each.address, "port": each.port, "auto": each.is_auto} for each in settings.connections
        ],
    }


def write_back(project_dir: Path, wanted: PeerSettings, configured: PeerSettings) -> tuple[str, ...]:
    """Write what is wanted and not configured into the files that say it, or into the project's; return the keys that were written.

    A key stays unwritten where the command line says something else than the files, where its file cannot be written, or where that
    would not hold.
    """
    from aptui.config import edit  # YAML is paid for only when something changed

    try:
        settings = edit.settings(project_dir, [f"serve.{key}" for key in KEYS.values()])
        in_files = _from_yaml({key: settings[name].value for key in KEYS.values() if (name := f"serve.{key}") in settings})
    except (KnownError, TypeError, KeyError):
        return ()
    project_file, values, written = edit.writable_files(project_dir)[0], as_plain(wanted), []
    for field, key in KEYS.items():
        now = getattr(configured, field)
        if getattr(wanted, field) == now or getattr(in_files, field) != now:
            continue
        name = f"serve.{key}"
        before = settings.get(name)
        file = Path(before.file) if before is not None and before.file else project_file
        if not file.is_file():
            continue
        value = values[key]
        if isinstance(value, list):
            value = _as_written(value, before.value if before is not None and isinstance(before.value, list) else [])
        try:
            _write_key(project_dir, file, name, value)
        except KnownError:
            continue
        written.append(key)
    return tuple(written)


def _write_key(project_dir: Path, file: Path, key: str, value: Any) -> None:
    from aptui.config import edit

    if isinstance(value, list):
        edit.rewrite(project_dir, file, lambda text: edit.with_entries(text, str(file), key, value))
    else:
        edit.write(project_dir, file, key, value)


def _from_yaml(settings: dict[str, Any]) -> PeerSettings:
    dials = (Dial(each["id"], each["address"], each["port"], each.get("auto", True)) for each in settings.get("connections", ()))
    allowed, rejected = (tuple(dict.fromkeys(map(canonical, settings.get(key, ())))) for key in ("allowed", "rejected"))
    return PeerSettings(tuple(map(check_dial, dials)), allowed, rejected, settings.get("allow_list", True))


def _as_written(entries: Iterable[Any], before: Sequence[Any]) -> list[Any]:
    """Return entries in the words of the file, where it has them: `10.0.0.1/8` may mean `10.0.0.0/8`."""
    known = {_identity(entry): entry for entry in before}
    return [_in_words(entry, known.get(_identity(entry))) for entry in entries]


def _in_words(entry: Any, before: Any) -> Any:
    if not isinstance(entry, dict):
        return entry if before is None else before
    if entry["auto"] and (before is None or "auto" not in before):
        entry = {name: value for name, value in entry.items() if name != "auto"}
    return entry


def _identity(entry: Any) -> str:
    return str(entry["id"]).strip() if isinstance(entry, dict) else canonical(entry)


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
        newer = {name: getattr(configured, name) for name in KEYS if getattr(configured, name) != getattr(before, name)}
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


def file_stamp(file: Path) -> Stamp | None:
    """Return what changes when the file does; None = there is none."""
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def read_stored(file: Path, *, puts_aside: bool = True) -> PeerLists:
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
        return PeerLists(_from_form(form), configured=_from_form(form.configured) if form.configured is not None else None)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, KnownError) as error:
        aside = file.with_name(file.name + _DAMAGED)
        if puts_aside:
            with contextlib.suppress(OSError):
                os.replace(file, aside)
        where = f"; it is kept as '{aside.name}'" if puts_aside else ""
        return PeerLists(None, f"'{file}' was damaged ({error}){where}, and what the configuration says holds")


def change_settings(file: Path, otherwise: PeerSettings, order: PeerOrder, project_dir: Path | None = None) -> PeerChange:
    """Do what people said to what is in force.

    Args:
        otherwise: what the configuration says.
        project_dir: whose YAML is written; None = the file alone is.

    Raises:
        UserError: it cannot be done. HostError: the file cannot be written.
    """
    with _alone(file):
        settings = apply_order(read_stored(file).in_force(otherwise), order)
        written = write_back(project_dir, settings, otherwise) if project_dir is not None else ()
        fields = [field for field, key in KEYS.items() if key in written]
        configured = replace(otherwise, **{field: getattr(settings, field) for field in fields})
        if project_dir is not None and settings == configured:
            file.unlink(missing_ok=True)
        else:
            _write_stored(file, settings, configured)
    return PeerChange(settings, configured)


def overridden(settings: PeerSettings, configured: PeerSettings) -> dict[str, Any]:
    """Return {key of the configuration: what holds instead of its value}."""
    plain = as_plain(settings)
    return {f"serve.{key}": plain[key] for name, key in KEYS.items() if getattr(settings, name) != getattr(configured, name)}


def _from_form(form: _Lists) -> PeerSettings:
    dials = {row.id: check_dial(Dial(row.id, row.address, row.port, row.auto)) for row in form.connections}
    allowed, rejected = (tuple(dict.fromkeys(map(canonical, entries))) for entries in (form.allowed, form.rejected))
    return PeerSettings(tuple(dials.values()), allowed, rejected, form.allow_list)


def _write_stored(file: Path, settings: PeerSettings, configured: PeerSettings) -> None:
    form = {**as_plain(settings), "configured": as_plain(configured)}
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

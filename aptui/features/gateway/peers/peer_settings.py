"""Connection settings of the gateway (`PeerSettings`): read from the configuration, and changed by users of the screen.

A change is written into the YAML file that sets the key. If that is not possible (the file is missing or read-only, or `--set` sets
the key), it is stored in a file below the cache, together with the configured settings at that time. If the configuration of a key
changes later, the configured value applies again. Settings that differ from the configuration are overrides. The screen and
`config --explain` and `doctor` show overrides and their file.

Tests: `tests/features/gateway/peers/test_peer_connections.py`, `tests/features/gateway/peers/test_peer_lists.py`.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from aptui.config.dirs import OWN_FOLDER
from aptui.shared.connections.addresses import apply_order, canonical, check_dial
from aptui.shared.connections.peers import PeerOrder, PeerSettings
from aptui.shared.errors import HostError, KnownError
from aptui.shared.files.replacing import PRIVATE, lock_file, read_regular, replace_bytes
from aptui.shared.forms import prepare_form

if TYPE_CHECKING:
    from aptui.config.settings import GatewaySettings

KEYS = dict(zip(PeerSettings.__struct_fields__, PeerSettings.__struct_encode_fields__, strict=True))
"""{field of `PeerSettings`: the key below `serve:` in the configuration}."""
PLACE = Path(OWN_FOLDER, "connections.json")
"""Path of the file with the stored settings, relative to the cache folder."""
_DAMAGED = ".damaged"


def read_peer_settings(serve: GatewaySettings) -> PeerSettings:
    """Return the configured settings.

    Raises:
        UserError: an entry of a list, or a connection, is invalid.
    """
    return _normalize(PeerSettings(serve.connections, serve.allowed, serve.rejected, serve.has_allow_list))


def _normalize(settings: PeerSettings) -> PeerSettings:
    """Return settings in which all entries are canonical, and no entry and no connection id is repeated."""
    allowed, rejected = (tuple(dict.fromkeys(map(canonical, entries))) for entries in (settings.allowed, settings.rejected))
    dials = {dial.id: dial for dial in map(check_dial, settings.connections)}
    return PeerSettings(tuple(dials.values()), allowed, rejected, settings.has_allow_list)


# ------------------------------------------------------------------------------------------------------------- stored file


class PeerLists(Struct, frozen=True):
    """The stored settings.

    Args:
        settings: the stored settings; None = nothing is stored, and the configuration applies.
        trouble: why the file could not be read, "" = no error.
        configured: the configured settings when the file was written, None = unknown.
    """

    settings: PeerSettings | None
    trouble: str = ""
    configured: PeerSettings | None = None

    def effective_settings(self, configured: PeerSettings) -> PeerSettings:
        """Return the stored settings, but with the configured value of each key whose configuration was changed later."""
        if self.settings is None:
            return configured
        before = self.configured if self.configured is not None else configured
        newer = {name: getattr(configured, name) for name in KEYS if getattr(configured, name) != getattr(before, name)}
        return replace(self.settings, **newer)


class PeerChange(Struct, frozen=True):
    """The effective and the configured settings after a change."""

    settings: PeerSettings
    configured: PeerSettings


class _Stored(PeerSettings, frozen=True):
    """The content of the stored file: the effective settings, and `configured`, the settings in YAML when the file was written."""

    configured: PeerSettings | None = None


def as_plain(settings: PeerSettings) -> dict[str, Any]:
    """Return the settings as a dictionary. The keys are those below `serve` in aptui.yaml."""
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(settings))
    return plain


def read_stored(file: Path, *, puts_aside: bool = True) -> PeerLists:
    """Return the stored settings.

    Args:
        puts_aside: rename a damaged file, so that its content is not lost.
    """
    try:
        data = read_regular(file)
    except FileNotFoundError:
        return PeerLists(None)
    except OSError as error:
        return PeerLists(None, f"'{file}' cannot be read: {error.strerror}")
    try:
        stored = msgspec.json.decode(data, type=prepare_form(_Stored))
        return PeerLists(_normalize(stored), configured=_normalize(stored.configured) if stored.configured is not None else None)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, KnownError) as error:
        aside = file.with_name(file.name + _DAMAGED)
        if puts_aside:
            with contextlib.suppress(OSError):
                os.replace(file, aside)
        where = f"; it was renamed to '{aside.name}'" if puts_aside else ""
        return PeerLists(None, f"'{file}' was damaged ({error}){where}; the settings of aptui.yaml apply")


def change_settings(file: Path, configured: PeerSettings, order: PeerOrder, project_dir: Path | None = None) -> PeerChange:
    """Change the effective settings by the `order` of a user, and store the result.

    Args:
        project_dir: project whose YAML files are written; None = only `file` is written.

    Raises:
        UserError: the order is not possible. HostError: the file cannot be written.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        lock = contextlib.ExitStack()
        lock.enter_context(lock_file(file))
    except OSError as error:
        raise HostError(
            f"'{file.parent}' cannot be written: {error.strerror}", hint="check the free space on its disk, and its permissions"
        ) from error
    with lock:
        settings = apply_order(read_stored(file).effective_settings(configured), order)
        written = write_back(project_dir, settings, configured) if project_dir is not None else ()
        configured = replace(configured, **{field: getattr(settings, field) for field, key in KEYS.items() if key in written})
        if project_dir is not None and settings == configured:
            file.unlink(missing_ok=True)
        else:
            form = {**as_plain(settings), "configured": as_plain(configured)}
            replace_bytes(file, json.dumps(form, indent=2).encode() + b"\n", mode=PRIVATE)
    return PeerChange(settings, configured)


def overridden(settings: PeerSettings, configured: PeerSettings) -> dict[str, Any]:
    """Return the effective values that differ from the configured values, as {key of the configuration: effective value}."""
    plain = as_plain(settings)
    return {f"serve.{key}": plain[key] for name, key in KEYS.items() if getattr(settings, name) != getattr(configured, name)}


# ------------------------------------------------------------------------------------------------------------- YAML files


def write_back(project_dir: Path, wanted: PeerSettings, configured: PeerSettings) -> tuple[str, ...]:
    """Write changed settings into the YAML files that set them, else into the project's file; return the written keys.

    A key is not written if the command line overrides the files, if its file cannot be written, or if the new value would not
    become effective.
    """
    from aptui.config import edit  # imported on demand: loading the YAML library is slow

    try:
        settings = edit.settings(project_dir, [f"serve.{key}" for key in KEYS.values()])
        found = {key: settings[name].value for key in KEYS.values() if (name := f"serve.{key}") in settings}
        in_files = _normalize(msgspec.convert(found, prepare_form(PeerSettings)))
    except (KnownError, msgspec.ValidationError):
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
        try:
            _write_key(project_dir, file, name, values[key], before.value if before is not None else None)
        except KnownError:
            continue
        written.append(key)
    return tuple(written)


def _write_key(project_dir: Path, file: Path, key: str, value: Any, before: Any) -> None:
    from aptui.config import edit

    if isinstance(value, list):
        entries = _as_written(value, before if isinstance(before, list) else [])
        edit.rewrite(project_dir, file, lambda text: edit.with_entries(text, str(file), key, entries))
    else:
        edit.write(project_dir, file, key, value)


def _as_written(entries: Iterable[Any], before: Sequence[Any]) -> list[Any]:
    """Return the entries to write. Entries that the file already has keep the file's spelling.

    For example, `10.0.0.1/8` is not changed to its canonical form `10.0.0.0/8`.
    """
    known = {_identity(entry): entry for entry in before}
    return [_spell(entry, known.get(_identity(entry))) for entry in entries]


def _spell(entry: Any, before: Any) -> Any:
    if not isinstance(entry, dict):
        return entry if before is None else before
    if entry["auto"] and (before is None or "auto" not in before):
        entry = {name: value for name, value in entry.items() if name != "auto"}
    return entry


def _identity(entry: Any) -> str:
    return str(entry["id"]).strip() if isinstance(entry, dict) else canonical(entry)

"""Who may connect, and whom the gateway dials, as the files of the configuration say it; and how people's changes get into them.

Tests: `tests/features/gateway/test_peer_lists.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aptui.shared.connections.addresses import canonical
from aptui.shared.connections.peer_rules import check_dial
from aptui.shared.connections.peers import Dial, PeerSettings
from aptui.shared.errors import KnownError

if TYPE_CHECKING:
    from aptui.config.sections.serve import GatewaySettings

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


def plain(settings: PeerSettings) -> dict[str, Any]:
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
        in_files = _settings({key: settings[name].value for key in KEYS.values() if (name := f"serve.{key}") in settings})
    except (KnownError, TypeError, KeyError):
        return ()
    project_file, values, written = edit.writable_files(project_dir)[0], plain(wanted), []
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
            _write(project_dir, file, name, value)
        except KnownError:
            continue
        written.append(key)
    return tuple(written)


def _write(project_dir: Path, file: Path, key: str, value: Any) -> None:
    from aptui.config import edit

    if isinstance(value, list):
        edit.rewrite(project_dir, file, lambda text: edit.with_entries(text, str(file), key, value))
    else:
        edit.write(project_dir, file, key, value)


def _settings(settings: dict[str, Any]) -> PeerSettings:
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

"""What `i` shows: project, engine, versions, watched roots, and where things lie; lines only.

Tests: `tests/tui/test_snapshots.py`.
"""

from __future__ import annotations

import os
import platform
from typing import TYPE_CHECKING

from aptui import __version__
from aptui.shared.sanitize import sanitize
from aptui.tui.frame.line import Part, Parts
from aptui.tui.frame.sheet import BREAK
from aptui.tui.widgets.cells import width_of, wrap
from aptui.tui.words import clock

if TYPE_CHECKING:
    from aptui.config.model import Config
    from aptui.shared.health import Health
    from aptui.tui.data.session import Session

_WIDTH = 18
ENGINE_ROOT = "Engine root"
"""What is called so stands with the project."""


def info_lines(session: Session, config: Config | None, more: list[tuple[str, str]], width: int = 200) -> list[Parts]:
    """Return the entries of the info sheet; `more` are rows of the pane and the app. No line is wider than `width`."""
    project_dir = str(config.project_dir) if config else ""
    engine = session.engine
    roots = [row for row in more if row[0] == ENGINE_ROOT]
    rows = [
        ("Project", f"{session.project_name}   {project_dir}"),
        *roots,
        ("Cache", str(session.cache_dir)),
        ("Engine", f"{session.state.value} since {clock(session.since_ms)}" if session.since_ms else session.state.value),
        ("", session.trouble),
        ("", f"pid {engine.pid}   version {engine.version}   started {clock(engine.started_ms)}" if engine.pid else ""),
        ("Socket", engine.socket),
        ("Ports", ", ".join(f"{name} {port}" for name, port in sorted(engine.ports.items()))),
        ("Gateway", f"{session.gateway.address}:{session.gateway.port}" if session.gateway is not None else ""),
        *(_places(config) if config else ()),
        ("aptui", f"{__version__}   Python {platform.python_version()}   pid {os.getpid()}"),
        ("Terminal", f"{os.environ.get('TERM', '')}   {'tmux' if os.environ.get('TMUX') else ''}"),
        *(row for row in more if row not in roots),
    ]
    lines = [_row(key, value) for key, value in rows if value.strip()]
    return [_fold_line(line, width) for line in ((), *lines, (), *_health_lines(session.latest_health))]


def _fold_line(line: Parts, width: int) -> Parts:
    """Return a row whose value goes on below itself where it is too long."""
    if not line:
        return line
    key, value = line
    first, *more = (value.text[start:end] for start, end in wrap(value.text, width - key.width))
    indent = Part(" " * key.width)
    return (key, Part(first, value.role), *(part for text in more for part in (BREAK, indent, Part(text, value.role))))


def _places(config: Config) -> list[tuple[str, str]]:
    """Return the scan folders in the order in which they override each other, and the types with `.meta` files."""
    rows: list[tuple[str, str]] = []
    found = (folder for folder in config.project.scan_folders if not folder.is_intermediate)
    folders = sorted(found, key=lambda folder: folder.order)
    orders = _even([str(folder.order) for folder in folders], is_right=True)
    names = _even([folder.name for folder in folders])
    for at, folder in enumerate(folders):
        only = f"   {', '.join(folder.platforms)}" if folder.platforms else ""
        flat = "" if folder.recursive else "   without its folders"
        title = f"Scan folders ({len(folders):,})" if not at else ""
        rows.append((title, f"{orders[at]}  {names[at]}   {folder.path}{only}{flat}"))
    if len(folders) > 1:
        rows += [("", "of two files with one path the earlier folder's counts;"), ("", "'aptui explain PATH' says which")]
    if config.project.metadata_types:
        wait = f"   a new source waits {config.meta_delay_ms:,} ms for one" if config.meta_delay_ms else ""
        rows.append(("Metadata", f"'.meta' files for {', '.join(config.project.metadata_types)}{wait}"))
    return rows


def _even(texts: list[str], *, is_right: bool = False) -> list[str]:
    """Return texts that are all as wide as the widest."""
    widest = max(map(width_of, texts), default=0)
    return [" " * (widest - width_of(text)) + text if is_right else text + " " * (widest - width_of(text)) for text in texts]


def _row(key: str, value: str, role: str = "value") -> Parts:
    return (Part(f" {key:<{_WIDTH}}", "key"), Part(sanitize(value), role))


def _health_lines(health: Health | None) -> list[Parts]:
    if health is None:
        return []
    title = f"Watched ({len(health.roots):,})"
    modes = _even([root.mode.value for root in health.roots])
    lines = [
        _row("" if at else title, f"{modes[at]}   {root.path}   {root.detail}".rstrip()) for at, root in enumerate(health.roots)
    ]
    troubles = [
        ("Workers", health.pool),
        ("Sandbox", health.sandbox),
        ("Disk", health.disk),
        ("Database", health.database),
        ("Configuration", health.configuration),
    ]
    troubles += [("Builder", f"{name}: {why}") for name, why in health.broken_builders] + [("Hold", hold) for hold in health.holds]
    return lines + [_row(key, value, "warning") for key, value in troubles if value]

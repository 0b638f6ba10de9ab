"""Writes the frame of the screen to the terminal within milliseconds, before Textual is imported.

This module imports only cheap modules.

Tests: `tests/tui/terminal/test_safety.py`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l\x1b[2J", "\x1b[?1049l\x1b[?25h"
_TABS = "1 Jobs  2 Assets  3 Logs  4 Conn  5 Builders  6 Cache  7 Tools"


def show(project_name: str) -> bool:
    """Write the frame if stderr, which Textual draws on, is a terminal; return whether it was written."""
    if os.environ.get("TERM", "dumb") in {"", "dumb"} or os.environ.get("ACCESSIBLE", "0") not in {"", "0"}:
        return False
    try:
        if not os.isatty(2):
            return False
        width, height = os.get_terminal_size(2)
        os.write(2, (_ENTER + frame(project_name, width or 80, height or 24)).encode("utf-8", "replace"))
    except OSError:
        return False
    return True


def name_of_cache(path: str) -> str:
    """Return the name of a project that has only a cache: the cache folder's name, or if that is "cache", the name of its parent.

    Args:
        path: absolute path of the cache or its database.
    """
    folder = os.path.dirname(path) if path.endswith(".sqlite") else path
    above = os.path.basename(os.path.dirname(folder))
    return above if os.path.basename(folder).lower() == "cache" and above else os.path.basename(folder)


def hide() -> None:
    """Leave the alternate screen that `show` entered; called for errors before the app runs."""
    if os.environ.get("TERM", "dumb") in {"", "dumb"}:
        return
    try:
        if os.isatty(2):
            os.write(2, _LEAVE.encode())
    except OSError:
        pass  # the terminal no longer exists


def frame(project_name: str, width: int, height: int) -> str:
    """Return the frame as text with cursor moves.

    The project's name comes from the command line, so it is made safe here.
    """
    is_unicode = shows_utf8(os.environ)
    name = "".join(
        character if character.isprintable() and (is_unicode or character.isascii()) else "?" for character in project_name
    )
    rule = ("─" if is_unicode else "-") * max(0, width - 2)
    lines = {1: f" aptui  {name}   opening"}
    if height >= 10:
        # The horizontal line at the bottom is left out: it takes half a kilobyte if the terminal cannot repeat characters, and this
        # ability is not known yet.
        lines |= {2: f" {_TABS}", 3: f" {rule}"}
    return "".join(f"\x1b[{row};1H{text[:width]}" for row, text in lines.items())


def shows_utf8(environ: Mapping[str, str]) -> bool:
    """Return whether a terminal of this environment shows more than ASCII; `APTUI_GLYPHS=ascii|utf8` decides.

    An unset locale is treated as UTF-8: Python turns it into C.UTF-8 (PEP 538), and terminals without UTF-8 are rare.
    """
    wanted = environ.get("APTUI_GLYPHS", "").lower()
    if wanted in {"ascii", "utf8"}:
        return wanted == "utf8"
    for name in ("LC_ALL", "LC_CTYPE", "LANG"):
        if value := environ.get(name, ""):
            return "utf8" in value.lower().replace("-", "")
    return True

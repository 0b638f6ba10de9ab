"""Files of assets as paths: made of what the database says, copied as the bytes they are, opened in other programs.

Nothing is drawn here.

Tests: `tests/tui/screens/assets/test_pane.py`.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping

from aptui.core.paths import from_text
from aptui.shared.sanitize import sanitize

_LONE_BYTES = re.compile("[\udc80-\udcff]")


def native(*parts: str) -> str:
    """Return a path as Python's file functions want it, of parts as the database has them."""
    return os.fsdecode(os.path.join(*(from_text(part) for part in parts)))


def is_plain(text: str) -> bool:
    """Return whether a path can be pasted into a terminal: it holds no control character; bytes that are no UTF-8 do no harm."""
    rest = _LONE_BYTES.sub("", text)
    return sanitize(rest) == rest


def pager(environ: Mapping[str, str]) -> list[str]:
    """Return the command that shows a file."""
    return _command(environ.get("PAGER", ""), "less")


def editor(environ: Mapping[str, str]) -> list[str]:
    """Return the command that edits a file."""
    return _command(environ.get("VISUAL", "") or environ.get("EDITOR", ""), "vi")


def folder_viewer(environ: Mapping[str, str]) -> tuple[list[str], bool]:
    """Return the command that shows a folder, and whether it has a window of its own; else it is a shell that begins there."""
    opener = shutil.which("xdg-open") if environ.get("DISPLAY") or environ.get("WAYLAND_DISPLAY") else None
    return ([opener], True) if opener else (_command(environ.get("SHELL", ""), "sh"), False)


def _command(wanted: str, otherwise: str) -> list[str]:
    try:
        words = shlex.split(wanted)
    except ValueError:  # an open quote
        words = []
    return words or [otherwise]


def run_beside(command: list[str]) -> str:
    """Start a command with a window of its own; return what went wrong."""
    try:
        subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
    except OSError as error:
        return f"'{command[0]}' cannot be started: {(error.strerror or 'no reason given').lower()}"
    return ""

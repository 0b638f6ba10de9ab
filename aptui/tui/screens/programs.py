"""Files of assets as paths: made of what the database says, copied as the bytes they are, opened in other programs.

Nothing is drawn here.

Tests: `tests/tui/screens/assets/test_assets_pane.py`.
"""

from __future__ import annotations

import os
import re
import shlex
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


def _command(wanted: str, otherwise: str) -> list[str]:
    try:
        words = shlex.split(wanted)
    except ValueError:  # an open quote
        words = []
    return words or [otherwise]

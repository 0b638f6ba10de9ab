"""Passes texts and files from a screen to other programs: paths to the system, texts to the clipboard, files to pager and editor.

Tests: `tests/tui/screens/assets/test_assets_pane.py`.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from aptui.core.paths import from_text
from aptui.shared.printing import sanitize
from aptui.tui.widgets.menu import Menu, MenuItem

if TYPE_CHECKING:
    from aptui.tui.pane import Shell
    from aptui.tui.widgets.table import KeyValue

Copy = tuple[str, str, Callable[[], str]]
"""(label, keys, function that returns the text) of an entry in a menu of copies."""
_LONE_BYTES = re.compile("[\udc80-\udcff]")


def native(*parts: str) -> str:
    """Join parts of a path from the database into the form that Python's file functions accept."""
    return os.fsdecode(os.path.join(*(from_text(part) for part in parts)))


def offer_copies(shell: Shell, copies: Sequence[Copy], place: tuple[int, int] | None = None) -> None:
    """Open a menu of texts and copy the text that the user chooses."""
    choices = [(MenuItem(label, label, keys), lambda text=text: shell.copy_text(text())) for label, keys, text in copies]
    Menu.run_one(shell.app, choices, title="Copy", place=place)


def offer_pair(shell: Shell, panel: KeyValue, place: tuple[int, int] | None = None) -> bool:
    """Open a menu to copy a key, a value or all rows of a panel; return False if the panel is empty or not focused."""
    pair = panel.current() if panel.has_focus else None
    if pair is not None:
        every = "\n".join(f"[{key}] = {value}" for key, value in panel.pairs)
        offer_copies(shell, [("Value", "y,v", lambda: pair[1]), ("Key", "k", lambda: pair[0]), ("All", "a", lambda: every)], place)
    return pair is not None


def copy_paths(shell: Shell, paths: Sequence[str]) -> None:
    """Copy paths byte for byte. If any path has control characters, copy safe forms of all paths (`sanitize_lines`)."""
    names = [native(path) for path in paths if path]
    if not names:
        shell.show_toast("there is nothing to copy", "warning")
        return
    # Invalid bytes are left out of the check, because they are harmless in a terminal.
    plain = [_LONE_BYTES.sub("", name) for name in names]
    shell.copy_text("\n".join(names), raw=all(sanitize(name) == name for name in plain))


def pager() -> list[str]:
    """Return the command that shows a file."""
    return _command(os.environ.get("PAGER", ""), "less")


def editor() -> list[str]:
    """Return the command that edits a file."""
    return _command(os.environ.get("VISUAL", "") or os.environ.get("EDITOR", ""), "vi")


def _command(wanted: str, otherwise: str) -> list[str]:
    try:
        words = shlex.split(wanted)
    except ValueError:  # the environment variable has an unclosed quote: use the default command
        words = []
    return words or [otherwise]

"""Copying to the terminal people sit at, and `Ctrl+C`, which copies what is selected and leaves when nothing is.

Tests: `tests/tui/test_shell.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from aptui.shared.printing import count
from aptui.shared.sanitize import sanitize
from aptui.tui.actions import Actions
from aptui.tui.preferences.keymap import show_key
from aptui.tui.words import shorten

if TYPE_CHECKING:
    from textual.screen import Screen

    from aptui.tui.terminal.clipboard import Clipboard

_SNIPPET, _LEAST_SNIPPET, _AROUND = 36, 8, 6
"""So many cells of what was copied are said, fewer where the line is short."""
_TWICE_S = 2.0
"""Within so long a second `Ctrl+C` leaves."""


class CopyDialogue(Protocol):
    """What this needs of the app."""

    @property
    def screen(self) -> Screen[Any]:
        """The screen on which something may be selected."""

    def exit(self) -> None:
        """Leave."""

    def show_toast(self, text: str) -> None:
        """Show a message."""

    def in_ui(self, do: Callable[..., object], *arguments: Any) -> None:
        """Have `do` called in the app's thread."""

    def actions_here(self) -> list[tuple[str, str, str]]:
        """Return (key, id, what it does) of all actions with a key."""


class Copying(Actions):
    """Copies, and says what was copied and which way it went."""

    def __init__(self, app: CopyDialogue, clips: Clipboard) -> None:
        self._app, self._clips = app, clips
        self._ctrl_c_at = -_TWICE_S

    def copy(self, text: str, *, raw: bool = False) -> None:
        """Copy text; `raw`: as it is."""
        first, _, rest = text.strip("\n").partition("\n")
        more = f" and {count(1 + rest.count(chr(10)), 'line')} more" if rest else ""

        def say(way: str) -> None:
            rest = f"{more} · {way}"
            free_width = self._app.screen.size.width - _AROUND - len("copied ") - len(rest)
            self._app.show_toast(f"copied {shorten(sanitize(first), max(_LEAST_SNIPPET, min(_SNIPPET, free_width)))}{rest}")

        self._clips.copy_soon(text, lambda copied: self._app.in_ui(say, copied.toast()), raw=raw)

    def action_copy_or_quit(self) -> None:
        """Copy what is selected; with nothing selected, the second time within two seconds leaves."""
        app = self._app
        if selected := app.screen.get_selected_text():
            self.copy(selected)
            app.screen.clear_selection()
            return
        now = time.monotonic()
        if now - self._ctrl_c_at < _TWICE_S:
            app.exit()
            return
        self._ctrl_c_at = now
        key = next((key for key, name, _ in app.actions_here() if name == "app.detach"), "")
        leaves = f"'{show_key(key)}' leaves, and so does ^C again" if key else "^C again leaves"
        app.show_toast(f"{leaves}; the engine goes on")

"""The keys of people: read from their file, handed to Textual, and read again when they ask. What a key waits for is `key_gate`'s.

Tests: `tests/tui/screens/tools/test_pane.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from textual.app import App

from aptui.tui.actions import Actions
from aptui.tui.preferences.keymap import load_keymap


class KeyBindings(Actions):
    """The keymap in force, as `keymap`.

    Args:
        app: has the bindings.
        show_toast: shows a message.
    """

    def __init__(self, app: App[Any], show_toast: Callable[[str, str, float], object]) -> None:
        self._app, self._show_toast = app, show_toast
        self.keymap = load_keymap()

    def apply(self) -> None:
        """Have Textual take the keys."""
        self._app.set_keymap(self.keymap.overrides)

    def report_mistakes(self) -> None:
        """Say what is wrong with the file."""
        for mistake in self.keymap.mistakes:
            self._show_toast(str(mistake), "warning", 15)

    def action_press(self, key: str) -> None:
        """Do as if `key` were pressed: for clicks on what stands for one."""
        self._app.simulate_key(key)

    def action_reload(self) -> None:
        """Read the file again."""
        self.keymap = load_keymap()
        self.apply()
        self.report_mistakes()
        if not self.keymap.mistakes:
            self._show_toast("keys read", "information", 5)

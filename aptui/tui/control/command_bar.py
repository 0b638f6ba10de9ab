"""The last line of the screen: hints, or the `:` line. What a command does stands in `commands`.

Tests: `tests/tui/test_foreign_database.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from textual.app import App

from aptui.tui.actions import Actions
from aptui.tui.frame.commandline import CommandLine
from aptui.tui.frame.hints import Hints


class CommandBar(Actions):
    """Shows one of the two.

    Args:
        remember_focus: notes where the focus is before a line takes it.
        refocus: puts it on what is in sight.
    """

    def __init__(self, app: App[Any], remember_focus: Callable[[], object], refocus: Callable[[], object]) -> None:
        self._app, self._remember_focus, self._refocus = app, remember_focus, refocus

    def action_open(self, text: str = "") -> None:
        """Open the `:` line."""
        self._remember_focus()
        self._app.query_one(Hints).display = False
        self._app.query_one(CommandLine).start(text)

    def close(self) -> None:
        """Go back to the hints."""
        self._app.query_one(CommandLine).display = False
        self._app.query_one(Hints).display = True
        self._refocus()

    def update_hints(self) -> None:
        """Draw the hints again: other keys are active."""
        if not self._app.screen_stack:
            return  # Textual signals this at the end, too, when nothing is shown any more
        for hints in self._app.screen.query(Hints):
            hints.refresh_if_changed()

"""The sheets of the frame: help, the key tester, facts about the project; what stands in them is `help`'s and `info`'s.

Tests: `tests/tui/test_shell.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from aptui.tui.actions import Actions
from aptui.tui.frame.help import KeyTester, help_lines
from aptui.tui.frame.info import info_lines
from aptui.tui.frame.toasts import Toasts

if TYPE_CHECKING:
    from textual.app import App
    from textual.screen import Screen

    from aptui.config.model import Config
    from aptui.tui.data.session import Session
    from aptui.tui.frame.commandline import Command
    from aptui.tui.preferences.keymap import Keymap


_MARGINS = 3


class Stage(Protocol):
    """Where sheets are shown in the place of the pane."""

    sheet: str

    @property
    def title(self) -> str:
        """The title of the pane."""

    @property
    def status(self) -> str:
        """A few words about what the pane shows."""

    def open_sheet(self, name: str, lines: Sequence[Any] | None = None) -> None:
        """Show a sheet in the place of the pane."""


class Sheets(Actions):
    """Opens them.

    Args:
        keymap: returns the one in force.
        commands: returns what can be said on the `:` line now.
        facts: returns what the app knows of itself, as (name, value).
    """

    def __init__(
        self, app: App[Any], stage: Stage, keymap: Callable[[], Keymap], commands: Callable[[], Sequence[Command]],
        session: Session, config: Config | None, facts: Callable[[], Sequence[tuple[str, str]]],
    ) -> None:  # fmt: skip
        self._app, self._stage, self._keymap, self._commands = app, stage, keymap, commands
        self._session, self._config, self._facts = session, config, facts

    def show(self, lines: Sequence[Any]) -> None:
        """Show lines, parts of which are safe text, in the place of the pane until `Esc`."""
        self._stage.open_sheet("sheet-info", lines)

    def action_help(self) -> None:
        """Show keys and commands of the place we are at."""
        if self._stage.sheet != "sheet-help":
            width = self._app.size.width - _MARGINS
            lines = help_lines(self._app.screen.active_bindings, self._keymap(), self._commands(), self._stage.title, width)
            self._stage.open_sheet("sheet-help", lines)

    def action_keys(self) -> None:
        """Say of each key what it is called and does."""
        active = self._app.screen.active_bindings
        self._stage.open_sheet("sheet-keys")
        self._app.query_one(KeyTester).start(active, self._keymap())

    def action_messages(self) -> None:
        """Show what was said."""
        self._stage.open_sheet("sheet-messages", self._app.query_one(Toasts).history())

    def action_info(self) -> None:
        """Show project, engine, versions."""
        here = [("Here", self._stage.status)] if self._stage.status else []
        lines = info_lines(self._session, self._config, [*self._facts(), *here], self._app.size.width - _MARGINS)
        self._stage.open_sheet("sheet-info", lines)


def actions_of(screen: Screen[Any], keymap: Keymap) -> list[tuple[str, str, str]]:
    """Return (key, id, what it does) of all actions that have a key on a screen."""
    found: dict[str, tuple[str, str, str]] = {}
    for key, (_node, binding, is_enabled, _tooltip) in screen.active_bindings.items():
        does = keymap.does(binding.id or "") or binding.description
        if is_enabled and does and binding.id:
            found.setdefault(binding.id, (key, binding.id, does))
    return list(found.values())

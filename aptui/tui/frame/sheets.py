"""The sheets of the frame: help, the key tester, facts about the project; what stands in them is `help`'s and `info`'s.

Tests: `tests/tui/test_shell.py`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from rich.cells import cell_len
from textual.strip import Strip
from textual.timer import Timer
from textual.widget import Widget

from aptui.shared.sanitize import sanitize
from aptui.tui.actions import Actions
from aptui.tui.frame.help import KeyTester, help_lines
from aptui.tui.frame.info import info_lines
from aptui.tui.frame.line import Part, Parts, strip_of
from aptui.tui.words import clock, shorten

if TYPE_CHECKING:
    from textual.app import App
    from textual.screen import Screen

    from aptui.config.model import Config
    from aptui.tui.data.session import Session
    from aptui.tui.frame.commandline import Command
    from aptui.tui.preferences.keymap import Keymap


# Short messages at the lower right, on the rule above the hints: gone after some seconds, kept for `:messages`. Never markup.

_MOST, _MOST_REMEMBERED = 3, 200
_ROLES = {"information": "info", "warning": "warning", "error": "error"}
_GLYPHS = {"information": "·", "warning": "!", "error": "✗"}


class Toasts(Widget):
    """The messages that are to be seen now; one timer while there are any, none else."""

    DEFAULT_CSS = """
    Toasts { layer: overlay; dock: bottom; width: 1fr; height: 1; margin: 0 0 1 0; display: none; align-horizontal: right; }
    """
    ALLOW_SELECT: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__(id="toasts")
        self.remembered: deque[tuple[int, str, str]] = deque(maxlen=_MOST_REMEMBERED)
        self._shown: list[tuple[float, str, str]] = []
        self._timer: Timer | None = None

    def show_toast(self, text: str, severity: str = "information", seconds: float = 5.0) -> None:
        """Show one message; line breaks make several lines."""
        now = time.monotonic()
        free_width = max(10, self.app.size.width - 6)
        if severity == "information":  # one line, on the rule at the bottom; the newest replaces it
            self._shown = [each for each in self._shown if each[2].partition(" ")[0] != "information"]
        for line in text.splitlines():
            safe = sanitize(line)
            self.remembered.append((int(time.time() * 1000), safe, severity))
            self._shown += [
                (now + seconds, piece, severity if at == 0 else f"{severity} again")
                for at, piece in enumerate(wrap(safe, free_width)[:_MOST])
            ]
        self._draw()

    def _draw(self) -> None:
        """Drop what is over, show the rest, and come again when the next one is over."""
        now = time.monotonic()
        self._shown = [each for each in self._shown if each[0] > now][-_MOST:]
        if self._timer is not None:
            self._timer.stop()
            self._timer = None
        self.display = bool(self._shown)
        if self._shown:
            widest = max(cell_len(text) for _, text, _ in self._shown) + 4
            self.styles.height = len(self._shown)
            self.styles.width = min(widest, max(10, self.app.size.width - 2))
            self.styles.offset = (max(0, self.app.size.width - 1 - min(widest, max(10, self.app.size.width - 2))), 0)
            self._timer = self.set_timer(max(0.05, min(until for until, _, _ in self._shown) - now), self._draw)
            self.refresh()

    def render_line(self, y: int) -> Strip:
        """Return one message."""
        width = self.size.width
        if y >= len(self._shown):
            return Strip.blank(width, self.rich_style)
        _, text, severity = self._shown[y]
        kind, _, again = severity.partition(" ")
        role = _ROLES.get(kind, "info")
        parts: Parts = (Part("   " if again else f" {_GLYPHS.get(kind, '·')} ", role), Part(shorten(text, width - 4), role))
        return strip_of(parts, self, width, self.rich_style)

    def history(self) -> list[Parts]:
        """Return all messages that are kept, the latest first."""
        rows: list[Parts] = [
            (Part(f" {clock(time_ms)}  ", "muted"), Part(f"{_GLYPHS.get(severity, '·')} {text}", _ROLES.get(severity, "info")))
            for time_ms, text, severity in reversed(self.remembered)
        ]
        return rows or [(Part(" nothing was said yet", "muted"),)]


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

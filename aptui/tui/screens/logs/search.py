"""What the lines of the Logs screen are searched for, and the way of the cursor to the first hit.

Tests: `tests/tui/screens/logs/test_pane.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from aptui.tui.screens.logs.lines import LogPiece, RecordLines
from aptui.tui.widgets.filterbox import FilterBox
from aptui.tui.widgets.logpane import LogPane

if TYPE_CHECKING:
    from aptui.tui.pane import Shell


class LogsSearch:
    """The text in the box, and whether lines without a hit are hidden.

    Args:
        changed: called when something else is searched for.
        is_reading: returns whether that is still being read.
    """

    def __init__(
        self, shell: Shell, box: FilterBox, pane: LogPane, lines: RecordLines,
        changed: Callable[[], object], is_reading: Callable[[], bool],
    ) -> None:  # fmt: skip
        self._shell, self._box, self._pane, self._lines = shell, box, pane, lines
        self._changed, self._is_reading = changed, is_reading
        self.text, self.hits_only = "", False
        self._wants_hit = False

    def restore(self) -> None:
        """Take up what is remembered."""
        memory = self._shell.memory
        self.text, self.hits_only = memory.get("logs.filter", ""), memory.get("logs.hits_only", False)
        self._box.history.texts = memory.history("logs.filters")[::-1]
        if self.text:
            self._box.text, self._box.display = self.text, True

    def keep(self) -> None:
        """Remember it."""
        self._shell.memory.put("logs.filter", self.text)
        self._shell.memory.put("logs.hits_only", self.hits_only)

    def begin(self) -> None:
        """Type what to search for."""
        self._box.display = True
        self._box.begin()

    def turn_hits_only(self) -> None:
        """Show only lines with a hit, or all again."""
        if self.text:
            self.hits_only = not self.hits_only
            self._changed()
        else:
            self.begin()

    def take(self, event: FilterBox.Changed) -> None:
        """Search for what is typed; go to a hit when the line is left."""
        if isinstance(event, FilterBox.FilterLeft):
            self._settle(event)
        elif event.text != self.text:
            self.text = event.text
            self._box.show_count("")
            self._changed()

    def _settle(self, event: FilterBox.FilterLeft) -> None:
        self._box.display = bool(event.text)
        if event.is_remembered:
            self._shell.memory.remember("logs.filters", event.text)
        self._pane.focus()
        self._wants_hit = True
        if not self._is_reading():
            self.reach_hit()

    def clear(self) -> None:
        """Search for nothing."""
        self.text, self.hits_only = "", False
        self._box.text, self._box.display = "", False
        self._changed()

    def reach_hit(self) -> None:
        """Put the cursor on the nearest hit before it, else after it, if that is wanted."""
        if not self._wants_hit:
            return
        self._wants_hit = False
        pane = self._pane
        pane.refresh_source()
        if pane.cursor_key is not None and pane.cursor_key not in self._lines.hits:
            was = pane.cursor
            pane.action_hit(-1)
            if pane.cursor == was:
                pane.action_hit(1)

    def show_mistake(self, piece: LogPiece) -> None:
        """Say what of the text cannot be understood."""
        if piece.mistake is not None:
            self._box.show_mistake(getattr(piece.mistake, "column", 1) - 1, piece.mistake.what, piece.mistake.hint)

    def show_count(self, *, is_whole: bool) -> None:
        """Say how many lines have a hit."""
        if not self._box.display or self._box.query_one(".mistake").display:
            return
        if self._pane.source is not self._lines:
            self._box.show_count("too large to search here; 'o' opens the pager")
        elif self.text:
            self._box.show_count(f"{len(self._lines.hits):,} of {self._lines.line_count():,}{'' if is_whole else '…'}")
        else:
            self._box.show_count("")

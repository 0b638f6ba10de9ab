"""Copying from the Logs screen: what there is to copy of lines and of details, and the menu that asks.

Tests: `tests/tui/screens/logs/test_pane.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from aptui.store.logs.joblog import JobLogLine
from aptui.tui.background import run_in_background
from aptui.tui.screens.jobs.texts import details, log_text
from aptui.tui.screens.logs.records import LogRecords
from aptui.tui.widgets.keyvalue import KeyValue
from aptui.tui.widgets.logpane import LogPane
from aptui.tui.widgets.menu import Menu, MenuItem

if TYPE_CHECKING:
    from aptui.tui.pane import Shell


class LogCopying:
    """Asks what to copy, and copies it.

    Args:
        path: returns where the log lies.
    """

    def __init__(self, shell: Shell, pane: LogPane, panel: KeyValue, records: LogRecords, path: Callable[[], Path | None]) -> None:
        self._shell, self._pane, self._panel, self._records, self._path = shell, pane, panel, records, path

    def ask(self) -> None:
        """Choose what to copy: of the details where the focus is there, else of the lines."""
        if self._panel.has_focus and self._panel.current() is not None:
            items = [MenuItem("key", "Key", "k"), MenuItem("value", "Value", "y,v"), MenuItem("values", "All values", "a")]
        else:
            marked = len(self._pane.list_selected_keys())
            what = f"{marked:,} lines" if marked > 1 else "Line"
            items = [
                MenuItem("line", what, "y"), MenuItem("detailed", f"{what} with details", "d"),
                MenuItem("all", "All lines with details", "a", self._records.knows(self._pane.source)),
                MenuItem("path", "Path of the log", "p", self._path() is not None),
            ]  # fmt: skip
        Menu.ask(self._shell.app, items, self._copy, title="Copy")

    def _copy(self, what: str | None) -> None:
        pair, pairs = self._panel.current(), self._panel.pairs
        texts: dict[str, Callable[[], str]] = {
            "key": lambda: pair[0] if pair else "",
            "value": lambda: pair[1] if pair else "",
            "values": lambda: "\n".join(details(pairs)),
            "path": lambda: str(self._path()),
        }
        if what in texts:
            self._shell.copy_text(texts[what]())
        elif what is not None:
            self._copy_lines(is_all=what == "all", has_details=what != "line")

    def _copy_lines(self, *, is_all: bool, has_details: bool) -> None:
        pane = self._pane
        keys = [pane.key_of(at) for at in range(pane.count_rows())] if is_all else pane.list_selected_keys()
        read, is_for_threads = self._records.reader(pane.source)
        if is_for_threads:
            run_in_background("aptui-copy", self._copy_records, keys, read, has_details)
        else:  # they are few
            self._copy_records(keys, read, has_details)

    def _copy_records(self, keys: Sequence[int], read: Callable[[int], JobLogLine | None], has_details: bool) -> None:
        found = [record for key in keys if (record := read(key)) is not None]
        self._shell.in_ui(self._shell.copy_text, log_text(found, has_details=has_details))

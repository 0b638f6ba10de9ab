"""What is searched for in a job's log: as people type, in a thread, and again when another log is shown.

What a search finds is decided in `lines`.

Tests: `tests/tui/screens/jobs/test_pane.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from aptui.shared.errors import KnownError
from aptui.shared.sanitize import sanitize
from aptui.store.jobs.filter import FilterError
from aptui.store.logs.joblog import JobLogLine as Record
from aptui.tui.frame.line import Part
from aptui.tui.screens.jobs.log.lines import EventLines, LineSearch, LogColumns, search
from aptui.tui.widgets.filterbox import FilterBox
from aptui.tui.widgets.logpane import LogPane

if TYPE_CHECKING:
    from aptui.tui.pane import Shell


class SearchedLog(Protocol):
    """What this needs of the lower panes."""

    @property
    def shell(self) -> Shell:
        """The app."""

    @property
    def is_mounted(self) -> bool:
        """Whether they are on the screen still."""

    @property
    def log_pane(self) -> LogPane:
        """The lines."""

    @property
    def search_box(self) -> FilterBox:
        """The line to type in."""

    @property
    def records(self) -> Sequence[Record]:
        """The lines of the log, as they were read."""

    def show_title(self) -> None:
        """Draw the title again."""

    def run_worker(self, work: Callable[[], Any], *, thread: bool, exclusive: bool, group: str) -> object:
        """Run a function in a thread."""


class LogSearch:
    """The search in the log of one job after the other; its text stays."""

    def __init__(self, log: SearchedLog) -> None:
        self._log = log
        self._columns: LogColumns | None = None
        self._found: LineSearch | None = None
        self._number = 0
        self.text = ""
        self._shows_only_hits = False

    def begin(self) -> None:
        """Ask what to search for."""
        box = self._log.search_box
        box.disabled, box.display = False, True
        box.text = self.text
        box.begin()

    def leave(self, *, stays: bool) -> None:
        """Go to the first hit, if there is one."""
        box, pane = self._log.search_box, self._log.log_pane
        box.display, box.disabled = False, True
        pane.focus()
        if stays and self._found and self._found.hits and pane.cursor_key not in self._found.hits:
            pane.action_hit(1)

    def turn_only_hits(self) -> None:
        """Show the lines with a hit alone, or all again."""
        self._shows_only_hits = not self._shows_only_hits
        self._keep_hits()

    def forget(self, *, is_other: bool) -> None:
        """The log has more lines, or is another one: before it is shown."""
        self._columns = None
        if is_other:
            self._found = None
            self._log.log_pane.set_search(None)

    def again(self) -> None:
        """Search in what is shown now."""
        if self.text:
            self.search(self.text)

    def search(self, text: str) -> None:
        """Search for a text, "" = for nothing any more."""
        self.text, self._number = text, self._number + 1
        if not text:
            self._take(self._number, None)
            return
        work = partial(self._search_in, self._number, text, self._columns, self._log.records)
        self._log.run_worker(work, thread=True, exclusive=True, group="search")

    def _search_in(self, number: int, text: str, columns: LogColumns | None, records: Sequence[Record]) -> None:
        """Search, in a thread."""
        answer: LineSearch | KnownError
        if columns is None:
            columns = self._columns = LogColumns(records)
        try:
            answer = search(text, columns)
        except KnownError as error:
            answer = error
        self._log.shell.in_ui(self._take, number, answer)

    def _take(self, number: int, answer: LineSearch | KnownError | None) -> None:
        if number != self._number or not self._log.is_mounted:
            return
        box = self._log.search_box
        if isinstance(answer, KnownError):
            column = answer.column - 1 if isinstance(answer, FilterError) else 0
            box.show_mistake(column, answer.what, answer.hint)
            return
        self._found = answer
        count = len(answer.hits) if answer else 0
        box.show_count(f"{count:,} hit{'' if count == 1 else 's'}" if answer else "")
        self._log.log_pane.set_search(answer.spans if answer else None, answer.hits if answer else ())
        self._keep_hits()

    def _keep_hits(self) -> None:
        source = self._log.log_pane.source
        if isinstance(source, EventLines):
            source.keep(self._found.hits if self._found and self._shows_only_hits else None)
            self._log.log_pane.refresh_source()
        self._log.show_title()

    def parts(self) -> list[Part]:
        """Return what the title says of it."""
        if not self.text:
            return []
        found = self._found
        hits = f" {len(found.hits):,} hit{'' if len(found.hits) == 1 else 's'}" if found else ""
        return [
            Part(f"/ {sanitize(self.text)}", "accent"),
            Part(f"{hits}{', no other lines' if self._shows_only_hits else ''}  ", "muted"),
        ]

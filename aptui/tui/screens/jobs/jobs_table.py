"""The upper pane: tables of jobs and of failures by cause, strip of running jobs, the user's filter, order and columns."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar

from msgspec.structs import replace
from rich.cells import cell_len
from textual import events
from textual.binding import Binding, BindingType

from aptui.shared.errors import KnownError
from aptui.store.jobs.filter import FilterError, parse, with_statuses
from aptui.store.queries.reader import open_reader
from aptui.store.queries.session_history import OutcomeChange, first_failed
from aptui.tui.background import LatestOnly
from aptui.tui.data.job_infos import SIGN_CELLS, CauseGroup, short_error
from aptui.tui.data.jobs_store import JobsStore
from aptui.tui.data.session import SessionState
from aptui.tui.frame.commandline import Command
from aptui.tui.frame.line import Line, Part, Parts, spread, strip_of
from aptui.tui.screens.jobs.job_texts import commit_text
from aptui.tui.screens.jobs.selection import JobsView, read_changes
from aptui.tui.terminal.safety import glyph, terminal_facts
from aptui.tui.widgets.cells import Cell, fit
from aptui.tui.widgets.filterbox import FilterBox
from aptui.tui.widgets.listing import Listing
from aptui.tui.widgets.menu import Checks, Menu, MenuItem
from aptui.tui.widgets.table import GAP, Column, Table
from aptui.tui.words import ROLES, brief, moment_text

if TYPE_CHECKING:
    from textual.strip import Strip


_RAN_OR_FAILED = "Why it ran, or failed"
COLUMNS = (
    Column("status", "Status", 13),
    Column("source", "Source", 0, 28, weight=3),
    Column("completed", "Completed", 12, drop_rank=2),
    Column("platform", "Platform", 8, drop_rank=3),
    Column("key", "Job key", 15, drop_rank=6),
    Column("duration", "Duration", 8, align="right", drop_rank=5),
    Column("reason", _RAN_OR_FAILED, 0, len(_RAN_OR_FAILED), drop_rank=4, weight=3, is_prose=True),
    Column("builder", "Builder", 12, drop_rank=1),
    Column("folder", "Scan folder", 12, drop_rank=1),
    Column("warnings", "Warnings", 10, align="right", drop_rank=1),
    Column("errors", "Errors", 8, align="right", drop_rank=1),
    Column("number", "Number", 9, align="right", drop_rank=1),
)
"""All columns of the Jobs table.

Narrow screens drop the columns with the highest `drop_rank` first. Columns that the user added are dropped last; status and source
are never dropped.
"""
USUAL = ("status", "source", "completed", "platform", "key", "duration", "reason")
"""Columns that are shown by default."""
DESCENDING = frozenset({"completed", "duration", "warnings", "errors", "number"})
"""Columns that are sorted with the largest value first."""
_YIELDS, _SHORT_REASON = 10, 14
_AFTER_DURATION = 6
"""`drop_rank` of the reason column while no job has failed: a narrow screen omits reasons before it omits durations."""
_STEP = 4
"""Width by which a column grows at a time (cells)."""
_WIDEST = {"status": 25, "platform": 16, "key": 16}
"""{id of a column whose width follows its texts: its maximum width in cells}."""
FAILED_FIRST = "failed"
"""The default order: failed jobs, then jobs with errors, then jobs with warnings, then all other jobs."""
_CAUSES = (
    Column("count", "Jobs", 7, align="right"),
    Column("cause", "Cause", 0, 24, weight=3, is_prose=True),
    Column("first", "First source", 0, 18, drop_rank=2, weight=2),
    Column("since", "Failing since", 0, 24, drop_rank=1, is_prose=True),
)


def choose_columns(
    ids: Sequence[str], *, has_failed: bool = True, alike: Collection[str] = (), needs: Mapping[str, int] | None = None
) -> tuple[Column, ...]:
    """Return the source column and the columns with these ids, in the order of `COLUMNS`; the default columns if no id is known.

    Args:
        has_failed: whether the column of reasons has errors to show. If False, this column gets only the width that it needs.
        alike: columns with the same value for all jobs. The default columns among them are dropped early, except the column of
            reasons while it shows errors.
        needs: {column id: width of its texts in cells}.
    """
    wanted = set(ids) & {column.id for column in COLUMNS} or set(USUAL)
    cells = needs or {}
    columns = tuple(_fit_column(column, cells.get(column.id, 0)) for column in COLUMNS if column.id in wanted | {"source"})
    may_yield = set(USUAL) & set(alike) - {"reason"}
    columns = tuple(replace(each, drop_rank=_YIELDS) if each.id in may_yield else each for each in columns)
    if has_failed:
        return columns
    has_one_reason = "reason" in alike
    rank = _YIELDS if has_one_reason else _AFTER_DURATION
    quiet = Column("reason", "Why it ran", 0 if not has_one_reason else _SHORT_REASON, _SHORT_REASON, drop_rank=rank, is_prose=True)
    return tuple(replace(quiet, needs=column.needs) if column.id == "reason" else column for column in columns)


def _fit_column(column: Column, needs: int) -> Column:
    """Return a column that is as wide as its texts, if the width of the texts is known."""
    if not needs:
        return column
    if not column.width:
        return replace(column, needs=max(column.min_width, -(-needs // _STEP) * _STEP))
    if column.id in _WIDEST:
        least = column.width if column.id == "status" else len(column.title)
        return replace(column, width=min(max(needs, least), _WIDEST[column.id]))
    return column


class JobsTableView(Table):
    """The Jobs table. The store measures the widths that the table's columns need, because the store knows all rows."""

    fits_texts: ClassVar[bool] = False
    keeps_titles: ClassVar[bool] = True
    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "open", "open", id="rows.open")]
    is_held = False
    """Whether the cursor stays on its job when rows move. If False, a cursor on the first row may stay on the first row instead.

    An action on the job sets this, and moving the cursor clears it.
    """

    def __init__(self, store: JobsStore, *, id: str) -> None:  # noqa: A002  # Textual's name
        super().__init__(id=id)
        self._store = store
        self.starts_at_top = True

    def move_cursor(self, index: int) -> None:
        """Put the cursor on a row and clear `is_held`. When rows move later, this row keeps its line on the screen."""
        self.is_held = self.starts_at_top = False
        super().move_cursor(index)

    def move_to_key(self, key: int) -> bool:
        """Put the cursor on a job, and expand a source that has several jobs. Return whether the view contains the job."""
        index = self.index_of(key)
        if index is not None:
            self._expand(index, on=True)
        return super().move_to_key(key)

    def keys_below(self, key: int) -> list[int]:
        """Return the jobs of a source; for the key of a job, return that job."""
        return self._store.jobs_of(key)

    def row_text(self, key: int) -> str:
        """Return a job as text for copying."""
        return self._store.job_text(key, [column.id for column in self.columns])

    def action_shift(self, steps: int) -> None:
        """Show (1) or hide (-1) the jobs of the source under the cursor.

        If this changes nothing, for example because the jobs are already shown, scroll long texts to the right (1) or left (-1).
        While long texts are scrolled, -1 scrolls them back and hides no jobs.
        """
        if (steps < 0 and self.offset_cells) or not self._expand(self.cursor, on=steps > 0):
            super().action_shift(steps)

    def on_click(self, event: events.Click) -> None:
        """Show or hide the jobs of a source when the user clicks the sign before the name of the source."""
        place = event.get_content_offset(self)
        if place is None or event.button != 1 or place.x not in self._sign_cells():
            return
        index = self.row_lines.row_at(place.y)
        if index is not None and not self._expand(index, on=True):
            self._expand(index, on=False)

    def _sign_cells(self) -> range:
        """Return the screen columns of the signs before the names of sources."""
        start = 1
        for column, width in self._lay_columns():
            if column.id == "source":
                return range(start, start + SIGN_CELLS)
            start += width + len(GAP)
        return range(0)

    def _expand(self, index: int, *, on: bool) -> bool:
        """Show or hide the jobs of the source in a row, and put the cursor on the source. Return whether any row changed."""
        line = self._store.expand(index, on=on)
        if line is None:
            return False
        self.refresh_model()
        self.move_cursor(line)
        return True


_Cause = tuple[str, bool]
"""Identifies a group of failures even if jobs are added to it or removed from it: (its text, whether the text is a source)."""


class Causes(Listing[CauseGroup]):
    """The failures by cause."""

    def __init__(self, pane: JobsView, store: JobsStore) -> None:
        super().__init__(self._draw)
        self._pane, self._store = pane, store
        self._first: dict[_Cause, tuple[int, OutcomeChange | None]] = {}
        """{cause: (id of the job that failed first, the run with which its failures began; None = unknown)}."""
        self._reader: LatestOnly[list[CauseGroup]] = LatestOnly("aptui-causes", self._read)

    def close(self) -> None:
        """End the thread."""
        self._reader.close()

    def renew(self) -> None:
        """Group the failures by cause again. A thread then reads when each group began to fail."""
        groups = self._store.failure_groups()
        if groups != self.records:
            self.show(groups)
            self._reader.put(groups)

    def _read(self, _kind: str, groups: list[CauseGroup]) -> None:
        config = self._pane.shell.config
        try:
            with closing(open_reader(self._pane.database)) as reader, reader.snapshot():
                first = {(group.cause, group.is_source): first_failed(reader, group.keys) for group in groups}
                changes = read_changes(reader, first.values(), config.project_dir if config is not None else None)
        except KnownError:
            return  # the feed reports the error
        self._pane.shell.in_ui(self._accept, {cause: (key, changes.get(key)) for cause, key in first.items()})

    def _accept(self, first: dict[_Cause, tuple[int, OutcomeChange | None]]) -> None:
        self._first = first
        self.version += 1
        self._pane.shell.wake()

    def _describe(self, change: OutcomeChange) -> str:
        """Return the time since which jobs fail; if a commit may be the cause, also the commit and its author."""
        time = moment_text(change.ended_ms, self._pane.shell.session.clock_ms()).partition(".")[0]
        return time + f"  {commit_text(change)}" * change.is_after_checkout

    def find_first(self, group: CauseGroup) -> tuple[int, OutcomeChange | None]:
        """Return the job that failed first among the jobs of a cause, and the run with which its failures began.

        Until the database was read, return the first job of the cause, and None in place of the run.
        """
        return self._first.get((group.cause, group.is_source), (group.keys[0], None))

    def _draw(self, group: CauseGroup, column_id: str) -> Cell:
        if column_id == "count":
            return Cell(f"{len(group.keys):,}", "failed")
        if column_id == "cause":
            if group.is_source:
                return Cell(f"after {group.cause} failed")
            return Cell(short_error(group.cause, glyph("ellipsis")) or "no reason given")
        key, change = self.find_first(group)
        if column_id == "since":
            return Cell("" if change is None else self._describe(change), "muted")
        info = self._store.info(key)
        return Cell(info.source if info else "", "muted")


class CausesTable(Table):
    """The widget that lists the causes."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "open", "show these", id="rows.open")]

    def __init__(self, *, id: str) -> None:  # noqa: A002  # Textual's name
        super().__init__(_CAUSES, id=id)
        self.empty_text = "nothing failed"


_SECOND_MS = 1000
_RUNNING_CELLS, _SPARK_CELLS = 40, 16
"""Widths in the strip above the table (cells): the minimum width of a running job, and the width of the graph.

The graph shows how many jobs ended in each second.
"""
_SPARKS = "▁▂▃▄▅▆▇█"
_TALL, _TALLEST = 30, 45
"""Minimum heights of the screen for two and for three lines of running jobs (lines)."""


class RunningStrip(Line):
    """The strip above the table: the running jobs with their ages, and the rate of the last seconds.

    The strip appears when a job runs, and disappears when no job runs or waits. It is redrawn once a second, and a job keeps its
    position until it ends. If more jobs run than fit, the strip gets another line. This line stays until the strip disappears.
    """

    def __init__(self, pane: JobsView, store: JobsStore) -> None:
        super().__init__(id="jobs-running")
        self._pane, self._store = pane, store
        self._slots: list[int] = []
        self._counts: deque[int] = deque(maxlen=_SPARK_CELLS - 3)
        self._filled_ms = 0
        self._most = 0
        """Maximum number of jobs that ran at the same time since this line of running jobs was shown."""

    def update_jobs(self) -> None:
        """Show the jobs that run now; called with each frame."""
        session, now_ms = self._pane.shell.session, self._pane.shell.session.clock_ms()
        progress = session.latest_progress if session.state is SessionState.ATTACHED else None
        if progress is None or not progress.jobs_waiting + progress.jobs_running:
            if self.display:
                self.display = False
                self._counts.clear()
                self._most = 0
        elif not self.display and not self._store.running:
            pass  # jobs wait, but none is running: keep this line hidden
        elif not self.display or not 0 <= now_ms - self._filled_ms < _SECOND_MS:
            self._filled_ms = now_ms
            self._counts.append(progress.done_now + progress.failed_now)
            self._fill()
            self.display = True
            self.refresh()

    def _fill(self) -> None:
        """Put running jobs that are not shown yet into free positions, the oldest job first."""
        width, height = self.app.size
        running = self._store.running
        self._most = max(self._most, len(running))
        columns = self._columns(width)
        row_count = self.styles.height = min(1 + (height >= _TALL) + (height >= _TALLEST), -(-self._most // columns))
        count = row_count * columns
        staying = [key if key in running else 0 for key in self._slots[:count]]
        waiting = sorted(running.keys() - set(staying), key=running.__getitem__)
        self._slots = [key or (waiting.pop(0) if waiting else 0) for key in staying + [0] * (count - len(staying))]

    def _columns(self, width: int) -> int:
        return max(1, (width - _SPARK_CELLS) // _RUNNING_CELLS)

    def render_line(self, y: int) -> Strip:
        """Return one line of running jobs; the first line also has the rates."""
        width = self.size.width
        columns, sparks = self._columns(width), self._sparks() if y == 0 else ""
        cells = (width - _SPARK_CELLS) // columns
        slots = self._slots[y * columns : (y + 1) * columns]
        parts = [part for key in slots for part in self._describe(key, cells)]
        return strip_of(spread(parts, (Part(sparks, "muted"), Part(" ")), width), self, width, self.rich_style)

    def _describe(self, key: int, cells: int) -> Parts:
        info = self._store.info(key) if key else None
        if info is None:
            return (Part(" " * cells),)
        age = brief(max(0, self._pane.shell.session.clock_ms() - self._store.running.get(key, self._filled_ms)))
        if (percent := self._store.percent_of(key)) >= 0:
            age = f"{percent} % {age}"
        name = fit(info.source, cells - len(age) - 6).text
        return (
            Part(f" {glyph('processing')} ", "processing"),
            Part(name, "path"),
            Part(f" {age:<{cells - 3 - cell_len(name) - 1}}", "muted"),
        )

    def _sparks(self) -> str:
        done = list(self._counts)
        rates = [max(0, after - before) for before, after in pairwise(done)]
        if not any(rates) or not terminal_facts().is_utf8:
            return ""
        return "".join(_SPARKS[rate * (len(_SPARKS) - 1) // max(rates)] for rate in rates)


_STATUSES = (
    ("failed", "failed", "f"), ("warnings", "completed with warnings", "w"), ("errors", "completed with errors", "e"),
    ("completed", "completed", "c"), ("processing", "processing", "r"), ("pending", "pending", "p"),
    ("cancelled", "cancelled", "x"),
)  # fmt: skip
"""(status word, label in the menu, its key)."""
_ORDER_KEYS = {
    FAILED_FIRST: "f", "status": "t", "source": "s", "completed": "c", "platform": "p", "key": "y", "duration": "d", "reason": "r",
    "builder": "b", "folder": "l", "warnings": "w", "errors": "o", "number": "n",
}  # fmt: skip
"""{sort order: its key in the menu}."""
_VERBS = ("save", "delete")
_MOST_VIEWS = 50


class Choices:
    """The user's choices in one pane: filter, saved filters, statuses, order, columns."""

    def __init__(self, pane: JobsView, store: JobsStore) -> None:
        self._pane, self._store = pane, store
        self.shell, self.memory = pane.shell, pane.shell.memory
        self.text = ""
        """The filter as the user typed it; it may contain a mistake."""
        self._mistake: FilterError | None = None
        self._views: list[str] = [""]
        self._view = 0
        self._facts = (True, frozenset[str]())
        self._needs: dict[str, int] = {}
        self._measured = ""

    def restore(self) -> None:
        """Restore the remembered choices."""
        order = self.memory.get("jobs.sort", [FAILED_FIRST, False])
        if len(order) == 2 and order[0] in _ORDER_KEYS:
            self._store.set_sort(str(order[0]), is_descending=bool(order[1]))
        config = self.shell.config
        self.group_by_source(platform_count=len(config.project.platforms) if config is not None else 0)
        self._show_columns()
        self._pane.table.sort = self._store.sort
        self.filter_by(self.memory.get("jobs.filter", ""))

    # ------------------------------------------------------------------------------------------------------------- filter

    def history(self) -> list[str]:
        """Return the remembered filters, the newest first."""
        return self.memory.history("jobs.filter_history")[::-1]

    def type(self, text: str) -> None:
        """Filter by a text that the user is typing."""
        self.text, self._mistake = text, None
        self._store.set_filter(text)
        self.drop_invalid()

    def drop_invalid(self) -> None:
        """Show all jobs while the filter is invalid.

        The pane also calls this with each frame, because a thread checks the patterns and may find a mistake later.
        """
        if isinstance(self._store.error, FilterError):
            self._mistake = self._store.error
            self._store.set_filter("")

    def filter_by(self, text: str) -> None:
        """Filter by a text, and remember it."""
        self.type(text)
        self.remember_filter()

    def remember_filter(self) -> None:
        """Store the filter for the next start, and add it to the histories."""
        text = self.text
        self.memory.put("jobs.filter", text or None)
        self.memory.remember("jobs.filter_history", text)
        if text != self._views[self._view]:
            self._views = [*self._views[: self._view + 1], text][-_MOST_VIEWS:]
            self._view = len(self._views) - 1

    def walk(self, step: int) -> None:
        """Use the previous (-1) or next (1) filter of the history."""
        place = self._view + step
        if 0 <= place < len(self._views):
            self._view = place
            self.type(self._views[place])
            self.memory.put("jobs.filter", self.text or None)
        else:
            self.shell.show_toast("this is the newest filter" if step > 0 else "this is the oldest filter", seconds=2)

    def mistake(self) -> tuple[int, str, str] | None:
        """Return (column counted from 0, the mistake, advice) of the typed filter, None if the filter is valid."""
        error: KnownError | None = self._mistake or self._store.error
        if error is None:
            return None
        return (error.column - 1 if isinstance(error, FilterError) else 0), error.what, error.hint

    def show_count(self, box: FilterBox, count: str) -> None:
        """Show the number of matching jobs in the filter box, or the mistake."""
        mistake = self.mistake()
        if mistake is not None:
            box.show_mistake(*mistake, count=count)
        else:
            box.show_count(count, self.find_hint())

    def find_hint(self) -> str:
        """Return advice about the filter, "" = no advice. It says how to write the filter, or which field has the word as a value.

        Words are compared with paths, but the user may mean a platform, a job key or a builder. The field is named if no job
        matches, or if the word is negated with `!`.
        """
        if self._store.filter.hint or self._store.is_busy:
            return self._store.filter.hint
        for term in self.text.split():
            sign, word = term[: term.startswith("!")], term.removeprefix("!")
            is_idle = bool(sign) or not self._store.hit_count
            if is_idle and ":" not in word and (field := self._store.find_field(word)):
                return f"'{word}' is a {field}; write {sign}{field}:{word}"
        return ""

    def ask_statuses(self) -> None:
        """Open the menu of statuses.

        Space and letters toggle a status. Enter selects only the current status if no status was toggled. Esc closes the menu.
        """
        counts, wanted = self._store.counts(), set(self._find_wanted_statuses())
        items = [
            MenuItem(
                word,
                f"{glyph(ROLES.get(word, word))} {label:<24}{counts.get(word, 0):>9,}",
                key,
                role=ROLES.get(word, word),
            )
            for word, label, key in _STATUSES
        ]  # fmt: skip
        words = [word for word, _, _ in _STATUSES]
        Checks.open(
            self.shell.app,
            items,
            wanted,
            lambda on: self.filter_by(with_statuses(self.text, [word for word in words if word in on])),
            title="Status",
            enter_chooses=True,
        )

    def _find_wanted_statuses(self) -> tuple[str, ...]:
        try:
            return parse(self.text).statuses
        except KnownError:
            return ()

    # ------------------------------------------------------------------------------------------ lines, order and columns

    def group_by_source(self, *, platform_count: int) -> None:
        """Show one line per source or one line per job, as the user chose.

        By default, each line is a source if there are several platforms, otherwise a job.
        """
        chosen = self.memory.get("jobs.by_source", None)
        self._store.group_by_source(on=platform_count > 1 if chosen is None else bool(chosen))

    def turn_lines(self) -> None:
        """Switch between one line per source and one line per job; the cursor stays on its job."""
        on = not self._store.by_source
        self.memory.put("jobs.by_source", on)
        self._store.group_by_source(on=on)
        self.shell.show_toast("one line for each source; press → to show its jobs" if on else "one line for each job", seconds=2)

    def sort_by(self, order: str) -> None:
        """Sort by a column, or failed jobs first; choosing the current column reverses its order."""
        before, is_descending = self._store.sort
        turned = not is_descending if order == before != FAILED_FIRST else order in DESCENDING
        self._store.set_sort(order, is_descending=turned)
        self._pane.table.sort = (order, turned)
        self.memory.put("jobs.sort", [order, turned])

    def ask_order(self) -> None:
        """Open the menu in which the user chooses the sort order."""
        current, is_descending = self._store.sort
        arrow = glyph("descending" if is_descending else "ascending")
        titles = [(FAILED_FIRST, "Failed first"), *((column.id, column.title) for column in COLUMNS)]
        items = [MenuItem(order, f"{arrow if order == current else ' '} {title}", _ORDER_KEYS[order]) for order, title in titles]
        menu = Menu.ask(self.shell.app, items, lambda what: self.sort_by(what) if what else None, title="Sort by")
        _at(menu, next(place for place, (order, _) in enumerate(titles) if order == current))

    def order_words(self) -> str:
        """Return a text that describes the current sort order."""
        order, is_descending = self._store.sort
        if order == FAILED_FIRST:
            return "failed first"
        title = next(column.title for column in COLUMNS if column.id == order)
        return f"sorted by {title} {glyph('descending' if is_descending else 'ascending')}"

    def fit_columns(self) -> None:
        """Fit the columns to their texts.

        Columns whose value is the same for all jobs get less room, columns with errors get more.
        """
        if not self._store.has_rows:
            return
        known = self._needs if self._store.filter.text == self._measured else {}
        # While the filter is unchanged, columns never become narrower, so that texts do not jump when jobs arrive.
        needs = {name: max(cells, known.get(name, 0)) for name, cells in self._store.needs.items()}
        facts = (self._store.has_failed, self._store.alike)
        if facts != self._facts or needs != self._needs:
            self._facts, self._needs, self._measured = facts, needs, self._store.filter.text
            self._show_columns()

    def _show_columns(self) -> None:
        has_failed, alike = self._facts
        ids = self.memory.get("jobs.columns", list(USUAL))
        columns = choose_columns(ids, has_failed=has_failed, alike=alike, needs=self._needs)
        if columns != self._pane.table.columns:
            self._pane.table.set_columns(columns)

    def ask_columns(self) -> None:
        """Open the menu of columns."""
        remembered = set(self.memory.get("jobs.columns", list(USUAL))) | {"source"}
        hidden = {column.id for column in self._pane.table.columns} - self._pane.table.visible_columns()
        items = [
            MenuItem(column.id, column.title + (" (no room)" if column.id in hidden else ""), is_enabled=column.id != "source")
            for column in COLUMNS
        ]

        def show(on: set[str]) -> None:
            self.memory.put("jobs.columns", [column.id for column in COLUMNS if column.id in on])
            self._show_columns()

        Checks.open(self.shell.app, items, remembered, show, title="Columns")

    # ------------------------------------------------------------------------------------------------------------ commands

    def commands(self) -> Sequence[Command]:
        """Return the commands of the `:` line."""
        return (
            Command(
                "filter", "apply a saved filter or a text; 'save NAME', 'delete NAME'", self._run_filter_command, self._filter_words
            ),
            Command(
                "sort", "sort by a column, or failed first; repeat to reverse", self._run_sort_command, lambda: list(_ORDER_KEYS)
            ),
            Command("job", "go to a job by its number", self._run_job_command),
        )

    def _filter_words(self) -> list[str]:
        saved = sorted(self._read_saved_views())
        return [*saved, "save", *(f"delete {name}" for name in saved)]

    def _read_saved_views(self) -> dict[str, str]:
        saved: dict[str, object] = self.memory.get("jobs.filters", {})
        return {name: text for name, text in saved.items() if isinstance(text, str)}

    def _run_filter_command(self, words: str) -> None:
        saved = self._read_saved_views()
        verb, _, name = words.partition(" ")
        name = name.strip()
        if verb == "save":
            self._save(name, saved)
        elif verb == "delete":
            if saved.pop(name, None) is None:
                self.shell.show_toast(f"no saved filter '{name}'", "warning")
            else:
                self.memory.put("jobs.filters", saved)
                self.shell.show_toast(f"filter '{name}' deleted")
        elif not words:
            self._pane.action_filter()
        else:
            self.filter_by(saved.get(words, words))

    def _save(self, name: str, saved: dict[str, str]) -> None:
        if not name or name in _VERBS or self.mistake() is not None or not self.text:
            self.shell.show_toast(
                "set a filter, then type ':filter save NAME'" if self.mistake() is None else "not saved: the filter has a mistake",
                "warning",
            )
            return
        self.memory.put("jobs.filters", {**saved, name: self.text})
        self.shell.show_toast(f"saved: ':filter {name}' applies it")

    def _run_sort_command(self, order: str) -> None:
        if order in _ORDER_KEYS:
            self.sort_by(order)
        else:
            self.ask_order()

    def _run_job_command(self, number: str) -> None:
        digits = number.strip().removeprefix("#")
        if digits.isdecimal():
            self._pane.reveal(f"#{digits}")
        else:
            self.shell.show_toast("type ':job #12'", "warning")


def _at(menu: Menu, place: int) -> None:
    """Put the cursor of a menu on an item."""
    menu._chosen = place  # noqa: SLF001  # no public way
    menu.refresh()

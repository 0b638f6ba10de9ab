"""The two lower panes of the Jobs screen: the log of the selected job's run with its search, and the details of a line.

Tests: `tests/tui/screens/jobs/test_jobs_pane.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar, NamedTuple, cast

import numpy as np
from rich.cells import cell_len
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Vertical
from textual.message import Message

from aptui.core.notices import LogLevel
from aptui.shared.errors import KnownError
from aptui.shared.printing import count as counted
from aptui.shared.printing import sanitize
from aptui.store.joblog import JobLogLine, is_tally
from aptui.store.jobs.filter import STATUS_CODES, Filter, FilterError, parse
from aptui.store.jobs.texts import Texts
from aptui.tui.background import call_after
from aptui.tui.data.job_infos import JobRowInfo
from aptui.tui.frame.line import FRAME_CELLS, Bar, Part, width_of
from aptui.tui.screens.external_programs import Copy, offer_copies, offer_pair
from aptui.tui.screens.jobs import job_texts
from aptui.tui.screens.jobs.job_details import (
    DetailsReader,
    DetailsRequest,
    JobDetails,
    RunningLines,
    RunningLog,
    continues_run,
    with_running,
)
from aptui.tui.screens.jobs.job_texts import job_facts
from aptui.tui.terminal.safety import glyph
from aptui.tui.widgets.cells import Spans, fit
from aptui.tui.widgets.filterbox import FilterBox
from aptui.tui.widgets.log_sources import MemoryLines
from aptui.tui.widgets.logpane import LogPane
from aptui.tui.widgets.menu import Checks, MenuItem
from aptui.tui.widgets.row_list import Rows
from aptui.tui.widgets.table import KeyValue

if TYPE_CHECKING:
    import numpy.typing as npt
    from textual.widget import Widget

    from aptui.tui.pane import Shell


class LineContext(Vertical):
    """The details pane: the context of the line under the cursor, or, for a line without context, facts about the job."""

    def __init__(self) -> None:
        super().__init__(id="event-side")
        self.panel = KeyValue(id="details")
        self.is_about_job = False
        """Whether the pane shows facts about the job."""

    def compose(self) -> ComposeResult:
        """Create the widgets."""
        yield Bar(self._title, id="details-title", rules=True)
        yield self.panel

    def _title(self, _width: int) -> tuple[Sequence[Part], Sequence[Part]]:
        words = "About this job" if self.is_about_job else "Details of this line" if self.panel.pairs else ""
        return (Part(words, "title" if self.panel.has_focus else "header"),), ()

    def clear(self) -> None:
        """Show an empty pane."""
        self.panel.show([])
        self.is_about_job = False

    def show(self, context: Sequence[tuple[str, str]], job_details: JobDetails | None) -> bool:
        """Show the context of a log line. If it is empty, show facts about the job, unless `job_details` is None.

        Return whether the content changed.
        """
        is_about_job = not context and job_details is not None
        pairs = job_facts(job_details) if is_about_job and job_details is not None else list(context)
        is_other = pairs != self.panel.pairs or is_about_job != self.is_about_job
        self.is_about_job = is_about_job
        if is_other:
            self.panel.show(pairs)
        return is_other


Place = tuple[int, int] | None


def ask_lines(shell: Shell, job_details: JobDetails | None, keys: Sequence[int], place: Place) -> None:
    """Open the menu of texts to copy from a log; `keys` are the selected lines."""
    if job_details is None or not job_details.records:
        shell.show_toast("there is no line to copy", "warning")
        return
    lines = [job_details.records[key] for key in keys if key < len(job_details.records)]
    word = "line" if len(lines) == 1 else f"{len(lines):,} lines"
    selected: list[Copy] = [
        (f"Copy {word}", "y", lambda: job_texts.log_text(lines, has_details=False)),
        (f"Copy {word} with details", "d", lambda: job_texts.log_text(lines, has_details=True)),
    ]
    whole: list[Copy] = [
        ("Copy all", "a", lambda: job_texts.log_text(job_details.records, has_details=True)),
        ("Copy a bug report (Markdown)", "b", lambda: job_texts.bug_report(job_details)),
    ]
    offer_copies(shell, [*(selected if lines else []), *whole], place)


class LogCursor:
    """Moves the cursor of a log to its most important line."""

    def __init__(self, pane: Callable[[], LogPane]) -> None:
        self._pane = pane
        self._is_wanted = False

    def request(self) -> None:
        """Request that the cursor moves as soon as the log is read."""
        self._is_wanted = True

    def cancel(self) -> None:
        """Drop the request to move the cursor."""
        self._is_wanted = False

    def apply(self, job_details: JobDetails | None) -> None:
        """Move the cursor in a log that has been read, if a move was requested."""
        if self._is_wanted and job_details is not None:
            self._is_wanted = False
            self.go_to_main_line(job_details)

    def go_to_main_line(self, job_details: JobDetails | None) -> None:
        """Go to the first error, else to the first warning, else to the last line; skip the last line if it counts the errors.

        If the job is running, go to the last line.
        """
        if job_details is not None and job_details.running_key:
            self._pane().action_last()
        elif not self._pane().go_to_first_error():
            self.skip_count_line(job_details.records if job_details is not None else ())

    def skip_count_line(self, records: Sequence[JobLogLine]) -> None:
        """If the cursor is on the last line of the log, which counts the errors, move the cursor one line up."""
        pane = self._pane()
        if pane.cursor_key == len(records) - 1 > 0 and is_tally(records[-1].text):
            pane.action_move(-1)


def title(log: EventLog, width: int) -> tuple[Sequence[Part], Sequence[Part]]:
    """Return both ends of the title: the job and its run at the left; search, levels and number of lines at the right."""
    info, job_details, pane = log.info, log.job_details, log.log_pane
    if log.is_reading and job_details is not None:
        info = job_details.info  # the title names the previous job, because its lines are still shown
    role = "title" if pane.has_focus else "header"
    if info is None:
        return (Part("Event log", role),), ()
    is_read = job_details is not None and job_details.info.key == info.key
    right = [*log.search.parts(), *(Part(f"{word}  ", "accent") for word in pane.modes().split("  ") if word)]
    words = counted(pane.source.line_count(), "line") if is_read else "reading"
    count = Part(words, "muted") if width >= 60 else Part("")
    head, tail = [Part("Event log", role), Part(" · ", "muted")], _run_parts(log.info, job_details if is_read else None)
    job = [Part(sanitize(f" · {info.platform} · {info.job_key}"), "muted")]
    free_width = width - FRAME_CELLS - width_of([*head, *tail, *right, count])
    wanted = cell_len(sanitize(info.source))
    least = min(wanted, cell_len(sanitize(info.source.rpartition("/")[2])) + _ELLIPSIS_CELLS)
    forms = _list_failing_parts(job_details, log.shell.session.clock_ms()) if is_read and job_details is not None else []
    # To make room for the text "failing since …", the number of lines is dropped first, then the number of the run, then the
    # word "Event".
    none, short_head = Part(""), [Part("Log", role), head[1]]
    levels: list[tuple[list[Part], list[Part], Part]]
    levels = [(head, tail, count), (head, tail, none), (head, [], none), (short_head, [], none)]
    for head_left, tail_left, count_left in levels if forms else ():
        spare = width - FRAME_CELLS - width_of([*head_left, *tail_left, *right, count_left])
        if fitting := [form for form in forms if spare >= width_of(form) + least]:
            head, tail, count, free_width = head_left, [*tail_left, *fitting[0]], count_left, spare - width_of(fitting[0])
            break
    job = job if free_width - width_of(job) >= wanted else []
    path = fit(info.source, max(1, free_width - width_of(job))).text.rstrip()
    return [*head, Part(path, "path"), *job, *tail], [*right, count] if count.text else right


def _run_parts(info: JobRowInfo | None, job_details: JobDetails | None) -> list[Part]:
    parts = []
    if job_details is not None and job_details.running_key:
        parts.append(Part(f" · run {job_details.running_key}", "muted"))
    elif job_details is not None and job_details.run is not None:
        # Run 1 is the last run, as in `log --history` and `restore`.
        number = f" · run {job_details.at + 1} of {len(job_details.runs)}"
        parts.append(Part(number, "muted" if job_details.is_newest else "warning"))
    if info is not None and info.status == "processing":
        parts.append(Part(f" {glyph('processing')} running", "processing"))
    return parts


_ELLIPSIS_CELLS = 2


def _list_failing_parts(job_details: JobDetails, now_ms: int) -> list[list[Part]]:
    """Return texts that say since when the job fails, the longest text first.

    Return [] if an older run is shown, or if only the last run failed and its commit is unknown.
    """
    failing = job_details.failing
    is_shown = failing is not None and job_details.is_newest and not job_details.running_key
    if failing is None or not is_shown or not job_texts.find_first_failure(job_details):
        return []
    text = sanitize(job_texts.failing_text(failing, now_ms))
    short = text.partition(",")[0]
    given_name = sanitize(failing.author.partition(" ")[0])
    forms = dict.fromkeys((text, short, short.replace(f"({sanitize(failing.author)})", f"({given_name})")))
    return [[Part(" · ", "muted"), Part(form, "failed")] for form in forms]


_SAMPLED_RECORDS, _WIDEST_WINDOW = 5000, 16
"""Number of first lines whose longest window name sets the width of the window column, and the maximum of this width (cells)."""


class LogColumns:
    """A log as the table that a filter searches; each line is a row.

    A term without a field matches the message, `error` and `warning` match levels, all other fields of text match the window (the
    origin of the line).
    """

    def __init__(self, records: Sequence[JobLogLine]) -> None:
        count = len(records)
        self.records, self._count = records, count
        self._codes = np.arange(count, dtype=np.int32)
        self._messages = Texts(record.text for record in records)
        self._windows = Texts(record.window for record in records)
        levels = np.fromiter((record.level for record in records), np.int32, count)
        self._numbers: dict[str, npt.NDArray[np.number]] = {
            "status": np.full(count, STATUS_CODES["completed"], np.int32),
            "warnings": (levels == LogLevel.WARNING).astype(np.int32),
            "errors": (levels >= LogLevel.ERROR).astype(np.int32),
            "completed_ms": np.fromiter((record.time_ms for record in records), np.int64, count),
            "duration_ms": np.zeros(count, np.int32),
        }

    def row_count(self) -> int:
        """Return the number of lines."""
        return self._count

    def text(self, field: str) -> tuple[npt.NDArray[np.integer], Texts]:
        """Return the values of a text field: one index for each line, and the texts that the indices refer to."""
        return self._codes, self._messages if field in ("source", "error", "reason") else self._windows

    def read_log_lines(self, _field: str, rows: npt.NDArray[np.integer], _check: Callable[[], None] | None) -> list[str]:
        """Return the messages of these lines."""
        return [self._messages[int(row)] for row in rows]

    def number(self, field: str) -> npt.NDArray[np.number]:
        """Return the values of a numeric field, one for each line."""
        return self._numbers[field]


class LineSearch(NamedTuple):
    """The result of a valid search in a log; `hits` are the positions of the lines that match."""

    filter: Filter
    hits: list[int]

    def spans(self, text: str) -> Spans:
        """Return the matches in a message."""
        return self.filter.spans([text])[0]


def search(text: str, columns: LogColumns) -> LineSearch:
    """Search a log in a thread: the search takes milliseconds, and more at the first call.

    Raises:
        KnownError: the text is not a valid filter.
    """
    found = parse(text)
    found.check()
    return LineSearch(found, np.flatnonzero(found.matches(columns)).tolist())


def window_cells(job_details: JobDetails | None) -> int:
    """Return the width of the window column: the width of the widest window name in the first lines."""
    windows = {record.window for record in (job_details.records[:_SAMPLED_RECORDS] if job_details else ())}
    # In the last line of every log, the window is "aptui". A running job has not written this line yet, so "aptui" is added here.
    windows |= {"aptui"} if job_details and job_details.running_key else set()
    return min(_WIDEST_WINDOW, max(map(cell_len, windows), default=1))


class LogSearch:
    """The search in the log of the selected job; its text stays when another job is selected.

    Args:
        host: the widget that contains the log pane and the search line.
        records: returns the lines of the log as they were read.
        changed: called when the text about the search changed.
    """

    def __init__(self, host: Widget, records: Callable[[], Sequence[JobLogLine]], changed: Callable[[], object]) -> None:
        self._host, self._records, self._changed = host, records, changed
        self._columns: LogColumns | None = None
        self._found: LineSearch | None = None
        self._number = 0
        self.text = ""
        self._shows_only_hits = False

    @property
    def _box(self) -> FilterBox:
        return self._host.query_one(FilterBox)

    @property
    def _pane(self) -> LogPane:
        return self._host.query_one(LogPane)

    def begin(self) -> None:
        """Open the search line."""
        box = self._box
        box.disabled, box.display = False, True
        box.text = self.text
        box.begin()

    def leave(self, *, stays: bool) -> None:
        """Close the search line and focus the log; if the user kept the search (`stays`), go to a hit."""
        box, pane = self._box, self._pane
        box.display, box.disabled = False, True
        pane.focus()
        if stays and self._found and self._found.hits and pane.cursor_key not in self._found.hits:
            pane.action_hit(1)

    def toggle_only_hits(self) -> None:
        """Show only lines with a hit, or show all lines."""
        self._shows_only_hits = not self._shows_only_hits
        self._keep_hits()

    def forget(self, *, is_other: bool) -> None:
        """Discard the columns of the log, and also the hits if another log follows (`is_other`); called before the log is shown."""
        self._columns = None
        if is_other:
            self._found = None
            self._pane.set_search(None)

    def search_again(self) -> None:
        """Search in the current log."""
        if self.text:
            self.search(self.text)

    def search(self, text: str) -> None:
        """Search for a text; "" ends the search."""
        self.text, self._number = text, self._number + 1
        if not text:
            self._accept(self._number, None)
            return
        work = partial(self._search_in, self._number, text, self._records())
        self._host.run_worker(work, thread=True, exclusive=True, group="search")

    def _search_in(self, number: int, text: str, records: Sequence[JobLogLine]) -> None:
        """Search in a thread. A thread that searched in the previous log may have set `_columns` after `forget`."""
        answer: LineSearch | KnownError
        columns = self._columns
        if columns is None or columns.records is not records:
            columns = self._columns = LogColumns(records)
        try:
            answer = search(text, columns)
        except KnownError as error:
            answer = error
        cast("Shell", self._host.app).in_ui(self._accept, number, answer)

    def _accept(self, number: int, answer: LineSearch | KnownError | None) -> None:
        if number != self._number or not self._host.is_mounted:
            return
        box = self._box
        if isinstance(answer, KnownError):
            column = answer.column - 1 if isinstance(answer, FilterError) else 0
            box.show_mistake(column, answer.what, answer.hint)
            return
        self._found = answer
        box.show_count(counted(len(answer.hits), "hit") if answer else "")
        self._pane.set_search(answer.spans if answer else None, answer.hits if answer else ())
        self._keep_hits()

    def _keep_hits(self) -> None:
        source = self._pane.source
        if isinstance(source, MemoryLines):
            source.show_only(self._found.hits if self._found and self._shows_only_hits else None)
            self._pane.refresh_source()
        self._changed()

    def parts(self) -> list[Part]:
        """Return the parts of the log's title about the search: its text, the number of hits, whether other lines are hidden."""
        if not self.text:
            return []
        found = self._found
        hits = f" {counted(len(found.hits), 'hit')}" if found else ""
        return [
            Part(f"/ {sanitize(self.text)}", "accent"),
            Part(f"{hits}{', no other lines' if self._shows_only_hits else ''}  ", "muted"),
        ]


WIDE = 120
"""Minimum width for the log and the details side by side (columns)."""
_LEVELS = (("I", "infos"), ("W", "warnings"), ("E", "errors"), ("D", "debug lines"))


class EventLog(Vertical):
    """The two lower panes of the Jobs screen: the log of the job that `show` selects, and the details of a line."""

    DEFAULT_CSS = """
    EventLog { width: 1fr; height: auto; }
    EventLog #event-filter { display: none; }
    EventLog #event-body { layout: vertical; width: 1fr; height: 1fr; }
    EventLog #event-main { width: 1fr; height: 1fr; }
    EventLog #event-side { width: 1fr; height: 1fr; }
    EventLog.-wide #event-body { layout: horizontal; }
    EventLog.-wide #event-main { width: 2fr; }
    EventLog.-tall #event-side { height: 40%; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "search", "search", id="event.search"),
        Binding("ampersand", "only_hits", "only hits", show=False, id="event.only_hits"),
        Binding("L", "levels", "levels", show=False, id="event.levels"),
        Binding("y", "copy", "copy", id="event.copy"),
        Binding("escape", "back", "back", id="event.back"),
    ]

    class LogLeft(Message):
        """Posted on Esc: the focus goes back to the jobs."""

    def __init__(self, reader: DetailsReader, *, is_wide: bool, is_tall: bool) -> None:
        super().__init__(id="event-log", classes="-tall" if is_tall else "-wide" if is_wide else None)
        self.reader = reader
        self.job_details: JobDetails | None = None
        self.info: JobRowInfo | None = None
        self.search = LogSearch(self, lambda: self.records, self.show_title)
        self._only, self._is_alone, self._is_tall = "log", False, is_tall
        self.side = LineContext()
        self.cursor = LogCursor(lambda: self.log_pane)
        self._running_lines: RunningLines | None = None
        self._asking: RunningLog | None = None
        self.chosen_run = 0
        """The key of the run that the user chose; 0 = the newest run, which may be running."""

    def compose(self) -> ComposeResult:
        """Create the widgets."""
        with Container(id="event-body"):
            with Vertical(id="event-main"):
                yield Bar(partial(title, self), id="event-title", rules=True)
                yield FilterBox(id="event-filter", placeholder="search in this log", disabled=True)
                yield LogPane(id="event-lines", wraps=True)
            yield self.side

    def on_mount(self) -> None:
        """Start without a selected job."""
        self.log_pane.empty_text = "no job is selected"
        self._show_details()

    @property
    def shell(self) -> Shell:
        """The app."""
        return cast("Shell", self.app)

    @property
    def log_pane(self) -> LogPane:
        """The widget of the log lines."""
        return self.query_one(LogPane)

    @property
    def records(self) -> Sequence[JobLogLine]:
        """The lines of the log as they were read."""
        return self.job_details.records if self.job_details else ()

    def show_title(self) -> None:
        """Draw the title again."""
        self.query_one("#event-title", Bar).refresh_if_changed()

    @property
    def details(self) -> KeyValue:
        """The widget that shows the details (names and values) of the log line under the cursor."""
        return self.side.panel

    # --------------------------------------------------------------------------------------------------- the selected job

    def show(self, info: JobRowInfo | None, *, expects: tuple[str, int] | None = None, run_key: int = 0) -> None:
        """Show the log of a job once it is read; None = no job is selected.

        Args:
            expects: (status, run key) of the last notice; the database is read again until it has these values.
            run_key: the run; 0 = the newest.
        """
        self.info, self.chosen_run = info, run_key
        if info is None:
            self.cursor.cancel()
            self.accept_details(None)
            return
        self.reader.request(DetailsRequest(info, run_key, expects))
        self.show_title()

    def accept_details(self, job_details: JobDetails | None) -> None:
        """Show details that were read, unless the user has selected another job since."""
        if not self.is_mounted or (job_details is not None and (self.info is None or job_details.info.key != self.info.key)):
            return
        if job_details is not None and self.info is not None and self._running_lines is not None:
            job_details, self._running_lines = with_running(
                job_details, self.info, self._running_lines, is_wanted=not self.chosen_run
            )
        before, self.job_details = self.job_details, job_details
        if (
            job_details is None
            or before is None
            or (job_details.info.key, job_details.log, job_details.records) != (before.info.key, before.log, before.records)
        ):
            if job_details is not None and continues_run(before, job_details):
                self._continue(job_details)
            else:
                self._renew(job_details)
        self.log_pane.empty_text = "no job is selected" if job_details is None else sanitize(job_details.nothing)
        self.details.empty_text = "" if job_details is None else "this line has no details"
        self.cursor.apply(job_details)
        self.log_pane.refresh()
        self._show_context(self.log_pane.cursor_key)
        self._show_details()

    @property
    def running_id(self) -> int:
        """The id of the job whose new lines are requested: it is running, and its log is visible. 0 = no job."""
        info = self.info
        is_wanted = self.display and self.query_one("#event-main").display and not self.chosen_run and not self.is_reading
        return info.key if info is not None and info.key > 0 and info.status == "processing" and is_wanted else 0

    def refresh_running(self) -> None:
        """Request the new lines of a running job; the pane calls this method with each frame."""
        shell = self.shell
        self._asking = self._asking or RunningLog(
            shell, lambda: self.running_id, self.accept_running, lambda wait_s: call_after(self, wait_s, shell.wake)
        )
        self._asking.ask()

    def accept_running(self, running: RunningLines) -> None:
        """Show the lines that a running job has logged up to now."""
        if self.is_mounted and self.running_id == running.job_id:
            self._running_lines = running
            self.accept_details(self.job_details)

    def _continue(self, job_details: JobDetails) -> None:
        """Show more lines of the same log, or the final log of its run, without scrolling."""
        pane = self.log_pane
        self.search.forget(is_other=False)
        pane.set_window_cells(window_cells(job_details))
        pane.renew_source(MemoryLines(job_details.lines))
        self.cursor.skip_count_line(self.records)
        self.search.search_again()

    def _renew(self, job_details: JobDetails | None) -> None:
        pane = self.log_pane
        self.search.forget(is_other=True)
        pane.set_window_cells(window_cells(job_details))
        pane.set_source(MemoryLines(job_details.lines if job_details else ()))
        self.side.clear()  # the shown context belongs to a line of another log
        if pane.is_following:
            pane.action_last()
        else:
            self.cursor.go_to_main_line(job_details)
        self.search.search_again()

    @property
    def is_reading(self) -> bool:
        """Whether the log of the selected job is still being read."""
        return self.info is not None and (self.job_details is None or self.job_details.info.key != self.info.key)

    def go_to_first_error(self) -> None:
        """Put the cursor on the first error, now or once the log is read."""
        self.cursor.request()
        if self.info is not None and not self.is_reading:
            self.cursor.apply(self.job_details)

    def step_run(self, step: int) -> None:
        """Show the log of the next (1) or previous (-1) run."""
        job_details = self.job_details
        if job_details is None or self.info is None or job_details.info.key != self.info.key or not job_details.runs:
            return
        at = (-1 if job_details.running_key else job_details.at) - step
        first = -1 if self.info.status == "processing" else 0
        if first <= at < len(job_details.runs):
            self.show(self.info, run_key=job_details.runs[at].run_key if at > first else 0)
        else:
            self.shell.show_toast("there is no later run" if step > 0 else "there is no earlier stored run", seconds=2)

    # -------------------------------------------------------------------------------------------------------------- layout

    def lay_out(self, only: str, *, is_alone: bool = False, is_tall: bool = False) -> None:
        """Show the pane "log" or "details", as named by `only`, or both panes.

        If `is_alone` is set, only this pane is shown. Otherwise, both panes are shown one below the other if `is_tall` is set, and
        side by side if the screen is wide enough. In all other cases only this pane is shown.
        """
        self._only, self._is_alone, self._is_tall = only, is_alone, is_tall
        self._show_details()

    @property
    def _shows_both(self) -> bool:
        return self.has_class("-wide") or self.has_class("-tall")

    @property
    def has_details(self) -> bool:
        """Whether there are details to show: the context of the line under the cursor, or facts about the job beside the log."""
        return bool(self.details.pairs) and not (self.side.is_about_job and not self._shows_both)

    def _show_details(self) -> None:
        """Divide the room between log and details."""
        # Before the first layout the width is unknown. Then the class `-wide` decides, which is a guess.
        shows_wide = self.size.width >= WIDE if self.size.width else self.has_class("-wide")
        is_tall = self._is_tall and not self._is_alone
        is_wide = shows_wide and not self._is_alone and not is_tall
        if is_wide != self.has_class("-wide") or is_tall != self.has_class("-tall"):
            self.set_class(is_wide, "-wide")
            self.set_class(is_tall, "-tall")
            self._show_context(self.log_pane.cursor_key)
        self.log_pane.show_context(not is_wide)
        has_job = self.info is not None or self.job_details is not None
        shows_details = (self._shows_both and has_job) or (self.has_details and self._only == "details")
        shows_log = self._shows_both or not shows_details
        had_focus = self.screen.focused is self.details and not shows_details
        for part in ("#event-main", "#event-title", "#event-lines"):
            self.query_one(part).display = shows_log
        for part in ("#event-side", "#details-title", "#details"):
            self.query_one(part).display = shows_details
        if had_focus:
            self.screen.set_focus(self.log_pane)
        for bar in self.query(Bar):
            bar.refresh_if_changed()

    def _swap(self, one: str, other: str) -> None:
        """Move the focus from pane `one` to pane `other` ("log" or "details"); if only `one` is visible, show `other` instead."""
        target = self.details if other == "details" else self.log_pane
        target.display = True
        self.screen.set_focus(target)
        self._only = other if self._only == one else self._only
        self._show_context(self.log_pane.cursor_key)
        self._show_details()

    def on_resize(self) -> None:
        """Divide the room again after a change of the height."""
        self._show_details()

    # -------------------------------------------------------------------------------------------------------------- events

    def on_rows_highlighted(self, event: Rows.Highlighted) -> None:
        """Show the details of the line under the cursor."""
        event.stop()
        if event.rows is self.log_pane and self._show_context(event.key):
            self._show_details()

    def _show_context(self, key: int | None) -> bool:
        """Show the context of a log line in the details; return whether the content of the details changed."""
        records = self.records
        is_hidden = self.has_class("-tall") and self._only != "details"  # the log itself shows the context, below the line
        context = records[key].context if key is not None and key < len(records) and not is_hidden else ()
        return self.side.show(context, self.job_details if self._shows_both else None)

    def on_rows_opened(self, event: Rows.Opened) -> None:
        """Go from a line to its details."""
        event.stop()
        if event.rows is self.log_pane and self.has_details:
            self._swap("log", "details")

    def on_rows_context_menu(self, event: Rows.ContextMenu) -> None:
        """Open the menu of texts to copy."""
        event.stop()
        self.action_copy((event.x, event.y))

    def on_log_pane_modes_changed(self, event: LogPane.ModesChanged) -> None:
        """Draw the modes of the log in the title."""
        event.stop()
        self.show_title()

    def on_descendant_focus(self) -> None:
        """Mark the focused pane."""
        for bar in self.query(Bar):
            bar.refresh_if_changed()

    on_descendant_blur = on_descendant_focus

    def action_back(self) -> None:
        """Go back one step: from the details to the line, from a search to the whole log, or from the log to the jobs."""
        if self.details.has_focus:
            self._swap("details", "log")
        elif self.search.text:
            self.search.search("")
        else:
            self.post_message(self.LogLeft())

    # -------------------------------------------------------------------------------------------------------------- search

    def action_search(self) -> None:
        """Open the search line."""
        if self._only == "details":
            self.action_back()
        self.search.begin()

    def action_only_hits(self) -> None:
        """Show only lines with a hit, or show all lines."""
        self.search.toggle_only_hits()

    def on_filter_box_changed(self, event: FilterBox.Changed) -> None:
        """Search for the typed text."""
        event.stop()
        self.search.search(event.text)

    def on_filter_box_filter_left(self, event: FilterBox.FilterLeft) -> None:
        """Close the search line; if the user kept the search, go to a hit."""
        event.stop()
        self.search.leave(stays=event.is_remembered)

    # ---------------------------------------------------------------------------------------------------- levels and copying

    def action_levels(self) -> None:
        """Open the menu of log levels."""
        pane = self.log_pane
        items = [MenuItem(level, word, level.lower()) for level, word in _LEVELS]

        def show(on: set[str]) -> None:
            for level in on ^ set(pane.levels):
                pane.action_level(level)

        Checks.open(self.app, items, set(pane.levels), show, title="Levels")

    def action_copy(self, place: tuple[int, int] | None = None) -> None:
        """Open the menu of texts to copy, from the details or from the log."""
        if not self.details.has_focus:
            ask_lines(self.shell, self.job_details, self.log_pane.marks.list_selected(), place)
        else:
            offer_pair(self.shell, self.details, place)

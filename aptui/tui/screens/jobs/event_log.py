"""The two lower panes of the Jobs screen: the log of the selected job's run, and the details of the line under the cursor.

Tests: `tests/tui/screens/jobs/test_pane.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar, cast

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Vertical
from textual.message import Message

from aptui.shared.errors import KnownError
from aptui.shared.sanitize import sanitize
from aptui.store.jobs.filter import FilterError
from aptui.store.logs.joblog import JobLogLine as Record
from aptui.store.logs.joblog import is_tally
from aptui.tui.data.jobs_store import JobInfo
from aptui.tui.frame.line import Part, width_of
from aptui.tui.screens.common.bar import FRAME_CELLS, Bar
from aptui.tui.screens.jobs import log_copying as copying
from aptui.tui.screens.jobs.details import DetailsReader, DetailsRequest, JobDetails
from aptui.tui.screens.jobs.lines import EventLines, LineSearch, LogColumns, search
from aptui.tui.screens.jobs.running import RunningLines, RunningLog, goes_on, with_running
from aptui.tui.screens.jobs.texts import job_facts
from aptui.tui.terminal.safety import glyph
from aptui.tui.widgets.cells import fit
from aptui.tui.widgets.filterbox import FilterBox
from aptui.tui.widgets.keyvalue import KeyValue
from aptui.tui.widgets.logpane import LogPane
from aptui.tui.widgets.menu import Checks, MenuItem
from aptui.tui.widgets.rows.rows import Rows

if TYPE_CHECKING:
    from aptui.tui.pane import Shell

_MOST_DETAILS = 10
_LOOKED_AT, _WIDEST_WINDOW = 5000, 16
"""So many lines are looked at for how wide their window's name is, and so many cells it gets at most."""
WIDE = 120
"""From so many columns on log and details stand side by side."""
_LEVELS = (("I", "infos"), ("W", "warnings"), ("E", "errors"), ("D", "debug lines"))


class EventLog(Vertical):
    """Log and details; `show` says of which job. The reader is given once there is a database to read."""

    DEFAULT_CSS = """
    EventLog { width: 1fr; height: auto; }
    EventLog #event-filter { display: none; }
    EventLog #event-body { layout: vertical; width: 1fr; height: 1fr; }
    EventLog #event-main { width: 1fr; height: 1fr; }
    EventLog #event-side { width: 1fr; height: auto; }
    EventLog.-wide #event-body { layout: horizontal; }
    EventLog.-wide #event-main { width: 2fr; }
    EventLog.-wide #event-side { width: 1fr; height: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "search", "search", id="event.search"),
        Binding("ampersand", "only_hits", "only hits", show=False, id="event.only_hits"),
        Binding("L", "levels", "levels", show=False, id="event.levels"),
        Binding("y", "copy", "copy", id="event.copy"),
        Binding("escape", "back", "back", id="event.back"),
    ]

    class Left(Message):
        """Esc: the cursor goes back to the jobs."""

    class Shown(Message):
        """Other job_details are shown, or the size of the details is another one."""

    def __init__(self, *, is_wide: bool = False) -> None:
        super().__init__(id="event-log", classes="-wide" if is_wide else None)
        self.reader: DetailsReader | None = None
        self.job_details: JobDetails | None = None
        self.info: JobInfo | None = None
        self._columns: LogColumns | None = None
        self._search: LineSearch | None = None
        self._search_text, self._search_number = "", 0
        self._shows_only_hits = False
        self._only, self._is_alone = "", False
        self._wants_error = False
        self._said: RunningLines | None = None
        self._asking: RunningLog | None = None
        self.chosen_run = 0
        """Which run people stepped to; 0 = the newest, be it under way."""
        self._is_about_job = False
        """Whether the details are those of the job, for the line has none and there is room."""

    def compose(self) -> ComposeResult:
        """Make the parts."""
        with Container(id="event-body"):
            with Vertical(id="event-main"):
                yield Bar(self._title, id="event-title", rules=True)
                yield FilterBox(id="event-filter", placeholder="search in this log", disabled=True)
                yield LogPane(id="event-lines", wraps=True)
            with Vertical(id="event-side"):
                yield Bar(self._details_title, id="details-title", rules=True)
                yield KeyValue(id="details")

    def on_mount(self) -> None:
        """Begin with nothing."""
        self.log_pane.empty_text = "no job is selected"
        self.details.empty_text = "this line has no details"
        self._show_details()

    @property
    def shell(self) -> Shell:
        """The app."""
        return cast("Shell", self.app)

    @property
    def log_pane(self) -> LogPane:
        """The lines."""
        return self.query_one(LogPane)

    @property
    def details(self) -> KeyValue:
        """The context of the line under the cursor."""
        return self.query_one(KeyValue)

    # ------------------------------------------------------------------------------------------------------------ the job

    def show(self, info: JobInfo | None, *, expects: tuple[str, int] | None = None, run_key: int = 0) -> None:
        """Show the log of a job, as soon as it is read; None = of none.

        Args:
            expects: (status, run key) as news told them; the database is read until it says the same.
            run_key: which run; 0 = the newest.
        """
        self.info, self.chosen_run = info, run_key
        if info is None or self.reader is None:
            self._wants_error = False
            self.take_details(None)
            return
        self.reader.request(DetailsRequest(info, run_key, expects))
        self.query_one("#event-title", Bar).changed()

    def take_details(self, job_details: JobDetails | None) -> None:
        """Show what was read; what is not wanted any more is let go."""
        if not self.is_mounted or (job_details is not None and (self.info is None or job_details.info.key != self.info.key)):
            return
        if job_details is not None and self.info is not None and self._said is not None:
            job_details, self._said = with_running(job_details, self.info, self._said, is_wanted=not self.chosen_run)
        before, self.job_details = self.job_details, job_details
        if (
            job_details is None
            or before is None
            or (job_details.info.key, job_details.log, job_details.records) != (before.info.key, before.log, before.records)
        ):
            if job_details is not None and goes_on(before, job_details):
                self._go_on(job_details)
            else:
                self._renew(job_details)
        self.log_pane.empty_text = "no job is selected" if job_details is None else sanitize(job_details.nothing)
        if self._wants_error and job_details is not None:
            self._wants_error = False
            self._go_to_what_matters()
        self.log_pane.refresh()
        self._show_context(self.log_pane.cursor_key)
        self._show_details()
        self.post_message(self.Shown())

    @property
    def running_id(self) -> int:
        """The job whose running log is wanted: it runs, and its lines have a place to be seen; 0 = none."""
        info = self.info
        is_wanted = self.display and self.query_one("#event-main").display and not self.chosen_run and not self.is_reading
        return info.key if info is not None and info.key > 0 and info.status == "processing" and is_wanted else 0

    def look_on(self) -> None:
        """Have a job that runs say what it has logged since; call it with each frame."""
        self._asking = self._asking or RunningLog(self.shell, self, lambda wait_s: self.set_timer(wait_s, self.shell.wake))
        self._asking.look()

    def take_running(self, running: RunningLines) -> None:
        """Show what a job that runs has logged so far."""
        if self.is_mounted and self.running_id == running.job_id:
            self._said = running
            self.take_details(self.job_details)

    def _go_on(self, job_details: JobDetails) -> None:
        """Show more of the same log, or all of it now that its run has ended; nothing jumps."""
        pane = self.log_pane
        self._columns = None
        self._fit_window(job_details)
        pane.renew_source(EventLines(job_details.lines))
        self._leave_tally()
        if self._search_text:
            self._look(self._search_text)

    def _fit_window(self, job_details: JobDetails | None) -> None:
        windows = {record.window for record in (job_details.records[:_LOOKED_AT] if job_details else ())}
        windows |= {"aptui"} if job_details and job_details.running_key else set()  # who says the last line of every log
        self.log_pane.set_window_cells(min(_WIDEST_WINDOW, max(map(cell_len, windows), default=1)))

    def _renew(self, job_details: JobDetails | None) -> None:
        pane = self.log_pane
        self._columns = self._search = None
        pane.set_search(None)
        self._fit_window(job_details)
        pane.set_source(EventLines(job_details.lines if job_details else ()))
        self.details.show([])  # what stood there was of another log
        self._is_about_job = False
        if pane.is_following:
            pane.action_last()
        else:
            self._go_to_what_matters()
        if self._search_text:
            self._look(self._search_text)

    @property
    def is_reading(self) -> bool:
        """Whether another job's log is to be shown than the one that is."""
        return self.info is not None and (self.job_details is None or self.job_details.info.key != self.info.key)

    def go_to_first_error(self) -> None:
        """Put the cursor there, now or when the log was read."""
        self._wants_error = self.info is None or self.is_reading
        if not self._wants_error:
            self._go_to_what_matters()

    def _go_to_what_matters(self) -> None:
        """Put the cursor on the first error, else the first warning, else the last line that says more than how many there are.

        Of a run that goes on the last line matters.
        """
        if self.job_details is not None and self.job_details.running_key:
            self.log_pane.action_last()
            return
        if not self.log_pane.go_to_first_error():
            self._leave_tally()

    def _leave_tally(self) -> None:
        """Put the cursor on what was said last where it is on the line that counts errors."""
        pane, records = self.log_pane, self.job_details.records if self.job_details else ()
        if pane.cursor_key == len(records) - 1 > 0 and is_tally(records[-1].text):
            pane.action_move(-1)

    def step_run(self, step: int) -> None:
        """Show the run after (1) or before (-1) the one that is shown."""
        job_details = self.job_details
        if job_details is None or self.info is None or job_details.info.key != self.info.key or not job_details.runs:
            return
        at = (-1 if job_details.running_key else job_details.at) - step
        first = -1 if self.info.status == "processing" else 0
        if first <= at < len(job_details.runs):
            self.show(self.info, run_key=job_details.runs[at].run_key if at > first else 0)
        else:
            self.shell.tell("there is no later run" if step > 0 else "no run before this one is kept", seconds=2)

    # ---------------------------------------------------------------------------------------------------------- its places

    def lay_out(self, only: str, *, is_alone: bool = False) -> None:
        """Show both panes ("" ), or only "log" or "details"; side by side where there is room, unless one is to be alone."""
        self._only, self._is_alone = only, is_alone
        self._show_details()

    @property
    def has_details(self) -> bool:
        """Whether the line under the cursor carries context."""
        return bool(self.details.pairs) and not (self._is_about_job and not self.has_class("-wide"))

    def _show_details(self) -> None:
        """Give each part its room."""
        has_room = self.size.width >= WIDE if self.size.width else self.has_class("-wide")  # as guessed, until it is known
        is_wide = has_room and not self._is_alone
        if is_wide != self.has_class("-wide"):
            self.set_class(is_wide, "-wide")
            self._show_context(self.log_pane.cursor_key)
        only = "" if is_wide else self._only
        shows_details = (self.has_details or is_wide) and only != "log"
        shows_log = not (only == "details" and shows_details)
        had_focus = self.screen.focused is self.details and not shows_details
        for part in ("#event-main", "#event-title", "#event-lines"):
            self.query_one(part).display = shows_log
        for part in ("#event-side", "#details-title", "#details"):
            self.query_one(part).display = shows_details
        self.query_one("#event-side").styles.height = "1fr" if is_wide or not shows_log else "auto"
        lines = self.details.count_rows() + 1
        most = max(2, self.size.height // 2 - 1) if self.size.height else _MOST_DETAILS
        self.details.styles.height = "1fr" if is_wide or not shows_log else min(lines, _MOST_DETAILS, most)
        if had_focus:
            self.screen.set_focus(self.log_pane)
        for bar in self.query(Bar):
            bar.changed()

    def _swap(self, one: str, other: str) -> None:
        """Go from log to details or back; where only one of them shows, the other takes its place."""
        target = self.details if other == "details" else self.log_pane
        target.display = True
        self.screen.set_focus(target)
        self._only = other if self._only == one else self._only
        self._show_details()

    def on_resize(self) -> None:
        """Give the details their share of the new height."""
        self._show_details()

    def _title(self, width: int) -> tuple[Sequence[Part], Sequence[Part]]:
        info, job_details = self.info, self.job_details
        if self.is_reading and job_details is not None:
            info = job_details.info  # whose lines still stand below
        role = "title" if self.log_pane.has_focus else "header"
        if info is None:
            return (Part("Event log", role),), ()
        is_read = job_details is not None and job_details.info.key == info.key
        count = self.log_pane.source.line_count()
        right = self._search_parts() + self._level_parts()
        right += [Part(f"{count:,} line{'' if count == 1 else 's'}" if is_read else "reading", "muted")] if width >= 60 else []
        head, tail = [Part("Event log", role), Part(" · ", "muted")], self._run_parts(job_details if is_read else None)
        job = [Part(sanitize(f" · {info.platform} · {info.job_key}"), "muted")]
        room = width - FRAME_CELLS - width_of(head + tail + right)
        job = job if room - width_of(job) >= cell_len(sanitize(info.source)) else []
        path = fit(info.source, max(1, room - width_of(job))).text.rstrip()
        return [*head, Part(path, "path"), *job, *tail], right

    def _run_parts(self, job_details: JobDetails | None) -> list[Part]:
        parts = []
        if job_details is not None and job_details.running_key:
            parts.append(Part(f" · run {job_details.running_key}", "muted"))
        elif job_details is not None and job_details.run is not None:
            which = f" ({len(job_details.runs) - job_details.at} of {len(job_details.runs)})" if len(job_details.runs) > 1 else ""
            parts.append(Part(f" · run {job_details.run.run_key}{which}", "muted" if job_details.is_newest else "warning"))
        if self.info is not None and self.info.status == "processing":
            parts.append(Part(f" {glyph('processing')} running", "processing"))
        return parts

    def _search_parts(self) -> list[Part]:
        if not self._search_text:
            return []
        found = self._search
        hits = f" {len(found.hits):,} hit{'' if len(found.hits) == 1 else 's'}" if found else ""
        return [
            Part(f"/ {sanitize(self._search_text)}", "accent"),
            Part(f"{hits}{', no other lines' if self._shows_only_hits else ''}  ", "muted"),
        ]

    def _level_parts(self) -> list[Part]:
        return [Part(f"{word}  ", "accent") for word in self.log_pane.modes().split("  ") if word]

    def _details_title(self, width: int) -> tuple[Sequence[Part], Sequence[Part]]:
        del width
        words = "About this job" if self._is_about_job else "Details of this line"
        return (Part(words, "title" if self.details.has_focus else "header"),), ()

    # -------------------------------------------------------------------------------------------------------------- events

    def on_rows_highlighted(self, event: Rows.Highlighted) -> None:
        """Show the details of the line under the cursor."""
        event.stop()
        if event.rows is not self.log_pane:
            return
        had_details = self.has_details
        if self._show_context(event.key):
            self._show_details()
            if had_details != self.has_details:
                self.post_message(self.Shown())

    def _show_context(self, key: int | None) -> bool:
        """Show what stands beside a line; return whether that is something else."""
        records = self.job_details.records if self.job_details else ()
        context = list(records[key].context) if key is not None and key < len(records) else []
        is_about_job = not context and self.job_details is not None and self.has_class("-wide")
        if is_about_job and self.job_details is not None:
            context = job_facts(self.job_details)
        is_other = context != self.details.pairs or is_about_job != self._is_about_job
        self._is_about_job = is_about_job
        if is_other:
            self.details.show(context)
        return is_other

    def on_rows_opened(self, event: Rows.Opened) -> None:
        """Go from a line to its details."""
        event.stop()
        if event.rows is self.log_pane and self.has_details:
            self._swap("log", "details")

    def on_rows_context_menu(self, event: Rows.ContextMenu) -> None:
        """Offer to copy."""
        event.stop()
        self.action_copy((event.x, event.y))

    def on_log_pane_modes_changed(self, event: LogPane.ModesChanged) -> None:
        """Draw the modes."""
        event.stop()
        self.query_one("#event-title", Bar).changed()

    def on_descendant_focus(self) -> None:
        """Show which part has the keys."""
        for bar in self.query(Bar):
            bar.changed()

    on_descendant_blur = on_descendant_focus

    def action_back(self) -> None:
        """Go back: from the details to the line; from a search to the whole log; from the log to the jobs."""
        if self.details.has_focus:
            self._swap("details", "log")
        elif self._search_text:
            self._look("")
        else:
            self.post_message(self.Left())

    # -------------------------------------------------------------------------------------------------------------- search

    def action_search(self) -> None:
        """Ask what to search for."""
        box = self.query_one("#event-filter", FilterBox)
        if self._only == "details":
            self.action_back()
        box.disabled, box.display = False, True
        box.text = self._search_text
        box.begin()

    def action_only_hits(self) -> None:
        """Show the lines with a hit alone, or all again."""
        self._shows_only_hits = not self._shows_only_hits
        self._keep_hits()

    def on_filter_box_changed(self, event: FilterBox.Changed) -> None:
        """Search as people type."""
        event.stop()
        self._look(event.text)

    def on_filter_box_left(self, event: FilterBox.Left) -> None:
        """Go to the first hit, if there is one."""
        event.stop()
        box = self.query_one("#event-filter", FilterBox)
        box.display, box.disabled = False, True
        self.log_pane.focus()
        if event.is_kept and self._search and self._search.hits and self.log_pane.cursor_key not in self._search.hits:
            self.log_pane.action_hit(1)

    def _look(self, text: str) -> None:
        self._search_text, self._search_number = text, self._search_number + 1
        if not text:
            self._found(self._search_number, None)
            return
        records = self.job_details.records if self.job_details else ()
        self.run_worker(
            partial(self._search_in, self._search_number, text, self._columns, records), thread=True, exclusive=True, group="search"
        )

    def _search_in(self, number: int, text: str, columns: LogColumns | None, records: Sequence[Record]) -> None:
        """Search, in a thread."""
        answer: LineSearch | KnownError
        if columns is None:
            columns = self._columns = LogColumns(records)
        try:
            answer = search(text, columns)
        except KnownError as error:
            answer = error
        self.shell.in_ui(self._found, number, answer)

    def _found(self, number: int, answer: LineSearch | KnownError | None) -> None:
        if number != self._search_number or not self.is_mounted:
            return
        box = self.query_one("#event-filter", FilterBox)
        if isinstance(answer, KnownError):
            column = answer.column - 1 if isinstance(answer, FilterError) else 0
            box.show_mistake(column, answer.what, answer.hint)
            return
        self._search = answer
        count = len(answer.hits) if answer else 0
        box.show_count(f"{count:,} hit{'' if count == 1 else 's'}" if answer else "")
        self.log_pane.set_search(answer.spans if answer else None, answer.hits if answer else ())
        self._keep_hits()

    def _keep_hits(self) -> None:
        source = self.log_pane.source
        if isinstance(source, EventLines):
            source.keep(self._search.hits if self._search and self._shows_only_hits else None)
            self.log_pane.refresh_source()
        self.query_one("#event-title", Bar).changed()

    # ------------------------------------------------------------------------------------------------------- levels, copying

    def action_levels(self) -> None:
        """Choose which levels show: Space and letters toggle, Enter and Esc go back."""
        pane = self.log_pane
        items = [MenuItem(level, word, level.lower()) for level, word in _LEVELS]

        def show(on: set[str]) -> None:
            for level in on ^ set(pane.levels):
                pane.action_level(level)

        Checks.offer(self.app, items, set(pane.levels), show, title="Levels")

    def action_copy(self, place: tuple[int, int] | None = None) -> None:
        """Ask what to copy: of the details, or of the log."""
        if self.details.has_focus:
            copying.ask_details(self.shell, self.details.current(), self.details.pairs, place)
        else:
            copying.ask_lines(self.shell, self.job_details, self.log_pane.selected_keys(), place)

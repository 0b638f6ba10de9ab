"""The Jobs screen: the table of jobs above, the log of the selected job and the details of a line below."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widget import Widget
from textual.widgets import Input

from aptui.config.dirs import asset_database
from aptui.shared.printing import count, sanitize
from aptui.store.queries.logs import LogLines, log_folder
from aptui.tui.background import run_in_background
from aptui.tui.data.feed import Batch
from aptui.tui.data.job_infos import CauseGroup, JobRowInfo
from aptui.tui.data.jobs_store import JobsStore
from aptui.tui.frame.commandline import Command
from aptui.tui.frame.line import Bar, Part
from aptui.tui.pane import Pane
from aptui.tui.screens.jobs.event_log import WIDE, EventLog
from aptui.tui.screens.jobs.job_actions import RowActions
from aptui.tui.screens.jobs.job_details import DetailsReader
from aptui.tui.screens.jobs.job_texts import CheckMarks, term
from aptui.tui.screens.jobs.jobs_table import FAILED_FIRST, Causes, CausesTable, Choices, JobsTableView, RunningStrip
from aptui.tui.screens.jobs.selection import CursorGoal, FixedJobs, LastVisit, Resting, SelectedJob, TableChanges
from aptui.tui.terminal.safety import glyph
from aptui.tui.widgets.filterbox import FilterBox
from aptui.tui.widgets.row_list import Rows
from aptui.tui.widgets.table import Table

_ROOMY, _LEAST = 100, 60
_SPLIT_STEP = 8
"""Distance by which a key press moves the border between the panes, in per cent of the height."""
_ALONE_BELOW = 12
"""Height of the screen below which only one pane is visible (lines)."""
_LEAST_LOWER = 5
_SPLIT, _SPLIT_BESIDE = 40, 41
"""Default height of the lower panes and default width of the log beside the table, in per cent of the screen."""
_BESIDE = 160
"""Minimum width for the log beside the table (columns)."""
_NARROWEST, _WIDEST = 16, 80
_MOST_DIGITS, _LAST_NUMBER = 18, (1 << 63) - 1
"""`_MOST_DIGITS`: maximum length of a job number. For a longer number, which no job has, `_LAST_NUMBER` is searched."""
_ABOVE_ROWS, _LEAST_ROWS = 2, 6
"""Number of lines above the rows (filter and header), and minimum number of rows that stay visible."""


class JobsPane(Pane):
    """The Jobs screen; other screens call its method `reveal`.

    It has three panes: table, event log and details. It shows all of them if there is room, otherwise two or one. `Tab` focuses the
    next pane, `z` gives one pane all the room.
    """

    DEFAULT_CSS = """
    JobsPane { layout: vertical; }
    JobsPane #jobs-upper { width: 1fr; height: 1fr; }
    JobsPane #jobs-filter, JobsPane #jobs-causes, JobsPane #jobs-running { display: none; }
    JobsPane.-beside { layout: horizontal; }
    JobsPane.-beside EventLog { padding: 0 0 0 1; }
    """
    wants_jobs = True
    command_names = ("filter", "sort", "job", "news", "causes", "reprocess", "cancel", "escalate", "copy", "why")
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "filter", "filter", id="jobs.filter"),
        Binding("s", "choose('statuses')", "status", id="jobs.status"),
        Binding("y", "row('copy')", "copy", id="jobs.copy"),
        Binding("r", "row('reprocess')", "run again", id="jobs.reprocess"),
        Binding("x", "row('why')", "why", id="jobs.why"),
        Binding("plus", "row('escalate')", "run next", id="jobs.escalate"),
        Binding("f", "causes", "causes", id="jobs.causes"),
        Binding("t", "lines", "sources or jobs", show=False, id="jobs.lines"),
        Binding("full_stop", "menu", "menu", id="jobs.menu"),
        Binding("c", "row('cancel')", "cancel", id="jobs.cancel"),
        Binding("z", "zoom", "zoom", id="jobs.zoom"),
        Binding("o", "row('pager')", "log in $PAGER", show=False, id="jobs.pager"),
        Binding("O", "row('editor')", "$EDITOR", show=False, id="jobs.editor"),
        Binding("F", "row('folder')", "folder", show=False, id="jobs.folder"),
        Binding("V", "row('show')", "show in the editor", show=False, id="jobs.show"),
        Binding("a", "row('source')", "source asset", show=False, id="jobs.source"),
        Binding("p", "row('products')", "product assets", show=False, id="jobs.products"),
        Binding("B", "row('builder')", "builder", show=False, id="jobs.builder"),
        Binding("S", "choose('order')", "sort", show=False, id="jobs.sort"),
        Binding("exclamation_mark", "failed_first", "failed first", show=False, id="jobs.failed_first"),
        Binding("R", "resort", "sort again", show=False, id="jobs.resort"),
        Binding("C", "choose('columns')", "columns", show=False, id="jobs.columns"),
        Binding("e", "next('errors', 1)", "next failed", show=False, id="jobs.next_failed"),
        Binding("E", "next('errors', -1)", "previous failed", show=False, id="jobs.previous_failed"),
        Binding("w", "next('warnings', 1)", "next with warnings", show=False, id="jobs.next_warning"),
        Binding("W", "next('warnings', -1)", "previous with warnings", show=False, id="jobs.previous_warning"),
        Binding("n", "hit(1)", "next hit", show=False, id="jobs.next_hit"),
        Binding("N", "hit(-1)", "previous hit", show=False, id="jobs.previous_hit"),
        Binding("left_curly_bracket", "run(-1)", "earlier run", show=False, id="jobs.earlier_run"),
        Binding("right_curly_bracket", "run(1)", "later run", show=False, id="jobs.later_run"),
        Binding("left_square_bracket", "view(-1)", "earlier filter", show=False, id="jobs.earlier_view"),
        Binding("right_square_bracket", "view(1)", "later filter", show=False, id="jobs.later_view"),
        Binding("less_than_sign", f"split({_SPLIT_STEP})", "make the log larger", show=False, id="jobs.more_log"),
        Binding("greater_than_sign", f"split(-{_SPLIT_STEP})", "make the table larger", show=False, id="jobs.less_log"),
        Binding("tab", "part(1)", "next part", show=False, id="app.next_part"),
        Binding("shift+tab", "part(-1)", "previous part", show=False, id="app.previous_part"),
        Binding("escape", "back", "back", show=False, id="jobs.back"),
    ]

    _part = "table"
    _is_zoomed = False
    shows_causes = False
    """Whether the upper pane lists the failures by cause instead of jobs."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002  # Textual's name
        super().__init__(id=id)
        self.store = JobsStore(wake=self._wake, clock_ms=self.shell.session.clock_ms)
        self.choices = Choices(self, self.store)
        self.actions = RowActions(self)
        self._causes = Causes(self, self.store)
        shell, config = self.shell, self.shell.config
        log_dir = config.log_dir if config else log_folder(shell.session.cache_dir)
        self._reader = DetailsReader(
            self.database,
            log_dir,
            lambda details: shell.in_ui(lambda: self.event_log.accept_details(details)),
            config.project_dir if config else None,
        )
        self._checks = CheckMarks(self.database, config.checks if config else (), self._wake)
        self.store.log_lines = LogLines(self.database, log_dir)
        self.selection = SelectedJob(self.store, lambda: self.event_log)
        self.goal = CursorGoal(self.store, lambda: self.table, lambda: self.choices.filter_by(""), self.shell.show_toast)
        self._is_warm = False
        self._knows_platforms = self.shell.config is not None
        self._trouble = ""
        self.resting = Resting()
        self.changes = TableChanges(self, self.store, self.resting)
        self.fixed = FixedJobs(self.store)
        self.last_visit = LastVisit(self, self.store)

    def compose(self) -> ComposeResult:
        """Create the widgets."""
        with Vertical(id="jobs-upper"):
            yield Bar(self._head_ends, id="jobs-bar", rules=False)
            yield FilterBox(
                id="jobs-filter",
                placeholder="a regex on the path; status: platform: key: builder: reason: after: slower: !not",
                disabled=True,
            )
            yield RunningStrip(self, self.store)
            yield JobsTableView(self.store, id="jobs-table")
            yield CausesTable(id="jobs-causes")
        # The CSS classes are set before the first frame, because a later change would style every widget a second time.
        width = self.app.size.width
        self.set_class(width >= _BESIDE, "-beside")
        yield EventLog(self._reader, is_wide=WIDE <= width < _BESIDE, is_tall=width >= _BESIDE)

    def on_mount(self) -> None:
        """Restore the remembered choices; the first rows arrive with the first frame."""
        self.box.history.texts = self.choices.history()
        self.table.set_model(self.store)
        self.table.empty_text = "reading the jobs"
        self.watch(self.table, "scroll_y", self.query_one("#jobs-bar", Bar).refresh_if_changed, init=False)
        self.causes.set_model(self._causes)
        self.choices.restore()
        self.last_visit.restore()

    def on_unmount(self) -> None:
        """End the threads."""
        self.store.close()
        for thread in (self._reader, self._checks, self._causes):
            thread.close()

    # -------------------------------------------------------------------------------------------------------------- layout

    @property
    def table(self) -> JobsTableView:
        """The widget of the table of jobs."""
        return self.query_one(JobsTableView)

    @property
    def causes(self) -> CausesTable:
        """The widget that lists failures by cause."""
        return self.query_one(CausesTable)

    @property
    def box(self) -> FilterBox:
        """The filter line."""
        return self.query_one("#jobs-filter", FilterBox)

    @property
    def event_log(self) -> EventLog:
        """The widget of the lower panes."""
        return self.query_one(EventLog)

    @property
    def upper(self) -> Table:
        """The table in the upper pane: the jobs or the causes."""
        causes = self.causes
        return causes if causes.display else self.table

    def arrange_parts(self) -> None:
        """Divide the room among three or two panes, or give all of it to the zoomed pane."""
        height = self.size.height
        if not height:
            return
        is_alone = self._is_zoomed or height < _ALONE_BELOW
        is_beside = self.is_beside and not is_alone
        self.set_class(is_beside, "-beside")
        log, shows_upper = self.event_log, not is_alone or self._part == "table"
        self.query_one("#jobs-upper").display = shows_upper
        self.table.display, self.causes.display = not self.shows_causes, self.shows_causes
        log.display = not is_alone or self._part != "table"
        log.styles.height = "1fr" if is_alone or is_beside else self._lower_height(height)
        log.styles.width = f"{self.shell.memory.get('jobs.split', 0) or _SPLIT_BESIDE}%" if is_beside else "1fr"
        log.lay_out("details" if self._part == "details" else "log", is_alone=is_alone, is_tall=is_beside)

    @property
    def is_beside(self) -> bool:
        """Whether there is room for the log beside the table."""
        return self.size.width >= _BESIDE

    def _lower_height(self, height: int) -> int:
        """Return the height of the lower panes.

        The user's choice has precedence. By default, it is the larger of two heights: a share of the screen, and the lines that the
        table does not need.
        """
        share = self.shell.memory.get("jobs.split", 0)
        wanted = max(_LEAST_LOWER, height * (share or _SPLIT) // 100)
        return wanted if share else max(wanted, height - _ABOVE_ROWS - max(_LEAST_ROWS, self.upper.count_rows()))

    def follow_rows(self) -> None:
        """Change the height of the lower panes, so that they have the lines that the table does not need now."""
        height = self.size.height
        if height and not self._is_zoomed and height >= _ALONE_BELOW and not self.is_beside:
            wanted = self._lower_height(height)
            if self.event_log.styles.height is None or self.event_log.styles.height.value != wanted:
                self.event_log.styles.height = wanted

    def on_resize(self, event: events.Resize) -> None:
        """Lay out again for another size."""
        del event
        self.arrange_parts()

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """Note which pane has the focus."""
        log = self.event_log
        part = {log.log_pane: "log", log.details: "details", self.table: "table", self.causes: "table"}.get(event.widget)  # type: ignore[call-overload]
        if part is not None and part != self._part:
            self._part = part
            self.arrange_parts()

    def go_to(self, part: str) -> None:
        """Show and focus a pane. Hide the previous pane only after that, so that no key is lost."""
        self._part = part
        upper = self.causes if self.shows_causes else self.table
        target = {"table": upper, "log": self.event_log.log_pane, "details": self.event_log.details}[part]
        target.display = True
        (self.query_one("#jobs-upper") if part == "table" else self.event_log).display = True
        self.screen.set_focus(target)
        self.arrange_parts()

    def action_part(self, step: int) -> None:
        """Focus the next (1) or previous (-1) of the three panes."""
        parts = ["table", "log", *(["details"] if self.event_log.has_details else [])]
        at = parts.index(self._part) if self._part in parts else 0
        self.go_to(parts[(at + step) % len(parts)])

    def action_zoom(self) -> None:
        """Give one pane all the room, or divide the room again."""
        self._is_zoomed = not self._is_zoomed
        self.arrange_parts()

    def action_split(self, per_cent: int) -> None:
        """Move the border between table and log."""
        share = _SPLIT_BESIDE if self.is_beside else 100 * self._lower_height(self.size.height) // max(1, self.size.height)
        now = self.shell.memory.get("jobs.split", 0) or share
        self.shell.memory.put("jobs.split", max(_NARROWEST, min(_WIDEST, now + per_cent)))
        self.arrange_parts()

    # ------------------------------------------------------------------------------------- selection and methods of `Pane`

    @property
    def database(self) -> Path:
        """The asset database."""
        return asset_database(self.shell.session.cache_dir)

    def list_selected(self) -> list[JobRowInfo]:
        """Return the jobs for an action: the marked jobs, else the jobs of the row under the cursor.

        The job whose log is shown is first.
        """
        keys = self.table.marks.list_selected()
        if not self.table.marks and self.selection.key in keys:
            keys = list(dict.fromkeys([self.selection.key, *keys]))
        return [info for key in keys if (info := self.store.info(key)) is not None]

    def name_awaited(self, focused: Widget | None) -> str:
        """Return a name for the data that delays the next key: the first rows, a sheet, the rows of a filter, or a log."""
        if not self.store.is_loaded and not self._trouble and not (focused is None and self.store.has_rows):
            return "the first rows"
        if self.actions.is_asking_why:
            return "the sheet"
        if isinstance(focused, Input):
            return ""
        if self.event_log in (focused.ancestors_with_self if focused else ()):
            return "the log" if self.event_log.is_reading else ""
        return "the filter" if self.store.is_busy else ""

    def activate(self) -> None:
        """Lay out the panes when the screen becomes visible; focus the upper pane if no pane has the focus."""
        if not self.has_focus_within or self.box.has_focus_within:
            self.upper.focus()
        self.arrange_parts()

    def deactivate(self) -> None:
        """Remember the user's choices."""
        if self.choices.mistake() is None:
            self.choices.remember_filter()
        self.last_visit.keep()

    def reload(self) -> None:
        """Read the selected job again."""
        self.selection.mark_stale()

    def status(self) -> str:
        """Return the number of visible jobs."""
        return f"{self._count_words()}, {self.choices.order_words()}"

    def commands(self) -> Sequence[Command]:
        """Return the commands of the `:` line."""
        names = (
            ("reprocess", "run {} again"),
            ("cancel", "cancel {}"),
            ("escalate", "run {} next"),
            ("copy", "copy from {}"),
            ("why", "explain {}"),
        )
        actions = (
            Command(name, label.format("the selected jobs"), lambda _rest, name=name: self.action_row(name))  # type: ignore[misc]
            for name, label in names
            if self.actions.can(name)
        )
        words = "jobs that failed or were fixed since your last visit"
        news = Command("news", words, lambda _rest: self.last_visit.show(), is_everywhere=True)
        causes = Command("causes", "failures by cause", lambda _rest: self.action_causes())
        return (*self.choices.commands(), news, causes, *actions)

    def reveal(self, text: str) -> None:
        """Show a job (`#12`), or the jobs that match a filter; called by other screens."""
        self._close_causes()
        digits = text.strip().removeprefix("#")
        if text.strip().startswith("#") and digits.isdecimal():
            self.goal.set_job(int(digits) if len(digits) <= _MOST_DIGITS else _LAST_NUMBER)
        else:
            self.choices.filter_by(text)
            self.goal.set_first()
        self.go_to("table")

    # --------------------------------------------------------------------------------------------------------------- frames

    def _wake(self) -> None:
        if self.is_attached:
            self.shell.wake()

    def on_news(self, batch: Batch) -> None:
        """Apply the notices of one frame."""
        table = self.table
        self.store.hold(table.top, table.top + table.page_rows)
        if fixed := self.fixed.note(batch):
            self.shell.show_toast(fixed)
        if (read := batch.table or batch.first) is not None and not self._knows_platforms:
            self._knows_platforms = True
            # This call comes before `apply`, because `apply` computes the rows.
            self.choices.group_by_source(platform_count=read.platform_count)
        self.store.apply(batch)
        self._trouble = batch.error or (self._trouble if batch.table is None else "")
        self.selection.note(batch)
        if batch.table is not None or batch.are_assets_stale:
            self._checks.mark_stale()

    def on_frame(self) -> None:
        """Draw changes."""
        if (found := self._checks.pop()) is not None:
            self.store.set_checks(found)
        if self.store.is_loaded:
            self.table.empty_text = self._explain_empty()
            self.last_visit.compare()
        elif self._trouble:
            self.table.empty_text = sanitize(self._trouble)
        self.choices.drop_invalid()
        has_marks = bool(self.table.marks) or self.table.marks.are_in_range
        stays = has_marks or self.table.is_held or self._is_on_failure()
        self.table.follows_top = not stays and self._part == "table"
        self.table.refresh_model()
        if not self.box.display:  # the columns keep their widths while the user types a filter
            self.choices.fit_columns()
        self.goal.apply()
        if self.causes.display:
            self._causes.renew()
            self.causes.refresh_model()
        if self.store.has_rows:
            self.follow_rows()
        self.selection.follow(self.table.cursor_key)
        self.event_log.refresh_running()
        self._show_counts()
        self.changes.update()

    def _explain_empty(self) -> str:
        """Return the text of an empty table: no job matches the filter, or no jobs exist yet (with folders and patterns)."""
        if self.store.total:
            hint = "" if self.store.row_count() else self.choices.find_hint()
            return f"no job matches{'; ' * bool(hint)}{hint}; press Esc to clear the filter"
        config = self.shell.config
        if config is None:
            return "no jobs yet; jobs of the sources in the scan folders appear here"
        folders = ", ".join(folder.path for folder in config.project.scan_folders if not folder.is_intermediate)
        patterns = " ".join(pattern.text for builder in config.project.builders for pattern in builder.patterns)
        where = f"watched folders  {sanitize(folders) or 'none'}\npatterns         {sanitize(patterns) or 'none'}"
        return f"no jobs yet\n{where}\nadd a file, or change aptui.yaml; 'aptui init --dry-run' proposes builders"

    def _is_on_failure(self) -> bool:
        """Return whether failed jobs are sorted first and the cursor is on a failed job.

        If so, the cursor stays on its job while other jobs fail.
        """
        key = self.table.cursor_key
        info = self.store.info(key) if key is not None and self.store.sort[0] == FAILED_FIRST else None
        return info is not None and (info.status == "failed" or info.errors > 0)

    def _show_counts(self) -> None:
        self.query_one(RunningStrip).update_jobs()
        self.query_one("#jobs-bar", Bar).refresh_if_changed()
        if self.box.display:
            self.choices.show_count(self.box, self._count_words())

    # ------------------------------------------------------------------------------------------------ line above the table

    def _count_words(self) -> str:
        """Return the number of jobs that match the filter, and the number of all jobs."""
        hits, total = self.store.hit_count, self.store.total
        if not self.store.has_rows:
            return ""
        # A filter with a mistake does not change the rows.
        if self.store.is_filtering and self.choices.mistake() is None:
            return "filtering…"  # the rows are still those of the previous filter
        words = f"{hits:,} of {total:,}" if self.store.filter.terms else count(total, "job")
        sources = self.store.source_count
        return f"{count(sources, 'source')}, {words}" if sources and self.app.size.width >= _ROOMY else words

    def _head_ends(self, width: int) -> tuple[Sequence[Part], Sequence[Part]]:
        """Return the text at the left (the filter) and at the right (marks, number of jobs, order) of the line above the table."""
        text, mistake = self.choices.text, self.choices.mistake()
        press = "keys.press('slash')"
        if self.shows_causes:  # the list of failures by cause ignores the filter
            return [Part(" all failures by cause", "header")], [Part(count(self._causes.row_count(), "cause"), "title")]
        left = [Part(" / ", "accent", press), Part(sanitize(text) if text else "filter", "path" if text else "muted", press)]
        if mistake is not None:
            left.append(Part(f"   ✗ column {mistake[0] + 1}: {sanitize(mistake[1])}", "error"))
        marks, late = len(self.table.marks), self.store.late_count
        right = [Part(f"{marks:,} marked   ", "mark")] if marks else []
        if (top := self.table.top) and (above := self.store.count_failed_above(top)):
            right.append(Part(f"{glyph('ascending')} {above:,} failed above   ", "failed", "keys.press('E')"))
        if late:
            right.append(
                Part(f"{late:,} new rows at the end   " if width >= _ROOMY else f"+{late:,}   ", "accent", "keys.press('R')")
            )
        right.append(Part(self._count_words(), "title" if text else "muted"))
        if width >= _LEAST:
            words = self.choices.order_words()
            right.append(Part(f"   {words if width >= _ROOMY else words.removeprefix('sorted by ')}", "muted", "keys.press('S')"))
        return left, right

    # ------------------------------------------------------------------------------------------------ the key for going back

    def action_back(self) -> None:
        """Undo the first of these that is active: the list of causes, the zoom, the marks, the filter."""
        if self.shows_causes:
            self._close_causes()
            self.table.focus()
        elif self._is_zoomed:
            self.action_zoom()
        elif self.table.marks:
            self.table.action_unmark()
        elif self.choices.text:
            text = self.choices.text
            self.choices.filter_by("")
            self.shell.show_toast(f"filter cleared: {text}", seconds=2)

    # --------------------------------------------------------------------------------------------------- events of the table

    def on_rows_highlighted(self, event: Rows.Highlighted) -> None:
        """Show the log of the job under the cursor."""
        event.stop()
        if event.rows is self.table:
            if self.store.job_at(event.key, self.selection.key) != self.selection.key:
                if self.selection.key is not None:
                    self.resting.note_cursor(self.shell.touched_s)
                self.selection.show_job(event.key)
        elif event.rows is self.causes and self.shows_causes and self._causes.index_of(event.key) is not None:
            self.selection.show_job(self._causes.find_first(self._causes.at(event.key))[0])

    def on_rows_opened(self, event: Rows.Opened) -> None:
        """Open a row: go to the log of a job, or to the jobs of a cause."""
        event.stop()
        if event.rows is self.table:
            if self.store.job_at(event.key, self.selection.key) != self.selection.key:
                self.selection.show_job(event.key)
            self.table.is_held = True
            self.go_to("log")
            self.event_log.go_to_first_error()
        elif event.rows is self.causes:
            self._open_cause(self._causes.at(event.key))

    def on_rows_context_menu(self, event: Rows.ContextMenu) -> None:
        """Open the menu of actions."""
        event.stop()
        if event.rows is self.table:
            self.actions.menu((event.x, event.y))

    def on_rows_marks_changed(self, event: Rows.MarksChanged) -> None:
        """Show the number of marked jobs."""
        event.stop()
        self._show_counts()

    def on_table_header_clicked(self, event: Table.HeaderClicked) -> None:
        """Sort by the clicked column."""
        event.stop()
        if event.rows is self.table:
            self.choices.sort_by(event.column_id)
            self._show_counts()

    def on_event_log_log_left(self, event: EventLog.LogLeft) -> None:
        """Focus the jobs again."""
        event.stop()
        self.go_to("table")

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer only available actions: requests need an engine, and a jump to another screen needs that screen."""
        if action == "row":
            return self.actions.can(str(parameters[0]))
        return super().check_action(action, parameters)

    def action_row(self, action_id: str) -> None:
        """Run an action on the selected jobs; the cursor stays on its job until the user moves it."""
        self.table.is_held = True
        self.actions.run(action_id)

    def action_menu(self) -> None:
        """Open the menu of all actions."""
        self.actions.menu()

    def action_next(self, word: str, step: int) -> None:
        """Go to the next job that failed or has warnings."""
        index = self.store.next_with(word, self.table.cursor, step)
        if index is not None:
            self.table.move_cursor(index)

    def action_hit(self, step: int) -> None:
        """Go to the next or previous job. With a filter, the table has only matching jobs; without a filter, show a message."""
        if self.choices.text:
            self.table.action_move(step)
        else:
            self.shell.show_toast("no filter: '/' sets one", "warning", 2)

    def action_run(self, step: int) -> None:
        """Show another run of the job."""
        self.event_log.step_run(step)

    def action_view(self, step: int) -> None:
        """Use the previous or next filter of the history."""
        self.choices.walk(step)

    def action_choose(self, what: str) -> None:
        """Open the menu of statuses, of sort columns, or of columns."""
        ask = {"statuses": self.choices.ask_statuses, "order": self.choices.ask_order, "columns": self.choices.ask_columns}
        ask[what]()

    def action_lines(self) -> None:
        """Switch between one line per source and one line per job."""
        self._close_causes()
        self.choices.turn_lines()

    def action_failed_first(self) -> None:
        """Sort failed jobs first, and go to the top."""
        self.choices.sort_by(FAILED_FIRST)
        self.goal.set_first()
        self._show_counts()

    def action_resort(self) -> None:
        """Sort the rows again, and remove rows that no longer match the filter."""
        self.store.resort()

    # -------------------------------------------------------------------------------------------------------------- filter

    def action_filter(self) -> None:
        """Open the filter line."""
        self._close_causes()
        if self._part != "table":
            self.go_to("table")
        if not self._is_warm:
            self._is_warm = True
            run_in_background("aptui-warm", self.store.warm)
        box = self.box
        self.query_one("#jobs-bar").display = False
        box.disabled, box.display = False, True
        box.text = self.choices.text
        box.begin()
        self._show_counts()

    def on_filter_box_changed(self, event: FilterBox.Changed) -> None:
        """Filter by the typed text."""
        event.stop()
        self.goal.keep_row(self.table.cursor_key)
        self.choices.type(event.text)
        self._show_counts()

    def on_filter_box_filter_left(self, event: FilterBox.FilterLeft) -> None:
        """Focus the table again, unless the filter has a mistake: then the filter line stays open."""
        event.stop()
        if event.is_remembered and self.choices.mistake() is not None:
            return
        self.choices.remember_filter()
        self.box.display, self.box.disabled = False, True
        self.query_one("#jobs-bar").display = True
        self.table.focus()
        self.choices.fit_columns()
        self._show_counts()

    # -------------------------------------------------------------------------------------------------------------- causes

    def action_causes(self) -> None:
        """Group the failures by cause, or show the jobs again."""
        if self.shows_causes:
            self._close_causes()
            self.table.focus()
        else:
            self._causes.renew()
            self.shows_causes = True
            self.causes.refresh_model()
            self.go_to("table")
            self._show_counts()

    def _close_causes(self) -> None:
        """Show the jobs again instead of the causes."""
        if self.shows_causes:
            self.shows_causes = False
            self.selection.show_job(self.table.cursor_key)
            self.arrange_parts()
            self._show_counts()

    def _open_cause(self, group: CauseGroup) -> None:
        """Show the jobs that failed for a cause; if it is a single job, go to it directly."""
        self._close_causes()
        if len(group.keys) == 1:
            self.goal.set_job(group.keys[0])
            self.go_to("table")
            return
        about = term("cause", group.cause) if group.cause else ""
        self.choices.filter_by(f"status:failed {about}".strip())
        self.table.focus()

"""Parts of the Jobs screen: the selected job, changes since the last visit, the target of the cursor, and when rows may move.

`JobsView` has the members of the screen that these parts use.

Tests: `tests/tui/screens/jobs/test_resting.py`, `tests/tui/screens/jobs/test_goal.py`.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from msgspec.structs import replace
from rich.cells import cell_len

from aptui.shared.errors import KnownError
from aptui.shared.files.git import author_of
from aptui.shared.files.git import head as git_head
from aptui.shared.printing import sanitize
from aptui.store.queries.reader import Reader, open_reader
from aptui.store.queries.session_history import OutcomeChange, outcome_change
from aptui.tui.background import call_after, run_in_background
from aptui.tui.data.job_infos import JobRowInfo, short_error
from aptui.tui.data.session import SessionState
from aptui.tui.frame.line import Part, Parts
from aptui.tui.frame.sheets import BREAK
from aptui.tui.screens.jobs.job_texts import commit_text
from aptui.tui.terminal.safety import glyph
from aptui.tui.widgets.cells import fit
from aptui.tui.widgets.menu import Menu
from aptui.tui.words import age_text, moment_text, shorten

if TYPE_CHECKING:
    from textual.screen import Screen
    from textual.timer import Timer

    from aptui.tui.data.feed import Batch
    from aptui.tui.data.jobs_store import JobsStore
    from aptui.tui.pane import Shell
    from aptui.tui.screens.jobs.event_log import EventLog
    from aptui.tui.widgets.row_list import Rows
    from aptui.tui.widgets.table import Table


class SelectedJob:
    """Shows the log of the selected job, and reads the job again after a notice about it."""

    def __init__(self, store: JobsStore, log: Callable[[], EventLog]) -> None:
        self._store, self._log = store, log
        self.key: int | None = None
        self._is_stale = False
        self._expects: tuple[str, int] | None = None
        """(status, run key) of the last notice about the job. The job is read again until the database has these values."""

    def show_job(self, key: int | None) -> None:
        """Select another job; for a source, its job with the worst status; None = no job."""
        self.key, self._is_stale, self._expects = None if key is None else self._store.job_at(key), False, None
        self._log().show(None if self.key is None else self._store.info(self.key))

    def mark_stale(self) -> None:
        """Request that the next frame reads the selected job again."""
        self._is_stale = True

    def note(self, batch: Batch) -> None:
        """Store the newest state of the selected job from a batch of notices, and whether the job must be read again."""
        self._is_stale |= batch.table is not None
        for news in batch.jobs:
            if news.notice.job_id == self.key and news.notice.status:
                self._is_stale = True
                is_over = news.notice.status not in ("processing", "pending")
                self._expects = (news.notice.status, news.notice.run_key) if is_over else None

    def follow(self, cursor_key: int | None) -> None:
        """Show the current state of the selected job.

        If another job of the selected source now has a worse status, show that job; if the table is empty, show no job.
        """
        if self.key is None:
            return
        if cursor_key is None:
            self.show_job(None)
        elif self.key in self._store.jobs_of(cursor_key) and self._store.job_at(cursor_key, self.key) != self.key:
            self.show_job(cursor_key)
        elif self._is_stale or self._store.info(self.key) != self._log().info:
            self._log().show(self._store.info(self.key), expects=self._expects, run_key=self._log().chosen_run)
            self._is_stale, self._expects = False, None


_FIRST = 0
_LEAST_PATH, _SECOND_MS = 12, 1000
_MOST_FAILED, _MOST_NAMED = 10_000, 200
"""Limits: `_MOST_FAILED` failed jobs are remembered until the next visit; a list of changed jobs shows `_MOST_NAMED` jobs."""


class FixedJobs:
    """Finds jobs that failed before and succeeded in a new run."""

    def __init__(self, store: JobsStore) -> None:
        self._store = store
        self._failed: set[int] = set()
        """Jobs that run again after they failed."""

    def note(self, batch: Batch) -> str:
        """Return a message about jobs whose previous run failed and whose new run succeeded: one source or a number; "" = no jobs.

        Call this before the batch of notices is applied to the store, because the store still has the results of the previous runs.
        """
        fixed: dict[str, list[str]] = {}
        failed = self._store.find_among([news.notice.job_id for news in batch.jobs], "failed") if batch.jobs else set()
        for notice in (news.notice for news in batch.jobs):
            if notice.job_id in failed:
                self._failed.add(notice.job_id)
            if notice.job_id in self._failed and notice.status in ("completed", "failed", "cancelled"):
                self._failed.discard(notice.job_id)
                if notice.status == "completed":
                    fixed.setdefault(notice.source, []).append(notice.platform)
        if len(fixed) > 1:
            return f"fixed: {len(fixed):,} sources"
        return "".join(f"fixed: {source} ({', '.join(sorted(platforms))})" for source, platforms in fixed.items())


class LastVisit:
    """Compares the jobs that are failed now with those that were failed when the user left the screen; finds commits and authors.

    Line 1 of the screen shows the numbers of changes until the user opens the sheet of changes (`:news`).
    """

    def __init__(self, pane: JobsView, store: JobsStore) -> None:
        self._pane, self._store = pane, store
        self.left_ms = 0
        """Time at which the user last left the screen, 0 = unknown."""
        self._failed: set[int] = set()
        self._is_compared = False
        self._lines: list[Parts] = []

    def restore(self) -> None:
        """Read the jobs that had failed when the user last left the screen."""
        memory = self._pane.shell.memory
        failed: list[object] = memory.get("jobs.failed", [])
        self.left_ms, self._failed = memory.get("jobs.left_ms", 0), {key for key in failed if isinstance(key, int)}

    def keep(self) -> None:
        """Store the failed jobs for the next visit. Jobs that failed before and wait to run again count as failed."""
        if self._store.is_loaded and self._is_compared:
            failed = self._store.find_failed() | self._find_unfinished()
            self._pane.shell.memory.put("jobs.failed", sorted(failed)[:_MOST_FAILED])
            self._pane.shell.memory.put("jobs.left_ms", self._pane.shell.session.clock_ms())

    def compare(self) -> None:
        """Find, once, which jobs failed or were fixed since the user last left the Jobs screen; a thread reads commits and authors.

        A starting engine runs failed jobs again. Unless the queue is paused, the comparison waits until these runs have ended.
        """
        if self._is_compared or (self._pane.shell.can_ask and self._may_run_again()):
            return
        self._is_compared = True
        failed = self._store.find_failed()
        new, fixed = failed - self._failed, self._failed - failed
        known = (self._store.info(key) for key in (*sorted(new), *sorted(fixed)))
        infos = [info for info in known if info is not None and info.status not in {"pending", "processing", "cancelled"}]
        if self.left_ms and infos:
            config = self._pane.shell.config
            run_in_background("aptui-news", self._read, infos, config.project_dir if config is not None else None)

    def _may_run_again(self) -> bool:
        """Return whether the engine may still run failed jobs again.

        This is true until scan, analyses and these runs have ended, unless the queue is paused.
        """
        session = self._pane.shell.session
        is_attached = session.state is SessionState.ATTACHED
        if is_attached and session.latest_health is not None and session.latest_health.is_paused:
            return False
        progress = session.latest_progress if is_attached else None
        return (
            session.state is SessionState.ATTACHING
            or (progress is not None and (progress.is_scanning or progress.analyses_waiting + progress.analyses_running > 0))
            or bool(self._find_unfinished())
        )

    def _find_unfinished(self) -> set[int]:
        return self._store.find_among(list(self._failed), "pending", "processing")

    def _read(self, infos: Sequence[JobRowInfo], project: Path | None) -> None:
        """Read when each of these jobs began to fail or to succeed; runs in a thread."""
        try:
            with closing(open_reader(self._pane.database)) as reader, reader.snapshot():
                shown = [info.key for listed in _split_failed(infos) for info in listed[:_MOST_NAMED]]
                changes = read_changes(reader, shown, project)
        except KnownError:
            changes = {}  # ignored here, because the feed reports the error
        self._pane.shell.in_ui(self._accept, infos, changes)

    def _accept(self, infos: Sequence[JobRowInfo], changes: Mapping[int, OutcomeChange]) -> None:
        shell = self._pane.shell
        now_ms, width = shell.session.clock_ms(), shell.app.size.width
        since = moment_text(self.left_ms, now_ms).partition(".")[0]
        failed, fixed = _split_failed(infos)
        words = [f"{len(failed):,} newly failed{_describe_cause(failed, changes)}"] * bool(failed)
        words += [f"{len(fixed):,} fixed"] * bool(fixed)
        self._lines = [(), (Part(f" Since your last visit, {since}", "title"),)]
        for head, role, listed in (("Newly failed", "failed", failed), ("Fixed", "completed", fixed)):
            if not listed:
                continue
            self._lines += [(), (Part(f" {head} ({len(listed):,})", "header"),)]
            by_source: dict[tuple[str, str, OutcomeChange | None], list[JobRowInfo]] = {}
            for info in listed[:_MOST_NAMED]:
                change = changes.get(info.key)
                change = replace(change, ended_ms=change.ended_ms // _SECOND_MS * _SECOND_MS) if change is not None else None
                by_source.setdefault((info.source, info.error, change), []).append(info)
            self._lines += [_describe_change(same, key[2], role, now_ms, width) for key, same in by_source.items()]
            if len(listed) > _MOST_NAMED:
                self._lines.append((Part(f"   and {len(listed) - _MOST_NAMED:,} more", "muted"),))
        shell.set_news(", ".join(words))
        shell.show_toast(f"type ':news' to see what changed since your last visit, {since}", seconds=10)

    def show(self) -> None:
        """Open the sheet of changes."""
        self._pane.shell.set_news("")
        nothing = "no job failed or was fixed since your last visit"
        if not self.left_ms:
            nothing = "this is your first visit; your next visit shows what has changed since"
        elif not self._is_compared:
            nothing = "the changes since your last visit appear when the scan has ended and failed jobs have run again"
        self._pane.shell.sheets.show_news(self._lines or [(), (Part(f" {nothing}", "muted"),)])


def _split_failed(infos: Sequence[JobRowInfo]) -> tuple[list[JobRowInfo], list[JobRowInfo]]:
    return [info for info in infos if info.status == "failed"], [info for info in infos if info.status != "failed"]


def read_changes(reader: Reader, job_ids: Iterable[int], project: Path | None) -> dict[int, OutcomeChange]:
    """Return {job id: first run of the job's current series of failures or successes}. Start git once for each commit."""
    commit = git_head(str(project)).commit if project is not None else ""
    changes = {job_id: change for job_id in job_ids if (change := outcome_change(reader, job_id, lambda: commit)) is not None}
    if project is None:
        return changes
    authors = {each: author_of(project, each) for each in {change.commit for change in changes.values()}}
    return {job_id: replace(change, author=authors[change.commit]) for job_id, change in changes.items()}


def _describe_cause(failed: Sequence[JobRowInfo], changes: Mapping[int, OutcomeChange]) -> str:
    """Return text that names the commit since which most of these jobs fail, "" if no commit may be the cause."""
    found = [changes[info.key] for info in failed if info.key in changes and changes[info.key].is_after_checkout]
    if not found:
        return ""
    ((commit, count),) = Counter(map(commit_text, found)).most_common(1)
    return f" since {commit}" if count == len(failed) else f", {count:,} since {commit}"


def _describe_change(same: Sequence[JobRowInfo], change: OutcomeChange | None, role: str, now_ms: int, width: int) -> Parts:
    """Return an entry of the sheet of changes for the jobs of one source; Enter goes to the first of these jobs."""
    info, platforms = same[0], ", ".join(sorted({each.platform for each in same}))
    action, error = f"switcher.reveal('jobs', '#{info.key}')", short_error(info.error.strip(), info.source)
    when = f"  {age_text(now_ms - change.ended_ms)} ago" if change is not None else ""
    commit = f"  since {commit_text(change)}" if change is not None and change.is_after_checkout else ""
    rest = sanitize(f"  {platforms}{when}")
    free_width = width - cell_len(rest) - cell_len(commit) - 8
    return (
        Part(f"   {glyph(role)} ", role, action),
        Part(fit(info.source, max(_LEAST_PATH, min(free_width, cell_len(info.source)))).text, "path"),
        Part(rest, "muted"),
        Part(sanitize(commit)),
        *((BREAK, Part(f"     {shorten(sanitize(error), width - 8)}", "error", action)) if role == "failed" and error else ()),
    )


class CursorGoal:
    """The job or row to which the cursor moves when the rows are complete."""

    def __init__(
        self,
        store: JobsStore,
        table: Callable[[], Rows],
        clear_filter: Callable[[], None],
        show_toast: Callable[[str, str], None],
    ) -> None:
        self._store, self._table, self._clear_filter, self._show_toast = store, table, clear_filter, show_toast
        self._goal: int | None = None
        self._row_to_keep: int | None = None

    def keep_row(self, key: int | None) -> None:
        """When the view is complete, go to the first row, unless the view still has the row with this key."""
        self._row_to_keep = key

    def set_first(self) -> None:
        """Go to the first row when the view is complete."""
        self._goal = _FIRST

    def set_job(self, job_id: int) -> None:
        """Go to a job; remove the filter if it hides the job."""
        if not self._store.is_loaded:
            self._goal = job_id
        elif self._store.info(job_id) is None:
            self._show_toast(f"job #{job_id} does not exist", "warning")
        elif not self._table().move_to_key(job_id):
            self._clear_filter()
            self._goal = job_id

    def apply(self) -> None:
        """Move the cursor to its target if the view is complete."""
        if (self._goal is None and self._row_to_keep is None) or not self._store.is_loaded or self._store.is_busy:
            return
        goal, row_to_keep, self._goal, self._row_to_keep = self._goal, self._row_to_keep, None, None
        if goal is None:
            if row_to_keep is not None and self._table().index_of(row_to_keep) is None:
                self._table().start_at_top()
        elif goal == _FIRST:
            self._table().start_at_top()
        elif not self._table().move_to_key(goal):
            self.set_job(goal)


HOLD_S = 1.2
"""Time after a key or a mouse event during which rows do not move (seconds)."""
AGAIN_S = 0.5
"""Minimum interval between two sorts (seconds); it grows with the number of rows."""
_ROWS_A_SECOND = 200_000
_FLIPPED_S = 0.3


class Resting:
    """Decides when rows may move: `HOLD_S` after the last input, and at least `AGAIN_S` after the last sort."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._sorted_s = self._flipped_s = -1e9

    def due_in(self, touched_s: float, row_count: int) -> float:
        """Return the time until rows may move (seconds); 0 or less = now."""
        again_s = self._sorted_s + AGAIN_S + row_count / _ROWS_A_SECOND
        return max(touched_s + HOLD_S, again_s) - self._clock()

    def note_sorted(self) -> None:
        """Note that rows were sorted now."""
        self._sorted_s = self._clock()

    def note_cursor(self, touched_s: float) -> None:
        """Note that another row is now under the cursor.

        If the user pressed neither a key nor a mouse button just before, new rows caused the change, not the user.
        """
        if self._clock() - touched_s > _FLIPPED_S:
            self._flipped_s = self._clock()

    @property
    def has_just_flipped(self) -> bool:
        """Whether new rows changed the row under the cursor so recently that the user may not have seen the change."""
        return self._clock() - self._flipped_s < _FLIPPED_S


_TICK_S = 1.0
_CHECK_S = 0.2
"""Interval between checks while an open menu keeps rows in place (seconds)."""


class TableChanges:
    """Updates the durations of running jobs, and sorts rows while the user is idle."""

    def __init__(self, pane: JobsView, store: JobsStore, resting: Resting) -> None:
        self._pane, self._store, self._resting = pane, store, resting
        self._waits = False
        self.ticks = False
        """Whether an update of durations is scheduled."""

    def update(self) -> None:
        """Sort rows and update durations if that is due, else schedule another check. Called with each frame."""
        self._sort()
        if not self.ticks and self._store.tick():
            self.ticks = True
            call_after(self._pane, _TICK_S, self._tick)

    def _sort(self) -> None:
        store, pane = self._store, self._pane
        if not store.is_loaded or not store.is_out_of_order or store.is_busy or self._waits:
            return
        wait_s = self._resting.due_in(pane.shell.touched_s, store.total)
        has_menu = any(isinstance(child, Menu) for child in pane.screen.children)  # a query would visit all widgets of the screen
        if wait_s > 0 or pane.table.marks.are_in_range or has_menu:
            self._waits = True
            call_after(pane, max(wait_s, _CHECK_S), self._check_again)
            return
        self._resting.note_sorted()
        store.resort()

    def _tick(self) -> None:
        self.ticks = False
        if self._is_on_top:
            self._pane.shell.wake_for_news()

    def _check_again(self) -> None:
        self._waits = False
        if self._is_on_top:
            self._sort()  # no frame has to be requested here, because the store requests one when the rows are sorted

    @property
    def _is_on_top(self) -> bool:
        return cast("object", self._pane) is self._pane.shell.pane


class JobsView(Protocol):
    """The members of the Jobs screen that its parts use."""

    @property
    def shell(self) -> Shell:
        """The app."""

    @property
    def table(self) -> Table:
        """The widget of the table of jobs."""

    @property
    def store(self) -> JobsStore:
        """The rows of the table of jobs, with their filter and sort order."""

    @property
    def event_log(self) -> EventLog:
        """The widget of the lower panes."""

    @property
    def resting(self) -> Resting:
        """Decides when rows of the table of jobs may change their order."""

    @property
    def database(self) -> Path:
        """The asset database."""

    def list_selected(self) -> list[JobRowInfo]:
        """Return the jobs for an action: the marked jobs, or the job under the cursor."""

    def reveal(self, text: str) -> None:
        """Show a job (`#12`), or the jobs that match a filter."""

    def action_filter(self) -> None:
        """Open the filter line."""

    @property
    def screen(self) -> Screen[Any]:
        """Textual's screen with its pop-ups."""

    def set_timer(self, delay: float, callback: Callable[[], Any]) -> Timer:
        """Call a function after some seconds."""

"""How many jobs are failed, and running them again.

Tests: `tests/tui/screens/tools/test_pane.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

from aptui.config.dirs import asset_database
from aptui.shared.errors import KnownError
from aptui.shared.printing import count
from aptui.tui.background import BackgroundTask
from aptui.tui.frame.commandline import Choice

if TYPE_CHECKING:
    from aptui.tui.pane import Shell


class FailedJobs:
    """Counts them in a thread.

    Args:
        changed: called when `total` changed.
    """

    def __init__(self, shell: Shell, changed: Callable[[], object]) -> None:
        self._shell, self._changed = shell, changed
        self._task = BackgroundTask("aptui-tools-count", shell.in_ui)
        self.is_stale = True
        """Whether the count may be another by now."""
        self.total = -1
        """How many there are; -1 = not known."""

    def close(self) -> None:
        """Give up what is under way."""
        self._task.close()

    def refresh(self) -> None:
        """Count again what may be otherwise, while no job runs or waits."""
        progress = self._shell.session.latest_progress
        is_idle = progress is None or not (progress.jobs_running or progress.jobs_waiting)
        if self.is_stale and is_idle:
            self.is_stale = not self._task.start(self._count_failed, self._take_count, lambda _error: None)

    def _count_failed(self, _task: BackgroundTask) -> int:
        from aptui.store.db.schema import translate_errors  # for start-up
        from aptui.store.queries.reader import open_reader

        path = asset_database(self._shell.session.cache_dir)
        if not path.is_file():
            return 0
        with closing(open_reader(path)) as reader, translate_errors(path):
            return reader.totals().jobs["failed"]

    def _take_count(self, total: int) -> None:
        self.total = total
        self._changed()

    def retry(self) -> None:
        """Look for all failed jobs and analyses, then ask whether to run them again."""
        database = asset_database(self._shell.session.cache_dir)

        def work(_task: BackgroundTask) -> tuple[list[int], list[str]]:
            from aptui.core.paths import key_of  # for start-up
            from aptui.store.db.schema import translate_errors
            from aptui.store.queries.reader import open_reader

            with closing(open_reader(database)) as reader, translate_errors(database):
                failed = list(reader.jobs(statuses={"failed"}))
            return [job.job_id for job in failed if job.job_id], sorted({key_of(job.source) for job in failed if not job.job_id})

        if not self._task.start(work, self._ask_to_retry, self._complain):
            self._shell.show_toast("the jobs are being counted; try again", "warning")

    def _ask_to_retry(self, failed: tuple[list[int], list[str]]) -> None:
        from aptui.link.port import ReprocessJobs  # for start-up: the verbs come after the first paint

        job_ids, keys = failed
        total = len(job_ids) + len(keys)
        self._take_count(total)
        if not total:
            self._shell.show_toast("no job is failed")
            return
        ask = partial(self._shell.ask, ReprocessJobs(tuple(keys), tuple(job_ids)), f"{count(total, 'job')} to be run again")
        self._shell.question(f"run {count(total, 'failed job')} again?", [Choice("y", "run them", ask), Choice("n", "no")])

    def _complain(self, error: KnownError) -> None:
        self._shell.show_toast(str(error), "error", 10)

"""What the parts of the Jobs screen may use of it, and how they read beside it; the screen itself is `pane`.

Tests: `tests/tui/screens/jobs/test_pane.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from aptui.shared.errors import KnownError
from aptui.store.queries.reader import Reader, open_reader
from aptui.tui.background import run_in_background

if TYPE_CHECKING:
    from textual.screen import Screen

    from aptui.tui.data.job_infos import JobRowInfo
    from aptui.tui.pane import Shell
    from aptui.tui.screens.jobs.columns import JobsTableView
    from aptui.tui.screens.jobs.log.event_log import EventLog
    from aptui.tui.screens.jobs.resting import Resting

T = TypeVar("T")


class JobsView(Protocol):
    """The screen."""

    @property
    def shell(self) -> Shell:
        """The app."""

    @property
    def table(self) -> JobsTableView:
        """The table of jobs."""

    @property
    def event_log(self) -> EventLog:
        """The lower panes."""

    @property
    def resting(self) -> Resting:
        """When rows move by themselves."""

    @property
    def database(self) -> Path:
        """The asset database."""

    @property
    def shows_causes(self) -> bool:
        """Whether the upper pane groups the failures instead of listing jobs."""

    def list_selected(self) -> list[JobRowInfo]:
        """Return what an action is about: the marked jobs, or the one under the cursor."""

    def reveal(self, text: str) -> None:
        """Show a job (`#12`), or the jobs that pass a filter."""

    def action_filter(self) -> None:
        """Filter as people type."""

    @property
    def screen(self) -> Screen[Any]:
        """The screen with what pops up."""

    def set_timer(self, delay: float, callback: Callable[[], None]) -> object:
        """Have a function called after so many seconds."""


def call_in_background(
    shell: Shell, work: Callable[[], T], then: Callable[[T], object], ended: Callable[[], object] = lambda: None
) -> None:
    """Do `work` in a thread and hand its result to `then` in the app's; errors are shown. `ended` is called there after either."""

    def run() -> None:
        try:
            result = work()
        except KnownError as error:
            shell.in_ui(shell.show_toast, str(error), "error")
        else:
            shell.in_ui(then, result)
        finally:
            shell.in_ui(ended)

    run_in_background("aptui-jobs", run)


def query_in_background(view: JobsView, question: Callable[[Reader], T], then: Callable[[T], object]) -> None:
    """Ask the database in a thread and hand the answer to `then` in the app's, for which keys wait; errors are shown."""

    def work() -> T:
        with closing(open_reader(view.database)) as reader:
            return question(reader)

    call_in_background(view.shell, work, then, view.shell.hold_keys("the answer"))


def path_of(reader: Reader, info: JobRowInfo) -> str:
    """Return the path of a job's source in text form; below its scan folder where that is known."""
    source = reader.source(info.source)
    return f"{source.root}/{source.source}" if source else info.source

"""What the engine can do with jobs when people ask for it: run again, cancel, escalate, show.

Tests: `tests/tui/screens/jobs/test_pane.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from aptui.tui.data.job_infos import JobRowInfo
from aptui.tui.screens.jobs.view import JobsView
from aptui.tui.widgets.menu import Confirm

if TYPE_CHECKING:
    from aptui.link.port import Answer

_ASKS_FROM = 100
"""So many jobs are not run again or stopped without asking."""


class EngineActions:
    """Asks the engine."""

    def __init__(self, view: JobsView) -> None:
        self._view = view

    def reprocess(self, infos: Sequence[JobRowInfo]) -> None:
        """Run jobs again; many only after asking."""
        from aptui.link.port import ReprocessJobs  # for start-up: the verbs come after the first paint

        keys = tuple(info.source.lower() for info in infos if info.key < 0)
        ids = tuple(info.key for info in infos if info.key > 0)
        verbs = [ReprocessJobs(keys=keys)] if keys else []
        verbs += [ReprocessJobs(job_ids=ids)] if ids else []

        def ask(yes: bool) -> None:  # as `Confirm` answers
            for verb in verbs if yes else ():
                self._view.shell.ask(verb, then=partial(self._report, "to be run again"))

        self._confirm(infos, f"Run {len(infos):,} jobs again?", "run them", ask)

    def cancel(self, infos: Sequence[JobRowInfo]) -> None:
        """Cancel what is pending or processing; many jobs only after asking."""
        from aptui.link.port import Cancel  # for start-up, as above

        ids = tuple(info.key for info in infos if info.key > 0 and info.status in ("pending", "processing"))
        if not ids:
            self._view.shell.show_toast("only what is pending or processing can be cancelled", "warning")
            return

        def ask(yes: bool) -> None:  # as `Confirm` answers
            if yes:
                self._view.shell.ask(Cancel(ids), then=partial(self._report, "cancelled"))

        self._confirm(infos, f"Cancel {len(ids):,} jobs?", "cancel them", ask)

    def escalate(self, infos: Sequence[JobRowInfo]) -> None:
        """Put jobs before all others."""
        from aptui.link.port import EscalateJobs  # for start-up, as above

        keys = tuple(info.source.lower() for info in infos if info.key < 0)
        ids = tuple(info.key for info in infos if info.key > 0)
        if infos and not keys and not any(info.status in ("pending", "processing") for info in infos):
            self._view.shell.show_toast("nothing to hurry: what is not pending runs no earlier; 'r' runs it again", "warning")
            return
        self._view.shell.ask(EscalateJobs(job_ids=ids, keys=keys), then=partial(self._report, "escalated"))

    def show(self, infos: Sequence[JobRowInfo]) -> None:
        """Show the source in the editors that are connected."""
        from aptui.link.port import ShowSource  # for start-up, as above

        if self._view.shell.session.gateway is None:
            self._view.shell.show_toast("no gateway runs, so no editor is connected", "warning")
            return
        done = f"the connected editors show '{infos[0].source}'"
        self._view.shell.ask(ShowSource(source=infos[0].source), then=lambda _answer: self._view.shell.show_toast(done))

    def _confirm(self, infos: Sequence[JobRowInfo], question: str, yes: str, then: Callable[[bool], None]) -> None:
        if len(infos) < _ASKS_FROM:
            then(True)  # as `Confirm` answers
        else:
            Confirm.ask(self._view.shell.app, question, then, yes=yes)

    def _report(self, what: str, answer: Answer) -> None:
        count = answer.get("count")
        jobs = "" if not isinstance(count, int) else f"{count:,} job{'' if count == 1 else 's'} "
        self._view.shell.show_toast(f"{jobs}{what}")

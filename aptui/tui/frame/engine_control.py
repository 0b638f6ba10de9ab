"""Asks the user before some requests, sends them to the engine, and shows the answers.

It also asks before the engine of an untrusted project starts.

Tests: `tests/tui/test_foreign_database.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TYPE_CHECKING

from aptui.shared.errors import KnownError
from aptui.shared.printing import count
from aptui.tui.data.session import Session, SessionState
from aptui.tui.frame.commandline import Choice, Host
from aptui.tui.frame.line import Part
from aptui.tui.preferences.keymap import Actions
from aptui.tui.widgets.cells import wrap

if TYPE_CHECKING:
    from aptui.link.port import Answer, Verb


class EngineControl(Actions):
    """Sends requests to the engine through the session.

    Args:
        leave: ends the screen after the engine was stopped.
    """

    def __init__(self, session: Session, screen: Host, leave: Callable[[], object]) -> None:
        self._session, self._screen, self._leave = session, screen, leave
        self._was_attached = False
        self._is_assumed = False

    @property
    def can_ask(self) -> bool:
        """Whether requests can be sent to an engine."""
        return self._is_assumed or (self._session.state is not SessionState.NONE and not self._session.is_read_only)

    @contextmanager
    def assume_engine(self) -> Iterator[None]:
        """Make `can_ask` True within a `with` block, to find the actions that are possible when requests can be sent."""
        self._is_assumed = True
        try:
            yield
        finally:
            self._is_assumed = False

    def ask(self, verb: Verb, done: str = "", then: Callable[[Answer], object] | None = None) -> None:
        """Send a request to the engine. On success, show `done` and call `then` in the app's thread; otherwise show the error."""
        self._session.ask(verb).add_done_callback(lambda answer: self._screen.in_ui(self._handle_answer, answer, done, then))

    def _handle_answer(self, answer: Future[Answer], done: str, then: Callable[[Answer], object] | None) -> None:
        error = answer.exception()
        if error is None:
            if done:
                self._screen.show_toast(done)
            if then is not None:
                then(answer.result())
        elif isinstance(error, KnownError):
            self._screen.show_toast(str(error), "error", 10)
        else:
            raise error

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002  # Textual defines this signature
        """Return whether requests can be sent; every action of this class needs an engine."""
        return self.can_ask

    def action_pause(self) -> None:
        """Pause the engine. If it is paused already, ask whether to run the next job or to resume."""
        from aptui.link.port import PauseJobs, ResumeJobs, RunNext  # imported here: not needed before the first paint

        health = self._session.latest_health
        if health is None or not health.is_paused:
            self.ask(PauseJobs(), "paused; press 'P' again to run the next job or to resume")
            return
        choices = [
            Choice("n", "run the next job", lambda: self.ask(RunNext(), "one more job will run")),
            Choice("r", "resume", lambda: self.ask(ResumeJobs(), "resumed")),
            Choice("s", "stay paused"),
        ]
        self._screen.question("paused", choices)

    def action_stop(self) -> None:
        """Stop the engine, after a confirmation."""
        from aptui.link.port import StopEngine  # imported here: not needed before the first paint

        progress = self._session.latest_progress
        running = progress.jobs_running if progress else 0
        text = f"stop the engine? {running:,} jobs are running" if running else "stop the engine?"
        choices = [
            Choice("y", "stop it", lambda: self.ask(StopEngine(), then=lambda _answer: self._leave())),
            Choice("w", "when idle", lambda: self.ask(StopEngine(is_when_idle=True), "the engine stops when it is idle")),
            Choice("n", "keep it running"),
        ]
        self._screen.question(text, choices)

    def show_state(self) -> None:
        """Report when the connection is restored; called when the session's state changed.

        The banner reports an engine that is too old.
        """
        session = self._session
        if session.state is not SessionState.ATTACHED:
            return
        if self._was_attached:
            self._screen.show_toast(f"connected to the engine again, pid {session.engine.pid}")
        self._was_attached = True


_MOST_LINES = 8
"""Maximum number of lines in the box of the trust question, so that it fits on a screen of 24 lines.

The sheet that the user can open from the box lists all the code.
"""
_MARGINS, _INDENT = 3, 4


class TrustQuestion:
    """Asks whether the user trusts a project; `config.trust` decides when, `cli.trust_verb` makes the texts.

    Args:
        changes: sentences about files that changed since the user trusted the project; empty if the user never trusted it.
        runs: lines about the code that the project would run: a sentence, then each command or file.
        trust: stores trust and starts the engine.
        restrict: makes the screen read-only.
        is_running: whether an engine is already running, so that the question is not asked.
    """

    def __init__(
        self,
        changes: Sequence[str],
        runs: Sequence[str],
        trust: Callable[[], None],
        restrict: Callable[[], None],
        *,
        is_running: bool = False,
    ) -> None:
        self._changes, self._runs, self._is_running = tuple(changes), tuple(runs), is_running
        self._trust, self._restrict = trust, restrict
        self._is_listing = False

    def ask(self, screen: Host) -> None:
        """Ask whether to trust the project. If an engine is running, do not ask; only report changed files."""
        if self._is_running:
            if self._changes:
                screen.show_toast("; ".join(self._changes), "warning", 15)
            return
        lines = [*self._changes, *self._runs]
        left = len(lines) - _MOST_LINES
        more = [f"  and {count(left, 'more line')}"] if left > 0 else []
        choices = [
            Choice("y", "trust it and start the engine", lambda: self._store_trust(screen)),
            Choice("l", "list everything", lambda: self._list(screen)),
            Choice("n", "only look: run nothing", self._restrict),
        ]
        screen.question("\n".join(["trust this project?", *lines[:_MOST_LINES], *more]), choices)

    def ask_again(self, screen: Host) -> None:
        """Ask again whether to trust the project, after the user has closed the list of the code that it would run."""
        if self._is_listing:
            self._is_listing = False
            self.ask(screen)

    def _store_trust(self, screen: Host) -> None:
        try:
            self._trust()
        except KnownError as error:
            self._restrict()
            screen.show_toast(str(error), "error", 10)

    def _list(self, screen: Host) -> None:
        self._is_listing = True
        width = screen.app.size.width - _MARGINS
        lines = [
            f"{' ' * _INDENT * (start > 0)}{line[start:end].rstrip()}"
            for line in (*self._changes, *self._runs)
            for start, end in wrap(line, width - _INDENT)
        ]
        screen.sheets.show([(Part(f" {line}"),) for line in lines])

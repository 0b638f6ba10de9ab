"""What the screen asks of the engine, and what it says when the engine comes, goes or refuses.

Tests: `tests/tui/test_foreign_database.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from aptui.shared.errors import KnownError
from aptui.tui.actions import Actions
from aptui.tui.data.session import Session, SessionState
from aptui.tui.frame.commandline import Choice

if TYPE_CHECKING:
    from aptui.link.port import Answer, Verb


class EngineDialogue(Protocol):
    """What this needs of the app."""

    def show_toast(self, text: str, severity: str = "information", seconds: float = 5.0) -> None:
        """Show a message."""

    def question(self, text: str, choices: Sequence[Choice]) -> None:
        """Ask people in a box."""

    def in_ui(self, do: Callable[..., object], *arguments: object) -> None:
        """Have `do` called in the app's thread."""


class EngineControl(Actions):
    """Asks the engine through the session.

    Args:
        leave: ends the screen, when the engine was stopped.
    """

    def __init__(self, session: Session, screen: EngineDialogue, leave: Callable[[], object]) -> None:
        self._session, self._screen, self._leave = session, screen, leave
        self._was_attached = False
        self._is_supposed = False

    @property
    def can_ask(self) -> bool:
        """Whether there may be an engine that does what it is told."""
        return self._is_supposed or (self._session.state is not SessionState.NONE and not self._session.is_read_only)

    @contextmanager
    def suppose(self) -> Iterator[None]:
        """Have it seem, within a `with` block, as if there were one that is told things: to see what else could be done."""
        self._is_supposed = True
        try:
            yield
        finally:
            self._is_supposed = False

    def ask(self, verb: Verb, done: str = "", then: Callable[[Answer], object] | None = None) -> None:
        """Ask the engine; `done` is shown and `then` called, in the app's thread, when it has answered. Refusals are shown."""
        self._session.ask(verb).add_done_callback(lambda answer: self._screen.in_ui(self._take_answer, answer, done, then))

    def _take_answer(self, answer: Future[Answer], done: str, then: Callable[[Answer], object] | None) -> None:
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

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002  # Textual's signature
        """Leave out what needs an engine where none can be asked."""
        return self.can_ask

    def action_pause(self) -> None:
        """Pause; or, while paused, ask whether to run the next job or to go on."""
        from aptui.link.port import PauseJobs, ResumeJobs, RunNext  # for start-up: the verbs come after the first paint

        health = self._session.latest_health
        if health is None or not health.is_paused:
            self.ask(PauseJobs(), "paused; 'P' again runs the next job or resumes")
            return
        choices = [
            Choice("n", "run the next job", lambda: self.ask(RunNext(), "one job more")),
            Choice("r", "go on", lambda: self.ask(ResumeJobs(), "going on")),
            Choice("s", "stay paused"),
        ]
        self._screen.question("paused", choices)

    def action_stop(self) -> None:
        """Stop the engine, after asking."""
        from aptui.link.port import StopEngine  # for start-up: the verbs come after the first paint

        progress = self._session.latest_progress
        running = progress.jobs_running if progress else 0
        text = f"stop the engine? {running:,} jobs are running" if running else "stop the engine?"
        choices = [
            Choice("y", "stop it", lambda: self.ask(StopEngine(), then=lambda _answer: self._leave())),
            Choice("w", "when idle", lambda: self.ask(StopEngine(is_when_idle=True), "the engine stops when it is idle")),
            Choice("n", "let it run"),
        ]
        self._screen.question(text, choices)

    def show_state(self) -> None:
        """Say that the engine came back; called when the session's state changed. The banner tells of one that is too old."""
        session = self._session
        if session.state is not SessionState.ATTACHED:
            return
        if self._was_attached:
            self._screen.show_toast(f"attached to the engine again, pid {session.engine.pid}")
        self._was_attached = True

"""What the engine says of itself, its clients and its workers, and when it is asked again.

Who is connected comes as news. Ages and memory do not: they are asked for while the screen is visible and a worker works, once a
second, and after news of work that ended. An idle engine is asked nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING

from aptui.link.port import Connections, ReadStatus
from aptui.shared.health import Connection, WorkerInfo
from aptui.tui.data.session import SessionState
from aptui.tui.screens.connections import rows

if TYPE_CHECKING:
    from aptui.core.notices import Progress
    from aptui.link.port import Answer
    from aptui.tui.data.feed import Batch
    from aptui.tui.pane import Shell

ASK_S = 1.0
"""The engine is asked no more often."""
_NOT_AT_REST = frozenset({"working", "starting", "ending", "lost"})


class EngineInquiry:
    """The newest that is known, and the questions that keep it new.

    Args:
        later: calls what it is given after that many seconds, in the app's thread.
    """

    def __init__(self, shell: Shell, later: Callable[[float, Callable[[], None]], object]) -> None:
        self._shell, self._later = shell, later
        self.status = rows.EngineStatus()
        self.workers: tuple[WorkerInfo, ...] = ()
        self.connections: tuple[Connection, ...] = shell.session.connections
        self._progress: Progress | None = shell.session.latest_progress
        self._is_visible = self._shall_ask = False
        self.is_armed = False
        """Whether a timer runs that asks again."""
        self._asked_s = -ASK_S
        self._answers_pending = 0

    def open(self) -> None:
        """Hear when the engine comes and goes."""
        self._shell.session.on_state.append(self.renew)

    def close(self) -> None:
        """Hear no more."""
        if self.renew in self._shell.session.on_state:
            self._shell.session.on_state.remove(self.renew)

    def show(self, *, is_visible: bool) -> None:
        """Ask how things are, now that somebody looks; or nothing any more."""
        self._is_visible = is_visible
        self._shall_ask = self._shall_ask or is_visible

    def renew(self) -> None:
        """Ask with the next frame, for something is otherwise now; any thread may call."""
        self._shall_ask = True
        self._shell.wake()

    def force(self) -> None:
        """Ask with the next frame, however short a time ago it was asked."""
        self._shall_ask, self._asked_s = True, -ASK_S

    def note(self, batch: Batch) -> None:
        """Note who came and went, and that work went on."""
        if batch.connections is not None:
            self.connections = batch.connections
        if batch.progress is not None:
            self._progress = batch.progress
        if batch.connections is not None or batch.progress is not None or batch.health is not None or batch.messages:
            self._shall_ask = True

    @property
    def is_working(self) -> bool:
        """Whether work goes on, so that ages and memory change without news."""
        counts = self._progress
        runs = counts is not None and counts.is_scanning + counts.analyses_running + counts.jobs_running > 0
        return runs or any(worker.state in _NOT_AT_REST for worker in self.workers)

    def ask_if_due(self) -> None:
        """Ask where something happened: now, or when a second has passed since it was asked last."""
        if not self._shall_ask:
            return
        if self._shell.session.state is not SessionState.ATTACHED:
            self.status, self.workers, self.connections, self._shall_ask = rows.EngineStatus(), (), (), False
            return
        if self._shell.session.is_read_only:
            self._shall_ask = False
            return
        wait_s = self._asked_s + ASK_S - time.monotonic()
        if wait_s > 0 or self._answers_pending:
            self._arm(max(wait_s, 0.1))
            return
        self._shall_ask, self._asked_s = False, time.monotonic()
        for verb, take in ((ReadStatus(), self._take_status), (Connections(), self._take_connections)):
            self._answers_pending += 1
            self._shell.session.ask(verb).add_done_callback(partial(self._hand_over, take))

    def _arm(self, wait_s: float) -> None:
        if not self.is_armed:
            self.is_armed = True
            self._later(wait_s, self._due)

    def _due(self) -> None:
        self.is_armed = False
        if self._is_visible and (self._shall_ask or self.is_working):
            self.renew()

    def _hand_over(self, take: Callable[[Answer], None], answer: Future[Answer]) -> None:
        """Hand an answer to the app's thread; what is refused is not worth a word, for nobody asked for it."""
        self._shell.in_ui(self._settle, take, None if answer.exception() else answer.result())

    def _settle(self, take: Callable[[Answer], None], answer: Answer | None) -> None:
        self._answers_pending -= 1
        if answer is not None:
            take(answer)
        if self._is_visible:
            if self.is_working:
                self._arm(ASK_S)
            self._shell.wake()

    def _take_status(self, answer: Answer) -> None:
        self.status = rows.read_status(answer)

    def _take_connections(self, answer: Answer) -> None:
        found = rows.read_answer(answer)
        self.workers, self.connections = found.workers, found.connections

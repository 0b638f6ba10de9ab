"""The outbox of a worker: results of commands held back for a moment, so that many share one sync, one write, one wake-up.

A run is reported only when its products are durable. The engine considers the first run without an answer as the one in
progress. Therefore held results are sent at the latest when a command takes long, or when no order is left.

During a sync the processor is free: a thread waits for it (`AnswerOutbox.works_apart`) while the next command runs.
Runs that finish in that time share the next sync.

Tests: `tests/worker/test_outbox.py`.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from _thread import stack_size, start_new_thread
from collections.abc import Callable

from msgspec.structs import replace

from aptui.core.notices import LogLevel, LogRecord
from aptui.core.orders import Outcome, RunResult
from aptui.worker import file_access
from aptui.worker.outputs.products import discard

HELD_S = 0.02
"""Maximum delay of an answer that waits for others (seconds); the engine waits as long before it commits."""
_STACK_BYTES = 512 << 10

_Held = tuple[str, str, RunResult]
"""Builder, staging folder, result."""


class AnswerOutbox:
    """Answers of runs whose products are not synced yet.

    Args:
        send: reports results of runs, in their order.
        clock: seconds of a monotonic clock.
        hang_up: wakes the main thread, which waits for the next command: the answering thread failed.
    """

    def __init__(
        self,
        send: Callable[[list[RunResult]], None],
        clock: Callable[[], float] = time.monotonic,
        hang_up: Callable[[], None] = lambda: None,
    ) -> None:
        self._send, self._clock, self._hang_up = send, clock, hang_up
        self._held: list[_Held] = []
        self._since_s = 0.0
        self.works_apart = False
        """Whether a thread syncs and sends. The thread takes addresses, which the memory limit counts."""
        self._apart: _Thread | None = None

    def add(self, builder: str, staging: str, result: RunResult) -> None:
        """Hold the answer of a run of `builder` that staged at `staging`."""
        if not self._held:
            self._since_s = self._clock()
        self._held.append((builder, staging, result))

    def meanwhile(self, *, takes_long: bool = False) -> None:
        """Flush held results while a command runs."""
        if self._held and (takes_long or self._clock() - self._since_s >= HELD_S):
            self.flush()

    def flush(self) -> None:
        """Sync and send the held results: at once, or by the thread as soon as possible."""
        if self._held and self.works_apart:
            self._apart = self._apart or _Thread(self._answer, self._hang_up)
            self._apart.take(self._held)
            self._held = []
        elif self._held:
            self.settle()
            self._answer(self._held)
            self._held = []

    def settle(self) -> None:
        """Wait until all results that were handed over are sent."""
        if self._apart is not None:
            self._apart.wait()

    def _answer(self, held: list[_Held]) -> None:
        failed = _sync([file_access.os_path(product.staged) for *_, result in held for product in result.products])
        self._send([_check_failed(*one, failed) for one in held])


class _Thread:
    """Answers in the order of its input; `wait` raises its failure."""

    def __init__(self, answer: Callable[[list[_Held]], None], hang_up: Callable[[], None]) -> None:
        self._answer, self._hang_up = answer, hang_up
        self._given: list[_Held] = []
        self._is_at_work = False
        self._error: BaseException | None = None
        self._changed = threading.Condition()
        before = stack_size(_STACK_BYTES)
        start_new_thread(self._serve, ())
        stack_size(before)

    def take(self, held: list[_Held]) -> None:
        """Queue another batch."""
        with self._changed:
            self._refuse_after_error()
            self._given += held
            self._changed.notify_all()

    def wait(self) -> None:
        """Wait until all batches are sent."""
        with self._changed:
            while self._error is None and (self._given or self._is_at_work):
                self._changed.wait()
            self._refuse_after_error()

    def _refuse_after_error(self) -> None:
        if self._error is not None:
            raise self._error

    def _serve(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            while True:
                self._answer(self._next())
        except BaseException as error:  # noqa: BLE001 - raised by the methods that wait for the thread
            with self._changed:
                self._error = error
                self._changed.notify_all()
            self._hang_up()

    def _next(self) -> list[_Held]:
        with self._changed:
            self._is_at_work = False
            self._changed.notify_all()
            while not self._given:
                self._changed.wait()
            held, self._given, self._is_at_work = self._given, [], True
            return held


def _sync(paths: list[str]) -> dict[str, str]:
    """Make products durable; return {path: why} of those that are not."""
    if len(paths) < file_access.SYNC_EACH_BELOW:
        return file_access.sync_files(paths)
    try:
        file_access.sync_file_system(os.path.dirname(paths[0]))
    except OSError as error:
        return dict.fromkeys(paths, file_access.reason(error))
    return {}


def _check_failed(builder: str, staging: str, result: RunResult, failed: dict[str, str]) -> RunResult:
    """Turn a run with a product that is not durable into a failed one.

    Its staged files are removed: a second sync would not prove that they are durable.
    """
    reasons = [failed[path] for product in result.products if (path := file_access.os_path(product.staged)) in failed]
    if not reasons:
        return result
    discard(file_access.os_path(staging))
    text = f"products cannot be made durable: {reasons[0]}"
    record = LogRecord(LogLevel.ERROR, builder, text, time.time_ns() // 1_000_000)
    log, errors = (*result.log, record), result.errors + 1
    return replace(result, outcome=Outcome.FAILED, error=text, products=(), reprocess=(), log=log, errors=errors)

"""The outbox of a worker: results of commands held back for a moment, so that many share one sync, one write, one wake-up.

Nothing is said of a run before its products are durable. The engine takes the first run that it has no answer for as the
one that a worker is at: therefore what is held back is said at the latest when a command takes long, or when there is
nothing more to run.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from msgspec.structs import replace

from aptui.core.notices import LogLevel, LogRecord
from aptui.core.orders import Outcome, RunResult
from aptui.worker import files
from aptui.worker.outputs.products import discard

HELD_S = 0.02
"""So long an answer waits for others; the engine waits as long before it commits."""


class AnswerOutbox:
    """Answers of runs whose products are not synced yet.

    Args:
        send: says what became of runs, in their order.
        clock: seconds of a monotonic clock.
    """

    def __init__(self, send: Callable[[list[RunResult]], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._send, self._clock = send, clock
        self._held: list[tuple[str, str, RunResult]] = []
        self._since_s = 0.0

    def add(self, builder: str, staging: str, result: RunResult) -> None:
        """Hold the answer of a run of `builder` that staged at `staging`."""
        if not self._held:
            self._since_s = self._clock()
        self._held.append((builder, staging, result))

    def meanwhile(self, *, takes_long: bool = False) -> None:
        """Use the time in which a command runs."""
        if self._held and (takes_long or self._clock() - self._since_s >= HELD_S):
            self.flush()

    def flush(self) -> None:
        """Make durable what was made, and answer."""
        if self._held:
            failed = _sync([files.os_path(product.staged) for *_, result in self._held for product in result.products])
            self._send([_judged(*one, failed) for one in self._held])
            self._held.clear()


def _sync(paths: list[str]) -> dict[str, str]:
    """Make products durable; return {path: why} of those that are not."""
    if len(paths) < files.SYNC_EACH_BELOW:
        return files.sync_files(paths)
    try:
        files.sync_file_system(os.path.dirname(paths[0]))
    except OSError as error:
        return dict.fromkeys(paths, files.reason(error))
    return {}


def _judged(builder: str, staging: str, result: RunResult, failed: dict[str, str]) -> RunResult:
    """Turn a run of which a product is not durable into a failed one.

    What it staged is thrown away: a second sync proves nothing.
    """
    reasons = [failed[path] for product in result.products if (path := files.os_path(product.staged)) in failed]
    if not reasons:
        return result
    discard(files.os_path(staging))
    text = f"products cannot be made durable: {reasons[0]}"
    record = LogRecord(LogLevel.ERROR, builder, text, time.time_ns() // 1_000_000)
    log, errors = (*result.log, record), result.errors + 1
    return replace(result, outcome=Outcome.FAILED, error=text, products=(), reprocess=(), log=log, errors=errors)

"""What a job that runs has logged so far (`port.ReadRunLog`): its worker is asked, and its answer is passed to the client.

Every client is answered within a second: with what is known by then where a worker is late, or when the run has ended meanwhile.

Tests: `tests/engine/requests/test_logs.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from aptui.link import port
from aptui.shared.errors import KnownError

if TYPE_CHECKING:
    from aptui.engine.live.supervisor import EngineSupervisor
    from aptui.engine.pool.questions import LogSoFar
    from aptui.link.port import Request

ANSWER_TIMEOUT_S = 1.0


class _Asking(Struct):
    request: Request
    verb: port.ReadRunLog
    run_key: int
    due_s: float


class LogRequests:
    """Takes questions about logs; `clock` counts seconds."""

    def __init__(self, live: EngineSupervisor, clock: Callable[[], float] = time.monotonic) -> None:
        self._live, self._clock = live, clock
        self._asking: list[_Asking] = []
        live.parts.append(self)

    def take(self, request: Request, verb: port.ReadRunLog) -> None:
        """Ask the worker that is at a job; it is answered later.

        Raises:
            KnownError: there is no engine just now.
        """
        engine = self._live.engine
        if engine is None:
            raise KnownError("the engine is not working", hint="'aptui status' says why")
        running = engine.pipeline.running.items()
        run_key = next((key for key, job in running if job.id == verb.job_id and not job.is_analysis), 0)
        if run_key and self._so_far(run_key, asks=True) is not None:
            self._asking.append(_Asking(request, verb, run_key, self._clock() + ANSWER_TIMEOUT_S))
        else:
            request.answer(run_key=run_key, stamp=-1, records=[])

    def forget_client(self, client: int) -> None:
        """A client is gone, and what it asked."""
        self._asking = [asking for asking in self._asking if asking.request.client != client]

    def _so_far(self, run_key: int, *, asks: bool = False) -> LogSoFar | None:
        pool = self._live.engine.runs.pool_if_any if self._live.engine is not None else None
        return pool.log_so_far(run_key, asks=asks) if pool is not None else None

    def next_deadline(self, _now: float) -> float | None:
        """Return when the next client has waited long enough."""
        return min((asking.due_s for asking in self._asking), default=None)

    def poll(self, now: float) -> None:
        """Answer what workers have answered, what they are too late with, and what is over."""
        for asking in list(self._asking):
            so_far = self._so_far(asking.run_key)
            if so_far is None or not so_far.is_awaited or now >= asking.due_s:
                self._asking.remove(asking)
                _answer(asking, so_far)


def _answer(asking: _Asking, so_far: LogSoFar | None) -> None:
    if so_far is None:
        asking.request.answer(run_key=0, stamp=-1, records=[])
        return
    is_known = (asking.verb.run_key, asking.verb.seen) == (asking.run_key, so_far.stamp)
    records = None if is_known else so_far.records()
    asking.request.answer(run_key=asking.run_key, stamp=so_far.stamp, records=records)

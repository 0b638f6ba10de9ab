"""Messages to workers, questions about running jobs, and results that the engine makes because a worker did not answer.

This module uses no processes or clocks.

Tests: `tests/engine/pool/test_slots.py`.
"""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Callable, Container, Iterable, Sequence
from typing import NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from aptui.core.notices import LogLevel, LogRecord
from aptui.core.orders import AnalyseOrder, AnalyseResult, CopyOrder, HashOrder, HashResult, Outcome, ProcessOrder, RunResult
from aptui.worker import wire
from aptui.worker.output import BoundedText, count_levels, records_of

# Questions to a worker for the log of its running job, and the answers.
#
# Each worker has a separate socket pair for questions. A question names a run, and is answered while the run is executing
# (`worker.log`). The engine does not wait for the answer. If the engine has asked about another run since, it ignores the answer.
# To get further records, a client asks again; each answer has the whole log so far. The log is dropped when the next run starts.

_RECEIVE_BYTES = 1 << 18
_AGAIN_S = 5.0
"""Age in seconds at which a question is repeated, because a worker without free memory may have dropped it."""


class LogSoFar(Struct, frozen=True):
    """The known part of the log of a running job.

    Args:
        log: the job's log as the worker last reported it.
        window: the builder's name.
        printed: the output of the worker since its last marker.
        is_awaited: the worker has not answered the last question yet.
    """

    log: wire.LogAnswer
    window: str
    printed: BoundedText
    is_awaited: bool

    @property
    def stamp(self) -> int:
        """A number that increases whenever the log grows, so that a client can detect new records."""
        return max(0, self.log.stamp) + self.printed.byte_count

    def records(self) -> tuple[LogRecord, ...]:
        """Return the log records; the records of printed output are the first, like in the final log."""
        return (*records_of(self.printed, self.window, time.time_ns() // 1_000_000), *self.log.records)


class RunQuestions:
    """Questions to one worker.

    Args:
        channel: the engine's end of the socket pair; this object closes it.
        on_progress: called with the run key and the per cent when a worker reports the progress of its run.
    """

    def __init__(
        self,
        channel: socket.socket,
        selector: selectors.BaseSelector,
        clock: Callable[[], float] = time.monotonic,
        on_progress: Callable[[int, int], None] = lambda _run_key, _percent: None,
    ) -> None:
        self._channel, self._selector, self._clock, self._on_progress = channel, selector, clock, on_progress
        self._channel.setblocking(False)
        self._selector.register(self._channel, selectors.EVENT_READ, self._take_answer)
        self._reader = wire.FrameReader()
        self._log = wire.LogAnswer(0)
        self._asked_s: float | None = None
        self._is_open = True

    def ask(self, run_key: int) -> None:
        """Ask the worker for the log of a run, unless a question is pending."""
        if self._log.run_key != run_key:
            self._log, self._asked_s = wire.LogAnswer(run_key), None
        now_s = self._clock()
        if not self._is_open or (self._asked_s is not None and now_s - self._asked_s < _AGAIN_S):
            return
        frame = wire.encode(wire.FrameKind.LOG_QUESTION, wire.LogQuestion(run_key, self._log.stamp))
        try:
            self._asked_s = now_s if self._channel.send(frame) == len(frame) else None
        except BlockingIOError:
            pass  # the socket is full, because the worker has too many unanswered questions
        except OSError:
            self.close()

    def so_far(self, run_key: int, window: str, printed: BoundedText) -> LogSoFar:
        """Return the known part of the log of a run."""
        if self._log.run_key != run_key:
            return LogSoFar(wire.LogAnswer(run_key), window, printed, is_awaited=False)
        return LogSoFar(self._log, window, printed, is_awaited=self._asked_s is not None and self._is_open)

    def _take_answer(self, _mask: int = 0) -> None:
        """Receive answers. After a malformed answer the worker gets no more questions, but it continues to run jobs."""
        try:
            data = self._channel.recv(_RECEIVE_BYTES)
            for kind, payload in self._reader.feed(data):
                record = wire.decode(kind, payload)
                if isinstance(record, wire.RunProgress):
                    self._on_progress(record.run_key, min(100, max(0, record.percent)))
                elif isinstance(record, wire.LogAnswer) and record.run_key == self._log.run_key:
                    self._store_answer(record)
        except BlockingIOError:
            return
        except (OSError, wire.WireError):
            data = b""
        if not data:
            self.close()

    def _store_answer(self, log: wire.LogAnswer) -> None:
        self._asked_s = None
        # the answer has no new records: the worker is not running the job, or the log did not change
        if log.stamp not in (-1, self._log.stamp):
            self._log = log

    def close(self) -> None:
        """Close the descriptor."""
        if self._is_open:
            self._is_open = False
            self._selector.unregister(self._channel)
            self._channel.close()


Order = AnalyseOrder | ProcessOrder | CopyOrder
Result = AnalyseResult | RunResult | HashResult
Identity = tuple[str, str, str, str, str]


class PoolMessage(Struct):
    """Orders of one kind that are sent to a worker together. The first `done` orders are answered; the worker runs the next order.

    `cancelled`: run keys whose results are no longer needed. `tries`: number of workers that died while they performed
    `hash_order`. `is_alone`: no other job may run at the same time. `held_since_s`: when the message began to wait for memory, None
    = it does not wait. `passed`: number of later jobs that were sent to workers while this message waited for memory.
    """

    kind: wire.FrameKind
    orders: list[Order]
    hash_order: HashOrder | None = None
    done: int = 0
    began_s: float = 0.0
    cancelled: set[int] = field(default_factory=set)
    tries: int = 0
    is_alone: bool = False
    held_since_s: float | None = None
    passed: int = 0

    @property
    def is_job(self) -> bool:
        """Whether the orders are runs of jobs. They need memory, because builders process sources."""
        return self.kind is wire.FrameKind.PROCESS

    @property
    def is_critical(self) -> bool:
        """Whether a client waits for the message. Only the first order is checked, because a critical order is sent alone."""
        return bool(self.orders) and is_critical(self.orders[0])

    @property
    def only_analyses(self) -> bool:
        """Whether the orders only read or analyse files."""
        return self.kind in (wire.FrameKind.HASH, wire.FrameKind.ANALYSE)

    @property
    def is_plain(self) -> bool:
        """Whether the orders need no builder. The worker then sends one answer for the whole message."""
        return self.kind in (wire.FrameKind.COPY, wire.FrameKind.HASH)

    @property
    def is_short(self) -> bool:
        """Whether the message occupies a worker only for a short time; only quick orders are sent together."""
        return self.is_plain or (len(self.orders) > 1 and not self.is_alone and not self.is_batched)

    @property
    def is_batched(self) -> bool:
        """Whether the orders of this message have a `batch` command, which the worker may start once for several orders."""
        first = self.orders[0] if self.orders else None  # all orders of a message have the same builder
        return isinstance(first, ProcessOrder) and first.is_batched

    @property
    def limit_s(self) -> float:
        """Time limit of the current order.

        A worker may start a `batch` command once for several files, and limits each start by itself. After a failed start, the
        worker starts the command for each half of the files. This needs fewer than two starts per file, so the limit allows two.
        """
        order = self.current
        limit_s = order.limit_s if order is not None else 0.0
        return 2 * len(self.rest) * limit_s if self.is_batched else limit_s

    def may_wait_behind(self, other: PoolMessage) -> bool:
        """Whether this message may wait behind `other` at a worker, because it will not need more memory than `other`."""
        if not (self.is_short and other.is_short):
            return False
        return not self.is_job or (other.is_job and builder_of(self.orders[0]) == builder_of(other.orders[0]))

    @property
    def current(self) -> AnalyseOrder | ProcessOrder | None:
        """The order whose builder runs now; None for copies and hashes, and when all orders are done."""
        if self.is_plain or self.done >= len(self.orders):
            return None
        order = self.orders[self.done]
        return None if isinstance(order, CopyOrder) else order

    @property
    def rest(self) -> list[Order]:
        """The orders that are not answered yet."""
        return self.orders[self.done :]

    def frame(self) -> bytes:
        """Return the message as a frame for the worker."""
        return wire.encode(self.kind, self.hash_order or self.rest)


def messages_of(orders: Sequence[Order], needs_alone: Container[Identity] = ()) -> list[PoolMessage]:
    """Return the messages for orders of one kind, critical orders first.

    An order of a job that has to run alone gets a separate message.
    """
    together: dict[tuple[bool, Identity | None], list[Order]] = {}
    for order in orders:
        lonely = identity_of(order) if needs_alone else None
        together.setdefault((not is_critical(order), lonely if lonely in needs_alone else None), []).append(order)
    parts = sorted(together.items(), key=lambda part: part[0][0])
    return [PoolMessage(_kind_of(part[0]), part, is_alone=lonely is not None) for (_, lonely), part in parts]


def _kind_of(order: Order) -> wire.FrameKind:
    match order:
        case AnalyseOrder():
            return wire.FrameKind.ANALYSE
        case ProcessOrder():
            return wire.FrameKind.PROCESS
        case CopyOrder():
            return wire.FrameKind.COPY


def is_critical(order: Order) -> bool:
    """Whether a client waits for the job of this order."""
    return isinstance(order, ProcessOrder) and order.is_critical


def identity_of(order: Order) -> Identity | None:
    """Return the identity of an order's job, equal for all its runs; None for an order that is not a builder's job."""
    return (order.builder, order.root, order.rel, order.platform, order.job_key) if isinstance(order, ProcessOrder) else None


def builder_of(order: Order) -> str:
    """Return the name of an order's builder, "" for copy orders."""
    return "" if isinstance(order, CopyOrder) else order.builder


def describe(message: PoolMessage) -> str:
    """Describe the work of a worker for users: `images: textures/a.png (linux, image)`."""
    order = message.current
    if message.hash_order is not None:
        return f"reading {_count(len(message.hash_order.paths), 'file')}"
    if order is None:
        return f"copying {_count(len(message.orders), 'file')}"
    detail = "analysis" if isinstance(order, AnalyseOrder) else f"{order.platform}, {order.job_key}"
    return f"{order.builder}: {order.rel} ({detail})"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


# ------------------------------------------------------------------------------------------------------------------- results


class Verdict(NamedTuple):
    """Result of a run whose worker cannot report it; `kind` is the kind of failure (`core.retry`)."""

    outcome: Outcome
    error: str = ""
    kind: str = ""


def make_ended(
    order: Order, outcome: Outcome, error: str = "", kind: str = "", log: Iterable[LogRecord] = ()
) -> AnalyseResult | RunResult:
    """Return the result of a run whose worker cannot report it."""
    records = tuple(log)
    if isinstance(order, AnalyseOrder):
        return AnalyseResult(order.run_key, outcome, error, log=records, kind=kind)
    warnings, errors = count_levels(records)
    return RunResult(order.run_key, outcome, error, log=records, warnings=warnings, errors=errors, kind=kind)


def make_broken_off(
    order: AnalyseOrder | ProcessOrder, verdict: Verdict, text: BoundedText, duration_s: float
) -> AnalyseResult | RunResult:
    """Return the result of the run whose worker ended, with the output so far."""
    now_ms = time.time_ns() // 1_000_000
    records = records_of(text, order.builder, now_ms)
    if verdict.error:
        records.append(LogRecord(LogLevel.ERROR, order.builder, verdict.error, now_ms))
    return replace(make_ended(order, *verdict, records), duration_ms=int(duration_s * 1000))


def with_output(result: AnalyseResult | RunResult, text: BoundedText | None, window: str) -> AnalyseResult | RunResult:
    """Return the result with the builder's output at the beginning of its log."""
    if not text:
        return result
    records = records_of(text, window, time.time_ns() // 1_000_000)
    if isinstance(result, AnalyseResult):
        return replace(result, log=(*records, *result.log))
    warnings, errors = count_levels(records)
    return replace(result, log=(*records, *result.log), warnings=result.warnings + warnings, errors=result.errors + errors)


def make_unhashed(order: HashOrder, error: str) -> HashResult:
    """Return a result in which each file of a hash order has the error `error`.

    No worker can read these files: two workers died while they read them, or no worker can be started.
    """
    files = tuple((b"", 0, -1, 0, 0, 0) for _ in order.paths)
    return HashResult(order.order, files, tuple((index, error) for index in range(len(files))))

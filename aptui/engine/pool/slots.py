"""Workers with their orders, and waiting messages.

This module decides which worker accepts another message, and which message is sent first. It does not communicate with processes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from aptui.core.orders import AnalyseOrder, AnalyseResult, Outcome, ProcessOrder, RunResult
from aptui.core.retry import FailureKind
from aptui.engine.pool.admission import JobAdmission, family_bytes, resident_bytes
from aptui.engine.pool.process import WorkerProcess, WorkerStart
from aptui.engine.pool.worker_messages import (
    Order,
    PoolMessage,
    Result,
    Verdict,
    describe,
    make_broken_off,
    make_ended,
    make_unhashed,
    with_output,
)
from aptui.shared.health import WorkerInfo
from aptui.worker.file_access import discard_copies
from aptui.worker.processes import KILLED

SHORT_IN_FLIGHT = 2
PATIENT_PASSES = 16
PATIENT_S = 10.0
"""Time (seconds) after which a job that waits for memory blocks all later jobs. It also does after `PATIENT_PASSES` overtakes."""


class WorkerSlot(Struct, eq=False):
    """A worker and its orders.

    `verdicts` are {key of a run: why the engine ends the worker because of this run}. `start` is the worker's configuration.
    """

    number: int
    member: WorkerProcess
    start: WorkerStart
    started_s: float
    idle_since_s: float
    messages: deque[PoolMessage] = field(default_factory=deque)
    runs: int = 0
    is_ready: bool = False
    is_retiring: bool = False
    verdicts: dict[int, Verdict] = field(default_factory=dict)
    kill_at_s: float | None = None
    progress: tuple[int, int] = (0, -1)
    """(run key, per cent) of the last progress that a builder reported."""

    @property
    def is_usable(self) -> bool:
        """Whether the worker may receive orders."""
        return not self.is_retiring and self.kill_at_s is None and not self.member.is_deaf

    @property
    def is_busy(self) -> bool:
        """Whether the worker has orders and is not being ended."""
        return bool(self.messages) and self.kill_at_s is None

    @property
    def is_at_rest(self) -> bool:
        """Whether the worker waits for orders."""
        return self.is_usable and self.is_ready and not self.messages

    @property
    def takes_another(self) -> bool:
        """Whether the worker accepts one more short message behind its present messages."""
        return self.is_usable and 0 < len(self.messages) < SHORT_IN_FLIGHT and all(message.is_short for message in self.messages)

    @property
    def job(self) -> PoolMessage | None:
        """The message whose jobs the worker runs now, None if the worker runs no job."""
        return self.messages[0] if self.messages and self.messages[0].is_job else None

    def is_at(self, run_key: int) -> bool:
        """Whether the worker is executing this run, according to the messages received so far."""
        order = self.messages[0].current if self.messages and self.is_ready else None
        return order is not None and order.run_key == run_key

    @property
    def state(self) -> str:
        """Return the name of the worker's state: starting, idle, working or ending."""
        if not self.is_usable:
            return "ending"
        return "starting" if not self.is_ready else "working" if self.messages else "idle"

    def info(self, now_s: float) -> WorkerInfo:
        """Return the worker's state, to be shown to users."""
        message = self.messages[0] if self.messages and self.is_ready else None
        age_ms = int((now_s - message.began_s) * 1000) if message else 0
        rss_bytes = (family_bytes if self.member.is_wrapped else resident_bytes)(self.member.pid)
        return WorkerInfo(
            self.number, self.member.pid, self.state, describe(message) if message else "", age_ms, rss_bytes, self.runs
        )


class WaitingOrders:
    """Messages that were not sent to a worker yet: critical ones first, each kind in the order of arrival."""

    def __init__(self) -> None:
        self._critical: deque[PoolMessage] = deque()
        self._others: deque[PoolMessage] = deque()

    def __len__(self) -> int:
        return len(self._critical) + len(self._others)

    def __iter__(self) -> Iterator[PoolMessage]:
        yield from [*self._critical, *self._others]

    @property
    def held_count(self) -> int:
        """Number of jobs that wait for memory."""
        return sum(message.held_since_s is not None for message in self)

    def add(self, message: PoolMessage) -> None:
        """Add a message behind the waiting messages of its kind."""
        self._lane(message).append(message)

    def put_back(self, message: PoolMessage) -> None:
        """Put an unfinished message of a worker in front of the waiting messages of its kind."""
        self._lane(message).appendleft(message)

    def remove_sent(self, message: PoolMessage) -> None:
        """Remove a message that is sent to a worker.

        If it is a job, it overtakes the jobs before it that wait for memory, and the `passed` of each of these jobs grows by 1.
        """
        if message.is_job:
            for other in self:
                if other is message:
                    break
                other.passed += other.held_since_s is not None
        message.held_since_s, message.passed = None, 0
        self.remove(message)

    def remove(self, message: PoolMessage) -> None:
        """Remove a message from the waiting messages of its kind."""
        lane = self._lane(message)
        del lane[next(index for index, other in enumerate(lane) if other is message)]

    def hold(self, message: PoolMessage, now_s: float) -> bool:
        """Record that a job does not fit into memory now; return whether other jobs must wait for it from now on."""
        if message.held_since_s is None:
            message.held_since_s = now_s
        return message.passed >= PATIENT_PASSES or now_s - message.held_since_s >= PATIENT_S

    def clear(self) -> list[PoolMessage]:
        """Remove and return all waiting messages."""
        left = list(self)
        self._critical.clear()
        self._others.clear()
        return left

    def _lane(self, message: PoolMessage) -> deque[PoolMessage]:
        return self._critical if message.is_critical else self._others


# The pool answers each order that was sent exactly once. If the worker does not answer, the pool answers in its place.
#
# The pool passes on a worker's answer unless the run was ended or cancelled. If a worker died or ended, the pool reports each
# of its orders as lost, failed or cancelled, or gives the order back to the pipeline (`engine.pool.pool` lists the cases).

_HASH_TRIES = 2
"""Number of workers that may die while they read the same files: the first death may have another cause."""


class OrderAnswers:
    """Results that are not reported yet, and the rules for orders that no worker answers.

    Args:
        waiting: receives the orders that another worker has to perform instead.
    """

    def __init__(self, admission: JobAdmission, waiting: WaitingOrders, clock: Callable[[], float]) -> None:
        self._admission, self._waiting, self._clock = admission, waiting, clock
        self.results: list[Result] = []

    def take(self) -> list[Result]:
        """Return and remove the results to be reported."""
        results, self.results = self.results, []
        return results

    # --------------------------------------------------------------------------------------------------- answers of workers

    def take_run(
        self, slot: WorkerSlot, message: PoolMessage, order: AnalyseOrder | ProcessOrder, result: AnalyseResult | RunResult
    ) -> None:
        """Handle a worker's message about its run; a message about a run that was ended or cancelled has no effect."""
        text = slot.member.take_output(result.run_key)
        self._admission.note_answer(order.builder)
        if result.run_key in slot.verdicts:
            self.results.append(make_ended(order, *slot.verdicts[result.run_key]))
        elif result.run_key in message.cancelled:
            self.cancel([order])
        else:
            self.results.append(with_output(self._check_run(order, result), text, order.builder))

    def _check_run(self, order: AnalyseOrder | ProcessOrder, result: AnalyseResult | RunResult) -> AnalyseResult | RunResult:
        """Note the resource use of a run. If the run's command was killed for lack of memory, the run is LOST.

        The job runs again, and no other job runs beside it.
        """
        if not isinstance(result, RunResult):
            return result
        self._admission.note_peak(order, result)
        if result.outcome == Outcome.FAILED and result.error.startswith(KILLED):
            return replace(result, outcome=Outcome.LOST) if self._admission.isolate(order) else result
        self._admission.release(order)
        return result

    def take_copies(self, message: PoolMessage, results: Sequence[object]) -> bool:
        """Accept the results of a message that ordered copies.

        Return False, and accept no result, if the results do not belong to the ordered copies.
        """
        answers = [result for result in results if isinstance(result, RunResult)]
        if [result.run_key for result in answers] != [order.run_key for order in message.orders]:
            return False
        for order, result in zip(message.orders, answers, strict=True):
            if order.run_key in message.cancelled:
                self.cancel([order])
            else:
                self.results.append(result)
        return True

    # --------------------------------------------------------------------------------- orders without an answer of a worker

    def cancel(self, orders: Sequence[Order]) -> None:
        """Answer these orders as cancelled."""
        self.results += [make_ended(order, Outcome.CANCELLED, "cancelled") for order in orders]

    def refuse(self, message: PoolMessage, fault: str) -> None:
        """Refuse the orders of a message, because no worker can be started."""
        self.results += [make_ended(order, Outcome.FAILED, fault, FailureKind.OBSTACLE) for order in message.orders]
        if message.hash_order is not None:
            self.results.append(make_unhashed(message.hash_order, fault))

    def account_for_the_dead(self, slot: WorkerSlot) -> None:
        """Answer every order of a worker that died.

        How the worker died decides the result of its current run; the waiting orders are returned to the pipeline.
        """
        for message in slot.messages:
            if message.hash_order is not None:
                self._read_again(message, slot.member.exit_text)
            elif message is slot.messages[0]:
                self._answer_executing(slot, message)
            else:
                self._return(message, message.rest)

    def _answer_executing(self, slot: WorkerSlot, message: PoolMessage) -> None:
        """Answer the orders of the message that the worker was executing when it died."""
        reason, order, rest = slot.member.exit_text, message.current, message.rest
        if order is not None and (order.run_key in slot.verdicts or not slot.verdicts):
            kind = FailureKind.MEMORY if slot.member.is_killed_by_others else FailureKind.CRASH
            verdict = slot.verdicts.get(order.run_key, Verdict(Outcome.LOST, reason, kind))
            is_first_kill = not slot.verdicts and slot.member.is_killed_by_others and self._admission.isolate(order)
            if not slot.verdicts and not is_first_kill:
                self._admission.note_death(order.builder, reason)
            text, duration_s = slot.member.stream.take_unfinished(), self._clock() - message.began_s
            self.results.append(make_broken_off(order, verdict, text, duration_s))
            rest = rest[1:]
        elif order is None and len(rest) == 1 and not slot.verdicts:
            self.results.append(make_ended(rest[0], Outcome.LOST, reason, FailureKind.CRASH))
            rest = []
        self._return(message, rest)

    def _return(self, message: PoolMessage, orders: Sequence[Order], reason: str = "its worker died") -> None:
        for order in orders:
            if order.run_key in message.cancelled:
                self.cancel([order])
            else:
                self.results.append(make_ended(order, Outcome.RETURNED, reason))

    def _read_again(self, message: PoolMessage, reason: str) -> None:
        """Give a hash order to another worker, or answer it with an error if two workers died while they read the files."""
        assert message.hash_order is not None
        discard_copies(message.hash_order)
        message.tries += 1
        if message.tries < _HASH_TRIES:
            self._waiting.put_back(message)
        else:
            self.results.append(make_unhashed(message.hash_order, f"the worker that read it {reason}"))

    def return_or_keep(self, message: PoolMessage) -> None:
        """Send the orders of a message back to the pipeline, which plans them again with the new configuration.

        File hashing continues, because it does not depend on the configuration.
        """
        if message.hash_order is not None:
            self._waiting.add(message)
        self._return(message, message.rest, "the configuration changed")

    def take_back(self, slot: WorkerSlot, *, is_outdated: bool) -> None:
        """Give the remaining orders of a worker that ends normally, or did not start, to other workers.

        Runs of an earlier configuration go back to the pipeline instead.
        """
        for message in reversed(slot.messages):
            unwanted = [order for order in message.rest if order.run_key in message.cancelled]
            self.cancel(unwanted)
            message.orders, message.done = [order for order in message.rest if order not in unwanted], 0
            if is_outdated:
                self.return_or_keep(message)
            elif message.orders or message.hash_order is not None:
                self._waiting.put_back(message)
        slot.messages.clear()

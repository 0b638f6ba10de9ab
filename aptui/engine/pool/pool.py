"""The pool of workers: starts workers, gives them orders, enforces time limits, and reports an outcome for every order.

The engine's loop owns the selector and the thread; nothing here blocks. An order is one analysis, run, copy or set of files.
Each order gets exactly one outcome, even if its worker crashes, hangs, floods its output or sends malformed messages:

* if a worker dies, its current run is LOST, and the reason says how the worker died; its waiting orders are RETURNED.
  `core.pipeline.run_results` runs a lost job once more, and then fails it;
* a run that overruns its limit is FAILED, after its worker and all processes of the worker have ended;
* if a worker dies while it makes several copies, all of them are RETURNED, because it is unknown which copy killed the worker (a
  single copy is LOST);
* a builder whose workers die three times before its first answer is broken: its orders fail at once until `reconfigure` is called;
* a run that was killed by SIGKILL is LOST as well; when the same job is ordered again, no other job runs beside it.

Memory: a job starts only if the known memory use of its builder fits (`pool.admission`) or no job runs. A job that does not fit
waits, and other jobs overtake it, up to a limit.

Critical orders: `size` workers accept any order, and one more worker is reserved for critical orders, so that these need not wait
for the end of a long run. The reserved worker is started when it is first needed. While all other workers run long jobs, it also
reads and analyses files, so that long jobs do not delay the detection of changes.

Idle workers are ended after a while, except for the last one, which is ended later.
"""

from __future__ import annotations

import math
import selectors
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from aptui.config.dirs import core_count
from aptui.core.orders import AnalyseResult, HashOrder, HashResult, Outcome, RunResult
from aptui.core.project import Builder, Platform
from aptui.core.retry import FailureKind
from aptui.engine.pool.admission import MAX_FAILURES, SAMPLE_S, JobAdmission, MemoryBudget
from aptui.engine.pool.process import WorkerProcess, WorkerStart
from aptui.engine.pool.slots import OrderAnswers, WaitingOrders, WorkerSlot
from aptui.engine.pool.worker_messages import (
    LogSoFar,
    Order,
    PoolMessage,
    Result,
    Verdict,
    builder_of,
    make_ended,
    messages_of,
)
from aptui.engine.pool.worker_processes import PoolSettings, WorkerManager
from aptui.shared.health import WorkerInfo
from aptui.worker import wire
from aptui.worker.variables import values_of

_LONG_JOB_S = 0.5
"""If jobs keep all workers busy for this long, one more worker is started for hashing files and for analyses (seconds)."""
_START_PAUSE_S = 10.0
"""Pause (seconds) after `MAX_FAILURES` workers in a row could not be started; then the next order starts a worker."""
_LEAST_HELD = 8
"""The pool accepts orders while fewer jobs than this wait for memory, because a later job may need less memory.

With more than four workers, the limit is twice the number of workers.
"""


class Pool:
    """Workers of one engine.

    Args:
        builders, platforms: sent to the workers at their start.
        size: maximum number of workers, without the reserved worker for critical orders. A worker is started when there is work.
        selector: the loop's selector. The data of each key that the pool registers is a callable: the loop calls `key.data()` for
            each ready key (a mask may be passed and is not needed).
        on_results: called with one or more results, from `poll` and the callables in the selector; never from `send` or `kill`.
        on_progress: called with the run key and the per cent, at most ten times a second per worker.
        clock: seconds of a monotonic clock; `poll` receives times of the same clock.
        learned_memory: {builder: bytes} that `list_learned_memory()` of an earlier session returned.
        memory: replaces the memory budget that is measured on this machine.
    """

    def __init__(
        self,
        builders: Sequence[Builder],
        platforms: Sequence[Platform],
        size: int,
        selector: selectors.BaseSelector,
        on_results: Callable[[list[Result]], None],
        *,
        clock: Callable[[], float] = time.monotonic,
        settings: PoolSettings | None = None,
        learned_memory: Mapping[str, int] | None = None,
        memory: MemoryBudget | None = None,
        on_progress: Callable[[int, int], None] = lambda _run_key, _percent: None,
    ) -> None:
        self._size, self._report, self._clock, self._report_progress = size, on_results, clock, on_progress
        self._settings = settings or PoolSettings()
        self._memory = memory or MemoryBudget(self._settings.memory_budget_bytes, clock, learned_memory)
        self._manager = WorkerManager(selector, self, clock, self._settings)
        self._waiting = WaitingOrders()
        self._admission = JobAdmission(self._memory)
        self._answers = OrderAnswers(self._admission, self._waiting, clock)
        self._failed_starts, self._start_at_s = 0, -math.inf
        self.fault = ""
        """Why no worker can be started, "" if workers are running or could not be started only once or twice."""
        self._start = self._make_start(builders, platforms)

    def _make_start(self, builders: Sequence[Builder], platforms: Sequence[Platform]) -> WorkerStart:
        chosen = self._settings
        setup = wire.WorkerSetup(
            tuple(builders), tuple(platforms), "", chosen.recycle_runs, chosen.recycle_cpu_s, chosen.recycle_rss_bytes, chosen.nice,
            chosen.scan_folders, chosen.ignore_regex, values_of(builders), max(1, core_count() // max(1, self._size)),
        )  # fmt: skip
        return WorkerStart(setup, chosen.environment, chosen.sandbox)

    # -------------------------------------------------------------------------------------------------------------- orders

    @property
    def free(self) -> int:
        """Return how many messages may be sent now.

        A worker whose message takes little time accepts a second message, so that it need not wait for the engine between messages.
        """
        return self._free(self._size)

    @property
    def free_for_critical(self) -> int:
        """How many messages with critical orders may be sent now; never less than `free`."""
        return self._free(self._size + 1)

    @property
    def free_for_analyses(self) -> int:
        """How many messages of analyses may be sent now; one if jobs use all workers."""
        is_one_free = (
            self._manager.busy <= self._size and self._are_all_at_jobs and not any(each.only_analyses for each in self._waiting)
        )
        return max(self.free, int(is_one_free))

    @property
    def _are_all_at_jobs(self) -> bool:
        return all(slot.job is not None for slot in self._manager.slots if slot.is_busy)

    @property
    def _is_at_long_jobs(self) -> bool:
        """Whether every worker has run its job for `_LONG_JOB_S`, so that starting another worker is worth its cost."""
        until_s = self._clock() - _LONG_JOB_S
        return all(slot.messages[0].began_s <= until_s for slot in self._manager.slots if slot.is_busy)

    def _free(self, size: int) -> int:
        held = self._waiting.held_count
        behind = sum(slot.takes_another for slot in self._manager.slots)
        return min(size - self._manager.busy + behind - (len(self._waiting) - held), max(_LEAST_HELD, 2 * self._size) - held)

    @property
    def is_idle(self) -> bool:
        """Whether every order has been answered."""
        return not self._waiting and not self._answers.results and not any(slot.messages for slot in self._manager.slots)

    def jobs_at_work(self) -> dict[int, int]:
        """Return {run key of a job that a worker runs now: ms since it began}.

        Jobs that wait behind a running job in a worker are left out. If several copies were sent in one message, the first
        unanswered copy is returned.
        """
        heads = [slot.messages[0] for slot in self._manager.slots if slot.messages and slot.is_ready]
        jobs = [message for message in heads if message.rest and (message.is_job or message.kind is wire.FrameKind.COPY)]
        return {message.rest[0].run_key: int(1000 * (self._clock() - message.began_s)) for message in jobs}

    def list_progress(self) -> dict[int, int]:
        """Return {run key of a running job: per cent} of the jobs whose builders report their progress."""
        found = dict(slot.progress for slot in self._manager.slots)
        return {run_key: percent for run_key, percent in found.items() if run_key in self.jobs_at_work()}

    def log_so_far(self, run_key: int, *, asks: bool = False) -> LogSoFar | None:
        """Return the known log of a run; None if no worker runs it. `asks`: also request more lines from its worker."""
        slot = next((slot for slot in self._manager.slots if slot.is_at(run_key)), None)
        order = slot.messages[0].current if slot else None
        if slot is None or order is None:
            return None
        if asks:
            slot.member.questions.ask(run_key)
        return slot.member.questions.so_far(run_key, order.builder, slot.member.stream.unfinished)

    def workers(self) -> tuple[WorkerInfo, ...]:
        """Return the state of each worker, to be shown to users."""
        return tuple(slot.info(self._clock()) for slot in self._manager.slots)

    def list_learned_memory(self) -> dict[str, int]:
        """Return {builder: measured memory use in bytes}, for the next session."""
        return dict(self._memory.learned)

    def send(self, orders: Sequence[Order]) -> None:
        """Send orders of one kind to one worker, as one message. Orders beyond `free` wait in the pool.

        Each critical order, and each order of a job that has to run alone, is sent in a separate message, so that it does not wait
        for other orders.
        """
        fine = [order for order in orders if not self._refuse(order)]
        for message in messages_of(fine, self._admission.lonely):
            self._waiting.add(message)
        self._dispatch()

    def send_hash(self, order: HashOrder) -> None:
        """Send an order to hash files."""
        message = PoolMessage(wire.FrameKind.HASH, [], order)
        if fault := self._present_fault:
            self._answers.refuse(message, fault)
        else:
            self._waiting.add(message)
            self._dispatch()

    def kill(self, run_keys: Iterable[int]) -> None:
        """Stop runs: end the workers of running orders, and remove waiting orders. Each run is reported as CANCELLED."""
        wanted = set(run_keys)
        for message in self._waiting:
            unwanted = [order for order in message.orders if order.run_key in wanted]
            self._answers.cancel(unwanted)
            if unwanted and len(unwanted) == len(message.orders):
                self._waiting.remove(message)
            message.orders = [order for order in message.orders if order not in unwanted]
        for slot in self._manager.slots:
            for message in slot.messages:
                message.cancelled |= wanted & {order.run_key for order in message.rest}
            self._manager.end_if_cancelled(slot)

    def reconfigure(self, builders: Sequence[Builder], platforms: Sequence[Platform]) -> None:
        """Switch to a new configuration: present workers finish their runs, and waiting orders are RETURNED.

        New workers have the new builders, and import the code of builders again, so that changes of the code become effective.
        """
        self._start = self._make_start(builders, platforms)
        self._admission.let_off()
        self._note_start()
        for message in self._waiting.clear():
            self._answers.return_or_keep(message)
        for slot in self._manager.slots:
            self._outdate(slot)
        self._dispatch()

    def _outdate(self, slot: WorkerSlot) -> None:
        if slot.is_ready:
            self._manager.retire(slot)
            return
        for message in slot.messages:
            self._answers.return_or_keep(message)
        slot.messages.clear()
        slot.is_retiring = True
        slot.member.break_off("was outdated before it was ready")

    def restart_worker(self, number: int) -> bool:
        """End a worker after its current run. A second call ends the worker at once, and its current run is LOST.

        Returns:
            Whether a worker has this number.
        """
        slot = next((slot for slot in self._manager.slots if slot.number == number), None)
        if slot is None:
            return False
        order = slot.messages[0].current if slot.messages else None
        if slot.is_ready and not slot.is_retiring:
            self._manager.retire(slot)
        elif slot.is_ready and order is not None:
            self._manager.end(slot, order.run_key, Verdict(Outcome.LOST, "a user restarted its worker"))
        else:
            slot.is_retiring = True
            slot.member.break_off("was restarted by a user")
        return True

    def list_broken_builders(self) -> dict[str, str]:
        """Return {name: reason} of the builders that are broken and get no worker."""
        return self._admission.list_broken()

    @property
    def _present_fault(self) -> str:
        """Why orders are refused now; "" while a worker is running or may be started."""
        return self.fault if self._clock() < self._start_at_s else ""

    def _refuse(self, order: Order) -> bool:
        """Answer an order at once if no worker can perform it; return whether it was answered."""
        error = self._present_fault or self._admission.refusal(builder_of(order))
        if error:
            self._answers.results.append(make_ended(order, Outcome.FAILED, error, FailureKind.OBSTACLE))
        return bool(error)

    # ----------------------------------------------------------------------------------------------------------- dispatch

    def _dispatch(self) -> None:
        """Send waiting messages to workers that accept them.

        Other messages overtake a job that does not fit into memory, up to a limit.
        """
        if not self._waiting:
            return
        now_s = self._clock()
        is_barred = is_full = False
        for message in self._waiting:
            if is_full and not message.only_analyses:
                continue
            if message.is_job and (is_barred or not self._admission.may_run(message, self._manager.jobs())):
                is_barred = self._waiting.hold(message, now_s) or is_barred
                continue
            slot = self._choose(message)
            if not self._waiting:
                return  # no worker can be started, so that all orders were refused
            if slot is None:
                is_full = True
                continue
            self._waiting.remove_sent(message)
            if not slot.messages:
                message.began_s = now_s
            slot.messages.append(message)
            slot.member.send(message.frame())

    def _choose(self, message: PoolMessage) -> WorkerSlot | None:
        """Return a worker for a message: the worker that was idle longest, a new worker, or a busy worker that accepts it."""
        if self._manager.busy < self._size + (message.is_critical or (message.only_analyses and self._are_all_at_jobs)):
            free = [slot for slot in self._manager.slots if slot.is_usable and not slot.messages]
            if free:
                return max(free, key=lambda slot: (slot.is_ready, slot.idle_since_s))
            is_worth_it = self._manager.busy < self._size or message.is_critical or self._is_at_long_jobs
            if is_worth_it and self._clock() >= self._start_at_s and (slot := self._add_worker()):
                return slot
        takes_another = (slot for slot in self._manager.slots if slot.takes_another)
        return next((slot for slot in takes_another if message.may_wait_behind(slot.messages[-1])), None)

    def _add_worker(self) -> WorkerSlot | None:
        try:
            return self._manager.add(self._start)
        except OSError as error:
            self._note_failed_start(f"no process can be started: {error.strerror}")
            return None

    # ------------------------------------------------------------------------------------------------ messages from workers

    def on_frame(self, member: WorkerProcess, kind: wire.FrameKind, payload: bytes) -> None:
        """Handle a frame from a worker (`Listener`)."""
        slot = self._manager.slot_of(member)
        record = wire.decode(kind, payload)
        match kind, record:
            case wire.FrameKind.ANALYSED | wire.FrameKind.RAN, AnalyseResult() | RunResult():
                self._on_run(slot, kind, record)
            case wire.FrameKind.COPIED, list():
                self._on_copies(slot, record)
            case wire.FrameKind.HASHED, HashResult():
                self._take_message(slot, wire.FrameKind.HASH)
                slot.runs += 1
                self._answers.results.append(record)
            case wire.FrameKind.READY, _:
                slot.is_ready = True
                self._note_start()
                self._begin_next(slot)
            case wire.FrameKind.RETIRE, _:
                slot.is_retiring = True
                self._answers.take_back(slot, is_outdated=slot.start is not self._start)
            case _:
                raise wire.WireError(f"a worker does not send frames of kind {kind.name}")

    def _on_run(self, slot: WorkerSlot, kind: wire.FrameKind, result: AnalyseResult | RunResult) -> None:
        message = slot.messages[0] if slot.messages else None
        order = message.current if message else None
        if (
            message is None
            or order is None
            or order.run_key != result.run_key
            or (kind is wire.FrameKind.RAN) != isinstance(result, RunResult)
        ):
            raise wire.WireError(f"an answer for run {result.run_key}, but the worker was not processing this run")
        self._answers.take_run(slot, message, order, result)
        slot.runs += 1
        message.done += 1
        message.began_s = self._clock()
        if message.done == len(message.orders):
            slot.messages.popleft()
            self._begin_next(slot)
        else:
            self._manager.end_if_cancelled(slot)

    def _on_copies(self, slot: WorkerSlot, results: Sequence[object]) -> None:
        message = self._take_message(slot, wire.FrameKind.COPY)
        if not self._answers.take_copies(message, results):
            slot.messages.appendleft(message)
            raise wire.WireError("an answer for copies that were not ordered")
        slot.runs += len(message.orders)

    def _take_message(self, slot: WorkerSlot, kind: wire.FrameKind) -> PoolMessage:
        if not slot.messages or slot.messages[0].kind is not kind:
            raise wire.WireError(f"an answer of kind {kind.name} without a matching order")
        message = slot.messages.popleft()
        self._begin_next(slot)
        return message

    def _begin_next(self, slot: WorkerSlot) -> None:
        if slot.messages:
            slot.messages[0].began_s = self._clock()
            self._manager.end_if_cancelled(slot)
        elif slot.is_retiring:
            slot.member.hang_up()
        else:
            slot.idle_since_s = self._clock()

    def on_progress(self, member: WorkerProcess, run_key: int, percent: int) -> None:
        """Report the progress of a run (`Listener`).

        A report about a run that ended, or about a run of another worker, has no effect.
        """
        slot = self._manager.slot_of(member)
        if slot.is_at(run_key):
            slot.progress = run_key, percent
            self._report_progress(run_key, percent)

    def on_wake(self) -> None:
        """Report together all results that arrived since the loop woke up (`Listener`)."""
        self._dispatch()
        self._deliver()

    def _deliver(self) -> None:
        if self._answers.results:
            self._report(self._answers.take())

    # ------------------------------------------------------------------------------------------------------ ended workers

    def on_exit(self, member: WorkerProcess) -> None:
        """Report an outcome for every order of a dead worker, or give the order to another worker (`Listener`)."""
        slot = self._manager.remove(member)
        if not slot.is_ready:
            self._give_up_start(slot)
            return
        self._answers.account_for_the_dead(slot)

    def _give_up_start(self, slot: WorkerSlot) -> None:
        lines = [line for line in slot.member.stream.take_unfinished().lines() if line.strip()]
        self._answers.take_back(slot, is_outdated=slot.start is not self._start)
        if not slot.is_retiring and not slot.verdicts:
            self._note_failed_start(slot.member.exit_text + (f": {lines[-1]}" if lines else ""))

    def _note_failed_start(self, reason: str) -> None:
        """Note that a worker could not be started. After three failures in a row, pause, and refuse orders if no worker runs."""
        self._failed_starts += 1
        if self._failed_starts < MAX_FAILURES:
            return
        self._start_at_s = self._clock() + _START_PAUSE_S
        if not any(slot.is_ready for slot in self._manager.slots):
            self.fault = f"worker processes cannot be started: {reason}"
            for message in self._waiting.clear():
                self._answers.refuse(message, self.fault)

    def _note_start(self) -> None:
        self._failed_starts, self._start_at_s, self.fault = 0, -math.inf, ""

    # ----------------------------------------------------------------------------------------------------------- deadlines

    def next_deadline(self) -> float | None:
        """Return the time (seconds of the clock) at which `poll` has work next, None if only an event causes work."""
        if self._answers.results:
            return self._clock()
        times = self._manager.deadlines()
        if self._waiting.held_count or (self._waiting and not self._manager.slots):
            times.append(self._clock() + SAMPLE_S)  # no event reports that other programs free memory or end
        elif any(message.only_analyses for message in self._waiting):
            # After `_LONG_JOB_S`, a further worker for the waiting analyses may save more time than its start takes.
            times.append(self._clock() + _LONG_JOB_S)
        return min(times, default=None)

    def poll(self, now_s: float) -> None:
        """Enforce limits and deliver due results. Call this at `next_deadline`; earlier calls do no harm."""
        self._manager.enforce(now_s)
        self._dispatch()
        self._deliver()

    def close(self, grace_s: float = 1.0) -> None:
        """End all workers, also those that run jobs; return when every process has ended. Results are not delivered any more."""
        self._waiting.clear()
        self._report = lambda _results: None
        self._manager.close(grace_s)

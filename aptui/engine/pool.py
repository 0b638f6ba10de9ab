"""The pool of workers: starts them, gives each its orders, watches the clock, and says what became of every order, whatever happens.

The engine's loop owns the selector and the thread; nothing here waits. Each order that is sent gets exactly one result, also when its worker
crashes, hangs, floods its output or talks nonsense:

* the run that a dying worker was at is LOST, and the reason says how the worker died; the orders behind it are RETURNED;
* a run that overruns its limit is FAILED, after its worker and every process of its family are gone;
* of a message of several copies nobody knows which one was to blame: all of it is RETURNED (a single one is LOST);
* a builder whose workers die three times before it ever answered is broken: its orders fail at once, until `reconfigure`.
"""

from __future__ import annotations

import selectors
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from aptui.core.messages import AnalyseResult, HashOrder, HashResult, Outcome, RunResult
from aptui.core.model import Builder, Platform
from aptui.engine import runner_processes as processes
from aptui.engine import wire
from aptui.engine.pool_member import Member, Start
from aptui.engine.pool_messages import (
    Message,
    Order,
    Result,
    broken_off,
    builder_of,
    ended,
    message_of,
    unhashed,
    with_output,
)

START_LIMIT_S = 60.0
"""A worker that is not ready by then is stuck in its imports (a network file system that hangs)."""
DEAF_LIMIT_S = 0.5
"""A worker whose channel is closed and that has not ended by then did not mean to end."""
MAX_DEATHS = 3
SHORT_IN_FLIGHT = 2


@dataclass(frozen=True, slots=True)
class Settings:
    """How workers are kept. `term_grace_s` lies between SIGTERM and SIGKILL; `environment` is added to the allow-list's variables."""

    nice: int = 0
    recycle_runs: int = 500
    recycle_rss_bytes: int = 1 << 30
    term_grace_s: float = 0.5
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class _Slot:
    """A member and what it was given. `ending` says why it is being ended: {run key: (outcome, error)} for those that are to blame."""

    member: Member
    started_s: float
    messages: deque[Message] = field(default_factory=deque)
    is_ready: bool = False
    is_retiring: bool = False
    verdicts: dict[int, tuple[Outcome, str]] = field(default_factory=dict)
    kill_at_s: float | None = None

    @property
    def is_usable(self) -> bool:
        return not self.is_retiring and self.kill_at_s is None and not self.member.is_deaf

    @property
    def has_room(self) -> bool:
        is_roomy = len(self.messages) < SHORT_IN_FLIGHT and all(message.is_short for message in self.messages)
        return self.is_usable and is_roomy

    def has_room_for(self, message: Message) -> bool:
        return self.has_room and (message.is_short or not self.messages)


class Pool:
    """Workers of one engine.

    Args:
        builders, platforms: what the workers are told at their start.
        size: how many workers at most; they are started when there is work.
        selector: registered keys carry a callable: the loop calls `key.data()` for each ready key
            (a mask may be passed and is not needed).
        on_results: called with one or more results, from those callables and from `poll`; never from within `send` or `kill`.
        clock: seconds of a monotonic clock, the one that `poll` is given.
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
        settings: Settings | None = None,
    ) -> None:
        self._size, self._selector, self._report, self._clock = size, selector, on_results, clock
        self._settings = settings or Settings()
        self._slots: dict[Member, _Slot] = {}
        self._waiting: deque[Message] = deque()
        self._results: list[Result] = []
        self._orphans: set[int] = set()
        self._deaths: dict[str, tuple[int, str]] = {}
        self._answered: set[str] = set()
        self._failed_starts = 0
        self.fault = ""
        self._start = self._make_start(builders, platforms)

    def _make_start(self, builders: Sequence[Builder], platforms: Sequence[Platform]) -> Start:
        chosen = self._settings
        setup = wire.Setup(tuple(builders), tuple(platforms), "", chosen.recycle_runs, chosen.recycle_rss_bytes, chosen.nice)
        return Start(setup, chosen.environment)

    # -------------------------------------------------------------------------------------------------------------- orders

    @property
    def free(self) -> int:
        """How many messages may be sent now. A worker that copies or hashes has room for one more such message behind the first."""
        return sum(slot.has_room for slot in self._slots.values()) + self._unstarted - len(self._waiting)

    @property
    def is_idle(self) -> bool:
        """Whether every order has been answered."""
        return not self._waiting and not self._results and not any(slot.messages for slot in self._slots.values())

    @property
    def _unstarted(self) -> int:
        return self._size - sum(slot.is_usable for slot in self._slots.values())

    @property
    def worker_pids(self) -> tuple[int, ...]:
        """The processes that are alive now."""
        return tuple(member.pid for member in self._slots)

    def send(self, orders: Sequence[Order]) -> None:
        """Give orders of one kind to one worker, as one message. More than `free` says wait in the pool."""
        fine = [order for order in orders if not self._refuse(order)]
        if fine:
            self._waiting.append(message_of(fine))
            self._dispatch()

    def send_hash(self, order: HashOrder) -> None:
        """Have files hashed."""
        self._waiting.append(Message(wire.Kind.HASH, [], order))
        self._dispatch()

    def warm(self, count: int) -> None:
        """Start workers before there is work, so that their start overlaps with something else."""
        while len(self._slots) < min(count, self._size) and not self.fault:
            self._add_worker()

    def kill(self, run_keys: Iterable[int]) -> None:
        """Stop runs: those that are running with their worker, others quietly. Each is answered CANCELLED."""
        wanted = set(run_keys)
        for message in self._waiting:
            for order in [order for order in message.orders if order.run_key in wanted]:
                message.orders.remove(order)
                self._results.append(ended(order, Outcome.CANCELLED, "cancelled"))
        self._waiting = deque(message for message in self._waiting if message.orders or message.hash_order)
        for slot in self._slots.values():
            for message in slot.messages:
                message.cancelled |= wanted & {order.run_key for order in message.rest}
            self._end_if_cancelled(slot)

    def reconfigure(self, builders: Sequence[Builder], platforms: Sequence[Platform]) -> None:
        """Take over a new configuration: running workers finish what they have, new ones know the new builders."""
        self._start = self._make_start(builders, platforms)
        self._deaths.clear()
        self._answered.clear()
        self._failed_starts, self.fault = 0, ""
        for slot in self._slots.values():
            self._retire(slot)

    def broken_builders(self) -> dict[str, str]:
        """Return {name: why} of the builders whose circuit breaker is open."""
        return {name: reason for name, (count, reason) in self._deaths.items() if count >= MAX_DEATHS}

    def _refuse(self, order: Order) -> bool:
        """Answer an order at once when no worker could do it; return whether that was so."""
        count, reason = self._deaths.get(builder_of(order), (0, ""))
        if not self.fault and count < MAX_DEATHS:
            return False
        error = self.fault or f"builder {builder_of(order)!r} died three times at its start: {reason}"
        self._results.append(ended(order, Outcome.FAILED, error))
        return True

    # ----------------------------------------------------------------------------------------------------------- dispatch

    def _dispatch(self) -> None:
        while self._waiting:
            message = self._waiting[0]
            slot = self._choose(message)
            if slot is None:
                return
            self._waiting.popleft()
            if not slot.messages:
                message.began_s = self._clock()
            slot.messages.append(message)
            slot.member.send(message.frame())

    def _choose(self, message: Message) -> _Slot | None:
        fitting = [slot for slot in self._slots.values() if slot.has_room_for(message)]
        best = min(fitting, key=lambda slot: len(slot.messages), default=None)
        if (best is None or best.messages) and self._unstarted > 0:
            return self._add_worker() or best
        return best

    def _add_worker(self) -> _Slot | None:
        processes.adopt_orphans()
        try:
            member = Member(self._start, self._selector, self)
        except OSError as error:
            self._note_failed_start(f"cannot start a process: {error.strerror}")
            return None
        self._slots[member] = _Slot(member, self._clock())
        return self._slots[member]

    def _retire(self, slot: _Slot) -> None:
        slot.is_retiring = True
        if not slot.messages:
            slot.member.hang_up()

    # ------------------------------------------------------------------------------------------------- what workers tell us

    def on_frame(self, member: Member, kind: wire.Kind, payload: bytes) -> None:
        """Take in a frame (`Listener`)."""
        slot = self._slots[member]
        record = wire.decode(kind, payload)
        match kind, record:
            case wire.Kind.ANALYSED | wire.Kind.RAN, AnalyseResult() | RunResult():
                self._on_run(slot, kind, record)
            case wire.Kind.COPIED, list():
                self._on_copies(slot, record)
            case wire.Kind.HASHED, HashResult():
                self._take_message(slot, wire.Kind.HASH)
                self._results.append(record)
            case wire.Kind.READY, _:
                slot.is_ready = True
                self._failed_starts = 0
                self._begin_next(slot)
            case wire.Kind.RETIRE, _:
                slot.is_retiring = True
                self._take_back(slot)
            case _:
                raise wire.WireError(f"a worker does not send frames of kind {kind.name}")

    def _on_run(self, slot: _Slot, kind: wire.Kind, result: AnalyseResult | RunResult) -> None:
        message = slot.messages[0] if slot.messages else None
        order = message.current if message else None
        if (
            message is None
            or order is None
            or order.run_key != result.run_key
            or (kind is wire.Kind.RAN) != isinstance(result, RunResult)
        ):
            raise wire.WireError(f"an answer for the run {result.run_key}, which was not due")
        text = slot.member.take_output(result.run_key)
        self._answered.add(order.builder)
        self._deaths.pop(order.builder, None)
        if result.run_key in slot.verdicts:
            outcome, error = slot.verdicts[result.run_key]
            self._results.append(ended(order, outcome, error))
        elif result.run_key in message.cancelled:
            self._results.append(ended(order, Outcome.CANCELLED, "cancelled"))
        else:
            self._results.append(with_output(result, text, order.builder))
        message.done += 1
        message.began_s = self._clock()
        if message.done == len(message.orders):
            slot.messages.popleft()
            self._begin_next(slot)
        else:
            self._end_if_cancelled(slot)

    def _on_copies(self, slot: _Slot, results: Sequence[object]) -> None:
        message = self._take_message(slot, wire.Kind.COPY)
        answers = [result for result in results if isinstance(result, RunResult)]
        if [result.run_key for result in answers] != [order.run_key for order in message.orders]:
            slot.messages.appendleft(message)
            raise wire.WireError("an answer for other copies than were ordered")
        for order, result in zip(message.orders, answers, strict=True):
            is_unwanted = order.run_key in message.cancelled
            self._results.append(ended(order, Outcome.CANCELLED, "cancelled") if is_unwanted else result)

    def _take_message(self, slot: _Slot, kind: wire.Kind) -> Message:
        if not slot.messages or slot.messages[0].kind is not kind:
            raise wire.WireError(f"an answer of kind {kind.name} that was not due")
        message = slot.messages.popleft()
        self._begin_next(slot)
        return message

    def _begin_next(self, slot: _Slot) -> None:
        if slot.messages:
            slot.messages[0].began_s = self._clock()
            self._end_if_cancelled(slot)
        elif slot.is_retiring:
            slot.member.hang_up()

    def on_wake(self) -> None:
        """Hand over the results of one wake-up together (`Listener`)."""
        self._dispatch()
        self._deliver()

    def _deliver(self) -> None:
        if self._results:
            results, self._results = self._results, []
            self._report(results)

    # --------------------------------------------------------------------------------------------------------------- ends

    def _end_if_cancelled(self, slot: _Slot) -> None:
        order = slot.messages[0].current if slot.messages else None
        if order is not None and order.run_key in slot.messages[0].cancelled:
            self._end(slot, order.run_key, Outcome.CANCELLED, "cancelled")

    def _end(self, slot: _Slot, run_key: int, outcome: Outcome, error: str) -> None:
        """End a worker because of the run it is at: SIGTERM now, SIGKILL for it and its family a little later."""
        slot.verdicts.setdefault(run_key, (outcome, error))
        if slot.kill_at_s is None:
            slot.kill_at_s = self._clock() + self._settings.term_grace_s
            slot.member.terminate()

    def on_exit(self, member: Member) -> None:
        """Account for every order of a worker that is dead (`Listener`)."""
        slot = self._slots.pop(member)
        self._orphans |= processes.reap(member.orphans)
        if not slot.is_ready:
            self._give_up_start(slot)
            return
        for message in slot.messages:
            if message.hash_order is not None:
                self._return_hash(message, member.exit_text)
            elif message is slot.messages[0]:
                self._account(slot, message)
            else:
                self._results += [self._returned(message, order) for order in message.rest]

    def _account(self, slot: _Slot, message: Message) -> None:
        reason = slot.member.exit_text
        order = message.current
        rest = message.rest
        if order is not None and (order.run_key in slot.verdicts or not slot.verdicts):
            outcome, error = slot.verdicts.get(order.run_key, (Outcome.LOST, reason))
            if outcome is Outcome.LOST:
                self._note_death(order.builder, reason)
            text, duration_s = slot.member.take_unfinished(), self._clock() - message.began_s
            self._results.append(broken_off(order, outcome, error, text, duration_s))
            rest = rest[1:]
        elif order is None and len(rest) == 1 and not slot.verdicts:
            self._results.append(ended(rest[0], Outcome.LOST, reason))
            rest = []
        self._results += [self._returned(message, order) for order in rest]

    @staticmethod
    def _returned(message: Message, order: Order) -> Result:
        is_unwanted = order.run_key in message.cancelled
        return ended(order, Outcome.CANCELLED, "cancelled") if is_unwanted else ended(order, Outcome.RETURNED, "its worker died")

    def _return_hash(self, message: Message, reason: str) -> None:
        message.tries += 1
        if message.tries < 2:
            self._waiting.appendleft(message)
        elif message.hash_order is not None:
            self._results.append(unhashed(message.hash_order, f"the worker that read it {reason}"))

    def _take_back(self, slot: _Slot) -> None:
        """Give the orders of a worker that leaves in good order to others."""
        for message in reversed(slot.messages):
            unwanted = [order for order in message.rest if order.run_key in message.cancelled]
            self._results += [ended(order, Outcome.CANCELLED, "cancelled") for order in unwanted]
            orders = [order for order in message.rest if order not in unwanted]
            if orders or message.hash_order is not None:
                self._waiting.appendleft(Message(message.kind, orders, message.hash_order, tries=message.tries))
        slot.messages.clear()

    def _note_death(self, builder: str, reason: str) -> None:
        if builder not in self._answered:
            self._deaths[builder] = (self._deaths.get(builder, (0, ""))[0] + 1, reason)

    def _give_up_start(self, slot: _Slot) -> None:
        lines = [line for line in slot.member.take_unfinished().lines() if line.strip()]
        self._take_back(slot)
        if not slot.is_retiring:
            self._note_failed_start(slot.member.exit_text + (f": {lines[-1]}" if lines else ""))

    def _note_failed_start(self, reason: str) -> None:
        self._failed_starts += 1
        if self._failed_starts < MAX_DEATHS:
            return
        self.fault = f"worker processes do not start: {reason}"
        waiting, self._waiting = self._waiting, deque()
        for message in waiting:
            self._results += [ended(order, Outcome.FAILED, self.fault) for order in message.orders]
            if message.hash_order is not None:
                self._results.append(unhashed(message.hash_order, self.fault))

    # --------------------------------------------------------------------------------------------------------------- clock

    def next_deadline(self) -> float | None:
        """Return when `poll` has something to do, in the clock's seconds; None when only events matter."""
        if self._results:
            return self._clock()
        times = [due_s for slot in self._slots.values() if (due_s := self._due(slot)) is not None]
        if self._orphans:
            times.append(self._clock() + 0.1)
        return min(times, default=None)

    @staticmethod
    def _due(slot: _Slot) -> float | None:
        if slot.kill_at_s is not None:
            return slot.kill_at_s
        if slot.member.is_deaf:
            return slot.started_s
        if not slot.is_ready:
            return slot.started_s + START_LIMIT_S
        order = slot.messages[0].current if slot.messages else None
        return None if order is None else slot.messages[0].began_s + order.limit_s

    def poll(self, now_s: float) -> None:
        """Enforce limits and hand over what is due. Call it at `next_deadline`, and whenever convenient."""
        self._orphans = processes.reap(self._orphans) if self._orphans else self._orphans
        for slot in list(self._slots.values()):
            if slot.member.is_deaf and slot.kill_at_s is None:
                slot.kill_at_s = now_s + DEAF_LIMIT_S
            due_s = self._due(slot)
            if due_s is not None and now_s >= due_s:
                self._overdue(slot, now_s)
        self._dispatch()
        self._deliver()

    def _overdue(self, slot: _Slot, now_s: float) -> None:
        order = slot.messages[0].current if slot.messages else None
        if slot.kill_at_s is not None:
            if slot.member.is_deaf and not slot.verdicts and not slot.member.fault:
                slot.member.fault = "closed its channel to the engine"
            slot.member.kill()
            slot.member.check_exit()
            slot.kill_at_s = now_s + 0.05  # dead processes may take a moment to be so, above all with much memory
        elif not slot.is_ready:
            slot.member.break_off(f"was not ready within {START_LIMIT_S:.0f} s")
        elif order is not None:
            self._end(slot, order.run_key, Outcome.FAILED, f"time limit of {order.limit_s:g} s exceeded")

    # ----------------------------------------------------------------------------------------------------------------- end

    def close(self, grace_s: float = 1.0) -> None:
        """End all workers, those at work too; returns when every process is gone. Results are not delivered any more."""
        self._waiting.clear()
        self._report = lambda _results: None
        for slot in list(self._slots.values()):
            slot.is_retiring = True
            slot.member.hang_up()
            if slot.messages:
                slot.member.terminate()
        deadline_s = time.monotonic() + grace_s
        while self._slots and (left_s := deadline_s - time.monotonic()) > 0:
            self._await_exits(left_s)
        for slot in list(self._slots.values()):
            slot.member.kill()
        deadline_s = time.monotonic() + 2.0
        while self._slots and (left_s := deadline_s - time.monotonic()) > 0:
            self._await_exits(left_s)
        while self._orphans and time.monotonic() < deadline_s:
            self._orphans = processes.reap(self._orphans)

    def _await_exits(self, limit_s: float) -> None:
        with selectors.DefaultSelector() as exits:
            for member in self._slots:
                exits.register(member.exit_descriptor, selectors.EVENT_READ)
            exits.select(limit_s)
        for member in list(self._slots):
            member.drain()
            member.check_exit()

"""Answers of the pool: each order that was sent gets exactly one, also when no worker gives it.

What a worker said is taken as it is, unless the run was ended or is not wanted any more. Of a worker that died or left, this says
for each of its orders whether it is lost, failed, cancelled, or goes back to its maker (`engine.pool` tells the cases).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from aptui.core.orders import AnalyseOrder, AnalyseResult, Outcome, ProcessOrder, RunResult
from aptui.core.results.retry import FailureKind
from aptui.engine.pool.admission import JobAdmission
from aptui.engine.pool.failures import FailureTracker
from aptui.engine.pool.messages import Order, PoolMessage, Result, Verdict, make_broken_off, make_ended, make_unhashed, with_output
from aptui.engine.pool.slots import WaitingOrders, WorkerSlot
from aptui.worker.files import discard_copies
from aptui.worker.processes import KILLED

_HASH_TRIES = 2
"""A worker that dies over files may have died of anything; a second one reads them again."""


class OrderAnswers:
    """Results that were not handed over yet, and the rules by which orders are answered that no worker answers.

    Args:
        waiting: takes what another worker shall do instead.
        clock: seconds of a monotonic clock.
    """

    def __init__(
        self, failures: FailureTracker, admission: JobAdmission, waiting: WaitingOrders, clock: Callable[[], float]
    ) -> None:
        self._failures, self._admission, self._waiting, self._clock = failures, admission, waiting, clock
        self.results: list[Result] = []

    def take(self) -> list[Result]:
        """Return what is to be handed over, and forget it."""
        results, self.results = self.results, []
        return results

    # ----------------------------------------------------------------------------------------------------- a worker answers

    def take_run(
        self, slot: WorkerSlot, message: PoolMessage, order: AnalyseOrder | ProcessOrder, result: AnalyseResult | RunResult
    ) -> None:
        """Take what a worker says of the run it was at; that of a run which was ended or is not wanted counts for nothing."""
        text = slot.member.take_output(result.run_key)
        self._failures.note_answer(order.builder)
        if result.run_key in slot.verdicts:
            self.results.append(make_ended(order, *slot.verdicts[result.run_key]))
        elif result.run_key in message.cancelled:
            self.cancel([order])
        else:
            self.results.append(with_output(self._check_run(order, result), text, order.builder))

    def _check_run(self, order: AnalyseOrder | ProcessOrder, result: AnalyseResult | RunResult) -> AnalyseResult | RunResult:
        """Take note of what a run took; one whose command was killed for want of memory is LOST, and comes back to run alone."""
        if not isinstance(result, RunResult):
            return result
        self._admission.learn(order, result)
        if result.outcome == Outcome.FAILED and result.error.startswith(KILLED):
            return replace(result, outcome=Outcome.LOST) if self._admission.isolate(order) else result
        self._admission.release(order)
        return result

    def take_copies(self, message: PoolMessage, results: Sequence[object]) -> bool:
        """Take the results of all copies of a message; False: they are of other copies than were ordered, and none is taken."""
        answers = [result for result in results if isinstance(result, RunResult)]
        if [result.run_key for result in answers] != [order.run_key for order in message.orders]:
            return False
        for order, result in zip(message.orders, answers, strict=True):
            is_unwanted = order.run_key in message.cancelled
            self.results.append(make_ended(order, Outcome.CANCELLED, "cancelled") if is_unwanted else result)
        return True

    # ------------------------------------------------------------------------------------------------------- no worker does

    def cancel(self, orders: Sequence[Order]) -> None:
        """Forget these orders: their results are not wanted any more."""
        self.results += [make_ended(order, Outcome.CANCELLED, "cancelled") for order in orders]

    def refuse(self, message: PoolMessage, fault: str) -> None:
        """No worker can be had for a message."""
        self.results += [make_ended(order, Outcome.FAILED, fault, FailureKind.OBSTACLE) for order in message.orders]
        if message.hash_order is not None:
            self.results.append(make_unhashed(message.hash_order, fault))

    def account_for_the_dead(self, slot: WorkerSlot) -> None:
        """Answer every order of a worker that died: the one it was at by how it died, those behind are returned."""
        for message in slot.messages:
            if message.hash_order is not None:
                self._read_again(message, slot.member.exit_text)
            elif message is slot.messages[0]:
                self._account(slot, message)
            else:
                self._return(message, message.rest)

    def _account(self, slot: WorkerSlot, message: PoolMessage) -> None:
        reason, order, rest = slot.member.exit_text, message.current, message.rest
        if order is not None and (order.run_key in slot.verdicts or not slot.verdicts):
            kind = FailureKind.MEMORY if slot.member.is_killed_by_others else FailureKind.CRASH
            verdict = slot.verdicts.get(order.run_key, Verdict(Outcome.LOST, reason, kind))
            is_first_kill = not slot.verdicts and slot.member.is_killed_by_others and self._admission.isolate(order)
            if not slot.verdicts and not is_first_kill:
                self._failures.note_death(order.builder, reason)
            text, duration_s = slot.member.take_unfinished(), self._clock() - message.began_s
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
        assert message.hash_order is not None
        discard_copies(message.hash_order)
        message.tries += 1
        if message.tries < _HASH_TRIES:
            self._waiting.put_back(message)
        else:
            self.results.append(make_unhashed(message.hash_order, f"the worker that read it {reason}"))

    def return_or_keep(self, message: PoolMessage) -> None:
        """Return orders of the former configuration to their maker, which decides anew.

        File hashing goes on: it is right in any configuration.
        """
        if message.hash_order is not None:
            self._waiting.add(message)
        self._return(message, message.rest, "the configuration changed")

    def take_back(self, slot: WorkerSlot, *, is_outdated: bool) -> None:
        """Give the orders of a worker that leaves in good order to others, unless they are of a configuration that is no more."""
        for message in reversed(slot.messages):
            unwanted = [order for order in message.rest if order.run_key in message.cancelled]
            self.cancel(unwanted)
            message.orders, message.done = [order for order in message.rest if order not in unwanted], 0
            if is_outdated:
                self.return_or_keep(message)
            elif message.orders or message.hash_order is not None:
                self._waiting.put_back(message)
        slot.messages.clear()

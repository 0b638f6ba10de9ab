"""Each order gets one result: from its worker, or derived from the way in which its worker ended."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace

import pytest

from aptui.core.orders import CopyOrder, HashOrder, HashResult, Outcome, RunResult
from aptui.core.retry import FailureKind
from aptui.engine.pool.admission import JobAdmission, MemoryBudget
from aptui.engine.pool.slots import OrderAnswers, WaitingOrders
from aptui.engine.pool.worker_messages import PoolMessage, Verdict
from aptui.worker import wire
from aptui.worker.output import BoundedText
from aptui.worker.processes import KILLED
from tests.engine.pool.test_slots import order


class Harness:
    """`OrderAnswers` with the real rules for orders; the test decides whether workers are dead or alive."""

    def __init__(self) -> None:
        self.admission, self.waiting = JobAdmission(MemoryBudget(1 << 40, lambda: 0.0)), WaitingOrders()
        self.answers = OrderAnswers(self.admission, self.waiting, lambda: 12.0)

    def slot(self, *messages: PoolMessage, verdicts=None, is_killed_by_others=False) -> SimpleNamespace:
        member = SimpleNamespace(
            exit_text="was killed by signal 11", is_killed_by_others=is_killed_by_others, take_output=lambda _key: None,
            stream=SimpleNamespace(take_unfinished=BoundedText),
        )  # fmt: skip
        return SimpleNamespace(member=member, messages=deque(messages), verdicts=verdicts or {})

    def outcomes(self) -> list[tuple[int, Outcome]]:
        return [(result.run_key, result.outcome) for result in self.answers.take()]


def jobs(*keys: int, done: int = 0) -> PoolMessage:
    return PoolMessage(wire.FrameKind.PROCESS, [order(key, rel=f"{key}.txt") for key in keys], done=done, began_s=10.0)


def reading() -> PoolMessage:
    return PoolMessage(wire.FrameKind.HASH, [], HashOrder(5, ("a", "b")))


@pytest.fixture
def harness():
    return Harness()


def test_death_of_a_worker_loses_only_the_order_in_progress(harness):
    harness.answers.account_for_the_dead(harness.slot(jobs(1, 2, 3, done=1), jobs(4)))
    found = harness.answers.take()

    assert [(each.run_key, each.outcome) for each in found] == [
        (2, Outcome.LOST), (3, Outcome.RETURNED), (4, Outcome.RETURNED)
    ]  # fmt: skip
    assert (found[0].kind, found[0].duration_ms, found[0].error) == (FailureKind.CRASH, 2000, "was killed by signal 11")


def test_builder_is_broken_after_three_workers_died_without_an_answer(harness):
    for key in (1, 2, 3):
        assert harness.admission.refusal("b") == ""
        harness.answers.account_for_the_dead(harness.slot(jobs(key)))

    assert "died three times before it gave a result" in harness.admission.refusal("b")


def test_job_killed_by_another_process_runs_alone_the_next_time(harness):
    for _ in range(3):
        harness.answers.account_for_the_dead(harness.slot(jobs(1), is_killed_by_others=True))

    assert {(each.outcome, each.kind) for each in harness.answers.take()} == {(Outcome.LOST, FailureKind.MEMORY)}
    assert len(harness.admission.lonely) == 1
    assert harness.admission.refusal("b") == ""  # the first death that another process caused does not count against the builder


def test_only_the_run_that_exceeded_its_time_limit_fails(harness):
    verdict = Verdict(Outcome.FAILED, "took longer than 1 s")
    harness.answers.account_for_the_dead(harness.slot(jobs(1, 2), verdicts={1: verdict}))
    harness.answers.account_for_the_dead(harness.slot(jobs(3, 4), verdicts={9: verdict}))

    assert harness.outcomes() == [(1, Outcome.FAILED), (2, Outcome.RETURNED), (3, Outcome.RETURNED), (4, Outcome.RETURNED)]


def test_only_a_single_copy_order_of_a_dead_worker_is_reported_as_lost(harness):
    def copies(*keys: int) -> PoolMessage:
        return PoolMessage(wire.FrameKind.COPY, [CopyOrder(key, "a", "b") for key in keys])

    harness.answers.account_for_the_dead(harness.slot(copies(1, 2)))
    harness.answers.account_for_the_dead(harness.slot(copies(3)))

    assert harness.outcomes() == [(1, Outcome.RETURNED), (2, Outcome.RETURNED), (3, Outcome.LOST)]


def test_files_whose_hashing_killed_a_worker_are_hashed_once_more(harness):
    message = reading()
    harness.answers.account_for_the_dead(harness.slot(message))
    assert (list(harness.waiting), harness.answers.results) == ([message], [])
    harness.waiting.remove_sent(message)
    harness.answers.account_for_the_dead(harness.slot(message))

    (result,) = harness.answers.take()
    assert isinstance(result, HashResult)
    assert len(result.errors) == 2
    assert not list(harness.waiting)


def test_staged_copies_of_a_dead_worker_are_deleted(harness, tmp_path):
    copies = ((str(tmp_path / "7"), str(tmp_path / "8")), (), (str(tmp_path / "9"),))
    (tmp_path / "7").write_text("half of it")

    harness.answers.account_for_the_dead(harness.slot(PoolMessage(wire.FrameKind.HASH, [], HashOrder(5, ("a", "b", "c"), copies))))

    assert list(tmp_path.iterdir()) == []


def test_cancelled_order_stays_cancelled_if_its_worker_dies(harness):
    message = jobs(1, 2)
    message.cancelled = {2}
    harness.answers.account_for_the_dead(harness.slot(message))

    assert harness.outcomes() == [(1, Outcome.LOST), (2, Outcome.CANCELLED)]


def test_worker_that_ends_normally_returns_its_unfinished_orders(harness):
    first, second = jobs(1, 2, done=1), jobs(3, 4)
    second.cancelled = {4}
    harness.answers.take_back(harness.slot(first, second), is_outdated=False)

    assert [[each.run_key for each in message.orders] for message in harness.waiting] == [[2], [3]]
    assert harness.outcomes() == [(4, Outcome.CANCELLED)]


def test_outdated_worker_returns_its_jobs_and_its_files_wait_for_hashing(harness):
    files = reading()
    harness.answers.take_back(harness.slot(jobs(1), files), is_outdated=True)

    assert harness.outcomes() == [(1, Outcome.RETURNED)]
    assert list(harness.waiting) == [files]


@pytest.mark.parametrize(
    ("cancelled", "verdicts", "outcome"),
    [((), {}, Outcome.SUCCEEDED), ((1,), {}, Outcome.CANCELLED), ((), {1: Verdict(Outcome.FAILED, "too long")}, Outcome.FAILED)],
)
def test_a_result_of_an_ended_or_cancelled_run_is_not_used(harness, cancelled, verdicts, outcome):
    message = jobs(1)
    message.cancelled = set(cancelled)
    harness.answers.take_run(harness.slot(message, verdicts=verdicts), message, message.orders[0], RunResult(1, Outcome.SUCCEEDED))

    assert harness.outcomes() == [(1, outcome)]


def test_a_run_fails_when_its_command_is_killed_the_second_time(harness):
    message = jobs(1)
    killed = RunResult(1, Outcome.FAILED, f"{KILLED} by signal 9")
    for _ in range(2):
        harness.answers.take_run(harness.slot(message), message, message.orders[0], killed)

    assert harness.outcomes() == [(1, Outcome.LOST), (1, Outcome.FAILED)]


def test_answer_of_a_worker_with_too_few_copy_results_is_rejected(harness):
    message = PoolMessage(wire.FrameKind.COPY, [CopyOrder(1, "a", "b"), CopyOrder(2, "c", "d")], cancelled={2})
    done = [RunResult(key, Outcome.SUCCEEDED) for key in (1, 2)]

    assert not harness.answers.take_copies(message, done[:1])
    assert harness.answers.take_copies(message, done)
    assert harness.outcomes() == [(1, Outcome.SUCCEEDED), (2, Outcome.CANCELLED)]


def test_pool_refuses_all_orders_if_no_worker_starts(harness):
    harness.answers.refuse(jobs(1, 2), "worker processes cannot be started")
    harness.answers.refuse(reading(), "worker processes cannot be started")
    *runs, files = harness.answers.take()

    assert [each.outcome for each in runs] == [Outcome.FAILED, Outcome.FAILED]
    assert [why for _, why in files.errors] == ["worker processes cannot be started"] * 2

from aptui.core.orders import Outcome, RunResult
from aptui.engine.pool.admission import JobAdmission, MemoryBudget
from aptui.engine.pool.worker_messages import messages_of
from tests.engine.pool.test_slots import message, order


def admission(left_bytes: int, taken_bytes: int = 0, **learned: int) -> tuple[JobAdmission, MemoryBudget]:
    memory = MemoryBudget(left_bytes, lambda: 0.0, learned, lambda: left_bytes, lambda _pid: taken_bytes)
    return JobAdmission(memory), memory


def test_job_that_does_not_fit_into_memory_runs_if_no_other_job_runs():
    admitted, _memory = admission(1000, b=5000)

    assert admitted.may_run(message(1), [])
    assert not admitted.may_run(message(1), [(7, message(2))])


def test_jobs_that_fit_into_memory_together_run_at_the_same_time():
    admitted, _memory = admission(1000, b=400)

    assert admitted.may_run(message(1), [(7, message(2))])
    assert not admitted.may_run(message(1), [(7, message(2)), (8, message(3))])


def test_job_killed_for_memory_is_retried_alone_until_it_succeeds():
    admitted, memory = admission(100_000, b=10)

    assert admitted.isolate(order(1))
    assert not admitted.isolate(order(1))
    assert memory.learned["b"] > 10
    [lonely] = messages_of([order(1)], admitted.lonely)
    assert not admitted.may_run(lonely, [(7, message(2, rel="b.txt"))])
    assert not admitted.may_run(message(2, rel="b.txt"), [(7, lonely)])
    admitted.release(order(1))
    [beside] = messages_of([order(1)], admitted.lonely)
    assert admitted.may_run(beside, [(7, message(2, rel="b.txt"))])


def test_next_run_is_expected_to_use_as_much_memory_as_the_last_run():
    admitted, memory = admission(1000)

    admitted.note_peak(order(1), RunResult(1, Outcome.SUCCEEDED, peak_rss_bytes=600))

    assert memory.estimate_bytes("b") == 600
    assert not admitted.may_run(message(2), [(7, message(3))])

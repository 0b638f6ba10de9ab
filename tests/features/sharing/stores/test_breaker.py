import threading

import pytest
from waiting import Clock

from aptui.features.sharing.stores.breaker import Breaker, DeadlineExecutor, TooSlow


def opened(clock):
    breaker = Breaker(clock)
    assert [breaker.note_failure() for _ in range(5)] == [False] * 4 + [True]
    return breaker


def test_five_consecutive_failures_open_the_circuit_breaker():
    breaker = opened(Clock())

    assert breaker.is_open
    assert not breaker.allows()


def test_success_resets_the_count_of_failures():
    breaker = Breaker(Clock())
    for _ in range(4):
        breaker.note_failure()
    breaker.note_success()
    breaker.note_failure()

    assert breaker.allows()


def test_open_breaker_admits_one_call_after_its_pause():
    clock = Clock()
    breaker = opened(clock)
    clock.now = 30.0

    assert [breaker.allows(), breaker.allows()] == [True, False]
    breaker.note_success()
    assert [breaker.allows(), breaker.allows()] == [True, True]


def test_pause_grows_with_each_failure_up_to_a_limit():
    clock = Clock()
    breaker = opened(clock)
    pauses = []
    for _ in range(7):
        began = clock.now
        while not breaker.allows():
            clock.now += 10.0
        pauses.append(clock.now - began)
        breaker.note_failure()

    assert pauses == [30.0, 60.0, 120.0, 240.0, 480.0, 600.0, 600.0]


def test_permanent_error_opens_the_breaker_at_once():
    breaker = Breaker(Clock())
    breaker.open_now()

    assert not breaker.allows()


@pytest.fixture
def executor():
    executor = DeadlineExecutor("test", 2)
    yield executor
    executor.close()


def test_call_with_a_deadline_returns_its_result_or_raises_its_error(executor):
    assert executor.wait(lambda: 7, 5) == 7
    with pytest.raises(ZeroDivisionError):
        executor.wait(lambda: 1 / 0, 5)


def test_hanging_call_ends_at_the_deadline(executor):
    release = threading.Event()

    with pytest.raises(TooSlow):
        executor.wait(release.wait, 0.01)
    release.set()


def test_queued_store_call_is_not_started_after_its_timeout(executor):
    release, done = threading.Event(), []
    hanging = [executor.submit(release.wait) for _ in range(2)]
    with pytest.raises(TooSlow):
        executor.wait(lambda: done.append("late"), 0.01)
    release.set()
    for answer in hanging:
        answer.result(5)

    assert executor.wait(lambda: list(done), 5) == []


def test_threads_of_store_calls_do_not_keep_the_process_alive(executor):
    assert executor.wait(threading.current_thread, 5).daemon

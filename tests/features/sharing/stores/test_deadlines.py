import threading

import pytest

from aptui.features.sharing.stores.breaker import DeadlineExecutor, TooSlow


@pytest.fixture
def askers():
    askers = DeadlineExecutor("test", 2)
    yield askers
    askers.close()


def test_deadline_returns_or_raises_the_result_of_the_call(askers):
    assert askers.wait(lambda: 7, 5) == 7
    with pytest.raises(ZeroDivisionError):
        askers.wait(lambda: 1 / 0, 5)


def test_hanging_call_ends_at_the_deadline(askers):
    release = threading.Event()

    with pytest.raises(TooSlow):
        askers.wait(release.wait, 0.01)
    release.set()


def test_abandoned_call_is_not_started(askers):
    release, done = threading.Event(), []
    hanging = [askers.ask(release.wait) for _ in range(2)]
    with pytest.raises(TooSlow):
        askers.wait(lambda: done.append("late"), 0.01)
    release.set()
    for answer in hanging:
        answer.result(5)

    assert askers.wait(lambda: list(done), 5) == []


def test_threads_do_not_keep_the_process_alive(askers):
    assert askers.wait(threading.current_thread, 5).daemon

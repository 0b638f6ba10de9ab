import threading

import pytest

from aptui.features.sharing.stores.breaker import DeadlineExecutor, TooSlow


@pytest.fixture
def askers():
    askers = DeadlineExecutor("test", 2)
    yield askers
    askers.close()


def test_an_answer_is_what_the_call_returned_or_raised(askers):
    assert askers.ask(lambda: 7).wait(5) == 7
    with pytest.raises(ZeroDivisionError):
        askers.ask(lambda: 1 / 0).wait(5)


def test_nobody_waits_longer_than_it_wants_to_for_a_call_that_hangs(askers):
    release = threading.Event()
    answer = askers.ask(release.wait)

    with pytest.raises(TooSlow):
        answer.wait(0.01)
    release.set()


def test_a_call_that_nobody_waits_for_any_more_is_not_begun(askers):
    release, done = threading.Event(), []
    hanging = [askers.ask(release.wait) for _ in range(2)]
    given_up = askers.ask(lambda: done.append("late"))
    with pytest.raises(TooSlow):
        given_up.wait(0.01)
    release.set()
    for answer in hanging:
        answer.wait(5)

    assert askers.ask(lambda: list(done)).wait(5) == []


def test_threads_do_not_keep_the_process_alive(askers):
    assert askers.ask(threading.current_thread).wait(5).daemon

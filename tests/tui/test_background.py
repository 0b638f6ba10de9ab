"""Threads of the screen: only the newest request of a kind counts; a task can be cancelled and reports its end. Timers."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path

import pytest
from textual.app import App

import aptui
from aptui.shared.errors import UserError
from aptui.tui.background import BackgroundTask, LatestOnly, call_after
from tests.tui.shell_harness import until


class Handler:
    """Records requests, and blocks in the first request until the test releases it."""

    def __init__(self) -> None:
        self.handled: list[tuple[str, int]] = []
        self.has_begun, self.may_go_on = threading.Event(), threading.Event()

    def __call__(self, kind: str, request: int) -> None:
        self.has_begun.set()
        assert self.may_go_on.wait(20)
        self.handled.append((kind, request))


@pytest.fixture
def handler() -> Handler:
    return Handler()


def begun(handler: Handler, **named) -> LatestOnly[int]:
    worker = LatestOnly[int]("test", handler, **named)
    worker.put(1, "a")
    assert handler.has_begun.wait(20)
    return worker


def test_only_the_newest_request_of_a_kind_is_handled(handler):
    worker = begun(handler)
    for number in (2, 3):
        worker.put(number, "a")
    worker.put(4, "b")
    handler.may_go_on.set()
    worker.wait_until_idle(20)
    worker.close()

    assert handler.handled == [("a", 1), ("a", 3), ("b", 4)]


def test_requests_of_the_lowest_priority_are_handled_after_other_requests(handler):
    worker = begun(handler, last="slow")
    worker.put(2, "slow")
    worker.put(3, "b")
    handler.may_go_on.set()
    worker.wait_until_idle(20)
    worker.close()

    assert handler.handled == [("a", 1), ("b", 3), ("slow", 2)]


def test_background_handler_detects_superseded_and_interrupted_requests(handler):
    worker = begun(handler)
    worker.put(2, "b")
    assert (worker.is_superseded("a"), worker.is_superseded("b"), worker.stop.is_set()) == (False, True, False)

    worker.put(3, "a", interrupts=True)
    assert (worker.is_superseded("a"), worker.stop.is_set()) == (True, True)
    handler.may_go_on.set()
    worker.wait_until_idle(20)
    assert not worker.stop.is_set()
    worker.close()
    assert worker.is_superseded("a")


def test_no_request_is_handled_after_close(handler):
    worker = LatestOnly[int]("test", handler)
    worker.close()
    worker.put(1)

    assert not handler.has_begun.wait(0.05)


def test_settle_raises_timeout_error_if_the_background_worker_is_busy(handler):
    worker = begun(handler)
    with pytest.raises(TimeoutError):
        worker.wait_until_idle(0.01)
    handler.may_go_on.set()
    worker.close()


def test_second_background_task_is_refused_while_the_first_task_runs():
    ends: list[object] = []
    done = threading.Semaphore(0)

    def deliver(do, *what):
        do(*what)
        done.release()

    task = BackgroundTask("test", deliver)

    def run(work) -> None:
        assert task.start(work, ends.append, lambda error: ends.append(error.what), lambda: ends.append("cancelled"))
        assert done.acquire(timeout=20)

    def refuse(_task):
        raise UserError("no")

    def wait_for_cancel(task):
        assert not task.start(refuse, ends.append, ends.append)
        task.cancel()
        task.check()

    run(lambda _task: 1)
    run(refuse)
    run(wait_for_cancel)
    task.close()

    assert ends == [1, "no", "cancelled"]
    assert not task.start(refuse, ends.append, ends.append)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_failed_request_does_not_end_the_thread():
    handled: list[int] = []

    def handle(_kind: str, number: int) -> None:
        if number == 1:
            raise IndexError("a bug")
        handled.append(number)

    worker = LatestOnly[int]("test", handle)
    worker.put(1)
    worker.wait_until_idle(20)
    worker.put(2)
    worker.wait_until_idle(20)
    worker.close()

    assert handled == [2]


@pytest.mark.real
def test_delayed_call_is_made_although_the_process_was_stopped_for_the_delay(monkeypatch):
    def get_time() -> float:
        time.sleep(0.002)
        return time.monotonic()

    async def run() -> None:
        app: App[None] = App()
        async with app.run_test() as pilot:
            calls: list[int] = []
            monkeypatch.setattr("textual.timer._time.get_time", get_time)
            call_after(app, 0.001, lambda: calls.append(1))
            await until(pilot, lambda: calls)

    asyncio.run(run())


def test_no_module_uses_the_unreliable_timer_of_textual():
    files = [path for path in Path(aptui.__file__).parent.rglob("*.py") if path.name != "background.py"]

    assert [path.name for path in files if ".set_timer(" in path.read_text(encoding="utf-8")] == []

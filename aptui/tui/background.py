"""Background threads and timers of the screen.

`LatestOnly` handles the newest request of each kind in a thread, `BackgroundTask` runs a task that can be cancelled,
`run_in_background` makes a single call, and `call_after` makes a call after a delay.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from aptui.shared.errors import KnownError

if TYPE_CHECKING:
    from textual.timer import Timer

R = TypeVar("R")
T = TypeVar("T")


def run_in_background(name: str, work: Callable[..., object], *arguments: Any) -> threading.Thread:
    """Call `work` in a daemon thread; return the thread."""
    thread = threading.Thread(target=work, args=arguments, name=name, daemon=True)
    thread.start()
    return thread


class _TimerNode(Protocol):
    """A widget, a screen or an app."""

    def set_timer(self, delay: float, callback: Callable[[], Any]) -> Timer:
        """Call a function after some seconds."""


def call_after(node: _TimerNode, delay_s: float, callback: Callable[[], Any]) -> Timer:
    """Call a function once after some seconds, unless `node` is removed before.

    `set_timer` alone is not reliable: Textual skips the call if the process is suspended for longer than `delay_s` while the timer
    starts.
    """
    timer = node.set_timer(delay_s, callback)
    timer._skip = False  # noqa: SLF001  # Textual has no public way to ask for this
    return timer


class LatestOnly(Generic[R]):
    """A thread that handles the newest request of each kind and drops older requests; the first request starts the thread.

    Args:
        handle: called in the thread with the kind and the request.
        last: the kind of requests that are handled only while no request of another kind is waiting; "" = all kinds are equal.
        pause_s: debounce time. If the thread began the last request less than `3 * pause_s` ago, it first waits until no request
            has arrived for `pause_s`; 0 = no wait.
    """

    def __init__(self, name: str, handle: Callable[[str, R], object], *, last: str = "", pause_s: float = 0.0) -> None:
        self._name, self._handle, self._last, self._pause_s = name, handle, last, pause_s
        self._condition = threading.Condition()
        self._waiting: dict[str, R] = {}
        self._is_handling = self._is_closed = False
        self._popped_s = -1.0
        self._put_count = 0
        self._thread: threading.Thread | None = None
        self.stop = threading.Event()
        """Set when a newer request replaces the current one (`put` with `interrupts`) or on `close`; loops in `handle` check it."""

    def put(self, request: R, kind: str = "", *, interrupts: bool = False) -> None:
        """Queue a request; it replaces a waiting request of its kind. With `interrupts`, also stop the current request."""
        with self._condition:
            self._waiting.pop(kind, None)
            self._waiting[kind] = request
            self._put_count += 1
            if interrupts:
                self.stop.set()
            if self._thread is None and not self._is_closed:
                self._thread = run_in_background(self._name, self._run)
            self._condition.notify_all()

    @property
    def is_busy(self) -> bool:
        """Whether a request waits or is being handled."""
        with self._condition:
            return bool(self._waiting) or self._is_handling

    def is_superseded(self, kind: str = "", wait_s: float = 0.0) -> bool:
        """Wait up to `wait_s` for a newer request of this kind or for `close`; return whether either happened."""
        with self._condition:
            return self._condition.wait_for(lambda: kind in self._waiting or self._is_closed, wait_s)

    def wait_until_idle(self, timeout_s: float) -> None:
        """Wait until no request waits or is being handled.

        Raises:
            TimeoutError: requests are still waiting or being handled after `timeout_s`.
        """
        with self._condition:
            if not self._condition.wait_for(lambda: not self._waiting and not self._is_handling, timeout_s):
                raise TimeoutError

    def close(self) -> None:
        """End the thread and wait for it."""
        with self._condition:
            self._is_closed = True
            self.stop.set()
            self._condition.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while (request := self._pop()) is not None:
            try:
                self._handle(*request)
            except Exception as error:  # noqa: BLE001  # reported like any error of a thread, but this thread continues
                hook_arguments = threading.ExceptHookArgs((type(error), error, error.__traceback__, threading.current_thread()))
                threading.excepthook(hook_arguments)

    def _pop(self) -> tuple[str, R] | None:
        """Wait for a request and remove it from the queue; return None after `close`."""
        with self._condition:
            self._is_handling = False
            self._condition.notify_all()
            self._condition.wait_for(lambda: self._waiting or self._is_closed)
            if time.monotonic() - self._popped_s < 3 * self._pause_s:
                self._wait_for_pause()
            if self._is_closed:
                return None
            self._popped_s = time.monotonic()
            kind = min(self._waiting, key=lambda each: each == self._last and bool(each))
            self._is_handling = True
            self.stop.clear()
            return kind, self._waiting.pop(kind)

    def _wait_for_pause(self) -> None:
        seen = -1
        while seen != self._put_count and not self._is_closed:
            seen = self._put_count
            self._condition.wait(self._pause_s)


class CancelledError(Exception):
    """Raised in the thread when its task was cancelled."""


class BackgroundTask:
    """Runs slow work in a thread, one task at a time; a task can be cancelled.

    The UI's thread calls all methods except `check`.

    Args:
        deliver: called by the thread with a function and its arguments; runs the function in the UI's thread.
    """

    def __init__(self, name: str, deliver: Callable[..., object]) -> None:
        self._name, self._deliver = name, deliver
        self._is_cancelled = False
        self._thread: threading.Thread | None = None
        self._is_closed = False

    @property
    def is_busy(self) -> bool:
        """Whether work is in progress."""
        return self._thread is not None

    def start(
        self,
        work: Callable[[BackgroundTask], T],
        then: Callable[[T], object],
        failed: Callable[[KnownError], object],
        cancelled: Callable[[], object] = lambda: None,
    ) -> bool:
        """Start `work` unless work is in progress; return whether it was started.

        When the work ends, `then`, `failed` or `cancelled` is called in the UI's thread.
        """
        if self._thread is not None or self._is_closed:
            return False
        self._is_cancelled = False
        # The attribute is assigned before the thread starts, because `_report`, which resets `_thread`, may run at once.
        self._thread = threading.Thread(target=self._run, args=(work, then, failed, cancelled), name=self._name, daemon=True)
        self._thread.start()
        return True

    def check(self) -> None:
        """Raise CancelledError if the work was cancelled; `work` calls it often."""
        if self._is_closed or self._is_cancelled:
            raise CancelledError

    def cancel(self) -> None:
        """Cancel the work in progress."""
        self._is_cancelled = True

    def close(self) -> None:
        """Cancel the work in progress and wait for the thread."""
        self._is_closed = True
        thread = self._thread
        if thread is not None:
            thread.join()

    def _run(
        self,
        work: Callable[[BackgroundTask], T],
        then: Callable[[T], object],
        failed: Callable[[KnownError], object],
        cancelled: Callable[[], object],
    ) -> None:
        try:
            report: Callable[[], object] = partial(then, work(self))
        except CancelledError:
            report = cancelled
        except KnownError as error:
            report = partial(failed, error)
        except Exception as error:  # noqa: BLE001  # raised again in the UI's thread
            report = partial(_raise, error)
        self._deliver(self._report, report)

    def _report(self, report: Callable[[], object]) -> None:
        self._thread = None
        if not self._is_closed:
            report()


def _raise(error: Exception) -> None:
    raise error

"""A helper process: a process of a feature that runs while the engine runs. The engine's selector watches the process.

Tests: `tests/engine/live/test_helper_process.py`, `tests/features/gateway/test_gateway_process.py`.
"""

from __future__ import annotations

import contextlib
import math
import os
import selectors
import signal
import subprocess
from collections.abc import Callable

_END_LIMIT_S = 5.0
_FIRST_DELAY_S = 1.0
_STEADY_S = 10.0
"""Minimum run time after which the delay of the next start is again the shortest one."""


class Restarts:
    """Decides when a helper process that failed starts again; each delay is four times the last one, to at most `longest_s`.

    All times are seconds of the monotonic clock.
    """

    def __init__(self, longest_s: float) -> None:
        self._longest_s = longest_s
        self._began = math.inf  # the start of the process that runs; later than any time if no process runs
        self.reset(-math.inf)

    def reset(self, now: float) -> None:
        """Forget all failures, for example because the settings changed; the process may start now."""
        self.due_at, self._delay_s, self._problem = now, _FIRST_DELAY_S, ""

    def record_start(self, now: float) -> None:
        """Record that the process was started."""
        self._began = now

    def record_failure(self, why: str, now: float) -> bool:
        """Plan the next start of a process that ended or could not be started; return whether the reason is a new one."""
        if now - self._began >= _STEADY_S:
            self.reset(now)
        self._began = math.inf
        self.due_at, self._delay_s = now + self._delay_s, min(4 * self._delay_s, self._longest_s)
        is_new, self._problem = why != self._problem, why
        return is_new


class HelperProcess:
    """Watches one process at a time. The process must end when its standard input closes, because a killed engine cannot end it.

    Args:
        on_end: called with the exit code of a process that ended by itself.
        on_output: called when a process with a pipe as its standard output has written something, or has closed the pipe.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        on_end: Callable[[int], None],
        on_output: Callable[[int], None] = lambda _mask: None,
    ) -> None:
        self._selector, self._ended, self._on_output = selector, on_end, on_output
        self._pidfd = -1
        self.child: subprocess.Popen[bytes] | None = None

    def watch(self, child: subprocess.Popen[bytes]) -> None:
        """Watch a process that was started just now.

        Raises:
            OSError: no descriptor is free; the process was killed.
        """
        self.child = child
        try:
            self._pidfd = os.pidfd_open(child.pid)
        except OSError:
            child.kill()
            child.wait()
            self._forget()
            raise
        self._selector.register(self._pidfd, selectors.EVENT_READ, self._on_end)
        if child.stdout is not None:
            os.set_blocking(child.stdout.fileno(), False)
            self._selector.register(child.stdout, selectors.EVENT_READ, self._on_output)

    def _on_end(self, _mask: int) -> None:
        child = self.child
        if child is None:
            return
        code = child.wait()
        self._forget()
        self._ended(code)

    def end(self) -> None:
        """End the process: with SIGTERM, then with SIGKILL."""
        child = self.child
        if child is None:
            return
        self._forget()
        with contextlib.suppress(OSError):
            child.send_signal(signal.SIGTERM)
        try:
            child.wait(_END_LIMIT_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()

    def close_output(self) -> None:
        """Stop watching the standard output."""
        if self.child is not None and self.child.stdout is not None:
            if self._pidfd >= 0:
                self._selector.unregister(self.child.stdout)
            self.child.stdout.close()
            self.child.stdout = None

    def _forget(self) -> None:
        self.close_output()
        child, self.child = self.child, None
        if self._pidfd >= 0:
            self._selector.unregister(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1
        if child is not None and child.stdin is not None:
            with contextlib.suppress(OSError):
                child.stdin.close()

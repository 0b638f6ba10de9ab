"""Ends the sleep of a loop on its selector, from any thread."""

from __future__ import annotations

import contextlib
import os
import selectors
from collections.abc import Callable


class Waker:
    """An eventfd(2) in a selector, with which any thread can end the sleep of the loop.

    Args:
        selector: the loop's selector, whose `select` returns after `wake`; the data of its keys are callables.
        woken: called in the loop, once for all calls of `wake` since the previous call of `woken`.
    """

    def __init__(self, selector: selectors.BaseSelector, woken: Callable[[], object] | None = None) -> None:
        self._selector, self._woken = selector, woken
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        selector.register(self._fd, selectors.EVENT_READ, self._read)

    @property
    def is_open(self) -> bool:
        """Whether the waker is open: `close` was not called."""
        return self._fd >= 0

    def wake(self) -> None:
        """End the current or next sleep of the loop; any thread and signal handlers may call this.

        It does nothing after `close`.
        """
        if self._fd >= 0:
            os.eventfd_write(self._fd, 1)

    def close(self) -> None:
        """Close the eventfd; call this before the selector is closed."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            self._selector.unregister(fd)
            os.close(fd)

    def _read(self, _mask: int = 0) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._fd)
        if self._woken is not None:
            self._woken()

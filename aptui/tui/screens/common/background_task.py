"""A chore: something slow that a screen has done in a thread, one at a time, that can be given up; what it is about is the screen's."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from aptui.shared.errors import KnownError

T = TypeVar("T")


class GivenUpError(Exception):
    """Nobody waits for the chore any more."""


class Chore:
    """The thread, while there is something to do. All but `check` and `is_given_up` is for the UI.

    Args:
        name: of the thread.
        deliver: called by the thread with a function and its arguments, for the UI to call.
    """

    def __init__(self, name: str, deliver: Callable[..., object]) -> None:
        self._name, self._deliver = name, deliver
        self._number = 0
        self._given_up: set[int] = set()
        self._thread: threading.Thread | None = None
        self._is_closed = False

    @property
    def is_busy(self) -> bool:
        """Whether something is under way."""
        return self._thread is not None

    def start(
        self,
        work: Callable[[Chore], T],
        then: Callable[[T], object],
        failed: Callable[[KnownError], object],
        given_up: Callable[[], object] = lambda: None,
    ) -> bool:
        """Have `work` done, unless something is under way; return whether it is. One of the others is called, in the UI, at its end."""
        if self._thread is not None or self._is_closed:
            return False
        self._number += 1
        self._thread = threading.Thread(target=self._run, args=(work, then, failed, given_up), name=self._name, daemon=True)
        self._thread.start()
        return True

    @property
    def is_given_up(self) -> bool:
        """Whether nobody waits any more."""
        return self._is_closed or self._number in self._given_up

    def check(self) -> None:
        """Raise GivenUpError when nobody waits any more; `work` calls it often."""
        if self.is_given_up:
            raise GivenUpError

    def give_up(self) -> None:
        """Want what is under way no more."""
        self._given_up = {self._number}

    def close(self) -> None:
        """Give up and wait for the thread."""
        self._is_closed = True
        thread = self._thread
        if thread is not None:
            thread.join()

    def _run(self, work: Callable[[Chore], T], then: Callable[[T], object], failed: Callable[[KnownError], object],
             given_up: Callable[[], object]) -> None:  # fmt: skip
        try:
            result = work(self)
        except GivenUpError:
            self._end(given_up)
        except KnownError as error:
            self._end(failed, error)
        except Exception as error:  # noqa: BLE001  # raised again where the app sees it
            self._end(_raise, error)
        else:
            self._end(then, result)

    def _end(self, tell: Callable[..., object], *what: object) -> None:
        self._deliver(self._ended, tell, what)

    def _ended(self, tell: Callable[..., object], what: tuple[object, ...]) -> None:
        self._thread = None
        if not self._is_closed:
            tell(*what)


def _raise(error: Exception) -> None:
    raise error

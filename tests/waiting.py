"""Waits of the tests, each with a timeout: the one place that reads the clock and sleeps until a condition holds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

TIMEOUT_S = 60.0
"""Default timeout of a wait (seconds): far more than a busy machine needs."""
_EVERY_S, _SELDOM_S = 0.005, 0.5
"""Minimum and maximum pause between two checks (seconds). Between these limits the pause equals the duration of the last check."""

T = TypeVar("T")
Step = Callable[[float], object]
"""Function that is called between two checks with the remaining seconds."""


class Clock:
    """A clock that only the test advances."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def wait_for(is_so: Callable[[], T], timeout_s: float = TIMEOUT_S, step: Step | None = None) -> T:
    """Check until a condition is true, for at most `timeout_s` seconds; return the result of the last check."""
    end_s = time.monotonic() + timeout_s
    began_s = time.monotonic()
    while not (found := is_so()) and (left_s := end_s - (checked_s := time.monotonic())) > 0:
        if step is None:
            time.sleep(min(max(_EVERY_S, min(checked_s - began_s, _SELDOM_S)), left_s))
        else:
            step(left_s)
        began_s = time.monotonic()
    return found


def until(
    is_so: Callable[[], T], what: str | Callable[[], str] = "it", timeout_s: float = TIMEOUT_S, step: Step | None = None
) -> T:
    """Check until a condition is true, and return its result; after the timeout, fail with `what`."""
    found = wait_for(is_so, timeout_s, step)
    assert found, _describe_timeout(what, timeout_s)
    return found


async def until_async(
    is_so: Callable[[], T],
    what: str | Callable[[], str] = "it",
    timeout_s: float = TIMEOUT_S,
    pause: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> T:
    """Check until a condition is true while the loop runs, and return its result; after the timeout, fail with `what`."""
    end_s = time.monotonic() + timeout_s
    while not (found := is_so()):
        assert time.monotonic() < end_s, _describe_timeout(what, timeout_s)
        await pause(_EVERY_S)
    return found


def _describe_timeout(what: str | Callable[[], str], timeout_s: float) -> str:
    return f"not within {timeout_s:g} s: {what() if callable(what) else what}"

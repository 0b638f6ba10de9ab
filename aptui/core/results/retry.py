"""What runs fail of, as far as the engine tells it apart, and which of those failures are tried again by themselves.

Tests: `tests/core/pipeline/test_retries.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct

EXIT = "exit "
"""Before the status of a command that ended with one, as in `exit 75`."""
_BY_SIGNAL = range(129, 160)
"""Statuses by which shells say that what they ran was killed by a signal."""
_KILLED = 137


class FailureKind(StrEnum):
    """What a run failed of; NONE where another run would fail of the same, or nobody knows."""

    NONE = ""
    CRASH = "crash"
    TIMEOUT = "timeout"
    MEMORY = "memory"
    ERROR = "error"
    OBSTACLE = "obstacle"
    """Something outside the job kept it from running: a missing shared result, a broken pool. No retry rule covers that."""


class RetryRule(Struct, frozen=True):
    """A run that failed of one of `on` (a `FailureKind`, or `exit 75`) is tried again, `times` at most for one plan of a job."""

    times: int
    on: tuple[str, ...]

    def covers(self, kind: str) -> bool:
        """Whether a failure of this kind is tried again."""
        return bool(kind) and (kind in self.on or any(other in self.on for other in _meanings(kind)))


def _meanings(kind: str) -> Iterable[str]:
    """Yield what the status of a command means besides itself."""
    if not kind.startswith(EXIT):
        return
    status = int(kind.removeprefix(EXIT))
    if status == _KILLED:
        yield FailureKind.MEMORY
    elif status in _BY_SIGNAL:
        yield FailureKind.CRASH
    yield FailureKind.ERROR


def flaky(tried: Iterable[str]) -> str:
    """Return what the failed runs before one that succeeded failed of, "" when there were none that say anything of the job."""
    return ", ".join(kind for kind in tried if kind)

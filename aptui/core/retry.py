"""Kinds of failure, rules for automatic retries, and the stored failure of a job.

Tests: `tests/core/pipeline/test_retries.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import msgspec
from msgspec import Struct

EXIT = "exit "
"""Prefix of the kind of failure if a command ended with an exit status; the whole text is, for example, `exit 75`."""
_BY_SIGNAL = range(129, 160)
"""Exit statuses with which a shell reports that a signal killed its program."""
_KILLED = 137
Entry = tuple[str, str, str]
CHECK = "check"
"""Kind of failure: the run itself succeeded, but an asset check does not allow its products to be published."""
ENDLESS = "endless"
"""Kind of failure: the job was given up, because its inputs changed during each of its runs."""


class FailureKind(StrEnum):
    """Why a run failed.

    NONE: another run would probably fail in the same way, because the cause is in the inputs, or is unknown.
    """

    NONE = ""
    CRASH = "crash"
    TIMEOUT = "timeout"
    MEMORY = "memory"
    ERROR = "error"
    OBSTACLE = "obstacle"
    """The job could not run or publish for a reason outside of it: a shared result is missing, a file was not fetched from Git LFS,
    the pool or cluster has no worker for it, or another job makes a product of the same name.

    No retry rule covers this kind. It may vanish without a change of inputs, except a conflict of product names, which lasts until
    one of the jobs makes other products.
    """


class RetryRule(Struct, frozen=True):
    """Rule for retries: a failed run is repeated if `on` has its kind of failure (a `FailureKind`, or text such as `exit 75`).

    `times`: maximum number of retries until the job is planned again.
    """

    times: int
    on: tuple[str, ...]

    def covers(self, kind: str) -> bool:
        """Whether this rule retries a failure of this kind."""
        return bool(kind) and (kind in self.on or any(other in self.on for other in _meanings(kind)))


def _meanings(kind: str) -> Iterable[str]:
    """Yield the general kinds of failure of a command's exit status, such as "crash" if a signal ended the program."""
    if not kind.startswith(EXIT):
        return
    status = int(kind.removeprefix(EXIT))
    if status == _KILLED:
        yield FailureKind.MEMORY
    elif status in _BY_SIGNAL:
        yield FailureKind.CRASH
    yield FailureKind.ERROR


def flaky(tried: Iterable[str]) -> str:
    """Return a text with the kinds of failure of the runs that failed before a run succeeded; unknown kinds are left out."""
    return ", ".join(kind for kind in tried if kind)


class CommittedRun(Struct, frozen=True, array_like=True):
    """The run that made the products of a failed job; the values are from the job's row before the job failed."""

    warnings: int
    errors: int
    duration_ms: int
    completed_ms: int
    log_file: str
    log_ms: int


class JobFailure(Struct, frozen=True, array_like=True):
    """One failure.

    `kind` is a `FailureKind`, `exit N`, CHECK or ENDLESS. `inputs` is the manifest that the job failed with, () if it was
    refused before it had a manifest. `settings` come from `core.pipeline.failures.Failures`, () if no setting can make it
    fail. `committed` is the run that made the products that the job still has, None without products.
    """

    kind: str = FailureKind.OBSTACLE
    inputs: tuple[Entry, ...] = ()
    settings: tuple[Entry, ...] = ()
    committed: CommittedRun | None = None

    @property
    def is_expensive(self) -> bool:
        """Whether a retry without a change is expensive, and almost certainly fails again, because the run reached a limit."""
        return self.kind in (FailureKind.TIMEOUT, FailureKind.MEMORY, ENDLESS)


def dump(failure: JobFailure | None) -> str:
    """Return a failure in its stored form, "" for None."""
    return msgspec.json.encode(failure).decode() if failure is not None else ""


def load(text: str) -> JobFailure | None:
    """Return the failure of a job from its stored form (`dump`), None for ""."""
    if not text:
        return None
    kind, inputs, settings, committed = msgspec.json.decode(text)
    run = CommittedRun(*committed) if committed is not None else None
    return JobFailure(kind, tuple(map(tuple, inputs)), tuple(map(tuple, settings)), run)

"""The failure of a job: its kind, its inputs, the settings that can have made it fail, and the run whose products remain.

Tests: `tests/core/pipeline/test_failures.py`.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from aptui.core.results.retry import FailureKind

Entry = tuple[str, str, str]
CHECK = "check"
"""The kind of a failure by a check: the run succeeded, and its products must not be published."""
ENDLESS = "endless"
"""The kind of a job that was given up because its inputs changed under each of its runs."""
_LIMITS = frozenset({FailureKind.TIMEOUT, FailureKind.MEMORY})


class CommittedRun(Struct, frozen=True, array_like=True):
    """The run that made the products of a failed job, as the job's row described it before the job failed."""

    warnings: int
    errors: int
    duration_ms: int
    completed_ms: int
    log_file: str
    log_ms: int


class JobFailure(Struct, frozen=True, array_like=True):
    """One failure.

    `kind` is a `FailureKind`, `exit N`, CHECK or ENDLESS. `inputs` is the manifest that the job failed with, () if it was
    refused before it had one. `settings` are those of `core.planning.failure_settings`, () if no setting can have made it
    fail. `committed` is the run that made the products that the job still has, None if there is none.
    """

    kind: str = FailureKind.OBSTACLE
    inputs: tuple[Entry, ...] = ()
    settings: tuple[Entry, ...] = ()
    committed: CommittedRun | None = None

    @property
    def is_limit(self) -> bool:
        """Whether the run reached its time limit or its memory limit."""
        return self.kind in _LIMITS

    @property
    def is_expensive(self) -> bool:
        """Whether a retry without a change costs much, and almost surely fails again."""
        return self.is_limit or self.kind == ENDLESS


def dump(failure: JobFailure | None) -> str:
    """Return a failure as it is stored, "" for None."""
    return msgspec.json.encode(failure).decode() if failure is not None else ""


def load(text: str) -> JobFailure | None:
    """Return the failure that `dump` wrote."""
    if not text:
        return None
    kind, inputs, settings, committed = msgspec.json.decode(text)
    run = CommittedRun(*committed) if committed is not None else None
    return JobFailure(kind, tuple(map(tuple, inputs)), tuple(map(tuple, settings)), run)

"""What a failed job failed of: its kind, its inputs, and the settings that can have made it fail.

A setting such as a time limit, a check or a path of the sandbox decides about no product, so it is no part of a fingerprint.
But it can make a job fail. A failed job stores the settings that can have made it fail, as entries of a manifest. When the job
is planned again and one of these entries differs, it runs again. `list_settings` is the only place that names such settings.

Tests: `tests/core/pipeline/test_failures.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec
from msgspec import Struct

from aptui.core.project import SHARE_OF_MEMORY, Builder, Project
from aptui.core.results.retry import EXIT, FailureKind, RetryRule

Entry = tuple[str, str, str]
CHECK = "check"
"""The kind of a failure by a check: the run succeeded, and its products must not be published."""
ENDLESS = "endless"
"""The kind of a job that was given up because its inputs changed under each of its runs."""
_LIMITS = frozenset({FailureKind.TIMEOUT, FailureKind.MEMORY})
_OUT_OF_MEMORY = re.compile(r"memory|alloc|mmap|start new thread", re.IGNORECASE)
"""What programs and libraries print that could not get memory, and then fail in their own way."""
_FIRST_SIGNAL_STATUS = 129


class KeptRun(Struct, frozen=True, array_like=True):
    """The run that made the products of a failed job, as the job's row described it before the job failed."""

    warnings: int
    errors: int
    duration_ms: int
    completed_ms: int
    log_file: str
    log_ms: int


class Failure(Struct, frozen=True, array_like=True):
    """One failure.

    `kind` is a `FailureKind`, `exit N`, CHECK or ENDLESS. `inputs` is the manifest that the job failed with, () if it was
    refused before it had one. `settings` are those of `list_settings`, () if no setting can have made it fail. `kept` is the
    run that made the products that the job still has, None if there is none.
    """

    kind: str = FailureKind.OBSTACLE
    inputs: tuple[Entry, ...] = ()
    settings: tuple[Entry, ...] = ()
    kept: KeptRun | None = None

    @property
    def is_limit(self) -> bool:
        """Whether the run reached its time limit or its memory limit."""
        return self.kind in _LIMITS

    @property
    def is_expensive(self) -> bool:
        """Whether a retry without a change costs much, and almost surely fails again."""
        return self.is_limit or self.kind == ENDLESS


def dump(failure: Failure | None) -> str:
    """Return a failure as it is stored, "" for None."""
    return msgspec.json.encode(failure).decode() if failure is not None else ""


def load(text: str) -> Failure | None:
    """Return the failure that `dump` wrote."""
    return msgspec.json.decode(text, type=Failure) if text else None


def list_settings(project: Project, builder: Builder, rel: str, kind: str, error: str, *, is_analysis: bool) -> tuple[Entry, ...]:
    """Return the settings that can have made a run fail, and would not change the products of one that succeeds.

    Args:
        project: the configuration.
        builder: the builder of the job.
        rel: the source's relative path.
        kind: what the run failed of (`Failure.kind`).
        error: its error.
        is_analysis: whether the run was an analysis.
    """
    if kind == CHECK:
        checks = (check for check in project.checks if check.wants(rel))
        return tuple(("check", check.name, msgspec.json.encode(check).decode()) for check in checks)
    if kind == ENDLESS:
        return (_valued("undeclared reads", str(builder.undeclared_reads or project.undeclared_reads)),)
    entries = [*project.run_settings, *_resources(project, builder)]
    if builder.traces_reads:
        entries.append(_valued("read tracing", "on"))
    if kind == FailureKind.TIMEOUT:
        entries.append(_valued("time limit", f"{builder.analyse_limit_s if is_analysis else builder.process_limit_s:g} s"))
    if _is_of_memory(kind, error):
        entries.append(_valued("memory limit", _memory(builder)))
        entries += project.memory_settings
    return (*entries, _valued("retry", _retries(builder.retry or project.retry, kind)))


def _valued(kind: str, value: str) -> Entry:
    return (kind, value, value)


def _memory(builder: Builder) -> str:
    if builder.memory_limit_bytes == SHARE_OF_MEMORY:
        return "auto"
    return f"{builder.memory_limit_bytes / (1 << 20):g} MiB" if builder.memory_limit_bytes else "none"


def _retries(rule: RetryRule | None, kind: str) -> str:
    return f"{rule.times} times" if rule is not None and rule.covers(kind) else "never"


def _resources(project: Project, builder: Builder) -> Iterable[Entry]:
    limits = dict(project.resources)
    return (("resource", name, str(limits.get(name, 0))) for name in builder.resources)


def _is_of_memory(kind: str, error: str) -> bool:
    """Whether a run may have failed because it could not get memory."""
    if kind.startswith(EXIT) and int(kind.removeprefix(EXIT)) >= _FIRST_SIGNAL_STATUS:
        return True
    return kind in (FailureKind.MEMORY, FailureKind.CRASH) or _OUT_OF_MEMORY.search(error) is not None

"""Settings that can make a job fail, as entries of a manifest.

A setting such as a time limit, a check or a path of the sandbox decides about no product, so it is no part of a fingerprint.
But it can make a job fail. A failed job stores the settings that can have made it fail. When the job is planned again and one
of these entries differs, it runs again. `list_settings` is the only place that names such settings.

Tests: `tests/core/pipeline/test_failures.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from aptui.core.project import SHARE_OF_MEMORY, Builder, Project
from aptui.core.results.retry import CHECK, ENDLESS, EXIT, Entry, FailureKind, RetryRule

_OUT_OF_MEMORY = re.compile(r"memory|alloc|mmap|start new thread", re.IGNORECASE)
"""What programs and libraries print that could not get memory, and then fail in their own way."""
_FIRST_SIGNAL_STATUS = 129


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
        return (_make_entry("undeclared reads", str(builder.undeclared_reads or project.undeclared_reads)),)
    entries = [*project.run_settings, *_resources(project, builder)]
    if builder.traces_reads:
        entries.append(_make_entry("read tracing", "on"))
    if kind == FailureKind.TIMEOUT:
        entries.append(_make_entry("time limit", f"{builder.analyse_limit_s if is_analysis else builder.process_limit_s:g} s"))
    if _is_of_memory(kind, error):
        entries.append(_make_entry("memory limit", _memory(builder)))
        entries += project.memory_settings
    return (*entries, _make_entry("retry", _retries(builder.retry or project.retry, kind)))


def _make_entry(kind: str, value: str) -> Entry:
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

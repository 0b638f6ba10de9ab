"""Dependency edges of the sources in memory, wildcards apart; those of all other sources are read from the archive.

Tests: `tests/core/pipeline/test_dependencies.py`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from aptui.core.model import EdgeKind, PathKey, Source
from aptui.core.patterns import wildcard
from aptui.core.records.archive import Archive


class EdgeIndex:
    """{target: the keys of sources in memory that name it}, and the wildcards of all sources."""

    def __init__(self, archive: Archive) -> None:
        self.has_any = archive.has_edges()
        self._named_by: dict[str, set[PathKey]] = {}
        self._wildcards: dict[PathKey, list[tuple[str, re.Pattern[str]]]] = {}
        for pattern, key in archive.wildcards():
            self._wildcards.setdefault(key, []).append((pattern, wildcard(pattern)))
        self._may_name_jobs = bool(self._wildcards)
        """Whether some wildcard may be of a job dependency; stored ones do not say."""

    def add(self, source: Source) -> None:
        """Put the edges of `source` into the index; its wildcards are there."""
        for target in targets_of(source):
            self._named_by.setdefault(target, set()).add(source.key)

    def remove(self, source: Source) -> None:
        """Take the edges of `source` out of the index; its wildcards stay."""
        for target in targets_of(source) if self._named_by else ():
            keys = self._named_by.get(target)
            if keys is not None:
                keys.discard(source.key)
                if not keys:
                    del self._named_by[target]

    def forget(self, source: Source) -> None:
        """`source` is gone, and so are its wildcards."""
        self.remove(source)
        self._wildcards.pop(source.key, None)

    def renew(self, source: Source, before: set[str]) -> None:
        """Put the edges of `source` into the index in place of `before` (what `targets_of` said earlier)."""
        now = targets_of(source)
        for target in before - now:
            self._named_by.get(target, set()).discard(source.key)
        for target in now:
            self._named_by.setdefault(target, set()).add(source.key)
        wildcards = [edge.target for job in source.jobs.values() for edge in job.edges if edge.kind is EdgeKind.WILDCARD]
        of_jobs = [
            item.source for job in source.jobs.values() if job.plan for item in job.plan.job_dependencies if item.is_wildcard
        ]
        wildcards += of_jobs
        self._may_name_jobs = self._may_name_jobs or bool(of_jobs)
        if wildcards:
            self._wildcards[source.key] = [(pattern, wildcard(pattern)) for pattern in wildcards]
        else:
            self._wildcards.pop(source.key, None)
        self.has_any = self.has_any or bool(now) or bool(wildcards)

    def naming(self, key: PathKey) -> set[PathKey]:
        """Return the keys of sources that name this one, by a wildcard as far as that may be of a job dependency."""
        found = set(self._named_by.get(key, ()))
        if self._may_name_jobs:
            found |= {name for name, patterns in self._wildcards.items() if any(regex.fullmatch(key) for _text, regex in patterns)}
        return found

    def depending(self, targets: Sequence[str]) -> set[PathKey]:
        """Return the keys of sources that depend on any of `targets`, by name or by a wildcard."""
        found: set[PathKey] = set()
        for target in targets:
            found.update(self._named_by.get(target, ()))
        for key, patterns in self._wildcards.items():
            if key not in found and any(regex.fullmatch(target) for _text, regex in patterns for target in targets):
                found.add(key)
        return found


def targets_of(source: Source) -> set[str]:
    """Return what `source` depends on, in the form of the index: keys and 32 hex digits; wildcards are apart."""
    found: set[str] = set()
    for job in source.jobs.values():
        for edge in job.edges:
            if edge.kind is not EdgeKind.WILDCARD:
                found.add(edge.target if edge.kind is EdgeKind.DISCOVERED else edge.target.lower())
        found.update(name for name, _digest in job.discovered)
        if job.plan is not None:
            found.update(dependency.source for dependency in job.plan.job_dependencies)
    return found

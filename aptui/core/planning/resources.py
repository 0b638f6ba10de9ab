"""Limited resources (`resources:`) that runs hold while they run: how many of each there are, and which runs hold them.

Tests: `tests/core/pipeline/test_resources.py`.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from aptui.core.model import Job
from aptui.core.project import Builder

Names = tuple[str, ...]


class ResourceUse(Struct, frozen=True):
    """How one resource is used: `holders` are jobs by name, `waiting_count` those that may start but for it."""

    name: str
    limit: int
    holders: Names
    waiting_count: int


class Resources:
    """Which runs hold which resources. A run holds everything that its builder names, from its start until its result is here.

    A run that was killed may be at work for a moment yet; its result, too, comes when it is not any more.

    Args:
        limits: (name, how many there are).
        builders: those of the project.
    """

    def __init__(self, limits: Iterable[tuple[str, int]], builders: Iterable[Builder]) -> None:
        self.limits = dict(limits)
        self._needs = {builder.uuid: builder.resources for builder in builders if builder.resources}
        self._holders: dict[str, dict[int, Job]] = {name: {} for name in self.limits}

    def needs(self, job: Job) -> Names:
        """Return what a run of `job` holds; analyses hold nothing."""
        return () if job.is_analysis else self._needs.get(job.builder, ())

    def are_free(self, names: Names) -> bool:
        """Whether one of each is free."""
        return all(len(self._holders[name]) < self.limits[name] for name in names)

    def take(self, job: Job) -> None:
        """`job` starts."""
        for name in self.needs(job):
            self._holders[name][job.run_key] = job

    def give_back(self, run_key: int) -> None:
        """The run with this key is over."""
        for held in self._holders.values():
            held.pop(run_key, None)

    def holders(self, name: str) -> Names:
        """Return the jobs that hold one, in the order in which they came."""
        return tuple(f"{job.source.rel}@{job.platform}:{job.key}" for job in self._holders[name].values())

"""Runs that workers were given and are not at yet: that they run is told when one is, so that "running" and clocks are true."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from aptui.core.notices import JobChanged, JobKey

_ENDED = frozenset({"completed", "failed"})


class StartedRuns:
    """Holds back the news that a job runs until a worker has begun it. A later word about the job takes its place."""

    def __init__(self) -> None:
        self._held: dict[JobKey, JobChanged] = {}
        self._key_of: dict[int, JobKey] = {}

    def __bool__(self) -> bool:
        """Whether anything is held back."""
        return bool(self._held)

    def holds_back(self, notice: JobChanged) -> bool:
        """Whether this is not to be told now; what was held back of the job is forgotten."""
        key = notice.key
        before = self._held.pop(key, None)
        if before is not None:
            self._key_of.pop(before.run_key, None)
        if notice.status != "processing":
            return False
        self._held[key], self._key_of[notice.run_key] = notice, key
        return True

    def find_begin(self, end: JobChanged) -> JobChanged | None:
        """Return the held news that the run ran whose end this is: it may be over before anybody saw a worker at it."""
        held = self._held.get(end.key)
        if held is None or not end.is_run or end.status not in _ENDED or end.run_key != held.run_key:
            return None
        return replace(held, cause=end.cause)

    def list_started(self, run_keys: Iterable[int], cause: int) -> list[JobChanged]:
        """Return what may be told now that workers are at these runs; it counts as of the event `cause`."""
        keys = [key for run_key in run_keys if (key := self._key_of.pop(run_key, None)) is not None]
        return [replace(self._held.pop(key), cause=cause) for key in keys]

    def waiting_ids(self) -> set[int]:
        """Return the ids of the jobs whose runs no worker has started yet."""
        return {notice.job_id for notice in self._held.values() if notice.job_id}

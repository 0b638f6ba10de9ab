"""Queues of re-evaluations: at once (`Todo`), when a key is known (`Waiters`), at the next scan (`Retries`).

They make no decisions.

Tests: `tests/core/pipeline/test_jobs.py`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator

from aptui.core.model import Job, PathKey
from aptui.core.paths import parent
from aptui.core.project import COMMON_PLATFORM


class Todo:
    """Jobs to be evaluated, as (job, whether it is retried if it failed); jobs that may add sources come first."""

    def __init__(self) -> None:
        self._bringers: deque[tuple[Job, bool]] = deque()
        self._others: deque[tuple[Job, bool]] = deque()

    def __bool__(self) -> bool:
        return bool(self._bringers or self._others)

    def append(self, item: tuple[Job, bool]) -> None:
        """Add one (job, is retry)."""
        job = item[0]
        (self._bringers if job.is_analysis or job.platform == COMMON_PLATFORM else self._others).append(item)

    def extend(self, items: Iterable[tuple[Job, bool]]) -> None:
        """Add several (job, is retry)."""
        for item in items:
            self.append(item)

    def popleft(self) -> tuple[Job, bool]:
        """Remove and return the next (job, is retry)."""
        return (self._bringers or self._others).popleft()


class Waiters:
    """Jobs by the key they wait for: the key of a source, `SCAN_END` or `CHAINS_END`. One job may wait for many keys."""

    def __init__(self) -> None:
        self._by_key: dict[PathKey, dict[Job, None]] = {}

    def __contains__(self, key: PathKey) -> bool:
        return key in self._by_key

    def __bool__(self) -> bool:
        return bool(self._by_key)

    def __iter__(self) -> Iterator[Job]:
        return (job for jobs in self._by_key.values() for job in jobs)

    def add(self, key: PathKey, job: Job) -> None:
        """Let `job` wait for `key`."""
        self._by_key.setdefault(key, {})[job] = None

    def add_all(self, keys: Iterable[PathKey], job: Job) -> None:
        """Let `job` wait for each of `keys`."""
        for key in keys:
            self.add(key, job)

    def of(self, key: PathKey) -> Collection[Job]:
        """Return the jobs that wait for `key`, in the order in which they were added."""
        return self._by_key.get(key, {})

    def pop(self, key: PathKey) -> Collection[Job]:
        """Return the jobs that wait for `key`, and remove them."""
        return self._by_key.pop(key, {})

    def list_awaited(self) -> list[PathKey]:
        """Return all keys that jobs wait for."""
        return list(self._by_key)

    def keys_in(self, folders: Collection[str]) -> list[PathKey]:
        """Return the awaited keys in these folders."""
        return [key for key in self._by_key if parent(key) in folders]


class Retries:
    """Sources that are due for another try as soon as the scan comes to their folders."""

    def __init__(self) -> None:
        self._pending: set[PathKey] = set()
        self._resumed: set[PathKey] = set()
        """Sources that are planned again without a retry of failed jobs."""
        self._by_folder: dict[str, set[PathKey]] = {}
        self.after_analysis: set[tuple[PathKey, bytes]] = set()
        """(source, builder) whose failed jobs are retried when their analysis has succeeded."""

    def restart(self, keys: Iterable[PathKey]) -> None:
        """Schedule a retry for these sources, and no others."""
        self._pending.clear()
        self._resumed.clear()
        self._by_folder.clear()
        for key in keys:
            self._put(key, parent(key).lower())

    def resume(self, keys: Iterable[PathKey]) -> None:
        """Schedule these sources to be planned again, without a retry of failed jobs."""
        for key in keys:
            self._resumed.add(key)
            self._by_folder.setdefault(parent(key).lower(), set()).add(key)

    def schedule(self, key: PathKey) -> None:
        """Schedule another try for this source."""
        self._put(key, parent(key))

    def _put(self, key: PathKey, folder: str) -> None:
        self._pending.add(key)
        self._by_folder.setdefault(folder, set()).add(key)

    def pop(self, key: PathKey) -> bool:
        """Return whether this source is due for another try, and unschedule it."""
        is_due = key in self._pending
        self._pending.discard(key)
        self._resumed.discard(key)
        return is_due

    def pop_analysis(self, analysis: Job) -> bool:
        """Return whether the failed jobs of an analysis are due for a retry, and unschedule it."""
        index = (analysis.source.key, analysis.builder)
        is_due = index in self.after_analysis
        self.after_analysis.discard(index)
        return is_due

    def folders(self) -> list[str]:
        """Return the folders that have sources which are due for another try."""
        return list(self._by_folder)

    def pop_folder(self, folder: str, but: Collection[PathKey] = ()) -> list[PathKey]:
        """Return the scheduled sources of `folder`, sorted, without those in `but`, which are planned when their bytes are read."""
        return sorted(self._by_folder.pop(folder, set()).intersection(self._pending | self._resumed).difference(but))

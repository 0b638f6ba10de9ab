"""Folders whose rows are not saved yet, and the jobs and files that have no rows of their own until then.

Tests: `tests/core/pipeline/test_files.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct, field

from aptui.core.model import FileFact, Job, PathKey, RelPath, SourceIdentity
from aptui.core.paths import parent


class PendingFolder(Struct):
    """A folder whose row is pending: `parts` {scan folder id: (folder digest, {rel: fact})}, `open` the keys not handled yet.

    `is_noted`: a row that is not to be trusted was saved already. `identities`: what was said of those of its files that changed.
    """

    folder: str
    parts: dict[int, tuple[bytes, dict[RelPath, FileFact]]]
    winners: dict[PathKey, FileFact]
    open: set[PathKey] = field(default_factory=set)
    is_noted: bool = False
    ticket: int = 0
    identities: dict[PathKey, SourceIdentity | None] = field(default_factory=dict)


class Unsaved:
    """What has no row yet; the row of its folder waits for it.

    Args:
        folders: {relative folder: what is pending of it}, of the working set.
    """

    def __init__(self, folders: Mapping[str, PendingFolder]) -> None:
        self._folders = folders
        self.jobs: dict[str, dict[Job, None]] = {}
        """{relative folder: jobs without a row}: the folder's row is not saved before all of them have one."""
        self.placing: dict[str, set[PathKey]] = {}
        """{relative folder: new files whose copies are being placed}, for which that row waits, too."""
        self.complete: set[str] = set()
        """Folders whose last such job has a row now, or is gone."""

    @property
    def has_any(self) -> bool:
        """Whether there is any such job or file."""
        return bool(self.jobs or self.placing)

    def leave_new(self, job: Job) -> None:
        """A new job of a file whose folder is pending needs no row before its first run has ended: the folder stands for it."""
        folder = parent(job.source.key)
        pending = self._folders.get(folder)
        if pending is not None and not pending.ticket and job.source.key in pending.winners:
            job.is_unsaved = True
            self.jobs.setdefault(folder, {})[job] = None

    def leave_outdated(self, job: Job) -> None:
        """A job of a file that was reported as changed needs no new row either before its run has ended, for the same reason."""
        pending = self._folders.get(parent(job.source.key))
        if pending is not None and job.source.key in pending.identities and not job.is_unsaved:
            self.leave_new(job)

    def end(self, job: Job) -> None:
        """An unsaved job is saved from now on, or is no more."""
        job.is_unsaved, folder = False, parent(job.source.key)
        jobs = self.jobs[folder]
        del jobs[job]
        if not jobs:
            del self.jobs[folder]
            self.complete.add(folder)

    def begin_placing(self, key: PathKey) -> None:
        """A new file is known by rows alone, and its products are about to be placed."""
        self.placing.setdefault(parent(key), set()).add(key)

    def end_placing(self, keys: Iterable[PathKey]) -> None:
        """That has ended, well or not, for these files."""
        for folder in map(parent, keys):
            self.placing.pop(folder, None)
            self.complete.add(folder)

    def holds_back(self, folder: str) -> bool:
        """Whether the row of this folder waits for any of them."""
        return folder in self.jobs or folder in self.placing

    def list_awaited(self, folder: str) -> set[PathKey]:
        """Return the files of a folder that its row waits for."""
        return {job.source.key for job in self.jobs.get(folder, ())} | self.placing.get(folder, set())

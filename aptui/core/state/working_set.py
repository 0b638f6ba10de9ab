"""The working set: the sources, folders and edges of pending work, in their newest state. This module makes no decisions.

A source is loaded whole (`load`) before it may change, and is released when all its jobs are settled and all its rows are
acknowledged (`acknowledge`). Reading a source without changing it is cheaper (`view`): a source that is not in memory is read from
the archive as a read-only copy, and a small LRU cache keeps these copies. A file is *unsettled* until the scan has reached its
folder. If the bytes of the file are needed, it is also unsettled until they have been read.
"""

from __future__ import annotations

import re
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from aptui.core.identity import legacy_of, names_of
from aptui.core.model import SETTLED, EdgeKind, FileFact, Job, PathKey, RelPath, Source, SourceIdentity, SourceUuid
from aptui.core.paths import is_below, key_of, parent
from aptui.core.patterns import literal_prefix, wildcard
from aptui.core.project import COMMON_PLATFORM
from aptui.core.rows import Archive

# A folder is pending until its row is saved. That row is saved only after the rows of the jobs and files in `Unsaved`.


class PendingFolder(Struct):
    """A folder whose row is pending.

    `parts` is {scan folder id: (folder digest, {rel: fact})}. `open` are the keys of the folder's files that are not handled yet.
    `is_noted`: a preliminary row is saved, in which unfinished files have the modification time 0. `identities`: reported
    identities of changed files in the folder.
    """

    folder: str
    parts: dict[int, tuple[bytes, dict[RelPath, FileFact]]]
    winners: dict[PathKey, FileFact]
    open: set[PathKey] = field(default_factory=set)
    is_noted: bool = False
    ticket: int = 0
    identities: dict[PathKey, SourceIdentity | None] = field(default_factory=dict)


class Unsaved:
    """Jobs and files without rows. The row of a folder is saved only after the rows of its jobs and files.

    Args:
        folders: {relative folder: its pending state}, of the working set.
    """

    def __init__(self, folders: Mapping[str, PendingFolder]) -> None:
        self._folders = folders
        self.jobs: dict[str, dict[Job, None]] = {}
        """{relative folder: jobs without a row}; the folder's row is not saved before all of these jobs have a row."""
        self.placing: dict[str, set[PathKey]] = {}
        """{relative folder: files whose copies are being placed}; the folder's row also waits for these files."""
        self.complete: set[str] = set()
        """Folders whose rows can perhaps be saved now.

        Files of the folder were read, its last unsaved job has a row or is removed, or its copies are placed.
        """

    @property
    def has_any(self) -> bool:
        """Whether any job or file has no row yet."""
        return bool(self.jobs or self.placing)

    def mark_new(self, job: Job) -> None:
        """Record a new job, which has no row until its run ends.

        Until then, the row of its folder is not saved either, so that the next engine finds the job again after a crash.
        """
        folder = parent(job.source.key)
        pending = self._folders.get(folder)
        if pending is not None and not pending.ticket and job.source.key in pending.winners:
            job.is_unsaved = True
            self.jobs.setdefault(folder, {})[job] = None

    def mark_outdated(self, job: Job) -> None:
        """Record a job with an outdated row, which is replaced when its run ends.

        Until then, the row of its folder is not saved, so that the next engine finds the job again after a crash.
        """
        pending = self._folders.get(parent(job.source.key))
        if pending is not None and job.source.key in pending.identities and not job.is_unsaved:
            self.mark_new(job)

    def end(self, job: Job) -> None:
        """Record that an unsaved job now has a row, or is removed."""
        job.is_unsaved, folder = False, parent(job.source.key)
        jobs = self.jobs[folder]
        del jobs[job]
        if not jobs:
            del self.jobs[folder]
            self.complete.add(folder)

    def begin_placing(self, key: PathKey) -> None:
        """Record a file whose products are about to be placed by `core.pipeline.plain_copies`."""
        self.placing.setdefault(parent(key), set()).add(key)

    def end_placing(self, keys: Iterable[PathKey]) -> None:
        """Record that the products of these files are placed, or that placing them failed."""
        for folder in map(parent, keys):
            self.placing.pop(folder, None)
            self.complete.add(folder)

    def holds_back(self, folder: str) -> bool:
        """Whether the row of this folder waits for a job or a file."""
        return folder in self.jobs or folder in self.placing

    def list_awaited(self, folder: str) -> set[PathKey]:
        """Return the files that delay saving the row of a folder.

        They are sources of unsaved jobs, and files whose products are being copied into the cache.
        """
        return {job.source.key for job in self.jobs.get(folder, ())} | self.placing.get(folder, set())


# `EdgeIndex` has the dependencies of the sources in memory, and the wildcard dependencies of all sources. All other dependencies
# are read from the archive.


class EdgeIndex:
    """An index {target: keys of the sources in memory that depend on it}, and the wildcard dependencies of all sources."""

    def __init__(self, archive: Archive) -> None:
        self.has_any = archive.has_edges()
        self._named_by: dict[str, set[PathKey]] = {}
        self._wildcards: dict[PathKey, list[tuple[str, re.Pattern[str]]]] = {}
        for pattern, key in archive.wildcards():
            self._wildcards.setdefault(key, []).append((pattern, wildcard(pattern)))
        self._may_name_jobs = bool(self._wildcards)
        """Whether a wildcard may be part of a job dependency. The database does not store the kind of dependency of a wildcard."""

    def add(self, source: Source) -> None:
        """Put the edges of `source` into the index, which already has the wildcards of the source."""
        for target in targets_of(source):
            self._named_by.setdefault(target, set()).add(source.key)

    def remove(self, source: Source) -> None:
        """Remove the edges of `source` from the index; its wildcards stay."""
        for target in targets_of(source) if self._named_by else ():
            keys = self._named_by.get(target)
            if keys is not None:
                keys.discard(source.key)
                if not keys:
                    del self._named_by[target]

    def forget(self, source: Source) -> None:
        """Remove a deleted source and its wildcards from the index."""
        self.remove(source)
        self._wildcards.pop(source.key, None)

    def renew(self, source: Source, before: set[str]) -> None:
        """Replace the edges of a changed source in the index; `before` is the result of `targets_of` before the change."""
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
        """Return the keys of sources that name this source in a job dependency.

        Sources with a matching wildcard are included if the wildcard may belong to a job dependency.
        """
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


def list_declared(job: Job) -> tuple[str, ...]:
    """Return the paths and patterns, in lower case, that an analysis declared as dependencies.

    `job` is this analysis, or a job of the same source and builder.
    """
    analyses = (item for item in job.source.jobs.values() if item.builder == job.builder and item.is_analysis)
    edges = (edge for item in analyses for edge in item.edges)
    return tuple(edge.target.lower() for edge in edges if edge.kind in (EdgeKind.PATH, EdgeKind.WILDCARD))


def targets_of(source: Source) -> set[str]:
    """Return the targets on which `source` depends, in the form of the index: keys and UUIDs (32 hex digits), no wildcards."""
    found: set[str] = set()
    for job in source.jobs.values():
        for edge in job.edges:
            if edge.kind is not EdgeKind.WILDCARD:
                found.add(edge.target if edge.kind is EdgeKind.DISCOVERED else edge.target.lower())
        found.update(name for name, _digest in job.discovered)
        if job.plan is not None:
            found.update(dependency.source for dependency in job.plan.job_dependencies)
    return found


# A file may be read without its folder, for example when a user saves it. Its facts are then newer than the row of the folder.

Parts = Mapping[int, tuple[bytes, Sequence[FileFact]]]
"""One relative folder in all scan folders: {scan folder id: (digest of the folder there, its files there)}."""


class NewerFacts:
    """Facts of single files that were read without their folders.

    Args:
        folders: {relative folder: its pending state} of the working set.
    """

    def __init__(self, archive: Archive, folders: Mapping[str, PendingFolder]) -> None:
        self._archive, self._folders = archive, folders
        self.facts: dict[PathKey, FileFact] = {}
        """{key: last known state of the file}."""
        self.learned: set[PathKey] = set()
        """Files whose digests were read after the rows of their folders had been saved without these digests."""

    def move_to(self, pending: PendingFolder, changed: set[PathKey]) -> None:
        """Move the facts of files in a reported folder to `pending`, the new state of the folder; drop facts of `changed` files."""
        for key in [key for key in self.facts if parent(key) == pending.folder]:
            fact = self.facts.pop(key)
            if key in pending.winners and key not in changed:
                pending.winners[key] = fact
                pending.parts[fact.scan_folder][1][fact.rel] = fact

    def list_digest_rows(self, parts_of: Callable[[str], Parts]) -> list[tuple[int, str, bytes, tuple[FileFact, ...]]]:
        """Return complete rows for the folders whose saved rows lack the digests of `learned` files.

        The rows are saved when the engine is idle, after the rows of all plans. Without the digests, each later engine would read
        those files again, and evaluate all their dependents.
        """
        rows = []
        for folder in sorted({parent(key) for key in self.learned} - self._folders.keys()):
            for part, (digest, facts) in parts_of(folder).items():
                now = tuple(map(self._with_digest, facts))
                if now != tuple(facts):
                    rows.append((part, folder, digest, now))
        return rows

    def _with_digest(self, fact: FileFact) -> FileFact:
        now = self.facts.get(fact.key) if fact.key in self.learned else None
        return now if now is not None and replace(now, digest=fact.digest, hash64=fact.hash64) == fact else fact

    def forget_digest_rows(self) -> None:
        """Forget the files whose digest rows are saved."""
        saved = {key for key in self.learned if parent(key) not in self._folders}
        for folder in {parent(key) for key in saved}:
            self._archive.forget(folder)
        for key in saved:
            if self.facts.get(key) == self._archive.files((key,)).get(key):
                self.facts.pop(key, None)
        self.learned -= saved


class Unsettled:
    """Type of `UNSETTLED`, which is returned while the answer to a question is not known yet."""


UNSETTLED: Final = Unsettled()
_RECENT_SIZE = 4096


class WorkingSet:
    """Sources, pending folders and edges in memory; see the docstring of the module.

    Args:
        ranks: {scan folder id: its position}; among earlier owners of a UUID, the owner in the first scan folder has precedence.
        resting: platforms that this engine does not process; a source with pending jobs only on these platforms is released.
    """

    def __init__(
        self, archive: Archive, ranks: Mapping[int, int] = MappingProxyType({}), resting: Collection[str] = frozenset()
    ) -> None:
        self.archive = archive
        self._ranks, self._resting = ranks, frozenset(resting)
        self.sources: dict[PathKey, Source] = {}
        self.folders: dict[str, PendingFolder] = {}
        self.unsaved = Unsaved(self.folders)
        self.newer = NewerFacts(archive, self.folders)
        self.edges = EdgeIndex(archive)
        self.hashing: dict[PathKey, FileFact] = {}
        self.unstable: set[PathKey] = set()
        self.unreadable: set[PathKey] = set()
        self.outside = archive.outside()
        """{absolute path: last known state} of the files outside all scan folders that runs found."""
        self.has_identities = archive.has_identities()
        self.awaited: set[PathKey] = set()
        """Intermediates that were added, changed or removed, and not yet checked as sources."""
        self.moving = 0
        """Number of unsettled analyses, and of unsettled jobs on platform `common`: they may add sources."""
        self.has_grown = False
        """Whether no job can make another intermediate now. Jobs that are evaluated then do not wait for missing intermediates."""
        self.scan_is_done = True
        self._scanned = ""
        self._unchanged: set[str] = set()
        self._recent: OrderedDict[PathKey, Source | None] = OrderedDict()
        self._acknowledged = 0
        self._dead: dict[PathKey, int] = {}
        self._loaded: list[Source] = []
        self._stored_dependents: dict[str, Collection[PathKey]] = {}
        """{path or UUID of a dependency: keys of the sources that depend on it}, from the database, cached for one event."""
        self._new_uuids: dict[SourceUuid, dict[PathKey, None]] = {}
        """{UUID: the sources in memory that own it, the most recent owner last}.

        A UUID can have several owners, because it may pass from one source to another.
        """
        self._new_legacy: dict[SourceUuid, dict[PathKey, None]] = {}
        self._legacy_of: dict[PathKey, tuple[SourceUuid, ...]] = {}
        """{key of a source: its UUIDs in `_new_legacy`}."""
        self._leaving: deque[tuple[int, PathKey]] = deque()
        self._leaving_folders: deque[tuple[int, str]] = deque()

    @property
    def may_grow(self) -> bool:
        """Whether missing files may still appear, because a scan or a chain of intermediates has not ended."""
        return bool(self.moving or self.awaited or self.hashing) or not self.scan_is_done

    # ------------------------------------------------------------------------------------------------------------- sources

    def load(self, keys: Iterable[PathKey]) -> list[Source]:
        """Bring the sources with these `keys` into memory, and return them; the caller may change them."""
        keys = list(keys)
        missing = [key for key in keys if key not in self.sources]
        if missing:
            for key, source in self.archive.sources(missing).items():
                if key in self._dead:
                    continue
                self._recent.pop(key, None)
                self.sources[key] = source
                self._loaded.append(source)
                self.moving += sum(map(may_add_sources, source.jobs.values()))
                self._overlay(source)
                self.edges.add(source)
        return [self.sources[key] for key in keys if key in self.sources]

    def _overlay(self, source: Source) -> None:
        """Update `fact` of a source that was loaded from the database, if a newer state of its file is known but not saved yet."""
        pending = self.folders.get(parent(source.key))
        if pending is not None:
            fact = pending.winners.get(source.key)
            source.fact = fact if fact is not None and fact.digest else source.fact
        elif (
            (fact := self.newer.facts.get(source.key)) is not None and source.fact is not None and fact.digest == source.fact.digest
        ):
            source.fact = fact

    def view(self, key: PathKey) -> Source | None:
        """Return a source that the caller only reads and never changes; None if the source does not exist."""
        source = self.sources.get(key)
        if source is not None:
            return source
        if key in self._recent:
            self._recent.move_to_end(key)
        else:
            self._recent[key] = None if key in self._dead else self.archive.sources((key,)).get(key)
            if len(self._recent) > _RECENT_SIZE:
                self._recent.popitem(last=False)
        return self._recent[key]

    def add(self, source: Source) -> None:
        """Add a new source to the sources in memory."""
        self._recent.pop(source.key, None)
        self.sources[source.key] = source
        self._hold_uuid(source)

    def key_of(self, uuid: SourceUuid) -> PathKey | None:
        """Return the key of the source that has this UUID now or, otherwise, of a source that had it earlier.

        If several sources qualify, scan folder, age and path decide, in this order.
        """
        if uuid in self._new_uuids:
            return next(reversed(self._new_uuids[uuid]))
        known = [key for key in self.archive.keys_of(uuid) if self._still_has(key, uuid)]
        known += [key for key in self._new_legacy.get(uuid, ()) if key not in known]
        return min(known, key=lambda key: self._standing(key, uuid)) if len(known) > 1 else next(iter(known), None)

    def _standing(self, key: PathKey, uuid: SourceUuid) -> tuple[bool, int, int, PathKey]:
        """Return the rank of a source among the owners of a UUID; the lowest rank has precedence."""
        source = self.view(key)
        if source is None:
            return True, len(self._ranks), 0, key
        created_ms = source.identity.created_ms if source.identity else 0
        return source.uuid != uuid, self._ranks.get(source.scan_folder, len(self._ranks)), created_ms, key

    def set_legacy(self, source: Source, legacy: Collection[SourceUuid]) -> None:
        """Add earlier or additional UUIDs of `source` that are not in the archive yet."""
        for uuid in legacy:
            self._new_legacy.setdefault(uuid, {})[source.key] = None
        if legacy:
            self._legacy_of[source.key] = tuple(dict.fromkeys((*self._legacy_of.get(source.key, ()), *legacy)))

    def _hold_uuid(self, source: Source) -> None:
        holders = self._new_uuids.setdefault(source.uuid, {})
        holders.pop(source.key, None)
        holders[source.key] = None

    def _forget_uuids(self, source: Source) -> None:
        _remove_owner(self._new_uuids, source.uuid, source.key)
        for uuid in self._legacy_of.pop(source.key, ()):
            _remove_owner(self._new_legacy, uuid, source.key)

    def keys_of(self, uuid: SourceUuid) -> list[PathKey]:
        """Return the keys of all sources that have this UUID, had it, or claim it."""
        found = {key for key in self.archive.keys_of(uuid) if self._still_has(key, uuid)}
        found.update(source.key for source in self.sources.values() if answers_to(source, uuid))
        return sorted(found)

    def _still_has(self, key: PathKey, uuid: SourceUuid) -> bool:
        source = self.sources.get(key)
        return key not in self._dead if source is None else answers_to(source, uuid)

    def rename(self, source: Source, uuid: SourceUuid) -> None:
        """Give `source` another UUID."""
        self._forget_uuids(source)
        source.uuid = uuid
        self._hold_uuid(source)

    def forget(self, source: Source, ticket: int) -> None:
        """Drop a deleted source. Until `ticket` is acknowledged, the archive still has its rows, which are ignored."""
        del self.sources[source.key]
        self._dead[source.key] = ticket
        self._forget_uuids(source)
        self.edges.forget(source)
        self._recent.pop(source.key, None)

    def leaves_after(self, source: Source, ticket: int) -> None:
        """Remove `source` from memory when the rows up to `ticket` are saved and all its jobs are settled."""
        source.last_ticket = max(source.last_ticket, ticket)
        if source.last_ticket > self._acknowledged:
            self._leaving.append((source.last_ticket, source.key))
        else:
            self._release(source)

    def acknowledge(self, ticket: int) -> None:
        """Release the settled sources whose rows up to `ticket` are saved."""
        self._acknowledged = max(self._acknowledged, ticket)
        if self._dead:
            self._dead = {key: needed for key, needed in self._dead.items() if needed > ticket}
        while self._leaving and self._leaving[0][0] <= ticket:
            _ticket, key = self._leaving.popleft()
            source = self.sources.get(key)
            if source is not None and source.last_ticket <= ticket:
                self._release(source)
        while self._leaving_folders and self._leaving_folders[0][0] <= ticket:
            _ticket, folder = self._leaving_folders.popleft()
            pending = self.folders.get(folder)
            if pending is not None and pending.ticket <= ticket and not pending.open:
                del self.folders[folder]
                self.archive.forget(folder)
                if not self.scan_is_done:
                    self._unchanged.add(folder)

    def release_loaded(self) -> None:
        """Release sources that were loaded for this event and did not change."""
        for source in self._loaded:
            if source.last_ticket <= self._acknowledged:
                self._release(source)
        self._loaded.clear()

    def _release(self, source: Source) -> None:
        if self.sources.get(source.key) is source and self._is_settled_source(source):
            self.edges.remove(source)
            self._forget_uuids(source)
            del self.sources[source.key]
            # A source and its jobs refer to each other. This line breaks the cycle, so that Python frees them at once.
            source.jobs = {}

    def _is_settled_source(self, source: Source) -> bool:
        return all(
            job.state in SETTLED and not (job.is_forced or job.is_doubted) and (job.fingerprint or not job.is_analysis or job.error)
            for job in source.jobs.values()
            if job.platform not in self._resting
        )

    # --------------------------------------------------------------------------------------------------------------- files

    def begin_scan(self, below: str = "") -> None:
        """Begin a scan of the folder `below`: files in each of its folders are unsettled until the scan reports that folder."""
        self.scan_is_done = False
        self._scanned = below
        self._unchanged.clear()

    def end_scan(self) -> None:
        """End the scan: folders that were not reported are unchanged or gone."""
        self.scan_is_done = True
        self._unchanged.clear()

    def note_unchanged(self, folders: Iterable[str]) -> None:
        """Record that the running scan found these folders unchanged."""
        self._unchanged.update(folders)

    def is_unknown(self, key: PathKey) -> bool:
        """Whether no source in memory or in the database has this key. The caller must have called `load` with the key."""
        return key not in self.sources and key not in self._dead

    def end_placing(self, keys: Sequence[PathKey]) -> None:
        """Record that the products of these files are placed, or that placing failed; drop the sources from the cache of `view`."""
        for key in keys:
            self._recent.pop(key, None)
        self.unsaved.end_placing(keys)

    def folder_leaves_after(self, pending: PendingFolder, ticket: int) -> None:
        """Release a pending folder once `ticket`, the save of its row, is acknowledged."""
        pending.ticket = ticket
        self._leaving_folders.append((ticket, pending.folder))

    def file(self, key: PathKey) -> FileFact | Unsettled | None:
        """Return the file at this path that no other file hides; None if no file has the path, UNSETTLED if still unknown."""
        if key in self.hashing or key in self.unstable:
            return UNSETTLED
        folder = parent(key)
        pending = self.folders.get(folder)
        if pending is not None:
            return self.newer.facts.get(key) or pending.winners.get(key)
        if not self.scan_is_done and folder not in self._unchanged and (folder == self._scanned or is_below(folder, self._scanned)):
            return UNSETTLED
        return self.newer.facts.get(key) or self.archive.files((key,)).get(key)

    def last_seen(self, key: PathKey) -> FileFact | None:
        """Return the last reported or saved facts of the file at this path; the file may have changed since then.

        If several scan folders have the path, this is the file that hides the others.
        """
        pending = self.folders.get(parent(key))
        return (self.archive.files((key,)) if pending is None else pending.winners).get(key)

    def matching(self, pattern: str) -> list[PathKey] | Unsettled:
        """Return the keys that a wildcard matches, sorted; UNSETTLED while the scan is under way."""
        if not self.scan_is_done:
            return UNSETTLED
        regex = wildcard(pattern)
        prefix = key_of(literal_prefix(pattern))
        keys: set[PathKey] = set()
        for fact in self.archive.files_below(prefix):
            key = key_of(fact.rel)
            if parent(key) not in self.folders and not fact.is_duplicate and regex.fullmatch(key):
                keys.add(key)
        for pending in self.folders.values():
            keys.update(key for key, fact in pending.winners.items() if not fact.is_duplicate and regex.fullmatch(key))
        return sorted(keys)

    # --------------------------------------------------------------------------------------------------------------- edges

    def moving_dependents(self, key: PathKey) -> list[Source]:
        """Return the sources in memory that name this source in a dependency. All unsettled sources are in memory."""
        return [self.sources[name] for name in sorted(self.edges.naming(key)) if name in self.sources]

    def has_dependents(self, names: Sequence[str]) -> bool:
        """Whether any source names one of these sources in a dependency."""
        return any(self.edges.naming(PathKey(name)) for name in names) or any(self._ask_dependents(names))

    def expect_dependents(self, sources: Iterable[Source]) -> None:
        """Read the dependents of all these sources with one query; later calls find them in the cache."""
        if self.edges.has_any:
            self._ask_dependents([name for source in sources for name in names_of(source)])

    def forget_answers(self) -> None:
        """Forget the cached answers of the archive, at the start and at the end of each event, because they may be out of date."""
        self._stored_dependents.clear()

    def _ask_dependents(self, targets: Sequence[str]) -> list[Collection[PathKey]]:
        """Return, for each target of dependencies, the keys of the sources that depend on it, as stored in the database.

        The database is queried only for targets that are not cached.
        """
        known = self._stored_dependents
        if unasked := [target for target in targets if target not in known]:
            found = self.archive.dependents(unasked)
            known.update((target, found.get(target, ())) for target in unasked)
        return [known[target] for target in targets]

    def dependents(self, targets: Sequence[str]) -> set[PathKey]:
        """Return the keys of sources that depend on any of `targets`, wildcards included."""
        if not self.edges.has_any:
            return set()
        found = self.edges.depending(targets)
        for keys in self._ask_dependents(targets):
            found.update(key for key in keys if key not in self.sources and key not in self._dead)
        return found


def answers_to(source: Source, uuid: SourceUuid) -> bool:
    """Whether `source` has this UUID, had it, or claims it."""
    return uuid == source.uuid or uuid in legacy_of(source)


def may_add_sources(job: Job) -> bool:
    """Whether `job` has work pending that may lead to new sources."""
    return job.state is not None and job.state not in SETTLED and (job.is_analysis or job.platform == COMMON_PLATFORM)


def _remove_owner(keys_of: dict[SourceUuid, dict[PathKey, None]], uuid: SourceUuid, key: PathKey) -> None:
    keys = keys_of.get(uuid, {})
    keys.pop(key, None)
    if not keys:
        keys_of.pop(uuid, None)

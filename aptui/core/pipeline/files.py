"""What scans and digests say about files, and what that means for sources. Nothing is looked at here: events are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from aptui.core import rows
from aptui.core.identity import legacy_of
from aptui.core.messages import (
    FilesHashed,
    FolderSeen,
    LookAgain,
    ScanStarted,
)
from aptui.core.model import (
    COMMON_PLATFORM,
    FileFact,
    JobState,
    PathKey,
)
from aptui.core.paths import key_of, merge_folder, parent, path_uuid
from aptui.core.pipeline.jobs import UNKNOWN
from aptui.core.pipeline.plans import Plans
from aptui.core.settings import SETTINGS_STATE, file_key
from aptui.core.state.working_set import PendingFolder


class Files(Plans):
    """Takes what was seen and read of files."""

    def _scan_started(self, event: ScanStarted) -> None:
        self.memory.begin_scan(event.below)
        if not event.retries:
            return
        self._retry.clear()
        self._owed_retries.clear()
        for key in self.memory.archive.unfinished():
            self._retry.setdefault(parent(key).lower(), set()).add(key)
            self._owed_retries.add(key)

    def _scan_finished(self) -> None:
        self.memory.end_scan()
        for folder in [folder for folder in self.settings.folders if self.memory.file(file_key(folder)) is None]:
            self._spread_settings(folder, self._put_settings(folder, ""))  # its file went while no engine looked
        for folder in list(self._retry):
            self._retry_folder(folder)
        for key in list(self._waiters):
            self._wake(key)

    def _folders_kept(self, folders: Iterable[str]) -> None:
        self.memory.keep(folders)
        for folder in folders:
            if folder in self._retry:
                self._retry_folder(folder)
        if self._waiters:
            kept = set(folders)
            for key in [key for key in self._waiters if parent(key) in kept]:
                self._wake(key)

    def _retry_folder(self, folder: str) -> None:
        for source in self.memory.load(sorted(self._retry.pop(folder) & self._owed_retries)):
            self._plan(source)

    def _folder_seen(self, event: FolderSeen) -> None:
        parts = {row[0]: (row[1], {fact.rel: fact for fact in row[2]}) for row in event.rows}
        winners = self._winners(event)
        adjusted = self._put_settings(event.folder, event.settings) if event.settings is not None else frozenset()
        previous = self.memory.folders.get(event.folder)
        gone = set(event.gone) | (previous.winners.keys() - winners.keys() if previous else set())
        pending = PendingFolder(event.folder, parts, winners)
        self.chains.seen(event.folder)
        strays = self.chains.strays(winners.values())
        for key in strays:
            del winners[key]
        gone |= strays
        said = dict(event.identities)
        facts = [fact for fact in event.facts if fact.key not in strays]
        pending.identities = {**(previous.identities if previous else {}), **{fact.key: said.get(fact.key) for fact in facts}}
        self.memory.has_identities = self.memory.has_identities or bool(said)
        self.memory.put_folder(pending)
        self._drop_file_rows(event, gone)
        for key in sorted(gone):
            self._gone(key)
            self._todo.extend((job, True) for job in self.commits.claimants(f"{COMMON_PLATFORM}/{key}"))
        for job in self.chains.producers(fact.key for fact in facts if not self.chains.is_intermediate(fact)):
            self._force(job, "its intermediate has the path of a source")
        for fact, others in event.clashes:
            self._clash(fact, others)
        self._drop_strays(event)
        keys = [fact.key for fact in facts]
        self.memory.take_extra(pending, set(keys))
        self.memory.unreadable.difference_update(keys)
        self.memory.load(keys)
        unread: list[tuple[PathKey, FileFact]] = []
        for key, fact in zip(keys, facts, strict=True):
            if not self._needs_digest(key, fact):
                self.memory.unstable.discard(key)
                self._put_file_row(fact)
            elif fact.digest:
                self._settle(key, fact)
            else:
                unread.append((key, fact))
        pending.open = {key for key, _fact in unread}
        self._hash(unread)
        retry = self._retry.get(event.folder)
        if retry is not None:
            retry.difference_update(pending.open)
            self._retry_folder(event.folder)
        for key in [key for key in self._waiters if parent(key) == event.folder] if self._waiters else ():
            self._wake(key)
        self._close_folder(pending)
        self._spread({*gone, *(key for key in keys if key not in pending.open)})
        self._spread_settings(event.folder, adjusted)

    def _put_settings(self, folder: str, text: str) -> frozenset[bytes]:
        """The settings of `folder` are these now; return the builders for which that makes a difference."""
        if self.settings.text(folder) == text:
            return frozenset()
        self.ledger.put("put_state", (SETTINGS_STATE + folder, text))
        adjusted = self.settings.put(folder, text)
        if adjusted:  # until everything is at rest again, the next engine looks at every source
            self.ledger.put("put_state", ("signature", ""))
        return adjusted

    def _drop_file_rows(self, event: FolderSeen, gone: set[PathKey]) -> None:
        """Drop the rows of files that are no more, or lie elsewhere now, or are spelled otherwise."""
        now = {fact.key: (fact.scan_folder, fact.rel) for fact in event.facts}
        for key, fact in self.memory.archive.files([*sorted(gone), *now]).items():
            if now.get(key) != (fact.scan_folder, fact.rel):
                self.ledger.put("drop_file", (fact.scan_folder, fact.rel))

    def _drop_strays(self, event: FolderSeen) -> None:
        """Drop what differed only in case from another file, and does not any more: its key is its path as it is spelled."""
        spelled = {PathKey(fact.rel) for row in event.rows for fact in row[2] if str(fact.rel) != key_of(fact.rel)}
        strays = spelled.difference(PathKey(fact.rel) for fact, _others in event.clashes)
        for source in self.memory.load(sorted(strays)):
            self._gone(source.key)

    def _winners(self, event: FolderSeen) -> dict[PathKey, FileFact]:
        """Return all files of the folder that win their path: the first part that has one, clashes left out."""
        return merge_folder([facts for _scan_folder, _digest, facts in event.rows], self.project.metadata_types)[0]

    def _needs_digest(self, key: PathKey, fact: FileFact) -> bool:
        return (
            self.planner.wants(fact.rel, fact.scan_folder)
            or key in self.memory.sources
            or key in self._waiters
            or bool(self.graph.owners_of(fact.rel))
            or self.graph.is_shared(key)
            or (self.memory.has_edges and bool(self.memory.dependents((key, path_uuid(key).hex()))))
        )

    def _files_hashed(self, event: FilesHashed) -> None:
        changed: set[PathKey] = set()
        restless = [key for key in event.unstable if key in self.memory.hashing]  # the others went while they were read
        facts = [(fact.key, fact) for fact in event.facts]
        self.memory.load([key for key, _fact in facts])
        for key, fact in facts:
            asked = self.memory.hashing.pop(key, None)
            if asked is None:
                continue  # it went while it was read
            if not _is_same(asked, fact):
                restless.append(key)
                continue
            self.memory.unstable.discard(key)
            self.memory.unreadable.discard(key)
            pending = self.memory.folders.get(parent(key))
            if pending is not None and key in pending.winners:
                pending.winners[key] = fact
                part = pending.parts.get(fact.scan_folder)
                if part is not None:
                    part[1][fact.rel] = fact
            else:
                self.memory.extra[key] = fact
            if self._settle(key, fact):
                changed.add(key)
        for key, text in event.unreadable:
            self._unreadable(key, text)
        for key in restless:
            self.memory.hashing.pop(key, None)
            self.memory.unstable.add(key)
        if restless:
            self.ledger.order(LookAgain(self.ledger.cause, tuple(restless)))
        self._close_folders_of(event)
        self._spread(changed)
        if self._waiters:
            for key, _fact in facts:
                self._wake(key)

    def _close_folders_of(self, event: FilesHashed) -> None:
        done: dict[str, list[PathKey]] = {}
        for key in (*(fact.key for fact in event.facts), *(key for key, _text in event.unreadable), *event.unstable):
            done.setdefault(parent(key), []).append(key)
        for folder, keys in done.items():
            pending = self.memory.folders.get(folder)
            if pending is not None:
                pending.open.difference_update(keys)
                self._close_folder(pending)

    def _close_folder(self, pending: PendingFolder) -> None:
        """Save the folder's row once all its files are planned: a crash before that makes the next start look at them again."""
        if pending.open or any(key in self.memory.unstable for key in pending.winners if self.memory.unstable):
            if len(pending.open) < len(pending.winners):
                self._note_folder(pending)
            return
        for scan_folder, (digest, facts) in pending.parts.items():
            if facts or digest:
                self.ledger.put("put_folder", (scan_folder, pending.folder, digest, tuple(facts.values())))
            else:
                self.ledger.put("drop_folder", (scan_folder, pending.folder))
        for scan_folder in self._roots.keys() - pending.parts.keys():
            self.ledger.put("drop_folder", (scan_folder, pending.folder))
        self.memory.folder_leaves_after(pending, self.ledger.ticket)

    def _note_folder(self, pending: PendingFolder) -> None:
        """Some of its files are sources already, others are not read yet: save their names, so that the next start misses what goes."""
        if pending.is_noted:
            return
        pending.is_noted = True
        for scan_folder, (_digest, facts) in pending.parts.items():
            noted = tuple(fact if self._is_handled(pending, fact) else replace(fact, mtime_ns=0) for fact in facts.values())
            if noted:
                self.ledger.put("put_folder", (scan_folder, pending.folder, b"", noted))

    def _is_handled(self, pending: PendingFolder, fact: FileFact) -> bool:
        keys = (key_of(fact.rel), replace(fact, is_shadow=True).key)
        return not any(key in pending.open or key in self.memory.unstable for key in keys)

    def _put_file_row(self, fact: FileFact) -> None:
        self.ledger.put("put_file", (fact.scan_folder, fact.rel, 0, fact.mtime_ns // 1_000_000, rows.signed(fact.hash64)))

    def _settle(self, key: PathKey, fact: FileFact) -> bool:
        """The bytes of `key` are known: plan its jobs if it is a source. Return whether they are others than before."""
        self._put_file_row(fact)
        source = self.memory.sources.get(key)
        if source is None:
            if not self.planner.wants(fact.rel, fact.scan_folder):
                return True
            source = self._new_source(key, fact)
            self._plan(source)
            return True
        before, identity, known = source.fact, source.identity, legacy_of(source) if self.memory.has_identities else ()
        was_elsewhere = (source.scan_folder, source.rel) != (fact.scan_folder, fact.rel)
        source.fact, source.scan_folder, source.rel = fact, fact.scan_folder, fact.rel
        source.identity = self._identity_said(source)
        if source.identity != identity:
            self._renamed.update(uuid.hex() for uuid in (source.uuid, *known))
        is_fetched = before is not None and before.digest == fact.digest and before.size != fact.size  # a Git LFS pointer no more
        is_changed = before is None or before.digest != fact.digest or was_elsewhere or bool(source.trouble) or is_fetched
        is_changed = is_changed or identity != source.identity
        source.trouble = ""
        for job in source.jobs.values() if is_changed else ():
            job.planned = None if job.planned == UNKNOWN or (is_fetched and job.state is JobState.FAILED) else job.planned
        if was_elsewhere or identity != source.identity:
            self._save_legacy(source)
        if before is None or before != fact or was_elsewhere or identity != source.identity:
            self._save_source(source)
        self._plan(source)
        return is_changed

    def _clash(self, fact: FileFact, others: tuple[str, ...]) -> None:
        names = ", ".join(f"'{name}'" for name in others)
        self._trouble(
            PathKey(fact.rel), fact, f"'{fact.rel}' differs only in case from {names}: rename one of them", drops_jobs=True
        )

    def _unreadable(self, key: PathKey, text: str) -> None:
        self.memory.hashing.pop(key, None)
        self.memory.unreadable.add(key)
        fact = self._fact_of(key)
        if fact is not None:
            self._trouble(key, fact, f"'{fact.rel}' cannot be read: {text}", drops_jobs=False)
        self._wake(key)

    def _fact_of(self, key: PathKey) -> FileFact | None:
        pending = self.memory.folders.get(parent(key))
        return pending.winners.get(key) if pending is not None else self.memory.archive.files((key,)).get(key)

    def _trouble(self, key: PathKey, fact: FileFact, text: str, *, drops_jobs: bool) -> None:
        """A source that cannot be analysed: each builder that wants it gets a failed analysis that says why."""
        builders = self.planner.builders_for(fact.rel, fact.scan_folder)
        found = self.memory.load((key,))
        if not builders:
            self._gone(key)
            return
        source = found[0] if found else self._new_source(key, fact)
        source.trouble = text
        if source.fact != fact:
            source.fact, source.scan_folder, source.rel = fact, fact.scan_folder, fact.rel
            self._save_source(source)
        wanted = {builder.uuid for builder in builders}
        for job in list(source.jobs.values()):
            if (drops_jobs and not job.is_analysis) or (job.builder not in wanted and not self._rests(job)):
                self._drop(job)
        self._fail_all(source, builders, text)


def _is_same(asked: FileFact, found: FileFact) -> bool:
    """Whether the bytes that were read are those of the file as the scan last saw it."""
    return (asked.scan_folder, asked.rel, asked.size, asked.mtime_ns) == (found.scan_folder, found.rel, found.size, found.mtime_ns)

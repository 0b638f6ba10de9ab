"""Handles events about files, from scans and from reading files, and their effect on sources. It reads no file."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from msgspec.structs import replace

from aptui.core import rows, run_report
from aptui.core.identity import legacy_of
from aptui.core.messages import FilesHashed, FilesSeen, FolderSeen, RecheckFiles, ScanStarted
from aptui.core.model import DUPLICATE_MARK, UNKNOWN_SIZE, Digest, FileFact, JobState, PathKey, RelPath, SourceUuid
from aptui.core.paths import is_below, key_of, merge_folder, parent, path_uuid
from aptui.core.pipeline.identities import Identities
from aptui.core.pipeline.jobs import UNKNOWN, Jobs, PipelinePart
from aptui.core.pipeline.plain_copies import Copies, PlainCopies
from aptui.core.pipeline.plans import Plans
from aptui.core.project import COMMON_PREFIX
from aptui.core.retry import FailureKind
from aptui.core.run_report import OUTSIDE_STATE, SETTINGS_STATE, OutsideFile
from aptui.core.settings import file_key
from aptui.core.state.working_set import PendingFolder
from aptui.shared.files import lfs

# `Spread` finds the sources that must be planned again because files, names or settings changed.


class Spread(PipelinePart):
    """Follows dependencies from changed files to their dependents, and plans the dependents again."""

    def __init__(self, jobs: Jobs, plans: Plans, identities: Identities) -> None:
        super().__init__(jobs)
        self._plans = plans
        self._identities = identities

    def _sharers(self, keys: set[PathKey]) -> set[PathKey]:
        """Return the sources that share one of these files as a companion."""
        shared = [key for key in keys if self._graph.companions.is_shared(key)]
        if not shared:
            return set()
        facts = {fact.key: fact for fact in self._memory.archive.files_below(PathKey(""))}
        for pending in self._memory.folders.values():
            facts.update(pending.winners)
        return {key for key, fact in facts.items() if any(self._graph.companions.is_shared_with(each, fact.rel) for each in shared)}

    def spread(self, keys: set[PathKey]) -> None:
        """Plan all direct and indirect dependents of these files, which changed."""
        owners = {owner for key in keys for owner in self._graph.companions.find_owners(RelPath(key))} | self._sharers(keys)
        affected: set[PathKey] = set(owners)
        edge = set(keys) | owners
        while (edge or self._identities.has_renamed) and self._memory.edges.has_any:
            uuids = (uuid.hex() for key in edge for uuid in self._uuids_of(key))
            targets = [*edge, *uuids, *self._identities.pop_renamed()]
            edge = self._memory.dependents(targets) - affected - keys
            affected |= edge
        self._plans.plan_all(affected)

    def outside_seen(self, files: Iterable[tuple[str, OutsideFile]]) -> None:
        """Store the new states of files outside all scan folders; forget files without dependents.

        If the bytes of a file changed, its dependents are planned again.
        """
        changed = set()
        for path, file in files:
            before = self._memory.outside.get(path)
            if before == file:
                continue
            if before is not None and not self._memory.dependents((path,)):
                del self._memory.outside[path]
                self._ledger.put("put_state", (OUTSIDE_STATE + path, ""))
                continue
            self._memory.outside[path] = file
            self._ledger.put("put_state", (OUTSIDE_STATE + path, run_report.dump(file)))
            if before is not None and before.digest != file.digest:
                changed.add(PathKey(path))
        if changed:
            self.spread(changed)

    def _uuids_of(self, key: PathKey) -> tuple[SourceUuid, ...]:
        """Return the UUIDs by which other sources may depend on `key`."""
        source = self._memory.view(key) if self._memory.has_identities else None
        return (path_uuid(key),) if source is None else (path_uuid(key), source.uuid, *legacy_of(source))

    def evaluate_identities(self) -> None:
        """Plan the sources whose identity may have changed, and all their dependents."""
        while pending := self._identities.pop_pending():
            for source in self._memory.load(pending):
                self._plans.plan(source)
        if self._identities.has_renamed:
            self.spread(set())

    def spread_settings(self, folder: str, builders: frozenset[bytes]) -> None:
        """Plan all sources below `folder` that one of `builders` processes."""
        if not builders:
            return
        facts = {fact.key: fact for fact in self._memory.archive.files_below(PathKey(f"{folder}/" if folder else ""))}
        for pending in self._memory.folders.values():
            facts.update((key, fact) for key, fact in pending.winners.items() if is_below(key, folder))
        self._plans.plan_all(
            key
            for key, fact in facts.items()
            if any(builder.uuid in builders for builder in self._planner.builders_for(fact.rel, fact.scan_folder))
        )


_LOADED_TOGETHER = 500
"""Number of removed sources that are loaded with one query."""


class Files(PipelinePart):
    """Handles the events of scans, and of files that were read."""

    def __init__(self, jobs: Jobs, identities: Identities, plans: Plans, spread: Spread, plain: PlainCopies) -> None:
        super().__init__(jobs)
        self._plain = plain
        self._identities = identities
        self._plans = plans
        self._spread = spread
        self._has_scanned = False
        self._small: dict[PathKey, Digest] = {}
        """Previous digests of files that are read again because their size changed and they may have been Git LFS pointers."""
        self._takes_pointers = {builder.uuid for builder in jobs.project.builders if builder.takes_pointers}
        self._scan_folders = {folder.id for folder in jobs.project.scan_folders}

    def scan_started(self, event: ScanStarted) -> None:
        """Handle the start of a scan.

        Schedule the unfinished work of an earlier engine, and retries of failed jobs if requested.
        """
        self._memory.begin_scan(event.below)
        is_first, self._has_scanned = not self._has_scanned, True
        if event.retries:
            self._plans.retries.clear()
        if event.retries or is_first:  # a new engine may have another configuration, with which failed jobs succeed
            self._plans.retries.schedule(self._memory.archive.list_unfinished(), is_retry=event.retries)

    def scan_finished(self) -> None:
        """Handle the end of a scan: folders that it did not report are unchanged, or gone."""
        self._memory.end_scan()
        for folder in [folder for folder in self._settings.folders if self._memory.file(file_key(folder)) is None]:
            # the settings file of this folder was deleted while no engine was running
            self._spread.spread_settings(folder, self._put_settings(folder, ""))
        for folder in self._plans.retries.folders():
            self._retry_folder(folder)
        for key in self._waiters.list_awaited():
            self._jobs.wake(key)

    def folders_unchanged(self, folders: Iterable[str]) -> None:
        """Handle unchanged folders of a scan: retry their scheduled sources, and wake the jobs that wait for their files."""
        self._memory.note_unchanged(folders)
        for folder in folders:
            self._retry_folder(folder)
        for key in self._waiters.keys_in(folders):
            self._jobs.wake(key)

    def _retry_folder(self, folder: str, but: Collection[PathKey] = ()) -> None:
        for source in self._memory.load(self._plans.retries.pop_folder(folder, but)):
            self._plans.plan(source)

    def folder_seen(self, event: FolderSeen) -> None:
        """Handle a folder that differs from its last known state."""
        parts = {row[0]: (row[1], {fact.rel: fact for fact in row[2]}) for row in event.rows}
        winners, _clashes = merge_folder([row[2] for row in event.rows], self._project.metadata_types)
        adjusted = self._put_settings(event.folder, event.settings) if event.settings is not None else frozenset()
        previous = self._memory.folders.get(event.folder)
        gone = set(event.gone) | (previous.winners.keys() - winners.keys() if previous else set())
        pending = PendingFolder(event.folder, parts, winners)
        self._chains.note_seen(event.folder)
        # A file in the intermediate folder without a product row is an orphan. An orphan must not become a source, and must not
        # hide a source.
        orphans = self._chains.orphans(winners.values())
        for key in orphans:
            del winners[key]
        gone |= orphans
        identities = dict(event.identities)
        keyed = [(key, fact) for fact in event.facts if (key := fact.key) not in orphans]
        facts, keys = [fact for _key, fact in keyed], [key for key, _fact in keyed]
        pending.identities = {**(previous.identities if previous else {}), **{key: identities.get(key) for key in keys}}
        self._memory.has_identities = self._memory.has_identities or bool(identities)
        self._memory.folders[event.folder] = pending
        self._drop_file_rows(event, gone)
        # Removed files are handled before added files. If only the spelling or the scan folder of a file changed, its removal
        # frees its UUID and its product names, so that the added file can have them.
        for number, key in enumerate(leaving := sorted(gone)):
            if not number % _LOADED_TOGETHER:
                self._memory.load(leaving[number : number + _LOADED_TOGETHER])
            self._plans.remove_source(key)
            self._todo.extend((job, True) for job in self._jobs.conflicts.claimants(COMMON_PREFIX + key))
        for job in self._chains.producers(key for key, fact in keyed if not self._chains.is_intermediate(fact)):
            self._plans.force(job, "its intermediate product has the path of a source")
        for fact, others in event.clashes:
            self._clash(fact, others)
        self._drop_orphans(event)
        self._note_small(facts, previous)
        self._memory.newer.move_to(pending, set(keys))
        self._memory.unreadable.difference_update(keys)
        unread = self._unread(keyed)
        pending.open = {key for key, _fact in unread}
        if previous is not None:  # the folder's row also waits for files of the previous event that are still being read
            pending.open.update(key for key in previous.open if key in winners and key in self._memory.hashing)
        self._jobs.hash(unread, may_copy=True)
        self._memory.unstable -= {key for key in self._memory.unstable if parent(key) == event.folder and key not in winners}
        # Sources that are not read yet are not retried here, because `files_hashed` retries them after they have been read.
        self._retry_folder(event.folder, pending.open)
        for key in self._waiters.keys_in((event.folder,)):
            self._jobs.wake(key)
        # The row of this folder waits only for the rows of its own files. So it is saved, if possible, before `spread` plans
        # dependents in other folders.
        self._close_folder(pending)
        self._spread.spread({*gone, *(key for key in keys if key not in pending.open)})
        self._spread.spread_settings(event.folder, adjusted)

    def files_seen(self, event: FilesSeen) -> None:
        """Handle known files that were checked one by one; their new digests are stored apart from the rows of their folders."""
        facts = [fact for fact in event.facts if self._is_at_rest(fact)]
        others = tuple(fact.key for fact in event.facts if fact not in facts)
        if others:  # a scan is reading their folders now, or their folders changed after these files were checked
            self._ledger.order(RecheckFiles(self._ledger.cause, others))
        keys = [fact.key for fact in facts]
        self._note_small(facts, None)
        self._memory.unreadable.difference_update(keys)
        unread = self._unread(list(zip(keys, facts, strict=True)))
        self._jobs.hash(unread, may_copy=True)
        self._spread.spread(set(keys) - {key for key, _fact in unread})

    def _is_at_rest(self, fact: FileFact) -> bool:
        """Whether the file is the stored winner of its path, and its folder has no pending rows."""
        key = fact.key
        known = self._memory.archive.files((key,)).get(key) if parent(key) not in self._memory.folders else None
        return known is not None and (known.scan_folder, known.rel) == (fact.scan_folder, fact.rel)

    def _unread(self, keyed: Collection[tuple[PathKey, FileFact]]) -> list[tuple[PathKey, FileFact]]:
        """Handle the files whose digest is known or not needed; return the other files, which must be read.

        If builders process a file whose digest is unknown, the file is loaded as a source only after it has been read.
        """
        wanted = {key for key, fact in keyed if not fact.digest and self._planner.wants(fact.rel, fact.scan_folder)}
        self._memory.load([key for key, _fact in keyed if key not in wanted])
        unread: list[tuple[PathKey, FileFact]] = []
        for key, fact in keyed:
            if key in wanted:
                unread.append((key, fact))
            elif not self._needs_digest(key, fact):
                self._memory.unstable.discard(key)
                self._put_file_row(fact)
            elif fact.digest:
                self._settle(key, fact)
            else:
                unread.append((key, fact))
        return unread

    def _put_settings(self, folder: str, text: str) -> frozenset[bytes]:
        """Store the adjustments of `folder`; return the builders that the change of adjustments affects."""
        if self._settings.text(folder) == text:
            return frozenset()
        self._ledger.put("put_state", (SETTINGS_STATE + folder, text))
        adjusted = self._settings.put(folder, text)
        # An empty signature makes the next engine check every source. The signature is stored again when everything is settled.
        if adjusted:
            self._ledger.put("put_state", ("signature", ""))
        return adjusted

    def _drop_file_rows(self, event: FolderSeen, gone: set[PathKey]) -> None:
        """Drop the rows of files that are gone, moved, or spelled differently."""
        now = {fact.key: (fact.scan_folder, fact.rel) for fact in event.facts}
        for key, fact in self._memory.archive.files([*sorted(gone), *now]).items():
            if now.get(key) != (fact.scan_folder, fact.rel):
                self._ledger.put("drop_file", (fact.scan_folder, fact.rel))

    def _drop_orphans(self, event: FolderSeen) -> None:
        """Drop the sources of clashing files whose clash has ended. Clashing files differ only in case.

        The key of each of these sources is its exact path.
        """
        spelled = {PathKey(fact.rel) for row in event.rows for fact in row[2] if str(fact.rel) != key_of(fact.rel)}
        orphans = spelled.difference(PathKey(fact.rel) for fact, _others in event.clashes)
        for source in self._memory.load(sorted(orphans)):
            self._plans.remove_source(source.key)

    def _needs_digest(self, key: PathKey, fact: FileFact) -> bool:
        return (
            self._planner.wants(fact.rel, fact.scan_folder)
            or key in self._memory.sources
            or key in self._waiters
            or bool(self._graph.companions.find_owners(fact.rel))
            or self._graph.companions.is_shared(key)
            or (self._memory.edges.has_any and bool(self._memory.dependents((key, path_uuid(key).hex()))))
        )

    def files_hashed(self, event: FilesHashed, *, may_group: bool) -> None:
        """Handle files that were read or could not be read.

        `may_group`: whether the copies of these files may be decided together, because no earlier copies wait for their commit.
        """
        changed: set[PathKey] = set()
        # A file that is missing in `hashing` was deleted while it was read.
        restless = [key for key in event.unstable if key in self._memory.hashing]
        facts = [(fact.key, fact) for fact in event.facts]
        self._memory.load([key for key, _fact in facts])
        copies = {key: (run_keys, took_ms) for key, run_keys, took_ms in event.copies}
        together: list[tuple[PathKey, FileFact]] | None = [] if may_group and self._plain.may_plan(event) else None
        for key, fact in facts:
            asked = self._memory.hashing.pop(key, None)
            if asked is None:
                continue  # the file was deleted while it was read
            if not _is_same(asked, fact):
                restless.append(key)
                continue
            self._memory.unstable.discard(key)
            self._memory.unreadable.discard(key)
            self._note_read(key, fact)
            if together is not None and key in copies:
                together.append((key, fact))
            elif self._settle_read(key, fact, copies):
                changed.add(key)
        if together and not self._plain.plan(together, copies):
            changed.update(key for key, fact in together if self._settle_read(key, fact, copies))
        for key, text in event.unreadable:
            self._unreadable(key, text)
        for key in restless:
            self._memory.hashing.pop(key, None)
            self._memory.unstable.add(key)
        if restless:
            self._ledger.order(RecheckFiles(self._ledger.cause, tuple(restless)))
        self._close_folders_of((*(key for key, _fact in facts), *(key for key, _text in event.unreadable), *event.unstable))
        self._spread.spread(changed)
        self._retry_fetched(facts)
        for key, _fact in facts if self._waiters else ():
            self._jobs.wake(key)

    def _note_read(self, key: PathKey, fact: FileFact) -> None:
        """Store the state of a file that was read: in its folder's pending state, or separately if the folder's row is saved."""
        pending = self._memory.folders.get(parent(key))
        if pending is None or key not in pending.winners:
            self._memory.newer.facts[key] = fact
            row = self._memory.archive.files((key,)).get(key)
            # A row that was saved without a digest gets the digest only if the file still has the size and time in the row.
            if row is not None and not row.digest and _is_same(row, fact):
                self._memory.newer.learned.add(key)
            return
        pending.winners[key] = fact
        part = pending.parts.get(fact.scan_folder)
        if part is not None:
            part[1][fact.rel] = fact
        if pending.ticket:  # the row of the folder is being saved without this digest, because no job needed the digest before
            self._memory.newer.facts[key] = fact
            self._memory.newer.learned.add(key)

    def _note_small(self, facts: Iterable[FileFact], previous: PendingFolder | None) -> None:
        """Record the old digests (b"" = unknown) of files whose size changed and that may have been Git LFS pointers."""
        is_wanted = self._memory.edges.has_any or self._takes_pointers
        unread = {fact.key: fact for fact in facts if not fact.digest} if is_wanted else {}
        before = self._memory.archive.files(list(unread)) if previous is None else previous.winners
        for key, fact in unread.items():
            old = self._memory.newer.facts.get(key) or before.get(key)
            if old is not None and old.size != fact.size and old.size < lfs.LONGEST_POINTER_BYTES:
                self._small[key] = old.digest

    def _retry_fetched(self, facts: list[tuple[PathKey, FileFact]]) -> None:
        """Plan the sources again whose Git LFS pointers were replaced by the real files.

        A pointer and its file have the same digest, but different sizes.

        Jobs that failed because the files were missing are retried, and analyses that may have read the pointers are repeated.
        """
        fetched = [key for key, fact in facts if self._small.pop(key, None) in (fact.digest, b"")] if self._small else []
        for source in self._memory.load(sorted(self._memory.dependents(fetched))) if fetched else ():
            for job in source.jobs.values():
                if job.is_analysis:
                    job.fingerprint = 0  # forces a repetition, although the file has the digest of its pointer
                    if job.state is JobState.COMPLETED:
                        self._plans.force(job, "a file that it needs was fetched from Git LFS")
        for source in self._memory.load(sorted(fetched)) if fetched and self._takes_pointers else ():
            for job in source.jobs.values():
                if source.fact is not None and job.products and job.builder in self._takes_pointers:
                    self._plans.force(job, "its source was fetched from Git LFS")
        for source in self._memory.sources.values() if fetched else ():
            for job in source.jobs.values():
                if job.state is JobState.FAILED and job.failure is not None and job.failure.kind == FailureKind.OBSTACLE:
                    job.planned = None

    def _settle_read(self, key: PathKey, fact: FileFact, copies: Copies) -> bool:
        """Settle a file that was read; its jobs may use its `copies`.

        If the file is an intermediate that was changed by hand, it is not settled: no job uses it until the job that makes it has
        run again.
        """
        if key in copies:
            self._jobs.copies[key] = list(copies[key][0])
        if not self._chains.is_tampered(fact):
            return self._settle(key, fact)
        self._memory.unstable.add(key)
        self._plans.products_lost((COMMON_PREFIX + key,), "an intermediate product was changed in the cache")
        return False

    def _close_folders_of(self, read: Iterable[PathKey]) -> None:
        done: dict[str, list[PathKey]] = {}
        for key in read:
            done.setdefault(parent(key), []).append(key)
        for folder, keys in done.items():
            pending = self._memory.folders.get(folder)
            if pending is not None:
                pending.open.difference_update(keys)
                # `close_complete_folders` saves the folder's row after the jobs of the files that were read have been evaluated.
                self._memory.unsaved.complete.add(folder)

    def close_complete_folders(self) -> None:
        """Save the folder rows that waited for the rows of jobs."""
        for folder in self._memory.unsaved.complete:
            pending = self._memory.folders.get(folder)
            if pending is not None and not pending.ticket:
                self._close_folder(pending)
        self._memory.unsaved.complete.clear()

    def _close_folder(self, pending: PendingFolder) -> None:
        """Save the row of a folder when all its files are planned and every job of these files has a row or needs no row.

        If the engine crashes before the row is saved, the next start checks the files again.
        """
        is_pending = pending.open or self._memory.unsaved.holds_back(pending.folder)
        if is_pending or any(key in self._memory.unstable for key in pending.winners if self._memory.unstable):
            if len(pending.open) < len(pending.winners):
                self._note_folder(pending)
            return
        for scan_folder, (digest, facts) in pending.parts.items():
            if facts or digest:
                self._ledger.put("put_folder", (scan_folder, pending.folder, digest, tuple(facts.values())))
            else:
                self._ledger.put("drop_folder", (scan_folder, pending.folder))
        for scan_folder in self._scan_folders - pending.parts.keys():
            self._ledger.put("drop_folder", (scan_folder, pending.folder))
        self._memory.folder_leaves_after(pending, self._ledger.ticket)

    def _note_folder(self, pending: PendingFolder) -> None:
        """Save the names of a folder's files while some of the files are not read yet.

        The next start then notices which of these files are gone.
        """
        if pending.is_noted:
            return
        pending.is_noted = True
        unfinished = pending.open | self._memory.unstable | self._memory.unsaved.list_awaited(pending.folder)
        has_duplicates = any(DUPLICATE_MARK in key for key in unfinished)
        for scan_folder, (_digest, facts) in pending.parts.items():
            noted = tuple(
                replace(fact, mtime_ns=0) if _is_pending(fact, unfinished, has_duplicates) else fact for fact in facts.values()
            )
            if noted:
                self._ledger.put("put_folder", (scan_folder, pending.folder, b"", noted))

    def _put_file_row(self, fact: FileFact) -> None:
        self._ledger.put("put_file", (fact.scan_folder, fact.rel, 0, fact.mtime_ns // 1_000_000, rows.to_signed(fact.hash64)))

    def _settle(self, key: PathKey, fact: FileFact) -> bool:
        """Plan the jobs of a file that was read, if it is a source; return whether its bytes changed."""
        is_changed = self._settle_source(key, fact)
        if key not in self._memory.sources:
            self._put_file_row(fact)
        return is_changed

    def _settle_source(self, key: PathKey, fact: FileFact) -> bool:
        """Plan the jobs of a file that was read, if builders process it; return whether its bytes, location or identity changed."""
        source = self._memory.sources.get(key)
        if source is None:
            if not self._planner.wants(fact.rel, fact.scan_folder):
                return True
            source = self._identities.new_source(key, fact)
            self._plans.plan(source)
            return True
        # The UUIDs are noted before the identity changes, because another source may depend on this source by a UUID that this
        # source loses now.
        before, identity, known = source.fact, source.identity, legacy_of(source) if self._memory.has_identities else ()
        was_elsewhere = (source.scan_folder, source.rel) != (fact.scan_folder, fact.rel)
        self._jobs.move_source(source, fact)
        source.identity = self._identities.metadata_identity(source)
        if source.identity != identity:
            self._identities.note_renamed((source.uuid, *known))
        sizes = {before.size, fact.size} if before is not None and before.digest == fact.digest else ()
        is_fetched = len(sizes) > 1 and UNKNOWN_SIZE not in sizes  # the Git LFS pointer was replaced by the file that it names
        is_changed = before is None or before.digest != fact.digest or was_elsewhere or bool(source.trouble) or is_fetched
        is_changed = is_changed or identity != source.identity
        source.trouble = ""
        # The source changed, so a job that was cancelled before its fingerprint was known may run again. A job that failed
        # because Git LFS had not fetched the file must run again, too, although its fingerprint is the same.
        for job in source.jobs.values() if is_changed else ():
            job.planned = None if job.planned == UNKNOWN or (is_fetched and job.state is JobState.FAILED) else job.planned
        if before is not None and before.digest != fact.digest:
            self._plans.feedback.source_changed(source, fact)
        if was_elsewhere or identity != source.identity:
            self._identities.save_legacy(source)
        if before is None or before != fact or was_elsewhere or identity != source.identity:
            self._jobs.save_source(source)
        self._plans.plan(source)
        return is_changed

    def _clash(self, fact: FileFact, others: tuple[str, ...]) -> None:
        names = ", ".join(f"'{name}'" for name in others)
        self._trouble(
            PathKey(fact.rel), fact, f"'{fact.rel}' differs only in case from {names}; rename one of these files", drops_jobs=True
        )

    def _unreadable(self, key: PathKey, text: str) -> None:
        self._memory.hashing.pop(key, None)
        self._memory.unreadable.add(key)
        fact = self._fact_of(key)
        if fact is not None:
            self._trouble(key, fact, f"'{fact.rel}' cannot be read: {text}", drops_jobs=False)
        self._jobs.wake(key)

    def _fact_of(self, key: PathKey) -> FileFact | None:
        pending = self._memory.folders.get(parent(key))
        return pending.winners.get(key) if pending is not None else self._memory.archive.files((key,)).get(key)

    def _trouble(self, key: PathKey, fact: FileFact, text: str, *, drops_jobs: bool) -> None:
        """Fail the analyses of a source that cannot be analysed, for each of its builders."""
        builders = self._planner.builders_for(fact.rel, fact.scan_folder)
        found = self._memory.load((key,))
        if not builders:
            self._plans.remove_unwanted(key)
            return
        source = found[0] if found else self._identities.new_source(key, fact)
        source.trouble = text
        if source.fact != fact:
            self._jobs.move_source(source, fact)
            self._jobs.save_source(source)
        wanted = {builder.uuid for builder in builders}
        for job in list(source.jobs.values()):
            if (drops_jobs and not job.is_analysis) or (job.builder not in wanted and not self._jobs.is_at_rest(job)):
                self._jobs.drop(job)
        self._plans.fail_all(source, builders, text)


def _is_pending(fact: FileFact, unfinished: Collection[PathKey], has_duplicates: bool) -> bool:
    """Whether `unfinished` has a key of a file: its path in lower case, or its key with `FileFact.is_duplicate` set.

    This function must be fast, because it is called for thousands of files.
    """
    return key_of(fact.rel) in unfinished or (has_duplicates and replace(fact, is_duplicate=True).key in unfinished)


def _is_same(asked: FileFact, found: FileFact) -> bool:
    """Whether a file was still in the state of the last scan when its bytes were read."""
    return (asked.scan_folder, asked.rel, asked.size, asked.mtime_ns) == (found.scan_folder, found.rel, found.size, found.mtime_ns)

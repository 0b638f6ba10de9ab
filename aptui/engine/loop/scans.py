"""Scans of the scan folders and the cache.

This module performs the scan in progress and the checks of single folders. It decides which stored states the next scan trusts.
`scan.scanner` lists a folder; `live.changes` decides which notification causes a check.

Tests: `tests/engine/loop/test_after_runs.py`.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from aptui.core.identity import META_SUFFIX
from aptui.core.messages import FilesSeen, FolderSeen, FoldersUnchanged, ProductsLost, Rows, ScanFinished, ScanStarted
from aptui.core.model import FileFact, PathKey
from aptui.core.paths import from_text, has_own_identity, is_below, key_of, os_path, parent
from aptui.core.project import COMMON_PREFIX, ScanFolder
from aptui.core.run_report import is_other
from aptui.core.settings import file_key
from aptui.engine.scan.metadata import FolderSettings
from aptui.engine.scan.scanner import Scanner, SettingsNotReadError
from aptui.engine.scan.up_to_date import PLATFORMS_STATE, SettledPlatforms
from aptui.engine.scan.walk import ROOTS_STATE, Digests, FileLinks, Walk
from aptui.engine.watch import limits
from aptui.shared.files.clocks import RACY_NS, is_coarse

if TYPE_CHECKING:
    from aptui.core.state.working_set import Parts, PendingFolder, WorkingSet
    from aptui.engine.loop.context import EngineContext
    from aptui.engine.loop.opening import PreparedSession
    from aptui.store.db.last_run import FolderArchive


# Clock ticks of file systems: for how long after a change a file may change again without getting a new time.
#
# File times come from a clock that advances in ticks. If a file changes twice within one tick, the second change does not alter its
# times. So a file that was checked between the two changes looks unchanged from then on. A file whose last change is older than a
# tick at its check is safe: a later change gives the file a later time, and no program can set the ctime back.
#
# File systems of this kernel use the kernel's own coarse clock, which ticks 100 to 1,000 times a second. Other file systems may
# use a server's clock, or store times in steps of one or two seconds (FAT).

FINE_RACY_NS = 100_000_000
"""Time (ns) after a change during which a further change may leave the file times equal, if the kernel's clock gives them.

It is ten times the longest tick of that clock.
"""
_Stamp = tuple[int, ...]
"""(size, mtime_ns, ctime_ns, inode)."""


class FileClocks:
    """Tick lengths of the clocks that give the files of the scan folders their times.

    Args:
        roots: {scan folder id: absolute path}.
        mountinfo: the contents of `/proc/self/mountinfo`; None = the file is read when it is needed.
    """

    def __init__(self, roots: Mapping[int, str], mountinfo: Callable[[], bytes] | None = None, longest_ns: int = RACY_NS) -> None:
        self._roots, self._mountinfo, self._longest_ns = roots, mountinfo, longest_ns
        self._are_fine: dict[int, bool] = {}

    def are_any_fresh(self, scan_folder: int, facts: Iterable[FileFact], checked_ns: int) -> bool:
        """Whether any of these files was checked within one tick after its last change.

        If so, one more change may not show in the file's times.

        Args:
            scan_folder: id of the scan folder of the files.
            checked_ns: when the check of these files began (nanoseconds since 1970).
        """
        racy_ns = checked_ns - self._longest_ns
        return any(
            (fact.mtime_ns >= racy_ns or fact.ctime_ns >= racy_ns) and self.is_fresh(scan_folder, fact, checked_ns)
            for fact in facts
        )

    def is_fresh(self, scan_folder: int, fact: FileFact, checked_ns: int) -> bool:
        """Whether this file was checked within one tick after its last change; the arguments are those of `are_any_fresh`."""
        is_fine = not is_coarse(fact.ctime_ns) and self._is_fine(scan_folder)
        racy_ns = min(self._longest_ns, FINE_RACY_NS) if is_fine else self._longest_ns
        return max(fact.mtime_ns, fact.ctime_ns) >= checked_ns - racy_ns

    def _is_fine(self, scan_folder: int) -> bool:
        """Whether all files of a scan folder are on file systems that use the kernel's clock."""
        if scan_folder not in self._are_fine:
            self._are_fine[scan_folder] = self._probe(self._roots.get(scan_folder, ""))
        return self._are_fine[scan_folder]

    def _probe(self, root: str) -> bool:
        path = os.path.realpath(os.fsencode(root))
        mounts = limits.mounts((self._mountinfo or limits.mountinfo)())
        kinds = {limits.kind_of(path, mounts), *(mount.kind for mount in limits.mounts_below(path, mounts))}
        return kinds <= limits.NATIVE_KINDS


class FreshReads:
    """Files that were read so soon after their last change that one more change may leave their times equal.

    These files are read again later, even if their times did not change. The second reading is trusted if it begins more than a
    tick after the first reading and the times are still equal. By then the file server's clock has moved on, even if it is ahead of
    this machine's clock, so every later change gives the file another time.
    """

    def __init__(self, clocks: FileClocks) -> None:
        self._clocks = clocks
        self._by_folder: dict[str, dict[tuple[int, str], tuple[_Stamp, float]]] = {}
        """{relative folder in lower case: {(scan folder id, relative path): (stamp, monotonic seconds of the first reading)}}."""
        self._noted: set[str] = set()

    @property
    def folders(self) -> Iterable[str]:
        """The relative folders (lower case) with files that have to be read again."""
        return self._by_folder.keys()

    def note(self, fact: FileFact, read_ns: int, read_s: float) -> None:
        """Record a file whose reading began at `read_ns` (since 1970) or later. `read_s` is the same time in monotonic seconds."""
        is_fresh = self._clocks.are_any_fresh(fact.scan_folder, (fact,), read_ns)
        if not is_fresh and not self._by_folder:
            return
        folder, file, stamp = parent(key_of(fact.rel)), (fact.scan_folder, str(fact.rel)), fact.stamp
        files = self._by_folder.get(folder, {})
        before, first_s = files.get(file, ((), read_s))
        if before != stamp:
            first_s = read_s
        if is_fresh and read_s - first_s < RACY_NS / 1e9:
            self._by_folder.setdefault(folder, files)[file] = stamp, first_s
            self._noted.add(folder)
        elif files.pop(file, None) and not files:
            del self._by_folder[folder]

    def holds(self, fact: FileFact) -> bool:
        """Whether the stored digest of a file may be out of date although its times are unchanged."""
        known = self._by_folder.get(parent(key_of(fact.rel)), {}).get((fact.scan_folder, str(fact.rel)))
        return known is not None and known[0] == fact.stamp

    def pop_noted(self) -> Iterable[str]:
        """Return the folders in which `note` recorded a file since the last call."""
        noted, self._noted = self._noted, set()
        return noted


# Single files: a known file is checked by itself, without the other files of its folder.
#
# That is enough if only the file can have changed: its path and spelling are as stored, no other scan folder has a file of its
# path, and no rule relates the file to other files. Otherwise the whole folder is checked. A check of a single file saves no row of
# the folder: a check of the whole folder saves the row when the engine is idle. After a crash before the row is saved, the next
# start finds the file changed but its products up to date.

_AT_MOST = 16
"""Maximum number of files of one folder that are checked one by one. If more files changed, listing the folder costs less."""


class SingleFiles:
    """Checks single files, without the other files of their folders."""

    def __init__(self, context: EngineContext, is_own: Callable[[bytes, os.stat_result], bool]) -> None:
        self._context, self._is_own = context, is_own
        self._watched = [folder for folder in context.project.scan_folders if not folder.is_intermediate]

    def check(self, folder: str, named: Mapping[PathKey, bytes]) -> tuple[FileFact, ...] | None:
        """Return the present size and times of the named files, or None if the caller must check the whole folder.

        `folder` is a relative path in lower case.
        """
        context = self._context
        if len(named) > _AT_MOST or folder in context.pipeline.jobs.memory.folders or folder in context.inbox.folders():
            return None
        facts: list[FileFact] = []
        for key, path in named.items():
            fact = None if self._has_company(folder, key) else self._check_file(key, path)
            if fact is None:
                return None
            facts.append(fact)
        return tuple(facts)

    def _has_company(self, folder: str, key: PathKey) -> bool:
        """Whether this file and other files of its folder affect each other (identity and settings files)."""
        return META_SUFFIX in key or key == file_key(folder) or has_own_identity(key, self._context.project.metadata_types)

    def _check_file(self, key: PathKey, path: bytes) -> FileFact | None:
        found = self._context.archive.folders.variants(key)
        if len(found) != 1:
            return None
        known = found[0]
        holders = [root for root in self._watched if self._is_there(root.path, known)]
        if len(holders) != 1 or holders[0].id != known.scan_folder:
            return None  # another scan folder also has a file at this relative path, and the watcher has not reported that file yet
        if from_text(f"{holders[0].path}/{known.rel}") != path:
            return None  # the file at the path is another file, whose name differs in case
        try:
            now = os.lstat(path)
        except OSError:
            return None
        if self._is_own(path, now):
            return None  # the file is one of aptui's own files now, and no longer a source
        if now.st_nlink > 1:
            return None  # only a check of the whole folder finds the other names of the file
        if not stat.S_ISREG(now.st_mode):
            return None  # the path is a link, and only a check of the whole folder finds where the link leads
        return FileFact(known.scan_folder, known.rel, now.st_size, now.st_mtime_ns, now.st_ctime_ns, now.st_ino)

    def _is_there(self, root: str, known: FileFact) -> bool:
        return root == self._context.roots.get(known.scan_folder) or os.path.lexists(from_text(f"{root}/{known.rel}"))


class RememberedFiles:
    """State of folders for the scanner: the pending changes of a folder, otherwise its rows.

    Facts from checks of single files replace older facts.

    Args:
        to_save: returns the rows of a folder's pending changes.
        fresh: files that have to be read again even if their times are unchanged.
    """

    def __init__(
        self, archive: FolderArchive, memory: WorkingSet, to_save: Callable[[PendingFolder], Parts], fresh: FreshReads
    ) -> None:
        self._archive, self._memory, self._to_save, self._fresh = archive, memory, to_save, fresh

    def folder_digests(self) -> Digests:
        """Return the stored digests of each relative folder."""
        unlike = {*self._memory.folders, *self._fresh.folders}
        if not unlike:
            return self._archive.folder_digests()
        digests = dict(self._archive.folder_digests())
        for folder in unlike:
            digests[folder] = tuple((part, digest) for part, (digest, _facts) in self.folder_parts(folder).items())
        return {folder: parts for folder, parts in digests.items() if parts}

    def folder_parts(self, folder: str) -> Parts:
        """Return {scan folder id: (digest, its files)} of this relative folder."""
        pending = self._memory.folders.get(folder)
        parts = self._archive.folder_parts(folder) if pending is None else self._to_save(pending)
        extra = self._memory.newer.facts
        if extra:
            parts = {part: (digest, [_newest(fact, extra) for fact in facts]) for part, (digest, facts) in parts.items()}
        return {part: without_fresh(self._fresh, folder, *row) for part, row in parts.items()}


def without_fresh(fresh: FreshReads, folder: str, digest: bytes, facts: Sequence[FileFact]) -> tuple[bytes, Sequence[FileFact]]:
    """Return a folder's digest and files.

    The files that the next scan has to read again, because they were read too soon after a change, are marked.
    """
    if folder not in fresh.folders or not any(map(fresh.holds, facts)):
        return digest, facts
    return b"", [replace(fact, mtime_ns=0) if fresh.holds(fact) else fact for fact in facts]


def _newest(fact: FileFact, extra: Mapping[PathKey, FileFact]) -> FileFact:
    now = extra.get(fact.key)
    same_place = now is not None and (now.scan_folder, now.rel) == (fact.scan_folder, fact.rel)
    return replace(now, is_duplicate=fact.is_duplicate) if now is not None and same_place else fact


_BACKLOG = 4096
"""Maximum backlog (number of pending jobs and files).

The scan pauses while more work is pending, so that memory use does not grow with the tree.
"""
_RECHECK_S = 0.05
_IDENTITIES, _MADE = "identities", "made"
"""Key and value in `aptui_state` that record that all sources of metadata types have identity files.

An engine that creates no identity files does not store this state.
"""


class Scans:
    """The checks of one engine; one scan at a time.

    Args:
        context: the shared objects of the engine; the inbox among them receives the facts.
        opening: the prepared session, with the results of the up-to-date check, which the first scan does not repeat.
    """

    def __init__(self, context: EngineContext, opening: PreparedSession) -> None:
        self._context, self._opening = context, opening
        self._steps: Iterator[list[FolderSeen | FoldersUnchanged]] | None = None
        self._scanner: Scanner | None = None
        self._below = ""
        self._again: dict[PathKey, float] = {}
        self._checked_ns: dict[str, int] = {}
        """{relative folder: when (nanoseconds since 1970) its last check began}.

        Folders that were not checked after the last scan began are left out.
        """
        self._single_files = SingleFiles(context, self.is_own)
        self._settings = FolderSettings(context.wake)
        self._clocks = FileClocks(context.roots, longest_ns=RACY_NS)
        self.fresh_reads = FreshReads(self._clocks)
        self.links = opening.walk.links if opening.walk is not None else FileLinks()
        self._begun_ns = 0
        self.unknown: dict[tuple[int, str], str] = {}
        """{(scan folder id, relative folder in lower case): why it cannot be read}."""
        self.is_dirty = False
        """Whether a change was found since the idle state was last recorded."""
        config, stored = opening.config, context.archive.state(PLATFORMS_STATE)
        self._platforms = SettledPlatforms(config.project, config.project_dir, opening.builders, stored)

    # ---------------------------------------------------------------------------------------------------------------- scans

    @property
    def is_scanning(self) -> bool:
        """Whether a scan is in progress."""
        return self._steps is not None

    @property
    def can_go_on(self) -> bool:
        """Whether a scan is in progress and does not have to wait for pending work."""
        return self._steps is not None and self._context.pipeline.jobs.backlog < _BACKLOG and not self._settings.is_busy

    @property
    def files_seen(self) -> int:
        """Number of files that the last scan has found so far."""
        return self._scanner.files_seen if self._scanner else 0

    def start(self, *, retries: bool, is_full: bool) -> None:
        """Begin to scan all scan folders. `retries`: retry failed jobs. `is_full`: read the bytes of every file."""
        context, opening = self._context, self._opening
        is_known = context.archive.state("signature") == opening.signature
        context.inbox.post(ScanStarted(context.inbox.next_seq(), retries=retries))
        self._begin_checks()
        self._below = ""
        check, opening.check = opening.check, None
        is_known = is_known and (not context.metadata.creates or context.archive.state(_IDENTITIES) == _MADE)
        self._scanner = self._make_scanner(check=check, is_full=is_full, reassess=not is_known)
        self._steps = self._scanner.steps()
        if not is_known:  # if this engine dies before it is idle, the next engine checks everything
            context.writer.run({"put_state": [("signature", ""), *self._platforms.begin()]}, durable=True)
            self.is_dirty = True
        self.check_products(trusts_times=not is_full)

    def start_below(self, folder: str) -> None:
        """Begin to scan one relative folder (lower case) and everything below; no other scan may be in progress."""
        inbox = self._context.inbox
        inbox.post(ScanStarted(inbox.next_seq(), below=folder, retries=False))
        self._begin_checks()
        self._below = folder
        self._steps = self._scanner_at_hand().steps(folder)

    def advance(self) -> None:
        """Perform one step of the scan in progress, if little work is pending."""
        if self._steps is None or not self.can_go_on:
            return
        inbox = self._context.inbox
        events = next(self._steps, None)
        self._report_walk()
        if events is None:
            self._steps = None
            self._note_unknown(self._below, is_tree=True)
            inbox.post(ScanFinished(inbox.next_seq()))
        else:
            for event in events:
                if isinstance(event, FolderSeen):
                    self.is_dirty = True
                    self._checked_ns.pop(event.folder, None)
                inbox.post(event)

    def _scanner_at_hand(self) -> Scanner:
        """Return a scanner for checks after the first scan: it trusts the stored state."""
        self._scanner = self._make_scanner()
        return self._scanner

    def _make_scanner(self, **how: Any) -> Scanner:
        context, opening = self._context, self._opening
        self._walk, opening.walk = opening.walk or Walk(context.project, opening.own, self.links), None
        self._walk.check_root = self._check_root
        unfinished: Mapping[PathKey, FileFact | None] = context.live.unfinished if context.live is not None else {}
        return Scanner(
            context.project,
            self._walk,
            RememberedFiles(context.archive.folders, context.pipeline.jobs.memory, self._parts_to_save, self.fresh_reads),
            context.inbox.next_seq,
            unfinished=unfinished,
            metadata=context.metadata,
            read_settings=self._settings.read,
            **how,
        )

    def _check_root(self, folder: ScanFolder) -> None:
        self._opening.guard.check(folder, lambda: self._context.archive.folders)

    def _note_unknown(self, folder: str, *, is_tree: bool) -> None:
        """Replace the records of unreadable folders: of `folder`, its parents and, with `is_tree`, all folders below it."""
        for part, known in list(self.unknown):
            if folder == known or is_below(folder, known) or (is_tree and is_below(known, folder)) or not known:
                self.unknown.pop((part, known))
        self.unknown.update(self._walk.unknown)

    def _report_walk(self) -> None:
        context = self._context
        while context.metadata.mistakes:
            context.news.say_once(context.metadata.mistakes.pop(0))
        while self._walk.sentences:
            context.news.say_once(self._walk.sentences.pop(0))

    # ---------------------------------------------------------------------------------------------- checks of single folders

    def check_folder(self, folder: str, again: frozenset[PathKey] = frozenset()) -> None:
        """Check one relative folder (lower case) now. Files with keys in `again` are read even if their stored state matches."""
        now_ns = time.time_ns()
        try:
            event = self._scanner_at_hand().check_folder(folder, again)
        except SettingsNotReadError:
            self.want_again({*again, file_key(folder)})
            return
        self._note_unknown(folder, is_tree=False)
        self._report_walk()
        if event is not None:
            self.is_dirty = True
            self._checked_ns[folder] = now_ns  # store the new time after the check, which needs the time of the previous check
            self._context.inbox.post(event)

    def check_files(self, folder: str, named: Mapping[PathKey, bytes]) -> bool:
        """Check known files of one relative folder (lower case) by themselves; return False if the whole folder has to be checked.

        `named` is {key of a file: its absolute path in the notification}.
        """
        facts = self._single_files.check(folder, named) if not self.unknown and not self.is_scanning else None
        if facts is None:
            return False
        self.is_dirty = True
        inbox = self._context.inbox
        inbox.post(FilesSeen(inbox.next_seq(), facts))
        return True

    def refresh_own_files(self) -> None:
        """Find out which files verbs and redirected output write now. Call it before each round of checks, not for each file."""
        self._opening.own.refresh()

    def is_own(self, path: bytes, seen: os.stat_result) -> bool:
        """Whether a file (absolute path, its status) was aptui's own at the last `refresh_own_files`."""
        return self._opening.own.is_own_file(os.fsdecode(path), seen)

    @property
    def due_times(self) -> Collection[float]:
        """When (monotonic) files have to be checked again."""
        return self._again.values()

    def want_again(self, keys: Iterable[PathKey]) -> None:
        """Schedule another check of these files, because they changed while they were read."""
        soon = time.monotonic() + _RECHECK_S
        self._again.update((key, soon) for key in keys)

    def compare(self, facts: Iterable[FileFact]) -> None:
        """Schedule another check of each file whose size, times or inode differ from its fact in `facts`."""
        from aptui.worker.reads import stamp_of  # imported here for a faster start: most engines compare no file

        for fact in facts:
            found = stamp_of(os_path(f"{self._context.roots[fact.scan_folder]}/{fact.rel}"))
            if is_other(fact.stamp, found):
                self.want_again((fact.key,))

    def recheck(self, now: float) -> None:
        """Check the folders of files that changed while they were read."""
        due = [key for key, when in self._again.items() if when <= now]
        for key in due:
            del self._again[key]
        due = [key for key in due if not self._is_left_to_watching(key)]
        for folder in sorted({parent(key) for key in due}):
            self.check_folder(folder, frozenset(key for key in due if parent(key) == folder))

    def _is_left_to_watching(self, key: PathKey) -> bool:
        """Whether a watched file is missing now.

        If so, the change tracker is requested to check it again, because one check does not confirm a deletion.
        """
        live, fact = self._context.live, self._context.pipeline.jobs.memory.last_seen(key)
        watched = {folder.id for folder in self._context.project.scan_folders if not folder.is_intermediate}
        if live is None or fact is None or fact.scan_folder not in watched:
            return False
        path = from_text(f"{self._context.roots[fact.scan_folder]}/{fact.rel}")
        if os.path.exists(path):
            return False
        live.check_soon(path)
        return True

    # --------------------------------------------------------------------------------------------------- checks of products

    def check_products(self, *, trusts_times: bool = True) -> None:
        """Check every cache folder that differs from its record; without `trusts_times`, all folders.

        If an engine died before it deleted an intermediate, it may still be recorded as a source. This check deletes the file, and
        schedules a check of its path, so that the source disappears too.
        """
        products, say = self._context.archive.products, self._context.news.say_once
        lost, orphans = self._context.cache.find_lost(products, say, trusts_times=trusts_times)
        self.want_again(PathKey(name.removeprefix(COMMON_PREFIX)) for name in orphans if name.startswith(COMMON_PREFIX))
        if lost:
            self.is_dirty = True
            self.report_missing(lost)

    def report_missing(self, names: Sequence[str]) -> None:
        """Report products that are missing from the cache."""
        inbox = self._context.inbox
        inbox.post(ProductsLost(inbox.next_seq(), tuple(names)))

    # ------------------------------------------------------------------------------------------------------ rows of folders

    def list_settled_state(self) -> list[tuple[str, str]]:
        """Return the (key, value) pairs that an idle engine stores in `aptui_state` for the next engine."""
        made = _MADE if self._context.metadata.creates else ""
        roots = self._opening.guard.state()
        return [("signature", self._opening.signature), (_IDENTITIES, made), (ROOTS_STATE, roots), *self._platforms.end()]

    def note_changes(self, rows: Rows) -> None:
        """If `rows` change an input, add a row that marks platforms as out of date (`SettledPlatforms.note`)."""
        if state := self._platforms.note(rows, self._context.archive):
            rows.setdefault("put_state", []).extend(state)

    def mark_fresh_files(self, rows: Rows) -> None:
        """Change rows of folders so that the next scan reads recently written files again."""
        folders = rows.get("put_folder")
        if folders:
            rows["put_folder"] = [(*row[:2], *self._as_remembered(*row)) for row in folders]  # type: ignore[arg-type]  # rows of one operation have one form

    def _as_remembered(
        self, part: int, folder: str, digest: bytes, facts: Sequence[FileFact]
    ) -> tuple[bytes, tuple[FileFact, ...]]:
        """Return digest and files of a folder as they are stored: files that the next scan has to read again are marked."""
        checked_ns, clocks = self._checked_ns.get(folder, self._begun_ns), self._clocks
        digest, facts = without_fresh(self.fresh_reads, folder, digest, facts)
        if clocks.are_any_fresh(part, facts, checked_ns):
            facts = [replace(fact, mtime_ns=0) if clocks.is_fresh(part, fact, checked_ns) else fact for fact in facts]
            digest = b""
        return digest, tuple(facts)

    def _parts_to_save(self, pending: PendingFolder) -> Parts:
        """Return a folder's pending state in the form of its rows.

        A file that was checked too soon after its last change is marked, so that it is read again.
        """
        parts = pending.parts.items()
        rows = {part: self._as_remembered(part, pending.folder, digest, tuple(facts.values())) for part, (digest, facts) in parts}
        return {part: row for part, row in rows.items() if row[0] or row[1]}

    def _begin_checks(self) -> None:
        """Record that checks of folders begin now; folders with pending changes keep the time of their last check."""
        unfinished = {*self._context.pipeline.jobs.memory.folders, *self._context.inbox.folders()}
        self._checked_ns = {folder: self._checked_ns.get(folder, self._begun_ns) for folder in unfinished}
        self._begun_ns = time.time_ns()

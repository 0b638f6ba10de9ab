"""Scans of the scan folders and the cache: the scan under way, single folders beside it, and what of it is trusted next time.

What lies in a folder is `scanner`'s business; when notifications of the watcher lead to a look, `live.changes`'s.

Tests: `tests/engine/loop/test_after_runs.py`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from aptui.core.messages import FilesSeen, FolderSeen, FoldersUnchanged, ProductsLost, Rows, ScanFinished, ScanStarted
from aptui.core.model import FileFact, PathKey
from aptui.core.paths import from_text, is_below, parent
from aptui.core.project import COMMON_PLATFORM, ScanFolder
from aptui.core.results.run_report import is_other
from aptui.core.settings import file_key
from aptui.engine.loop.single_files import RememberedFiles, SingleFiles, without_fresh
from aptui.engine.scan.folder_settings import FolderSettings
from aptui.engine.scan.freshness import FileClocks, FreshReads
from aptui.engine.scan.scanner import Scanner, SettingsNotReadError
from aptui.engine.scan.walk import FileLinks, Walk
from aptui.engine.scan.walk_guard import ROOTS_STATE
from aptui.shared.files.clocks import RACY_NS
from aptui.worker.files import os_path

if TYPE_CHECKING:
    from aptui.core.state.pending import PendingFolder
    from aptui.core.state.working_set import Parts
    from aptui.engine.loop.context import EngineContext
    from aptui.engine.loop.opening import PreparedSession

_BACKLOG = 4096
"""The scan pauses while more than this is pending: memory stays flat however large the tree."""
_RECHECK_S = 0.05
_COMMON = f"{COMMON_PLATFORM}/"
_IDENTITIES, _MADE = "identities", "made"
"""Whether all sources of metadata types have their identity files: an engine that makes none leaves that to the next."""


class Scans:
    """What one engine looks at. One scan at a time.

    Args:
        context: of the engine, whose inbox takes what is seen.
        opening: what the first half found, which the first scan need not look at again.
    """

    def __init__(self, context: EngineContext, opening: PreparedSession) -> None:
        self._context, self._opening = context, opening
        self._steps: Iterator[list[FolderSeen | FoldersUnchanged]] | None = None
        self._scanner: Scanner | None = None
        self._below = ""
        self._again: dict[PathKey, float] = {}
        self._checked_ns: dict[str, int] = {}
        """{relative folder: when (nanoseconds since 1970) the last look at it began}, where that is not when the scan did."""
        self._single_files = SingleFiles(context, self.is_own)
        self._settings = FolderSettings(context.wake)
        self._clocks = FileClocks(context.roots)
        self.fresh_reads = FreshReads(self._clocks)
        self.links = opening.walk.links if opening.walk is not None else FileLinks()
        self._begun_ns = 0
        self.unknown: dict[tuple[int, str], str] = {}
        """{(scan folder id, relative folder in lower case): why it cannot be read}."""
        self.is_dirty = False
        """Whether anything was seen that the last settlement does not know."""

    # ---------------------------------------------------------------------------------------------------------------- scans

    @property
    def is_scanning(self) -> bool:
        """Whether a scan is under way."""
        return self._steps is not None

    @property
    def can_go_on(self) -> bool:
        """Whether there is a scan that need not wait until less is owed."""
        return self._steps is not None and self._context.pipeline.backlog < _BACKLOG and not self._settings.is_busy

    @property
    def files_seen(self) -> int:
        """How many files the last scan has met so far."""
        return self._scanner.files_seen if self._scanner else 0

    def start(self, *, retries: bool, is_full: bool) -> None:
        """Begin to look at all scan folders; `retries`: what failed is tried again; `is_full`: every file's bytes are read."""
        context, opening = self._context, self._opening
        is_known = context.archive.state("signature") == opening.signature
        context.inbox.post(ScanStarted(context.inbox.next_seq(), retries=retries))
        self._begin_checks()
        self._below = ""
        check, opening.check = opening.check, None
        is_known = is_known and (not context.metadata.creates or context.archive.state(_IDENTITIES) == _MADE)
        self._scanner = self._make_scanner(check=check, is_full=is_full, reassess=not is_known)
        self._steps = self._scanner.steps()
        if not is_known:  # until all is at rest again, the next engine looks at everything too
            context.writer.run({"put_state": [("signature", "")]}, durable=True)
            self.is_dirty = True
        self.check_products(trusts_times=not is_full)

    def start_below(self, folder: str) -> None:
        """Look at one relative folder (lower case) and everything under it, as no other scan is under way."""
        inbox = self._context.inbox
        inbox.post(ScanStarted(inbox.next_seq(), below=folder, retries=False))
        self._begin_checks()
        self._below = folder
        self._steps = self._scanner_at_hand().steps(folder)

    def advance(self) -> None:
        """Carry the scan one step on, if there is one and little is pending."""
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
        """Return a scanner without the first scan's ways: it trusts what is remembered."""
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
            RememberedFiles(context.archive.folders, context.pipeline.memory, self._parts_to_save, self.fresh_reads),
            context.inbox.next_seq,
            unfinished=unfinished,
            metadata=context.metadata,
            read_settings=self._settings.read,
            **how,
        )

    def _check_root(self, folder: ScanFolder) -> None:
        self._opening.guard.check(folder, lambda: self._context.archive.folders)

    def _note_unknown(self, folder: str, *, is_tree: bool) -> None:
        """Record what could not be read on the way to `folder` and in it, with `is_tree` also below, and what can be again."""
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

    # -------------------------------------------------------------------------------------------------------- single folders

    def check_folder(self, folder: str, again: frozenset[PathKey]) -> None:
        """Look at one relative folder (lower case) now, and at the files `again` in it as if nothing were remembered of them."""
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
            self._checked_ns[folder] = now_ns  # what was seen before was compared with by the time of the look before
            self._context.inbox.post(event)

    def check_files(self, folder: str, named: Mapping[PathKey, bytes]) -> bool:
        """Look at known files of one relative folder (lower case) by themselves; return False where that cannot be.

        `named` has the absolute path that was named, for each.
        """
        facts = self._single_files.check(folder, named) if not self.unknown and not self.is_scanning else None
        if facts is None:
            return False
        self.is_dirty = True
        inbox = self._context.inbox
        inbox.post(FilesSeen(inbox.next_seq(), facts))
        return True

    def is_own(self, path: bytes, seen: os.stat_result) -> bool:
        """Whether a file (absolute path, its status) is aptui's own now."""
        self._opening.own.refresh()
        return self._opening.own.is_own_file(os.fsdecode(path), seen)

    @property
    def due_times(self) -> Collection[float]:
        """When (monotonic) files have to be looked at again."""
        return self._again.values()

    def want_again(self, keys: Iterable[PathKey]) -> None:
        """Look at these files, which changed while they were read, again soon."""
        soon = time.monotonic() + _RECHECK_S
        self._again.update((key, soon) for key in keys)

    def compare(self, facts: Iterable[FileFact]) -> None:
        """Look soon again at those of these files that are not as the facts say."""
        from aptui.worker.inputs.reads import stamp_of  # for start-up: nothing is compared until the core asks for it

        for fact in facts:
            found = stamp_of(os_path(f"{self._context.roots[fact.scan_folder]}/{fact.rel}"))
            if is_other((fact.size, fact.mtime_ns, fact.ctime_ns, fact.inode), found):
                self.want_again((fact.key,))

    def recheck(self, now: float) -> None:
        """Look at the folders of files that changed while they were read, as the scan does."""
        due = [key for key, when in self._again.items() if when <= now]
        for key in due:
            del self._again[key]
        due = [key for key in due if not self._is_left_to_watching(key)]
        for folder in sorted({parent(key) for key in due}):
            self.check_folder(folder, frozenset(key for key in due if parent(key) == folder))

    def _is_left_to_watching(self, key: PathKey) -> bool:
        """Whether a file is not there just now: one look is not enough to call it gone where somebody may be writing it anew."""
        live, fact = self._context.live, self._context.pipeline.memory.last_seen(key)
        watched = {folder.id for folder in self._context.project.scan_folders if not folder.is_intermediate}
        if live is None or fact is None or fact.scan_folder not in watched:
            return False
        path = from_text(f"{self._context.roots[fact.scan_folder]}/{fact.rel}")
        if os.path.exists(path):
            return False
        live.check_soon(path)
        return True

    def note_read(self, fact: FileFact, read_ns: int, read_s: float) -> None:
        """Record that a file was read; the reading began at `read_ns` (since 1970), `read_s` (monotonic), or later."""
        self.fresh_reads.note(fact, read_ns, read_s, RACY_NS)

    # ------------------------------------------------------------------------------------------------------------- products

    def check_products(self, *, trusts_times: bool = True) -> None:
        """Look into every cache folder that is not as it was recorded; without `trusts_times`, into all.

        An intermediate that a dead engine was about to delete was there when the folders were looked at, and is a source.
        """
        products, say = self._context.archive.products, self._context.news.say_once
        lost, orphans = self._context.cache.find_lost(products, say, trusts_times=trusts_times)
        self.want_again(PathKey(name.removeprefix(_COMMON)) for name in orphans if name.startswith(_COMMON))
        if lost:
            self.is_dirty = True
            self.lose(lost)

    def lose(self, names: Sequence[str]) -> None:
        """Take note that products are not in the cache any more."""
        inbox = self._context.inbox
        inbox.post(ProductsLost(inbox.next_seq(), tuple(names)))

    # ----------------------------------------------------------------------------------------------------------------- rows

    def list_settled_state(self) -> list[tuple[str, str]]:
        """Return what the next engine finds in the database when this one has come to rest."""
        made = _MADE if self._context.metadata.creates else ""
        return [("signature", self._opening.signature), (_IDENTITIES, made), (ROOTS_STATE, self._opening.guard.state())]

    def mark_fresh_files(self, rows: Rows) -> None:
        """Change rows of folders so that a file too fresh to be trusted is read again by the next scan."""
        folders = rows.get("put_folder")
        if folders:
            rows["put_folder"] = [self._row_to_save(*row) for row in folders]  # type: ignore[arg-type]  # rows of one operation have one form

    def _row_to_save(self, scan_folder: int, folder: str, digest: bytes, facts: Sequence[FileFact]) -> tuple[object, ...]:
        return scan_folder, folder, *self._as_remembered(scan_folder, folder, digest, facts)

    def _as_remembered(
        self, part: int, folder: str, digest: bytes, facts: Sequence[FileFact]
    ) -> tuple[bytes, tuple[FileFact, ...]]:
        checked_ns, clocks = self._checked_ns.get(folder, self._begun_ns), self._clocks
        digest, facts = without_fresh(self.fresh_reads, folder, digest, facts)
        if clocks.are_any_fresh(part, facts, checked_ns, RACY_NS):
            facts = [replace(fact, mtime_ns=0) if clocks.is_fresh(part, fact, checked_ns, RACY_NS) else fact for fact in facts]
            digest = b""
        return digest, tuple(facts)

    def _parts_to_save(self, pending: PendingFolder) -> Parts:
        """Return what is pending of a folder as its rows would say it: a file that was too fresh when it was seen is read again."""
        parts = pending.parts.items()
        rows = {part: self._as_remembered(part, pending.folder, digest, tuple(facts.values())) for part, (digest, facts) in parts}
        return {part: row for part, row in rows.items() if row[0] or row[1]}

    def _begin_checks(self) -> None:
        """From now on folders are looked at; those of which something is pending were when they were."""
        unfinished = {*self._context.pipeline.memory.folders, *self._context.inbox.folders()}
        self._checked_ns = {folder: self._checked_ns.get(folder, self._begun_ns) for folder in unfinished}
        self._begun_ns = time.time_ns()

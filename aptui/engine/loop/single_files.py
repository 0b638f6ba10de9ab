"""Single files: a known file is checked by itself, without its neighbours.

That is enough where nothing but the file can be other than it was: it lies where it was remembered, spelled so, it is the
only one of its name, and no rule joins it with its neighbours. All else is left to a look at the whole folder. The folder's
row is not saved then; it follows when the folder is looked at as a whole, at rest. A crash before that makes the next start
find the file changed, and current.

Tests: `tests/engine/live/test_single_files.py`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from aptui.core.identity import META_SUFFIX
from aptui.core.model import FileFact, PathKey
from aptui.core.overrides import has_own_identity
from aptui.core.paths import from_text
from aptui.core.settings import file_key

if TYPE_CHECKING:
    from aptui.core.state.pending import PendingFolder
    from aptui.core.state.working_set import Parts, WorkingSet
    from aptui.engine.loop.context import EngineContext
    from aptui.engine.scan.freshness import FreshReads
    from aptui.engine.scan.walk import Digests
    from aptui.store.db.last_run import FolderArchive

_AT_MOST = 16
"""For more files of one folder, listing it costs less."""


class SingleFiles:
    """Looks at files by themselves.

    Args:
        context: of the engine.
        is_own: whether a file is aptui's own now.
    """

    def __init__(self, context: EngineContext, is_own: Callable[[bytes, os.stat_result], bool]) -> None:
        self._context, self._is_own = context, is_own
        self._watched = [folder for folder in context.project.scan_folders if not folder.is_intermediate]

    def check(self, folder: str, named: Mapping[PathKey, bytes]) -> tuple[FileFact, ...] | None:
        """Return what these files of a relative folder (lower case) are now; None: the folder has to be looked at as a whole."""
        context = self._context
        if len(named) > _AT_MOST or folder in context.pipeline.memory.folders or context.inbox.names_folder(folder):
            return None
        facts: list[FileFact] = []
        for key, path in named.items():
            fact = None if self._has_company(folder, key) else self._check_file(key, path)
            if fact is None:
                return None
            facts.append(fact)
        return tuple(facts)

    def _has_company(self, folder: str, key: PathKey) -> bool:
        """Whether what the file says concerns others of its folder, or the other way round."""
        return META_SUFFIX in key or key == file_key(folder) or has_own_identity(key, self._context.project.metadata_types)

    def _check_file(self, key: PathKey, path: bytes) -> FileFact | None:
        found = self._context.archive.folders.variants(key)
        if len(found) != 1:
            return None
        known = found[0]
        holders = [root for root in self._watched if self._is_there(root.path, known)]
        if len(holders) != 1 or holders[0].id != known.scan_folder:
            return None  # in another scan folder there is one too, of which nobody has heard yet
        if from_text(f"{holders[0].path}/{known.rel}") != path:
            return None  # it is another file, whose name differs in case
        try:
            now = os.lstat(path)
        except OSError:
            return None
        if self._is_own(path, now):
            return None  # it is no longer a source
        if now.st_nlink > 1:
            return None  # its other names are found out with its folder
        if not stat.S_ISREG(now.st_mode):
            return None  # of a link it is to be known where it leads, which is found out with its folder
        return FileFact(known.scan_folder, known.rel, now.st_size, now.st_mtime_ns, now.st_ctime_ns, now.st_ino)

    def _is_there(self, root: str, known: FileFact) -> bool:
        return root == self._context.roots.get(known.scan_folder) or os.path.lexists(from_text(f"{root}/{known.rel}"))


class RememberedFiles:
    """What the scanner is told of folders: their rows, or what is pending of them, with single files as they are now.

    Args:
        archive: has the rows.
        memory: knows what is pending.
        to_save: makes of what is pending of a folder the rows that would be saved of it.
        fresh: files that have to be read again, whatever their times say.
    """

    def __init__(
        self, archive: FolderArchive, memory: WorkingSet, to_save: Callable[[PendingFolder], Parts], fresh: FreshReads
    ) -> None:
        self._archive, self._memory, self._to_save, self._fresh = archive, memory, to_save, fresh

    def folder_digests(self) -> Digests:
        """Return what each relative folder looked like."""
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
    """Return a folder's digest and files such that the next scan reads again what was read too soon after its last change."""
    if folder not in fresh.folders or not any(map(fresh.holds, facts)):
        return digest, facts
    return b"", [replace(fact, mtime_ns=0) if fresh.holds(fact) else fact for fact in facts]


def _newest(fact: FileFact, extra: Mapping[PathKey, FileFact]) -> FileFact:
    now = extra.get(fact.key)
    same_place = now is not None and (now.scan_folder, now.rel) == (fact.scan_folder, fact.rel)
    return replace(now, is_duplicate=fact.is_duplicate) if now is not None and same_place else fact

"""The scan: walks the union of the scan folders and says what differs from what is remembered. It decides nothing about jobs.

One relative folder (compared in lower case) is looked at at a time, over all scan folders, so that when a file is met it is known which
scan folder wins its path and whether another file differs from it only in case. A folder whose entries all have the size, times and inode
that are remembered costs one comparison and no object per file.

Links to folders are not followed, links to files are read. What another scan folder owns is left to it: a scan folder that stands earlier
in the order owns all it contains (a non-recursive one: its direct files), and the cache and log folders are never walked.
"""

from __future__ import annotations

import hashlib
import marshal
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from aptui.core.errors import HostError
from aptui.core.messages import FolderSeen, FoldersKept
from aptui.core.model import FileFact, PathKey, Project, RelPath, ScanFolder
from aptui.core.paths import key_of, merge_folder, to_text
from aptui.core.patterns import ignore_matcher

_FOLDERS_PER_STEP = 64
_FILES_PER_STEP = 512
RACY_NS = 2_000_000_000
"""A file changed this recently may change again within the same tick of a coarse clock: it is read again next time
(design/reliability.md §2.5)."""

_TYPE_BITS, _REGULAR = 0o170000, stat.S_IFREG

Entry = tuple[str, int, int, int, int]
"""(name, size, mtime_ns, ctime_ns, inode)."""


class Remembered(Protocol):
    """What the scanner asks of the folder table."""

    def folder_digests(self) -> Mapping[str, Sequence[tuple[int, bytes]]]:
        """Return {relative folder in lower case: ((scan folder id, digest), ...)}."""
        ...

    def folder_parts(self, folder: str) -> Mapping[int, tuple[bytes, Sequence[FileFact]]]:
        """Return {scan folder id: (digest, its files)} of this relative folder."""
        ...


@dataclass(slots=True)
class _Part:
    """One real folder: `rel` is its relative path in real case, "" = the scan folder itself."""

    scan_folder: ScanFolder
    rel: str
    path: str
    is_bare: bool = False
    """Whether its direct files belong to another scan folder, a non-recursive one that stands earlier."""


class Scanner:
    """One scan. Iterate over `steps`; each answers with the events of a slice of work.

    Args:
        project: scan folders and ignore rules.
        remembered: what the last scan left.
        never: absolute folders that are not walked (cache, logs).
        next_seq: gives each event its number.
        say: receives a sentence for people (a link that is not followed, a folder that cannot be read).
        is_full: trust no remembered digest.
        reassess: report every file, changed or not (the configuration changed).
    """

    def __init__(
        self,
        project: Project,
        remembered: Remembered,
        never: Sequence[str],
        next_seq: Callable[[], int],
        say: Callable[[str], None],
        *,
        is_full: bool,
        reassess: bool,
    ) -> None:
        self._folders = project.scan_folders
        self._rank = {folder.id: rank for rank, folder in enumerate(project.scan_folders)}
        self._remembered = remembered
        self._is_ignored = ignore_matcher(project.ignore_regex)
        self._never = frozenset(never)
        self._next_seq = next_seq
        self._say = say
        self._is_full = is_full
        self._reassess = reassess
        owned = {folder.id: _owned_elsewhere(folder, project.scan_folders) for folder in project.scan_folders}
        self._owned_elsewhere = {scan_folder: whole for scan_folder, (whole, _files) in owned.items()}
        self._files_elsewhere = {scan_folder: files for scan_folder, (_whole, files) in owned.items()}
        self.files_seen = 0

    def steps(self) -> Iterator[list[FolderSeen | FoldersKept]]:
        """Walk; yield the events of one slice after the other, and at the end those of folders that are no more."""
        digests = self._remembered.folder_digests()
        seen: set[str] = set()
        todo = [("", self._roots())]
        events: list[FolderSeen | FoldersKept] = []
        kept: list[str] = []
        changed_count = 0
        while todo:
            folder, parts = todo.pop()
            seen.add(folder)
            entries, below = self._list(parts)
            todo.extend(sorted(below.items(), reverse=True))
            event = self._compare(folder, parts, entries, digests.get(folder, ()))
            if event is None:
                kept.append(folder)
            else:
                events.append(event)
                changed_count += len(event.facts) + 1
            if len(kept) >= _FOLDERS_PER_STEP or changed_count >= _FILES_PER_STEP:
                yield self._slice(events, kept)
                events, kept, changed_count = [], [], 0
        for folder in sorted(digests.keys() - seen):
            events.append(self._vanished(folder))
        yield self._slice(events, kept)

    def _slice(self, events: list[FolderSeen | FoldersKept], kept: list[str]) -> list[FolderSeen | FoldersKept]:
        return [FoldersKept(self._next_seq(), tuple(kept)), *events] if kept else events

    def _roots(self) -> list[_Part]:
        roots = []
        for folder in self._folders:
            if not os.path.isdir(folder.path):
                raise HostError(f"scan folder '{folder.path}' is not there", hint="mount it, or take it out of the configuration")
            if not _is_inside_earlier(folder, self._folders):
                roots.append(_Part(folder, "", folder.path))
        return roots

    # ---------------------------------------------------------------------------------------------------------------- list

    def _list(self, parts: list[_Part]) -> tuple[list[tuple[_Part, list[Entry]]], dict[str, list[_Part]]]:
        """Return the regular files of each part, and the folders below by lower-case relative path."""
        entries: list[tuple[_Part, list[Entry]]] = []
        below: dict[str, list[_Part]] = {}
        for part in parts:
            files: list[Entry] = []
            try:
                with os.scandir(part.path) as found:
                    for entry in found:
                        if entry.is_dir(follow_symlinks=False):
                            self._enter(part, entry.name, entry.path, below)
                            continue
                        if part.is_bare:
                            continue
                        try:
                            seen = entry.stat()
                        except OSError:
                            self._explain(entry)
                            continue
                        if seen.st_mode & _TYPE_BITS == _REGULAR:
                            files.append((entry.name, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns, seen.st_ino))
                        elif stat.S_ISDIR(seen.st_mode):
                            self._say(f"link to a folder '{entry.path}' is not followed")
            except OSError as error:
                self._say(f"folder '{part.path}' cannot be read: {error.strerror}; its files count as gone")
            files.sort()
            self.files_seen += len(files)
            entries.append((part, files))
        return entries, below

    def _enter(self, part: _Part, name: str, path: str, below: dict[str, list[_Part]]) -> None:
        if not part.scan_folder.recursive or path in self._never or path in self._owned_elsewhere[part.scan_folder.id]:
            return
        rel = f"{part.rel}/{_text(name)}" if part.rel else _text(name)
        if not self._is_ignored(rel):
            is_bare = path in self._files_elsewhere[part.scan_folder.id]
            below.setdefault(key_of(RelPath(rel)), []).append(_Part(part.scan_folder, rel, path, is_bare))

    def _explain(self, entry: os.DirEntry[str]) -> None:
        if entry.is_symlink():
            self._say(f"link '{entry.path}' leads nowhere; it is not looked at")

    # ------------------------------------------------------------------------------------------------------------- compare

    def _compare(
        self, folder: str, parts: list[_Part], entries: list[tuple[_Part, list[Entry]]], known: Sequence[tuple[int, bytes]]
    ) -> FolderSeen | None:
        digests = self._digests(entries)
        if not (self._is_full or self._reassess) and dict(known) == digests:
            return None
        return self._report(folder, entries, digests)

    @staticmethod
    def _digests(entries: list[tuple[_Part, list[Entry]]]) -> dict[int, bytes]:
        digests: dict[int, bytes] = {}
        for part, files in entries:
            if files:
                old = digests.get(part.scan_folder.id, b"")
                digests[part.scan_folder.id] = hashlib.blake2b(old + marshal.dumps((part.rel, files)), digest_size=16).digest()
        return digests

    def _report(
        self, folder: str, entries: list[tuple[_Part, list[Entry]]], digests: dict[int, bytes], again: frozenset[PathKey] | None = None
    ) -> FolderSeen | None:
        """Say how the folder differs from what is remembered; with `again`, these files must be read anew and the answer is never None."""
        before = {part: facts for part, (_digest, facts) in self._remembered.folder_parts(folder).items()}
        old = {
            (scan_folder, fact.rel): fact
            for scan_folder, facts in before.items()
            for fact in facts
            if not again or key_of(fact.rel) not in again
        }
        facts_of: dict[int, list[FileFact]] = {}
        for part, files in entries:
            facts_of.setdefault(part.scan_folder.id, []).extend(self._facts(part, files, old))
        if again is None and not before and not any(facts_of.values()):
            return None
        was, was_clashing = self._merge(before)
        now, clashing = self._merge(facts_of)
        changed = tuple(fact for key, fact in now.items() if self._is_reported(was.get(key), fact, again, key))
        gone = {*was.keys(), *(PathKey(fact.rel) for fact, _others in was_clashing)}
        gone -= {*now.keys(), *(PathKey(fact.rel) for fact, _others in clashing)}
        gone |= {key_of(fact.rel) for fact, _others in clashing if key_of(fact.rel) in was}
        rows = tuple((scan_folder, digests.get(scan_folder, b""), tuple(facts)) for scan_folder, facts in facts_of.items())
        return FolderSeen(self._next_seq(), folder, changed, tuple(sorted(gone)), tuple(clashing), rows)

    def _merge(self, parts: Mapping[int, Sequence[FileFact]]) -> tuple[dict[PathKey, FileFact], list[tuple[FileFact, tuple[RelPath, ...]]]]:
        last = len(self._rank)
        return merge_folder([parts[scan_folder] for scan_folder in sorted(parts, key=lambda item: self._rank.get(item, last))])

    def _facts(self, part: _Part, files: list[Entry], old: Mapping[tuple[int, RelPath], FileFact]) -> Iterator[FileFact]:
        prefix, scan_folder = (f"{part.rel}/" if part.rel else ""), part.scan_folder.id
        for name, size, mtime_ns, ctime_ns, inode in files:
            rel = RelPath(prefix + _text(name))
            if self._is_ignored(rel):
                continue
            known = old.get((scan_folder, rel))
            is_same = known is not None and (known.size, known.mtime_ns, known.ctime_ns, known.inode) == (size, mtime_ns, ctime_ns, inode)
            if is_same and known is not None and not (self._is_full and known.digest):
                yield known
            else:
                yield FileFact(scan_folder, rel, size, mtime_ns, ctime_ns, inode)

    def _is_reported(self, old: FileFact | None, new: FileFact, again: frozenset[PathKey] | None, key: PathKey) -> bool:
        return self._reassess or self._is_full or _differs(old, new) or (again is not None and key in again)

    def look_at(self, folder: str, again: frozenset[PathKey]) -> FolderSeen:
        """Look at one relative folder (lower case) now, and at the files `again` in it as if nothing were remembered of them."""
        parts = self._roots()
        for name in folder.split("/") if folder else ():
            parts = [part for part in self._below(parts) if part.rel.rpartition("/")[2].lower() == name]
        entries, _below = self._list(parts)
        event = self._report(folder, entries, self._digests(entries), again)
        assert event is not None
        return event

    def _below(self, parts: list[_Part]) -> list[_Part]:
        _entries, below = self._list(parts)
        return [part for found in below.values() for part in found]

    def _vanished(self, folder: str) -> FolderSeen:
        before = {part: facts for part, (_digest, facts) in self._remembered.folder_parts(folder).items()}
        was, clashing = self._merge(before)
        gone = {*was.keys(), *(PathKey(fact.rel) for fact, _others in clashing)}
        return FolderSeen(self._next_seq(), folder, (), tuple(sorted(gone)), (), ())


def _differs(old: FileFact | None, new: FileFact) -> bool:
    if old is None:
        return True
    return (old.scan_folder, old.rel, old.size, old.mtime_ns, old.ctime_ns, old.inode) != (
        new.scan_folder,
        new.rel,
        new.size,
        new.mtime_ns,
        new.ctime_ns,
        new.inode,
    )


def _text(name: str) -> str:
    return name if name.isascii() else to_text(os.fsencode(name))


def _bytes(rel: str) -> bytes:
    from aptui.core.paths import from_text

    return from_text(rel)


def _owned_elsewhere(folder: ScanFolder, folders: Sequence[ScanFolder]) -> tuple[frozenset[str], frozenset[str]]:
    """Return the paths below `folder` that the walk of it must not enter, and those whose direct files it must leave alone: scan folders
    that stand earlier, the second kind those that are not recursive.
    """
    earlier = [other for other in folders[: folders.index(folder)] if other.path.startswith(folder.path + "/")]
    return frozenset(other.path for other in earlier if other.recursive), frozenset(other.path for other in earlier if not other.recursive)


def _is_inside_earlier(folder: ScanFolder, folders: Sequence[ScanFolder]) -> bool:
    """Whether a recursive scan folder that stands earlier contains all of `folder`."""
    earlier = folders[: folders.index(folder)]
    return any(other.recursive and (folder.path == other.path or folder.path.startswith(other.path + "/")) for other in earlier)

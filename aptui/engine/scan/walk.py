"""The walk over the union of the scan folders, one relative folder (in lower case) at a time.

`scanner` compares the files with the stored state.

Links to folders are not followed, links to files are read. Each file belongs to one scan folder: a scan folder that is earlier in
the order owns all files in it, or only its direct files if it is not recursive. aptui's own files are left out.

Runs that find nothing to do import this module too, so its import must be fast.

Tests: `tests/engine/scan/test_up_to_date.py`.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import marshal
import math
import os
import stat
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Protocol

from msgspec import Struct

from aptui.config.dirs import OWN_FOLDER
from aptui.config.own_files import OwnFiles
from aptui.core.model import FileFact, RelPath
from aptui.core.paths import as_text, key_of, os_path, parent, to_text
from aptui.core.patterns import ignore_matcher
from aptui.core.project import Project, ScanFolder
from aptui.shared.errors import HostError
from aptui.shared.files.clocks import RACY_NS
from aptui.shared.files.confinement import ConfinedTree

# The guard of the walk: if a scan folder is suddenly empty, or on another device, the state of its files counts as unknown, not as
# deleted.
#
# A share that is not mounted leaves an empty folder. If its files counted as deleted, all their products would be lost. So an
# engine checks each scan folder at its start, and when another folder appears at the path of a scan folder. It refuses to scan a
# new folder that is empty, that is on another device and lacks most entries, or that lacks more than half of the stored files (if
# these are at least `MANY_FILES`). If the folder is still the same (device and inode, on a disk of this machine), its files were
# really deleted: a checkout of another branch needs no confirmation. With `accept` a user confirms that the contents of the folder
# are right.

ROOTS_STATE = "roots"
"""Key in aptui_state: {name of a scan folder: [device, inode]}, saved when no work was pending."""
MANY_FILES = 1_000
"""Minimum number of stored files of a scan folder for which a new folder at its path must have at least half of them."""
_ACCEPTED = "accepted-folders.json"
_ACCEPTED_FILE = f"{OWN_FOLDER}/{_ACCEPTED}".encode()
_OF_FILE_SYSTEMS = frozenset((b"lost+found", b".snapshot"))
Identity = tuple[int, int]
"""(device, inode) of a folder."""


Digests = Mapping[str, Sequence[tuple[int, bytes]]]
"""The stored digests of folders: {relative folder in lower case: one pair (scan folder id, digest) for each scan folder}."""


class RememberedFolders(Protocol):
    """Queries about stored folders."""

    def folder_digests(self) -> Digests:
        """Return the stored digests of each relative folder."""

    def folder_parts(self, folder: str) -> Mapping[int, tuple[bytes, Sequence[FileFact]]]:
        """Return {scan folder id: (digest, its files)} of a relative folder."""


class RootGuard:
    """Checks each scan folder before it is walked.

    Args:
        own: the folder `.aptui` of the cache, where the file with accepted scan folders is stored.
        known: the value of `ROOTS_STATE`.
    """

    def __init__(self, own: str, known: str = "") -> None:
        self._own = own
        self._known: dict[str, Identity] = {name: (pair[0], pair[1]) for name, pair in json.loads(known or "{}").items()}
        self._trusted: dict[str, Identity] = {}

    def check(self, folder: ScanFolder, remembered: Callable[[], RememberedFolders]) -> None:
        """Check that the contents of a scan folder may be trusted.

        Raises:
            HostError: the contents may not be trusted, so the state of the files is unknown.
        """
        now = _identity(folder.path)
        if self._trusted.get(folder.name) == now:
            return
        problem = self._problem(folder, now, remembered)
        if problem and tuple(_read_accepted(self._own).get(folder.name, ())) != now:
            hint = f"mount the folder again; if the files were removed on purpose, run 'aptui batch --accept-empty {folder.name}'"
            raise HostError(f"scan folder '{folder.path}' {problem}; no products are deleted", hint=hint)
        self._trusted[folder.name] = now

    def _problem(self, folder: ScanFolder, now: Identity, remembered: Callable[[], RememberedFolders]) -> str:
        """Return why the contents of a scan folder may not be trusted, "" if they may."""
        names = _names(folder.path)
        known = self._trusted.get(folder.name) or self._known.get(folder.name)
        if names is None or (names and known in {None, now}):
            return ""  # if the folder cannot be read, `walk` reports that, folder by folder
        if not names and known == now and _is_local(folder.path):
            return ""
        before = _top_names(remembered(), folder.id)
        if not names:
            return f"is empty, but had {len(before)} {'entry' if len(before) == 1 else 'entries'}" if before else ""
        there = before.intersection(names)
        if known is not None and known[0] != now[0] and 2 * len(there) < len(before):
            return f"is on another device than before, and has only {len(there)} of its {len(before)} entries"
        count, missing = _count_missing(remembered(), folder)
        if count >= MANY_FILES and 2 * missing > count:
            return f"was replaced by another folder, which lacks {missing} of its {count} files"
        return ""

    def state(self) -> str:
        """Return the value of `ROOTS_STATE` for the next engine."""
        return json.dumps(self._known | self._trusted, sort_keys=True)


def accept(own: str, folder: ScanFolder) -> None:
    """Accept the current state of a scan folder: write it to a file that a running engine also reads.

    Raises:
        HostError: the file cannot be written.
    """
    if not os.path.isdir(own):
        return  # without a cache, no stored state can be lost
    try:
        noted = _read_accepted(own) | {folder.name: _identity(folder.path)}
        with contextlib.closing(_tree_of(own)) as tree:
            tree.write(_ACCEPTED_FILE, json.dumps(noted).encode())
    except OSError as error:
        raise HostError(
            f"the accepted scan folder cannot be recorded, because '{error.filename}' cannot be written: {error.strerror}",
            hint="check its permissions",
        ) from error


def forget_accepted(own: str) -> None:
    """Drop the user's acceptance of an empty scan folder after it was processed.

    If the folder is empty again later, the user has to accept that again.
    """
    with contextlib.suppress(OSError), contextlib.closing(_tree_of(own)) as tree:
        tree.unlink(_ACCEPTED_FILE)


def _tree_of(own: str) -> ConfinedTree:
    """Return the cache folder that contains a folder `.aptui`, which may be a link if another program made the cache."""
    return ConfinedTree(os.fsencode(os.path.dirname(own)))


def _read_accepted(own: str) -> dict[str, Identity]:
    try:
        with open(os.path.join(own, _ACCEPTED), encoding="utf-8") as file:
            return {name: (pair[0], pair[1]) for name, pair in json.load(file).items()}
    except (OSError, ValueError):
        return {}


def _identity(path: str) -> Identity:
    try:
        seen = os.stat(path)
    except OSError:
        return (0, 0)
    return seen.st_dev, seen.st_ino


def _is_local(path: str) -> bool:
    """Whether a folder is on a file system with stable inode numbers. On file servers and FUSE, inode numbers may change."""
    from aptui.engine.watch import limits

    kind = limits.kind_of(os.fsencode(os.path.realpath(path)), limits.mounts(limits.mountinfo()))
    return kind in limits.NATIVE_KINDS | limits.OVERLAY_KINDS


def _names(path: str) -> frozenset[str] | None:
    """Return the keys of the names directly in a folder (`core.paths.key_of`), None if the folder cannot be read."""
    try:
        found = os.listdir(os.fsencode(path))
    except OSError:
        return None
    return frozenset(str(key_of(to_text(name))) for name in found if name not in _OF_FILE_SYSTEMS)


def _count_missing(remembered: RememberedFolders, folder: ScanFolder) -> tuple[int, int]:
    """Return the number of stored files of a scan folder, and the number of these files that are missing."""
    count = missing = 0
    present: dict[str, frozenset[str]] = {}
    for below, parts in remembered.folder_digests().items():
        if not any(part == folder.id for part, _digest in parts):
            continue
        _digest, files = remembered.folder_parts(below).get(folder.id, (b"", ()))
        for fact in files:
            place = parent(fact.rel)
            if place not in present:
                present[place] = _names(f"{folder.path}/{os_path(place)}") or frozenset()
            count += 1
            missing += str(key_of(fact.rel)).rpartition("/")[2] not in present[place]
    return count, missing


def _top_names(remembered: RememberedFolders, scan_folder: int) -> frozenset[str]:
    """Return the names, in lower case, of the stored files and folders directly in a scan folder."""
    folders = {
        folder.partition("/")[0]
        for folder, parts in remembered.folder_digests().items()
        if folder and any(part == scan_folder for part, _digest in parts)
    }
    _digest, files = remembered.folder_parts("").get(scan_folder, (b"", ()))
    return frozenset(folders | {str(key_of(fact.rel)) for fact in files})


# Other names of files in scan folders: links, where they lead, and hard links. A change of a file under one of its names is a
# change under all its names.
#
# A notification has the path that a program wrote to. If this path is outside the scan folders, the engine gets no notification.
#
# Runs that find nothing to do import this module too, so its import must be fast.

_STEPS_AT_MOST = 40
"""Maximum number of links in a chain of links to links; Linux has the same limit."""
_ROUND_S = 1.0
_PACE = 50
"""Minimum pause between checks of linked files, as a multiple of the duration of the last check.

Checks take at most 1/50 of the time.
"""
_CHECKED_TOGETHER = 500
"""Maximum number of files checked at a time (about 1 ms), so that clients do not wait."""
_Stamp = tuple[int, ...]
"""(size, mtime_ns, ctime_ns, inode); () = the file does not exist."""
Ways = Mapping[str, tuple[str, ...]]
"""{link: the chain of paths that it leads to}; each path in the chain but the last one is a link to the next path."""


class FileLinks:
    """The links that the walk found, by folder."""

    def __init__(self) -> None:
        self.ways: dict[str, Ways] = {}
        """{absolute folder: its links}."""
        self.shared: dict[str, Collection[str]] = {}
        """{absolute folder: names of its shared files}, which are links and files with several hard links."""
        self._sorted: list[tuple[bytes, bytes]] | None = None

    def note(self, folder: str, ways: Ways, shared: Collection[str]) -> None:
        """Record the present links of a folder, and its files that have a second name in any folder."""
        if shared:
            self.shared[folder] = shared
        else:
            self.shared.pop(folder, None)
        if self.ways.get(folder, {}) == ways:
            return
        self._sorted = None
        if ways:
            self.ways[folder] = ways
        else:
            del self.ways[folder]

    def leading_to(self, path: bytes) -> list[bytes]:
        """Return the links that lead to a file, or to anything below a folder."""
        if not self.ways:
            return []
        if self._sorted is None:
            ways = [item for found in self.ways.values() for item in found.items()]
            self._sorted = sorted((os.fsencode(place), os.fsencode(link)) for link, places in ways for place in places)
        folder, name = os.path.split(path)
        real = os.path.join(os.path.realpath(folder), name)
        exact = self._between((real, b""), (real + b"\0", b""))
        # the byte `0` follows the byte `/`, so all paths below `folder/` sort before `folder0`
        return [*exact, *self._between((real + b"/", b""), (real + b"0", b""))]

    def _between(self, first: tuple[bytes, bytes], end: tuple[bytes, bytes]) -> list[bytes]:
        known = self._sorted or []
        return [link for _place, link in known[bisect_left(known, first) : bisect_left(known, end)]]


class SharedFiles:
    """Checks the shared files by `stat` while an engine runs: files that have a second name in any folder.

    A round checks every shared file once. It begins at least a second after the previous round, and checks take at most 1/50 of the
    time.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._began_ns = time.time_ns()
        self._stamps: dict[str, _Stamp] = {}
        self._waiting: deque[str] = deque()
        self._round_s = self._due_s = 0.0

    def next_deadline(self, links: FileLinks) -> float:
        """Return the monotonic time of the next check by `poll`; infinity if no file has a second name."""
        return self._due_s if links.shared else math.inf

    def poll(self, links: FileLinks, now_s: float) -> list[bytes]:
        """Check some of the shared files if the check is due; return the paths of changed files."""
        if now_s < self.next_deadline(links):
            return []
        if not self._waiting:
            self._begin_round(links, now_s)
        found = self._check(min(len(self._waiting), _CHECKED_TOGETHER))
        rest_s = _PACE * (self._clock() - now_s)
        self._due_s = now_s + rest_s if self._waiting else max(now_s + rest_s, self._round_s + _ROUND_S)
        return found

    def check_all(self, links: FileLinks) -> list[bytes]:
        """Check all shared files; return the paths of changed files."""
        self._begin_round(links, self._clock())
        return self._check(len(self._waiting))

    def _begin_round(self, links: FileLinks, now_s: float) -> None:
        self._round_s = now_s
        self._waiting = deque(os.path.join(folder, name) for folder, names in links.shared.items() for name in names)
        self._stamps = {path: stamp for path in self._waiting if (stamp := self._stamps.get(path)) is not None}

    def _check(self, count: int) -> list[bytes]:
        found = []
        for _ in range(count):
            path = self._waiting.popleft()
            stamp, before = stamp_of(path), self._stamps.get(path)
            self._stamps[path] = stamp
            # A file without an earlier stamp was found by the last scan. Its times show whether it may have changed since then.
            if stamp != before and (before is not None or max(stamp[1:3], default=0) >= self._began_ns - RACY_NS):
                found.append(os.fsencode(path))
        return found


def stamp_of(path: str) -> _Stamp:
    """Return the stamp of a file, () if it does not exist."""
    try:
        found = os.stat(path)
    except OSError:
        return ()
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino


def way_of(link: str, real: str) -> tuple[str, ...]:
    """Return the chain of paths to which a link leads; `real` is the last path."""
    places = [real]
    with suppress(OSError):  # the path was deleted, or is no longer a link: the watcher reports that
        while len(places) < _STEPS_AT_MOST and os.path.islink(link := os.path.join(os.path.dirname(link), os.readlink(link))):
            folder, name = os.path.split(link)
            places.append(os.path.join(os.path.realpath(folder), name))
    return tuple(places)


_TYPE_BITS, _REGULAR = 0o170000, stat.S_IFREG
_GONE = frozenset((errno.ENOENT, errno.ENOTDIR))
"""Error numbers of a folder or file that was deleted after its name was read.

After any other error, the state of the folder or file is unknown.
"""
_LEADS_NOWHERE = frozenset((errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG))

scandir = os.scandir
"""Function that lists all folders of sources. Tests replace it by a function that fails like a broken disk."""
Entry = tuple[str, int, int, int, int]
"""One file in a listing: (name, size, mtime_ns, ctime_ns, inode)."""


class FolderPart(Struct):
    """One real folder: `rel` is its relative path in real case, "" = the scan folder itself."""

    scan_folder: ScanFolder
    rel: str
    path: str
    is_bare: bool = False
    """Whether the direct files of this folder belong to another scan folder, which is earlier in the order and not recursive."""

    def rel_of(self, name: str) -> RelPath:
        """Return the relative path of a file or folder in this folder; `name` is a name that the operating system returned."""
        text = text_of(name)
        return RelPath(f"{self.rel}/{text}" if self.rel else text)


Below = dict[str, list[FolderPart]]
"""{relative folder in lower case: its real folders}."""


class Walk:
    """The walk through the scan folders.

    Args:
        own: recognises aptui's own files and folders, which are not sources.
        links: receives the links to files.
    """

    def __init__(
        self,
        project: Project,
        own: OwnFiles | None = None,
        links: FileLinks | None = None,
    ) -> None:
        self.check_root: Callable[[ScanFolder], None] = lambda _folder: None
        """Called with each scan folder before it is walked; raises HostError if the folder's contents may not be trusted."""
        self.links = links or FileLinks()
        self.unknown: dict[tuple[int, str], str] = {}
        """{(scan folder id, relative folder in lower case): why it cannot be read}.

        The stored states of an unreadable folder and of all folders below it stay.
        """
        self.scan_folders = project.scan_folders
        self.is_ignored = ignore_matcher(project.ignore_regex)
        self.own = own or OwnFiles()
        owned = {folder.id: _find_owned_elsewhere(folder, project.scan_folders) for folder in project.scan_folders}
        self._owned_elsewhere = {scan_folder: whole for scan_folder, (whole, _files) in owned.items()}
        self._files_elsewhere = {scan_folder: files for scan_folder, (_whole, files) in owned.items()}
        self._linked_folders = project.linked_folders
        self._allowed: tuple[str, ...] | None = None
        self.files_seen = 0
        self.sentences: list[str] = []
        """Messages for users: about a link that is not followed, or a folder that cannot be read."""

    def roots(self) -> list[FolderPart]:
        """Return the scan folders where the walk begins.

        Raises:
            HostError: a scan folder is missing; treating its files as deleted would delete all its products.
        """
        roots = []
        self.own.refresh()
        for folder in self.scan_folders:
            if folder.is_intermediate:
                if os.path.isdir(folder.path):
                    roots.append(FolderPart(folder, "", folder.path))
                continue
            if not os.path.isdir(folder.path):
                raise HostError(
                    f"scan folder '{folder.path}' does not exist", hint="mount the folder, or remove it from the configuration"
                )
            self.check_root(folder)
            if not _is_inside_earlier(folder, self.scan_folders):
                roots.append(FolderPart(folder, "", folder.path))
        return roots

    def folders(self, start: Iterable[tuple[str, list[FolderPart]]]) -> Iterator[tuple[str, list[tuple[FolderPart, list[Entry]]]]]:
        """Yield (relative folder, [(folder in one scan folder, files), ...]) for the folders `start` and all folders below them."""
        todo = list(start)
        while todo:
            folder, parts = todo.pop()
            entries, below = self.read_folders(parts)
            todo.extend(sorted(below.items(), reverse=True))
            yield folder, entries

    def read_folders(self, parts: Iterable[FolderPart]) -> tuple[list[tuple[FolderPart, list[Entry]]], Below]:
        """Return the sorted regular files of each folder in `parts`, and the folders directly below these folders."""
        entries: list[tuple[FolderPart, list[Entry]]] = []
        below: Below = {}
        own, own_names, own_inodes = self.own, self.own.names, self.own.inodes
        for part in parts:
            files: list[Entry] = []
            ways: dict[str, tuple[str, ...]] = {}
            shared: list[str] = []
            inside: Below = {}
            try:
                with scandir(part.path) as found:
                    for entry in found:
                        if entry.is_dir(follow_symlinks=False):
                            if entry.name == OWN_FOLDER and self._is_cache(part):
                                files, inside, ways, shared = [], {}, {}, []
                                break
                            self._enter(part, entry.name, entry.path, inside)
                            continue
                        if part.is_bare or (entry.is_symlink() and not self._follow(part, entry, ways)):
                            continue
                        try:
                            seen = entry.stat()
                        except OSError as error:
                            self._explain(entry, error)
                            continue
                        if seen.st_mode & _TYPE_BITS == _REGULAR:
                            may_be_own = entry.name in own_names or seen.st_ino in own_inodes
                            if may_be_own and own.is_own_file(entry.path, seen):
                                continue
                            if seen.st_nlink > 1 or (ways and entry.path in ways):
                                shared.append(entry.name)
                            files.append((entry.name, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns, seen.st_ino))
                        elif stat.S_ISDIR(seen.st_mode) and not self.own.is_own_folder(os.path.realpath(entry.path)):
                            self.sentences.append(f"'{entry.path}' is a link to a folder, so its files are not sources")
            except OSError as error:
                self._doubt(part, error)
            _merge(below, inside)
            self.links.note(part.path, ways, shared)
            files.sort()
            self.files_seen += len(files)
            entries.append((part, files))
        return entries, below

    def _follow(self, part: FolderPart, link: os.DirEntry[str], ways: dict[str, tuple[str, ...]]) -> bool:
        """Note in `ways` where a link leads; return False if the link is ignored or leads out of the allowed folders."""
        # Ignored links need no warning: an editor's lock, for example, is a link that leads nowhere.
        if self.is_ignored(part.rel_of(link.name)):
            return False
        real = os.path.realpath(link.path)
        if self._leads_out(link.path, real):
            return False
        ways[link.path] = way_of(link.path, real)
        return True

    def _leads_out(self, link: str, real: str) -> bool:
        """Whether a link leads to a file outside the allowed folders: downloaded content may contain links to private files."""
        if self._allowed is None:
            roots = (*(folder.path for folder in self.scan_folders), *self._linked_folders)
            self._allowed = tuple({f"{os.path.realpath(root).rstrip('/')}/" for root in roots})
        if real.startswith(self._allowed) or os.path.isdir(real):
            return False
        self.sentences.append(
            f"link '{link}' leads out of the scan folders, so it is not a source; add its target folder to "
            "'linked_folders' to allow it"
        )
        return True

    def folders_in(self, parts: Iterable[FolderPart]) -> Below:
        """Return the folders directly below the folders in `parts`, without checking any file."""
        below: Below = {}
        for part in parts:
            inside: Below = {}
            try:
                with scandir(part.path) as found:
                    for entry in found:
                        if entry.is_dir(follow_symlinks=False):
                            if entry.name == OWN_FOLDER and self._is_cache(part):
                                inside = {}
                                break
                            self._enter(part, entry.name, entry.path, inside)
            except OSError as error:
                self._doubt(part, error)
            _merge(below, inside)
        return below

    def _is_cache(self, part: FolderPart) -> bool:
        """Whether a folder that contains a folder `.aptui` is the cache of another project, or of an earlier configuration."""
        is_cache = bool(part.rel) and os.path.lexists(f"{part.path}/{OWN_FOLDER}/lock")
        if is_cache:
            self.sentences.append(f"'{part.path}' is a cache of aptui, so its files are not sources")
        return is_cache

    def is_unknown(self, scan_folder: int, folder: str) -> bool:
        """Whether a relative folder (lower case), or one above it, cannot be read in this scan folder."""
        while self.unknown:
            if (scan_folder, folder) in self.unknown:
                return True
            if not folder:
                break
            folder = folder.rpartition("/")[0]
        return False

    def _doubt(self, part: FolderPart, error: OSError) -> None:
        """Mark the content of a folder that cannot be read as unknown. A folder that was just deleted is not marked."""
        if error.errno in _GONE or (not part.rel and part.scan_folder.is_intermediate):
            return
        sentence = f"folder '{part.path}' cannot be read: {error.strerror}; aptui keeps the last known state of its files"
        self.unknown[part.scan_folder.id, key_of(RelPath(part.rel))] = sentence
        self.sentences.append(sentence)

    def _enter(self, part: FolderPart, name: str, path: str, below: Below) -> None:
        """Add the subfolder `name` of the folder `part` to the folders in `below`, which are walked next.

        It is not added if it is ignored, belongs to aptui or to an earlier recursive scan folder, or if `part` is in a scan folder
        that is not recursive.
        """
        if not part.scan_folder.recursive or self.own.is_own_folder(path) or path in self._owned_elsewhere[part.scan_folder.id]:
            return
        rel = part.rel_of(name)
        if not self.is_ignored(rel):
            is_bare = path in self._files_elsewhere[part.scan_folder.id]
            below.setdefault(key_of(rel), []).append(FolderPart(part.scan_folder, rel, path, is_bare))

    def _explain(self, entry: os.DirEntry[str], error: OSError) -> None:
        if error.errno not in _LEADS_NOWHERE:
            raise error
        if entry.is_symlink():
            self.sentences.append(f"link '{entry.path}' is ignored, because its target does not exist")


def _merge(below: Below, inside: Below) -> None:
    for folder, parts in inside.items():
        below.setdefault(folder, []).extend(parts)


def digests_of(entries: Iterable[tuple[FolderPart, list[Entry]]]) -> dict[int, bytes]:
    """Return {scan folder id: one digest over the names, sizes, times and inodes of its files in one relative folder}.

    Scan folders without files in this relative folder are left out.
    """
    digests: dict[int, bytes] = {}
    for part, files in entries:
        if files:
            old = digests.get(part.scan_folder.id, b"")
            digests[part.scan_folder.id] = hashlib.blake2b(old + marshal.dumps((part.rel, files)), digest_size=16).digest()
    return digests


def text_of(name: str) -> str:
    """Return the text form of a name that the operating system returned."""
    return name if name.isascii() else as_text(name)


def _find_owned_elsewhere(folder: ScanFolder, folders: Sequence[ScanFolder]) -> tuple[frozenset[str], frozenset[str]]:
    """Return the scan folders below `folder` that are earlier in the order, as (recursive folders, other folders).

    The walk of `folder` must not enter the recursive folders, and must not report the files directly in the other folders.
    """
    earlier = [other for other in folders[: folders.index(folder)] if other.path.startswith(folder.path + "/")]
    return frozenset(other.path for other in earlier if other.recursive), frozenset(
        other.path for other in earlier if not other.recursive
    )


def _is_inside_earlier(folder: ScanFolder, folders: Sequence[ScanFolder]) -> bool:
    """Whether a recursive scan folder earlier in the order contains all of `folder`."""
    earlier = folders[: folders.index(folder)]
    return any(other.recursive and (folder.path == other.path or folder.path.startswith(other.path + "/")) for other in earlier)

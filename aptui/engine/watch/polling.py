"""Polls trees for which the kernel sends no notifications, and surveys a tree before it is watched.

For each folder, the poller stores only a hash over the folder's entries: 100,000 files in 1,000 folders need about 200 kB. So the
poller knows which folder has changed, but not which file, and reports the folder.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator

from msgspec import Struct, field

from aptui.engine.watch.notifications import ALL, CONTENTS, DELETIONS, RootNotifications

_PACE = 10
"""Minimum pause after a check, as a multiple of the duration of the check."""
_RETRY_S = (1.0, 60.0)
FOREIGN_FOLDERS = 10_000
"""Maximum number of additional folders to watch because of links that lead out of a root."""


class PolledTree(Struct, frozen=True):
    """Result of the survey of a tree before it is watched.

    Args:
        folders: number of folders; each folder needs one watch.
        links: links to folders, which the library watchfiles follows.
        escape: a link that leads to more than `FOREIGN_FOLDERS` folders outside the root; b"" = no link does.
        undecodable: a folder whose name is not UTF-8; b"" = all names are UTF-8.
    """

    folders: int
    links: frozenset[bytes] = frozenset()
    escape: bytes = b""
    undecodable: bytes = b""


def survey(top: bytes, *, is_recursive: bool, is_over: Callable[[], bool]) -> PolledTree:
    """Count the folders that watchfiles, which follows links to folders, will watch for `top`.

    Args:
        top: an absolute folder.
        is_recursive: False = count only `top`.
        is_over: called at each folder; the result True ends the survey early.
    """
    if not is_recursive:
        return PolledTree(1)
    links: list[bytes] = []
    undecodable = b""
    count = 0
    for folder in _folders(top, links, is_over):
        count += 1
        if not undecodable and not _is_utf8(folder):
            undecodable = folder
    here = os.path.realpath(top)
    seen = {here}
    allowed = count + FOREIGN_FOLDERS
    for link in links:
        target = os.path.realpath(link)
        if target.startswith(here + b"/") or target in seen:
            continue
        seen.add(target)
        for _folder in _folders(target, links, is_over):
            count += 1
            if count > allowed:
                return PolledTree(count, frozenset(links), link, undecodable)
    return PolledTree(count, frozenset(links), b"", undecodable)


def undecodable_name(top: bytes, is_over: Callable[[], bool]) -> bytes:
    """Return a path below `top` whose name is not UTF-8, b"" if all paths are UTF-8.

    The library watchfiles stops sending notifications when any program opens a file with such a name.
    """
    for folder in _folders(top, [], is_over):
        try:
            names = os.listdir(folder)
        except OSError:
            continue
        for name in names:
            if not _is_utf8(name):
                return folder + b"/" + name
    return b""


def _is_utf8(path: bytes) -> bool:
    try:
        _ = path.isascii() or path.decode()
    except UnicodeDecodeError:
        return False
    return True


def _folders(top: bytes, links: list[bytes], is_over: Callable[[], bool]) -> Iterator[bytes]:
    """Yield `top` and the folders below it; links to folders are collected instead."""
    todo = [top]
    while todo and not is_over():
        folder = todo.pop()
        yield folder
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        todo.append(entry.path)
                    elif entry.is_symlink() and entry.is_dir():
                        links.append(entry.path)
        except OSError:
            continue


class ListingDifference(Struct, frozen=True):
    """Differences of two listings of a tree.

    Args:
        changed: folders whose entries differ.
        gone: deleted paths, if the listing keeps names.
        removed: deleted folders; subfolders of a deleted folder are left out.
    """

    changed: set[bytes]
    appeared: set[bytes]
    gone: set[bytes]
    removed: set[bytes]


class Listings(Struct):
    """The last listing of each folder below `top`.

    Args:
        top: an absolute folder.
        is_recursive: False = only its direct entries.
        skips: absolute folders that are not listed.
        keeps_names: True = deletions are reported by name, which needs more memory.
    """

    top: bytes
    is_recursive: bool = True
    skips: tuple[bytes, ...] = ()
    keeps_names: bool = False
    _known: dict[bytes, tuple[int, frozenset[bytes]]] = field(default_factory=dict)
    _is_new: bool = True

    def compare(self, is_over: Callable[[], bool]) -> ListingDifference:
        """List the whole tree and return its differences from the last listing; the first listing gives no difference.

        Raises:
            FileNotFoundError: the folder `top` does not exist.
        """
        os.stat(self.top)
        now: dict[bytes, tuple[int, frozenset[bytes]]] = {}
        difference = ListingDifference(set(), set(), set(), set())
        todo = [self.top]
        while todo:
            if is_over():
                return ListingDifference(set(), set(), set(), set())
            folder = todo.pop()
            below, now[folder] = self._listing(folder)
            if self.is_recursive:
                todo.extend(path for path in below if path not in self.skips)
            if not self._is_new:
                self._compare(folder, now[folder], difference)
        removed = self._known.keys() - now.keys()
        difference.removed.update(folder for folder in removed if folder.rpartition(b"/")[0] not in removed)
        if self.keeps_names:
            for folder in removed:
                difference.gone.update(folder + b"/" + name for name in self._known[folder][1])
        self._known, self._is_new = now, False
        return difference

    def _listing(self, folder: bytes) -> tuple[list[bytes], tuple[int, frozenset[bytes]]]:
        """Return the subfolders of a folder, and its listing: a hash of the entries, and their names if names are kept."""
        below: list[bytes] = []
        names: list[bytes] = []
        seen: list[tuple[object, ...]] = []
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    names.append(entry.name)
                    if entry.is_dir(follow_symlinks=False):
                        below.append(entry.path)
                        seen.append((entry.name, entry.inode()))
                    else:
                        seen.append((entry.name, *_times(entry)))
        except OSError as error:
            seen.append((b"", error.errno))
        return below, (hash(frozenset(seen)), frozenset(names) if self.keeps_names else frozenset())

    def _compare(self, folder: bytes, listing: tuple[int, frozenset[bytes]], difference: ListingDifference) -> None:
        before = self._known.get(folder)
        if before is None:
            difference.appeared.add(folder)
        elif before[0] != listing[0]:
            difference.changed.add(folder)
            difference.gone.update(folder + b"/" + name for name in before[1] - listing[1])


def _times(entry: os.DirEntry[bytes]) -> tuple[int, ...]:
    try:
        seen = entry.stat()
    except OSError:
        return ()
    return (seen.st_mtime_ns, seen.st_ctime_ns, seen.st_size, seen.st_ino)


class Poller:
    """A thread that lists one tree at intervals.

    Args:
        top: an absolute folder, the root or a mount below it.
        news: called when `is_gone` or `trouble` changed.
    """

    def __init__(self, top: bytes, notifications: RootNotifications, interval_s: float, news: Callable[[], None]) -> None:
        self.top = top
        self.is_gone = False
        self.trouble = ""
        self._notifications = notifications
        self._interval_s = interval_s
        self._news = news
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="poll", daemon=True)

    def start(self) -> None:
        """Start the thread. After the first listing it requests a check of everything, because earlier changes are unknown."""
        self._thread.start()

    def stop(self) -> None:
        """Request the end of the thread, without waiting for it."""
        self._over.set()

    def join(self, timeout_s: float) -> None:
        """Wait for the thread to end, with a timeout, because listing a dead network mount may not return."""
        self._thread.join(timeout_s)

    def _run(self) -> None:
        """List the tree again and again until `stop` is called, even after errors."""
        wait_s = _RETRY_S[0]
        while not self._over.is_set():
            try:
                self._poll()
            except Exception as error:  # noqa: BLE001  # if the thread ended, the root would be unwatched without a message
                self._set_state(trouble=f"polling failed: {error}")
                self._over.wait(wait_s)
                wait_s = min(wait_s * 2, _RETRY_S[1])

    def _poll(self) -> None:
        root, clock = self._notifications.root, self._notifications.settings.clock
        listings = Listings(self.top, root.is_recursive, root.skips, keeps_names=root.wants != ALL)
        is_new = True
        while not self._over.is_set():
            started = clock()
            try:
                difference = listings.compare(self._over.is_set)
            except FileNotFoundError:
                self._set_state(is_gone=True)
                is_new = True
                self._over.wait(self._interval_s)
                continue
            self._set_state()
            if is_new:
                self._notifications.report_loss("polling began")
            is_new = False
            self._notify(difference)
            self._over.wait(max(self._interval_s, _PACE * (clock() - started)))

    def _notify(self, difference: ListingDifference) -> None:
        if self._over.is_set():
            return
        if self._notifications.root.wants == DELETIONS:
            self._notifications.notify_gone(difference.gone)
        elif self._notifications.root.wants == CONTENTS:
            self._notifications.notify_contents(difference.gone | difference.changed | difference.appeared)
        else:
            self._notifications.notify_found(difference.changed | difference.removed, difference.appeared)

    def _set_state(self, *, is_gone: bool = False, trouble: str = "") -> None:
        """Set `is_gone` and `trouble`, and report a change of them."""
        if (self.is_gone, self.trouble) != (is_gone, trouble):
            self.is_gone, self.trouble = is_gone, trouble
            self._news()

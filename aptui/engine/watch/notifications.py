"""Notifications of the watcher: the roots, the changed paths, and for each root the notifications that are repeated or postponed.

This module sets no watches.

Three notifications are repeated. A new folder is reported at once, and again until a check of the folder has begun after its watch
was certainly active, because files that are written before that time raise no notification (notify #727). A loss of notifications
is reported at once, then at growing intervals while losses continue, because the full scan after a loss could cause the next loss.
A full scan is requested every ten minutes, even without a loss.
"""

from __future__ import annotations

import math
import os
import stat
import threading
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from msgspec import Struct

from aptui.engine.watch import limits as watch_limits
from aptui.engine.watch.limits import WatchLimits

ALL, DELETIONS, CONTENTS = "all", "deletions", "contents"
_ADDED, _DELETED = 1, 3
"""Numbers of the library watchfiles for the kinds of change "added" and "deleted".

The kind only decides whether a path is checked as a file or with everything below it; the check finds the actual change.
"""
_AGAIN_GRID_S = 0.1
"""Interval (seconds) in which new folders are collected, so that they are reported again in one notification."""
_AGAIN_MAX_S = 5.0
REGULAR = "the regular check is due"
"""Reason of the periodic scan."""


class NotifiedRoot(Struct, frozen=True):
    """A folder to watch.

    Args:
        path: absolute.
        tag: a text that the root's notifications contain.
        is_recursive: False = only direct children matter.
        wants: `"all"` changes, `"deletions"` only, or `"contents"`: deletions and changed paths, but no new folders.
        poll: None = decide by file system; True or False = forced.
        skips: absolute folders below the root whose changes are not reported (cache, logs).
    """

    path: bytes
    tag: str
    is_recursive: bool = True
    wants: str = ALL
    poll: bool | None = None
    skips: tuple[bytes, ...] = ()


class ChangeNotification(Struct, frozen=True):
    """A notification: paths of one root that have to be checked.

    Args:
        paths: absolute paths that changed. If a path is a folder, the folders below it need no check.
        trees: absolute folders to check with everything below them, because they are new or their changes are unknown.
        is_lost: some notifications are missing; everything under the root has to be checked.
        why: the reason of the loss as a sentence for users, if `is_lost`.
    """

    tag: str
    paths: frozenset[bytes]
    trees: frozenset[bytes] = frozenset()
    is_lost: bool = False
    why: str = ""


class WatchTimings(Struct, frozen=True):
    """Times of the watcher, and sources of facts about this machine.

    Args:
        step_ms: interval of reading notifications if the kernel cannot signal them.
        beat_s: interval at which the idle watching thread wakes up.
        poll_interval_s: minimum time between two checks of a polled root; the pause is also at least ten times the duration of a
            check.
        overlay_interval_s: minimum time between two checks of an overlay, whose upper layer is watched.
        heartbeat_gap_s: delay of a wake-up (seconds) after which notifications may be lost, because the process was stopped or got
            no processor time.
        recheck_s: time until a new folder is reported again.
        rescan_backoff_s: shortest and longest interval between reported losses of one root.
        root_check_every_s: interval of checks whether a root is still the same folder.
        limits_check_every_s: time after which the watches are counted again, if folders appeared or disappeared. After new
            folders they may be counted sooner.
        retry_native_s: how long a root that could not be watched is polled before watching is tried again.
        retry_names_s: the first retry time for a root that is polled because a name is not UTF-8; the user may rename that file
            soon.
        failures_before_polling: failures of watching in a row before a root is polled.
        cookie_folder: an absolute folder in which files are made to learn when all earlier notifications have been handled
            (`watch.watcher.SyncCookie`).
        watch_count: returns the number of watches of an inotify descriptor.
    """

    step_ms: int = 3
    beat_s: float = 0.2
    poll_interval_s: float = 1.0
    overlay_interval_s: float = 30.0
    heartbeat_gap_s: float = 1.0
    recheck_s: float = 0.3
    rescan_every_s: float = 600.0
    rescan_backoff_s: tuple[float, float] = (0.1, 60.0)
    root_check_every_s: float = 1.0
    limits_check_every_s: float = 60.0
    retry_native_s: float = 600.0
    retry_names_s: float = 10.0
    failures_before_polling: int = 4
    cookie_folder: bytes = b""
    clock: Callable[[], float] = time.monotonic
    limits: Callable[[], WatchLimits] = watch_limits.limits
    mountinfo: Callable[[], bytes] = watch_limits.mountinfo
    watch_count: Callable[[int], int] = watch_limits.watch_count


Notify = Callable[[ChangeNotification], None]


class _Young(Struct):
    """A new folder whose watch may not have been active yet when the folder was last reported."""

    due: float
    wait_s: float


class _Losses(Struct):
    """When the engine may next be asked for a full check after lost notifications, and why a check is needed (`why`)."""

    wait_s: float
    free_at: float = 0.0
    last: float = 0.0
    why: str = ""


@dataclass(slots=True)
class RootNotifications:
    """The notifications of one root. Any thread may call its methods; they call `notify` without the lock."""

    root: NotifiedRoot
    settings: WatchTimings
    notify: Notify
    is_structure_changed: bool = False
    """Whether folders may have appeared or disappeared since the watches were last counted; the count resets this flag."""
    has_grown: bool = False
    """Whether folders appeared since the watches were last counted. Only set for a root that does not report new folders."""
    _young: dict[bytes, _Young] = field(default_factory=dict)
    _losses: _Losses = field(init=False)
    _rescan_at: float = field(init=False)
    _changed_at: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _real: bytes = field(init=False)
    _below_skips: tuple[bytes, ...] = field(init=False)

    def __post_init__(self) -> None:
        self._losses = _Losses(self.settings.rescan_backoff_s[0])
        self._rescan_at = self.settings.clock() + self.settings.rescan_every_s
        self._real = os.path.realpath(self.root.path)
        self._below_skips = tuple(skip.rstrip(b"/") + b"/" for skip in self.root.skips)

    def begin(self) -> None:
        """Note the real path of the root, which may be a link."""
        self._real = os.path.realpath(self.root.path)

    def has_young(self) -> bool:
        """Whether any new folder still has to be reported a second time."""
        return bool(self._young)

    def note_changes(self, changes: Collection[tuple[int, str]]) -> None:
        """Handle the changes that watchfiles reported."""
        if self.root.wants != ALL:
            self._note_structure(changes)
        if self.root.wants == DELETIONS:
            self.notify_gone(os.fsencode(path) for kind, path in changes if kind == _DELETED)
            return
        if self.root.wants == CONTENTS:
            self.notify_contents(os.fsencode(path) for _kind, path in changes)
            return
        paths: set[bytes] = set()
        trees: set[bytes] = set()
        places: dict[bytes, bytes | None] = {}
        for kind, text in changes:
            path = self._place_path(os.fsencode(text), places)
            if path is None or self._is_skipped(path):
                continue
            if kind == _ADDED and self.root.is_recursive and _is_folder(path):
                trees.add(path)
            else:
                paths.add(path)
                self.is_structure_changed = self.is_structure_changed or kind == _DELETED
        self.notify_found(paths, trees)

    def _note_structure(self, changes: Collection[tuple[int, str]]) -> None:
        """Record whether folders appeared or disappeared, in a root that does not report new folders."""
        if not self.has_grown:
            self.has_grown = any(kind == _ADDED and _is_folder(os.fsencode(path)) for kind, path in changes)
        is_changed = self.has_grown or any(kind == _DELETED for kind, _path in changes)
        self.is_structure_changed = self.is_structure_changed or is_changed

    def notify_found(self, paths: set[bytes], trees: set[bytes]) -> None:
        """Report changed paths and new folders (`trees`).

        Each new folder is reported a second time after a delay, because its watch may not be active yet.
        """
        if not paths and not trees:
            return
        now = self.settings.clock()
        with self._lock:
            self._changed_at = now
            for tree in trees:
                self.is_structure_changed = True
                self._young[tree] = _Young(_on_grid(now + self.settings.recheck_s), self.settings.recheck_s)
        self.notify(_notification(self.root.tag, paths, trees))

    def notify_gone(self, paths: Iterable[bytes]) -> None:
        """Report the paths among `paths` that do not exist."""
        gone = frozenset(path for path in paths if not self._is_skipped(path) and not os.path.lexists(path))
        if gone:
            self.notify(ChangeNotification(self.root.tag, gone))

    def notify_contents(self, paths: Iterable[bytes]) -> None:
        """Report paths that changed or were deleted."""
        changed = frozenset(path for path in paths if not self._is_skipped(path))
        if changed:
            self.notify(ChangeNotification(self.root.tag, changed))

    def report_loss(self, why: str) -> None:
        """Report a loss of notifications, at once or when the minimum interval since the last loss has passed."""
        with self._lock:
            self._losses.why = why
        self.notify_due()

    def notify_loss(self) -> None:
        """Report a postponed loss of notifications now, although the minimum interval has not passed."""
        with self._lock:
            self._losses.free_at = 0.0
        self.notify_due()

    def notify_due(self) -> None:
        """Send the repeated and postponed notifications that are due."""
        now = self.settings.clock()
        with self._lock:
            trees = self._due_trees(now) if self._young else set()
            why = self._due_loss(now)
        if why:
            self.notify(ChangeNotification(self.root.tag, frozenset(), is_lost=True, why=why))
        if trees:
            self.notify(_notification(self.root.tag, set(), trees))

    def _due_trees(self, now: float) -> set[bytes]:
        """Return the trees to report again.

        A tree is reported again and again while notifications arrive. During a burst of notifications, the library reads all of
        them before it sets the watches of new folders, so the tree may still be unwatched.
        """
        is_busy = now - self._changed_at < self.settings.recheck_s / 2
        due = {tree for tree, young in self._young.items() if young.due <= now}
        for tree in due:
            young = self._young[tree]
            if is_busy:
                young.wait_s = min(young.wait_s * 2, _AGAIN_MAX_S)
                young.due = _on_grid(now + young.wait_s)
            else:
                del self._young[tree]
        return due

    def _due_loss(self, now: float) -> str:
        """Return why a full check is due now (notifications were lost, or it is the regular check), "" if no check is due."""
        losses, (first_s, longest_s) = self._losses, self.settings.rescan_backoff_s
        if now >= self._rescan_at and not losses.why:
            losses.why = REGULAR
        if not losses.why or now < losses.free_at:
            return ""
        is_calm = now - losses.last > max(1.0, 3 * losses.wait_s)
        losses.wait_s = first_s if is_calm else min(losses.wait_s * 2, longest_s)
        losses.last, losses.free_at = now, now + losses.wait_s
        self._rescan_at = now + self.settings.rescan_every_s
        why, losses.why = losses.why, ""
        return why

    def _is_skipped(self, path: bytes) -> bool:
        return bool(self._below_skips) and (path + b"/").startswith(self._below_skips)

    def _place_path(self, path: bytes, places: dict[bytes, bytes | None]) -> bytes | None:
        """Return the path with links to folders resolved, None if the resolved path is outside the root.

        The library follows links to folders. If a folder has several paths because of links, the library reports the path that it
        found last.
        """
        if path == self.root.path:
            return path
        folder, _, name = path.rpartition(b"/")
        if folder not in places:
            places[folder] = self._place(folder)
        place = places[folder]
        return None if place is None else place + b"/" + name

    def _place(self, folder: bytes) -> bytes | None:
        real = os.path.realpath(folder)
        if real == self._real or real.startswith(self._real + b"/"):
            return self.root.path + real[len(self._real) :]
        return None


def _on_grid(moment: float) -> float:
    return math.ceil(moment / _AGAIN_GRID_S) * _AGAIN_GRID_S


def _is_folder(path: bytes) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False


def _notification(tag: str, paths: set[bytes], trees: set[bytes]) -> ChangeNotification:
    """Return a notification about `paths` and `trees`, without the paths and trees below another tree."""
    if not trees:
        return ChangeNotification(tag, frozenset(paths))
    covered: dict[bytes, bool] = {}
    tops = frozenset(tree for tree in trees if not _is_covered(_folder(tree), trees, covered))
    return ChangeNotification(
        tag, frozenset(path for path in paths if path not in trees and not _is_covered(_folder(path), trees, covered)), tops
    )


def _is_covered(folder: bytes, trees: set[bytes], covered: dict[bytes, bool]) -> bool:
    """Whether `folder` is one of `trees`, or is below one of them."""
    todo = []
    while folder not in covered:
        todo.append(folder)
        if folder in trees or not folder.strip(b"/"):
            covered[folder] = folder in trees
        else:
            folder = _folder(folder)
    for step in todo:
        covered[step] = covered[folder]
    return covered[folder]


def _folder(path: bytes) -> bytes:
    return path.rpartition(b"/")[0]

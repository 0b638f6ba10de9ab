"""The sync cookie: reports when every notification from before a moment has been handled.

The file that marks the moment is made elsewhere. Each watch has a queue of its own in the kernel, so a file made in one
folder says nothing of the others. Hence each watch covers the folder of sync cookies too, and a file that is made there has passed
when every watch has come to it.

Tests: `tests/engine/watch/test_watcher.py`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from msgspec import Struct, field

from aptui.engine.watch.notifications import ChangeNotification, Notify
from aptui.engine.watch.supervisor import Native, RootWatch
from aptui.shared.health import WatchMode

COOKIE_TAG = "cookie"
"""Tag of the notification that names a sync cookie that has passed."""

_ADDED = 1
_TIMEOUT_S = 2.0
"""A watch that was set after the file was made never comes to it."""


class _Passing(Struct):
    since: float
    reached: set[Native] = field(default_factory=set)


class SyncCookie:
    """The sync cookies that some watch has seen.

    Args:
        folder: where sync cookies are made, absolute; b"" = nowhere.
        notify: called when the notification of a sync cookie has arrived.
        clock: seconds that never go back.
    """

    def __init__(self, folder: bytes, notify: Notify, clock: Callable[[], float]) -> None:
        self._folder = os.fsdecode(folder)
        self._below = self._folder + "/"
        self._notify = notify
        self._clock = clock
        self._passing: dict[str, _Passing] = {}

    def is_awaited(self) -> bool:
        """Whether a file has not passed yet."""
        return bool(self._passing)

    def take(self, native: Native, changes: set[tuple[int, str]]) -> set[tuple[int, str]]:
        """Note the sync cookies that this watch has seen; return the other changes."""
        if not self._folder:
            return changes
        mine = {(kind, path) for kind, path in changes if path.startswith(self._below) or path == self._folder}
        for kind, path in mine:
            if kind == _ADDED and path != self._folder:
                self._passing.setdefault(path, _Passing(self._clock())).reached.add(native)
        return changes - mine if mine else changes

    def notify_due(self, roots: Sequence[RootWatch]) -> None:
        """Report the sync cookies that have passed: all earlier changes have been reported, second looks and losses too."""
        if not self._passing or not all(_is_steady(watched) for watched in roots):
            return
        now = self._clock()
        for path, passing in list(self._passing.items()):
            late = [watched for watched in roots if watched.native is not None and watched.native not in passing.reached]
            if late and now - passing.since < _TIMEOUT_S:
                continue
            for watched in late:
                watched.root_notifications.lose("it is not known whether all notifications have come")
            for watched in roots:
                watched.root_notifications.notify_loss()
            del self._passing[path]
            self._notify(ChangeNotification(COOKIE_TAG, frozenset((os.fsencode(path),))))


def _is_steady(watched: RootWatch) -> bool:
    """Whether no notification of this root is due; one that is polled or gone has to be looked at by the caller."""
    if (
        watched.broken
        or watched.outdated
        or watched.mode == WatchMode.STARTING
        or (watched.mode == WatchMode.NATIVE and watched.native is None)
    ):
        return False
    return not watched.root_notifications.has_young()

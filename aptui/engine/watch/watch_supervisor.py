"""The watch supervisor: sets up, checks and renews the watch of each root, and polls roots that cannot be watched.

Tests: `tests/engine/watch/test_watcher.py`.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import math
import os
import struct
import threading
from collections.abc import Callable, Sequence

from msgspec import Struct, field
from watchfiles._rust_notify import RustNotify, WatchfilesRustInternalError

from aptui.core.paths import to_text
from aptui.engine.watch import limits as proc
from aptui.engine.watch.notifications import ALL, NotifiedRoot, Notify, RootNotifications, WatchTimings
from aptui.engine.watch.polling import PolledTree, Poller, survey, undecodable_name
from aptui.shared.health import WatchedRoot, WatchMode

_COUNT_AFTER_TREES_S = 2.0
_COUNT_PACE = 20
_JOIN_S = 0.3
_STEADY_S = 5.0
"""Minimum duration (seconds) of a watch that works.

If a watch ends after this time, the counts of failures and retries start at 0 again.
"""
_F_SETOWN_EX, _F_OWNER_TID = 15, 0
"""fcntl(2): the signal goes to one thread only, so the other threads of the process never receive it."""
_WINDOW_S = 0.1
_BYTES_PER_EVENT = 32
"""Size of a queued notification with a name of up to 15 bytes (inotify(7))."""
_SILENT_FINDS = 3
"""Maximum number of consecutive reads that find changes although the kernel sent no signal.

Above this number, the kernel is assumed to send no signals, and changes are read at intervals.
"""
_OPENING = threading.Lock()
"""Lock that is held while a watch is opened. If two watches were opened at once, their new descriptors could be confused."""
_POLLED = "the engine now polls the folder, and notices changes some seconds later"


class NoInstanceError(OSError):
    """No inotify descriptor is available."""


class _NothingMoreError(Exception):
    """Ends `RustNotify.watch` early. If its timeout ended it, changes that arrive at that moment would be lost."""


class _OneRead:
    """A stop event that lets `RustNotify.watch` do at most two turns of its loop.

    `RustNotify.watch` calls `is_set` before each turn. The second turn returns the changes that have arrived.
    """

    turns = 0

    def is_set(self) -> bool:
        """Return False twice, then raise `_NothingMoreError`."""
        self.turns += 1
        if self.turns > 2:
            raise _NothingMoreError
        return False


class NativeWatch:
    """A watch that the kernel serves: one inotify descriptor of watchfiles, for one root.

    `descriptor` is -1 if it is unknown; `extra_watches` is 1 if the folder of sync cookies has a kernel watch of its own, else 0.

    Args:
        thread_id: the kernel sends SIGIO to this thread when notifications can be read.

    Raises:
        OSError: a limit is reached, permission is denied, or the root does not exist.
        NoInstanceError: no descriptor is available.
        UnicodeError: the root's path is not UTF-8.
    """

    def __init__(self, root: NotifiedRoot, queue_length: int, cookie_folder: bytes, thread_id: int) -> None:
        self._queue_length = queue_length
        self._share = 4 if root.wants == ALL else 2
        self.is_signalled = False
        """Whether the reading thread is woken when there is something to read."""
        self._silent_finds = 0
        is_extra = (
            bool(cookie_folder)
            and os.path.isdir(cookie_folder)
            and not (root.is_recursive and cookie_folder.startswith(root.path + b"/"))
        )
        self.extra_watches = int(is_extra)
        paths = [os.fsdecode(path) for path in ((root.path, cookie_folder) if is_extra else (root.path,))]
        self._one_read = _OneRead()
        self._window = (0.0, 0)
        with _OPENING:
            before = proc.inotify_descriptors()
            try:
                self._rust = RustNotify(paths, False, False, 300, root.is_recursive, False)
            except WatchfilesRustInternalError as error:
                raise NoInstanceError(str(error)) from error
            self.descriptor = min(proc.inotify_descriptors() - before, default=-1)
        with contextlib.suppress(OSError, ValueError):
            fcntl.fcntl(self.descriptor, _F_SETOWN_EX, struct.pack("ii", _F_OWNER_TID, thread_id))
            fcntl.fcntl(self.descriptor, fcntl.F_SETFL, fcntl.fcntl(self.descriptor, fcntl.F_GETFL) | os.O_ASYNC)
            self.is_signalled = True

    def read(self, *, is_signalled: bool) -> set[tuple[int, str]]:
        """Return the changes since the last call, without waiting.

        Args:
            is_signalled: whether the kernel had sent a signal.

        Raises:
            WatchfilesRustInternalError: the watch has ended.
        """
        self._one_read.turns = 0
        try:
            found = self._rust.watch(0, 0, 0, self._one_read)
        except WatchfilesRustInternalError:
            raise
        except (_NothingMoreError, RuntimeError):
            return set()  # nothing arrived, or another thread has just closed the watch
        if not isinstance(found, set):
            return set()
        self._silent_finds = 0 if is_signalled else self._silent_finds + 1
        if self._silent_finds > _SILENT_FINDS:
            self.is_signalled = False
        return found

    def is_flooded(self) -> bool:
        """Whether half of the kernel's queue is used, so that it may have overflowed."""
        return 2 * proc.read_queued_bytes(self.descriptor) >= self._queue_length * _BYTES_PER_EVENT

    def came_at_once(self, count: int, now: float) -> bool:
        """Add `count` new changes; return whether the changes within a tenth of a second may have overflowed the kernel's queue.

        The limit is a quarter of the queue's length, because creating and writing a file queues four notifications but is reported
        as one change. If the root needs only some kinds of changes (`NotifiedRoot.wants`), the limit is half of the queue's length.
        A rename queues as many notifications as it reports changes.
        """
        since, total = self._window
        self._window = (now, count) if now - since > _WINDOW_S else (since, total + count)
        return self._share * self._window[1] >= self._queue_length

    def close(self) -> None:
        """Close the descriptor, and wait until it is closed, so that the next watch can be opened within the limit."""
        with _OPENING:
            self._rust.close()
            pause = threading.Event()
            for _ in range(250):
                if self.descriptor not in proc.inotify_descriptors():
                    return
                pause.wait(0.002)


class RootWatch(Struct, eq=False):
    """One root and how it is watched at present."""

    root: NotifiedRoot
    root_notifications: RootNotifications
    mode: WatchMode = WatchMode.STARTING
    detail: str = ""
    watches: int = 0
    native: NativeWatch | None = None
    pollers: list[Poller] = field(default_factory=list)
    identity: tuple[int, int] | None = None
    survey: PolledTree = field(default_factory=lambda: PolledTree(0))
    missing: int = 0
    """Number of folders without a watch after the watch of the root was set."""
    mounts: tuple[proc.Mount, ...] = ()
    broken: str = ""
    """Why the watch has ended; set by the thread that reads notifications."""
    outdated: str = ""
    """Why a watch that works has to be set again, "" if it need not be set again."""
    reason: str = "watching began"
    """Why a full check is requested after the next watch is set."""
    failures: int = 0
    retries: int = 0
    """Number of retries since a name below the root that is not UTF-8 prevented or ended the watch."""
    arm_at: float = 0.0
    """Time of the next attempt to set the watch, in seconds of the clock."""
    armed_at: float = 0.0
    """Time of the last attempt to set the watch, in seconds of the clock."""
    limits: proc.WatchLimits | None = None
    """The watch limits that were too low."""
    check_at_s: float = 0.0
    count_at: float = math.inf
    counted_at: float = 0.0
    count_took_s: float = 0.0

    def health(self) -> WatchedRoot:
        """Return the watch mode and its reason, as they are shown to users."""
        mode, detail = self.mode, self.detail
        for poller in self.pollers:
            if poller.is_gone and poller.top == self.root.path:
                mode, detail = WatchMode.GONE, "the folder does not exist"
            elif poller.trouble:
                mode, detail = WatchMode.LIMITED, poller.trouble
        return WatchedRoot(to_text(self.root.path), mode, detail, self.watches)


class WatchSupervisor:
    """The roots and their watches.

    Only the thread that calls `turn` writes fields of a `RootWatch`, except for `broken`, `outdated`, `identity` and `check_at_s`.

    Args:
        is_over: event that is set when the watcher ends.
        poke: event that is set to request a turn soon.
    """

    def __init__(self, settings: WatchTimings, notify: Notify, is_over: threading.Event, poke: threading.Event) -> None:
        self.watched: tuple[RootWatch, ...] = ()
        self._settings = settings
        self._notify = notify
        self.reader_id = 0
        """The kernel's id of the thread that reads notifications."""
        self._closed = is_over
        self._poke = poke
        self._mountinfo = b""

    def turn(self, wanted: Sequence[NotifiedRoot], news: Callable[[], None]) -> float:
        """Watch exactly the wanted roots, and check whether the watches of these roots still work.

        Args:
            news: called after each change of the health of a root, and at the end.

        Returns:
            The time until the next turn is due, in seconds.
        """
        self._reconcile(tuple(wanted))
        self._check_mounts()
        for watched in self.watched:
            if not self._closed.is_set():
                before = watched.health()
                self._update_watch(watched)
                if watched.health() != before:
                    news()
        news()
        now = self._settings.clock()
        arms = min((watched.arm_at - now for watched in self.watched), default=math.inf)
        return max(0.01, min(self._settings.root_check_every_s, arms))

    def end(self) -> None:
        """Remove all watches."""
        for watched in self.watched:
            self._disarm(watched)
        self.watched = ()

    def _reconcile(self, wanted: tuple[NotifiedRoot, ...]) -> None:
        if tuple(watched.root for watched in self.watched) == wanted:
            return
        known = {watched.root: watched for watched in self.watched}
        watched_roots = tuple(
            known.get(root) or RootWatch(root, RootNotifications(root, self._settings, self._notify)) for root in wanted
        )
        gone = [known[root] for root in known.keys() - set(wanted)]
        self.watched = watched_roots
        for watched in gone:
            self._disarm(watched)

    def _check_mounts(self) -> None:
        """Set watches again if a file system was mounted or unmounted below a root.

        After a mount, the existing watch still watches the folder that the mount hides.
        """
        text = self._settings.mountinfo()
        if text == self._mountinfo:
            return
        self._mountinfo = text
        mounts = proc.mounts(text)
        for watched in self.watched:
            below = tuple(proc.mounts_below(os.path.realpath(watched.root.path), mounts))
            if watched.armed_at and below != watched.mounts:
                watched.outdated = "a file system was mounted or unmounted below the folder"

    def _update_watch(self, watched: RootWatch) -> None:
        """Check, renew or set the watch of one root, if that is due."""
        now = self._settings.clock()
        if watched.outdated:
            self._renew(watched, watched.outdated)
        if watched.broken:
            self._re_establish(watched, now)
        if watched.native is not None and now >= watched.check_at_s:
            self._check_root(watched, now)
        if watched.native is not None:
            self._check_count(watched, now)
        if watched.limits is not None and watched.limits != self._settings.limits():
            self._renew(watched, "the limits of inotify changed")
        if now >= watched.arm_at:
            self._arm(watched)

    def _renew(self, watched: RootWatch, reason: str) -> None:
        """Remove the watch of a root. A new watch is set without delay."""
        self._disarm(watched)
        watched.reason, watched.outdated, watched.arm_at = reason, "", 0.0

    def _re_establish(self, watched: RootWatch, now: float) -> None:
        """Remove a broken watch; the first new watch is set at once, further watches are set after growing pauses."""
        if now - watched.armed_at > min(_STEADY_S, self._settings.rescan_backoff_s[1]):
            watched.failures = watched.retries = 0
        watched.failures += 1
        why = watched.broken
        self._disarm(watched)
        watched.mode, watched.broken, watched.detail, watched.reason = WatchMode.STARTING, "", why, why
        watched.arm_at = now if watched.failures == 1 else now + self._settings.rescan_backoff_s[0] * 2**watched.failures
        if watched.failures >= self._settings.failures_before_polling:
            self._poll_after(watched, why)
            watched.failures -= 1

    def _poll_after(self, watched: RootWatch, why: str) -> None:
        """Poll a root because its watch ended repeatedly. Report the cause if it can be found."""
        name = undecodable_name(watched.root.path, self._closed.is_set)
        self._poll(watched, WatchMode.POLLING, _describe_undecodable(name) if name else f"{why}; polling instead")
        if name:
            self._retry_soon(watched)

    def _retry_soon(self, watched: RootWatch) -> None:
        """Schedule the next attempt to watch a root that contains a path that is not UTF-8.

        The attempt begins sooner than for other roots that cannot be watched, because the user may rename the file soon.
        """
        settings = self._settings
        wait_s = min(settings.retry_names_s * 2**watched.retries, settings.retry_native_s)
        watched.arm_at, watched.retries = settings.clock() + wait_s, watched.retries + 1

    def _check_root(self, watched: RootWatch, now: float) -> None:
        watched.check_at_s = now + self._settings.root_check_every_s
        if _identity(watched.root.path) != watched.identity:
            self._renew(watched, "the folder was removed or replaced")

    def _check_count(self, watched: RootWatch, now: float) -> None:
        """Compare the numbers of watches and folders after folders changed.

        After the watch has begun, the library does not report that a watch limit is reached.
        """
        notifications = watched.root_notifications
        if notifications.is_structure_changed and (notifications.has_young() or notifications.has_grown):
            watched.count_at = min(
                watched.count_at, max(now + _COUNT_AFTER_TREES_S, watched.counted_at + _COUNT_PACE * watched.count_took_s)
            )
        if now < watched.count_at or watched.native is None:
            return
        watched.counted_at, watched.count_at = now, now + self._settings.limits_check_every_s
        if not notifications.is_structure_changed:
            return
        notifications.is_structure_changed = notifications.has_grown = False
        if self._lacks_watches(watched) and not self._closed.wait(2 * self._settings.recheck_s) and self._lacks_watches(watched):
            needed, have = watched.survey.folders, watched.watches
            self._renew(watched, f"{needed - have} of {needed} folders were not watched")
        watched.count_took_s = self._settings.clock() - now

    def _lacks_watches(self, watched: RootWatch) -> bool:
        """Count folders and watches again; return whether more folders are unwatched than when the watch was set."""
        if watched.native is None or watched.native.descriptor < 0:
            return False
        watched.survey = survey(watched.root.path, is_recursive=watched.root.is_recursive, is_over=self._closed.is_set)
        watched.watches = self._watches_of(watched.native)
        limits = self._settings.limits()
        return watched.survey.folders - watched.watches > watched.missing or watched.survey.folders > limits.max_user_watches

    # Setting one watch.

    def _arm(self, watched: RootWatch) -> None:
        root, settings = watched.root, self._settings
        self._disarm(watched)
        watched.arm_at, watched.detail, watched.limits = math.inf, "", None
        watched.identity = _identity(root.path)
        watched.armed_at = settings.clock()
        mounts = proc.mounts(self._mountinfo)
        real = os.path.realpath(root.path)
        watched.mounts = tuple(proc.mounts_below(real, mounts))
        if watched.identity is None:
            watched.mode, watched.detail, watched.reason = WatchMode.GONE, "the folder does not exist", "the folder exists again"
            watched.arm_at = settings.clock() + settings.root_check_every_s
            return
        kind = proc.kind_of(real, mounts)
        if root.poll or (root.poll is None and kind and kind not in proc.NATIVE_KINDS | proc.OVERLAY_KINDS):
            self._poll(watched, WatchMode.POLLING, f"file system {kind or 'unknown'}" if root.poll is None else "as configured")
            watched.arm_at = math.inf
            return
        obstacle = self._open(watched)
        if obstacle:
            self._poll(watched, *obstacle)
            if watched.survey.undecodable:
                self._retry_soon(watched)
        elif not self._closed.is_set():
            self._count(watched)
            watched.root_notifications.begin()
            if root.poll is None:
                self._poll_parts(watched, kind)
            watched.mode = WatchMode.NATIVE
            watched.root_notifications.report_loss(watched.reason)

    def _open(self, watched: RootWatch) -> tuple[WatchMode, str] | None:
        """Set the watch and return None. If that fails, return (watch mode to use instead, reason)."""
        root, limits = watched.root, self._settings.limits()
        watched.survey = seen = survey(root.path, is_recursive=root.is_recursive, is_over=self._closed.is_set)
        if self._closed.is_set():
            return None
        if seen.undecodable:
            return WatchMode.POLLING, _describe_undecodable(seen.undecodable)
        if seen.escape:
            link = to_text(seen.escape)
            return (
                WatchMode.POLLING,
                f"link '{link}' leads to very many folders outside; remove the link, or ignore its folder; {_POLLED}",
            )
        try:
            if seen.folders > limits.max_user_watches:
                raise OSError(errno.ENOSPC, "the root has more folders than the limit of watches")
            native = NativeWatch(root, limits.max_queued_events, self._settings.cookie_folder, self.reader_id)
        except (OSError, UnicodeError) as error:
            return self._explain(watched, limits, error)
        watched.check_at_s = 0.0
        watched.count_at = watched.armed_at + self._settings.limits_check_every_s
        watched.native = native
        return None

    def _count(self, watched: RootWatch) -> None:
        if watched.native is not None and watched.native.descriptor >= 0:
            watched.watches = self._watches_of(watched.native)
            watched.missing = max(0, watched.survey.folders - watched.watches)

    def _watches_of(self, native: NativeWatch) -> int:
        """Return the number of watches on folders of the root; a separate watch on the folder of sync cookies is not counted."""
        return max(0, self._settings.watch_count(native.descriptor) - native.extra_watches)

    @staticmethod
    def _explain(watched: RootWatch, limits: proc.WatchLimits, error: OSError | UnicodeError) -> tuple[WatchMode, str]:
        match error:
            case UnicodeError():
                return WatchMode.POLLING, f"its path is not valid UTF-8, which notifications need; rename the folder; {_POLLED}"
            case PermissionError():
                return WatchMode.POLLING, f"some of its folders cannot be watched ({error}); check the permissions; {_POLLED}"
            case FileNotFoundError():
                return WatchMode.POLLING, f"a file or folder disappeared while the engine began to watch: {error}"
            case NoInstanceError():
                text = _too_few_instances(limits)
            case OSError(errno=errno.EMFILE | errno.ENFILE):
                text = f"no more files can be opened; restart the engine with a higher limit of open files ('ulimit -n'); {_POLLED}"
            case _:
                text = _too_few_watches(limits, watched.survey.folders)
        watched.limits = limits
        return WatchMode.LIMITED, text

    def _poll(self, watched: RootWatch, mode: WatchMode, detail: str) -> None:
        watched.mode, watched.detail = mode, detail
        watched.arm_at, watched.reason = self._settings.clock() + self._settings.retry_native_s, "watching instead of polling"
        watched.root_notifications.begin()
        self._start_poller(watched, watched.root.path, self._settings.poll_interval_s)

    def _poll_parts(self, watched: RootWatch, kind: str) -> None:
        """Poll the parts of a root for which the kernel sends no notifications.

        These parts are the lower layers of an overlay, and file systems that other machines also change.
        """
        if kind in proc.OVERLAY_KINDS:
            watched.detail = "it is an overlay file system; changes below its upper layer are found by polling"
            self._start_poller(watched, watched.root.path, self._settings.overlay_interval_s)
        for mount in watched.mounts if watched.root.is_recursive else ():
            if mount.kind not in proc.NATIVE_KINDS:
                is_overlay = mount.kind in proc.OVERLAY_KINDS
                interval_s = self._settings.overlay_interval_s if is_overlay else self._settings.poll_interval_s
                watched.detail = f"'{to_text(mount.point)}' ({mount.kind}) is polled"
                self._start_poller(watched, mount.point, interval_s)

    def _start_poller(self, watched: RootWatch, top: bytes, interval_s: float) -> None:
        poller = Poller(top, watched.root_notifications, interval_s, self._poke.set)
        watched.pollers.append(poller)
        poller.start()

    @staticmethod
    def _disarm(watched: RootWatch) -> None:
        native, watched.native, watched.watches = watched.native, None, 0
        if native is not None:
            native.close()
        for poller in watched.pollers:
            poller.stop()
        for poller in watched.pollers:
            poller.join(_JOIN_S)
        watched.pollers = []


def _identity(path: bytes) -> tuple[int, int] | None:
    try:
        seen = os.stat(path)
    except OSError:
        return None
    return seen.st_dev, seen.st_ino


def _describe_undecodable(path: bytes) -> str:
    return f"the name of '{to_text(path)}' is not valid UTF-8, so notifications ended; rename the file; {_POLLED}"


def _too_few_watches(limits: proc.WatchLimits, needed: int) -> str:
    return (
        f"{limits.watches_setting} is {limits.max_user_watches} and shared with other programs; {needed} more are needed here,"
        f" so raise it to {limits.max_user_watches + needed} or more (sysctl); {_POLLED}"
    )


def _too_few_instances(limits: proc.WatchLimits) -> str:
    return (
        f"{limits.instances_setting} is {limits.max_user_instances} and shared with other programs;"
        f" raise it to {limits.max_user_instances + 16} or more (sysctl); {_POLLED}"
    )

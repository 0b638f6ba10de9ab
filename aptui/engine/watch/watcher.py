"""The watcher: reports which paths of the watched roots to check.

A notification only requests a check: the kind of a change is ignored. The watcher uses the library watchfiles and works
around the weaknesses of this library:

* watchfiles does not report files in new folders, and changes of folders beyond the watch limit.
* `RustNotify.watch` sleeps in steps, so it is late or uses much processor time. With steps of 1 ms, it reports a save after 1.7 ms
  and uses 1.9 % of a core when idle; with steps of 3 ms, it reports a save after 5.3 ms and uses 0.7 %. At its timeout it drops
  changes that have just arrived. So aptui never lets it sleep: the kernel signals (SIGIO, only to the watching thread) that an
  inotify descriptor is readable, then the changes are collected. Measured result: 0.5 ms of delay after a save (p99 0.7 ms) and
  0.05 % of a core. If the kernel cannot signal, changes are collected every `step_ms`.
* An overflow of the kernel's queue is not reported. So a loss is assumed when the queue was long, when many changes came at once,
  and when the thread woke up late.
* Links to folders are followed, and removing such a link ends the watch of its target. So paths are reported without links, and the
  watch is set again when such a link is removed.
* A file name that is not UTF-8 ends the watch, even if the file is only opened. So the watch is set again, and after some failures
  the root is polled.
* Setting a watch blocks all threads of the interpreter: 0.32 s for 20,000 folders.

Two threads serve all roots: one collects and reports changes, the other sets and checks watches. Each polled root has another
thread.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct, field
from watchfiles._rust_notify import WatchfilesRustInternalError

from aptui.core.paths import to_text
from aptui.engine.watch.notifications import ChangeNotification, NotifiedRoot, Notify, WatchTimings
from aptui.engine.watch.watch_supervisor import NativeWatch, RootWatch, WatchSupervisor
from aptui.shared.health import WatchedRoot, WatchMode

# A sync cookie is a file that another module creates to mark a moment. When the sync cookie has passed, all notifications up to
# that moment have been handled.
#
# Each watch has a separate queue in the kernel, so a notification from one queue says nothing about the other queues. Therefore
# each watch includes the folder of sync cookies. A sync cookie has passed when every watch has reported it.

COOKIE_TAG = "cookie"
"""Tag of the notification that is sent when every watch has reported a sync cookie, or after the timeout."""

_ADDED = 1
_TIMEOUT_S = 2.0
"""Timeout (seconds) for reports of a sync cookie. A watch that was set after the cookie was created never reports the cookie."""


class _Passing(Struct):
    since: float
    reached: set[NativeWatch] = field(default_factory=set)


class SyncCookie:
    """The sync cookies that at least one watch has reported, and that `notify` has not received yet.

    Args:
        folder: absolute path of the folder in which sync cookies are created; b"" = sync cookies are not used.
        notify: receives a notification for each sync cookie when all watches have reported it, or after a timeout.
    """

    def __init__(self, folder: bytes, notify: Notify, clock: Callable[[], float]) -> None:
        self._folder = os.fsdecode(folder)
        self._below = self._folder + "/"
        self._notify = notify
        self._clock = clock
        self._passing: dict[str, _Passing] = {}

    def is_awaited(self) -> bool:
        """Whether a watch has reported a sync cookie while earlier changes may still be unreported."""
        return bool(self._passing)

    def remove_cookies(self, native: NativeWatch, changes: set[tuple[int, str]]) -> set[tuple[int, str]]:
        """Note the sync cookies among the changes that a watch reports; return the other changes."""
        if not self._folder:
            return changes
        mine = {(kind, path) for kind, path in changes if path.startswith(self._below) or path == self._folder}
        for kind, path in mine:
            if kind == _ADDED and path != self._folder:
                self._passing.setdefault(path, _Passing(self._clock())).reached.add(native)
        return changes - mine if mine else changes

    def notify_due(self, roots: Sequence[RootWatch]) -> None:
        """Report each sync cookie that all watches have reported, or whose timeout has passed.

        Before that, wait until no new folder has to be reported again, and report postponed losses.
        """
        if not self._passing or not all(_is_steady(watched) for watched in roots):
            return
        now = self._clock()
        for path, passing in list(self._passing.items()):
            late = [watched for watched in roots if watched.native is not None and watched.native not in passing.reached]
            if late and now - passing.since < _TIMEOUT_S:
                continue
            for watched in late:
                watched.root_notifications.report_loss("some notifications may be missing")
            for watched in roots:
                watched.root_notifications.notify_loss()
            del self._passing[path]
            self._notify(ChangeNotification(COOKIE_TAG, frozenset((os.fsencode(path),))))


def _is_steady(watched: RootWatch) -> bool:
    """Whether all notifications of this root have been sent.

    The caller checks whether the root is polled or gone.
    """
    if (
        watched.broken
        or watched.outdated
        or watched.mode == WatchMode.STARTING
        or (watched.mode == WatchMode.NATIVE and watched.native is None)
    ):
        return False
    return not watched.root_notifications.has_young()


NotifyHealth = Callable[[tuple[WatchedRoot, ...]], None]

_LATER_S = (0.0003, 0.001, 0.004, 0.02)
"""Delays (seconds) of further attempts to collect changes after a signal, until the library has read the descriptor."""
_REST_S = (0.0001, 0.003)
"""Delays (seconds) between a signal and the collection of changes: after a single save, and the maximum during a burst."""
_AWAITED_S = 0.02
"""Interval of checks whether all changes before a sync cookie have been reported (seconds)."""
_STORM_GAP_S = 0.005
_CLOSE_S = 0.9
_DEFAULTS = WatchTimings()
_DELETED = 3
"""The kind of change with which watchfiles reports a root that was removed or moved."""
_OVERFLOW = "too many changes at once, notifications may be lost (fs.inotify.max_queued_events)"


class Watcher:
    """Watches roots until it is closed.

    Args:
        notify: receives notifications; called from several threads, must not block.
        notify_health: called with the state of all watched roots whenever it changes.
    """

    def __init__(
        self, roots: Sequence[NotifiedRoot], notify: Notify, notify_health: NotifyHealth, *, settings: WatchTimings = _DEFAULTS
    ) -> None:
        self._wanted = tuple(dict.fromkeys(roots))
        self._notify_health = notify_health
        self._settings = settings
        self._suspicions: deque[str] = deque()
        self._trouble: dict[str, str] = {}
        self._reported: tuple[WatchedRoot, ...] = ()
        self._closed = threading.Event()
        self._poke = threading.Event()
        self._roots = WatchSupervisor(settings, notify, self._closed, self._poke)
        self._cookie = SyncCookie(settings.cookie_folder, notify, settings.clock)
        self._reads = threading.Event()
        self._reader = threading.Thread(target=self._supervise, args=("reading", self._read_on), name="watch", daemon=True)
        self._supervising = threading.Thread(target=self._supervise, args=("keeping", self._keep_on), name="keep", daemon=True)

    def start(self) -> None:
        """Begin to watch, and return at once. As soon as a root is watched, a rescan of the whole root is requested."""
        self._reader.start()
        self._supervising.start()

    def replace(self, roots: Sequence[NotifiedRoot]) -> None:
        """Watch these roots from now on; roots that are watched already keep their watches."""
        self._wanted = tuple(dict.fromkeys(roots))
        self._poke.set()

    def suspect(self, why: str) -> None:
        """Request a check of everything; any thread and signal handlers may call this."""
        self._suspicions.append(why)

    def health(self) -> tuple[WatchedRoot, ...]:
        """Return the state of the watch of each root."""
        known = {watched.root: watched.health() for watched in self._roots.watched}
        roots = tuple(known.get(root) or WatchedRoot(to_text(root.path), WatchMode.STARTING) for root in self._wanted)
        trouble = "; ".join(self._trouble.values())
        if trouble:
            return tuple(WatchedRoot(root.path, WatchMode.LIMITED, trouble, root.watches) for root in roots)
        return roots

    def close(self) -> None:
        """Stop watching; the threads end soon, and the watcher cannot be used again."""
        self._closed.set()
        self._poke.set()
        for thread in (self._supervising, self._reader):
            if thread.ident is not None and thread is not threading.current_thread():
                thread.join(_CLOSE_S)

    def _supervise(self, name: str, body: Callable[[], None]) -> None:
        """Run `body` until the watcher ends. If `body` raises an exception, report the exception and run `body` again."""
        wait_s, longest_s = self._settings.rescan_backoff_s
        while not self._closed.is_set():
            try:
                body()
            except Exception as error:  # noqa: BLE001  # if the thread ended, no root would be watched
                self._trouble[name] = f"{name} of notifications failed: {type(error).__name__}: {error}"
                self._suspicions.append(self._trouble[name])
                try:
                    self._notify_health(self.health())
                except Exception as again:  # noqa: BLE001  # as above
                    self._trouble["telling"] = f"the engine could not be notified of changes: {again}"
                self._closed.wait(wait_s)
                wait_s = min(wait_s * 2, longest_s)

    # The thread that reads notifications.

    def _read_on(self) -> None:
        """Wait for signals, collect changes, report them."""
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGIO})
        self._roots.reader_id = threading.get_native_id()
        self._reads.set()
        clock = self._settings.clock
        last, last_signal, rest_s = clock(), 0.0, _REST_S[0]
        later: Iterator[float] = iter(())
        while not self._closed.is_set():
            is_signalled = signal.sigtimedwait({signal.SIGIO}, self._wait_s(next(later, None))) is not None
            now = clock()
            self._check_beat(now - last)
            self._trouble.pop("reading", None)
            if is_signalled:
                rest_s = min(rest_s * 2, _REST_S[1]) if now - last_signal < _STORM_GAP_S else _REST_S[0]
                last_signal = now
                self._check_queues()
                time.sleep(rest_s)
            last = now
            if self._read_all(is_signalled=is_signalled) or is_signalled:
                later = iter(_LATER_S)
            for watched in self._roots.watched:
                watched.root_notifications.notify_due()
            self._cookie.notify_due(self._roots.watched)

    def _wait_s(self, later_s: float | None) -> float:
        if any(watched.native is not None and not watched.native.is_signalled for watched in self._roots.watched):
            return self._settings.step_ms / 1000
        if later_s is None:
            return _AWAITED_S if self._cookie.is_awaited() else self._settings.beat_s
        return later_s

    def _check_beat(self, gap_s: float) -> None:
        if gap_s > self._settings.heartbeat_gap_s:
            self._lose_all(f"the thread that watches folders did not run for {gap_s:.1f} s")
        while self._suspicions:
            self._lose_all(self._suspicions.popleft(), is_sure=True)

    def _lose_all(self, why: str, *, is_sure: bool = False) -> None:
        """Report that notifications of all roots may be lost: at once if `is_sure`, otherwise at growing intervals."""
        for watched in self._roots.watched:
            watched.check_at_s = 0.0
            watched.root_notifications.report_loss(why)
            if is_sure:
                watched.root_notifications.notify_loss()
        self._poke.set()

    def _check_queues(self) -> None:
        for watched in self._roots.watched:
            if watched.native is not None and watched.native.is_flooded():
                watched.root_notifications.report_loss(_OVERFLOW)

    def _read_all(self, *, is_signalled: bool) -> bool:
        is_found = False
        for watched in self._roots.watched:
            native = watched.native
            if native is None or watched.broken:
                continue
            try:
                changes = native.read(is_signalled=is_signalled)
            except WatchfilesRustInternalError as error:
                if watched.native is native:
                    watched.broken = f"notifications ended: {error}"
                    self._poke.set()
                continue
            if changes:
                is_found = True
                changes = self._cookie.remove_cookies(native, changes)
                self._pass_on(watched, native, changes)
        return is_found

    def _pass_on(self, watched: RootWatch, native: NativeWatch, changes: set[tuple[int, str]]) -> None:
        if native.came_at_once(len(changes), self._settings.clock()):
            watched.root_notifications.report_loss(_OVERFLOW)
        links, top = watched.survey.links, os.fsdecode(watched.root.path)
        if (_DELETED, top) in changes:
            # forget the inode number, because a new folder at the path may get the inode number of the old folder
            watched.identity, watched.check_at_s = (0, 0), 0.0
            self._poke.set()
        if links and any(os.fsencode(path) in links for _kind, path in changes):
            watched.outdated = "a link to a folder changed, so other folders must be watched"
            self._poke.set()
        watched.root_notifications.note_changes(changes)

    # The thread that keeps the watches up to date.

    def _keep_on(self) -> None:
        while not self._closed.is_set() and not self._reads.wait(_AWAITED_S):
            pass
        try:
            while not self._closed.is_set():
                self._poke.clear()
                next_s = self._roots.turn(self._wanted, self._publish)
                self._trouble.pop("keeping", None)
                self._publish()
                self._poke.wait(next_s)
        finally:
            self._roots.end()

    def _publish(self) -> None:
        health = self.health()
        if health != self._reported:
            self._reported = health
            self._notify_health(health)

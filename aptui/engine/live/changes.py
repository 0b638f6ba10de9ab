"""The change tracker: gathers the notifications of the watcher, and makes the engine check the reported files and folders.

A notification only requests a check. The check begins when no version-control operation and no `aptui hold` is in progress, no scan
is running, and no process writes the file any more (`live.writing`).

A known file or folder that is missing may appear again, because some programs remove or rename a file and write it again. So a
deletion takes effect only after two checks (`live.writing.Absences`). Files that were reported together with the missing file wait
for the second check; until then the missing file is treated as unchanged.

Tests: `tests/engine/live/test_supervisor.py`.
"""

from __future__ import annotations

import os
import queue
import stat
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from aptui.core.identity import find_identified
from aptui.core.model import PathKey, RelPath
from aptui.core.notices import LogLevel
from aptui.core.paths import cache_path, from_text, is_below, key_of, parent, product_at, to_text
from aptui.core.patterns import ignore_matcher
from aptui.core.project import COMMON_PREFIX, INTERMEDIATES, Project
from aptui.engine.cache.cache_places import stamp_of
from aptui.engine.live.roots import MADE_SOURCES, PRODUCTS, SOURCES, CookieWaits, is_setting
from aptui.engine.live.writing import Absences, FilesBeingWritten, stat_of, was_folder
from aptui.engine.scan.walk import SharedFiles
from aptui.engine.watch.notifications import REGULAR, ChangeNotification
from aptui.engine.watch.watcher import COOKIE_TAG
from aptui.shared.files.git import Repositories

if TYPE_CHECKING:
    from aptui.engine.loop.engine import Engine


# Intermediate products that another program changed must not be used: the engine checks them, and their jobs make them again.
#
# The watcher also reports intermediates that the engine itself wrote, and these need no check. The engine recognises them with one
# `stat`: when it places a file, it stores the file's stamp (`Cache.placed`), and a reported file with this stamp is unchanged.
# Reported paths are gathered for 0.1 s, or longer while a scan or a commit is in progress.

_GATHER_S = 0.1


class WrittenIntermediates:
    """The intermediates that the watcher reported and that the engine has not checked yet."""

    def __init__(self, cache: bytes) -> None:
        self._cache = cache + b"/"
        self._top = self._cache + os.fsencode(INTERMEDIATES)
        self._paths: dict[bytes, None] = {}
        self.due: float | None = None
        """When (monotonic) the next check is due."""

    def note(self, paths: Iterable[bytes], now: float) -> None:
        """Note the reported `paths` that are below the folder of intermediates."""
        found = [path for path in paths if path.startswith(self._top)]
        self._paths.update(dict.fromkeys(found))
        if found and self.due is None:
            self.due = now + _GATHER_S

    def check(self, engine: Engine, now: float) -> None:
        """Make the engine check the intermediates that were changed after the engine wrote them."""
        if self.due is None or now < self.due:
            return
        if engine.scans.is_scanning or engine.pipeline.jobs.committing:
            self.due = now + _GATHER_S
            return
        paths, self._paths, self.due = self._paths, {}, None
        folders: dict[str, set[PathKey]] = {}
        for name in self._find_changed(engine, paths):
            key = PathKey(name.removeprefix(COMMON_PREFIX))
            folders.setdefault(parent(key), set()).add(key)
        for folder, keys in folders.items():
            engine.scans.check_folder(folder, frozenset(keys))

    def _find_changed(self, engine: Engine, paths: Iterable[bytes]) -> list[str]:
        """Return the recorded products at or below `paths` whose files differ from the files that the engine placed."""
        names: dict[str, None] = {}
        for path in paths:
            name = product_at(to_text(path[len(self._cache) :]))
            inside = engine.archive.products.products_below(name) if os.path.isdir(path) else (name,)
            names.update(dict.fromkeys(inside))
        other = [find_identified(name) or name for name in names if not self._is_as_placed(engine, name)]
        return list(engine.archive.owners(other)) if other else []

    def _is_as_placed(self, engine: Engine, name: str) -> bool:
        """Whether a file is unchanged since the engine placed it.

        True also for missing products, because other checks find them.
        """
        seen = stamp_of(self._cache + from_text(cache_path(name)))
        if seen is None:
            return not find_identified(name) or name in engine.cache.deleted
        return seen == engine.cache.placed.get(name)


BEGAN = "watching began"
"""Reason of the scan that is requested when the watcher has begun to watch a root."""
_HOLD_CHECK_S = 0.02
_AFTER_HOLD_S = 0.03
"""Time (seconds) that changes are still held after a lock or hold ended, because notifications of the last writes may be late."""
_SECOND_CHECK_S = 2.5
"""Delay (seconds) before the second check of recently written files.

The second check reads files again that were read within two seconds of their last change: if the file system has a coarse clock,
a further change may leave the file's times equal.
"""
_SLICE_S = 0.004
"""Time limit (seconds) for the checks in one turn; between turns the engine answers clients."""
_MOST_FOLDERS = 64
"""Maximum number of folders that are checked one by one.

If more folders changed, one scan of everything costs less, and all changes form one batch.
"""


class ChangeTracker:
    """The change tracker of a long-running engine: decides which files and folders the engine checks after a notification.

    Args:
        wake: ends the loop's sleep; called from the watcher's threads.
        settings_changed: called when a file of the configuration, or a project builder, may have changed.
    """

    def __init__(
        self,
        project: Project,
        cache: str,
        wake: Callable[[], None],
        settings_changed: Callable[[], None],
    ) -> None:
        self.engine: Engine | None = None
        self._writing = FilesBeingWritten()
        self.unfinished = self._writing.unfinished
        self.is_draining = False
        self.is_configuration_wrong = False
        """Whether the configuration on the disk has an error, which a new folder beside its files may correct: a scan folder."""
        self.folder_checks = 0
        """Number of checks that notifications caused."""
        self._wake, self._settings_changed = wake, settings_changed
        self._notifications: queue.SimpleQueue[ChangeNotification] = queue.SimpleQueue()
        self._paths: dict[bytes, None] = {}
        self._placing: deque[bytes] = deque()
        """Paths of this batch for which `_place` has not decided what to check; paths that arrive now form the next batch."""
        self._folders_due: dict[str, set[PathKey]] = {}
        """{folder to check: keys of its files that are read even if their stored state matches}."""
        self._whole: set[str] = set()
        """Folders that are checked as a whole. In other folders, only files named by notifications are checked if possible."""
        self._pending_folders: set[str] | None = None
        """Relative folders with pending work and the folders above them, listed once for each batch; None = not listed yet."""
        self._have_folders: dict[str, bool] = {}
        """{relative folder: whether the database records subfolders of it}."""
        self._named: dict[PathKey, bytes] = {}
        """{key of a file: its path in the notification}; the stored path with the same key may be spelled differently."""
        self._trees: dict[PathKey, None] = {}
        self._is_cut_short = False
        """Whether the checks were interrupted so that the engine can answer clients, and have to continue."""
        self._is_lost = False
        self._retries = self._is_full = False
        self._absences = Absences()
        self._is_looking_again = False
        self._second_checks: dict[str, float] = {}
        self._client_holds: dict[tuple[int, str], None] = {}
        """(client id, description of the client) of each client that delays the processing of changes."""
        self._held_by = ""
        self._free_at = 0.0
        self._cache = os.fsencode(cache)
        self._cookies = CookieWaits(self._cache)
        self._intermediates = WrittenIntermediates(self._cache)
        self._shared_files = SharedFiles(time.monotonic)
        self.configure(project)

    def configure(self, project: Project) -> None:
        """Use the scan folders and ignore rules of a new configuration."""
        self._folders = [(os.fsencode(item.path) + b"/", item.recursive) for item in project.scan_folders]
        self._repositories = Repositories(item.path for item in project.scan_folders)
        matches = ignore_matcher(project.ignore_regex)

        @lru_cache(maxsize=65_536)
        def is_ignored(rel: str) -> bool:
            above = parent(rel)
            return bool(above and is_ignored(above)) or matches(rel)

        self._is_ignored = is_ignored

    # --------------------------------------------------------------------------------------------- receiving notifications

    def receive(self, notification: ChangeNotification) -> None:
        """Receive a notification; any thread may call this."""
        self._notifications.put(notification)
        self._wake()

    def check_shared_files(self) -> None:
        """Check all sources that have a second path (a link): a change through the second path may cause no notification."""
        if self.engine is not None:
            self._paths.update(dict.fromkeys(self._shared_files.check_all(self.engine.scans.links)))

    def check_soon(self, path: bytes) -> None:
        """Schedule a check of a source (absolute path), as after a notification of the watcher."""
        self._paths[path] = None

    def forget(self) -> None:
        """Drop all notifications so far, because a full scan follows.

        Also reload the configuration, because it may have changed between its last reading and the start of the watch.
        """
        while not self._notifications.empty():
            self._notifications.get_nowait()
        self._settings_changed()

    def _take_notifications(self) -> None:
        lost_products: list[bytes] = []
        losses: list[str] = []
        while True:
            try:
                notification = self._notifications.get_nowait()
            except queue.Empty:
                break
            if notification.tag == COOKIE_TAG:
                self._cookies.note_passed(notification.paths)
            elif notification.tag.startswith(SOURCES):
                self._take_source_changes(notification)
                losses += [notification.why] if notification.is_lost else []
            elif notification.tag.startswith(PRODUCTS):
                lost_products.extend(notification.paths)
                if notification.is_lost and notification.tag == MADE_SOURCES:
                    self._is_lost = True  # files that were overwritten in place leave the times of their folders unchanged
                elif notification.is_lost and self.engine is not None:
                    self.engine.check_products()
            elif (
                notification.is_lost
                or self.is_configuration_wrong
                or any(map(is_setting, (*notification.paths, *notification.trees)))
            ):
                # The watcher also reports a loss of notifications when it begins to watch a folder. Then the configuration may have
                # changed between the time it was read and the time it was watched.
                self._settings_changed()
        self._say_why(losses)
        if lost_products and self.engine is not None:
            self._products_gone(self.engine, lost_products)
            self._intermediates.note(lost_products, time.monotonic())

    def _take_source_changes(self, notification: ChangeNotification) -> None:
        self._paths.update(dict.fromkeys(notification.paths))
        if self.engine is not None:
            for path in (*notification.paths, *notification.trees):
                self._paths.update(dict.fromkeys(self.engine.scans.links.leading_to(path)))
        for tree in notification.trees:
            self._note_tree(tree)
        self._is_lost = self._is_lost or notification.is_lost

    def _say_why(self, losses: Iterable[str]) -> None:
        """Report why all files are checked. If several folders have the same reason, report it once."""
        for why in dict.fromkeys(losses):
            if self.engine is not None and why != BEGAN:
                self.engine.news.say(f"checking all files: {why}", LogLevel.INFO if why == REGULAR else LogLevel.WARNING)

    def _note_tree(self, tree: bytes) -> None:
        for rel in self._relatives(tree):
            if not rel:
                self._is_lost = True
            elif not self._is_ignored(rel):
                self._trees[key_of(rel)] = None

    def _relatives(self, path: bytes) -> list[RelPath]:
        """Return the path relative to each scan folder that contains it; "" for a scan folder itself."""
        found = []
        for root, is_recursive in self._folders:
            if path.startswith(root):
                rel = path[len(root) :]
                if is_recursive or b"/" not in rel:
                    found.append(to_text(rel))
            elif path == root[:-1]:
                found.append("")
        return [RelPath(rel) for rel in found]

    def _products_gone(self, engine: Engine, paths: Iterable[bytes]) -> None:
        """Report the recorded products at or below `paths` that another program deleted."""
        prefix = self._cache + b"/"
        names = {
            product_at(to_text(path[len(prefix) :])) for path in paths if path.startswith(prefix) and not os.path.lexists(path)
        }
        names.difference_update(engine.cache.deleted)
        if not names:
            return
        owned = engine.archive.owners(sorted(names))
        folders = names - owned.keys()
        gone = [*owned, *(name for folder in folders for name in engine.archive.products.products_below(folder))]
        deleted = engine.cache.deleted
        lost = [name for name in gone if name not in deleted and not os.path.lexists(prefix + from_text(cache_path(name)))]
        if lost:
            engine.scans.report_missing(lost)

    # ------------------------------------------------------------------------------------------------------ checking files

    def poll(self, now: float) -> None:
        """Perform the due checks; the loop calls this after each turn."""
        self._take_notifications()
        self._is_cut_short = False
        engine = self.engine
        if engine is None:
            return
        self._is_looking_again = self._is_looking_again and not engine.is_idle
        for folder in engine.scans.fresh_reads.pop_noted():
            self._second_checks.setdefault(folder, now + _SECOND_CHECK_S)
        self._paths.update(dict.fromkeys(self._shared_files.poll(engine.scans.links, now)))
        self._writing.refresh_unfinished(engine)
        if self._is_anything_gathered or self._writing:
            engine.scans.refresh_own_files()
        self._take_written(engine, now)
        if self._is_anything_gathered and not engine.scans.is_scanning and (self.is_amid_changes or not self._is_held(now)):
            self._check(engine, now)
        if self._second_checks and engine.is_idle and not self._is_anything_gathered:
            self._check_again(engine, now)
        self._intermediates.check(engine, now)
        if engine.metadata.held and not self._is_held(now) and not engine.scans.is_scanning:
            self._check_nameless(engine, now)
        self._cookies.end_due(now)

    @property
    def is_looking_again(self) -> bool:
        """Whether the only current work of the engine is the second check of recently written files."""
        return self._is_looking_again and not self._is_anything_gathered

    @property
    def _is_anything_gathered(self) -> bool:
        return bool(self._paths or self._trees or self._is_lost) or self.is_amid_changes

    @property
    def is_amid_changes(self) -> bool:
        """Whether a batch of reported changes is still being checked. No job may start until the whole batch is checked."""
        return bool(self._placing or self._absences or self._folders_due)

    def _check(self, engine: Engine, now: float) -> None:
        """Check gathered paths for a limited time, because clients wait; the next turn of the loop continues."""
        until = time.monotonic() + _SLICE_S
        if not self.is_amid_changes:
            self._placing, self._paths, self._pending_folders = deque(self._paths), {}, None
            self._have_folders.clear()
            self._absences.clear()
        elif not self._placing:
            self._placing.extend(self._absences.due_paths(now))
        while self._placing and not self._is_lost:
            self._place(engine, self._placing.popleft(), self._folders_due, now)
            if time.monotonic() >= until and self._placing:
                self._is_cut_short = True
                return
        if self._absences and not self._is_lost:
            return
        self._is_looking_again = False
        self.folder_checks += bool(self._folders_due or self._trees or self._is_lost)
        if self._is_lost or len(self._folders_due) + len(self._trees) > _MOST_FOLDERS:
            self._check_everything(engine, now)
        else:
            self._check_folders(engine, now, until)

    def _check_everything(self, engine: Engine, now: float) -> None:
        """Start a scan of all scan folders, and drop the pending checks of single files and folders."""
        retries, is_full = self._retries, self._is_full
        self._is_lost = self._retries = self._is_full = False
        for gathered in (self._placing, self._absences, self._folders_due, self._whole, self._named, self._trees):
            gathered.clear()
        # Lost notifications may cause a scan every minute, and reading the bytes of every file would take too long. So only a scan
        # that a user requested may read all bytes (`Engine.is_full_scan`).
        engine.start_scan(retries=retries, is_full=is_full or (None if retries else False))
        self._note_distrusted(engine, now)

    def _check_folders(self, engine: Engine, now: float, until: float) -> None:
        while self._folders_due:
            folder = next(iter(self._folders_due))
            self._check_folder(engine, folder, self._folders_due.pop(folder), now)
            self._is_cut_short = bool(self._folders_due) and time.monotonic() >= until
            if self._is_cut_short:
                return
        self._is_cut_short = bool(self._paths)
        for tree in [tree for tree in self._trees if any(is_below(tree, other) for other in self._trees)]:
            del self._trees[tree]
        if self._trees:
            tree = next(iter(self._trees))
            del self._trees[tree]
            for above in _above_replaced_file(engine, tree):
                engine.scans.check_folder(above)
            engine.scans.start_below(tree)
            self._second_checks[tree] = now + _SECOND_CHECK_S

    def _check_folder(self, engine: Engine, folder: str, again: set[PathKey], now: float) -> None:
        """Check the named files of one folder, or the whole folder if necessary."""
        is_whole = folder in self._whole
        self._whole.discard(folder)
        named = {key: self._named.pop(key, b"") for key in again}
        if is_whole or not again or not engine.scans.check_files(folder, named):
            engine.scans.check_folder(folder, frozenset(again))
        self._second_checks[folder] = now + _SECOND_CHECK_S

    def _place(self, engine: Engine, path: bytes, by_folder: dict[str, set[PathKey]], now: float) -> None:
        """Decide what to check because of a reported path: this file, its whole folder, or everything below the path."""
        rels = [rel for rel in self._relatives(path) if not (rel and self._is_ignored(rel))]
        if not rels:
            self._absences.remove(path)  # a new configuration may ignore a path that still waits for a second check: end this wait
            return
        seen = stat_of(path)
        if seen is None and self._absences.may_come_back(engine, path, [key_of(rel) for rel in rels if rel], now):
            return
        was_waited_for = self._absences.remove(path)
        if seen is None:
            self._writing.finish(rels)
            # if the missing path is a scan folder, scan everything, because the scan reports a missing scan folder
            self._is_lost = self._is_lost or "" in rels
            for rel in filter(None, rels):
                if not was_waited_for and engine.is_unknown_path(key_of(rel)):
                    continue  # the path was a temporary file, deleted before its first notification was handled
                self._whole.add(parent(key_of(rel)))
                by_folder.setdefault(parent(key_of(rel)), set())
                if was_folder(engine, key_of(rel)):
                    self._trees[key_of(rel)] = None
        elif stat.S_ISDIR(seen.st_mode):
            self._writing.finish(rels)
            for rel in rels:
                self._place_folder(engine, path, key_of(rel), by_folder)
        elif engine.scans.is_own(path, seen):
            self._writing.finish(rels)
            for key in (
                key for key in map(key_of, rels) if not engine.is_unknown_path(key)
            ):  # the source at this path was replaced by one of aptui's own files
                self._whole.add(parent(key))
                by_folder.setdefault(parent(key), set())
        elif self._writing.is_ready(engine, path, rels, seen, now):
            self._writing.finish(rels)
            self._place_file(engine, path, [key_of(rel) for rel in rels], by_folder)

    def _place_file(self, engine: Engine, path: bytes, keys: Sequence[PathKey], by_folder: dict[str, set[PathKey]]) -> None:
        for key in keys:
            self._name(key, path)
            by_folder.setdefault(parent(key), set()).add(key)
            if self._is_folder_so_far(engine, key):
                self._trees[key] = None

    def _is_folder_so_far(self, engine: Engine, key: PathKey) -> bool:
        """Whether this file replaced a folder: the pending or stored state has a folder with the file's key."""
        if self._pending_folders is None:
            found = self._pending_folders = set[str]()
            for folder in engine.pipeline.jobs.memory.folders:
                while folder not in found:
                    found.add(folder)
                    folder = parent(folder)  # noqa: PLW2901
        if key in self._pending_folders:
            return True
        above, archive = parent(key), engine.archive.folders
        has_any = self._have_folders.get(above)
        if has_any is None:
            has_any = self._have_folders[above] = archive.has_folders_below(above)
        return has_any and archive.has_folder(key)

    def _name(self, key: PathKey, path: bytes) -> None:
        """Record the path of a reported file. If another reported path has the same key, have the whole folder checked."""
        if self._named.setdefault(key, path) != path:
            self._whole.add(parent(key))

    def _place_folder(self, engine: Engine, path: bytes, key: PathKey, by_folder: dict[str, set[PathKey]]) -> None:
        for folder in (key, *_above_replaced_file(engine, key)):
            self._whole.add(folder)
            by_folder.setdefault(folder, set())
        if any(folder == key for _part, folder in engine.scans.unknown):
            # the folder was unreadable, so the files below it were not checked; it may be readable now: check everything below it
            self._note_tree(path)

    # ------------------------------------------------------------------------------------ files that a program is writing

    def is_being_written(self, path: str, *, is_asked: bool = False) -> bool:
        """Whether another process holds this source (absolute path in text form) open for writing; see `ChangeSource`."""
        return self._writing.is_being_written(from_text(path), is_asked=is_asked)

    def _take_written(self, engine: Engine, now: float) -> None:
        """Check the files that are no longer being written."""
        for path, is_there in self._writing.find_ended(now, engine.scans.is_own):
            if not is_there:
                self._paths[path] = None  # the path is missing: check it again, because a deletion needs two checks
                continue
            rels = self._relatives(path)
            self._writing.finish(rels)
            if engine.scans.is_scanning or self._is_held(now):
                self._writing.drop_stamp(path)
                self._paths[path] = None
                continue
            self._writing.remember_stamp(path, now)
            for rel in rels:
                self._name(key_of(rel), path)
                self._check_folder(engine, parent(key_of(rel)), {key_of(rel)}, now)

    # ------------------------------------------------------------------------------------------------------- second checks

    def _note_distrusted(self, engine: Engine, now: float) -> None:
        """Schedule a second check of the folders with files whose stored times are not trusted."""
        for folder in engine.archive.folders.list_distrusted_folders():
            self._second_checks.setdefault(folder, now + _SECOND_CHECK_S)

    def first_scan_is_done(self) -> None:
        """Schedule a second check of files that were written just before the first scan read them."""
        if self.engine is not None:
            self._note_distrusted(self.engine, time.monotonic())

    def _check_again(self, engine: Engine, now: float) -> None:
        due = [folder for folder, when in self._second_checks.items() if when <= now]
        until = time.monotonic() + _SLICE_S
        for folder in due:
            del self._second_checks[folder]
            self._is_looking_again = True
            engine.scans.check_folder(folder)
            if time.monotonic() >= until:
                break

    @staticmethod
    def _check_nameless(engine: Engine, now: float) -> None:
        """Check the sources whose wait for an identity file has ended; the check creates the missing identity files."""
        for held in engine.metadata.due(now):
            key = key_of(held[1])
            engine.scans.check_folder(parent(key), frozenset({key}))
            engine.metadata.held.pop(held, None)

    # --------------------------------------------------------------------------------------- delayed processing of changes

    @property
    def holds(self) -> tuple[str, ...]:
        """Descriptions of the clients that delay the processing of changes (`aptui hold`)."""
        return (*([self._held_by] if self._held_by else ()), *(why for _client, why in self._client_holds))

    def hold(self, client: int, why: str) -> None:
        """Gather changes, but do not process them until `release` is called."""
        self._client_holds[client, why] = None

    def release(self, client: int) -> None:
        """End the delays that one client requested by `hold`."""
        for held in [held for held in self._client_holds if held[0] == client]:
            del self._client_holds[held]
            self._free_at = time.monotonic() + _AFTER_HOLD_S

    def _is_held(self, now: float) -> bool:
        """Whether a version-control operation, a client or `aptui drain` delays the processing of changes now."""
        busy = self._repositories.busy()
        if busy:
            self._free_at = now + _AFTER_HOLD_S
        self._held_by = busy
        return bool(busy or self._client_holds or self.is_draining or now < self._free_at)

    # ------------------------------------------------------------------------------------------------------------ requested scans

    def rescan(self, *, retries: bool, is_full: bool = False) -> None:
        """Scan everything as soon as no other scan is in progress and no client delays the processing of changes.

        `is_full`: read the bytes of every file.
        """
        self._is_lost = True
        self._retries, self._is_full = self._retries or retries, self._is_full or is_full

    def when_synced(self, done: Callable[[bool], None]) -> None:
        """Call `done(True)` when all earlier changes of watched roots are handled, `done(False)` if the watcher is too slow."""
        self._cookies.begin(time.monotonic(), done)

    @property
    def is_quiet(self) -> bool:
        """Whether all reported changes are checked."""
        is_waiting = self.engine is not None and bool(self.engine.metadata.held)
        return self._notifications.empty() and not (
            self._is_anything_gathered or self._writing or self._intermediates.due is not None or is_waiting
        )

    def next_deadline(self, now: float) -> float | None:
        """Return the time (monotonic) at which `poll` must be called next without an event, None = only after an event."""
        if self.engine is None:
            return None
        times = [*([now] if self._is_cut_short else ()), *self._writing.deadlines()]
        if self._absences and not self._placing:
            times.append(self._absences.due)
        elif self._is_anything_gathered and not self.engine.scans.is_scanning:
            times.append(max(now, self._free_at) if now < self._free_at and not self._held_by else now + _HOLD_CHECK_S)
        if self._client_holds or self.is_draining:
            times = [due for due in times if due > now + _HOLD_CHECK_S]
        times.append(self._shared_files.next_deadline(self.engine.scans.links))
        times.extend(self._cookies.deadlines())
        if self._intermediates.due is not None:
            times.append(self._intermediates.due)
        if self.engine.metadata.held and not self.engine.scans.is_scanning:
            times.append(max(now + (_HOLD_CHECK_S if self.holds else 0.0), min(self.engine.metadata.held.values())))
        if self._second_checks and self.engine.is_idle and not self._is_anything_gathered:
            times.append(max(now, min(self._second_checks.values())))
        return min(times, default=None)


def _above_replaced_file(engine: Engine, folder: PathKey) -> tuple[str, ...]:
    """Return the parent of `folder` if a file with the path of `folder` may be known; return nothing if none can be known.

    `folder` may have replaced that file, and only a check of the parent folder finds that the file is gone.
    """
    return () if engine.is_unknown_path(folder) else (parent(folder),)

"""Relocates sources: checks a move or a deletion, returns its preview or performs its steps in order.

`RelocationRequests` performs the requests of an engine's clients.

A source moves after its metadata, so that a scan that finds the moved source also finds its `.meta` file. If one of these files
cannot be moved, the earlier moves of this source and its metadata are undone. The first failure ends the relocation: completed
steps for other sources stay, later steps are not started, and the report lists all steps. References are updated last, and only if
they refer to files that were moved.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import DecodeError, Struct, ValidationError, json
from msgspec.structs import asdict, replace

from aptui.config.configuration import Config
from aptui.config.dirs import asset_database, recovery_folder, xdg
from aptui.core.paths import from_text, is_below, normalize, os_path
from aptui.engine.cache.cache import Cache
from aptui.features.relocation import moved_files
from aptui.features.relocation.moved_files import Rename, UnreadableError
from aptui.features.relocation.plan import Mention, Plan, group_items, make_plan, prefixes_of, renames_for
from aptui.features.relocation.relocation_records import (
    Relocate,
    RelocationAction,
    RelocationItem,
    RelocationReport,
    Update,
    count_report,
    shorten_report,
)
from aptui.shared.errors import BusyError, HostError, KnownError
from aptui.shared.files.replacing import PRIVATE, list_begun, replace_bytes
from aptui.store.queries.reader import open_reader

if TYPE_CHECKING:
    from aptui.engine.live.supervisor import EngineSupervisor
    from aptui.link.port import Request

# The journal has the whole plan of a relocation. It is written before the first file changes, so that a relocation whose process is
# killed can be completed.
#
# The journal is in the cache's recovery folder. The next engine, `aptui batch` or the next relocation completes the killed
# relocation. A step runs only if its file is still in the state that the plan recorded, so no step runs twice.

Stamp = tuple[int, int, int]
"""(inode, size, mtime_ns); a rename does not change the stamp."""


class Rewrite(Struct, frozen=True):
    """A file whose references are updated: its path before and after the move, the digest of its old bytes, and the renames."""

    file: str
    new_file: str
    digest: str
    renames: tuple[Rename, ...]
    update: Update


class Journal(Struct, frozen=True):
    """The journal's content: the plan of a relocation.

    Args:
        report: the plan's report; its items are in the order of the steps, each with its stamp.
        roots: {scan folder: absolute path}; folders in them that become empty are removed.
        prefixes: possible prefixes of a relative path in a text.
    """

    report: RelocationReport
    stamps: tuple[Stamp, ...]
    rewrites: tuple[Rewrite, ...]
    roots: dict[str, str]
    prefixes: tuple[str, ...]


@contextmanager
def keep_journal(cache_dir: Path, journal: Journal) -> Iterator[None]:
    """Context manager that keeps the journal on disk while the block runs; if the process is killed, the journal stays."""
    path, record, data = path_of(cache_dir), _record_of(cache_dir), json.encode(journal)
    for folder in (path.parent, record.parent):
        folder.mkdir(parents=True, exist_ok=True)
    replace_bytes(record, _digest(data), mode=PRIVATE)
    replace_bytes(path, data)
    for folder in (*path.parents[:2], record.parent):
        _sync_folder(folder)
    yield
    path.unlink()  # the digest file stays: it is small, and is valid for this journal only


def path_of(cache_dir: str | os.PathLike[str]) -> Path:
    """Return the path of the journal."""
    return recovery_folder(cache_dir) / "relocation.json"


def _record_of(cache_dir: Path) -> Path:
    """Return the file in the user's state folder with the digest of the journal of this cache.

    A cache may come from another machine or user, and its journal could then rewrite any file of the project.
    """
    name = hashlib.sha256(os.fsencode(os.path.realpath(cache_dir))).hexdigest()[:32]
    return Path(xdg("XDG_STATE_HOME", "~/.local/state"), "relocations", name)


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).hexdigest().encode()


def _refuse_unrecorded(cache_dir: Path, path: Path, data: bytes) -> None:
    try:
        recorded = _record_of(cache_dir).read_bytes()
    except OSError:
        recorded = b""
    if recorded != _digest(data):
        raise HostError(
            f"'{path}' is the plan of a move or deletion that you did not begin on this machine, so nothing was changed",
            hint="delete this plan",
        )


def stamp_of(file: str) -> Stamp:
    """Return the stamp of a file (text form), zeros if it does not exist."""
    try:
        seen = os.lstat(os_path(file))
    except OSError:
        return (0, 0, 0)
    return seen.st_ino, seen.st_size, seen.st_mtime_ns


def digest_of(file: str) -> str:
    """Return the digest of a file's bytes (text form), "" if it cannot be read."""
    try:
        return hashlib.sha256(moved_files.read(os_path(file))).hexdigest()
    except UnreadableError:
        return ""


def recover(config: Config) -> str:
    """Complete a killed relocation; return a message about it, "" if there was no journal."""
    report = complete(config)
    if report is None:
        return ""
    what = "deletion" if report.order.is_delete else "move"
    return f"the {what} of '{report.order.source}' was interrupted, and is now completed"


def complete(config: Config) -> RelocationReport | None:
    """If an earlier relocation was killed, complete it and return its report.

    The caller holds the cache's lock. If a file cannot be moved now, the journal stays for the next attempt.

    Raises:
        HostError: the journal names a file outside the project's scan folders, because the cache came from another project; or
            this user did not write the journal on this machine.
    """
    cache_dir = config.cache_dir
    path = path_of(cache_dir)
    try:
        data = path.read_bytes()
        journal = json.decode(data, type=Journal)
    except FileNotFoundError:
        return None
    except (DecodeError, ValidationError):  # an incomplete journal proves that no file was moved yet
        path.unlink()
        return None
    _refuse_outside(journal, path, {str(config.project_dir), *(folder.path for folder in config.project.scan_folders)})
    _refuse_unrecorded(cache_dir, path, data)
    _remove_temporary(journal)
    items = [
        _complete_item(item, stamp, is_delete=journal.report.order.is_delete)
        for item, stamp in zip(journal.report.items, journal.stamps, strict=True)
    ]
    updates = [_complete_rewrite(rewrite, journal.prefixes) for rewrite in journal.rewrites]
    removed = _remove_empty(journal.report.order, items, journal.roots)
    if all(item.action is RelocationAction.DONE for item in items):
        path.unlink()
    report = replace(journal.report, items=tuple(items), updates=tuple(updates), removed=removed, is_performed=True)
    return count_report(report)


def _refuse_outside(journal: Journal, path: Path, allowed: set[str]) -> None:
    files = [file for item in journal.report.items for file in (item.old_file, item.new_file)]
    files += [file for rewrite in journal.rewrites for file in (rewrite.file, rewrite.new_file)]
    for file in (*filter(None, files), *(root for root in journal.roots.values() if root not in allowed)):
        if normalize(file) != file or not any(is_below(file, root) for root in allowed):
            raise HostError(
                f"'{path}' is the plan of a move or deletion of '{file}', which is not in a scan folder, so nothing was changed",
                hint="add the missing scan folder to the configuration, or delete this plan",
            )


def _complete_item(item: RelocationItem, stamp: Stamp, *, is_delete: bool) -> RelocationItem:
    problem = ""
    if stamp_of(item.old_file) == stamp:
        try:
            if is_delete:
                moved_files.delete(item.old_file)
            else:
                moved_files.move(item.old_file, item.new_file)
        except OSError as error:
            problem = error.strerror or str(error)
    return replace(item, action=RelocationAction.FAILED if problem else RelocationAction.DONE, problem=problem)


def _complete_rewrite(rewrite: Rewrite, prefixes: Iterable[str]) -> Update:
    file = rewrite.new_file if os.path.lexists(os_path(rewrite.new_file)) else rewrite.file
    if digest_of(file) == rewrite.digest:  # otherwise the file was edited after planning, or is already updated
        try:
            _rewrite_file(file, rewrite.renames, prefixes)
        except UnreadableError as error:
            return replace(rewrite.update, action=RelocationAction.FAILED, problem=str(error))
    return replace(rewrite.update, file=file, action=RelocationAction.DONE)


def _rewrite_file(file: str, renames: Sequence[Rename], prefixes: Iterable[str]) -> int:
    """Replace the old paths and UUIDs in a file by those after the move; return the number of replacements.

    Raises:
        UnreadableError: the file is not text, or cannot be read or written.
    """
    mended = moved_files.replace_names(moved_files.read(os_path(file)), renames, prefixes)
    if mended.count:
        moved_files.rewrite(os_path(file), mended.data)
    return mended.count


def _remove_temporary(journal: Journal) -> None:
    """Remove the temporary files of a relocation whose process was killed; `journal` is its record."""
    begun = [f"{os_path(item.new_file)}{moved_files.BEGUN}" for item in journal.report.items if item.new_file]
    for each in journal.rewrites:
        begun += [*list_begun(Path(os_path(each.file))), *list_begun(Path(os_path(each.new_file)))]
    for path in begun:
        with suppress(OSError):
            os.unlink(path)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def relocate(order: Relocate, config: Config) -> RelocationReport:
    """Perform a move or a deletion if the request is confirmed and has no problems; otherwise return a preview.

    Raises:
        RelocationError: the source or the destination is not valid.
        UserError: nothing was processed yet.
    """
    finished = complete(config) if order.is_confirmed else None
    if finished is not None and finished.order == order:
        return finished
    plan = _plan(order, config)
    if plan.refusals or not order.is_confirmed:
        return plan.report()
    with keep_journal(config.cache_dir, _as_journal(plan)):
        return _RelocationSteps(plan).perform()


def list_touched(report: RelocationReport) -> list[str]:
    """Return the absolute paths of changed files, in text form."""
    moved = [
        path for item in report.items if item.action is RelocationAction.DONE for path in (item.old_file, item.new_file) if path
    ]
    return [*moved, *(update.file for update in report.updates if update.action is RelocationAction.DONE), *report.removed]


def _plan(order: Relocate, config: Config) -> Plan:
    with closing(open_reader(asset_database(config.cache_dir))) as reader, reader.snapshot():
        return make_plan(order, config, reader)


def _as_journal(plan: Plan) -> Journal:
    groups = group_items(plan.items)
    items = [plan.items[at] for group in groups for at in _in_order(plan, group)]
    mentions = {mention.new_file: mention for mention in plan.mentions}
    rewrites = []
    for update in plan.updates:
        mention = mentions[update.file]
        if update.count:
            renames = tuple(renames_for(plan, mention, mention.targets))
            rewrites.append(Rewrite(mention.file, mention.new_file, digest_of(mention.file), renames, update))
    return Journal(
        replace(plan.report(), items=tuple(items)),
        tuple(stamp_of(item.old_file) for item in items),
        tuple(rewrites),
        _roots_of(plan),
        tuple(prefixes_of(plan)),
    )


def _roots_of(plan: Plan) -> dict[str, str]:
    return {folder.name: folder.path for folder in plan.tree.folders}


def _remove_empty(order: Relocate, items: Iterable[RelocationItem], roots: dict[str, str]) -> tuple[str, ...]:
    """Remove the folders that became empty, unless the request asks to keep empty folders; return the removed folders."""
    left = {(os.path.dirname(item.old_file), roots[item.folder]) for item in items if item.action is RelocationAction.DONE}
    pairs = [] if order.leaves_empty_folders else sorted(left, reverse=True)
    return tuple(gone for folder, root in pairs for gone in moved_files.remove_empty(folder, root, list(roots.values())))


def _in_order(plan: Plan, group: list[int]) -> list[int]:
    """Return the indices in `group`, a source and its metadata files, in the order of processing.

    A move begins with the metadata; a deletion ends with the metadata.
    """
    return group if plan.order.is_delete else group[::-1]


class _RelocationSteps:
    def __init__(self, plan: Plan) -> None:
        self._plan, self._items = plan, plan.items
        self._is_over = False
        self._places = {item.old_file: at for at, item in enumerate(self._items)}

    def perform(self) -> RelocationReport:
        """Perform all steps until one fails."""
        for group in group_items(self._items):
            order = _in_order(self._plan, group)
            if self._is_over:
                self._mark(order, RelocationAction.LEFT)
            else:
                self._perform_group(order)
        removed = _remove_empty(self._plan.order, self._items, _roots_of(self._plan))
        updates = tuple(self._updates())
        report = replace(self._plan.report(), updates=updates, removed=removed, is_performed=True)
        return count_report(report)

    def _perform_group(self, order: list[int]) -> None:
        for place, at in enumerate(order):
            try:
                self._perform(self._items[at])
            except OSError as error:
                self._is_over = True
                self._items[at] = replace(self._items[at], action=RelocationAction.FAILED, problem=error.strerror or str(error))
                self._mark(order[place + 1 :], RelocationAction.LEFT)
                if not self._plan.order.is_delete:
                    self._move_back(order[:place])
                return
            self._items[at] = replace(self._items[at], action=RelocationAction.DONE)

    def _perform(self, item: RelocationItem) -> None:
        if not self._plan.order.is_delete:
            self._move(item, item.old_file, item.new_file)
        elif git := self._git_of(item):
            git.delete(item.old_file)
        else:
            moved_files.delete(item.old_file)

    def _move(self, item: RelocationItem, old: str, new: str) -> None:
        git = self._git_of(item)
        (git.move if git else moved_files.move)(old, new)

    def _git_of(self, item: RelocationItem) -> moved_files.Git | None:
        return self._plan.git if item.old_file in self._plan.tracked else None

    def _move_back(self, moved: list[int]) -> None:
        for at in reversed(moved):
            item = self._items[at]
            try:
                self._move(item, item.new_file, item.old_file)
                self._items[at] = replace(item, action=RelocationAction.LEFT)
            except OSError as error:
                self._items[at] = replace(
                    item, problem=f"it was moved without its companion files, and could not be moved back: {error.strerror}"
                )

    def _mark(self, indices: list[int], action: RelocationAction) -> None:
        for at in indices:
            self._items[at] = replace(self._items[at], action=action)

    # ------------------------------------------------------------------------------------------------------------ references

    def _updates(self) -> list[Update]:
        mentions = {mention.new_file: mention for mention in self._plan.mentions}
        return [self._update(update, mentions[update.file]) for update in self._plan.updates]

    def _update(self, update: Update, mention: Mention) -> Update:
        """Update the references in one dependant, at its current path."""
        moved = [at for at in mention.targets if self._items[at].action is RelocationAction.DONE]
        place = self._locate(mention)
        if not moved and place.new_file == mention.file:
            return replace(update, action=RelocationAction.LEFT, problem="the file that it refers to was not moved")
        if not update.count:
            return replace(
                update, action=RelocationAction.FAILED, problem=update.problem or "the file does not contain the old path"
            )
        try:
            count = _rewrite_file(place.new_file, renames_for(self._plan, place, moved), prefixes_of(self._plan))
        except UnreadableError as error:
            return replace(update, action=RelocationAction.FAILED, problem=str(error))
        return replace(update, file=place.new_file, path=place.new_path, count=count, action=RelocationAction.DONE)

    def _locate(self, mention: Mention) -> Mention:
        """Return `mention` with the current path of its file, which is the old path if the file could not be moved."""
        mover = self._places.get(mention.file)
        if mover is None or self._items[mover].action is RelocationAction.DONE:
            return mention
        return replace(mention, new_file=mention.file, new_path=mention.path)


@contextmanager
def hold_engines_off(config: Config) -> Iterator[None]:
    """Prevent engines from starting while files move, because an engine would find only some of the files at their new paths.

    Raises:
        BusyError: an engine is running; it must perform the relocation.
    """
    platforms = [platform.id for platform in config.project.platforms]
    cache = Cache(config.cache_dir, [*platforms, *config.project.resting_platforms])
    cache.acquire()
    with closing(cache):
        yield


# Requests of clients of a running engine. A thread performs one relocation at a time, while the engine holds file changes back. The
# engine then processes all moved files as one batch of changes.

HOLDER = -1
"""Id that this module uses, instead of a client's id, to hold file changes back while files move; no client has this id."""
_LISTED = 1_000
"""Maximum number of entries in each list of an answer: files, updates, warnings and others."""
_WAITING_LIMIT = 32
_POLL_S = 0.02
_SCAN_LIMIT_S = 30.0
"""Maximum wait for a running scan in seconds.

The request fails after this time, so that a longer scan, or a scan that waits for a paused queue, does not block the client.
"""


class RelocationRequests:
    """The queued relocations and the relocation that is being performed. Only the relocation itself runs in a thread."""

    def __init__(self, live: EngineSupervisor) -> None:
        self._live = live
        self._waiting: deque[tuple[Request, Relocate]] = deque()
        self._thread: threading.Thread | None = None
        self._report: RelocationReport | Exception | None = None
        self._give_up_at = 0.0
        live.parts.append(self)

    def handle(self, request: Request, order: Relocate) -> None:
        """Queue a request, which is answered when the relocation is done.

        Raises:
            BusyError: too many requests are queued.
            KnownError: the engine cannot be opened.
        """
        self._live.working_engine()
        if len(self._waiting) >= _WAITING_LIMIT:
            raise BusyError(f"{_WAITING_LIMIT} moves and deletions are queued already", hint="try again later")
        self._waiting.append((request, order))
        if len(self._waiting) == 1:
            self._begin(order)
        self._live.wake()

    def forget_client(self, client: int) -> None:
        """Drop the queued requests of a disconnected client; a running one is completed."""
        first, rest = (list(self._waiting)[:1], list(self._waiting)[1:])
        self._waiting = deque([*first, *(each for each in rest if each[0].client != client)])

    def _begin(self, order: Relocate) -> None:
        self._give_up_at = time.monotonic() + _SCAN_LIMIT_S
        if order.is_confirmed:
            self._live.watching.hold(HOLDER, f"{'deleting' if order.is_delete else 'moving'} '{order.source}'")

    def next_deadline(self, now: float) -> float | None:
        """Return the time of the next `poll`, None if no request is running or queued."""
        return now + _POLL_S if self._thread is not None or self._waiting else None

    def poll(self, now: float) -> None:
        """Answer the running request if its thread has ended. If none is running now, start the first queued request."""
        if self._thread is not None and not self._thread.is_alive():
            self._finish()
        if self._thread is not None or not self._waiting:
            return
        order, engine = self._waiting[0][1], self._live.engine
        # Wait until the scan has ended, because a scan during the move would find only some of the files at their new paths.
        if order.is_confirmed and engine is not None and engine.scans.is_scanning:
            if now >= self._give_up_at:
                self._report = BusyError("a scan of the project did not end in time", hint="try again when the engine is idle")
                self._finish()
                self._live.wake()  # the loop must send this answer and start the next request now
            return
        self._thread = threading.Thread(target=self._run, args=(order,), name="relocation")
        self._thread.start()

    def _run(self, order: Relocate) -> None:
        try:
            self._report = relocate(order, self._live.config)
        except Exception as error:  # noqa: BLE001  # reported to the client; a bug of ours does not end the engine
            self._report = error
        self._live.wake()

    def _finish(self) -> None:
        report, self._report, self._thread = self._report, None, None
        request, order = self._waiting.popleft()
        if order.is_confirmed:
            if isinstance(report, RelocationReport):
                self._notify_watching(report)
            self._live.watching.release(HOLDER)
        match report:
            case RelocationReport():
                answer = shorten_report(report, _LISTED)
                request.answer(**asdict(answer))
            case KnownError():
                request.refuse(report.what, report.hint, report.exit_code)
            case _:
                request.refuse(f"internal error: {type(report).__name__}: {report}", "please report this", 2)
        if self._waiting:
            self._begin(self._waiting[0][1])

    def _notify_watching(self, report: RelocationReport) -> None:
        """Report the changed files to the watcher, without waiting for the kernel's events."""
        from aptui.engine.live.roots import SOURCES  # imported on demand: `aptui move` without an engine needs no watcher
        from aptui.engine.watch.notifications import ChangeNotification

        paths = [from_text(path) for path in list_touched(report)]
        if paths:
            self._live.watching.receive(ChangeNotification(SOURCES, frozenset({*paths, *map(os.path.dirname, paths)})))

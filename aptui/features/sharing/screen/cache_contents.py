"""The contents of a cache for the Shared cache screen: numbers and sizes of products, problems of the cache, and repairs.

The queries of the database run in a thread.

Tests: `tests/features/sharing/screen/test_screen.py`, `tests/features/sharing/screen/test_inventory.py`.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from aptui.config.dirs import asset_database
from aptui.core.paths import cache_path, key_of
from aptui.shared.errors import HostError, KnownError
from aptui.shared.printing import count
from aptui.store.db.schema import translate_errors, uuid_text
from aptui.store.queries.checks import OrphanFile, amount, examine_products, mark_for_check, orphans, still_orphans
from aptui.store.queries.metrics import Amount, builder_names, cache_contents
from aptui.store.queries.reader import open_reader
from aptui.tui.background import BackgroundTask
from aptui.tui.frame.commandline import Choice
from aptui.tui.frame.line import Part
from aptui.tui.screens.external_programs import native
from aptui.tui.terminal.safety import glyph, make_safe
from aptui.tui.widgets.cells import share_bar
from aptui.tui.widgets.menu import Menu, MenuChoice, MenuItem
from aptui.tui.words import clock, shorten, size_text

if TYPE_CHECKING:
    from aptui.tui.data.feed import Batch
    from aptui.tui.pane import Shell


_DAY_MS = 24 * 3600 * 1000
_REPORT_EVERY_S = 0.1
"""Minimum interval between two reports of a check's progress, in seconds."""


class CacheShare(Struct, frozen=True):
    """Number and size (bytes) of the products of one platform, folder or builder, or of a single product.

    `of_bytes` is the size of all products in the cache. `made` and `made_bytes` count only products made in the last 24 h.
    """

    name: str
    count: int
    size_bytes: int
    of_bytes: int
    made: int = 0
    made_bytes: int = 0


class CacheInventory(Struct, frozen=True):
    """Number and size of all products in the cache at one time, by platform, folder and builder, and the largest products."""

    platforms: tuple[CacheShare, ...]
    folders: tuple[CacheShare, ...]
    builders: tuple[CacheShare, ...]
    products: tuple[CacheShare, ...]
    count: int
    size_bytes: int
    made: int
    made_bytes: int
    free_bytes: int
    disk_bytes: int
    at_ms: int


class CacheProblem(Struct, frozen=True):
    """A problem in the cache.

    Args:
        kind: "damaged", "missing", or "unowned" (a file that is not a product).
        name: path of the file, relative to the cache.
        source: source of the product; "" for an unowned file.
        size_bytes: size of the file, -1 = unknown.
        job_id: job that made the product, 0 = unknown.
        is_watched: whether the engine checks the folder of an unowned file.
    """

    kind: str
    name: str
    source: str = ""
    size_bytes: int = -1
    job_id: int = 0
    is_watched: bool = True


class CheckProgress(Struct, frozen=True):
    """Progress of a check and its findings: `done` of `whole` bytes, or `done` folders if `whole` is 0.

    `count` of `of_count` products were checked, `without_digest` of them have no digest to compare with.
    """

    done: int = 0
    whole: int = 0
    count: int = 0
    of_count: int = 0
    without_digest: int = 0
    problems: tuple[CacheProblem, ...] = ()


def read_contents(cache_dir: Path, builders: Mapping[bytes, str], now_ms: int) -> CacheInventory:
    """Return the contents of the cache; takes some seconds for a million products.

    Raises:
        KnownError: the database cannot be read.
    """
    path = asset_database(cache_dir)
    with closing(open_reader(path)) as reader, translate_errors(path):
        with reader.snapshot():
            found = cache_contents(reader, now_ms - _DAY_MS)
        names = builders if builders.keys() >= dict(found.builders).keys() else builder_names(reader, builders)
    total = found.total
    grown = {each.name: each for each in found.grown}
    free_bytes, disk_bytes = _disk(cache_dir)

    def share(each: Amount, name: str) -> CacheShare:
        made = grown.get(each.name, Amount("", 0, 0))
        return CacheShare(name, each.count, each.size_bytes, total.size_bytes, made.count, made.size_bytes)

    return CacheInventory(
        tuple(share(each, each.name) for each in found.platforms),
        tuple(share(each, f"{each.name}/" if each.name else "(top level)") for each in found.folders),
        tuple(share(each, names.get(uuid) or uuid_text(uuid)) for uuid, each in found.builders),
        tuple(share(each, each.name) for each in found.largest),
        total.count,
        total.size_bytes,
        sum(each.count for each in found.grown),
        sum(each.size_bytes for each in found.grown),
        free_bytes,
        disk_bytes,
        now_ms,
    )


def _disk(folder: Path) -> tuple[int, int]:
    try:
        usage = shutil.disk_usage(folder)
    except OSError:
        return -1, -1
    return usage.free, usage.total


def verify(task: BackgroundTask, cache_dir: Path, report: Callable[[CheckProgress], object]) -> CheckProgress:
    """Compare every product with its digest; `report` is called at intervals.

    Raises:
        KnownError: the database cannot be read. CancelledError: the check was cancelled.
    """
    path, reported_at = asset_database(cache_dir), 0.0
    with closing(open_reader(path)) as reader, translate_errors(path):
        of_count, whole = amount(reader)
        done = count = without = 0
        problems: list[CacheProblem] = []
        for product, finding in examine_products(reader, cache_dir):
            task.check()
            count, done, without = count + 1, done + max(product.size, 0), without + (not product.digest)
            if finding is not None:
                problems.append(CacheProblem(finding.problem, finding.product, finding.source, product.size, finding.job_id))
            if time.monotonic() - reported_at > _REPORT_EVERY_S:
                reported_at = time.monotonic()
                report(CheckProgress(done, whole, count, max(of_count, count), without, tuple(problems)))
    return CheckProgress(done, whole, count, count, without, tuple(problems))


def find_unowned(
    task: BackgroundTask, cache_dir: Path, platforms: tuple[str, ...], report: Callable[[CheckProgress], object]
) -> CheckProgress:
    """Search for files without a product.

    Raises:
        KnownError: the database cannot be read. CancelledError: the check was cancelled.
    """
    path, reported_at, count = asset_database(cache_dir), 0.0, 0
    found: list[OrphanFile] = []
    with closing(open_reader(path)) as reader, translate_errors(path):
        for _folder, here in orphans(reader, cache_dir, platforms):
            task.check()
            count += 1
            found += here
            if time.monotonic() - reported_at > _REPORT_EVERY_S:
                reported_at = time.monotonic()
                report(CheckProgress(count, 0, count, 0, 0, tuple(map(_as_unowned, found))))
        found = still_orphans(found, reader, cache_dir)  # a running commit may have added rows for these files
    return CheckProgress(count, 0, count, count, 0, tuple(map(_as_unowned, found)))


def keep_unowned(cache_dir: Path, problems: tuple[CacheProblem, ...]) -> tuple[CacheProblem, ...]:
    """Return the problems whose files still exist and still have no product."""
    path = asset_database(cache_dir)
    with closing(open_reader(path)) as reader, translate_errors(path):
        left = {orphan.name for orphan in still_orphans([_orphan(each) for each in problems], reader, cache_dir)}
    return tuple(each for each in problems if each.name in left)


def _as_unowned(orphan: OrphanFile) -> CacheProblem:
    return CacheProblem("unowned", orphan.name, "", orphan.size_bytes, is_watched=orphan.is_watched)


def _orphan(problem: CacheProblem) -> OrphanFile:
    return OrphanFile(problem.name, problem.size_bytes, problem.is_watched)


def refuse_unreadable(cache_dir: Path) -> None:
    """Raise HostError if the cache cannot be read; a check would report every product as missing."""
    if not os.access(cache_dir, os.R_OK | os.X_OK):
        raise HostError(f"cache '{cache_dir}' cannot be read", hint="check its permissions, and that its disk is mounted")


WIDE_COLUMNS = 110
"""Minimum screen width (columns) for tables side by side and for the long form of the summary."""
_GAUGE_CELLS = 16
"""Length (columns) of the bar that shows the used space of the disk."""


class InventoryReader:
    """Reads the inventory of the cache in a thread.

    It is read when the screen is shown, and again when assets have changed and the engine is idle.

    Args:
        taken: called in the app's thread with the inventory.
        changed: called when the summary must be drawn again.
    """

    def __init__(self, shell: Shell, taken: Callable[[CacheInventory], object], changed: Callable[[], object]) -> None:
        self._shell, self._taken, self._changed = shell, taken, changed
        self._task = BackgroundTask("aptui-cache-contents", shell.in_ui)
        self._is_stale = True
        self.contents: CacheInventory | None = None
        """The inventory of the cache, None = not read yet."""
        self.trouble = ""
        """Why the inventory could not be read."""

    def close(self) -> None:
        """Cancel reading."""
        self._task.close()

    def note(self, batch: Batch) -> None:
        """Record whether a batch of events may have changed the products in the cache."""
        self._is_stale = self._is_stale or batch.are_assets_stale or batch.table is not None

    def read_if_stale(self) -> None:
        """Read the inventory of the cache if it was not read yet, or if it changed since the last read and the engine is idle."""
        progress = self._shell.session.latest_progress
        is_idle = progress is None or not (progress.jobs_running or progress.jobs_waiting or progress.analyses_running)
        if self._is_stale and (is_idle or (self.contents is None and not self.trouble)):
            self.read()

    def read(self) -> None:
        """Read the inventory of the cache. If a read is running, start another one after it."""
        config, cache_dir = self._shell.config, self._shell.session.cache_dir
        builders = {builder.uuid: builder.name for builder in config.project.builders} if config else {}
        now_ms = int(time.time() * 1000)
        self._is_stale = True
        if self._task.start(lambda _task: read_contents(cache_dir, builders, now_ms), self._set_contents, self._fail):
            self._is_stale = False
            self._changed()

    def _set_contents(self, contents: CacheInventory) -> None:
        self.contents, self.trouble = contents, ""
        self._taken(contents)
        self.read_if_stale()  # products may have changed during the read
        self._changed()

    def _fail(self, error: KnownError) -> None:
        self.trouble = str(error)
        self._changed()

    def summary(self, width: int) -> tuple[Sequence[Part], Sequence[Part]]:
        """Return the summary line: amounts on the left, disk space on the right."""
        known = self.contents
        if known is None:
            words, role = (make_safe(self.trouble), "warning") if self.trouble else ("reading the contents of the cache…", "muted")
            return (Part(f" {words}", role),), ()
        is_wide, is_all = width >= WIDE_COLUMNS, known.made == known.count
        left = [Part(f" {count(known.count, 'product')}", "title"), Part(f"   {size_text(known.size_bytes)}", "title")]
        made = "all" if is_all else f"{known.made:,}" if known.made else "none"
        if self._is_stale:
            left.append(Part(f"   as of {clock(known.at_ms)}", "warning"))
        elif known.count:
            size = f", {size_text(known.made_bytes)}" if known.made and not is_all and is_wide else ""
            left.append(Part(f"   {made} made in the last 24 h{size}", "muted"))
        return left, _inventory_disk(known, is_wide=is_wide)


def _inventory_disk(known: CacheInventory, *, is_wide: bool) -> list[Part]:
    if known.disk_bytes <= 0:
        return []
    if not is_wide:
        return [Part(f"{size_text(known.free_bytes)} free on its disk", "muted")]
    words = f"{size_text(known.free_bytes)} of {size_text(known.disk_bytes)} free on its disk"
    return [Part(words, "muted"), Part("  "), *gauge((known.disk_bytes - known.free_bytes) / known.disk_bytes, _GAUGE_CELLS)]


def gauge(share: float, cells: int) -> tuple[Part, ...]:
    """Return a bar of `cells` columns: the part up to `share` is filled, the rest is a thin line."""
    filled = share_bar(share, cells)
    return Part(filled, "accent"), Part(glyph("rule") * (cells - len(filled)), "rule")


# Checks of the cache on the Shared cache screen.
#
# The check `verify` finds products whose bytes differ from their database rows. The check `unowned` finds files without a product.
#
# A check runs in a thread and reports findings while it runs. A repair is a request to the engine; the screen deletes no files.

_CANCELLED = -1
"""Value of `CacheExamination.ended_ms` after a cancelled check."""


class CacheExamination:
    """The running check, or the last one.

    Args:
        found: called in the app's thread with all findings so far.
        turned: called when a check starts, ends, is cancelled or fails, or when findings are removed.
        ended: called when a check has completed.
    """

    def __init__(
        self, shell: Shell, found: Callable[[CheckProgress], object], turned: Callable[[], object], ended: Callable[[], object]
    ) -> None:
        self._shell, self._found, self._turned, self._ended = shell, found, turned, ended
        self._task = BackgroundTask("aptui-cache-look", shell.in_ui)
        self.kind = ""
        """Name of the running or last check, "verify" or "unowned"; "" = no check was started, or the last check failed."""
        self.progress: CheckProgress | None = None
        """Progress and findings so far, None = no check was started, or the last check failed."""
        self.ended_ms = 0
        """When the check ended; 0 = it is running, negative = it was cancelled."""

    def close(self) -> None:
        """Cancel the running check."""
        self._task.close()

    @property
    def is_busy(self) -> bool:
        """Whether a check is running."""
        return self._task.is_busy

    @property
    def problems(self) -> tuple[CacheProblem, ...]:
        """The findings."""
        return self.progress.problems if self.progress else ()

    def has_found(self, *kinds: str) -> bool:
        """Whether there are findings of these kinds."""
        return any(each.kind in kinds for each in self.problems)

    def verify(self) -> None:
        """Compare every product with its digest."""
        self._start("verify", verify)

    def find_unowned(self) -> None:
        """Search for files without a product."""
        config = self._shell.config
        platforms = tuple(platform.id for platform in config.project.platforms) if config else ()
        self._start("unowned", lambda task, cache_dir, report: find_unowned(task, cache_dir, platforms, report))

    def _start(self, kind: str, check: Callable[..., CheckProgress]) -> None:
        cache_dir = self._shell.session.cache_dir

        def work(task: BackgroundTask) -> CheckProgress:
            refuse_unreadable(cache_dir)
            return check(task, cache_dir, partial(self._shell.in_ui, self._set_progress))

        if not self._task.start(work, self._end, self._fail, self._note_cancelled):
            self._shell.show_toast("the cache is being read already; press 'c' to cancel", "warning")
            return
        self.kind, self.ended_ms = kind, 0
        self._set_progress(CheckProgress())
        self._turned()

    def cancel(self) -> None:
        """Cancel the check; its findings stay."""
        self._task.cancel()

    def forget(self, gone: set[str]) -> None:
        """Remove findings whose files no longer exist."""
        if self.progress is not None and gone:
            rest = tuple(each for each in self.progress.problems if each.name not in gone)
            self._set_progress(CheckProgress(self.progress.done, 0, self.progress.count, 0, 0, rest))
            self._turned()

    def _set_progress(self, progress: CheckProgress) -> None:
        self.progress = progress
        self._found(progress)

    def _end(self, progress: CheckProgress) -> None:
        self.ended_ms = int(time.time() * 1000)
        self._set_progress(progress)
        self._turned()
        self._ended()

    def _fail(self, error: KnownError) -> None:
        self.kind, self.progress = "", None
        self._shell.show_toast(str(error), "error", 10)
        self._turned()

    def _note_cancelled(self) -> None:
        self.ended_ms = _CANCELLED
        self._turned()

    # -------------------------------------------------------------------------------------------------- texts about the check

    def verdict(self, width: int, *, are_going: bool = False) -> tuple[Sequence[Part], Sequence[Part]]:
        """Return the line above the table of findings: left the name and the progress or result of the check.

        On the right is the time at which the check ended. While the check runs, the progress bar or the key that cancels is there.

        Args:
            are_going: whether files that the engine was asked to delete still exist.
        """
        progress = self.progress
        if progress is None:
            return (), ()
        title = "Verify" if self.kind == "verify" else "Unowned files"
        if self.is_busy:
            return _progress_line(title, progress, width)
        if self.kind == "verify":
            text = _describe_comparison(progress) + (" so far" if self.ended_ms < 0 else "")
        elif are_going:
            text = f"{count(len(progress.problems), 'file')} not deleted yet; the engine will delete them"
        else:
            text = _describe_unowned(progress.problems)
        ended = "cancelled" if self.ended_ms < 0 else f"at {clock(self.ended_ms)}"
        role = "warning" if progress.problems else "completed"
        return (Part(title, "title"), Part(f"  {text}", role)), (Part(ended, "muted"),)


def _describe_comparison(progress: CheckProgress) -> str:
    products, found = count(progress.count, "product"), len(progress.problems)
    rest = f", {progress.without_digest:,} without a digest" if progress.without_digest else ""
    return (f"{found:,} of {products} differ from their record" if found else f"{products} match their records") + rest


def _describe_unowned(problems: Sequence[CacheProblem]) -> str:
    total_bytes = sum(max(0, each.size_bytes) for each in problems)
    if not problems:
        return "every file belongs to a product"
    return f"{count(len(problems), 'file')}, {size_text(total_bytes)}"


def _progress_line(title: str, progress: CheckProgress, width: int) -> tuple[Sequence[Part], Sequence[Part]]:
    cancels = (Part("c", "key"), Part(" cancels", "muted"))
    found = f", {len(progress.problems):,} found" if progress.problems else ""
    if not progress.whole:
        text = f"  {count(progress.done, 'folder')} checked{found}"
        return (Part(title, "title"), Part(text, "processing")), cancels
    read = f"{size_text(progress.done)} of {size_text(progress.whole)}"
    text = f"  {progress.count:,} of {count(progress.of_count, 'product')}, {read}{found}  "
    cells = max(0, min(30, width - len(title) - len(text) - 24))
    return (Part(title, "title"), Part(text, "processing"), *gauge(progress.done / progress.whole, cells)), cancels


_NAME_CELLS = 30
"""Maximum number of columns for a name in a question, so that the possible answers remain visible."""


class RepairCommands:
    """Repairs of findings: the engine runs jobs again or deletes files.

    Args:
        gone: called with the names of files that the engine has deleted.
    """

    def __init__(self, shell: Shell, problems: Callable[[], Sequence[CacheProblem]], gone: Callable[[set[str]], object]) -> None:
        self._shell, self._problems, self._gone = shell, problems, gone
        self._checking = BackgroundTask("aptui-cache-check", shell.in_ui)
        self.going: list[CacheProblem] = []
        """Files that the engine was asked to delete; `find_gone` removes files from the list when they no longer exist."""

    def close(self) -> None:
        """Cancel running work."""
        self._checking.close()

    # -------------------------------------------------------------------------------------------------- running jobs again

    def ask_to_repair(self, chosen: Sequence[CacheProblem] = ()) -> None:
        """Ask whether to run jobs again: for the sources of the findings in `chosen`, or for the sources of all findings."""
        few, all_sources = _sources_of(chosen), _sources_of(self._problems())
        if not all_sources:
            return
        choices = []
        if few and len(few) < len(all_sources):
            choices.append(Choice("t", _name_files(few), lambda: self._reprocess(few)))
        choices += [
            Choice("a", f"all, {count(len(all_sources), 'source')}", lambda: self._reprocess(all_sources)),
            Choice("n", "no"),
        ]
        self._shell.question("run the jobs of these sources again?", choices)

    def _reprocess(self, sources: Sequence[str]) -> None:
        from aptui.link.port import ReprocessJobs  # imported on demand, so that the screen starts fast

        done = f"{count(len(sources), 'source')} will be processed again; verify again when the engine is idle"
        self._shell.ask(ReprocessJobs(keys=tuple(key_of(source) for source in sources)), done)

    # ------------------------------------------------------------------------------------------------------ deleting files

    def ask_to_delete(self) -> None:
        """Ask whether the engine shall delete the files without a product. Name the folders that the engine never checks."""
        unowned = [each for each in self._problems() if each.kind == "unowned"]
        gone, others = [each for each in unowned if each.is_watched], [each for each in unowned if not each.is_watched]
        if not gone:
            self._shell.show_toast(
                f"the engine does not check these folders, because they contain no product: {_by_hand(others)}", "warning", 15
            )
            return
        rest = f", {len(others):,} elsewhere stay" if others else ""
        choices = [Choice("y", "delete", lambda: self._delete(gone)), Choice("n", "keep them")]
        self._shell.question(f"delete {count(len(gone), 'file')}{rest}?", choices)

    def _delete(self, gone: list[CacheProblem]) -> None:
        """Mark the folders of the files as changed, and request a rescan, which deletes files without a product in them."""
        from aptui.link.port import RescanSources  # imported on demand, so that the screen starts fast

        cache_dir = self._shell.session.cache_dir

        def work(_task: BackgroundTask) -> int:
            return mark_for_check(list(map(_orphan, gone)), cache_dir)

        def ask(_folders: int) -> None:
            self.going = gone
            done = "the engine checks the folders of these files, and runs failed jobs again"
            self._shell.ask(RescanSources(), done, lambda _answer: self._shell.wake())
            self._gone(set())

        self._checking.start(work, ask, self._complain)

    def find_gone(self) -> None:
        """Check in a thread which of the files to delete still exist."""
        cache_dir, going = self._shell.session.cache_dir, tuple(self.going)
        if going:
            self._checking.start(lambda _task: keep_unowned(cache_dir, going), self._take_left, self._complain)

    def _take_left(self, left: tuple[CacheProblem, ...]) -> None:
        gone = {each.name for each in self.going} - {each.name for each in left}
        was_going, self.going = bool(self.going), list(left)
        self._gone(gone)
        if was_going and not left:
            self._shell.show_toast("the unowned files are deleted")

    def _complain(self, error: KnownError) -> None:
        self._shell.show_toast(str(error), "error", 10)

    # ---------------------------------------------------------------------------------------------------------------- menu

    def open_menu(self, problem: CacheProblem, place: tuple[int, int] | None) -> None:
        """Open the menu of one finding."""
        shell, path = self._shell, native(str(self._shell.session.cache_dir), cache_path(problem.name))
        choices: list[MenuChoice] = []
        if problem.source and shell.can_ask:
            choices.append((MenuItem("repair", "Run its jobs again", "r"), lambda: self._reprocess([problem.source])))
        if problem.job_id and any(spec.id == "jobs" for spec in shell.panes):
            choices.append((MenuItem("job", "Show its job", "j"), lambda: shell.reveal("jobs", f"#{problem.job_id}")))
        if choices:
            choices.append((None, bool))
        choices.append((MenuItem("product", "Copy its path", "y"), lambda: shell.copy_text(path)))
        if problem.source:
            item = MenuItem("source", "Copy the path of its source", "s")
            choices.append((item, lambda: shell.copy_text(native(problem.source))))
        Menu.run_one(shell.app, choices, title=problem.name, place=place)


def _sources_of(problems: Sequence[CacheProblem]) -> list[str]:
    return list(dict.fromkeys(each.source for each in problems if each.source))


def _name_files(sources: Sequence[str]) -> str:
    return shorten(make_safe(sources[0].rpartition("/")[2]), _NAME_CELLS) if len(sources) == 1 else f"these {len(sources):,}"


def _by_hand(problems: Sequence[CacheProblem]) -> str:
    folders = list(dict.fromkeys(each.name.rpartition("/")[0] for each in problems))
    return f"delete '{folders[0]}' yourself" + (f", also {count(len(folders) - 1, 'more folder')}" if len(folders) > 1 else "")

"""The contents of a cache for the Shared cache screen: amounts by platform, folder and builder, and searches for problems.

The queries run in a thread.

Tests: `tests/features/sharing/screen/test_screen.py`, `tests/features/sharing/screen/test_inventory.py`.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from aptui.config.dirs import asset_database
from aptui.shared.errors import HostError, KnownError
from aptui.shared.printing import count
from aptui.store.db.schema import translate_errors, uuid_text
from aptui.store.queries.integrity import OrphanFile, amount, examine_products, orphans, still_orphans
from aptui.store.queries.metrics import Amount, builder_names, cache_contents
from aptui.store.queries.reader import open_reader
from aptui.tui.background import BackgroundTask
from aptui.tui.frame.line import Part
from aptui.tui.terminal.safety import glyph, make_safe
from aptui.tui.widgets.cells import share_bar
from aptui.tui.words import clock, size_text

if TYPE_CHECKING:
    from aptui.tui.data.feed import Batch
    from aptui.tui.pane import Shell


_DAY_MS = 24 * 3600 * 1000
_REPORT_EVERY_S = 0.1


class CacheShare(Struct, frozen=True):
    """A row: number and size of its products; `of_bytes` is the size of all products, `made` the number made since yesterday."""

    name: str
    count: int
    size_bytes: int
    of_bytes: int
    made: int = 0
    made_bytes: int = 0


class CacheInventory(Struct, frozen=True):
    """All amounts of the cache at one time."""

    platforms: tuple[CacheShare, ...]
    folders: tuple[CacheShare, ...]
    builders: tuple[CacheShare, ...]
    count: int
    size_bytes: int
    made: int
    made_bytes: int
    free_bytes: int
    disk_bytes: int
    at_ms: int


class CacheProblem(Struct, frozen=True):
    """A problem in the cache; `source` is "" for a file without a product."""

    kind: str
    name: str
    source: str = ""
    size_bytes: int = -1
    job_id: int = 0
    is_watched: bool = True


class CheckProgress(Struct, frozen=True):
    """Progress of a check: `done` of `whole` (bytes, or folders of an unknown number), and the findings."""

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
        tuple(share(each, f"{each.name}/" if each.name else "(directly below the platform)") for each in found.folders),
        tuple(share(each, names.get(uuid) or uuid_text(uuid)) for uuid, each in found.builders),
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
        found = still_orphans(found, reader, cache_dir)  # files of a running commit have their rows by now
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


def as_orphans(problems: tuple[CacheProblem, ...]) -> list[OrphanFile]:
    """Return problems as records of the store."""
    return [_orphan(each) for each in problems]


def refuse_unreadable(cache_dir: Path) -> None:
    """Raise HostError if the cache cannot be read: every product would seem to be missing."""
    if not os.access(cache_dir, os.R_OK | os.X_OK):
        raise HostError(f"cache '{cache_dir}' cannot be read", hint="check its permissions, and that its disk is mounted")


WIDE_COLUMNS = 110
"""Minimum width for tables side by side and the long summary."""
_GAUGE_CELLS = 16


class InventoryReader:
    """Reads the contents in a thread: when the screen is shown, and when assets have changed and the engine is idle.

    Args:
        taken: called in the app's thread with the contents.
        changed: called when the summary must be drawn again.
    """

    def __init__(self, shell: Shell, taken: Callable[[CacheInventory], object], changed: Callable[[], object]) -> None:
        self._shell, self._taken, self._changed = shell, taken, changed
        self._task = BackgroundTask("aptui-cache-contents", shell.in_ui)
        self._is_stale = True
        self.contents: CacheInventory | None = None
        """None = not read yet."""
        self.trouble = ""
        """Why the contents could not be read."""

    def close(self) -> None:
        """Cancel reading."""
        self._task.close()

    def note(self, batch: Batch) -> None:
        """Note whether assets changed."""
        self._is_stale = self._is_stale or batch.are_assets_stale or batch.table is not None

    def read_if_stale(self) -> None:
        """Read the contents if they may have changed and the engine is idle, or if they were not read yet."""
        progress = self._shell.session.latest_progress
        is_idle = progress is None or not (progress.jobs_running or progress.jobs_waiting or progress.analyses_running)
        if self._is_stale and (is_idle or self.contents is None) and not self.trouble:
            self.read()

    def read(self) -> None:
        """Read the contents; if they are being read, read them again afterwards."""
        config, cache_dir = self._shell.config, self._shell.session.cache_dir
        builders = {builder.uuid: builder.name for builder in config.project.builders} if config else {}
        now_ms = int(time.time() * 1000)
        self._is_stale = True
        if self._task.start(lambda _task: read_contents(cache_dir, builders, now_ms), self._take, self._fail):
            self._is_stale = False
            self._changed()

    def _take(self, contents: CacheInventory) -> None:
        self.contents, self.trouble = contents, ""
        self._taken(contents)
        self.read_if_stale()  # assets may have changed while it was reading
        self._changed()

    def _fail(self, error: KnownError) -> None:
        self.trouble = str(error)
        self._changed()

    def summary(self, width: int) -> tuple[Sequence[Part], Sequence[Part]]:
        """Return the summary line: amounts on the left, disk space on the right."""
        known = self.contents
        if known is None:
            words, role = (make_safe(self.trouble), "warning") if self.trouble else ("reading what the cache holds…", "muted")
            return (Part(f" {words}", role),), ()
        is_wide, is_all = width >= WIDE_COLUMNS, known.made == known.count
        left = [Part(f" {count(known.count, 'product')}", "title"), Part(f"   {size_text(known.size_bytes)}", "title")]
        made = "all" if is_all else f"{known.made:,}" if known.made else "none"
        if known.count and (is_wide or not self._is_stale):
            left.append(Part(f"   {made} made since yesterday", "muted"))
        if known.made and not is_all and is_wide:
            left.append(Part(f", {size_text(known.made_bytes)}", "muted"))
        if self._is_stale:
            left.append(Part(f"   as of {clock(known.at_ms)}", "warning"))
        return left, _inventory_disk(known, is_wide=is_wide)


def _inventory_disk(known: CacheInventory, *, is_wide: bool) -> list[Part]:
    if known.disk_bytes <= 0:
        return []
    if not is_wide:
        return [Part(f"{size_text(known.free_bytes)} free on its disk", "muted")]
    words = f"{size_text(known.free_bytes)} of {size_text(known.disk_bytes)} free on its disk"
    return [Part(words, "muted"), Part("  "), *gauge((known.disk_bytes - known.free_bytes) / known.disk_bytes, _GAUGE_CELLS)]


def gauge(share: float, cells: int) -> tuple[Part, ...]:
    """Return a bar of `cells` cells, filled up to `share`; the other cells are drawn as a rule."""
    filled = share_bar(share, cells)
    return Part(filled, "accent"), Part(glyph("rule") * (cells - len(filled)), "rule")

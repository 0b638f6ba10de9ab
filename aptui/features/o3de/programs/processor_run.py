"""Functions that both asset processors share: ports, opening the session, and the tasks and output at the end.

The last tasks run in O3DE's order: files of `--reprocessFileList` one by one, missing dependencies, moving and deleting, catalogs.

Tests: `tests/features/o3de/programs/test_asset_processor.py`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from selectors import BaseSelector

from aptui.core.model import PathKey
from aptui.core.paths import as_text, key_of
from aptui.core.project import Project
from aptui.engine.cache.cache import Cache
from aptui.engine.cache.catalog import path_of
from aptui.engine.loop.opening import PreparedSession
from aptui.features.o3de.connection.connection_supervisor import ConnectionSupervisor
from aptui.features.o3de.programs import phrases
from aptui.features.o3de.programs.control import ControlChannel, Processor, RefusingPort
from aptui.features.o3de.programs.events import EventPrinter, Stat, report
from aptui.features.o3de.programs.program_switches import RELOCATION
from aptui.features.o3de.programs.run_request import RunRequest
from aptui.shared.errors import UserError
from aptui.store.db.schema import delete_if_newer
from aptui.store.queries.reader import JobRow, open_reader

_ERRORS_FATAL, _WARNINGS_FATAL = 1, 2
_ELSEWHERE = ("common", "all")
"""Values of a job's platform that are not platforms: "common" for intermediate products, "all" for failed analyses."""


# ------------------------------------------------------------------------------------------------------------------- ports


@contextmanager
def open_ports(
    start: RunRequest, selector: BaseSelector, processor: Processor, listener: RefusingPort | ConnectionSupervisor
) -> Iterator[dict[str, int]]:
    """Print the listening port, and open the control channel if `--acceptInput` is given; yield {name: port}.

    Args:
        listener: the object that listens for the Editor and launchers; it is closed at the end.
    """
    ports = {"listening": listener.port}
    with ExitStack() as opened:
        opened.callback(listener.close)
        start.console.say(phrases.LISTENING_PORT.format(listener.port))
        if start.given.has("acceptInput"):
            control = ControlChannel(selector, processor)
            opened.callback(control.close)
            ports["control"] = control.port
            start.console.say(phrases.CONTROL_PORT.format(control.port))
        yield ports


# ------------------------------------------------------------------------------------------------------------------ opening


def open_session(start: RunRequest, *, trusts_times: bool = True) -> PreparedSession:
    """Lock the cache and find the pending work.

    Raises:
        BusyError: another engine holds the cache.
        KnownError: the cache cannot be used.
    """
    delete_newer_database(start)
    opening = PreparedSession(start.config, trusts_times=trusts_times)
    opening.acquire()
    return opening


def delete_newer_database(start: RunRequest) -> None:
    """With `--ignoreFutureAssetDatabaseVersionError`, delete a database of a newer version and print a message about it."""
    if not start.given.has("ignoreFutureAssetDatabaseVersionError"):
        return
    project = start.config.project
    cache = Cache(start.config.cache_dir, [*(platform.id for platform in project.platforms), *project.resting_platforms])
    cache.acquire()
    try:
        note = delete_if_newer(start.database)
    finally:
        cache.close()
    if note:
        start.console.say(note)


# ------------------------------------------------------------------------------------------------------------- reprocessing


def to_reprocess(start: RunRequest) -> Iterator[PathKey]:
    """Yield the sources in `--reprocessFileList`, in the order of the list; print paths that are not in a scan folder."""
    name = start.given.first("reprocessFileList")
    if name is None:
        return
    try:
        text = Path(name).read_text("utf-8-sig", "surrogateescape")  # editors on Windows begin a file with a byte order mark
    except OSError as error:
        start.console.complain(f"Unable to open reprocess file list with path {name}. ({error.strerror})")
        return
    listed = [line.strip() for line in text.splitlines() if line.strip()]
    if not listed:
        start.console.complain(f"No files listed to reprocess in the file at path {name}.")
    for path in listed:
        key = key_in(start.config.project, path)
        if key is None:
            start.console.complain(f"'{path}' of the reprocess file list is not in a scan folder.")
        else:
            yield key


def key_in(project: Project, path: str) -> PathKey | None:
    """Return the key of a source given by its absolute or relative path; None if no scan folder contains it."""
    if not os.path.isabs(path):
        return key_of(as_text(os.path.normpath(path)))
    path = os.path.normpath(path)
    for folder in sorted(project.scan_folders, key=lambda item: -len(item.path)):
        if path.startswith(f"{folder.path}/"):
            return key_of(as_text(path[len(folder.path) + 1 :]))
    return None


# -------------------------------------------------------------------------------------------------------------- what failed


def find_failed_assets(start: RunRequest) -> set[str]:
    """Return the absolute paths of all sources that have a failed job, from this run or from an earlier run.

    In O3DE the order in which the jobs of an asset end decides whether the asset counts as failed. Here one failed job is enough.
    """
    level = start.given.number("warningLevel") or 0
    if level not in (0, _ERRORS_FATAL, _WARNINGS_FATAL):
        raise UserError(
            f"--warningLevel must be 1 or 2, not {level}",
            hint="1: an asset with errors in its log counts as failed; 2: one with warnings too",
        )
    roots = {folder.name: folder.path for folder in start.config.project.scan_folders}
    asked = {platform.id for platform in start.config.project.platforms} | set(_ELSEWHERE)
    with closing(open_reader(start.database)) as database:
        rows = database.jobs() if level else database.jobs(statuses=("failed",))
        return {
            f"{roots.get(row.scan_folder, '')}/{row.source}" for row in rows if row.platform in asked and _is_failed(row, level)
        }


def _is_failed(row: JobRow, level: int) -> bool:
    if row.status == "failed":
        return True
    return (level >= _ERRORS_FATAL and row.errors > 0) or (level >= _WARNINGS_FATAL and row.warnings > 0)


def roots_in_database(start: RunRequest) -> dict[int, str]:
    """Return {id of a scan folder: its path} from the database."""
    with closing(open_reader(start.database)) as database:
        return dict(database.ask("SELECT ScanFolderID, ScanFolder FROM ScanFolders"))


def source_count(start: RunRequest) -> int:
    """Return the number of sources in the database."""
    with closing(open_reader(start.database)) as database:
        return database.totals().sources


# ------------------------------------------------------------------------------------------------------------------ end


def finish(start: RunRequest, printer: EventPrinter) -> None:
    """Run the last tasks, when no work is pending and this process no longer holds the cache."""
    pattern = start.given.first("dependencyScanPattern")
    if pattern is not None:
        from aptui.features.o3de.programs.final_tasks import scan_missing  # imported on demand

        scan_missing(start, pattern)
    if any(start.given.has(name) for name in RELOCATION):
        from aptui.features.o3de.programs.final_tasks import relocate_sources  # imported on demand

        relocate_sources(start)
    start.console.say(phrases.SHUTTING_DOWN)
    for platform in start.config.project.platforms:
        _print_catalog(start, printer, path_of(start.config.cache_dir, platform.id), platform.id)


def _print_catalog(start: RunRequest, printer: EventPrinter, path: Path, platform: str) -> None:
    """Print that a catalog was saved, if this run saved it. The engine saves outdated catalogs itself when it becomes idle."""
    try:
        saved_s = path.stat().st_mtime
        with path.open("rb") as file:
            count = sum(1 for _line in file) - 1
    except OSError:
        return
    if saved_s * 1000 >= start.console.started_ms:
        start.console.say(phrases.SAVED_CATALOG.format(platform, count, max(0.0, saved_s - printer.last_notice_s)))


def print_totals(start: RunRequest, printer: EventPrinter, failed_count: int, seconds: float) -> None:
    """Print the totals."""
    start.console.say_all(phrases.totals(printer.processed_count, failed_count, printer.warnings, printer.errors, seconds))


def print_end(start: RunRequest, printer: EventPrinter) -> None:
    """Print the last lines: the report of times, and with `--debugOutput` the assets of each builder."""
    if start.given.has("debugOutput"):
        for builder, paths in printer.processed_by.items():
            start.console.say_all(phrases.builder_list(builder, paths), phrases.BUILDERS_WINDOW)
    began_s = time.monotonic()
    stats = {**printer.stats, "AssetScanning": Stat(printer.scan_ms)}
    report(stats, start.facts.stats)
    stats["ComputeStatsTime"] = Stat(int((time.monotonic() - began_s) * 1000))
    start.console.say_all(report(stats, start.facts.stats))

"""The journal of a relocation: its whole plan on the disk before the first file changes, so that a killed one can be completed.

It is in the cache's recovery folder. The next engine, `aptui batch`, or the next relocation completes what it says: each step is
done only if the file is still as the plan found it, so a step that was done already is not done twice.

Tests: `tests/features/relocation/test_journal.py`.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import DecodeError, Struct, ValidationError, json
from msgspec.structs import replace

from aptui.config.dirs import recovery_folder
from aptui.config.model import Config
from aptui.core.paths import is_below, normalize
from aptui.features.relocation import moved_files, references
from aptui.features.relocation.moved_files import native
from aptui.features.relocation.references import Rename, UnreadableError
from aptui.features.relocation.relocation_records import RelocationAction, RelocationItem, RelocationReport, Update, count_report
from aptui.shared.errors import HostError
from aptui.shared.files.replacing import replace_bytes

Stamp = tuple[int, int, int]
"""(inode, size, mtime_ns): a rename keeps it."""


class Rewrite(Struct, frozen=True):
    """A file whose references are rewritten: before and after the move, the digest of its bytes before, and what it says anew."""

    file: str
    new_file: str
    digest: str
    renames: tuple[Rename, ...]
    update: Update


class Journal(Struct, frozen=True):
    """What is to be done.

    Args:
        report: of the plan; its items are in the order in which files move or go, with the stamp of each.
        roots: {scan folder: absolute path}, whose folders that are empty afterwards are removed.
        prefixes: what may stand before a relative path in a text.
    """

    report: RelocationReport
    stamps: tuple[Stamp, ...]
    rewrites: tuple[Rewrite, ...]
    roots: dict[str, str]
    prefixes: tuple[str, ...]


@contextlib.contextmanager
def keep_journal(cache_dir: Path, journal: Journal) -> Iterator[None]:
    """Keep the journal on the disk while the block works; a block that is killed leaves it."""
    path = path_of(cache_dir)
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_bytes(path, json.encode(journal))
    for folder in path.parents[:2]:
        _sync_folder(folder)
    yield
    path.unlink()


def path_of(cache_dir: str | os.PathLike[str]) -> Path:
    """Return where the journal is."""
    return recovery_folder(cache_dir) / "relocation.json"


def stamp_of(file: str) -> Stamp:
    """Return the stamp of a file (text form), zeros if it does not exist."""
    try:
        seen = os.lstat(native(file))
    except OSError:
        return (0, 0, 0)
    return seen.st_ino, seen.st_size, seen.st_mtime_ns


def digest_of(file: str) -> str:
    """Return the digest of a file's bytes (text form), "" if it cannot be read."""
    try:
        return hashlib.sha256(references.read(native(file))).hexdigest()
    except UnreadableError:
        return ""


def recover(config: Config) -> str:
    """Complete the relocation that was killed; return a sentence about it, "" if there is none."""
    report = complete(config)
    if report is None:
        return ""
    what = "deletion" if report.order.is_delete else "move"
    return f"the {what} of '{report.order.source}' was interrupted and is completed now"


def complete(config: Config) -> RelocationReport | None:
    """Complete the relocation that was killed, if there is one; return its report.

    The caller holds the cache. A file that cannot be moved now keeps the journal for the next try.

    Raises:
        HostError: the journal names a file outside the project's scan folders. It came with a cache that others made.
    """
    cache_dir = config.cache_dir
    path = path_of(cache_dir)
    try:
        journal = json.decode(path.read_bytes(), type=Journal)
    except FileNotFoundError:
        return None
    except (DecodeError, ValidationError):  # it was never whole, so nothing had begun
        path.unlink()
        return None
    _refuse_outside(journal, path, {str(config.project_dir), *(folder.path for folder in config.project.scan_folders)})
    _remove_temporary(journal)
    items = [
        _complete_item(item, stamp, is_delete=journal.report.order.is_delete)
        for item, stamp in zip(journal.report.items, journal.stamps, strict=True)
    ]
    updates = [_complete_rewrite(rewrite, journal.prefixes) for rewrite in journal.rewrites]
    removed: list[str] = []
    if not journal.report.order.leaves_empty_folders:
        for folder, root in sorted({(os.path.dirname(item.old_file), journal.roots[item.folder]) for item in items}, reverse=True):
            removed += moved_files.remove_empty(folder, root, list(journal.roots.values()))
    if all(item.action is RelocationAction.DONE for item in items):
        path.unlink()
    report = replace(journal.report, items=tuple(items), updates=tuple(updates), removed=tuple(removed), is_performed=True)
    return count_report(report)


def _refuse_outside(journal: Journal, path: Path, allowed: set[str]) -> None:
    files = [file for item in journal.report.items for file in (item.old_file, item.new_file)]
    files += [file for rewrite in journal.rewrites for file in (rewrite.file, rewrite.new_file)]
    for file in (*filter(None, files), *(root for root in journal.roots.values() if root not in allowed)):
        if normalize(file) != file or not any(is_below(file, root) for root in allowed):
            raise HostError(
                f"'{path}' is the plan of a move or deletion of '{file}', which is not in a scan folder: nothing is changed",
                hint="delete that plan, unless a scan folder is missing in the configuration",
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
    file = rewrite.new_file if os.path.lexists(native(rewrite.new_file)) else rewrite.file
    if digest_of(file) == rewrite.digest:  # else it is rewritten already, or somebody edited it since
        try:
            mended = references.mend(references.read(native(file)), list(rewrite.renames), list(prefixes))
            if mended.count:
                references.rewrite(native(file), mended.data)
        except UnreadableError as error:
            return replace(rewrite.update, action=RelocationAction.FAILED, problem=str(error))
    return replace(rewrite.update, file=file, action=RelocationAction.DONE)


def _remove_temporary(journal: Journal) -> None:
    """Remove what the killed relocation was writing beside its files."""
    places = {os.path.dirname(native(path)) for each in journal.rewrites for path in (each.file, each.new_file)}
    begun = [f"{native(item.new_file)}{moved_files.BEGUN}" for item in journal.report.items if item.new_file]
    for folder in places:
        begun += glob.glob(f"{glob.escape(folder)}/{references.BEGUN_PREFIX}*{references.BEGUN_SUFFIX}", include_hidden=True)
    for path in begun:
        with contextlib.suppress(OSError):
            os.unlink(path)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

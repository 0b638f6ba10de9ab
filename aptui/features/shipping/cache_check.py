"""Checks that the cache is up to date with the sources, before a verb uses the products in the cache. No job runs.

Source files are read only in folders whose sizes or times differ from the stored ones.

Tests: `tests/features/shipping/test_verbs.py`, `tests/features/shipping/test_missing_verb.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from aptui.config import load, trust
from aptui.config.configuration import Config
from aptui.engine.loop.opening import PreparedSession
from aptui.engine.scan.up_to_date import are_bytes_same
from aptui.engine.scan.walk import text_of
from aptui.shared.errors import BusyError, UserError
from aptui.shared.printing import line
from aptui.store.db.archive import DatabaseArchive

_ADVICE = "run 'aptui batch' to process them, or add --unsettled to pack the last good products"
_MOST_NAMES = 3


def refuse_stale(config: Config, platform: str) -> None:
    """Refuse a cache in which `aptui batch` would find work for the platform.

    Nothing is checked if an engine is running, because the engine keeps the cache up to date.

    Raises:
        UserError: a source, a builder, the configuration, or a product in the cache changed since the platform was processed.
    """
    trust.require_for_start(config, "the check for out-of-date products")
    if platform not in {item.id for item in config.project.platforms}:  # a disabled platform keeps its products, so check it, too
        config = load.load(config.project_dir, platforms=(platform,))
    opening = PreparedSession(config, platforms=(platform,))
    try:
        opening.acquire()
    except BusyError:
        return
    opening.close()
    if opening.is_current:
        return
    if opening.check is None or opening.check.is_clean:
        what = f"sources, builders, the configuration or products changed since platform '{line(platform)}' was processed"
        raise UserError(what, hint=_ADVICE)
    folders = list(_find_changed(opening))
    if folders:
        more = f" and {len(folders) - _MOST_NAMES:,} more" if len(folders) > _MOST_NAMES else ""
        names = ", ".join(f"'{line(folder) or '.'}'" for folder in folders[:_MOST_NAMES])
        raise UserError(f"sources changed in {names}{more} after they were processed", hint=_ADVICE)


def is_settled(opening: PreparedSession) -> bool:
    """Whether no work is pending in a locked cache.

    Sources that were written shortly before the last run are compared by their bytes, not by their time.
    """
    if opening.is_current or opening.check is None or opening.check.is_clean or next(_find_changed(opening), None) is not None:
        return opening.is_current
    with closing(DatabaseArchive(opening.database, {})) as archive:
        return not archive.list_unfinished(opening.asked) and not archive.has_intents()


def _find_changed(opening: PreparedSession) -> Iterator[str]:
    """Yield the folders with changed files.

    Folders whose sizes and times differ from the stored ones are compared by names and bytes: the times of files that were written
    shortly before the last run are not trusted.
    """
    assert opening.check is not None
    assert opening.walk is not None
    walked = {folder.id for folder in opening.walk.scan_folders}
    with closing(DatabaseArchive(opening.database, {})) as archive:
        for folder, parts in opening.check.differing:
            entries, _below = opening.walk.read_folders(parts)
            here = {
                (part.scan_folder.id, f"{part.rel}/{name}".lstrip("/"))
                for part, files in entries
                for name in (text_of(entry[0]) for entry in files)
            }
            known = {
                (number, str(fact.rel))
                for number, (_digest, facts) in archive.folders.folder_parts(folder).items()
                if number in walked
                for fact in facts
            }
            if here != known or not are_bytes_same(archive.folders, folder, entries):
                yield folder
    yield from sorted(opening.check.vanished)

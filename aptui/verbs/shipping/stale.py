"""For `bundle` and `scan-missing`: whether a cache is made of the sources as they are now.

Nothing is processed, and no digest is made.

Tests: `tests/verbs/shipping/test_missing.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from aptui.config.model import Config
from aptui.engine.loop.opening import PreparedSession
from aptui.engine.scan.verification import Verification
from aptui.engine.scan.walk import text_of
from aptui.shared.errors import BusyError, UserError
from aptui.shared.printing import line
from aptui.store.db.archive.archive import DatabaseArchive

_ADVICE = "'aptui batch' processes it; --unsettled packs what was made before"
_MOST_NAMES = 3


def refuse_stale(config: Config) -> None:
    """Refuse a cache that `aptui batch` would look at more closely; where an engine runs, it keeps the cache current itself.

    Raises:
        UserError: a source, a builder or the configuration changed since, or products in the cache did.
    """
    opening = PreparedSession(config)
    try:
        opening.take()
    except BusyError:
        return
    opening.close()
    if opening.is_current:
        return
    if opening.check is None or opening.check.is_clean:
        raise UserError("sources, builders, the configuration or products in the cache changed since the last run", hint=_ADVICE)
    folders = list(_find_changed(opening))
    if folders:
        more = f" and {len(folders) - _MOST_NAMES:,} more" if len(folders) > _MOST_NAMES else ""
        names = ", ".join(f"'{line(folder) or '.'}'" for folder in folders[:_MOST_NAMES])
        raise UserError(f"sources changed since they were processed, in {names}{more}", hint=_ADVICE)


def is_settled(opening: PreparedSession) -> bool:
    """Whether nothing is owed in a cache that is held; sources that were written just before a run are compared by their bytes."""
    if opening.is_current or opening.check is None or opening.check.is_clean or next(_find_changed(opening), None) is not None:
        return opening.is_current
    with closing(DatabaseArchive(opening.database, {})) as archive:
        return not archive.list_unfinished() and not archive.has_intents()


def _find_changed(opening: PreparedSession) -> Iterator[str]:
    """Yield folders whose files are others, or have other bytes; times say nothing of what was written just before the check."""
    assert opening.check is not None
    assert opening.walk is not None
    with Verification(opening.database) as bytes_of, closing(DatabaseArchive(opening.database, {})) as archive:
        for folder, parts in opening.check.differing:
            entries, _below = opening.walk.read_folders(parts)
            here = {
                (part.scan_folder.id, f"{part.rel}/{name}".lstrip("/"))
                for part, files in entries
                for name in (text_of(entry[0]) for entry in files)
            }
            known = {
                (number, str(fact.rel)) for number, (_d, facts) in archive.folders.folder_parts(folder).items() for fact in facts
            }
            if here != known or not bytes_of.is_same(folder, entries):
                yield folder
    yield from sorted(opening.check.vanished)

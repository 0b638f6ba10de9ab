"""Decides when a file that a program is writing, or has just written, may be checked.

A file that no other process holds open for writing is checked at once. While a process holds the file open, the test is repeated
after 1, 2, 4 … 50 ms. If the kernel cannot tell whether a process writes a file, or if the file changes again within 150 ms, the
file is checked after 150 ms without a change, at the latest after 5 s.

Tests: `tests/engine/live/test_supervisor.py`.
"""

from __future__ import annotations

import os
import stat
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from aptui.core.model import FileFact, PathKey, RelPath
from aptui.core.paths import is_below, key_of, parent
from aptui.shared.files.clocks import is_coarse
from aptui.shared.files.replacing import is_open_for_writing
from aptui.worker.file_access import StatKey, stat_key

if TYPE_CHECKING:
    from aptui.engine.loop.engine import Engine


# Confirmed absences: a known file or folder counts as gone if it was missing at two checks.
#
# Some programs save by removing or renaming a file and writing it again; for a moment the file is missing, but it is not deleted.

AWAY_S = 0.03
"""Time (seconds) that a file has to be missing to count as deleted."""


class Absences:
    """The paths of one batch of notifications that were missing at their first check and wait for a second check."""

    def __init__(self) -> None:
        self._paths: dict[bytes, None] = {}
        self._asked: set[str] = set()
        self._remembered: dict[str, frozenset[PathKey]] = {}
        """{folder: its stored files} of the folders that this batch has queried."""
        self.due = 0.0
        """Time (monotonic seconds) of the second check of all paths in this batch."""

    def __bool__(self) -> bool:
        return bool(self._paths)

    def clear(self) -> None:
        """Drop the paths of this batch before the next batch begins."""
        self._paths.clear()
        self._asked.clear()
        self._remembered.clear()

    def due_paths(self, now: float) -> Iterable[bytes]:
        """Return the paths that are to be checked again now."""
        return tuple(self._paths) if now >= self.due else ()

    def remove(self, path: bytes) -> bool:
        """Remove a path whose state was found. Return whether it was in this batch and waited for its second check."""
        return self._paths.pop(path, self) is None

    def may_come_back(self, engine: Engine, path: bytes, keys: Iterable[PathKey], now: float) -> bool:
        """Whether a missing path needs a second check, because a file or folder was known there; if so, schedule the check."""
        if path in self._paths:
            return False
        if not self._paths and not any(self._was_file(engine, key) or was_folder(engine, key) for key in keys):
            # An unknown path alone needs no second check. If the batch waits anyway, a second check is cheaper than these queries.
            return False
        self._paths[path] = None
        self.due = now + AWAY_S
        return True

    def _was_file(self, engine: Engine, key: PathKey) -> bool:
        """Whether the stored or pending state has a file with this key."""
        folder = parent(key)
        pending = engine.pipeline.jobs.memory.folders.get(folder)
        if pending is not None and key in pending.winners:
            return True
        if folder not in self._asked:
            self._asked.add(folder)
            return bool(engine.archive.folders.variants(key))
        # read the rows of a folder only once, because programs may create and delete many temporary files in a large folder
        if folder not in self._remembered:
            parts = engine.archive.folders.folder_parts(folder)
            self._remembered[folder] = frozenset(key_of(fact.rel) for _digest, facts in parts.values() for fact in facts)
        return key in self._remembered[folder]


def was_folder(engine: Engine, key: PathKey) -> bool:
    """Whether, in the stored or pending state, `key` is the path of a folder with sources."""
    pending = engine.pipeline.jobs.memory.folders
    return engine.archive.folders.has_folder(key) or any(folder == key or is_below(folder, key) for folder in pending)


_QUIET_S = 0.15
"""Time (seconds) without a change after which a file is checked if the kernel cannot say whether a process writes it."""
_LONGEST_WAIT_S = 5.0
"""Maximum time (seconds) for which the check of a changing file is postponed."""
_PROBE_S = (0.001, 0.05)
"""Shortest and longest interval (seconds) of checks whether a process still writes a file."""
_MOST_RELEASED = 4096
"""Maximum number of checked files whose stamps are remembered."""


class _OpenFile(Struct):
    """A file that is being written: checked again at `due`.

    `delay_s` is the interval (seconds) of checks for a writing process. If it is 0, each change of the file postpones `due`.
    """

    due: float
    delay_s: float
    since: float


class FilesBeingWritten:
    """The files (absolute paths) whose checks are postponed.

    The attribute `unfinished` is described in `loop.context.ChangeSource`.
    """

    def __init__(self) -> None:
        self.unfinished: dict[PathKey, FileFact | None] = {}
        self._written: dict[bytes, _OpenFile] = {}
        self._released: OrderedDict[bytes, tuple[float, StatKey | None]] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._written)

    def deadlines(self) -> list[float]:
        """Return the times (monotonic) at which files are checked again."""
        return [written.due for written in self._written.values()]

    def is_being_written(self, path: bytes, *, is_asked: bool = False) -> bool:
        """Whether another process holds this file open for writing.

        `is_asked`: whether the kernel was asked already, and has answered that no process writes the file.
        """
        return path in self._written or (not is_asked and is_open_for_writing(path) is True)

    def is_ready(self, engine: Engine, path: bytes, rels: Sequence[RelPath], seen: os.stat_result, now: float) -> bool:
        """Whether a file may be checked now; otherwise its check is postponed."""
        key = stat_key(seen)
        known = self._written.get(path)
        if known is not None:
            if not known.delay_s:
                known.due = min(now + _QUIET_S, known.since + _LONGEST_WAIT_S)
            return False
        released_at, before = self._released.get(path, (-_LONGEST_WAIT_S, None))
        if now - released_at < _QUIET_S:
            if key == before and not is_coarse(seen.st_ctime_ns):
                # The file has the same times as at its last check, so it was not saved again: the clock of the file's times is so
                # fine that a second save would have changed them. The notification is about the save that was checked.
                return False
            self._put_off(engine, path, rels, _OpenFile(now + _QUIET_S, 0.0, now))
            return False
        is_open = is_open_for_writing(path)
        if is_open is True:
            self._put_off(engine, path, rels, _OpenFile(now + _PROBE_S[0], _PROBE_S[0], now))
            return False
        if is_open is None and stat.S_ISREG(seen.st_mode) and before != key:
            self._put_off(engine, path, rels, _OpenFile(now + _QUIET_S, 0.0, now))
            return False
        self.remember_stamp(path, now)
        return True

    def find_ended(self, now: float, is_own: Callable[[bytes, os.stat_result], bool]) -> Iterator[tuple[bytes, bool]]:
        """Yield (path, whether the file exists) for each file that is due and that no process is writing any more.

        Args:
            is_own: whether a file belongs to aptui itself. A file of aptui is yielded even while a client writes it, because that
                client may wait for this engine.
        """
        for path, written in [item for item in self._written.items() if item[1].due <= now]:
            seen = stat_of(path)
            is_there = seen is not None
            if seen is not None and is_open_for_writing(path) is True and not is_own(path, seen):
                written.delay_s = min(max(2 * written.delay_s, _PROBE_S[0]), _PROBE_S[1])
                written.due = now + written.delay_s
                continue
            del self._written[path]
            yield path, is_there

    def remember_stamp(self, path: bytes, now: float) -> None:
        """Remember the stamp of a file that is about to be checked."""
        # The stamp is read again after the check for writers: an earlier stamp may be that of a half-written file, and the rest of
        # the write would then look like a second save.
        seen = stat_of(path)
        self._released[path] = now, seen and stat_key(seen)
        self._released.move_to_end(path)
        if len(self._released) > _MOST_RELEASED:
            self._released.popitem(last=False)

    def drop_stamp(self, path: bytes) -> None:
        """Drop the stamp of a file, because its check is postponed."""
        self._released.pop(path, None)

    def finish(self, rels: Iterable[RelPath]) -> None:
        """Drop the facts in `unfinished` about these sources, because no process writes the sources any more."""
        for rel in rels:
            self.unfinished.pop(key_of(rel), None)

    def refresh_unfinished(self, engine: Engine) -> None:
        """Fill in missing facts in `unfinished`: size, times and digest of a source before a program began to write it."""
        for key in [key for key, fact in self.unfinished.items() if fact is None]:
            self.unfinished[key] = _before(engine, key)

    def _put_off(self, engine: Engine, path: bytes, rels: Sequence[RelPath], written: _OpenFile) -> None:
        self._written[path] = written
        for key in map(key_of, rels):
            self.unfinished[key] = _before(engine, key)


def _before(engine: Engine, key: PathKey) -> FileFact | None:
    """Return the facts that memory has about a source, None if the source is new or its folder has no unsaved row."""
    pending = engine.pipeline.jobs.memory.folders.get(parent(key))
    return pending.winners.get(key) if pending is not None else None


def stat_of(path: bytes) -> os.stat_result | None:
    """Return the status of a path, following links; a link that leads nowhere counts as a deleted file."""
    try:
        return os.stat(path)
    except OSError:
        return None

"""Re-stat of files outside of all scan folders that runs read: one stat each, and a hash where it differs.

This module is imported by runs that find nothing to do: it must stay light.

Tests: `tests/engine/loop/test_after_runs.py`.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping
from typing import Protocol

from aptui.core.paths import from_text
from aptui.core.results.run_report import OutsideFile, Stamp, outside_file

_CHECK_EVERY_S = 1.0


def are_as_they_were(known: Mapping[str, OutsideFile]) -> bool:
    """Whether each of these files has the stamp that it had."""
    return all(_stamp(path) == file.stamp for path, file in known.items())


def find_changed_files(known: Mapping[str, OutsideFile], *, trusts_times: bool = True) -> tuple[tuple[str, OutsideFile], ...]:
    """Return those of these files that are not what they were, as they are now; `trusts_times`: the same stamp is the same file."""
    from aptui.worker.files import FileChanged, hash_file

    changed = []
    for path, before in known.items():
        stamp, read_ns = _stamp(path), time.time_ns()
        if trusts_times and stamp == before.stamp:
            continue
        try:
            digest = hash_file(_path(path), sees_through=True)[0][0].hex() if stamp else ""
        except (OSError, FileChanged):
            continue  # it is being written: the next look finds it
        now = outside_file(digest, stamp, read_ns)
        if _stamp(path) == stamp and now != before:
            changed.append((path, now))
    return tuple(changed)


class OutsideWatcher(Protocol):
    """What is asked of the engine that stays up."""

    @property
    def knows_outside_files(self) -> bool:
        """Whether runs found any."""
        ...

    def check_outside_files(self, *, trusts_times: bool = True) -> None:
        """Tell the pipeline which of them are not what they were."""
        ...


class OutsideFileChecks:
    """Looks by and by, beside an engine that stays up."""

    def __init__(self) -> None:
        self._due_s = 0.0

    def next_deadline(self, engine: OutsideWatcher | None) -> float:
        """Return when (monotonic) it is time to look again, infinite where there is nothing to look at."""
        return self._due_s if engine is not None and engine.knows_outside_files else math.inf

    def poll(self, engine: OutsideWatcher | None, now_s: float) -> None:
        """Look when it is time."""
        if engine is not None and now_s >= self.next_deadline(engine):
            self._due_s = now_s + _CHECK_EVERY_S
            engine.check_outside_files()


def _path(text: str) -> str:
    return os.fsdecode(from_text(text))


def _stamp(path: str) -> Stamp:
    try:
        found = os.stat(_path(path))
    except OSError:
        return ()
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino

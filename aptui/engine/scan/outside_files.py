"""A look at files outside of all scan folders that runs found: one stat each, and their bytes where that says they may be others.

This module is imported by runs that find nothing to do: it must stay light.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from aptui.core.messages import OutsideSeen
from aptui.core.outside import OutsideFile, outside_file
from aptui.core.paths import from_text
from aptui.core.run_report import Stamp

if TYPE_CHECKING:
    from aptui.engine.loop.engine import Engine

_LOOK_EVERY_S = 1.0


def are_as_they_were(known: Mapping[str, OutsideFile]) -> bool:
    """Whether each of these files has the stamp that it had."""
    return all(_stamp(path) == file.stamp for path, file in known.items())


def look(engine: Engine, *, trusts_times: bool = True) -> None:
    """Tell the pipeline which of the files outside that it knows are not what they were."""
    from aptui.worker.files import FileChanged, hash_file

    changed = []
    for path, known in engine.pipeline.memory.outside.items():
        stamp = _stamp(path)
        if trusts_times and stamp == known.stamp:
            continue
        try:
            digest = hash_file(_path(path), sees_through=True)[0][0].hex() if stamp else ""
        except (OSError, FileChanged):
            continue  # it is being written: the next look finds it
        if _stamp(path) == stamp:
            changed.append((path, outside_file(digest, stamp)))
    if changed:
        engine.inbox.post(OutsideSeen(engine.inbox.next_seq(), tuple(changed)))


class Looks:
    """Looks by and by, beside an engine that stays up."""

    def __init__(self) -> None:
        self._due_s = 0.0

    def poll(self, engine: Engine | None, now_s: float) -> float:
        """Look when it is time; return when (monotonic) it is time again, infinite where there is nothing to look at."""
        if engine is None or not engine.pipeline.memory.outside:
            return math.inf
        if now_s >= self._due_s:
            self._due_s = now_s + _LOOK_EVERY_S
            look(engine)
        return self._due_s


def _path(text: str) -> str:
    return os.fsdecode(from_text(text))


def _stamp(path: str) -> Stamp:
    try:
        found = os.stat(_path(path))
    except OSError:
        return ()
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino

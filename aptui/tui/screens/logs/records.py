"""What the lines of the Logs screen were in their log, with context: of a file, of what the engine says, of a large log.

Tests: `tests/tui/screens/logs/test_records.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from aptui.core.notices import EngineMessage
from aptui.store.logs.joblog import JobLogLine
from aptui.tui.screens.logs.lines import RecordLines, draw_record
from aptui.tui.widgets.lines import LineSource, MemoryLines


class LogRecords:
    """The two sources whose records are known: `lines` of a file, `live` where there is none."""

    def __init__(self) -> None:
        self.lines, self.live = RecordLines(), MemoryLines()
        self._lines: list[JobLogLine] = []

    def add(self, messages: Iterable[EngineMessage]) -> None:
        """Take what the engine said now."""
        new = [JobLogLine(each.level, "aptui", each.text, int(time.time() * 1000)) for each in messages]
        self._lines += new
        self.live.add(map(draw_record, new))

    def knows(self, source: LineSource) -> bool:
        """Whether all records of a source are known."""
        return source in (self.lines, self.live)

    def record(self, source: LineSource, key: int | None) -> JobLogLine | None:
        """Return a line of a source by its key; one of a large log as far as it is shown."""
        place = None if key is None else source.index_of(key)
        if place is None or key is None:
            return None
        if source is self.lines:
            return self.lines.records()(key)
        if source is self.live:
            return self._lines[key]
        line = source.line(place)
        return JobLogLine(max(0, "DIWE".find(line.level or "I")), line.window, line.text, 0)

    def reader(self, source: LineSource) -> tuple[Callable[[int], JobLogLine | None], bool]:
        """Return what gives the lines of a source by their keys, and whether another thread may call it."""
        if source is self.lines:
            return self.lines.records(), True
        return lambda key: self.record(source, key), False

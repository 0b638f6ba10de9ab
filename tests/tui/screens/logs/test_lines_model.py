"""After any appends, searches and tabs, the lines of the Logs screen equal a plain list that Python filters."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from aptui.tui.screens.logs import log_reader as log_lines
from aptui.tui.screens.logs.log_reader import LogReader, LogView, RecordLines
from aptui.tui.screens.logs.log_tabs import STANDARD, LogTab
from aptui.tui.widgets.log_sources import LEVELS

NOW_MS = 1_790_000_000_000
SEVERITIES = "DIWE"
_MOST_READS = 1_000
"""Limit on reads of the log file in one test example: its ten steps check the file about 20 times and read a block each time."""


@dataclass(frozen=True)
class Line:
    """A line in the reference model."""

    level: str
    source: str
    text: str
    has_details: bool

    @property
    def raw(self) -> bytes:
        head = f"~~{NOW_MS}~~{SEVERITIES.index(self.level)}~~1~~{self.source}~~"
        detail = f"~~{NOW_MS}~~1~~1~~{self.source}~~C: [Key] = rock\n" if self.has_details else ""
        return f"{detail}{head}{self.text}\n".encode()


TABS: dict[LogTab, Callable[[Line], object]] = {
    STANDARD[0]: lambda _line: True,
    STANDARD[1]: lambda line: line.level != "D",
    STANDARD[2]: lambda line: line.level in "EW",
    LogTab("mine", "EWI", "^scan$", "!sand", is_own=True): lambda line: (
        line.level != "D" and line.source == "scan" and "sand" not in line.text
    ),
}
SEARCHES: dict[str, Callable[[Line], object]] = {
    "rock": lambda line: re.search("rock", line.text, re.IGNORECASE),
    "(?-i)Rock": lambda line: "Rock" in line.text,
    "!rock source:scan": lambda line: "rock" not in line.text.lower() and line.source == "scan",
    "error": lambda line: line.level == "E",
}
COME = st.builds(
    Line, st.sampled_from(SEVERITIES), st.sampled_from(["aptui", "scan"]), st.sampled_from(["rock fell", "Rock", "sand", "é"]),
    st.booleans(),
)  # fmt: skip
STEPS = st.one_of(
    st.tuples(st.just("come"), st.lists(COME, min_size=1, max_size=4), st.integers(0, 60)),
    st.tuples(st.just("replaced"), st.lists(COME, max_size=2), st.just(0)),
    st.sampled_from(("", *SEARCHES)),
    st.sampled_from(tuple(TABS)),
    st.booleans(),  # whether only hits are shown
)


class CountedFile(log_lines.OpenLogFile):
    """A log with a limited number of reads: a reader without progress fails instead of hanging."""

    reads = 0

    def read(self, at: int, size: int) -> bytes:
        CountedFile.reads += 1
        assert CountedFile.reads < _MOST_READS
        return super().read(at, size)


class Screen:
    """The reader without its thread, and the rows it fills."""

    def __init__(self, path: Path) -> None:
        self.path, self.rows, self.reader = path, RecordLines(), LogReader(lambda: None)
        self.lines: list[Line] = []
        self.view = LogView(path)
        path.write_bytes(b"")
        self.show(self.view)

    def show(self, view: LogView) -> None:
        self.view = view
        self._handle("view", view)

    def come(self, lines: list[Line], cut_at: int) -> None:
        """Append lines in two parts; the reader checks the file after each part."""
        raw = b"".join(line.raw for line in lines)
        with self.path.open("ab", buffering=0) as file:
            for part in (raw[:cut_at], raw[cut_at:]):
                file.write(part)
                self._handle("look", None)
        self.lines += lines

    def replace(self, lines: list[Line]) -> None:
        """Rotate the full log: put a new file in its place."""
        new = self.path.with_suffix(".new")
        new.write_bytes(b"".join(line.raw for line in lines))
        os.replace(new, self.path)
        self.lines = list(lines)
        self._handle("look", None)

    def _handle(self, kind: str, view: LogView | None) -> None:
        self.reader._handle(kind, view)
        for piece in self.reader.pop():
            self.rows.add(piece)

    def expected(self) -> tuple[list[Line], list[Line]]:
        """Return the visible lines, and the visible lines that are hits."""
        shown = [line for line in self.lines if TABS[self.view.tab](line)]
        hits = [line for line in shown if SEARCHES[self.view.search](line)] if self.view.search else []
        return (hits if self.view.search and self.view.hits_only else shown), hits


def text_of(rows: RecordLines, key: int) -> str:
    at = rows.index_of(key)
    assert at is not None
    return rows.line(at).text


# Shrinking is off: an example that fails has at most ten steps, which a developer can read.
@settings(max_examples=60, deadline=None, phases=set(Phase) - {Phase.shrink})
@given(st.lists(STEPS, min_size=1, max_size=10))
def test_log_lines_equal_a_reference_model_after_random_steps(steps: list[object]) -> None:
    CountedFile.reads = 0
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        patched.setattr(log_lines, "OpenLogFile", CountedFile)
        screen = Screen(Path(folder, "aptui.log"))
        rows = screen.rows
        for step in steps:
            match step:
                case "come", list(lines), int(cut_at):
                    before = list(rows.starts)
                    screen.come(lines, cut_at)
                    assert list(rows.starts)[: len(before)] == before, "rows before the new lines do not change"
                case "replaced", list(lines), _:
                    screen.replace(lines)
                case bool():
                    screen.show(LogView(screen.path, screen.view.tab, screen.view.search, step))
                case str():
                    screen.show(LogView(screen.path, screen.view.tab, step, screen.view.hits_only))
                case LogTab():
                    screen.show(LogView(screen.path, step, screen.view.search, screen.view.hits_only))
            shown, hits = screen.expected()
            drawn = [rows.line(at) for at in range(rows.line_count())]
            assert [(line.level, line.window, line.text, line.has_details) for line in drawn] == [
                (line.level, line.source, line.text, line.has_details) for line in shown
            ]
            assert [text_of(rows, key) for key in rows.hits] == [line.text for line in hits]

        places = range(rows.line_count())
        assert [rows.index_of(rows.key(at)) for at in places] == list(places)
        for levels in ("E", "EW", LEVELS):
            found = [at for at in places if drawn[at].level in levels]
            assert rows.of_levels(levels) == found
            for at in places:
                assert rows.next_of(at, levels, 1) == min((other for other in found if other > at), default=None)
                assert rows.next_of(at, levels, -1) == max((other for other in found if other < at), default=None)
        screen.reader.close()

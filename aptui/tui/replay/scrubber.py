"""The scrubber: the time of a recording as a line, how much of it has passed, where jobs failed; a click goes there.

Tests: `tests/tui/replay/test_app.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import TYPE_CHECKING

from aptui.tui.frame.line import Part, Parts, width_of
from aptui.tui.frame.statusline import Rule
from aptui.tui.replay.session import clock

if TYPE_CHECKING:
    from textual import events

    from aptui.tui.replay.session import ReplaySession

_LEAST_CELLS = 8


class Scrubber(Rule):
    """Stands where the lower rule does."""

    def __init__(self, replay: ReplaySession, *, name: str) -> None:
        super().__init__(name=name)
        self._replay = replay

    def parts(self, width: int) -> Parts:
        """Return `00:00 ━━━━●────✗─── 07:40`; the times go where there is no room."""
        left, right = self._times(width)
        free_width = max(1, width - width_of((left, right)))
        here = self._cell(self._replay.at_ms, free_width)
        failed = {self._cell(block.last_ms, free_width) for block in self._replay.recording.blocks if block.failed_count}
        cells = (self._part(at, here, is_failed=at in failed) for at in range(free_width))
        return left, *_merge_parts(cells), right

    def _times(self, width: int) -> tuple[Part, Part]:
        left, right = Part(" 00:00 ", "muted"), Part(f" {clock(self._replay.length_ms)} ", "muted")
        fits = width - width_of((left, right)) >= _LEAST_CELLS
        return (left, right) if fits else (Part(""), Part(""))

    def _cell(self, at_ms: int, free_width: int) -> int:
        return min(free_width - 1, at_ms * free_width // max(1, self._replay.length_ms))

    def _part(self, at: int, here: int, *, is_failed: bool) -> Part:
        if at == here:
            return Part("●", "accent")
        if is_failed:
            return Part("✗", "failed")
        return Part("━", "completed") if at < here else Part("─", "rule")

    async def on_click(self, event: events.Click) -> None:
        """Go to the time under the pointer."""
        left, right = self._times(self.size.width)
        free_width = self.size.width - width_of((left, right))
        self._replay.go_to(max(0, event.x - left.width) * self._replay.length_ms // max(1, free_width - 1))


def _merge_parts(cells: Iterable[Part]) -> Iterator[Part]:
    for (text, role), run in groupby(cells, lambda part: (part.text, part.role)):
        yield Part(text * len(list(run)), role)

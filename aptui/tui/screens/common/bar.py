"""The one-line bars of screens: text at the left, text at the right, a rule between; what they say is told them.

Tests: `tests/tui/screens/jobs/test_pane.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from aptui.tui.frame.line import Line, Part, Parts, width_of
from aptui.tui.terminal.safety import glyph
from aptui.tui.words import shorten

_RULE_CELLS = 2
FRAME_CELLS = 11
"""What rules and blanks of a head take at least."""


class Bar(Line):
    """A line whose two ends somebody else says; `rules` draws it as the head of a pane.

    Args:
        ends: takes the width, returns (left, right); the left gives way where there is no room.
    """

    def __init__(self, ends: Callable[[int], tuple[Sequence[Part], Sequence[Part]]], *, id: str, rules: bool) -> None:  # noqa: A002  # Textual's
        super().__init__(id=id)
        self._ends, self._rules = ends, rules

    def parts(self, width: int) -> Parts:
        """Return the line."""
        left, right = self._ends(width)
        if not self._rules:
            left = _cut(left, width - width_of(right) - 2)
            return (*left, Part(" " * max(1, width - width_of(left) - width_of(right) - 1)), *right)
        rule = glyph("rule")
        if not width_of((*left, *right)):  # a rule without a hole for the words that it has not
            return (Part(f" {rule * (width - 2)}", "rule"),)
        left = _cut(left, width - width_of(right) - FRAME_CELLS)
        fill = max(0, width - width_of(left) - width_of(right) - 2 * _RULE_CELLS - (4 if right else 2) - 2)
        ending = (Part(" "), *right, Part(f" {rule * _RULE_CELLS}", "rule")) if right else (Part(rule * _RULE_CELLS, "rule"),)
        return (Part(f" {rule * _RULE_CELLS} ", "rule"), *left, Part(f" {rule * fill}", "rule"), *ending)


def _cut(parts: Sequence[Part], width: int) -> tuple[Part, ...]:
    """Return as much of `parts` as fits."""
    fitting: list[Part] = []
    for part in parts:
        if part.width > width:
            return (*fitting, Part(shorten(part.text, max(0, width)), part.role, part.action))
        fitting.append(part)
        width -= part.width
    return tuple(fitting)

"""The lines of the Assets screen that are made of parts: the tabs of its trees, and titles.

Tests: `tests/tui/screens/assets/test_pane.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from textual.message import Message

from aptui.tui.data.asset_tree import Kind
from aptui.tui.frame.line import Line, Part, Parts, width_of
from aptui.tui.terminal.safety import glyph
from aptui.tui.widgets.cells import fit
from aptui.tui.widgets.cells import width_of as text_width

if TYPE_CHECKING:
    from textual import events

TITLES = {Kind.SOURCES: "Sources", Kind.INTERMEDIATES: "Intermediates", Kind.PRODUCTS: "Products"}
_BRIEF = {**TITLES, Kind.INTERMEDIATES: "Interm."}
"""Where the search needs the room."""


class TreeTabs(Line):
    """Which tree is shown, and how many files each holds as far as it was read."""

    @dataclass
    class TreeChosen(Message):
        """A tab was clicked."""

        kind: Kind

    def __init__(self) -> None:
        super().__init__(id="assets-tabs")
        self._kind, self._counts = Kind.SOURCES, dict.fromkeys(Kind, -1)
        self._is_roomy = self._is_brief = False
        self._width = 0

    def show(self, kind: Kind, counts: dict[Kind, int], *, is_roomy: bool, is_brief: bool) -> None:
        """Show that a tree is in front; a count of -1 is not known. `is_brief`: it has to leave room to the search."""
        self._kind, self._counts, self._is_roomy, self._is_brief = kind, counts, is_roomy, is_brief
        width = width_of(self.parts(0))
        if width != self._width:
            self._width = self.styles.width = width
        self.refresh_if_changed()

    def parts(self, width: int) -> Parts:  # noqa: ARG002  # it is as wide as its parts
        """Return the tabs; a sign marks the one in front, also where there are no colours."""
        parts: list[Part] = []
        for kind, title in (_BRIEF if self._is_brief else TITLES).items():
            is_here = kind is self._kind
            parts.append(Part(f" {title}", "title" if is_here else "muted"))
            parts.append(Part(glyph("open") if is_here else " ", "accent"))
            count = self._counts[kind]
            is_counted = self._is_roomy or (is_here and not self._is_brief)
            parts.append(Part(f" {count:,}" if count >= 0 and is_counted else "", "muted"))
            parts.append(Part(" "))
        return tuple(parts)

    async def on_click(self, event: events.Click) -> None:
        """Say which tab is under the pointer."""
        ends, end = [], 0
        for at, part in enumerate(self.parts(0)):
            end += part.width
            if at % 4 == 3:
                ends.append(end)
        kinds = [kind for kind, past in zip(TITLES, ends, strict=True) if event.x < past]
        if kinds:
            self.post_message(self.TreeChosen(kinds[0]))


class TitleLine(Line):
    """A line above a part: its title, what more is known, and a rule to the end if it divides."""

    def __init__(self, id: str, *, classes: str = "", is_rule: bool = False) -> None:  # noqa: A002  # Textual's name
        super().__init__(id=id, classes=classes)
        self._title, self._more, self._is_rule = "", "", is_rule

    def show(self, title: str, more: str = "") -> None:
        """Say something else; both are foreign text."""
        self._title, self._more = title, more
        self.refresh_if_changed()

    def parts(self, width: int) -> Parts:
        """Return title and rest, shortened to the width."""
        line = glyph("rule")
        before = Part(f" {line * 2} " if self._is_rule else " ", "rule")
        free_width = max(0, width - before.width - 1)
        title = fit(self._title, min(free_width, text_width(fit(self._title, 400).text.rstrip()))).text
        more = fit(f"  {self._more}", max(0, free_width - text_width(title)), is_prose=True).text.rstrip() if self._more else ""
        rest = max(0, free_width - text_width(title) - text_width(more) - 1)
        return before, Part(title, "title"), Part(more, "muted"), Part(f" {line * rest}" if self._is_rule else "", "rule")

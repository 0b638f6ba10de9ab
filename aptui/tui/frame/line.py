"""Lines of the frame and of panes, drawn without Textual's labels: heads with text at both ends, and lines of tabs.

A line consists of `Part`s. The caller has already removed control characters from their text; Textual does not read it as markup.

Tests: `tests/tui/test_shell.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, ClassVar

from msgspec import Struct
from rich.cells import cell_len
from rich.segment import Segment
from textual.strip import Strip

from aptui.shared.printing import sanitize
from aptui.tui.preferences.theming import roles
from aptui.tui.terminal.safety import glyph
from aptui.tui.widgets.row_list import PlainLines
from aptui.tui.words import shorten

if TYPE_CHECKING:
    from rich.style import Style
    from textual import events
    from textual.widget import Widget


class Part(Struct, frozen=True):
    """A part of a line: its text, the role that selects its style (`theming.ROLES`), and the action that a click on it runs."""

    text: str
    role: str = ""
    action: str = ""

    @property
    def width(self) -> int:
        """Width in cells."""
        return cell_len(self.text)


Parts = tuple[Part, ...]


def width_of(parts: Sequence[Part]) -> int:
    """Return the total width of `parts` in cells."""
    return sum(part.width for part in parts)


def spread(left: Sequence[Part], right: Sequence[Part], width: int) -> Parts:
    """Return a line with `left` at its left end and `right` at its right end."""
    return (*left, Part(" " * max(1, width - width_of(left) - width_of(right))), *right)


def strip_of(parts: Sequence[Part], widget: Widget, width: int, base: Style) -> Strip:
    """Return the line of parts cut or padded to exactly `width` cells."""
    styles = roles(widget.app)
    segments = [Segment(part.text, base + styles[part.role] if part.role else base) for part in parts if part.text]
    return Strip(segments).adjust_cell_length(width, base)


class Line(PlainLines):
    """A widget of one line; a subclass supplies its parts. The line is drawn again only if its parts changed."""

    DEFAULT_CSS = "Line { height: 1; width: 1fr; }"
    ALLOW_SELECT: ClassVar[bool] = False
    _drawn: Parts = ()

    def parts(self, width: int) -> Parts:
        """Return the parts of a line of `width` cells."""
        raise NotImplementedError

    def refresh_if_changed(self) -> None:
        """Draw the line again if its parts changed.

        The parts depend on the width. While the line is hidden, its width is 0, so the line is always drawn again.
        """
        if self.is_mounted and (not self.size.width or self.parts(self.size.width) != self._drawn):
            self.refresh()

    def render_line(self, y: int) -> Strip:  # noqa: ARG002  # one line
        """Draw the line for Textual."""
        self._drawn = self.parts(self.size.width)
        return strip_of(self._drawn, self, self.size.width, self.rich_style)

    async def on_click(self, event: events.Click) -> None:
        """Run the action of the part under the pointer."""
        if action := self.action_at(event.x):
            await self.app.run_action(action)

    def action_at(self, x: int) -> str:
        """Return the action of the part at column `x`, "" if the part has no action."""
        ends = accumulate(part.width for part in self._drawn)
        return next((part.action for part, end in zip(self._drawn, ends, strict=True) if x < end), "")


_RULE_CELLS = 2
FRAME_CELLS = 11
"""Minimum number of cells that horizontal rules and blanks take in the title line of a pane."""


class Bar(Line):
    """A line with texts at both ends.

    Args:
        ends: returns the texts (left, right) for a width; the left text is cut if there is too little room.
        rules: whether a horizontal rule fills the rest of the line, as in the title line of a pane.
    """

    def __init__(self, ends: Callable[[int], tuple[Sequence[Part], Sequence[Part]]], *, id: str, rules: bool) -> None:  # noqa: A002  # Textual's
        super().__init__(id=id)
        self._ends, self._rules = ends, rules

    def parts(self, width: int) -> Parts:
        """Draw the line."""
        left, right = self._ends(width)
        if not self._rules:
            left = _cut(left, width - width_of(right) - 2)
            return (*left, Part(" " * max(1, width - width_of(left) - width_of(right) - 1)), *right)
        rule = glyph("rule")
        if not width_of((*left, *right)):  # without texts, the horizontal rule is not interrupted
            return (Part(f" {rule * (width - 2)}", "rule"),)
        left = _cut(left, width - width_of(right) - FRAME_CELLS)
        fill = max(0, width - width_of(left) - width_of(right) - 2 * _RULE_CELLS - (4 if right else 2) - 2)
        ending = (Part(" "), *right, Part(f" {rule * _RULE_CELLS}", "rule")) if right else (Part(rule * _RULE_CELLS, "rule"),)
        return (Part(f" {rule * _RULE_CELLS} ", "rule"), *left, Part(f" {rule * fill}", "rule"), *ending)


def _cut(parts: Sequence[Part], width: int) -> tuple[Part, ...]:
    """Return the parts that fit into `width` cells. If not all fit, an ellipsis marks the place where the text is cut."""
    fitting: list[Part] = []
    is_cut = width_of(parts) > width
    for part in parts:
        if is_cut and part.width >= width:
            return (*fitting, Part(shorten(part.text + "…", max(0, width)), part.role, part.action))
        fitting.append(part)
        width -= part.width
    return tuple(fitting)


class TabLine(Line):
    """The tabs of a pane and a few words at the right; a click chooses a tab.

    Args:
        titles: returns the titles and the number of the current one.
        words: returns the words at the right, the least important word first; words that do not fit are dropped in this order.
        choose: called with the number of the clicked tab.
    """

    def __init__(
        self,
        titles: Callable[[], tuple[Sequence[str], int]],
        words: Callable[[], Sequence[Part]],
        choose: Callable[[int], object],
        *,
        id: str,  # noqa: A002  # Textual's name
    ) -> None:
        super().__init__(id=id)
        self._titles, self._words, self._choose = titles, words, choose

    def parts(self, width: int) -> Parts:
        """Return the tabs at the left, and as many of the words at the right as fit."""
        titles, current = self._titles()
        left: list[Part] = []
        for at, title in enumerate(titles):
            is_here = at == current
            left.append(Part(f" {sanitize(title)}", "title" if is_here else "muted", f"{at}"))
            left.append(Part(glyph("open") if is_here else " ", "accent", f"{at}"))
            left.append(Part(" "))
        left = left[:-1]
        words = [word for word in self._words() if word.text]
        while words and width_of(left) + sum(word.width + 3 for word in words) > width:
            words.pop(0)
        free_width = width - sum(word.width + 3 for word in words) - 1
        fitting: list[Part] = []
        for part in left:
            text = shorten(part.text, free_width)
            fitting.append(Part(text, part.role, part.action))
            free_width -= fitting[-1].width
        right = [piece for word in words for piece in (Part("   "), Part(sanitize(word.text), word.role))]
        return (*fitting, Part(" " * max(0, free_width)), *right)

    async def on_click(self, event: events.Click) -> None:
        """Choose the clicked tab."""
        event.stop()
        if tab := self.action_at(event.x):
            self._choose(int(tab))

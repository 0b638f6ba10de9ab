"""Lines of the frame, drawn without Textual's labels. A line consists of `Part`s. Their text is safe already and is not markup.

Tests: `tests/tui/test_shell.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, ClassVar

from msgspec import Struct
from rich.cells import cell_len
from rich.segment import Segment
from textual.strip import Strip

from aptui.tui.preferences.theming import roles
from aptui.tui.widgets.row_lines import PlainLines

if TYPE_CHECKING:
    from rich.style import Style
    from textual import events
    from textual.widget import Widget


class Part(Struct, frozen=True):
    """One stretch of text in a line, with its role; a click on it runs `action`."""

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
        """Draw the line again if its parts changed or if the line is hidden."""
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
        """Return the action of the part at column `x`, "" = none."""
        ends = accumulate(part.width for part in self._drawn)
        return next((part.action for part, end in zip(self._drawn, ends, strict=True) if x < end), "")

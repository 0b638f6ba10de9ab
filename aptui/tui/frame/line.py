"""Lines made of parts, which the frame draws instead of Textual's labels. The text of parts is safe already, and not markup.

Tests: `tests/tui/test_shell.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
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
    """A piece of a line; a click runs `action`."""

    text: str
    role: str = ""
    action: str = ""

    @property
    def width(self) -> int:
        """Width in cells."""
        return cell_len(self.text)


Parts = tuple[Part, ...]


def width_of(parts: Sequence[Part]) -> int:
    """Return the width of `parts` in cells."""
    return sum(part.width for part in parts)


def spread(left: Sequence[Part], right: Sequence[Part], width: int) -> Parts:
    """Return `left` and `right` at the two ends of a line."""
    return (*left, Part(" " * max(1, width - width_of(left) - width_of(right))), *right)


def strip_of(parts: Sequence[Part], widget: Widget, width: int, base: Style) -> Strip:
    """Return a line of exactly `width` cells."""
    styles = roles(widget.app)
    segments = [Segment(part.text, base + styles[part.role] if part.role else base) for part in parts if part.text]
    return Strip(segments).adjust_cell_length(width, base)


class Line(PlainLines):
    """One line; a subclass gives its parts. It is drawn again only if they changed."""

    DEFAULT_CSS = "Line { height: 1; width: 1fr; }"
    ALLOW_SELECT: ClassVar[bool] = False
    _drawn: Parts = ()

    def parts(self, width: int) -> Parts:
        """Return the parts of a line of `width` cells."""
        raise NotImplementedError

    def refresh_if_changed(self) -> None:
        """Draw the line again if its parts changed, or if it is hidden."""
        if self.is_mounted and (not self.size.width or self.parts(self.size.width) != self._drawn):
            self.refresh()

    def render_line(self, y: int) -> Strip:  # noqa: ARG002  # one line
        """Return the line."""
        self._drawn = self.parts(self.size.width)
        return strip_of(self._drawn, self, self.size.width, self.rich_style)

    async def on_click(self, event: events.Click) -> None:
        """Run the action of the part under the pointer."""
        end = 0
        for part in self._drawn:
            end += part.width
            if event.x < end:
                if part.action:
                    await self.app.run_action(part.action)
                return

"""What one frame draws: news for every pane, the lines of the frame, the pane in sight. When it does is `frame_clock`'s business.

Tests: `tests/tui/test_main_screen.py`, `tests/tui/test_shell.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, cast

from textual import events
from textual._compositor import Compositor
from textual.app import App
from textual.binding import Binding, BindingType
from textual.geometry import Region
from textual.screen import Screen

from aptui.tui.frame.line import Line

if TYPE_CHECKING:
    from textual.strip import Strip

    from aptui.tui.data.feed import Feed
    from aptui.tui.key_gate import KeyGate
    from aptui.tui.pane_switcher import PaneSwitcher


# Draws the lines that changed, and of the widgets those alone that are seen in them.
#
# Textual has all lines drawn of every widget within the box around all that changed. A letter in the status line and one in the
# hints put the whole screen into that box, and of what was drawn nearly all is thrown away. So is what containers draw behind
# their parts.
#
# It overrides `Compositor._render_chops`, which is Textual's own affair and therefore pinned with its version.


class ChangedLines(Compositor):
    """A compositor that asks a widget for its lines from the first to the last that is wanted."""

    def _render_chops(self, crop: Region, is_rendered_line: Callable[[int], bool]) -> Sequence[Mapping[int, Strip]]:
        """Return the wanted lines, each as {column: piece} for the pieces that it is cut into; the others are empty.

        Args:
            crop: what is around all that is wanted.
            is_rendered_line: whether a line is wanted.
        """
        cuts = self.cuts
        wanted = [y for y in crop.line_range if is_rendered_line(y)]
        chops: list[dict[int, Strip | None]] = [dict.fromkeys(line[:-1]) for line in cuts]
        for widget, (region, clip) in self.visible_widgets.items():  # they come from front to back
            seen = region.intersection(clip)
            if not seen.width:
                continue
            left, right = seen.x, seen.right
            lines = [
                (y, [cut for cut in cuts[y] if left <= cut <= right])
                for y in wanted
                if seen.y <= y < seen.bottom and not _is_covered(chops[y], left, right)
            ]
            if not lines:
                continue
            first, last = lines[0][0], lines[-1][0]
            strips = widget.render_lines(Region(left - region.x, first - region.y, seen.width, last + 1 - first))
            for y, ends in lines:
                line = chops[y]
                for cut, piece in zip(ends, strips[y - first].divide([cut - left for cut in ends[1:]]), strict=False):
                    if line.get(cut) is None:
                        line[cut] = piece
        return cast("Sequence[Mapping[int, Strip]]", chops)  # as Textual's own


def _is_covered(line: Mapping[int, Strip | None], left: int, right: int) -> bool:
    """Return whether something in front has every piece of a line from one column to the other."""
    return all(piece is not None for cut, piece in line.items() if left <= cut < right)


# The only screen of the app, and when it is first drawn: with the first rows, so that nothing is drawn twice on the way to
# them.
#
# Until then what `terminal/skeleton` wrote stands. Parts are laid out meanwhile; that costs little.


class MainScreen(Screen[None], inherit_bindings=False):
    """The only screen; everything that pops up is a part of it."""

    AUTO_FOCUS = ""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab", "app.focus_next", "next part", show=False, id="app.next_part"),
        Binding("shift+tab", "app.focus_previous", "previous part", show=False, id="app.previous_part"),
    ]

    def __init__(self) -> None:
        # Nearly all terminals are tall; the class that comes with the first size has everything styled anew.
        super().__init__(id="_default", classes="-tall")
        self._compositor = ChangedLines()
        self.is_shown = False
        """Whether it is drawn from now on."""

    def show(self) -> None:
        """Draw it, now that there is something to see."""
        if not self.is_shown:
            self.is_shown = True
            self.refresh()

    def _on_screen_resume(self, event: events.ScreenResume) -> None:
        """Spare what was styled as it was mounted the same once more; Textual calls its own method after this one."""
        if not self.stack_updates:
            event.refresh_styles = False

    def _compositor_refresh(self) -> None:
        """Draw what changed."""
        if self.is_shown:
            super()._compositor_refresh()
        else:
            self._dirty_widgets.clear()


class FrameDrawing:
    """Draws frames.

    Args:
        feed: returns what has the news, None = nothing was read yet.
        switcher: has the panes.
        gate: lets keys through once what they are about is there.
    """

    def __init__(self, app: App[Any], feed: Callable[[], Feed | None], switcher: PaneSwitcher, gate: KeyGate) -> None:
        self._app, self._feed, self._switcher, self._gate = app, feed, switcher, gate
        self._lines: tuple[Line, ...] = ()

    @property
    def screen(self) -> MainScreen:
        """The screen below whatever is open."""
        return next(screen for screen in self._app.screen_stack if isinstance(screen, MainScreen))

    def draw(self) -> bool:
        """Hand out a part of what happened; return whether there is more. After the last one, draw it."""
        feed = self._feed()
        if not self._app.is_running or feed is None:
            return False
        if self._switcher.take(feed):
            return True
        self.draw_lines()
        self._switcher.draw()
        if self._switcher.pane is None or not self._switcher.pane.name_awaited(None):
            self.screen.show()
        self._gate.check_again()
        return False

    def draw_lines(self) -> None:
        """Draw the lines above and below the pane, where they changed."""
        # Looked for once: they stay, and a search through all that is mounted costs a third of a frame.
        self._lines = self._lines or tuple(self.screen.query("StatusLine, TabBar, Rule, Banner").results(Line))
        for line in self._lines:
            line.refresh_if_changed()

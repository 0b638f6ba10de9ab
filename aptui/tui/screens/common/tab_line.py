"""The line of tabs within a pane: which there are, which is shown, and a few words at the right; a click chooses.

Tests: `tests/tui/screens/builders/test_pane.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from aptui.shared.sanitize import sanitize
from aptui.tui.frame.line import Line, Part, Parts, width_of
from aptui.tui.terminal.safety import glyph
from aptui.tui.words import shorten

if TYPE_CHECKING:
    from textual import events


class TabLine(Line):
    """The tabs.

    Args:
        titles: returns the titles and which of them is shown.
        words: returns what stands at the right, the least important first: that goes first where there is no room.
        choose: called with the number of the tab that was clicked.
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
        """Return the tabs, and as many words as there is room for."""
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
        """Choose the tab under the pointer."""
        event.stop()
        end = 0
        for part in self._drawn:
            end += part.width
            if event.x < end:
                if part.action:
                    self._choose(int(part.action))
                return

"""How the Builders screen shares its room: the list, beside or below it one of three parts, or one of them alone.

Tests: `tests/tui/screens/builders/test_pane.py`.
"""

from __future__ import annotations

from collections.abc import Callable

from aptui.tui.screens.builders.facts import TABS, BuilderWidgets
from aptui.tui.widgets.columns import width_of_all

_BESIDE_CELLS = 170
"""From this width on the details stand beside the list, else below it."""
_LEAST_SHARE, _MOST_SHARE = 5, 8
"""So many twelfths of the width the list has beside them: what its texts need, between these two."""
_LEAST_LIST = 4
_AROUND_LIST = 2
"""Cells beside its columns: the edge, and the bar that scrolls."""
_DETAIL_LINES = 17
"""So many lines do for most of what stands below the list; on a high screen the list has the rest."""
_AROUND_PATTERNS = 3
"""Lines above the patterns: a rule, the tabs, the head."""


class BuildersLayout:
    """Which part is shown, and whether it is alone.

    Args:
        row_count: returns how many builders are listed.
        most_patterns: returns how many patterns a builder has at most: no line is kept for more, whoever the cursor is at.
        shown: called when another part is shown.
    """

    def __init__(
        self, widgets: BuilderWidgets, row_count: Callable[[], int], most_patterns: Callable[[], int], shown: Callable[[], object]
    ) -> None:
        self._widgets, self._row_count, self._most_patterns, self._shown = widgets, row_count, most_patterns, shown
        self.part = TABS[0]
        self.is_zoomed = False

    def resize(self) -> None:
        """Put the details beside the list where there is room."""
        self._widgets.pane.set_class(self._widgets.pane.size.width >= _BESIDE_CELLS, "-beside")
        self.divide_height()

    def divide_height(self) -> None:
        """Let the list be as high as it needs to be, where the details stand below it."""
        pane = self._widgets.pane
        is_below = not pane.has_class("-beside") and not self.is_zoomed
        lines = min(_DETAIL_LINES, _AROUND_PATTERNS + max(1, self._most_patterns())) if self.part == TABS[0] else _DETAIL_LINES
        most = max(_LEAST_LIST, pane.size.height * 2 // 5, pane.size.height - lines)
        self._widgets.list.styles.height = min(most, max(_LEAST_LIST, self._row_count() + 1)) if is_below else "1fr"
        pane.query_one("#builders-rule").display = is_below
        needs = width_of_all(self._widgets.list.columns) + _AROUND_LIST
        width = max(pane.size.width * _LEAST_SHARE // 12, min(needs, pane.size.width * _MOST_SHARE // 12))
        self._widgets.list.styles.width = width if pane.has_class("-beside") and not self.is_zoomed else "1fr"

    def show(self) -> None:
        """Show the part."""
        widgets = self._widgets
        for name in TABS:
            widgets.part(name).display = name == self.part
        list_has_focus = widgets.list.has_focus
        widgets.list.display = not self.is_zoomed or list_has_focus
        widgets.side.display = not self.is_zoomed or not list_has_focus
        self.divide_height()
        self._shown()
        widgets.tabs.refresh_if_changed()

    def go_to(self, name: str) -> None:
        """Show patterns, details or metrics; where they are shown already, go there."""
        side_has_focus = self._widgets.side.has_focus_within
        was, self.part = self.part, name
        if self.is_zoomed and self._widgets.list.has_focus:
            self.is_zoomed = False
        self.show()
        if side_has_focus or was == name:
            self._widgets.part(name).focus()

    def zoom(self) -> None:
        """Show the part with the focus alone, or both again."""
        self.is_zoomed = not self.is_zoomed
        self.show()

    def go_to_list(self) -> bool:
        """Go back to the list; return whether the focus was elsewhere."""
        if self._widgets.list.has_focus:
            return False
        self._widgets.list.display = True
        self._widgets.list.focus()
        self.show()
        return True

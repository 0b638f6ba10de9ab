"""Layout of the Builders screen (list, and one of three parts or all of them beside or below it), and its filter line.

Tests: `tests/tui/screens/builders/test_builders_pane.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from aptui.shared.errors import KnownError
from aptui.store.queries.metrics import Entry
from aptui.tui.screens.builders.builder_facts import MOST, TABS, BuilderWidgets, KnownBuilder, Metrics, join_searched
from aptui.tui.screens.logs.log_tabs import parse_filter
from aptui.tui.widgets.filterbox import FilterBox
from aptui.tui.widgets.table import width_of_all

_BESIDE_CELLS = 170
"""Minimum width of the screen for the details beside the list (cells); on a narrower screen they are below it."""
_LEAST_SHARE, _MOST_SHARE = 5, 8
"""Minimum and maximum width of the list beside the details, in twelfths of the screen."""
_COLUMNS_LINES = 36
"""Minimum height of the screen for all three parts of the details, in columns below the list (lines)."""
_LEAST_LIST = 4
_AROUND_LIST = 2
"""Cells that the list needs beside its columns: the edge and the scroll bar."""
_DETAIL_LINES = 17
"""Number of lines for the details below the list; on a high screen, the list gets the remaining lines."""
_AROUND_PATTERNS = 3
"""Lines above the patterns: a rule, the tabs, the header."""


class BuildersLayout:
    """Divides the screen between the list and its parts (patterns, details, metrics), or gives one of them all the room.

    Args:
        row_count: returns the number of listed builders.
        most_patterns: returns the number of patterns of the builder that has most; the layout uses it for all builders, so that it
            does not change when the cursor moves.
        shown: called when another part is shown.
    """

    def __init__(
        self, widgets: BuilderWidgets, row_count: Callable[[], int], most_patterns: Callable[[], int], shown: Callable[[], object]
    ) -> None:
        self._widgets, self._row_count, self._most_patterns, self._shown = widgets, row_count, most_patterns, shown
        self.part = TABS[0]
        self.is_zoomed = self.has_columns = False

    def resize(self) -> None:
        """Put the details beside the list or below it: one part, or all three as columns if there is room."""
        pane = self._widgets.pane
        has_columns = pane.size.width >= _BESIDE_CELLS and pane.size.height >= _COLUMNS_LINES
        pane.set_class(pane.size.width >= _BESIDE_CELLS and not has_columns, "-beside")
        pane.set_class(has_columns, "-columns")
        if self.has_columns != has_columns:
            self.has_columns = has_columns
            self.show()
        self.divide_height()

    def is_shown(self, name: str) -> bool:
        """Return whether a part of the details is visible."""
        return self.has_columns or name == self.part

    def divide_height(self) -> None:
        """If the details are below the list, give the list the height that it needs."""
        pane = self._widgets.pane
        is_below = not pane.has_class("-beside") and not self.is_zoomed
        is_short = self.part == TABS[0] and not self.has_columns
        lines = min(_DETAIL_LINES, _AROUND_PATTERNS + max(1, self._most_patterns())) if is_short else _DETAIL_LINES
        most = max(_LEAST_LIST, pane.size.height * 2 // 5, pane.size.height - lines)
        self._widgets.list.styles.height = (
            min(most, max(_LEAST_LIST, self._row_count() + 1 + self.has_columns)) if is_below else "1fr"
        )
        pane.query_one("#builders-rule").display = is_below and not self.has_columns
        needs = width_of_all(self._widgets.list.columns) + _AROUND_LIST
        width = max(pane.size.width * _LEAST_SHARE // 12, min(needs, pane.size.width * _MOST_SHARE // 12))
        self._widgets.list.styles.width = width if pane.has_class("-beside") and not self.is_zoomed else "1fr"

    def show(self) -> None:
        """Show the current part."""
        widgets = self._widgets
        for name in TABS:
            widgets.columns[name].display = widgets.parts[name].display = self.is_shown(name)
            widgets.heads[name].display = self.has_columns
        widgets.tabs.display = not self.has_columns
        list_has_focus = widgets.list.has_focus
        widgets.list.display = not self.is_zoomed or list_has_focus
        widgets.side.display = not self.is_zoomed or not list_has_focus
        self.divide_height()
        self._shown()
        widgets.refresh_titles()

    def go_to(self, name: str) -> None:
        """Show the patterns, details or metrics; if they are shown already, focus them."""
        side_has_focus = self._widgets.side.has_focus_within
        was_shown, self.part = self.is_shown(name), name
        if self.is_zoomed and self._widgets.list.has_focus:
            self.is_zoomed = False
        self.show()
        if side_has_focus or was_shown:
            self._widgets.parts[name].focus()

    def zoom(self) -> None:
        """Show only the focused half (list or details), or both again."""
        self.is_zoomed = not self.is_zoomed
        self.show()

    def go_to_list(self) -> bool:
        """Focus the list; return whether another widget had the focus."""
        if self._widgets.list.has_focus:
            return False
        self._widgets.list.display = True
        self._widgets.list.focus()
        self.show()
        return True


class BuildersSearch:
    """The filter line, which filters the list (by names and patterns) or the metrics (by sources); each keeps its own filter.

    Args:
        metrics: returns the metrics.
        changed: called when the text for the list changed.
    """

    def __init__(self, widgets: BuilderWidgets, metrics: Callable[[], Metrics], changed: Callable[[], object]) -> None:
        self._widgets, self._metrics, self._changed = widgets, metrics, changed
        self._texts = {"list": "", "metrics": ""}
        self._place = "list"

    @property
    def list_text(self) -> str:
        """The filter of the list."""
        return self._texts["list"]

    def begin(self) -> None:
        """Open the filter line for the metrics if they have the focus, else for the list."""
        box = self._widgets.box
        self._place = "metrics" if self._widgets.spent.has_focus else "list"
        box.text = self._texts[self._place]
        box.show_count("")
        box.display = True
        box.begin()

    def handle(self, event: FilterBox.Changed) -> None:
        """Filter by the typed text; when the user leaves the line, focus the rows."""
        if isinstance(event, FilterBox.FilterLeft):
            self._widgets.box.display = bool(event.text)
            (self._widgets.spent if self._place == "metrics" else self._widgets.list).focus()
        elif event.text != self._texts[self._place]:
            self._narrow(event.text)

    def clear_list(self) -> None:
        """Show all builders."""
        self._place = "list"
        self._hide()
        self._narrow("")

    def forget_list(self) -> None:
        """Drop the filter of the list; the caller fills the list again."""
        self._texts["list"] = ""
        self._hide()

    def _hide(self) -> None:
        self._widgets.box.text, self._widgets.box.display = "", False

    def _narrow(self, text: str) -> None:
        """Apply a filter. If the filter has a mistake, show the mistake and do not change the rows."""
        try:
            parse_filter(text)
        except KnownError as error:
            self._widgets.box.show_error(error)
            return
        self._texts[self._place] = text
        if self._place == "list":
            self._changed()
        else:
            self.narrow_metrics()
            self._widgets.spent.refresh_model()

    def passing(self, builders: Sequence[KnownBuilder]) -> list[KnownBuilder]:
        """Return the builders that match the filter."""
        masks = parse_filter(self._texts["list"]).passing([join_searched(each) for each in builders])
        return [each for each, is_hit in zip(builders, masks, strict=True) if is_hit]

    def show_list_count(self, count: int, of: int) -> None:
        """Show how many of all builders match the filter."""
        if self._widgets.box.display and self._place == "list":
            self._widgets.box.show_count(f"{count} of {of}" if self._texts["list"] else "")

    def narrow_metrics(self) -> None:
        """Show the entries of the metrics that match the filter."""
        found, metrics = parse_filter(self._texts["metrics"]), self._metrics()

        def passes(entries: Sequence[Entry]) -> Sequence[Entry]:
            masks = found.passing([f"{entry.source} {entry.platform} {entry.job_key}" for entry in entries])
            return [entry for entry, is_hit in zip(entries, masks, strict=True) if is_hit]

        metrics.narrow(passes)
        if self._widgets.box.display and self._place == "metrics":
            self._widgets.box.show_count(f"{metrics.entry_count:,} of the slowest {MOST:,}")

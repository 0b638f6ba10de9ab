"""What is searched for in the Builders screen: names in the list, sources in the metrics, each with a text of its own.

Tests: `tests/tui/screens/builders/test_pane.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from aptui.shared.errors import KnownError
from aptui.store.queries.metrics import Entry
from aptui.tui.screens.builders.facts import BuilderWidgets, KnownBuilder, join_searched
from aptui.tui.screens.builders.metrics import MOST, Metrics
from aptui.tui.screens.logs.tabs import parse_filter
from aptui.tui.widgets.filterbox import FilterBox


class BuildersSearch:
    """The filter line over one of the two.

    Args:
        metrics: returns what a builder cost.
        changed: called when another text narrows the list.
    """

    def __init__(self, widgets: BuilderWidgets, metrics: Callable[[], Metrics], changed: Callable[[], object]) -> None:
        self._widgets, self._metrics, self._changed = widgets, metrics, changed
        self._texts = {"list": "", "metrics": ""}
        self._place = "list"

    @property
    def list_text(self) -> str:
        """What the list is narrowed by."""
        return self._texts["list"]

    def begin(self) -> None:
        """Narrow the list, or the metrics where the focus is there."""
        box = self._widgets.box
        self._place = "metrics" if self._widgets.spent.has_focus else "list"
        box.text = self._texts[self._place]
        box.show_count("")
        box.display = True
        box.begin()

    def take(self, event: FilterBox.Changed) -> None:
        """Narrow by what is typed; go back when the line is left."""
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
        """Narrow the list by nothing, once it is filled again."""
        self._texts["list"] = ""
        self._hide()

    def _hide(self) -> None:
        self._widgets.box.text, self._widgets.box.display = "", False

    def _narrow(self, text: str) -> None:
        """Use a filter; one that is not understood is shown as such, and the view stays."""
        try:
            parse_filter(text)
        except KnownError as error:
            self._widgets.box.show_mistake(getattr(error, "column", 1) - 1, error.what, error.hint)
            return
        self._texts[self._place] = text
        if self._place == "list":
            self._changed()
        else:
            self.narrow_metrics()
            self._widgets.spent.refresh_model()

    def passing(self, builders: Sequence[KnownBuilder]) -> list[KnownBuilder]:
        """Return the builders that pass."""
        masks = parse_filter(self._texts["list"]).passing([join_searched(each) for each in builders])
        return [each for each, is_hit in zip(builders, masks, strict=True) if is_hit]

    def show_list_count(self, count: int, of: int) -> None:
        """Say how many builders passed."""
        if self._widgets.box.display and self._place == "list":
            self._widgets.box.show_count(f"{count} of {of}" if self._texts["list"] else "")

    def narrow_metrics(self) -> None:
        """Show the entries of the metrics that pass."""
        found, metrics = parse_filter(self._texts["metrics"]), self._metrics()

        def passes(entries: Sequence[Entry]) -> Sequence[Entry]:
            masks = found.passing([f"{entry.source} {entry.platform} {entry.job_key}" for entry in entries])
            return [entry for entry, is_hit in zip(entries, masks, strict=True) if is_hit]

        metrics.narrow(passes)
        if self._widgets.box.display and self._place == "metrics":
            self._widgets.box.show_count(f"{metrics.entry_count:,} of the slowest {MOST:,}")

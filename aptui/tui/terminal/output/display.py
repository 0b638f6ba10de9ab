"""Connects the output layer to Textual: an app and a compositor that draw and send only what changed in a frame.

Both classes override private names of Textual. They are used only with the version series of Textual with which they were tested,
and only if it has these names. With any other version, Textual's own code draws and writes (*stock* output).

Tests: `tests/tui/terminal/output/test_display.py`, `tests/tui/terminal/test_safety.py`.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import textual
from textual import _compositor
from textual._compositor import ChopsUpdate, Compositor
from textual.app import App
from textual.geometry import Region
from textual.screen import Screen
from textual.signal import Signal
from textual.strip import Strip

if TYPE_CHECKING:
    from rich.console import RenderableType
    from textual.driver import Driver

    from aptui.tui.terminal.output.layer import OutputLayer

TESTED_SERIES = "8.2."
_PRIVATE_NAMES: tuple[tuple[object, tuple[str, ...]], ...] = (
    (Compositor, ("_regions_to_spans", "_render_chops", "cuts", "render_partial_update", "visible_widgets")),
    (_compositor, ("ChopsUpdate", "LayoutUpdate")),
    (App, ("_display", "_handle_exception")),
    (Screen, ("_compositor_refresh",)),
    (Strip, ("render_ansi", "render_style")),
)
"""Private names of Textual that the output layer overrides or reads: (the object, its names)."""


@cache
def is_supported() -> bool:
    """Return whether the output layer is used.

    It is not used with `APTUI_OUTPUT=stock`, nor with a version of Textual with which it was not tested.
    """
    has_names = all(hasattr(owner, name) for owner, names in _PRIVATE_NAMES for name in names)
    return os.environ.get("APTUI_OUTPUT", "") != "stock" and has_names and is_tested(Path(textual.__file__).parent.parent)


def is_tested(packages: Path) -> bool:
    """Return whether the version of Textual in a folder of packages belongs to the tested series.

    `importlib.metadata` is not used, because its import is slow.
    """
    return any(packages.glob(f"textual-{TESTED_SERIES}*.dist-info"))


# Textual renders everything inside the smallest box that contains all changes. If one letter changes in the status line and one
# letter in the hints, this box is the whole screen. Textual then discards nearly all rendered lines. It also renders and discards
# the parts of a widget that other widgets cover, and the lines of a widget beside the widget that changed.


class ChangedLines(Compositor):
    """A compositor that renders only the lines that changed, and in these lines only the visible widgets that changed."""

    def __init__(self) -> None:
        super().__init__()
        self._spans: dict[int, list[tuple[int, int]]] | None = None
        """{line: its changed parts, as (first column, column after the last)} during a partial update; None = all parts."""

    def render_partial_update(self) -> ChopsUpdate | None:
        """Render the changed parts of the screen."""
        self._spans = {}
        for y, first, end in self._regions_to_spans(self._dirty_regions):
            self._spans.setdefault(y, []).append((first, end))
        try:
            return super().render_partial_update()
        finally:
            self._spans = None

    def _is_visible(self, y: int, line: Mapping[int, Strip | None], left: int, right: int) -> bool:
        """Return whether line `y` has a changed cell from column `left` to `right` that no widget in front covers."""
        cuts, spans = self.cuts[y], ((left, right),) if self._spans is None else self._spans[y]
        for first, end in ((max(left, first), min(right, end)) for first, end in spans):
            at = bisect_right(cuts, first) - 1
            while first < end and cuts[at] < end:
                if line[cuts[at]] is None:
                    return True
                at += 1
        return False

    def _render_chops(self, crop: Region, is_rendered_line: Callable[[int], bool]) -> Sequence[Mapping[int, Strip]]:
        """Return {column: strip that begins there} for each line, divided at the borders of widgets.

        In lines that are not requested, None replaces each strip. `crop` is the box around all requested lines.
        """
        cuts = self.cuts
        wanted = [y for y in crop.line_range if is_rendered_line(y)]
        chops: list[dict[int, Strip | None]] = [dict.fromkeys(line[:-1]) for line in cuts]
        for widget, (region, clip) in self.visible_widgets.items():  # Textual sorts the widgets from front to back
            seen = region.intersection(clip)
            if not seen.width:
                continue
            left, right = seen.x, seen.right
            lines = [
                (y, [cut for cut in cuts[y] if left <= cut <= right])
                for y in wanted
                if seen.y <= y < seen.bottom and self._is_visible(y, chops[y], left, right)
            ]
            if not lines:
                continue
            first, last = lines[0][0], lines[-1][0]
            strips = widget.render_lines(Region(left - region.x, first - region.y, seen.width, last + 1 - first))
            for y, ends in lines:
                line, strip = chops[y], strips[y - first]
                # Most widgets are not cut. For them the original strip is used, because it caches the values computed from it.
                is_whole = len(ends) == 2 and strip.cell_length == right - left
                for cut, piece in zip(ends, [strip] if is_whole else strip.divide([cut - left for cut in ends[1:]]), strict=False):
                    if line.get(cut) is None:
                        line[cut] = piece
        return cast("Sequence[Mapping[int, Strip]]", chops)  # Textual's method has this type


def output_of(app: App[Any]) -> OutputLayer | None:
    """Return the layer that sends only the changed cells of an app's screen, None if the app sends all cells of an update."""
    return app.output_layer if isinstance(app, DiffRenderingApp) else None


class DiffRenderingApp(App[None]):
    """An app that sends only changed cells. If its driver has no `output`, Textual's own code sends whole updates."""

    def __init__(self, driver_class: type[Driver] | None = None) -> None:
        super().__init__(driver_class=driver_class)
        self.pixels_changed = Signal[None](self, "pixels")
        """Published when the terminal starts or stops showing pictures as pixels."""

    @property
    def output_layer(self) -> OutputLayer | None:
        """The layer that sends only changed cells, None if Textual's own code sends the updates."""
        return getattr(self._driver, "output", None)

    def line_rest_s(self) -> float:
        """Return how long updates must wait so that the connection to the terminal is free for keys (seconds)."""
        output = self.output_layer
        return 0.0 if output is None else output.pace.rest_s()

    def line_key_s(self) -> float:
        """Return the delay before the next check whether a key was echoed (seconds), 0 = no key waits for its echo."""
        output = self.output_layer
        return 0.0 if output is None else output.pace.key_s()

    def line_takes_s(self, size: int) -> float | None:
        """Return for how long `size` bytes occupy the connection (seconds); 0 = cannot be measured, None = not measured yet."""
        output = self.output_layer
        return 0.0 if output is None else output.pace.takes_s(size)

    def _display(self, screen: Screen[Any], renderable: RenderableType | None) -> None:
        """Pass an update to the output layer. Without that layer, or if the type of the update is unknown, Textual writes it."""
        output = self.output_layer
        if output is None or renderable is None or self._batch_count or not self._running or self._closed:
            super()._display(screen, renderable)
            return
        try:
            if not output.show(renderable, self.console, self.size, self.screen.outer_size.clamp_offset(self.cursor_position)):
                super()._display(screen, renderable)
                return
        except Exception as error:  # noqa: BLE001  # as in Textual: the app ends with the error
            self._handle_exception(error)
        self.post_display_hook()

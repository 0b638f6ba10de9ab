"""Widgets that are nothing but lines: no edges, no padding, nothing faded.

Around each line Textual draws what the style says of borders, outlines, padding, tints and hatches. Where it says nothing that
still takes three times as long as the line; and each time a new strip comes of it, so that nothing of what strips remember
of themselves (where they were cut, their colours for the terminal) is ever found again.

It overrides `StylesCache.render_line`, which is Textual's own affair and therefore pinned with its version.

Tests: `tests/tui/widgets/test_plain_lines.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from rich.segment import Segment
from rich.style import Style
from textual._styles_cache import StylesCache
from textual.color import Color
from textual.geometry import Size
from textual.strip import Strip
from textual.widget import Widget

_AROUND = ("outline_top", "outline_right", "outline_bottom", "outline_left", "tint", "hatch", "text_opacity")


class PlainLines(Widget):
    """A widget whose `render_line` says all; where its style says more, Textual draws that."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._styles_cache = _PlainCache()


class _PlainCache(StylesCache):
    """The lines of a widget as they were drawn last; the strips are the widget's own."""

    def render_line(  # Textual's
        self,
        styles: Any,
        y: int,
        size: Size,
        content_size: Size,
        padding: Any,
        base_background: Color,
        background: Color,
        render_content_line: Callable[[int], Strip],
        border_title: Any,
        border_subtitle: Any,
        opacity: float,
        *others: Any,
    ) -> Strip:
        """Draw a line."""
        if styles.gutter or styles.has_any_rules(*_AROUND) or opacity != 1 or y >= content_size.height:
            return super().render_line(
                styles,
                y,
                size,
                content_size,
                padding,
                base_background,
                background,
                render_content_line,
                border_title,
                border_subtitle,
                opacity,
                *others,
            )
        strip = render_content_line(y)
        if strip.cell_length == size.width:
            return strip
        inside, _outside = self.get_inner_outer(base_background, background)
        return strip.adjust_cell_length(size.width, inside.rich_style)


@lru_cache(maxsize=64)
def blank_line(width: int, style: Style) -> Strip:
    """Return a line without text."""
    return Strip([Segment(" " * width, style)], width)

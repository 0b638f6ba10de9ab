"""Draws the lines that changed, and of the widgets those alone that are seen in them.

Textual has all lines drawn of every widget within the box around all that changed. A letter in the status line and one in the hints
put the whole screen into that box, and of what was drawn nearly all is thrown away. So is what containers draw behind their parts.

It overrides `Compositor._render_chops`, which is Textual's own affair and therefore pinned with its version.

Tests: `tests/tui/terminal/output/test_compositor.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from textual._compositor import Compositor
from textual.geometry import Region

if TYPE_CHECKING:
    from textual.strip import Strip


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

"""How amounts and findings look in rows of the Shared cache screen: columns, cells, and what they are sorted by.

Tests: `tests/tui/screens/cache/test_pane.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from aptui.tui.screens.cache.contents import CacheProblem, CacheShare
from aptui.tui.terminal.safety import glyph
from aptui.tui.widgets.cells import Cell, share_bar
from aptui.tui.widgets.columns import Column
from aptui.tui.words import size_text

_BAR_CELLS = 12
PLATFORMS = (
    Column("name", "Platform", 0, 10),
    Column("count", "Products", 9, align="right"),
    Column("size", "Size", 10, align="right"),
    Column("share", "", _BAR_CELLS, drop_rank=2, is_picture=True),
    Column("made", "Made", 18, align="right", drop_rank=1),
)
FOLDERS = (
    Column("name", "Folder", 0, 12),
    Column("count", "Products", 9, align="right"),
    Column("size", "Size", 10, align="right"),
    Column("share", "", _BAR_CELLS, drop_rank=3, is_picture=True),
)
BUILDERS = (Column("name", "Builder", 0, 12), *FOLDERS[1:])
FINDINGS = (
    Column("problem", "Problem", 11),
    Column("product", "In the cache", 0, 16, weight=3),
    Column("source", "Made of", 0, 12, drop_rank=1, weight=2),
    Column("size", "Size", 10, align="right", drop_rank=2),
)
_PROBLEMS = {"damaged": ("failed", "failed"), "missing": ("warning", "warning"), "unowned": ("hollow", "muted")}


def share_cell(share: CacheShare, column: str) -> Cell:
    """Draw a cell of an amount."""
    match column:
        case "name":
            return Cell(share.name, "path")
        case "count":
            return Cell(f"{share.count:,}")
        case "size":
            return Cell(size_text(share.size_bytes))
        case "share":
            return Cell(share_bar(share.size_bytes / max(1, share.of_bytes), _BAR_CELLS), "accent")
        case "made":
            return _make_made_cell(share)
        case _:
            return Cell("")


def _make_made_cell(share: CacheShare) -> Cell:
    """Return what was made since yesterday, also again; where that is all of it, its figures stand there already."""
    if not share.made:
        return Cell(glyph("none"), "muted")
    return Cell("all" if share.made == share.count else f"{share.made:,}, {size_text(share.made_bytes)}")


def platform_columns(platforms: Sequence[CacheShare]) -> tuple[Column, ...]:
    """Return the columns that tell platforms apart: where all is new, or nothing, the summary says so already."""
    is_shown = any(0 < each.made < each.count for each in platforms) or len({bool(each.made) for each in platforms}) > 1
    return PLATFORMS if is_shown else PLATFORMS[:-1]


def share_order(share: CacheShare, column: str) -> object:
    """Return what amounts are sorted by."""
    orders: dict[str, object] = {
        "name": share.name.lower(),
        "count": share.count,
        "made": share.made,
    }
    return orders.get(column, share.size_bytes)


def problem_cell(problem: CacheProblem, column: str) -> Cell:
    """Draw a cell of a finding."""
    sign, role = _PROBLEMS[problem.kind]
    match column:
        case "problem":
            return Cell(f"{glyph(sign)} {problem.kind}", role)
        case "product":
            return Cell(problem.name, "path")
        case "source":
            return Cell(problem.source or glyph("none"), "" if problem.source else "muted")
        case _:
            return Cell(size_text(problem.size_bytes) if problem.size_bytes >= 0 else glyph("none"), "muted")


def problem_order(problem: CacheProblem, column: str) -> object:
    """Return what findings are sorted by."""
    orders: dict[str, object] = {"problem": problem.kind, "source": problem.source.lower(), "size": problem.size_bytes}
    return orders.get(column, problem.name.lower())

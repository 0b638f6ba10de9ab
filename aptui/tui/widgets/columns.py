"""The columns of a table: what is known of each, and how they share its width; nothing is drawn here.

Tests: `tests/tui/widgets/test_table.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from aptui.tui.widgets.cells import width_of

GAP = "  "
"""What stands between two columns."""


class Column(Struct, frozen=True):
    """A column.

    Args:
        id: what the model is asked for.
        title: stands in the header.
        width: in cells; 0 = it takes the rest, shared among all such columns by `weight`.
        min_width: it is never narrower, unless it is the last one left.
        align: "right" for numbers.
        drop_rank: on narrow screens columns go in this order, highest first; 0 = never.
        weight: its share of the rest, where `width` is 0.
        is_prose: where a text is too long its end goes, also of one that holds "/".
        needs: so many cells its texts take, where `width` is 0; 0 = nobody knows. What is left goes to those that need more.
        is_picture: it draws what another column says, as a bar: it is not copied.
    """

    id: str
    title: str
    width: int
    min_width: int = 4
    align: Literal["left", "right"] = "left"
    drop_rank: int = 0
    weight: int = 1
    is_prose: bool = False
    needs: int = 0
    is_picture: bool = False


def lay_out(columns: Sequence[Column], width: int) -> list[tuple[Column, int]]:
    """Return which columns fit into so many cells and how wide each is; in their order.

    A wide column that goes may leave room for narrow ones that went before it: these come back, unless a text would be cut then.
    """
    remaining = list(columns)
    while (
        len(remaining) > 1
        and sum(column.min_width if not column.width else column.width for column in remaining) + _gaps(remaining) > width
    ):
        victims = [column for column in remaining if column.drop_rank]
        if not victims:
            break
        remaining.remove(max(victims, key=lambda column: column.drop_rank))
    for column in sorted(columns, key=lambda column: column.drop_rank):
        if column not in remaining and _free_width_beside(remaining, width) >= (column.width or column.min_width) + len(GAP):
            remaining = [each for each in columns if each in remaining or each is column]
    widths = [column.width or column.min_width for column in remaining]
    spare = width - sum(widths) - _gaps(remaining)
    flexible = [at for at, column in enumerate(remaining) if not column.width]
    if spare > 0 and flexible:
        _share(remaining, widths, flexible, spare)
    for at in reversed(range(len(remaining))):  # nothing more can be dropped: the last ones give way
        if spare < 0:
            given = min(-spare, max(0, widths[at] - (1 if at else 0)))
            widths[at] -= given
            spare += given
    return list(zip(remaining, widths, strict=True))


def _free_width_beside(columns: Sequence[Column], width: int) -> int:
    """Return how many cells are left when each of these columns has all that its texts take; none where that is not known."""
    if not all(column.width or column.needs for column in columns):
        return 0
    return width - width_of_all(columns)


def width_of_all(columns: Sequence[Column]) -> int:
    """Return how many cells columns take when nothing is cut; of those that do not know what they need, the least."""
    return sum(column.width or max(column.min_width, column.needs) for column in columns) + _gaps(columns)


def _share(columns: Sequence[Column], widths: list[int], flexible: Sequence[int], spare: int) -> None:
    """Give `spare` cells to columns by their weight; those that need less than their share get what they need."""
    hungry = list(flexible)
    while hungry:
        total = sum(columns[at].weight for at in hungry)
        full = [at for at in hungry if 0 < columns[at].needs <= widths[at] + spare * columns[at].weight // total]
        for at in full:
            given = max(0, columns[at].needs - widths[at])
            widths[at] += given
            spare -= given
        if not full:
            shares = [spare * columns[at].weight // total for at in hungry]
            shares[0] += spare - sum(shares)
            for at, share in zip(hungry, shares, strict=True):
                widths[at] += share
            return
        hungry = [at for at in hungry if at not in full]
    widths[flexible[-1]] += spare


def _gaps(columns: Sequence[Column]) -> int:
    return len(GAP) * max(0, len(columns) - 1)


def fit_to_texts(columns: Sequence[Column], needs: Mapping[str, int], width: int) -> list[Column]:
    """Return columns that know what their texts need; where all of it has no room, none takes more than that.

    Args:
        needs: {column id: how many cells its longest text takes}.
    """
    known = [
        replace(each, needs=max(needs[each.id], each.min_width)) if not (each.width or each.needs) else each for each in columns
    ]
    return known if width_of_all(known) <= width else [_narrow(each, needs[each.id]) for each in known]


def _narrow(column: Column, need: int) -> Column:
    """Return a column that takes no more than its longest text and its title."""
    least = max(need, width_of(column.title), 1)
    if column.width:
        return replace(column, width=min(column.width, least))
    return replace(column, min_width=min(column.min_width, least), needs=min(column.needs, least))

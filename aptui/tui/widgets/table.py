"""A table over columns that may have millions of rows: `Table` draws the rows of a `TableModel`, which sorts and filters them.

    table = Table(COLUMNS, model, id="jobs")       # or without a model, and table.set_model(model) later
    table.empty_text = "no job matches"
    …in the frame timer:  table.refresh_model()     # cheap while `model.version` is the same
    table.sort = ("completed", True)                # an arrow beside the title; descending
    def on_rows_highlighted(self, event: Rows.Highlighted): …  event.key, event.rows
    def on_rows_opened / on_rows_context_menu / on_rows_marks_changed / on_table_header_clicked

A cell has a *role*, a name of `theming.ROLES` (failed warning completed processing pending cancelled muted path key value error
info debug accent title …), to which a theme gives a style (`role-<name>-style`). The table itself uses the roles `match`
(highlighted matches), `cursor` (the row under the cursor), `header` and `mark`. A status cell begins with its glyph
(`safety.glyph("failed") + " failed"`), because colour alone is not visible on every terminal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, cast

from msgspec import Struct
from msgspec.structs import replace
from rich.segment import Segment
from textual.binding import Binding, BindingType

from aptui.tui.terminal.safety import glyph
from aptui.tui.widgets.cells import Cell, fit, safe, width_of, wrap
from aptui.tui.widgets.listing import ListedRow, ListedRows, Listing
from aptui.tui.widgets.row_list import Rows

GAP = "  "
"""Text between two columns."""


class Column(Struct, frozen=True):
    """A column.

    Args:
        id: name of the column in `TableModel.cell`.
        width: in cells; 0 = a flexible column, which gets a share of the cells that the columns of fixed width leave free.
        min_width: minimum width in cells of a flexible column. A column becomes narrower only if no more columns can be dropped.
        align: "right" for numbers.
        drop_rank: order in which columns are dropped on narrow screens, highest first; 0 = never dropped.
        weight: relative share of a flexible column in the free cells.
        is_prose: long texts lose their end even if they contain "/".
        is_name: long texts lose their middle even if they contain no "/".
        needs: width of the texts of a flexible column; 0 = unknown. Only the last flexible column may get more cells.
        is_picture: the column draws the value of another column as a bar, and is not copied.
    """

    id: str
    title: str
    width: int
    min_width: int = 4
    align: Literal["left", "right"] = "left"
    drop_rank: int = 0
    weight: int = 1
    is_prose: bool = False
    is_name: bool = False
    needs: int = 0
    is_picture: bool = False


def lay_out(columns: Sequence[Column], width: int) -> list[tuple[Column, int]]:
    """Return the columns that fit into `width` cells, with their widths, in their order.

    If a dropped wide column leaves enough room, narrow columns that were dropped before it are shown again, unless they would cut a
    text.
    """
    remaining = list(columns)
    while (
        len(remaining) > 1
        and sum(column.min_width if not column.width else column.width for column in remaining) + _gaps(remaining) > width
    ):
        droppable = [column for column in remaining if column.drop_rank]
        if not droppable:
            break
        remaining.remove(max(droppable, key=lambda column: column.drop_rank))
    for column in sorted(columns, key=lambda column: column.drop_rank):
        if column not in remaining and _free_width_beside(remaining, width) >= (column.width or column.min_width) + len(GAP):
            remaining = [each for each in columns if each in remaining or each is column]
    widths = [column.width or column.min_width for column in remaining]
    spare = width - sum(widths) - _gaps(remaining)
    flexible = [at for at, column in enumerate(remaining) if not column.width]
    if spare > 0 and flexible:
        _share(remaining, widths, flexible, spare)
    for at in reversed(range(len(remaining))):  # no more columns can be dropped, so the last columns become narrower
        if spare < 0:
            given = min(-spare, max(0, widths[at] - (1 if at else 0)))
            widths[at] -= given
            spare += given
    return list(zip(remaining, widths, strict=True))


def _free_width_beside(columns: Sequence[Column], width: int) -> int:
    """Return the number of cells that stay free if each column is as wide as its texts; negative if the columns do not fit.

    Returns 0 if the width of a column's texts is unknown.
    """
    if not all(column.width or column.needs for column in columns):
        return 0
    return width - width_of_all(columns)


def width_of_all(columns: Sequence[Column]) -> int:
    """Return the total width that `columns` need to cut no text. A column with unknown text width counts with its minimum width."""
    return sum(column.width or max(column.min_width, column.needs) for column in columns) + _gaps(columns)


def _share(columns: Sequence[Column], widths: list[int], flexible: Sequence[int], spare: int) -> None:
    """Widen the columns `flexible` (positions) by `spare` cells in all.

    The columns share the cells by weight until their texts fit. The last of these columns then gets all remaining cells.
    """
    growing = list(flexible)
    while growing:
        total = sum(columns[at].weight for at in growing)
        full = [at for at in growing if 0 < columns[at].needs <= widths[at] + spare * columns[at].weight // total]
        for at in full:
            given = max(0, columns[at].needs - widths[at])
            widths[at] += given
            spare -= given
        if not full:
            shares = [spare * columns[at].weight // total for at in growing]
            shares[0] += spare - sum(shares)
            for at, share in zip(growing, shares, strict=True):
                widths[at] += share
            return
        growing = [at for at in growing if at not in full]
    widths[flexible[-1]] += spare


def _gaps(columns: Sequence[Column]) -> int:
    return len(GAP) * max(0, len(columns) - 1)


def fit_to_texts(columns: Sequence[Column], needs: Mapping[str, int], width: int) -> list[Column]:
    """Return columns that are as wide as their texts if all fit into `width`, else columns that are at most as wide as their texts.

    Args:
        needs: {column id: width of its longest text}.
    """
    known = [
        replace(each, needs=max(needs[each.id], each.min_width)) if not (each.width or each.needs) else each for each in columns
    ]
    return known if width_of_all(known) <= width else [_narrow(each, needs[each.id]) for each in known]


def fit_columns(columns: Sequence[Column], rows: Sequence[ListedRow]) -> tuple[Column, ...]:
    """Return columns that are as wide as their texts."""
    needs = {column.id: max((width_of(row.cell(column.id).text) for row in rows), default=0) for column in columns}
    return tuple(column if column.width else replace(column, needs=max(needs[column.id], column.min_width)) for column in columns)


def _narrow(column: Column, need: int) -> Column:
    """Return the column, narrowed if both its longest text and its title need less width."""
    least = max(need, width_of(column.title), 1)
    if column.width:
        return replace(column, width=min(column.width, least))
    return replace(column, min_width=min(column.min_width, least), needs=min(column.needs, least))


_SHIFT_CELLS = 8
_MEASURED_ROWS = 200
"""Maximum number of rows whose texts are measured; a table with more rows keeps the declared widths."""


class TableModel(Protocol):
    """The rows of the current view: filtered and sorted."""

    @property
    def version(self) -> int:
        """Number that rises whenever a value in the table may have changed."""

    def row_count(self) -> int:
        """Return the number of rows."""

    def cell(self, index: int, column_id: str) -> Cell:
        """Return a cell. The table calls this method for visible rows, and again only after `version` rose.

        To measure the columns of a short table, the table calls this method for all rows.
        """

    def key(self, index: int) -> int:
        """Return the stable id of a row."""

    def index_of(self, key: int) -> int | None:
        """Return the current index of a row, None if the view does not have it."""


class Table(Rows):
    """The table; the module docstring describes it. Besides the keys of `Rows`, left and right scroll long texts."""

    HEADER_LINES: ClassVar[int] = 1
    fits_texts: ClassVar[bool] = True
    """Whether columns are as wide as their texts while the table has few rows."""
    keeps_titles: ClassVar[bool] = False
    """Whether the header shows the titles even if the table is empty."""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("right", "shift(1)", "see more of long texts", id="table.right", show=False),
        Binding("left", "shift(-1)", "see the start of long texts", id="table.left", show=False),
    ]

    @dataclass
    class HeaderClicked(Rows.ListMessage):
        """Posted when the user clicked the title of the column `column_id`."""

        column_id: str

    def __init__(self, columns: Sequence[Column] = (), model: TableModel | None = None, **named: Any) -> None:
        super().__init__(**named)
        self.columns = tuple(columns)
        """The columns that the screen selected, in order; not all of them need to fit."""
        self.model: TableModel = model or ListedRows()
        self._sort: tuple[str, bool] | None = None
        self.offset_cells = 0
        """Number of cells by which long texts are scrolled."""
        self._seen_version: int | None = None
        self._layout: list[tuple[Column, int]] = []
        self._layout_width = -1
        self._fitted_version: int | None = None
        self._cells: dict[int, tuple[int, tuple[Cell, ...]]] = {}

    # --------------------------------------------------------------------------------------------------------------- the view

    def set_model(self, model: TableModel) -> None:
        """Show another model. The cursor stays on its key if the new model has it; the marks are cleared."""
        self.model = model
        self.marks.clear()
        self._seen_version = None
        self._cells.clear()
        self.refresh_model()

    def refresh_model(self) -> None:
        """Show changes; call it once per frame. If `model.version` rose, the visible rows are read; otherwise nothing happens."""
        if self.model.version != self._seen_version:
            self._seen_version = self.model.version
            self.refresh_rows()

    def set_columns(self, columns: Sequence[Column]) -> None:
        """Show other columns."""
        self.columns = tuple(columns)
        self._forget_layout()

    @property
    def sort(self) -> tuple[str, bool] | None:
        """The column by which the model is sorted, and whether the order is descending.

        The table only draws the arrow; the model sorts.
        """
        return self._sort

    @sort.setter
    def sort(self, value: tuple[str, bool] | None) -> None:
        self._sort = value
        self._forget_layout()

    def visible_columns(self) -> set[str]:
        """Return the ids of the columns for which there is room."""
        return {column.id for column, _ in self._lay_columns()}

    def row_text(self, key: int) -> str:
        """Return a row as text for copying: cells separated by tabs, without pictures; "" if the row is not in the view."""
        index = self.model.index_of(key)
        if index is None:
            return ""
        return "\t".join(self.model.cell(index, each.id).text.strip() for each in self.columns if not each.is_picture)

    def join_selected_rows(self) -> str:
        """Return the marked rows that are in the view, or the row under the cursor, as text for copying: one row per line."""
        return "\n".join(self.row_text(key) for key in self.marks.list_selected() if self.model.index_of(key) is not None)

    # ------------------------------------------------------------------------------------------------------ methods of `Rows`

    def count_rows(self) -> int:
        """Return the number of rows."""
        return self.model.row_count()

    def key_of(self, index: int) -> int:
        """Return the key of a row."""
        return self.model.key(index)

    def index_of(self, key: int) -> int | None:
        """Return the index of a row."""
        return self.model.index_of(key)

    def row_state(self, index: int) -> tuple[object, ...]:
        """Return the cells and the state of the row: whether it has the cursor or a mark."""
        key = self.model.key(index)
        is_cursor = index == self.cursor
        return (self._cells_of(index, key), is_cursor, is_cursor and self.has_focus, self.marks.has(index, key), self.offset_cells)

    def draw_row(self, state: tuple[object, ...]) -> list[Segment]:
        """Paint gutter and cells."""
        cells, is_cursor, is_lit, is_mark, offset = cast(tuple[tuple[Cell, ...], bool, bool, bool, int], state)
        painter = self.painting.painter
        segments = [self.edge(is_cursor=is_cursor, is_mark=is_mark, painter=painter)]
        plain = painter.style("", is_cursor=is_lit)
        layout = self._lay_columns()
        for at, ((column, width), cell) in enumerate(zip(layout, cells, strict=True)):
            if at:
                segments.append(Segment(GAP, plain))
            fitted = fit(
                cell.text,
                width,
                align=column.align,
                spans=cell.spans,
                offset=0 if column.width else offset,
                is_prose=column.is_prose,
                is_name=column.is_name,
            )
            segments += painter.pieces(fitted, cell.role, is_cursor=is_lit)
        return segments

    def draw_header(self) -> list[Segment]:
        """Paint the titles. A column without a title has no style, because some themes underline titles."""
        if not (self.keeps_titles or self.count_rows()):
            return []
        style = self.painting.painter.style("header")
        segments = [Segment(" ", self.painting.painter.ground)]
        for at, (column, width) in enumerate(self._lay_columns()):
            if at:
                segments.append(Segment(GAP, self.painting.painter.ground))
            title = fit(self._title(column), width, align=column.align).text
            segments.append(Segment(title, style if column.title else self.painting.painter.ground))
        return segments

    def _title(self, column: Column) -> str:
        if self._sort is None or self._sort[0] != column.id:
            return column.title
        return f"{column.title} {glyph('descending' if self._sort[1] else 'ascending')}"

    def _with_arrow(self, column: Column) -> Column:
        """Return a column; the column by which the table is sorted gets room for the arrow and is dropped last."""
        if self._sort is None or self._sort[0] != column.id:
            return column
        wide = width_of(self._title(column))
        width, least = max(column.width, wide) if column.width else 0, max(column.min_width, wide)
        return replace(column, width=width, min_width=least, drop_rank=min(column.drop_rank, 1))

    def _cells_of(self, index: int, key: int) -> tuple[Cell, ...]:
        """Return the cells of a row, read once per version."""
        # If the width has changed, `_lay_columns` discards all stored cells.
        version, layout = self.model.version, self._lay_columns()
        known = self._cells.get(key)
        if known is not None and known[0] == version:
            return known[1]
        if len(self._cells) > 512:
            self._cells.clear()
        cells = tuple(self.model.cell(index, column.id) for column, _ in layout)
        self._cells[key] = (version, cells)
        return cells

    def _lay_columns(self) -> list[tuple[Column, int]]:
        width = self.painting.width
        is_measured = not self.fits_texts or self._fitted_version == self.model.version
        if width != self._layout_width or not is_measured:
            layout = lay_out(self._measure_columns(width - 1), width - 1)
            if layout != self._layout or width != self._layout_width:
                self._layout_width, self._layout = width, layout
                self._cells.clear()
                self.painting.forget()
        return self._layout

    def _measure_columns(self, width: int) -> list[Column]:
        """Return the columns with their widths; if the table has few rows, the columns are as wide as their texts."""
        columns = [self._with_arrow(column) for column in self.columns]
        self._fitted_version = self.model.version
        count = self.model.row_count() if self.fits_texts else 0
        if not 0 < count <= _MEASURED_ROWS:
            return columns
        needs = {column.id: max(width_of(self.model.cell(index, column.id).text) for index in range(count)) for column in columns}
        return [self._with_arrow(column) for column in fit_to_texts(columns, needs, width)]

    def _forget_layout(self) -> None:
        self._layout_width = -1
        self.refresh()

    # --------------------------------------------------------------------------------------------------------- keys and mouse

    def action_shift(self, steps: int) -> None:
        """Scroll the texts of the flexible columns horizontally."""
        self.offset_cells = max(0, min(self.offset_cells + steps * _SHIFT_CELLS, self._longest_overhang()))
        self.refresh()

    def _longest_overhang(self) -> int:
        """Return the maximum number of cells that are cut off a visible text in a flexible column."""
        most, last = 0, min(self.shown_count, self.top + self.page_rows)
        for index in range(self.top, last):
            cells = self._cells_of(index, self.model.key(index))
            for (column, width), cell in zip(self._lay_columns(), cells, strict=True):
                if not column.width:
                    most = max(most, width_of(safe(cell.text).text) - width)
        return most

    def click_header(self, x: int) -> None:
        """Post `HeaderClicked` for the title at a place."""
        start = 1
        for column, width in self._lay_columns():
            if start <= x < start + width + len(GAP):
                self.post_message(self.HeaderClicked(self, column.id))
                return
            start += width + len(GAP)


class SideTable(Table):
    """A table whose rows have no details in another widget; its cursor is visible only while the table has the focus."""

    leads: ClassVar[bool] = False


# The rest of this module is a table of keys and values. It shows the context of a log line, or the details of a job or builder.

_WIDEST_KEY, _LEAST_VALUE = 28, 12
_AROUND_VALUE = 3
"""Cells beside a value: the edge at the left, and the gap between key and value."""


class KeyValue(Table):
    """A table of keys and values. A value with several lines, or wider than the table, takes several rows.

    Keys and messages are those of `Table`. The key of a row in a message is the row's number.
    """

    leads: ClassVar[bool] = False
    fits_texts: ClassVar[bool] = False

    def __init__(self, **named: Any) -> None:
        super().__init__(_columns(8), **named)
        self._lines: Listing[tuple[int, str, str]] = Listing(_pair_cell)
        self._wrapped_width = 0
        self.pairs: list[tuple[str, str]] = []
        """All (key, value) pairs, as passed to `show`."""

    def show(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Show these (key, value) pairs in the given order."""
        self.cursor, self.cursor_key = 0, None
        self._lay_out(list(pairs))

    def on_resize(self) -> None:
        """Wrap values again after a change of the width."""
        if self._value_width(self.pairs) != self._wrapped_width:
            self._lay_out(self.pairs)

    def _lay_out(self, pairs: list[tuple[str, str]]) -> None:
        self.pairs, self._wrapped_width = pairs, self._value_width(pairs)
        self._lines.show([
            (at, "" if first else key, line)
            for at, (key, value) in enumerate(pairs)
            for first, line in enumerate(self._rows_of(key, value))
        ])  # fmt: skip
        self.set_columns(_columns(_key_width(pairs)))
        self.set_model(self._lines)

    def _value_width(self, pairs: list[tuple[str, str]]) -> int:
        return max(0, self.painting.width - _columns(_key_width(pairs))[0].width - _AROUND_VALUE) if self.size.width else 0

    def _rows_of(self, key: str, value: str) -> list[str]:  # noqa: ARG002  # subclasses use the key
        """Return the lines of a value. Lines wider than the column are split, except in a very narrow view."""
        lines = value.splitlines() or [""]
        if self._wrapped_width < _LEAST_VALUE:
            return lines
        texts = [safe(line).text for line in lines]
        return [text[start:end].rstrip() for text in texts for start, end in wrap(text, self._wrapped_width)]

    def current(self) -> tuple[str, str] | None:
        """Return the (key, value) pair under the cursor, None if the table is empty."""
        return self.pairs[self._lines.at(self.cursor)[0]] if self._lines.row_count() else None


def _pair_cell(row: tuple[int, str, str], column_id: str) -> Cell:
    _, key, line = row
    return Cell(key, "key") if column_id == "key" else Cell(line, "value")


def _key_width(pairs: list[tuple[str, str]]) -> int:
    return max((width_of(key) for key, _ in pairs), default=8)


def _columns(width: int) -> tuple[Column, Column]:
    return (Column("key", "Key", min(max(width, 6), _WIDEST_KEY)), Column("value", "Value", 0, 8))

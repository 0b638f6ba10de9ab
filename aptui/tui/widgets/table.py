"""A table over columns that may have millions of rows: `Table` draws what a `TableModel` answers.

Sorting and filtering are the model's.

How to use it:

    table = Table(COLUMNS, model, id="jobs")       # or without a model, and table.set_model(model) later
    table.empty_text = "no job matches"
    …in the frame timer:  table.refresh_model()     # cheap when `model.version` is what it was
    table.sort = ("completed", True)                # an arrow beside the title; descending
    def on_rows_highlighted(self, event: Rows.Highlighted): …  event.key, event.rows
    def on_rows_opened / on_rows_context_menu / on_rows_marks_changed / on_table_header_clicked

Cells carry *roles*: names of `theming.ROLES` (failed warning completed processing pending cancelled muted path key value error info
debug accent title …). A theme gives each its style (`role-<name>-style`), the highlight of matches is the role `match`, the row
under the cursor `cursor`, the head `header`, marks `mark`. Begin a status cell with its glyph (`safety.glyph("failed") + "
failed"`): never colour alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, cast

from msgspec.structs import replace
from rich.segment import Segment
from textual.binding import Binding, BindingType

from aptui.tui.terminal.safety import glyph
from aptui.tui.widgets.cells import Cell, fit, width_of
from aptui.tui.widgets.columns import GAP, Column, fit_to_texts, lay_out
from aptui.tui.widgets.rows.rows import Rows

_SHIFT_CELLS = 8
_MEASURED_ROWS = 200
"""Columns of tables with more rows have the widths that they were given."""


class TableModel(Protocol):
    """What a table shows. All is about the current view: rows as they are filtered and sorted now."""

    @property
    def version(self) -> int:
        """Rises whenever anything visible may have changed."""

    def row_count(self) -> int:
        """Return how many rows the view has."""

    def cell(self, index: int, column_id: str) -> Cell:
        """Return a cell; asked for visible rows alone, and again only when `version` rose."""

    def key(self, index: int) -> int:
        """Return the stable id of a row."""

    def index_of(self, key: int) -> int | None:
        """Return where that row is in the view now, None = it is not in it."""


class NoRows:
    """The model of a table that was given none yet."""

    version = 0

    def row_count(self) -> int:
        """Return none."""
        return 0

    def cell(self, index: int, column_id: str) -> Cell:
        """Never asked."""
        raise IndexError(index, column_id)

    def key(self, index: int) -> int:
        """Never asked."""
        raise IndexError(index)

    def index_of(self, key: int) -> int | None:
        """Return nothing."""


class Table(Rows):
    """The table; see the module.

    Beside the keys of `Rows`: left and right scroll the texts of the flexible columns, `action_widest()` does nothing else.
    """

    HEADER_LINES: ClassVar[int] = 1
    fits_texts: ClassVar[bool] = True
    """Whether columns are measured by their texts, where rows are few; else they have the widths that they were given."""
    keeps_titles: ClassVar[bool] = False
    """Whether titles stand above no rows, too."""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("right", "shift(1)", "see more of long texts", id="table.right", show=False),
        Binding("left", "shift(-1)", "back to the start of texts", id="table.left", show=False),
    ]

    @dataclass
    class HeaderClicked(Rows.RowMessage):
        """A title was clicked; `column_id` says which. `key` is the cursor's, or -1."""

        column_id: str

    def __init__(
        self,
        columns: Sequence[Column] = (),
        model: TableModel | None = None,
        *,
        name: str | None = None,
        id: str | None = None,  # noqa: A002  # Textual's name
        classes: str | None = None,
        disabled: bool = False,
    ) -> None:
        super().__init__(name=name, id=id, classes=classes, disabled=disabled)
        self._columns = tuple(columns)
        self._model: TableModel = model or NoRows()
        self._sort: tuple[str, bool] | None = None
        self._offset = 0
        self._seen_version: int | None = None
        self._layout: list[tuple[Column, int]] = []
        self._layout_width = -1
        self._fitted_version: int | None = None
        self._cells: dict[int, tuple[int, tuple[Cell, ...]]] = {}

    # --------------------------------------------------------------------------------------------------------------- the view

    @property
    def model(self) -> TableModel:
        """What is shown."""
        return self._model

    def set_model(self, model: TableModel) -> None:
        """Show another model; the cursor stays on its key where the new one has it, marks are forgotten."""
        self._model = model
        self.marks.clear()
        self._seen_version = None
        self._cells.clear()
        self.refresh_model()

    def refresh_model(self) -> None:
        """Show what changed; call it once a frame. Costs the visible rows when `model.version` rose, and nothing otherwise."""
        if self._model.version != self._seen_version:
            self._seen_version = self._model.version
            self.refresh_rows()

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns people chose, in order."""
        return self._columns

    def set_columns(self, columns: Sequence[Column]) -> None:
        """Show other columns."""
        self._columns = tuple(columns)
        self._forget_layout()

    @property
    def sort(self) -> tuple[str, bool] | None:
        """By which column the model is sorted, and whether descending: drawn, not done."""
        return self._sort

    @sort.setter
    def sort(self, value: tuple[str, bool] | None) -> None:
        self._sort = value
        self._forget_layout()

    def row_text(self, key: int) -> str:
        """Return a row as text with tabs between its cells, all columns but pictures, for copying; "" = it is not in the view."""
        index = self._model.index_of(key)
        if index is None:
            return ""
        return "\t".join(self._model.cell(index, each.id).text.strip() for each in self._columns if not each.is_picture)

    # -------------------------------------------------------------------------------------------------------------- as `Rows`

    def count_rows(self) -> int:
        """Return how many rows the view has."""
        return self._model.row_count()

    def key_of(self, index: int) -> int:
        """Return the key of a row."""
        return self._model.key(index)

    def index_of(self, key: int) -> int | None:
        """Return where a row is."""
        return self._model.index_of(key)

    def row_state(self, index: int) -> tuple[object, ...]:
        """Return the cells and what the row is to cursor and marks."""
        key = self._model.key(index)
        is_cursor = index == self.cursor
        return (self._cells_of(index, key), is_cursor, is_cursor and self.has_focus, self.marks.has(index, key), self._offset)

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
            )
            segments += painter.pieces(fitted, cell.role, is_cursor=is_lit)
        return segments

    def draw_header(self) -> list[Segment]:
        """Paint the titles; above nothing none."""
        if not (self.keeps_titles or self.count_rows()):
            return []
        style = self.painting.painter.style("header")
        segments = [Segment(" ", self.painting.painter.ground)]
        for at, (column, width) in enumerate(self._lay_columns()):
            if at:
                segments.append(Segment(GAP, self.painting.painter.ground))
            segments.append(Segment(fit(self._title(column), width, align=column.align).text, style))
        return segments

    def _title(self, column: Column) -> str:
        if self._sort is None or self._sort[0] != column.id:
            return column.title
        return f"{column.title} {glyph('descending' if self._sort[1] else 'ascending')}"

    def _with_arrow(self, column: Column) -> Column:
        """Return a column; the one that is sorted by has room for its arrow, and goes after all others."""
        if self._sort is None or self._sort[0] != column.id:
            return column
        wide = width_of(self._title(column))
        width, least = max(column.width, wide) if column.width else 0, max(column.min_width, wide)
        return replace(column, width=width, min_width=least, drop_rank=min(column.drop_rank, 1))

    def _cells_of(self, index: int, key: int) -> tuple[Cell, ...]:
        """Ask the model for a row, once per version."""
        version, layout = self._model.version, self._lay_columns()  # another width forgets all cells: they are one a column
        known = self._cells.get(key)
        if known is not None and known[0] == version:
            return known[1]
        if len(self._cells) > 512:
            self._cells.clear()
        cells = tuple(self._model.cell(index, column.id) for column, _ in layout)
        self._cells[key] = (version, cells)
        return cells

    def _lay_columns(self) -> list[tuple[Column, int]]:
        width = self.painting.width
        if width != self._layout_width or self._is_to_measure():
            layout = lay_out(self._measure_columns(width - 1), width - 1)
            if layout != self._layout or width != self._layout_width:
                self._layout_width, self._layout = width, layout
                self._cells.clear()
                self.painting.forget()
        return self._layout

    def _is_to_measure(self) -> bool:
        return self.fits_texts and self._fitted_version != self._model.version

    def _measure_columns(self, width: int) -> list[Column]:
        """Return the columns, and what they need where that is cheap to know."""
        columns = [self._with_arrow(column) for column in self._columns]
        self._fitted_version = self._model.version
        count = self._model.row_count() if self.fits_texts else 0
        if not 0 < count <= _MEASURED_ROWS:
            return columns
        needs = {column.id: max(width_of(self._model.cell(index, column.id).text) for index in range(count)) for column in columns}
        return [self._with_arrow(column) for column in fit_to_texts(columns, needs, width)]

    def _forget_layout(self) -> None:
        self._layout_width = -1
        self.refresh()

    # --------------------------------------------------------------------------------------------------------- keys and mouse

    def action_shift(self, steps: int) -> None:
        """Scroll the texts of the flexible columns to the side."""
        if offset := self._longest_overhang():
            self._offset = max(0, min(self._offset + steps * _SHIFT_CELLS, offset))
        else:
            self._offset = 0
        self.refresh()

    def _longest_overhang(self) -> int:
        """Return how many cells the longest visible text of a flexible column lacks."""
        most, last = 0, min(self.shown_count, self.top + self.page_rows)
        for index in range(self.top, last):
            cells = self._cells_of(index, self._model.key(index))
            for (column, width), cell in zip(self._lay_columns(), cells, strict=True):
                if not column.width:
                    most = max(most, len(cell.text) - width)
        return most

    def click_header(self, x: int) -> None:
        """Say which title was clicked."""
        start = 1
        for column, width in self._lay_columns():
            if start <= x < start + width + len(GAP):
                self.post_message(self.HeaderClicked(self, -1 if self.cursor_key is None else self.cursor_key, column.id))
                return
            start += width + len(GAP)


class SideTable(Table):
    """A table whose cursor decides nothing that stands elsewhere."""

    leads: ClassVar[bool] = False

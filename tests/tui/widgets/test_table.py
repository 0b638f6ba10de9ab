"""Tables: the cursor stays on its row, only visible rows are read, and narrow screens drop columns."""

import pytest

from aptui.tui.widgets.cells import Cell
from aptui.tui.widgets.listing import ListedRow, ListedRows
from aptui.tui.widgets.table import Column, KeyValue, Table, lay_out

from .widgets_harness import COLUMNS, WIDE, Numbers, drawn, lines_of, play


def test_table_with_automatic_height_grows_with_its_rows():
    model = Numbers(3)
    table = Table(COLUMNS, model)

    async def script(app, pilot):
        table.styles.height = "auto"
        await drawn(app, pilot)
        before = table.size.height
        model.show(range(8))
        table.refresh_model()
        await drawn(app, pilot)
        assert table.size.height == before + 5

    play(table, script)


@pytest.mark.parametrize(
    ("width", "ids"),
    [
        (200, ["status", "source", "platform", "duration"]),
        (40, ["status", "source", "platform"]),
        (30, ["status", "source"]),
        (12, ["status", "source"]),
    ],
)
def test_narrow_screens_drop_columns_by_rank(width, ids):
    layout = lay_out(COLUMNS, width)

    assert [column.id for column, _ in layout] == ids
    assert sum(cells for _, cells in layout) + 2 * (len(layout) - 1) == max(width, 2 * (len(layout) - 1) + 1)


@pytest.mark.parametrize(("width", "title"), [(80, "Duration ↓"), (40, "Duration ↓"), (80, "Platform ↑")])
def test_sorted_column_shows_whole_title_and_arrow(width, title):
    table = Table(COLUMNS, Numbers(10))

    async def script(app, pilot):
        table.sort = (title.split()[0].lower(), title.endswith("↓"))
        await pilot.pause()
        assert title in lines_of(table)[0]
        table.sort = None
        await pilot.pause()
        assert not {"↓", "↑"} & set(lines_of(table)[0])

    play(table, script, size=(width, 10))


@pytest.mark.parametrize(("count", "is_cut"), [(5, False), (500, True)], ids=["few", "many"])
def test_column_takes_no_spare_width_while_another_is_cut(count, is_cut):
    table = Table(WIDE, Numbers(count))

    async def script(app, pilot):
        assert any("…" in line for line in lines_of(table)) == is_cut
        table.set_columns(WIDE[:2])
        # These two columns fit, so their widths do not depend on the number of rows.
        assert [line.index("textures") for line in lines_of(table)[1:3]] == [23, 23]

    play(table, script, size=(60, 10))


@pytest.mark.parametrize("keeps", [True, False])
def test_empty_table_shows_column_titles_only_on_request(keeps):
    table = Table(COLUMNS, Numbers(0))
    table.keeps_titles = keeps

    async def script(app, pilot):
        assert ("Status" in lines_of(table)[0]) == keeps
        table.model.show(range(3))
        table.refresh_model()
        await pilot.pause()
        assert "Status" in lines_of(table)[0]

    play(table, script)


def test_table_fits_any_screen():
    table = Table(COLUMNS, Numbers())

    async def script(app, pilot):
        for size in ((20, 6), (300, 100), (1, 1), (80, 24)):
            await pilot.resize_terminal(*size)
            await pilot.press("G", "pageup", "right")
            assert all(table.render_line(y).cell_length == table.scrollable_content_region.width for y in range(table.size.height))
        assert table.top <= table.cursor < table.top + table.page_rows

    play(table, script, size=(80, 24))


def test_row_that_is_painted_before_the_header_has_current_columns():
    table = Table(COLUMNS, Numbers(10))

    async def script(app, pilot):
        assert "1.42 s" in lines_of(table)[2]
        table.set_columns(COLUMNS[:2])
        assert "1.42 s" not in table.render_line(2).text

    play(table, script)


def test_long_texts_in_a_table_can_be_scrolled_horizontally():
    table = Table((Column("source", "Source", 0, 8),), Numbers(10))

    async def script(app, pilot):
        assert "…" in lines_of(table)[1]
        assert "rock_0.png" in lines_of(table)[1]
        await pilot.press("right")
        assert lines_of(table)[1].startswith("▌…stone")
        await pilot.press("left")
        assert lines_of(table)[1].startswith("▌textur")

    play(table, script, size=(24, 8))


def test_current_entry_of_a_details_table_has_all_lines_of_its_value():
    details = KeyValue()

    async def script(app, pilot):
        details.show([("Chunk", "IDAT"), ("Trace", "one\ntwo"), ("Empty", "")])
        await pilot.press("j", "j")
        assert details.current() == ("Trace", "one\ntwo")
        await pilot.press("j")
        assert details.current() == ("Empty", "")
        details.show([])
        assert details.current() is None

    play(details, script, size=(40, 10))


def test_empty_table_shows_its_text():
    table = Table(COLUMNS)
    table.empty_text = "no job matches"

    async def script(app, pilot):
        assert any("no job matches" in line for line in lines_of(table))
        table.empty_text = "this takes more room than there is in one line of a screen, " * 2
        await pilot.pause()
        assert sum("room" in line or "screen" in line for line in lines_of(table)) > 1
        table.set_model(Numbers(1))
        await pilot.pause()
        assert not any("no job matches" in line for line in lines_of(table))

    play(table, script)


def test_width_that_one_column_does_not_need_goes_to_another_column():
    def widths(width: int, first: int, second: int) -> list[int]:
        columns = (
            Column("path", "Path", 0, 10, needs=first), Column("number", "Number", 6), Column("why", "Why", 0, 10, needs=second),
        )  # fmt: skip
        return [cells for _, cells in lay_out(columns, width)]

    assert widths(100, 0, 0) == [45, 6, 45]
    assert widths(100, 20, 0) == [20, 6, 70]
    assert widths(100, 20, 30) == [20, 6, 70]  # no column needs the remaining width, which stays at the right
    assert widths(100, 80, 30) == [60, 6, 30]
    assert widths(100, 80, 90) == [45, 6, 45]
    assert widths(30, 80, 5) == [10, 6, 10]


def test_narrow_column_returns_after_a_wide_column_is_dropped():
    def ids(width: int, needs: int) -> list[str]:
        columns = (
            Column("path", "Path", 0, 10, needs=needs), Column("number", "Number", 6, drop_rank=2),
            Column("why", "Why", 0, 30, drop_rank=1, needs=99),
        )  # fmt: skip
        return [column.id for column, _ in lay_out(columns, width)]

    assert ids(50, 10) == ["path", "number", "why"]
    assert ids(44, 20) == ["path", "why"]
    assert ids(30, 22) == ["path", "number"]
    assert ids(30, 23) == ids(30, 0) == ["path"]


def test_wide_characters_that_are_cut_off_can_be_scrolled_into_view():
    rows = ListedRows()
    rows.show_rows([ListedRow(1, {"name": Cell("岩" * 50 + "end")})])
    table = Table((Column("name", "Name", 0),), rows)

    async def script(app, pilot):
        assert "end" not in lines_of(table)[1]
        await pilot.press(*["right"] * 8)
        assert "end" in lines_of(table)[1]

    play(table, script)


def test_copied_rows_do_not_have_empty_lines_for_rows_that_the_filter_hides():
    model = Numbers(5)
    table = Table(COLUMNS, model)

    async def script(app, pilot):
        await pilot.press("space", "space", "space")
        model.show(range(2))
        table.refresh_model()
        assert [line.split("\t")[1][-10:] for line in table.join_selected_rows().split("\n")] == ["rock_0.png", "rock_1.png"]

    play(table, script)

"""Tables: the cursor stays on its row, only visible rows are read, and narrow screens drop columns."""

import asyncio

import pytest
from textual import events
from textual.app import App

from aptui.tui.widgets.cells import Cell, fit, wrap
from aptui.tui.widgets.row_list import Rows
from aptui.tui.widgets.table import Column, KeyValue, Table, lay_out
from tui.shell_room import layouts_of, opened

COLUMNS = (
    Column("status", "Status", 10),
    Column("source", "Source", 0, 12, weight=2),
    Column("platform", "Platform", 8, drop_rank=1),
    Column("duration", "Duration", 8, align="right", drop_rank=2),
)


class Numbers:
    """Rows 0 … count-1, and a count of the reads."""

    def __init__(self, count=1_000_000):
        self.version, self.rows, self.asked, self.words = 1, range(count), 0, {}

    def show(self, rows):
        self.rows, self.version = rows, self.version + 1

    def row_count(self):
        return len(self.rows)

    def key(self, index):
        return self.rows[index]

    def index_of(self, key):
        return self.rows.index(key) if key in self.rows else None

    def cell(self, index, column_id):
        self.asked += 1
        row = self.rows[index]
        return {
            "status": Cell(self.words.get(row, "✓ completed"), "completed"),
            "source": Cell(f"textures/stone/deep/rock_{row}.png", "path", ((0, 8),)),
            "platform": Cell("pc"),
            "duration": Cell("1.42 s", "muted"),
        }[column_id]


class Room(App[None]):
    def __init__(self, *widgets):
        super().__init__()
        self.widgets, self.told = widgets, []

    def compose(self):
        yield from self.widgets

    def get_css_variables(self):
        return super().get_css_variables() | {"role-key": "blue"}

    def on_mount(self):
        self.widgets[0].focus()

    def on_rows_opened(self, event):
        self.told.append(("opened", event.key))

    def on_rows_highlighted(self, event):
        self.told.append(("highlighted", event.key))

    def on_rows_context_menu(self, event):
        self.told.append(("menu", event.key, event.x, event.y))

    def on_table_header_clicked(self, event):
        self.told.append(("header", event.column_id))


def play(widget, script, size=(80, 24)):
    """Run a script, `async def (app, pilot)`, over a widget."""

    async def run():
        app = Room(widget)
        async with opened(app, size) as pilot:
            await pilot.pause()
            await script(app, pilot)

    asyncio.run(run())


async def drawn(app, pilot):
    """Lay out and draw pending changes now."""
    for _ in range(3):
        await pilot.pause()
        app.screen._on_timer_update()
    await pilot.pause()


def lines_of(widget):
    return [widget.render_line(y).text for y in range(widget.size.height)]


def test_key_reads_visible_rows_only():
    model = Numbers()
    table = Table(COLUMNS, model)

    async def script(app, pilot):
        assert model.asked <= 23 * 4
        for key in ("j", "k", "G", "g", "pagedown", "ctrl+d"):
            model.asked = 0
            await pilot.press(key)
            await pilot.pause()
            assert model.asked <= 24 * 4, key
        model.asked = 0
        model.version += 1
        table.refresh_model()
        await pilot.pause()
        assert 0 < model.asked <= 23 * 4
        model.asked = 0
        table.refresh_model()
        assert model.asked == 0

    play(table, script)


def test_scroll_bar_is_drawn_only_if_it_looks_different():
    table = Table(COLUMNS, Numbers())

    async def script(app, pilot):
        bar, drawn_bars = table.vertical_scrollbar, []
        render = bar.render
        bar.render = lambda: (drawn_bars.append(bar.position), render())[1]
        for _ in range(30):
            await pilot.press("j")
        await drawn(app, pilot)
        assert (table.top, bar.position) == (8, 8)
        assert drawn_bars == []
        await pilot.press("G")
        await drawn(app, pilot)
        assert drawn_bars == [bar.position] == [table.top]

    play(table, script)


def test_keys_move_cursor():
    table = Table(COLUMNS, Numbers())

    async def script(app, pilot):
        at = []
        for key in ("j", "down", "k", "pagedown", "ctrl+u", "G", "up", "home", "end", "g"):
            await pilot.press(key)
            at.append(table.cursor_key)
        assert at == [1, 2, 1, 24, 12, 999_999, 999_998, 0, 999_999, 0]
        assert app.told[-1] == ("highlighted", 0)

    play(table, script)


def test_cursor_stays_on_row_and_place_when_view_changes():
    model = Numbers(1000)
    table = Table(COLUMNS, model)

    async def script(app, pilot):
        table.move_cursor(500)
        await pilot.pause()
        place = table.cursor - table.top
        model.show([*range(2000, 2300), *range(1000)])
        table.refresh_model()
        await pilot.pause()
        assert (table.cursor_key, table.cursor, table.cursor - table.top) == (500, 800, place)
        assert "▌" in lines_of(table)[1 + place]
        assert "rock_500.png" in lines_of(table)[1 + place]
        model.show(range(999, -1, -1))
        table.refresh_model()
        assert (table.cursor_key, table.cursor) == (500, 499)

    play(table, script)


def test_removed_cursor_row_passes_cursor_to_successor():
    model = Numbers(100)
    table = Table(COLUMNS, model)

    async def script(app, pilot):
        table.move_cursor(50)
        model.show([row for row in range(100) if row != 50])
        table.refresh_model()
        await pilot.pause()
        assert table.cursor_key == 51
        assert app.told[-1] == ("highlighted", 51)
        model.show([])
        table.refresh_model()
        await pilot.press("j", "G", "space", "v", "u", "enter")
        assert table.cursor_key is None
        model.show([7])
        table.refresh_model()
        assert table.cursor_key == 7

    play(table, script)


def test_only_changed_rows_are_painted_again(monkeypatch):
    model = Numbers(100)
    table = Table(COLUMNS, model)

    async def script(app, pilot):
        painted = []
        monkeypatch.setattr(table, "refresh", lambda *regions, **_: painted.append(regions))
        model.words[5] = "✗ failed"
        model.version += 1
        table.refresh_model()
        assert [region.y for region in painted[0]] == [6]
        lines_of(table)
        model.words[90] = "✗ failed"
        model.version += 1
        table.refresh_model()
        assert len(painted) == 1

    play(table, script)


def test_screen_is_laid_out_only_when_scroll_bar_changes():
    model, details = Numbers(100), KeyValue()
    table = Table(COLUMNS, model)

    async def script(app, pilot):
        await app.mount(details)
        await drawn(app, pilot)
        layouts = layouts_of(app)
        await pilot.press("j", "k", "pagedown", "G")
        await drawn(app, pilot)
        for count in (90, 200, 40):
            model.show(range(count))
            table.refresh_model()
            details.show([("Chunk", "IDAT")] * (count % 7))
            await drawn(app, pilot)
        assert layouts == []
        assert (table.cursor, table.top) == (39, 40 - table.page_rows)
        assert table.vertical_scrollbar.window_virtual_size == 41
        assert [line.strip() for line in lines_of(details)[1:6]] == ["Chunk   IDAT"] * 5

        model.show(range(3))
        table.refresh_model()
        await drawn(app, pilot)
        assert layouts
        assert (table.show_vertical_scrollbar, table.top) == (False, 0)

    play(table, script, size=(80, 30))


def test_auto_height_table_grows_with_rows():
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


def test_marks_stay_on_rows_and_are_listed_in_view_order():
    model = Numbers(100)
    table = Table(COLUMNS, model)

    async def script(app, pilot):
        await pilot.press("j", "space", "j", "v", "j", "j", "v", "j")
        assert table.marks.keys == {1, 3, 4, 5}
        model.show(range(99, 1, -1))
        table.refresh_model()
        assert table.list_selected_keys() == [5, 4, 3, 1]
        await pilot.press("u")
        assert table.list_selected_keys() == [table.cursor_key]

    play(table, script)


def test_marks_and_cursor_are_visible_without_colour():
    table = Table(COLUMNS, Numbers(100))

    async def script(app, pilot):
        await pilot.press("space", "space", "k")
        assert [line[0] for line in lines_of(table)[1:4]] == ["•", "█", " "]

    play(table, script)


def test_mouse_moves_opens_menus_and_sorts():
    table = Table(COLUMNS, Numbers())

    async def script(app, pilot):
        await pilot.click(table, offset=(20, 5))
        assert app.told[-1] == ("highlighted", 4)
        await pilot.click(table, offset=(20, 7), times=2)
        assert app.told[-1] == ("opened", 6)
        await pilot.click(table, offset=(20, 9), button=3)
        assert app.told[-1] == ("menu", 8, 20, 9)
        await pilot.click(table, offset=(15, 0))
        assert app.told[-1] == ("header", "source")
        await pilot._post_mouse_events([events.MouseScrollDown], table, offset=(3, 3))
        await pilot.pause()
        assert (table.top, table.cursor_key) == (3, 8)

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


WIDE = (
    Column("platform", "Platform", 20),
    Column("source", "Source", 0, 12),
    Column("duration", "Duration", 20, align="right"),
)


@pytest.mark.parametrize(("count", "is_cut"), [(5, False), (500, True)], ids=["few", "many"])
def test_column_takes_no_spare_width_while_another_is_cut(count, is_cut):
    table = Table(WIDE, Numbers(count))

    async def script(app, pilot):
        assert any("…" in line for line in lines_of(table)) == is_cut
        table.set_columns(WIDE[:2])
        assert [line.index("textures") for line in lines_of(table)[1:3]] == [23, 23]  # where all has room the widths hold

    play(table, script, size=(60, 10))


@pytest.mark.parametrize("keeps", [True, False])
def test_titles_are_hidden_without_rows_unless_kept(keeps):
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


def test_row_painted_before_header_has_current_columns():
    table = Table(COLUMNS, Numbers(10))

    async def script(app, pilot):
        assert "1.42 s" in lines_of(table)[2]
        table.set_columns(COLUMNS[:2])
        assert "1.42 s" not in table.render_line(2).text

    play(table, script)


def test_long_texts_scroll_horizontally():
    table = Table((Column("source", "Source", 0, 8),), Numbers(10))

    async def script(app, pilot):
        assert "…" in lines_of(table)[1]
        assert "rock_0.png" in lines_of(table)[1]
        await pilot.press("right")
        assert lines_of(table)[1].startswith("▌…stone")
        await pilot.press("left")
        assert lines_of(table)[1].startswith("▌textur")

    play(table, script, size=(24, 8))


@pytest.mark.parametrize(
    ("text", "width", "shown"),
    [
        ("textures/stone/rock_01.png", 20, "textures…rock_01.png"),
        ("a/averyveryverylongname.png", 12, "a/av…name.png"[:4] + "…ame.png"),
        ("Image Compile", 8, "Image C…"),
        ("岩石岩石岩石", 8, "岩石岩… "),
        ("岩石", 6, "岩石  "),
        ("x", 1, "x"),
        ("xyz", 1, "…"),
        ("xyz", 0, ""),
        ("a\x1b[31mb\u202e", 5, "ab\ufffd  "),
    ],
)
def test_text_fits_its_cells(text, width, shown):
    from rich.cells import cell_len

    fitted = fit(text, width).text

    assert cell_len(fitted) == width
    if not text.startswith("a/"):
        assert fitted == (shown if "/" not in text else fitted)
    if text.startswith("textures/"):
        assert fitted.endswith("/rock_01.png")
        assert fitted.startswith("tex")


@pytest.mark.parametrize("width", range(12, 30))
def test_cut_tree_names_keep_their_indent(width):
    fitted = fit("    textures/stone/rock_01.png", width, spans=((19, 23),))

    assert fitted.text.startswith("    ")
    assert fitted.text[4] != " "
    assert len(fitted.text) == width
    if width > 16:
        assert [fitted.text[start:end] for start, end in fitted.spans] == ["rock"]


@pytest.mark.parametrize("width", range(1, 30))
def test_matches_stay_on_matched_text(width):
    text = "textures/岩/stone/rock_01.png"
    start = text.index("rock")

    fitted = fit(text, width, spans=((0, 3), (start, start + 4)))

    assert all(0 <= a < b <= len(fitted.text) for a, b in fitted.spans)
    if width > 16:
        assert fitted.text[fitted.spans[-1][0] : fitted.spans[-1][1]] == "rock"


def test_wrap_loses_nothing_and_breaks_at_blanks():
    text = "Unexpected end of data in IDAT chunk 岩石岩石岩石岩石 " + "x" * 50
    from rich.cells import cell_len

    for width in range(2, 40):
        rows = wrap(text, width)
        assert "".join(text[a:b] for a, b in rows) == text
        assert all(cell_len(text[a:b].rstrip()) <= width for a, b in rows)
    assert text[slice(*wrap(text, 20)[0])] == "Unexpected end of "


def test_details_return_whole_value():
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


def test_every_binding_can_be_rebound_by_id():
    ids = [binding.id for widget in (Rows, Table) for binding in widget.BINDINGS]

    assert all(ids)
    assert len(set(ids)) == len(ids)


def test_theme_changes_look():
    from aptui.tui.preferences import theming

    table, looks = Table(COLUMNS, Numbers(10)), theming.load_themes().by_name

    async def script(app, pilot):
        for name in ("dark", "light"):
            app.register_theme(theming.theme_of(looks[name]))
        app.theme = "dark"
        await pilot.pause()
        before = table.render_line(2)._segments
        app.theme = "light"
        await pilot.pause()
        assert [segment.text for segment in table.render_line(2)._segments] == [segment.text for segment in before]
        assert [segment.style for segment in table.render_line(2)._segments] != [segment.style for segment in before]

    play(table, script)


def test_unneeded_column_width_goes_to_column_that_needs_it():
    def widths(width: int, first: int, second: int) -> list[int]:
        columns = (
            Column("path", "Path", 0, 10, needs=first), Column("number", "Number", 6), Column("why", "Why", 0, 10, needs=second),
        )  # fmt: skip
        return [cells for _, cells in lay_out(columns, width)]

    assert widths(100, 0, 0) == [45, 6, 45]
    assert widths(100, 20, 0) == [20, 6, 70]
    assert widths(100, 20, 30) == [20, 6, 70]  # no column needs the rest: it is at the right
    assert widths(100, 80, 30) == [60, 6, 30]
    assert widths(100, 80, 90) == [45, 6, 45]
    assert widths(30, 80, 5) == [10, 6, 10]


def test_narrow_column_returns_after_wide_one_is_dropped():
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


def test_paths_wrap_after_slash_and_names_stay_whole_if_they_fit():
    def rows(text: str, width: int) -> list[str]:
        return [text[start:end] for start, end in wrap(text, width)]

    assert rows("product 'server/sounds/splash.wav' is made by another", 32) == [
        "product ", "'server/sounds/splash.wav' is ", "made by another",
    ]  # fmt: skip
    assert rows("product 'linux/images/engine/console.mip9.webp' again", 32) == [
        "product 'linux/images/engine/", "console.mip9.webp' again",
    ]  # fmt: skip
    assert rows("images/background/ice_cave/darkcave-top_and_bottom.png", 30) == [
        "images/background/ice_cave/", "darkcave-top_and_bottom.png",
    ]  # fmt: skip
    assert rows("levels/world2/tux_own_horror_show.stl", 35) == ["levels/world2/", "tux_own_horror_show.stl"]
    assert rows(f"a/{'x' * 12}", 5) == ["a/xxx", "xxxxx", "xxxx"]
    assert rows("x" * 12, 5) == ["xxxxx", "xxxxx", "xx"]
    assert rows("  " + "x" * 12, 5) == ["  xxx", "xxxxx", "xxxx"]

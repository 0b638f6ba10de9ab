"""Lists of rows: cursor, marks, mouse, painting."""

from textual import events

from aptui.tui.widgets.row_list import Rows
from aptui.tui.widgets.table import KeyValue, Table
from tui.shell_harness import layouts_of

from .widgets_harness import COLUMNS, Numbers, drawn, lines_of, play


def test_only_visible_rows_are_read_after_a_key():
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


def test_scroll_bar_is_redrawn_only_if_its_appearance_changes():
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


def test_keys_move_the_cursor_of_a_row_list():
    table = Table(COLUMNS, Numbers())

    async def script(app, pilot):
        at = []
        for key in ("j", "down", "k", "pagedown", "ctrl+u", "G", "up", "home", "end", "g"):
            await pilot.press(key)
            at.append(table.cursor_key)
        assert at == [1, 2, 1, 24, 12, 999_999, 999_998, 0, 999_999, 0]
        assert app.reported[-1] == ("highlighted", 0)

    play(table, script)


def test_cursor_stays_on_its_row_and_line_when_the_view_changes():
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


def test_cursor_goes_to_the_next_row_when_its_row_is_removed():
    model = Numbers(100)
    table = Table(COLUMNS, model)

    async def script(app, pilot):
        table.move_cursor(50)
        model.show([row for row in range(100) if row != 50])
        table.refresh_model()
        await pilot.pause()
        assert table.cursor_key == 51
        assert app.reported[-1] == ("highlighted", 51)
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


def test_screen_is_laid_out_only_when_a_scroll_bar_changes():
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


def test_marks_stay_on_rows_and_are_listed_in_view_order():
    model = Numbers(100)
    table = Table(COLUMNS, model)

    async def script(app, pilot):
        await pilot.press("j", "space", "j", "v", "j", "j", "v", "j")
        assert table.marks.keys == {1, 3, 4, 5}
        model.show(range(99, 1, -1))
        table.refresh_model()
        assert table.marks.list_selected() == [5, 4, 3, 1]
        await pilot.press("u")
        assert table.marks.list_selected() == [table.cursor_key]

    play(table, script)


def test_marks_and_cursor_are_visible_without_colour():
    table = Table(COLUMNS, Numbers(100))

    async def script(app, pilot):
        await pilot.press("space", "space", "k")
        assert [line[0] for line in lines_of(table)[1:4]] == ["•", "█", " "]

    play(table, script)


def test_mouse_can_move_the_cursor_open_a_menu_or_sort():
    table = Table(COLUMNS, Numbers())

    async def script(app, pilot):
        await pilot.click(table, offset=(20, 5))
        assert app.reported[-1] == ("highlighted", 4)
        await pilot.click(table, offset=(20, 7), times=2)
        assert app.reported[-1] == ("opened", 6)
        await pilot.click(table, offset=(20, 9), button=3)
        assert app.reported[-1] == ("menu", 8, 20, 9)
        await pilot.click(table, offset=(15, 0))
        assert app.reported[-1] == ("header", "source")
        await pilot._post_mouse_events([events.MouseScrollDown], table, offset=(3, 3))
        await pilot.pause()
        assert (table.top, table.cursor_key) == (3, 8)

    play(table, script)


def test_every_binding_can_be_rebound_by_id():
    ids = [binding.id for widget in (Rows, Table) for binding in widget.BINDINGS]

    assert all(ids)
    assert len(set(ids)) == len(ids)


def test_change_of_theme_changes_the_styles_of_rows():
    from aptui.tui.preferences import theming

    table, themes = Table(COLUMNS, Numbers(10)), theming.load_themes().by_name

    async def script(app, pilot):
        for name in ("dark", "light"):
            app.register_theme(theming.theme_of(themes[name]))
        app.theme = "dark"
        await pilot.pause()
        before = table.render_line(2)._segments
        app.theme = "light"
        await pilot.pause()
        assert [segment.text for segment in table.render_line(2)._segments] == [segment.text for segment in before]
        assert [segment.style for segment in table.render_line(2)._segments] != [segment.style for segment in before]

    play(table, script)

"""A table and helpers for tests of widgets."""

import asyncio

from textual.app import App

from aptui.tui.widgets.cells import Cell
from aptui.tui.widgets.table import Column
from tui.shell_harness import opened

COLUMNS = (
    Column("status", "Status", 10),
    Column("source", "Source", 0, 12, weight=2),
    Column("platform", "Platform", 8, drop_rank=1),
    Column("duration", "Duration", 8, align="right", drop_rank=2),
)


class Numbers:
    """A model of a table with `count` rows; `asked` counts the cells that were read."""

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


class Harness(App[None]):
    def __init__(self, *widgets):
        super().__init__()
        self.widgets, self.reported = widgets, []

    def compose(self):
        yield from self.widgets

    def get_css_variables(self):
        return super().get_css_variables() | {"role-key": "blue"}

    def on_mount(self):
        self.widgets[0].focus()

    def on_rows_opened(self, event):
        self.reported.append(("opened", event.key))

    def on_rows_highlighted(self, event):
        self.reported.append(("highlighted", event.key))

    def on_rows_context_menu(self, event):
        self.reported.append(("menu", event.key, event.x, event.y))

    def on_table_header_clicked(self, event):
        self.reported.append(("header", event.column_id))


def play(widget, script, size=(80, 24)):
    """Run the coroutine function `script(app, pilot)` in an app that shows only `widget`."""

    async def run():
        app = Harness(widget)
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


WIDE = (
    Column("platform", "Platform", 20),
    Column("source", "Source", 0, 12),
    Column("duration", "Duration", 20, align="right"),
)

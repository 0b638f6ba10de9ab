"""An app with every widget and hostile text in each, for tests in a real terminal: `python -m tests.tui.widget_zoo`."""

import sys
from typing import ClassVar

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.widgets import Static

from aptui.tui.terminal import safety
from aptui.tui.terminal.output.display import DiffRenderingApp
from aptui.tui.widgets.cells import Cell
from aptui.tui.widgets.filterbox import FilterBox
from aptui.tui.widgets.log_sources import LogPaneLine, MemoryLines
from aptui.tui.widgets.logpane import LogPane
from aptui.tui.widgets.menu import Menu, MenuItem
from aptui.tui.widgets.table import Column, KeyValue, Table
from aptui.tui.widgets.textview import TextView, make_preview
from aptui.tui.widgets.tree import Branch, LazyTree, VTree

PAYLOADS = [
    "[/oops] EVIL",
    "[@click=app.quit]EVIL[/]",
    "[red]EVIL[/red]",
    "\x1b]52;c;RVZJTA==\x07EVIL",
    "\x1b]0;EVIL\x1b\\EVIL",
    "\x1b[2JEVIL",
    "\x1bP1;2|EVIL\x1b\\EVIL",
    "\x1b_EVIL\x1b\\EVIL",
    "\x9d52;c;RVZJTA==\x9cEVIL",
    "\x9b2JEVIL",
    "a\x00b\x07c\x08d\rEVIL",
    "\x7f\x0e\x0fEVIL",
    "\u202etxt.\u2066EVIL\u2069",
    "a\u200bb\ufeffEVIL",
    "bytes \U0010ffe9\U0010ff80 \udce9 EVIL",
    "岩石 🪨 e\u0301 \x1b]8;;file:///etc\x1b\\EVIL",
]
"""Texts that could harm a terminal or a layout.

They contain markup, sequences (clipboard, title, erase, DCS, APC, 8-bit forms, links), C0 and DEL, bidi and zero-width characters,
undecodable bytes, and wide letters.
"""


class Payloads:
    """A table of `row_count` rows that contain the texts of `PAYLOADS` in turn."""

    def __init__(self, row_count=len(PAYLOADS)):
        self.version, self.asked, self.rows = 1, 0, list(range(row_count))

    def row_count(self):
        return len(self.rows)

    def key(self, index):
        return self.rows[index]

    def index_of(self, key):
        try:
            return self.rows.index(key)
        except ValueError:
            return None

    def cell(self, index, column_id):
        self.asked += 1
        text = PAYLOADS[self.rows[index] % len(PAYLOADS)]
        return Cell(text, "failed", ((0, 2),)) if column_id == "text" else Cell(f"{self.rows[index]}")


COLUMNS = (Column("text", "Text", 0, 8), Column("number", "Number", 6, align="right", drop_rank=1))


class Zoo(DiffRenderingApp):
    """An app that shows all widgets, filled with `PAYLOADS`; `m` opens a menu, `q` quits."""

    CSS = "#left, #right { width: 1fr; }"
    BINDINGS: ClassVar = [("q", "quit", "quit"), ("m", "menu", "menu")]

    def compose(self) -> ComposeResult:
        yield FilterBox(PAYLOADS[3], history=PAYLOADS)
        with Horizontal():
            with Vertical(id="left"):
                yield Table(COLUMNS, Payloads())
                tree = LazyTree(lambda branch: [Branch({"name": Cell(text, "path")}) for text in PAYLOADS])
                tree.set_roots([Branch({"name": Cell(PAYLOADS[3])}, has_children=True)])
                yield VTree((Column("name", PAYLOADS[1], 0),), tree)
            with Vertical(id="right"):
                yield LogPane(
                    MemoryLines(LogPaneLine("12:00", "IWED"[at % 4], text, text, True) for at, text in enumerate(PAYLOADS))
                )
                yield KeyValue()
                yield TextView()
        for text in PAYLOADS[3:6]:
            yield Static(text, markup=False)  # untrusted text that was not passed to `make_safe`

    def on_mount(self) -> None:
        self.query_one(KeyValue).show((text, text) for text in PAYLOADS)
        self.query_one(TextView).show_preview(make_preview("\n".join(PAYLOADS).encode("utf-8", "surrogateescape"), "evil.py"))
        self.query_one(FilterBox).show_count(PAYLOADS[3])
        self.query_one(FilterBox).show_mistake(2, PAYLOADS[3])
        self.query_one(VTree).action_unfold()
        self.query_one(Table).focus()

    def action_menu(self) -> None:
        items = [MenuItem(str(at), text, role="failed") for at, text in enumerate(PAYLOADS)]
        Menu.ask(self, items, lambda _: None, title=PAYLOADS[3])


if __name__ == "__main__":
    from aptui.tui.terminal.driver import Terminal

    safety.install(safety.terminal_facts())
    Zoo(driver_class=Terminal).run()
    sys.exit(0)

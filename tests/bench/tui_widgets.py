"""python -m tests.bench.tui_widgets [clipboard]: what a key costs at 1,000,000 rows; trees; log files."""

import asyncio
import gc
import os
import re
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from textual.app import App

from aptui.tui.terminal import safety
from aptui.tui.widgets.cells import Cell
from aptui.tui.widgets.log_sources import FileLines
from aptui.tui.widgets.table import Column, Table
from aptui.tui.widgets.tree import VTree
from tests.tui.pty_harness import Terminal

ROWS = 1_000_000
KEYS = {"j": b"j", "k": b"k", "page down": b"\x1b[6~", "G": b"G", "g": b"g"}
COLUMNS = (
    Column("status", "Status", 14),
    Column("source", "Source", 0, 20),
    Column("completed", "Completed", 13, drop_rank=3),
    Column("platform", "Platform", 8, drop_rank=1),
    Column("key", "Job key", 16, drop_rank=2),
    Column("duration", "Duration", 8, align="right", drop_rank=4),
    Column("reason", "Reason", 16, drop_rank=5),
)
STATUSES = ("failed", "warning", "completed", "processing", "pending")


class Million:
    """A table model of a million rows, made on demand."""

    def __init__(self) -> None:
        self.version = 1

    def row_count(self) -> int:
        return ROWS

    def key(self, index: int) -> int:
        return index

    def index_of(self, key: int) -> int | None:
        return key

    def cell(self, index: int, column_id: str) -> Cell:
        status = STATUSES[(index + self.version) % 5]
        if column_id == "status":
            return Cell(f"{safety.glyph(status)} {status}", status)
        if column_id == "source":
            return Cell(f"textures/folder_{index // 100}/rock_{index:07}.png", "path", ((0, 8),) if index % 3 == 0 else ())
        return Cell(f"{column_id} {index % 97}", "muted")


class Bench(App[None]):
    def compose(self):
        yield Table(COLUMNS, Million())

    def on_mount(self) -> None:
        self.query_one(Table).focus()
        gc.collect()
        gc.freeze()  # as `aptui` does after its first paint


def row(name: str, seconds: list[float], unit: str = "ms") -> None:
    ordered = sorted(second * 1000 for second in seconds)
    print(f"{name:<44} median {statistics.median(ordered):7.2f}  p95 {ordered[int(len(ordered) * 0.95)]:7.2f} {unit}")


def through_a_terminal(presses: int = 60) -> None:
    """The time from a key to the last byte of its frame, on a terminal of 160×45."""
    with Terminal(
        [sys.executable, "-m", "tests.bench.tui_widgets", "app"], 160, 45, {"TMUX": "", "COLORTERM": "truecolor"}
    ) as terminal:
        terminal.wait_for(b"rock_0000000")
        time.sleep(1)
        terminal.send("j")
        time.sleep(0.3)
        for name, data in KEYS.items():
            costs, sizes = [], []
            for _ in range(presses if name not in {"G", "g"} else 10):
                if name == "G":
                    terminal.send("g")
                elif name == "g":
                    terminal.send("G")
                time.sleep(0.05)
                before, began = len(terminal.seen), time.perf_counter()
                terminal.send(data)
                while len(terminal.seen) == before and time.perf_counter() - began < 1:
                    time.sleep(0.0002)
                size, last = len(terminal.seen), time.perf_counter()
                while time.perf_counter() - last < 0.02:
                    if len(terminal.seen) != size:
                        size, last = len(terminal.seen), time.perf_counter()
                    time.sleep(0.0005)
                costs.append(last - began)
                sizes.append(size - before)
            row(f"pty, {ROWS:,} rows: {name} ({statistics.median(sizes):,.0f} bytes)", costs)


async def in_the_app() -> None:
    """Work done in the app for a key: handling, layout and painting, without Pilot's own waiting."""
    app = Bench()
    async with app.run_test(size=(160, 45)) as pilot:
        await pilot.pause()
        table = app.query_one(Table)
        for name, act in {
            "j": lambda: table.action_move(1),
            "page down": lambda: table.action_page(1),
            "G": lambda: (table.action_first(), table.action_last()),
        }.items():
            costs = []
            for _ in range(200):
                began = time.perf_counter()
                act()
                for y in range(table.size.height):
                    table.render_line(y)
                costs.append(time.perf_counter() - began)
                await asyncio.sleep(0)
            row(f"app, {ROWS:,} rows: {name}, all lines drawn", costs)
        costs = []
        for _ in range(100):
            table.model.version += 1
            began = time.perf_counter()
            table.refresh_model()
            costs.append(time.perf_counter() - began)
            await asyncio.sleep(0)
        row("app: a frame in which every visible row changed", costs)


class _Nodes:
    version = structure_version = 1

    def __init__(self, count: int) -> None:
        folders = count // 20
        self.node_count = folders * 20
        self.depth = np.tile(np.array([0] + [1] * 19, np.int32), folders)
        start = np.repeat(np.arange(folders, dtype=np.int32) * 20, 20)
        self.parent = np.where(self.depth == 0, -1, start).astype(np.int32)
        self.end = np.where(self.depth == 0, start + 20, np.arange(1, self.node_count + 1)).astype(np.int32)

    def cell(self, node, column_id):
        return Cell(f"node {node}")

    def key(self, node):
        return node

    def node_of(self, key):
        return key

    def is_unread(self, node):
        return False

    def read(self, node):
        raise AssertionError


def trees() -> None:
    tree = VTree((Column("name", "Name", 0),), _Nodes(ROWS))
    nodes = tree._open_nodes
    costs: dict[str, list[float]] = {
        "expand all": [],
        "collapse all": [],
        "filter, 10,000 hits": [],
        "filter lifted": [],
        "expand one": [],
    }
    hits = np.sort(np.random.default_rng(1).choice(ROWS, 10_000, replace=False)).astype(np.int32)
    for _ in range(15):
        for name, act in (
            ("expand all", lambda: nodes.set_all(are_open=True)),
            ("collapse all", lambda: nodes.set_all(are_open=False)),
            ("filter, 10,000 hits", lambda: nodes.show_only(hits, is_new=True)),
            ("filter lifted", lambda: nodes.show_only(None, is_new=True)),
            ("expand one", lambda: nodes.open(500 * 20)),
        ):
            began = time.perf_counter()
            act()
            costs[name].append(time.perf_counter() - began)
    for name, seconds in costs.items():
        row(f"tree, {ROWS:,} nodes: {name}", seconds)


def log_files(megabytes: int = 1024) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "big.log")
        block = b"".join(
            b"23:01:05.790 ~~ line %07d of a log that is long, and goes on until there is enough of it: %s\n" % (n, b"x" * (n % 60))
            for n in range(9000)
        )
        with path.open("wb") as stream:
            while stream.tell() < megabytes << 20:
                stream.write(block)
        tail, index, line = [], [], []
        for _ in range(3):
            began = time.perf_counter()
            source = FileLines(path)
            [source.line(source.line_count() - at) for at in range(1, 46)]
            tail.append(time.perf_counter() - began)
            began = time.perf_counter()
            source.index()
            index.append(time.perf_counter() - began)
            for at in np.random.default_rng(2).integers(source.line_count(), size=50):
                began = time.perf_counter()
                source.line(int(at))
                line.append(time.perf_counter() - began)
            count, index_bytes = source.line_count(), len(source._counts) * 8
            source.close()
        row(f"log, {megabytes} MB: the last 45 lines", tail)
        row(f"log, {megabytes} MB: index ({count:,} lines, {index_bytes:,} bytes)", index)
        row(f"log, {megabytes} MB: any line", line)


def clipboard() -> None:
    """Copy texts of three sizes in each tmux configuration; print whether each text arrives at the clipboard."""
    from tests.tui.terminal.test_clipboard import CONFIGURATIONS, arrives

    for configuration in CONFIGURATIONS:
        for size in (100, 75_000, 3_000_000):
            with tempfile.TemporaryDirectory() as folder:
                began = time.perf_counter()
                try:
                    outcome = "arrived" if arrives(Path(folder), configuration, size) == "Aptui " * (size // 6) else "DIFFERS"
                except AssertionError as error:
                    outcome = "LOST: " + re.sub(r"\s+", " ", str(error))[:120]
                print(f"{configuration:<16} {size:>9,} bytes  {outcome}  {time.perf_counter() - began:.1f} s")


if __name__ == "__main__":
    os.environ.setdefault("TERM", "xterm-256color")
    what = sys.argv[1] if len(sys.argv) > 1 else "all"
    safety.install(safety.terminal_facts())
    if what == "app":
        Bench().run()
    elif what == "clipboard":
        clipboard()
    else:
        through_a_terminal()
        asyncio.run(in_the_app())
        trees()
        log_files(int(sys.argv[2]) if len(sys.argv) > 2 else 256)

"""python -m tests.bench.tui_data [--jobs 100000 1000000] [--dir DIR]: what the data of the terminal UI costs, without any screen.

Figures are medians [least … most] in milliseconds. Databases are made once in DIR, by `generate`.
"""

from __future__ import annotations

import argparse
import gc
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from aptui.core.model import RelPath, RunKey
from aptui.core.notices import JobChanged
from aptui.link.codec import NoticeLine
from aptui.store.jobs.job_table import JobTable, read_job_table
from aptui.store.queries.reader import open_reader
from aptui.tui.data.assets_store import FolderKeys, Kind, read_tree
from aptui.tui.data.feed import Batch
from aptui.tui.data.jobs_store import COLUMNS, JobsStore
from tests.bench import generate
from tests.tui.database import ManualFeed

PATTERNS = {
    "P0 rare literal": "rock_0000070", "P1 .png": ".png", "P2 ending": r"\.png$", "P3 place": "Actors/.+", "P4 status": "failed",
    "P5 alternatives": r"Forest/.*_00.*\.(fbx|png)", "P6 classes": "[A-Z][a-z]+_[0-9]{4}5", "P7 no hit": "zzzz",
    "P8 every row": "a",
    "P9 many terms": "status:failed|warnings wolf !lamp platform:server slower:100ms", "runaway": r"(\w+\d?)+!$",
}  # fmt: skip
_FRAME_S = 0.1
_SCREENFUL = 60


def resident_mb() -> float:
    """Return the memory of this process."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * 4096 / 1e6


def timed(function: Callable[[], Any], times: int = 3) -> tuple[list[float], Any]:
    """Return the milliseconds of each call, and the result of the last one."""
    walls = []
    result = None
    for _ in range(times):
        result = None
        began = time.perf_counter()
        result = function()
        walls.append((time.perf_counter() - began) * 1000)
    return walls, result


def say(name: str, walls: Sequence[float], more: str = "") -> None:
    print(f"  {name:<28} {statistics.median(walls):9.1f} ms  [{min(walls):.1f} … {max(walls):.1f}]  {more}", flush=True)


def p95(walls: Sequence[float]) -> float:
    return sorted(walls)[max(0, round(len(walls) * 0.95) - 1)]


def load(path: Path) -> JobTable:
    with closing(open_reader(path)) as reader:
        return read_job_table(reader, {})


def measure(path: Path, jobs: int) -> None:
    """Print all figures of one database."""
    print(f"{jobs:,} jobs")
    before = resident_mb()
    walls, table = timed(lambda: load(path), 1)
    say("load, first", walls, f"{resident_mb() - before:.0f} MB more")
    del table
    walls, table = timed(lambda: load(path))
    say("load", walls)
    store = JobsStore()
    store.apply(Batch(table=table))
    store.wait_until_idle(60)
    walls, _ = timed(store.warm, 1)
    say("ranks of paths", walls)
    del table
    gc.collect()
    say_memory(store, jobs)
    filters(store)
    sorts(store)
    storm(store, path, jobs)
    store.close()
    with closing(open_reader(path)) as reader:
        for kind in (Kind.SOURCES, Kind.PRODUCTS):
            walls, tree = timed(lambda kind=kind: read_tree(reader, kind, FolderKeys()), 1)
            say(f"tree of {kind}", walls, f"{len(tree):,} nodes")


def say_memory(store: JobsStore, jobs: int) -> None:
    """Print the memory of the columns and the text, as the objects report it."""
    table = store._table
    columns = sum(column.nbytes for column in table._columns.values())
    texts = [*table._texts.values(), *(pool.texts for pool in table._pools.values())]
    text = 0
    for item in texts:
        text += sum(len(chunk.data) + chunk._ends.nbytes for chunk in item._full) + sum(len(word) + 60 for word in item._tail)
    total = columns + text + store._shown.rows.nbytes + store._shown._is_shown.nbytes
    print(
        f"  {'memory of rows and text':<28} {total / 1e6:9.1f} MB  {total / jobs * 1e5 / 1e6:.1f} MB a 100,000 jobs; process "
        f"{resident_mb():.0f} MB"
    )


def filters(store: JobsStore) -> None:
    """Print the time until the first screenful and until all rows, for each pattern, as a user would wait."""
    every_first: list[float] = []
    every_all: list[float] = []
    for name, text in PATTERNS.items():
        firsts, alls = [], []
        for _ in range(5):
            store.set_filter("")
            store.wait_until_idle(60)
            began = time.perf_counter()
            store.set_filter(text)
            first = 0.0
            while store.is_busy:
                store._worker.wait(10)
                store.refresh()
                first = first or time.perf_counter() - began
            firsts.append(first * 1000)
            alls.append((time.perf_counter() - began) * 1000)
        say(name, alls, f"first screenful {statistics.median(firsts):.1f} ms, {store.hit_count:,} hits")
        every_first += firsts
        every_all += alls
    store.set_filter("rock")
    store.wait_until_idle(60)
    walls, _ = timed(
        lambda: [store.cell(index, column) for index in range(min(_SCREENFUL, store.row_count())) for column in COLUMNS]
    )
    say("cells of one screen", walls)
    print(f"  {'filter p95':<28} first screenful {p95(every_first):.1f} ms, complete {p95(every_all):.1f} ms")
    store.set_filter("")
    store.wait_until_idle(60)


def sorts(store: JobsStore) -> None:
    """Print how long sorting takes."""
    for column in ("completed", "status", "duration", "reason", "source", "source"):

        def sort(column: str = column) -> None:
            store.set_sort(column, is_descending=False)
            store.wait_until_idle(60)

        say(f"sort by {column}", timed(sort, 1)[0])


def storm(store: JobsStore, path: Path, jobs: int) -> None:
    """Print the cost of 10,000 notices a second, received by the feed and drained ten times a second."""
    table = load(path)
    feed = ManualFeed(path, read_table=lambda: table)
    feed.note_subscription(1, 0, {})
    feed.read()
    store.apply(feed.drain())
    store.wait_until_idle(60)
    for text, hold in (("", (0, _SCREENFUL)), ("wolf status:completed", (0, _SCREENFUL))):
        store.set_filter(text)
        store.wait_until_idle(60)
        store.hold(*hold)
        rng = random.Random(5)
        takes, frames = 0.0, []
        seq = jobs
        for _ in range(20):
            news = [_notice(rng.randrange(1, jobs + 1), rng) for _ in range(int(10_000 * _FRAME_S))]
            began = time.process_time()
            feed.receive([NoticeLine(1, seq + at, notice) for at, notice in enumerate(news, 1)])
            seq += len(news)
            takes += time.process_time() - began
            began = time.perf_counter()
            store.apply(feed.drain())
            frames.append((time.perf_counter() - began) * 1000)
        cost = (takes + sum(frames) / 1000) / (20 * _FRAME_S)
        say(f"frame at 10,000/s {text and 'filtered'}", frames, f"{cost:.1%} of one core with taking")


def _notice(job_id: int, rng: random.Random) -> JobChanged:
    status = rng.choice(("pending", "processing", "completed", "completed", "failed"))
    return JobChanged(
        1,
        job_id,
        RelPath("Actors/a.png"),
        1,
        "linux",
        "Image Compile",
        "image",
        status,
        "the source changed",
        "",
        0,
        0,
        120,
        "",
        RunKey(7),
    )


def main() -> None:
    """Read the command line and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--dir", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="aptui-bench-") as scratch:
        for jobs in arguments.jobs:
            folder = (arguments.dir or Path(scratch)) / f"jobs-{jobs}"
            path = folder / "Cache" / "assetdb.sqlite"
            measure(path if path.is_file() else generate.make(folder, jobs), jobs)


if __name__ == "__main__":
    main()

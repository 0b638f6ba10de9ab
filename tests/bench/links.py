"""Product dependencies by path: the cost of resolving them as products appear, at three sizes (factors 1, 2 and 4).

Half of the dependencies name a product exactly, and half end with `*`. As in the engine's commits, 256 products are added in one
transaction, which resolves earlier dependencies on them. The best of several runs counts.

Two other ways are timed for comparison. The first only inserts rows of resolved dependencies. The second compares the products of
each transaction with all unresolved dependencies by LIKE; it is timed only once, because it takes long.
"""

from __future__ import annotations

import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from aptui.core.model import Digest, Job, LinkKind, PathKey, Product, ProductLink, RelPath, Source, SourceUuid
from aptui.core.paths import path_link
from aptui.core.rows import job_row, product_rows, source_row
from aptui.store.db import schema
from aptui.store.db.writer import Writer
from tests.bench.measure import say

if TYPE_CHECKING:
    from aptui.core.messages import Rows
    from tests.bench.__main__ import Bench

_COUNTS = (2_500, 5_000, 10_000)
_BATCH = 256
_IN_A_FOLDER = 50
_BUILDER = bytes(16)


def _owner(number: int) -> Product:
    """Return a product with a path dependency on the product `_target(number)`."""
    folder = f"art/{number // _IN_A_FOLDER}"
    path = f"{folder}/t{number}.out" if number % 2 else f"{folder}/t{number}.*"
    links: tuple[ProductLink, ...] = (path_link(path, LinkKind.PRODUCT_FILE, 2),)
    return Product(f"linux/levels/l{number}.out", 0, bytes(16), 1, Digest(bytes(32)), 0, 1, links)


def _target(number: int) -> Product:
    return Product(f"linux/art/{number // _IN_A_FOLDER}/t{number}.out", 0, bytes(16), 1, Digest(bytes(32)), 0, 1)


def _batches(count: int, first: int, made: Callable[[int], Product]) -> Iterator[Rows]:
    """Yield transactions of sources with one job and one product each, with ids from `first`."""
    for start in range(0, count, _BATCH):
        rows: Rows = {"put_source": [], "put_job": []}
        for number in range(start, min(start + _BATCH, count)):
            product, key = made(number), first + number
            rel = f"{product.name.removeprefix('linux/')}.src"
            source = Source(PathKey(rel), RelPath(rel), 1, SourceUuid(key.to_bytes(16, "big")), key)
            job = Job(source, _BUILDER, "linux", "k", key)
            rows["put_source"].append(source_row(source))
            rows["put_job"].append(job_row(job))
            for operation, row in product_rows(key, job, product):
                rows.setdefault(operation, []).append(row)
        yield rows


def _timed(writer: Writer, batches: list[Rows]) -> float:
    began = time.perf_counter()
    for rows in batches:
        writer.run(rows, durable=False)
    return time.perf_counter() - began


def _measure(folder: Path, count: int) -> tuple[float, float, float]:
    """Return the triple (declaring, resolving, plain) of times in seconds.

    They are the times to add products with dependencies, to add the products that resolve these, and to add the latter products
    to a database without dependencies.
    """
    times = []
    for name, owner in (("links", _owner), ("plain", _target)):
        path = _fresh(folder / f"{name}-{count}")
        with closing(Writer(path, lambda _ticket: None)) as writer:
            writer.sync_scan_folders([("game", "/game", 0)])
            if owner is _owner:
                times.append(_timed(writer, list(_batches(count, 1, owner))))
            times.append(_timed(writer, list(_batches(count, count + 1, _target))))
            if owner is _owner:
                _check(path, count)
    return times[0], times[1], times[2]


def _fresh(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    path = folder / "assetdb.sqlite"
    schema.prepare(path)
    return path


def _check(path: Path, count: int) -> None:
    with closing(sqlite3.connect(path)) as database:
        (found,) = database.execute("SELECT COUNT(*) FROM ProductDependencies WHERE UnresolvedPath = ''").fetchone()
    if found != count:
        raise SystemExit(f"{found} dependencies are met instead of {count}: no ratio")


def _plain_insert(folder: Path, count: int) -> float:
    """Return how many seconds SQLite needs to insert `count` resolved dependencies, in transactions of `_BATCH` rows."""
    path = _fresh(folder / f"insert-{count}")
    sql = "INSERT INTO ProductDependencies VALUES (NULL, ?, ?, 0, 'linux', 2, '', 0, 0)"
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        began = time.perf_counter()
        for start in range(0, count, _BATCH):
            database.execute("BEGIN")
            numbers = range(start, min(start + _BATCH, count))
            database.executemany(sql, [(number, number.to_bytes(16, "big")) for number in numbers])
            database.execute("COMMIT")
        return time.perf_counter() - began


def _naive_join(count: int) -> float:
    """Return the total time (seconds) of comparing products with unresolved dependencies as O3DE does when it is idle.

    After each transaction, its products are joined with all unresolved dependencies.
    """
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute("CREATE TABLE unmet(path TEXT)")
        paths = [_owner(number).links[0].path.replace("*", "%") for number in range(count)]
        database.executemany("INSERT INTO unmet VALUES (?)", [(path,) for path in paths])
        began, found = time.perf_counter(), 0
        for start in range(0, count, _BATCH):
            names = [(_target(number).name.removeprefix("linux/"),) for number in range(start, min(start + _BATCH, count))]
            database.execute("CREATE TEMP TABLE names(name TEXT)")
            database.executemany("INSERT INTO names VALUES (?)", names)
            found += database.execute("SELECT COUNT(*) FROM names n JOIN unmet u ON n.name LIKE u.path").fetchone()[0]
            database.execute("DROP TABLE names")
        took = time.perf_counter() - began
    if found != count:
        raise SystemExit(f"the join finds {found} instead of {count}: no ratio")
    return took


def product_links(bench: Bench) -> None:
    """Resolving 2,500, 5,000 and 10,000 path dependencies, compared with only inserting rows and with a naive join."""
    folder = bench.base / "links"
    shutil.rmtree(folder, ignore_errors=True)
    meets, inserts, joins = [], [], []
    for count in _COUNTS:
        declares, meeting, undeclared = map(min, zip(*(_measure(folder, count) for _run in range(bench.runs)), strict=True))
        insert = min(_plain_insert(folder, count) for _run in range(bench.runs))
        join = _naive_join(count)
        meets.append(max(meeting - undeclared, 1e-6))
        inserts.append(insert)
        joins.append(join)
        say(
            f"product links, {count:,}",
            f"declared in {declares:.3f} s; met in {meeting:.3f} s, the same products alone {undeclared:.3f} s: "
            f"+ {meets[-1]:.3f} s, "
            f"{meets[-1] / insert:.1f} × plain insert ({insert:.3f} s), {meets[-1] / join:.2f} × naive join ({join:.3f} s)",
        )
    for name, times in (("meeting", meets), ("plain insert", inserts), ("naive join", joins)):
        say("product links, growth", f"{name}: 1 : {times[1] / times[0]:.1f} : {times[2] / times[0]:.1f} for 1 : 2 : 4")


ROWS = {"product-links": product_links}

"""python -m tests.bench.graph --sources N --dependencies D --dir DIR.

Generate a database of products that need each other, equal in every run, and time queries of this dependency graph. Each query is
compared with a plain walk in Python over the same rows.

The first product is the hub: every fifth product needs it. Other products need earlier products, mostly near ones, so that there
are no cycles and closures are deep. Only one platform has dependencies.
"""

from __future__ import annotations

import argparse
import random
import sqlite3
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from aptui.features.shipping.asset_list import closure
from aptui.store.queries.asset_graph import AssetGraph, Link, Node
from aptui.store.queries.reader import Reader, open_reader
from tests.bench import generate
from tests.bench.measure import say

if TYPE_CHECKING:
    from tests.bench.__main__ import Bench

_T = TypeVar("_T")
ROWS: dict[str, Callable[[Bench], None]] = {}
PLATFORM = "linux"
_PER_SOURCE = 4
_HUB_SHARE = 5
_NEAR = 200


def make(folder: Path, sources: int, dependencies: int, seed: int = 5) -> Path:
    """Write a project with the given numbers of sources and of product dependencies in total; return the path of its database."""
    path = generate.make(folder, sources * len(generate.PLATFORMS))
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("DELETE FROM ProductDependencies")
        products = database.execute(
            """SELECT p.ProductID, s.SourceGuid, p.SubID FROM Products p JOIN Jobs j ON j.JobID = p.JobPK
            JOIN Sources s ON s.SourceID = j.SourcePK WHERE j.Platform = ? ORDER BY p.ProductID""",
            (PLATFORM,),
        ).fetchall()
        database.executemany(
            "INSERT INTO ProductDependencies(ProductPK, DependencySourceGuid, DependencySubID, Platform, DependencyFlags, "
            "UnresolvedPath) "
            "VALUES (?, ?, ?, ?, 0, '')",
            ((products[at][0], *products[other][1:], PLATFORM) for at, other in _edges(len(products), dependencies, seed)),
        )
    return path


def _edges(products: int, dependencies: int, seed: int) -> Iterator[tuple[int, int]]:
    """Yield `dependencies` distinct pairs (product, earlier product that it needs), as positions from 0."""
    rng = random.Random(seed)
    found: set[tuple[int, int]] = {(at, 0) for at in range(1, products, _HUB_SHARE)}
    most = min(dependencies, products * (products - 1) // 2)
    while len(found) < most:
        at = rng.randrange(1, products)
        reach = _NEAR if rng.random() < 0.9 else at
        found.add((at, at - rng.randrange(1, min(at, reach) + 1)))
    return iter(sorted(found)[:most])


# ----------------------------------------------------------------------------------------------------------------- queries


def graph(bench: Bench) -> None:
    """Time two queries: which products need the first product (directly or not), and which products the last one needs."""
    measure(make(bench.base / f"graph-{bench.count}", bench.count, bench.count * _PER_SOURCE), bench.runs)


def measure(path: Path, runs: int) -> None:
    """Time the two queries of `graph`. Compare each with Python code that reads all rows and follows the dependencies."""
    with closing(open_reader(path)) as reader:
        hub, last = _ends(reader)
        for name, start, is_reverse in (("rdeps of a hub", hub, True), ("closure of the last", last, False)):
            ours, peers, reached = [], [], 0
            for _run in range(max(3, runs)):
                took_s, found = _timed(lambda: _ours(reader, start, is_reverse=is_reverse))  # noqa: B023  # called before the variable changes
                peer_s, expected = _timed(lambda: _peer(reader, start, is_reverse=is_reverse))  # noqa: B023
                if found != expected:
                    raise SystemExit(f"{name}: {len(found):,} products, the peer found {len(expected):,}")
                ours.append(took_s)
                peers.append(peer_s)
                reached = len(found)
            ratio = statistics.median(ours) / statistics.median(peers)
            text = f"{_spread(ours)} for {reached:,} products, all rows read and walked {_spread(peers)}: {ratio:.2f} ×"
            say(name, text)
        direct, _found = _timed(lambda: AssetGraph(reader, PLATFORM, (Link.PRODUCT,)).needing([hub]))
        listed, _assets = _timed(lambda: closure(AssetGraph(reader, PLATFORM), [last], ["last"], PLATFORM))
        say("hub, direct", f"{direct:.3f} s; the asset list of the last with sizes and reasons {listed:.3f} s")


ROWS["graph"] = graph


def _ends(reader: Reader) -> tuple[Node, Node]:
    sql = "SELECT MIN(p.ProductID), MAX(p.ProductID) FROM Products p JOIN Jobs j ON j.JobID = p.JobPK WHERE j.Platform = ?"
    first, last = reader.ask(sql, (PLATFORM,)).fetchone()
    return Node(first), Node(last)


def _ours(reader: Reader, start: Node, *, is_reverse: bool) -> set[int]:
    return set(AssetGraph(reader, PLATFORM, (Link.PRODUCT,)).walk([start], is_reverse=is_reverse))


def _peer(reader: Reader, start: Node, *, is_reverse: bool) -> set[int]:
    """Answer the queries as a script would: read products and dependencies, join the rows in dicts, and walk the graph."""
    products = {
        (guid, sub_id): number
        for number, guid, sub_id in reader.ask(
            """SELECT p.ProductID, s.SourceGuid, p.SubID FROM Products p JOIN Jobs j ON j.JobID = p.JobPK
            JOIN Sources s ON s.SourceID = j.SourcePK WHERE j.Platform = ?""",
            (PLATFORM,),
        )
    }
    ahead: dict[int, list[int]] = {}
    rows = reader.ask(
        "SELECT ProductPK, DependencySourceGuid, DependencySubID FROM ProductDependencies WHERE Platform = ?", (PLATFORM,)
    )
    for owner, guid, sub_id in rows:
        other = products.get((guid, sub_id))
        if other is not None:
            ahead.setdefault(other if is_reverse else owner, []).append(owner if is_reverse else other)
    seen, todo = {int(start)}, deque([int(start)])
    while todo:
        for other in ahead.get(todo.popleft(), ()):
            if other not in seen:
                seen.add(other)
                todo.append(other)
    return seen


def _timed(work: Callable[[], _T]) -> tuple[float, _T]:
    began = time.perf_counter()
    found = work()
    return time.perf_counter() - began, found


def _spread(times: list[float]) -> str:
    return f"{statistics.median(times):.3f} s [{min(times):.3f} … {max(times):.3f}]"


def main() -> None:
    """Read the command line and write the project."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sources", type=int, default=50_000)
    parser.add_argument("--dependencies", type=int, default=200_000)
    parser.add_argument("--dir", type=Path, required=True)
    parser.add_argument("--runs", type=int, default=0, help="ask the graph so often, beside the peer")
    arguments = parser.parse_args()
    path = make(arguments.dir, arguments.sources, arguments.dependencies)
    print(f"{path}: {arguments.sources:,} sources, {arguments.dependencies:,} product dependencies")
    if arguments.runs:
        measure(path, arguments.runs)


if __name__ == "__main__":
    main()

"""The change feed: a client that applies it to a listing gets the content of the database.

This holds also after rollbacks, restarts and kills.
"""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aptui.core.model import LinkKind
from aptui.store.db import change_log, schema
from aptui.store.db.change_log import Change, ChangeKind
from aptui.store.db.writer import Writer
from aptui.store.queries import change_tail
from aptui.store.queries.reader import Reader, open_reader

from ..conftest import Store, job_row, uuid_of

State = dict[tuple[int, bytes, int, str], tuple[bytes, bytes, int]]


def source(number: int, rel: str, digest: bytes = b"1", uuid: int = 0) -> tuple[object, ...]:
    return (number, 1, rel, uuid_of(uuid or number), rel.lower(), digest, "", 0, 0)


def product(product_id: int, job_id: int, name: str, digest: bytes = b"1", sub_id: int = 0) -> tuple[object, ...]:
    return (product_id, job_id, name, sub_id, b"T" * 16, -2, 1, digest, len(digest))


def link(product_id: int, path: str) -> tuple[object, ...]:
    return (product_id, 0, 0, int(LinkKind.PRODUCT_FILE), "linux", path, None, 0, bytes(16), 0, 2)


def add(state: State, entry: Change) -> None:
    key = (int(entry.kind), entry.uuid, entry.sub_id, entry.name)
    if entry.is_removed:
        del state[key]  # raises an error if the feed removes an entry that it never added
    else:
        state[key] = (entry.asset_type, entry.digest, entry.size)


def whole(database: Reader) -> State:
    state: State = {}
    for kind in (ChangeKind.SOURCE, ChangeKind.PRODUCT):
        for _row, entry in change_tail.listing(database, kind):
            add(state, entry)
    return state


@contextmanager
def looking(path: Path) -> Iterator[Reader]:
    with closing(open_reader(path)) as database, database.snapshot():
        yield database


@dataclass
class Follower:
    """A client of the feed: `state` is the content that the client has read, and `at` is the number of the last change in it."""

    state: State = field(default_factory=dict)
    at: int = 0
    resyncs: int = 0

    def read(self, database: Reader, limit: int = -1) -> list[Change]:
        if not change_tail.is_known(database, self.at):
            self.resyncs += 1
            self.state, self.at = whole(database), change_tail.latest(database)
        read_new = list(change_tail.entries(database, self.at, limit))
        for entry in read_new:
            assert entry.seq > self.at
            add(self.state, entry)
            self.at = entry.seq
        return read_new


def read_new(store: Store, follower: Follower) -> list[tuple[object, ...]]:
    """Read the new entries; return them as (kind, name, digest; None = removed)."""
    with looking(store.path) as database:
        found = follower.read(database)
        assert follower.state == whole(database)
    return [(entry.kind.name, entry.name, None if entry.is_removed else entry.digest) for entry in found]


def changes_of(store: Store) -> list[Change]:
    with looking(store.path) as database:
        return list(change_tail.entries(database, 0))


@pytest.fixture
def built(store: Store) -> tuple[Store, Follower]:
    """A store with a source and a product, and a client that has read both."""
    follower = Follower()
    store.put(put_source=[source(1, "A.png")])
    store.put(put_job=[job_row(1, 1)], put_product=[product(1, 1, "linux/a.png")])
    assert read_new(store, follower) == [("SOURCE", "A.png", b"1"), ("PRODUCT", "linux/a.png", b"1")]
    return store, follower


# ----------------------------------------------------------------------------------------------------------------- entries


def test_change_log_has_no_entry_for_rows_replaced_by_equal_rows(built: tuple[Store, Follower]) -> None:
    store, follower = built

    store.put(put_source=[source(1, "A.png")], drop_products=[(1,)], put_job=[job_row(1, 1, run_key=99)])
    assert read_new(store, follower) == [("PRODUCT", "linux/a.png", None)]

    store.put(put_product=[product(2, 1, "linux/a.png")])
    assert read_new(store, follower) == [("PRODUCT", "linux/a.png", b"1")]

    store.put(drop_products=[(1,)], put_job=[job_row(1, 1, run_key=100)], put_product=[product(3, 1, "linux/a.png")])
    assert read_new(store, follower) == []


def test_change_log_has_one_entry_for_changed_bytes_of_a_product(built: tuple[Store, Follower]) -> None:
    store, follower = built

    store.put(put_source=[source(1, "A.png", b"22")], drop_products=[(1,)], put_product=[product(2, 1, "linux/a.png", b"22")])

    assert read_new(store, follower) == [("SOURCE", "A.png", b"22"), ("PRODUCT", "linux/a.png", b"22")]


def test_rows_with_unchanged_identity_are_compared_without_fetching_them(
    built: tuple[Store, Follower], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, follower = built
    fetched: list[object] = []
    monkeypatch.setattr(change_log, "_unpack_rows", lambda rows: fetched.extend(rows) or iter(()))

    store.put(put_source=[source(1, "A.png", b"22")], drop_products=[(1,)], put_product=[product(2, 1, "linux/a.png", b"22")])
    assert read_new(store, follower) == [("SOURCE", "A.png", b"22"), ("PRODUCT", "linux/a.png", b"22")]
    assert fetched == []

    store.put(put_source=[source(1, "a.png", b"22")])
    assert len(fetched) == 2  # the row of the source before and after its name changed


def test_product_with_changed_links_has_an_entry(built: tuple[Store, Follower]) -> None:
    store, follower = built

    store.put(drop_products=[(1,)], put_product=[product(2, 1, "linux/a.png")], put_link=[link(2, "b.png")])
    assert read_new(store, follower) == [("PRODUCT", "linux/a.png", b"1")]

    store.put(drop_products=[(1,)], put_product=[product(3, 1, "linux/a.png")], put_link=[link(3, "b.png")])
    assert read_new(store, follower) == []


@pytest.mark.parametrize("drop", [{"drop_source": [(1,)]}, {"drop_job": [(1,)]}, {"drop_products": [(1,)]}])
def test_removal_has_an_entry_for_each_removed_source_and_product(
    built: tuple[Store, Follower], drop: dict[str, list[tuple[object, ...]]]
) -> None:
    store, follower = built

    store.put(**drop)

    gone = [("PRODUCT", "linux/a.png", None)]
    assert read_new(store, follower) == ([("SOURCE", "A.png", None), *gone] if "drop_source" in drop else gone)


def test_changed_uuid_of_a_source_removes_and_adds_its_entries(built: tuple[Store, Follower]) -> None:
    store, follower = built

    store.put(put_source=[source(1, "A.png", uuid=77)])

    assert read_new(store, follower) == [
        ("SOURCE", "A.png", None), ("SOURCE", "A.png", b"1"), ("PRODUCT", "linux/a.png", None), ("PRODUCT", "linux/a.png", b"1"),
    ]  # fmt: skip
    assert {key[1] for key in follower.state} == {uuid_of(77)}


def test_removed_scan_folder_removes_its_sources(built: tuple[Store, Follower]) -> None:
    store, follower = built

    store.writer.drop_scan_folder(store.scan_folder)

    assert read_new(store, follower) == [("SOURCE", "A.png", None), ("PRODUCT", "linux/a.png", None)]


def test_change_log_has_no_entry_for_a_row_added_and_removed_in_one_transaction(store: Store) -> None:
    first = {"put_source": [source(1, "a")], "put_job": [job_row(1, 1)], "put_product": [product(1, 1, "linux/a")]}
    store.writer._ask(lambda: store.writer._transact([first, {"drop_source": [(1,)]}], durable=False))

    assert changes_of(store) == []


def test_two_saves_in_one_transaction_have_one_entry(built: tuple[Store, Follower]) -> None:
    store, follower = built
    batches = [{"put_source": [source(1, "A.png", digest, uuid)]} for digest, uuid in ((b"2", 50), (b"3", 60), (b"4", 1))]

    store.writer._ask(lambda: store.writer._transact(batches, durable=False))

    assert read_new(store, follower) == [("SOURCE", "A.png", b"4")]


def test_failed_transaction_has_no_entries(built: tuple[Store, Follower]) -> None:
    store, follower = built
    with pytest.raises(Exception, match="is not a row operation"):
        store.put(put_source=[source(2, "b")], oops=[(1,)])

    assert read_new(store, follower) == []
    store.put(put_source=[source(3, "c")])
    assert read_new(store, follower) == [("SOURCE", "c", b"1")]


def test_feed_entry_describes_a_change_or_a_deletion(built: tuple[Store, Follower]) -> None:
    store, _follower = built
    store.put(drop_job=[(1,)])

    of_source, of_product, gone = (entry.record() for entry in changes_of(store))
    guid = "{00000000-0000-0000-0000-000000000001}"
    assert of_source == {"seq": of_source["seq"], "kind": "source", "id": guid, "name": "A.png", "digest": b"1".hex()}
    assert {**of_product, "seq": 0} == {
        "seq": 0, "kind": "product", "id": f"{guid}:0", "name": "linux/a.png", "digest": "31", "size": 1,
        "type": "{54545454-5454-5454-5454-545454545454}",
    }  # fmt: skip
    assert {**gone, "seq": 0} == {"seq": 0, "kind": "product", "id": f"{guid}:0", "name": "linux/a.png", "removed": True}


# ----------------------------------------------------------------------------------------------------------- dropped entries


def test_client_gets_a_resync_if_the_next_entries_are_no_longer_stored(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_log, "MOST_CHANGES", 16)
    early = Follower()
    store.put(put_source=[source(1, "a")])
    read_new(store, early)

    for number in range(2, 60):
        store.put(put_source=[source(number, f"{number}")])

    assert 16 <= store.count("aptui_changes") <= 18
    late, newcomer = Follower({**early.state}, early.at), Follower()
    read_new(store, late)
    read_new(store, newcomer)
    assert (late.resyncs, newcomer.resyncs) == (1, 1)
    store.put(put_source=[source(60, "z")])
    assert read_new(store, late) == [("SOURCE", "z", b"1")]


def test_client_ahead_of_a_truncated_feed_gets_a_resync(built: tuple[Store, Follower], tmp_path: Path) -> None:
    store, follower = built
    with closing(sqlite3.connect(store.path)) as database:
        database.execute("VACUUM INTO ?", (str(tmp_path / "kept"),))
    store.put(put_source=[source(2, "lost")])
    read_new(store, follower)
    store.writer.close()
    for name in ("assetdb.sqlite", "assetdb.sqlite-wal", "assetdb.sqlite-shm"):
        (store.path.parent / name).unlink(missing_ok=True)
    shutil.copy(tmp_path / "kept", store.path)
    store.writer = Writer(store.path, store.saved.append)

    store.put(put_source=[source(number, "other") for number in range(2, 9)])

    read_new(store, follower)
    assert follower.resyncs == 1


def test_client_gets_a_resync_if_the_database_was_replaced(make_store: Callable[[], Store]) -> None:
    first, second, follower = make_store(), make_store(), Follower()
    first.put(put_source=[source(1, "a")])
    read_new(first, follower)

    second.put(put_source=[source(number, f"{number}") for number in range(1, 9)])

    read_new(second, follower)
    assert follower.resyncs == 1


# ------------------------------------------------------------------------------------------------------- replaying the feed

RELS, NAMES, DIGESTS = ("a", "B", "sub/c"), ("linux/x", "linux/y", "server/x"), (b"1", b"2")
_sources = st.tuples(st.just("source"), st.integers(1, 4), st.sampled_from(RELS), st.sampled_from(DIGESTS), st.integers(1, 5))
_made = st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 1), st.sampled_from(DIGESTS), st.booleans()), max_size=3)
_commits = st.tuples(st.just("commit"), st.integers(1, 4), st.integers(0, 1), st.booleans(), _made)
_drops = st.tuples(st.sampled_from(["drop_source", "drop_job", "drop_products"]), st.integers(1, 4), st.integers(0, 1))
_transactions = st.tuples(
    st.lists(st.one_of(_sources, _commits, _drops), min_size=1, max_size=4),
    st.sampled_from(["kept", "kept", "kept", "failed", "restart"]),
)


def transact(store: Store, batches: list[dict[str, list[tuple[object, ...]]]], then: Callable[[], object] | None = None) -> None:
    """Apply several batches in one transaction."""
    store.writer._ask(lambda: store.writer._transact(batches, durable=False, then=then))


class World:
    """Makes rows as the core does: product ids only rise, and the products of a job are dropped before they are put again."""

    def __init__(self) -> None:
        self.product_id = 0
        self.sources: set[int] = set()

    def rows(self, step: tuple[object, ...]) -> dict[str, list[tuple[object, ...]]]:
        kind, number, *rest = step
        assert isinstance(number, int)
        if kind == "source":
            rel, digest, uuid = rest
            assert isinstance(uuid, int)
            self.sources.add(number)
            # `number` makes the path unique, because two sources never have the same path.
            return {"put_source": [source(number, f"{rel}{number}", digest, uuid * 10 + number)]}  # type: ignore[arg-type]
        if kind == "commit":
            return self.commit(number, *rest)  # type: ignore[arg-type]
        job_id = number * 10 + rest[0]  # type: ignore[operator]
        if kind == "drop_source":
            self.sources.discard(number)
            return {"drop_source": [(number,)]}
        return {str(kind): [(job_id,)]}

    def commit(
        self, number: int, nth: int, drops: bool, made: list[tuple[str, int, bytes, bool]]
    ) -> dict[str, list[tuple[object, ...]]]:
        if number not in self.sources:
            return {}
        job_id = number * 10 + nth
        found: dict[str, list[tuple[object, ...]]] = {"drop_products": [(job_id,)], "put_job": [job_row(job_id, number)]}
        if not drops:
            for name, sub_id, digest, has_link in {name: each for each in made for name in [each[0]]}.values():
                self.product_id += 1
                found.setdefault("put_product", []).append(
                    product(self.product_id, job_id, f"{name}-{number}-{nth}", digest, sub_id)
                )
                if has_link:
                    found.setdefault("put_link", []).append(link(self.product_id, "linux/x-1-0"))
        return found


@pytest.mark.slow
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(_transactions, min_size=1, max_size=12), slow=st.integers(1, 5), most_entries=st.sampled_from([4, 16, 1000]))
def test_replayed_feed_equals_the_database_at_every_moment(
    make_store: Callable[[], Store], steps: list[tuple[list[tuple[object, ...]], str]], slow: int, most_entries: int
) -> None:
    store, world = make_store(), World()
    quick, behind, late = Follower(), Follower(), None
    original, change_log.MOST_CHANGES = change_log.MOST_CHANGES, most_entries
    try:
        for at, (transaction, outcome) in enumerate(steps):
            known = set(world.sources), world.product_id
            batches = [rows for step in transaction if (rows := world.rows(step))]

            def fail() -> None:
                raise OSError("power")

            if outcome == "failed":
                with pytest.raises(Exception, match="power"):
                    transact(store, batches, fail)
                world.sources, world.product_id = known
            else:
                transact(store, batches)
            if outcome == "restart":
                store.writer.close()
                store.writer = Writer(store.path, store.saved.append)
            with looking(store.path) as database:
                quick.read(database)
                assert quick.state == whole(database)
                if at % slow == 0:
                    behind.read(database, limit=slow)
                if at == slow:
                    late = Follower(whole(database), change_tail.latest(database))
        with looking(store.path) as database:
            for follower in filter(None, (behind, late)):
                follower.read(database)
                assert follower.state == whole(database)
            assert quick.resyncs == 0 or most_entries < 1000
    finally:
        change_log.MOST_CHANGES = original
        store.close()


_VICTIM = """
import sys
import time
from pathlib import Path
from aptui.store.db.writer import Writer
from tests.store.conftest import job_row
from tests.store.db.test_change_log import product, source

writer = Writer(Path(sys.argv[1]), lambda ticket: None)
for turn in range(100_000):
    number = turn % 7 + 1
    rows = {"put_source": [source(number, f"{number}", b"%d" % turn)], "drop_products": [(number,)],
            "put_job": [job_row(number, number)], "put_product": [product(turn + int(sys.argv[2]), number, f"linux/{number}",
            b"%d" % (turn % 5))]}
    if turn % 11 == 10:
        rows = {"drop_source": [(number,)]}
    writer.run(rows, durable=False)
    time.sleep(0.002)  # no engine writes without a pause: a copy of its database is taken in one
    if turn == 20:
        print("going", flush=True)
"""


@pytest.mark.real
def test_feed_has_no_gap_after_an_engine_is_killed(store: Store) -> None:
    store.writer.close()
    follower = Follower()
    for life in (1, 2):
        words = [sys.executable, "-c", _VICTIM, str(store.path), str(life * 1_000_000)]
        root = str(Path(__file__).parents[3])
        with subprocess.Popen(words, stdout=subprocess.PIPE, cwd=root, env={**os.environ, "PYTHONPATH": root}) as victim:
            assert victim.stdout is not None
            assert victim.stdout.readline() == b"going\n"
            for _ in range(20):
                with looking(store.path) as database:
                    follower.read(database)
                    assert follower.state == whole(database)
            victim.send_signal(signal.SIGKILL)
        read_new(store, follower)
    assert follower.resyncs == 0
    assert follower.state


def test_a_database_of_o3de_has_an_empty_feed(tmp_path: Path) -> None:
    schema.prepare(tmp_path / "assetdb.sqlite")
    with looking(tmp_path / "assetdb.sqlite") as database:
        assert (change_tail.latest(database), change_tail.is_known(database, 0), change_tail.is_known(database, 5)) == (
            0,
            True,
            False,
        )

"""A feed reads the database and receives notices. In any order of both, its final rows equal the state of the engine."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from aptui.core.model import RelPath
from aptui.core.notices import (
    ConnectionsChanged,
    EngineMessage,
    HealthChanged,
    JobChanged,
    Notice,
    ProductsChanged,
    Progress,
    SourcesChanged,
)
from aptui.link.codec import NoticeLine
from aptui.shared.errors import KnownError, UserError
from aptui.shared.health import Connection, Health
from aptui.store.db.schema import uuid_text
from aptui.store.jobs.job_table import AnalysisKeys, JobTable
from aptui.tui.data.feed import Batch, Feed
from aptui.tui.data.jobs_store import JobsStore
from tests.store.conftest import BUILDER, Store, job_notice, job_row, source_row

from ..database import ManualFeed, database
from .test_jobs_store import notice

pytestmark = pytest.mark.real

NOW_MS = 1_790_000_000_000
NOWHERE = Path("/nowhere/assetdb.sqlite")


def table(rows: dict[int, str], moment: tuple[int, int]) -> JobTable:
    made = JobTable({}, AnalysisKeys())
    made.moment = moment
    for job_id, status in rows.items():
        made.put(job_notice(job_id, source="a", status=status))
    return made


def feed_of(read_table: Callable[[], JobTable]) -> Feed:
    return ManualFeed(NOWHERE, read_table=read_table, clock_ms=lambda: NOW_MS)


class World:
    """An engine, its database, a connection and a screen; rows may be stored later than their notices."""

    def __init__(self) -> None:
        self.epoch, self.seq = 1, 0
        self.known: dict[int, str] = {}
        self.running: set[int] = set()
        self.stored: dict[int, str] = {}
        self.moment = (1, 0)
        self.line: list[tuple[int, int, Notice]] | None = None
        self.meanwhile: list[Any] = []
        self.feed = feed_of(self._read)
        self.store = JobsStore(clock_ms=lambda: NOW_MS)
        self.parts: list[Batch] = []

    def _read(self) -> JobTable:
        found = table(self.stored, self.moment)
        steps, self.meanwhile = self.meanwhile, []
        for step in steps:
            self.do(step)
        return found

    def _say(self, job_id: int, status: str) -> None:
        self.seq += 1
        if self.line is not None:
            self.line.append((self.epoch, self.seq, notice(job_id, "a", status)))

    def do(self, step: Any) -> None:
        kind, *values = step
        getattr(self, kind)(*values)

    def plan(self, job_id: int) -> None:
        self.running.discard(job_id)
        self.known[job_id] = "pending"
        self._say(job_id, "pending")

    def start(self, job_id: int) -> None:
        if self.known.get(job_id) == "pending":
            self.running.add(job_id)
            self._say(job_id, "processing")

    def settle(self, job_id: int, status: str) -> None:
        if job_id in self.running:
            self.running.discard(job_id)
            self.known[job_id] = status
            self._say(job_id, status)

    def drop(self, job_id: int) -> None:
        if self.known.pop(job_id, ""):
            self.running.discard(job_id)
            self._say(job_id, "")

    def commit(self) -> None:
        self.stored, self.moment = dict(self.known), (self.epoch, self.seq)

    def restart(self) -> None:
        self.lose()
        self.epoch, self.seq = self.epoch + 1, 0
        self.known = dict(self.stored)
        self.running.clear()

    def subscribe(self) -> None:
        self.lose()
        self.line = []
        self.feed.note_subscription(self.epoch, self.seq, dict.fromkeys(sorted(self.running), 0))

    def lose(self) -> None:
        if self.line is not None:
            self.line = None
            self.feed.note_loss()

    def deliver(self, count: int) -> None:
        for _ in range(min(count, len(self.line or ()))):
            assert self.line is not None
            self.feed.receive([NoticeLine(*self.line.pop(0))])

    def read(self, *meanwhile: Any) -> None:
        if self.line is not None:
            self.meanwhile = list(meanwhile)
            self.feed.read()

    def part(self) -> None:
        """Apply the next part of a drained batch: the notice of one job. Notices that arrive later wait for the next batch."""
        self.parts = self.parts or self.feed.drain().parts(1)
        self.store.apply(self.parts.pop())

    def frame(self) -> None:
        while self.parts:
            self.part()
        self.store.apply(self.feed.drain())

    def draw(self) -> None:
        self.deliver(1000)
        self.frame()

    def end(self) -> None:
        if self.line is None:
            self.subscribe()
        self.commit()
        self.deliver(1000)
        if self.feed.is_read_due or self.feed.is_behind:
            self.feed.read()
        self.frame()
        self.store.wait_until_idle()

    def seen(self) -> dict[int, str]:
        infos = [self.store.info(self.store.key(index)) for index in range(self.store.row_count())]
        return {info.key: info.status for info in infos if info is not None}


JOBS = st.integers(1, 3)
MOVES = st.one_of(
    JOBS.map(lambda job_id: ("plan", job_id)),
    JOBS.map(lambda job_id: ("start", job_id)),
    st.tuples(st.just("settle"), JOBS, st.sampled_from(("completed", "failed"))),
    JOBS.map(lambda job_id: ("drop", job_id)),
)
STEPS = st.sampled_from([("draw",), ("draw",), ("deliver", 1), ("frame",), ("part",), ("commit",)])
READS = st.lists(st.one_of(MOVES, STEPS), max_size=5).map(lambda steps: ("read", *steps))
BREAKS = st.sampled_from([("subscribe",), ("subscribe",), ("lose",), ("restart",)])


@settings(max_examples=250, deadline=None)
# The last read still finds job 2, because its removal is not saved yet.
@example([("read",), ("draw",), ("drop", 2), ("draw",), ("read",)])
# Job 2 is removed during the last read.
@example([("read",), ("draw",), ("read", ("drop", 2), ("draw",))])
@given(st.lists(st.one_of(MOVES, MOVES, STEPS, STEPS, READS, READS, BREAKS), min_size=6, max_size=30))
def test_rows_equal_the_database_after_any_order_of_events(steps: list[Any]) -> None:
    world = World()
    try:
        for step in [("plan", 1), ("plan", 2), ("start", 1), ("commit",), ("subscribe",), *steps]:
            world.do(step)
        world.end()

        assert world.seen() == {
            job_id: "processing" if job_id in world.running else status for job_id, status in world.stored.items()
        }
    finally:
        world.store.close()


# ------------------------------------------------------------------------------------------------------------- single cases


@pytest.fixture
def feed() -> Feed:
    return feed_of(lambda: table({1: "completed"}, (1, 5)))


def test_notices_are_kept_until_the_rows_are_read(feed: Feed) -> None:
    feed.note_subscription(1, 5, {1: 0})
    feed.receive([NoticeLine(1, 6, notice(1))])

    assert not feed.drain().jobs
    assert feed.is_read_due
    feed.read()
    batch = feed.drain()
    assert batch.table is not None
    assert batch.running == {1: NOW_MS}
    assert [(news.notice.job_id, news.is_later) for news in batch.jobs] == [(1, True)]
    assert feed.drain() == Batch()


def test_only_notices_that_are_newer_than_the_rows_are_marked_as_later(feed: Feed) -> None:
    feed.note_subscription(1, 3, {})
    feed.receive([NoticeLine(1, 5, notice(1))])
    feed.receive([NoticeLine(1, 6, notice(2))])
    feed.read()

    assert [news.is_later for news in feed.drain().jobs] == [False, True]


def test_newest_notice_of_a_job_replaces_older_ones(feed: Feed) -> None:
    feed.note_subscription(1, 5, {})
    feed.read()
    feed.receive([NoticeLine(1, 6, notice(1, status="processing"))])
    feed.receive([NoticeLine(1, 7, notice(0, "a", "failed", job_key="CreateJobs_{1}"))])
    feed.receive([NoticeLine(1, 8, notice(1, status="failed"))])

    assert [(news.notice.job_id, news.notice.status) for news in feed.drain().jobs] == [(0, "failed"), (1, "failed")]


def test_table_messages_and_running_jobs_are_only_in_the_first_part(feed: Feed) -> None:
    feed.note_subscription(1, 5, {3: 0})
    feed.receive([NoticeLine(1, number, notice(number)) for number in range(6, 13)])
    feed.receive([NoticeLine(1, 13, EngineMessage(0, 30, "a"))])
    feed.read()

    batch = feed.drain()
    parts = batch.parts(3)[::-1]

    assert [len(part.jobs) for part in parts] == [3, 3, 1]
    assert tuple(news for part in parts for news in part.jobs) == batch.jobs
    assert (parts[0].table, parts[0].running, parts[0].messages) == (batch.table, batch.running, batch.messages)
    assert all(part.table is part.running is None and not part.messages for part in parts[1:])
    assert batch.parts() == [batch]


def test_rows_are_read_again_when_the_engine_has_a_new_epoch(feed: Feed) -> None:
    feed.note_subscription(1, 5, {})
    feed.read()
    feed.drain()
    feed.receive([NoticeLine(2, 1, notice(1))])

    assert feed.is_read_due
    assert not feed.drain().jobs


def test_lost_connection_ends_the_running_state_of_jobs(feed: Feed) -> None:
    feed.note_subscription(1, 5, {1: 0})
    feed.read()
    feed.drain()
    feed.note_loss()

    assert feed.drain().running == {}


def test_newest_notice_of_each_kind_is_kept(feed: Feed) -> None:
    progress = [Progress(1, count, 0, 0, 0, 0, 0, 0, False) for count in (1, 2)]
    connections = (Connection(1, "tui", "", 1, 1, True, 0),)
    feed.read()
    feed.drain()
    for item in (
        *progress, HealthChanged(1, Health(is_paused=True)), ConnectionsChanged(1, connections), EngineMessage(1, 2, "one"),
        EngineMessage(1, 2, "two"),
    ):  # fmt: skip
        feed.receive([NoticeLine(1, 1, item)])

    batch = feed.drain()
    assert (batch.progress, batch.connections, [message.text for message in batch.messages]) == (
        progress[1],
        connections,
        ["one", "two"],
    )
    assert batch.health == Health(is_paused=True)
    assert not batch.are_assets_stale


@pytest.mark.parametrize("item", [SourcesChanged(1, ((RelPath("a"), True),)), ProductsChanged(1, (("linux/a", ""),))])
def test_changed_sources_and_products_make_trees_stale(feed: Feed, item: Notice) -> None:
    feed.read()
    feed.drain()
    feed.receive([NoticeLine(1, 1, item)])

    assert feed.drain().are_assets_stale


def test_unreadable_database_is_reported_and_read_again() -> None:
    answers: list[Any] = [UserError("no database"), table({}, (0, 0))]

    def read() -> JobTable:
        answer = answers.pop(0)
        if isinstance(answer, KnownError):
            raise answer
        return answer

    feed = feed_of(read)
    with pytest.raises(UserError):
        feed.read()

    assert feed.drain().error == "no database"
    feed.read()
    assert feed.drain().error == ""


def test_missing_database_is_reported_without_advice_for_the_command_line(tmp_path: Path) -> None:
    feed = ManualFeed(tmp_path / "assetdb.sqlite", clock_ms=lambda: NOW_MS)
    with pytest.raises(UserError):
        feed.read()

    assert feed.drain().error == "nothing was processed yet; jobs appear here as the engine finds them"


def test_failed_read_is_repeated_when_the_database_exists(tmp_path: Path) -> None:
    database_file = tmp_path / "assetdb.sqlite"
    answers: list[Any] = [table({1: "completed"}, (1, 5)), UserError("no database"), table({1: "completed"}, (1, 6))]

    def read() -> JobTable:
        answer = answers.pop(0)
        if isinstance(answer, KnownError):
            raise answer
        return answer

    feed = ManualFeed(database_file, read_table=read, clock_ms=lambda: NOW_MS)
    feed.note_subscription(1, 5, {})
    feed.read()
    feed.drain()
    with pytest.raises(UserError):  # this read fails, because the database does not exist at the moment
        feed.read()
    feed.receive([NoticeLine(1, 6, notice(1))])
    assert not feed.is_read_due, "no rows were saved since the last read"

    database_file.touch()
    feed.receive([NoticeLine(1, 7, notice(1))])
    assert feed.is_read_due
    feed.read()
    assert [news.is_later for news in feed.drain().jobs] == [True]
    feed.receive([NoticeLine(1, 8, notice(1))])
    assert not feed.is_read_due


# -------------------------------------------------------------------------------------------------- with a real database


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with database(tmp_path) as made:
        made.put(put_source=[source_row(1, "a.png")], put_job=[job_row(1, 1)])
        yield made


def until(condition: threading.Event) -> None:
    assert condition.wait(10)
    condition.clear()


def test_feed_reads_again_when_the_database_contains_the_awaited_changes(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put(put_state=[("epoch", "3"), ("seq", "7")])
    woken = threading.Event()
    feed = Feed(store.path, {}, wake=woken.set)
    monkeypatch.setattr("aptui.tui.data.feed.CATCH_UP_S", (0.01,) * 500)
    feed.note_subscription(3, 9, {})
    first = next(found for found in iter(lambda: (until(woken), feed.drain().table)[1], 0) if found is not None)
    store.put(put_job=[job_row(2, 1, platform="server")], put_state=[("seq", "9")])
    second = next(found for found in iter(lambda: (until(woken), feed.drain().table)[1], 0) if found is not None)
    feed.close()

    assert (first.moment, first.row_count(), first.row_of(2)) == ((3, 7), 1, -1)
    assert (second.moment, second.row_count()) == ((3, 9), 2)
    assert not feed.is_behind


def test_refresh_request_at_the_end_of_a_read_is_not_lost() -> None:
    class Asked(Feed):
        was_asked = False

        @property
        def is_behind(self) -> bool:
            if not self.was_asked:
                self.was_asked = True
                self.refresh()  # the UI may call this when the thread has checked for requests but has not ended yet
            return False

    reads = threading.Semaphore(0)
    feed = Asked(NOWHERE, read_table=lambda: (reads.release(), table({}, (0, 0)))[1])
    feed.refresh()

    assert reads.acquire(timeout=10)
    assert reads.acquire(timeout=10)
    feed.close()
    assert not feed.is_read_due


def test_builder_names_that_are_slow_to_find_arrive_after_the_rows(store: Store) -> None:
    woken, has_rows = threading.Event(), threading.Event()

    def more() -> dict[bytes, str]:
        until(has_rows)
        return {BUILDER: "image"}

    feed = Feed(store.path, {}, more_builders=more, wake=woken.set)
    feed.refresh()
    first = next(found for found in iter(lambda: (until(woken), feed.drain().table)[1], 0) if found)
    has_rows.set()
    second = next(found for found in iter(lambda: (until(woken), feed.drain().table)[1], 0) if found)
    feed.close()

    assert first.words("builder", 0) == uuid_text(BUILDER)
    assert second.words("builder", 0) == "image"


def test_builder_names_that_are_known_already_cause_no_second_read() -> None:
    asked, reads = threading.Event(), []

    def more() -> dict[bytes, str]:
        asked.set()
        return {BUILDER: "image"}

    feed = Feed(NOWHERE, {BUILDER: "image"}, more_builders=more, read_table=lambda: (reads.append(1), table({}, (0, 0)))[1])
    feed.refresh()
    until(asked)
    feed.close()

    assert len(reads) == 1


def test_closed_feed_does_not_read(store: Store) -> None:
    feed = Feed(store.path, {})
    feed.close()
    feed.refresh()

    assert feed.drain().table is None


def test_notice_of_a_job_has_the_time_of_its_receipt(feed: Feed) -> None:
    feed.note_subscription(1, 5, {})
    feed.read()
    feed.receive([NoticeLine(1, 6, notice(1))])
    item = feed.drain().jobs[0]

    assert isinstance(item.notice, JobChanged)
    assert item.received_ms == NOW_MS

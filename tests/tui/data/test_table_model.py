"""Random updates of the jobs table. The table is compared with a plain Python list and with the database of an engine."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fake_world import World
from fakes import MADE, Setup, copier, scripter
from hypothesis import example, given, settings
from hypothesis import strategies as st

from aptui.core.model import SHOWN, JobState
from aptui.core.notices import JobChanged
from aptui.store.jobs.job_table import AnalysisKeys, JobTable
from aptui.tui.data.feed import Batch, JobNews
from aptui.tui.data.jobs_store import JobsStore

from .test_jobs_store import NOW_MS, notice

NAMES = ("a/rock.png", "b/Rock_2.png", "c.lua", "d/sand.fbx")
STATUSES = ("pending", "processing", "completed", "failed", "cancelled")


@dataclass(frozen=True)
class Row:
    """A job in a model without columns, views and threads."""

    key: int
    status: str
    completed_ms: int
    duration_ms: int
    warnings: int

    @property
    def source(self) -> str:
        return NAMES[self.key % len(NAMES)]

    @property
    def platform(self) -> str:
        return "pc" if self.key % 3 else "linux"

    @property
    def ends(self) -> float:
        return {"pending": 0.0, "processing": float("inf")}.get(self.status, self.completed_ms)

    @property
    def takes(self) -> float:
        return {"pending": 0.0, "cancelled": 0.0, "processing": float("inf")}.get(self.status, self.duration_ms)

    @property
    def urgency(self) -> int:
        if self.status == "completed":
            return 2 if self.warnings else 6
        return {"failed": 0, "processing": 3, "pending": 4, "cancelled": 5}[self.status]


FILTERS: dict[str, Callable[[Row], object]] = {
    "": lambda _row: True,
    "failed": lambda row: row.status == "failed",
    "rock": lambda row: re.search("rock", row.source, re.IGNORECASE),
    "(?-i)Rock": lambda row: "Rock" in row.source,
    "!rock platform:pc": lambda row: "rock" not in row.source.lower() and row.platform == "pc",
    "status:processing|pending": lambda row: row.status in ("processing", "pending"),
    "warnings": lambda row: row.status == "completed" and row.warnings,
}
ORDERS: dict[str, Callable[[Row], Any]] = {
    "failed": lambda row: (row.status == "processing", min(row.urgency, 3), -row.ends),
    "completed": lambda row: row.ends,
    "duration": lambda row: row.takes,
    "status": lambda row: row.urgency,
    "platform": lambda row: row.platform,
    "number": lambda row: row.key,
}
CHANGES = st.builds(
    Row,
    key=st.integers(1, 9),
    status=st.sampled_from(STATUSES),
    completed_ms=st.integers(1, 5).map(lambda count: NOW_MS - count * 1000),
    duration_ms=st.integers(1, 4),
    warnings=st.integers(0, 1),
)
STEPS = st.one_of(
    st.lists(CHANGES, min_size=1, max_size=4),
    st.integers(1, 9),  # the id of a job that is deleted
    st.sampled_from(tuple(FILTERS)),
    st.tuples(st.sampled_from(tuple(ORDERS)), st.booleans()),
    st.tuples(st.just("hold"), st.integers(0, 4)),
    st.tuples(st.just("expand"), st.integers(0, 4)),
)


def news_of(row: Row) -> JobNews:
    changes = {"platform": row.platform, "completed_ms": row.completed_ms, "duration_ms": row.duration_ms, "warnings": row.warnings}
    return JobNews(notice(row.key, row.source, row.status, **changes), is_later=True, received_ms=NOW_MS)


class Played:
    """A table after some steps, the rows of a plain list after the same steps, and the text of the filter."""

    def __init__(self, steps: list[object], *, by_source: bool = False) -> None:
        self.store = JobsStore(clock_ms=lambda: NOW_MS)
        self.rows: dict[int, Row] = {}
        self.text = ""
        try:
            self._play(self.store, steps, by_source=by_source)
        except BaseException:
            self.store.close()
            raise

    def _play(self, store: JobsStore, steps: list[object], *, by_source: bool) -> None:
        store.group_by_source(on=by_source)
        store.apply(Batch(table=JobTable({}, AnalysisKeys())))
        store.wait_until_idle()
        for step in steps:
            match step:
                case list():
                    store.apply(Batch(jobs=tuple(map(news_of, {row.key: row for row in step}.values()))))
                    self.rows |= {row.key: row for row in step}
                case int():
                    store.apply(Batch(jobs=(JobNews(notice(step, status=""), is_later=True, received_ms=NOW_MS),)))
                    self.rows.pop(step, None)
                case "expand", int(line):
                    store.wait_until_idle()
                    if store.row_count():
                        store.expand(line % store.row_count(), on=line < 4)
                case "hold", int(count):
                    store.hold(0, count)
                case str():
                    self.text = step
                    store.set_filter(step)
                case str(order), bool(is_descending):
                    store.set_sort(order, is_descending=is_descending)
        if store.is_out_of_order or store.is_busy:
            store.resort()
        store.wait_until_idle()


@settings(max_examples=60, deadline=None)
@given(st.lists(STEPS, min_size=1, max_size=14))
def test_table_rows_equal_a_plain_filter_and_sort_after_all_updates(steps: list[object]) -> None:
    played = Played(steps)
    store, rows, text = played.store, played.rows, played.text
    order, is_descending = store.sort
    try:
        shown = [store.key(index) for index in range(store.row_count())]
        assert sorted(shown) == sorted(key for key, row in rows.items() if FILTERS[text](row))
        assert [store.index_of(key) for key in shown] == list(range(len(shown)))
        values = [ORDERS[order](rows[key]) for key in shown]
        assert values == sorted(values, reverse=is_descending and order != "failed")
        assert not store.is_out_of_order
        assert (store.hit_count, store.total, store.late_count) == (len(shown), len(rows), 0)
        for key in shown:
            info = store.info(key)
            assert info is not None
            assert (info.source, info.status) == (rows[key].source, "warnings" if rows[key].urgency == 2 else rows[key].status)
    finally:
        store.close()


VALUES: dict[str, Callable[[list[Row]], Any]] = {
    "failed": lambda jobs: min(ORDERS["failed"](row) for row in jobs),
    "completed": lambda jobs: max(row.ends for row in jobs),
    "duration": lambda jobs: max(row.takes for row in jobs),
    "status": lambda jobs: min(row.urgency for row in jobs),
    "number": lambda jobs: max(row.key for row in jobs),
}
"""Lines of sources are sorted by a value that is computed from all jobs of the source: {sort order: function of the jobs}."""


def some(*keys: int, status: str = "completed") -> list[Row]:
    return [Row(key, status, NOW_MS - key * 1000, key, 0) for key in keys]


@settings(max_examples=120, deadline=None)
@example([some(1, 5, 9, 2), ("expand", 0), some(6)])  # two sources with several jobs
@example([some(1, 2, 3), ("expand", 0), some(5, 6), ("expand", 1), ("expand", 0), "failed", ""])
@example([some(1, 5, 9), some(5, status="failed"), ("expand", 0), "failed", 1, ""])
@given(st.lists(STEPS, min_size=1, max_size=14))
def test_lines_of_sources_equal_a_plain_list_after_all_updates(steps: list[object]) -> None:
    played = Played(steps, by_source=True)
    store = played.store
    order, is_descending = store.sort
    passing: dict[str, list[Row]] = {}
    for row in played.rows.values():
        if FILTERS[played.text](row):
            passing.setdefault(row.source, []).append(row)
    try:
        lines = [store.key(index) for index in range(store.row_count())]
        assert [store.index_of(key) for key in lines] == list(range(len(lines)))
        assert len(set(lines)) == len(lines)
        tops = [key for key, index in zip(lines, range(len(lines)), strict=True) if not is_member(store, index)]
        sources = [played.rows[store.jobs_of(key)[0]].source for key in tops]
        assert sorted(sources) == sorted(passing)
        assert (store.source_count, store.hit_count) == (len(passing), sum(map(len, passing.values())))
        for key, source in zip(tops, sources, strict=True):
            jobs, index = passing[source], lines.index(key)
            assert sorted(store.jobs_of(key)) == sorted(row.key for row in jobs)
            worst = min(row.urgency for row in jobs)
            assert played.rows[store.job_at(key)].urgency == worst
            sign = store.cell(index, "source").text[0]
            below = lines[index + 1 : index + 1 + len(jobs)] if sign == "▾" else []
            assert sorted(below) == (sorted(row.key for row in jobs) if below else [])
            assert (sign == " ") == (len(jobs) == 1)
            if len(jobs) > 1:
                count, of = sum(row.urgency == worst for row in jobs), sum(row.source == source for row in played.rows.values())
                assert store.cell(index, "platform").text.removesuffix(" jobs") == f"{count} of {of}"
            assert all(store.index_of(row.key) == (lines.index(row.key) if below else index) for row in jobs)
        if order in VALUES:
            values = [VALUES[order](passing[source]) for source in sources]
            assert values == sorted(values, reverse=is_descending and order != "failed")
    finally:
        store.close()


def is_member(store: JobsStore, index: int) -> bool:
    """Return whether a line shows a job below its source: the line is indented."""
    return store.cell(index, "source").text.startswith("    ")


FOLDERS = ("game", "shared")
EDITS = st.tuples(
    st.sampled_from(FOLDERS),
    st.sampled_from(("a.s", "A.s", "b.s", "sub/c.s", "d.txt", "D.txt", "e.txt")),
    st.sampled_from((None, None, "FAIL ANALYSIS", "FAIL", "WARN", "x", "y", "job two", "include b.s")),
)
"""(scan folder, file, its new text or None to delete the file)."""


class Followed:
    """A table that follows the notices of a simulated engine. Like `Feed`, it applies only the newest notice of each job."""

    def __init__(self) -> None:
        builders = (copier(platforms=("linux", "server")), scripter(platforms=("linux", "server")))
        self.world = World(Setup(builders=builders, platforms=("linux", "server"), folders=FOLDERS))
        self.world.pipeline.jobs.reports.follow(is_followed=True)
        self.folders = {number: name for name, number in self.world._folder_ids.items() if name != MADE}
        self.store = JobsStore(clock_ms=lambda: NOW_MS)
        table = JobTable({}, AnalysisKeys())
        table.folders = self.folders
        self.store.apply(Batch(table=table))
        self.store.wait_until_idle()

    def apply_news(self, part: int) -> None:
        """Apply what the engine reported since the last call, `part` jobs at a time."""
        newest: dict[object, JobChanged] = {}
        for item in [*self.world.notices, *self.world.pipeline.jobs.reports.latest(list(self.world.pipeline.jobs.running))]:
            if isinstance(item, JobChanged):
                newest.pop(item.key, None)
                newest[item.key] = item
        self.world.notices.clear()
        jobs = [JobNews(item, is_later=True, received_ms=NOW_MS) for item in newest.values()]
        for at in range(0, len(jobs), part):
            self.store.apply(Batch(jobs=tuple(jobs[at : at + part])))

    def stored(self) -> list[tuple[object, ...]]:
        """Return the jobs and failed analyses of the database."""
        return sorted(
            (
                0 if job.is_analysis else job.id, job.source.rel, self.folders[job.source.scan_folder], job.platform or "all",
                SHOWN[job.state], job.error, job.warnings, job.errors,
            )
            for job in self.world.live_jobs().values()
            if job.state is not None and (job.state is JobState.FAILED or not job.is_analysis)
        )  # fmt: skip

    def shown(self) -> list[tuple[object, ...]]:
        """Return the rows of the table."""
        infos = [self.store.info(self.store.key(index)) for index in range(self.store.row_count())]
        return sorted(
            (
                max(info.key, 0), info.source, info.scan_folder, info.platform,
                "completed" if info.status in ("warnings", "errors") else info.status, info.error, info.warnings, info.errors,
            )
            for info in infos
            if info is not None
        )  # fmt: skip


CLASH = [("game", "D.txt", "1"), ("game", "d.txt", "2"), ("game", "e.txt", "3")]


@settings(max_examples=60, deadline=None)
# One of two clashing files is deleted, and another file changes.
@example([CLASH, [("game", "D.txt", None), ("game", "e.txt", "4")]], 0, 400)
@example([[("game", "a.s", "FAIL ANALYSIS")], [("game", "a.s", None), ("game", "b.s", "x")]], 0, 400)
# Two batches of edits: the first makes an analysis fail, and the second does so for the same path in another scan folder.
@example([[("shared", "a.s", "FAIL ANALYSIS")], [("game", "a.s", "FAIL ANALYSIS")]], 0, 400)
@example([[("game", "d.txt", "x")], [("game", "d.txt", None), ("game", "D.txt", "x")]], 0, 400)
@given(
    st.lists(st.lists(EDITS, min_size=1, max_size=5), min_size=1, max_size=6),
    st.integers(0, 999),
    st.sampled_from((1, 2, 400)),
)
def test_rows_updated_by_notices_equal_the_database(batches: list[list[tuple[str, str, str | None]]], seed: int, part: int) -> None:
    followed = Followed()
    world = followed.world
    world.rng = random.Random(seed)
    try:
        for edits in batches:
            for folder, rel, text in edits:
                if text is None and rel in world.disk.files.get(folder, {}):
                    world.delete(rel, folder)
                elif text is not None:
                    world.write(rel, text, folder)
            world.scan()
            for _ in range(world.rng.randrange(12)):
                if moves := world._moves():
                    world.rng.choice(moves)()
            followed.apply_news(part)
            world.run()
            followed.apply_news(part)
            followed.store.resort()
            followed.store.wait_until_idle()

            assert followed.shown() == followed.stored()
            assert not followed.store.tick()
    finally:
        followed.store.close()

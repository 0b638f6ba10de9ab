"""The job table (all jobs as columns) equals the rows of the database, for databases of aptui and O3DE, with any chunk size."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from aptui.core.model import JobPlan, describe_key
from aptui.core.rows import pack_plan
from aptui.core.run_report import ContentFacts
from aptui.store.jobs import parts, texts
from aptui.store.jobs.filter import STATUS_CODES, parse
from aptui.store.jobs.job_table import AnalysisKeys, CheckColumn, JobTable, argsort, cause_of, gather, order_rows, read_job_table
from aptui.store.queries.checks import CheckMark
from aptui.store.queries.reader import JobRow, open_reader
from tests.bench import generate
from tests.store.conftest import Store, job_notice, job_row, product_row, source_row


def rows_of(table: JobTable) -> Iterator[tuple[object, ...]]:
    words = {code: word for word, code in STATUS_CODES.items()}
    for row in range(table.row_count()):
        texts = tuple(table.words(name, row) for name in ("source", "folder", "platform", "key", "reason", "error", "cause"))
        numbers = tuple(
            table.value(name, row) for name in ("warnings", "errors", "completed_ms", "duration_ms", "run_key", "source_id")
        )
        yield (max(0, table.value("id", row)), words[table.value("status", row)], *texts, *numbers)


def values_of(row: JobRow) -> tuple[object, ...]:
    return (
        row.job_id, row.status, row.source, row.scan_folder, row.platform, describe_key(row.job_key), row.reason, row.error,
        row.failure_cause, row.warnings, row.errors, row.completed_ms, round(row.duration_s * 1000), row.run_key, row.source_id,
    )  # fmt: skip


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return generate.make(tmp_path_factory.mktemp("generated"), 5000)


@pytest.mark.parametrize("chunk", [16_384, 512])
def test_job_table_has_the_same_values_as_the_rows_of_the_reader(
    generated: Path, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "CHUNK", chunk)
    with closing(open_reader(generated)) as reader:
        table = read_job_table(reader, {})
        rows = list(reader.jobs())

    assert sorted(rows_of(table), key=repr) == sorted(map(values_of, rows), key=repr)
    assert table.moment == (1, 5000)
    assert {row.status for row in rows} == {"completed", "failed", "pending", "cancelled"}
    assert any(not row.job_id for row in rows)


def test_generated_database_is_the_same_in_every_run(generated: Path, tmp_path: Path) -> None:
    again = generate.make(tmp_path, 5000)

    tables: list[list[tuple[object, ...]]] = []
    for path in (generated, again):
        with closing(open_reader(path)) as reader:
            tables.append(list(rows_of(read_job_table(reader, {}))))
    assert tables[0] == tables[1]
    assert (again.parent.parent / "aptui.yaml").is_file()


def test_rows_are_found_by_job_id_if_the_ids_have_gaps(store: Store) -> None:
    store.put(
        put_source=[source_row(5, "a.png")], put_job=[job_row(number, 5, platform=f"p{number}") for number in (3, 70, 1_000_000)]
    )
    table = read_job_table(store.reader(), {})

    assert [table.row_of(number) for number in (3, 70, 1_000_000, 0, 4, 2_000_000)] == [0, 1, 2, -1, -1, -1]


def test_separator_in_a_text_is_shown_as_a_visible_symbol(store: Store) -> None:
    store.put(
        put_source=[source_row(1, "a.png")],
        put_job=[job_row(1, 1, job_key="one\0two\1three"), job_row(2, 1, platform="mac", job_key="three", reason="x\0y")],
    )
    table = read_job_table(store.reader(), {})

    assert [(table.words("key", row), table.words("reason", row)) for row in (0, 1)] == [
        ("one␀two␁three", "new source"),
        ("three", "x␀y"),
    ]


def test_durations_of_a_foreign_database_come_from_its_stats(store: Store) -> None:
    store.put(put_source=[source_row(1, "a.png")], put_job=[job_row(1, 1)])
    with closing(open_reader(store.path)) as reader:
        folder = reader.ask("SELECT ScanFolder FROM ScanFolders").fetchone()[0]
    store.put(put_stat=[(f"ProcessJob,{folder},a.png,Image,linux,{{42424242-4242-4242-4242-424242424242}}", 77, 1)])
    with closing(sqlite3.connect(store.path, isolation_level=None)) as database:
        database.execute("DELETE FROM aptui_jobs")
    table = read_job_table(store.reader(), {})

    assert (table.value("duration_ms", 0), table.value("completed_ms", 0), table.value("status", 0)) == (77, 9, 2)


def test_product_facts_are_columns_that_are_empty_without_stored_facts(store: Store) -> None:
    store.put(
        put_source=[source_row(1, "a.png")],
        put_job=[job_row(1, 1), job_row(2, 1, platform="mac")],
        put_product=[product_row(1, 1, "linux/a.png"), product_row(2, 1, "linux/a.mip1.png"), product_row(3, 2, "mac/a.png")],
    )
    bare = read_job_table(store.reader(), {})
    store.put(put_facts=[(1, 1, 8, 2, 0, 0, 0.0, "png", ""), (2, 1, 4, 16, 0, 0, 0.0, "png", "")])

    table = read_job_table(store.reader(), {})

    assert table.number("width").tolist() == [8, 0]
    assert bare.number("width").tolist() == [0, 0]
    assert [table.facts(row) for row in (0, 1)] == [ContentFacts(8, 16, format="png"), None]
    assert [bare.facts(row) for row in (0, 1)] == [None, None]
    assert parse("w:8 format:png").matches(table).tolist() == [True, False]
    assert parse("format:png").matches(bare).tolist() == [False, False]


def test_notices_set_and_remove_facts_of_products(store: Store) -> None:
    store.put(put_source=[source_row(1, "a.png")], put_job=[job_row(1, 1)])
    table = read_job_table(store.reader(), {})
    values = job_notice(1, facts=ContentFacts(seconds=1.5))

    table.put(values)
    assert table.number("seconds").tolist() == [1.5]

    table.put(replace(values, facts=None))
    assert table.facts(0) is None


def test_job_is_flaky_only_if_its_last_run_was_retried(store: Store) -> None:
    store.put(
        put_source=[source_row()],
        put_job=[job_row(1, run_key=5), job_row(2, run_key=6, platform="mac"), job_row(3, run_key=7, platform="windows")],
        put_retries=[(1, 5, "crash, timeout"), (2, 4, "crash")],
    )

    with closing(open_reader(store.path)) as reader:
        table = read_job_table(reader, {})
        rows = [(row.job_id, row.flaky) for row in reader.jobs()]
        listed = reader.flaky_jobs()
    table.put(job_notice(3, platform="windows", flaky="memory"))
    table.put(job_notice(1))

    assert (rows, listed) == ([(1, "crash, timeout"), (2, ""), (3, "")], [1])
    assert parse("is:flaky").matches(table).tolist() == [False, False, True]
    assert parse("!is:flaky").matches(table).tolist() == [True, True, False]


class Busy(dict[str, np.ndarray]):
    """Columns of a table that changes while it is read, as if by another thread: each read adds a job and lets job 1 fail."""

    def __init__(self, table: JobTable) -> None:
        super().__init__(table._columns)
        self._table, self._is_adding = table, False

    def __getitem__(self, name: str) -> np.ndarray:
        column = super().__getitem__(name)
        if not self._is_adding:
            self._is_adding = True
            number = self._table.row_count() + 1
            added = job_notice(
                number, source=f"{number}.png", job_key=f"key {number}", builder=f"builder {number}", status="failed",
                reason=f"why {number}", error=f"error {number}", completed_ms=number, run_key=number,
            )  # fmt: skip
            self._table.put(added)
            self._table.put(replace(added, job_id=1))
            self._is_adding = False
        return column


@pytest.mark.parametrize(
    "field", ["completed_ms", "failed_first", "duration_ms", "id", "status", "reason", "source", "error", "platform", "builder"]
)
def test_rows_may_be_added_while_the_table_is_sorted_or_filtered(store: Store, field: str) -> None:
    store.put(put_source=[source_row(1, "a.png")], put_job=[job_row(1, 1)])
    table = read_job_table(store.reader(), {})
    table._columns = Busy(table)

    order = order_rows(table, field, is_descending=True)
    mask = parse("status:failed error:error reason:why 9").matches(table)

    assert set(order.tolist()) == set(range(len(order)))
    assert len(order) >= 1
    assert len(mask) <= table.row_count()


def test_row_is_counted_only_after_all_columns_are_written() -> None:
    table = JobTable({}, AnalysisKeys())
    seen: list[int] = []

    class Watched(dict[str, np.ndarray]):
        def values(self):
            seen.append(table.row_count())
            return super().values()

    table._columns = Watched(table._columns)
    table.put(job_notice(1, job_key="key", reason="new"))

    assert seen == [0]
    assert order_rows(table, "platform", is_descending=False).tolist() == [0]


def test_job_is_a_draft_until_its_final_products_are_stored(store: Store) -> None:
    store.put(
        put_source=[source_row()],
        put_job=[job_row(1, run_key=5), job_row(2, run_key=6, platform="mac"), job_row(3, run_key=7, platform="windows")],
        put_draft=[(1, None), (2, None)],
    )
    store.put(drop_draft=[(2,)])

    with closing(open_reader(store.path)) as reader:
        table = read_job_table(reader, {})
        rows = [(row.job_id, row.is_draft) for row in reader.jobs()]
        listed = reader.draft_jobs()
    table.put(job_notice(3, platform="windows", is_draft=True))
    table.put(job_notice(1))

    assert (rows, listed) == ([(1, True), (2, False), (3, False)], [1])
    assert parse("is:draft").matches(table).tolist() == [False, False, True]


def test_job_is_critical_if_its_plan_says_so_until_a_notice_changes_this(store: Store) -> None:
    plans = [JobPlan("image", "linux", is_critical=True), JobPlan("image", "mac", params='{"a":[1,true,2]}')]
    store.put(
        put_source=[source_row()],
        put_job=[job_row(at, run_key=at, platform=plan.platform, plan=pack_plan(plan, ())) for at, plan in enumerate(plans, 1)],
    )

    with closing(open_reader(store.path)) as reader:
        table = read_job_table(reader, {})
        rows = [(row.job_id, row.is_critical) for row in reader.jobs()]
    read = parse("is:critical").matches(table).tolist()
    table.put(job_notice(1))
    table.put(job_notice(2, platform="mac", is_critical=True))

    assert (rows, read) == ([(1, True), (2, False)], [True, False])
    assert parse("is:critical").matches(table).tolist() == [False, True]


def test_text_index_finds_texts_that_were_read_or_added_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "_LEAST_INDEXED", 3)
    column = texts.Texts(["a", "b", "a"])
    index = texts.TextIndex(column)

    assert (index.code("b"), column[index.code("a")], index.code("ä")) == (1, "a", 3)
    column.extend(["added by another way"])
    assert index.code("added by another way") == 4
    names = [f"{number}" for number in range(20)]
    assert [index.code(name) for name in names] == [index.code(name) for name in names] == list(range(5, 25))
    assert len(column) == 25


def test_added_jobs_with_equal_sources_have_equal_source_numbers() -> None:
    table = JobTable({}, AnalysisKeys())
    table.text("source")[1].extend(["a.png", "b.png"])

    rows = [table.put(job_notice(at, source=name)) for at, name in
            enumerate(["b.png", "new.png", "new.png", "a.png"], 1)]  # fmt: skip

    assert table.number("source")[rows].tolist() == [1, 2, 2, 0]


@pytest.mark.parametrize(
    "keys", [[], [5], [3, 1, 3, -2, 1], [1 << 62, -(1 << 62), 0], [(1 << 63) - 1, 7, -(1 << 63), 7], [65536, 1, 65537, 0, 65536]]
)
def test_sort_order_is_stable_for_keys_of_any_range(keys: list[int]) -> None:
    expected = sorted(range(len(keys)), key=keys.__getitem__)

    assert argsort(np.array(keys, np.int64)).tolist() == expected


@pytest.mark.parametrize(("by_last", "expected"), [(False, [0, 2, 1, 4, 3]), (True, [0, 2, 3, 1, 4])])
def test_groups_of_equal_codes_are_ordered_by_first_or_last_row(by_last: bool, expected: list[int]) -> None:
    codes = np.array([5, 2, 5, 9, 2])

    assert gather(codes, by_last=by_last).tolist() == expected
    assert gather(np.empty(0, np.int32), by_last=by_last).tolist() == []


ONE, TWO = CheckMark("warn", 1, "large: bytes is 9"), CheckMark("fail", 2, "name: bad; large: x")


def words(column: CheckColumn, count: int) -> list[str]:
    codes, texts = column.text(count)
    return [texts[int(code)] for code in codes]


def test_check_marks_are_set_by_row_and_unknown_jobs_are_ignored() -> None:
    column = CheckColumn()
    assert (bool(column), column.mark(3), words(column, 2)) == (False, None, ["", ""])

    column.set(np.array([2, -1, 0]), [ONE, TWO, TWO])

    assert bool(column)
    assert words(column, 4) == [TWO.text, "", ONE.text, ""]
    assert words(column, 1) == [TWO.text]
    assert [column.mark(row) for row in range(4)] == [TWO, None, ONE, None]
    assert column.has_findings(np.array([3, 2, 1, 0])).tolist() == [False, True, False, True]
    column.set(np.empty(0, np.int64), [])
    assert (bool(column), words(column, 3), column.mark(2)) == (False, ["", "", ""], None)


SAME = [
    ("pack_00/a/item_00000.json:1:10: Expecting value", "b.json:77: Expecting value", "…: Expecting value"),
    ("cannot read '/x/y z.png': no such file", "cannot read 'q.png': no such file", "cannot read '…': no such file"),
    ('texture "rock" is missing', 'texture "sand" is missing', 'texture "…" is missing'),
    ("exit code 3 after 1,204 ms", "exit code 4 after 17 ms", "exit code # after # ms"),
    ("no asset {2336F175-E6FD-5A11-87B4-04B00088CADD}:1", "no asset {00112233-4455-6677-8899-aabbccddeeff}:2", "no asset #:#"),
    ("at 0x7ffe12 in /usr/lib/libfoo.so.6", "at 0xdead in C:\\bin\\foo.dll", "at # in …"),
]


@pytest.mark.parametrize(("one", "other", "cause"), SAME)
def test_cause_of_an_error_masks_its_paths_and_numbers(one: str, other: str, cause: str) -> None:
    assert (cause_of(one), cause_of(other)) == (cause, cause)


def test_errors_with_different_first_lines_are_in_different_groups() -> None:
    assert len({cause_of(text) for text in ("broken pipe\nmore", "no such preset", "levels: fatal", "a.png: too large", "")}) == 5
    assert cause_of("\n  broken pipe \nmore") == "broken pipe"


def test_very_long_error_without_a_line_break_has_a_group() -> None:
    assert cause_of("a/" * 100_000 + "'" * 5000)

"""The rows of the Jobs screen are filtered, sorted and kept up to date, and they do not jump."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from aptui.core.model import RelPath, RunKey
from aptui.core.notices import JobChanged, JobProgress, LogLevel, LogRecord
from aptui.shared.errors import HostError
from aptui.store.joblog import write as write_log
from aptui.store.jobs import parts, texts
from aptui.store.jobs.filter import FilterError
from aptui.store.jobs.job_table import AnalysisKeys, JobTable, build_first_table, build_job_table, read_job_table
from aptui.store.jobs.parts import FirstJobs
from aptui.store.queries.logs import LogLines
from aptui.store.queries.reader import open_reader
from aptui.tui.data import job_infos
from aptui.tui.data.feed import Batch, JobNews
from aptui.tui.data.job_infos import without_source
from aptui.tui.data.jobs_store import COLUMNS, JobsStore
from aptui.tui.widgets.cells import Cell
from tests.bench import generate
from tests.store.conftest import BUILDER, Store, analysis_row, job_row, source_row

from ..database import database

NOW_MS = 1_790_000_000_000
ANALYSES = AnalysisKeys()


def notice(job_id: int, source: str = "a.png", status: str = "completed", **changes: Any) -> JobChanged:
    values: dict[str, Any] = {
        "cause": 1, "job_id": job_id, "source": RelPath(source), "scan_folder": 1, "platform": "linux", "job_key": "Image",
        "builder": "image", "status": status, "reason": "changed", "error": "", "warnings": 0, "errors": 0, "duration_ms": 5,
        "log_file": "", "run_key": RunKey(9),
    }  # fmt: skip
    return JobChanged(**(values | changes))


def news(*notices: JobChanged, is_later: bool = True) -> Batch:
    return Batch(jobs=tuple(JobNews(item, is_later, NOW_MS) for item in notices))


@pytest.fixture(autouse=True)
def _new_analyses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Number the analyses of each test from the beginning: tests run in any order."""
    monkeypatch.setattr(sys.modules[__name__], "ANALYSES", AnalysisKeys())


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with database(tmp_path) as made:
        yield made


@pytest.fixture
def filled(store: Store) -> Store:
    store.put(
        put_source=[
            source_row(1, "Textures/rock.png"), source_row(2, "textures/sand.PNG"), source_row(3, "mesh/rock.fbx"),
            source_row(4, "x.lua"),
        ],
        put_job=[
            job_row(1, 1, warnings=0, completed_ms=NOW_MS - 1000, duration_ms=40),
            job_row(
                2, 1, platform="server", state="failed", status=2, error="broken pipe\nmore", errors=1, warnings=0,
                completed_ms=NOW_MS - 9000,
            ),
            job_row(3, 2, warnings=2, completed_ms=NOW_MS - 5000, duration_ms=2500),
            job_row(4, 3, state="waiting", status=0, warnings=0, completed_ms=0),
            job_row(
                5, 3, platform="server", state="failed", status=2, failure_cause="textures/sand.png", warnings=0,
                completed_ms=NOW_MS - 7000,
            ),
        ],
        put_analysis=[analysis_row(4, state="failed", error="no such preset", completed_ms=NOW_MS - 8000)],
    )  # fmt: skip
    return store


def table_of(store: Store) -> JobTable:
    reader = open_reader(store.path)
    try:
        return read_job_table(reader, {BUILDER: "image"}, ANALYSES)
    finally:
        reader.close()


@pytest.fixture
def jobs(filled: Store) -> Iterator[JobsStore]:
    store = JobsStore(clock_ms=lambda: NOW_MS)
    store.apply(Batch(table=table_of(filled)))
    store.wait_until_idle()
    yield store
    store.close()


def rows(store: JobsStore, column: str = "number") -> list[str]:
    return [store.cell(index, column).text for index in range(store.row_count())]


def shown(store: JobsStore) -> list[int]:
    return [store.key(index) for index in range(store.row_count())]


def filtered(store: JobsStore, text: str) -> list[int]:
    store.set_filter(text)
    store.wait_until_idle()
    assert store.error is None
    return shown(store)


def resort(store: JobsStore) -> None:
    store.resort()
    store.wait_until_idle()


def sort(store: JobsStore, order: str, *, is_descending: bool) -> None:
    store.set_sort(order, is_descending=is_descending)
    store.wait_until_idle()


ANALYSIS = -1


# -------------------------------------------------------------------------------------------------------------------- rows


def test_jobs_and_failed_analyses_are_sorted_by_time(jobs: JobsStore) -> None:
    assert shown(jobs) == [1, 3, 5, ANALYSIS, 2, 4]
    assert jobs.total == jobs.hit_count == 6


def test_failed_jobs_are_found_by_key_and_unknown_keys_are_ignored(jobs: JobsStore) -> None:
    assert jobs.find_among([1, 2, 5, 99], "failed") == {2, 5}
    with closing(JobsStore()) as empty:
        assert empty.find_among([1], "failed") == set()


def test_cells_of_the_jobs_table_have_readable_text(jobs: JobsStore) -> None:
    assert rows(jobs, "status") == ["✓ completed", "! 2 warnings", "✗ failed", "✗ failed", "✗ failed", "· pending"]
    assert [jobs.cell(index, "status").role for index in range(2)] == ["completed", "warning"]
    assert rows(jobs, "source")[:2] == ["Textures/rock.png", "textures/sand.PNG"]
    assert rows(jobs, "duration") == ["40 ms", "2.50 s", "1.50 s", "4 ms", "1.50 s", "—"]
    assert jobs.cell(5, "completed") == Cell("—")
    jobs.apply(news(notice(3, "textures/sand.PNG", duration_ms=0, reason="source 'textures/sand.PNG' changed; a file appeared")))
    assert [jobs.cell(jobs.index_of(3), column).text for column in ("duration", "reason")] == [
        "0 ms",
        "the source changed; a file appeared",
    ]
    assert rows(jobs, "key")[3].startswith("analysis")
    assert rows(jobs, "platform")[3] == "all"
    assert rows(jobs, "builder") == ["image"] * 6
    assert rows(jobs, "number")[3] == ""


@pytest.mark.parametrize(
    ("errors", "warnings", "shown_text"), [(2, 1, "✗ 2 errors, 1 warning"), (1, 12, "✗ 1 error, 12 warnings"), (1, 0, "✗ 1 error")]
)
def test_completed_job_shows_errors_and_warnings(jobs: JobsStore, errors: int, warnings: int, shown_text: str) -> None:
    jobs.apply(news(notice(3, "textures/sand.PNG", errors=errors, warnings=warnings)))
    resort(jobs)

    assert jobs.cell(shown(jobs).index(3), "status").text == shown_text
    assert jobs.needs["status"] >= len(shown_text)


def test_sorting_by_failed_puts_failed_jobs_before_other_jobs(jobs: JobsStore) -> None:
    jobs.set_sort("failed", is_descending=True)
    jobs.apply(
        news(
            notice(8, "err.png", errors=1, completed_ms=5),
            notice(9, "warn.png", warnings=1, completed_ms=6),
            notice(10, "cancelled.png", "cancelled", completed_ms=7),
            notice(4, "mesh/rock.fbx", "processing"),
        )
    )
    resort(jobs)

    assert shown(jobs) == [5, ANALYSIS, 2, 8, 3, 9, 1, 10, 4]


def test_every_column_has_cells_and_can_be_sorted_both_ways(jobs: JobsStore) -> None:
    for column in COLUMNS:
        orders = []
        for is_descending in (False, True):
            sort(jobs, column, is_descending=is_descending)
            orders.append(rows(jobs, column))
        assert jobs.sort == (column, True)
        assert sorted(orders[0]) == sorted(orders[1])
    sort(jobs, "source", is_descending=False)
    assert rows(jobs, "source") == [*["mesh/rock.fbx"] * 2, *["Textures/rock.png"] * 2, "textures/sand.PNG", "x.lua"]


def test_running_jobs_come_first_after_the_rows_are_sorted_again(jobs: JobsStore) -> None:
    before = shown(jobs)
    jobs.apply(news(notice(4, "mesh/rock.fbx", "processing")))
    assert shown(jobs) == before

    resort(jobs)
    assert shown(jobs) == [4, *before[:-1]]
    sort(jobs, "completed", is_descending=False)
    assert shown(jobs)[-1] == 4


def test_jobs_that_are_running_at_the_subscription_come_first(filled: Store) -> None:
    with closing(JobsStore(clock_ms=lambda: NOW_MS)) as jobs:
        jobs.apply(Batch(table=table_of(filled), running={4: NOW_MS}))
        jobs.wait_until_idle()

        assert shown(jobs)[0] == 4


def test_sorting_by_status_puts_the_most_urgent_job_first(jobs: JobsStore) -> None:
    sort(jobs, "status", is_descending=False)

    assert rows(jobs, "status") == ["✗ failed", "✗ failed", "✗ failed", "! 2 warnings", "· pending", "✓ completed"]


def test_row_is_found_by_its_key_while_it_is_shown(jobs: JobsStore) -> None:
    assert [jobs.index_of(key) for key in (1, 5, 99)] == [0, 2, None]

    filtered(jobs, "platform:server")
    assert [jobs.index_of(key) for key in (1, 5)] == [None, 0]


def test_facts_about_a_job_that_the_filter_hides_are_returned(jobs: JobsStore) -> None:
    filtered(jobs, "lua")

    info = jobs.info(5)
    assert info is not None
    assert (info.source, info.status, info.cause, info.scan_folder) == ("mesh/rock.fbx", "failed", "textures/sand.png", "project")
    assert jobs.info(99) is None


def test_status_counts_include_jobs_that_the_filter_hides(jobs: JobsStore) -> None:
    filtered(jobs, "lua")

    assert jobs.counts() == {"pending": 1, "processing": 0, "completed": 2, "failed": 3, "cancelled": 0, "warnings": 1, "errors": 0}


def test_failures_are_grouped_by_cause(jobs: JobsStore) -> None:
    groups = [(group.cause, group.is_source, group.keys) for group in jobs.failure_groups()]

    assert groups == [("broken pipe", False, (2,)), ("no such preset", False, (ANALYSIS,)), ("textures/sand.png", True, (5,))]


@pytest.mark.parametrize(
    ("word", "index", "step", "expected"),
    [
        ("errors", 0, 1, 2),
        ("errors", 2, 1, 3),
        ("errors", 4, 1, 2),
        ("errors", 2, -1, 4),
        ("warnings", 0, 1, 1),
        ("warnings", 1, 1, None),
    ],
)
def test_search_for_the_next_failure_wraps_around(jobs: JobsStore, word: str, index: int, step: int, expected: int | None) -> None:
    assert jobs.next_with(word, index, step) == expected


# ---------------------------------------------------------------------------------------------------------------- filtering


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("rock", [1, 5, 2, 4]), ("Textures", [1, 3, 2]), ("(?-i)Textures", [1, 2]),
        ("failed", [5, ANALYSIS, 2]), ("failed platform:server", [5, 2]),
        ("warning", [3]), (r"\.png$ !failed", [1, 3]), ("slower:1s", [3, 5, 2, 4]), ("error:preset", [ANALYSIS]),
        ("cause:sand", [5]),
        ("builder:image key:^analysis", [ANALYSIS]), ("folder:project lua", [ANALYSIS]), ("nothing", []),
    ],
)  # fmt: skip
def test_jobs_filter_shows_only_matching_rows(jobs: JobsStore, text: str, expected: list[int]) -> None:
    assert filtered(jobs, text) == expected


def test_filter_hits_are_marked_in_the_path_of_a_job(jobs: JobsStore) -> None:
    filtered(jobs, "rock .png$")

    assert jobs.cell(0, "source").spans == ((9, 17),)


@pytest.mark.parametrize("text", ["rock(", '"open', "colour:red"])
def test_invalid_filter_keeps_the_last_view(jobs: JobsStore, text: str) -> None:
    filtered(jobs, "lua")

    jobs.set_filter(text)
    jobs.wait_until_idle()
    assert isinstance(jobs.error, FilterError)
    assert shown(jobs) == [ANALYSIS]
    assert jobs.filter.text == "lua"
    assert filtered(jobs, "") == [1, 3, 5, ANALYSIS, 2, 4]


def test_view_that_cannot_be_computed_reports_the_reason(jobs: JobsStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_pattern: str) -> Any:
        raise HostError("filters need the library 'google-re2'")

    monkeypatch.setattr(texts, "compile_pattern", missing)
    jobs.set_filter("rock")
    jobs.wait_until_idle()

    assert isinstance(jobs.error, HostError)
    assert len(shown(jobs)) == 6


# ----------------------------------------------------------------------------------------------------------------- updates


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_failed_sort_keeps_the_current_rows_and_does_not_stop_later_views(jobs: JobsStore, monkeypatch: pytest.MonkeyPatch) -> None:
    before = shown(jobs)
    with monkeypatch.context() as patched:
        patched.setattr(job_infos, "order_rows", lambda *_arguments, **_named: [].pop())
        sort(jobs, "source", is_descending=False)

    assert str(jobs.error) == "the rows cannot be sorted: pop from empty list; press R to try again"
    assert shown(jobs) == before
    sort(jobs, "source", is_descending=False)
    assert rows(jobs, "source") == sorted(rows(jobs, "source"), key=str.lower)
    assert jobs.error is None


def test_changed_row_stays_in_its_place(jobs: JobsStore) -> None:
    before = jobs.version
    jobs.apply(news(notice(2, "Textures/rock.png", platform="server")))

    assert shown(jobs) == [1, 3, 5, ANALYSIS, 2, 4]
    assert jobs.cell(4, "status").text == "✓ completed"
    assert jobs.version > before
    resort(jobs)
    assert shown(jobs)[0] == 2


def test_new_row_is_last_until_the_rows_are_sorted_again(jobs: JobsStore) -> None:
    jobs.apply(news(notice(9, "new.png")))

    assert shown(jobs)[-1] == 9
    assert (jobs.late_count, jobs.total) == (1, 7)
    resort(jobs)
    assert shown(jobs)[0] == 9
    assert jobs.late_count == 0
    assert filtered(jobs, "new") == [9]


def test_row_that_no_longer_passes_the_filter_stays_while_it_is_visible(jobs: JobsStore) -> None:
    assert filtered(jobs, "failed") == [5, ANALYSIS, 2]

    jobs.hold(0, 1)
    jobs.apply(news(notice(5, "mesh/rock.fbx", platform="server"), notice(2, "Textures/rock.png", platform="server")))
    assert shown(jobs) == [5, ANALYSIS]
    assert jobs.cell(0, "status").text == "✓ completed"
    assert jobs.hit_count == 1
    jobs.hold(1, 2)
    jobs.apply(Batch())
    assert shown(jobs) == [ANALYSIS]


def test_filter_reads_logs_in_its_thread_but_not_after_each_notice(filled: Store, tmp_path: Path) -> None:
    log = tmp_path / "logs" / "JobLogs" / "a.log"
    log.parent.mkdir(parents=True)
    write_log(log, [LogRecord(LogLevel.WARNING, "image", "no mipmaps", 1)], 1, 0)
    store = JobsStore(clock_ms=lambda: NOW_MS)
    store.log_lines = LogLines(filled.path, tmp_path / "logs")
    store.apply(Batch(table=table_of(filled)))
    store.wait_until_idle()
    assert filtered(store, "warning:mipmaps") == [3]

    write_log(log, [LogRecord(LogLevel.WARNING, "image", "no palette", 1)], 1, 0)
    filled.put(put_job=[job_row(3, 2, warnings=1, run_key=9), job_row(1, 1, warnings=1, run_key=9)])
    store.apply(news(notice(3, "textures/sand.PNG", warnings=1), notice(1, "Textures/rock.png", warnings=1)))
    before = shown(store)

    assert before == []
    assert sorted(filtered(store, "warning:palette")) == [1, 3]
    store.close()


def test_deleted_job_is_removed_at_once(jobs: JobsStore) -> None:
    jobs.hold(0, 10)
    jobs.apply(news(notice(3, status=""), notice(77, status="")))

    assert shown(jobs) == [1, 5, ANALYSIS, 2, 4]
    assert jobs.total == 5
    assert jobs.info(3) is None
    jobs.apply(news(notice(3, "textures/sand.PNG")))
    assert shown(jobs) == [1, 5, ANALYSIS, 2, 4, 3]


def test_analysis_is_listed_only_if_its_last_run_failed(jobs: JobsStore) -> None:
    key = f"CreateJobs_{{{BUILDER.hex()}}}"
    analysis: Callable[[str], JobChanged] = lambda status: notice(0, "x.lua", status, platform="all", job_key=key)

    jobs.apply(news(analysis("processing")))
    assert ANALYSIS not in shown(jobs)
    jobs.apply(news(analysis("completed")))
    assert ANALYSIS not in shown(jobs)
    jobs.apply(news(analysis("failed")))
    assert shown(jobs)[-1] == ANALYSIS


def test_notice_older_than_the_rows_changes_only_whether_a_job_is_running(jobs: JobsStore) -> None:
    jobs.apply(Batch(running={1: NOW_MS, 4: NOW_MS - 18_000}))
    assert [jobs.cell(index, "status").text for index in (0, 5)] == ["▶ processing", "▶ processing"]
    assert [jobs.cell(index, "duration").text for index in (0, 5)] == ["0 s…", "18 s…"]
    before = jobs.version
    assert jobs.tick()
    assert jobs.version > before

    jobs.apply(news(notice(1, "elsewhere", "failed", platform="odd"), is_later=False))
    assert jobs.cell(0, "status").text == "✓ completed"
    assert jobs.cell(0, "platform").text == "linux"
    jobs.apply(news(notice(1, status="processing"), is_later=False))
    assert jobs.cell(0, "status").text == "▶ processing"
    jobs.apply(Batch(running={}))
    assert jobs.counts()["processing"] == 0
    assert not jobs.tick()


def test_status_of_a_running_job_shows_the_progress_until_the_run_ends(jobs: JobsStore) -> None:
    jobs.apply(Batch(running={1: NOW_MS}, percents={1: JobProgress(1, 1, 0, 40), 4: JobProgress(1, 4, 8, 50)}))
    assert jobs.cell(0, "status").text == "▶ 40 %"
    assert jobs.cell(5, "status").text != "▶ 50 %", "job 4 is not running"

    jobs.apply(news(notice(1, status="processing", run_key=3), is_later=False))
    jobs.apply(Batch(percents={1: JobProgress(1, 1, 3, 60)}))
    assert jobs.cell(0, "status").text == "▶ 60 %"
    jobs.apply(news(notice(1, status="processing", run_key=3), is_later=False))
    assert jobs.cell(0, "status").text == "▶ 60 %"
    jobs.apply(news(notice(1, status="processing", run_key=9), is_later=False))
    assert jobs.cell(0, "status").text == "▶ processing", "the last progress belongs to run 3, but run 9 is running"
    jobs.apply(Batch(running={}))
    assert jobs.percent_of(1) == -1


def test_rows_that_are_read_again_keep_their_keys_and_running_jobs(jobs: JobsStore, filled: Store) -> None:
    jobs.apply(news(notice(4, "mesh/rock.fbx", "processing")))
    filled.put(put_job=[job_row(6, 3, platform="mac", completed_ms=NOW_MS)], drop_job=[(1,)])
    jobs.apply(Batch(table=table_of(filled)))
    jobs.wait_until_idle()

    assert shown(jobs) == [4, 6, 3, 5, ANALYSIS, 2]
    assert jobs.cell(0, "status").text == "▶ processing"


def test_changes_that_arrive_while_a_view_is_computed_appear_in_the_view(jobs: JobsStore) -> None:
    jobs.set_filter("status:failed")
    jobs.apply(news(notice(1, "Textures/rock.png", "failed"), notice(20, "late.png", "failed"), notice(5, status="")))
    jobs.wait_until_idle()

    assert sorted(shown(jobs)) == [ANALYSIS, 1, 2, 20]


def test_view_of_many_rows_shows_one_screenful_before_all_rows(jobs: JobsStore) -> None:
    jobs.apply(news(*(notice(100 + number, f"many/{number}.bin") for number in range(5000))))
    found = filtered(jobs, "many/")

    assert len(found) == 5000
    assert len(set(found)) == 5000


def test_database_without_jobs_gives_an_empty_table(store: Store) -> None:
    jobs = JobsStore()
    jobs.apply(Batch(table=table_of(store)))
    jobs.wait_until_idle()

    assert (jobs.row_count(), jobs.total, jobs.failure_groups(), jobs.next_with("errors", 0, 1)) == (0, 0, [], None)
    jobs.close()


def test_search_hits_are_marked_correctly_if_a_sign_precedes_the_path(jobs: JobsStore) -> None:
    jobs.apply(news(notice(3, "textures/sand.PNG", is_critical=True)))
    found, cell = filtered(jobs, "is:critical sand"), jobs.cell(0, "source")
    assert jobs.needs["source"] == len(cell.text)

    assert (found, cell.text) == ([3], "⇡ textures/sand.PNG")
    assert [cell.text[start:end] for start, end in cell.spans] == ["sand"]
    info = jobs.info(3)
    assert info is not None
    assert info.source == "textures/sand.PNG"


def test_row_is_marked_as_a_draft_until_its_final_products_are_reported(jobs: JobsStore) -> None:
    jobs.apply(news(notice(3, "textures/sand.PNG", is_draft=True)))
    marked, found = jobs.cell(shown(jobs).index(3), "reason").text, filtered(jobs, "is:draft")
    jobs.apply(news(notice(3, "textures/sand.PNG", "processing", is_draft=True)))
    while_final_is_made = filtered(jobs, "is:draft")
    jobs.apply(news(notice(3, "textures/sand.PNG")))

    assert (marked, found, while_final_is_made) == ("draft; changed", [3], [3])
    assert filtered(jobs, "is:draft") == []
    filtered(jobs, "")
    assert jobs.cell(shown(jobs).index(3), "reason").text == "changed"


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        ("levels/bridge.stl:588: unknown object 'airship'", "588: unknown object 'airship'"),
        ("bridge.stl:588: unknown object 'airship'", "588: unknown object 'airship'"),
        ("bridge.stl: no such file", "no such file"),
        ("bridge.stl:", "bridge.stl:"),
        ("drawbridge.stl:1: odd", "drawbridge.stl:1: odd"),
    ],
)
def test_error_in_a_row_omits_the_path_of_its_source(error: str, shown: str) -> None:
    assert without_source(error, "levels/bridge.stl") == shown


@pytest.mark.parametrize(
    ("reason", "shown_reason"),
    [
        ("new source; its result is from this machine's store (box, 2026-11-24 10:00)", "new source; from this machine's store"),
        ("its result is from the shared cache (a (b), 2026-11-24 10:00)", "from the shared cache"),
        (
            "'a(1).png' changed; its result is from its run of yesterday",
            "'a(1).png' changed; its result is from its run of yesterday",
        ),
    ],
)
def test_row_of_a_fetched_result_shows_a_short_origin(jobs: JobsStore, reason: str, shown_reason: str) -> None:
    jobs.apply(news(notice(3, "textures/sand.PNG", reason=reason)))

    assert jobs.cell(shown(jobs).index(3), "reason").text == shown_reason


# -------------------------------------------------------------------------------------- the first jobs, before all jobs are read


def read_first_and_all(path: Path) -> tuple[JobTable, JobTable]:
    with closing(open_reader(path)) as reader:
        first, *others = parts.read_job_parts(reader, wants_first=True)
    assert isinstance(first, FirstJobs)
    return build_first_table(first, {}, ANALYSES), build_job_table(others, {}, ANALYSES)


def visible_rows(store: JobsStore, lines: int) -> tuple[object, ...]:
    columns = ("status", "source", "completed", "platform", "key", "reason")
    shown = [(store.key(line), *(store.cell(line, column) for column in columns)) for line in range(lines)]
    return shown, store.total, store.source_count, store.has_failed, store.alike, store.needs


@pytest.mark.parametrize("by_source", [True, False])
def test_rows_of_the_first_jobs_are_unchanged_after_all_jobs_are_read(
    by_source: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "_LEAST_JOBS", 5_000)
    first, table = read_first_and_all(generate.make(tmp_path, 5_000))
    store = JobsStore(clock_ms=lambda: NOW_MS)
    store.set_sort("failed", is_descending=False)
    store.group_by_source(on=by_source)
    store.apply(Batch(first=first))
    store.wait_until_idle()

    visible, row_count = visible_rows(store, 150), store.row_count()
    assert (store.has_rows, store.is_loaded) == (True, False)

    store.apply(Batch(table=table))
    store.wait_until_idle()

    assert (store.has_rows, store.is_loaded) == (True, True)
    assert visible_rows(store, 150) == visible
    assert store.row_count() > row_count
    store.close()


@pytest.mark.parametrize(("failed_analyses", "alike"), [(0, {"platform", "key", "reason"}), (1, {"reason"})])
def test_same_columns_are_hidden_for_partial_and_complete_tables(
    failed_analyses: int, alike: set[str], store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "_LEAST_JOBS", 200)
    monkeypatch.setattr(parts, "CHUNK", 1_000)
    store.put(
        put_source=[source_row(number, f"{number}.png") for number in range(1, 2_001)],
        put_job=[job_row(number, number, reason="new source") for number in range(1, 2_001)],
        put_analysis=[analysis_row(7, state="failed", reason="new source")] * failed_analyses,
    )
    first, table = read_first_and_all(store.path)

    assert job_infos.alike_columns(first) == job_infos.alike_columns(table) == alike
    assert (first.platform_count, table.platform_count) == (1, 1)


def test_jobs_of_only_one_source_are_read_all_together(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "_LEAST_JOBS", 200)
    store.put(put_source=[source_row()], put_job=[job_row(number, platform=f"p{number}") for number in range(1, 201)])

    with closing(open_reader(store.path)) as reader:
        assert not any(isinstance(part, FirstJobs) for part in parts.read_job_parts(reader, wants_first=True))


def test_partial_table_after_the_complete_table_is_ignored(filled: Store, jobs: JobsStore) -> None:
    before = jobs.row_count()

    jobs.apply(Batch(first=JobTable({}, ANALYSES)))
    jobs.wait_until_idle()

    assert jobs.row_count() == before

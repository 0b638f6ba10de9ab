"""The writer of the database: row operations, merged transactions, durability, failures."""

from __future__ import annotations

import os
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from unittest import mock

import pytest

from aptui.core.model import FileFact, PathKey, RelPath
from aptui.core.rows import ROW_OPERATIONS
from aptui.shared.errors import HostError, InternalError, KnownError
from aptui.store.db import schema
from aptui.store.db.change_log import TouchedRows
from aptui.store.db.folder_blobs import unpack_files
from aptui.store.db.statements import MANY, STATEMENTS, of_many
from aptui.store.db.writer import Intent, Writer

from ..conftest import BUILDER, DIGEST, Store, analysis_row, edge_row, job_row, product_row, source_row, uuid_of

FACT = FileFact(1, RelPath("Textures/a.png"), 1, 2, 3, 4)
RUN = (1, 1, 1000, 5, 0, "new source", "", "", 7, "1", b"P" * 16, "0", "")
STAT_OF_JOB = "ProcessJob,{root},Textures/Ärger.png,Image,linux,{{42424242-4242-4242-4242-424242424242}}"


def fill(store: Store) -> None:
    """Put one row into every table."""
    store.put(
        put_source=[source_row()], put_analysis=[analysis_row()], put_job=[job_row()], put_product=[product_row()],
        put_edge=[edge_row(0, "Textures/Other.png")], put_run=[RUN], put_conflict=[("linux/x", 1)],
        put_draft=[(1, None)], put_retries=[(1, 1, "crash")],
        put_stat=[("CreateJobs,Textures/Ärger.png,image", 1, 2)],
        put_folder=[(1, "textures", DIGEST, (FACT,))], put_file=[(1, "Textures/a.png", 0, 1, 2)],
        put_cache_folder=[("linux/textures", 9)], put_state=[("epoch", "1")],
    )  # fmt: skip


OWNED = ("Sources", "aptui_sources", "Jobs", "aptui_jobs", "Products", "aptui_products", "aptui_analyses", "aptui_runs",
         "aptui_conflicts", "aptui_drafts", "aptui_retries", "aptui_edges", "SourceDependency", "Stats")  # fmt: skip


def test_statements_and_row_operations_have_the_same_order() -> None:
    assert list(STATEMENTS) == list(ROW_OPERATIONS)


def test_writing_the_same_rows_twice_does_not_duplicate_them(store: Store) -> None:
    fill(store)
    store.put(drop_edges=[(uuid_of(1), BUILDER)])
    fill(store)

    tables = (*OWNED[:-1], "aptui_folders", "aptui_files", "aptui_cache_folders")
    assert {table: store.count(table) for table in tables} == dict.fromkeys(tables, 1)
    assert sorted(store.rows("SELECT StatName, StatValue, LastLogTime FROM Stats")) == [
        ("CreateJobs,Textures/Ärger.png,image", 1, 2), (STAT_OF_JOB.format(root=store.path.parent.parent), 1500, 1000)
    ]  # fmt: skip


def test_writer_closes_a_database_that_cannot_be_opened(tmp_path: Path) -> None:
    path = tmp_path / "assetdb.sqlite"
    path.write_bytes(b"no database" * 100)

    with pytest.raises(HostError) as refused:
        Writer(path, lambda _number: None)

    assert refused.value  # while the error exists, its traceback keeps the opened objects alive
    assert str(path) not in {os.path.realpath(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")}


def test_put_operation_replaces_existing_rows(store: Store) -> None:
    fill(store)

    store.put(
        put_source=[(1, 1, "TEXTURES/ärger.png", uuid_of(7), "textures/ärger.png", b"other", "name", 8, 9)],
        put_job=[job_row(fingerprint=8, state="failed", status=2, error="broken")],
        put_product=[(*product_row()[:4], b"O" * 16, -3, 2, b"other", 11)],
        put_file=[(1, "Textures/a.png", 0, 5, 6)],
    )

    assert store.rows(
        "SELECT SourceName, SourceGuid, path_key, digest FROM Sources JOIN aptui_sources ON source_id = SourceID"
    ) == [("TEXTURES/ärger.png", uuid_of(7), "textures/ärger.png", b"other")]
    assert store.rows("SELECT Fingerprint, Status, state, error FROM Jobs JOIN aptui_jobs ON job_id = JobID") == [
        (8, 2, "failed", "broken")
    ]
    assert store.rows(
        "SELECT AssetType, LegacyGuid, Hash, Flags, digest, size FROM Products JOIN aptui_products ON product_id = ProductID"
    ) == [(b"O" * 16, bytes(16), -3, 2, b"other", 11)]
    assert store.rows("SELECT FileName, ModTime, Hash FROM Files") == [("TEXTURES/ärger.png", 8, 9), ("Textures/a.png", 5, 6)]


def test_unchanged_rows_are_not_written(store: Store) -> None:
    fill(store)
    log = Path(f"{store.path}-wal")
    before = log.stat().st_size

    store.put(put_source=[source_row()], put_file=[(1, "Textures/a.png", 0, 1, 2)], put_folder=[(1, "textures", DIGEST, (FACT,))])

    assert log.stat().st_size == before
    store.put(put_source=[source_row(rel="Textures/ärger.png")])
    assert store.rows("SELECT SourceName FROM Sources") == [("Textures/ärger.png",)]


def test_many_rows_are_written_with_few_statements(store: Store) -> None:
    seen: list[str] = []
    most, fewer = MANY
    count = 2 * most + 2 * fewer + 3
    rows = [source_row(number, f"{number}.png") for number in range(1, count + 1)]
    store.writer._database.set_trace_callback(seen.append)

    store.put(put_source=rows)

    assert sum(sql.startswith("INSERT INTO Sources") for sql in seen) == 2 + 2 + 3
    assert store.rows("SELECT SourceID, SourceName FROM Sources ORDER BY SourceID") == [
        (at, f"{at}.png") for at in range(1, count + 1)
    ]


def test_finishing_runs_deletes_exactly_their_intents_with_one_statement(store: Store) -> None:
    store.writer.record_intents(Intent(key, 1, f"linux/{name}", DIGEST, 1, "[]") for key in (1, 2, 3) for name in "ab")()
    seen: list[str] = []
    store.writer._database.set_trace_callback(seen.append)

    store.writer.finish({}, [1, 3, 9])

    assert sum("aptui_intents" in sql for sql in seen) == 1
    assert [(intent.run_key, intent.name) for intent in store.writer.intents()] == [(2, "linux/a"), (2, "linux/b")]


def test_last_of_several_rows_with_the_same_key_is_stored(store: Store) -> None:
    count = max(MANY)
    rows = [source_row(at % 3 + 1, f"{at % 3}.png")[:5] + (b"%d" % at, "", at, at) for at in range(count)]

    store.put(put_source=rows, put_stat=[("CreateJobs,a", at, at) for at in range(count)])

    assert store.rows("SELECT source_id, digest FROM aptui_sources") == [(1, b"63"), (2, b"61"), (3, b"62")]
    assert store.rows("SELECT value_ms FROM aptui_stats") == [(63,)]


@pytest.mark.parametrize("operation", [name for name in STATEMENTS if name.startswith("put_")])
def test_each_put_statement_has_a_valid_form_for_many_rows(store: Store, operation: str) -> None:
    for sql, _shape in STATEMENTS[operation]:
        if many := of_many(sql, max(MANY)):
            store.rows(f"EXPLAIN {many}", *[None] * max(MANY) * sql.count("?"))
    assert all(of_many(sql, 2) for sql, _shape in STATEMENTS["put_job"] + STATEMENTS["put_source"] + STATEMENTS["put_product"])


@pytest.mark.parametrize(("operation", "indexes"), [("put_job", 3), ("put_product", 0)])
def test_changed_row_updates_only_indexes_that_may_differ(store: Store, operation: str, indexes: int) -> None:
    sql = STATEMENTS[operation][0][0]
    store.writer.close()

    steps = store.rows(f"EXPLAIN {sql}", *[None] * sql.count("?"))

    # For a job: the indexes Jobs_JobRunKey, aptui_jobs_unfinished and aptui_jobs_logged.
    assert [step[1] for step in steps].count("IdxDelete") == indexes


def test_files_whose_names_differ_only_in_case_are_two_rows(store: Store) -> None:
    store.put(put_file=[(1, "a.png", 0, 1, 2), (1, "A.png", 0, 1, 2)])
    store.put(drop_file=[(1, "a.png")])

    assert store.rows("SELECT FileName FROM Files") == [("A.png",)]


def test_file_that_becomes_a_source_is_listed_once(store: Store) -> None:
    store.put(put_file=[(1, "Textures/Ärger.png", 0, 1, 2), (1, "textures/Ärger.png", 0, 1, 2)])
    store.put(put_source=[source_row()])

    assert store.rows("SELECT ScanFolderPK, FileName, IsFolder, ModTime, Hash FROM Files ORDER BY FileID") == [
        (1, "Textures/Ärger.png", 0, 4, 5),
        (1, "textures/Ärger.png", 0, 1, 2),
    ]
    assert store.rows("SELECT COUNT(DISTINCT FileID) FROM Files") == [(2,)]


def test_dropping_a_source_deletes_all_rows_that_belong_to_it(store: Store) -> None:
    fill(store)

    store.put(drop_source=[(1,)])

    assert {table: store.count(table) for table in OWNED} == dict.fromkeys(OWNED, 0)


def test_dropping_a_job_keeps_its_source_and_analysis(store: Store) -> None:
    fill(store)

    store.put(drop_job=[(1,)])

    gone = ("Jobs", "aptui_jobs", "Products", "aptui_products", "aptui_runs", "aptui_conflicts", "aptui_drafts", "aptui_retries")
    assert {table: store.count(table) for table in gone} == dict.fromkeys(gone, 0)
    assert [store.count(table) for table in ("Sources", "aptui_analyses", "Stats")] == [1, 1, 1]


@pytest.mark.parametrize(
    ("operation", "row", "tables"),
    [
        ("drop_analysis", (1, BUILDER), ("aptui_analyses",)),
        ("drop_products", (1,), ("Products", "aptui_products")),
        ("drop_edges", (uuid_of(1), BUILDER), ("SourceDependency", "aptui_edges")),
        ("drop_folder", (1, "textures"), ("aptui_folders",)),
        ("drop_file", (1, "Textures/a.png"), ("aptui_files",)),
        ("drop_conflict", (1,), ("aptui_conflicts",)),
    ],
)
def test_each_drop_operation_deletes_only_its_own_rows(
    store: Store, operation: str, row: tuple[object, ...], tables: tuple[str, ...]
) -> None:
    fill(store)

    store.writer.run({operation: [row]}, durable=True)

    assert [store.count(table) for table in tables] == [0] * len(tables)
    assert store.count("Jobs") == 1


def test_drop_operations_are_applied_before_put_operations(store: Store) -> None:
    fill(store)

    store.writer.run(
        {"put_source": [source_row(2, "b.png")], "put_product": [product_row(2, 1, "linux/b")], "drop_products": [(1,)]},
        durable=False,
    )

    assert store.rows("SELECT ProductName FROM Products") == [("linux/b",)]


def test_last_successful_run_is_kept_after_any_number_of_failed_runs(store: Store) -> None:
    outcomes = {1: 0, 2: 0} | dict.fromkeys(range(3, 10), 1)
    for key, outcome in outcomes.items():
        store.put(put_run=[(1, key, 100 * key, 5, outcome, "", "", "", 1, "1", b"", "", "")])

    assert [run.run_key for run in store.reader().runs_of(1)] == [9, 8, 7, 6, 5, 2]
    store.put(put_run=[(1, 10, 1000, 5, 0, "", "", "", 1, "1", b"", "", "")])
    assert [run.run_key for run in store.reader().runs_of(1)] == [10, 9, 8, 7, 6]


def test_only_the_last_five_runs_of_a_job_stay(store: Store) -> None:
    fill(store)

    for run_key in range(2, 9):
        store.put(put_run=[(1, run_key, *RUN[2:])])

    assert store.rows("SELECT run_key FROM aptui_runs ORDER BY run_key") == [(4,), (5,), (6,), (7,), (8,)]


def test_folder_rows_are_stored_packed(store: Store) -> None:
    fill(store)

    assert unpack_files(store.rows("SELECT files FROM aptui_folders")[0][0], 1) == [FACT]


def test_saves_are_reported_in_order_and_calls_wait_for_earlier_saves(store: Store) -> None:
    for ticket in range(1, 101):
        store.writer.save(ticket, {"put_state": [("seq", str(ticket))]})
    store.put()

    assert store.saved == sorted(store.saved)
    assert store.saved[-1] == 100
    assert store.reader().state("seq") == "100"


@pytest.mark.parametrize("ticket", [1, 2])
def test_save_is_refused_unless_its_number_exceeds_the_last_number(store: Store, ticket: int) -> None:
    store.writer.save(2, {"put_state": [("seq", "new")]})

    with pytest.raises(InternalError, match=f"save {ticket} was requested after save 2"):
        store.writer.save(ticket, {"put_state": [("seq", "old")]})

    store.put()
    assert store.reader().state("seq") == "new"


def test_waiting_saves_are_merged_into_one_transaction(store: Store) -> None:
    entered, let_go = threading.Event(), threading.Event()
    holder = threading.Thread(target=lambda: store.writer._ask(lambda: (entered.set(), let_go.wait())))
    holder.start()
    entered.wait()
    for ticket in range(1, 6):
        store.writer.save(ticket, {"put_state": [("seq", str(ticket))]})
    let_go.set()
    holder.join()
    store.put()

    assert store.saved == [5]


def statements_of(store: Store) -> list[str]:
    """Return a list that receives the SQL of every transaction from now on."""
    logged: list[str] = []
    store.writer._ask(lambda: store.writer._database.set_trace_callback(logged.append))
    return logged


def test_earlier_saves_share_the_transaction_of_the_next_commit(store: Store) -> None:
    logged = statements_of(store)

    store.writer.save(1, {"put_source": [source_row()]})
    store.writer.save(2, {"put_state": [("seq", "2")]})
    store.writer.record_intents([Intent(5, 1, "linux/a", DIGEST, 3, "[]")])()

    assert logged.count("COMMIT") == 1
    assert store.saved == [2]
    assert (store.count("Sources"), store.count("aptui_intents")) == (1, 1)


def test_failed_commit_does_not_undo_the_save_before_it(store: Store) -> None:
    failures: list[KnownError] = []
    writer = Writer(store.path, store.saved.append, failures.append)
    writer.save(1, {"put_source": [source_row()]})
    with pytest.raises(InternalError):
        writer.run({"put_job": [job_row(source_id=99)]}, durable=False)
    assert store.saved == [1]
    assert failures == []

    writer.save(2, {"put_job": [job_row(source_id=99)]})
    with pytest.raises(InternalError):
        writer.record_intents([Intent(5, 1, "linux/a", DIGEST, 3, "[]")])()
    assert len(failures) == 1
    assert store.count("aptui_intents") == 0
    writer.close()


@pytest.mark.parametrize(
    ("operation", "row", "is_synced"),
    [
        ("drop_folder", (1, "textures"), False),
        ("drop_edges", (uuid_of(1), BUILDER), False),
        ("drop_products", (1,), True),
        ("drop_job", (1,), True),
        ("drop_source", (1,), True),
    ],
)
def test_only_operations_that_delete_products_are_synced(
    store: Store, operation: str, row: tuple[object, ...], is_synced: bool
) -> None:
    fill(store)
    store.put()
    logged = statements_of(store)

    store.writer.save(1, {operation: [row]})
    store.writer._ask(bool)

    assert ("PRAGMA synchronous = FULL" in logged) is is_synced


def test_later_save_can_delete_a_row_of_an_earlier_save(store: Store) -> None:
    store.writer.save(1, {"put_source": [source_row()]})
    store.writer.save(2, {"drop_source": [(1,)]})
    store.put()

    assert store.count("Sources") == 0


def test_announced_intents_are_stored_for_each_product_and_run(store: Store) -> None:
    fill(store)
    logged = statements_of(store)

    recorded = store.writer.announce_intents([(PathKey("textures/ärger.png"), (7, 8)), (PathKey("nobody"), (9,))])

    name = "linux/textures/ärger.png"
    assert recorded() == {"textures/ärger.png": {(1, name)}, "nobody": set()}
    assert store.writer.intents() == [Intent(run_key, 1, name, b"", 0, "[]") for run_key in (7, 8)]
    assert "PRAGMA synchronous = FULL" in logged


def test_result_of_announcing_intents_is_empty_if_saving_fails(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(store)
    monkeypatch.setattr("aptui.store.db.writer._INTENTS_SQL", "INSERT INTO nowhere VALUES (?, ?, ?, ?, ?, ?)")
    key = PathKey("textures/ärger.png")

    assert store.writer.announce_intents([(key, (7,))])() == {}
    store.writer.close()
    assert store.writer.announce_intents([(key, (7,))])() == {}


def test_finishing_a_run_deletes_only_its_intents(store: Store) -> None:
    intents = [Intent(5, 1, "linux/a", DIGEST, 3, "[]"), Intent(6, 2, "linux/b", DIGEST, 4, '["linux/old"]')]
    store.writer.record_intents(intents)()
    assert store.writer.intents() == intents

    store.writer.finish({"put_source": [source_row()]}, [5])

    assert store.writer.intents() == intents[1:]
    assert store.count("Sources") == 1


def test_scan_folders_keep_their_ids_and_removed_folders_are_returned(store: Store) -> None:
    ids, gone = store.writer.sync_scan_folders([("PROJECT", "/new", 0), ("gem", "/gem", 1)])
    assert (ids["PROJECT"], gone) == (store.scan_folder, [])

    assert store.writer.sync_scan_folders([("gem", "/gem", 0)]) == ({"gem": ids["gem"]}, [store.scan_folder])
    assert store.rows("SELECT ScanFolder FROM ScanFolders WHERE ScanFolderID = ?", store.scan_folder) == [("/new",)]


def test_dropping_a_scan_folder_deletes_its_sources_and_files(store: Store) -> None:
    fill(store)

    store.writer.drop_scan_folder(store.scan_folder)

    tables = (*OWNED[:-1], "Files", "aptui_folders", "ScanFolders")
    assert {table: store.count(table) for table in tables} == dict.fromkeys(tables, 0)


def test_checkpoint_empties_the_write_ahead_log(store: Store) -> None:
    fill(store)

    store.writer.checkpoint()

    assert store.path.with_name("assetdb.sqlite-wal").stat().st_size == 0


def test_lone_surrogate_is_stored_as_a_question_mark(store: Store) -> None:
    store.put(put_state=[("text", "a\ud800b")])

    assert store.reader().state("text") == "a?b"


@pytest.mark.parametrize(
    "rows", [{"no_such": [(1,)]}, {"put_state": [("too", "many", "values")]}, {"put_job": [job_row(source_id=99)]}]
)
def test_row_that_the_database_refuses_is_an_internal_error_and_saves_nothing(
    store: Store, rows: dict[str, list[tuple[object, ...]]]
) -> None:
    with pytest.raises(InternalError):
        store.writer.run({"put_source": [source_row()], **rows}, durable=False)

    assert store.count("Sources") == 0
    store.put(put_state=[("a", "b")])


def test_next_call_raises_the_error_of_a_failed_save(store: Store) -> None:
    failures: list[KnownError] = []
    writer = Writer(store.path, store.saved.append, failures.append)
    writer.save(1, {"put_job": [job_row(source_id=99)]})

    with pytest.raises(InternalError):
        writer.run({}, durable=False)
    with pytest.raises(InternalError):
        writer.save(2, {})
    assert store.saved == []
    assert len(failures) == 1
    writer.close()


def test_full_disk_is_reported_and_later_calls_work(store: Store) -> None:
    store.put(put_source=[source_row()])
    pages = store.rows("PRAGMA page_count")[0][0]
    store.writer._ask(lambda: store.writer._database.execute(f"PRAGMA max_page_count = {pages}").fetchall())

    with pytest.raises(HostError, match="ENOSPC"):
        store.put(put_state=[("big", "x" * 1_000_000)])
    store.put(put_state=[("small", "x")])


def test_later_calls_work_after_an_error_at_the_beginning_of_a_transaction(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(TouchedRows, "begin", mock.Mock(side_effect=sqlite3.OperationalError("disk I/O error")))
        with pytest.raises(HostError, match="disk I/O error"):
            store.put(put_source=[source_row()])

    store.put(put_source=[source_row()])
    assert store.rows("SELECT SourceID FROM Sources") == [(1,)]


def test_writer_raises_host_error_if_another_program_holds_the_lock_too_long(store: Store) -> None:
    writer = Writer(store.path, store.saved.append, lock_timeout_s=0.0)
    with closing(sqlite3.connect(store.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(HostError, match="close the program that is writing"):
            writer.run({"put_state": [("a", "b")]}, durable=False)
        other.execute("ROLLBACK")
    writer.close()


def test_a_database_deleted_while_in_use_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "assetdb.sqlite"
    schema.prepare(path)
    writer = Writer(path, lambda _ticket: None)
    path.rename(tmp_path / "elsewhere")

    with pytest.raises(HostError, match="deleted or replaced"):
        writer.run({"put_state": [("a", "b")]}, durable=True)
    writer.close()


def test_closed_writer_refuses_saves_and_can_be_closed_again(store: Store) -> None:
    store.writer.save(1, {"put_state": [("a", "b")]})
    store.writer.close()
    store.writer.close()

    assert store.saved == [1]
    with pytest.raises(InternalError, match="closed"):
        store.writer.save(2, {})

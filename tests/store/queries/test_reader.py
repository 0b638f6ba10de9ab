"""Queries of users to a real database, made by aptui or by O3DE."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from aptui.core.model import EdgeKind, FileFact, RelPath
from aptui.shared.errors import HostError, UserError
from aptui.store.db import schema
from aptui.store.db.table_models import O3DE_TABLES, _table_sql
from aptui.store.queries import metrics
from aptui.store.queries.metrics import BuilderSpent, Spent
from aptui.store.queries.reader import STATUSES, JobRow, Reader, open_reader

from ..conftest import BUILDER, DIGEST, Store, analysis_row, edge_row, job_row, product_row, source_row, uuid_of

OTHER_BUILDER = b"C" * 16
STATES = {  # state: (Jobs.Status, status that users see)
    "waiting": (0, "pending"),
    "completed": (4, "completed"),
    "failed": (2, "failed"),
    "cancelled": (2, "cancelled"),
}


def job_in(state: str, job_id: int, source_id: int, **changes: Any) -> tuple[object, ...]:
    return job_row(job_id, source_id, state=state, status=STATES[state][0], **changes)


@pytest.fixture
def reader(store: Store) -> Reader:
    """A database with jobs of every state in mixed order, and failed and successful analyses."""
    store.put(
        put_source=[source_row(1, "z.png"), source_row(2, "Textures/Ärger.png"), source_row(3, "a.png"), source_row(4, "new.png")],
        put_job=[
            job_in("completed", 5, 1),
            job_in("failed", 4, 2, error="broken", errors=3, warnings=0, failure_cause="its dependency"),
            job_in("waiting", 3, 2, platform="windows", warnings=0),
            job_in("cancelled", 2, 3, warnings=1),
            job_in("completed", 1, 3, platform="windows", warnings=0),
        ],
        put_analysis=[
            analysis_row(4, state="failed", error="no such file", warnings=1, errors=2, log_file="JobLogs/x"),
            analysis_row(1, warnings=7, errors=7),
            analysis_row(2, state="waiting"),
            analysis_row(3, state="cancelled"),
        ],
        put_product=[product_row(1, 5, "linux/z"), product_row(2, 5, "linux/a"), product_row(3, 1, "windows/a")],
    )
    return store.reader()


def listed(rows: Iterator[JobRow]) -> list[tuple[str, str, str]]:
    return [(row.source, row.platform, row.status) for row in rows]


ALL = [
    ("a.png", "windows", "completed"),
    ("a.png", "linux", "cancelled"),
    ("Textures/Ärger.png", "windows", "pending"),
    ("Textures/Ärger.png", "linux", "failed"),
    ("z.png", "linux", "completed"),
    ("new.png", "all", "failed"),
]


# -------------------------------------------------------------------------------------------------------------------- jobs


def test_jobs_are_listed_by_source_with_failed_analyses_last(reader: Reader) -> None:
    assert listed(reader.jobs()) == ALL


@pytest.mark.parametrize("statuses", [*([status] for status in STATUSES), ["completed", "failed"], list(STATUSES)])
@pytest.mark.parametrize("platform", ["", "linux", "windows", "all", "android"])
def test_listed_jobs_have_a_requested_status_and_the_requested_platform(reader: Reader, statuses: list[str], platform: str) -> None:
    found = listed(reader.jobs(statuses=statuses, platform=platform))

    assert found == [row for row in ALL if row[2] in statuses and platform in ("", row[1])]


def test_moment_of_a_database_is_its_stored_epoch_and_sequence_number(store: Store) -> None:
    reader = store.reader()
    assert reader.moment() == (0, 0)

    store.put(put_state=[("epoch", "3"), ("seq", "41")])
    assert reader.moment() == (3, 41)


def test_job_row_has_all_stored_columns(reader: Reader) -> None:
    assert reader.job(4) == JobRow(
        source="Textures/Ärger.png", scan_folder="project", platform="linux", job_key="Image", builder=BUILDER, status="failed",
        reason="new source", completed_ms=1000, duration_s=1.5, warnings=0, errors=3, log="JobLogs/a.log", job_id=4, error="broken",
        run_key=5, source_id=2, state="failed", failure_cause="its dependency",
    )  # fmt: skip
    assert reader.job(99) is None
    assert reader.job(1 << 63) is None


def test_a_failed_analysis_is_a_job_named_after_its_builder_on_all_platforms(reader: Reader) -> None:
    row = list(reader.jobs())[-1]

    assert row == JobRow(
        source="new.png", scan_folder="project", platform="all", job_key="CreateJobs_{42424242-4242-4242-4242-424242424242}",
        builder=BUILDER, status="failed", reason="new source", completed_ms=5, duration_s=0.004, warnings=1, errors=2,
        log="JobLogs/x",
        job_id=0, error="no such file", run_key=0, source_id=4, state="failed", failure_cause="",
    )  # fmt: skip


def test_jobs_of_a_source_lists_failed_analyses_last(store: Store) -> None:
    store.put(
        put_source=[source_row(1, "a.png"), source_row(2, "b.png")],
        put_job=[job_row(2, 1), job_row(1, 1, platform="windows"), job_row(3, 2)],
        put_analysis=[analysis_row(1, state="failed"), analysis_row(1, builder=OTHER_BUILDER), analysis_row(2, state="failed")],
    )

    assert [(row.job_id, row.source) for row in store.reader().jobs_of(1)] == [(1, "a.png"), (2, "a.png"), (0, "a.png")]


def test_empty_database_lists_nothing(store: Store) -> None:
    reader = store.reader()

    assert list(reader.jobs()) == list(reader.sources()) == list(reader.products()) == metrics.builders_spent(reader) == []
    assert reader.totals().jobs == dict.fromkeys(STATUSES, 0)


# ------------------------------------------------------------------------------------------------------------------ totals


def test_totals_equal_the_counts_of_the_rows(reader: Reader) -> None:
    rows = list(reader.jobs())

    totals = reader.totals()

    assert totals.jobs == dict.fromkeys(STATUSES, 0) | Counter(row.status for row in rows)
    assert totals.jobs == {"pending": 1, "processing": 0, "completed": 2, "failed": 2, "cancelled": 1}
    assert (totals.warnings, totals.errors) == (sum(row.warnings for row in rows), sum(row.errors for row in rows)) == (4, 5)
    assert (totals.sources, totals.products) == (4, 3)


def test_totals_in_a_snapshot_ignore_later_changes(store: Store) -> None:
    store.put(put_source=[source_row()], put_job=[job_row()])
    reader = store.reader()

    with reader.snapshot():
        assert reader.totals().jobs["completed"] == 1
        store.put(put_job=[job_row(2, platform="windows")])
        assert reader.totals().jobs["completed"] == 1

    assert reader.totals().jobs["completed"] == 2


# ----------------------------------------------------------------------------------------------------------- one job or source


def test_last_five_runs_are_listed_newest_first(store: Store) -> None:
    store.put(put_source=[source_row()], put_job=[job_row(), job_row(2, platform="windows")])
    for run_key in range(1, 9):
        store.put(put_run=[(1, run_key, 1000 + run_key, 5, 0, f"reason {run_key}", "", "", 7, "1", b"", "", "")])
    store.put(put_run=[(2, 9, 1, 1, 1, "", "broken", "JobLogs/b", 0, "1", b"", "", "")])

    runs = store.reader().runs_of(1)

    assert [(run.run_key, run.completed_ms, run.reason) for run in runs] == [
        (number, 1000 + number, f"reason {number}") for number in (8, 7, 6, 5, 4)
    ]
    assert store.reader().runs_of(3) == []


def test_inputs_of_a_job_are_read_from_its_stored_manifest(reader: Reader) -> None:
    assert reader.inputs_of(5) == (("source", "a.png", "00ff"),)
    assert reader.inputs_of(99) == ()


def test_products_of_a_job_are_listed_in_their_order_of_creation(reader: Reader) -> None:
    products = reader.products_of(5)

    assert [(product.name, product.digest, product.size, product.job_id) for product in products] == [
        ("linux/z", DIGEST, 10, 5),
        ("linux/a", DIGEST, 10, 5),
    ]
    assert [product.name for product in reader.products()] == ["linux/a", "linux/z", "windows/a"]


def test_source_is_found_regardless_of_unicode_letter_case(reader: Reader) -> None:
    found = reader.source("TEXTURES/ÄRGER.PNG")

    assert found is not None
    assert (found.source_id, found.source, found.uuid, found.scan_folder, found.digest) == (
        2, "Textures/Ärger.png", uuid_of(2), "project", DIGEST,
    )  # fmt: skip
    assert reader.source("textures/arger.png") is None
    assert [source.source for source in reader.sources()] == ["a.png", "new.png", "Textures/Ärger.png", "z.png"]


def test_dependents_are_found_by_path_or_uuid_without_expanding_wildcards(store: Store) -> None:
    store.put(
        put_source=[source_row(1, "a.png"), source_row(2, "B.png"), source_row(3, "c.png")],
        put_edge=[
            edge_row(EdgeKind.PATH, "Größe.json", source_id=2),
            edge_row(EdgeKind.JOB, "größe.json", bits=2, source_id=1),
            edge_row(EdgeKind.DISCOVERED, "größe.json", source_id=1),
            edge_row(EdgeKind.WILDCARD, "*.json", bits=5, source_id=3),
            edge_row(EdgeKind.UUID, uuid_of(0xAB).hex(), source_id=3),
        ],
    )
    reader = store.reader()

    assert reader.dependents_of("GRÖßE.JSON") == ["a.png", "B.png"]
    assert reader.dependents_of(uuid_of(0xAB).hex().upper()) == ["c.png"]
    assert reader.dependents_of("missing") == []


def test_dependencies_of_a_source_are_returned_as_declared(store: Store) -> None:
    store.put(
        put_source=[source_row(1, "a.png"), source_row(2, "b.png")],
        put_edge=[
            edge_row(EdgeKind.WILDCARD, "Shared/*.json", bits=5),
            (uuid_of(1), BUILDER, EdgeKind.JOB, "b.png", 2, "3,4", 0, 1),
            (uuid_of(1), BUILDER, EdgeKind.UUID, uuid_of(9).hex(), 1, "", 1, 1),
            edge_row(EdgeKind.PATH, "elsewhere", source_id=2),
        ],
    )

    edges = store.reader().edges_of(1)

    assert [(edge.target, edge.type_bits, edge.sub_ids, edge.from_asset_id) for edge in edges] == [
        (uuid_of(9).hex(), 1, "", True),
        ("b.png", 2, "3,4", False),
        ("Shared/*.json", 5, "", False),
    ]


def test_reader_prefers_the_file_that_is_a_source_or_in_the_first_scan_folder(store: Store) -> None:
    gem = store.writer.sync_scan_folders([("project", "/project", 0), ("gem", "/gem", 1)])[0]["gem"]
    facts = {number: FileFact(number, RelPath("Tex/Ä.png"), number, 2, 3, 4) for number in (1, gem)}
    store.put(put_folder=[(number, "tex", DIGEST, (fact,)) for number, fact in facts.items()])
    reader = store.reader()
    assert reader.file("TEX/ä.png") == facts[1]

    store.put(put_source=[source_row(1, "Tex/Ä.png", gem)])

    assert reader.file("TEX/ä.png") == facts[gem]
    assert reader.file("tex/b.png") is None


# ----------------------------------------------------------------------------------------------------------------- opening


def test_missing_database_is_a_user_error(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.sqlite", tmp_path):
        with pytest.raises(UserError, match="no asset database"):
            open_reader(path)
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_database_is_a_host_error(tmp_path: Path) -> None:
    path = tmp_path / "assetdb.sqlite"
    path.write_bytes(b"this is no database" * 100)

    with pytest.raises(HostError, match="cannot be used"):
        open_reader(path)


def test_file_that_is_not_an_asset_database_is_a_user_error(tmp_path: Path) -> None:
    path = tmp_path / "assetdb.sqlite"
    path.touch()

    with pytest.raises(UserError, match="is not an asset database"):
        open_reader(path)


def test_database_of_another_version_is_a_user_error(store: Store) -> None:
    with closing(sqlite3.connect(store.path)) as database, database:
        database.execute("UPDATE dbinfo SET version = 41")

    with pytest.raises(UserError, match="has version 41; this aptui reads 40"):
        store.reader()


@pytest.mark.parametrize(
    ("version", "advice"),
    [
        (schema.OWN_VERSION - 1, "run 'aptui batch', which moves the database aside"),
        (schema.OWN_VERSION + 1, "use that version of aptui"),
    ],
)
def test_database_of_another_aptui_version_is_refused_with_advice(store: Store, version: int, advice: str) -> None:
    with closing(sqlite3.connect(store.path)) as database, database:
        database.execute("UPDATE aptui_state SET value = ? WHERE key = ?", (str(version), schema.VERSION_KEY))

    with pytest.raises(UserError, match=advice):
        store.reader()


def test_database_connection_of_a_reader_is_read_only(reader: Reader) -> None:
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        reader._database.execute("DELETE FROM Sources")


def test_database_is_read_if_its_shared_memory_file_cannot_be_created(store: Store, tmp_path: Path) -> None:
    store.put(put_source=[source_row()], put_job=[job_row()])
    store.writer.checkpoint()
    shutil.copy(store.path, tmp_path / "copy.sqlite")
    # Because of the dangling link, SQLite cannot create the file. A read-only folder would not prevent it if root runs the test.
    (tmp_path / "copy.sqlite-shm").symlink_to("nowhere/shm")

    with closing(open_reader(tmp_path / "copy.sqlite")) as reader:
        assert reader.totals().jobs["completed"] == 1


@pytest.mark.real
def test_database_reader_does_not_import_peewee(store: Store) -> None:
    code = (
        "import sys, pathlib; from aptui.store.queries import checks, reader; "
        f"reader.open_reader(pathlib.Path({str(store.path)!r})).close(); assert 'peewee' not in sys.modules"
    )

    subprocess.run([sys.executable, "-c", code], check=True)


# ------------------------------------------------------------------------------------------------------- databases of O3DE


@pytest.fixture
def foreign(tmp_path: Path) -> Iterator[Reader]:
    """A database with only O3DE's tables and one job."""
    path = tmp_path / "foreign.sqlite"
    with closing(sqlite3.connect(path)) as database, database:
        for statement in _table_sql(O3DE_TABLES, is_temporary=False):
            database.execute(statement)
        database.execute("INSERT INTO dbinfo(version) VALUES (40)")
        database.execute("INSERT INTO ScanFolders VALUES (1, '/Project', 'Project', 'project', 1)")
        database.execute(
            "INSERT INTO Sources(SourceID, ScanFolderPK, SourceName, SourceGuid) VALUES (1, 1, 'A.png', ?)", (uuid_of(1),)
        )
        for job_id, status in ((1, 4), (2, 2), (3, 0), (4, 1)):
            values = (job_id, str(job_id), BUILDER, status)
            database.execute(
                "INSERT INTO Jobs VALUES (?, 1, ?, 7, 'pc', ?, ?, 5, NULL, NULL, 0, '', 0, '', 9, 'log', 1, 2)", values
            )
        name = "ProcessJob,/Project,A.png,1,pc,{42424242-4242-4242-4242-424242424242}"
        database.execute("INSERT INTO Stats VALUES (?, 1500, 9)", (name,))
        database.execute("INSERT INTO Products VALUES (1, 1, 'pc/a', 0, ?, ?, 5, 1)", (b"T" * 16, bytes(16)))
        database.execute("INSERT INTO SourceDependency VALUES (1, ?, ?, 'Shared.json', '', 1, 0)", (BUILDER, uuid_of(1)))
    with closing(open_reader(path)) as reader:
        yield reader


def test_sources_products_and_runs_of_a_database_of_o3de_are_read(foreign: Reader) -> None:
    source = foreign.source("a.PNG")

    assert source is not None
    assert (source.source, source.root, source.digest) == ("A.png", "/Project", b"")
    assert [(product.name, product.digest, product.size) for product in foreign.products_of(1)] == [("pc/a", b"", -1)]
    assert foreign.dependents_of("shared.JSON") == ["A.png"]
    assert (foreign.runs_of(1), foreign.inputs_of(1), foreign.file("a.png"), foreign.state("epoch")) == ([], (), None, None)
    assert metrics.builders_spent(foreign) == [BuilderSpent(BUILDER, jobs=Spent(4, 1500, 1500))]


def test_a_database_that_lacks_a_table_is_refused(tmp_path):
    path = tmp_path / "assetdb.sqlite"
    schema.prepare(path)
    with closing(sqlite3.connect(path)) as database:
        database.execute("DROP TABLE aptui_jobs")

    with pytest.raises(UserError, match="has no table 'aptui_jobs'"):
        open_reader(path)

"""Databases that O3DE wrote: every query is answered, and the files do not change."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from aptui.shared.errors import HostError, UserError
from aptui.store.db import foreign, schema
from aptui.store.db.foreign import ForeignWriter, read_only_uri, uri_of, writer_of
from aptui.store.db.table_models import own_tables_sql
from aptui.store.jobs.job_table import FAILED, read_job_table
from aptui.store.queries import assets, dependencies, logs, metrics
from aptui.store.queries.reader import Reader, open_reader

from .. import o3de_database as o3de
from ..conftest import Store
from ..o3de_database import NOW_MS


@pytest.fixture(params=[36, 37, 38, 39, 40])
def version(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    with closing(open_reader(o3de.make(tmp_path / "Cache/assetdb.sqlite"))) as reader:
        yield reader


def details(reader: Reader, source_id: int) -> assets.SourceDetails:
    found = assets.source_details(reader, source_id)
    assert found is not None
    return found


def state_of(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    found = {}
    for path in folder.iterdir():
        stat = path.stat()
        found[path.name] = (stat.st_mtime_ns, stat.st_ino, path.read_bytes())
    return found


# ----------------------------------------------------------------------------------------------------- files stay unchanged


@pytest.mark.parametrize("is_in_log", [False, True])
def test_foreign_database_is_read_without_changing_its_folder(tmp_path: Path, is_in_log: bool, version: int) -> None:
    path = o3de.make(tmp_path / "Cache/assetdb.sqlite", version, is_in_log=is_in_log)
    before = state_of(path.parent)

    with closing(open_reader(path)) as reader:
        assert [row.status for row in sorted(reader.jobs(), key=lambda row: row.job_id)] == o3de.STATUSES
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            reader.ask("DELETE FROM Sources")

    assert state_of(path.parent) == before


def test_a_database_in_a_folder_that_cannot_be_written_is_read(tmp_path: Path) -> None:
    path = o3de.make(tmp_path / "Cache/assetdb.sqlite", is_in_log=True)
    path.with_name("assetdb.sqlite-shm").symlink_to("nowhere/shm")

    with closing(open_reader(path)) as reader:
        assert reader.totals().sources == len(o3de.SOURCES)


def test_copy_of_a_foreign_database_is_reused_until_the_database_changes(tmp_path: Path) -> None:
    path = o3de.make(tmp_path / "Cache/assetdb.sqlite")
    first = foreign.private_copy(path)
    assert foreign.private_copy(path) == first

    for gone in (1, 2):
        with closing(sqlite3.connect(path)) as database, database:
            database.execute("DELETE FROM Jobs WHERE JobID = ?", (gone,))
        with closing(open_reader(path)) as reader:
            assert len(list(reader.jobs())) == len(o3de.JOBS) - gone
        # The old copy is deleted only after the second change of the database, because a caller may be about to open it.
        assert first.exists() == (gone == 1)

    foreign.forget_copies()
    assert list(Path(first.parent.parent).glob(f"{first.parent.name}*")) == []


def test_copying_a_constantly_written_database_raises_host_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = o3de.make(tmp_path / "Cache/assetdb.sqlite")
    ticks = iter(range(1, 1000))

    def copyfile(source: Path, _target: Path) -> None:
        os.utime(source, ns=(next(ticks), next(ticks)))

    monkeypatch.setattr("shutil.copyfile", copyfile)

    with pytest.raises(HostError, match="another program is constantly writing it"):
        foreign.private_copy(path)


# ---------------------------------------------------------------------------------------------------- writer of a database


def test_database_of_aptui_is_recognised_after_an_interrupted_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "assetdb.sqlite"
    with closing(sqlite3.connect(path)) as database:
        database.executescript("PRAGMA journal_mode=WAL; PRAGMA wal_autocheckpoint=0; CREATE TABLE aptui_state (key, value)")
        with open(path, "r+b") as file:  # an interrupted checkpoint leaves a damaged file
            file.truncate(200)
            file.seek(100)
            file.write(b"\xff" * 100)

        assert writer_of(path) is ForeignWriter.APTUI


def test_program_that_wrote_a_database_is_recognised(tmp_path: Path, store: Store) -> None:
    (tmp_path / "empty.sqlite").touch()
    with closing(sqlite3.connect(tmp_path / "other.sqlite")) as database:
        database.execute("CREATE TABLE t(x)")
    found = {
        "missing": writer_of(tmp_path / "missing"),
        "empty": writer_of(tmp_path / "empty.sqlite"),
        "ours": writer_of(store.path),
        "theirs": writer_of(o3de.make(tmp_path / "o3de.sqlite")),
        "theirs in the log": writer_of(o3de.make(tmp_path / "log.sqlite", is_in_log=True)),
        "other": writer_of(tmp_path / "other.sqlite"),
    }

    assert found == {
        "missing": ForeignWriter.NONE, "empty": ForeignWriter.NONE, "ours": ForeignWriter.APTUI,
        "theirs": ForeignWriter.O3DE, "theirs in the log": ForeignWriter.O3DE,
        "other": ForeignWriter.OTHER,
    }  # fmt: skip


@pytest.mark.parametrize("is_in_log", [False, True])
def test_engine_refuses_a_foreign_database_and_changes_no_file(tmp_path: Path, is_in_log: bool, version: int) -> None:
    path = o3de.make(tmp_path / "Cache/assetdb.sqlite", version, is_in_log=is_in_log)
    before = state_of(path.parent)

    with pytest.raises(UserError, match=r"written by O3DE's Asset Processor.*'--adopt-cache'"):
        schema.prepare(path)

    assert state_of(path.parent) == before


def test_database_that_is_set_aside_keeps_the_data_of_its_write_ahead_log(tmp_path: Path) -> None:
    path = o3de.make(tmp_path / "Cache/assetdb.sqlite", is_in_log=True)

    aside = schema.set_aside_foreign(path)

    assert aside == path.with_name("assetdb.sqlite.1.old")
    assert sorted(found.name for found in path.parent.iterdir()) == ["assetdb.sqlite.1.old", "assetdb.sqlite.1.old-wal"]
    with closing(open_reader(aside)) as reader:
        assert reader.totals().products == len(o3de.PRODUCTS)
    assert schema.prepare(path) == ""
    assert schema.set_aside_foreign(path) is None


@pytest.mark.parametrize(
    ("version", "extra", "message"),
    [
        (35, "", "has version 35; this aptui reads 36 to 40"),
        (41, "", "has version 41; this aptui reads 36 to 40"),
        (37, "ALTER TABLE Jobs DROP COLUMN WarningCount", "its table 'Jobs' has no column 'WarningCount'"),
        (40, "DROP TABLE Stats", "its table 'Stats' has no column 'StatName'"),
    ],
)
def test_foreign_database_with_an_unsupported_schema_is_refused(tmp_path: Path, version: int, extra: str, message: str) -> None:
    path = o3de.make(tmp_path / "assetdb.sqlite", version, extra=extra)

    with pytest.raises(UserError, match=message):
        open_reader(path)


# ------------------------------------------------------------------------------------------------------------------ queries


def test_jobs_of_o3de_have_the_displayed_status_and_error(reader: Reader) -> None:
    rows = {row.job_id: row for row in reader.jobs()}

    assert [rows[number].status for number in sorted(rows)] == o3de.STATUSES
    assert {number: rows[number].error for number in (3, 4, 5)} == {
        3: "", 4: "the path of the source is too long for the job", 5: "the source or the job is missing",
    }  # fmt: skip
    assert (rows[2].source, rows[2].scan_folder, rows[2].job_key) == ("Textures/Rock.png", "Game", "Image Compile: PNG")
    assert (rows[2].duration_s, rows[2].completed_ms, rows[2].warnings) == (1.5, NOW_MS + 2, 3)
    assert (rows[3].errors, rows[3].run_key, rows[3].log) == (2, 3, "JobLogs/Textures/Rock.png-1-3.log")
    totals = reader.totals()
    assert (totals.sources, totals.products, totals.warnings, totals.errors) == (7, 5, 4, 3)
    assert totals.jobs == {"pending": 1, "processing": 1, "completed": 4, "failed": 3, "cancelled": 0}


def test_job_table_has_the_same_rows_as_the_reader(reader: Reader) -> None:
    table = read_job_table(reader, {o3de.IMAGES: "Images"})

    rows = {row.job_id: row for row in reader.jobs()}
    codes = {"pending": 0, "processing": 1, "completed": 2, "failed": FAILED}
    for number, row in rows.items():
        at = table.row_of(number)
        assert (table.words("source", at), table.words("platform", at), table.words("key", at)) == (
            row.source,
            row.platform,
            row.job_key,
        )
        assert (table.value("status", at), table.words("error", at)) == (codes[row.status], row.error)
        assert (table.value("warnings", at), table.value("errors", at)) == (row.warnings, row.errors)
        assert (table.value("duration_ms", at), table.value("completed_ms", at)) == (row.duration_s * 1000, row.completed_ms)
    assert table.words("builder", table.row_of(2)) == "Images"


def test_sources_list_dependencies_and_dependents(reader: Reader) -> None:
    prefab, rock, stone = (details(reader, number) for number in (o3de.PREFAB, o3de.ROCK, o3de.STONE))

    assert {(item.text, item.kind, item.source_id) for item in prefab.out} == {
        ("Textures/Rock.png", "source", o3de.ROCK), ("Materials/Stone.material", "source", o3de.STONE),
        ("Terrain/hill.png", "job", o3de.HILL),
    }  # fmt: skip
    assert {(item.text, item.kind) for item in stone.out} == {("Textures/%.png", "wildcard"), ("not/there.txt", "source")}
    assert {(item.text, item.kind) for item in rock.incoming} == {
        ("Levels/Main/Main.prefab", "source"), ("Materials/Stone.material", "wildcard"),
    }  # fmt: skip
    assert [item.text for item in stone.incoming] == ["Levels/Main/Main.prefab"]
    assert (rock.analysis_ms, rock.uuid) == (42, "{00000000-0000-0000-0000-000000000002}")
    assert [edge.sub_ids for edge in reader.edges_of(o3de.PREFAB) if edge.type_bits == 2] == ["1000,1001"]
    assert reader.dependents_of("textures/rock.png") == ["Levels/Main/Main.prefab"]


def test_product_flags_distinguish_products_and_intermediates(reader: Reader) -> None:
    rock, stone, made = (details(reader, number) for number in (o3de.ROCK, o3de.STONE, o3de.MADE))

    assert [(row.name, row.sub_id, row.flags) for row in rock.products] == [
        ("pc/textures/rock.streamingimage", 1000, 1), ("pc/textures/rock_mip.imagemip", 1001, 5),
    ]  # fmt: skip
    assert (stone.products, [(row.name, source) for row, source in stone.intermediates]) == (
        (), [("common/materials/stone_made.azmaterial", o3de.MADE)],
    )  # fmt: skip
    assert made.made_from is not None
    assert made.made_from.source == "Materials/Stone.material"
    assert [row.sub_id for row in reader.products_of(1)] == [0xFFFF_FFFF]


def test_details_of_a_product_have_its_dependencies_and_its_missing_dependencies(reader: Reader) -> None:
    found = assets.product_details(reader, 1)

    assert found is not None
    assert found.unmet == (":scripts/old.luac", "scripts/*.luac")
    assert [(item.text, item.product_id, item.scanned_s) for item in found.missing] == [
        ("textures/rock_mip.imagemip", 3, NOW_MS // 1000)
    ]
    assert found.scanned_s == NOW_MS // 1000 + 1
    assert [(link.product_id, link.name, link.flags) for link in dependencies.outgoing(reader, 1)] == [
        (0, "", 2), (2, "pc/textures/rock.streamingimage", 1),
    ]  # fmt: skip
    assert [link.name for link in dependencies.incoming(reader, 2)] == ["pc/levels/main/main.spawnable"]
    assert assets.product_ids(reader, o3de.uuid_of(o3de.PREFAB), 0xFFFF_FFFF) == [1]


def test_jobs_are_counted_by_builder_and_products_by_platform(reader: Reader) -> None:
    spent = {item.builder: item.jobs for item in metrics.builders_spent(reader)}
    contents = metrics.cache_contents(reader, 0)

    assert {builder: found.count for builder, found in spent.items()} == {o3de.IMAGES: 4, o3de.MATERIALS: 2, o3de.COPIES: 3}
    assert spent[o3de.IMAGES].total_ms == 1500
    assert {(item.name, item.count) for item in contents.platforms} == {("pc", 3), ("common", 1), ("android", 1)}
    assert next(entry.source for entry in metrics.job_entries(reader, o3de.IMAGES)) == "Textures/Rock.png"


def test_foreign_sources_and_products_are_found_in_any_letter_case(reader: Reader) -> None:
    found = reader.source("TEXTURES/rock.PNG")

    assert found is not None
    assert (found.source_id, found.root) == (o3de.ROCK, "/games/Game")


def test_queries_of_aptui_tables_return_nothing_for_a_foreign_database(reader: Reader) -> None:
    assert (reader.runs_of(2), reader.inputs_of(2), reader.moment(), reader.state("epoch")) == ([], (), (0, 0), None)


def test_statements_for_aptui_tables_work_for_two_databases_at_once() -> None:
    whole = list(own_tables_sql())
    one, other = own_tables_sql(), own_tables_sql()
    begun = next(one), next(other)

    assert [[begun[0], *one], [begun[1], *other]] == [whole, whole]


# --------------------------------------------------------------------------------------------------------------------- logs


def test_logs_are_found_where_o3de_puts_them(tmp_path: Path) -> None:
    cache = tmp_path / "Game/Cache"
    folder = tmp_path / "Game/user/log"
    assert logs.log_folder(cache) == cache / ".aptui/logs"
    (folder / "JobLogs/a").mkdir(parents=True)
    assert logs.log_folder(cache) == folder
    (cache / ".aptui").mkdir(parents=True)
    assert logs.log_folder(cache) == cache / ".aptui/logs"


def test_absolute_log_path_of_another_machine_is_resolved_beside_the_database(tmp_path: Path) -> None:
    here = tmp_path / "JobLogs/a.log"
    here.parent.mkdir()
    here.touch()

    assert logs.place_of(tmp_path, "JobLogs/a.log") == str(here)
    assert logs.place_of(tmp_path, str(here)) == str(here)
    assert logs.place_of(tmp_path, "/elsewhere/user/log/JobLogs/a.log") == str(here)
    assert logs.place_of(tmp_path, "D:\\game\\user\\log\\JobLogs\\a.log") == str(here)
    assert logs.place_of(tmp_path, "/elsewhere/a.log") == "/elsewhere/a.log"


@pytest.fixture
def temp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "temp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def database(tmp_path: Path) -> Path:
    with closing(sqlite3.connect(tmp_path / "a.sqlite")) as database:
        database.execute("CREATE TABLE t (x)")
        database.commit()
    return tmp_path / "a.sqlite"


def test_private_copy_locks_its_folder_and_removes_folders_of_dead_processes(temp: Path, database: Path) -> None:
    (temp / "aptui-copy-999999999-a").mkdir()
    copy = foreign.private_copy(database)

    assert list(temp.iterdir()) == [copy.parent]
    folder = os.open(copy.parent, os.O_RDONLY)
    with pytest.raises(BlockingIOError):
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(folder)
    foreign.forget_copies()
    assert list(temp.iterdir()) == []


def test_missing_folder_for_temporary_files_is_a_host_error(temp: Path, database: Path) -> None:
    temp.rmdir()

    with pytest.raises(HostError, match="cannot be copied to a temporary folder: No such file or directory"):
        foreign.private_copy(database)


NAMES = ["plain.sqlite", "a b.sqlite", "50%.sqlite", "what?mode=rwc", "#1", "größe", "~x&y=z;'", b"\xff.sqlite"]


@pytest.mark.parametrize("name", NAMES)
def test_uri_of_a_path_equals_the_uri_of_pathlib(name: str | bytes) -> None:
    path = Path("/folder") / os.fsdecode(name)

    assert uri_of(path) == path.as_uri()


@pytest.mark.parametrize("name", NAMES[:-1])
def test_a_file_of_any_name_is_read_and_cannot_be_written(tmp_path: Path, name: str) -> None:
    with closing(sqlite3.connect(tmp_path / name)) as database:
        database.execute("CREATE TABLE t(x)")

    for uri in (read_only_uri(tmp_path / name), read_only_uri(tmp_path / name, is_immutable=True)):
        with closing(sqlite3.connect(uri, uri=True)) as database:
            assert database.execute("SELECT name FROM sqlite_master").fetchall() == [("t",)]
            with pytest.raises(sqlite3.OperationalError):
                database.execute("CREATE TABLE u(x)")

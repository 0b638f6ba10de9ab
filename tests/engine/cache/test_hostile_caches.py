"""A cache that another program made: clean-up never touches files outside the cache.

The paths of its folders may be files or links, and its database may contain any name.
"""

from __future__ import annotations

import os
import socket
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from disk_project import HOST, Project
from live_project import LiveProject

from aptui.cli import main
from aptui.shared.errors import KnownError
from aptui.store.db import schema

pytestmark = pytest.mark.real

SETTINGS = """
scan_folders: [{name: game, path: assets}]
builders: [{name: data, copy: ["*.txt"]}, {name: bad, patterns: ["*.bad"], command: "test -z {source}"}]
"""
FOLDERS = (".aptui", ".aptui/staging", ".aptui/trash", ".aptui/logs", ".aptui/temp", HOST, "Intermediate Assets")
FILES = (
    ".aptui/lock",
    ".aptui/builders.json",
    "assetdb.sqlite",
    "assetdb.sqlite-wal",
    "assetdb.sqlite-shm",
    "assetdb.sqlite-journal",
    f"{HOST}.catalog.jsonl",
)


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder of the user beside the project. Its files have names that files of the cache also have; they must not change."""
    folder = tmp_path / "outside"
    for name in ("letter", "a.txt", "d/b.txt", "staging/s", "only/one", f"{HOST}/a.txt", "empty/deeper/file"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("mine")
    return folder


def contents(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() if path.is_file() else "" for path in folder.rglob("*")}


@pytest.fixture
def project(tmp_path: Path, outside: Path) -> Project:
    project = Project(tmp_path / "project", SETTINGS)
    for name in ("a.txt", "d/b.txt", "d/e/c.txt", "x.bad"):
        project.write(f"assets/{name}", name)
    project.engine_run()
    return project


def batch(project: Project) -> int:
    return main.main(["--project", str(project.root), "batch"])


def put_in_place(path: Path, kind: str, target: Path) -> None:
    """Put a link, a pipe, a socket or a file in the place of `path`."""
    if path.is_dir():
        path.rename(path.with_name(f"{path.name}.was"))
    else:
        path.unlink(missing_ok=True)
    if kind == "link":
        path.symlink_to(target)
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        here = os.getcwd()
        os.chdir(path.parent)  # bind to a relative name, because an absolute path may be too long for a socket
        try:
            with closing(socket.socket(socket.AF_UNIX)) as listening:
                listening.bind(path.name)
        finally:
            os.chdir(here)
    else:
        path.write_text("a file")


@pytest.mark.parametrize(
    ("place", "kind", "other"),
    [
        *((place, kind, "") for place in FOLDERS for kind in ("link", "pipe", "socket", "file")),
        *((place, kind, "letter") for place in FILES for kind in ("link", "pipe", "socket")),
    ],
)
def test_batch_refuses_an_engine_file_or_folder_of_an_unexpected_type(
    project: Project, outside: Path, capsys: pytest.CaptureFixture[str], place: str, kind: str, other: str
) -> None:
    put_in_place(project.cache / place, kind, outside / other)
    before = contents(outside)
    project.delete("assets/d")

    assert batch(project) == 3

    assert str(project.cache / place) in capsys.readouterr().err
    assert contents(outside) == before


@pytest.mark.parametrize("suffix", ["-wal", "-journal"])
@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_reading_verb_refuses_a_database_with_a_companion_of_an_unexpected_type(
    project: Project, outside: Path, capsys: pytest.CaptureFixture[str], suffix: str, kind: str
) -> None:
    place = project.cache / f"assetdb.sqlite{suffix}"
    put_in_place(place, kind, outside / "letter")

    assert main.main(["--project", str(project.root), "status"]) == 2

    assert str(place) in capsys.readouterr().err
    assert (outside / "letter").read_text() == "mine"


@pytest.mark.parametrize("place", ["staging", "trash", "logs"])
def test_stop_keeps_user_files_behind_a_linked_cache_folder(tmp_path: Path, outside: Path, place: str) -> None:
    project = LiveProject(tmp_path / "project", SETTINGS)
    project.write("assets/a.txt", "a")
    before = contents(outside)
    with project.running():
        put_in_place(project.cache / ".aptui" / place, "link", outside)
        project.write("assets/b.bad", "fails")
        project.delete("assets/a.txt")
        project.until(lambda: "a.txt" not in project.texts())

    assert before.items() <= contents(outside).items()  # a running job may have written a new log to the folder


@pytest.mark.parametrize("change", ["delete", "edit", "full"])
def test_link_or_pipe_below_a_platform_folder_changes_no_file_outside(project: Project, outside: Path, change: str) -> None:
    before = contents(outside)
    put_in_place(project.cache / HOST / "d", "link", outside / "d")
    put_in_place(project.cache / HOST / "a.txt", "pipe", outside)
    if change == "delete":
        project.delete("assets/d")
        project.delete("assets/a.txt")
    elif change == "edit":
        project.edit({"assets/d/b.txt": "edited", "assets/a.txt": "edited"})

    project.engine_run(is_full_scan=change == "full")

    assert contents(outside) == before


# ----------------------------------------------------------------------------------------------------- names in the database

NAMES = (
    "{host}/../../../outside/letter", "{host}/../../../outside/only/one", "../../outside/only/one",
    "{host}/./../../../outside/letter", "{host}//{outside}/letter", "{outside}/letter", "{outside}/only/one",
    "common/../../../outside/letter", ".aptui/lock", "assetdb.sqlite", ".", "..", "{host}/..",
    "{host}/d/../../../../outside/only/one",
)  # fmt: skip
COLUMNS = {
    "product": "UPDATE Products SET ProductName = ? WHERE ProductName LIKE '%/b.txt'",
    "folder": "UPDATE aptui_cache_folders SET name = ?, ctime_ns = 1 WHERE name LIKE '%/d'",
    "intent": "INSERT INTO aptui_intents(run_key, job_id, name, digest, size, stale) VALUES (1, 1, ?, x'00', 0, '[]')",
    "stale": "INSERT INTO aptui_intents(run_key, job_id, name, digest, size, stale) VALUES (1, 1, '', x'00', 0, json_array(?))",
    "log": "UPDATE Jobs SET LastLogFile = ?",
    "analysis log": """INSERT INTO aptui_analyses(
        source_id, builder, state, fingerprint, completed_ms, duration_ms, warnings, errors, error, log_file, reason, plans, failure
        ) SELECT MIN(SourceID), zeroblob(16), 'completed', 1, 0, 0, 0, 0, '', ?, '', x'90', '' FROM Sources""",
}


def put_name(project: Project, outside: Path, column: str, name: str) -> None:
    with closing(sqlite3.connect(project.cache / "assetdb.sqlite", isolation_level=None)) as database:
        database.execute(COLUMNS[column], (name.format(host=HOST, outside=outside),))


CASES = [
    *((column, name, "delete") for column in COLUMNS for name in (NAMES if column == "product" else NAMES[:2] + NAMES[5:7])),
    *(("product", name, change) for name in NAMES[:1] for change in ("edit", "nothing")),
]


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip the check of all names when the database is opened, so that hostile names reach the later checks."""
    monkeypatch.setattr(schema, "_ODD_NAME_SQL", "SELECT 1 WHERE 0")


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("column", "name", "change"), CASES)
def test_hostile_name_in_the_database_deletes_no_file_outside_the_cache(
    project: Project, outside: Path, column: str, name: str, change: str
) -> None:
    before = contents(outside)
    put_name(project, outside, column, name)
    if change == "delete":
        project.delete("assets/d")
        project.delete("assets/x.bad")
    elif change == "edit":
        project.edit({"assets/d/b.txt": "edited", "assets/x.bad": "edited"})

    try:
        project.engine_run()
        project.engine_run(is_full_scan=True)
    except KnownError:
        pass

    assert contents(outside) == before
    assert (project.cache / ".aptui/lock").is_file()
    assert (project.cache / "assetdb.sqlite").is_file()


@pytest.mark.usefixtures("unchecked")
def test_product_with_a_name_outside_the_cache_is_reported_and_not_deleted(project: Project, outside: Path) -> None:
    put_name(project, outside, "product", NAMES[0])
    project.delete("assets/d/b.txt")

    messages = project.engine_run().messages

    assert any("outside/letter' in the asset database was not deleted" in sentence for sentence in messages), messages


# ------------------------------------------------------------------------------------------------------ schema of the database

ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT"
SCHEMAS = {
    "Jobs": f"ALTER TABLE Jobs RENAME TO Old; CREATE VIEW Jobs AS {ENDLESS} x AS JobID FROM n",
    "dbinfo": f"DROP TABLE dbinfo; CREATE VIEW dbinfo AS {ENDLESS} 40 AS version FROM n",
    "aptui_state": f"DROP TABLE aptui_state; CREATE VIEW aptui_state AS {ENDLESS} 'schema' AS key, '12' AS value FROM n",
    "Files": f"DROP VIEW Files; CREATE VIEW Files AS {ENDLESS} x AS FileID FROM n",
    "odd": "CREATE TRIGGER odd AFTER INSERT ON aptui_runs BEGIN UPDATE Products SET ProductName = '../../outside/letter'; END",
    "extra": "CREATE TABLE extra (x)",
    "slow": "CREATE INDEX slow ON Products(length(hex(zeroblob(ProductID))))",
    "Jobs_go": "DROP TRIGGER aptui_jobs_go; CREATE TRIGGER aptui_jobs_go AFTER DELETE ON Jobs BEGIN DELETE FROM Products; END",
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_batch_sets_aside_a_database_with_a_foreign_schema(
    project: Project, outside: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(outside)
    with closing(sqlite3.connect(project.cache / "assetdb.sqlite")) as database:
        database.executescript(SCHEMAS[name])

    for verb in ("status", "jobs", "report", "size", "why", "lint"):
        words = (verb, "a.txt") if verb == "why" else (verb,)
        assert main.main(["--project", str(project.root), *words]) == 3, verb
    batch(project)

    text = capsys.readouterr().err
    assert "was moved to" in text or "was written by O3DE" in text, text
    assert contents(outside) == before
    if "was moved to" in text:
        assert project.texts()["d/b.txt"] == "d/b.txt"


@pytest.mark.parametrize("column", COLUMNS)
def test_database_is_checked_for_hostile_names_if_another_program_wrote_it(
    project: Project, outside: Path, capsys: pytest.CaptureFixture[str], column: str
) -> None:
    put_name(project, outside, column, NAMES[0])

    batch(project)

    assert f" '{HOST}/../../../outside/letter', whose path is outside the cache" in capsys.readouterr().err
    assert project.texts()["d/b.txt"] == "d/b.txt"
    assert contents(outside)["letter"] == "mine"


def test_engine_does_not_check_names_that_it_wrote_to_the_database(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "_ODD_NAME_SQL", "SELECT 'product', 'checked' ")

    assert not any("set aside" in sentence for sentence in project.engine_run().messages)
    assert not any("set aside" in sentence for sentence in project.engine_run({"assets/new.txt": "new"}).messages)
    assert not any("set aside" in sentence for sentence in project.engine_run().messages)

"""Catalogs: one per platform, made from the database, written again only after a change."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from unittest import mock

import pytest
from disk_project import Project
from live_project import LiveProject

from aptui.core.paths import path_uuid
from aptui.core.project import Platform
from aptui.core.project import Project as CoreProject
from aptui.engine.cache import catalog
from aptui.store.db.schema import CATALOG_STATE, uuid_text

pytestmark = pytest.mark.real

CONFIG = """
name: demo
platforms: {linux: {}, server: {}}
scan_folders: [{name: game, path: assets}]
builders:
  - {name: linked, uses: linked}
  - {name: copies, copy: ["*.bin"]}
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project(tmp_path / "project", CONFIG)
    made.write("builders/linked.py", (Path(__file__).parents[2] / "stories" / "linked.py").read_text())
    made.write("assets/Level.lnk", "source a.bin 1\non server source b.bin\nlegacy 44\ntext level")
    made.write("assets/a.bin", "a")
    made.write('assets/Ä "b".bin', "b")
    return made


def lines(project: Project, platform: str) -> list[dict]:
    text = catalog.path_of(project.cache, platform).read_text(encoding="utf-8")
    assert text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


def uuid(rel: str) -> str:
    return uuid_text(path_uuid(rel))


def test_a_catalog_lists_the_products_of_its_platform_by_path(project: Project) -> None:
    project.engine_run({"assets/b.bin": "b"})

    header, *products = lines(project, "server")
    assert header == {"format": "aptui catalog", "version": 1, "project": "demo", "platform": "server"}
    assert [each["path"] for each in products] == ["a.bin", "b.bin", "level.out", 'ä "b".bin']
    assert products[2] == {
        "id": f"{uuid('level.lnk')}:0",
        "path": "level.out",
        "type": "{00000000-0000-0000-0000-000000000000}",
        "size": 10,
        "digest": hashlib.sha256(b"text level").hexdigest(),
        "dependencies": sorted([[f"{uuid('a.bin')}:0", 1], [f"{uuid('b.bin')}:0", 2]]),
        "legacy": [f"{uuid('level.lnk')}:2c"],
    }
    assert lines(project, "linux")[3]["dependencies"] == [[f"{uuid('a.bin')}:0", 1]]


def test_catalogs_of_equal_databases_have_equal_bytes(project: Project, tmp_path: Path) -> None:
    project.engine_run()
    project.engine_run({"assets/a.bin": "other"}, workers=2)
    project.engine_run(sets=[f"cache={tmp_path / 'clean'}"])

    for platform in ("linux", "server"):
        assert catalog.path_of(tmp_path / "clean", platform).read_bytes() == catalog.path_of(project.cache, platform).read_bytes()


def test_catalog_of_unchanged_products_is_not_written_again(project: Project) -> None:
    project.engine_run()
    before = {path.name: os.stat(path).st_mtime_ns for path in project.cache.glob("*.jsonl")}

    project.touch("assets/a.bin")
    project.engine_run()
    project.engine_run(is_full_scan=True)

    assert {path.name: os.stat(path).st_mtime_ns for path in project.cache.glob("*.jsonl")} == before
    assert set(before) == {"linux.catalog.jsonl", "server.catalog.jsonl"}


@pytest.mark.parametrize("harm", ["deleted", "changed", "forgotten"])
def test_changed_catalog_is_written_again(project: Project, harm: str) -> None:
    project.engine_run()
    path = catalog.path_of(project.cache, "linux")
    before = path.read_bytes()
    if harm == "deleted":
        path.unlink()
    elif harm == "changed":
        path.write_bytes(b"scribble")
    else:  # as after a crash before the engine was idle: the catalog is old, and the database lacks its state
        with closing(sqlite3.connect(project.cache / "assetdb.sqlite")) as database:
            database.execute("DELETE FROM aptui_state WHERE key = ?", (CATALOG_STATE,))
            database.commit()
        path.write_bytes(b"old")

    ran = project.engine_run()

    assert path.read_bytes() == before
    assert (ran.runs, ran.messages) == ({}, [])


def test_deleted_product_is_removed_from_its_catalog(project: Project) -> None:
    project.engine_run()
    project.engine_run({"assets/a.bin": None})

    assert "a.bin" not in {each.get("path") for each in lines(project, "linux")}
    assert lines(project, "linux")[1]["dependencies"] == []


def test_catalog_of_a_removed_platform_is_deleted(project: Project) -> None:
    project.engine_run()
    project.config(CONFIG.replace(", server: {}", ""))

    project.engine_run()

    assert [path.name for path in project.cache.glob("*.jsonl")] == ["linux.catalog.jsonl"]


def test_platform_that_is_not_built_has_a_catalog() -> None:
    platforms = (Platform("linux"), Platform("common"))

    assert catalog.platforms_of(CoreProject(platforms, "linux", (), (), resting_platforms=("server",))) == ("linux", "server")


def test_live_engine_updates_catalogs_when_idle(project: Project) -> None:
    live = LiveProject(project.root, CONFIG)

    def listed() -> set[str]:
        return {each.get("path") for each in lines(live, "linux")} if catalog.path_of(live.cache, "linux").exists() else set()

    with live.running():
        live.until(lambda: "a.bin" in listed(), "the first catalog")
        live.write("assets/new.bin", "new")
        live.until(lambda: "new.bin" in listed(), "the next catalog")


def test_catalog_that_is_requested_while_the_writing_thread_ends_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saves: list[int] = []
    is_over = threading.Event()
    monkeypatch.setattr(catalog.Catalogs, "save", lambda _: saves.append(1))
    catalogs = catalog.Catalogs(mock.Mock(), tmp_path / "assetdb.sqlite", "demo", (), None)

    def note_saved() -> None:
        if len(saves) == 1:
            catalogs.begin(note_saved)
        else:
            is_over.set()

    catalogs.begin(note_saved)
    is_over.wait(10)

    assert len(saves) == 2

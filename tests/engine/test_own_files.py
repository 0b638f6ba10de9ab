"""aptui's own files below a scan folder are never sources, in a batch and in a running engine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from disk_project import Project
from live_project import LiveProject

from aptui.config import load
from aptui.config.own_files import OwnFiles, note_written, own_paths, writing
from aptui.features.relocation.moved_files import DiskTree

SETTINGS = """
platforms: {linux: {}}
scan_folders: [{name: all, path: .}]
local_store: {path: kept/store}
shared_cache: {mode: server, store: team/store, team_key_file: team.key, namespace: x}
builders: [{name: data, copy: ["*.txt", "*.json", "*.key", "secret", "*.xml", "*.log", "*"]}]
cache: Cache
"""
pytestmark = pytest.mark.real
OWN = ("Cache/x.txt", "kept/store/secret", "team/store/a.json", "team.key", "user/aptui/config/x.json", "logs/aptui/engine.log")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "p/user"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "p/logs"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "p/user"))
    made = Project(tmp_path / "p", SETTINGS)
    made.write("team.key", os.urandom(32).hex())
    made.path("team.key").chmod(0o600)
    made.write("a.txt", "a")
    return made


def sources(project: Project) -> set[str]:
    return {name.partition(":")[0] for name in project.statuses()}


def test_files_of_aptui_below_a_scan_folder_are_not_sources(project: Project) -> None:
    for name in OWN[1:]:
        if not project.path(name).exists():
            project.write(name, "own")

    project.engine_run()
    project.engine_run()

    assert sources(project) == {"a.txt"}
    assert set(project.texts()) == {"a.txt"}


def test_store_of_a_cluster_is_an_own_folder(project: Project) -> None:
    pool = "pool: {kind: dask, scheduler: 'tcp://127.0.0.1:8786', insecure: true, store: farm}\n"
    project.config(SETTINGS + pool)

    assert str(project.path("farm")) in own_paths(load.load(project.root))


def test_files_of_aptui_below_a_linked_scan_folder_are_not_sources(project: Project, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(project.root)
    project.config(SETTINGS.replace("path: .}", f"path: {tmp_path / 'link'}}}"))
    project.engine_run({"kept/store/secret": "own"})

    assert sources(project) == {"a.txt"}


@pytest.mark.parametrize("name", ["Cache", "kept/store"])
def test_scan_does_not_report_a_link_at_the_path_of_a_folder_of_aptui(project: Project, tmp_path: Path, name: str) -> None:
    (tmp_path / "elsewhere").mkdir()
    project.path(name).parent.mkdir(exist_ok=True)
    project.path(name).symlink_to(tmp_path / "elsewhere")
    (tmp_path / "other").mkdir()
    project.path("other").symlink_to(tmp_path / "other")

    ran = project.engine_run()

    assert [text for text in ran.messages if "link" in text] == [
        f"'{project.path('other')}' is a link to a folder, so its files are not sources"
    ]
    assert sources(project) == {"a.txt"}


def test_a_file_that_aptui_wrote_is_a_source_only_after_an_edit(project: Project) -> None:
    report = project.write("report.xml", "<testsuites/>")
    note_written(str(report))

    project.engine_run()
    assert sources(project) == {"a.txt"}

    project.engine_run({"report.xml": "<mine/>"})
    assert sources(project) == {"a.txt", "report.xml"}


def test_source_file_that_aptui_overwrote_is_no_longer_a_source(project: Project) -> None:
    report = project.write("report.xml", "<mine/>")
    project.engine_run()
    assert "report.xml" in sources(project)

    report.write_text("<testsuites/>")
    note_written(str(report))
    project.engine_run()

    assert sources(project) == {"a.txt"}
    assert set(project.texts()) == {"a.txt"}


def test_a_file_that_aptui_is_writing_is_not_a_source(tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    file.write_text("{")

    own = OwnFiles()

    def is_own() -> bool:
        own.refresh()
        return own.is_own_file(str(file), file.stat())

    with writing(str(file)):
        assert is_own()
        file.write_text("{}")
    assert is_own()
    file.write_text("other")
    assert not is_own()


def test_a_file_that_the_shell_redirects_output_to_is_not_a_source(project: Project) -> None:
    command = f"{sys.executable} -m aptui batch --json > out.json 2> err.txt"
    for _ in range(2):
        done = subprocess.run(command, shell=True, cwd=project.root, check=False)
        assert done.returncode == 0, project.path("err.txt").read_text()
        assert json.loads(project.path("out.json").read_text())["jobs_failed"] == 0
    subprocess.run(f"{sys.executable} -m aptui batch --junit report.xml", shell=True, cwd=project.root, check=True)

    project.engine_run()

    assert sources(project) == {"a.txt"}


def test_live_engine_ignores_new_files_of_aptui(project: Project) -> None:
    live = LiveProject(project.root, SETTINGS)
    live.write("notes.txt", "n")
    with live.running():
        for name in OWN[1:]:
            if not live.path(name).exists():
                live.write(name, "own")
        live.write("notes.txt", "report")
        note_written(str(live.path("notes.txt")))
        live.write("b.txt", "b")
        live.until(lambda: "b.txt" in sources(live) and "notes.txt" not in sources(live))
        live.until_idle()

        assert sources(live) == {"a.txt", "b.txt"}


def test_files_of_aptui_cannot_be_relocated(project: Project) -> None:
    secret = project.write("kept/store/secret", "own")

    assert DiskTree(load.load(project.root)).why_not_ours(str(secret))


def test_folder_of_aptui_that_contains_a_scan_folder_hides_no_sources(project: Project) -> None:
    project.config(SETTINGS.replace("path: .}", "path: kept/store/assets}"))
    project.write("kept/store/assets/b.txt", "b")

    assert not any(path.startswith(str(project.path("kept"))) for path in own_paths(load.load(project.root)))
    project.engine_run()
    assert sources(project) == {"b.txt"}


def test_engine_does_not_wait_for_a_file_that_a_batch_prints_to(project: Project) -> None:
    live = LiveProject(project.root, SETTINGS)
    with live.running(), open(live.path("out.json"), "wb") as stream:
        with_printing = f"{os.fstat(stream.fileno()).st_ino} {os.fstat(stream.fileno()).st_dev} printing {os.getpid()}\n"
        live.write("logs/aptui/written-files", with_printing)
        live.settle()

        assert sources(live) == {"a.txt"}

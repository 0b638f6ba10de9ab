"""An unreadable or suddenly empty folder does not count as deleted: the run reports an error, and the products stay.

With `--accept-empty`, a user confirms that a scan folder is really empty.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from disk_project import Project
from live_project import LiveProject

from aptui.cli import main
from aptui.engine.scan import walk

pytestmark = pytest.mark.real

SETTINGS = """
scan_folders: [{name: game, path: assets}, {name: shared, path: shared}]
builders: [{name: data, copy: ["*.txt"]}]
"""
FILES = ("assets/a.txt", "assets/d/b.txt", "assets/d/e/c.txt", "shared/s.txt", "shared/d/t.txt")
ALL = {"a.txt", "d/b.txt", "d/e/c.txt", "s.txt", "d/t.txt"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "project"


def filled(project: Project) -> None:
    for rel in FILES:
        project.write(rel, rel)


@pytest.fixture
def project(root: Path) -> Project:
    project = Project(root, SETTINGS)
    filled(project)
    project.engine_run()
    assert set(project.texts()) == ALL
    return project


class Disk:
    """Makes folders unreadable, as a change of permissions, a failing disk or a lost server would."""

    def __init__(self) -> None:
        self.broken: dict[str, int] = {}

    def scandir(self, path: str) -> Iterator[os.DirEntry[str]]:
        if path in self.broken:
            raise OSError(self.broken[path], os.strerror(self.broken[path]), path)
        return os.scandir(path)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk()
    monkeypatch.setattr(walk, "scandir", disk.scandir)
    return disk


def batch(root: Path, *options: str) -> int:
    return main.main(["--project", str(root), "batch", *options])


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO, errno.ESTALE, errno.ENOMEM])
@pytest.mark.parametrize("broken", ["assets/d", "assets/d/e", "assets"])
def test_unreadable_folder_keeps_its_products_and_the_exit_code_is_2(
    project: Project, disk: Disk, capsys: pytest.CaptureFixture[str], number: int, broken: str
) -> None:
    disk.broken[str(project.path(broken))] = number
    project.delete("shared/d/t.txt")

    for options in ([], ["--full-scan"], ["--set", "ignore=['*.bak']"], []):
        assert batch(project.root, *options) == 2
        assert "cannot be read" in capsys.readouterr().err
        assert set(project.texts()) == ALL - {"d/t.txt"}
    disk.broken.clear()
    project.delete("assets/d/e/c.txt")
    assert batch(project.root) == 0
    assert set(project.texts()) == ALL - {"d/t.txt", "d/e/c.txt"}
    assert batch(project.root) == 0


def test_json_report_of_a_batch_names_the_unreadable_folder(
    project: Project, disk: Disk, capsys: pytest.CaptureFixture[str]
) -> None:
    disk.broken[str(project.path("assets/d"))] = errno.EIO

    assert batch(project.root, "--json") == 2
    [sentence] = json.loads(capsys.readouterr().out)["unknown"]
    assert "Input/output error" in sentence


def test_suddenly_empty_scan_folder_is_an_error_until_it_is_accepted(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    project.move("assets", "elsewhere")
    project.path("assets").mkdir()
    project.path("assets/lost+found").mkdir()

    assert batch(project.root) == 2
    assert "--accept-empty game" in capsys.readouterr().err
    assert set(project.texts()) == ALL
    assert batch(project.root, "--accept-empty", "nobody") == 3
    assert batch(project.root, "--accept-empty", "game") == 0
    assert set(project.texts()) == {"s.txt", "d/t.txt"}
    project.delete("assets/lost+found")
    assert batch(project.root) == 0


def test_deletion_of_all_files_is_an_error_only_on_a_network_share(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    from aptui.engine.watch import limits

    project.delete("shared/d")
    project.delete("shared/s.txt")
    with monkeypatch.context() as patch:
        patch.setattr(limits, "kind_of", lambda *_: "nfs4")
        assert batch(project.root) == 2
        assert set(project.texts()) == ALL

    assert batch(project.root) == 0
    assert set(project.texts()) == {"a.txt", "d/b.txt", "d/e/c.txt"}


def test_acceptance_of_an_empty_scan_folder_ends_when_its_files_return(project: Project) -> None:
    project.move("assets", "elsewhere")
    project.path("assets").mkdir()
    assert batch(project.root, "--accept-empty", "game") == 0
    project.move("assets", "mountpoint")
    project.move("elsewhere", "assets")
    assert batch(project.root) == 0
    project.move("assets", "elsewhere")
    project.move("mountpoint", "assets")

    assert batch(project.root) == 2
    assert set(project.texts()) == ALL


def test_scan_folder_that_is_on_another_device_and_lacks_most_files_is_an_error(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    from aptui.engine.scan import walk

    identity = walk._identity
    monkeypatch.setattr(walk, "_identity", lambda path: (99, identity(path)[1]))
    project.delete("assets/d/e")
    assert batch(project.root) == 0
    monkeypatch.setattr(walk, "_identity", lambda path: (98, identity(path)[1]))
    project.delete("assets/d")
    project.edit({"assets/a.txt": None, "assets/other.txt": "other"})

    assert batch(project.root) == 2
    assert set(project.texts()) == ALL - {"d/e/c.txt"}


def test_running_engine_accepts_the_deletion_of_the_last_file_of_a_folder(root: Path) -> None:
    project = LiveProject(root, SETTINGS)
    filled(project)
    with project.running():
        project.delete("shared/d")
        project.delete("shared/s.txt")
        project.until(lambda: set(project.texts()) == {"a.txt", "d/b.txt", "d/e/c.txt"})


def test_running_engine_keeps_products_of_an_unreadable_or_empty_folder(root: Path, disk: Disk) -> None:
    project = LiveProject(root, SETTINGS)
    filled(project)
    with project.running() as live:
        disk.broken[str(project.path("assets/d"))] = errno.EACCES
        live.watching.rescan(retries=False)
        project.until(lambda: "cannot be read" in live.health.disk)
        project.edit({"assets/d/e/c.txt": None, "assets/a.txt": "changed"})
        project.until(lambda: project.texts().get("a.txt") == "changed")
        assert set(project.texts()) == ALL
        disk.broken.clear()
        os.chmod(project.path("assets/d"), 0o700)
        project.until(lambda: set(project.texts()) == ALL - {"d/e/c.txt"})
        project.until(lambda: not live.health.disk)

        project.move("shared", "elsewhere")
        project.path("shared").mkdir()
        project.until(lambda: "is empty" in live.health.disk)
        assert set(project.texts()) == ALL - {"d/e/c.txt"}
        project.path("shared").rmdir()
        project.move("elsewhere", "shared")
        project.until(lambda: live.engine is not None and not live.health.disk)
        project.until_idle()
        assert set(project.texts()) == ALL - {"d/e/c.txt"}


def test_missing_scan_folder_is_reported_as_a_configuration_error(project: Project) -> None:
    project.move("assets", "elsewhere")

    assert batch(project.root) == 3
    assert set(project.texts()) == ALL


def test_replaced_scan_folder_that_lacks_most_files_is_an_error(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    project = Project(root, SETTINGS)
    for number in range(1_000):
        project.write(f"assets/d{number % 10}/{number}.txt", str(number))
    project.engine_run({"shared/s.txt": "s"})
    project.move("assets", "elsewhere")
    for number in range(450):
        project.write(f"assets/d{number % 10}/{number}.txt", str(number))

    assert batch(project.root) == 2
    assert "which lacks 550 of its 1000 files" in capsys.readouterr().err
    assert len(project.texts()) == 1_001
    project.move("assets", "half")
    project.move("elsewhere", "assets")
    assert batch(project.root) == 0
    for number in range(400, 1_000):
        project.delete(f"assets/d{number % 10}/{number}.txt")
    assert batch(project.root) == 0, "the scan folder is still the same folder, so the deletion of most of its files is accepted"
    assert len(project.texts()) == 401


def test_running_engine_keeps_products_of_a_replaced_scan_folder(root: Path) -> None:
    project = LiveProject(root, SETTINGS)
    for number in range(1_000):
        project.write(f"assets/d{number % 10}/{number}.txt", str(number))
    project.write("shared/s.txt", "s")
    with project.running() as live:
        project.move("assets", "elsewhere")
        project.write("half/d0/0.txt", "0")
        for number in range(10):
            project.path(f"half/d{number}").mkdir(exist_ok=True)
        project.move("half", "assets")
        project.until(lambda: "was replaced by another folder" in live.health.disk)
        assert len(project.texts()) == 1_001

"""A full scan: finds changed bytes with unchanged times, and reports no file whose bytes are unchanged."""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path

import pytest
from disk_project import HOST, Project

from aptui.core.model import Digest
from aptui.engine.scan import up_to_date
from aptui.engine.scan.walk import Walk
from aptui.store.db.last_run import LastRun

CONFIG = 'scan_folders: [{name: game, path: assets}]\nbuilders: [{name: all, copy: ["*.txt"]}]\n'
FOLDERS = [f"f{number}/deep" for number in range(9)]
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize 5\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A built project on a file system that hides times of change."""
    read_all = Walk.read_folders

    def read_without_change_times(self, parts):
        entries, below = read_all(self, parts)
        return [(part, [(name, size, mtime, 0, inode) for name, size, mtime, _, inode in files]) for part, files in entries], below

    monkeypatch.setattr(Walk, "read_folders", read_without_change_times)
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    made = Project(tmp_path, CONFIG)
    for folder in FOLDERS:
        made.write(f"assets/{folder}/a.txt", folder)
        made.write(f"assets/{folder}/unwanted.bin", folder)
    made.engine_run()
    return made


def change_secretly(project: Project, rel: str) -> None:
    path = project.path(f"assets/{rel}")
    times = path.stat()
    path.write_bytes(bytes(times.st_size))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


@pytest.fixture(params=[1, 10_000], ids=["three processes", "one process"])
def processes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(up_to_date, "_FOLDERS_FOR_READERS", request.param)


@pytest.mark.real
@pytest.mark.usefixtures("processes")
def test_full_scan_finds_files_whose_bytes_changed_but_not_their_times(project: Project) -> None:
    for rel in ("f2/deep/a.txt", "f7/deep/a.txt"):
        change_secretly(project, rel)

    hidden = project.engine_run()
    found = project.engine_run(is_full_scan=True)

    assert not hidden.runs
    assert found.runs == {"f2/deep/a.txt:all": 1, "f7/deep/a.txt:all": 1}
    assert project.products()[f"{HOST}/f7/deep/a.txt"] == bytes(len("f7/deep"))


@pytest.mark.real
@pytest.mark.usefixtures("processes")
def test_full_scan_opens_no_engine_if_all_bytes_are_unchanged(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aptui.engine.loop.engine.Engine.open", None)

    assert not project.engine_run(is_full_scan=True).runs


@pytest.mark.real
def test_full_scan_does_not_read_files_without_a_builder(project: Project) -> None:
    change_secretly(project, "f3/deep/unwanted.bin")

    assert not project.engine_run(is_full_scan=True).runs


@pytest.mark.real
def test_full_scan_reads_the_files_that_a_dead_child_process_did_not_read(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    change_secretly(project, "f5/deep/a.txt")
    monkeypatch.setattr(up_to_date, "_FOLDERS_FOR_READERS", 1)
    parent = os.getpid()

    def open_digests(self):
        if os.getpid() != parent:
            os._exit(1)
        return contextlib.closing(LastRun(self.database, {}))

    monkeypatch.setattr("aptui.engine.loop.opening.PreparedSession._open_digests", open_digests)

    assert project.engine_run(is_full_scan=True).runs == {"f5/deep/a.txt:all": 1}


@pytest.mark.parametrize("size", [0, 5, up_to_date._CHUNK_BYTES, up_to_date._CHUNK_BYTES + 1])
def test_digest_of_a_file_of_any_size_is_verified(tmp_path: Path, size: int) -> None:
    path = tmp_path / "a"
    path.write_bytes(os.urandom(size))
    digest = Digest(hashlib.sha256(path.read_bytes()).digest())

    assert up_to_date.has_digest(str(path), size, digest)
    assert not up_to_date.has_digest(str(path), size, Digest(bytes(32)))


def test_a_file_that_grew_or_is_missing_or_is_irregular_has_no_digest(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"hello")
    digest = Digest(hashlib.sha256(b"hell").digest())

    assert not up_to_date.has_digest(str(path), 4, digest)
    assert not up_to_date.has_digest(str(tmp_path / "gone"), 4, digest)
    assert not up_to_date.has_digest(str(tmp_path), 4, digest)


def test_git_lfs_pointer_counts_as_a_file_with_the_digest_in_the_pointer(tmp_path: Path) -> None:
    path = tmp_path / "a"
    digest = hashlib.sha256(b"large")
    path.write_text(POINTER.format(digest.hexdigest()))

    assert up_to_date.has_digest(str(path), path.stat().st_size, Digest(digest.digest()))

"""Deletions: rows are deleted before files, and no job reads a file that is about to be deleted."""

from __future__ import annotations

import math
from collections import deque
from pathlib import Path
from types import SimpleNamespace

import pytest
from disk_project import Project

from aptui.core.messages import DeleteProducts, Rows, SaveRows
from aptui.engine.cache.cache import Cache
from aptui.engine.loop.commands import Deletions


class Notes:
    """A double of the cache, the writer and the publisher that records calls."""

    def __init__(self) -> None:
        self.done: list[object] = []
        self.news = SimpleNamespace(from_threads=deque())
        self.cache = self.writer = self

    def delete(self, names: tuple[str, ...]) -> list[str]:
        self.done.append(names)
        return [f"'{name}' stays" for name in names if "busy" in name]

    def doubt_rows(self, folders: set[str]) -> Rows:
        return {"put_cache_folder": [(folder, 0) for folder in sorted(folders)]} if folders else {}

    def run(self, _rows: Rows, *, durable: bool) -> None:
        self.done.append(("saved", durable))


@pytest.fixture
def notes() -> Notes:
    return Notes()


@pytest.fixture
def deletions(notes: Notes) -> Deletions:
    return Deletions(notes)  # type: ignore[arg-type]  # all that it asks of an engine


def test_products_are_deleted_only_after_their_rows_are_saved(notes: Notes, deletions: Deletions) -> None:
    deletions.put(DeleteProducts(1, ("linux/f/a", "linux/f/busy"), 7))
    rows = deletions.announce(SaveRows(1, 7, {}), {"drop_job": [(1,)]})
    deletions.perform_urgent()
    deletions.perform(6)
    assert notes.done == []

    deletions.perform(7)

    assert rows == {"drop_job": [(1,)], "put_cache_folder": [("linux/f", 0)]}
    assert notes.done == [("linux/f/a", "linux/f/busy")]
    assert list(notes.news.from_threads) == ["'linux/f/busy' stays"]


def test_urgent_deletion_removes_products_at_once_if_no_rows_are_pending(notes: Notes, deletions: Deletions) -> None:
    deletions.put(DeleteProducts(1, ("linux/a",), 7))

    deletions.perform_urgent()

    assert notes.done == [("saved", True), ("linux/a",)]


def test_intermediate_is_deleted_only_after_its_database_rows_are_saved(notes: Notes, deletions: Deletions) -> None:
    deletions.put(DeleteProducts(1, ("common/a",), 7))
    deletions.announce(SaveRows(1, 7, {}), {})

    deletions.perform_urgent()

    assert notes.done == [("saved", True), ("common/a",)]


def test_engine_does_not_wait_for_the_writer_if_it_has_no_deletions(notes: Notes, deletions: Deletions) -> None:
    assert deletions.announce(SaveRows(1, 7, {}), {}) == {}

    deletions.perform_urgent()
    deletions.perform_all()

    assert notes.done == []


CHAIN = """
scan_folders: [{name: game, path: assets}]
builders:
  - {name: first, patterns: ["*.top"], version: 1, intermediate: true, command: "cp {source} {products_dir}/{stem}.mid"}
  - {name: second, patterns: ["*.mid"], version: 1, intermediate: true, command: "cp {source} {products_dir}/{stem}.low"}
  - {name: third, copy: ["*.low"]}
"""


class Died(BaseException):
    """Raised in place of a kill of the engine."""


def die(*_: object) -> list[str]:
    raise Died


@pytest.mark.real
def test_start_after_a_crash_deletes_products_of_a_deleted_intermediate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = Project(tmp_path / "project", CHAIN)
    project.engine_run({"assets/a/x.top": "x", "assets/a/y.top": "y"})
    project.delete("assets/a/x.top")
    with monkeypatch.context() as dying:
        dying.setattr(Cache, "delete", die)
        with pytest.raises(Died):
            project.engine_run()
    assert project.path("Cache/Intermediate Assets/a/x.mid").exists()

    project.engine_run()

    assert not [name for name in project.products() if "x." in name]
    assert len([name for name in project.products() if "y." in name]) == 3


READER = """
from pathlib import Path
from aptui.sdk import CreateJobsResponse, JobDependency, JobDescriptor, JobProduct, ProcessJobResponse, Result

class Reader:
    name, version = "reader", 1

    def create_jobs(self, request):
        wanted = [] if request.source.endswith("a.in") else ["a.in"]
        return CreateJobsResponse(Result.SUCCESS, [
            JobDescriptor("main", platform.id, job_dependencies=[JobDependency(name, "main", platform.id) for name in wanted])
            for platform in request.platforms
        ])

    def process_job(self, request):
        other = Path("CACHE", request.platform.id, "a.in")
        path = Path(request.products_dir) / Path(request.source).name
        path.write_text(f"{request.source} and {other.exists() and not request.source.endswith('a.in')}")
        return ProcessJobResponse(Result.SUCCESS, [JobProduct(str(path), 0)])
"""


@pytest.mark.real
def test_dependent_job_does_not_find_deleted_products(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = Project(
        tmp_path / "project",
        'scan_folders: [{name: game, path: assets}]\nbuilders: [{name: reader, uses: reader, patterns: ["*.in"]}]\n',
    )
    project.write("builders/reader.py", READER.replace("CACHE", str(project.path("Cache"))))
    project.engine_run({"assets/a.in": "x", "assets/b.in": "x"})
    assert project.products()["linux/b.in"] == b"b.in and True"
    perform = Deletions.perform
    late = math.inf
    monkeypatch.setattr(Deletions, "perform", lambda self, ticket: perform(self, ticket) if ticket == late else None)

    project.engine_run({"assets/a.in": None})

    assert project.products() == {"linux/b.in": b"b.in and False"}

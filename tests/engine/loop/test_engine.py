"""The engine's loop over a real folder: its work, its notices, and its exit after errors of the system."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest
from disk_project import COPIES, HOST, Project
from msgspec.structs import replace
from scripted_source import SCRIPTED
from waiting import until

from aptui.config import load
from aptui.core.messages import HashFiles, Rows, StartRuns
from aptui.core.model import PathKey
from aptui.core.notices import EngineMessage, JobChanged, Notice, ProductsChanged
from aptui.engine.cache import cache as cache_harness
from aptui.engine.loop import engine as saved_rows
from aptui.engine.loop.dispatch import RunDispatcher
from aptui.engine.loop.engine import Engine
from aptui.engine.loop.hashing import HashQueue
from aptui.shared.errors import HostError, UserError
from aptui.store.db.writer import Writer

pytestmark = pytest.mark.real

POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 5\n"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = Project(tmp_path / "project", COPIES)
    project.write("assets/a.txt", "a")
    return project


def engine_of(project: Project, news: list[Notice], *, wants_all_news: bool = False) -> Engine:
    engine = Engine(load.load(project.root, workers=1), [news.append], wants_all_news=wants_all_news)
    engine.open()
    engine.start_scan()
    return engine


def test_listener_gets_a_notice_for_every_step_of_a_job(project: Project) -> None:
    news: list[Notice] = []
    engine = engine_of(project, news, wants_all_news=True)
    engine.run_until_idle()
    engine.close()

    assert [notice.status for notice in news if isinstance(notice, JobChanged)] == ["pending", "processing", "completed"]


def test_products_are_reported_only_after_they_are_in_the_cache(project: Project) -> None:
    seen: list[tuple[str, bool]] = []

    def note(notice: Notice) -> None:
        if isinstance(notice, ProductsChanged):
            seen.extend((name, (project.cache / name).exists()) for name, _digest in notice.products)

    engine = Engine(load.load(project.root, workers=1), [note])
    engine.open()
    engine.start_scan()
    engine.run_until_idle()
    engine.close()

    assert seen == [("linux/a.txt", True)]


def test_new_files_of_a_copy_rule_are_sent_to_workers_once(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(300):
        project.write(f"assets/{number % 3}/{number}.txt", f"{number}")
    orders: list[StartRuns] = []
    monkeypatch.setattr(RunDispatcher, "start", lambda _self, command: orders.append(command))

    ran = project.engine_run()

    assert orders == []
    assert sum(ran.runs.values()) == 301
    assert project.texts() == {"a.txt": "a", **{f"{number % 3}/{number}.txt": f"{number}" for number in range(300)}}
    project.check_rest()
    assert not list((project.cache / ".aptui" / "staging").iterdir())
    assert not project.engine_run().runs


def test_rows_of_failed_and_completed_jobs_are_saved_in_ascending_order(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this test each save order is a separate transaction, as on a busy machine."""
    tickets: list[int] = []

    def save(writer: Writer, ticket: int, rows: Rows) -> None:
        tickets.append(ticket)
        saved(writer, ticket, rows)
        writer.run({}, durable=False)

    saved = Writer.save
    monkeypatch.setattr(Writer, "save", save)
    for number in range(6):
        project.edit({f"assets/good{number}/a.txt": f"text {number}", f"assets/bad{number}/a.txt": POINTER})
    engine = engine_of(project, [], wants_all_news=True)
    engine.run_until_idle()
    engine.close()

    assert tickets == sorted(set(tickets))
    statuses = project.statuses()
    assert [statuses[f"{name}0/a.txt:data"] for name in ("bad", "good")] == ["failed", "completed"]


def test_idle_engine_reports_rows_that_are_not_saved(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    news: list[Notice] = []
    held: list[tuple[Writer, int, Rows]] = []

    def save(writer: Writer, ticket: int, rows: Rows) -> None:
        if (project.cache / f"{HOST}/a.txt").exists():
            held.append((writer, ticket, rows))
        else:
            saved(writer, ticket, rows)

    saved = Writer.save
    monkeypatch.setattr(saved_rows, "OVERDUE_S", 0.0)
    engine = engine_of(project, news)
    monkeypatch.setattr(Writer, "save", save)
    until(lambda: any(isinstance(notice, EngineMessage) for notice in news), step=lambda _left_s: engine.turn(0.01))
    for given in held:
        saved(*given)
    monkeypatch.undo()
    engine.run_until_idle()
    engine.close()

    (text,) = [notice.text for notice in news if isinstance(notice, EngineMessage)]
    assert "all jobs are done" in text
    assert "of the asset database did not end within" in text


def test_jobs_that_a_stopped_engine_did_not_run_are_pending(project: Project) -> None:
    engine = engine_of(project, [])
    engine.stop()
    engine.run_until_idle()
    engine.close()

    ran = project.engine_run()

    assert dict(ran.runs) == {"a.txt:data": 1}


def test_disk_error_is_raised_as_a_host_error(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engine_of(project, [])

    def broken(*_args: object) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", broken)
        with pytest.raises(HostError, match="Input/output error"):
            engine.run_until_idle()
    engine.close()

    project.engine_run()
    project.check_rest()
    assert project.texts() == {"a.txt": "a"}


def test_engine_releases_the_cache_if_it_cannot_open_on_a_full_disk(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(cache_harness, "RESERVE_BYTES", 1 << 62)
        with pytest.raises(HostError, match="is full"):
            engine_of(project, [])

    assert dict(project.engine_run().runs) == {"a.txt:data": 1}


def test_product_of_an_unreadable_source_is_kept_until_the_next_run(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.engine_run()
    project.write("assets/a.txt", "aa")
    hashed = HashQueue.accept_result

    def unreadable(self: Engine, result: object) -> None:
        hashed(self, replace(result, errors=((0, "Permission denied"),)))  # type: ignore[arg-type, type-var]

    with monkeypatch.context() as patch:
        patch.setattr(HashQueue, "accept_result", unreadable)
        project.engine_run()
        errors, texts = project.errors(), project.texts()
    project.engine_run()

    assert "Permission denied" in str(errors)
    assert texts == {"a.txt": "a"}
    assert project.texts() == {"a.txt": "aa"}
    assert set(project.statuses().values()) == {"completed"}


def test_request_to_reprocess_replaces_a_damaged_product(project: Project) -> None:
    project.engine_run()
    (project.cache / "linux/a.txt").write_text("damaged")
    engine = engine_of(project, [])
    engine.ask("reprocess", keys=[PathKey("a.txt")])
    engine.run_until_idle()
    engine.close()

    assert project.texts() == {"a.txt": "a"}


def test_logs_of_earlier_runs_are_deleted_when_the_engine_closes(project: Project) -> None:
    """The first and the last five runs of a failing job stay."""
    logs = project.cache / ".aptui" / "logs" / "JobLogs"
    for number in range(17):
        project.engine_run({"builders/scripted.py": SCRIPTED, "assets/b.scr": f"fail {number}"})

    assert 5 <= len(list(logs.glob("b.scr-*"))) <= 7


def test_shared_dependency_is_read_in_the_first_run_and_not_in_later_runs(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    add = HashQueue.add

    def noted(queue: HashQueue, command: HashFiles) -> None:
        read.extend(fact.rel for fact in command.files)
        add(queue, command)

    monkeypatch.setattr(HashQueue, "add", noted)
    project.edit({"builders/scripted.py": SCRIPTED, "assets/shared.inc": "shared"})
    for number in range(20):
        project.write(f"assets/{number}.scr", f"use shared.inc\ntext {number}")
    project.engine_run()
    assert read.count("shared.inc") == 1

    for text in ("second", "third"):
        read.clear()
        ran = project.engine_run({"assets/7.scr": f"use shared.inc\ntext {text}"})
        assert read == ["7.scr"]
        assert (dict(ran.runs), ran.analysed) == ({"7.scr:scripted": 1}, 1)

    assert sum(project.engine_run({"assets/shared.inc": "changed"}).runs.values()) == 20
    project.check_rest()


def test_undecodable_project_path_is_refused(project: Project, tmp_path: Path) -> None:
    strange = Project(tmp_path / os.fsdecode(b"caf\xe9"), COPIES)

    with pytest.raises(UserError, match="is not valid UTF-8"):
        strange.engine_run()

    assert not strange.cache.exists()


def test_closed_engine_leaves_no_descriptor_open(project: Project) -> None:
    project.engine_run()
    gc.collect()  # otherwise open files of earlier tests may be closed between the two counts of descriptors
    before = len(os.listdir("/proc/self/fd"))
    for number in range(3):
        project.engine_run({"assets/a.txt": f"version {number}"})

    assert len(os.listdir("/proc/self/fd")) == before

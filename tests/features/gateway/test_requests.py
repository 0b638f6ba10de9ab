"""Barriers: rows that are read after a barrier include all earlier writes."""

from __future__ import annotations

import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from disk_project import COPIES
from live_project import LiveProject, Request

from aptui.engine.cache.cache import Cache
from aptui.engine.live.supervisor import EngineSupervisor
from aptui.features.gateway.engine_requests import Barrier
from aptui.store.queries.reader import open_reader

pytestmark = pytest.mark.real


def statuses(project: LiveProject, source: str) -> list[str]:
    with closing(open_reader(project.cache / "assetdb.sqlite")) as reader:
        return [job.status for job in reader.jobs() if job.source == source]


def is_all_known(live: EngineSupervisor) -> bool:
    return live.watching.is_quiet and live.engine is not None and live.engine.pipeline.status().reading == 0


def test_barrier_is_answered_after_the_jobs_of_new_files_are_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = LiveProject(tmp_path / "project", COPIES)
    project.write("assets/a.txt", "a")
    may_commit, commit = threading.Event(), Cache.commit

    def commit_later(cache: Cache, *words: Any, **more: Any) -> Any:
        assert may_commit.wait(60)
        return commit(cache, *words, **more)

    may_commit.set()
    with project.running() as live:
        may_commit.clear()
        monkeypatch.setattr(Cache, "commit", commit_later)
        project.write("assets/b.txt", "b")
        request = Request(Barrier())
        project.handler.handle(request)
        project.until(lambda: live.engine is not None and live.engine.pipeline.jobs.memory.unsaved.has_any, "its copy is committed")
        # During a commit, the engine receives no notification. So the notification about the barrier arrives after the commit, and
        # the barrier can be passed only then.
        project.until(lambda: live.engine is not None and (live.engine.is_committing or is_all_known(live)), "all files are known")
        for _turn in range(5):
            live.turn()
        has_passed, rows = request.is_over, statuses(project, "b.txt")

        may_commit.set()
        project.until(lambda: request.is_over, "the barrier")
        assert not has_passed or rows, "the request `Barrier` was answered before the job was stored"
        assert request.answered is not None
        assert request.answered["is_whole"]
        assert statuses(project, "b.txt") in (["pending"], ["completed"])

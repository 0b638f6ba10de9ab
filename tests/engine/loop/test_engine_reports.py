"""Reports of the engine: progress with timers and estimate, and messages that are reported only once."""

from __future__ import annotations

import os
from pathlib import Path

from msgspec.structs import replace

from aptui import __version__
from aptui.core.model import RelPath, RunKey
from aptui.core.notices import EngineMessage, JobChanged, LogLevel, Notice, Progress
from aptui.engine.loop.engine_reports import NoticePublisher
from aptui.store.joblog import parse


def counts(*, waiting: int = 0, running: int = 0, done: int = 0, is_scanning: bool = False) -> Progress:
    return Progress(1, 0, 0, 0, waiting, running, done, 0, is_scanning)


def progress_after(*steps: tuple[float, Progress]) -> list[Progress]:
    received: list[Notice] = []
    news = NoticePublisher([received.append])
    for now, step in steps:
        news.notify_progress(step, now, is_processing=step.jobs_running > 0)
    return [notice for notice in received if isinstance(notice, Progress)]


def test_timers_of_the_progress_restart_when_new_work_begins() -> None:
    first = progress_after(
        (100.0, counts(is_scanning=True)), (100.5, counts(is_scanning=True, running=1)), (101.0, counts(running=1))
    )[-1]
    second = progress_after(
        (100.0, counts(running=1)), (100.5, counts(running=1)), (101.0, counts(done=1)), (200.0, counts(running=1))
    )[-1]

    assert (first.scan_ms, first.processing_ms) == (500, 1000)
    assert second.processing_ms <= 1000


def test_scan_without_changes_keeps_the_reported_processing_time() -> None:
    worked = (100.0, counts(running=1)), (100.5, counts(running=1)), (101.0, counts(done=1))
    checking = progress_after(
        *worked, (200.0, counts(done=1, is_scanning=True)), (200.1, counts(done=1, is_scanning=True)), (201.0, counts(done=1))
    )
    copied = progress_after(*worked, (200.0, counts(done=1, waiting=1)), (201.0, counts(done=2)))

    assert (checking[-1].scan_ms, checking[-1].processing_ms) == (99, 500)
    assert copied[-1].processing_ms == 0, "the time of earlier work is not included"


def test_progress_separates_earlier_runs_from_runs_of_the_current_work() -> None:
    before = counts(done=10_000)

    first = progress_after((100.0, counts(waiting=5)), (101.0, counts(done=4, running=1)))[-1]
    second = progress_after((100.0, before), (200.0, counts(done=10_000, waiting=6)), (201.0, counts(done=10_004, running=2)))[-1]

    assert (first.done_before, first.done_now) == (0, 4)
    assert (second.done_before, second.done_now, second.failed_now) == (10_000, 4, 0)


def test_progress_of_an_idle_engine_is_reported_once() -> None:
    idle = counts(done=3)

    assert len(progress_after((100.0, idle), (101.0, idle), (102.0, idle))) == 1


def test_the_log_of_the_engine_begins_with_its_process_and_lists_job_steps(tmp_path: Path) -> None:
    begun = JobChanged(
        1, 7, RelPath("a.stl"), 1, "linux", "levels", "levels", "processing", "new source", "", 0, 0, 0, "", RunKey(3)
    )  # fmt: skip
    ended = replace(begun, status="completed", duration_ms=1200)
    for reports_jobs in (False, True):
        news = NoticePublisher([])
        news.open_log(tmp_path, logs_jobs=reports_jobs)
        news.notify(begun)
        news.notify(ended)
        news.notify(replace(begun, status="failed", error="a.stl:3:1: broken"))
        news.close()

    lines = [(line.level, line.text) for line in parse(tmp_path / "aptui.log")]
    begins = (LogLevel.INFO, f"aptui {__version__} started as process {os.getpid()}")
    failed = (LogLevel.ERROR, "failed a.stl (linux, levels): 3:1: broken")
    assert lines[:3] == [begins, failed, begins]
    assert lines[3:] == [
        (LogLevel.DEBUG, "processing a.stl (linux, levels): new source"),
        (LogLevel.DEBUG, "completed a.stl (linux, levels) after 1,200 ms"),
        failed,
    ]


def test_notice_publisher_reports_a_repeated_message_only_once() -> None:
    received: list[Notice] = []
    news = NoticePublisher([received.append])
    news.say_once("a link leads nowhere")
    news.say_once("a link leads nowhere")

    assert [notice.text for notice in received if isinstance(notice, EngineMessage)] == ["a link leads nowhere"]

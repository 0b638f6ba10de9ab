"""That a job runs is told when a worker is at it, not when it was handed over; what comes after takes its place."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from aptui.core.model import RelPath, RunKey
from aptui.core.notices import JobChanged, Notice
from aptui.engine.loop.reports import NoticePublisher


def job(job_id: int, status: str, run_key: int = 0) -> JobChanged:
    values: dict[str, Any] = {
        "cause": 4, "job_id": job_id, "source": RelPath(f"{job_id}.png"), "scan_folder": 1, "platform": "linux", "job_key": "Image",
        "builder": "image", "status": status, "reason": "", "error": "", "warnings": 0, "errors": 0, "duration_ms": 0,
        "log_file": "", "run_key": RunKey(run_key),
    }  # fmt: skip
    return JobChanged(**values)


def publisher() -> tuple[NoticePublisher, list[tuple[int, str]]]:
    heard: list[tuple[int, str]] = []

    def hear(notice: Notice) -> None:
        assert isinstance(notice, JobChanged)
        heard.append((notice.job_id, notice.status))

    return NoticePublisher([hear]), heard


def test_a_run_is_told_when_a_worker_is_at_it() -> None:
    news, heard = publisher()
    for job_id in (1, 2):
        news.notify(job(job_id, "processing", 10 + job_id))
    assert heard == []
    assert news.begun.waiting_ids() == {1, 2}

    news.notify_started([11])
    news.notify_started([11])
    assert heard == [(1, "processing")]
    assert news.begun.waiting_ids() == {2}

    news.notify(job(2, "cancelled", 12))
    news.notify_started([12])
    news.notify(job(1, "completed", 11))

    assert heard == [(1, "processing"), (2, "cancelled"), (1, "completed")]
    assert not news.begun


def test_a_run_of_an_analysis_and_a_new_run_of_the_same_job_are_kept_apart() -> None:
    news, heard = publisher()
    news.notify(job(0, "processing", 20))
    news.notify(job(3, "processing", 21))
    news.notify(job(3, "processing", 22))

    news.notify_started([20, 21])
    assert heard == [(0, "processing")]
    news.notify_started([22])

    assert heard == [(0, "processing"), (3, "processing")]


def test_a_run_that_ends_before_anybody_saw_a_worker_at_it_is_told_with_its_end() -> None:
    news, heard = publisher()
    for job_id, end in enumerate(("completed", "failed"), 1):
        news.notify(job(job_id, "processing", 10 + job_id))
        news.notify(job(job_id, end, 10 + job_id))

    assert heard == [(1, "processing"), (1, "completed"), (2, "processing"), (2, "failed")]
    assert not news.begun


def test_a_job_that_needed_no_run_after_all_is_not_told_as_running() -> None:
    news, heard = publisher()
    news.notify(job(1, "processing", 11))
    news.notify(replace(job(1, "completed", 11), is_run=False))
    news.notify(job(2, "processing", 12))
    news.notify(job(2, "completed", 9))

    assert heard == [(1, "completed"), (2, "completed")]

"""The status record of the pipeline: its counts are correct at every moment."""

from __future__ import annotations

from fake_world import World
from fakes import Setup, copier, scripter

from aptui.core.messages import SlotsFree


def owing() -> World:
    """Return a simulated engine that has read all files and has not started a run."""
    world = World(Setup(builders=(copier(), scripter())))
    world.slots = 0
    world.edit({"a.txt": "1", "b.txt": "2", "c.s": "job main linux"})
    world.process()
    return world


def test_status_counts_ready_and_running_jobs_apart_from_analyses() -> None:
    world = owing()

    before = world.pipeline.status()
    world.pipeline.handle(SlotsFree(1_000, 1, jobs=1))
    after = world.pipeline.status()

    assert (before.ready_jobs, before.ready_analyses, before.running_jobs, before.running_analyses) == (2, 1, 0, 0)
    assert world.pipeline.jobs.backlog == 3
    assert after.running_jobs + after.running_analyses == 1
    assert before.is_analysing
    assert before.is_scanned


def test_pending_jobs_are_counted_by_platform() -> None:
    waiting = owing().pipeline.count_pending()

    assert (dict(waiting.pending), dict(waiting.critical), waiting.analyses) == ({"linux": 2}, {"linux": 0}, 1)


def test_idle_pipeline_counts_ended_runs_and_no_pending_jobs() -> None:
    world = World(Setup(builders=(copier(), scripter()))).apply({"a.txt": "1", "c.s": "job main linux"})

    status, waiting = world.pipeline.status(), world.pipeline.count_pending()

    assert (status.run, status.failed, status.done) == (2, 0, 2)
    assert (world.pipeline.jobs.backlog, status.reading, status.is_analysing, status.failing) == (0, 0, False, 0)
    assert (dict(waiting.pending), waiting.analyses) == ({}, 0)


def test_next_job_is_the_first_in_the_queue_or_the_named_job() -> None:
    pipeline = owing().pipeline
    jobs = [job for job in pipeline.jobs.ready if not job.is_analysis]

    assert pipeline.next_job() is pipeline.jobs.ready.peek()
    assert pipeline.next_job(jobs[-1].id) is jobs[-1]
    assert pipeline.next_job(4711) is None


def test_running_jobs_are_listed_without_analyses() -> None:
    pipeline = owing().pipeline

    pipeline.handle(SlotsFree(1_000, 4))

    assert sorted(pipeline.running_job_ids()) == sorted(job.id for job in pipeline.jobs.running.values() if not job.is_analysis)
    assert 0 not in pipeline.running_job_ids()

"""The pipeline's set of jobs, tested alone: every transition has the effects in the table of the job machine."""

from __future__ import annotations

import itertools

import pytest

from aptui.core.machine import TABLE, Effect, Trigger
from aptui.core.messages import Command, DiscardStaging, DropLogs, KillRuns
from aptui.core.model import ANALYSIS_KEY, Job, JobState, PathKey, RelPath, RunKey, Source, SourceUuid
from aptui.core.pipeline.failures import Failures
from aptui.core.pipeline.jobs import Jobs, Waiters
from aptui.core.state.graph import SCAN_END
from tests.fakes import FakeArchive, Setup, scripter

FILLED = [(state, trigger) for state, row in TABLE.items() for trigger in row]


def some_jobs() -> Jobs:
    """Return a set of jobs with one builder and without sources."""
    setup = Setup(builders=(scripter(),))
    return Jobs(setup.project({"game": 1}), FakeArchive(), lambda job, _builder: f"log-{job.run_key}")


def job_in(jobs: Jobs, state: JobState | None, key: str = "main") -> Job:
    """Return a job in the given state, with the fields that the pipeline would have set by then."""
    source = Source(PathKey("a.s"), RelPath("a.s"), 1, SourceUuid(bytes(16)), id=1)
    platform = "" if key == ANALYSIS_KEY else "linux"
    job = source.jobs[scripter().uuid, platform, key] = Job(source, scripter().uuid, platform, key, id=7, state=state)
    job.log_file = "log"
    jobs.memory.add(source)
    if state is JobState.QUEUED:
        jobs.ready.push(job)
    if state is JobState.RUNNING:
        job.run_key = RunKey(99)
        jobs.running[99] = job
    return job


def test_job_that_waits_for_many_keys_is_evaluated_when_half_of_them_are_known() -> None:
    waiters, job = Waiters(), job_in(some_jobs(), JobState.WAITING)
    keys = [PathKey(f"{number:02}") for number in range(20)]
    waiters.add_all(keys, job)

    assert [waiters.pop(key) for key in keys[:10]] == [[]] * 9 + [[job]]
    waiters.add_all(keys[10:], job)
    assert [waiters.pop(key) for key in keys[10:15]] == [[]] * 4 + [[job]]
    waiters.add_all(keys[15:], job)
    assert [waiters.pop(key) for key in keys[15:]] == [[job]] * 5


def test_job_that_waits_for_many_keys_is_evaluated_when_a_scan_ends_or_no_work_is_pending() -> None:
    waiters, job = Waiters(), job_in(some_jobs(), JobState.WAITING)
    keys = [PathKey(f"{number:02}") for number in range(20)]

    waiters.add_all([*keys, SCAN_END], job)
    assert waiters.pop(SCAN_END) == [job]
    assert waiters.pop_deferred() == [], "every key that became known has led to an evaluation of the job"
    assert waiters.pop(keys[0]) == []
    assert waiters.pop_deferred() == [job]
    assert waiters.pop_deferred() == []
    assert waiters.pop(keys[1]) == [job]


def test_awaited_keys_of_a_folder_are_found_without_a_search_of_all_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    waiters, job = Waiters(), job_in(some_jobs(), JobState.WAITING)
    for name in ("a.s", "sub/b.s", "sub/c.s", "sub/d/e.s"):
        waiters.add(PathKey(name), job)
    waiters.pop(PathKey("sub/c.s"))
    monkeypatch.setattr("aptui.core.pipeline.jobs.parent", lambda _key: pytest.fail("a key was searched"))

    assert waiters.keys_in(("sub", "other")) == ["sub/b.s"]
    assert waiters.keys_in(("", "sub/d", "sub")) == ["a.s", "sub/d/e.s", "sub/b.s"]


def of_kind(jobs: Jobs, kind: type[Command]) -> list[Command]:
    return [command for command in jobs.ledger.commands if isinstance(command, kind)]


@pytest.mark.parametrize(("state", "trigger"), FILLED)
def test_transition_of_a_job_has_only_the_effects_of_the_state_table(state: JobState | None, trigger: Trigger) -> None:
    jobs = some_jobs()
    job = job_in(jobs, state)
    before, effects = jobs.ledger.run_key, TABLE[state][trigger][1]

    jobs.feed(job, trigger)

    kills, starts, deletes = (bool(effects & effect) for effect in (Effect.KILL, Effect.START, Effect.DELETE))
    assert of_kind(jobs, KillRuns) == [KillRuns(0, (99,))] * kills
    assert of_kind(jobs, DiscardStaging) == [DiscardStaging(0, (99,))] * kills
    assert 99 not in jobs.running or not kills
    assert jobs.ledger.run_key - before == starts
    assert not starts or jobs.running == {job.run_key: job}
    assert (job.source.jobs == {}) == deletes
    assert jobs.ledger.rows.get("drop_job", []) == [(7,)] * deletes
    assert of_kind(jobs, DropLogs) == [DropLogs(0, ("log",))] * deletes
    assert job not in list(jobs.ready) or job.state is JobState.QUEUED


def test_job_that_was_never_planned_is_dropped_without_rows() -> None:
    jobs = some_jobs()
    job = job_in(jobs, None)

    jobs.drop(job)

    assert job.source.jobs == {}
    assert (jobs.ledger.commands, jobs.ledger.rows) == ([], {})


REFUSABLE = [state for state, row in TABLE.items() if Trigger.REFUSE in row]


@pytest.mark.parametrize(("state", "key"), list(itertools.product(REFUSABLE, ("main", ANALYSIS_KEY))))
def test_refused_job_fails_without_a_run(state: JobState | None, key: str) -> None:
    jobs = some_jobs()
    job = job_in(jobs, state, key)

    Failures(jobs).refuse(job, "it cannot be")

    assert (job.state, job.error, job.errors) == (JobState.FAILED, "it cannot be", 1)
    assert not jobs.running
    assert not list(jobs.ready)


def test_refused_job_uses_a_run_key_and_refused_analysis_does_not() -> None:
    jobs = some_jobs()
    before = jobs.ledger.run_key

    Failures(jobs).refuse(job_in(jobs, JobState.WAITING, ANALYSIS_KEY), "no")
    of_analysis = jobs.ledger.run_key - before
    job = job_in(jobs, JobState.WAITING)
    Failures(jobs).refuse(job, "no")

    assert (of_analysis, jobs.ledger.run_key - before) == (0, 1)
    assert [row[:2] for row in jobs.ledger.rows["put_run"]] == [(7, job.run_key)]
    assert job.log_file == f"log-{job.run_key}"


def test_job_refused_twice_for_the_same_reason_is_unchanged() -> None:
    jobs = some_jobs()
    job = job_in(jobs, JobState.WAITING)
    failures = Failures(jobs)
    failures.refuse(job, "no")
    jobs.ledger.finish()

    failures.refuse(job, "no")

    assert jobs.ledger.finish() == ([], [])

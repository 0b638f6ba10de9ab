"""The queue: which job starts first."""

from __future__ import annotations

import random

import pytest
from fakes import Setup

from aptui.core import planner, priority
from aptui.core.model import Job, JobState, PathKey, RelPath, Source, SourceUuid
from aptui.core.priority import Boosts, ReadyQueue
from aptui.core.settings import SettingsTree


def ready(name: str = "a.s", platform: str = "linux", key: str = "main", **more: object) -> Job:
    """Return a job that may start."""
    source = Source(PathKey(name), RelPath(name), 1, SourceUuid(bytes(16)))
    return Job(source, b"b", platform, key, state=JobState.QUEUED, **more)  # type: ignore[arg-type]


# Each job starts before the next job in the list, because the most important criterion that differs decides. In most pairs, a less
# important criterion favours the next job. It must not count.
LADDER = [
    ready("z.s", "server", is_critical=True),
    ready("z.s", "server", escalation=200),
    ready("z.s", "server", escalation=50, misses_dependency=True, priority=1),
    ready("z.s", "linux", priority=-4),
    ready("z.s", "server", priority=9),
    ready("a.s", "server", "b", priority=8),
    ready("a.s", "server", "c", priority=8),
    ready("b.s", "pc", "a", priority=8),
    ready("b.s", "server", "a", priority=8),
    ready("a.s", "linux", "a", misses_dependency=True, priority=99),
]


@pytest.mark.parametrize("seed", range(5))
def test_jobs_start_in_the_order_of_their_priorities(seed: int) -> None:
    queue = ReadyQueue("linux")
    for job in random.Random(seed).sample(LADDER, len(LADDER)):
        queue.push(job)

    started = [queue.pop() for _job in LADDER]

    assert started == LADDER
    assert queue.pop() is None


def test_builders_of_a_path_are_matched_again_after_the_match_cache_was_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "_ASKED_SIZE", 1)
    project = Setup().project({"game": 1})
    asked = planner.Planner(project, SettingsTree(project))

    names = [[builder.name for builder in asked.builders_for(RelPath(rel), 1)] for rel in ("a.txt", "a.s", "a.bin", "a.txt")]

    assert names == [["data"], ["script"], [], ["data"]]
    assert asked.order_of(b"unknown") == 2


def test_analysis_has_the_rank_of_a_job_of_the_host_platform() -> None:
    queue = ReadyQueue("linux")
    analysis = ready("b.s", platform="")

    assert queue.rank(analysis)[5] is False


def test_job_that_is_pushed_again_gets_a_new_position_in_the_queue() -> None:
    queue = ReadyQueue("linux")
    first, second = ready("a.s"), ready("b.s")
    queue.push(first)
    queue.push(second)
    second.escalation = 50
    queue.push(second)

    order = [queue.pop(), queue.pop(), queue.pop()]

    assert order == [second, first, None]


def test_job_that_is_removed_from_the_queue_does_not_start() -> None:
    queue = ReadyQueue("linux")
    first, second = ready("a.s"), ready("b.s")
    queue.push(first)
    queue.push(second)
    queue.discard(first)
    queue.discard(first)

    assert len(queue) == 1
    assert queue.pop() is second
    assert len(queue) == 0


def test_queue_skips_a_job_that_may_no_longer_start() -> None:
    queue = ReadyQueue("linux")
    job = ready()
    queue.push(job)
    job.state = JobState.WAITING

    assert queue.pop() is None
    assert len(queue) == 0


def test_queue_still_contains_the_job_that_it_returned_from_peek() -> None:
    queue = ReadyQueue("linux")
    job = ready()
    queue.push(job)

    assert queue.peek() is job
    assert len(queue) == 1


def test_boosted_jobs_start_after_critical_and_escalated_jobs_and_before_all_others() -> None:
    queue = ReadyQueue("linux")
    jobs = {name: ready(f"{name}.s") for name in "abcde"}
    jobs["d"].escalation = 1
    jobs["e"].is_critical = True
    queue.interest.note(PathKey("b.s"), 5)
    queue.interest.note(PathKey("c.s"), 9)
    for job in jobs.values():
        queue.push(job)

    assert [queue.pop() for _job in jobs] == [jobs["e"], jobs["d"], jobs["b"], jobs["c"], jobs["a"]]


def test_boosts_expire_in_order_unless_they_were_renewed() -> None:
    interest = Boosts()
    requests = (("a", 1), ("b", 2), ("a", 3), ("b", 2))

    assert [interest.note(PathKey(name), number) for name, number in requests] == [True, True, True, False]
    assert interest.expire(2) == ["b"]
    assert (interest.of(PathKey("a")), interest.of(PathKey("b"))) == (3, 0)
    assert interest.expire(2) == []
    assert interest.expire(3) == ["a"]


def test_boosts_beyond_the_maximum_expire_and_the_queue_stays_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(priority, "_MAX_BOOSTED", 3)
    queue, job = ReadyQueue("linux"), ready("a.s")
    for boost in range(1, 10_000):
        queue.interest.note(PathKey(f"{boost}.s"), boost)
        queue.push(job)

    assert (len(queue.interest), queue.interest.of(PathKey("9999.s"))) == (3, 9999)
    assert len(queue._heap) <= 2_000
    assert (queue.pop(), queue.pop()) == (job, None)

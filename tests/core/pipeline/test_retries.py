"""Retries: which failed runs are retried, the number of retries, and the record of each retry."""

from __future__ import annotations

import pytest
from fake_world import World
from fakes import Setup, copier, scripter

from aptui.core.notices import JobChanged
from aptui.core.orders import Outcome
from aptui.core.retry import RetryRule

NAME = "a.s@linux:main"


def world_with(
    rule: RetryRule | None, fates: list[Outcome | str], *, name: str = NAME, of_project: RetryRule | None = None
) -> World:
    """Return an idle simulated engine whose script builder has a retry rule.

    `fates` are the outcomes of the first runs of the job `name`.
    """
    world = World(Setup(builders=(copier(), scripter(retry=rule)), retry=of_project))
    world.fates[name] = fates
    return world.apply({"a.s": ""})


def failed_runs(world: World) -> list[str]:
    """Return the errors of all failed runs, in the order of the runs."""
    return [str(row[6]) for _key, row in sorted(world.archive.tables.runs.items()) if row[4] == Outcome.FAILED]


def last_notice(world: World) -> JobChanged:
    """Return the last notice about a job."""
    return [notice for notice in world.notices if isinstance(notice, JobChanged)][-1]


@pytest.mark.parametrize(
    ("on", "kind", "is_covered"),
    [
        (("crash",), "crash", True),
        (("crash",), "timeout", False),
        (("crash",), "", False),
        (("error",), "exit 1", True),
        (("exit 75",), "exit 75", True),
        (("exit 75",), "exit 7", False),
        (("crash",), "exit 139", True),
        (("crash",), "exit 137", False),
        (("memory",), "exit 137", True),
        (("memory",), "exit 128", False),
        (("crash",), "exit 160", False),
        (("error",), "crash", False),
    ],
)
def test_retry_rule_covers_the_listed_kinds_of_failure(on: tuple[str, ...], kind: str, *, is_covered: bool) -> None:
    assert RetryRule(1, on).covers(kind) == is_covered


def test_failure_of_a_listed_kind_is_retried_and_the_job_marked_flaky() -> None:
    world = world_with(RetryRule(2, ("timeout",)), ["timeout", "timeout"])

    assert world.runs[NAME] == 3
    assert world.statuses() == {NAME: "completed"}
    assert (last_notice(world).status, last_notice(world).flaky) == ("completed", "timeout, timeout")
    assert world.pipeline.status().failed == 0
    assert failed_runs(world) == ["it was timeout", "it was timeout"]


def test_job_fails_after_the_last_retry() -> None:
    world = world_with(RetryRule(2, ("timeout",)), ["timeout"] * 9)

    assert world.runs[NAME] == 3
    assert world.job(NAME).error == "it was timeout (tried 3 times)"
    assert (world.pipeline.status().run, world.pipeline.status().failed) == (1, 1)
    assert len(failed_runs(world)) == 3
    assert last_notice(world).flaky == ""


@pytest.mark.parametrize("kind", ["memory", "exit 1", ""])
def test_failure_of_an_unlisted_kind_is_not_retried(kind: str) -> None:
    world = world_with(RetryRule(2, ("timeout",)), [kind])

    assert (world.runs[NAME], world.statuses()) == (1, {NAME: "failed"})
    assert world.job(NAME).error == f"it was {kind}"


def test_retry_rule_of_a_builder_overrides_the_retry_rule_of_the_project() -> None:
    several = RetryRule(3, ("timeout",))
    worlds = [world_with(rule, ["timeout"] * 9, of_project=several) for rule in (None, RetryRule(0, ()))]

    assert [world.runs[NAME] for world in worlds] == [4, 1]


def test_retry_rule_for_crashes_replaces_the_default_retry() -> None:
    world = world_with(RetryRule(3, ("crash",)), ["crash"] * 9)

    assert world.runs[NAME] == 4
    assert world.job(NAME).error == "its worker process died: it was crash (tried 4 times)"


def test_job_without_a_retry_rule_is_flaky_after_its_worker_died_once() -> None:
    world = world_with(None, ["crash"])

    assert last_notice(world).flaky == "crash"


def test_job_is_not_flaky_if_its_worker_was_ended_by_hand() -> None:
    world = world_with(None, [Outcome.LOST])

    assert (world.runs[NAME], last_notice(world).flaky) == (2, "")


def test_failed_analysis_is_retried() -> None:
    world = world_with(RetryRule(1, ("timeout",)), ["timeout"], name="a.s:analyse")

    assert (world.analyses["a.s"], world.statuses()) == (2, {NAME: "completed"})


def test_change_of_a_source_resets_the_retry_count() -> None:
    world = world_with(RetryRule(1, ("timeout",)), ["timeout"])
    world.fates[NAME] = ["timeout"]
    world.apply({"a.s": "x"})

    assert (world.runs[NAME], world.statuses()) == (4, {NAME: "completed"})


def test_job_stays_flaky_after_a_restart_until_its_next_run() -> None:
    world = world_with(RetryRule(1, ("timeout",)), ["timeout"])

    world.settle(restart=True)
    was = world.job(NAME).flaky
    world.apply({"a.s": "x"})

    assert (was, world.job(NAME).flaky) == ("timeout", "")


def test_restart_resets_the_retry_count() -> None:
    world = World(Setup(builders=(copier(), scripter(retry=RetryRule(1, ("timeout",))))))
    world.write("a.s")
    world.fates[NAME] = ["timeout", "timeout"]
    world.scan()
    world.run_until(lambda: world.runs[NAME] == 2)
    world.crash()

    assert world.settle(restart=True).statuses() == {NAME: "completed"}


def test_changed_retry_rule_reruns_no_job() -> None:
    world = world_with(None, [])
    world.forget_runs()

    assert world.reconfigure(builders=(copier(), scripter(retry=RetryRule(5, ("error",))))).ran() == []

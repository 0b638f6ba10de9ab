"""Draft and final products of a job: when each is made, and how edits, failures and crashes affect them."""

from __future__ import annotations

import pytest
from fake_world import World, settled
from fakes import Setup, copier, scripter
from msgspec.structs import replace

from aptui.core.messages import StartRuns
from aptui.core.notices import JobChanged
from aptui.core.orders import ProcessOrder

NAME = "a.s@linux:main"
PLANNED = 17
"""Index of the column of a job's row that stores the fingerprint of its plan."""


def world_with(*, makes_finals: bool = True, **more: object) -> World:
    """Return a simulated engine whose script builder can make quick draft products."""
    return World(Setup(builders=(copier(), scripter(has_drafts=True, **more)), makes_finals=makes_finals))


def asked(world: World) -> list[str]:
    """Return the started runs in order, each as "<source> <quality>", for example "a.s draft"."""
    orders = [order for command in world.commands_of(StartRuns) for order in command.orders]
    return [f"{order.rel} {order.quality}" for order in orders if isinstance(order, ProcessOrder)]


def reasons(world: World) -> list[str]:
    """Return the reasons of the committed runs, in order."""
    return [str(row[5]) for _key, row in sorted(world.archive.tables.runs.items(), key=lambda item: item[0][1])]


def until(world: World, count: int) -> None:
    """Perform actions until this number of runs has been ordered."""
    for _step in range(1000):
        if len(asked(world)) >= count:
            return
        world._moves()[0]()
    raise AssertionError(f"only {asked(world)}")


def drafted(count: int = 2) -> World:
    """Return a simulated engine that has started `count` runs of source `a.s`: the draft run (1), or also the final run (2)."""
    world = world_with()
    world.write("a.s")
    world.scan()
    until(world, count)
    return world


def test_builder_without_draft_support_makes_only_final_products() -> None:
    world = World(Setup()).apply({"a.s": ""})

    assert asked(world) == ["a.s final"]
    assert world.archive.tables.drafts == {}


def test_job_makes_draft_products_and_replaces_them_by_final_products() -> None:
    world = drafted()
    draft, served = world.job(NAME), world.cache["linux/a.out"]
    was_draft = draft.is_draft and len(world.archive.tables.drafts) == 1

    world.run()

    assert was_draft
    assert asked(world) == ["a.s draft", "a.s final"]
    assert not world.job(NAME).is_draft
    assert world.archive.tables.drafts == {}
    assert world.cache["linux/a.out"] != served
    assert reasons(world) == ["new source", "the final products follow the draft"]


def test_product_made_before_drafts_were_enabled_counts_as_final() -> None:
    world = settled(World(Setup()), a_s="")

    world.reconfigure(builders=(copier(), scripter(has_drafts=True)))

    assert asked(world) == []


def test_final_products_are_made_after_all_other_pending_work() -> None:
    world = world_with()
    world.slots = 1

    world.apply(dict.fromkeys(("a.s", "b.s", "c.s"), ""))

    assert asked(world)[:3] == ["a.s draft", "b.s draft", "c.s draft"]
    assert asked(world)[3:] == ["a.s final", "b.s final", "c.s final"]


def test_source_change_kills_the_final_run_of_the_old_source() -> None:
    world = drafted()

    world.apply({"a.s": "x"})

    assert asked(world) == ["a.s draft", "a.s final", "a.s draft", "a.s final"]
    assert world.cache == world.clean().cache


def test_draft_run_starts_before_final_runs_of_other_jobs() -> None:
    world = world_with()
    world.slots = 1
    world.edit(dict.fromkeys(("a.s", "b.s", "c.s"), ""))
    world.scan()
    until(world, 4)
    world.held.add(NAME)

    world.apply({"c.s": "x"})
    world.release()

    assert asked(world)[4:] == ["c.s draft", "b.s final", "c.s final"]


def test_job_whose_final_run_failed_keeps_its_draft_products() -> None:
    world = drafted()
    served = world.cache["linux/a.out"]
    world.fates[NAME] = ["exit 1"]

    world.run()
    job = world.job(NAME)

    assert (world.statuses(), job.error) == ({NAME: "failed"}, "it was exit 1")
    assert job.is_draft
    assert world.cache == {"linux/a.out": served}
    assert len(world.archive.tables.drafts) == 1


def test_failed_run_for_final_products_is_retried_like_any_failed_job() -> None:
    world = drafted()
    world.fates[NAME] = ["exit 1"]
    world.run()
    world.forget_runs()

    world.process(retries=False)
    not_asked_for = asked(world)
    world.settle(restart=True)

    assert not_asked_for == []
    assert asked(world) == ["a.s final"]
    assert world.cache == world.clean().cache


def test_job_whose_draft_run_failed_is_failed() -> None:
    world = world_with().apply({"a.s": "FAIL"})

    assert asked(world) == ["a.s draft"]
    assert world.statuses() == {NAME: "failed"}


def test_job_whose_products_were_deleted_on_failure_has_no_draft_products() -> None:
    world = world_with(deletes_products_on_failure=True)
    world.write("a.s")
    world.scan()
    until(world, 2)
    world.fates[NAME] = ["exit 1"]

    world.run()

    assert world.cache == {}
    assert world.archive.tables.drafts == {}


@pytest.mark.parametrize("at", [1, 2])
def test_pending_final_products_are_made_after_a_crash(at: int) -> None:
    world = drafted(at)
    world.crash()

    world.settle(restart=True)

    assert not world.job(NAME).is_draft
    assert world.cache == world.clean().cache


def test_pending_final_products_are_made_when_they_are_enabled() -> None:
    world = world_with(makes_finals=False).apply({"a.s": ""})
    world.settle(restart=True)
    drafted = asked(world)

    world.reconfigure(makes_finals=True)

    assert drafted == ["a.s draft"]
    assert asked(world) == ["a.s draft", "a.s final"]


def test_existing_final_products_are_kept_when_a_project_disables_them() -> None:
    world = world_with()
    settled(world, a_s="")

    world.reconfigure(makes_finals=False)

    assert asked(world) == []


def test_dependent_jobs_each_run_once_for_draft_and_once_for_final_products() -> None:
    world = world_with()
    for at, rel in enumerate("abcdef"):
        world.write(f"{rel}.s", f"after {'abcdef'[at - 1]}.s:main" if at else "")

    world.settle()

    assert asked(world) == [f"{rel}.s {quality}" for quality in ("draft", "final") for rel in "abcdef"]
    assert world.cache == world.clean().cache


def test_job_makes_no_new_draft_products_when_its_input_becomes_final() -> None:
    world = world_with()
    settled(world, b_s="after a.s:main", a_s="")

    world.apply({"a.s": "x"})

    assert asked(world) == ["a.s draft", "b.s draft", "a.s final", "b.s final"]


def test_edited_job_does_not_wait_for_final_product_of_its_input() -> None:
    world = world_with()
    settled(world, a_s="", b_s="")
    world.write("a.s", "x")
    world.scan()
    until(world, 2)
    world.held.add(NAME)

    world.apply({"b.s": "after a.s:main"})
    before = asked(world)
    world.release()

    assert before == ["a.s draft", "a.s final", "b.s draft", "a.s final"]
    assert asked(world)[4:] == ["b.s final"]
    assert world.cache == world.clean().cache


def test_failed_final_run_does_not_block_final_runs_of_dependent_jobs() -> None:
    world = world_with()
    world.edit({"a.s": "", "b.s": "after a.s:main"})
    world.scan()
    until(world, 3)
    world.fates[NAME] = ["exit 1"]

    world.run()

    assert world.statuses() == {NAME: "failed", "b.s@linux:main": "completed"}
    assert not world.job("b.s@linux:main").is_draft


def test_lost_product_is_made_again_as_a_draft_product_first() -> None:
    world = world_with()
    settled(world, a_s="")

    world.lose("linux/a.out")
    world.settle()

    assert asked(world) == ["a.s draft", "a.s final"]


def test_reprocessed_job_with_final_products_makes_no_draft_products() -> None:
    world = world_with()
    settled(world, a_s="")

    world.post_request("reprocess", keys=("a.s",))
    world.settle()

    assert asked(world) == ["a.s final"]


def test_cancelled_final_run_stays_cancelled_and_keeps_draft_products() -> None:
    world = drafted()
    world.post_request("cancel", names=(NAME,))

    world.settle()
    assert world.settle(restart=True).statuses() == {NAME: "cancelled"}
    assert world.job(NAME).is_draft
    assert asked(world) == ["a.s draft", "a.s final"]


def test_pending_final_products_are_made_when_the_builder_drops_draft_support() -> None:
    world = world_with(makes_finals=False).apply({"a.s": ""})

    world.reconfigure(builders=(copier(), scripter()))

    assert asked(world) == ["a.s draft", "a.s final"]
    assert world.archive.tables.drafts == {}


def test_empty_project_with_draft_support_starts_no_runs_and_is_idle() -> None:
    world = world_with()

    world.settle()

    assert (asked(world), world.pipeline.jobs.is_idle) == ([], True)


def test_all_final_products_are_made_when_they_need_several_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aptui.core.pipeline.plans._FINALS_MOST", 4)
    world = world_with()

    world.apply({f"{at:02}.s": f"after {at + 3:02}.s:main" if at % 5 == 0 else "" for at in range(30)})

    assert sorted(asked(world)) == sorted(f"{at:02}.s {quality}" for at in range(30) for quality in ("draft", "final"))
    assert world.archive.tables.drafts == {}


def test_fetched_final_products_are_used_although_draft_products_were_requested(monkeypatch: pytest.MonkeyPatch) -> None:
    world = world_with()
    made = world._outcome

    def fetched(order: object, text: str | None, name: str) -> object:
        result = made(replace(order, quality="final") if isinstance(order, ProcessOrder) else order, text, name)
        return replace(result, is_final=True, origin="fetched") if isinstance(order, ProcessOrder) else result

    monkeypatch.setattr(world, "_outcome", fetched)
    world.apply({"a.s": "read b.txt"})

    assert asked(world) == ["a.s draft"]
    assert not world.job(NAME).is_draft
    assert world.cache == world.clean().cache
    assert world.archive.tables.drafts == {}


def test_notices_report_whether_products_are_drafts() -> None:
    world = world_with().apply({"a.s": ""})

    reported = [notice for notice in world.notices if isinstance(notice, JobChanged) and notice.status == "completed"]
    assert [notice.is_draft for notice in reported] == [True, False]


def is_finishing(world: World) -> bool:
    """Whether the draft products have the fingerprint planned in the job's row, so that only the final products are pending."""
    job_id = world.job(NAME).id
    return world.archive.tables.drafts.get(job_id, 0) == world.archive.tables.jobs[job_id][PLANNED]


def test_job_row_shows_whether_only_the_final_run_is_pending() -> None:
    world = drafted()
    world.slots = 0
    while_final_is_made = is_finishing(world)

    world.write("a.s", "x")
    world.run()
    while_draft_waits = is_finishing(world)
    world.slots = 2
    world.settle()

    assert (while_final_is_made, while_draft_waits) == (True, False)
    assert world.archive.tables.drafts == {}

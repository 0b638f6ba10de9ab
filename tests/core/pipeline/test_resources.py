"""Resources: the number of runs that hold a resource is limited, and jobs without the resource do not wait for it."""

from __future__ import annotations

import random

import pytest
from fake_world import World
from fakes import Setup, copier, scripter

from aptui.core.messages import SlotsFree, StartRuns
from aptui.core.orders import AnalyseOrder, Outcome

BUILDERS = (
    copier(),
    scripter("baker", "*.bake.s", resources=("gpu",)),
    scripter("lighter", "*.light.s", resources=("gpu", "licence")),
    scripter("texter", "*.text.s"),
)


def world_with(*limits: tuple[str, int], rng: random.Random | None = None) -> World:
    """Return a simulated engine whose builders `baker` and `lighter` share the resource `gpu`."""
    return World(Setup(builders=BUILDERS, resources=limits), rng=rng)


def analysed(world: World, *names: str) -> World:
    """Add these sources and analyse them, so that their jobs are ready and no job runs; return `world`."""
    world.slots = 0
    world.edit(dict.fromkeys(names, ""))
    world.scan()
    while True:
        world.run()
        orders = world.pipeline.jobs.ready.analysis_count
        if not orders:
            return world
        world.slots = orders
        world._handle(SlotsFree(world._next(), orders))
        while world.running:
            world._finish_runs()
            world._handle(world.inbox.popleft())
        world.slots = 0


def started(world: World, slots: int) -> list[str]:
    """Report `slots` free worker slots to the pipeline; return the sources whose jobs start, in order."""
    commands, _notices = world.pipeline.handle(SlotsFree(world._next(), slots))
    orders = [order for command in commands if isinstance(command, StartRuns) for order in command.orders]
    return [order.rel for order in orders if not isinstance(order, AnalyseOrder)]  # type: ignore[union-attr]


def test_job_that_waits_for_a_resource_lets_other_jobs_start() -> None:
    world = analysed(world_with(("gpu", 1), ("licence", 9)), "a.bake.s", "b.light.s", "c.bake.s", "d.text.s", "e.text.s")

    assert started(world, 4) == ["a.bake.s", "d.text.s", "e.text.s"]
    assert started(world, 4) == []


def test_holders_and_waiting_jobs_of_a_resource_are_reported() -> None:
    world = analysed(world_with(("gpu", 1), ("licence", 9)), "a.bake.s", "b.light.s", "c.bake.s", "d.text.s")
    started(world, 4)

    card, licences = world.pipeline.jobs.resource_uses()

    assert (card.name, card.limit, card.holders, card.waiting_count) == ("gpu", 1, ("a.bake.s@linux:main",), 2)
    assert (licences.name, licences.holders, licences.waiting_count) == ("licence", (), 0)


def test_job_with_two_resources_waits_for_both() -> None:
    world = analysed(world_with(("gpu", 2), ("licence", 1)), "a.light.s", "b.light.s", "c.bake.s")

    assert started(world, 4) == ["a.light.s", "c.bake.s"]


def test_jobs_that_share_a_resource_are_sent_in_separate_messages() -> None:
    world = analysed(world_with(("gpu", 2), ("licence", 2)), "a.bake.s", "b.light.s", "c.bake.s")

    commands, _notices = world.pipeline.handle(SlotsFree(world._next(), 4))
    messages = [[order.rel for order in command.orders] for command in commands if isinstance(command, StartRuns)]  # type: ignore[union-attr]
    assert messages == [["a.bake.s"], ["b.light.s"]]


@pytest.mark.parametrize("fate", [Outcome.SUCCEEDED, Outcome.FAILED, Outcome.LOST, Outcome.RETURNED, Outcome.STALE])
def test_resource_is_released_after_a_run_with_any_outcome(fate: Outcome) -> None:
    world = world_with(("gpu", 1), ("licence", 1))
    world.fates["a.bake.s@linux:main"] = [fate]
    world.apply({"a.bake.s": "", "b.bake.s": ""})

    assert world.statuses()["b.bake.s@linux:main"] == "completed"
    assert [use.holders for use in world.pipeline.jobs.resource_uses()] == [(), ()]


def test_killed_run_holds_its_resource_until_the_run_has_ended() -> None:
    world = world_with(("gpu", 1), ("licence", 1))
    world.held.add("a.bake.s@linux:main")
    world.apply({"a.bake.s": ""})
    world.post_request("cancel", names=("a.bake.s@linux:main",))
    world._handle(world.inbox.popleft())

    before = world.pipeline.jobs.resource_uses()[0].holders
    world._end_killed()
    world.run()

    assert world.statuses() == {"a.bake.s@linux:main": "cancelled"}
    assert (before, world.pipeline.jobs.resource_uses()[0].holders) == (("a.bake.s@linux:main",), ())


def test_no_other_job_starts_if_the_resource_of_the_named_job_is_in_use() -> None:
    world = analysed(world_with(("gpu", 1), ("licence", 1)), "a.bake.s", "b.bake.s", "c.text.s")
    started(world, 1)
    wanted = next(job for job in world.pipeline.jobs.ready if job.source.rel == "b.bake.s")

    commands, _notices = world.pipeline.handle(SlotsFree(world._next(), 1, 1, wanted.id))

    assert not [command for command in commands if isinstance(command, StartRuns)]
    assert started(world, 1) == ["c.text.s"]


@pytest.mark.parametrize("seed", range(20))
def test_all_jobs_end_with_limited_resources_and_random_outcomes(seed: int) -> None:
    rng = random.Random(seed)
    world = world_with(("gpu", rng.randint(1, 2)), ("licence", 1), rng=rng)
    names = [f"{number}.{kind}.s" for number in range(4) for kind in ("bake", "light", "text")]
    for name in names:
        world.write(name)
        world.fates[f"{name}@linux:main"] = rng.choices(list(Outcome)[:5], k=2)
    world.scan()
    for step in range(60):
        if moves := world._moves():
            rng.choice(moves)()
        if step % 10 == 9:
            name = rng.choice(names)
            world.write(name, f"{step}")
            world.scan()

    world.settle()

    assert len(world.statuses()) == len(names)
    assert [use.holders for use in world.pipeline.jobs.resource_uses()] == [(), ()]

"""A chain whose later stage writes the first source of the chain ends with a failure that names the source."""

from __future__ import annotations

import pytest
from fake_world import World
from fakes import Setup

from aptui.core.messages import CompareFiles


def world_of(text: str) -> World:
    return World(Setup()).apply({"a.s": text})


@pytest.mark.parametrize("stage", ["stage+ m.s=scribble a.s", "stage+ m.s=stage+ sub/n.s=scribble a.s"])
def test_chain_that_writes_its_first_source_fails_without_notifications(stage: str) -> None:
    world = world_of(stage)
    job = world.job("a.s@common:chain")
    written = world.text("a.s")

    assert "its source 'a.s' changed during each of 10 runs of the jobs that process it" in job.error
    assert (written or "").count("info") <= 13
    world.settle()
    world.settle(restart=True)
    assert world.text("a.s") == written, "the failed chain runs again only after an edit by a user"


def test_source_edited_during_its_chain_is_processed_in_the_same_batch() -> None:
    world = World(Setup())
    world.write("a.s", "stage m.s=x")
    world.held.add("m.s@linux:main")
    world.process()
    world.write("a.s", "stage m.s=y")
    world.release()

    assert world.text("m.s") == "y"


def test_first_source_of_a_chain_is_compared_once_after_the_chain_has_run() -> None:
    world = world_of("stage m.s=x\nstage sub/n.s=y")
    assert [[fact.rel for fact in command.facts] for command in world.commands_of(CompareFiles)] == [["a.s"]]
    world.forget_runs()
    world.apply({"b.s": ""})

    assert not world.commands_of(CompareFiles)

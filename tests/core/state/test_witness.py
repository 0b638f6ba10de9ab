"""Files and code that change while a run uses them, and change back or not: what rests is what a clean build comes to."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from fake_world import World

from aptui.core.messages import CopyOrder
from aptui.core.model import Job
from aptui.core.pipeline import runs
from aptui.core.state.witness import Witness


def running(world: World, *, has_read: bool) -> bool:
    """Whether a run of `a.s` is under way, before it has read what it reads or after."""
    orders = [order for order, _text in world.running.values() if not isinstance(order, CopyOrder)]
    return any(order.rel == "a.s" and (order.run_key in world.read) == has_read for order in orders)


def step_until(world: World, is_true: Callable[[], bool]) -> None:
    for _step in range(100):
        moves = world._moves()
        if is_true() or not moves:
            return
        world.rng.choice(moves)()


def products(jobs: dict[str, Job]) -> dict[str, object]:
    return {name: (job.state, [(item.name, item.digest) for item in job.products]) for name, job in jobs.items()}


CASES = [
    (word, is_known, is_back)
    for word in ("jobs-from", "include", "read", "code")
    for is_known in (False, True)
    for is_back in (False, True)
]
ORDERS = [("read", 1, 19), ("read", 1, 21), ("read", 2, 24), ("jobs-from", 1, 68)]
"""Orders of events (word, run, seed) in which the bytes that a run had were never those that the engine read."""


@pytest.mark.parametrize(("word", "is_known", "is_back"), CASES)
@pytest.mark.parametrize("run", [1, 2])
def test_what_changes_under_a_run_leaves_what_a_clean_build_has(word: str, is_known: bool, is_back: bool, run: int) -> None:
    for seed in range(10):
        check(word, is_known=is_known, is_back=is_back, run=run, seed=seed)


@pytest.mark.parametrize(("word", "run", "seed"), ORDERS)
def test_bytes_that_the_engine_never_read_are_not_what_a_product_is_made_of(word: str, run: int, seed: int) -> None:
    check(word, is_known=False, is_back=True, run=run, seed=seed)


MUTANTS = [
    ("witness", "changed", ("read", True, 1)),
    ("witness", "changed", ("include", True, 2)),
    ("witness", "unsealed", ("jobs-from", False, 1)),
    ("witness", "unread", ("read", False, 2)),
    ("runs", "is_of_other_code", ("code", True, 1)),
]
"""(Where, the check that is switched off, the case (word, is known, run) that finds it out)."""


@pytest.mark.parametrize(("where", "name", "case"), MUTANTS)
def test_each_check_is_missed_when_it_is_switched_off(
    where: str, name: str, case: tuple[str, bool, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Witness if where == "witness" else runs, name, lambda *_args: ())
    word, is_known, run = case

    with pytest.raises(AssertionError, match="other than a clean build"):
        for seed in range(30):
            check(word, is_known=is_known, is_back=True, run=run, seed=seed)


def check(word: str, *, is_known: bool, is_back: bool, run: int, seed: int) -> None:
    """Change what run number `run` of `a.s` uses while it uses it, and compare what rests with a clean build."""
    world = World(rng=random.Random(seed))
    world.write("e.txt", "one")
    if is_known:
        world.write("a.s", f"{word} e.txt")
        world.settle()
    world.write("a.s", f"{word} e.txt\nedited")
    world.scan()
    for _run in range(run - 1):
        step_until(world, lambda world=world: running(world, has_read=False))
        step_until(world, lambda world=world: not running(world, has_read=False) and not running(world, has_read=True))
    step_until(world, lambda world=world: running(world, has_read=False))
    if word == "code":
        world.code = "2"
    else:
        world.write("e.txt", "two")
    step_until(world, lambda world=world: running(world, has_read=True))
    if is_back:
        world.code = "1"
        world.write("e.txt", "one")

    world.run()
    world.settle(restart=True)

    clean = world.clean()
    assert products(world.live_jobs()) == products(clean.live_jobs()), f"other than a clean build, seed {seed}"
    assert world.cache == clean.cache, f"other than a clean build, seed {seed}"

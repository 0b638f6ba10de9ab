"""Files and code that change during a run, and may change back: the settled cache equals that of a clean build."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from fake_world import World
from fakes import Setup
from msgspec.structs import replace

from aptui.core.model import Job
from aptui.core.orders import AnalyseOrder, CopyOrder, Outcome
from aptui.core.pipeline import run_results
from aptui.core.run_report import Used
from aptui.core.state.stale_results import StaleResultCheck


def running(world: World, *, has_read: bool, rel: str = "a.s") -> bool:
    """Whether source `rel` has a current run that already read its inputs (`has_read=True`) or did not read them yet (False)."""
    orders = [order for order, _text in world.running.values() if not isinstance(order, CopyOrder)]
    return any(order.rel == rel and (order.run_key in world.read) == has_read for order in orders)


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
"""Cases (word, run, seed) in which a run uses bytes that the engine never reads."""


@pytest.mark.parametrize(("word", "is_known", "is_back"), CASES)
@pytest.mark.parametrize("run", [1, 2])
def test_files_changed_during_a_run_give_the_result_of_a_clean_build(word: str, is_known: bool, is_back: bool, run: int) -> None:
    for seed in range(10):
        check(word, is_known=is_known, is_back=is_back, run=run, seed=seed)


@pytest.mark.parametrize(("word", "run", "seed"), ORDERS)
def test_result_from_bytes_that_the_engine_never_read_is_discarded(word: str, run: int, seed: int) -> None:
    check(word, is_known=False, is_back=True, run=run, seed=seed)


@pytest.mark.parametrize("word", ["include", "jobs-from", "glob", "glob after read"])
@pytest.mark.parametrize("is_back", [False, True])
def test_new_file_written_during_a_run_is_not_treated_as_missing(word: str, is_back: bool) -> None:
    for seed in range(10):
        check_new(word, is_back=is_back, seed=seed)


@pytest.mark.parametrize("word", ["include", "jobs-from"])
def test_result_is_discarded_if_the_run_began_while_a_new_file_was_checked(word: str) -> None:
    for seed in range(20):
        check_second(word, seed)


@pytest.mark.parametrize(("word", "is_back"), [("include", False), ("jobs-from", True), ("glob", True)])
def test_disabled_check_for_new_files_causes_wrong_products(word: str, is_back: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StaleResultCheck, "_find_appeared", lambda *_args: ())

    with pytest.raises(AssertionError, match=r"differs from a clean build|made different products"):
        for seed in range(10):
            check_new(word, is_back=is_back, seed=seed)


@pytest.mark.parametrize("word", ["read", "include", "jobs-from"])
def test_result_is_discarded_if_an_overriding_file_was_missing_during_the_run(word: str) -> None:
    for seed in range(10):
        check_away(word, seed)


@pytest.mark.parametrize(("check", "is_away"), [("find_hiders", True), ("find_changed", False)])
def test_products_are_wrong_if_find_hiders_or_find_changed_is_disabled(
    check: str, is_away: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StaleResultCheck, check, lambda *_args: ())

    with pytest.raises(AssertionError, match="differs from a clean build"):
        for seed in range(10):
            check_away("read", seed) if is_away else check_source(seed)


def test_builders_stay_current_if_a_run_ended_before_it_loaded_code(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(rng=random.Random(1))
    world.write("a.s", "x")
    world.scan()
    step_until(world, lambda: running(world, has_read=False) and not world.pipeline.jobs.memory.hashing)
    world.write("a.s", "y")
    perform = world._perform_run

    def with_other_code(*given: Any) -> Any:
        result = perform(*given)
        return replace(result, used=Used(b"nothing was loaded")) if result.outcome is Outcome.STALE else result

    monkeypatch.setattr(world, "_perform_run", with_other_code)
    step_until(world, lambda: world.pipeline.jobs.is_outdated)

    assert not world.pipeline.jobs.is_outdated
    monkeypatch.undo()
    world.settle()
    assert products(world.live_jobs()) == products(world.clean().live_jobs())


def check_source(seed: int) -> None:
    """Change a source before the analysis that reads it begins, and change it back before the analysis ends."""
    world = World(rng=random.Random(seed))
    world.write("a.s", "x")
    world.scan()
    step_until(world, lambda: bool(len(world.pipeline.jobs.ready)))
    world.write("a.s", "stage m.s=x")
    step_until(world, lambda: running(world, has_read=True))
    world.write("a.s", "x")

    world.run()
    world.settle()

    assert products(world.live_jobs()) == products(world.clean().live_jobs()), (
        f"a job's result differs from a clean build, seed {seed}"
    )


def test_analysis_is_discarded_if_its_source_changed_and_changed_back() -> None:
    for seed in range(10):
        check_source(seed)


@pytest.mark.parametrize("text", ["include e.txt", "jobs-from e.txt"])
def test_job_of_a_source_that_reads_an_ignored_file_is_repeated_only_once(text: str) -> None:
    world = World()
    world.write("a.s", text)
    stamp = world._stamp
    world._stamp = lambda path: (3, 1, 1, 1) if path.endswith("e.txt") else stamp(path)  # type: ignore[method-assign]  # only the engine finds this file

    assert world.settle().ran() == ["a.s@linux:main"] * 2
    assert world.statuses() == {"a.s@linux:main": "completed"}


def test_analysis_that_reads_a_file_of_a_case_clash_does_not_fail() -> None:
    world = World().apply({"a.s": "jobs-from d.s", "d.s": "x", "D.s": "y"})

    assert "a.s:analyse" not in {name for name, status in world.statuses().items() if status == "failed"}
    assert world.statuses()["a.s@linux:main"] == "completed"


MUTANTS = [
    ("stale_results", "find_changed", ("read", True, 1)),
    ("stale_results", "find_changed", ("include", True, 2)),
    ("stale_results", "find_unsealed", ("jobs-from", False, 1)),
    ("stale_results", "unread", ("read", False, 2)),
    ("results", "is_of_other_code", ("code", True, 1)),
]
"""Each entry: the module and the name of the method to disable, and the arguments with which the function `check` then fails."""


@pytest.mark.parametrize(("where", "name", "case"), MUTANTS)
def test_disabled_check_for_changed_inputs_or_code_causes_wrong_products(
    where: str, name: str, case: tuple[str, bool, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StaleResultCheck if where == "stale_results" else run_results, name, lambda *_args: ())
    word, is_known, run = case

    with pytest.raises(AssertionError, match="differs from a clean build"):
        for seed in range(30):
            check(word, is_known=is_known, is_back=True, run=run, seed=seed)


def check(word: str, *, is_known: bool, is_back: bool, run: int, seed: int) -> None:
    """Change a file while run number `run` of `a.s` uses it, and compare the settled cache with a clean build."""
    world = World(rng=random.Random(seed))
    world.write("e.txt", "one")
    if is_known:
        world.apply({"a.s": f"{word} e.txt"})
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
    assert products(world.live_jobs()) == products(clean.live_jobs()), f"a job's result differs from a clean build, seed {seed}"
    assert world.cache == clean.cache, f"the cache differs from a clean build, seed {seed}"


def check_new(word: str, *, is_back: bool, seed: int) -> None:
    """Create `e.txt` during a run of `a.s` that was planned without this file but names it, directly or by a pattern."""
    world = World(rng=random.Random(seed))
    if word == "glob after read":
        world.apply({"a.s": "read e.txt"})
    world.write("a.s", "glob e*" if word.startswith("glob") else f"{word} e.txt")
    world.scan()
    for has_read in (False, True, False):
        step_until(world, lambda has_read=has_read: running(world, has_read=has_read))
    world.write("e.txt", "new")
    step_until(world, lambda: running(world, has_read=True))
    if is_back:
        world.delete("e.txt")

    world.run()
    world.settle(restart=True)
    if not is_back:
        world.apply({"e.txt": None})

    clean = world.clean()
    assert not world.contradictions, f"runs with equal fingerprints made different products: {world.contradictions}"
    assert products(world.live_jobs()) == products(clean.live_jobs()), f"a job's result differs from a clean build, seed {seed}"


def check_second(word: str, seed: int) -> None:
    """Create `e.txt` after one of two runs has found it missing, and delete it after the other run has read it."""
    world = World(rng=random.Random(seed))
    world.slots = 1
    world.edit(dict.fromkeys(("a.s", "b.s"), f"{word} e.txt"))
    world.scan()
    step_until(world, lambda: any(not isinstance(order, AnalyseOrder) for order, _text in world.running.values()))
    first, second = ("a.s", "b.s") if running(world, has_read=False) else ("b.s", "a.s")
    step_until(world, lambda: running(world, has_read=True, rel=first))
    world.write("e.txt", "new")
    step_until(world, lambda: running(world, has_read=True, rel=second))
    world.delete("e.txt")

    world.run()
    world.settle(restart=True)

    clean = world.clean()
    assert products(world.live_jobs()) == products(clean.live_jobs()), f"a job's result differs from a clean build, seed {seed}"


def check_away(word: str, seed: int) -> None:
    """Remove `e.txt` from the first scan folder, so that a run reads the one in the second scan folder; then restore it."""
    world = World(Setup(folders=("game", "shared")), rng=random.Random(seed))
    world.write("e.txt", "own")
    world.write("e.txt", "shared", "shared")
    world.write("a.s", f"{word} e.txt")
    world.scan()
    step_until(world, lambda: running(world, has_read=False))
    own = world.disk.files["game"]["e.txt"]
    world.disk.delete("game", "e.txt")
    step_until(world, lambda: running(world, has_read=True))
    world.disk.put("game", "e.txt", own)

    world.run()
    world.settle(restart=True)

    clean = world.clean()
    assert products(world.live_jobs()) == products(clean.live_jobs()), f"a job's result differs from a clean build, seed {seed}"

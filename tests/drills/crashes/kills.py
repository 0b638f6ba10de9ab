"""Drills K1, K2, K3 and E1: the engine dies, or its disk fails, at any moment.

Then the engine restarts, and its result must equal a clean build.
"""

from __future__ import annotations

import errno
import random
import signal
from collections.abc import Callable
from pathlib import Path

from ..worlds.children import FINE, KNOWN, Child, Fault
from ..worlds.report import Report, Say
from ..worlds.world import World


def random_kills(
    folder: Path,
    count: int,
    seed: int,
    *,
    is_family: bool = True,
    mutant: str = "",
    say: Say = print,
) -> Report:
    """Drills K1 and K2: kill the engine at a random time while it processes changes, and restart it; repeat this `count` times.

    Each time, 12 random changes are made in a project that begins with 60 sources. In about half of the cases, the changes are
    reverted before the restart.
    """
    say(f"seed {seed}")
    report = Report("K1" if is_family else "K2")
    world = World(folder / "project", seed=seed)
    dice = random.Random(seed)
    ran_s = _build(world)
    for number in range(count):
        before = world.remember()
        world.change(12)
        child = Child(world, mutant=mutant)
        if child.is_running_after(dice.uniform(0.0, ran_s)):
            report.faults += 1
            child.kill_family() if is_family else child.kill()
        child.end()
        child.await_no_workers()
        _after_death(world, report, f"kill {number}")
        if dice.random() < 0.5:
            world.go_back(before)
        report.runs += sum(world.engine_run().runs.values())
        _after_restart(world, report, f"kill {number}")
    return report


def spread_kills(
    folder: Path, count: int, seed: int, *, mutant: str = "", say: Say = print, kind: Callable[..., World] = World
) -> Report:
    """Drill K1-points: kill the engine at `count` of the calls that change the disk during 12 edits.

    The chosen calls are spread evenly and come in random order. A kill at a random time, as in K1, mostly hits an engine that waits
    for its workers; here each kill falls between two changes of the disk.
    """
    say(f"seed {seed}")
    report = Report("K1-points")
    world = kind(folder / "project", seed=seed)
    dice = random.Random(seed)
    report.points = _points(world)
    parts = [(number + dice.random()) / count for number in range(count)]
    dice.shuffle(parts)
    for number, part in enumerate(parts):
        before = world.remember()
        world.change(12)
        at = 1 + int(part * report.points)
        child = Child(world, fault=Fault(at), mutant=mutant)
        status, where = child.end(), f"kill {number} at point {at}"
        report.faults += status == -signal.SIGKILL
        if status not in (FINE, -signal.SIGKILL):
            report.violations.append(f"{where}: ended with {status}: {child.text}")
        child.await_no_workers()
        _after_death(world, report, where)
        if dice.random() < 0.5:
            world.go_back(before)
        report.runs += sum(world.engine_run().runs.values())
        _after_restart(world, report, where)
    return report


def _points(world: World) -> int:
    """Return how many calls change the disk while an engine processes 12 edits of a built project."""
    world.engine_run()
    world.change(12)
    child = Child(world)
    child.end()
    world.engine_run()
    return child.points


def _build(world: World) -> float:
    import time

    world.engine_run()
    world.change(12)
    started = time.monotonic()
    Child(world).end()
    return (time.monotonic() - started) * 1.05


def every_point(
    folder: Path,
    seed: int,
    *,
    error: int = 0,
    is_lasting: bool = False,
    first: int = 1,
    step: int = 1,
    mutant: str = "",
    limit: int = 10_000,
    workers: int = 2,
    say: Say = print,
) -> Report:
    """Drills K3 and E1: at the n-th call that changes the disk, kill the engine, or let the call fail with `error`.

    n grows from `first` by `step` until an engine ends before its n-th call. The same kinds of edits are made for each n. For every
    second n, they are reverted before the restart. With a `mutant`, which is an engine broken on purpose, the drill ends at the
    first violation. Most of the time is spent on starting `workers`.
    """
    say(f"seed {seed}, error {errno.errorcode.get(error, 'none: kills')}")
    report = Report("E1" if error else "K3")
    world = World(folder / "project", sources=8, commands=2, seed=seed)
    world.workers = workers
    world.engine_run()
    at = first
    while at <= limit:
        before = world.remember()
        _same_changes(world, at)
        child = Child(world, fault=Fault(at, error, is_lasting), mutant=mutant)
        status = child.end()
        if status not in ((FINE, KNOWN) if error else (FINE, -signal.SIGKILL)):
            report.violations.append(f"point {at}: ended with {status}: {child.text}")
        is_through = status == FINE and child.points < at
        report.faults += not is_through
        report.points = max(report.points, child.points, at - 1)
        child.await_no_workers()
        _after_death(world, report, f"point {at}")
        if (at // step) % 2:
            world.go_back(before)
        report.runs += sum(world.engine_run().runs.values())
        _after_restart(world, report, f"point {at}")
        if is_through or (mutant and any("ended with" not in text for text in report.violations)):
            break
        at += step
    return report


def _same_changes(world: World, number: int) -> None:
    """Make an edit of each kind, a rename, a deletion that empties a folder, and a new source that needs a new folder."""
    texts = sorted(rel for rel in world.sources if rel.endswith(".txt"))
    ups = sorted(rel for rel in world.sources if rel.endswith(".up"))
    world.put(texts[0])
    world.put(texts[1])
    world.put(ups[0])
    world.rename(texts[-1])
    if number % 2:
        world.put(f"assets/new{number}/deep/a.txt")
    for rel in [rel for rel in world.sources if rel.startswith("assets/new") and f"new{number}/" not in rel]:
        world.delete_source(rel)


def _after_death(world: World, report: Report, where: str) -> None:
    report.violations += [f"{where}, dead: {text}" for text in (*world.half_products(), *world.wrong_rows())]


def _after_restart(world: World, report: Report, where: str) -> None:
    report.violations += [f"{where}, restarted: {text}" for text in world.violations()]

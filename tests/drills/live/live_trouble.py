"""Drills E1, E3 and D4 under a live engine: the cache, disk or project disappears.

The engine reports the loss, and continues by itself after the return.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from ..crashes.hosts import small_disk
from ..worlds.children import workers_of
from ..worlds.report import Report, Say
from ..worlds.serving import TEXTS, LiveWorld, Serving, serving

_FULL_KIB, _ROOMY_KIB = 140 << 10, 600 << 10
"""Free space slightly above the engine's reserve."""
_SPIN_S = 3.0


def taken_away(folder: Path, *, mutant: str = "", say: Say = print) -> Report:
    """Cache, database, products, configuration, project or workers disappear while the engine runs."""
    report = Report("taken away")
    for number, take in enumerate(_TAKEN):
        world = LiveWorld(folder / f"project{number}", sources=12)
        with serving(world, report, mutant=mutant) as engine:
            take(world, engine)
            world.write("assets/after.txt", "after")
            report.faults += 1
            name = take.__name__.strip("_")
            say(f"  {name}: right after {engine.verify(report, name):.2f} s; {engine.messages[:1]}")
    return report


def _cache(world: LiveWorld, _engine: Serving) -> None:
    shutil.rmtree(world.cache.rename(world.root / "Gone"))


def _database(world: LiveWorld, _engine: Serving) -> None:
    for path in world.cache.glob("assetdb.sqlite*"):
        path.unlink()


def _products(world: LiveWorld, _engine: Serving) -> None:
    for path in world.cache.glob("*/f*"):
        shutil.rmtree(path)


def _configuration(world: LiveWorld, engine: Serving) -> None:
    settings = (world.root / "aptui.yaml").read_text()
    (world.root / "aptui.yaml").unlink()
    assert engine.until(lambda: engine.status()["health"]["configuration"]), (
        "the engine does not report that its configuration is missing"
    )
    world.config(settings)


def _project(world: LiveWorld, engine: Serving) -> None:
    away = world.root.with_name("away")
    world.root.rename(away)
    assert engine.until(lambda: engine.status()["health"]["disk"]), (
        "the engine does not report that the folder of its project is missing"
    )
    assert not world.root.exists(), "the folder of the moved project was created again"
    away.rename(world.root)


def _workers(world: LiveWorld, engine: Serving) -> None:
    for pid in workers_of(engine.process.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for number in range(30):
        world.write(f"assets/{number}.txt", "many")


_TAKEN: tuple[Callable[[LiveWorld, Serving], None], ...] = (_cache, _database, _products, _configuration, _project, _workers)


def full_disk(folder: Path, *, mutant: str = "", say: Say = print) -> Report:
    """Drill E1: the disk of the cache fills up: the engine reports it, all products are whole, no thread spins.

    With free space it continues. Needs root.
    """
    report = Report("E1 live")
    with small_disk(folder / "disk", _FULL_KIB) as disk:
        world = LiveWorld(folder / "project", f"{TEXTS}cache: {disk}/Cache\n")
        world.cache = disk / "Cache"
        world.write("assets/a.txt", "a")
        with serving(world, report, mutant=mutant) as engine:
            for number in range(60):
                world.write(f"assets/{number}.txt", os.urandom(1_000_000))
            report.faults += 1
            if not engine.until(lambda: "is full" in engine.status()["health"]["disk"]):
                report.violations.append(f"the full disk is not reported: {engine.status()['health']}")
            report.violations += world.half_products()
            before = engine.processor_s()
            time.sleep(_SPIN_S)
            if (spent_s := engine.processor_s() - before) > _SPIN_S / 3:
                report.violations.append(f"it spins: {spent_s:.2f} s of processor time in {_SPIN_S} s")
            subprocess.run(["mount", "-o", f"remount,size={_ROOMY_KIB}k", str(disk)], check=True, capture_output=True)
            say(f"  right {engine.verify(report, 'room again', 60.0):.1f} s after there is room")
    return report

"""Drill E1 under a live engine: the disk of the cache fills up. The engine reports it, and continues when there is space."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

from ..crashes.hosts import small_disk
from ..worlds.report import Report, Say
from ..worlds.serving import TEXTS, LiveWorld, serving

_FULL_KIB, _ROOMY_KIB = 140 << 10, 600 << 10
"""Free space slightly above the engine's reserve."""
_SPIN_S = 3.0


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

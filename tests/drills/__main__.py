"""`python -m tests.drills NAME [--count N] [--seed S] [--step N] [--mutant NAME]`.

Run one drill (a test that injects faults) at full length, or `all` drills.
"""

from __future__ import annotations

import argparse
import errno
import os
import secrets
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from .crashes import hosts, kills, power, sharing
from .hostile import hostile, hostile_content, neighbours, serve_hostile, wire_fuzz
from .live import live, live_scenes, live_trouble, vanished
from .storm import storm
from .worlds import chained, children, serving, truth
from .worlds.children import ERRNOS
from .worlds.report import Report

Drill = Callable[[Path, argparse.Namespace], Report]

DRILLS: dict[str, Drill] = {
    "k1": lambda folder, chosen: kills.random_kills(folder, chosen.count, chosen.seed, mutant=chosen.mutant),
    "k2": lambda folder, chosen: kills.random_kills(folder, chosen.count, chosen.seed, is_family=False),
    "k1-points": lambda folder, chosen: kills.spread_kills(folder, chosen.count, chosen.seed, mutant=chosen.mutant),
    "k1-chains": lambda folder, chosen: kills.spread_kills(
        folder, chosen.count, chosen.seed, mutant=chosen.mutant, kind=chained.ChainedWorld
    ),
    "k3": lambda folder, chosen: kills.every_point(folder, chosen.seed, step=chosen.step, mutant=chosen.mutant),
    "e1": lambda folder, chosen: kills.every_point(
        folder, chosen.seed, step=chosen.step, error=ERRNOS.get(chosen.error, errno.ENOSPC), is_lasting=chosen.lasting
    ),
    "p1": lambda folder, chosen: power.power_cuts(folder, chosen.count, chosen.seed, mutant=chosen.mutant),
    "e1-disk": lambda folder, chosen: hosts.full_disk(folder, chosen.seed, range(64, 2048, 64)),
    "e3": lambda folder, _chosen: hosts.read_only_cache(folder),
    "d1": lambda folder, _chosen: hosts.locked_database(folder, 5.0),
    "d2": lambda folder, chosen: hosts.damaged_database(folder, chosen.count, chosen.seed),
    "d3": lambda folder, _chosen: hosts.two_engines(folder),
    "d4": lambda folder, _chosen: hosts.deleted(folder),
    "d4-killed": lambda folder, chosen: hosts.deleted_and_killed(folder, chosen.step),
    "x1": lambda folder, _chosen: hosts.tampered(folder),
    "w7": lambda folder, chosen: hosts.rewritten(folder, chosen.count, is_atomic=True, seed=chosen.seed),
    "w7-in-place": lambda folder, chosen: hosts.rewritten(folder, chosen.count, is_atomic=False, seed=chosen.seed),
    "ctrl-c": lambda folder, _chosen: hosts.interrupted(folder),
    # Drills of hostile builders and clients.
    "b1": lambda folder, chosen: hostile.hostile_mix(folder, max(1, chosen.count // 50), chosen.seed, mutant=chosen.mutant),
    "b1-batch": lambda folder, _chosen: hostile.hostile_batch(folder),
    "b2": lambda folder, chosen: hostile.lies(folder, many=100_000, mutant=chosen.mutant),
    "b3": lambda folder, chosen: hostile.crash_loop(folder, mutant=chosen.mutant),
    "a1": lambda folder, chosen: wire_fuzz.attacked(folder, chosen.seed, max(1, chosen.count // 50), mutant=chosen.mutant),
    "hostile-clients": lambda folder, chosen: serve_hostile.hostile_clients(
        folder, chosen.seed, chosen.count / 5, mutant=chosen.mutant
    ),
    "hostile-assets": lambda folder, chosen: hostile_content.assets(folder, chosen.seed, mutant=chosen.mutant),
    "names": lambda folder, chosen: hostile_content.names(folder, chosen.count * 40, chosen.seed, mutant=chosen.mutant),
    "neighbours": lambda folder, chosen: neighbours.drill(folder, mutant=chosen.mutant),
    # Drills of machines that share results.
    "l1-killed": lambda folder, chosen: sharing.killed_at_every_point(folder, step=chosen.step, mutant=chosen.mutant),
    # Drills of the live engine.
    "w1-live": lambda folder, chosen: live.new_trees(folder, _laps(chosen), chosen.seed, mutant=chosen.mutant),
    "w2-live": lambda folder, chosen: live.overflows(folder, chosen.seed, mutant=chosen.mutant),
    "w3-live": lambda folder, chosen: live.watch_limits(folder, mutant=chosen.mutant),
    "w4-live": lambda folder, chosen: live.renames(folder, _laps(chosen), chosen.seed, mutant=chosen.mutant),
    "w4-saves": lambda folder, chosen: live.saves(folder, _laps(chosen), mutant=chosen.mutant),
    "w5-live": lambda folder, chosen: live.roots(folder, mutant=chosen.mutant),
    "w6-live": lambda folder, chosen: live.invisible(folder, mutant=chosen.mutant),
    "w7-live": lambda folder, chosen: live_scenes.written(folder, _laps(chosen), chosen.seed, mutant=chosen.mutant),
    "k2-live": lambda folder, chosen: live.kills(folder, chosen.count, chosen.seed, mutant=chosen.mutant),
    "k4-live": lambda folder, chosen: live.stopped(
        folder, max(1, chosen.count // 16), changes=chosen.changes, mutant=chosen.mutant
    ),
    "n1-live": lambda folder, chosen: live.names(folder, mutant=chosen.mutant),
    "e1-live": lambda folder, chosen: live_trouble.full_disk(folder, mutant=chosen.mutant),
    "checkout": lambda folder, chosen: live_scenes.checkouts(folder, 2 * _laps(chosen), mutant=chosen.mutant),
    "vanished-folders": lambda folder, chosen: vanished.vanished_folders(folder, mutant=chosen.mutant),
    "live-truth": lambda folder, chosen: truth.live_truth(
        folder, chosen.minutes, chosen.seed, mutant=chosen.mutant, changes_code=not chosen.without_code
    ),
    "storm": lambda folder, chosen: storm.storm(folder, chosen.count, chosen.seed, mutant=chosen.mutant),
    "s45": lambda folder, chosen: live_scenes.products_by_hand(folder, mutant=chosen.mutant),
    "s67": lambda folder, chosen: live_scenes.much(folder, chosen.changes, chosen.seed, mutant=chosen.mutant),
    "s68": lambda folder, chosen: live_scenes.named(folder, mutant=chosen.mutant),
}
NEEDS_ROOT = {"p1", "e1-disk", "e3", "w2-live", "w3-live", "e1-live", "neighbours"}
_MODULES = (
    children,
    hostile,
    hostile_content,
    neighbours,
    power,
    serve_hostile,
    serving,
    sharing,
    storm,
    truth,
    vanished,
    wire_fuzz,
)
MUTANTS = {name for module in _MODULES for name in module.MUTANTS} - {""}


def _laps(chosen: argparse.Namespace) -> int:
    """Return the number of rounds of a drill whose single round takes hundreds of steps."""
    return max(1, chosen.count // 5)


def main() -> int:
    """Run the requested drills (tests that inject faults); return 1 if any drill found a violation, else 0."""
    parser = argparse.ArgumentParser(prog="python -m tests.drills", description=__doc__)
    parser.add_argument("name", choices=[*DRILLS, "all"])
    parser.add_argument("--count", type=int, default=50, help="kills, damages or saves")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1 << 30))
    parser.add_argument("--step", type=int, default=1, help="take every n-th point")
    parser.add_argument(
        "--mutant", choices=sorted(MUTANTS), default="", help="break the program on purpose: the drill must find it"
    )
    parser.add_argument("--changes", type=int, default=2_000, help="while the engine is stopped (k4-live), and of s67")
    parser.add_argument("--minutes", type=float, default=2.0, help="how long live-truth edits")
    parser.add_argument("--without-code", action="store_true", help="live-truth leaves builders and tools as they are")
    parser.add_argument("--error", choices=sorted(ERRNOS), default="ENOSPC")
    parser.add_argument("--lasting", action="store_true", help="the error stays")
    chosen = parser.parse_args()
    is_bad = False
    for name in DRILLS if chosen.name == "all" else [chosen.name]:
        if name in NEEDS_ROOT and os.geteuid() != 0:
            print(f"{name}: needs root, left out")
            continue
        started = time.monotonic()
        with tempfile.TemporaryDirectory(prefix=f"drill-{name}-") as folder:
            os.environ.update({f"XDG_{home}_HOME": f"{folder}/xdg" for home in ("CACHE", "CONFIG", "STATE")})
            print(f"{name}: seed {chosen.seed}", flush=True)
            report = DRILLS[name](Path(folder), chosen)
        print(f"{report}\n  {report.runs} runs in restarts, {time.monotonic() - started:.1f} s", flush=True)
        is_bad = is_bad or bool(report.violations)
    return int(is_bad)


if __name__ == "__main__":
    sys.exit(main())

"""`python -m tests.drills NAME [--count N] [--seed S] [--step N] [--mutant NAME]`: one drill without bounds, or `all` of them."""

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

from . import hosts, kills
from .children import ERRNOS, MUTANTS
from .kills import Report

Drill = Callable[[Path, argparse.Namespace], Report]

DRILLS: dict[str, Drill] = {
    "k1": lambda folder, chosen: kills.random_kills(folder, chosen.count, chosen.seed, mutant=chosen.mutant),
    "k2": lambda folder, chosen: kills.random_kills(folder, chosen.count, chosen.seed, is_family=False),
    "k3": lambda folder, chosen: kills.every_point(folder, chosen.seed, step=chosen.step, mutant=chosen.mutant),
    "e1": lambda folder, chosen: kills.every_point(
        folder, chosen.seed, step=chosen.step, error=ERRNOS.get(chosen.error, errno.ENOSPC), is_lasting=chosen.lasting
    ),
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
}
NEEDS_ROOT = {"e1-disk", "e3"}


def main() -> int:
    """Run the drills that were asked for; 1 when one found something."""
    parser = argparse.ArgumentParser(prog="python -m tests.drills", description=__doc__)
    parser.add_argument("name", choices=[*DRILLS, "all"])
    parser.add_argument("--count", type=int, default=50, help="kills, damages or saves")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1 << 30))
    parser.add_argument("--step", type=int, default=1, help="take every n-th point")
    parser.add_argument("--mutant", choices=sorted(MUTANTS), default="", help="break the contract on purpose: violations must show")
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
            os.environ["XDG_CACHE_HOME"] = os.environ["XDG_CONFIG_HOME"] = f"{folder}/xdg"
            print(f"{name}: seed {chosen.seed}", flush=True)
            report = DRILLS[name](Path(folder), chosen)
        print(f"{report}\n  {report.runs} runs in restarts, {time.monotonic() - started:.1f} s", flush=True)
        is_bad = is_bad or bool(report.violations)
    return int(is_bad)


if __name__ == "__main__":
    sys.exit(main())

"""python -m tests.bench ROW… [--count N] [--runs R] [--dir DIR]: measure rows of the targets; `all` for every quick one.

A ratio of two programs is printed only if both did the same work. Their products are counted and compared byte by byte.
"""

from __future__ import annotations

import argparse
import filecmp
import json
import math
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.bench import corpus, farm, hub, live, tree, viewers, work
from tests.bench.measure import Cost, aptui, measure_as_installed, median, run, say, settle, spread
from tests.bench.peers import gulp_command, ninja_project

ROWS: dict[str, Callable[[Bench], None]] = {}


def row(function: Callable[[Bench], None]) -> Callable[[Bench], None]:
    """Register a benchmark, which prints one row of the report, under the name of its function."""
    ROWS[function.__name__.replace("_", "-")] = function
    return function


class Bench:
    """The working folder and the sources."""

    def __init__(self, base: Path, count: int, runs: int) -> None:
        self.base, self.count, self.runs = base, count, runs
        self.sources = base / f"sources-{count}"
        if not self.sources.is_dir():
            corpus.make(self.sources, count)
        self.paths = sorted(str(path.relative_to(self.sources)) for path in self.sources.rglob("*") if path.is_file())

    def project(self, name: str, text: str) -> Path:
        """Write a fresh project."""
        folder = self.base / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        (folder / "aptui.yaml").write_text(text, encoding="utf-8")
        return folder

    def copy_project(self, name: str = "copy", platforms: str = "linux: {}") -> Path:
        """Write a project that copies every source."""
        return self.project(
            name,
            f"platforms: {{{platforms}}}\nscan_folders: [{{name: game, path: {self.sources}}}]\n"
            'builders: [{name: all, copy: ["*"]}]\ncache: Cache\n',
        )

    def build(self, project: Path, *options: str) -> tuple[Cost, dict[str, int]]:
        """Run `aptui batch` and return its cost and its own summary."""
        settle()
        cost = run(aptui(project, *options))
        return cost, json.loads(cost.output[cost.output.index("{") :])

    def same_bytes(self, products: Path, *, is_lower: bool = True) -> None:
        """Raise an error if the products differ from the sources in any byte."""
        for path in self.paths:
            if not filecmp.cmp(self.sources / path, products / (path.lower() if is_lower else path), shallow=False):
                raise SystemExit(f"'{path}' differs from its product: no ratio")


@row
def cold(bench: Bench) -> None:
    """The first build of a project, in turns with `cp -r`, and with ninja and gulp if they are installed."""
    ours, copies, peak = [], [], 0.0
    ninjas: list[Cost] = []
    gulps: list[Cost] = []
    for _run in range(bench.runs):
        shutil.rmtree(bench.base / "cp", ignore_errors=True)
        settle()
        copies.append(run(["cp", "-r", str(bench.sources), str(bench.base / "cp")]))
        project = bench.copy_project()
        cost, did = bench.build(project)
        if did["jobs_run"] != bench.count:
            raise SystemExit(f"{did['jobs_run']} jobs run instead of {bench.count}")
        ours.append(cost)
        peak = max(peak, cost.peak_mib)
        ninjas += _built_by_ninja(bench)
        gulps += _copied_by_gulp(bench)
    bench.same_bytes(bench.base / "copy" / "Cache" / "linux")
    ratio = median(ours).wall_s / median(copies).wall_s
    say("cold", f"aptui {spread(ours)}, cp -r {spread(copies)}: {ratio:.2f} × cp -r (target ≤ 2.5); engine peak {peak:.0f} MiB")
    for name, peers, target in (("ninja -j2", ninjas, 8), ("gulp", gulps, 2)):
        if peers:
            faster = median(peers).wall_s / median(ours).wall_s
            say(f"cold, {name}", f"{spread(peers)}: aptui is {faster:.1f} × faster (target ≥ {target})")


def _built_by_ninja(bench: Bench) -> list[Cost]:
    folder = ninja_project(bench)
    if folder is None:
        return []
    settle()
    cost = run(["ninja", "-j2"], cwd=folder)
    bench.same_bytes(folder / "out")
    return [cost]


def _copied_by_gulp(bench: Bench) -> list[Cost]:
    command = gulp_command(bench)
    if command is None:
        return []
    settle()
    cost = run(command, cwd=bench.base)
    bench.same_bytes(bench.base / "gulp", is_lower=False)
    return [cost]


@row
def nothing_changed(bench: Bench) -> None:
    """Time a batch in which nothing changed, from its start to its exit, compared with ninja and `find`."""
    project = bench.copy_project()
    bench.build(project)
    bench.build(project)
    folder = ninja_project(bench)
    if folder is not None:
        run(["ninja", "-j2"], cwd=folder)
        run(["ninja"], cwd=folder)
    ours, finds, ninjas = [], [], []
    for _run in range(max(5, bench.runs)):
        cost, did = bench.build(project)
        if did["jobs_run"]:
            raise SystemExit("something ran although nothing changed")
        ours.append(cost)
        finds.append(run(["find", str(bench.sources), "-printf", "%s %T@\n"]))
        if folder is not None:
            ninjas.append(run(["ninja"], cwd=folder))
    text = f"aptui {spread(ours)}, find {spread(finds)}"
    if ninjas:
        ratio = median(ours).wall_s / median(ninjas).wall_s
        text += f", ninja {spread(ninjas)}: {ratio:.2f} × ninja (target ≤ 0.65)"
    say("nothing changed", f"{text}; peak {median(ours).peak_mib:.0f} MiB")


@row
def one_changed(bench: Bench) -> None:
    """Time how much longer a batch takes when one file changed than when nothing changed."""
    project = bench.copy_project()
    bench.build(project)
    bench.build(project)
    nothing, one = [], []
    target = bench.sources / bench.paths[len(bench.paths) // 2]
    before = target.read_bytes()
    for index in range(max(5, bench.runs)):
        nothing.append(bench.build(project)[0])
        target.write_bytes(before + b"%d" % index)
        cost, did = bench.build(project)
        if did["jobs_run"] != 1:
            raise SystemExit(f"{did['jobs_run']} jobs run instead of 1")
        one.append(cost)
    target.write_bytes(before)
    more = (median(one).wall_s - median(nothing).wall_s) * 1000
    say("one changed", f"{spread(one)}, nothing changed {spread(nothing)}: + {more:.0f} ms (target ≤ + 15 ms)")


@row
def two_platforms(bench: Bench) -> None:
    """Time a cold build for two platforms, compared with a cold build for one."""
    one, _did = bench.build(bench.copy_project("one"))
    two, did = bench.build(bench.copy_project("two", "linux: {}, server: {}"))
    if did["jobs_run"] != 2 * bench.count:
        raise SystemExit("the second platform was not built")
    say("two platforms", f"{two.wall_s:.2f} s against {one.wall_s:.2f} s: {two.wall_s / one.wall_s:.2f} × (target ≤ 1.8)")


@row
def tools(bench: Bench) -> None:
    """Jobs that start a program each, compared with two bare Popen loops and ninja."""
    count = min(bench.count, 2000)
    chosen = bench.base / "tool-sources"
    shutil.rmtree(chosen, ignore_errors=True)
    for path in bench.paths[:count]:
        (chosen / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(bench.sources / path, chosen / path)
    project = bench.project(
        "tools",
        f"platforms: {{linux: {{}}}}\nscan_folders: [{{name: game, path: {chosen}}}]\nbuilders:\n"
        '  - {name: all, patterns: ["*"], version: 1, command: "cp {source} {products_dir}/{name}", products: ["*"]}\n'
        "cache: Cache\n"
        "local_store: {enabled: false}\n",  # each run has a new store, so that it does not find results of the last run
    )
    cost, did = bench.build(project)
    if did["jobs_run"] != count:
        raise SystemExit(f"{did['jobs_run']} jobs run instead of {count}")
    bare = _bare_popen(bench, chosen, bench.paths[:count])
    say(
        "tools",
        f"{count / cost.wall_s:.0f}/s against two Popen at a time {count / bare.wall_s:.0f}/s: {bare.wall_s / cost.wall_s:.2f} × "
        f"(target ≥ 0.9); CPU {1000 * cost.cpu_s / count:.2f} ms a job against {1000 * bare.cpu_s / count:.2f}",
    )


def _bare_popen(bench: Bench, root: Path, paths: list[str]) -> Cost:
    import subprocess

    out = bench.base / "bare"
    shutil.rmtree(out, ignore_errors=True)
    for path in paths:
        (out / path).parent.mkdir(parents=True, exist_ok=True)
    settle()
    began, cpu = time.perf_counter(), sum(os.times()[:4])
    running: list[subprocess.Popen[bytes]] = []
    for path in paths:
        if len(running) == 2:
            running.pop(0).wait()
        running.append(subprocess.Popen(["cp", str(root / path), str(out / path)]))
    for process in running:
        process.wait()
    return Cost(time.perf_counter() - began, sum(os.times()[:4]) - cpu, 0.0)


_ENGINE = """\
import resource, sys
from aptui.__main__ import main
code = main()
used = resource.getrusage(resource.RUSAGE_SELF)
print(used.ru_utime + used.ru_stime)
sys.exit(code)
"""


@row
def copy_cost(bench: Bench) -> None:
    """Processor time of the engine's process for one copied file.

    It is the difference between builds of N and N / 4 files, divided by the difference of these counts. All files are in memory.
    """
    folder = Path(tempfile.mkdtemp(prefix="aptui-bench-", dir="/dev/shm"))
    least: dict[int, float] = {}
    try:
        for count in (bench.count // 4, bench.count):
            small = Bench(folder / str(count), count, bench.runs)
            for _run in range(bench.runs):
                project = small.copy_project()
                cost = run([sys.executable, "-c", _ENGINE, *aptui(project)[3:]])
                least[count] = min(least.get(count, math.inf), float(cost.output.splitlines()[-1]))
            small.same_bytes(project / "Cache" / "linux")
    finally:
        shutil.rmtree(folder)
    (few, few_s), (many, many_s) = least.items()
    each_us = (many_s - few_s) / (many - few) * 1e6
    say("copy cost", f"{each_us:.0f} µs a copy in the engine (target ≤ 80); {few_s:.2f} s for {few:,}, {many_s:.2f} s for {many:,}")


@row
def install(bench: Bench) -> None:
    """The size of an installation, and the time from `pip install` to the result of the demo; needs an index for pip."""
    folder, wheels = bench.base / "installed", bench.base / "wheels"
    for each in (folder, wheels):
        shutil.rmtree(each, ignore_errors=True)
    root = Path(__file__).parents[2]
    run([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(wheels), str(root)])
    run([sys.executable, "-m", "venv", str(folder)])
    before = _size_bytes(folder)
    pip = run([str(folder / "bin" / "pip"), "install", "--quiet", "--no-cache-dir", *map(str, wheels.iterdir())])
    size = (_size_bytes(folder) - before) / 1e6
    shutil.rmtree(bench.base / "demo", ignore_errors=True)
    demo = run([str(folder / "bin" / "aptui"), "demo", "--batch", str(bench.base / "demo")])
    took = f"pip {pip.wall_s:.1f} s, demo {demo.wall_s:.1f} s: {pip.wall_s + demo.wall_s:.1f} s"
    say("install", f"{size:.0f} MB beside Python and pip (target ≤ 150); {took} (target ≤ 20)")


def _size_bytes(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir())


@row
def equal_bytes(bench: Bench) -> None:
    """Sources are touched: their bytes are read, and their products do not change."""
    project = bench.copy_project()
    bench.build(project)
    now = time.time()
    for path in bench.paths:
        os.utime(bench.sources / path, (now, now))
    cost, did = bench.build(project)
    if did["jobs_run"]:
        raise SystemExit("a touched file was built again")
    settle()
    hashed = run(["sh", "-c", "find . -type f -print0 | xargs -0 -P2 -n 500 sha256sum >/dev/null"], cwd=bench.sources)
    say("equal bytes", f"{cost.wall_s:.2f} s, sha256sum by two {hashed.wall_s:.2f} s: {cost.wall_s / hashed.wall_s:.2f} ×")


@row
def full_scan(bench: Bench) -> None:
    """Measure a scan that reads all bytes of all sources, although no file time changed."""
    project = bench.copy_project()
    bench.build(project)
    cost, _did = bench.build(project, "--full-scan")
    settle()
    hashed = run(["sh", "-c", "find . -type f -print0 | xargs -0 -P2 -n 500 cat >/dev/null"], cwd=bench.sources)
    say(
        "full scan",
        f"{cost.wall_s:.2f} s, reading by two {hashed.wall_s:.2f} s: {cost.wall_s / hashed.wall_s:.2f} × (target ≤ 1.5)",
    )


ROWS.update(live.ROWS)
ROWS.update(hub.ROWS)
ROWS.update(work.ROWS)
ROWS.update(farm.ROWS)
ROWS.update(tree.ROWS)
ROWS.update(viewers.ROWS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="+", choices=[*ROWS, "all"])
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--dir", type=Path, help="where to work; kept, so that the sources are made once")
    arguments = parser.parse_args()
    measure_as_installed()
    base = arguments.dir or Path(tempfile.mkdtemp(prefix="aptui-bench-"))
    base.mkdir(parents=True, exist_ok=True)
    try:
        bench = Bench(base, arguments.count, arguments.runs)
        say("sources", f"{arguments.count:,} files, Python {sys.version.split()[0]}, {os.cpu_count()} cores")
        for name in list(ROWS) if "all" in arguments.rows else arguments.rows:
            ROWS[name](bench)
    finally:
        if arguments.dir is None:
            shutil.rmtree(base, ignore_errors=True)


if __name__ == "__main__":
    main()

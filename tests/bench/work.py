"""Builders in Python: the speed-up of two workers on two cores, and the cost of a source that is analysed and has two jobs."""

from __future__ import annotations

import shutil
import sys
import time
from typing import TYPE_CHECKING

from tests.bench.measure import Cost, median, run, say, settle, spread

if TYPE_CHECKING:
    from tests.bench.__main__ import Bench

JOBS = 250
ROUNDS = 300_000
"""Iterations of a loop in Python: about 50 ms."""
WORK = f"""\
def work(data):
    number = len(data)
    for _ in range({ROUNDS}):
        number = (number * 1103515245 + 12345 + data[number % len(data)]) & 0x7FFFFFFF
    return str(number)

"""
BUILDER = """\
from pathlib import Path
from aptui.sdk import CreateJobsResponse, JobDescriptor, JobProduct, ProcessJobResponse, Result

class Busy:
    name = "busy"
    version = 1

    def create_jobs(self, request):
        return CreateJobsResponse(Result.SUCCESS, [JobDescriptor("job", platform.id) for platform in request.platforms])

    def process_job(self, request):
        path = Path(request.products_dir) / Path(request.source).name
        path.write_text(work(Path(request.full_path).read_bytes()))
        return ProcessJobResponse(Result.SUCCESS, [JobProduct(str(path), 0)])
"""
ALONE = """\
import sys
from multiprocessing import get_context
from pathlib import Path

def write(source):
    (Path(sys.argv[2]) / source.name).write_text(work(source.read_bytes()))

sources, count = sorted(Path(sys.argv[1]).iterdir()), int(sys.argv[3])
if count == 1:
    for source in sources:
        write(source)
else:
    with get_context("fork").Pool(count) as pool:
        pool.map(write, sources, 1)
"""


def cpu_bound(bench: Bench) -> None:
    """Run Python jobs of 50 ms on two workers; compare with the same work in one process and in two plain processes.

    Two plain processes show the highest possible speed-up. It is below 2 if the two processors are threads of one core.
    """
    sources, alone = bench.base / "busy-sources", bench.base / "busy-alone"
    shutil.rmtree(sources, ignore_errors=True)
    sources.mkdir()
    for number in range(JOBS):
        (sources / f"{number}.busy").write_bytes(bytes([number]) * 1000)
    ours: list[Cost] = []
    bare: dict[int, list[Cost]] = {1: [], 2: []}
    for _run in range(bench.runs):
        shutil.rmtree(alone, ignore_errors=True)
        (alone / "out").mkdir(parents=True)
        (alone / "alone.py").write_text(WORK + ALONE, encoding="utf-8")
        project = bench.project(
            "busy",
            f"platforms: {{linux: {{}}}}\nscan_folders: [{{name: game, path: {sources}}}]\nworkers: 2\n"
            'builders: [{name: busy, uses: busy, patterns: ["*.busy"]}]\ncache: Cache\nlocal_store: {enabled: false}\n',
        )
        (project / "builders").mkdir()
        (project / "builders" / "busy.py").write_text(WORK + BUILDER, encoding="utf-8")
        settle()
        for count, costs in bare.items():
            costs.append(run([sys.executable, str(alone / "alone.py"), str(sources), str(alone / "out"), str(count)], cwd=alone))
        cost, did = bench.build(project)
        if did["jobs_run"] != JOBS:
            raise SystemExit(f"{did['jobs_run']} jobs run instead of {JOBS}")
        ours.append(cost)
    wall_s = median(ours).wall_s
    one, two = median(bare[1]), median(bare[2])
    say(
        "cpu-bound",
        f"{JOBS} jobs {spread(ours)}, one process {spread(bare[1])}: {one.wall_s / wall_s:.2f} × (target ≥ 1.9); two bare ones "
        f"{spread(bare[2])}: {one.wall_s / two.wall_s:.2f} ×; "
        f"CPU {median(ours).cpu_s:.2f} s against {one.cpu_s:.2f} and {two.cpu_s:.2f} s",
    )


ANALYSES = """\
from pathlib import Path
from aptui.sdk import CreateJobsResponse, JobDescriptor, JobProduct, ProcessJobResponse, Result, SourceDependency

class Two:
    name = "two"
    version = 1

    def create_jobs(self, request):
        needs = [SourceDependency("shared.inc")]
        jobs = [JobDescriptor(key, platform.id) for platform in request.platforms for key in ("first", "second")]
        return CreateJobsResponse(Result.SUCCESS, jobs, needs)

    def process_job(self, request):
        path = Path(request.products_dir) / f"{Path(request.source).name}.{request.job_key}"
        path.write_bytes(Path(request.full_path).read_bytes())
        return ProcessJobResponse(Result.SUCCESS, [JobProduct(str(path), 0)])
"""


def analysis(bench: Bench) -> None:
    """Builds of N / 4 and N sources, each with two jobs, that a builder in Python analyses.

    Each build is timed cold, after a change of one source, and after a change of the file that all sources depend on.
    """
    for count in (bench.count // 4, bench.count):
        sources = bench.base / f"analysed-{count}"
        shutil.rmtree(sources, ignore_errors=True)
        for number in range(count):
            folder = sources / f"{number // 100}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{number}.two").write_text(f"{number}")
        (sources / "shared.inc").write_text("shared")
        project = bench.project(
            "analysed",
            f"platforms: {{linux: {{}}}}\nscan_folders: [{{name: game, path: {sources}}}]\nworkers: 2\n"
            'builders: [{name: two, uses: two, patterns: ["*.two"]}]\ncache: Cache\nlocal_store: {enabled: false}\n',
        )
        (project / "builders").mkdir()
        (project / "builders" / "two.py").write_text(ANALYSES, encoding="utf-8")
        cold, did = bench.build(project)
        if did["jobs_run"] != 2 * count:
            raise SystemExit(f"{did['jobs_run']} jobs run instead of {2 * count}")
        time.sleep(2.5)  # wait until the files are so old that the engine trusts their times
        bench.build(project)
        (sources / "0" / "0.two").write_text("changed")
        one, did = bench.build(project)
        if did["jobs_run"] != 2:
            raise SystemExit(f"{did['jobs_run']} jobs run instead of 2")
        (sources / "shared.inc").write_text("changed")
        every, did = bench.build(project)
        if did["jobs_run"] != 2 * count:
            raise SystemExit(f"{did['jobs_run']} jobs run instead of {2 * count}")
        say(
            "analysis",
            f"{count:,} sources: CPU {cold.cpu_s / count * 1e6:.0f} µs a source, {cold.wall_s:.1f} s; "
            f"one changed {one.wall_s:.2f} s, CPU {one.cpu_s:.2f} s; "
            f"what all depend on changed {every.wall_s:.1f} s, CPU {every.cpu_s / count * 1e6:.0f} µs a source",
        )


ROWS = {"cpu-bound": cpu_bound, "analysis": analysis}

"""`python -m tests.bench.reports [--pairs N]`: the cost of run reports, in processor time of each process.

In a worker: the same run of a Python builder with and without its report, in turns in one process, so that other load
affects both. In the engine: the time of comparing reports in a batch of this process, as a share of
the processor time of the whole batch; the time of reading the clock is measured and subtracted.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

from aptui.core.orders import ProcessOrder
from aptui.core.project import Builder, BuilderKind, Platform, UndeclaredReads
from aptui.sdk import JobProduct, ProcessJobRequest, ProcessJobResponse, Result
from aptui.worker import builder_import, builder_run, reads
from aptui.worker.file_access import stat_key
from aptui.worker.wire import HEADER_BYTES, FrameKind, decode, encode

_DRAWS = 400
_WORK_S = 0.001
_PLATFORMS = {"linux": Platform("linux")}
_ENGINE = """
import resource, sys, time
from aptui.core.state.stale_results import Witness
spent, calls = 0, 0
def timed(function):
    def timing(*arguments):
        global spent, calls
        began = time.thread_time_ns()
        answer = function(*arguments)
        spent += time.thread_time_ns() - began
        calls += 1
        return answer
    return timing
for name in ("begin", "find_changed", "unread", "find_unsealed"):
    setattr(Witness, name, timed(getattr(Witness, name)))
from aptui.cli.main import main
main(["batch", "--project", sys.argv[1]])
own = resource.getrusage(resource.RUSAGE_SELF)
began = time.thread_time_ns()
for _ in range(10_000):
    time.thread_time_ns()
clock_ns = (time.thread_time_ns() - began) / 10_000
print("COST", (spent - calls * clock_ns) / 1e3, calls, (own.ru_utime + own.ru_stime) * 1e6)
"""
_BUILDER = """
from aptui.sdk import CreateJobsResponse, JobDescriptor, JobProduct, ProcessJobResponse, Result, SourceDependency


class Quick:
    name = "quick"
    version = "1"
    patterns = ("*.q",)

    def create_jobs(self, request):
        jobs = [JobDescriptor("quick", item.id) for item in request.platforms]
        return CreateJobsResponse(Result.SUCCESS, jobs, [SourceDependency("shared.inc")])

    def process_job(self, request):
        with open(request.scan_folder + "/shared.inc", "rb") as file:
            data = file.read() + request.read_source()
        with open(request.product_path(request.stem + ".out"), "wb") as file:
            file.write(data)
        return ProcessJobResponse(Result.SUCCESS, [JobProduct(request.stem + ".out", 0)])
"""


class _Builder:
    """Reads its source and a dependency, is busy for a millisecond, and writes a product."""

    def __init__(self, work_s: float) -> None:
        self._work_s = work_s

    def process_job(self, request: ProcessJobRequest) -> ProcessJobResponse:
        until = time.thread_time() + self._work_s
        data = Path(request.scan_folder, "shared.inc").read_bytes() + request.read_source()
        while time.thread_time() < until:
            hashlib.sha256(data).digest()
        path = request.product_path("a.out")
        Path(path).write_bytes(data)
        return ProcessJobResponse(Result.SUCCESS, [JobProduct(path, 0)])


def _nothing(*_arguments: object) -> tuple[()]:
    return ()


def _no_code(_builder: Builder) -> type[bytes]:
    return bytes


@contextlib.contextmanager
def _without_reports() -> Iterator[None]:
    """Replace the functions that make run reports by plain functions; a `unittest` mock would be slower than the original."""
    with (
        mock.patch.object(builder_import, "code_of", _no_code),
        mock.patch.object(reads, "stamp_of", _nothing),
        mock.patch.object(reads.Reads, "list_used", _nothing),
        mock.patch.object(reads.Reads, "find_changed", _nothing),
    ):
        yield


def in_a_worker(folder: Path, pairs: int, work_s: float) -> str:
    """Return a text that shows by how much (percent) a run report increases the processor time of a run in a worker."""
    root = folder / "assets"
    root.mkdir(exist_ok=True)
    (root / "a.txt").write_bytes(b"source")
    (root / "shared.inc").write_bytes(b"shared")
    code = Path(__file__)
    files = ((str(code), hashlib.sha256(code.read_bytes()).hexdigest()),)
    builder = Builder(b"b" * 16, "quick", BuilderKind.PYTHON, code_files=files, undeclared_reads=UndeclaredReads.WARN)
    instance = _Builder(work_s)
    reads.watch([str(root)])
    state = stat_key((root / "a.txt").stat())

    def one() -> float:
        order = ProcessOrder(
            run_key=1,
            builder="quick",
            root=str(root),
            rel="a.txt",
            source_uuid=bytes(16),
            platform="linux",
            job_key="quick",
            params="{}",
            additional_fingerprint="",
            priority=0,
            is_critical=False,
            expected=state,
            source_digest=hashlib.sha256(b"source").digest(),
            staging=str(folder / "staging"),
            limit_s=20.0,
            memory_limit_bytes=0,
        )
        began = time.thread_time_ns()
        result = builder_run.process(order, builder, _PLATFORMS, lambda _builder: instance)
        decode(FrameKind.RAN, encode(FrameKind.RAN, result)[HEADER_BYTES:])  # the cost includes sending the result to the engine
        spent_us = (time.thread_time_ns() - began) / 1000
        shutil.rmtree(folder / "staging", ignore_errors=True)
        return spent_us

    def bare() -> float:
        with _without_reports():
            return one()

    return _compared(one, bare, pairs)


def _compared(one: Callable[[], float], bare: Callable[[], float], pairs: int) -> str:
    """Compare by the lower quantiles: other load makes runs slower, never faster."""
    one()
    bare()
    with_it, without = [], []
    for number in range(pairs):
        for which in (0, 1) if number % 2 else (1, 0):
            (without if which else with_it).append((bare if which else one)())
    dice = random.Random(1)
    output = []
    for part in (0.1, 0.25, 0.5):
        cost = _excess(with_it, without, part)
        drawn = sorted(_excess(dice.choices(with_it, k=pairs), dice.choices(without, k=pairs), part) for _ in range(_DRAWS))
        low, high = drawn[_DRAWS // 20], drawn[-_DRAWS // 20]
        output.append(
            f"{part:.0%} of runs below {_quantile(without, part):,.0f} µs without: {cost:+.2f} % ({low:+.2f} … {high:+.2f})"
        )
    return f"{pairs} pairs; " + "; ".join(output)


def _excess(with_it: list[float], without: list[float], part: float) -> float:
    return 100 * (_quantile(with_it, part) / _quantile(without, part) - 1)


def _quantile(values: list[float], part: float) -> float:
    return sorted(values)[int(len(values) * part)]


def in_the_engine(folder: Path, count: int, kind: str) -> str:
    """Return a text that shows how much processor time the engine spends on the comparison of run reports, for each job."""
    project = folder / f"project-{kind}"
    shutil.rmtree(project, ignore_errors=True)
    (project / "assets").mkdir(parents=True)
    (project / "builders").mkdir()
    settings = "scan_folders: [{name: game, path: assets}]\nlocal_store: {enabled: false}\nbuilders:\n"
    if kind == "copies":
        settings += '  - {name: data, copy: ["*.q"]}\n'
    else:
        settings += '  - {name: quick, uses: quick, patterns: ["*.q"]}\n'
        (project / "builders" / "quick.py").write_text(_BUILDER)
    (project / "aptui.yaml").write_text(settings)
    (project / "assets" / "shared.inc").write_text("shared")
    for number in range(count):
        (project / "assets" / f"{number}.q").write_text(str(number))
    environment = {**os.environ, **{f"XDG_{home}_HOME": str(folder / "xdg") for home in ("CACHE", "CONFIG", "STATE")}}
    output = subprocess.run(
        [sys.executable, "-c", _ENGINE, str(project)], env=environment, check=True, capture_output=True, text=True
    ).stdout
    spent_us, calls, all_us = (float(word) for word in output.split("COST")[1].split())
    return (
        f"{kind}: {spent_us / count:.1f} µs a job in {calls / count:.1f} calls, of {all_us / count:,.0f} µs of the engine's: "
        f"{100 * spent_us / all_us:.2f} %"
    )


def main() -> None:
    """Measure and print the results."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.reports", description=__doc__)
    parser.add_argument("--pairs", type=int, default=2_000)
    parser.add_argument("--count", type=int, default=2_000)
    chosen = parser.parse_args()
    os.environ.setdefault("TMPDIR", tempfile.gettempdir())
    with tempfile.TemporaryDirectory(prefix="bench-reports-") as name:
        folder = Path(name)
        print(f"load {os.getloadavg()[0]:.1f}", flush=True)
        print("worker, a run of 1 ms:", in_a_worker(folder, chosen.pairs, _WORK_S), flush=True)
        print("worker, a run of nothing:", in_a_worker(folder, chosen.pairs, 0.0), flush=True)
        for kind in ("copies", "jobs"):
            print("engine,", in_the_engine(folder, chosen.count, kind), flush=True)


if __name__ == "__main__":
    main()

"""A farm of Dask workers on this machine, with jobs that sleep: the rate, the bytes of a job, and the cost of failures.

Sleeping jobs need no quiet machine. Engine and workers reach the scheduler through a relay that counts bytes and can fall silent.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.bench.measure import run, say

if TYPE_CHECKING:
    from tests.bench.__main__ import Bench

JOB_S = 2.0
JOBS_PER_SLOT = 8
SOURCE_BYTES, PRODUCT_BYTES = 100_000, 200_000
BUILDER = f"""\
import time
from pathlib import Path
from aptui.sdk import CreateJobsResponse, JobDescriptor, JobProduct, ProcessJobResponse, Result

class Sleeper:
    name = "sleeper"
    version = 1

    def create_jobs(self, request):
        return CreateJobsResponse(Result.SUCCESS, [JobDescriptor("job", platform.id) for platform in request.platforms])

    def process_job(self, request):
        data = Path(request.full_path).read_bytes()
        time.sleep({JOB_S})
        path = Path(request.products_dir) / (Path(request.source).stem + ".out")
        path.write_bytes((data * {PRODUCT_BYTES // SOURCE_BYTES + 1})[:{PRODUCT_BYTES}])
        return ProcessJobResponse(Result.SUCCESS, [JobProduct(str(path), 0)])
"""


class Relay:
    """Passes bytes between its own port and `target`; while `is_silent` is set, no bytes pass."""

    def __init__(self, target: int) -> None:
        self._target, self.byte_count, self.is_silent = target, 0, threading.Event()
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._server.getsockname()[1])
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            here, _address = self._server.accept()
            try:
                there = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                here.close()
                continue
            for one, other in ((here, there), (there, here)):
                threading.Thread(target=self._pass, args=(one, other), daemon=True).start()

    def _pass(self, one: socket.socket, other: socket.socket) -> None:
        try:
            while data := one.recv(1 << 16):
                while self.is_silent.is_set():
                    time.sleep(0.05)
                self.byte_count += len(data)
                other.sendall(data)
        except OSError:
            pass
        for each in (one, other):
            with suppress(OSError):
                # `shutdown` ends the thread that reads the other direction; `close` alone would not
                each.shutdown(socket.SHUT_RDWR)


class Farm:
    """A scheduler, and workers with two slots each."""

    def __init__(self, base: Path, workers: int) -> None:
        self._base, port = base, _free_port()
        options = ["--host", "127.0.0.1", "--port", str(port), "--no-dashboard", "--dashboard-address", "127.0.0.1:0"]
        self.scheduler = self._start("-m", "distributed.cli.dask_scheduler", *options)
        _wait_for(port)
        self.relay = Relay(port)
        self.address = f"tcp://127.0.0.1:{self.relay.port}"
        options = ["--scheduler", self.address, "--insecure", "--slots", "2", "--tags", "farm"]
        self.workers = [self._start("-m", "aptui", "worker", *options) for _ in range(workers)]

    def _start(self, *arguments: str) -> subprocess.Popen[bytes]:
        with (self._base / "farm.log").open("ab") as log:
            return subprocess.Popen([sys.executable, *arguments], stdout=log, stderr=log, start_new_session=True)

    def close(self) -> None:
        for process in (*self.workers, self.scheduler):
            end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and the processes that it started."""
    if process.poll() is None:
        os.killpg(process.pid, 9)
        process.wait()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def _wait_for(port: int) -> None:
    for _ in range(600):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise SystemExit("the scheduler does not answer")


def _build(bench: Bench, workers: int, disturb: Callable[[Farm], Any] | None = None) -> tuple[float, dict[str, Any], Farm, int]:
    """Run jobs on a farm; return the seconds, the summary, the farm, and the bytes in the store."""
    base = bench.base / "farm"
    shutil.rmtree(base, ignore_errors=True)
    (base / "assets").mkdir(parents=True)
    (base / "builders").mkdir()
    (base / "store").mkdir()
    (base / "builders" / "sleeper.py").write_text(BUILDER, encoding="utf-8")
    for number in range(2 * workers * JOBS_PER_SLOT):
        (base / "assets" / f"{number}.in").write_bytes(number.to_bytes(4, "big") * (SOURCE_BYTES // 4))
    farm = Farm(base, workers)
    try:
        (base / "aptui.yaml").write_text(
            "platforms: {linux: {}}\nscan_folders: [{name: game, path: assets}]\ncache: Cache\nworkers: 2\n"
            f"pool: {{kind: dask, scheduler: '{farm.address}', insecure: true, store: {base / 'store'}}}\n"
            f'builders: [{{name: sleeper, uses: sleeper, patterns: ["*.in"]{"" if disturb else ", needs: [farm]"}}}]\n'
            "local_store: {enabled: false}\n",
            encoding="utf-8",
        )
        if disturb is not None:
            threading.Timer(4 * JOB_S + 6, disturb, (farm,)).start()
        began = time.perf_counter()
        cost = run([sys.executable, "-m", "aptui", "batch", "--json", "--project", str(base)])
        took = time.perf_counter() - began
    finally:
        farm.close()
    stored = sum(path.stat().st_size for path in (base / "store").rglob("*") if path.is_file())
    return took, json.loads(cost.output[cost.output.index("{") :]), farm, stored


def _rate(database: Path) -> float:
    """Return jobs per second without the first quarter (workers are still starting) and the last tenth of the jobs."""
    with closing(sqlite3.connect(database)) as opened:
        ends = [ms for (ms,) in opened.execute("SELECT completed_ms FROM aptui_jobs ORDER BY completed_ms")]
    first, last = len(ends) // 4, len(ends) * 9 // 10
    return 1000 * (last - first) / (ends[last] - ends[first])


def farm(bench: Bench) -> None:
    """Run jobs of two seconds on 2, 4 and 8 workers with two slots each; then on 4 workers and this machine, with failures."""
    for workers in (2, 4, 8):
        took, did, made, stored = _build(bench, workers)
        jobs, ideal, rate = did["jobs_run"], 2 * workers / JOB_S, _rate(bench.base / "farm" / "Cache" / "assetdb.sqlite")
        say(
            f"farm, {workers} workers",
            f"{rate:.2f} jobs/s, {ideal:.0f} without overhead: {rate / ideal:.2f}; {jobs} jobs in {took:.1f} s with the start; "
            f"a job: {made.relay.byte_count / jobs:,.0f} B through the scheduler, {stored / jobs:,.0f} B stored, "
            f"files {SOURCE_BYTES + PRODUCT_BYTES:,} B",
        )
    disturbances: dict[str, Callable[[Farm], Any]] = {
        "no failure": lambda _farm: None,
        "a worker dies": lambda farm: end(farm.workers[0]),
        "the scheduler dies": lambda farm: end(farm.scheduler),
        "the line is silent for 8 s": lambda farm: _silence(farm, 8),
        "the line is silent for 60 s": lambda farm: _silence(farm, 60),
    }
    for name, disturb in disturbances.items():
        took, did, _made, _stored = _build(bench, 4, disturb)
        say(f"farm, {name}", f"{did['jobs_run']} runs, {did['jobs_failed']} failed, {did['products']} products in {took:.1f} s")


def _silence(farm: Farm, seconds: float) -> None:
    farm.relay.is_silent.set()
    threading.Timer(seconds, farm.relay.is_silent.clear).start()


ROWS = {"farm": farm}

"""Rows of the live engine: saves, bursts of changes, stops, idle cost, queries of clients.

One peer watches with bare inotify and copies with the same syncs as the engine. The others watch with chokidar or watchman, if
installed, and copy without syncs.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

from aptui.link import places, port
from aptui.link.engine_client import EngineClient
from aptui.shared.errors import KnownError
from tests.bench.measure import aptui, run, say, settle
from tests.bench.peers import watchman_copies
from tests.bench.tail import Sample, explain, read_spans

if TYPE_CHECKING:
    from tests.bench.__main__ import Bench

ROWS: dict[str, Callable[[Bench], None]] = {}
_TIMEOUT_S = 300.0
_SAVES = 120
_GAP_S = 0.2
_SLOW_S = 0.012
_IDLE_S = 20.0


def row(function: Callable[[Bench], None]) -> Callable[[Bench], None]:
    """Register a benchmark, which prints one row of the report, under the name of its function."""
    ROWS[function.__name__.replace("_", "-")] = function
    return function


# ------------------------------------------------------------------------------------------------------------------- engine


class Engine:
    """A process of `aptui serve` over a project of the benchmark."""

    def __init__(self, project: Path) -> None:
        self.project, self.cache = project, project / "Cache"
        with (project / "serve.log").open("ab") as log:
            command = [sys.executable, "-m", "aptui", "serve", "--detached", "--project", str(project)]
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + _TIMEOUT_S
        while True:
            try:
                self.client = EngineClient.connect(places.socket_path(self.cache))
                break
            except KnownError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit((project / "serve.log").read_text()) from None
                time.sleep(0.005)

    def status(self) -> dict[str, object]:
        """Return the status of the engine."""
        return self.client.ask(port.ReadStatus(), _TIMEOUT_S)

    def until(self, is_true: Callable[[], bool], every_s: float = 0.02) -> float:
        """Wait until the condition is true; return the time."""
        deadline = time.monotonic() + _TIMEOUT_S
        while not is_true():
            if time.monotonic() > deadline:
                raise SystemExit("it does not come to that: no figure")
            time.sleep(every_s)
        return time.monotonic()

    def rest(self) -> float:
        """Wait until no job is pending."""
        return self.until(lambda: self.status()["state"] == "idle")

    def processor_s(self) -> float:
        """Return the processor time of the engine without its workers."""
        return processor_s(self.process.pid)

    def rss_mib(self) -> float:
        """Return the resident memory of the engine."""
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def processor_s(pid: int) -> float:
    """Return the processor time of a process without its children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def engine_of(project: Path) -> Iterator[Engine]:
    """Yield an engine that has processed all sources."""
    os.environ["XDG_STATE_HOME"] = str(project.parent / "state")
    engine = Engine(project)
    try:
        engine.rest()
        yield engine
    finally:
        engine.client.close()
        engine.process.send_signal(signal.SIGCONT)
        engine.process.terminate()
        engine.process.wait(60)


def own_project(bench: Bench, name: str) -> tuple[Path, Path]:
    """Return a project with its own copy of the sources, and the folder of the copy."""
    project = bench.project(name, f"scan_folders: [{{name: game, path: sources}}]\n{_COPY}")
    shutil.copytree(bench.sources, project / "sources")
    return project, project / "sources"


_COPY = 'platforms: {linux: {}}\nbuilders: [{name: all, copy: ["*"]}]\ncache: Cache\n'


def milliseconds(times_s: list[float]) -> str:
    ordered = sorted(times_s)
    median, p99 = ordered[len(ordered) // 2] * 1000, ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))] * 1000
    return f"median {median:.1f} ms, p99 {p99:.1f} ms"


# -------------------------------------------------------------------------------------------------------------------- saves


@row
def live_save(bench: Bench) -> None:
    """The time from a save to its product, in the engine and in two small copiers.

    One copier uses bare inotify and syncs as the engine does. The other uses chokidar and does not sync.
    """
    project, sources = own_project(bench, "live-save")
    chosen = random.Random(7).sample(bench.paths, min(_SAVES, len(bench.paths)))
    with engine_of(project):
        time.sleep(3.0)
        ours = saves(sources, project / "Cache" / "linux", chosen, is_lower=True)
    texts = [f"aptui {milliseconds(ours)}"]
    with _bare_watcher(sources, project / "bare"):
        bare = saves(sources, project / "bare", chosen)
    texts.append(f"bare inotify, copy and the same syncs {milliseconds(bare)}")
    ratio = sorted(ours)[len(ours) // 2] / sorted(bare)[len(bare) // 2]
    with _chokidar(bench.base, sources, project / "chokidar") as is_there:
        if is_there:
            texts.append(f"chokidar, copy without syncs {milliseconds(saves(sources, project / 'chokidar', chosen))}")
    with watchman_copies(sources, project / "watchman") as is_there:
        if is_there:
            texts.append(f"watchman, copy without syncs {milliseconds(saves(sources, project / 'watchman', chosen))}")
    say("live-save", f"{'; '.join(texts)}: {ratio:.1f} × bare (target ≤ 5 ms, p99 ≤ 12 ms, or ≤ 4 ×)")


@row
def live_tail(bench: Bench) -> None:
    """200 saves of a traced engine: the cause of each delay over 12 ms."""
    project, sources = own_project(bench, "live-tail")
    trace = project / "trace.json"
    chosen = random.Random(11).sample(bench.paths, min(200, len(bench.paths)))
    with mock.patch.dict(os.environ, {"APTUI_TRACE": str(trace)}), engine_of(project):
        time.sleep(3.0)
        samples = save_samples(sources, project / "Cache" / "linux", chosen, is_lower=True)
    lines = explain(samples, read_spans(trace), _SLOW_S)
    say("live-tail", f"{milliseconds([sample.took_s for sample in samples])} (traced); {len(lines)} of {len(samples)} over 12 ms")
    for line in lines:
        say("", line)


def saves(sources: Path, products: Path, chosen: list[str], *, is_lower: bool = False) -> list[float]:
    """Write files one by one, and return the seconds until the product of each file exists."""
    return [sample.took_s for sample in save_samples(sources, products, chosen, is_lower=is_lower)]


def save_samples(sources: Path, products: Path, chosen: list[str], *, is_lower: bool = False) -> list[Sample]:
    """Write files one by one, and return the times of each write and of its product."""
    samples = []
    for number, path in enumerate(chosen):
        time.sleep(_GAP_S)
        product = products / (path.lower() if is_lower else path)
        data = b"%d %d " % (number, time.time_ns()) + os.urandom(4096)
        began = time.perf_counter()
        (sources / path).write_bytes(data)
        while not _holds(product, data):
            if time.perf_counter() - began > 10:
                raise SystemExit(f"'{path}' never comes: no figure")
            time.sleep(0.0001)
        samples.append(Sample(path, began, time.perf_counter()))
    return samples


def _holds(path: Path, data: bytes) -> bool:
    try:
        return path.stat().st_size == len(data) and path.read_bytes() == data
    except OSError:
        return False


_IN_CLOSE_WRITE = 0x8


@contextlib.contextmanager
def _bare_watcher(sources: Path, products: Path) -> Iterator[None]:
    """Run the smallest durable copier in another process.

    When inotify reports a save, it copies the file, syncs the copy, renames it, and syncs the folder. Before and after the rename,
    it writes a synced record to a journal.
    """
    products.mkdir(exist_ok=True)
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            _watch_bare(sources, products, writer)
        finally:
            os._exit(1)
    os.close(writer)
    os.read(reader, 1)
    try:
        yield
    finally:
        os.close(reader)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _watch_bare(sources: Path, products: Path, ready_fd: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = libc.inotify_init1(0)
    folders = {}
    for folder, _below, _names in os.walk(sources):
        folders[libc.inotify_add_watch(descriptor, os.fsencode(folder), _IN_CLOSE_WRITE)] = folder
        os.makedirs(products / os.path.relpath(folder, sources), exist_ok=True)
    journal = os.open(products / "journal", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    os.write(ready_fd, b".")
    while True:
        data, at = os.read(descriptor, 65536), 0
        while at < len(data):
            watch, _mask, _cookie, length = struct.unpack_from("iIII", data, at)
            name = data[at + 16 : at + 16 + length].rstrip(b"\0").decode()
            at += 16 + length
            source = os.path.join(folders[watch], name)
            _copy_durably(source, os.path.join(products, os.path.relpath(source, sources)), journal)


def _copy_durably(source: str, target: str, journal: int) -> None:
    with open(source, "rb") as read, open(target + ".tmp", "wb") as write:
        write.write(read.read())
        write.flush()
        os.fsync(write.fileno())
    os.write(journal, os.fsencode(target) + b" intended\n")
    os.fdatasync(journal)
    os.rename(target + ".tmp", target)
    folder = os.open(os.path.dirname(target), os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(folder)
    os.close(folder)
    os.write(journal, os.fsencode(target) + b" done\n")
    os.fdatasync(journal)


_CHOKIDAR = """
const chokidar = require('chokidar'), fs = require('fs'), path = require('path');
const [top, out] = process.argv.slice(2);
const copy = (file) => {
  const to = path.join(out, path.relative(top, file));
  fs.mkdirSync(path.dirname(to), {recursive: true});
  fs.copyFileSync(file, to + '.tmp');
  fs.renameSync(to + '.tmp', to);
};
chokidar.watch(top, {ignoreInitial: true}).on('add', copy).on('change', copy).on('ready', () => console.log('ready'));
"""


@contextlib.contextmanager
def _chokidar(base: Path, sources: Path, products: Path) -> Iterator[bool]:
    """Run chokidar from `base/node_modules` (`npm install chokidar` there); yield whether it is installed."""
    if shutil.which("node") is None or not (base / "node_modules" / "chokidar").is_dir():
        yield False
        return
    (base / "chokidar.cjs").write_text(_CHOKIDAR)
    with subprocess.Popen(
        ["node", str(base / "chokidar.cjs"), str(sources), str(products)], cwd=base, stdout=subprocess.PIPE
    ) as node:
        assert node.stdout is not None
        node.stdout.readline()
        yield True
        node.kill()


# ------------------------------------------------------------------------------------------------------------------- storms


@row
def live_rewrite(bench: Bench) -> None:
    """Time until all products are current after all files were rewritten at once, compared with a cold build of the files."""
    project, sources = own_project(bench, "live-rewrite")
    settle()
    cold = run(aptui(project))
    bench.same_bytes(project / "Cache" / "linux")
    with engine_of(project) as engine:
        settle()
        began = time.monotonic()
        for path in bench.paths:
            (sources / path).write_bytes((sources / path).read_bytes() + b" again")
        written = time.monotonic()
        ended = _until_current(engine, sources, bench.paths)
    text = f"written in {written - began:.2f} s, current {ended - written:.2f} s later; cold build {cold.wall_s:.2f} s"
    say("live-rewrite", f"{text}: {(ended - began) / cold.wall_s:.2f} × (target ≤ 1.3, ≤ 2 s after the last write)")


def _until_current(engine: Engine, sources: Path, paths: list[str], below: str = "") -> float:
    products = engine.cache / "linux"
    while True:
        ended = engine.rest()
        if all(_is_same(sources / path, products / f"{below}{path}".lower()) for path in paths):
            return ended
        if time.monotonic() - ended > _TIMEOUT_S:
            raise SystemExit("products are missing: no figure")
        time.sleep(0.05)


def _is_same(source: Path, product: Path) -> bool:
    try:
        return source.read_bytes() == product.read_bytes()
    except FileNotFoundError:
        return False


@row
def live_new_tree(bench: Bench) -> None:
    """Copy a tree of `count` files into a scan folder."""
    project = bench.project("live-new-tree", f"scan_folders: [{{name: game, path: sources}}]\n{_COPY}")
    (project / "sources").mkdir()
    with engine_of(project) as engine:
        time.sleep(1.0)
        settle()
        began = time.monotonic()
        run(["cp", "-r", str(bench.sources), str(project / "sources" / "new")])
        written = time.monotonic()
        ended = _until_current(engine, bench.sources, bench.paths, "new/")
    text = f"copied in {written - began:.2f} s, all {len(bench.paths):,} current {ended - written:.2f} s later"
    say("live-new-tree", f"{text} (target: all, within 2 s)")


@row
def live_stopped(bench: Bench) -> None:
    """Measure how fast a stopped engine (SIGSTOP) processes the changes of all files after it continues."""
    project, sources = own_project(bench, "live-stopped")
    with engine_of(project) as engine:
        time.sleep(1.0)
        engine.process.send_signal(signal.SIGSTOP)
        for path in bench.paths:
            (sources / path).write_bytes((sources / path).read_bytes() + b" stopped")
        time.sleep(1.0)
        began = time.monotonic()
        engine.process.send_signal(signal.SIGCONT)
        begun = engine.until(lambda: engine.status()["state"] != "idle", 0.005)
        ended = _until_current(engine, sources, bench.paths)
    text = f"work begins after {begun - began:.2f} s, all {len(bench.paths):,} current after {ended - began:.2f} s"
    say("live-stopped", f"{text} (target: all, begins ≤ 2 s)")


@row
def live_folders(bench: Bench) -> None:
    """Watch 20,000 folders: the time until all are watched, and the longest wait of a client in the meantime."""
    count = 20_000
    project = bench.project("live-folders", f"scan_folders: [{{name: game, path: sources}}]\n{_COPY}")
    for number in range(count):
        os.makedirs(project / "sources" / f"{number % 20}" / f"{number // 20 % 50}" / f"{number}")
    (project / "sources" / "a.txt").write_text("a")
    libc = ctypes.CDLL(None)
    began = time.monotonic()
    descriptor = libc.inotify_init1(0)
    for folder, _below, _names in os.walk(project / "sources"):
        libc.inotify_add_watch(descriptor, os.fsencode(folder), _IN_CLOSE_WRITE)
    bare_s = time.monotonic() - began
    os.close(descriptor)
    began, worst_s = time.monotonic(), 0.0
    os.environ["XDG_STATE_HOME"] = str(bench.base / "state")
    engine = Engine(project)
    try:
        up_s = time.monotonic() - began
        while True:
            asked = time.monotonic()
            health = engine.status()["health"]
            worst_s = max(worst_s, time.monotonic() - asked)
            if all(root["mode"] == "native" for root in health["roots"]):  # type: ignore[index]  # JSON of `status`
                break
            time.sleep(0.005)
        watched_s = time.monotonic() - began
        ended = _until_current(engine, project / "sources", ["a.txt"])
    finally:
        engine.client.close()
        engine.process.terminate()
        engine.process.wait(60)
    text = (
        f"answers after {up_s:.2f} s (slowest answer then {worst_s * 1000:.0f} ms), watched after {watched_s:.2f} s, idle "
        f"after {ended - began:.2f} s"
    )
    say("live-folders", f"{text}; bare inotify with its walk {bare_s:.2f} s (target ≤ 0.5 s more than a start)")


# --------------------------------------------------------------------------------------------------------------------- idle


@row
def live_idle(bench: Bench) -> None:
    """The cost of an idle engine."""
    project = bench.copy_project("live-idle")
    bench.build(project)
    with engine_of(project) as engine:
        time.sleep(5.0)
        before = engine.processor_s()
        time.sleep(_IDLE_S)
        spent_s = engine.processor_s() - before
        say(
            "live-idle",
            f"{100 * spent_s / _IDLE_S:.2f} % of a core over {_IDLE_S:.0f} s, {engine.rss_mib():.0f} MiB (target ≤ 1.5 %; "
            f"100,000: ≤ 0.5 %, 120 MiB)",
        )


@row
def live_batch(bench: Bench) -> None:
    """`aptui batch` beside an idle engine."""
    project = bench.copy_project("live-batch")
    bench.build(project)
    bench.build(project)
    costs, inside = [], []
    with engine_of(project):
        time.sleep(5.0)
        for _run in range(max(5, bench.runs)):
            cost, did = bench.build(project)
            if did["jobs_run"]:
                raise SystemExit("something ran although nothing changed")
            costs.append(cost.wall_s)
            inside.append(_settle_s(project))
    say("live-batch", f"whole process {milliseconds(costs)}; in the engine {milliseconds(inside)} (target ≤ 120 ms, ≤ 20 ms)")


@row
def live_verbs(bench: Bench) -> None:
    """Processor time of short commands while an engine is idle.

    It is compared with the processor time of a process that only imports msgspec and argparse.
    """
    project = bench.copy_project("live-verbs")
    bench.build(project)
    source = bench.paths[0]
    verbs = {"batch": [], "status": [], "jobs": ["--status", "failed"], "why": [source]}
    commands = {name: [sys.executable, "-m", "aptui", name, "--project", str(project), *words] for name, words in verbs.items()}
    commands["import"] = [sys.executable, "-c", "import msgspec, argparse"]
    costs: dict[str, list[float]] = {name: [] for name in commands}
    with engine_of(project):
        time.sleep(5.0)
        for _run in range(max(15, bench.runs)):
            for name, command in commands.items():
                costs[name].append(run(command).cpu_s)
    least = {name: min(listed) for name, listed in costs.items()}
    ratios = ", ".join(f"{name} {least[name] / least['import']:.2f} × ({1000 * least[name]:.0f} ms)" for name in verbs)
    say("live-verbs", f"{ratios} of `import msgspec, argparse` ({1000 * least['import']:.0f} ms; target ≤ 1.6)")


def _settle_s(project: Path) -> float:
    with EngineClient.connect(places.socket_path(project / "Cache")) as client:
        began = time.perf_counter()
        client.ask(port.Settle(), _TIMEOUT_S)
        return time.perf_counter() - began


# ------------------------------------------------------------------------------------------------------------------ clients


@row
def live_status(bench: Bench) -> None:
    """Measure the response time of status queries while the engine runs all jobs."""
    project, sources = own_project(bench, "live-status")
    times = []
    with engine_of(project) as engine:
        for path in bench.paths:
            (sources / path).write_bytes((sources / path).read_bytes() + b" again")
        engine.until(lambda: engine.status()["state"] != "idle")
        while True:
            asked = time.perf_counter()
            state = engine.status()["state"]
            times.append(time.perf_counter() - asked)
            if state == "idle":
                break
            time.sleep(0.005)
    say("live-status", f"{milliseconds(times)} of {len(times)} questions, slowest {max(times) * 1000:.0f} ms (target p99 ≤ 20 ms)")

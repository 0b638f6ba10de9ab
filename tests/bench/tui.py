"""python -m tests.bench.tui [ROW …] [--jobs N …] [--dir DIR] [--project P].

The app's own figures through a pseudo-terminal, 160×45; `keys` also at 140 columns. Rows: start, attach, keys, filter, sort, storm,
line, rest, log.

Databases are made once in DIR by `generate`; `attach` needs a real engine over a real project, P, or one with 10,000 sources that
is made in DIR. Times are in milliseconds. They begin with a key or with the start of the process. They end with the output bytes
that show the result; the screen is reconstructed from these bytes afterwards.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from aptui.tui.widgets.log_sources import FileLines
from tests.bench import generate
from tests.bench.__main__ import Bench
from tests.bench.live import Engine
from tests.bench.measure import aptui, measure_as_installed, run
from tests.bench.tui_harness import COLUMNS, LINES, EngineOfNews, Replay, TimedTerminal
from tests.bench.tui_link import FarTerminal

ROWS: dict[str, Callable[[Harness], None]] = {}
_JOB = re.compile(r"^.(?:\S (?:completed|failed|pending|cancelled)|! \d+ warnings?|\S \d+ errors?) ")
_FIRST_ROW, _FILTER_LINE = 5, 3
_STARTS, _PRESSES, _STORM_S, _REST_S = 9, 60, 6.0, 5.0
_ECHOES, _ECHO_TIMEOUT_S = 12, 5.0
_FILTERS = ("rock", "wolf status:failed", r"\.png", "Forest/.*_00", "zzz no hit", "Crate platform:linux")
_WARM_S = 2.0
"""Time after opening the filter line until the search is loaded; users take as long before they type."""


def row(function: Callable[[Harness], None]) -> Callable[[Harness], None]:
    """Register a benchmark, which prints one row of the report, under the name of its function."""
    ROWS[function.__name__] = function
    return function


class Harness:
    """Open generated or processed projects for the benchmarks, in terminals with their own state and configuration folders."""

    def __init__(self, base: Path, state: Path, jobs: Sequence[int], project: Path | None) -> None:
        self.base, self.jobs, self._project = base, jobs, project
        self.environ = {
            "XDG_STATE_HOME": str(state / "state"),
            "XDG_CONFIG_HOME": str(state / "config"),
            "PYTHONPATH": str(Path(__file__).parents[2]),
        }
        os.environ.update(self.environ)

    def folder(self, jobs: int) -> Path:
        """Return a generated project with `count` jobs."""
        folder = self.base / f"jobs-{jobs}"
        if not (folder / "Cache" / "assetdb.sqlite").is_file():
            generate.make(folder, jobs)
        return folder

    def open(self, jobs: int, columns: int = COLUMNS) -> TimedTerminal:
        """Open the project's database without an engine."""
        return TimedTerminal([*_APTUI, "open", str(self.folder(jobs) / "Cache")], self.environ, columns)

    def opened(self, jobs: int, columns: int = COLUMNS) -> tuple[TimedTerminal, Replay]:
        """Open the project's database and wait until all jobs are shown."""
        terminal = self.open(jobs, columns)
        replay = Replay(terminal)
        replay.first(has_rows)
        terminal.settle(0.6)
        return terminal, replay

    def project(self) -> Path:
        """Return a project with existing, processed sources."""
        if self._project is None:
            bench = Bench(self.base, 10_000, 1)
            self._project = bench.copy_project("attached")
        run(aptui(self._project))
        return self._project


_APTUI = [sys.executable, "-m", "aptui"]


def has_rows(lines: list[str]) -> bool:
    """Whether the screen shows jobs."""
    return any(_JOB.match(line) for line in lines[_FIRST_ROW : _FIRST_ROW + 5])


def say(name: str, values: Sequence[float], target: str = "", unit: str = "ms", more: str = "") -> None:
    """Print a line of the table."""
    ordered = sorted(values)
    p95 = ordered[max(0, round(len(ordered) * 0.95) - 1)]
    digits = 2 if unit == "×" else 1
    cells = "".join(f"{value:>11,.{digits}f}" for value in (statistics.median(ordered), p95, ordered[0], ordered[-1]))
    print(f"{name:<46}{cells}  {unit:<6}{target:<34}n={len(ordered):<4} load {os.getloadavg()[0]:.1f}  {more}", flush=True)


# ------------------------------------------------------------------------------------------------------------------- start


@row
def start(harness: Harness) -> None:
    """The time from the start to the first frame, and to the first rows: compared with `import textual` in the same run."""
    for jobs in (1_000, *harness.jobs):
        imports, skeletons, others, rows, sizes = [], [], [], [], []
        in_project = [*_APTUI, "--project", str(harness.folder(jobs)), "--read-only"]
        for _ in range(_STARTS if jobs <= 100_000 else 3):
            began = time.perf_counter()
            subprocess.run([sys.executable, "-c", "import textual"], check=True)
            imports.append((time.perf_counter() - began) * 1000)
            with harness.open(jobs) as terminal:
                replay = Replay(terminal)
                skeletons.append(_since_start(terminal, replay.first(_has_name)[0]))
                rows_s, size = replay.first(has_rows)
                rows.append(_since_start(terminal, rows_s))
                sizes.append(size / 1000)
            with TimedTerminal(in_project, harness.environ) as terminal:
                others.append(_since_start(terminal, Replay(terminal).first(_has_name)[0]))
        name = f"{jobs:,} jobs"
        if jobs == 1_000:
            say("import textual, a whole process", imports)
            say("start: something on screen, in a project", others, "16")
            say("start: the same / import", _ratios(others, imports), "≤ 0.2", "×")
            say("start: something on screen, 'aptui open'", skeletons, "16")
            say("start: the same / import", _ratios(skeletons, imports), "≤ 0.2", "×")
            say("start: bytes until rows", sizes, "≤ 7", "kB")
        say(f"start: rows painted, {name}", rows, "129" if jobs == 1_000 else "")
        say(f"start: rows painted / import, {name}", _ratios(rows, imports), "≤ 1.6" if jobs == 1_000 else "", "×")


def _has_name(lines: list[str]) -> bool:
    return "aptui" in lines[0]


def _since_start(terminal: TimedTerminal, at_s: float) -> float:
    return (at_s - terminal.began_s) * 1000


def _ratios(values: Sequence[float], peers: Sequence[float]) -> list[float]:
    return [value / peer for value, peer in zip(values, peers, strict=True)]


@row
def attach(harness: Harness) -> None:
    """Attach to a running engine: the time until rows are painted, and until the status line has the engine's state."""
    project = harness.project()
    engine = Engine(project)
    try:
        engine.rest()
        times = []
        for _ in range(5):
            with TimedTerminal([*_APTUI, "--project", str(project)], harness.environ) as terminal:
                shown_s, _ = Replay(terminal).first(lambda lines: has_rows(lines) and "idle" in lines[0])
                times.append((shown_s - terminal.began_s) * 1000)
        say("attach: rows painted, engine attached", times, "≤ 500")
    finally:
        engine.client.close()
        engine.process.terminate()
        engine.process.wait(60)


# -------------------------------------------------------------------------------------------------------------------- keys


@row
def keys(harness: Harness) -> None:
    """The time from a key to the last byte of its frame, without the log of the row under the cursor, which is drawn later.

    At 140 columns the log is below the table, at 160 beside it.
    """
    for jobs in harness.jobs:
        for columns in (140, COLUMNS):
            terminal, replay = harness.opened(jobs, columns)
            with terminal:
                _press_keys(terminal, sum(bool(_JOB.match(line)) for line in replay.last()), f"{columns} columns, {jobs:,} jobs")


def _press_keys(terminal: TimedTerminal, height: int, where: str) -> None:
    """Measure the keys that move the cursor of a table with `height` visible rows."""
    for name, data, presses, target, prelude in (
        ("j", "j", height - 2, "5", "g"),
        ("j, scrolls a line", "j", _PRESSES, "5; ≤ 500 B", ""),
        ("page down", "\x1b[6~", _PRESSES, "10", "g"),
        ("G", "G", 15, "10", "g!"),
    ):
        times, sizes, began_s = [], [], terminal.processor_s()
        for press in range(presses):
            if prelude and (press == 0 or prelude.endswith("!")):
                terminal.stroke(prelude[0], 0.3)
            sent_s, before = terminal.stroke(data, 0.15)
            frame = _first_frame(terminal, before)
            if frame is not None:
                times.append((frame[0] - sent_s) * 1000)
                sizes.append(frame[1])
        spent_ms = (terminal.processor_s() - began_s) / presses * 1000
        say(f"{name}, {where}", times, target, more=f"{statistics.median(sizes):,.0f} B, {spent_ms:.0f} ms of processor a press")


def _first_frame(terminal: TimedTerminal, before: int) -> tuple[float, int] | None:
    """Return the time at which the frame after a key was complete, and its bytes; chunks in close succession are one frame."""
    chunks = terminal.chunks[before:]
    if not chunks:
        return None
    last = chunks[0]
    for chunk in chunks[1:]:
        if chunk.at_s - last.at_s > 0.004:
            break
        last = chunk
    start = terminal.chunks[before - 1].end if before else 0
    return last.at_s, last.end - start


@row
def filter(harness: Harness) -> None:
    """Type filters letter by letter.

    Measure the time from a key to the typed letter, to the first screenful of hits, and to the final rows and count.
    """
    for jobs in harness.jobs:
        terminal, replay = harness.opened(jobs)
        with terminal:
            terminal.stroke("/", 0.3)
            time.sleep(_WARM_S)
            replay.last()
            echoes, firsts, wholes = [], [], []
            for text in _FILTERS:
                for end in range(1, len(text) + 1):
                    sent_s, _ = terminal.stroke(text[end - 1], 0.35)
                    echo_s, first_s, whole_s = _filtered(replay, text[:end])
                    echoes.append((echo_s - sent_s) * 1000)
                    firsts.append((first_s - sent_s) * 1000)
                    wholes.append((whole_s - sent_s) * 1000)
                terminal.stroke("\x15", 0.5)
                replay.last()
        say(f"filter: key echo, {jobs:,} jobs", echoes, "16")
        say(f"filter: first screenful, {jobs:,} jobs", firsts, "50")
        say(f"filter: complete, {jobs:,} jobs", wholes, "120")


def _filtered(replay: Replay, text: str) -> tuple[float, float, float]:
    """Return the triple (echo, rows, complete) of times at which the screen first showed a state.

    The states are: the typed filter text; that text and the final rows; and also the final count.
    """
    steps = []
    for at_s, lines in replay.steps():
        head, _, log = lines[_FILTER_LINE].partition("── Event log")
        width = len(head) if log else None  # in a wide terminal the log is beside the table, and comes later than the rows
        rows = [line[:width] for line in lines[_FIRST_ROW : LINES // 2] if "Event log" not in line]
        steps.append((at_s, head, rows))
    *_, (_, filter_line, final_rows) = steps
    echo_s = next((at_s for at_s, line, _ in steps if line.rstrip().startswith(f" / {text}")), steps[-1][0])
    first_s = next(at_s for at_s, _, rows in steps if rows == final_rows)
    whole_s = next(at_s for at_s, line, rows in steps if rows == final_rows and line == filter_line)
    return echo_s, max(echo_s, first_s), max(echo_s, whole_s)


@row
def sort(harness: Harness) -> None:
    """The time from `:sort` to the sorted rows; the first sort by a text column also ranks the texts."""
    for jobs in harness.jobs:
        terminal, replay = harness.opened(jobs)
        with terminal:
            for column in ("duration", "status", "source", "source", "completed"):
                terminal.stroke(f":sort {column}", 0.3)
                replay.last()
                sent_s, _ = terminal.stroke("\r", 1.0)
                steps = [(at_s, lines[_FIRST_ROW : LINES // 2]) for at_s, lines in replay.steps()]
                shown_s = next(at_s for at_s, lines in steps if lines == steps[-1][1])
                say(f"sort by {column}, {jobs:,} jobs", [(shown_s - sent_s) * 1000])


# ------------------------------------------------------------------------------------------------------------ storm and rest


@row
def storm(harness: Harness) -> None:
    """Ten thousand updates a second from an engine: processor time of the app and bytes to the terminal."""
    for jobs in harness.jobs:
        for rate, wire, processor in ((1_000, 6, 8), (10_000, 12, 10)):
            cpu, sent = _storm(harness, jobs, rate)
            say(f"storm {rate:,}/s: processor, {jobs:,} jobs", [cpu], f"≤ {processor}", "%")
            say(f"storm {rate:,}/s: bytes, {jobs:,} jobs", [sent], f"≤ {wire}", "KiB/s")


def _storm(harness: Harness, jobs: int, rate: int) -> tuple[float, float]:
    folder = harness.folder(jobs)
    command = [*_APTUI, "--project", str(folder), "--read-only"]
    with EngineOfNews(folder / "Cache", rate) as engine, TimedTerminal(command, harness.environ) as terminal:
        Replay(terminal).first(lambda lines: has_rows(lines) and "· connected" in lines[0])
        terminal.settle(0.6)
        engine.begin()
        time.sleep(1)
        spent = _spent(terminal, _STORM_S)
        engine.end()
        return spent


def _spent(terminal: TimedTerminal, seconds: float) -> tuple[float, float]:
    """Return the percentage of a core and the KiB a second that the app uses over a period."""
    cpu_s, size, began = terminal.processor_s(), len(terminal.seen), time.perf_counter()
    time.sleep(seconds)
    passed = time.perf_counter() - began
    return (terminal.processor_s() - cpu_s) / passed * 100, (len(terminal.seen) - size) / passed / 1024


@row
def line(harness: Harness) -> None:
    """A link of 16 KB/s and 150 ms round trip, while an engine sends ten thousand notices a second.

    Measures the time from a key to its echo on the far screen.

    The sender and the simulated terminal compete with the app for the processor: their processor time is printed, too.
    """
    jobs = harness.jobs[0]
    folder = harness.folder(jobs)
    command = [*_APTUI, "--project", str(folder), "--read-only"]
    with EngineOfNews(folder / "Cache", 10_000) as engine, FarTerminal(command, harness.environ, 16_000, 0.15) as terminal:
        replay = Replay(terminal)
        replay.first(lambda lines: has_rows(lines) and "· connected" in lines[0], 60)
        terminal.settle(0.6)
        engine.begin()
        time.sleep(1)
        terminal.most_under_way = 0
        began_s = time.perf_counter()
        spent = {"app": terminal.processor_s, "news": engine.processor_s, "terminal": time.process_time}
        before = {name: processor_s() for name, processor_s in spent.items()}
        times = [_echo(terminal, replay, "jk"[number % 2]) for number in range(_ECHOES)]
        passed_s = time.perf_counter() - began_s
        shares = ", ".join(f"{name} {(processor_s() - before[name]) / passed_s:.0%}" for name, processor_s in spent.items())
        engine.end()
    say(
        f"16 KB/s, 150 ms, 10,000/s: key to screen, {jobs:,} jobs",
        times,
        "≤ 350",
        more=f"{terminal.most_under_way:,} B on the line; of a core: {shares}",
    )


def _echo(terminal: FarTerminal, replay: Replay, key: str) -> float:
    """Press a key that moves the cursor and return the milliseconds until it has moved."""
    before, sent_s = _cursor_line(replay.last()), time.perf_counter()
    terminal.send(key)
    while time.perf_counter() - sent_s < _ECHO_TIMEOUT_S:
        for at_s, lines in replay.steps():
            if _cursor_line(lines) != before:
                time.sleep(0.3)
                return (at_s - sent_s) * 1000
        time.sleep(0.005)
    return _ECHO_TIMEOUT_S * 1000


def _cursor_line(lines: list[str]) -> int:
    """Return which line of the table the cursor is on."""
    return next((number for number, line in enumerate(lines[_FIRST_ROW:]) if line.startswith("▌")), -1)


@row
def rest(harness: Harness) -> None:
    """Measure an idle screen: memory before and after the search is loaded, processor time, and output (KiB/s)."""
    for jobs in harness.jobs:
        terminal, _ = harness.opened(jobs)
        with terminal:
            per_job = jobs / 100_000 * 15
            say(f"rest: memory, {jobs:,} jobs", [terminal.rss_mb()], f"≤ {48 + per_job:.0f}", "MB")
            cpu, sent = _spent(terminal, _REST_S)
            say(f"rest: processor, {jobs:,} jobs", [cpu], "0", "%")
            say(f"rest: bytes, {jobs:,} jobs", [sent], "0", "KiB/s")
            terminal.stroke("/", 0.3)
            time.sleep(_WARM_S)
            terminal.stroke("rock", 1.0)
            say(f"rest: memory, search loaded, {jobs:,} jobs", [terminal.rss_mb()], f"≤ {80 + per_job:.0f}", "MB")
            cpu, sent = _spent(terminal, _REST_S)
            say(f"rest: bytes in the filter line, {jobs:,} jobs", [sent], "0", "KiB/s", f"{cpu:.1f} % of a core")


@row
def log(_harness: Harness) -> None:
    """A log of 1 GB: the time to read lines as the log pane requests them, without a terminal."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "big.log")
        block = b"".join(
            b"23:01:05.790 ~~ line %07d of a log that is long, and goes on until there is enough of it: %s\n" % (n, b"x" * (n % 60))
            for n in range(9000)
        )
        with path.open("wb") as stream:
            while stream.tell() < 1 << 30:
                stream.write(block)
        tail, index, line = [], [], []
        for _ in range(3):
            began = time.perf_counter()
            source = FileLines(path)
            for at in range(1, 46):
                source.line(source.line_count() - at)
            tail.append((time.perf_counter() - began) * 1000)
            began = time.perf_counter()
            source.index()
            index.append((time.perf_counter() - began) * 1000)
            for at in np.random.default_rng(2).integers(source.line_count(), size=50):
                began = time.perf_counter()
                source.line(int(at))
                line.append((time.perf_counter() - began) * 1000)
            source.close()
    say("log, 1 GB: the last 45 lines", tail, "5")
    say("log, 1 GB: index", index, "500")
    say("log, 1 GB: any line", line)


def main() -> None:
    """Read the command line and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", choices=[*ROWS, []], help="all by default")
    parser.add_argument("--jobs", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--dir", type=Path, help="where the databases are; kept, so that they are made once")
    parser.add_argument("--project", type=Path, help="a real project for `attach`")
    arguments = parser.parse_args()
    measure_as_installed()
    with tempfile.TemporaryDirectory(prefix="aptui-bench-") as scratch:
        harness = Harness(arguments.dir or Path(scratch), Path(scratch), arguments.jobs, arguments.project)
        print(f"{'':<46}{'median':>11}{'p95':>11}{'min':>11}{'max':>11}  {'':<6}target")
        for name in arguments.rows or ROWS:
            ROWS[name](harness)


if __name__ == "__main__":
    main()

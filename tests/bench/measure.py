"""Run a command and read its cost from the kernel; medians with their extremes."""

from __future__ import annotations

import compileall
import os
import re
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

from msgspec import Struct

import aptui as program


class Cost(Struct, frozen=True):
    """The cost of a run: wall and CPU seconds of the process and its children, and the process's peak memory in MiB."""

    wall_s: float
    cpu_s: float
    peak_mib: float
    output: str = ""


def run(arguments: list[str], cwd: Path | None = None) -> Cost:
    """Run a command to its end; raise an error if the command fails."""
    read, write = os.pipe()
    began = time.perf_counter()
    process = subprocess.Popen(arguments, cwd=cwd, stdout=write, stderr=subprocess.STDOUT)
    os.close(write)
    peak = [0.0]
    watch = threading.Thread(target=_watch_peak, args=(process.pid, peak))
    watch.start()
    with os.fdopen(read, encoding="utf-8", errors="replace") as stream:
        output = stream.read()
    _pid, status, usage = os.wait4(process.pid, 0)
    watch.join()
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise RuntimeError(f"{arguments[:6]} ended with {process.returncode}:\n{output[-2000:]}")
    return Cost(time.perf_counter() - began, usage.ru_utime + usage.ru_stime, peak[0], output)


def _watch_peak(pid: int, peak: list[float]) -> None:
    """Store the peak memory of a process (MiB) in `peak[0]` until the process ends.

    `ru_maxrss` is not used, because a child process inherits the peak of its parent. The parent is this benchmark, whose peak is
    high because it lists all sources.
    """
    status = Path(f"/proc/{pid}/status")
    try:
        while found := re.search(r"VmHWM:\s+(\d+)", status.read_text()):
            peak[0] = int(found[1]) / 1024
            time.sleep(0.02)
    except OSError:
        return


def median(costs: list[Cost]) -> Cost:
    """Return the run with the median wall time."""
    return sorted(costs, key=lambda cost: cost.wall_s)[len(costs) // 2]


def spread(costs: list[Cost]) -> str:
    """Return the wall times as `median [min … max]`."""
    walls = [cost.wall_s for cost in costs]
    return f"{statistics.median(walls):.3f} s [{min(walls):.3f} … {max(walls):.3f}]"


def measure_as_installed() -> None:
    """Compile the bytecode, as an installation does; otherwise the first run compiles it, which takes as long as three starts."""
    compileall.compile_dir(Path(program.__file__).parent, quiet=1)


def aptui(project: Path, *options: str) -> list[str]:
    """Return the command that processes a project."""
    return [sys.executable, "-m", "aptui", "batch", "--json", "--project", str(project), *options]


def settle() -> None:
    """Let the disk finish the writes of earlier runs, so that they do not slow down the next run."""
    os.sync()
    time.sleep(0.5)


def say(name: str, text: str) -> None:
    """Print a row."""
    print(f"{name:<22} {text}", flush=True)

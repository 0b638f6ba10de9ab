"""Limits and signals of the worker: the memory limit of a run, overdue results, and processes that a builder forks."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time

import pytest
from fakes import builder

from aptui.core.orders import Outcome, RunResult
from aptui.core.project import SHARE_OF_MEMORY, BuilderKind
from aptui.worker import worker_main


@pytest.mark.parametrize(
    ("kind", "configured", "machine_gib", "limit_gib"),
    [
        (BuilderKind.PYTHON, SHARE_OF_MEMORY, 16, 4),
        (BuilderKind.PYTHON, SHARE_OF_MEMORY, 256, 8),
        (BuilderKind.PYTHON, SHARE_OF_MEMORY, 1, 2),
        (BuilderKind.COMMAND, SHARE_OF_MEMORY, 16, 0),
        (BuilderKind.PYTHON, 0, 16, 0),
        (BuilderKind.COMMAND, 5 << 30, 16, 5),
    ],
)
def test_memory_limit_of_a_worker_is_a_share_of_the_machine_by_default(
    monkeypatch: pytest.MonkeyPatch, kind: BuilderKind, configured: int, machine_gib: int, limit_gib: int
) -> None:
    sizes = {"SC_PHYS_PAGES": machine_gib << 18, "SC_PAGE_SIZE": 4096}
    monkeypatch.setattr(os, "sysconf", sizes.__getitem__)

    assert worker_main.memory_limit_of(builder("b", "*.b", kind), configured) == limit_gib << 30


def test_results_are_held_until_a_time_limit_or_long_command(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair()
    worker = worker_main.Worker(theirs, theirs)
    answered: list[list[int]] = []
    monkeypatch.setattr(worker, "_answer", lambda _kind, results: answered.append([each.run_key for each in results]))
    now_s = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    worker._hold(RunResult(1, Outcome.SUCCEEDED))
    now_s += worker_main.HELD_S * 0.9
    worker._hold(RunResult(2, Outcome.SUCCEEDED))
    before = list(answered)
    now_s += worker_main.HELD_S * 0.2
    worker._hold(RunResult(3, Outcome.SUCCEEDED))
    worker._hold(RunResult(4, Outcome.SUCCEEDED))
    worker._flush_overdue(takes_long=True)

    assert before == []
    assert answered == [[1, 2, 3], [4]]
    ours.close()
    theirs.close()


_FORKS = """
import os, signal
from aptui.worker import worker_main
ready, is_ready = os.pipe()
with worker_main._make_safe(0):
    child = os.fork()
    if not child:
        os.write(is_ready, b"1")
        signal.pause()
        os._exit(7)
    os.read(ready, 1)
    os.kill(child, signal.SIGTERM)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.real
def test_process_that_a_builder_forked_ends_without_output_on_a_signal() -> None:
    done = subprocess.run([sys.executable, "-c", _FORKS], capture_output=True, text=True, check=True, timeout=30)

    assert (done.stdout.strip(), done.stderr) == (str(-signal.SIGTERM), "")

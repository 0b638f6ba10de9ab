"""Reader processes of the search for missing dependencies, seen from the searcher: a path in, a future of its names out.

Each process has a thread of its own that talks to it and waits for it. One that dies takes the file it was
at with it: that file is broken, the next gets another process.

Tests: `tests/engine/missing/test_scanner.py`.
"""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import sys
import threading
from collections.abc import Collection
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Self

from msgspec import Struct

from aptui.engine.pool.spawning import python_environment
from aptui.shared.missing import Names


class Reading(Struct, frozen=True):
    """What came of reading a file: `names`, or `error`. `is_broken` = the process died of it."""

    digest: bytes = b""
    names: Names | None = None
    error: str = ""
    is_broken: bool = False


class Readers:
    """The processes; they are started when there is something to read.

    Args:
        count: how many at most.
        extensions, line_limit: see `shared.missing.Scan`.
    """

    def __init__(self, count: int, extensions: Collection[str], line_limit: int) -> None:
        self._first_line = json.dumps([sorted(extensions), line_limit]).encode() + b"\n"
        self._threads = ThreadPoolExecutor(max(1, count), thread_name_prefix="aptui-missing")
        self._resting: queue.SimpleQueue[subprocess.Popen[bytes]] = queue.SimpleQueue()
        self._processes: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()
        self._is_closed = False

    def read(self, path: str) -> Future[Reading]:
        """Have a file read; `path` is as Python's file functions want it."""
        return self._threads.submit(self._read, path)

    def close(self) -> None:
        """Kill the processes; what they are at is broken."""
        with self._lock:
            self._is_closed = True
            processes = list(self._processes)
        for process in processes:
            process.kill()
        self._threads.shutdown(wait=True, cancel_futures=True)
        for process in processes:
            _bury(process)

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    # ------------------------------------------------------------------------------------------------------- a thread each

    def _read(self, path: str) -> Reading:
        try:
            process = self._process()
        except OSError as error:
            return Reading(error=f"no process can be started: {error.strerror}", is_broken=True)
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps(path).encode() + b"\n")
            process.stdin.flush()
            answer = process.stdout.readline()
        except OSError:
            answer = b""
        if not answer.endswith(b"\n"):
            self._drop(process)
            return Reading(error="the process that read it died", is_broken=True)
        self._resting.put(process)
        return _reading(json.loads(answer))

    def _process(self) -> subprocess.Popen[bytes]:
        with contextlib.suppress(queue.Empty):
            return self._resting.get_nowait()
        with self._lock:
            if self._is_closed:
                raise OSError(0, "the search was given up")
            process = subprocess.Popen(
                [sys.executable, "-P", "-X", "utf8", "-m", "aptui.engine.missing.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=python_environment(),
                start_new_session=True,  # the interrupt of a terminal is ours to deal with
            )
            self._processes.add(process)
        assert process.stdin is not None
        process.stdin.write(self._first_line)
        return process

    def _drop(self, process: subprocess.Popen[bytes]) -> None:
        with self._lock:
            self._processes.discard(process)
        process.kill()
        _bury(process)


def _bury(process: subprocess.Popen[bytes]) -> None:
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(OSError):  # what was to be written has no reader
                stream.close()
    process.wait()


def _reading(answer: dict[str, Any]) -> Reading:
    if "error" in answer:
        return Reading(error=answer["error"])
    names = Names(
        {(bytes.fromhex(uuid), sub_id): text for uuid, sub_id, text in answer["assets"]},
        {bytes.fromhex(uuid): text for uuid, text in answer["uuids"]},
        dict(answer["paths"]),
        answer["is_partial"],
    )
    return Reading(bytes.fromhex(answer["digest"]), names)

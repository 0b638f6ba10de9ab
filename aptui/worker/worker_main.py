"""The worker process: it receives orders from the engine over a socket, performs them one after another, and answers each.

Started as `python -m aptui.worker.worker_main FD PARENT QUESTIONS`, or with `--describe` to describe builder classes
(`worker.describing.describe`). It handles thousands of orders and tolerates hostile builders: they may close the worker's files,
change its current folder, leave threads and processes, or end the worker. If this process dies, only the run in progress is lost.

This module imports only what every order needs; numpy, Pillow and similar packages are imported when the first builder uses them.

Tests: `tests/worker/test_worker_main.py`, `tests/engine/pool/test_pool.py`.
"""

from __future__ import annotations

import contextlib
import faulthandler
import fcntl
import functools
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import aptui.shared.lean_start  # noqa: F401  # before all that imports msgspec
from aptui.core.orders import AnalyseOrder, AnalyseResult, HashOrder, Outcome, ProcessOrder, RunResult
from aptui.core.project import SHARE_OF_MEMORY, Builder, BuilderKind
from aptui.worker import processes, reads, wire
from aptui.worker.file_access import copy_files, hash_files
from aptui.worker.log import ADDRESS_BYTES, LogAnswerer, RunLog
from aptui.worker.output import marker
from aptui.worker.variables import BuilderVariables

if TYPE_CHECKING:
    from aptui.worker.commands.command_job import BatchSharing

_DESCRIPTOR_FLOOR = 128
"""If all descriptor numbers up to this one are in use, builders leak open files.

The worker then asks to be replaced, before descriptors run out.
"""
_RECEIVE_BYTES = 1 << 18
HELD_S = 0.02
"""Maximum delay (seconds) of an answer that is held to be sent with later answers.

The engine also holds results, so that several results share a commit. It holds them for the same time, or longer if no client
waits and other ready jobs keep the workers busy.
"""
_LEAST_SHARE_BYTES, _LARGEST_SHARE_BYTES = 2 << 30, 8 << 30
"""Minimum and maximum (bytes) of a worker's default memory limit.

The limit counts reserved addresses, and libraries reserve addresses that they never use.
"""


class Worker:
    """Performs the orders of one engine until the engine closes the connection."""

    def __init__(self, channel: socket.socket, questions: socket.socket) -> None:
        self._channel = channel
        self._log_answerer = LogAnswerer(questions)
        self._output = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, 3)
        self._reader = wire.FrameReader()
        self._setup = wire.WorkerSetup((), (), "")
        self._builders: dict[str, Builder] = {}
        self._instances: dict[str, Any] = {}
        self._platforms: dict[str, Any] = {}
        self._runs = 0
        self._held: list[RunResult] = []
        """Results of commands, held back so that several results share one write and one wake-up of the engine."""
        self._held_since_s = 0.0
        self._sharing: BatchSharing | None = None
        self._variables = BuilderVariables((), ())
        self._page_bytes = os.sysconf("SC_PAGE_SIZE")

    def serve(self) -> None:
        """Perform orders until the engine closes the channel or this worker has to be replaced."""
        while data := self._channel.recv(_RECEIVE_BYTES):
            for kind, payload in self._reader.feed(data):
                self._perform(kind, wire.decode(kind, payload))
        self._end()

    def _perform(self, kind: wire.FrameKind, record: Any) -> None:
        match kind:
            case wire.FrameKind.COPY:
                self._send(wire.FrameKind.COPIED, copy_files(record))
            case wire.FrameKind.HASH:
                order: HashOrder = record
                if order.asks_writers:  # the kernel sends SIGIO if another process opens a file on which this worker holds a lease
                    signal.signal(signal.SIGIO, signal.SIG_IGN)
                self._send(wire.FrameKind.HASHED, hash_files(order))
            case wire.FrameKind.ANALYSE:
                for analysis in record:
                    self._analyse(analysis)
                self._log_answerer.end()
            case wire.FrameKind.PROCESS:
                for at, job in enumerate(record):
                    if job.is_batched:
                        self._start_together(record[at:])
                    self._process(job)
                self._flush()
                if self._sharing is not None:
                    self._sharing.starts.clear()
                self._log_answerer.end()
                self._retire_if_due()
            case wire.FrameKind.SETUP:
                self._set_up(record)
            case _:
                raise wire.WireError(f"the engine sent a frame of kind {kind.name}, which a worker never receives")

    def _set_up(self, setup: wire.WorkerSetup) -> None:
        self._setup = setup
        self._builders = {builder.name: builder for builder in setup.builders}
        self._platforms = {platform.id: platform for platform in setup.platforms}
        self._variables = BuilderVariables(setup.builders, setup.variables)
        reads.watch(setup.scan_folders, setup.ignore_regex)
        if setup.nice:
            os.nice(setup.nice)
        self._send(wire.FrameKind.READY, wire.WorkerNote())

    def _analyse(self, order: AnalyseOrder) -> None:
        from aptui.worker import builder_run

        builder = self._builders.get(order.builder)
        if builder is None:
            result = AnalyseResult(order.run_key, Outcome.FAILED, _unknown(order.builder))
        else:
            self._runs += 1
            self._variables.apply(builder.name)
            log = RunLog(builder.name)
            self._log_answerer.begin(order.run_key, log)
            with _make_safe(_with_answerer(memory_limit_of(builder, builder.memory_limit_bytes))):
                result = builder_run.analyse(order, builder, self._platforms, self._load, log)
        self._answer(wire.FrameKind.ANALYSED, [result])
        self._retire_if_due()

    def _process(self, order: ProcessOrder) -> None:
        from aptui.worker import builder_run

        builder = self._builders.get(order.builder)
        if builder is None:
            self._flush()
            self._answer(wire.FrameKind.RAN, [RunResult(order.run_key, Outcome.FAILED, _unknown(order.builder))])
            return
        is_command = builder.kind is BuilderKind.COMMAND
        self._variables.apply(builder.name)
        limit_bytes = memory_limit_of(builder, order.memory_limit_bytes)
        if limit_bytes or not is_command:
            self._flush()  # send the held results before the run, which may exhaust memory, fork or print
        log = RunLog(builder.name)
        self._log_answerer.begin(order.run_key, log)
        with _make_safe(limit_bytes if is_command else _with_answerer(limit_bytes)):
            result = builder_run.process(order, builder, self._platforms, self._load, self._share(), log, self._setup.threads)
        if is_command:
            self._hold(result)
        else:
            self._runs += 1
            self._answer(wire.FrameKind.RAN, [result])
            self._retire_if_due()

    def _start_together(self, orders: Sequence[ProcessOrder]) -> None:
        """Start one command for several orders: the first order, and every order that equals it except for its source.

        Do nothing if a command was already started for the first order, or if the builder is faulty.
        """
        from aptui.worker import builder_run

        first, builder, sharing = orders[0], self._builders.get(orders[0].builder), self._share()
        if builder is None or builder.fault or sharing.starts.knows(first.run_key):
            return
        self._flush()  # without this call, the engine would treat a finished run as the current one
        self._log_answerer.begin(first.run_key, RunLog(builder.name))
        with _make_safe(memory_limit_of(builder, first.memory_limit_bytes)):
            builder_run.start_together(orders, builder, sharing)

    def _hold(self, result: RunResult) -> None:
        if not self._held:
            self._held_since_s = time.monotonic()
        self._held.append(result)
        self._flush_overdue()

    def _flush_overdue(self, *, takes_long: bool = False) -> None:
        """Send held results if they have waited long enough, or if a command `takes_long`.

        The engine treats the first run without an answer as the current run. So the results of earlier runs must be sent in time.
        """
        if takes_long or time.monotonic() - self._held_since_s >= HELD_S:
            self._flush()

    def _flush(self) -> None:
        if self._held:
            self._answer(wire.FrameKind.RAN, self._held)
            self._held = []

    def _share(self) -> BatchSharing:
        """Return the shared state of all runs; create it for the first run."""
        if self._sharing is None:
            from aptui.worker.commands.command_job import BatchSharing
            from aptui.worker.outputs.products import ReusableWorkspace

            self._sharing = BatchSharing(ReusableWorkspace(), self._flush_overdue, self._variables.environment)
        return self._sharing

    def _load(self, builder: Builder) -> Any:
        instance = self._instances.get(builder.name)
        if instance is None:
            from aptui.worker.builder_import import load_builder

            instance = self._instances[builder.name] = load_builder(builder)
        return instance

    def _answer(self, kind: wire.FrameKind, results: Sequence[AnalyseResult] | Sequence[RunResult]) -> None:
        _flush_streams()
        os.write(self._output, b"".join(marker(self._setup.nonce, result.run_key) for result in results))
        self._channel.sendall(b"".join(_frame(kind, result) for result in results))

    def _retire_if_due(self) -> None:
        reason = self._why_to_retire()
        if reason:
            self._flush()
            self._send(wire.FrameKind.RETIRE, wire.WorkerNote(reason))
            self._end()
            _leave(0)

    def _end(self) -> None:
        self._flush()
        if self._sharing is not None:
            self._sharing.programs.end()
            self._sharing.starts.clear()
            self._sharing.folders.remove()
        for instance in self._instances.values():
            shutdown = getattr(instance, "shutdown", None)
            if callable(shutdown):
                with contextlib.suppress(Exception):  # the engine has closed the connection, so an error cannot be reported
                    shutdown()

    def _why_to_retire(self) -> str:
        if self._runs >= self._setup.recycle_runs and time.process_time() >= self._setup.recycle_cpu_s:
            return f"{self._runs} runs"
        try:
            probe = os.dup(self._output)
            os.close(probe)
        except OSError:
            return "builders did not close their files, so no file descriptor is free"
        if probe > _DESCRIPTOR_FLOOR:
            return f"builders did not close their files, so {probe} file descriptors are in use"
        with open("/proc/self/statm", "rb", buffering=0) as file:
            rss_bytes = int(file.read().split()[1]) * self._page_bytes
        return f"{rss_bytes >> 20} MiB of memory" if rss_bytes > self._setup.recycle_rss_bytes else ""

    def _send(self, kind: wire.FrameKind, record: wire.Record) -> None:
        self._channel.sendall(wire.encode(kind, record))


def _frame(kind: wire.FrameKind, result: AnalyseResult | RunResult) -> bytes:
    try:
        return wire.encode(kind, result)
    except wire.WireError as error:
        return wire.encode(kind, type(result)(result.run_key, Outcome.FAILED, f"the answer cannot be sent: {error}"))


def _unknown(builder: str) -> str:
    return f"{builder!r} is not a builder"


def memory_limit_of(builder: Builder, limit_bytes: int) -> int:
    """Return the memory limit of a run (bytes), 0 = no limit."""
    if limit_bytes != SHARE_OF_MEMORY:
        return limit_bytes
    if builder.kind is not BuilderKind.PYTHON:
        return 0
    machine_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min(max(_LEAST_SHARE_BYTES, machine_bytes // 4), _LARGEST_SHARE_BYTES)


def _with_answerer(limit_bytes: int) -> int:
    """Return the memory limit of a run plus the address space of the worker's thread that answers questions during the run."""
    return limit_bytes and limit_bytes + ADDRESS_BYTES


@contextlib.contextmanager
def _make_safe(memory_limit_bytes: int) -> Iterator[None]:
    """Undo changes that an earlier builder may have made to the process, and set the memory limit of the next builder."""
    signal.signal(signal.SIGTERM, functools.partial(_terminate, os.getpid()))
    if memory_limit_bytes:
        _limit_memory(memory_limit_bytes)
    yield
    if memory_limit_bytes:
        _limit_memory(0)


def _terminate(worker: int, _number: int, _frame: object) -> NoReturn:
    """Signal handler that ends the run.

    In a process that the builder forked and that inherited the handler, it ends the process.
    """
    if os.getpid() != worker:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)
    from aptui.worker.builder_run import Terminated

    raise Terminated


def _limit_memory(limit_bytes: int) -> None:
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    soft = limit_bytes or hard
    if hard != resource.RLIM_INFINITY:
        soft = min(soft, hard) if soft != resource.RLIM_INFINITY else hard
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _flush_streams() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            pass  # the builder closed the stream, so the buffered output is lost


def _leave(status: int) -> NoReturn:
    """Exit without the clean-up of builders' modules, which could hang."""
    _flush_streams()
    os._exit(status)


def _prepare(parent: int, *descriptors: int) -> list[socket.socket]:
    """Set the kernel settings and the streams of this process. Return sockets made from the inherited `descriptors`."""
    processes.die_with_parent(parent)
    processes.adopt_orphans()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    faulthandler.enable()
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace", line_buffering=True)  # type: ignore[union-attr]  # both are TextIOWrapper here
    try:
        with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
            file.write("500")  # if memory runs out, the kernel should kill a worker, which can be replaced, not the engine
    except OSError:
        pass
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    return [socket.socket(fileno=descriptor) for descriptor in descriptors]


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a worker, or with `--describe` describe builder classes for `registry`."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    if words[:1] == ["--describe"]:
        from aptui.worker.describing.describe import main as describe

        describe()
        _leave(0)
    channel, questions = _prepare(int(words[1]), int(words[0]), int(words[2]))
    signal.signal(signal.SIGTERM, lambda _number, _frame: _leave(0))
    try:
        Worker(channel, questions).serve()
    except ConnectionError:
        pass  # the engine has ended and closed the channel
    except BaseException as error:  # noqa: BLE001 - the last handler: print any other error, and report it by the exit status
        if type(error).__name__ == "Terminated":
            _leave(0)
        import traceback

        traceback.print_exc()
        _leave(70)
    _leave(0)


if __name__ == "__main__":
    main()

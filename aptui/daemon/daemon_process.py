"""The engine as a process that runs until it is stopped: its lock, its socket, its signals. `engine.live` does its work.

SIGTERM and SIGINT stop the engine cleanly; a second signal kills it. SIGHUP stops an engine at a terminal; an engine without a
terminal reads its configuration again. SIGUSR1 writes the stack of every thread to standard error.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from aptui import feature
from aptui.config.configuration import Config
from aptui.core.notices import EngineMessage, JobChanged, Notice
from aptui.link import places
from aptui.shared import printing
from aptui.shared.errors import HostError

if TYPE_CHECKING:
    from aptui.engine.live.supervisor import EngineSupervisor

START_LIMIT_S, _POLL_S = 60.0, 0.01
"""How long `start` waits for an engine, and the interval between its attempts to connect to the engine (seconds)."""
_OUTPUT_BYTES = 1 << 20
"""Maximum size (bytes) of a daemon's output. A larger file is emptied, because a daemon may run for months with failing jobs."""


def serve(
    config: Config,
    load: Callable[[], Config],
    *,
    skips_start_scan: bool = False,
    is_detached: bool = False,
    say: Callable[[str], None],
    gateway_options: Sequence[str] = (),
) -> None:
    """Run an engine until it is stopped.

    Args:
        load: reads the configuration again.
        skips_start_scan: skip the scan for changes that were made while no engine ran.
        is_detached: whether the process has no terminal.
        say: prints a line for the user who started the engine.
        gateway_options: options of the command line that the gateway needs to read the same configuration.

    Raises:
        BusyError: another engine holds the cache. KnownError: the engine cannot start.
    """
    from aptui.batch.reporter import Reporter
    from aptui.engine.live.requests import reachable
    from aptui.engine.live.supervisor import EngineSupervisor

    live = EngineSupervisor(config, load, skips_start_scan=skips_start_scan)
    reporter = _DaemonLog(places.output_path(config.cache_dir)) if is_detached else Reporter(sys.stderr)
    live.listeners.append(reporter)
    observers = [observe(lambda: live.config, printing.complain) for observe in feature.load_all("observer")]
    live.listeners += observers
    _take_signals(live, is_detached=is_detached)
    live.open()
    try:
        with reachable(live):
            for begin in feature.load_all("daemon"):
                begin(live, gateway_options)
            say(f"the engine of '{config.project_dir}' runs as process {os.getpid()}")
            live.run()
    finally:
        reporter.close()
        live.close()
        for each in observers:
            each.close()


class _DaemonLog:
    """Output of a daemon: one line for each message of the engine and for each failed job, so that users can read them later.

    Args:
        path: file of the output that `start` opened. The log empties this file if it is too long, but no other file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self, notice: Notice) -> None:
        if isinstance(notice, EngineMessage):
            self._write(notice.text)
        elif isinstance(notice, JobChanged) and notice.status == "failed":
            self._write(notice.failure)

    def close(self) -> None:
        self._write("stopped")

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError):
            self._empty_if_long()
        with contextlib.suppress(OSError):
            print(time.strftime("%Y-%m-%d %H:%M:%S"), printing.line(text), file=sys.stderr, flush=True)

    def _empty_if_long(self) -> None:
        found = os.fstat(sys.stderr.fileno())
        if found.st_size > _OUTPUT_BYTES and os.path.samestat(found, self._path.stat()):
            os.truncate(self._path, 0)


def _take_signals(live: EngineSupervisor, *, is_detached: bool) -> None:
    def stop(number: int, _frame: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        live.stop()

    def reload(_number: int, _frame: object) -> None:
        live.reload()
        live.wake()

    def suspect(_number: int, _frame: object) -> None:
        live.roots.suspect("the process was stopped for a while")

    signal.signal(signal.SIGTERM, stop)
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGHUP, reload if is_detached else stop)
    signal.signal(signal.SIGCONT, suspect)
    # The kernel sends SIGIO when another process opens a file on which this process has a lease (shared/files/replacing.py).
    signal.signal(signal.SIGIO, signal.SIG_IGN)
    faulthandler.register(signal.SIGUSR1)


# ------------------------------------------------------------------------------------------------------------------- start


def start(project_dir: Path, cache_dir: Path, options: Sequence[str] = ()) -> int:
    """Start an engine in a new session (setsid(2)), and return its process id once it accepts connections.

    Raises:
        HostError: the engine ended, or does not answer; the error has the last line of its output.
    """
    from aptui.link.engine_client import EngineClient

    output = places.output_path(cache_dir)
    places.make_private(output.parent)
    with output.open("ab") as file:  # a daemon that empties the file relies on the mode "append"
        if file.tell() > _OUTPUT_BYTES:
            file.truncate(0)
            file.seek(0)
        begun_at = file.tell()
        command = [sys.executable, "-P", "-m", "aptui", "serve", "--detached", "--project", str(project_dir), *options]
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True)
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline:
        code = child.poll()
        if code is not None:
            raise _start_error(code, output, begun_at)
        try:
            with EngineClient.connect(places.socket_path(cache_dir), name="start") as client:
                if client.hello.pid == child.pid:
                    child.returncode = 0  # prevents a warning of `Popen`, because the engine outlives this process
                    return child.pid
        except HostError:
            pass  # the engine does not listen yet
        time.sleep(_POLL_S)
    raise HostError(f"the engine (process {child.pid}) does not answer", hint=f"see '{output}'")


def _start_error(code: int, output: Path, begun_at: int) -> HostError:
    with output.open("rb") as file:
        file.seek(begun_at)
        lines = [line.strip() for line in file.read().decode("utf-8", "replace").splitlines() if line.strip()]
    last = next(
        (line.removeprefix("aptui: ") for line in reversed(lines) if line.startswith("aptui: ")), lines[-1] if lines else ""
    )
    error = HostError(last or f"the engine ended with exit code {code}", hint="" if last else f"see '{output}'")
    error.exit_code = code if code in (2, 3, 4) else 2
    return error

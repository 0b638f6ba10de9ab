"""Keeps the process that serves O3DE's programs running beside an engine that stays up.

The supervisor holds the listening socket and starts the process (`connection_process`), which reads its settings from standard
input and ends when standard input closes. Each line that the process prints is a message about a refused client; the supervisor
shows it to the engine's users.

Tests: `tests/features/o3de/connection/test_connection_process.py`.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from aptui.core.notices import LogLevel
from aptui.engine.live.helper_process import HelperProcess, Restarts
from aptui.engine.pool.spawning import python_environment
from aptui.features.o3de.connection.connection_settings import ConnectionSettings, find_settings, listen
from aptui.shared.errors import HostError

if TYPE_CHECKING:
    import socket

    from aptui.config.configuration import Config
    from aptui.engine.live.supervisor import EngineSupervisor

_LONGEST_DELAY_S = 15.0
_LINE_BYTES = 4096
_PROCESS = "aptui.features.o3de.connection.connection_process"


class ConnectionSupervisor:
    """Keeps the server of one engine running while the configuration enables it.

    Args:
        options: ignored, because the process gets its settings from standard input instead of a command line.
        listening: a socket that is used instead of the configured port.
    """

    def __init__(self, live: EngineSupervisor, options: Sequence[str] = (), listening: socket.socket | None = None) -> None:
        del options
        self._live, self._fixed = live, listening
        self._listening: socket.socket | None = listening
        self._port: int | None = None
        self._seen: Config | None = None
        self._settings: ConnectionSettings | None = None
        self._process = HelperProcess(live.selector, self._on_end, self._on_output)
        self._output = b""
        self._restarts = Restarts(_LONGEST_DELAY_S)
        live.parts.append(self)
        live.endings.append(self.close)
        self.poll(time.monotonic())  # open the port now, because a client may ask the engine for the port at once

    @property
    def port(self) -> int:
        """The port on which the server listens, 0 = not listening."""
        return int(self._listening.getsockname()[1]) if self._listening is not None else 0

    @property
    def pid(self) -> int:
        """The process id of the server, 0 = not running."""
        return self._process.child.pid if self._process.child is not None else 0

    def next_deadline(self, _now: float) -> float | None:
        """Return when to start the process again, None = it is running or disabled."""
        return self._restarts.due_at if self._settings is not None and self._process.child is None else None

    def poll(self, now: float) -> None:
        """Start or end the server process for O3DE's programs according to the configuration."""
        if self._live.config is not self._seen:
            self._adopt(self._live.config, now)
        if self._settings is not None and self._process.child is None and now >= self._restarts.due_at:
            self._start(now)

    def _adopt(self, config: Config, now: float) -> None:
        self._seen = config
        found = find_settings(config)
        settings, port = found if found is not None else (None, None)
        if settings == self._settings and port == self._port:
            return
        self._process.end()
        if self._fixed is None:
            self._close_listening()
        self._settings, self._port = settings, port
        self._restarts.reset(now)

    def _start(self, now: float) -> None:
        assert self._settings is not None
        try:
            if self._listening is None:
                self._listening = listen(self._settings, self._port or 0)
            number = self._listening.fileno()
            child = subprocess.Popen(
                [sys.executable, "-P", "-X", "utf8", "-m", _PROCESS, str(number)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, pass_fds=(number,),
                start_new_session=True, env=python_environment(),
            )  # fmt: skip
            self._process.watch(child)
        except (OSError, HostError) as error:
            self._fail(str(error), now)
            return
        assert child.stdin is not None
        with contextlib.suppress(OSError):  # if the process has ended already, the next turn of the loop reports the end
            child.stdin.write(json.dumps(msgspec.to_builtins(self._settings)).encode() + b"\n")
            child.stdin.flush()
        self._live.ports["o3de"] = self.port
        self._restarts.record_start(now)

    def _on_output(self, _mask: int) -> None:
        """Log the messages of the process about refused clients as warnings."""
        child = self._process.child
        if child is None or child.stdout is None:
            return
        try:
            data = os.read(child.stdout.fileno(), _LINE_BYTES)
        except BlockingIOError:
            return
        if not data:
            self._process.close_output()
            return
        *lines, rest = (self._output + data).split(b"\n")
        self._output = rest[-_LINE_BYTES:]
        for line in lines:
            self._say(f"O3DE's programs: {line.decode('utf-8', 'replace')}", LogLevel.WARNING)

    def _on_end(self, code: int) -> None:
        """Handle a process that ended by itself."""
        self._fail(f"aptui's server process ended with exit code {code}", time.monotonic())

    def _fail(self, why: str, now: float) -> None:
        if self._restarts.record_failure(why, now):
            self._say(f"O3DE's Editor and launchers cannot connect: {why}", LogLevel.WARNING)

    def _say(self, text: str, level: LogLevel) -> None:
        if self._live.engine is not None:
            self._live.engine.news.say(text, level)

    def close(self) -> None:
        """End the process, and stop listening."""
        self._process.end()
        self._close_listening()

    def _close_listening(self) -> None:
        if self._listening is not None:
            self._listening.close()
            self._listening = None
        self._live.ports.pop("o3de", None)

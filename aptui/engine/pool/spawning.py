"""Starts the processes of workers; `process` then sends them work.

A worker takes as long to start as the engine takes to import its modules. So the `EarlyWorker` is started as soon as it is known
that there is work, and the worker and the engine start at the same time.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

import aptui
from aptui.engine.pool.sandbox import Sandbox, sandbox_of
from aptui.shared.errors import HostError

if TYPE_CHECKING:
    from aptui.config.configuration import Config

_PIPE_BYTES = 1 << 20
_ALLOWED = frozenset({"PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "VIRTUAL_ENV"})
_ALLOWED_PREFIXES = ("LC_", "PYTHON", "XDG_")
MARK_VARIABLE = "APTUI_WORKER"


def python_command(*arguments: str) -> list[str]:
    """Return the command of a worker.

    With `-P`, a `json.py` in the current folder does not hide the module of the standard library.
    """
    return [sys.executable, "-P", "-X", "utf8", "-m", "aptui.worker.worker_main", *arguments]


def python_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment of a worker: an allow-list, so that builders do not get the engine's secrets."""
    inherited = {name: value for name, value in os.environ.items() if name in _ALLOWED or name.startswith(_ALLOWED_PREFIXES)}
    root = str(Path(aptui.__file__).parent.parent)
    if "site-packages" not in root and "dist-packages" not in root:
        inherited["PYTHONPATH"] = os.pathsep.join(filter(None, (root, inherited.get("PYTHONPATH", ""))))
    return {**inherited, **(extra or {})}


def mark_prefix() -> str:
    """Return the common prefix of the marks in the environment of this engine's workers and their child processes."""
    return f"{MARK_VARIABLE}={os.getpid()}-"


class SpawnedWorker(Struct, eq=False):
    """A process that waits for its setup frame.

    Args:
        mark: a text in the environment of this process and of its child processes.
        channel, questions: the engine's ends of the process's two socket pairs.
        output: receives the output of this process and of its child processes.
    """

    mark: str
    process: subprocess.Popen[bytes]
    channel: socket.socket
    questions: socket.socket
    output: int
    is_wrapped: bool

    def discard(self) -> None:
        """End an unused worker."""
        self.channel.close()
        self.questions.close()
        os.close(self.output)
        self.process.kill()
        self.process.wait()


def spawn(environment: Mapping[str, str], sandbox: Sandbox | None) -> SpawnedWorker:
    """Start a worker's process.

    Raises:
        OSError: the process cannot be started.
    """
    mark = f"{mark_prefix()}{os.urandom(8).hex()}"
    (channel, theirs), (questions, asked) = socket.socketpair(), socket.socketpair()
    output, writer = os.pipe2(os.O_CLOEXEC)
    try:
        fcntl.fcntl(output, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    except OSError:
        pass  # the user's limit of pipe memory is reached; the default size of 64 KiB is enough
    name, _, value = mark.partition("=")
    parent = "0" if sandbox is not None else str(os.getpid())
    command = python_command(str(theirs.fileno()), parent, str(asked.fileno()))
    try:
        process = subprocess.Popen(
            command if sandbox is None else sandbox.command(command),
            stdin=subprocess.DEVNULL,
            stdout=writer,
            stderr=writer,
            pass_fds=(theirs.fileno(), asked.fileno()),
            env={**python_environment(environment), name: value},
            start_new_session=True,
            cwd="/",
        )
    except OSError:
        channel.close()
        questions.close()
        os.close(output)
        raise
    finally:
        theirs.close()
        asked.close()
        os.close(writer)
    return SpawnedWorker(mark, process, channel, questions, output, sandbox is not None)


class EarlyWorker:
    """A worker that is started before the pool exists, and becomes the first worker of the pool.

    If the early worker cannot be started, the pool starts a worker itself and reports the error. Only one early worker is started:
    on two processors, a second one saved no time, because its start made the start of the engine slower.
    """

    def __init__(self, config: Config) -> None:
        self.sandbox: Sandbox | None = None
        self._spawned: SpawnedWorker | None = None
        with contextlib.suppress(OSError, HostError):
            self.sandbox = sandbox_of(config)
            self._spawned = spawn({}, self.sandbox)

    def take(self, environment: Mapping[str, str], sandbox: Sandbox | None) -> SpawnedWorker | None:
        """Return the worker if it is unused and was started with this environment and this sandbox, else None."""
        if environment or sandbox != self.sandbox:
            return None
        spawned, self._spawned = self._spawned, None
        return spawned

    def close(self) -> None:
        """End the worker if it is unused."""
        if self._spawned is not None:
            self._spawned.discard()
            self._spawned = None

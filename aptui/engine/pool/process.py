"""One worker process, seen from the engine: writes to the process, reads from it and ends it.

`pool` chooses the orders of the worker.

Four descriptors wake the loop: the channel (frames), the output pipe (text that builders print), a pidfd (the death of the
process), and the socket for questions about a run (`questions`). The output pipe cannot report the death, because grandchildren may
keep the pipe open. No read or write blocks.

Tests: `tests/engine/pool/test_environment.py`.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import time
from collections.abc import Mapping
from functools import partial
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from aptui.engine.pool.sandbox import Sandbox
from aptui.engine.pool.spawning import SpawnedWorker, spawn
from aptui.engine.pool.worker_messages import RunQuestions
from aptui.worker import processes, wire
from aptui.worker.output import BoundedText, MarkedStream

_RECEIVE_BYTES = 1 << 18
_DRAIN_READS = 64
"""Maximum number of reads of the output pipe per wake-up, because a process that floods the pipe must not block the loop."""


class WorkerListener(Protocol):
    """Receives the events of a worker; implemented by the pool."""

    def on_frame(self, member: WorkerProcess, kind: wire.FrameKind, payload: bytes) -> None:
        """Called with each frame that the worker sent."""

    def on_exit(self, member: WorkerProcess) -> None:
        """Called when the process is dead, after its last messages and output were received."""

    def on_progress(self, member: WorkerProcess, run_key: int, percent: int) -> None:
        """Called when a builder reported the progress of its run."""

    def on_wake(self) -> None:
        """Called after all frames of one wake-up were reported."""


class WorkerStart(Struct, frozen=True):
    """How to start a worker: the setup frame without its nonce, and environment variables besides the allowed variables."""

    setup: wire.WorkerSetup
    environment: Mapping[str, str]
    sandbox: Sandbox | None = None


class WorkerProcess:
    """A worker process and its descriptors. `spawned` is a process that runs already; if it is None, a process is started.

    Raises:
        OSError: no process can be started, or no descriptor is free.
    """

    def __init__(
        self,
        start: WorkerStart,
        selector: selectors.BaseSelector,
        listener: WorkerListener,
        spawned: SpawnedWorker | None = None,
    ) -> None:
        self._selector, self._listener = selector, listener
        self._nonce = os.urandom(8).hex()
        self._reader = wire.FrameReader()
        self.stream = MarkedStream(self._nonce)
        """The output of the worker."""
        self._outbox = bytearray()
        self.fault = ""
        self.is_gone = False
        self.orphans: set[int] = set()
        spawned = spawned or spawn(start.environment, start.sandbox)
        self.mark, self.is_wrapped = spawned.mark, spawned.is_wrapped
        self._process, self._channel, self._output = spawned.process, spawned.channel, spawned.output
        self.pid = self._process.pid
        try:
            self.exit_descriptor = os.pidfd_open(self.pid)
        except OSError:
            spawned.discard()
            raise
        self.questions = RunQuestions(spawned.questions, selector, on_progress=partial(listener.on_progress, self))
        self._register()
        self.send(wire.encode(wire.FrameKind.SETUP, replace(start.setup, nonce=self._nonce)))

    def _register(self) -> None:
        self._channel.setblocking(False)
        os.set_blocking(self._output, False)
        self._selector.register(self._channel, selectors.EVENT_READ, self._on_channel)
        self._selector.register(self._output, selectors.EVENT_READ, self._read_output)
        self._selector.register(self.exit_descriptor, selectors.EVENT_READ, self._on_exit)
        self._is_listening = self._is_reading_output = True

    # ------------------------------------------------------------------------------------------------------------ sending

    def send(self, frame: bytes) -> None:
        """Send a frame now, or as soon as the worker's socket has room."""
        if not self._is_listening:
            return
        if not self._outbox:
            frame = self._send_some(frame)
        if frame:
            self._outbox += frame
            self._selector.modify(self._channel, selectors.EVENT_READ | selectors.EVENT_WRITE, self._on_channel)

    def _send_some(self, data: bytes | bytearray) -> bytes:
        try:
            sent = self._channel.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            return b""  # the process is ending; the pidfd will notify the loop of its exit
        return bytes(data[sent:])

    def _flush(self) -> None:
        self._outbox = bytearray(self._send_some(self._outbox))
        if not self._outbox and self._is_listening:
            self._selector.modify(self._channel, selectors.EVENT_READ, self._on_channel)

    # ---------------------------------------------------------------------------------------------------------- receiving

    def _on_channel(self, _mask: int = 0) -> None:
        if self._outbox:
            self._flush()
        self._receive()
        self._listener.on_wake()

    def _receive(self) -> bool:
        """Receive messages; return whether more messages may follow."""
        if not self._is_listening:
            return False
        try:
            data = self._channel.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self._close_channel()
            return False
        try:
            for kind, payload in self._reader.feed(data):
                self._listener.on_frame(self, kind, payload)
        except wire.WireError as error:
            self.break_off(f"sent an invalid message to the engine ({error})")
        return self._is_listening

    def break_off(self, fault: str) -> None:
        """Stop reading and kill the worker, because of `fault`."""
        self._close_channel()
        if self._process.poll() is None:
            self.fault = self.fault or fault
            self.kill()

    @property
    def is_deaf(self) -> bool:
        """Whether the channel is closed: the worker is ending, or a builder closed the descriptor of the channel."""
        return not self._is_listening

    def _close_channel(self) -> None:
        if self._is_listening:
            self._is_listening = False
            self._selector.unregister(self._channel)
            self._channel.close()

    def _read_output(self, _mask: int = 0) -> bool:
        """Read once; return whether more data may follow."""
        if not self._is_reading_output:
            return False
        try:
            data = os.read(self._output, _RECEIVE_BYTES)
        except BlockingIOError:
            return False
        if not data:
            self._is_reading_output = False
            self._selector.unregister(self._output)
            return False
        self.stream.feed(data, time.time_ns() // 1_000_000)
        return True

    def take_output(self, run_key: int) -> BoundedText | None:
        """Return the output of a run whose result has arrived.

        The worker writes a marker after the output and before the result, so the whole output of the run is in the pipe by now.
        """
        for _ in range(_DRAIN_READS):
            if self.stream.finished and self.stream.finished[-1][0] == run_key:
                break
            if not self._read_output():
                break
        return self.stream.take(run_key)

    def drain(self) -> None:
        """Read the worker's output, so that the worker does not wait for space in the pipe."""
        for _ in range(_DRAIN_READS):
            if not self._read_output():
                break

    # ------------------------------------------------------------------------------------------------- ending the process

    def hang_up(self) -> None:
        """Close the writing side of the worker's channel, so that the worker ends by itself after its orders."""
        if self._is_listening:
            self._channel.shutdown(socket.SHUT_WR)

    def terminate(self) -> None:
        """Send SIGTERM to the worker's processes.

        The sandbox process gets no signal, because the processes in a sandbox are killed at once when the sandbox process ends.
        """
        if not self.is_wrapped:
            processes.kill_group(self.pid, signal.SIGTERM)
            return
        for pid in processes.family(self.pid, self.mark) - {self.pid}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)

    def kill(self) -> None:
        """Kill the worker and every process of its family."""
        if self._process.returncode is None:
            self.orphans |= processes.kill_family(self.pid, self.mark) - {self.pid}
            self._process.kill()

    def _on_exit(self, _mask: int = 0) -> None:
        self.check_exit()
        self._listener.on_wake()

    def check_exit(self) -> None:
        """Handle the death of the process: receive its last messages, and notify the pool."""
        if self.is_gone or self._process.poll() is None:
            return
        self.is_gone = True
        try:
            self.orphans |= processes.kill_family(self.pid, self.mark)
            while self._receive():
                pass
            self.drain()
            self._listener.on_exit(self)
        finally:
            self.close()  # otherwise the descriptor of the dead process would end every later sleep of the loop at once

    @property
    def is_killed_by_others(self) -> bool:
        """Whether the worker ended by a SIGKILL that this engine did not send: most likely, memory ran out."""
        return self._status == -signal.SIGKILL and not self.fault

    @property
    def _status(self) -> int | None:
        """The exit status, or the negative number of the signal that killed the worker (a sandbox reports 128 + the number)."""
        code = self._process.returncode
        return 128 - code if self.is_wrapped and code is not None and code > 128 else code

    @property
    def exit_text(self) -> str:
        """How the process ended, as a text for users."""
        code = self._status
        if self.fault:
            return self.fault
        if code is None or code >= 0:
            return f"exited with status {code}"
        hint = ": likely out of memory" if -code == signal.SIGKILL else ""
        return f"killed by {processes.signal_name(-code)}{hint}"

    def close(self) -> None:
        """Close all descriptors."""
        self._close_channel()
        self.questions.close()
        if self._is_reading_output:
            self._is_reading_output = False
            self._selector.unregister(self._output)
        if self.exit_descriptor >= 0:
            self._selector.unregister(self.exit_descriptor)
            os.close(self.exit_descriptor)
            os.close(self._output)
            self.exit_descriptor = -1

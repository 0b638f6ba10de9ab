"""A terminal for tests. It runs a command in a pseudo-terminal, types, resizes, keeps all output, and replies to cursor queries.

`ModelTerminal` computes the screen from the output.
"""

import codecs
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Sequence
from typing import Self

from tests.tui.model_terminal import ModelTerminal
from tests.waiting import TIMEOUT_S, until

_QUESTION = b"\x1b[6n"
_ANSWER = b"\x1b[1;4R"
"""Reply to a cursor query: line 1, column 4. The output layer takes this column as proof that a terminal repeats characters."""
_REST_S, _LONGEST_S = 0.01, 0.05
"""Two durations in seconds: `_REST_S` is the pause after output arrives, and `_LONGEST_S` is the maximum wait for output."""


class Terminal:
    """A command on a pseudo-terminal of `columns` × `lines`; leave the `with` block to end it."""

    def __init__(self, command: Sequence[str], columns: int = 80, lines: int = 24, environ: dict[str, str] | None = None) -> None:
        self.columns, self.lines = columns, lines
        self.seen = bytearray()
        self._asked = 0
        self._news = threading.Event()
        self._forget_model()
        ours, theirs = pty.openpty()
        self._fd = ours
        self._resize(columns, lines)
        environment = {
            **os.environ,
            "TERM": "xterm-256color",
            "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
            **(environ or {}),
        }
        for name in [name for name, value in environment.items() if value == ""]:
            del environment[name]
        self.process = subprocess.Popen(
            command,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environment,
            start_new_session=True,
            preexec_fn=_take_terminal,  # noqa: PLW1509  # nothing else gives a child its terminal
            close_fds=True,
        )
        os.close(theirs)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self) -> None:
        while True:
            try:
                ready, _, _ = select.select([self._fd], [], [], 0.2)
                if ready:
                    data = os.read(self._fd, 65536)
                    if not data:
                        return
                    self._receive(data)
                    self._answer()
            except (OSError, ValueError):
                return

    def _receive(self, data: bytes) -> None:
        """Add bytes that arrived together to `seen`."""
        self.seen += data
        self._news.set()

    def _answer(self) -> None:
        """Reply to the queries that arrived since the last call."""
        while (at := self.seen.find(_QUESTION, self._asked)) >= 0:
            self._asked = at + len(_QUESTION)
            self.send(_ANSWER)
        self._asked = max(self._asked, len(self.seen) - len(_QUESTION) + 1)

    def send(self, data: bytes | str) -> None:
        """Type."""
        data = data.encode() if isinstance(data, str) else data
        while data:
            data = data[os.write(self._fd, data) :]

    def resize(self, columns: int, lines: int) -> None:
        """Resize the terminal. The kernel sends SIGWINCH to the running command once."""
        self.columns, self.lines = columns, lines
        self._forget_model()
        self._resize(columns, lines)

    def _resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def wait(self, is_so: Callable[["Terminal"], object], what: str = "it", timeout_s: float = TIMEOUT_S) -> None:
        """Wait for a condition; fail with the screen after the timeout."""

        def seen() -> str:
            return f"{what}; the screen:\n{self.screen()}\nlast bytes: {bytes(self.seen[-400:])!r}"

        until(lambda: is_so(self), seen, timeout_s, self.pause)

    def pause(self, left_s: float, longest_s: float = _LONGEST_S) -> None:
        """Wait for output, up to `longest_s`."""
        if self._news.wait(min(left_s, longest_s)):
            time.sleep(min(left_s, _REST_S))  # Output may arrive in several reads.
            self._news.clear()

    def wait_for(self, text: str | bytes, timeout_s: float = TIMEOUT_S) -> None:
        """Wait until a text was written (bytes) or is on the screen (str)."""
        if isinstance(text, bytes):
            self.wait(lambda term: text in term.seen, repr(text), timeout_s)
        else:
            self.wait(lambda term: text in term.screen(), repr(text), timeout_s)

    def settle(self, quiet_s: float = 0.15, timeout_s: float = TIMEOUT_S) -> None:
        """Wait until there was no output for `quiet_s` seconds; fail after the timeout."""
        size, since, deadline = -1, time.monotonic(), time.monotonic() + timeout_s
        while time.monotonic() - since < quiet_s:
            assert time.monotonic() < deadline, f"output still arrived at the timeout: {bytes(self.seen[-400:])!r}"
            if len(self.seen) != size:
                size, since = len(self.seen), time.monotonic()
            time.sleep(0.01)

    def wait_until_ended(self, timeout_s: float = TIMEOUT_S) -> int:
        """Wait for the end of the command and return its exit code."""
        return self.process.wait(timeout_s)

    def screen(self) -> str:
        """Return the text of the screen."""
        new = bytes(self.seen[self._fed :])
        self._fed += len(new)
        if new:
            self._model.feed(self._decoder.decode(new))
            self._shown = "\n".join(self._model.display)
        return self._shown

    def _forget_model(self) -> None:
        """Build the screen again from all output."""
        self._model, self._decoder = ModelTerminal(self.columns, self.lines), codecs.getincrementaldecoder("utf-8")("replace")
        self._fed, self._shown = 0, ""

    def close(self) -> None:
        """End the command and close everything."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(2)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
        self._thread.join(1)
        os.close(self._fd)


def _take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)

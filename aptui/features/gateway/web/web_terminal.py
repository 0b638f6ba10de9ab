"""A pseudo-terminal between the screen and textual-serve. It exchanges packets of textual-serve's protocol.

`python -m aptui.features.gateway.web.web_terminal COMMAND…`. A packet is a letter (D = data, M = a message as JSON), the length in
four bytes, most significant first, and the payload. This process reads from the browser and from the screen at the same time. So
it handles "quit" even if the browser or the screen hangs.

Tests: `tests/features/gateway/web/test_web_screen.py`.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import termios
import time
from collections.abc import Iterator, Mapping, Sequence

_READY = b"__GANGLION__\n"
_IN, _OUT = 0, 1
"""File descriptors of standard input and output, which carry packets from and to textual-serve."""
_PIECE_BYTES = 1 << 16
"""Maximum number of bytes that are read at a time."""
_TYPED_LIMIT_BYTES = 1 << 20
"""Maximum number of typed bytes that wait until the screen reads them; further bytes are dropped."""
_PACKET_LIMIT_BYTES = 8 << 20
"""Maximum number of received bytes without a complete packet; if there are more, the bridge ends."""
_MOST_ROWS, _MOST_COLUMNS = 300, 500
"""Maximum size of the terminal."""
_END_LIMIT_S = 3.0
"""Time (seconds) in which the screen must end after its terminal was closed; afterwards the screen is killed."""
_FOREIGN = ("TEXTUAL", "COLUMNS", "ROWS", "LINES", "TERM", "TMUX", "STY", "NO_COLOR")
"""Prefixes of environment variables that describe other terminals; the screen does not get these variables."""


def main(command: Sequence[str]) -> int:
    """Run `command` on its own terminal until it ends or the browser quits; return its exit code."""
    size = _size(os.environ.get("ROWS"), os.environ.get("COLUMNS"))
    environ = environment(os.environ)
    master, screens = os.openpty()
    # The size of the terminal is set before the screen starts. Otherwise a screen that draws only once would draw for size 0.
    termios.tcsetwinsize(master, size)
    child = os.fork()
    if child == 0:
        _exec(command, environ, screens)
    os.close(screens)
    os.write(1, _READY)
    with contextlib.suppress(BrokenPipeError):
        Bridge(master).run()
    os.close(master)  # when the terminal is closed, the kernel sends SIGHUP to the screen
    return _wait_for_child(child)


def _exec(command: Sequence[str], environ: Mapping[str, str], terminal: int) -> None:
    try:
        os.login_tty(terminal)
        os.execvpe(command[0], list(command), environ)  # noqa: S606  # the command is ours and needs no shell
    except OSError as error:
        os.write(2, f"'{command[0]}': {error.strerror}\n".encode())
    finally:
        os._exit(127)


def environment(given: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the screen: it describes xterm.js and has no variable that reveals textual-serve."""
    inherited = {name: value for name, value in given.items() if not name.startswith(_FOREIGN)}
    return {**inherited, "TERM": "xterm-256color", "COLORTERM": "truecolor", "APTUI_GLYPHS": "utf8"}


def _size(rows: object, columns: object) -> tuple[int, int]:
    """Return a valid size of a terminal (rows, columns); 24 × 80 if the given size is not a pair of numbers."""
    try:
        return min(max(int(str(rows)), 1), _MOST_ROWS), min(max(int(str(columns)), 1), _MOST_COLUMNS)
    except ValueError:
        return 24, 80


def _wait_for_child(child: int) -> int:
    deadline = time.monotonic() + _END_LIMIT_S
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            deadline += _END_LIMIT_S
        time.sleep(0.01)


class Bridge:
    """Transfers bytes between a terminal and the standard streams of this process."""

    def __init__(self, terminal: int) -> None:
        self._terminal = terminal
        self._typed, self._drawn, self._received = bytearray(), bytearray(), bytearray()
        self._is_over = False
        for each in (terminal, _OUT):
            os.set_blocking(each, False)

    def run(self) -> None:
        """Transfer bytes until the screen ends or the browser quits."""
        while not self._is_over or self._drawn:
            self._turn()

    def _turn(self) -> None:
        readers = [_IN] + ([self._terminal] if not self._drawn else [])
        writers = ([self._terminal] if self._typed else []) + ([_OUT] if self._drawn else [])
        if self._is_over:
            readers, writers = [_IN], [_OUT]  # the screen has ended: send the rest of its output, unless the browser quits
        readable, writable, _ = select.select(readers, writers, [])
        if _OUT in writable:
            del self._drawn[: os.write(_OUT, self._drawn)]
        if self._terminal in writable:
            with contextlib.suppress(OSError):
                del self._typed[: os.write(self._terminal, self._typed)]
        if self._terminal in readable:
            self._draw()
        if _IN in readable:
            self._listen()

    def _draw(self) -> None:
        try:
            data = os.read(self._terminal, _PIECE_BYTES)
        except BlockingIOError:
            return
        except OSError:  # a read fails after the screen has ended
            data = b""
        self._drawn += packet(b"D", data) if data else packet(b"M", b'{"type": "exit"}')
        self._is_over = not data

    def _listen(self) -> None:
        data = os.read(_IN, _PIECE_BYTES)
        self._received += data
        if not data or len(self._received) > _PACKET_LIMIT_BYTES:
            self._quit()
        for kind, payload in packets(self._received):
            if kind == b"D":
                self._typed += payload[: max(0, _TYPED_LIMIT_BYTES - len(self._typed))]
            elif kind == b"M":
                self._apply_message(payload)

    def _apply_message(self, payload: bytes) -> None:
        with contextlib.suppress(ValueError):
            match json.loads(payload):
                case {"type": "quit"}:
                    self._quit()
                case {"type": "resize", "width": width, "height": height}:
                    termios.tcsetwinsize(self._terminal, _size(height, width))

    def _quit(self) -> None:
        self._is_over = True
        self._drawn.clear()


def packet(kind: bytes, payload: bytes) -> bytes:
    """Return a packet."""
    return kind + len(payload).to_bytes(4, "big") + payload


def packets(received: bytearray) -> Iterator[tuple[bytes, bytes]]:
    """Yield (kind, payload) of the complete packets, and remove them from the buffer."""
    while len(received) >= 5:
        end = 5 + int.from_bytes(received[1:5], "big")
        if len(received) < end:
            return
        kind, payload = bytes(received[:1]), bytes(received[5:end])
        del received[:end]
        yield kind, payload


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

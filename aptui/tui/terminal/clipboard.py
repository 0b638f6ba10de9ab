"""Copying that arrives: picks the route to the clipboard of the terminal the person sits at and says what it did.

Asks nobody for theirs.

Inside tmux only `load-buffer -w` reached the outer terminal in every configuration that was tried; GNU screen wants OSC 52
in pieces inside DCS; everywhere else it is OSC 52. A sequence that asks for the clipboard's content is never written.

Tests: `tests/tui/terminal/test_clipboard.py`.
"""

from __future__ import annotations

import base64
import os
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec import Struct

from aptui.shared.sanitize import sanitize_lines
from aptui.tui.background import run_in_background
from aptui.tui.terminal.safety import prepare_terminal
from aptui.tui.words import size_text

SAFE_BYTES = 74_994
"""Encoded bytes that terminals with a limit are known to take (the limit of k9s and others); beyond it a file is written too."""
MOST_COPIES = 20
_TIMEOUT_S = 2.0
_SCREEN_CHUNK = 76
"""GNU screen cuts DCS strings of more than 255 bytes or so; base64's own line length is well below."""


class Copied(Struct, frozen=True):
    """What became of a copy.

    Args:
        size_bytes: of the text in UTF-8.
        routes: of "tmux", "screen", "terminal"; where it was handed to.
        file: the private file that holds it too, when it is too large for some terminals or no route took it; else None.
    """

    size_bytes: int
    routes: tuple[str, ...]
    file: Path | None = None

    def toast(self) -> str:
        """Return one line for the person: size, route, and the file if there is one."""
        size = size_text(self.size_bytes)
        if not self.routes:
            return (
                f"{size} → '{self.file}'; no way to the clipboard here"
                if self.file
                else f"{size} not copied: no way to the clipboard here"
            )
        text = f"{size} → {' and '.join(self.routes)}"
        if self.file:
            text += f"; large, so also in '{self.file}'"
        elif "tmux" not in self.routes:
            text += ", if it allows"
        return text


class Clipboard:
    """The way to the person's clipboard, and a register of the last copies.

    Args:
        write: what writes to the terminal, the driver's `write`; may be called from any thread.
        environ: the environment, for the route.
        folder: where large copies are kept; `$XDG_STATE_HOME/aptui/copies` when None.
    """

    def __init__(
        self, write: Callable[[str], object], environ: Mapping[str, str] | None = None, folder: Path | None = None
    ) -> None:
        self._write = write
        self._environ = dict(os.environ if environ is None else environ)
        self._folder = folder or copies_folder(self._environ)
        self.register: deque[str] = deque(maxlen=MOST_COPIES)
        self._lock = threading.Lock()

    def copy(self, text: str, *, raw: bool = False) -> Copied:
        """Copy and wait for the outcome, two seconds at most; call it in a thread, or use `copy_soon`.

        Args:
            text: is freed of control sequences first.
            raw: … but not when the person asked for it as it is.
        """
        if not raw:
            text = sanitize_lines(text)
        data = text.encode("utf-8", "surrogateescape")
        with self._lock:
            if text in self.register:
                self.register.remove(text)
            self.register.appendleft(text)
            routes = self._send(data)
            is_large = len(data) > SAFE_BYTES * 3 // 4
            return Copied(len(data), routes, self._keep(data) if is_large or not routes else None)

    def copy_soon(self, text: str, done: Callable[[Copied], object], *, raw: bool = False) -> None:
        """Copy in a thread; `done` is called there: let it post a message or use `app.call_from_thread`."""
        run_in_background("aptui-copy", lambda: done(self.copy(text, raw=raw)))

    def _send(self, data: bytes) -> tuple[str, ...]:
        multiplexer = prepare_terminal(self._environ).multiplexer
        if multiplexer == "tmux" and self._load_buffer(data):
            return ("tmux", "terminal")
        encoded = base64.b64encode(data).decode("ascii")
        sequence = _for_screen(encoded) if multiplexer == "screen" else f"\x1b]52;c;{encoded}\x07"
        try:
            self._write(sequence)
        except (AssertionError, OSError, RuntimeError):
            return ()  # the driver is not (or no more) in charge of a terminal
        return ("screen", "terminal") if multiplexer == "screen" else ("terminal",)

    def _load_buffer(self, data: bytes) -> bool:
        """Hand it to the tmux we run in; before 3.2 it does not know `-w` and says so."""
        try:
            command = ["tmux", "load-buffer", "-w", "-"]
            done = subprocess.run(command, input=data, capture_output=True, timeout=_TIMEOUT_S, check=False, env=self._environ)
        except (OSError, subprocess.TimeoutExpired):
            return False
        return done.returncode == 0

    def _keep(self, data: bytes) -> Path | None:
        """Write the copy to a file that only its owner reads, and forget the oldest ones."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._folder.chmod(0o700)
            file = self._folder / f"copy-{time.strftime('%Y%m%d-%H%M%S')}-{time.monotonic_ns() % 1_000_000:06}.txt"
            with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb") as stream:
                stream.write(data)
            for old in sorted(self._folder.glob("copy-*.txt"))[:-MOST_COPIES]:
                old.unlink(missing_ok=True)
        except OSError:
            return None
        return file


def copies_folder(environ: Mapping[str, str]) -> Path:
    """Return where large copies are kept."""
    home = environ.get("XDG_STATE_HOME") or os.path.join(environ.get("HOME") or os.path.expanduser("~"), ".local", "state")
    return Path(home, "aptui", "copies")


def _for_screen(encoded: str) -> str:
    """Return OSC 52 in pieces that GNU screen passes on."""
    pieces = [encoded[at : at + _SCREEN_CHUNK] for at in range(0, len(encoded), _SCREEN_CHUNK)] or [""]
    return "\x1bP\x1b]52;c;" + "\x1b\\\x1bP".join(pieces) + "\x07\x1b\\"

"""Copies text to the clipboard of the user's terminal by a route that works for this terminal, and reports the route.

Inside tmux, only `load-buffer -w` reached the outer terminal in all tested configurations. GNU screen needs the sequence OSC 52,
divided into pieces inside DCS. All other terminals get OSC 52. The content of the clipboard is never read.
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

from aptui.config.dirs import xdg
from aptui.shared.printing import sanitize_lines
from aptui.tui.terminal.safety import prepare_terminal
from aptui.tui.words import size_text

SAFE_BYTES = 74_994
"""Maximum size of a copy that all known terminals accept (encoded bytes); k9s and others use this limit too.

Larger copies are also written to a file.
"""
MOST_COPIES = 20
_TIMEOUT_S = 2.0
_SCREEN_CHUNK = 76
"""Length of each piece of a copy (bytes), because GNU screen cuts DCS strings of more than about 255 bytes.

It is the usual line length of base64.
"""


class Copied(Struct, frozen=True):
    """The result of a copy.

    Args:
        routes: where the text was sent: "tmux", "screen", "terminal".
        file: private file with the text if the text is too large for some terminals or no route accepted it, else None.
    """

    size_bytes: int
    routes: tuple[str, ...]
    file: Path | None = None

    def toast(self) -> str:
        """Return one line for the user: the size, the route, and the file if there is one."""
        size = size_text(self.size_bytes)
        if not self.routes:
            return (
                f"{size} written to '{self.file}', because this terminal has no access to the clipboard"
                if self.file
                else f"{size} not copied: this terminal has no access to the clipboard"
            )
        text = f"{size} → {' and '.join(self.routes)}"
        if self.file:
            text += f"; the text is large, so it is also in '{self.file}'"
        elif "tmux" not in self.routes:
            text += ", if allowed"
        return text


class Clipboard:
    """Copies text to the user's clipboard; `register` has the latest copies.

    Args:
        write: writes to the terminal; thread-safe.
        environ: the environment, which determines the route.
        folder: folder of large copies; `$XDG_STATE_HOME/aptui/copies` if None.
    """

    def __init__(
        self, write: Callable[[str], object], environ: Mapping[str, str] | None = None, folder: Path | None = None
    ) -> None:
        self._write = write
        self._environ = dict(os.environ if environ is None else environ)
        self._folder = folder or Path(xdg("XDG_STATE_HOME", "~/.local/state"), "copies")
        self.register: deque[str] = deque(maxlen=MOST_COPIES)
        self._lock = threading.Lock()

    def copy(self, text: str, *, raw: bool = False) -> Copied:
        """Copy a text, without control sequences unless `raw`; wait for the result, up to two seconds. Call this in a thread."""
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

    def _send(self, data: bytes) -> tuple[str, ...]:
        multiplexer = prepare_terminal(self._environ).multiplexer
        if multiplexer == "tmux" and self._load_buffer(data):
            return ("tmux", "terminal")
        encoded = base64.b64encode(data).decode("ascii")
        sequence = _for_screen(encoded) if multiplexer == "screen" else f"\x1b]52;c;{encoded}\x07"
        try:
            self._write(sequence)
        except (AssertionError, OSError, RuntimeError):
            return ()  # the driver does not use the terminal at present
        return ("screen", "terminal") if multiplexer == "screen" else ("terminal",)

    def _load_buffer(self, data: bytes) -> bool:
        """Send the text to the enclosing tmux; versions before 3.2 refuse `-w`."""
        try:
            command = ["tmux", "load-buffer", "-w", "-"]
            done = subprocess.run(command, input=data, capture_output=True, timeout=_TIMEOUT_S, check=False, env=self._environ)
        except (OSError, subprocess.TimeoutExpired):
            return False
        return done.returncode == 0

    def _keep(self, data: bytes) -> Path | None:
        """Write the copy to a file that only its owner can read, and delete the oldest copies."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._folder.chmod(0o700)
            file = self._folder / f"copy-{time.strftime('%Y%m%d-%H%M%S')}-{time.monotonic_ns() % 1_000_000:06}.txt"
            with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb") as stream:
                stream.write(data)
            others = sorted(each for each in self._folder.glob("copy-*.txt") if each != file)
            for old in others[: 1 - MOST_COPIES]:  # the clock may have gone back, so `file` may not be the last name
                old.unlink(missing_ok=True)
        except OSError:
            return None
        return file


def _for_screen(encoded: str) -> str:
    """Return the OSC 52 sequence, divided into pieces that GNU screen forwards."""
    pieces = [encoded[at : at + _SCREEN_CHUNK] for at in range(0, len(encoded), _SCREEN_CHUNK)] or [""]
    return "\x1bP\x1b]52;c;" + "\x1b\\\x1bP".join(pieces) + "\x07\x1b\\"

"""Reads the `.aptui.yaml` files of a running engine, without keeping its loop from anything else.

Small files are compiled at once. The others come to a process of their own, one at a time, while the scan waits. Texts are kept by
the digest of the bytes: a file that was touched and did not change is not compiled again.

Tests: `tests/engine/test_folder_settings.py`.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable

from aptui.core.paths import from_text
from aptui.shared.errors import UserError

_LIMIT_S = 10.0
"""Time limit of one file; the largest that is allowed takes 0.3 s, the start of the process included."""
_MOST_TEXTS = 256

_Key = tuple[bytes, str]
"""(SHA-256 of the bytes, relative path)."""


class FolderSettings:
    """The texts of settings files (`core.settings`).

    Args:
        wake: called by another thread when a file has been compiled.
    """

    def __init__(self, wake: Callable[[], object]) -> None:
        self._wake = wake
        self._texts: dict[_Key, str] = {}
        self._thread: threading.Thread | None = None

    @property
    def is_busy(self) -> bool:
        """Whether a file is being compiled in the other process."""
        return self._thread is not None and self._thread.is_alive()

    def read(self, path: str, rel: str) -> str | None:
        """Return the text of the file at `path` (text form), None while it is being compiled.

        Args:
            rel: its path as messages name it: relative to its scan folder.
        """
        from aptui.config import folder as config_folder  # YAML is paid for only by those who have such files

        try:
            data = config_folder.read_bytes(from_text(path))
        except OSError as error:
            return config_folder.unreadable(rel, error)
        key = (hashlib.sha256(data).digest(), rel)
        text = self._texts.get(key)
        if text is not None:
            return text
        if config_folder.is_cheap(data):
            return self._keep(key, config_folder.compile_folder(data, rel))
        if not self.is_busy:
            self._thread = threading.Thread(target=self._compile, args=(key, data), name="aptui-settings", daemon=True)
            self._thread.start()
        return None

    def _compile(self, key: _Key, data: bytes) -> None:
        self._keep(key, compile_apart(data, key[1]))
        self._thread = None
        self._wake()

    def _keep(self, key: _Key, text: str) -> str:
        while len(self._texts) >= _MOST_TEXTS:
            self._texts.pop(next(iter(self._texts)), None)
        self._texts[key] = text
        return text


def compile_apart(data: bytes, rel: str) -> str:
    """Return what `config.folder.compile_folder` does, from a process of its own."""
    from aptui.config import folder as config_folder
    from aptui.engine.pool.spawning import python_environment  # most projects have no such files

    try:
        done = subprocess.run(
            [sys.executable, "-P", "-X", "utf8", "-m", config_folder.__name__],
            input=from_text(rel) + b"\0" + data,
            capture_output=True,
            timeout=_LIMIT_S,
            check=False,
            env=python_environment(),
            start_new_session=True,
        )
    except subprocess.TimeoutExpired:
        return config_folder.wrong(rel, UserError(f"takes longer than {_LIMIT_S:.0f} s to read", where=rel))
    except OSError as error:
        return config_folder.unreadable(rel, error)
    if done.returncode or not done.stdout:
        why = os.fsdecode(done.stderr.strip().rpartition(b"\n")[2]) or f"status {done.returncode}"
        return config_folder.wrong(rel, UserError(f"cannot be read: its reader ended: {why}", where=rel))
    return done.stdout.decode()

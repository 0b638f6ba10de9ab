"""Values that the screen remembers for a project (tab, sort, columns …) and for the user (theme, mouse).

They are stored as JSON in the state folder. A damaged file is ignored. If a write fails, the next `save` writes the values.

Tests: `tests/tui/preferences/test_keymap.py`.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from pathlib import Path
from typing import Any, TypeVar

from aptui.shared.errors import KnownError
from aptui.shared.files.replacing import PRIVATE, replace_bytes

_HISTORY = 100
_LARGEST_BYTES = 4 << 20
T = TypeVar("T")


class UiMemory:
    """One file of remembered values. A value has a dotted name such as `jobs.sort`; `save` writes the file."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._values = _read(file)
        self._saved = dict(self._values)
        self._histories: set[str] = set()
        """Names of histories that this screen changed since the last `save`."""

    def get(self, name: str, default: T) -> T:
        """Return the value of `name`; return the default if the value is missing or has another type than the default."""
        value = self._values.get(name, default)
        return value if default is None or type(value) is type(default) else default

    def put(self, name: str, value: Any) -> None:
        """Store `value` (plain JSON data) under `name`; None removes it."""
        if self._values.get(name) == value:
            return
        if value is None:
            self._values.pop(name, None)
        else:
            self._values[name] = value

    def history(self, name: str) -> list[str]:
        """Return the texts of a history, the latest last."""
        texts: list[object] = []
        return [text for text in self.get(name, texts) if isinstance(text, str)]

    def remember(self, name: str, text: str) -> None:
        """Add `text` to a history as the latest, without duplicates."""
        if text:
            self._histories.add(name)
            self.put(name, [*(each for each in self.history(name) if each != text), text][-_HISTORY:])

    def save(self) -> None:
        """Write the values that this screen changed to the file; other values that another screen wrote there are kept."""
        own, saved = self._values, self._saved
        changed = {name for name in own.keys() | saved.keys() if own.get(name) != saved.get(name)}
        if not changed:
            return
        try:
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder = os.open(self._file.parent, os.O_RDONLY)
            try:
                fcntl.flock(folder, fcntl.LOCK_EX)
                data = json.dumps(self._merge(_read(self._file), changed), indent=1, sort_keys=True)
                replace_bytes(self._file, data.encode("ascii"), mode=PRIVATE, is_synced=False)
            finally:
                os.close(folder)
        except (OSError, KnownError):
            return
        self._saved = dict(own)

    def _merge(self, values: dict[str, Any], changed: set[str]) -> dict[str, Any]:
        """Return `values` with this screen's changes; in a history, texts that another screen added come before this screen's."""
        for name in changed:
            if name not in self._values:
                values.pop(name, None)
                continue
            own, other = self._values[name], values.get(name)
            if isinstance(own, list) and isinstance(other, list) and name in self._histories:
                own = [*(text for text in other if text not in own), *own][-_HISTORY:]
            values[name] = own
        return values


def _read(file: Path) -> dict[str, Any]:
    try:
        with file.open("rb") as stream:
            values = json.loads(stream.read(_LARGEST_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}


def project_memory(state_dir: Path, cache_dir: Path) -> UiMemory:
    """Return the remembered values of the project with this cache."""
    name = hashlib.sha256(os.fsencode(os.path.realpath(cache_dir))).hexdigest()[:16]
    return UiMemory(state_dir / "screen" / f"{name}.json")


def person_memory(state_dir: Path) -> UiMemory:
    """Return the remembered values of the user, for all projects."""
    return UiMemory(state_dir / "screen" / "person.json")

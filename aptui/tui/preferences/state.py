"""What the screen remembers of a project (tab, sort, columns …) and of a person (theme, mouse), as JSON in the state folder.

Nothing here is precious: a damaged file is as good as none, and one that cannot be written is tried again next time.

Tests: `tests/tui/preferences/test_keymap.py`.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any, TypeVar

_HISTORY = 100
_LARGEST_BYTES = 4 << 20
T = TypeVar("T")


class UiMemory:
    """One file of remembered values, by dotted names such as `jobs.sort`; written when the app ends, and at `save`."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._values = _read(file)
        self._is_changed = False

    def get(self, name: str, default: T) -> T:
        """Return what is remembered under `name`, or `default`; also where its type is not that of the default."""
        value = self._values.get(name, default)
        return value if default is None or type(value) is type(default) else default

    def put(self, name: str, value: Any) -> None:
        """Remember `value` (plain JSON data) under `name`; None forgets."""
        if self._values.get(name) == value:
            return
        self._is_changed = True
        if value is None:
            self._values.pop(name, None)
        else:
            self._values[name] = value

    def history(self, name: str) -> list[str]:
        """Return the texts remembered under `name`, the latest last."""
        texts: list[object] = []
        return [text for text in self.get(name, texts) if isinstance(text, str)]

    def remember(self, name: str, text: str) -> None:
        """Add `text` to a history, once, as the latest."""
        if text:
            self.put(name, [*(each for each in self.history(name) if each != text), text][-_HISTORY:])

    def save(self) -> None:
        """Write the file if anything changed: whole or not at all, readable by nobody else."""
        if not self._is_changed:
            return
        temporary = f"{self._file}.{os.getpid()}"
        try:
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with open(descriptor, "w", encoding="ascii") as stream:
                json.dump(self._values, stream, indent=1, sort_keys=True)
            os.replace(temporary, self._file)
        except OSError:
            return
        self._is_changed = False


def _read(file: Path) -> dict[str, Any]:
    try:
        with file.open("rb") as stream:
            values = json.loads(stream.read(_LARGEST_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}


def project_memory(state_dir: Path, cache_dir: Path) -> UiMemory:
    """Return what is remembered of the project whose cache this is."""
    name = hashlib.sha256(os.fsencode(os.path.realpath(cache_dir))).hexdigest()[:16]
    return UiMemory(state_dir / "screen" / f"{name}.json")


def person_memory(state_dir: Path) -> UiMemory:
    """Return what is remembered of the person, for all projects."""
    return UiMemory(state_dir / "screen" / "person.json")

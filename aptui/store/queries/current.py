"""The database that lies at a path just now: opened again when it is replaced, and cheap to ask whether it was written.

Tests: `tests/serve/http/test_files.py`.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from aptui.shared.errors import UserError
from aptui.store.db.schema import host_error
from aptui.store.queries.reader import Reader, open_reader

T = TypeVar("T")

Moment = tuple[int, int, int]
"""Changes whenever anything is written, or another file takes its place."""


class CurrentDatabase:
    """A reader that outlives the file it reads; for one thread at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._reader: Reader | None = None
        self._identity = (0, 0)

    def open(self) -> Reader:
        """Return a reader of the file that is there now; it is good until the next call.

        Raises:
            UserError: there is none, or it is being made. HostError: it cannot be read.
        """
        try:
            found = os.stat(self._path)
        except FileNotFoundError:
            raise UserError(
                "nothing was processed yet: there is no asset database", hint="'aptui batch' processes the project"
            ) from None
        identity = found.st_dev, found.st_ino
        if self._reader is None or identity != self._identity:
            reader = open_reader(self._path)
            self.close()
            self._reader, self._identity = reader, identity
        return self._reader

    def moment(self) -> Moment:
        """Return what differs from an earlier answer if anything was written since.

        Raises:
            UserError, HostError: as `open`.
        """
        version = self.ask(lambda reader: int(reader.ask("PRAGMA data_version").fetchone()[0]))
        return (*self._identity, version)

    def ask(self, question: Callable[[Reader], T]) -> T:
        """Return the answer to `question`.

        Raises:
            UserError, HostError: as `open`.
        """
        try:
            return question(self.open())
        except sqlite3.Error as error:
            raise host_error(self._path, error) from error

    def close(self) -> None:
        """Let go of the file."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None

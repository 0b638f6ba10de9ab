"""What the Assets screen asks the database and the disk, in one thread of its own: of each kind of errand only the newest counts."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

from aptui.shared.errors import KnownError
from aptui.store.db.schema import host_error
from aptui.store.queries.reader import Reader, open_reader

T = TypeVar("T")
LAST = "preview"
"""This kind waits until nothing else is asked for: colouring a text takes longest."""


class Errands:
    """The thread. `want` is called by the UI.

    Args:
        database: is opened anew for every errand: an engine may have put another in its place.
        deliver: called by the thread with a function and its arguments, for the UI to call.
        failed: called, through `deliver`, with the kind of an errand and what went wrong.
    """

    def __init__(
        self, database: Path, deliver: Callable[..., object], failed: Callable[[str, KnownError], object] = lambda *_: None
    ) -> None:
        self._database, self._deliver, self._failed = database, deliver, failed
        self._condition = threading.Condition()
        self._owed: dict[str, tuple[Callable[[Reader], Any], Callable[[Any], object]]] = {}
        self._at = ""
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def want(self, kind: str, ask: Callable[[Reader], T], then: Callable[[T], object]) -> None:
        """Have `ask` answered in the thread and `then` called with it in the UI, unless the same kind is wanted anew before."""
        with self._condition:
            self._owed.pop(kind, None)
            self._owed[kind] = (ask, then)
            if self._thread is None and not self._is_closed:
                self._thread = threading.Thread(target=self._run, name="aptui-asset-errands", daemon=True)
                self._thread.start()
            self._condition.notify_all()

    @property
    def is_busy(self) -> bool:
        """Whether anything is under way."""
        with self._condition:
            return bool(self._owed or self._at)

    def close(self) -> None:
        """End the thread."""
        with self._condition:
            self._is_closed = True
            self._condition.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._condition:
                self._at = ""
                self._condition.wait_for(lambda: self._owed or self._is_closed)
                if self._is_closed:
                    return
                self._at = min(self._owed, key=lambda kind: kind == LAST)
                ask, then = self._owed.pop(self._at)
            self._do(self._at, ask, then)

    def _do(self, kind: str, ask: Callable[[Reader], Any], then: Callable[[Any], object]) -> None:
        try:
            with closing(open_reader(self._database)) as reader:
                answer = ask(reader)
        except KnownError as error:
            self._deliver(self._failed, kind, error)
        except sqlite3.Error as error:
            self._deliver(self._failed, kind, host_error(self._database, error))
        else:
            with self._condition:
                is_superseded = kind in self._owed or self._is_closed
            if not is_superseded:
                self._deliver(then, answer)

"""What the checks of the configuration find, computed in a thread when the database changed; where nothing is checked, nothing is.

Tests: `tests/tui/data/test_check_marks.py`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path

from aptui.core.results.checks import Check
from aptui.shared.errors import KnownError
from aptui.store.queries.problems.checks import CheckMark, check_marks
from aptui.store.queries.reader import open_reader
from aptui.tui.background import LatestOnly

_REST_FACTOR, _REST_S = 4, 1.0
"""After looking the thread rests four times as long as that took, and a second: it takes a fifth of one processor at most."""


class CheckMarks:
    """The newest marks; `mark_stale` and `take` are called by the UI, `wake` by the thread when there is something to take."""

    def __init__(self, database: Path, checks: Sequence[Check], wake: Callable[[], None]) -> None:
        self._database, self._checks, self._wake = database, tuple(checks), wake
        self._lock = threading.Lock()
        self._found: Mapping[int, CheckMark] | None = None
        self._worker = LatestOnly[None]("aptui-checks", self._check)

    def mark_stale(self) -> None:
        """Have everything looked at again, soon."""
        if self._checks:
            self._worker.put(None)

    def take(self) -> Mapping[int, CheckMark] | None:
        """Return what was found, once; None = nothing new."""
        with self._lock:
            found, self._found = self._found, None
            return found

    def close(self) -> None:
        """End the thread."""
        self._worker.close()

    def _check(self, _kind: str, _nothing: None) -> None:
        start = time.monotonic()
        try:
            with closing(open_reader(self._database)) as reader:
                found = check_marks(reader, self._checks)
        except KnownError:
            return  # the feed says it
        with self._lock:
            self._found = found
        self._wake()
        self._worker.stop.wait(_REST_S + _REST_FACTOR * (time.monotonic() - start))

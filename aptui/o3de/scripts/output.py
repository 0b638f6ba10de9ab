"""What a script prints while it is asked something: lines of its job's log.

Tests: `tests/o3de/scripts/test_azlmbr_answers.py`.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator

from aptui import sdk


class _Lines(io.TextIOBase):
    """A stream whose lines go to `say`, as soon as they are whole."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._rest = ""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            self._say(line)
        return len(text)

    def finish(self) -> None:
        """Say what has no end of line."""
        if self._rest:
            self._say(self._rest)
            self._rest = ""


@contextlib.contextmanager
def capture_output(log: sdk.JobLog) -> Iterator[None]:
    """Have what a script prints in the job's log, in its place among the rest: `stderr` as errors, as O3DE does it."""
    out, errors = _Lines(log.info), _Lines(log.error)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
            yield
    finally:
        out.finish()
        errors.finish()

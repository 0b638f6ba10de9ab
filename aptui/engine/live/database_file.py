"""A check now and then whether the asset database is still the file that is written to: an unlinked file accepts writes as before.

The writer checks before each transaction (`store/db/writer`), but at rest nothing is written, and every reader would find no file.

Tests: `tests/engine/live/test_supervisor.py`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aptui.store.db.writer import Writer

_CHECK_EVERY_S = 5.0
_GONE = "the asset database is gone: put it back, or 'rescan' makes everything anew"
_REPLACED = "the asset database was replaced: 'rescan' goes on with the other one"


class DatabaseFileCheck:
    """What is wrong with the database's file (`trouble`, "" = nothing), as it was last seen."""

    def __init__(self) -> None:
        self.trouble = ""
        self._due_s = 0.0

    def next_deadline(self, writer: Writer | None) -> float:
        """Return when (monotonic) it is time to look again, infinite where nothing is open."""
        return self._due_s if writer is not None else math.inf

    def poll(self, writer: Writer | None, now_s: float) -> bool:
        """Look when it is time; return whether there is trouble that there was not before."""
        if writer is None:
            self.trouble, self._due_s = "", 0.0
        elif now_s >= self._due_s:
            self._due_s = now_s + _CHECK_EVERY_S
            before, has_name = self.trouble, writer.has_its_name
            self.trouble = "" if has_name else _GONE if has_name is None else _REPLACED
            return self.trouble not in ("", before)
        return False

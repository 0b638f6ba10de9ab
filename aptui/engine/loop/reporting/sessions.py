"""The session that is under way: when it began and why; what it did is written when the engine rests, with what is written then.

Nothing is recorded while jobs run. Old sessions become part of what was before, some thousand runs at each rest.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from aptui.core.sessions import SessionEnd, SessionKind
from aptui.engine.scan import commits

if TYPE_CHECKING:
    from aptui.core.messages import Rows
    from aptui.sharing.account import Account

LONGEST_HISTORY_MS = 180 * 24 * 3600 * 1000
MOST_RUNS = 2_000_000
"""About 80 MB of the database."""
MOST_SESSIONS = 5_000
_SHORT = 10


class SessionHistory(Protocol):
    """What is asked of the database."""

    def last_end(self) -> tuple[str, int]:
        """Return what was checked out when the last session ended ("" when that is not known), and when that was (ms)."""
        ...

    def is_session_pending(self) -> bool:
        """Return whether jobs ran after the last session that was recorded."""
        ...

    def find_outdated_session(self, before_ms: int, most_runs: int, most_sessions: int) -> int:
        """Return the oldest session if it is too old, or one of too many; else 0."""
        ...


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class SessionRecorder:
    """Knows the session of one engine, if any is under way.

    Args:
        folder: the project's.
        now_ms: wall clock.
        head: what is checked out in a folder.
    """

    def __init__(
        self, folder: str, now_ms: Callable[[], int] = _now_ms, head: Callable[[str], commits.CheckoutHead] = commits.head
    ) -> None:
        self.is_held = False
        """Whether an engine is closed and opened again in the middle of it."""
        self._folder = folder
        self._now_ms = now_ms
        self._head = head
        self._started_ms = 0
        self._rested_ms = 0
        self._has_checked = False
        self._kind = SessionKind.START
        self._saved_ms = 0
        self._fetched_bytes = 0

    def begin(self, kind: SessionKind) -> None:
        """Take note that work begins; one that is under way goes on."""
        if not self._started_ms:
            self._started_ms, self._kind = self._now_ms(), kind
        self._rested_ms = 0

    def begin_scan(self, signature: str | None, wanted: str) -> None:
        """Take note that everything is looked at: by an engine that starts, under a configuration that is another, or again.

        Args:
            signature: that of the configuration that was settled last; None or "" when nobody knows.
            wanted: that of this engine's.
        """
        is_reconfigured = bool(signature) and signature != wanted
        kind = SessionKind.EDIT if self._has_checked else SessionKind.CONFIGURATION if is_reconfigured else SessionKind.START
        self._has_checked = True
        self.begin(kind)

    def note_rest(self) -> None:
        """Take note that nothing is pending; the session ends here if it stays so."""
        self._rested_ms = self._now_ms()

    def forget(self) -> None:
        """Nothing was changed by what was looked at: that is no session."""
        self._started_ms = self._started_ms * self.is_held

    def find_killed(self, archive: SessionHistory) -> Rows:
        """Return the rows for what an engine did that was killed, {} when there is nothing."""
        if self._started_ms or not archive.is_session_pending():
            return {}
        return {"put_session": [(0, 0, SessionKind.START.value, "", archive.last_end()[0], SessionEnd.KILLED.value, 0, 0)]}

    def end(self, archive: SessionHistory, account: Account | None, *, is_stopping: bool) -> Rows:
        """End the session; return its rows, and those that let an old one go."""
        if self.is_held:
            return {}
        started_ms, self._started_ms = self._started_ms, 0
        now_ms = self._rested_ms or self._now_ms()
        rows: Rows = {}
        if started_ms or archive.is_session_pending():
            kind, detail, commit = self._why(*archive.last_end())
            how = SessionEnd.STOPPED if is_stopping else SessionEnd.RESTED
            shared = self._count_shared(account)
            rows["put_session"] = [(started_ms or now_ms, now_ms, kind.value, detail, commit, how.value, *shared)]
        if old := archive.find_outdated_session(now_ms - LONGEST_HISTORY_MS, MOST_RUNS, MOST_SESSIONS):
            rows["prune_session"] = [(old,)]
        return rows

    def _why(self, before: str, ended_ms: int) -> tuple[SessionKind, str, str]:
        head = self._head(self._folder)
        was = before if head.commit != before else head.left if head.moved_ms > ended_ms else before
        if before and head.commit and head.commit != was and not head.is_made_here:
            return SessionKind.CHECKOUT, f"{was[:_SHORT]} → {head.commit[:_SHORT]}", head.commit
        return self._kind, "", head.commit or before

    def _count_shared(self, account: Account | None) -> tuple[int, int]:
        """Return what results that were there already saved (ms), and how many bytes were fetched, since the last session."""
        if account is None:
            return 0, 0
        total = account.total()
        before, self._saved_ms, self._fetched_bytes = (self._saved_ms, self._fetched_bytes), total.saved_ms, total.fetched_bytes
        return total.saved_ms - before[0], total.fetched_bytes - before[1]

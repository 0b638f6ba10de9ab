"""What an engine asks of the sessions so far (`engine.loop.reporting.sessions`).

Tests: `tests/store/history/test_sessions.py`.
"""

from __future__ import annotations

import sqlite3


class SessionArchive:
    """Answers from the database behind a connection."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database

    def last_end(self) -> tuple[str, int]:
        """Return what was checked out when the last session ended ("" when that is not known), and when that was (ms)."""
        sql = "SELECT commit_id, ended_ms FROM aptui_sessions ORDER BY session_id DESC LIMIT 1"
        row = self._database.execute(sql).fetchone()
        return (str(row[0]), int(row[1])) if row else ("", 0)

    def is_session_pending(self) -> bool:
        """Return whether jobs ran after the last session that was recorded."""
        sql = """SELECT COALESCE((SELECT MAX(JobRunKey) FROM Jobs), 0) >
            COALESCE((SELECT MAX(run_key) FROM aptui_sessions), 0)"""
        return bool(self._database.execute(sql).fetchone()[0])

    def find_outdated_session(self, before_ms: int, most_runs: int, most_sessions: int) -> int:
        """Return the oldest session if it is too old, or one of too many; else 0."""
        sql = "SELECT SUM(jobs_run), COUNT(*), MIN(session_id) FROM aptui_sessions WHERE session_id > 0"
        runs, count, oldest = self._database.execute(sql).fetchone()
        if count < 2:
            return 0
        row = self._database.execute("SELECT ended_ms FROM aptui_sessions WHERE session_id = ?", (oldest,)).fetchone()
        is_outdated = row[0] < before_ms or runs > most_runs or count > most_sessions
        return int(oldest) if is_outdated else 0

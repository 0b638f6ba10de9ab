"""What the last run left behind, as the up-to-date check asks for it: few questions, so that few modules are needed to ask them.

Tests: `tests/engine/loop/files/test_after_runs.py`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from pathlib import Path

from aptui.core.model import PathKey
from aptui.core.records.archive import SETTINGS_STATE
from aptui.core.results import outside
from aptui.core.results.outside import OUTSIDE_STATE, OutsideFile
from aptui.store.db.archive.folders import FolderArchive
from aptui.store.db.archive.products import ProductArchive
from aptui.store.db.archive.sessions import SessionArchive
from aptui.store.db.schema import host_error
from aptui.store.db.uris import read_only_uri

_UNFINISHED_SQL = """
SELECT o.path_key FROM aptui_sources o WHERE o.source_id IN (
    SELECT j.SourcePK FROM Jobs j JOIN aptui_jobs a ON a.job_id = j.JobID WHERE j.Status <> 4 AND a.state <> 'cancelled'
    UNION SELECT source_id FROM aptui_analyses
        WHERE (state <> 'completed' OR fingerprint IS NULL) AND (state <> 'cancelled' OR fingerprint IS NULL))
ORDER BY o.path_key"""


class LastRun:
    """A read-only connection to the database, and what must hold for nothing to be pending.

    Args:
        path: a database that `schema.prepare` has seen.
        ranks: {scan folder id: its place among the scan folders}; the lowest wins a path.
        metadata_types: extensions of files that do not override each other (`core.overrides.merge_folder`).
    """

    def __init__(self, path: Path, ranks: Mapping[int, int], metadata_types: tuple[str, ...] = ()) -> None:
        self.path = path
        try:
            self._database = sqlite3.connect(read_only_uri(path), uri=True, isolation_level=None, check_same_thread=False)
            self._database.execute("PRAGMA query_only = ON")
        except sqlite3.Error as error:
            raise host_error(path, error) from error
        self.folders = FolderArchive(self._database, path, ranks, metadata_types)
        self.products = ProductArchive(self._database)
        self.sessions = SessionArchive(self._database)

    def close(self) -> None:
        """Close the connection."""
        self._database.close()

    def state(self, key: str) -> str | None:
        """Return the value of `key` in aptui_state."""
        row = self._database.execute("SELECT value FROM aptui_state WHERE key = ?", (key,)).fetchone()
        return row[0] if row else None

    def scan_folder_ids(self) -> dict[str, int]:
        """Return {name in lower case: ScanFolderID}."""
        return {
            name.lower(): number for name, number in self._database.execute("SELECT PortableKey, ScanFolderID FROM ScanFolders")
        }

    def estimate_sources(self) -> int:
        """Return how many sources there are at most: the highest id, for to count them takes as long as to look at them."""
        return int(self._database.execute("SELECT COALESCE(MAX(SourceID), 0) FROM Sources").fetchone()[0])

    def list_unfinished(self) -> list[PathKey]:
        """Return the keys of sources with unfinished work.

        That is a job or an analysis that is neither COMPLETED nor CANCELLED, or an analysis without a fingerprint.
        """
        return [PathKey(key) for (key,) in self._database.execute(_UNFINISHED_SQL)]

    def has_intents(self) -> bool:
        """Return whether a commit was left half done."""
        return self._database.execute("SELECT 1 FROM aptui_intents LIMIT 1").fetchone() is not None

    def drafts(self) -> list[PathKey]:
        """Return the keys of the sources that have jobs which rest on their drafts."""
        sql = """SELECT DISTINCT o.path_key FROM aptui_drafts d CROSS JOIN Jobs j ON j.JobID = d.job_id
            JOIN aptui_sources o ON o.source_id = j.SourcePK WHERE j.Status = 4 ORDER BY d.job_id"""
        return [PathKey(key) for (key,) in self._database.execute(sql)]

    def outside(self) -> dict[str, OutsideFile]:
        """Return {absolute path: what it was} of the files outside all scan folders that runs found (`core.results.outside`)."""
        sql = "SELECT substr(key, ?), value FROM aptui_state WHERE key >= ? AND key < ? AND value <> ''"
        start = len(OUTSIDE_STATE)
        return outside.load(self._database.execute(sql, (start + 1, OUTSIDE_STATE, f"{OUTSIDE_STATE[:-1]};")).fetchall())

    def settings(self) -> dict[str, str]:
        """Return {relative folder: text of its settings} (`core.settings`), those in aptui_state that are not ""."""
        sql = "SELECT substr(key, ?), value FROM aptui_state WHERE key >= ? AND key < ? AND value <> ''"
        start = len(SETTINGS_STATE)
        return dict(self._database.execute(sql, (start + 1, SETTINGS_STATE, f"{SETTINGS_STATE[:-1]};")).fetchall())

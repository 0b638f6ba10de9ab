"""Queries about the state after the last run, for the up-to-date check at a start. To start fast, this module has few imports.

Tests: `tests/engine/loop/test_after_runs.py`.
"""

from __future__ import annotations

import json
import sqlite3
import struct
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

from aptui.core import run_report
from aptui.core.model import DUPLICATE_MARK, FileFact, PathKey
from aptui.core.paths import merge_folder
from aptui.core.project import COMMON_PLATFORM
from aptui.core.run_report import OUTSIDE_STATE, SETTINGS_STATE, OutsideFile
from aptui.shared.errors import InternalError
from aptui.store.db.folder_blobs import find_files, unpack_files
from aptui.store.db.foreign import read_only_uri
from aptui.store.db.schema import DamagedError, host_error

# If a stored row has content that aptui never writes, the database is reported as damaged.

_Method = TypeVar("_Method", bound=Callable[..., Any])


class _Archive(Protocol):
    path: Path


def report_damage(method: _Method) -> _Method:
    """Wrap a method so that it raises `DamagedError` if a row of the database cannot be unpacked."""

    @wraps(method)
    def unpacking(self: _Archive, *args: Any) -> Any:
        try:
            return method(self, *args)
        except (ArithmeticError, AttributeError, InternalError, LookupError, TypeError, ValueError, struct.error) as error:
            what = f"a row of the asset database '{self.path}' is invalid: {type(error).__name__}: {error}"
            raise DamagedError(
                what, hint="start again; aptui then moves the database aside and rebuilds it from the sources"
            ) from error

    return cast("_Method", unpacking)


# The folder table stores the files of every scan folder. If several scan folders have a file at a path, the core reads only the
# winning file; the scanner reads all of them.

FOLDERS_SHELVED = 64
"""Maximum number of unpacked folders in memory."""
_ASKED_ALONE = 8
"""Number of queries for single files of a folder after which the whole folder is unpacked, because that is faster from then on."""


class FolderArchive:
    """Queries of stored files, from the rows of their folders.

    Args:
        path: path of the database, for messages.
        ranks: {scan folder id: its place among the scan folders}; the file in the scan folder with the lowest rank wins a path.
        metadata_types: extensions of files that do not override each other (`core.paths.merge_folder`).
    """

    def __init__(
        self, database: sqlite3.Connection, path: Path, ranks: Mapping[int, int], metadata_types: tuple[str, ...] = ()
    ) -> None:
        self._database = database
        self.path = path
        self._ranks = dict(ranks)
        self._metadata_types = metadata_types
        self._folders: OrderedDict[str, dict[PathKey, FileFact]] = OrderedDict()
        self._asked: dict[str, int] = {}
        """{folder that is not unpacked: number of queries for single files in it}."""

    def files(self, keys: Sequence[PathKey]) -> dict[PathKey, FileFact]:
        """Return {key: stored state} of these files; if several scan folders have a file, the state of the winning file."""
        if len(keys) == 1:
            (key,) = keys
            if (folder := key.rpartition("/")[0]) in self._folders:
                return {key: fact} if (fact := self._winners(folder).get(key)) is not None else {}
            if (alone := self._file_alone(key, folder)) is not None:
                return alone
        by_folder: dict[str, list[PathKey]] = {}
        for key in keys:
            by_folder.setdefault(key.rpartition("/")[0], []).append(key)
        found: dict[PathKey, FileFact] = {}
        for folder, members in by_folder.items():
            winners = self._winners(folder)
            found.update((key, winners[key]) for key in members if key in winners)
        return found

    def _file_alone(self, key: PathKey, folder: str) -> dict[PathKey, FileFact] | None:
        """Return the result of `files` for one file, without unpacking its folder.

        Return None if unpacking the folder is faster, or if other files may decide which file wins, for example a second file with
        this key.
        """
        is_plain = not self._metadata_types and DUPLICATE_MARK not in key and key == key.lower()
        if not is_plain or self._asked.get(folder, 0) >= _ASKED_ALONE:
            return None
        if len(self._asked) >= FOLDERS_SHELVED:
            self._asked.clear()
        self._asked[folder] = self._asked.get(folder, 0) + 1
        found = [fact for fact in self.variants(key) if fact.scan_folder in self._ranks]
        return None if len(found) > 1 else {fact.key: fact for fact in found}

    @report_damage
    def variants(self, key: PathKey) -> list[FileFact]:
        """Return every stored file whose path in lower case is `key`, winner or not."""
        sql = "SELECT scan_folder_id, files FROM aptui_folders WHERE folder = ?"
        rows = self._database.execute(sql, (key.rpartition("/")[0],)).fetchall()
        return [fact for part, data in rows for fact in find_files(data, part, key)]

    def files_below(self, prefix: PathKey) -> Iterable[FileFact]:
        """Yield the stored state of the files whose key starts with `prefix` (a folder with its slash, or "").

        If several scan folders have a file with the same key, only the file with priority is included.
        """
        sql = "SELECT folder, scan_folder_id, files FROM aptui_folders ORDER BY folder"
        bounds: tuple[str, ...] = ()
        if prefix:
            folder = prefix.removesuffix("/")
            # "0" follows "/" in ASCII, so the range has every key that begins with the prefix.
            sql = sql.replace("ORDER", "WHERE folder = ? OR (folder >= ? AND folder < ?) ORDER")
            bounds = (folder, f"{folder}/", f"{folder}0")
        parts: list[tuple[int, bytes]] = []
        current = ""
        for folder, scan_folder, data in self._database.execute(sql, bounds).fetchall():
            if folder != current:
                yield from self._merge(parts).values()
                current, parts = folder, []
            parts.append((scan_folder, data))
        yield from self._merge(parts).values()

    def folder_digests(self) -> dict[str, tuple[tuple[int, bytes], ...]]:
        """Return {relative folder in lower case: ((scan folder id, digest), ...)} of all stored folders, for the scanner."""
        found: dict[str, tuple[tuple[int, bytes], ...]] = {}
        sql = "SELECT folder, scan_folder_id, digest FROM aptui_folders INDEXED BY aptui_folders_digest"
        for folder, scan_folder, digest in self._database.execute(sql).fetchall():
            known = found.get(folder)
            found[folder] = ((scan_folder, digest),) if known is None else (*known, (scan_folder, digest))
        return found

    @report_damage
    def folder_parts(self, folder: str) -> dict[int, tuple[bytes, list[FileFact]]]:
        """Return the stored {scan folder id: (digest, its files)} of one relative folder in lower case."""
        sql = "SELECT scan_folder_id, digest, files FROM aptui_folders WHERE folder = ?"
        return {part: (digest, unpack_files(files, part)) for part, digest, files in self._database.execute(sql, (folder,))}

    def has_folder(self, folder: str) -> bool:
        """Return whether this relative folder (lower case), or a folder below it, has stored state."""
        sql = "SELECT 1 FROM aptui_folders WHERE folder = ? OR (folder >= ? AND folder < ?) LIMIT 1"
        return self._database.execute(sql, (folder, f"{folder}/", f"{folder}0")).fetchone() is not None

    def has_folders_below(self, folder: str) -> bool:
        """Return whether folders below this relative folder (lower case) have stored state; "" = the scan folders."""
        if not folder:
            return True
        sql = "SELECT 1 FROM aptui_folders WHERE folder >= ? AND folder < ? LIMIT 1"
        return self._database.execute(sql, (f"{folder}/", f"{folder}0")).fetchone() is not None

    def list_distrusted_folders(self) -> list[str]:
        """Return the relative folders with files whose times cannot be trusted, because the files had changed shortly before."""
        sql = "SELECT DISTINCT folder FROM aptui_folders INDEXED BY aptui_folders_digest WHERE digest = x'' ORDER BY folder"
        return [folder for (folder,) in self._database.execute(sql)]

    def forget(self, folder: str) -> None:
        """Drop the unpacked copy of a folder whose row was saved again."""
        self._asked.pop(folder, None)
        self._folders.pop(folder, None)

    @report_damage
    def _winners(self, folder: str) -> dict[PathKey, FileFact]:
        winners = self._folders.get(folder)
        if winners is not None:
            self._folders.move_to_end(folder)
            return winners
        sql = "SELECT scan_folder_id, files FROM aptui_folders WHERE folder = ?"
        winners = self._merge(self._database.execute(sql, (folder,)).fetchall())
        self._folders[folder] = winners
        if len(self._folders) > FOLDERS_SHELVED:
            self._folders.popitem(last=False)
        return winners

    @report_damage
    def _merge(self, parts: list[tuple[int, bytes]]) -> dict[PathKey, FileFact]:
        ranked = sorted((self._ranks[part], part, data) for part, data in parts if part in self._ranks)
        return merge_folder([unpack_files(data, part) for _, part, data in ranked], self._metadata_types)[0]


class ProductArchive:
    """Queries of the cache (`engine.cache.cache`): names and digests of products, and the folders of the cache."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database

    def product_digest(self, name: str) -> bytes | None:
        """Return the recorded SHA-256 of a product, None when it is not recorded."""
        sql = "SELECT o.digest FROM Products p JOIN aptui_products o ON o.product_id = p.ProductID WHERE p.ProductName = ?"
        row = self._database.execute(sql, (name,)).fetchone()
        return row[0] if row else None

    def products_in(self, folder: str) -> dict[str, bytes]:
        """Return {product name: SHA-256} of the products directly in a cache folder."""
        sql = """SELECT p.ProductName, o.digest FROM Products p JOIN aptui_products o ON o.product_id = p.ProductID
            WHERE p.ProductName > :folder || '/' AND p.ProductName < :folder || '0'
            AND instr(substr(p.ProductName, length(:folder) + 2), '/') = 0"""
        return dict(self._database.execute(sql, {"folder": folder}).fetchall())

    def products_below(self, folder: str) -> list[str]:
        """Return the names of the products anywhere below a cache folder."""
        sql = "SELECT ProductName FROM Products WHERE ProductName > :folder || '/' AND ProductName < :folder || '0'"
        return [name for (name,) in self._database.execute(sql, {"folder": folder})]

    def cache_folders(self) -> dict[str, int]:
        """Return {cache folder: its ctime (ns) after the last commit}; 0 = unknown, -1 = the folder was deleted."""
        return dict(self._database.execute("SELECT name, ctime_ns FROM aptui_cache_folders").fetchall())


class SessionArchive:
    """Queries of the engine about earlier sessions (`engine.loop.engine_reports`)."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database

    def last_end(self) -> tuple[str, int]:
        """Return the commit that was checked out when the last session ended ("" = unknown), and the time of its end (ms)."""
        sql = "SELECT commit_id, ended_ms FROM aptui_sessions ORDER BY session_id DESC LIMIT 1"
        row = self._database.execute(sql).fetchone()
        return (str(row[0]), int(row[1])) if row else ("", 0)

    def is_session_pending(self) -> bool:
        """Return whether jobs ran after the last session that was recorded."""
        sql = """SELECT COALESCE((SELECT MAX(JobRunKey) FROM Jobs), 0) >
            COALESCE((SELECT MAX(run_key) FROM aptui_sessions), 0)"""
        return bool(self._database.execute(sql).fetchone()[0])

    def find_outdated_session(self, before_ms: int, most_runs: int, most_sessions: int) -> int:
        """Return the number of the oldest session if it should be pruned (too old, too many runs, or too many sessions), else 0."""
        sql = "SELECT SUM(jobs_run), COUNT(*), MIN(session_id) FROM aptui_sessions WHERE session_id > 0"
        runs, count, oldest = self._database.execute(sql).fetchone()
        if count < 2:
            return 0
        row = self._database.execute("SELECT ended_ms FROM aptui_sessions WHERE session_id = ?", (oldest,)).fetchone()
        is_outdated = row[0] < before_ms or runs > most_runs or count > most_sessions
        return int(oldest) if is_outdated else 0


_UNFINISHED_SQL = """
SELECT o.path_key FROM aptui_sources o WHERE o.source_id IN (
    SELECT j.SourcePK FROM Jobs j JOIN aptui_jobs a ON a.job_id = j.JobID WHERE j.Status <> 4 AND a.state <> 'cancelled'
        AND (:platforms IS NULL OR j.Platform IN (SELECT value FROM json_each(:platforms)))
    UNION SELECT source_id FROM aptui_analyses
        WHERE (state <> 'completed' OR fingerprint IS NULL) AND (state <> 'cancelled' OR fingerprint IS NULL))
ORDER BY o.path_key"""


def _platform_values(platforms: Collection[str] | None) -> dict[str, str | None]:
    """Return the query parameter `platforms`: these platforms and `COMMON_PLATFORM`.

    None becomes null, with which the queries return the rows of all platforms.
    """
    return {"platforms": None if platforms is None else json.dumps([COMMON_PLATFORM, *platforms])}


class LastRun:
    """A read-only connection to the database, with the queries of the up-to-date check.

    Args:
        path: a database that `schema.prepare` has checked.
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
        """Return an upper limit of the number of sources: the highest id, because counting takes as long as reading them."""
        return int(self._database.execute("SELECT COALESCE(MAX(SourceID), 0) FROM Sources").fetchone()[0])

    def list_unfinished(self, platforms: Collection[str] | None = None) -> list[PathKey]:
        """Return the keys of sources with unfinished work; if `platforms` is given, jobs of other platforms do not count.

        Unfinished work is a job or analysis that is neither COMPLETED nor CANCELLED, or an analysis without a fingerprint.
        """
        return [PathKey(key) for (key,) in self._database.execute(_UNFINISHED_SQL, _platform_values(platforms))]

    def has_intents(self) -> bool:
        """Return whether a commit was interrupted."""
        return self._database.execute("SELECT 1 FROM aptui_intents LIMIT 1").fetchone() is not None

    def drafts(self, platforms: Collection[str] | None = None) -> list[PathKey]:
        """Return the keys of sources with jobs that have only drafts. With `platforms`, jobs of other platforms do not count."""
        sql = """SELECT DISTINCT o.path_key FROM aptui_drafts d CROSS JOIN Jobs j ON j.JobID = d.job_id
            JOIN aptui_sources o ON o.source_id = j.SourcePK WHERE j.Status = 4
            AND (:platforms IS NULL OR j.Platform IN (SELECT value FROM json_each(:platforms))) ORDER BY d.job_id"""
        return [PathKey(key) for (key,) in self._database.execute(sql, _platform_values(platforms))]

    def outside(self) -> dict[str, OutsideFile]:
        """Return {absolute path: its recorded state} of the files outside all scan folders that runs read (`core.run_report`)."""
        return run_report.load(self._values_below(OUTSIDE_STATE))

    def settings(self) -> dict[str, str]:
        """Return {relative folder: text of its settings} (`core.settings`) from aptui_state, without empty texts."""
        return dict(self._values_below(SETTINGS_STATE))

    def _values_below(self, prefix: str) -> list[tuple[str, str]]:
        """Return (key without `prefix`, value) of the values in aptui_state whose keys begin with `prefix`.

        `prefix` ends with a colon. Empty values are left out.
        """
        sql = "SELECT substr(key, ?), value FROM aptui_state WHERE key >= ? AND key < ? AND value <> ''"
        return self._database.execute(sql, (len(prefix) + 1, prefix, f"{prefix[:-1]};")).fetchall()

"""The core's questions to the database: `core.records.archive` on a read-only connection; people's are `queries.reader`'s."""

from __future__ import annotations

import json
import sqlite3
import struct
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar, cast

from aptui.core import identity
from aptui.core.model import SHADOW, EdgeKind, FileFact, PathKey, Source, SourceUuid
from aptui.core.orders import Outcome
from aptui.core.overrides import merge_folder
from aptui.core.project import COMMON_PLATFORM
from aptui.core.records import rows
from aptui.core.results import outside
from aptui.core.results.outside import OUTSIDE_STATE, OutsideFile
from aptui.core.settings import SETTINGS_STATE
from aptui.shared.errors import InternalError, UserError
from aptui.shared.globs import PATTERN_LIMIT
from aptui.store.db.packing import find_files, unpack_files
from aptui.store.db.schema import RUN_KEY_STATE, DamagedError, host_error
from aptui.store.db.session_archive import SessionArchive
from aptui.store.db.stored_sources import read_sources

CHUNK = 2_000
"""Keys in one question."""
FOLDERS_SHELVED = 64
"""Folders that are kept unpacked."""
_ASKED_ALONE = 8
"""A folder is unpacked when it is asked for single files more often."""

T = TypeVar("T")
_Method = TypeVar("_Method", bound=Callable[..., Any])


_UNFINISHED_SQL = """
SELECT o.path_key FROM aptui_sources o WHERE o.source_id IN (
    SELECT j.SourcePK FROM Jobs j JOIN aptui_jobs a ON a.job_id = j.JobID WHERE j.Status <> 4 AND a.state <> 'cancelled'
    UNION SELECT source_id FROM aptui_analyses
        WHERE (state <> 'completed' OR fingerprint IS NULL) AND (state <> 'cancelled' OR fingerprint IS NULL))
ORDER BY o.path_key"""
_PENDING_SQL = """
SELECT o.path_key FROM aptui_sources o WHERE o.source_id IN (
    SELECT j.SourcePK FROM Jobs j JOIN aptui_jobs a ON a.job_id = j.JobID
        WHERE j.Status <> 4 AND a.state NOT IN ('cancelled', 'failed')
    UNION SELECT source_id FROM aptui_analyses
        WHERE state NOT IN ('completed', 'cancelled', 'failed') OR (fingerprint IS NULL AND state <> 'failed'))
ORDER BY o.path_key"""


def _checked(method: _Method) -> _Method:
    """Take a row that cannot be unpacked for what it is: damage."""

    @wraps(method)
    def unpacking(self: DatabaseArchive, *args: Any) -> Any:
        try:
            return method(self, *args)
        except (ArithmeticError, AttributeError, InternalError, LookupError, TypeError, ValueError, struct.error) as error:
            what = f"a row of the asset database '{self._path}' cannot be: {type(error).__name__}: {error}"
            raise DamagedError(what, hint="start again: it is set aside then, and rebuilt from the sources") from error

    return cast("_Method", unpacking)


class DatabaseArchive:
    """Implementer of `core.records.archive.Archive`.

    Args:
        path: a database that `schema.prepare` has seen.
        ranks: {scan folder id: its place among the scan folders}; the lowest wins a path.
        metadata_types: extensions of files that do not override each other (`core.overrides.merge_folder`).
    """

    def __init__(self, path: Path, ranks: Mapping[int, int], metadata_types: tuple[str, ...] = ()) -> None:
        self._path = path
        self._metadata_types = metadata_types
        self._ranks = dict(ranks)
        self._folders: OrderedDict[str, dict[PathKey, FileFact]] = OrderedDict()
        self._asked: dict[str, int] = {}
        """{folder: how often it was asked for one file, while it is not unpacked}."""
        try:
            self._database = sqlite3.connect(
                f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None, check_same_thread=False
            )
            self._database.execute("PRAGMA query_only = ON")
        except sqlite3.Error as error:
            raise host_error(path, error) from error
        self.sessions = SessionArchive(self._database)

    def close(self) -> None:
        """Close the connection."""
        self._database.close()

    # ------------------------------------------------------------------------------------------------------------- sources

    @_checked
    def sources(self, keys: Sequence[PathKey]) -> dict[PathKey, Source]:
        """Return the stored sources among `keys`, each with all its jobs (analyses too), products and edges."""
        found: dict[PathKey, Source] = {}
        with self._snapshot():
            for part in _chunks(keys):
                stored = read_sources(self._database, part)
                found.update({source.key: source for source, _digest in stored})
                planned = {source.key: digest for source, digest in stored}
                for key, fact in self.files(list(planned)).items():
                    found[key].fact = rows.as_planned(fact, planned[key])
        return found

    def keys_of(self, uuid: SourceUuid) -> list[PathKey]:
        """Return the keys of the stored sources that answer to this UUID: first the one that has it."""
        sql = """SELECT o.path_key FROM (
                SELECT SourceID, 0 AS is_legacy, 0 AS created_ms FROM Sources WHERE SourceGuid = :uuid
                UNION ALL SELECT source_id, 1, created_ms FROM aptui_legacy WHERE uuid = :uuid) f
            JOIN aptui_sources o ON o.source_id = f.SourceID ORDER BY f.is_legacy, f.created_ms, o.path_key"""
        return [PathKey(key) for (key,) in self._database.execute(sql, {"uuid": uuid})]

    def drafts(self) -> list[PathKey]:
        """Return the keys of the sources that have jobs which rest on their drafts."""
        sql = """SELECT DISTINCT o.path_key FROM aptui_drafts d CROSS JOIN Jobs j ON j.JobID = d.job_id
            JOIN aptui_sources o ON o.source_id = j.SourcePK WHERE j.Status = 4 ORDER BY d.job_id"""
        return [PathKey(key) for (key,) in self._database.execute(sql)]

    def key_of_jobs(self, job_ids: Sequence[int]) -> dict[int, PathKey]:
        """Return {job id: key of its source}."""
        sql = """SELECT j.JobID, o.path_key FROM json_each(?) k JOIN Jobs j ON j.JobID = k.value
            JOIN aptui_sources o ON o.source_id = j.SourcePK"""
        return dict(self._ask_all(sql, job_ids))

    def keys_like(self, pattern: str) -> list[PathKey]:
        """Return the keys of the sources that a pattern (lower case; `*` is any text, also across `/`, `?` one character) matches.

        Raises:
            UserError: it is longer than `core.globs.PATTERN_LIMIT`.
        """
        if len(pattern) > PATTERN_LIMIT:
            raise UserError(f"a pattern of more than {PATTERN_LIMIT} characters", hint="name the sources by a shorter one")
        glob = pattern.replace("[", "[[]")  # SQLite's own GLOB never goes back to a star before the last: its time is linear
        return [
            PathKey(key) for (key,) in self._database.execute("SELECT path_key FROM aptui_sources WHERE path_key GLOB ?", (glob,))
        ]

    def failed_count(self) -> int:
        """Return how many jobs and analyses are failed."""
        sql = """SELECT (SELECT COUNT(*) FROM aptui_jobs WHERE state = 'failed')
            + (SELECT COUNT(*) FROM aptui_analyses WHERE state = 'failed')"""
        return int(self._database.execute(sql).fetchone()[0])

    def unfinished(self) -> list[PathKey]:
        """Return the keys of sources with unfinished work.

        That is a job or an analysis that is neither COMPLETED nor CANCELLED, or an analysis without a fingerprint.
        """
        return [PathKey(key) for (key,) in self._database.execute(_UNFINISHED_SQL)]

    def pending(self) -> list[PathKey]:
        """Return the keys of sources with unfinished work that did not fail."""
        return [PathKey(key) for (key,) in self._database.execute(_PENDING_SQL)]

    # --------------------------------------------------------------------------------------------------------------- files

    def files(self, keys: Sequence[PathKey]) -> dict[PathKey, FileFact]:
        """Return what the folder table remembers of these files (winners only)."""
        if len(keys) == 1 and (alone := self._file_alone(keys[0])) is not None:
            return alone
        by_folder: dict[str, list[PathKey]] = {}
        for key in keys:
            by_folder.setdefault(key.rpartition("/")[0], []).append(key)
        found: dict[PathKey, FileFact] = {}
        for folder, members in by_folder.items():
            winners = self._winners(folder)
            found.update((key, winners[key]) for key in members if key in winners)
        return found

    def _file_alone(self, key: PathKey) -> dict[PathKey, FileFact] | None:
        """Answer `files` without unpacking the folder; None where that would not pay, or is not enough to tell the winner."""
        folder = key.rpartition("/")[0]
        is_plain = not self._metadata_types and SHADOW not in key and key == key.lower()
        if not is_plain or folder in self._folders or self._asked.get(folder, 0) >= _ASKED_ALONE:
            return None
        if len(self._asked) >= FOLDERS_SHELVED:
            self._asked.clear()
        self._asked[folder] = self._asked.get(folder, 0) + 1
        found = [fact for fact in self.variants(key) if fact.scan_folder in self._ranks]
        return None if len(found) > 1 else {fact.key: fact for fact in found}

    @_checked
    def variants(self, key: PathKey) -> list[FileFact]:
        """Return every remembered file whose path in lower case is `key`, winner or not."""
        sql = "SELECT scan_folder_id, files FROM aptui_folders WHERE folder = ?"
        rows = self._database.execute(sql, (key.rpartition("/")[0],)).fetchall()
        return [fact for part, data in rows for fact in find_files(data, part, key)]

    def files_below(self, prefix: PathKey) -> Iterable[FileFact]:
        """Yield remembered winners whose key starts with `prefix` (a folder with its slash, or "")."""
        sql = "SELECT folder, scan_folder_id, files FROM aptui_folders ORDER BY folder"
        bounds: tuple[str, ...] = ()
        if prefix:
            folder = prefix.removesuffix("/")
            # "0" follows "/" in ASCII: the range is everything that begins with the prefix.
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
        """Return {relative folder in lower case: ((scan folder id, digest), ...)} of everything remembered, for the scanner."""
        found: dict[str, tuple[tuple[int, bytes], ...]] = {}
        sql = "SELECT folder, scan_folder_id, digest FROM aptui_folders INDEXED BY aptui_folders_digest"
        for folder, scan_folder, digest in self._database.execute(sql).fetchall():
            known = found.get(folder)
            found[folder] = ((scan_folder, digest),) if known is None else (*known, (scan_folder, digest))
        return found

    @_checked
    def folder_parts(self, folder: str) -> dict[int, tuple[bytes, list[FileFact]]]:
        """Return {scan folder id: (digest, its files)} as remembered of one relative folder in lower case."""
        sql = "SELECT scan_folder_id, digest, files FROM aptui_folders WHERE folder = ?"
        return {part: (digest, unpack_files(files, part)) for part, digest, files in self._database.execute(sql, (folder,))}

    def has_folder(self, folder: str) -> bool:
        """Return whether anything is remembered of this relative folder (lower case) or one below it."""
        sql = "SELECT 1 FROM aptui_folders WHERE folder = ? OR (folder >= ? AND folder < ?) LIMIT 1"
        return self._database.execute(sql, (folder, f"{folder}/", f"{folder}0")).fetchone() is not None

    def distrusted_folders(self) -> list[str]:
        """Return the relative folders that are remembered with files too fresh to be trusted."""
        sql = "SELECT DISTINCT folder FROM aptui_folders INDEXED BY aptui_folders_digest WHERE digest = x'' ORDER BY folder"
        return [folder for (folder,) in self._database.execute(sql)]

    def forget(self, folder: str) -> None:
        """Drop the unpacked copy of a folder whose row was saved anew."""
        self._asked.pop(folder, None)
        self._folders.pop(folder, None)

    @_checked
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

    @_checked
    def _merge(self, parts: list[tuple[int, bytes]]) -> dict[PathKey, FileFact]:
        ranked = sorted((self._ranks[part], part, data) for part, data in parts if part in self._ranks)
        return merge_folder([unpack_files(data, part) for _, part, data in ranked], self._metadata_types)[0]

    # -------------------------------------------------------------------------------------------------- edges and products

    def dependents(self, targets: Sequence[str]) -> dict[str, set[PathKey]]:
        """Return {target: keys of sources with an edge on it}; targets are keys or 32 hex digits, compared in lower case."""
        spelled: dict[str, list[str]] = {}
        for target in targets:
            spelled.setdefault(target.lower(), []).append(target)
        sql = f"""SELECT e.target, o.path_key FROM json_each(?) k JOIN aptui_edges e ON e.target = k.value
            JOIN aptui_sources o ON o.source_id = e.source_id WHERE e.kind <> {int(EdgeKind.WILDCARD)}"""
        found: dict[str, set[PathKey]] = {}
        for target, key in self._ask_all(sql, list(spelled)):
            for spelling in spelled[target]:
                found.setdefault(spelling, set()).add(key)
        return found

    def wildcards(self) -> list[tuple[str, PathKey]]:
        """Return every wildcard edge: (pattern in lower case, key of the source that has it)."""
        sql = f"""SELECT DISTINCT e.target, o.path_key FROM aptui_edges e JOIN aptui_sources o ON o.source_id = e.source_id
            WHERE e.kind = {int(EdgeKind.WILDCARD)} ORDER BY e.target, o.path_key"""
        return [(pattern, PathKey(key)) for pattern, key in self._database.execute(sql)]

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

    def has_intermediates(self) -> bool:
        """Return whether any job made an intermediate."""
        sql = f"SELECT 1 FROM Products WHERE ProductName > '{COMMON_PLATFORM}/' AND ProductName < '{COMMON_PLATFORM}0' LIMIT 1"
        return self._database.execute(sql).fetchone() is not None

    def departed(self) -> dict[bytes, tuple[str, bytes]]:
        """Return {SHA-256: (relative path, UUID)} of sources that went without their identity file.

        They stand below `core.identity.DEPARTED_STATE`.
        """
        sql = "SELECT substr(key, ?), value FROM aptui_state WHERE key >= ? AND key < ? AND value <> ''"
        prefix = identity.DEPARTED_STATE
        found = self._database.execute(sql, (len(prefix) + 1, prefix, f"{prefix[:-1]};")).fetchall()
        texts = [(uuid, *text.split(" ", 1)) for uuid, text in found]
        return {bytes.fromhex(digest): (rel, bytes.fromhex(uuid)) for uuid, digest, rel in texts}

    def has_identities(self) -> bool:
        """Return whether any source has a `.meta` file."""
        sql = "SELECT 1 FROM aptui_sources WHERE identity <> '' LIMIT 1"
        return self._database.execute(sql).fetchone() is not None

    def has_edges(self) -> bool:
        """Return whether any source depends on anything."""
        return self._database.execute("SELECT 1 FROM aptui_edges LIMIT 1").fetchone() is not None

    def owners(self, names: Sequence[str]) -> dict[str, tuple[int, PathKey]]:
        """Return {product name: (job id, key of its source)} for products recorded under these names."""
        sql = """SELECT k.value, p.JobPK, o.path_key FROM json_each(?) k JOIN Products p ON p.ProductName = k.value COLLATE NOCASE
            JOIN Jobs j ON j.JobID = p.JobPK JOIN aptui_sources o ON o.source_id = j.SourcePK ORDER BY p.ProductID DESC"""
        return {name: (job_id, PathKey(key)) for name, job_id, key in self._ask_all(sql, names)}

    def owners_below(self, names: Sequence[str]) -> dict[str, tuple[int, PathKey]]:
        """Return {product name: (job id, key of its source)} for products recorded anywhere below folders of these names."""
        sql = """SELECT p.ProductName, p.JobPK, o.path_key FROM json_each(?) k
            CROSS JOIN Products p ON p.ProductName > k.value || '/' AND p.ProductName < k.value || '0'
            JOIN Jobs j ON j.JobID = p.JobPK JOIN aptui_sources o ON o.source_id = j.SourcePK ORDER BY p.ProductID DESC"""
        return {name: (job_id, PathKey(key)) for name, job_id, key in self._ask_all(sql, names)}

    def conflicts(self, names: Sequence[str]) -> dict[str, list[tuple[int, PathKey]]]:
        """Return {product name: [(job id, key of its source)]} of jobs that failed because they made this name too.

        () = all names.
        """
        sql = """SELECT c.name, c.job_id, o.path_key FROM aptui_conflicts c JOIN Jobs j ON j.JobID = c.job_id
            JOIN aptui_sources o ON o.source_id = j.SourcePK"""
        listed = f"{sql} JOIN json_each(?) k ON k.value = c.name ORDER BY c.job_id"
        found: dict[str, list[tuple[int, PathKey]]] = {}
        for name, job_id, key in (
            self._ask_all(listed, names) if names else self._database.execute(f"{sql} ORDER BY c.name, c.job_id")
        ):
            found.setdefault(name, []).append((job_id, PathKey(key)))
        return found

    def reason_of(self, job_id: int) -> tuple[str, str]:
        """Return (why the job's last committed run was needed, where its result came from), "" where nobody knows."""
        sql = "SELECT reason, origin FROM aptui_runs WHERE job_id = ? AND outcome = ? ORDER BY run_key DESC LIMIT 1"
        return self._database.execute(sql, (job_id, int(Outcome.SUCCEEDED))).fetchone() or ("", "")

    def state(self, key: str) -> str | None:
        """Return the value of `key` in aptui_state."""
        row = self._database.execute("SELECT value FROM aptui_state WHERE key = ?", (key,)).fetchone()
        return row[0] if row else None

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

    def scan_folder_ids(self) -> dict[str, int]:
        """Return {name in lower case: ScanFolderID}."""
        return {
            name.lower(): number for name, number in self._database.execute("SELECT PortableKey, ScanFolderID FROM ScanFolders")
        }

    def has_intents(self) -> bool:
        """Return whether a commit was left half done."""
        return self._database.execute("SELECT 1 FROM aptui_intents LIMIT 1").fetchone() is not None

    def cache_folders(self) -> dict[str, int]:
        """Return {cache folder: mtime_ns it had after the last commit}."""
        return dict(self._database.execute("SELECT name, mtime_ns FROM aptui_cache_folders").fetchall())

    @_checked
    def next_ids(self) -> tuple[int, int, int, int]:
        """Return the next free (source id, job id, product id, run key)."""
        jobs = "MAX(COALESCE((SELECT MAX(JobID) FROM Jobs), 0), COALESCE((SELECT MAX(job_id) FROM aptui_gone_jobs), 0))"
        sql = f"""SELECT COALESCE((SELECT MAX(SourceID) FROM Sources), 0), {jobs},
            COALESCE((SELECT MAX(ProductID) FROM Products), 0), COALESCE((SELECT MAX(JobRunKey) FROM Jobs), 0),
            COALESCE((SELECT MAX(run_key) FROM aptui_intents), 0)"""
        source, job, product, *run_keys = self._database.execute(sql).fetchone()
        return source + 1, job + 1, product + 1, max(*run_keys, int(self.state(RUN_KEY_STATE) or 0)) + 1

    # -------------------------------------------------------------------------------------------------------------- asking

    @contextmanager
    def _snapshot(self) -> Iterator[None]:
        """Make all questions of one answer see the same moment."""
        self._database.execute("BEGIN")
        try:
            yield
        finally:
            self._database.execute("COMMIT")

    def _ask(self, sql: str, values: Sequence[object]) -> sqlite3.Cursor:
        return self._database.execute(sql, (json.dumps(values),))

    def _ask_all(self, sql: str, values: Sequence[object]) -> Iterator[Any]:
        for part in _chunks(values):
            yield from self._ask(sql, part)


def _chunks(values: Sequence[T]) -> Iterator[Sequence[T]]:
    for at in range(0, len(values), CHUNK):
        yield values[at : at + CHUNK]

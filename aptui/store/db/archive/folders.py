"""What the folder table remembers of files: for the core the winner of each path, for the scanner every part of every folder."""

from __future__ import annotations

import sqlite3
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from aptui.core.model import DUPLICATE_MARK, FileFact, PathKey
from aptui.core.overrides import merge_folder
from aptui.store.db.archive.damage import report_damage
from aptui.store.db.packing import find_files, unpack_files

FOLDERS_SHELVED = 64
"""Folders that are kept unpacked."""
_ASKED_ALONE = 8
"""A folder is unpacked when it is asked for single files more often."""


class FolderArchive:
    """Answers from the folder table.

    Args:
        path: of the database, for messages.
        ranks: {scan folder id: its place among the scan folders}; the lowest wins a path.
        metadata_types: extensions of files that do not override each other (`core.overrides.merge_folder`).
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
        """{folder: how often it was asked for one file, while it is not unpacked}."""

    def files(self, keys: Sequence[PathKey]) -> dict[PathKey, FileFact]:
        """Return what the folder table remembers of these files (winners only)."""
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
        """Answer `files` without unpacking the folder; None where that would not pay, or is not enough to tell the winner."""
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

    @report_damage
    def folder_parts(self, folder: str) -> dict[int, tuple[bytes, list[FileFact]]]:
        """Return {scan folder id: (digest, its files)} as remembered of one relative folder in lower case."""
        sql = "SELECT scan_folder_id, digest, files FROM aptui_folders WHERE folder = ?"
        return {part: (digest, unpack_files(files, part)) for part, digest, files in self._database.execute(sql, (folder,))}

    def has_folder(self, folder: str) -> bool:
        """Return whether anything is remembered of this relative folder (lower case) or one below it."""
        sql = "SELECT 1 FROM aptui_folders WHERE folder = ? OR (folder >= ? AND folder < ?) LIMIT 1"
        return self._database.execute(sql, (folder, f"{folder}/", f"{folder}0")).fetchone() is not None

    def has_folders_below(self, folder: str) -> bool:
        """Return whether anything is remembered of folders below this relative one (lower case), "" = the scan folders."""
        if not folder:
            return True
        sql = "SELECT 1 FROM aptui_folders WHERE folder >= ? AND folder < ? LIMIT 1"
        return self._database.execute(sql, (f"{folder}/", f"{folder}0")).fetchone() is not None

    def list_distrusted_folders(self) -> list[str]:
        """Return the relative folders that are remembered with files too fresh to be trusted."""
        sql = "SELECT DISTINCT folder FROM aptui_folders INDEXED BY aptui_folders_digest WHERE digest = x'' ORDER BY folder"
        return [folder for (folder,) in self._database.execute(sql)]

    def forget(self, folder: str) -> None:
        """Drop the unpacked copy of a folder whose row was saved anew."""
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

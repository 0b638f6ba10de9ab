"""Databases of a future version, for programs that would rather lose one than stop; the rest about versions is in `schema`.

Tests: `tests/o3de_programs/test_asset_processor.py`.
"""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

from aptui.store.db.schema import O3DE_VERSION
from aptui.store.db.uris import read_only_uri

_PARTS = ("-wal", "-shm", "")


def delete_if_newer(path: Path) -> str:
    """Delete an asset database of a version above ours; return a sentence about it, "" when there was nothing to do.

    The caller holds the cache: nobody else has it open.
    """
    version = _version(path)
    if version <= O3DE_VERSION:
        return ""
    for part in _PARTS:
        path.with_name(path.name + part).unlink(missing_ok=True)
    return (
        f"the asset database '{path}' has version {version}, newer than {O3DE_VERSION}: it was deleted, and everything is rebuilt"
    )


def _version(path: Path) -> int:
    """Return what the database says of its version, 0 when it says nothing that can be understood."""
    if not path.is_file():
        return 0
    with contextlib.closing(sqlite3.connect(read_only_uri(path), uri=True, timeout=5)) as database:
        try:
            row = database.execute("SELECT MAX(version) FROM dbinfo").fetchone()
        except sqlite3.DatabaseError:
            return 0
    return row[0] if row and isinstance(row[0], int) else 0

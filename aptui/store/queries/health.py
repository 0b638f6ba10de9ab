"""Queries about the asset database itself: which SQLite reads it, whether it is sound.

What it holds is the business of `reader`.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from aptui.shared.errors import KnownError
from aptui.store.queries.reader import Reader, open_reader

_MOST_FAULTS = 5


def sqlite_version() -> tuple[int, ...]:
    """Return the version of the SQLite library, such as (3, 40, 1)."""
    return sqlite3.sqlite_version_info


def has_wal_reset_bug() -> bool:
    """Whether two connections that write or checkpoint at once may damage a database: the WAL-reset bug, 3.7.0 to 3.51.2."""
    return (3, 7, 0) <= sqlite_version() < (3, 51, 3)


def faults(path: Path) -> list[str]:
    """Return what `quick_check` finds wrong with a database, nothing for a sound one."""
    try:
        with closing(open_reader(path)) as reader:
            rows = reader._database.execute(f"PRAGMA quick_check({_MOST_FAULTS})").fetchall()  # noqa: SLF001 - same room
    except (sqlite3.Error, KnownError) as error:
        return [str(error)]
    return [text for (text,) in rows if text != "ok"]


def product_bytes(reader: Reader) -> int:
    """Return the size of all products together."""
    row = reader._database.execute("SELECT COALESCE(SUM(size), 0) FROM aptui_products").fetchone()  # noqa: SLF001 - same room
    return int(row[0])


def last_completed_ms(reader: Reader) -> int:
    """Return when a job last ended, 0 = never."""
    row = reader._database.execute("SELECT COALESCE(MAX(completed_ms), 0) FROM aptui_jobs").fetchone()  # noqa: SLF001 - same room
    return int(row[0])


def folder_count(reader: Reader) -> int:
    """Return how many folders were looked at."""
    row = reader._database.execute("SELECT COUNT(DISTINCT folder) FROM aptui_folders").fetchone()  # noqa: SLF001 - same room
    return int(row[0])

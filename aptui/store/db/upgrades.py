"""Upgrades of older asset databases in place: each step leads to the next version of our tables, in one transaction.

A version before `OLDEST` is set aside by `schema` and everything is made anew. A step changes what `tables` says today, so
it names tables and columns itself and uses nothing of that module.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

OLDEST = 2
"""The first version that can be brought up to date."""
_ORIGIN = "its result is "


def upgrade(database: sqlite3.Connection, version: int, key: str) -> bool:
    """Bring `database`, whose tables are of `version`, up to date; return whether that is possible.

    Args:
        key: of the version in `aptui_state`.
    """
    if version not in STEPS:
        return False
    database.isolation_level = None
    database.execute("BEGIN IMMEDIATE")
    while version in STEPS:
        STEPS[version](database)
        version += 1
    database.execute("UPDATE aptui_state SET value = ? WHERE key = ?", (str(version), key))
    database.execute("COMMIT")
    return True


def _origin_is_a_column(database: sqlite3.Connection) -> None:
    """Where a result came from was the end of the sentence that says why its job ran."""
    for table, columns in (("aptui_jobs", "job_id"), ("aptui_runs", "job_id, run_key")):
        database.execute(f"ALTER TABLE {table} ADD COLUMN origin TEXT NOT NULL DEFAULT ''")
        found = database.execute(f"SELECT reason, {columns} FROM {table} WHERE instr(reason, ?)", (_ORIGIN,)).fetchall()
        where = " AND ".join(f"{column.strip()} = ?" for column in columns.split(","))
        for text, *keys in found:
            reason, _, origin = text.rpartition(_ORIGIN)
            values = (reason.removesuffix("; "), origin, *keys)
            database.execute(f"UPDATE {table} SET reason = ?, origin = ? WHERE {where}", values)


STEPS: dict[int, Callable[[sqlite3.Connection], None]] = {OLDEST: _origin_is_a_column}
"""{version: what leads to the next one}."""

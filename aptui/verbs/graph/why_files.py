"""For `why`: what a file on the disk says that the database does not know yet, and what a file in the cache comes from.

Tests: `tests/verbs/shipping/test_shipping.py`.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from typing import Any

from aptui.core.paths import product_at
from aptui.store.queries.reader import Reader, SourceRow
from aptui.verbs.naming import as_text
from aptui.verbs.opening import OpenedProject, os_path

_PENDING_ADVICE = "what follows is about it as it was; 'aptui batch' processes it"


def describe_edit(source: SourceRow, database: Reader) -> str:
    """Return how a source's file differs from what was looked at last, "" when it does not."""
    fact = database.file(source.source)
    path = os_path(f"{source.root}/{source.source}")
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return f"its file was deleted since the last scan; {_PENDING_ADVICE}"
    except OSError:
        return ""
    if fact is None or (fact.size, fact.mtime_ns) == (found.st_size, found.st_mtime_ns):
        return ""
    if _digest(path) in {source.digest, fact.digest} - {b""}:  # a folder's row may be some seconds older than the source's
        return ""
    return f"its file changed since the last scan; {_PENDING_ADVICE}"


def _digest(path: str) -> bytes:
    try:
        with open(path, "rb") as stream:
            return hashlib.file_digest(stream, "sha256").digest()
    except OSError:
        return b""


def product_answer(
    word: str, project: OpenedProject, explain: Callable[[str, OpenedProject], dict[str, Any]]
) -> dict[str, Any] | None:
    """Return what is known of a path in the cache: that of its source, with the jobs that made it alone; None for any other path.

    Args:
        explain: answers for a source.
    """
    cache = str(project.config.cache_dir)
    path = os.path.abspath(word)
    name = product_at(as_text(os.path.relpath(path, cache))) if path.startswith(f"{cache}/") else as_text(word)
    sql = "SELECT JobPK, ProductName FROM Products WHERE ProductName = ? COLLATE NOCASE"
    made = dict(project.database.ask(sql, (name,)).fetchall())
    rows = [row for row in map(project.database.job, made) if row is not None]
    if not rows:
        is_there = path.startswith(f"{cache}/") and os.path.lexists(path)
        return {"path": name, "is": "outside", "said": "it is in the cache, but no job made it", "jobs": []} if is_there else None
    answer = explain(rows[0].source, project)
    answer["jobs"] = [job for job in answer["jobs"] if job["job_id"] in made]
    return {**answer, "path": made[rows[0].job_id], "is": "product", "said": f"it is made of '{rows[0].source}'"}

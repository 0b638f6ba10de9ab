"""Queries of the gateway: the catalog by pages, products as runtimes know them, and search terms.

Tests: `tests/features/gateway/ws/test_frames.py`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence

from msgspec import Struct

from aptui.core.model import ProductFlag
from aptui.store.queries.reader import JobRow, Reader

_COLUMNS = """p.ProductID, s.SourceGuid, p.SubID, p.ProductName, p.AssetType, COALESCE(o.size, -1), COALESCE(o.digest, x''),
    p.JobPK,
    s.SourceID"""
_JOINED = """CROSS JOIN Jobs j ON j.JobID = p.JobPK CROSS JOIN Sources s ON s.SourceID = j.SourcePK
    LEFT JOIN aptui_products o ON o.product_id = p.ProductID"""
_FOR_RUNTIMES = f"p.Flags & {int(ProductFlag.INTERMEDIATE)} = 0"
_PAGE_SQL = f"""SELECT {_COLUMNS} FROM Products p {_JOINED}
    WHERE p.ProductName > ? AND p.ProductName <= ? AND {_FOR_RUNTIMES} ORDER BY p.ProductName, p.ProductID LIMIT ?"""
_NAMED_SQL = (
    f"SELECT {_COLUMNS} FROM json_each(?) k CROSS JOIN Products p ON p.ProductName = k.value {_JOINED} WHERE {_FOR_RUNTIMES}"
)
_IDS_SQL = f"SELECT {_COLUMNS} FROM json_each(?) k CROSS JOIN Products p ON p.ProductID = k.value {_JOINED} ORDER BY p.ProductName"
_NEEDS_SQL = """SELECT d.ProductPK, d.DependencySourceGuid, d.DependencySubID, d.DependencyFlags FROM json_each(?) k
    CROSS JOIN ProductDependencies d ON d.ProductPK = k.value WHERE d.UnresolvedPath = ''
    ORDER BY d.ProductPK, d.DependencySourceGuid, d.DependencySubID, d.DependencyFlags"""
_LEGACY_SQL = "SELECT l.ProductPK, l.SubID FROM json_each(?) k CROSS JOIN LegacySubIDs l ON l.ProductPK = k.value ORDER BY 1, 2"
_LAST = "\U0010ffff"


class Served(Struct, frozen=True):
    """A product as a runtime knows it.

    `needs` are (UUID, sub id, flags), `legacy` former sub ids; `digest` b"", `size` -1 when not known.
    """

    product_id: int
    uuid: bytes
    sub_id: int
    name: str
    asset_type: bytes
    size: int
    digest: bytes
    job_id: int
    source_id: int
    needs: tuple[tuple[bytes, int, int], ...] = ()
    legacy: tuple[int, ...] = ()


def catalog_page(reader: Reader, platform: str, after: str, limit: int) -> list[Served]:
    """Return the products of a platform whose names come after `after` ("" = from the first), by name, intermediates left out."""
    return _whole(reader, reader.ask(_PAGE_SQL, (after or f"{platform}/", f"{platform}/{_LAST}", limit)).fetchall())


def products_named(reader: Reader, names: Collection[str]) -> list[Served]:
    """Return the existing products with these names (with platform)."""
    return _whole(reader, reader.ask(_NAMED_SQL, (json.dumps(sorted(names)),)).fetchall())


def products_by_id(reader: Reader, ids: Collection[int]) -> list[Served]:
    """Return these products, by name."""
    return _whole(reader, reader.ask(_IDS_SQL, (json.dumps(sorted(ids)),)).fetchall())


def _whole(reader: Reader, rows: Sequence[tuple[int, bytes, int, str, bytes, int, bytes, int, int]]) -> list[Served]:
    ids = json.dumps([row[0] for row in rows])
    needs: dict[int, list[tuple[bytes, int, int]]] = {}
    for product_id, uuid, sub_id, flags in reader.ask(_NEEDS_SQL, (ids,)) if rows else ():
        needs.setdefault(product_id, []).append((uuid, sub_id, flags))
    legacy: dict[int, list[int]] = {}
    for product_id, sub_id in reader.ask(_LEGACY_SQL, (ids,)) if rows else ():
        legacy.setdefault(product_id, []).append(sub_id)
    return [Served(*row, tuple(needs.get(row[0], ())), tuple(legacy.get(row[0], ()))) for row in rows]


def asset_ids(reader: Reader) -> list[tuple[str, bytes, int]]:
    """Return (name, UUID, sub id) of every product for a runtime."""
    sql = f"""SELECT p.ProductName, s.SourceGuid, p.SubID FROM Products p CROSS JOIN Jobs j ON j.JobID = p.JobPK
        CROSS JOIN Sources s ON s.SourceID = j.SourcePK WHERE {_FOR_RUNTIMES}"""
    return reader.ask(sql).fetchall()


# ----------------------------------------------------------------------------------------------------------- search terms


def is_meant(term: str, path: str, *, is_exact: bool) -> bool:
    """Return whether a search term matches a source, by O3DE's rules for asset status requests; both in lower case with `/`.

    Its path ends with the term; unless `is_exact` also without both extensions, or it contains the term cut at its last `_`.
    """
    if path.endswith(term):
        return True
    if is_exact:
        return False
    bare = _bare(term)
    if bare and _bare(path).endswith(bare):
        return True
    stem, cut, _ = term.rpartition("_")
    return bool(cut and stem) and stem in path


def _bare(path: str) -> str:
    folder, slash, name = path.rpartition("/")
    return f"{folder}{slash}{name.partition('.')[0]}"


def find_pending_jobs(reader: Reader, term: str, platform: str, *, is_exact: bool) -> list[JobRow]:
    """Return the pending and running jobs, of one platform or ("") of all, whose sources match a term.

    Pending finals do not count while their drafts are served.
    """
    pending = reader.jobs(statuses=("pending", "processing"), platform=platform)
    return [row for row in pending if not row.is_finishing and is_meant(term, row.source.lower(), is_exact=is_exact)]


def jobs_by_id(reader: Reader, ids: Collection[int]) -> list[JobRow]:
    """Return those of these jobs that exist."""
    return [row for row in map(reader.job, sorted(ids)) if row is not None]


def jobs_with_key(reader: Reader, job_key: str, limit: int) -> list[JobRow]:
    """Return the jobs with this key."""
    found = reader.ask("SELECT JobID FROM Jobs WHERE JobKey = ? LIMIT ?", (job_key, limit))
    return jobs_by_id(reader, [number for (number,) in found.fetchall()])


def job_of_run(reader: Reader, run_key: int) -> tuple[int, int] | None:
    """Return (job, how many runs before the job's last run this was) of a run, None if the run is not kept."""
    row = reader.ask("SELECT job_id FROM aptui_runs WHERE run_key = ?", (run_key,)).fetchone()
    row = row or reader.ask("SELECT JobID FROM Jobs WHERE JobRunKey = ?", (run_key,)).fetchone()
    if row is None:
        return None
    keys = [run.run_key for run in reader.runs_of(row[0])]
    return row[0], keys.index(run_key) if run_key in keys else 0


def sources_meant(reader: Reader, term: str, *, is_exact: bool, limit: int) -> list[int]:
    """Return the sources that a term means: the one with exactly that path, else those that `is_meant` accepts, at most `limit`."""
    exact = reader.source(term)
    if exact is not None:
        return [exact.source_id]
    words = [term] if is_exact else [term, _bare(term)]
    found = []
    for word in words:
        pattern = "".join(f"\\{character}" if character in "\\%_" else character for character in word)
        sql = "SELECT source_id, path_key FROM aptui_sources WHERE path_key LIKE ? ESCAPE '\\' ORDER BY path_key LIMIT ?"
        like = f"%{pattern}" if is_exact or word == term else f"%{pattern}.%"
        found += [number for number, path in reader.ask(sql, (like, limit)) if is_meant(term, path, is_exact=is_exact)]
    return list(dict.fromkeys(found))[:limit]


def products_meant(reader: Reader, term: str, platforms: Sequence[str], limit: int) -> list[Served]:
    """Return the products that a term names: the product with that path on each platform, else those whose paths begin with it."""
    exact = products_named(reader, [f"{platform}/{term}" for platform in platforms])
    if exact:
        return exact
    sql = f"SELECT p.ProductID FROM Products p WHERE p.ProductName >= ? AND p.ProductName <= ? AND {_FOR_RUNTIMES} LIMIT ?"
    found = [
        number
        for platform in platforms
        for (number,) in reader.ask(sql, (f"{platform}/{term}", f"{platform}/{term}{_LAST}", limit))
    ]
    return products_by_id(reader, found[:limit])

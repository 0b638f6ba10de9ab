"""Products as files in folders: by name or asset id, in a folder, below a folder, and the jobs that a file waits for.

Tests: `tests/features/gateway/http/test_http_files.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from aptui.store.queries.reader import Reader

_COLUMNS = """p.ProductName, COALESCE(o.digest, x''), COALESCE(o.size, -1), s.SourceGuid, p.SubID, p.AssetType"""
_JOINED = """CROSS JOIN Jobs j ON j.JobID = p.JobPK CROSS JOIN Sources s ON s.SourceID = j.SourcePK
    LEFT JOIN aptui_products o ON o.product_id = p.ProductID"""
_MOVING = "EXISTS (SELECT 1 FROM aptui_intents i WHERE i.name = p.ProductName)"
_FIND_SQL = f"SELECT {_COLUMNS}, {_MOVING} FROM Products p {_JOINED} WHERE p.ProductName = ? ORDER BY p.ProductID DESC LIMIT 1"
_BELOW_SQL = f"""SELECT {_COLUMNS} FROM Products p {_JOINED}
    WHERE p.ProductName >= ? AND p.ProductName < ? ORDER BY p.ProductName, p.ProductID LIMIT ?"""
_NEXT_SQL = "SELECT ProductName FROM Products WHERE ProductName >= ? ORDER BY ProductName LIMIT 1"
_IDS_SQL = """SELECT p.ProductName FROM Sources s CROSS JOIN Jobs j ON j.SourcePK = s.SourceID
    CROSS JOIN Products p ON p.JobPK = j.JobID
    WHERE (s.SourceGuid = :uuid OR s.SourceID IN (SELECT source_id FROM aptui_legacy WHERE uuid = :uuid))
    AND (:platform = '' OR j.Platform = :platform)
    AND (p.SubID = :sub_id OR EXISTS (SELECT 1 FROM LegacySubIDs l WHERE l.ProductPK = p.ProductID AND l.SubID = :sub_id))
    ORDER BY s.SourceGuid <> :uuid, p.SubID <> :sub_id, p.ProductName"""
_UNSETTLED = "state NOT IN ('completed', 'failed', 'cancelled')"
_OF_SOURCES_SQL = f"""SELECT s.SourceID, o.path_key, (SELECT COUNT(*) FROM aptui_analyses a WHERE a.source_id = s.SourceID
    AND a.{_UNSETTLED})
    + (SELECT COUNT(*) FROM Jobs j JOIN aptui_jobs w ON w.job_id = j.JobID WHERE j.SourcePK = s.SourceID AND w.{_UNSETTLED}
        AND NOT EXISTS (SELECT 1 FROM aptui_drafts d WHERE d.job_id = w.job_id AND d.final = w.planned)
        AND j.Platform IN (:platform, 'common')),
    (SELECT COUNT(*) FROM aptui_analyses a WHERE a.source_id = s.SourceID AND a.state = 'failed')
    + (SELECT COUNT(*) FROM Jobs j JOIN aptui_jobs w ON w.job_id = j.JobID WHERE j.SourcePK = s.SourceID AND w.state = 'failed'
        AND j.Platform IN (:platform, 'common'))
    FROM aptui_sources o JOIN Sources s ON s.SourceID = o.source_id WHERE """
_CHUNK = 500


class ProductFile(Struct, frozen=True):
    """A product; `digest` b"" and `size` -1 when not known; `is_moving`: a commit may be replacing it now."""

    name: str
    digest: bytes
    size: int
    uuid: bytes
    sub_id: int
    asset_type: bytes
    is_moving: bool = False

    @property
    def file_name(self) -> str:
        """Return the last part of its name."""
        return self.name.rpartition("/")[2]


class Awaited(Struct, frozen=True):
    """A source that a file may come from: number of its pending or running jobs, and of its failed jobs."""

    source_id: int
    key: str
    pending_count: int
    failed: int


def find(reader: Reader, name: str) -> ProductFile | None:
    """Return the product of this name."""
    row = reader.ask(_FIND_SQL, (name,)).fetchone()
    return ProductFile(*row) if row else None


def names_of(reader: Reader, uuid: bytes, sub_id: int, platform: str = "") -> list[str]:
    """Return the names of the products with an asset id, on one platform or ("") all; products that had it earlier come last."""
    return [name for (name,) in reader.ask(_IDS_SQL, {"uuid": uuid, "sub_id": sub_id, "platform": platform})]


def below(reader: Reader, folder: str, after: str = "", limit: int = -1) -> list[ProductFile]:
    """Return the products below a folder ("" = all) whose names come after `after`, by name; `limit` at most (-1 = all)."""
    start = after + "\0" if after else f"{folder}/" if folder else ""
    rows = reader.ask(_BELOW_SQL, (start, f"{folder}0" if folder else "\U0010ffff", limit))  # "0" follows "/" in ASCII
    return [ProductFile(*row) for row in rows]


def platforms(reader: Reader) -> list[str]:
    """Return the platforms that have products."""
    found, start = [], ""
    while row := reader.ask(_NEXT_SQL, (start,)).fetchone():
        found.append(row[0].partition("/")[0])
        start = f"{found[-1]}0"
    return found


def children(reader: Reader, folder: str) -> tuple[list[str], list[ProductFile]]:
    """Return the names of the folders in `folder`, and the products in it; the content of those folders is not read."""
    folders: list[str] = []
    files: dict[str, ProductFile] = {}
    start = f"{folder}/"
    while True:
        rows = reader.ask(_BELOW_SQL, (start, f"{folder}0", _CHUNK))
        last = ""
        for row in rows:
            name, slash, _rest = row[0][len(folder) + 1 :].partition("/")
            if slash:
                folders.append(name)
                last = f"{folder}/{name}0"
                break
            files[name] = ProductFile(*row)
            last = row[0] + "\0"
        if not last:
            return folders, list(files.values())
        start = last


def find_awaited_by_id(reader: Reader, uuid: bytes, platform: str) -> list[Awaited]:
    """Return the sources that have a UUID now or had it earlier."""
    where = "s.SourceGuid = :uuid OR s.SourceID IN (SELECT source_id FROM aptui_legacy WHERE uuid = :uuid)"
    return [Awaited(*row) for row in reader.ask(_OF_SOURCES_SQL + where, {"uuid": uuid, "platform": platform})]


def find_awaited_by_name(reader: Reader, name: str) -> list[Awaited]:
    """Return the sources that a product of this name may come from.

    These are its last source, and the sources in the same relative folder whose name, up to its first dot, begins the product's
    name.
    """
    platform, _, path = name.partition("/")
    maker = reader.ask(
        "SELECT j.SourcePK FROM Products p JOIN Jobs j ON j.JobID = p.JobPK WHERE p.ProductName = ?", (name,)
    ).fetchone()
    values = {"source_id": maker[0] if maker else 0, "platform": platform}
    found = {row[0]: Awaited(*row) for row in reader.ask(f"{_OF_SOURCES_SQL} s.SourceID = :source_id", values)}
    folder, slash, file_name = path.rpartition("/")
    where = "o.path_key >= :place AND o.path_key < :end"
    for start in _starts(file_name):
        place = f"{folder}{slash}{start}"
        bounds = {"place": place, "end": f"{place}/", "platform": platform}  # "/" follows "." in ASCII
        for row in reader.ask(f"{_OF_SOURCES_SQL} {where}", bounds):
            if row[1] == place or row[1].startswith(f"{place}."):
                found[row[0]] = Awaited(*row)
    return list(found.values())


def _starts(file_name: str) -> Iterator[str]:
    """Yield possible names of the source: the product's up to its first dot, then this name cut before each `_`, the last first."""
    stem = file_name.partition(".")[0]
    while stem:
        yield stem
        stem = stem.rpartition("_")[0]

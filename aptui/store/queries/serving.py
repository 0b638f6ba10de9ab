"""Queries of editors and games: the catalog by pages, products as files, assets by id, path and search term.

Tests: `tests/store/queries/test_serving.py`, `tests/features/gateway/ws/test_frames.py`, `test_client_sessions.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import queue
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from aptui.core.model import ProductFlag
from aptui.core.paths import as_text, normalize, os_path
from aptui.core.project import ScanFolder
from aptui.shared.errors import HostError
from aptui.store.db.schema import translate_errors
from aptui.store.db.statements import group_rows
from aptui.store.queries import dependencies
from aptui.store.queries.assets import product_ids, source_by_id, source_ids
from aptui.store.queries.reader import JobRow, Reader, SourceRow, open_reader

T = TypeVar("T")

# These queries find products as files: by name, by asset id, in a folder or below a folder. They also find the sources whose jobs
# may still make a requested file.

_FILE_COLUMNS = """p.ProductName, COALESCE(o.digest, x''), COALESCE(o.size, -1), s.SourceGuid, p.SubID, p.AssetType"""
_JOINED = """CROSS JOIN Jobs j ON j.JobID = p.JobPK CROSS JOIN Sources s ON s.SourceID = j.SourcePK
    LEFT JOIN aptui_products o ON o.product_id = p.ProductID"""
_MOVING = "EXISTS (SELECT 1 FROM aptui_intents i WHERE i.name = p.ProductName)"
_FIND_SQL = f"SELECT {_FILE_COLUMNS}, {_MOVING} FROM Products p {_JOINED} WHERE p.ProductName = ? ORDER BY p.ProductID DESC LIMIT 1"
_BELOW_SQL = f"""SELECT {_FILE_COLUMNS} FROM Products p {_JOINED}
    WHERE p.ProductName >= ? AND p.ProductName < ? ORDER BY p.ProductName, p.ProductID LIMIT ?"""
_NEXT_SQL = "SELECT ProductName FROM Products WHERE ProductName >= ? ORDER BY ProductName LIMIT 1"
_FILES_OF_ID_SQL = """SELECT p.ProductName FROM Sources s CROSS JOIN Jobs j ON j.SourcePK = s.SourceID
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
        """Return the file name of the product, the last part of its name."""
        return self.name.rpartition("/")[2]


class Awaited(Struct, frozen=True):
    """A source whose jobs may make a requested file: the number of its pending or running jobs, and of its failed jobs."""

    source_id: int
    key: str
    pending_count: int
    failed: int


def find(reader: Reader, name: str) -> ProductFile | None:
    """Return the product of this name."""
    row = reader.ask(_FIND_SQL, (name,)).fetchone()
    return ProductFile(*row) if row else None


def names_of(reader: Reader, uuid: bytes, sub_id: int, platform: str = "") -> list[str]:
    """Return the names of the products with an asset id; products that had the asset id earlier come last.

    Args:
        platform: only products of this platform; "" = products of all platforms.
    """
    return [name for (name,) in reader.ask(_FILES_OF_ID_SQL, {"uuid": uuid, "sub_id": sub_id, "platform": platform})]


def below(reader: Reader, folder: str, after: str = "", limit: int = -1) -> list[ProductFile]:
    """Return the products below a folder ("" = all) whose names come after `after`, by name; `limit` at most (-1 = all)."""
    start = after + "\0" if after else f"{folder}/" if folder else ""
    # "0" follows "/" in ASCII, so the range has every name below the folder.
    rows = reader.ask(_BELOW_SQL, (start, f"{folder}0" if folder else "\U0010ffff", limit))
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
    """Return the sources whose jobs may make a product of this name.

    These are the source from which the product was made last, and sources with a similar name in the same relative folder. Names
    are compared up to their first dots: the product's name is equal to the source's name, or continues it with `_`.
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
        # "/" follows "." in ASCII, so the range has every name that begins with this name and a dot.
        bounds = {"place": place, "end": f"{place}/", "platform": platform}
        for row in reader.ask(f"{_OF_SOURCES_SQL} {where}", bounds):
            if row[1] == place or row[1].startswith(f"{place}."):
                found[row[0]] = Awaited(*row)
    return list(found.values())


def _starts(file_name: str) -> Iterator[str]:
    """Yield possible names of the source: the product's name up to its first dot, then the parts of this name before each `_`.

    The longest name comes first.
    """
    stem = file_name.partition(".")[0]
    while stem:
        yield stem
        stem = stem.rpartition("_")[0]


_COLUMNS = """p.ProductID, s.SourceGuid, p.SubID, p.ProductName, p.AssetType, COALESCE(o.size, -1), COALESCE(o.digest, x''),
    p.JobPK,
    s.SourceID"""
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

    `needs` are the (UUID, sub id, flags) of its dependencies, `legacy` are its former sub ids. An unknown `digest` is b"", an
    unknown `size` is -1.
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
    """Return the products of a platform whose names come after `after` ("" = from the first), by name, without intermediates."""
    return _add_declared(reader, reader.ask(_PAGE_SQL, (after or f"{platform}/", f"{platform}/{_LAST}", limit)).fetchall())


def products_named(reader: Reader, names: Collection[str]) -> list[Served]:
    """Return the existing products with these names (with platform)."""
    return _add_declared(reader, reader.ask(_NAMED_SQL, (json.dumps(sorted(names)),)).fetchall())


def products_by_id(reader: Reader, ids: Collection[int]) -> list[Served]:
    """Return these products, by name."""
    return _add_declared(reader, reader.ask(_IDS_SQL, (json.dumps(sorted(ids)),)).fetchall())


def _add_declared(reader: Reader, rows: Sequence[tuple[int, bytes, int, str, bytes, int, bytes, int, int]]) -> list[Served]:
    """Convert rows with the columns `_COLUMNS` to products, and add their dependencies and former sub ids."""
    if not rows:
        return []
    ids = json.dumps([row[0] for row in rows])
    needs = group_rows((product_id, tuple(need)) for product_id, *need in reader.ask(_NEEDS_SQL, (ids,)))
    legacy = group_rows(reader.ask(_LEGACY_SQL, (ids,)))
    return [Served(*row, tuple(needs.get(row[0], ())), tuple(legacy.get(row[0], ()))) for row in rows]


def asset_ids(reader: Reader) -> list[tuple[str, bytes, int]]:
    """Return (name, UUID, sub id) of every product for a runtime."""
    sql = f"""SELECT p.ProductName, s.SourceGuid, p.SubID FROM Products p CROSS JOIN Jobs j ON j.JobID = p.JobPK
        CROSS JOIN Sources s ON s.SourceID = j.SourcePK WHERE {_FOR_RUNTIMES}"""
    return reader.ask(sql).fetchall()


# ----------------------------------------------------------------------------------------------------------- search terms


def _is_meant(term: str, path: str, *, is_exact: bool) -> bool:
    """Return whether a search term matches the path of a source, by O3DE's rules for asset status requests.

    Both must be in lower case and use `/`. The term matches if the path ends with it. Unless `is_exact`, extensions are ignored.
    """
    bare = "" if is_exact else _bare(term)
    return path.endswith(term) or (bool(bare) and _bare(path).endswith(bare))


def _bare(path: str) -> str:
    folder, slash, name = path.rpartition("/")
    return f"{folder}{slash}{name.partition('.')[0]}"


def find_pending_jobs(reader: Reader, term: str, platform: str, *, is_exact: bool) -> list[JobRow]:
    """Return the pending and running jobs, of one platform or ("") of all, whose sources match a term.

    Unless `is_exact`, these are also the jobs of sources whose path contains the part of the term before its last `_`: they may
    still make the requested product. Whether a finished job made it is known, so `sources_meant` does not need this rule.
    A job is left out if its draft is up to date and only the run that makes its final products is pending: clients get the draft.
    """
    stem = "" if is_exact else term.rpartition("_")[0]
    pending = ((row, row.source.lower()) for row in reader.jobs(statuses=UNSETTLED, platform=platform) if not row.is_finishing)
    return [row for row, path in pending if _is_meant(term, path, is_exact=is_exact) or (stem and stem in path)]


def jobs_by_id(reader: Reader, ids: Collection[int]) -> list[JobRow]:
    """Return the jobs with these ids that exist."""
    return [row for row in map(reader.job, sorted(ids)) if row is not None]


def jobs_with_key(reader: Reader, job_key: str, limit: int, platform: str = "") -> list[JobRow]:
    """Return the jobs with this job key on a platform ("" = all), at most `limit`."""
    found = reader.ask("SELECT JobID FROM Jobs WHERE JobKey = ? AND ? IN ('', Platform) LIMIT ?", (job_key, platform, limit))
    return jobs_by_id(reader, [number for (number,) in found.fetchall()])


def job_of_run(reader: Reader, run_key: int) -> tuple[int, int] | None:
    """Return (id of the run's job, number of later runs of this job), None if the run is not kept."""
    row = reader.ask("SELECT job_id FROM aptui_runs WHERE run_key = ?", (run_key,)).fetchone()
    row = row or reader.ask("SELECT JobID FROM Jobs WHERE JobRunKey = ?", (run_key,)).fetchone()
    if row is None:
        return None
    keys = [run.run_key for run in reader.runs_of(row[0])]
    return row[0], keys.index(run_key) if run_key in keys else 0


def sources_meant(reader: Reader, term: str, *, is_exact: bool, limit: int) -> list[int]:
    """Return at most `limit` sources that a search term matches.

    If a source has the path `term`, return only this source.
    """
    exact = reader.source(term)
    if exact is not None:
        return [exact.source_id]
    rows = reader.ask(
        "SELECT source_id, path_key FROM aptui_sources WHERE instr(path_key, ?) ORDER BY path_key", (_bare(term) or term,)
    )
    return list(islice((number for number, path in rows if _is_meant(term, path, is_exact=is_exact)), limit))


def keys_meant(reader: Reader, term: str, limit: int) -> list[str]:
    """Return the keys of at most `limit` sources that a search term matches exactly."""
    rows = (source_by_id(reader, number) for number in sources_meant(reader, term, is_exact=True, limit=limit))
    return [row.source.lower() for row in rows if row is not None]


def sources_at(reader: Reader, paths: Iterable[str]) -> dict[str, SourceRow]:
    """Return {path: its source} of the paths that have a source."""
    return {path: row for path in paths if (row := reader.source(path)) is not None}


def jobs_at(reader: Reader, paths: Iterable[str], platform: str = "") -> list[JobRow]:
    """Return the jobs of the sources at these paths; `platform` "" = any."""
    found = sources_at(reader, paths).values()
    return [row for source in found for row in reader.jobs_of(source.source_id) if platform in ("", row.platform)]


def products_meant(reader: Reader, term: str, platforms: Sequence[str], limit: int) -> list[Served]:
    """Return at most `limit` products that a search term matches.

    If the term is the path of a product, return that product for each platform. Otherwise return all products whose paths begin
    with the term.
    """
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


# Clients name an asset by its id, a search term, or the path of a source or product. Every list in an answer has a maximum length.

MOST = 1_000
"""Maximum length of a list in an answer."""
_SOURCES_MOST = 200
UNSETTLED = ("pending", "processing")


class AssetLookup(Struct, frozen=True):
    """The asset that a request names; `uuid` b"" = by term, `platform` "" = on all platforms."""

    platform: str
    uuid: bytes
    sub_id: int | None
    term: str
    is_exact: bool = False


class FoundAsset(Struct, frozen=True):
    """The rows of an asset: pending jobs, other jobs, products, sources."""

    unsettled: tuple[JobRow, ...] = ()
    rested: tuple[JobRow, ...] = ()
    products: tuple[Served, ...] = ()
    sources: tuple[str, ...] = ()

    def status(self, lookup: AssetLookup, running: Iterable[int]) -> str:
        """Return the status of the asset: missing, queued, processing, compiled, failed, or unknown if the lookup names no asset.

        Args:
            running: ids of running jobs; the database does not store which jobs run.
        """
        if not (lookup.uuid or lookup.term):
            return "unknown"
        if self.unsettled:
            return "queued" if {row.job_id for row in self.unsettled}.isdisjoint(running) else "processing"
        if any(row.status == "failed" for row in self.rested):
            return "failed"
        is_there = bool(self.products) or (bool(self.sources) and lookup.sub_id is None)
        return "compiled" if is_there else "missing"

    def pending_ids(self) -> tuple[int, ...]:
        """Return the ids of the pending jobs that have a row in the database."""
        return tuple(row.job_id for row in self.unsettled if row.job_id)

    def list_urgent_sources(self, lookup: AssetLookup) -> tuple[str, ...]:
        """Return the sources (lower case, sorted) whose jobs a request makes more urgent.

        If the path that the client requested (`lookup.term`) matches no source yet, return this path.
        """
        keys = {source.lower() for source in self.sources if self.unsettled}
        if lookup.term and "*" not in lookup.term and not (self.sources or self.products):
            keys.add(lookup.term)  # a term with a star is not added, because it would be a pattern for the engine
        return tuple(sorted(keys))


def find_asset(reader: Reader, lookup: AssetLookup, platforms: Sequence[str]) -> FoundAsset:
    """Return the rows of an asset; `platforms` are the platforms in which the client is interested."""
    if lookup.uuid:
        return _find_by_id(reader, lookup, platforms)
    unsettled = find_pending_jobs(reader, lookup.term, lookup.platform, is_exact=lookup.is_exact)
    if unsettled:
        return FoundAsset(unsettled=tuple(unsettled[:MOST]), sources=tuple(dict.fromkeys(row.source for row in unsettled[:MOST])))
    products = products_meant(reader, lookup.term, platforms, MOST)
    if products:
        rested = jobs_by_id(reader, {product.job_id for product in products})
        return _of_jobs(rested, platforms, products, [row.source for row in rested])
    numbers = sources_meant(reader, lookup.term, is_exact=lookup.is_exact, limit=_SOURCES_MOST)
    return _find_sources(reader, numbers, platforms)


def _find_by_id(reader: Reader, lookup: AssetLookup, platforms: Sequence[str]) -> FoundAsset:
    found = _find_sources(reader, source_ids(reader, lookup.uuid), platforms)
    if lookup.sub_id is None or found.unsettled:
        return found
    products = tuple(each for each in found.products if each.sub_id & 0xFFFFFFFF == lookup.sub_id)
    makers = {each.job_id for each in products}
    rested = tuple(row for row in found.rested if row.status == "failed" or row.job_id in makers)
    return replace(found, products=products, rested=rested)


def _find_sources(reader: Reader, numbers: Iterable[int], platforms: Sequence[str]) -> FoundAsset:
    numbers = list(numbers)
    rows = [row for number in numbers for row in reader.jobs_of(number)]
    ids = [each.product_id for row in rows if row.job_id for each in reader.products_of(row.job_id)]
    sources = [row.source for row in (source_by_id(reader, number) for number in numbers) if row is not None]
    return _of_jobs(rows, platforms, products_by_id(reader, ids[:MOST]), sources)


def _of_jobs(rows: Sequence[JobRow], platforms: Sequence[str], products: Sequence[Served], sources: Sequence[str]) -> FoundAsset:
    mine = [row for row in rows if row.platform in (*platforms, "common", "all")]
    return FoundAsset(
        tuple(row for row in mine if _is_unsettled(row)),
        tuple(row for row in mine if not _is_unsettled(row)),
        tuple(each for each in products if each.name.partition("/")[0] in platforms),
        tuple(dict.fromkeys(sources)),
    )


def _is_unsettled(row: JobRow) -> bool:
    """Whether the job is pending or running. A job with an up-to-date draft counts as settled, even before its final run ends."""
    return row.status in UNSETTLED and not row.is_finishing


def list_failed(reader: Reader, job_ids: Iterable[int]) -> list[JobRow]:
    """Return the jobs with these ids that are failed."""
    return [row for row in jobs_by_id(reader, set(job_ids)) if row.status == "failed"]


# ------------------------------------------------------------------------------------------------------ paths and products


class ProjectPaths(Struct, frozen=True):
    """The folders of a project to which paths in requests are relative. `scan_folders`: the folder that wins comes first."""

    cache_dir: str
    scan_folders: tuple[ScanFolder, ...]
    platforms: tuple[str, ...]

    @classmethod
    def of(cls, cache_dir: os.PathLike[str], scan_folders: Iterable[ScanFolder], platforms: Iterable[str]) -> ProjectPaths:
        """Return the folders of a project."""
        folders = sorted(scan_folders, key=lambda folder: folder.order)
        return cls(as_text(os.fspath(cache_dir)), tuple(folders), tuple(platforms))

    def find_source(self, reader: Reader, path: str) -> SourceRow | None:
        """Return the source at a path, or the source of the product at this path."""
        for relative in self._relatives(path):
            row = reader.source(relative)
            if row is not None:
                return row
        product = next(iter(self.find_products(reader, path)), None)
        return source_by_id(reader, product.source_id) if product is not None else None

    def find_products(self, reader: Reader, path: str, platform: str = "") -> list[Served]:
        """Return the products at a path; `platform` "" = on all platforms."""
        found = products_named(reader, self._product_names(path, platform))
        return [each for each in found if platform in ("", each.name.partition("/")[0])]

    def _relatives(self, path: str) -> list[str]:
        """Return an absolute path as paths relative to the scan folders that contain it; return a relative path as it is.

        All paths are in lower case.
        """
        text = normalize(path)
        if not text.startswith("/"):
            return [text.lower()]
        return [found.lower() for folder in self.scan_folders if (found := _find_relative(folder, text)) is not None]

    def _product_names(self, path: str, platform: str) -> list[str]:
        text = normalize(path)
        if text.startswith("/"):
            return [text[len(self.cache_dir) + 1 :].lower()] if text.startswith(f"{self.cache_dir}/") else []
        lower = text.lower()
        return [f"{platform}/{lower}"] if platform else [lower, *(f"{each}/{lower}" for each in self.platforms)]

    def resolve_on_disk(self, path: str) -> tuple[ScanFolder, str] | None:
        """Return the scan folder of a path, and the path relative to it.

        The first folder that has the file wins; `..` may lead from one folder to another. An absolute path need not exist.
        """
        text = os.path.normpath(normalize(path))
        candidates = [text] if text.startswith("/") else [os.path.normpath(f"{folder.path}/{text}") for folder in self.scan_folders]
        for file in candidates:
            for at, folder in enumerate(self.scan_folders):
                relative = _find_relative(folder, file)
                if relative is not None and (text.startswith("/") or os.path.lexists(os_path(file))):
                    return next(self._having(relative, self.scan_folders[:at]), folder), relative
        return None

    @staticmethod
    def _having(relative: str, folders: Iterable[ScanFolder]) -> Iterator[ScanFolder]:
        """Yield the folders that have a file at a relative path."""
        for folder in folders:
            file = f"{folder.path}/{relative}"
            if _find_relative(folder, file) is not None and os.path.lexists(os_path(file)):
                yield folder


def _find_relative(folder: ScanFolder, path: str) -> str | None:
    """Return an absolute path relative to a scan folder, None if the path does not belong to the folder."""
    if not path.startswith(f"{folder.path}/"):
        return None
    relative = path[len(folder.path) + 1 :]
    return relative if folder.recursive or "/" not in relative else None


def source_with_id(reader: Reader, uuid: bytes) -> SourceRow | None:
    """Return the source with a UUID."""
    return next((row for number in source_ids(reader, uuid) if (row := source_by_id(reader, number)) is not None), None)


def products_with_id(reader: Reader, uuid: bytes, sub_id: int | None, platform: str = "") -> list[Served]:
    """Return the products with an asset id, `sub_id` None = all products of the source; `platform` "" = on all platforms."""
    found = products_by_id(reader, product_ids(reader, uuid, None))
    wanted = [each for each in found if sub_id in (None, each.sub_id & 0xFFFFFFFF)]
    return [each for each in wanted if platform in ("", each.name.partition("/")[0])]


def walk_dependencies(reader: Reader, product_id: int, *, is_all: bool) -> list[dependencies.AssetDependency]:
    """Return the run-time dependencies of a product: direct ones or all, nearest first.

    The search ends when more than `MOST` are found.
    """
    todo, seen = [product_id], {product_id}
    found: list[dependencies.AssetDependency] = []
    while todo and len(found) <= MOST:
        for each in dependencies.outgoing(reader, todo.pop(0)):
            if each.product_id in seen:
                continue
            found.append(each)
            if each.product_id:
                seen.add(each.product_id)
                if is_all:
                    todo.append(each.product_id)
    return found


# Queries of an event loop. Each query runs in one of a few threads, with a reader that no other query uses at that time.

_THREADS = 4
_TRIES, _PAUSE_S = 50, 0.01
"""Maximum number of queries, and the pause after each (seconds), while the database lacks the rows of a commit."""


class Database:
    """The asset database of a cache. Queries run in threads, so that no client waits for the query of another client."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="database")
        self._idle: queue.LifoQueue[tuple[int, Reader]] = queue.LifoQueue()

    async def ask(self, question: Callable[[Reader], T]) -> T:
        """Run a query in a thread and return its result; the query sees one snapshot.

        Raises:
            KnownError: the database does not exist yet or cannot be read.
        """
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._answer, question)

    def _answer(self, question: Callable[[Reader], T]) -> T:
        with translate_errors(self.path):
            inode, reader = self._acquire()
            try:
                with reader.snapshot():
                    answer = question(reader)
            except BaseException:
                with contextlib.suppress(Exception):
                    reader.close()
                raise
            self._idle.put((inode, reader))
            return answer

    def _acquire(self) -> tuple[int, Reader]:
        """Return (inode of the database file, an idle or new reader of this file)."""
        try:
            inode = os.stat(self.path).st_ino
        except OSError:
            raise HostError(
                "nothing was processed yet: there is no asset database", hint="try again when the engine has started"
            ) from None
        with contextlib.suppress(queue.Empty):
            while True:
                known, reader = self._idle.get_nowait()
                if known == inode:
                    return known, reader
                reader.close()  # this reader has an earlier database file, which was replaced
        return inode, open_reader(self.path)

    async def read_products(self, digests: Mapping[str, str], moment: tuple[int, int]) -> dict[str, Served]:
        """Return {name: product} for the names in `digests`, after the database has the rows of a commit.

        The engine reports a commit shortly before it writes the rows. So wait until the database has reached `moment` (epoch, seq),
        or the products have the digests of `digests` ({name: digest in hex}), but at most half a second.
        """
        for _try in range(_TRIES):
            now, rows = await self.ask(lambda reader: (reader.moment(), products_named(reader, digests)))
            found = {row.name: row for row in rows}
            if now >= moment or all(name in found and found[name].digest.hex() == digest for name, digest in digests.items()):
                break
            await asyncio.sleep(_PAUSE_S)
        return found

    def close(self) -> None:
        """Wait for running queries and close the database."""
        self._threads.shutdown(wait=True, cancel_futures=True)
        with contextlib.suppress(queue.Empty):
            while True:
                self._idle.get_nowait()[1].close()

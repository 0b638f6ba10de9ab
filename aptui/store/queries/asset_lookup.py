"""Finds assets as clients name them: by id, by search term, by the path of a source or product. Every list has a maximum length.

Tests: `tests/features/gateway/ws/test_client_sessions.py`, `tests/features/gateway/ws/test_routing.py`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from aptui.core.paths import normalize, to_text
from aptui.core.project import ScanFolder
from aptui.store.queries import dependencies
from aptui.store.queries.assets import product_ids, source_by_id, source_ids
from aptui.store.queries.reader import JobRow, Reader, SourceRow
from aptui.store.queries.serving import (
    Served,
    find_pending_jobs,
    jobs_by_id,
    products_by_id,
    products_meant,
    products_named,
    sources_meant,
)

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
        """Return unknown (the lookup names no asset), missing, queued, processing, compiled or failed.

        Args:
            running: ids of running jobs; the database does not store that.
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
        """Return the ids of the pending jobs that are saved."""
        return tuple(row.job_id for row in self.unsettled if row.job_id)

    def list_urgent_sources(self, lookup: AssetLookup) -> tuple[str, ...]:
        """Return the sources (lower case, sorted) whose jobs a request makes more urgent, or the term if it matches nothing yet."""
        keys = {source.lower() for source in self.sources if self.unsettled}
        if lookup.term and "*" not in lookup.term and not (self.sources or self.products):
            keys.add(lookup.term)  # the engine would treat a term with a star as a pattern
        return tuple(sorted(keys))


def find_asset(reader: Reader, lookup: AssetLookup, platforms: Sequence[str]) -> FoundAsset:
    """Return the rows of an asset; `platforms` are those that the client is interested in."""
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
    """Whether the job has no current result; a current draft is one, even if its final is pending."""
    return row.status in UNSETTLED and not row.is_finishing


def list_failed(reader: Reader, job_ids: Iterable[int]) -> list[JobRow]:
    """Return those of these jobs that are failed."""
    return [row for row in jobs_by_id(reader, set(job_ids)) if row.status == "failed"]


# ------------------------------------------------------------------------------------------------------ paths and products


class ProjectPaths(Struct, frozen=True):
    """The folders of a project that paths in requests are relative to. `scan_folders`: the winning folder first."""

    cache_dir: str
    scan_folders: tuple[ScanFolder, ...]
    platforms: tuple[str, ...]

    @classmethod
    def of(cls, cache_dir: os.PathLike[str], scan_folders: Iterable[ScanFolder], platforms: Iterable[str]) -> ProjectPaths:
        """Return the folders of a project."""
        folders = sorted(scan_folders, key=lambda folder: folder.order)
        return cls(to_text(os.fsencode(cache_dir)), tuple(folders), tuple(platforms))

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
        """Return an absolute path as paths relative to the scan folders; a relative path is returned unchanged."""
        text = normalize(path)
        if not text.startswith("/"):
            return [text.lower()]
        return [text[len(folder.path) + 1 :].lower() for folder in self.scan_folders if text.startswith(f"{folder.path}/")]

    def _product_names(self, path: str, platform: str) -> list[str]:
        text = normalize(path)
        if text.startswith("/"):
            return [text[len(self.cache_dir) + 1 :].lower()] if text.startswith(f"{self.cache_dir}/") else []
        lower = text.lower()
        return [f"{platform}/{lower}"] if platform else [lower, *(f"{each}/{lower}" for each in self.platforms)]

    def resolve_on_disk(self, path: str) -> tuple[ScanFolder, str] | None:
        """Return the scan folder of a path, and the path relative to it.

        The first folder that has the file wins; `..` may lead from one folder to another.
        """
        text = os.path.normpath(normalize(path))
        candidates = [text] if text.startswith("/") else [os.path.normpath(f"{folder.path}/{text}") for folder in self.scan_folders]
        for file in candidates:
            inside = next((folder for folder in self.scan_folders if file.startswith(f"{folder.path}/")), None)
            if inside is not None and (text.startswith("/") or os.path.lexists(file)):
                return inside, file[len(inside.path) + 1 :]
        return None


def source_with_id(reader: Reader, uuid: bytes) -> SourceRow | None:
    """Return the source with a UUID."""
    return next((row for number in source_ids(reader, uuid) if (row := source_by_id(reader, number)) is not None), None)


def products_with_id(reader: Reader, uuid: bytes, sub_id: int | None, platform: str = "") -> list[Served]:
    """Return the products with an asset id, `sub_id` None = all of the source; `platform` "" = on all platforms."""
    found = products_by_id(reader, product_ids(reader, uuid, None))
    wanted = [each for each in found if sub_id in (None, each.sub_id & 0xFFFFFFFF)]
    return [each for each in wanted if platform in ("", each.name.partition("/")[0])]


def walk_dependencies(reader: Reader, product_id: int, *, is_all: bool) -> list[dependencies.AssetDependency]:
    """Return the run-time dependencies of a product: direct ones or all, nearest first; at most `MOST` and a few more."""
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

"""Dependants of many sources at once, by path or UUID, as sources, jobs or products; used by relocations.

Tests: `tests/features/relocation/test_relocate.py`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from aptui.core.model import EdgeKind
from aptui.features.relocation.relocation_records import Dependant
from aptui.store.db.schema import uuid_text
from aptui.store.queries.reader import ProductRow, Reader, SourceRow
from aptui.store.queries.source_edges import SourceEdges

_BY_PATH = frozenset({EdgeKind.PATH, EdgeKind.JOB, EdgeKind.DISCOVERED})
_TYPE_BITS = {EdgeKind.JOB: 2}
"""`TypeOfDependency` of kinds of dependencies: 2 is job to job; kinds that are not listed have 1, source to source."""
_SOURCES_SQL = """SELECT s.SourceID, s.SourceName, s.SourceGuid, f.ScanFolderID, f.DisplayName, f.ScanFolder, x''
FROM json_each(?) k CROSS JOIN Sources s ON {condition} JOIN ScanFolders f ON f.ScanFolderID = s.ScanFolderPK"""
_DEPENDENTS_SQL = """SELECT d.DependencySourceGuid, d.DependencySubID, lower(d.UnresolvedPath), d.UnresolvedDependencyType,
    d.FromAssetId,
p.ProductName, p.SubID, s.SourceID, s.SourceName, s.SourceGuid, f.ScanFolder
FROM ProductDependencies d JOIN Products p ON p.ProductID = d.ProductPK JOIN Jobs j ON j.JobID = p.JobPK
JOIN Sources s ON s.SourceID = j.SourcePK JOIN ScanFolders f ON f.ScanFolderID = s.ScanFolderPK"""


class KnownSource(Struct, frozen=True):
    """A source that is to be moved or deleted, with its products."""

    source: SourceRow
    products: tuple[ProductRow, ...]


def sources_in(reader: Reader, folder: str, root: str, paths: Collection[str]) -> dict[str, KnownSource]:
    """Return {path: source} for the `paths` that are sources of the scan folder with this name or root."""
    sql = _SOURCES_SQL.format(condition="s.SourceName = k.value")
    wanted = set(paths)
    rows = (SourceRow(*row) for row in reader.ask(sql, (json.dumps(sorted(wanted)),)))
    mine = {row.source: row for row in rows if row.source in wanted and (row.root == root or row.scan_folder == folder)}
    products = _products(reader, [row.source_id for row in mine.values()])
    return {path: KnownSource(row, tuple(products.get(row.source_id, ()))) for path, row in mine.items()}


def _products(reader: Reader, ids: Sequence[int]) -> Mapping[int, list[ProductRow]]:
    sql = """SELECT j.SourcePK, p.ProductName, x'', -1, p.JobPK, p.SubID, p.AssetType, p.Flags, p.ProductID
        FROM json_each(?) k CROSS JOIN Jobs j ON j.SourcePK = k.value JOIN Products p ON p.JobPK = j.JobID"""
    found: dict[int, list[ProductRow]] = {}
    for source_id, *row in reader.ask(sql, (json.dumps(ids),)):
        found.setdefault(source_id, []).append(ProductRow(*row))
    return found


def dependants_of(reader: Reader, known: Iterable[KnownSource]) -> dict[int, list[Dependant]]:
    """Return {source id: its dependants}, without dependencies of a source on itself."""
    moved = list(known)
    found: dict[int, dict[Dependant, None]] = {}
    for source_id, dependant in (*_by_edges(reader, moved), *_by_products(reader, moved)):
        found.setdefault(source_id, {})[dependant] = None
    return {source_id: list(dependants) for source_id, dependants in found.items()}


def needs_of(reader: Reader, ids: Collection[int]) -> dict[int, list[str]]:
    """Return {source id: paths of the sources that it declares by path}."""
    edges = SourceEdges(reader)
    declared = [edge for edge in edges.read_declared_by(ids) if edge.kind in _BY_PATH]
    targets = edges.by_path({edge.target for edge in declared})
    sql = _SOURCES_SQL.format(condition="s.SourceID = k.value")
    rows = reader.ask(sql, (json.dumps(sorted({number for numbers in targets.values() for number in numbers})),))
    names = {row[0]: str(row[1]) for row in rows}
    found: dict[int, dict[str, None]] = {}
    for edge in declared:
        for number in targets.get(edge.target, ()):
            found.setdefault(edge.source_id, {})[names[number]] = None
    return {source_id: list(paths) for source_id, paths in found.items()}


def _by_edges(reader: Reader, moved: Sequence[KnownSource]) -> Iterator[tuple[int, Dependant]]:
    targets = {target: item.source for item in moved for target in (item.source.source.lower(), item.source.uuid.hex())}
    declared = SourceEdges(reader).read_declared_on(list(targets))
    rows = reader.ask(_SOURCES_SQL.format(condition="s.SourceID = k.value"), (json.dumps(sorted({edge[0] for edge in declared})),))
    sources = {row[0]: SourceRow(*row) for row in rows}
    for edge in declared:
        needed, source = targets.get(edge.target), sources.get(edge.source_id)
        if needed is None or source is None or source.source_id == needed.source_id:
            continue
        is_job = edge.kind is EdgeKind.JOB
        yield needed.source_id, Dependant(
            source.source, f"{source.root}/{source.source}", uuid_text(source.uuid), "job" if is_job else "source",
            _TYPE_BITS.get(edge.kind, 1), edge.target == needed.uuid.hex(),
        )  # fmt: skip


def _find_needed(products: Sequence[ProductRow], sub_id: int, platform: str) -> str:
    """Return the name of the product with this sub id, preferably of `platform`; "" if no product has it."""
    names = [row.name for row in products if row.sub_id == sub_id]
    return next((name for name in names if name.startswith(f"{platform}/")), names[0] if names else "")


def _by_products(reader: Reader, moved: Sequence[KnownSource]) -> Iterator[tuple[int, Dependant]]:
    by_uuid = {item.source.uuid: item for item in moved}
    by_path: dict[str, KnownSource] = {}
    for item in moved:
        for product in item.products:
            by_path.setdefault(product.name.partition("/")[2].lower(), item)
        by_path[item.source.source.lower()] = item
    # One pass over the table, because neither column has an index.
    sql = f"""{_DEPENDENTS_SQL} WHERE hex(d.DependencySourceGuid) IN (SELECT value FROM json_each(?))
        OR (d.UnresolvedPath <> '' AND lower(d.UnresolvedPath) IN (SELECT value FROM json_each(?)))"""
    uuids = [uuid.hex().upper() for uuid in by_uuid]
    for guid, sub_id, path, type_bits, by_id, name, own_sub_id, source_id, source, uuid, root in reader.ask(
        sql, (json.dumps(uuids), json.dumps(list(by_path)))
    ):
        needed = by_path.get(path) if path else by_uuid.get(bytes(guid))
        if needed is None or source_id == needed.source.source_id:
            continue
        needs = path or _find_needed(needed.products, sub_id, str(name).partition("/")[0])
        yield needed.source.source_id, Dependant(
            source, f"{root}/{source}", uuid_text(uuid), "product", type_bits, bool(by_id), name, needs, own_sub_id
        )  # fmt: skip

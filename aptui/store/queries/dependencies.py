"""Direct dependencies of sources and of products; `asset_graph` finds indirect dependencies.

`SourceEdges` finds the dependencies of sources: the declared targets, and the sources that the targets name. Its answers have the
same form for our databases and O3DE's. A database of ours has the table `aptui_edges`, in which all letters, also those beyond
ASCII, are in lower case; a database that O3DE wrote has only `SourceDependency`. Every query takes many sources at once.

The functions after `SourceEdges` find the dependencies of products, for the engine, the catalog and the asset panels. They use an
index of the table `ProductDependencies`, which `db.product_links` writes.

Tests: `tests/store/queries/test_asset_graph.py`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from msgspec import Struct

from aptui.core.model import EdgeKind, LinkKind, ProductFlag
from aptui.core.paths import LOAD_MASK, PRE_LOAD
from aptui.core.patterns import literal_prefix, wildcard
from aptui.store.db.folder_blobs import unpack_files
from aptui.store.db.product_links import EXCLUSION_SIGN
from aptui.store.db.schema import uuid_text
from aptui.store.db.statements import group_rows
from aptui.store.queries.assets import parse_asset_id
from aptui.store.queries.reader import Reader

# --------------------------------------------------------------------------------------------- dependencies between sources

_IN_ONE = 500
"""Maximum number of UUIDs in one query. Each UUID is a parameter of its own, because a JSON list cannot contain blobs."""
_OWN_COLUMNS = "e.source_id, e.builder, e.kind, e.target"
_FOREIGN_COLUMNS = "m.SourceID, d.BuilderGuid, d.TypeOfDependency, d.DependsOnSource"
_JOB_BIT, _WILDCARD_BIT = 2, 4
_UUIDS_SQL = (
    ("SourceGuid", "SELECT SourceGuid, SourceID FROM Sources"),
    ("uuid", "SELECT uuid, source_id FROM aptui_legacy"),
)
"""(column, query) of the UUIDs of sources. A source's own UUID comes first, because it has precedence over additional UUIDs."""


class DeclaredEdge(NamedTuple):
    """A source dependency as declared; `target` is a path in lower case, a pattern with `*`, or 32 hex digits of a UUID."""

    source_id: int
    builder: bytes
    kind: EdgeKind
    target: str


class SourceEdges:
    """Queries about the declared dependencies of sources in one database."""

    def __init__(self, reader: Reader) -> None:
        self._ask = reader.ask
        self.is_ours = reader.ask("SELECT 1 FROM aptui_sources LIMIT 1").fetchone() is not None
        self._patterns: list[DeclaredEdge] | None = None
        self._matches: dict[str, list[int]] = {}
        self._roots = [root.lower() + "/" for (root,) in reader.ask("SELECT ScanFolder FROM ScanFolders")]

    # ---------------------------------------------------------------------------------------------------------------- rows

    def read_declared_by(self, ids: Collection[int]) -> list[DeclaredEdge]:
        """Return the declared dependencies of these sources."""
        if self.is_ours:
            sql = f"SELECT {_OWN_COLUMNS} FROM json_each(?) k CROSS JOIN aptui_edges e ON e.source_id = k.value"
        else:
            sql = f"""SELECT {_FOREIGN_COLUMNS} FROM json_each(?) k CROSS JOIN Sources m ON m.SourceID = k.value
                CROSS JOIN SourceDependency d ON d.SourceGuid = m.SourceGuid"""
        return list(self._rows(f"{sql} ORDER BY 1, 4, 3", json.dumps(list(ids))))

    def read_declared_on(self, targets: Collection[str]) -> list[DeclaredEdge]:
        """Return the dependencies that name one of these paths (lower case) or UUIDs (hex).

        Dependencies on patterns are left out; `patterns` returns them.
        """
        if self.is_ours:
            sql = f"SELECT {_OWN_COLUMNS} FROM json_each(?) k CROSS JOIN aptui_edges e ON e.target = k.value WHERE e.kind <> 1"
            return list(self._rows(f"{sql} ORDER BY 1, 4, 3", json.dumps(list(targets))))
        sql = f"""SELECT {_FOREIGN_COLUMNS} FROM json_each(?) k CROSS JOIN SourceDependency d ON d.DependsOnSource = k.value
            CROSS JOIN Sources m ON m.SourceGuid = d.SourceGuid WHERE d.TypeOfDependency & {_WILDCARD_BIT} = 0 ORDER BY 1, 4, 3"""
        return list(self._rows(sql, json.dumps([form for target in targets for form in self._forms(target)])))

    def patterns(self) -> list[DeclaredEdge]:
        """Return every dependency on a pattern."""
        if self._patterns is None:
            if self.is_ours:
                sql = f"SELECT {_OWN_COLUMNS} FROM aptui_edges e WHERE e.kind = 1"
            else:
                sql = f"""SELECT {_FOREIGN_COLUMNS} FROM SourceDependency d JOIN Sources m ON m.SourceGuid = d.SourceGuid
                    WHERE d.TypeOfDependency IN (4, 5, 6, 7)"""
            self._patterns = list(self._rows(f"{sql} ORDER BY 1, 4"))
        return self._patterns

    def _rows(self, sql: str, *values: str) -> Iterator[DeclaredEdge]:
        rows = self._ask(sql, values)
        if self.is_ours:
            return (DeclaredEdge(source, builder, EdgeKind(kind), target) for source, builder, kind, target in rows)
        return (self._foreign(*row) for row in rows)

    def _foreign(self, source: int, builder: bytes, bits: int, text: str) -> DeclaredEdge:
        if bits & _WILDCARD_BIT:  # O3DE stores the wildcard `*` as `%`, as in SQL
            return DeclaredEdge(source, builder, EdgeKind.WILDCARD, text.lower().replace("%", "*"))
        parsed = parse_asset_id(text)
        if parsed is not None:
            return DeclaredEdge(source, builder, EdgeKind.UUID, parsed[0].hex())
        path = text.lower().replace("\\", "/")
        root = next((root for root in self._roots if path.startswith(root)), "")
        return DeclaredEdge(source, builder, EdgeKind.JOB if bits & _JOB_BIT else EdgeKind.PATH, path[len(root) :])

    def _forms(self, target: str) -> Iterator[str]:
        """Yield the forms in which O3DE may have written a target."""
        yield target
        parsed = parse_asset_id(target)
        if parsed is None:
            yield from (root + target for root in self._roots)
        else:
            braced = uuid_text(parsed[0])  # in capital or small letters, because queries of `DependsOnSource` ignore case
            yield from (braced[1:-1], braced)

    # ------------------------------------------------------------------------------------------------------------- targets

    def sources_of(self, declared: Iterable[DeclaredEdge]) -> dict[tuple[EdgeKind, str], list[int]]:
        """Return {(kind, target): the sources that the target names}; targets that are not sources are left out."""
        kinds: dict[EdgeKind, dict[str, None]] = {}
        for edge in declared:
            kinds.setdefault(edge.kind, {})[edge.target] = None
        found: dict[tuple[EdgeKind, str], list[int]] = {}
        for kind, targets in kinds.items():
            if kind is EdgeKind.WILDCARD:
                answer = {target: self.matching(target) for target in targets}
            elif kind is EdgeKind.UUID:
                answer = self._by_uuid(list(targets))
            else:
                answer = self.by_path(targets)
            found.update(((kind, target), ids) for target, ids in answer.items() if ids)
        return found

    def by_path(self, paths: Iterable[str]) -> dict[str, list[int]]:
        """Return {path in lower case: the ids of the sources with this path}."""
        if self.is_ours:
            sql = "SELECT k.value, o.source_id FROM json_each(?) k CROSS JOIN aptui_sources o ON o.path_key = k.value ORDER BY 2"
        else:
            sql = "SELECT k.value, s.SourceID FROM json_each(?) k CROSS JOIN Sources s ON s.SourceName = k.value ORDER BY 2"
        return group_rows(self._ask(sql, (json.dumps(list(paths)),)))

    def _by_uuid(self, texts: Sequence[str]) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for column, sql in _UUIDS_SQL:
            wanted = [text for text in texts if text not in found]
            rows: list[tuple[str, int]] = []
            for at in range(0, len(wanted), _IN_ONE):
                uuids = [bytes.fromhex(text) for text in wanted[at : at + _IN_ONE]]
                marks = ", ".join("?" * len(uuids))
                rows += [(uuid.hex(), number) for uuid, number in self._ask(f"{sql} WHERE {column} IN ({marks}) ORDER BY 2", uuids)]
            found.update(group_rows(rows))
        return found

    def matching(self, pattern: str) -> list[int]:
        """Return the sources whose path matches a pattern in lower case."""
        known = self._matches.get(pattern)
        if known is None:
            matches = wildcard(pattern).fullmatch
            known = [number for number, path in self._below(literal_prefix(pattern)) if matches(path)]
            self._matches[pattern] = known
        return known

    def files_matching(self, pattern: str) -> list[str]:
        """Return the recorded files whose path matches a pattern in lower case, whether they are sources or not."""
        prefix, matches = literal_prefix(pattern), wildcard(pattern).fullmatch
        rows = self._ask(
            "SELECT scan_folder_id, files FROM aptui_folders WHERE ? = '' OR folder = ? OR (folder >= ? AND folder < ?)",
            (prefix, prefix[:-1], prefix, f"{prefix[:-1]}0"),
        ).fetchall()
        return sorted({fact.rel for part, data in rows for fact in unpack_files(data, part) if matches(fact.rel.lower())})

    def _below(self, prefix: str) -> Iterable[tuple[int, str]]:
        sql = "SELECT source_id, path_key AS path FROM aptui_sources"
        if not self.is_ours:
            sql = "SELECT SourceID, lower(SourceName) AS path FROM Sources"
        if prefix:  # "0" follows "/" in ASCII, so the range has every path below the folder
            return self._ask(f"{sql} WHERE path >= ? AND path < ? ORDER BY 2, 1", (prefix, prefix[:-1] + "0"))
        return self._ask(f"{sql} ORDER BY 2, 1")

    def names_of(self, ids: Collection[int]) -> dict[int, list[str]]:
        """Return {source id: [its path in lower case, its UUIDs in hex]}: the targets with which other sources depend on it."""
        sql = """SELECT s.SourceID, COALESCE(o.path_key, lower(s.SourceName)), s.SourceGuid, l.uuid FROM json_each(?) k
            CROSS JOIN Sources s ON s.SourceID = k.value LEFT JOIN aptui_sources o ON o.source_id = s.SourceID
            LEFT JOIN aptui_legacy l ON l.source_id = s.SourceID"""
        found: dict[int, list[str]] = {}
        for number, path, *uuids in self._ask(sql, (json.dumps(list(ids)),)):
            names = found.setdefault(number, [path])
            names += [uuid.hex() for uuid in uuids if uuid is not None and uuid.hex() not in names]
        return found


# These queries return the dependencies between sources, with file names as on disk. `features.shipping.findings` compares the
# dependencies with the texts of sources.

_NEEDS_SQL = """
SELECT s.ScanFolderPK, s.SourceName, n.ScanFolderPK, n.SourceName FROM aptui_edges e
    JOIN Sources s ON s.SourceID = e.source_id
    JOIN aptui_sources o ON o.path_key = e.target JOIN Sources n ON n.SourceID = o.source_id
WHERE ? IN ('', s.SourceName)
UNION
SELECT s.ScanFolderPK, s.SourceName, n.ScanFolderPK, n.SourceName FROM ProductDependencies d
    JOIN Products p ON p.ProductID = d.ProductPK JOIN Jobs j ON j.JobID = p.JobPK
    JOIN Sources s ON s.SourceID = j.SourcePK JOIN Sources n ON n.SourceGuid = d.DependencySourceGuid
WHERE d.UnresolvedPath = '' AND ? IN ('', s.SourceName)
UNION
SELECT s.ScanFolderPK, s.SourceName, 0, e.target FROM aptui_edges e
    JOIN Sources s ON s.SourceID = e.source_id
    LEFT JOIN aptui_sources o ON o.path_key = e.target
WHERE e.kind = 0 AND o.source_id IS NULL AND ? IN ('', s.SourceName)
ORDER BY 2, 1, 4, 3"""
_SAME_BUT_FOR_CASE_SQL = """
SELECT p.ProductName, s.SourceName FROM Products p JOIN Jobs j ON j.JobID = p.JobPK JOIN Sources s ON s.SourceID = j.SourcePK
WHERE lower(p.ProductName) IN (SELECT lower(ProductName) FROM Products GROUP BY lower(ProductName) HAVING COUNT(*) > 1)
ORDER BY lower(p.ProductName), p.ProductName"""


class NeededSource(Struct, frozen=True):
    """A source that another source needs: `root` is the path of its scan folder, `path` has the case of the file name on disk."""

    root: str
    path: str


class NamedSource(Struct, frozen=True):
    """A source that needs other sources (`needs`); `root` is the path of its scan folder.

    `files` has the paths (in lower case) of its dependencies that are not sources.
    """

    root: str
    source: str
    needs: tuple[NeededSource, ...]
    files: tuple[str, ...]


def find_named_sources(reader: Reader, only: str = "") -> Iterator[NamedSource]:
    """Yield every source that depends on other sources, by its own dependencies or those of its products.

    Args:
        only: yield only the source at this path; "" = all sources.
    """
    roots = reader.folder_paths()
    for (folder, source), rows in groupby(reader.ask(_NEEDS_SQL, (only,) * 3), key=itemgetter(0, 1)):
        others = [row[2:] for row in rows if row[3] != source]
        needs = tuple(NeededSource(roots[number], path) for number, path in others if number)
        if needs:
            yield NamedSource(roots[folder], source, needs, tuple(path for number, path in others if not number))


def list_same_but_for_case(reader: Reader) -> list[tuple[str, str]]:
    """Return (product, source) of products whose names differ only in case."""
    return [(name, source) for name, source in reader.ask(_SAME_BUT_FOR_CASE_SQL)]


class AssetDependency(Struct, frozen=True):
    """A product dependency.

    `product_id` is the other product, 0 = it does not exist; `source_uuid` and `sub_id` are its asset id; `has_more`
    (0 or 1): the other product has dependencies.
    """

    product_id: int
    name: str
    source_uuid: bytes
    sub_id: int
    flags: int
    has_more: int = 0


class UnmetPath(Struct, frozen=True):
    """A declared path that does not name exactly one product.

    Either no product has this path, or the path contains a `*`, or the path is an exclusion (which is not a dependency).
    """

    path: str
    kind: LinkKind
    flags: int
    is_exclusion: bool

    @property
    def is_wildcard(self) -> bool:
        """Whether the path has a `*`; such a path names all products that it matches, and so is never unmet."""
        return "*" in self.path


# -------------------------------------------------------------------------------------------- dependencies of one product

_HAS_MORE = "EXISTS (SELECT 1 FROM ProductDependencies m WHERE m.ProductPK = p.ProductID)"
_OUT_SQL = f"""SELECT COALESCE(p.ProductID, 0), COALESCE(p.ProductName, ''), d.DependencySourceGuid, d.DependencySubID,
    d.DependencyFlags, {_HAS_MORE} FROM ProductDependencies d
    LEFT JOIN (Sources s CROSS JOIN Jobs j ON j.SourcePK = s.SourceID CROSS JOIN Products p ON p.JobPK = j.JobID)
        ON s.SourceGuid = d.DependencySourceGuid AND j.Platform = d.Platform AND +p.SubID = d.DependencySubID
    WHERE d.ProductPK = ? AND d.UnresolvedPath = '' ORDER BY 2, d.DependencySourceGuid, d.DependencySubID, 1"""
_IN_SQL = f"""SELECT p.ProductID, p.ProductName, o.SourceGuid, p.SubID, d.DependencyFlags, {_HAS_MORE}
    FROM Products t CROSS JOIN Jobs j ON j.JobID = t.JobPK CROSS JOIN Sources s ON s.SourceID = j.SourcePK
    CROSS JOIN ProductDependencies d ON d.DependencySourceGuid = s.SourceGuid AND d.DependencySubID = t.SubID
    AND d.UnresolvedPath = '' CROSS JOIN Products p ON p.ProductID = d.ProductPK CROSS JOIN Jobs k ON k.JobID = p.JobPK
    CROSS JOIN Sources o ON o.SourceID = k.SourcePK WHERE t.ProductID = ? AND d.Platform = j.Platform ORDER BY 2, 1"""


def outgoing(reader: Reader, product_id: int) -> list[AssetDependency]:
    """Return the direct dependencies of a product, on its own platform."""
    return [AssetDependency(*row) for row in reader.ask(_OUT_SQL, (product_id,))]


def incoming(reader: Reader, product_id: int) -> list[AssetDependency]:
    """Return the dependencies of other products on this product; each record names the product that needs this one.

    Without our index, as in a database of O3DE, a query takes 0.1 s with a million products.
    """
    return [AssetDependency(*row) for row in reader.ask(_IN_SQL, (product_id,))]


def unmet_paths(reader: Reader, product_id: int) -> list[UnmetPath]:
    """Return the path dependencies of a product that are not resolved to one product: unmet, with `*`, and exclusions."""
    sql = """SELECT UnresolvedPath, UnresolvedDependencyType, DependencyFlags FROM ProductDependencies
        WHERE ProductPK = ? AND UnresolvedPath <> '' ORDER BY 1, 2"""
    return [
        UnmetPath(path.removeprefix(EXCLUSION_SIGN), LinkKind(kind), flags, path.startswith(EXCLUSION_SIGN))
        for path, kind, flags in reader.ask(sql, (product_id,))
    ]


def unmet_counts(reader: Reader, product_id: int) -> tuple[int, int]:
    """Return how many dependencies of a product are unmet: by asset id, and by exact path."""
    by_id = sum(1 for item in outgoing(reader, product_id) if not item.product_id)
    by_path = sum(1 for item in unmet_paths(reader, product_id) if not (item.is_wildcard or item.is_exclusion))
    return by_id, by_path


# ---------------------------------------------------------------------------------------------- dependencies of all products


def preloading(reader: Reader) -> set[int]:
    """Return the products that load another product before themselves."""
    sql = f"""SELECT DISTINCT ProductPK FROM ProductDependencies
        WHERE UnresolvedPath = '' AND DependencyFlags & {LOAD_MASK} = {PRE_LOAD}"""
    return {product_id for (product_id,) in reader.ask(sql)}


def find_preloaded(reader: Reader, product_ids: Collection[int]) -> dict[int, list[int]]:
    """Return {product: products that it loads before itself}, for each of `product_ids` that loads other products before itself."""
    sql = f"""SELECT d.ProductPK, p.ProductID FROM json_each(?) k CROSS JOIN ProductDependencies d ON d.ProductPK = k.value
        CROSS JOIN Sources s ON s.SourceGuid = d.DependencySourceGuid CROSS JOIN Jobs j ON j.SourcePK = s.SourceID
        CROSS JOIN Products p ON p.JobPK = j.JobID
        WHERE d.UnresolvedPath = '' AND d.DependencyFlags & {LOAD_MASK} = {PRE_LOAD} AND j.Platform = d.Platform
            AND +p.SubID = d.DependencySubID"""
    return group_rows(reader.ask(sql, (json.dumps(sorted(product_ids)),)))


def names_of(reader: Reader, product_ids: Collection[int]) -> dict[int, str]:
    """Return {product: its name}."""
    sql = "SELECT p.ProductID, p.ProductName FROM json_each(?) k CROSS JOIN Products p ON p.ProductID = k.value"
    return dict(reader.ask(sql, (json.dumps(sorted(product_ids)),)).fetchall())


# ---------------------------------------------------------------------------------------------------------------- catalog


_NEEDS = """(SELECT group_concat(item, ' ') FROM (
    SELECT hex(d.DependencySourceGuid) || ' ' || d.DependencySubID || ' ' || d.DependencyFlags AS item FROM ProductDependencies d
    WHERE d.ProductPK = p.ProductID AND d.UnresolvedPath = ''
    ORDER BY d.DependencySourceGuid, d.DependencySubID, d.DependencyFlags))"""
_FORMER = """(SELECT group_concat(SubID, ' ') FROM (
    SELECT l.SubID FROM LegacySubIDs l WHERE l.ProductPK = p.ProductID ORDER BY l.SubID))"""
_CATALOG_SQL = f"""SELECT s.SourceGuid, p.SubID, p.ProductName, p.AssetType, o.size, o.digest, {{needs}}, {{former}}
    FROM Products p CROSS JOIN Jobs j ON j.JobID = p.JobPK CROSS JOIN Sources s ON s.SourceID = j.SourcePK
    CROSS JOIN aptui_products o ON o.product_id = p.ProductID
    WHERE p.ProductName >= ? AND p.ProductName <= ? AND p.Flags & {int(ProductFlag.INTERMEDIATE)} = 0
    ORDER BY p.ProductName, p.ProductID"""


def catalog_rows(
    reader: Reader, platform: str, name: str = ""
) -> Iterator[tuple[bytes, int, str, bytes, int, bytes, str | None, str | None]]:
    """Yield the products of a platform for its catalog, by name, without intermediates; with `name`, only the product of this name.

    A row is (UUID of the source, sub id, name, asset type, size, digest, needed products, former sub ids). The needed products are
    one text: UUID in hex, sub id and flags of each product, all separated by blanks. The former sub ids are separated by blanks,
    too. Both texts are None instead of empty.
    """
    sql = _CATALOG_SQL.format(
        needs=_NEEDS if _has_rows(reader, "ProductDependencies") else "NULL",
        former=_FORMER if _has_rows(reader, "LegacySubIDs") else "NULL",
    )
    bounds = (name, name) if name else (f"{platform}/", f"{platform}/\U0010ffff")
    yield from reader.ask(sql, bounds)


def _has_rows(reader: Reader, table: str) -> bool:
    return reader.ask(f"SELECT 1 FROM {table} LIMIT 1").fetchone() is not None

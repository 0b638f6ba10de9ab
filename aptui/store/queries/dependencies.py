"""Direct product dependencies for the engine, the catalog and the asset panels; `asset_graph` finds indirect dependencies.

Every query reads `ProductDependencies` (made by `db.product_links`) and uses an index.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator

from msgspec import Struct

from aptui.core.links import LOAD_MASK, PRE_LOAD
from aptui.core.model import LinkKind, ProductFlag
from aptui.store.db.product_links import EXCLUSION_SIGN
from aptui.store.queries.reader import Reader

_CHUNK = 2_000


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

    Either no product has the path, or it has a `*`, or it is an exclusion (which is not a dependency).
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
    """Return the dependencies on a product, on its own platform; each record names the product that needs it.

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
    found: dict[int, list[int]] = {}
    ids = sorted(product_ids)
    for at in range(0, len(ids), _CHUNK):
        for owner, target in reader.ask(sql, (json.dumps(ids[at : at + _CHUNK]),)):
            found.setdefault(owner, []).append(target)
    return found


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
    """Yield the products of a platform, or the one called `name`, for its catalog, by name, without intermediates.

    Each is (UUID of its source, sub id, name, asset type, size, digest, needs, former sub ids); needs are `UUID in hex, sub id,
    flags` one after another with a blank between all of them, and None if the product needs none.
    """
    sql = _CATALOG_SQL.format(
        needs=_NEEDS if _has_rows(reader, "ProductDependencies") else "NULL",
        former=_FORMER if _has_rows(reader, "LegacySubIDs") else "NULL",
    )
    bounds = (name, name) if name else (f"{platform}/", f"{platform}/\U0010ffff")
    yield from reader.ask(sql, bounds)


def _has_rows(reader: Reader, table: str) -> bool:
    return reader.ask(f"SELECT 1 FROM {table} LIMIT 1").fetchone() is not None

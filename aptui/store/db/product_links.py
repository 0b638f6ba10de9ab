"""Fills the table `ProductDependencies`: resolves the declared links (`aptui_product_links`) to existing products.

The writer updates the table at the end of each transaction that changes links, products or identities of sources. So both tables
always agree, and the rows do not depend on the order in which products were added.

The rules, as in O3DE's `PathDependencyManager.cpp`:

* a link by asset id has one row, whether that product exists or not;
* a link by an exact path has one row for each product at that path, or one unmet row if no product exists;
* a link by a path with `*` has a row of its own, and one more row for each product that it matches;
* an exclusion has a row of its own, and removes matches from the links with `*` of the same product;
* if several links of a product name the same other product, only one of them gives a row: the link by asset id, or else the first
  link;
* a product has no row for itself or for another platform, and a path never names an intermediate.

The cost depends on the number of changes. For an added or removed product, exact links are found by its path, and links with `*` by
the folders above it. Even if many products declare the same pattern, it is compared only once. Existing rows that refer to the
product are found by its asset id.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, cast

from aptui.core.messages import Rows
from aptui.core.model import DUPLICATE_MARK, LinkKind, ProductFlag
from aptui.core.paths import LOAD_MASK, PRE_LOAD
from aptui.core.patterns import is_like, literal_prefix
from aptui.store.db.change_log import MOST_NAMES, Touched
from aptui.store.db.schema import CATALOG_STATE
from aptui.store.db.statements import query_ids

NO_UUID = bytes(16)
EXCLUSION_SIGN = ":"
"""First character of `UnresolvedPath` in the row of an exclusion."""
_MOST_UUIDS = 2_000
"""Maximum number of UUIDs in one query; they cannot be in one JSON parameter, because JSON cannot contain blobs."""
_KIND, _PATH, _PREFIX = 3, 5, 6
"""Columns of "put_link"."""


class LinkTarget(NamedTuple):
    """A product with the attributes that links can refer to; `path` is without the platform, `source` is the key of its source."""

    guid: bytes
    sub_id: int
    platform: str
    path: str
    source: str


class _Pattern(NamedTuple):
    kind: int
    platform: str
    prefix: str
    path: str


_Known = dict[tuple[int, str, str], list[str]]
"""{(kind, platform, folder): the patterns that can match only below that folder}; filled as patterns are read."""


def canonical(database: sqlite3.Connection, uuid: bytes) -> bytes:
    """Return the present UUID of the source with the UUID `uuid`; an unknown UUID is returned unchanged."""
    row = database.execute(_CANONICAL, {"uuid": uuid}).fetchone()
    return row[0] if row else uuid


# ---------------------------------------------------------------------------------------------------------------------- SQL

_CANONICAL = """
SELECT :uuid FROM Sources WHERE SourceGuid = :uuid
UNION ALL SELECT * FROM (SELECT s.SourceGuid FROM aptui_legacy l JOIN Sources s ON s.SourceID = l.source_id
    WHERE l.uuid = :uuid ORDER BY s.ScanFolderPK, l.created_ms)
LIMIT 1"""
_SCRATCH = """
CREATE TEMP TABLE touched_ids(guid BLOB, sub_id INTEGER, platform TEXT, PRIMARY KEY(guid, sub_id, platform)) WITHOUT ROWID;
CREATE TEMP TABLE touched_places(kind INTEGER, platform TEXT, path TEXT, PRIMARY KEY(kind, platform, path)) WITHOUT ROWID;
CREATE TEMP TABLE fresh_owners(product_id INTEGER PRIMARY KEY);
CREATE TEMP TABLE link_targets(guid BLOB, sub_id INTEGER, platform TEXT, path TEXT, source TEXT);
CREATE TEMP TABLE found_links(
    product_id INTEGER, at INTEGER, flags INTEGER, guid BLOB, sub_id INTEGER, platform TEXT, path TEXT, source TEXT,
    is_wild INTEGER);
"""
_SCRATCH_TABLES = ("touched_ids", "touched_places", "fresh_owners", "link_targets", "found_links")
_NO_INTERMEDIATE = f"p.Flags & {int(ProductFlag.INTERMEDIATE)} = 0"
_PATH_SQL = "substr(p.ProductName, length(j.Platform) + 2)"
_TARGET = f"s.SourceGuid, p.SubID, j.Platform, {_PATH_SQL}, o.path_key"
_TARGET_JOIN = "CROSS JOIN Sources s ON s.SourceID = j.SourcePK CROSS JOIN aptui_sources o ON o.source_id = s.SourceID"
_OF_PRODUCTS = f"""SELECT p.ProductID, {_TARGET} FROM json_each(?) k CROSS JOIN Products p ON p.ProductID = k.value
    CROSS JOIN Jobs j ON j.JobID = p.JobPK {_TARGET_JOIN} WHERE {_NO_INTERMEDIATE}"""
_ROW = """INSERT INTO ProductDependencies(ProductPK, DependencySourceGuid, DependencySubID, Platform, DependencyFlags,
    UnresolvedPath, UnresolvedDependencyType, FromAssetId)"""
_FORGET_RESOLVED = """DELETE FROM ProductDependencies WHERE ProductDependencyID IN (
    SELECT d.ProductDependencyID FROM touched_ids t CROSS JOIN ProductDependencies d
        ON d.DependencySourceGuid = t.guid AND d.DependencySubID = t.sub_id AND d.UnresolvedPath = ''
    WHERE d.Platform = t.platform AND d.FromAssetId = 0)"""
_OWNERS_BEFORE = f"""SELECT DISTINCT d.ProductPK FROM touched_ids t CROSS JOIN ProductDependencies d
    ON d.DependencySourceGuid = t.guid AND d.DependencySubID = t.sub_id AND d.UnresolvedPath = ''
    WHERE d.Platform = t.platform AND d.FromAssetId = 0 LIMIT {MOST_NAMES + 1}"""
_OWNERS_AFTER = f"""SELECT DISTINCT product_id FROM found_links WHERE product_id NOT IN (SELECT product_id FROM fresh_owners)
    LIMIT {MOST_NAMES + 1}"""
_FIND_TARGETS = f"""INSERT INTO link_targets SELECT {_TARGET} FROM touched_ids t CROSS JOIN Sources s ON s.SourceGuid = t.guid
    CROSS JOIN aptui_sources o ON o.source_id = s.SourceID CROSS JOIN Jobs j ON j.SourcePK = s.SourceID
    CROSS JOIN Products p ON p.JobPK = j.JobID WHERE j.Platform = t.platform AND +p.SubID = t.sub_id AND {_NO_INTERMEDIATE}"""
_BY_PLACE = "INDEXED BY aptui_product_links_path ON l.prefix IS NULL AND l.is_exclusion = 0"
_FOUND_BY_PLACE = f"""INSERT INTO found_links SELECT l.product_id, l.at, l.flags, t.guid, t.sub_id, t.platform, t.path, t.source, 0
    FROM link_targets t CROSS JOIN aptui_product_links l {_BY_PLACE}
    AND l.path = CASE :kind WHEN {int(LinkKind.SOURCE_FILE)} THEN t.source ELSE t.path END AND l.kind = :kind
        AND l.platform = t.platform"""
_BY_PREFIX = """FROM aptui_product_links l INDEXED BY aptui_product_links_prefix
    WHERE l.prefix IS NOT NULL AND l.is_exclusion = 0 AND l.prefix = :prefix AND l.kind = :kind AND l.platform = :platform"""
# Each step of this query goes to the next different pattern in the index, so a pattern of ten thousand products is read once.
_PATTERNS = f"""WITH RECURSIVE patterns(path) AS (
    SELECT (SELECT l.path {_BY_PREFIX} ORDER BY l.path LIMIT 1)
    UNION ALL SELECT (SELECT l.path {_BY_PREFIX} AND l.path > patterns.path ORDER BY l.path LIMIT 1) FROM patterns
        WHERE patterns.path IS NOT NULL)
    SELECT path FROM patterns WHERE path IS NOT NULL"""
_IS_NAMED = f"""SELECT EXISTS (SELECT 1 FROM ProductDependencies d
        WHERE d.DependencySourceGuid = :guid AND d.DependencySubID = :sub_id AND d.UnresolvedPath = '')
    OR EXISTS (SELECT 1 FROM aptui_product_links l INDEXED BY aptui_product_links_path WHERE l.prefix IS NULL AND l.is_exclusion = 0
        AND l.path = :path AND l.kind = {int(LinkKind.PRODUCT_FILE)} AND l.platform = :platform)
    OR EXISTS (SELECT 1 FROM aptui_product_links l INDEXED BY aptui_product_links_path WHERE l.prefix IS NULL AND l.is_exclusion = 0
        AND l.path = :source AND l.kind = {int(LinkKind.SOURCE_FILE)} AND l.platform = :platform)"""
_FOUND_BY_PATTERN = f"""INSERT INTO found_links
    SELECT l.product_id, l.at, l.flags, :guid, :sub_id, :platform, :path, :source, 1 {_BY_PREFIX} AND l.path = :pattern"""

_FRESH = "FROM fresh_owners f CROSS JOIN aptui_product_links l ON l.product_id = f.product_id"
_FRESH_ASSETS = f"""SELECT l.product_id, l.source_guid, l.sub_id, l.platform, l.flags {_FRESH}
    WHERE l.kind = {int(LinkKind.ASSET)} ORDER BY 1, l.at"""
_ASSETS_OF = f"""SELECT product_id, source_guid, sub_id, platform, flags FROM aptui_product_links
WHERE product_id = ? AND kind = {int(LinkKind.ASSET)} ORDER BY at"""
_UUIDS_OF_SOURCES = """WITH k(value) AS (SELECT value FROM json_each(?))
SELECT s.SourceGuid FROM k JOIN Sources s ON s.SourceID = k.value
UNION SELECT l.uuid FROM k JOIN aptui_legacy l ON l.source_id = k.value"""
_FRESH_BY_NAME = f"""INSERT INTO found_links SELECT l.product_id, l.at, l.flags, s.SourceGuid, p.SubID, j.Platform, l.path,
    o.path_key, 0
    {_FRESH} CROSS JOIN Products p ON p.ProductName = l.platform || '/' || l.path
    CROSS JOIN Jobs j ON j.JobID = p.JobPK {_TARGET_JOIN}
    WHERE l.kind = {int(LinkKind.PRODUCT_FILE)} AND l.prefix IS NULL AND l.is_exclusion = 0 AND {_NO_INTERMEDIATE}"""
_FRESH_BY_SOURCE = f"""INSERT INTO found_links SELECT l.product_id, l.at, l.flags, s.SourceGuid, p.SubID, j.Platform,
    {_PATH_SQL}, l.path, 0
    {_FRESH} CROSS JOIN aptui_sources o ON o.path_key = l.path CROSS JOIN Sources s ON s.SourceID = o.source_id
    CROSS JOIN Jobs j ON j.SourcePK = s.SourceID CROSS JOIN Products p ON p.JobPK = j.JobID
    WHERE l.kind = {int(LinkKind.SOURCE_FILE)} AND l.prefix IS NULL AND l.is_exclusion = 0 AND j.Platform = l.platform
        AND {_NO_INTERMEDIATE}"""
_FRESH_WILDCARDS = f"""SELECT l.kind, l.platform, l.prefix, l.path, l.product_id, l.at, l.flags {_FRESH}
    WHERE l.prefix IS NOT NULL AND l.is_exclusion = 0"""
_BELOW_NAME = f"""SELECT {_TARGET} FROM Products p CROSS JOIN Jobs j ON j.JobID = p.JobPK {_TARGET_JOIN}
    WHERE p.ProductName >= ? AND p.ProductName < ? AND {_NO_INTERMEDIATE}"""
_BELOW_SOURCE = f"""SELECT {_TARGET} FROM aptui_sources o CROSS JOIN Sources s ON s.SourceID = o.source_id
    CROSS JOIN Jobs j ON j.SourcePK = s.SourceID CROSS JOIN Products p ON p.JobPK = j.JobID
    WHERE o.path_key >= ? AND o.path_key < ? AND j.Platform = ? AND {_NO_INTERMEDIATE}"""

_FORGET_EXCLUDED = f"""DELETE FROM found_links WHERE is_wild AND EXISTS (
    SELECT 1 FROM aptui_product_links e INDEXED BY aptui_product_links_exclusion
    WHERE e.product_id = found_links.product_id AND e.is_exclusion = 1
    AND aptui_matches(e.path, CASE e.kind WHEN {int(LinkKind.SOURCE_FILE)} THEN found_links.source ELSE found_links.path END))"""
_PUT_FOUND = f"""{_ROW} SELECT f.product_id, f.guid, f.sub_id, f.platform, f.flags, '', 0, 0
    FROM (SELECT product_id, guid, sub_id, platform, flags, MIN(at) AS at FROM found_links GROUP BY product_id, guid, sub_id) f
    CROSS JOIN Products p ON p.ProductID = f.product_id CROSS JOIN Jobs j ON j.JobID = p.JobPK
    CROSS JOIN Sources s ON s.SourceID = j.SourcePK
    WHERE NOT (s.SourceGuid = f.guid AND p.SubID = f.sub_id) AND NOT EXISTS (SELECT 1 FROM ProductDependencies d
        WHERE d.DependencySourceGuid = f.guid AND d.DependencySubID = f.sub_id AND d.ProductPK = f.product_id
        AND d.UnresolvedPath = '')
    ORDER BY f.product_id, f.at"""
_PRELOADERS = f"SELECT DISTINCT product_id FROM found_links WHERE flags & {LOAD_MASK} = {PRE_LOAD}"


def _format_met(place: str) -> str:
    """Return an SQL condition: the path dependency in the row `place` (a table alias) is met.

    It is met if the path names an existing product, or a source that has products.
    """
    return f"""CASE {place}.kind WHEN {int(LinkKind.PRODUCT_FILE)}
        THEN EXISTS (SELECT 1 FROM Products p WHERE p.ProductName = {place}.platform || '/' || {place}.path AND {_NO_INTERMEDIATE})
        ELSE EXISTS (SELECT 1 FROM aptui_sources o CROSS JOIN Jobs j ON j.SourcePK = o.source_id
            CROSS JOIN Products p ON p.JobPK = j.JobID
            WHERE o.path_key = {place}.path AND j.Platform = {place}.platform AND {_NO_INTERMEDIATE}) END"""


_UNMET_ROW = f"l.product_id, x'{NO_UUID.hex()}', 0, l.platform, l.flags"
_PUT_FRESH_UNMET = f"""{_ROW} SELECT {_UNMET_ROW}, iif(l.is_exclusion, '{EXCLUSION_SIGN}', '') || l.path, l.kind, 0 {_FRESH}
    WHERE l.kind <> {int(LinkKind.ASSET)} AND (l.prefix IS NOT NULL OR l.is_exclusion = 1 OR NOT {_format_met("l")})
    ORDER BY l.product_id, l.at"""
_FORGET_UNMET = """DELETE FROM ProductDependencies WHERE ProductDependencyID IN (
    SELECT d.ProductDependencyID FROM touched_places t CROSS JOIN ProductDependencies d ON d.UnresolvedPath = t.path
    WHERE d.Platform = t.platform AND d.UnresolvedDependencyType = t.kind)"""
_PUT_UNMET = f"""{_ROW} SELECT {_UNMET_ROW}, l.path, l.kind, 0 FROM touched_places t CROSS JOIN aptui_product_links l {_BY_PLACE}
    AND l.path = t.path AND l.kind = t.kind AND l.platform = t.platform WHERE NOT {_format_met("t")} ORDER BY l.product_id, l.at"""


# --------------------------------------------------------------------------------------------------------------- projection


class ProductLinkProjection:
    """Keeps `ProductDependencies` up to date in each transaction, on the writer's connection.

    As long as no product declares links, a transaction costs only one look-up in a dictionary.
    """

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        self._are_there = database.execute("SELECT 1 FROM aptui_product_links LIMIT 1").fetchone() is not None
        self._before: dict[int, LinkTarget] = {}
        self._put: set[int] = set()
        self._fresh: set[int] = set()
        self._renamed_uuids: set[bytes] = set()
        """UUIDs that may belong to other sources after this transaction than before it."""
        self.owners: set[int] | None = set()
        """Existing products whose dependency rows this transaction changed; None = too many to list."""
        self._preloaders: set[int] | None = set() if self._is_settled() else None
        database.create_function("aptui_matches", 2, _names, deterministic=True)
        database.executescript(_SCRATCH)

    def _is_settled(self) -> bool:
        """Whether the last engine finished all work after the last change of a product."""
        found = self._database.execute("SELECT 1 FROM aptui_state WHERE key = ?", (CATALOG_STATE,)).fetchone()
        return found is not None or not self._are_there

    def begin(self) -> None:
        """Begin a transaction."""
        self._before, self._put, self._fresh, self.owners = {}, set(), set(), set()
        self._renamed_uuids = set()

    def watch(self, rows: Rows, touched: Touched | None) -> None:
        """Record which product dependencies `rows` will change; called before `rows` are applied."""
        if rows.get("put_link"):
            self._are_there = True
            self._make_relative(rows)
            self._fresh.update(cast("int", row[0]) for row in rows["put_link"])
        if not self._are_there:
            return
        for product_id, target in self._targets(touched.products if touched is not None else ()):
            if product_id not in self._put:  # a product that this transaction added has no earlier state
                self._before.setdefault(product_id, target)
        self._note_uuids(rows)
        self._put.update(cast("int", row[0]) for row in rows.get("put_product", ()))

    def project(self) -> None:
        """Update `ProductDependencies` with the changes of the transaction; called before its end."""
        if self._renamed_uuids:
            self._readdress()
        if not (self._before or self._put or self._fresh):
            return
        after = dict(self._targets([*self._put, *self._before]))
        known: _Known = {}
        changed = set(self._before.values()) ^ set(after.values())
        touched = [target for target in changed if self._is_named(target, known)]
        if touched or self._fresh:
            self._clear()
            self._fill(touched)
            self._find_for_touched(known)
            self._find_for_fresh()
            self._put_rows()

    def pop_preloaders(self) -> set[int] | None:
        """Return the products whose preload dependencies may have changed since the last call; None = possibly all."""
        taken, self._preloaders = self._preloaders, set()
        return taken

    # -------------------------------------------------------------------------------------------------------- noting changes

    def _note_uuids(self, rows: Rows) -> None:
        put = [*(row[3] for row in rows.get("put_source", ())), *(row[0] for row in rows.get("put_legacy", ()))]
        self._renamed_uuids.update(cast("list[bytes]", put))
        ids = [row[0] for operation in ("put_source", "drop_source", "drop_legacy") for row in rows.get(operation, ())]
        self._renamed_uuids.update(uuid for (uuid,) in query_ids(self._database, _UUIDS_OF_SOURCES, ids))

    def _readdress(self) -> None:
        """Make the rows of asset-id links again if the UUID in the link may belong to another source now."""
        uuids = list(self._renamed_uuids)
        found: dict[int, None] = {}
        for at in range(0, len(uuids), _MOST_UUIDS):
            part = uuids[at : at + _MOST_UUIDS]
            marks = ", ".join("?" * len(part))
            sql = f"SELECT product_id FROM aptui_product_links WHERE kind = {int(LinkKind.ASSET)} AND source_guid IN ({marks})"
            found.update((product_id, None) for (product_id,) in self._database.execute(sql, part))
        owners = [product_id for product_id in found if product_id not in self._fresh]
        for product_id in owners:
            self._database.execute("DELETE FROM ProductDependencies WHERE ProductPK = ? AND FromAssetId = 1", (product_id,))
            links = self._database.execute(_ASSETS_OF, (product_id,)).fetchall()
            self._put_asset_rows(links)
        if self.owners is not None:
            self.owners.update(owners)

    def _targets(self, products: Sequence[int]) -> Iterator[tuple[int, LinkTarget]]:
        for row in query_ids(self._database, _OF_PRODUCTS, products):
            yield row[0], LinkTarget(*row[1:])

    def _make_relative(self, rows: Rows) -> None:
        """Replace absolute paths of sources in links by paths relative to their scan folders, as in all other links."""
        if not any(str(row[_PATH]).startswith("/") for row in rows["put_link"]):
            return
        folders = self._database.execute("SELECT ScanFolder FROM ScanFolders").fetchall()
        roots = sorted((f"{path.lower()}/" for (path,) in folders), key=len, reverse=True)
        rows["put_link"] = [_relative(row, roots) for row in rows["put_link"]]

    # ---------------------------------------------------------------------------------------------------------- finding links

    def _clear(self) -> None:
        for table in _SCRATCH_TABLES:
            self._database.execute(f"DELETE FROM {table}")

    def _fill(self, touched: Iterable[LinkTarget]) -> None:
        ids = {(item.guid, item.sub_id, item.platform) for item in touched}
        places = {(LinkKind.PRODUCT_FILE, item.platform, item.path) for item in touched}
        places |= {(LinkKind.SOURCE_FILE, item.platform, item.source) for item in touched}
        self._database.executemany("INSERT INTO touched_ids VALUES (?, ?, ?)", sorted(ids))
        self._database.executemany("INSERT INTO touched_places VALUES (?, ?, ?)", sorted(places))
        self._database.executemany("INSERT INTO fresh_owners VALUES (?)", [(product_id,) for product_id in sorted(self._fresh)])

    def _is_named(self, target: LinkTarget, known: _Known) -> bool:
        """Whether any link or row refers to a product; for most products none does."""
        (is_named,) = self._database.execute(_IS_NAMED, target._asdict()).fetchone()
        return bool(is_named) or any(self._patterns_for(target, known))

    def _find_for_touched(self, known: _Known) -> None:
        """Delete the rows that refer to added or removed products, then find the links to these products again.

        All products with the asset id of an added or removed product are included. Otherwise the dependency that is stored for
        this id would depend on the order in which the products were added.
        """
        self._note_owners(_OWNERS_BEFORE)
        self._database.execute(_FORGET_RESOLVED)
        self._database.execute(_FIND_TARGETS)
        for kind in (LinkKind.SOURCE_FILE, LinkKind.PRODUCT_FILE):
            self._database.execute(_FOUND_BY_PLACE, {"kind": int(kind)})
        for target in map(LinkTarget._make, self._database.execute("SELECT * FROM link_targets").fetchall()):
            for pattern in self._patterns_for(target, known):
                where = {"prefix": pattern.prefix, "kind": pattern.kind, "pattern": pattern.path}
                self._database.execute(_FOUND_BY_PATTERN, where | _with_source_path(target)._asdict())

    def _patterns_for(self, target: LinkTarget, known: _Known) -> Iterator[_Pattern]:
        for kind in (LinkKind.SOURCE_FILE, LinkKind.PRODUCT_FILE):
            text = _text_of(target, kind)
            for prefix in _prefixes(text):
                group = int(kind), target.platform, prefix
                if group not in known:
                    rows = self._database.execute(_PATTERNS, {"prefix": prefix, "kind": int(kind), "platform": target.platform})
                    known[group] = [path for (path,) in rows]
                for path in known[group]:
                    if is_like(path, text):
                        yield _Pattern(int(kind), target.platform, prefix, path)

    def _find_for_fresh(self) -> None:
        """Find the products to which new links refer."""
        if not self._fresh:
            return
        self._database.execute(_FRESH_BY_NAME)
        self._database.execute(_FRESH_BY_SOURCE)
        owners: dict[_Pattern, list[tuple[int, int, int]]] = {}
        for kind, platform, prefix, path, *owner in self._database.execute(_FRESH_WILDCARDS).fetchall():
            owners.setdefault(_Pattern(kind, platform, prefix, path), []).append(cast("tuple[int, int, int]", tuple(owner)))
        for pattern, wanting in owners.items():
            for target in self._below(pattern):
                if is_like(pattern.path, _text_of(target, LinkKind(pattern.kind))):
                    rows = ((*owner, *_with_source_path(target), 1) for owner in wanting)
                    self._database.executemany("INSERT INTO found_links VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)

    def _below(self, pattern: _Pattern) -> list[LinkTarget]:
        """Return the products in the folders where a pattern can match."""
        if pattern.kind == LinkKind.PRODUCT_FILE:
            start = f"{pattern.platform}/{pattern.prefix}"
            # "0" follows "/" in ASCII, so the range has every key below the folder.
            rows = self._database.execute(_BELOW_NAME, (start, f"{start[:-1]}0"))
        else:
            end = f"{pattern.prefix[:-1]}0" if pattern.prefix else "\U0010ffff"
            rows = self._database.execute(_BELOW_SOURCE, (pattern.prefix, end, pattern.platform))
        return [LinkTarget(*row) for row in rows.fetchall()]

    # ------------------------------------------------------------------------------------------------------------------- rows

    def _put_rows(self) -> None:
        self._database.execute(_FORGET_EXCLUDED)
        self._note_owners(_OWNERS_AFTER)
        preloaders = {product_id for (product_id,) in self._database.execute(_PRELOADERS)}
        if self._fresh:
            preloaders |= self._put_asset_rows(self._database.execute(_FRESH_ASSETS).fetchall())
            self._database.execute(_PUT_FRESH_UNMET)
        self._database.execute(_PUT_FOUND)
        self._database.execute(_FORGET_UNMET)
        self._database.execute(_PUT_UNMET)
        if self._preloaders is not None:
            self._preloaders |= preloaders

    def _note_owners(self, sql: str) -> None:
        if self.owners is not None:
            self.owners.update(owner for (owner,) in self._database.execute(sql))
            if len(self.owners) > MOST_NAMES:
                self.owners = None

    def _put_asset_rows(self, links: Iterable[tuple[int, bytes, int, str, int]]) -> set[int]:
        rows: dict[tuple[int, bytes, int], tuple[object, ...]] = {}
        for product_id, uuid, sub_id, platform, flags in links:
            guid = canonical(self._database, uuid)
            rows.setdefault((product_id, guid, sub_id), (product_id, guid, sub_id, platform, flags))
        self._database.executemany(f"{_ROW} VALUES (?, ?, ?, ?, ?, '', 0, 1)", rows.values())
        return {product_id for (product_id, *_rest), row in rows.items() if cast("int", row[4]) & LOAD_MASK == PRE_LOAD}


def _relative(row: tuple[object, ...], roots: Sequence[str]) -> tuple[object, ...]:
    path = str(row[_PATH])
    root = next((root for root in roots if path.startswith(root)), "")
    if not root or row[_KIND] != LinkKind.SOURCE_FILE:
        return row
    path = path.removeprefix(root)
    prefix = None if row[_PREFIX] is None else literal_prefix(path)
    return (*row[:_PATH], path, prefix, *row[_PREFIX + 1 :])


def _text_of(target: LinkTarget, kind: LinkKind) -> str:
    """Return the path of `target` that patterns are compared with: the source's path for `SOURCE_FILE`, else the product's path."""
    return target.source.partition(DUPLICATE_MARK)[0] if kind is LinkKind.SOURCE_FILE else target.path


def _with_source_path(target: LinkTarget) -> LinkTarget:
    """Return a copy of the target whose `source` is the path of the source, not its key."""
    return target._replace(source=_text_of(target, LinkKind.SOURCE_FILE))


def _prefixes(path: str) -> Iterator[str]:
    """Yield the folders above a path, each with its final slash, and "" for the top folder."""
    yield ""
    at = path.find("/")
    while at >= 0:
        yield path[: at + 1]
        at = path.find("/", at + 1)


def _names(path: str, text: str) -> bool:
    """Whether the path of an exclusion matches `text`; called by SQL."""
    return is_like(path, text) if "*" in path else path == text

"""Queries and rows of the search for missing product dependencies: products to scan, known assets, declared and found references.

Names are looked up in batches of hundreds, through an index; single names are never looked up.

Tests: `tests/features/shipping/test_name_scanner.py`.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import ClassVar, NamedTuple, TypeVar

from msgspec import Struct, field

from aptui.core.patterns import wildcard
from aptui.features.shipping.name_scanner import SCANNER, VERSION, Names
from aptui.link.port import FeatureRequest
from aptui.store.queries.assets import INTERMEDIATE_FLAG, NOTHING_MISSING, parse_asset_id
from aptui.store.queries.reader import Reader


class ScanMissing(FeatureRequest, frozen=True):
    """Search for missing dependencies in the products that `choose_scanned` returns for these patterns and ids.

    Refused while work is pending or another search runs; `name` describes the products in progress notices. Answered at the end
    with {files, done, read, flawed, hits, failed, partial, ignored, seconds, is_given_up, complaints: […]}.
    """

    wire_name: ClassVar = "scan_missing"
    patterns: tuple[str, ...] = ()
    product_ids: tuple[int, ...] = ()
    max_matches: int = 800
    name: str = ""


class ClearMissing(FeatureRequest, frozen=True):
    """Delete the missing dependencies that were found in these products. Answered with {count}."""

    wire_name: ClassVar = "clear_missing"
    patterns: tuple[str, ...] = ()
    product_ids: tuple[int, ...] = ()


NO_UUID = bytes(16)
"""The UUID of rows that only report the outcome of a scan."""
NOTHING = NOTHING_MISSING
UNREADABLE = "The file could not be opened."
BROKEN = "An error occured, see log for details."
PARTIAL = "partially scanned: a line has too many names"
"""Texts of rows that report the outcome of a scan. The first three texts are O3DE's, including a misspelled word."""
_AT_ONCE = 500
_NAMES_AT_ONCE = 5000
_FOLDERS_MAX = 64
"""Maximum number of folders that are tried as the missing first folder of a name.

Each folder needs one lookup per name. If a platform has more folders, none of them is tried.
"""
_CONDITIONS_AT_ONCE = 100
"""Number of patterns in a query; SQLite refuses an expression with more than 1,000 levels, and each `OR` is a level."""
_EXTENSION = "substr({0}, length(rtrim({0}, replace({0}, '.', ''))) + 1)"
_REAL = f"(p.Flags & {INTERMEDIATE_FLAG}) = 0"
_OF_PRODUCT = "JOIN Jobs j ON j.JobID = p.JobPK JOIN Sources s ON s.SourceID = j.SourcePK"
_INNER = "substr(p.ProductName, instr(p.ProductName, '/') + 1)"
_PLATFORM = "substr(p.ProductName, 1, instr(p.ProductName, '/') - 1)"
# For speed, the queries choose products without a join, and then join the other tables only for the chosen products.
_JOBS_OF = (
    "SELECT j.JobID FROM Sources s JOIN aptui_sources w ON w.source_id = s.SourceID JOIN Jobs j ON j.SourcePK = s.SourceID WHERE"
)
_CHOSEN_SQL = f"""SELECT p.ProductID, p.ProductName, COALESCE(o.digest, x''), s.SourceGuid, p.SubID, j.Platform,
    COALESCE(NULLIF(s.AnalysisFingerprint, ''), lower(hex(w.digest)), '')
FROM Products p CROSS JOIN Jobs j ON j.JobID = p.JobPK CROSS JOIN Sources s ON s.SourceID = j.SourcePK
LEFT JOIN aptui_products o ON o.product_id = p.ProductID
LEFT JOIN aptui_sources w ON w.source_id = s.SourceID WHERE {_REAL}"""

T = TypeVar("T")


class Scanned(NamedTuple):
    """A product to scan; `digest` b"" = unknown."""

    product_id: int
    name: str
    digest: bytes
    uuid: bytes
    sub_id: int
    platform: str
    fingerprint: str

    @property
    def inner(self) -> str:
        """The product's path in lower case without the platform."""
        return self.name.partition("/")[2].lower()


class MissingTarget(NamedTuple):
    """A product that a name refers to.

    `inner` is its path in lower case without the platform, `platforms` are the platforms for which the product is made.
    """

    uuid: bytes
    sub_id: int
    inner: str
    platforms: tuple[str, ...] = ()


class MissingHit(NamedTuple):
    """An undeclared reference that looks like a dependency."""

    text: str
    uuid: bytes
    sub_id: int
    product: str
    """The name of the product that the file refers to."""


class DeclaredReference(Struct):
    """The declared dependencies of a product: asset ids, the UUIDs in these ids, and paths and wildcards in lower case."""

    assets: set[tuple[bytes, int]] = field(default_factory=set)
    sources: set[bytes] = field(default_factory=set)
    paths: set[str] = field(default_factory=set)
    wildcards: list[re.Pattern[str]] = field(default_factory=list)

    def note(self, uuid: bytes, sub_id: int, path: str) -> None:
        """Add a row of ProductDependencies."""
        if "*" in path and not path.startswith(":"):
            self.wildcards.append(wildcard(path))
        elif path and not path.startswith(":"):
            self.paths.add(path.lower())
        if uuid and uuid != NO_UUID:
            self.assets.add((uuid, sub_id))
            self.sources.add(uuid)

    def has_path(self, path: str) -> bool:
        """Whether a product's path (lower case) is a declared path dependency, or matches a declared wildcard."""
        return path in self.paths or any(pattern.fullmatch(path) for pattern in self.wildcards)


class FoundName(NamedTuple):
    """A stored row of a scan, for display: a missing dependency or, if `uuid` is `NO_UUID`, the outcome of the scan."""

    product_id: int
    name: str
    text: str
    uuid: bytes
    sub_id: int
    meant: str
    scanned_s: int


# ---------------------------------------------------------------------------------------------------- products to scan


def choose_scanned(reader: Reader, patterns: Sequence[str] = (), product_ids: Sequence[int] = ()) -> list[Scanned]:
    """Return the products that match any pattern or id, sorted by name; without patterns and ids, return all products.

    Products that are only intermediates are left out.

    A pattern is one of these:

    * the name of a product or of a folder of products, with or without the platform;
    * a wildcard pattern (`*`, `?`) or a pattern of SQL LIKE (`%`) for names of products, with or without the platform;
    * the path of a source, a UUID or an asset id.
    """
    conditions: list[tuple[str, list[object]]] = [_condition(pattern.strip().removesuffix("/") or "%") for pattern in patterns]
    if product_ids:
        conditions.append(("p.ProductID IN (SELECT value FROM json_each(?))", [json.dumps(list(product_ids))]))
    found: set[Scanned] = set()
    for some in _portions(conditions or [("1", [])], _CONDITIONS_AT_ONCE):
        where = f" AND ({' OR '.join(condition for condition, _ in some)})"
        values = [value for _, bound in some for value in bound]
        found |= {Scanned(*row) for row in reader.ask(f"{_CHOSEN_SQL}{where}", values)}
    return sorted(found, key=lambda each: (each.name, each.product_id))


def _condition(pattern: str) -> tuple[str, list[object]]:
    asset = parse_asset_id(pattern)
    if asset is not None:
        condition = f"p.JobPK IN ({_JOBS_OF} s.SourceGuid = ?)"
        return (condition, [asset[0]]) if asset[1] is None else (f"({condition} AND p.SubID = ?)", [asset[0], asset[1]])
    if "*" in pattern or "?" in pattern:
        like = _escape(pattern).replace("*", "%").replace("?", "_")
        return f"(p.ProductName LIKE ? ESCAPE '|' OR {_INNER} LIKE ? ESCAPE '|')", [like, like]
    if "%" in pattern:
        return f"(p.ProductName LIKE ? OR {_INNER} LIKE ?)", [pattern, pattern]
    below = f"{_escape(pattern)}/%"
    is_named = f"p.ProductName = ? OR p.ProductName LIKE ? ESCAPE '|' OR {_INNER} = ? COLLATE NOCASE OR {_INNER} LIKE ? ESCAPE '|'"
    return f"({is_named} OR p.JobPK IN ({_JOBS_OF} w.path_key = ?))", [pattern, below, pattern, below, pattern.lower()]


def _escape(text: str) -> str:
    return "".join(f"|{character}" if character in "|%_" else character for character in text)


def read_remembered(reader: Reader, product_ids: Collection[int], terms: str) -> dict[int, tuple[bytes, Names]]:
    """Return {product id: (digest of the bytes, names in the bytes)}.

    Only products that were read with these `terms` (settings of the scan) are included.
    """
    sql = """SELECT c.product_id, c.digest, c.names FROM json_each(?) k
        JOIN aptui_missing_scans c ON c.product_id = k.value WHERE c.terms = ?"""
    rows = reader.ask(sql, (json.dumps(list(product_ids)), terms))
    return {number: (digest, unpack_names(names)) for number, digest, names in rows}


def read_declared(reader: Reader, product_ids: Collection[int]) -> dict[int, DeclaredReference]:
    """Return {product id: its declared dependencies}."""
    sql = """SELECT d.ProductPK, d.DependencySourceGuid, d.DependencySubID, d.UnresolvedPath
        FROM json_each(?) k JOIN ProductDependencies d ON d.ProductPK = k.value"""
    found = {number: DeclaredReference() for number in product_ids}
    for number, uuid, sub_id, path in reader.ask(sql, (json.dumps(list(product_ids)),)):
        found[number].note(uuid, sub_id, path)
    return found


def read_declared_by_sources(reader: Reader, keys: Collection[str]) -> dict[str, DeclaredReference]:
    """Return {path in lower case: declared dependencies of that source's products and of the source itself}."""
    found = {key: DeclaredReference() for key in keys}
    of_products = """SELECT k.value, d.DependencySourceGuid, d.DependencySubID, d.UnresolvedPath
        FROM json_each(?) k JOIN aptui_sources w ON w.path_key = k.value JOIN Jobs j ON j.SourcePK = w.source_id
        JOIN Products p ON p.JobPK = j.JobID JOIN ProductDependencies d ON d.ProductPK = p.ProductID"""
    of_edges = """SELECT k.value, e.target FROM json_each(?) k JOIN aptui_sources w ON w.path_key = k.value
        JOIN aptui_edges e ON e.source_id = w.source_id"""
    listed = json.dumps(list(keys))
    for key, uuid, sub_id, path in reader.ask(of_products, (listed,)):
        found[key].note(uuid, sub_id, path)
    for key, target in reader.ask(of_edges, (listed,)):
        parsed = parse_asset_id(target)
        if parsed is None:
            found[key].note(b"", 0, target)
        else:
            found[key].sources.add(parsed[0])
    return found


# ------------------------------------------------------------------------------------------------------- known assets


class KnownAssets:
    """Finds the existing assets for names in files. Call `look_up` once with the names in many files, then the other methods.

    `extensions` are those of all sources and products, in lower case; `platforms` are those with jobs.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self.extensions = frozenset(self._extensions())
        self.platforms = tuple(name for (name,) in reader.ask("SELECT DISTINCT Platform FROM Jobs ORDER BY Platform"))
        self._prefixes: dict[str, list[str]] = {}
        self.forget()

    def _extensions(self) -> Iterator[str]:
        for table, column in (("Products", "ProductName"), ("Sources", "SourceName")):
            sql = f"SELECT DISTINCT lower({_EXTENSION.format(column)}) FROM {table} WHERE instr({column}, '.')"
            yield from (text for (text,) in self._reader.ask(sql) if text and "/" not in text)

    def forget(self) -> None:
        """Drop the looked-up names to free memory."""
        self._uuids: dict[bytes, tuple[MissingTarget, ...]] = {}
        self._sources: dict[str, tuple[MissingTarget, ...]] = {}
        self._products: dict[tuple[str, str], MissingTarget] = {}

    def look_up(self, uuids: Collection[bytes], paths: Collection[str], of_platforms: dict[str, set[str]]) -> None:
        """Look up names in the database: UUIDs, paths of sources, and {platform: paths of products}."""
        for some in _portions(uuids, _AT_ONCE):
            sql = f"""SELECT s.SourceGuid, p.SubID, {_INNER}, j.Platform FROM Sources s
                JOIN Jobs j ON j.SourcePK = s.SourceID JOIN Products p ON p.JobPK = j.JobID"""
            rows = self._reader.ask(
                f"{sql} WHERE s.SourceGuid IN ({', '.join('?' * len(some))}) AND {_REAL} ORDER BY p.ProductID", some
            )
            _add(self._uuids, ((uuid, MissingTarget(uuid, sub_id, inner.lower(), (on,))) for uuid, sub_id, inner, on in rows))
            self._read_former([uuid for uuid in some if uuid not in self._uuids])
        for names in _portions(paths, _NAMES_AT_ONCE):
            sql = f"""SELECT k.value, s.SourceGuid, p.SubID, {_INNER}, j.Platform FROM json_each(?) k
                JOIN aptui_sources w ON w.path_key = k.value
                JOIN Sources s ON s.SourceID = w.source_id JOIN Jobs j ON j.SourcePK = s.SourceID
                JOIN Products p ON p.JobPK = j.JobID
                WHERE {_REAL} ORDER BY p.ProductID"""
            rows = self._reader.ask(sql, (json.dumps(names),))
            _add(
                self._sources, ((path, MissingTarget(uuid, sub_id, inner.lower(), (on,))) for path, uuid, sub_id, inner, on in rows)
            )
        for platform, of_platform in of_platforms.items():
            self._read_products(platform, of_platform)

    def _read_former(self, uuids: list[bytes]) -> None:
        """Look up earlier and additional UUIDs of sources (table `aptui_legacy`), because files may still name them."""
        sql = f"""SELECT l.uuid, s.SourceGuid, p.SubID, {_INNER}, j.Platform FROM aptui_legacy l
            JOIN Sources s ON s.SourceID = l.source_id
            JOIN Jobs j ON j.SourcePK = s.SourceID JOIN Products p ON p.JobPK = j.JobID
            WHERE l.uuid IN ({", ".join("?" * len(uuids))}) AND {_REAL} ORDER BY l.created_ms, p.ProductID"""
        rows = self._reader.ask(sql, uuids)
        _add(self._uuids, ((former, MissingTarget(uuid, sub_id, inner.lower(), (on,))) for former, uuid, sub_id, inner, on in rows))

    def _read_products(self, platform: str, paths: Collection[str]) -> None:
        """Look up products by path. A path may leave out the platform, or the platform and the first folder."""
        sql = f"""SELECT k.value, s.SourceGuid, p.SubID, {_INNER} FROM json_each(?) k CROSS JOIN json_each(?) f
            JOIN Products p ON p.ProductName = f.value || k.value {_OF_PRODUCT} WHERE {_REAL} ORDER BY f.key, p.ProductID"""
        prefixes = json.dumps(["", *self._prefixes_of(platform)])
        for names in _portions(paths, _NAMES_AT_ONCE):
            for path, uuid, sub_id, inner in self._reader.ask(sql, (json.dumps(names), prefixes)):
                self._products.setdefault((platform, path), MissingTarget(uuid, sub_id, inner.lower()))

    def _prefixes_of(self, platform: str) -> list[str]:
        """Return the prefixes that the path of a product may leave out.

        `<platform>/` is the first prefix. Then `<platform>/<folder>/` follows for each top-level folder with products, sorted by
        name. If the platform has more than `_FOLDERS_MAX` prefixes, only `<platform>/` is returned.
        """
        if platform not in self._prefixes:
            sql = f"""SELECT DISTINCT lower(substr(p.ProductName, 1, instr(p.ProductName, '/') + instr({_INNER}, '/')))
                FROM Products p
                WHERE p.ProductName LIKE ? ESCAPE '|'"""
            found = {prefix for (prefix,) in self._reader.ask(sql, (f"{_escape(platform)}/%",))}
            found = {f"{platform}/"} | (found if len(found) <= _FOLDERS_MAX else set())
            self._prefixes[platform] = sorted(found, key=lambda prefix: (prefix.count("/"), prefix))
        return self._prefixes[platform]

    def of_uuid(self, uuid: bytes) -> tuple[MissingTarget, ...]:
        """Return all products of a source on any platform, each sub id once."""
        return self._uuids.get(uuid, ())

    def of_source(self, path: str) -> tuple[MissingTarget, ...]:
        """Return all products of the source at a path, each sub id once."""
        return self._sources.get(path, ())

    def of_product(self, platform: str, path: str) -> MissingTarget | None:
        """Return the product at a path on a platform."""
        return self._products.get((platform, path))


def _add(found: dict[T, tuple[MissingTarget, ...]], rows: Iterable[tuple[T, MissingTarget]]) -> None:
    for key, target in rows:
        before = found.get(key, ())
        known = next((other for other in before if other.sub_id == target.sub_id), None)
        if known is None:
            found[key] = (*before, target)
        elif not set(target.platforms) <= set(known.platforms):
            more = known._replace(platforms=(*known.platforms, *target.platforms))
            found[key] = tuple(more if other is known else other for other in before)


def _portions(items: Collection[T], size: int) -> Iterator[list[T]]:
    rest = iter(items)
    while portion := list(islice(rest, size)):
        yield portion


# ------------------------------------------------------------------------------------------------------------------- rows


def result_rows(product: Scanned, hits: Sequence[MissingHit], says: str, stamp: tuple[int, str]) -> list[tuple[object, ...]]:
    """Return the rows that store the outcome of a product's scan, as parameters of the statement "put_missing".

    Each missing dependency has a row. If the text `says` is not empty, or nothing is missing, a last row has this text.

    `stamp` is the time of the scan: in seconds since 1970, and as text.
    """
    head = product.product_id, SCANNER, VERSION, product.fingerprint
    tail = stamp[1], stamp[0], product.name, product.digest
    rows: list[tuple[object, ...]] = [(*head, hit.uuid, hit.sub_id, hit.text, *tail) for hit in hits]
    return [*rows, (*head, NO_UUID, 0, says, *tail)] if says or not hits else rows


def pack_names(names: Names) -> bytes:
    """Return names as the table `aptui_missing_scans` stores them."""
    encoded = json.dumps(names.to_json(), separators=(",", ":"))
    return zlib.compress(encoded.encode())


def unpack_names(data: bytes) -> Names:
    """Return the names that `pack_names` packed."""
    return Names.from_json(json.loads(zlib.decompress(data)))


def results(reader: Reader, product_ids: Collection[int]) -> list[FoundName]:
    """Return the missing dependencies of these products, and the outcomes of their scans, sorted by the product's name.

    A referenced product usually has the platform of the scanned product. If it is not made for that platform, the row has its name
    on another platform.
    """
    meant = """SELECT q.ProductName FROM Sources s JOIN Jobs j ON j.SourcePK = s.SourceID JOIN Products q ON q.JobPK = j.JobID
        WHERE s.SourceGuid = m.DependencySourceGuid AND +q.SubID = m.DependencySubId"""
    sql = f"""SELECT p.ProductID, p.ProductName, m.MissingDependencyString, m.DependencySourceGuid, m.DependencySubId,
        COALESCE(({meant} AND j.Platform = {_PLATFORM} LIMIT 1), ({meant} LIMIT 1), ''), m.ScanTimeSecondsSinceEpoch
        FROM json_each(?) k JOIN Products p ON p.ProductID = k.value JOIN MissingProductDependencies m ON m.ProductPK = p.ProductID
        ORDER BY p.ProductName, m.MissingProductDependencyId"""
    return [FoundName(*row) for row in reader.ask(sql, (json.dumps(list(product_ids)),))]

"""The graph of the dependencies between products and sources. One query finds the edges of a whole set of nodes; read-only.

An edge leads from the dependent to its dependency: from a source to the sources that it depends on, from a product to its source
and to the products that it needs at run time, and from an intermediate source to the product with the same file. If a source
depends on a path that is not a source, the edge leads to a file. Nodes are numbers, since there may be millions: the id of a
product, the negative id of a source, or the number that `AssetGraph.file` returns for a file.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from copy import copy
from enum import StrEnum
from typing import NamedTuple, NewType

from msgspec import Struct

from aptui.core.model import EdgeKind
from aptui.core.patterns import wildcard
from aptui.core.project import COMMON_PLATFORM
from aptui.store.db.statements import group_rows
from aptui.store.queries.assets import INTERMEDIATE_FLAG, asset_id_text
from aptui.store.queries.dependencies import SourceEdges
from aptui.store.queries.reader import Reader

# Records of the asset graph: nodes with their names, and unmet dependencies.
#
# `AssetGraph` finds these records.


class SourceFact(Struct, frozen=True):
    """A source in the graph; `name` is its path as users see it."""

    source_id: int
    name: str
    uuid: bytes


class ProductFact(Struct, frozen=True):
    """A product; `size` -1 and `digest` b"" when unknown. `hash64` is XXH64, signed, 0 when unknown."""

    product_id: int
    name: str
    platform: str
    uuid: bytes
    sub_id: int
    size: int
    digest: bytes
    source: str
    is_intermediate: bool
    hash64: int

    @property
    def asset_id(self) -> str:
        """The product's asset id as users see it."""
        return asset_id_text(self.uuid, self.sub_id)


class AssetFile(Struct, frozen=True):
    """A file that another asset depends on and that is not a source, whether it exists or not; `name` in lower case."""

    name: str


Fact = SourceFact | ProductFact | AssetFile


class Unmet(NamedTuple):
    """A dependency by path that a product declares and that does not name one existing product.

    The path is not resolved to a product, or it is a pattern or an exclusion.
    """

    product_id: int
    path: str

    @property
    def is_exclusion(self) -> bool:
        """Whether the dependency is an exclusion, which removes matches of a pattern."""
        return self.path.startswith(":")

    @property
    def is_pattern(self) -> bool:
        """Whether the dependency is a pattern. The dependencies that it matches are also stored, so a pattern is never missing."""
        return "*" in self.path


class Dangling(NamedTuple):
    """A dependency of a product on an asset id that no product on its platform has."""

    product_id: int
    asset_id: str


class MissingReference(NamedTuple):
    """A name or id of an asset that a scan found in a product's bytes: possibly a dependency that the product does not declare."""

    product_id: int
    text: str
    asset_id: str


Node = NewType("Node", int)
"""The id of a product, the negative id of a source, or the number of another file (`AssetFile`).

Numbers of other files begin at `_FILES` and decrease in the order in which the files are found.
"""
_FILES = -(1 << 48)


class Link(StrEnum):
    """Kind of an edge."""

    SOURCE = "source"
    WILDCARD = "wildcard"
    UUID = "uuid"
    JOB = "job"
    FOUND = "found while processing"
    PRODUCT = "product"
    MADE_OF = "made of"
    INTERMEDIATE = "intermediate"


class Edge(NamedTuple):
    """The node `needs` depends on the node `needed`."""

    needs: Node
    needed: Node
    link: Link


Step = Callable[[Collection[Node]], list[Edge]]
_Raw = tuple[Node, Node, Link]
"""An `Edge` as a plain tuple: creating millions of `Edge` records would take longer than finding the edges."""
_Asset = tuple[bytes, int, str]
"""UUID, sub id and platform of a product dependency."""
_LINKS = {
    EdgeKind.PATH: Link.SOURCE, EdgeKind.WILDCARD: Link.WILDCARD, EdgeKind.UUID: Link.UUID, EdgeKind.JOB: Link.JOB,
    EdgeKind.DISCOVERED: Link.FOUND,
}  # fmt: skip
_NEEDED_SQL = """SELECT {first}, p.ProductID FROM {of} CROSS JOIN Sources s ON s.SourceGuid = d.DependencySourceGuid
CROSS JOIN Jobs j ON j.SourcePK = s.SourceID AND j.Platform = d.Platform
CROSS JOIN Products p ON p.JobPK = j.JobID AND +p.SubID = d.DependencySubID WHERE d.UnresolvedPath = ''"""
_RESOLVED_SQL = _NEEDED_SQL.format(
    first="d.ProductDependencyID", of="json_each(:keys) k CROSS JOIN ProductDependencies d ON d.ProductDependencyID = k.value"
)
_NEEDED_BY_ALL = _NEEDED_SQL.format(first="d.ProductPK", of="ProductDependencies d")
_DEPENDENCIES_SQL = """SELECT d.ProductPK, d.DependencySourceGuid, d.DependencySubID, d.Platform, d.ProductDependencyID
    FROM json_each(:keys) k
CROSS JOIN ProductDependencies d ON d.ProductPK = k.value WHERE d.UnresolvedPath = '' AND d.DependencySourceGuid <> zeroblob(16)"""
_NEEDING_SQL = """SELECT d.ProductPK, p.ProductID FROM json_each(:keys) k CROSS JOIN Products p ON p.ProductID = k.value
CROSS JOIN Jobs j ON j.JobID = p.JobPK CROSS JOIN Sources s ON s.SourceID = j.SourcePK
CROSS JOIN ProductDependencies d ON d.DependencySourceGuid = s.SourceGuid AND d.DependencySubID = p.SubID
    AND d.Platform = j.Platform
WHERE d.UnresolvedPath = ''"""
_INDEXED_SQL = """SELECT 1 FROM sqlite_master WHERE type = 'index' AND tbl_name = 'ProductDependencies'
AND replace(sql, ' ', '') LIKE '%ProductDependencies(DependencySourceGuid%'"""
_PRODUCTS_SQL = f"""SELECT p.ProductID, p.ProductName, j.Platform, s.SourceGuid, p.SubID, COALESCE(o.size, -1),
    COALESCE(o.digest, x''),
    s.SourceName, p.Flags & {INTERMEDIATE_FLAG} <> 0, p.Hash
FROM {{of}} JOIN Jobs j ON j.JobID = p.JobPK JOIN Sources s ON s.SourceID = j.SourcePK
LEFT JOIN aptui_products o ON o.product_id = p.ProductID"""
_UNMET_SQL = """SELECT d.ProductPK, d.UnresolvedPath FROM json_each(:keys) k
CROSS JOIN ProductDependencies d ON d.ProductPK = k.value WHERE d.UnresolvedPath <> '' ORDER BY 1, 2"""
_MISSING_SQL = """SELECT m.ProductPK, m.MissingDependencyString, m.DependencySourceGuid, m.DependencySubId FROM json_each(:keys) k
CROSS JOIN MissingProductDependencies m ON m.ProductPK = k.value WHERE m.MissingDependencyString <> '' ORDER BY 1, 2, 3"""


class AssetGraph:
    """Queries of the graph in one database.

    Args:
        platform: only products of this platform (and intermediates) are nodes; "" = all.
        links: only edges of these kinds are returned.
    """

    def __init__(self, reader: Reader, platform: str = "", links: Collection[Link] = tuple(Link)) -> None:
        self._reader = reader
        self.edges = SourceEdges(reader)
        self._links = frozenset(links)
        self.platform = platform
        self._on = f" AND j.Platform IN (:platform, '{COMMON_PLATFORM}')" if platform else ""
        self._files: dict[str, Node] = {}
        self._file_names: list[str] = []
        self._resolved: dict[_Asset, list[Node]] = {}
        self._dangling: dict[Node, list[_Asset]] = {}
        self._needing: dict[int, list[int]] | None = None
        self._is_indexed: bool | None = None

    def narrow(self, links: Collection[Link]) -> AssetGraph:
        """Return the same graph with only these kinds of edges."""
        other = copy(self)
        other._links = frozenset(links)  # noqa: SLF001  # of its own class
        return other

    # ------------------------------------------------------------------------------------------------------------ one step

    def list_needed(self, nodes: Collection[Node]) -> list[Edge]:
        """Return the edges that lead away from these nodes."""
        return list(map(Edge._make, self._away(nodes)))

    def needing(self, nodes: Collection[Node]) -> list[Edge]:
        """Return the edges that lead to these nodes."""
        return list(map(Edge._make, self._towards(nodes)))

    def _away(self, nodes: Collection[Node]) -> Iterator[_Raw]:
        sources, products, _files = _split(nodes)
        if sources:
            yield from self._read_declared(sources)
            if Link.INTERMEDIATE in self._links:
                yield from self._intermediates_of(sources)
        if products:
            if Link.MADE_OF in self._links:
                sql = """SELECT p.ProductID, -j.SourcePK FROM json_each(:keys) k CROSS JOIN Products p ON p.ProductID = k.value
                    CROSS JOIN Jobs j ON j.JobID = p.JobPK"""
                yield from self._pairs(sql, products, Link.MADE_OF)
            if Link.PRODUCT in self._links:
                yield from self._product_needed(products)

    def _towards(self, nodes: Collection[Node]) -> Iterator[_Raw]:
        sources, products, files = _split(nodes)
        if files:
            yield from self._declaring({node: (self.file_name(node),) for node in files})
        if sources:
            names = self.edges.names_of(sources)
            yield from self._declaring({Node(-number): targets for number, targets in names.items()})
            if Link.MADE_OF in self._links:
                sql = f"""SELECT p.ProductID, -j.SourcePK FROM json_each(:keys) k
                    CROSS JOIN Jobs j ON j.SourcePK = k.value{self._on} CROSS JOIN Products p ON p.JobPK = j.JobID ORDER BY 1"""
                yield from self._pairs(sql, sources, Link.MADE_OF)
        if products:
            if Link.INTERMEDIATE in self._links:
                yield from self._sources_from(products)
            if Link.PRODUCT in self._links:
                yield from self._product_needing(products)

    def _ask(self, sql: str, **values: object) -> sqlite3.Cursor:
        return self._reader.ask(sql, {"platform": self.platform, **values})

    def _pairs(self, sql: str, ids: Iterable[int], link: Link) -> Iterator[_Raw]:
        return ((needs, needed, link) for needs, needed in self._ask(sql, keys=json.dumps(list(ids))))

    def _product_needed(self, products: list[int]) -> Iterator[_Raw]:
        self._dangling.update((Node(product), []) for product in products)
        for product, asset in self._dependencies(products):
            if not self._resolved[asset]:
                self._dangling[product].append(asset)
            for needed in self._resolved[asset]:
                yield product, needed, Link.PRODUCT

    def _dependencies(self, products: Collection[int]) -> list[tuple[Node, _Asset]]:
        """Return the dependencies of these products by asset id; store in `_resolved` which products have these asset ids.

        Each asset id is queried once, even if many products need it.
        """
        found: list[tuple[Node, _Asset]] = []
        unknown: dict[int, _Asset] = {}
        for product, uuid, sub_id, platform, row in self._ask(_DEPENDENCIES_SQL, keys=json.dumps(list(products))):
            asset = (uuid, sub_id, platform)
            found.append((product, asset))
            if asset not in self._resolved:
                self._resolved[asset] = []
                unknown[row] = asset
        if unknown:
            for row, product in self._ask(_RESOLVED_SQL, keys=json.dumps(list(unknown))):
                self._resolved[unknown[row]].append(product)
        return found

    def _product_needing(self, products: list[int]) -> Iterator[_Raw]:
        if self._is_indexed is None:
            self._is_indexed = self._ask(_INDEXED_SQL).fetchone() is not None
        if self._is_indexed:
            yield from self._pairs(_NEEDING_SQL, products, Link.PRODUCT)
            return
        # O3DE's tables have no index for this query, so every query would read all rows. Therefore all rows are read once and kept.
        if self._needing is None:
            self._needing = group_rows((needed, product) for product, needed in self._ask(_NEEDED_BY_ALL))
        for needed in products:
            for other in self._needing.get(needed, ()):
                yield Node(other), Node(needed), Link.PRODUCT

    # ---------------------------------------------------------------------------------------------------- between sources

    def file(self, path: str) -> Node:
        """Return the node of a path (lower case) that is not a source."""
        node = self._files.get(path)
        if node is None:
            node = self._files[path] = Node(_FILES - len(self._file_names))
            self._file_names.append(path)
        return node

    def file_name(self, node: Node) -> str:
        """Return the path of a node that the method `file` made."""
        return self._file_names[_FILES - node]

    def _read_declared(self, sources: list[int]) -> Iterator[_Raw]:
        declared = [edge for edge in self.edges.read_declared_by(sources) if _LINKS[edge.kind] in self._links]
        known = self.edges.sources_of(declared)
        for edge in declared:
            others = known.get((edge.kind, edge.target))
            if others:
                ends = [Node(-other) for other in others if other != edge.source_id]
            else:
                ends = [] if edge.kind in (EdgeKind.WILDCARD, EdgeKind.UUID) else [self.file(edge.target)]
            yield from ((Node(-edge.source_id), end, _LINKS[edge.kind]) for end in ends)

    def _declaring(self, targets: Mapping[Node, Collection[str]]) -> Iterator[_Raw]:
        """Yield the edges to nodes. `targets` is {node: the path and UUIDs by which dependencies may name it, the path first}."""
        by_target = group_rows((name, node) for node, names in targets.items() for name in names)
        for edge in self.edges.read_declared_on(by_target):
            link = _LINKS[edge.kind]
            if link in self._links:
                yield from ((Node(-edge.source_id), node, link) for node in by_target[edge.target] if node != -edge.source_id)
        if Link.WILDCARD in self._links:
            yield from self._read_matched({next(iter(names)): node for node, names in targets.items()})

    def _read_matched(self, paths: Mapping[str, Node]) -> Iterator[_Raw]:
        matches: dict[str, list[Node]] = {}
        for edge in self.edges.patterns():
            if edge.target not in matches:
                match = wildcard(edge.target).fullmatch
                matches[edge.target] = [node for path, node in paths.items() if match(path)]
            yield from ((Node(-edge.source_id), node, Link.WILDCARD) for node in matches[edge.target] if node != -edge.source_id)

    def _intermediates_of(self, sources: list[int]) -> Iterator[_Raw]:
        sql = f"""SELECT -s.SourceID, p.ProductID FROM json_each(:keys) k CROSS JOIN Sources s ON s.SourceID = k.value
            LEFT JOIN aptui_sources o ON o.source_id = s.SourceID
            CROSS JOIN Products p ON p.ProductName = '{COMMON_PLATFORM}/' || COALESCE(o.path_key, s.SourceName)
            WHERE p.Flags & {INTERMEDIATE_FLAG}"""
        return self._pairs(sql, sources, Link.INTERMEDIATE)

    def _sources_from(self, products: list[int]) -> Iterator[_Raw]:
        sql = f"""SELECT p.ProductID, substr(p.ProductName, {len(COMMON_PLATFORM) + 2}) FROM json_each(:keys) k
            CROSS JOIN Products p ON p.ProductID = k.value WHERE p.Flags & {INTERMEDIATE_FLAG}"""
        names = {name.lower(): Node(product) for product, name in self._ask(sql, keys=json.dumps(products))}
        for name, ids in self.edges.by_path(names).items() if names else ():
            yield from ((Node(-source), names[name], Link.INTERMEDIATE) for source in ids)

    # ----------------------------------------------------------------------------------------------------------- many steps

    def walk(
        self, starts: Iterable[Node], depth: int | None = None, *, is_reverse: bool = False, ends: frozenset[Node] = frozenset()
    ) -> dict[Node, Edge | None]:
        """Walk from `starts` along the edges or, if `is_reverse`, against them.

        The walk ends after `depth` steps (None = no limit), when one of `ends` is reached, or when no node is left.

        Returns:
            {node: the edge over which it was reached first, None for the starts}, in the order in which nodes were reached.
        """
        step = self._towards if is_reverse else self._away
        reached: dict[Node, Edge | None] = dict.fromkeys(starts)
        frontier = list(reached) if ends.isdisjoint(reached) else []
        while frontier and depth != 0:
            depth = None if depth is None else depth - 1
            ahead: list[Node] = []
            for needs, needed, link in step(frontier):
                other = needs if is_reverse else needed
                if other not in reached:
                    reached[other] = Edge(needs, needed, link)
                    if other in ends:
                        return reached
                    ahead.append(other)
            frontier = sorted(ahead)
        return reached

    def some_path(self, starts: Collection[Node], ends: Collection[Node]) -> list[Edge]:
        """Return the edges of a shortest path from one of `starts` to one of `ends`; [] if no path exists or a start is an end."""
        wanted = frozenset(ends)
        reached = self.walk(starts, ends=wanted)
        end = next((node for node in reached if node in wanted), None)
        last = None if end is None else reached[end]
        return [] if last is None else _trail(reached, last)

    def all_paths(self, starts: Collection[Node], ends: Collection[Node]) -> set[Node]:
        """Return all nodes on the paths from `starts` to `ends`, including the ends of the paths."""
        needing: dict[Node, list[Node]] = {}
        reached, frontier = set(starts), sorted(starts)
        while frontier:
            ahead: set[Node] = set()
            for needs, needed, _link in self._away(frontier):
                needing.setdefault(needed, []).append(needs)
                ahead.add(needed)
            frontier = sorted(ahead - reached)
            reached |= ahead
        remaining: set[Node] = set()
        todo = [node for node in ends if node in reached]
        while todo:
            node = todo.pop()
            if node not in remaining:
                remaining.add(node)
                todo += needing.get(node, ())
        return remaining

    def between(self, nodes: Collection[Node]) -> list[Edge]:
        """Return the edges between two of `nodes`."""
        members = frozenset(nodes)
        return sorted({edge for edge in self.list_needed(sorted(members)) if edge.needed in members})

    # --------------------------------------------------------------------------------------------------------------- names

    def facts(self, nodes: Collection[Node]) -> dict[Node, Fact]:
        """Return the records (source, product or file) of these nodes."""
        sources, products, files = _split(nodes)
        sql = "SELECT s.SourceID, s.SourceName, s.SourceGuid FROM json_each(:keys) k CROSS JOIN Sources s ON s.SourceID = k.value"
        found: dict[Node, Fact] = {Node(-row[0]): SourceFact(*row) for row in self._ask(sql, keys=json.dumps(sources))}
        if products:
            sql = _PRODUCTS_SQL.format(of="json_each(:keys) k CROSS JOIN Products p ON p.ProductID = k.value")
            found.update((Node(row[0]), ProductFact(*row)) for row in self._ask(sql, keys=json.dumps(products)))
        found.update((node, AssetFile(self.file_name(node))) for node in files)
        return found

    def products(self, *, intermediates: bool = False) -> list[ProductFact]:
        """Return every product, by name."""
        sql = _PRODUCTS_SQL.format(of="Products p")
        rows = self._ask(f"{sql} WHERE 1{self._on} ORDER BY p.ProductName, p.ProductID")
        return [fact for fact in (ProductFact(*row) for row in rows) if intermediates or not fact.is_intermediate]

    def products_named(self, names: Collection[str]) -> list[Node]:
        """Return the products with these names (lower case)."""
        sql = f"""SELECT p.ProductID FROM json_each(:keys) k CROSS JOIN Products p ON p.ProductName = k.value
            CROSS JOIN Jobs j ON j.JobID = p.JobPK WHERE 1{self._on} ORDER BY 1"""
        return [Node(number) for (number,) in self._ask(sql, keys=json.dumps(list(names)))]

    def products_of(self, sources: Collection[int]) -> list[Node]:
        """Return the products of these sources."""
        sql = f"""SELECT p.ProductID FROM json_each(:keys) k CROSS JOIN Jobs j ON j.SourcePK = k.value
            CROSS JOIN Products p ON p.JobPK = j.JobID WHERE 1{self._on} ORDER BY 1"""
        return [Node(number) for (number,) in self._ask(sql, keys=json.dumps(list(sources)))]

    def ends_of_chains(self, products: Collection[Node]) -> list[Node]:
        """Return these products, with each intermediate replaced by the final products of its chain."""
        found: dict[Node, None] = {}
        seen, todo = set(products), list(products)
        while todo:
            facts = self.facts(todo)
            chained: set[int] = {node for node in todo if isinstance(fact := facts.get(node), ProductFact) and fact.is_intermediate}
            found.update(dict.fromkeys(node for node in todo if node not in chained))
            sources = [-source for source, _product, _link in (self._sources_from(sorted(chained)) if chained else ())]
            todo = [node for node in self.products_of(sources) if node not in seen] if sources else []
            seen.update(todo)
        return list(found)

    def assets(self, uuid: bytes, sub_id: int | None) -> list[Node]:
        """Return the products with this asset id; `sub_id` None = all products of the source with this UUID."""
        sql = f"""SELECT p.ProductID FROM Sources s CROSS JOIN Jobs j ON j.SourcePK = s.SourceID{self._on}
            CROSS JOIN Products p ON p.JobPK = j.JobID WHERE s.SourceGuid = :uuid AND (:sub_id IS NULL OR +p.SubID = :sub_id)
            ORDER BY 1"""
        return [Node(number) for (number,) in self._ask(sql, uuid=uuid, sub_id=sub_id)]

    # ------------------------------------------------------------------------------------------------- unmet dependencies

    def unmet(self, products: Collection[Node]) -> list[Unmet]:
        """Return the path dependencies of these products that are not resolved to a product. Patterns and exclusions never are."""
        return list(map(Unmet._make, self._ask(_UNMET_SQL, keys=json.dumps(list(products)))))

    def dangling(self, products: Collection[Node]) -> list[Dangling]:
        """Return the dependencies of these products on asset ids that no product has."""
        for _edge in self._product_needed([product for product in products if product not in self._dangling]):
            pass  # reading the edges fills `_dangling`
        return [Dangling(product, asset_id_text(*asset[:2])) for product in products for asset in self._dangling[product]]

    def missing(self, products: Collection[Node]) -> list[MissingReference]:
        """Return the possible undeclared dependencies that a scan found in the bytes of these products."""
        rows = self._ask(_MISSING_SQL, keys=json.dumps(list(products)))
        return [MissingReference(product, text, asset_id_text(uuid, sub_id)) for product, text, uuid, sub_id in rows]

    def platforms(self) -> list[str]:
        """Return the platforms that have jobs."""
        return [name for (name,) in self._ask("SELECT DISTINCT Platform FROM Jobs ORDER BY 1")]

    def list_unsettled(self) -> list[tuple[str, str, str]]:
        """Return (source, platform, state) of every job and analysis that is not completed.

        The state is "owed" (pending or running), "failed" or "cancelled".
        """
        sql = f"""SELECT s.SourceName, j.Platform, COALESCE(o.state, CASE WHEN j.Status IN (2, 3) THEN 'failed' END) FROM Jobs j
            JOIN Sources s ON s.SourceID = j.SourcePK LEFT JOIN aptui_jobs o ON o.job_id = j.JobID WHERE j.Status <> 4{self._on}
            UNION ALL SELECT s.SourceName, 'all', a.state FROM aptui_analyses a JOIN Sources s ON s.SourceID = a.source_id
            WHERE a.state <> 'completed' OR a.fingerprint IS NULL ORDER BY 1, 2"""
        return [
            (source, platform, state if state in ("failed", "cancelled") else "owed") for source, platform, state in self._ask(sql)
        ]


def is_source(node: Node) -> bool:
    """Whether a node is a source."""
    return _FILES < node < 0


def is_product(node: Node) -> bool:
    """Whether a node is a product."""
    return node > 0


def _split(nodes: Iterable[Node]) -> tuple[list[int], list[int], list[Node]]:
    """Split nodes by kind into (ids of sources, ids of products, nodes of other files)."""
    sources: list[int] = []
    products: list[int] = []
    files: list[Node] = []
    for node in nodes:
        if node > 0:
            products.append(node)
        elif node > _FILES:
            sources.append(-node)
        else:
            files.append(node)
    return sources, products, files


def _trail(reached: dict[Node, Edge | None], last: Edge) -> list[Edge]:
    trail = [last]
    while (before := reached[trail[-1].needs]) is not None:
        trail.append(before)
    return trail[::-1]

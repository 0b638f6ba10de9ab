"""`deps` and `query`: dependencies and dependants of an asset as lists, trees, JSON and Graphviz's dot; needs no engine."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from msgspec import Struct, field

from aptui.cli.asset_names import AskedAssets, AssetNames, database_argument, find_misspelt, open_asked
from aptui.core.model import EdgeKind
from aptui.core.paths import as_text
from aptui.shared import printing
from aptui.shared.errors import UserError
from aptui.shared.printing import sanitize
from aptui.store.queries.asset_graph import AssetFile, AssetGraph, Edge, Fact, Link, Node, ProductFact, Step, is_product, is_source
from aptui.store.queries.dependencies import find_named_sources

_BRIEF = 20
"""Maximum number of printed lines for each direction if neither `--in` nor `--out` is given."""
_SOURCE_LINKS = (Link.SOURCE, Link.WILDCARD, Link.UUID, Link.JOB, Link.FOUND)
_LOOSE_KINDS = {EdgeKind.WILDCARD: "wildcard", EdgeKind.UUID: "uuid"}
"""{kind of a declared dependency that may match no source: its name}.

Dependencies by path are left out, because they always name a file.
"""


class UnmetNeed(NamedTuple):
    """A declared dependency that matches no source, or no product.

    `files` are the files that match its wildcard but are not sources.
    """

    kind: str
    text: str
    files: tuple[str, ...] = ()


class _Direction(Struct):
    """One direction of `deps`: dependencies or dependants. `loose` has the unmet dependencies of each node."""

    title: str
    is_out: bool
    edges: list[Edge] = field(default_factory=list)
    loose: dict[Node, list[UnmetNeed]] = field(default_factory=dict)

    def others(self) -> dict[Node, list[Edge]]:
        """Return {node: the edges that lead away from the node in this direction}."""
        found: dict[Node, list[Edge]] = {}
        for edge in self.edges:
            found.setdefault(edge.needs if self.is_out else edge.needed, []).append(edge)
        return found

    def end(self, edge: Edge) -> Node:
        """Return the node to which an edge leads in this direction."""
        return edge.needed if self.is_out else edge.needs


# -------------------------------------------------------------------------------------------------------------------- deps


def deps_arguments(parser: ArgumentParser) -> None:
    """Declare the options of `deps`."""
    parser.add_argument("path", metavar="PATH", help="a source, a product, or an asset id")
    parser.add_argument("--in", dest="is_in", action="store_true", help="list the assets that depend on PATH")
    parser.add_argument(
        "--out",
        dest="is_out",
        action="store_true",
        help="list the assets on which PATH depends; without --in and --out, both lists are printed, but shortened",
    )
    parser.add_argument(
        "--product",
        action="store_true",
        help="list run-time dependencies between products; for a source, those of all its products",
    )
    parser.add_argument("--tree", action="store_true", help="also list indirect dependencies")
    parser.add_argument("--platform", default="", metavar="ID", help="list only products of this platform")
    _form_arguments(parser)


def deps(arguments: Namespace) -> int:
    """Print the dependencies and dependants of an asset."""
    with open_asked(arguments) as place:
        graph = place.graph(arguments.platform)
        nodes = AssetNames(place, graph).nodes(arguments.path)
        starts = _subjects(nodes, graph, arguments)
        directions = list(_directions(starts, graph, arguments))
        facts = graph.facts({*starts, *(node for way in directions for edge in way.edges for node in edge[:2])})
        notes = {} if arguments.json or arguments.dot else _spelling_notes(place, starts, facts)
    if arguments.json:
        printing.say_json(_deps_json(starts, directions, facts))
    elif arguments.dot:
        _print_dot([edge for way in directions for edge in way.edges], facts, starts)
    else:
        for way in directions:
            limit = None if arguments.is_in or arguments.is_out or arguments.tree else _BRIEF
            _print_direction(way, starts, facts, notes, limit=limit)
    return 0


def _subjects(nodes: Sequence[Node], graph: AssetGraph, arguments: Namespace) -> list[Node]:
    """Return the products if `--product` is given or only products were named, else the sources."""
    sources = [node for node in nodes if not is_product(node)]
    if sources and not arguments.product:
        return sources
    products = [node for node in nodes if is_product(node)]
    if not products:
        name = next((fact.name for fact in graph.facts(sources).values()), "")
        raise UserError(f"'{printing.line(name)}' has no products", hint="run 'aptui why PATH' to see why")
    return products


def _directions(starts: list[Node], graph: AssetGraph, arguments: Namespace) -> Iterator[_Direction]:
    links = (Link.PRODUCT,) if is_product(starts[0]) else _SOURCE_LINKS
    if arguments.is_out or not arguments.is_in:
        away = graph.narrow(links if is_product(starts[0]) else (*links, Link.INTERMEDIATE, Link.MADE_OF))
        edges = _edges(away.list_needed, starts, is_out=True, is_deep=arguments.tree)
        loose = _loose_ends(away, {*starts, *((edge.needed for edge in edges) if arguments.tree else ())})
        yield _Direction("needs", True, edges, loose)
    if arguments.is_in or not arguments.is_out:
        towards = graph.narrow(links)
        yield _Direction("needed by", False, _edges(towards.needing, starts, is_out=False, is_deep=arguments.tree))


def _edges(step: Step, starts: Collection[Node], *, is_out: bool, is_deep: bool) -> list[Edge]:
    """Return the edges from the start nodes; if `is_deep`, also the edges from all further nodes that these edges reach."""
    found: dict[Edge, None] = {}
    seen, frontier = set(starts), sorted(starts)
    while frontier:
        edges = step(frontier)
        found.update(dict.fromkeys(edges))
        ahead = {edge.needed if is_out else edge.needs for edge in edges} - seen if is_deep else set()
        seen |= ahead
        frontier = sorted(ahead)
    return list(found)


def _loose_ends(graph: AssetGraph, nodes: Collection[Node]) -> dict[Node, list[UnmetNeed]]:
    """Return {source node: its declared dependencies that match no source}."""
    found: dict[Node, list[UnmetNeed]] = {}
    declared = graph.edges.read_declared_by([-node for node in nodes if is_source(node)])
    known = graph.edges.sources_of(declared)
    for edge in declared:
        if edge.kind in _LOOSE_KINDS and (edge.kind, edge.target) not in known:
            files = graph.edges.files_matching(edge.target) if edge.kind is EdgeKind.WILDCARD else ()
            found.setdefault(Node(-edge.source_id), []).append(UnmetNeed(_LOOSE_KINDS[edge.kind], edge.target, tuple(files)))
    products = [node for node in nodes if is_product(node)]
    for item in graph.unmet(products) if products else ():
        kind = "left out" if item.is_exclusion else "pattern" if item.is_pattern else "unmet"
        found.setdefault(Node(item.product_id), []).append(UnmetNeed(kind, item.path.removeprefix(":")))
    for hanging in graph.dangling(products) if products else ():
        found.setdefault(Node(hanging.product_id), []).append(UnmetNeed("dangling", hanging.asset_id))
    return {node: list(dict.fromkeys(ends)) for node, ends in found.items()}


def _deps_json(starts: list[Node], directions: list[_Direction], facts: dict[Node, Fact]) -> dict[str, Any]:
    answer: dict[str, Any] = {"of": [_fact_json(facts[node]) for node in starts if node in facts]}
    for way in directions:
        edges = [_edge_json(edge, facts) for edge in way.edges]
        if not way.is_out:
            answer["in"] = edges
            continue
        loose = [
            {"from": facts[node].name, "kind": kind, "target": text, **({"files": list(files)} if files else {})}
            for node, ends in way.loose.items()
            if node in facts
            for kind, text, files in ends
        ]
        answer["out"], answer["unresolved"] = edges, loose
    return answer


# ---------------------------------------------------------------------------------------------------------- printing deps


def _spelling_notes(place: AskedAssets, starts: Iterable[Node], facts: dict[Node, Fact]) -> dict[str, str]:
    """Return {path: note} for dependencies whose spelling differs from the file's name.

    aptui and programs on Windows find a dependency with another spelling, but programs on Linux do not.
    """
    names = [facts[node].name for node in starts if is_source(node) and node in facts]
    items = (item for name in names for item in find_named_sources(place.database, name))
    return {each.needed: f"  ({printing.line(f'{each.named_by} {each.what}')})" for item in items for each in find_misspelt(item)}


def _print_direction(
    way: _Direction, starts: list[Node], facts: dict[Node, Fact], notes: dict[str, str], *, limit: int | None
) -> None:
    """Print the dependencies or the dependants of `starts` as a tree. A node that occurs several times is expanded only once."""
    others, opened = way.others(), set[Node]()
    for start in starts:
        printing.say(f"{printing.line(facts[start].name)} {way.title}:", "bold")
        lines = _tree_lines(start, way, others, facts, notes if way.is_out else {}, opened)
        shown = 0
        for text, colour in lines:
            if limit is not None and shown == limit:
                rest = 1 + sum(1 for _line in lines)
                printing.say(f"  and {rest:,} more; {'--out' if way.is_out else '--in'} lists all", "dim")
                break
            printing.say(text, colour)
            shown += 1
        if not shown:
            printing.say("  nothing", "dim")


def _tree_lines(
    start: Node,
    way: _Direction,
    others: dict[Node, list[Edge]],
    facts: dict[Node, Fact],
    notes: dict[str, str],
    opened: set[Node],
) -> Iterator[tuple[str, str]]:
    trail: list[tuple[Node, Iterator[Edge]]] = [(start, iter(_by_name(others.get(start, ()), way, facts)))]
    opened.add(start)
    yield from _loose_lines(way.loose.get(start, ()), 1)
    while trail:
        edge = next(trail[-1][1], None)
        if edge is None:
            trail.pop()
            continue
        node, depth = way.end(edge), len(trail)
        leads_on = node in others or node in way.loose
        note = "  (see above)" if node in opened and leads_on else "  (not a source)" if isinstance(facts[node], AssetFile) else ""
        note += notes.get(facts[node].name, "")
        yield f"{'  ' * depth}{edge.link}  {printing.line(facts[node].name)}{note}", ""
        if leads_on and node not in opened:
            opened.add(node)
            yield from _loose_lines(way.loose.get(node, ()), depth + 1)
            trail.append((node, iter(_by_name(others.get(node, ()), way, facts))))


def _by_name(edges: Iterable[Edge], way: _Direction, facts: dict[Node, Fact]) -> list[Edge]:
    return sorted((edge for edge in edges if way.end(edge) in facts), key=lambda edge: (facts[way.end(edge)].name, edge.link))


def _loose_lines(ends: Iterable[UnmetNeed], depth: int) -> Iterator[tuple[str, str]]:
    for kind, text, files in ends:
        is_trouble = kind in ("unmet", "dangling")
        note = "  (matches no source)" if not files and kind in ("wildcard", "uuid") else ""
        yield f"{'  ' * depth}{kind}  {printing.line(text)}{note}", "yellow" if is_trouble else "dim"
        yield from ((f"{'  ' * (depth + 1)}file  {printing.line(file)}  (not a source)", "dim") for file in files)


# ------------------------------------------------------------------------------------------------------------------- query


def query_arguments(parser: ArgumentParser) -> None:
    """Declare the options of `query`."""
    parser.add_argument("expression", metavar="EXPR", help="see below")
    parser.add_argument("--platform", default="", metavar="ID", help="list only products of this platform")
    _form_arguments(parser)
    parser.epilog = """\
EXPR is a name or a function, or several joined by + (union), - (difference) or ^ (intersection), with spaces around the sign:
  deps(x), deps(x, DEPTH)    x and its dependencies   somepath(a, b)   a shortest path from a to b
  rdeps(x), rdeps(x, DEPTH)  x and its dependants     allpaths(a, b)   all nodes on any path from a to b
  sources(x), products(x)    only the sources or the products in x
A name is a source with its products, a product, an asset id, or a pattern with * and ?. Put names with spaces or
parentheses in quotes.
A product depends on its source and its product dependencies; a source depends on the sources it declared.
  aptui query 'somepath(levels/forest.prefab, textures/bark.png)'
  aptui query 'products(rdeps(shaders/*.hlsl)) - "linux/editor/*"'"""


def query(arguments: Namespace) -> int:
    """Print the result of a query."""
    from aptui.features.graph.graph_query import Name, QueryError, answer, parse

    text = as_text(arguments.expression)
    try:
        expression = parse(text)
    except QueryError as error:
        raise UserError(printing.line(error.what), where=f"query:{error.column}", hint=printing.line(error.hint)) from None
    with open_asked(arguments) as place:
        graph = place.graph(arguments.platform)
        names = AssetNames(place, graph)

        def lookup(name: Name) -> list[Node]:
            try:
                return names.nodes(name.text)
            except UserError as error:
                raise UserError(error.what, where=f"query:{name.column}", hint=error.hint) from None

        found = answer(expression, graph, lookup)
        facts = graph.facts(found.nodes)
        edges = list(found.way) if found.is_way else graph.between(found.nodes) if arguments.json or arguments.dot else []
    if arguments.json:
        shown = [_fact_json(facts[node]) for node in found.nodes if node in facts]
        printing.say_json({"nodes": shown, "edges": [_edge_json(edge, facts) for edge in edges]})
    elif arguments.dot:
        _print_dot(edges, facts, found.nodes)
    elif found.is_way:
        _print_path(found.nodes, edges, facts)
    else:
        _print_nodes(facts.values())
    return 0


def _print_path(nodes: Sequence[Node], edges: Sequence[Edge], facts: dict[Node, Fact]) -> None:
    if not nodes:
        printing.complain("aptui: the first asset does not depend on the second, directly or indirectly")
        return
    printing.say(printing.line(facts[nodes[0]].name))
    for edge in edges:
        printing.say(f"  {edge.link}  {printing.line(facts[edge.needed].name)}")


def _print_nodes(facts: Iterable[Fact]) -> None:
    rows = [(_kind(fact), fact.name, fact.asset_id if isinstance(fact, ProductFact) else "") for fact in facts]
    order = ("source", "file", "product")
    printing.table(("kind", "name", "asset id"), sorted(rows, key=lambda row: (order.index(row[0]), row[1])), spare=(2,))


# ------------------------------------------------------------------------------------------------------------------- forms


def _form_arguments(parser: ArgumentParser) -> None:
    database_argument(parser)
    forms = parser.add_mutually_exclusive_group()
    forms.add_argument("--json", action="store_true", help="print one JSON object")
    forms.add_argument("--dot", action="store_true", help="print a graph for Graphviz")


def _kind(fact: Fact) -> str:
    return "product" if isinstance(fact, ProductFact) else "file" if isinstance(fact, AssetFile) else "source"


def _fact_json(fact: Fact) -> dict[str, Any]:
    if not isinstance(fact, ProductFact):
        return {"is": _kind(fact), "name": fact.name}
    return {"is": "product", "name": fact.name, "platform": fact.platform, "asset_id": fact.asset_id, "source": fact.source}


def _edge_json(edge: Edge, facts: dict[Node, Fact]) -> dict[str, str]:
    return {"from": facts[edge.needs].name, "to": facts[edge.needed].name, "kind": edge.link.value}


def _print_dot(edges: Sequence[Edge], facts: dict[Node, Fact], nodes: Iterable[Node]) -> None:
    """Print a graph in the dot language. The shape is `box` for a source, `ellipse` for a product, and `note` for other files."""
    printing.say("digraph assets {")
    printing.say("  rankdir=LR;")
    members = {*nodes, *(node for edge in edges for node in edge[:2])} & facts.keys()
    numbers = {
        node: f"n{at}" for at, node in enumerate(sorted(members, key=lambda node: (_kind(facts[node]), facts[node].name, node)))
    }
    for node, number in numbers.items():
        shape = "box" if is_source(node) else "ellipse" if is_product(node) else "note"
        printing.say(f"  {number} [label={_dot_text(facts[node].name)}, shape={shape}];")
    for start, end, link in sorted((numbers[edge.needs], numbers[edge.needed], edge.link) for edge in set(edges)):
        printing.say(f"  {start} -> {end} [label={_dot_text(link)}];")
    printing.say("}")


def _dot_text(text: str) -> str:
    return '"' + sanitize(text).replace("\\", "\\\\").replace('"', '\\"') + '"'

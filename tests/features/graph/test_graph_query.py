"""The language of `aptui query`: parsing, errors and answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aptui.features.graph.graph_query import Call, Combined, Name, QueryError, answer, parse
from aptui.store.queries.asset_graph import AssetGraph, Node
from aptui.store.queries.reader import open_reader
from tests.store.graph_rows import Rows


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a/b-1.png", Name("a/b-1.png", 1)),
        ("  'a b, (c).png' ", Name("a b, (c).png", 3)),
        ("deps(a)", Call("deps", (Name("a", 6),), None)),
        ("rdeps ( a , 2 )", Call("rdeps", (Name("a", 9),), 2)),
        ("somepath(a,b)", Call("somepath", (Name("a", 10), Name("b", 12)), None)),
        ("a + b - c", Combined((("+", Name("a", 1)), ("+", Name("b", 5)), ("-", Name("c", 9))))),
        ("a union (b except c)", Combined((("+", Name("a", 1)), ("+", Combined((("+", Name("b", 10)), ("-", Name("c", 19)))))))),
        ("deps(a)^deps(b)", Combined((("+", Call("deps", (Name("a", 6),), None)), ("^", Call("deps", (Name("b", 14),), None))))),
        ("c++.txt", Name("c++.txt", 1)),
        ("deps", Name("deps", 1)),
    ],
)
def test_graph_query_text_is_parsed_into_calls_and_names(text: str, expected: object) -> None:
    assert parse(text) == expected


@pytest.mark.parametrize(
    ("text", "column", "what"),
    [
        ("", 1, "expected a name, a function or '(', not the end"),
        ("deps(a", 7, "expected ')' to close 'deps(', not the end"),
        ("deps(a b)", 8, "expected ')' to close 'deps(', not 'b'"),
        ("somepath(a)", 11, "expected ',' and a second argument"),
        ("somepath(a, b, c)", 14, "expected ')' to close 'somepath(', not ','"),
        ("depz(a)", 1, "'depz' is not a function"),
        ("deps(a, x)", 9, "expected a whole number (the depth), not 'x'"),
        ("a + ", 5, "expected a name, a function or '(', not the end"),
        ("a + + b", 5, "expected a name, a function or '(', not '+'"),
        ("a b", 3, "expected '+', '-', '^' or the end, not 'b'"),
        ("(a", 3, "expected ')' to close the '('"),
        ("a)", 2, "expected '+', '-', '^' or the end, not ')'"),
        ("'a", 1, "the closing ' is missing"),
        ("''", 1, "a name cannot be empty"),
        ("(" * 60 + "a", 51, "nested too deeply"),
    ],
)
def test_query_error_names_the_column_of_the_mistake(text: str, column: int, what: str) -> None:
    with pytest.raises(QueryError) as caught:
        parse(text)

    assert (caught.value.column, what in caught.value.what) == (column, True), caught.value.what


def test_misspelt_function_gets_a_hint() -> None:
    with pytest.raises(QueryError) as caught:
        parse("rdep(a)")

    assert "'rdeps'" in caught.value.hint


@given(st.text(alphabet="ab()+-^,'\" 1deps*", max_size=30))
def test_any_graph_query_text_is_parsed_or_gives_a_query_error(text: str) -> None:
    column = 1
    try:
        parse(text)
    except QueryError as error:
        column = error.column

    assert 1 <= column <= len(text) + 1


# --------------------------------------------------------------------------------------------------------------- answers


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[AssetGraph]:
    """Asset 0 needs assets 1 and 2, and each of these two needs asset 3."""
    rows = Rows(tmp_path / "assetdb.sqlite", 5)
    rows.need([(0, 1), (0, 2), (1, 3), (2, 3)])
    with closing(open_reader(rows.path)) as reader:
        yield AssetGraph(reader)


def lookup(name: Name) -> Iterable[Node]:
    at = int(name.text[1:])
    return [Node(-at - 1), Node(at + 1)] if name.text[0] == "s" else [Node(at + 1)]


@pytest.mark.parametrize(
    ("query", "products"),
    [
        ("products(deps(p0))", {0, 1, 2, 3}),
        ("products(deps(p0, 1))", {0, 1, 2}),
        ("products(rdeps(p3)) - p3", {0, 1, 2}),
        ("products(rdeps(s3, 1))", {1, 2, 3}),
        ("products(allpaths(p0, s3))", {0, 1, 2, 3}),
        ("allpaths(p3, p0)", set()),
        ("p0 + p1 ^ p1 + p4", {1, 4}),
        ("p0 + (p1 ^ p2)", {0}),
        ("sources(deps(p0)) ^ products(deps(p0))", set()),
        ("somepath(p0, p0)", {0}),
    ],
)
def test_graph_query_returns_the_expected_set_of_assets(graph: AssetGraph, query: str, products: set[int]) -> None:
    found = answer(parse(query), graph, lookup)

    assert {node - 1 for node in found.nodes} == products


def test_graph_query_for_a_path_returns_its_nodes_in_order(graph: AssetGraph) -> None:
    found = answer(parse("somepath(p0, s3)"), graph, lookup)

    assert found.is_way
    assert [node - 1 for node in found.nodes] == [0, 1, 3]
    assert [edge[:2] for edge in found.way] == [(1, 2), (2, 4)]
    assert answer(parse("somepath(p3, p0)"), graph, lookup).nodes == ()

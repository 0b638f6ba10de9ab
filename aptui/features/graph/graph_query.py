"""The language of `aptui query`: names of assets, functions over the graph, set operations.

The caller of `answer` resolves names to nodes.

    expression := operand (("+" | "-" | "^") operand)*          from left to right: union, difference, intersection
    operand    := name | "quoted name" | "(" expression ")" | function "(" arguments ")"
    function   := deps(x) deps(x, depth) rdeps(x) rdeps(x, depth) somepath(from, to) allpaths(from, to) sources(x) products(x)

Names may contain operators (`grass-1.png`), so an operator between two operands needs blanks around it. `union`, `except`
and `intersect` are synonyms of the operators, as in Bazel's query.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import reduce

from msgspec import Struct

from aptui.store.queries.asset_graph import AssetGraph, Edge, Node, is_product, is_source

_SIGNS = {"+": "+", "-": "-", "^": "^", "union": "+", "except": "-", "intersect": "^"}
_TAKES_DEPTH = frozenset({"deps", "rdeps"})
FUNCTIONS = {"deps": 1, "rdeps": 1, "somepath": 2, "allpaths": 2, "sources": 1, "products": 1}
"""{name of a function: number of its arguments that are expressions}."""
DEEPEST = 50
"""Maximum depth of nested parentheses; limits the recursion of the parser."""
_WORD = re.compile(r"""[^\s(),"']+""")


class QueryError(Exception):
    """A query that cannot be parsed; `column` counts from 1."""

    def __init__(self, what: str, column: int, hint: str = "") -> None:
        super().__init__(what)
        self.what, self.column, self.hint = what, column, hint


class Name(Struct, frozen=True):
    """A name in a query: a path, a product, an asset id or a pattern."""

    text: str
    column: int


class Call(Struct, frozen=True):
    """A function call; `depth` None = no limit."""

    function: str
    arguments: tuple[Expression, ...]
    depth: int | None


class Combined(Struct, frozen=True):
    """A chain of operands, for example `a + b - c`. Each is stored with the operator before it, the first operand with "+"."""

    operands: tuple[tuple[str, Expression], ...]


Expression = Name | Call | Combined
Nodes = dict[Node, None]
"""An ordered set of nodes: the keys of a dict."""


def parse(text: str) -> Expression:
    """Parse a query.

    Raises:
        QueryError: the query cannot be parsed.
    """
    parser = _Parser(text)
    expression = parser.expression()
    parser.end()
    return expression


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0

    # -------------------------------------------------------------------------------------------------------------- rules

    def expression(self) -> Expression:
        self._depth += 1
        if self._depth > DEEPEST:
            raise self._error("the query is nested too deeply", f"the maximum is {DEEPEST} levels")
        operands = [("+", self._operand())]
        while sign := self._sign():
            operands.append((sign, self._operand()))
        self._depth -= 1
        return operands[0][1] if len(operands) == 1 else Combined(tuple(operands))

    def _operand(self) -> Expression:
        char = self._peek()
        if char == "(":
            self._at += 1
            inner = self.expression()
            self._expect(")", "to close the '('")
            return inner
        if char in ('"', "'"):
            return self._read_quoted(char)
        found = _WORD.match(self._text, self._at)
        if found is None or found[0] in _SIGNS:
            raise self._error(f"expected a name, a function or '(', not {self._describe_next()}")
        start, self._at = self._at, found.end()
        if self._peek() == "(":
            return self._call(found[0], start)
        return Name(found[0], start + 1)

    def _call(self, function: str, start: int) -> Call:
        if function not in FUNCTIONS:
            self._at = start
            raise self._error(f"'{function}' is not a function", _nearest(function))
        self._at += 1
        arguments = [self.expression()]
        depth = None
        while len(arguments) < FUNCTIONS[function]:
            self._expect(",", f"and a second argument, as in {function}(FROM, TO)")
            arguments.append(self.expression())
        if function in _TAKES_DEPTH and self._peek() == ",":
            self._at += 1
            depth = self._number()
        self._expect(")", f"to close '{function}('")
        return Call(function, tuple(arguments), depth)

    def _read_quoted(self, quote: str) -> Name:
        end = self._text.find(quote, self._at + 1)
        if end < 0:
            raise self._error(f"the closing {quote} is missing")
        name = Name(self._text[self._at + 1 : end], self._at + 1)
        if not name.text:
            raise self._error("a name cannot be empty")
        self._at = end + 1
        return name

    def _number(self) -> int:
        self._peek()
        found = re.compile(r"\d{1,6}(?![^\s)])").match(self._text, self._at)
        if found is None:
            raise self._error(f"expected a whole number (the depth), not {self._describe_next()}")
        self._at = found.end()
        return int(found[0])

    def _sign(self) -> str:
        self._peek()
        found = _WORD.match(self._text, self._at)
        if found is None:
            return ""
        word = found[0] if found[0] in _SIGNS else found[0][0]
        if word not in _SIGNS:
            return ""
        self._at += len(word)
        return _SIGNS[word]

    def end(self) -> None:
        if self._peek():
            hint = "put a name with spaces, commas or parentheses in quotes" if self._text[self._at] not in "()," else ""
            raise self._error(f"expected '+', '-', '^' or the end, not {self._describe_next()}", hint)

    # -------------------------------------------------------------------------------------------------------------- pieces

    def _peek(self) -> str:
        while self._at < len(self._text) and self._text[self._at].isspace():
            self._at += 1
        return self._text[self._at : self._at + 1]

    def _expect(self, char: str, why: str) -> None:
        if self._peek() != char:
            raise self._error(f"expected '{char}' {why}, not {self._describe_next()}")
        self._at += 1

    def _describe_next(self) -> str:
        self._peek()
        found = _WORD.match(self._text, self._at)
        word = found[0] if found else self._text[self._at : self._at + 1]
        return f"'{word}'" if word else "the end"

    def _error(self, what: str, hint: str = "") -> QueryError:
        return QueryError(what, self._at + 1, hint)


def _nearest(function: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(function, FUNCTIONS, n=1)
    return (
        f"did you mean '{near[0]}'?"
        if near
        else f"the functions are: {', '.join(FUNCTIONS)}; put a name with parentheses in quotes"
    )


# ---------------------------------------------------------------------------------------------------------------- answering


class QueryAnswer(Struct, frozen=True):
    """The result of a query.

    If the whole query is one call of `somepath`, `nodes` are the nodes of the path in order, and `way` has its edges.
    """

    nodes: tuple[Node, ...]
    way: tuple[Edge, ...] = ()
    is_way: bool = False


def answer(expression: Expression, graph: AssetGraph, lookup: Callable[[Name], Iterable[Node]]) -> QueryAnswer:
    """Evaluate a query.

    Args:
        lookup: returns the nodes that a name stands for; `answer` does not catch its exceptions.
    """
    evaluation = _Evaluation(graph, lookup)
    if isinstance(expression, Call) and expression.function == "somepath":
        starts, ends = (evaluation.nodes(argument) for argument in expression.arguments)
        nodes, way = evaluation.some_path(starts, ends)
        return QueryAnswer(tuple(nodes), tuple(way), is_way=True)
    return QueryAnswer(tuple(evaluation.nodes(expression)))


class _Evaluation:
    def __init__(self, graph: AssetGraph, lookup: Callable[[Name], Iterable[Node]]) -> None:
        self._graph = graph
        self._lookup = lookup

    def nodes(self, expression: Expression) -> Nodes:
        match expression:
            case Name():
                return dict.fromkeys(self._lookup(expression))
            case Combined(operands):
                parts = [(sign, self.nodes(operand)) for sign, operand in operands]
                return reduce(_combine, parts[1:], parts[0][1])
            case Call():
                return self._call_function(expression)

    def _call_function(self, call: Call) -> Nodes:
        first, *others = (self.nodes(argument) for argument in call.arguments)
        graph = self._graph
        match call.function:
            case "deps":
                return dict.fromkeys(graph.walk(first, call.depth))
            case "rdeps":
                return dict.fromkeys(graph.walk(first, call.depth, is_reverse=True))
            case "somepath":
                return self.some_path(first, others[0])[0]
            case "allpaths":
                return dict.fromkeys(sorted(graph.all_paths(first, others[0])))
            case "sources":
                return dict.fromkeys(filter(is_source, first))
            case _:
                return dict.fromkeys(filter(is_product, first))

    def some_path(self, starts: Nodes, ends: Nodes) -> tuple[Nodes, list[Edge]]:
        both = [node for node in starts if node in ends]
        if both:
            return {both[0]: None}, []
        way = self._graph.some_path(starts, ends)
        nodes = [way[0].needs, *(edge.needed for edge in way)] if way else []
        return dict.fromkeys(nodes), way


def _combine(left: Nodes, part: tuple[str, Nodes]) -> Nodes:
    sign, right = part
    if sign == "+":
        return {**left, **right}
    return {node: None for node in left if (node in right) is (sign == "^")}

"""Layers of YAML laid over each other, key by key; where each value stands is kept.

Tests: `tests/config/test_load.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial, reduce
from typing import TYPE_CHECKING

from msgspec.structs import replace

from aptui.shared.errors import UserError

if TYPE_CHECKING:
    from aptui.config.yaml.nodes import Node

from aptui.config.model import ConfigErrors

SHIPPED_LAYERS = 2
"""How many of the first layers come with the package."""
_NAMED = (("builders",), ("scan_folders",))
"""Lists that are merged by the names of their entries."""


def merge_layers(trees: Sequence[Node]) -> Node:
    """Return what layers come to together; the first after the shipped ones is the project's own."""
    shipped, own = reduce(_merge, trees[:SHIPPED_LAYERS]), reduce(_merge, trees[SHIPPED_LAYERS:])
    rules = own.get("shipped_ignore")
    if rules is not None and rules.value is False:
        del shipped.value["ignore"]
    root = _merge(shipped, own)
    root.where = trees[SHIPPED_LAYERS].where
    return root


def parse_layers(layers: Sequence[tuple[str, bytes]], sets: Sequence[str]) -> list[Node]:
    """Return layers and options as trees.

    Raises:
        ConfigErrors: all mistakes that were found.
    """
    from aptui.config.yaml import checking, nodes

    trees: list[Node] = []
    mistakes: list[UserError] = []
    readers = [partial(_read_shipped, data, file) for file, data in layers[:SHIPPED_LAYERS]]
    readers += [partial(nodes.read_yaml, data, file) for file, data in layers[SHIPPED_LAYERS:]]
    readers += [partial(_set_layer, text) for text in sets]
    for at, read in enumerate(readers):
        try:
            trees.append(read())
        except UserError as mistake:
            mistakes.append(mistake)
        else:
            mistakes += checking.check(trees[-1], is_partial=at > SHIPPED_LAYERS)
    if mistakes:
        raise ConfigErrors(mistakes)
    return trees


def _read_shipped(data: bytes, name: str) -> Node:
    """Read a layer that is the same for every project: a process that reads many configurations parses it once."""
    from copy import deepcopy

    return deepcopy(_parse_layer(data, name))


@lru_cache(maxsize=SHIPPED_LAYERS)
def _parse_layer(data: bytes, name: str) -> Node:
    from aptui.config.yaml import nodes

    return nodes.read_yaml(data, name)


def _merge(base: Node, top: Node, path: tuple[str, ...] = ()) -> Node:
    """Lay `top` over `base`: mappings key by key, `ignore` appended, named lists by their names; the rest is replaced."""
    if isinstance(base.value, dict) and isinstance(top.value, dict):
        merged = dict(base.value)
        for key, node in top.value.items():
            merged[key] = _merge(merged[key], node, (*path, key)) if key in merged else node
        return replace(top, value=merged)
    if path == ("ignore",):
        return replace(top, value=base.value + top.value)
    return _merge_named(base, top) if path in _NAMED else top


def _merge_named(base: Node, top: Node) -> Node:
    merged = {node.value["name"].value: node for node in base.value}
    for node in top.value:
        name = node.value["name"].value
        merged[name] = _merge(merged[name], node, ("", name)) if name in merged else node
    return replace(top, value=list(merged.values()))


def _set_layer(text: str) -> Node:
    """Turn `builders.textures.params.format=webp` into a layer that says just that."""
    from aptui.config.yaml.nodes import Node, read_yaml

    key, equals, value = text.partition("=")
    where = f"--set {key}"
    if key.startswith("/"):
        raise UserError("a key of O3DE's settings registry, which this project does not have", where=where)
    steps = key.strip().split(".")
    if not equals or not all(steps):
        raise UserError("an option is KEY=VALUE", where=f"--set {text}", hint="for example --set workers=4")
    node = read_yaml(value.encode("utf-8", "surrogateescape"), where) if value.strip() else Node("", where)
    for depth in range(len(steps) - 1, -1, -1):
        if depth == 1 and (steps[0],) in _NAMED:
            entry = {**node.value, "name": Node(steps[1], where, where)} if isinstance(node.value, dict) else node.value
            node = Node([Node(entry, where)], where)
        else:
            node = Node({steps[depth]: Node(node.value, node.where, where)}, where)
    return node

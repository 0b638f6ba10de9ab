"""Merges layers of YAML, key by key; each value keeps its place.

Tests: `tests/config/test_load.py`.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace

from aptui.config.configuration import Config, ConfigErrors
from aptui.config.packing import sign_project
from aptui.shared.errors import UserError

if TYPE_CHECKING:
    from aptui.config.yaml.nodes import Node


# `MergedTree` gives the compiler the values of the merged layers, with absolute paths, and collects the mistakes in the layers.

T = TypeVar("T")


class MergedTree:
    """The merged layers; mistakes are collected, so that the user sees all of them at once.

    Args:
        root: the layers, merged.
        folder: the project's folder, the base of relative paths.
    """

    def __init__(self, root: Node, folder: Path) -> None:
        self.root, self.folder = root, folder
        self.mistakes: list[UserError] = []
        self.warnings: list[str] = []

    def plain(self, key: str, default: T) -> T:
        """Return the value of a top-level key of the merged layers."""
        node = self.root.get(key)
        value: T = default if node is None else node.value
        return value

    def plain_tree(self, key: str) -> dict[str, Any]:
        """Return the mapping below a top-level key, without places."""
        node = self.root.get(key)
        return node.plain() if node is not None else {}

    def members(self, key: str) -> dict[str, Node]:
        """Return {key: node} of the mapping below a top-level key."""
        return self.plain(key, {})

    def attempt(self, action: Callable[[Node], T], node: Node) -> T | None:
        """Return `action(node)`; if it raises UserError, record the mistake and return None."""
        try:
            return action(node)
        except UserError as mistake:
            self.mistakes.append(mistake)
            return None

    def attempt_all(self, action: Callable[[Node], T | None], items: Iterable[Node]) -> list[T]:
        """Return the results of `action` for these nodes, without those whose mistake was recorded."""
        return [found for found in (self.attempt(action, node) for node in items) if found is not None]

    def wrong(self, what: str, node: Node, hint: str = "") -> None:
        """Record a mistake."""
        self.mistakes.append(UserError(what, where=node.where, hint=hint))

    def absolute(self, path: str) -> str:
        """Return an absolute path; a relative one is below the project."""
        return os.path.normpath(os.path.join(self.folder, os.path.expanduser(path)))

    def file(self, node: Node | None) -> str:
        """Return the absolute path of an optional file, "" if it is not set."""
        return self.absolute(node.value) if node is not None else ""

    def store(self, text: str) -> str:
        """Return the location of a store: a URL, or an absolute path."""
        return text if "://" in text else self.absolute(text)

    def path(self, key: str, default: str) -> str:
        """Return the absolute path that a top-level key sets."""
        return self.absolute(self.plain(key, default))

    def folders(self, key: str) -> tuple[str, ...]:
        """Return the absolute paths in a top-level list."""
        return tuple(self.absolute(node.value) for node in self.root.items(key))


# The configuration names environment variables that builders receive, so the values of these variables may affect products.
#
# The values at the start of this process are used. Only digests of the values are stored and compared, because a value may be a
# secret.

_DIGEST_HEX = 32


def digests_of(names: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Return (name, digest of its value) of variables, each once, sorted; the digest is "" if the variable is not set."""
    return tuple((name, _digest(os.environb.get(name.encode()))) for name in sorted(set(names)))


def _digest(value: bytes | None) -> str:
    return "" if value is None else hashlib.sha256(value).hexdigest()[:_DIGEST_HEX]


def refresh_variables(config: Config) -> Config:
    """Return `config` with the digests of the variables' values in this process."""
    project = config.project
    if not any(builder.variables for builder in (project.unlisted_builder, *project.builders)):
        return config
    unlisted, *builders = (
        replace(builder, variables=digests_of(dict(builder.variables))) for builder in (project.unlisted_builder, *project.builders)
    )
    now = replace(project, unlisted_builder=unlisted, builders=tuple(builders))
    return config if now == project else replace(config, project=sign_project(now))


def variables_of(config: Config) -> dict[str, str]:
    """Return {name: digest of its value} of all variables that the configuration names; "" = the variable is not set."""
    project = config.project
    return dict(sorted(pair for builder in (project.unlisted_builder, *project.builders) for pair in builder.variables))


def differing(config: Config, other: Mapping[str, object]) -> list[str]:
    """Return the names of variables whose digests differ from those in `other` {name: digest}."""
    return [name for name, digest in variables_of(config).items() if name in other and other[name] != digest]


SHIPPED_LAYERS = 2
"""Number of layers shipped with aptui; all other layers come after them."""
_NAMED = (("builders",), ("scan_folders",))
"""Lists that are merged by the names of their entries."""


def merge_layers(trees: Sequence[Node]) -> Node:
    """Return the merged layers. The first layer after the shipped ones must be the project's."""
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
    """Read a layer that is the same for every project. The result is cached, because a process may read many configurations."""
    from copy import deepcopy

    return deepcopy(_parse_layer(data, name))


@lru_cache(maxsize=SHIPPED_LAYERS)
def _parse_layer(data: bytes, name: str) -> Node:
    """Parse a shipped layer after removing its comments, which are most of its bytes and slow to read.

    No text in these files continues over several lines, so every line that begins with `#` is a comment.
    """
    from aptui.config.yaml import nodes

    return nodes.read_yaml(re.sub(rb"(?m)^ *#.*$", b"", data), name)


def _merge(base: Node, top: Node, path: tuple[str, ...] = ()) -> Node:
    """Merge `top` over `base`: mappings key by key, named lists by names; `ignore` is appended, everything else is replaced."""
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
    """Turn `builders.textures.params.format=webp` into a layer that sets only this key."""
    from aptui.config.yaml.nodes import Node, read_yaml

    key, equals, value = text.partition("=")
    where = f"--set {key}"
    if key.startswith("/"):
        raise UserError("this is a key of O3DE's settings registry, but the project is not an O3DE project", where=where)
    steps = key.strip().split(".")
    if not equals or not all(steps):
        raise UserError("--set needs KEY=VALUE", where=f"--set {text}", hint="for example --set workers=4")
    node = read_yaml(value.encode("utf-8", "surrogateescape"), where) if value.strip() else Node("", where)
    for depth in range(len(steps) - 1, -1, -1):
        if depth == 1 and (steps[0],) in _NAMED:
            entry = {**node.value, "name": Node(steps[1], where, where)} if isinstance(node.value, dict) else node.value
            node = Node([Node(entry, where)], where)
        else:
            node = Node({steps[depth]: Node(node.value, node.where, where)}, where)
    return node

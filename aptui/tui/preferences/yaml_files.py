"""Reads YAML files of the screen (themes, keys) as plain data that the caller checks; an unchanged file comes from a cache.

Tests: `tests/tui/preferences/test_theming.py`.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aptui import __version__
from aptui.config.dirs import user_file, xdg
from aptui.config.packing import write_compiled
from aptui.shared.errors import UserError, nearest

if TYPE_CHECKING:
    from aptui.config.yaml.nodes import Node

_LARGEST_BYTES = (1 << 20) + 1
_FORM = 1
"""Format version of the cached data; a cache file with another version is ignored."""


def config_home() -> Path:
    """Return the folder of the user's settings."""
    return user_file().parent


def compile_file(file: Path, compile_node: Callable[[Node], Any]) -> Any:
    """Return the plain JSON data that `compile_node` makes from `file`.

    Raises:
        UserError: the file cannot be read, or has a mistake, with its place.
    """
    try:
        with file.open("rb") as stream:
            data = stream.read(_LARGEST_BYTES)
    except OSError as error:
        raise UserError(f"the file cannot be read: {(error.strerror or str(error)).lower()}", where=str(file)) from None
    kind = f"{compile_node.__module__}.{compile_node.__qualname__}"
    key = hashlib.sha256(repr((_FORM, __version__, kind, str(file), data)).encode()).hexdigest()
    name = hashlib.sha256(os.fsencode(file)).hexdigest()[:24]
    compiled = os.path.join(xdg("XDG_CACHE_HOME", "~/.cache"), "screen", f"{name}.json")
    value = _recall(compiled, key)
    if value is None:
        from aptui.config.yaml.nodes import read_yaml  # imported here to keep the start fast: needed only after a file changed

        value = compile_node(read_yaml(data, str(file)))
        write_compiled(compiled, json.dumps({"key": key, "value": value}))
    return value


def check_key(node: Node, key: str, known: tuple[str, ...] | frozenset[str], what: str) -> None:
    """Check that `key` of the mapping `node` is one of the keys `known`.

    Raises:
        UserError: `key` is unknown; the hint has the nearest known key.
    """
    if key not in known:
        raise UserError(
            f"unknown {what} '{key}'", where=node.value[key].key_where or node.value[key].where, hint=nearest(key, known)
        )


def mapping(node: Node, what: str) -> dict[str, Node]:
    """Return the children of the mapping `node`.

    Raises:
        UserError: `node` is not a mapping.
    """
    if not isinstance(node.value, dict):
        raise UserError(f"{what} must be a mapping", where=node.where)
    return node.value


def text(node: Node, what: str) -> str:
    """Return the text of the scalar `node`.

    Raises:
        UserError: `node` is not text.
    """
    if not isinstance(node.value, str):
        raise UserError(f"{what} must be text", where=node.where, hint="put it in quotes")
    return node.value


def _recall(compiled: str, key: str) -> Any:
    try:
        with open(compiled, encoding="ascii") as stream:
            value = json.load(stream)
        return value["value"] if value["key"] == key else None
    except (OSError, ValueError, TypeError, KeyError):
        return None

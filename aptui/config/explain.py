"""Which line of which file gave a key of the configuration its value, layer by layer.

Tests: `tests/features/o3de/project/test_project_format.py`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from aptui.shared.errors import UserError

if TYPE_CHECKING:
    from aptui.config.yaml.nodes import Node

from aptui.config.dirs import format_of
from aptui.config.load import layer_trees

_LONGEST = 100
"""Characters of a value that is explained."""


class ConfigMessage(Struct, frozen=True):
    """What one layer says about a key: `text` is the value on one line, None when it takes the key away."""

    where: str
    text: str | None


def explain(project_dir: Path, key: str, sets: Sequence[str] = ()) -> list[ConfigMessage]:
    """Return what each layer says about a key (with dots, as after `--set`), the one that is in force last.

    Raises:
        UserError: nobody says anything about it.
    """
    project_dir = Path(os.path.abspath(project_dir))
    project_format = format_of(project_dir)
    if project_format is not None:
        messages: list[ConfigMessage] = project_format.explain(project_dir, key, sets)
        return messages
    return explain_key(layer_trees(project_dir, sets), key)


def explain_key(trees: Sequence[Node], key: str) -> list[ConfigMessage]:
    """Return what each of these layers says about a key, in their order."""
    from aptui.config.yaml.nodes import nearest

    messages = [
        ConfigMessage(node.where, _show_node(node)) for node in (_at(tree, key.split(".")) for tree in trees) if node is not None
    ]
    if not messages:
        known = {name for tree in trees for name in tree.value}
        raise UserError(f"no file sets '{key}'", hint=nearest(key.partition(".")[0], known))
    return messages


def _at(node: Node | None, steps: Sequence[str]) -> Node | None:
    """Return the node at a way of keys; entries of lists go by their names."""
    for step in steps:
        if node is not None and isinstance(node.value, list):
            names = {each.value["name"].value: each for each in node.value if each.get("name") is not None}
            node = names.get(step)
        else:
            node = node.get(step) if node is not None else None
    return node


def _show_node(node: Node) -> str:
    text = json.dumps(node.plain(), ensure_ascii=False)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"

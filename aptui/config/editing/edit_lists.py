"""Brings a list of `aptui.yaml` to other entries: what stays is not touched, and keeps its place, its style and its comments.

Tests: `tests/config/editing/test_edit_lists.py`.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from typing import Any

from aptui.config.editing import edit
from aptui.config.yaml import nodes
from aptui.config.yaml.nodes import Node
from aptui.shared.errors import UserError

_COMMA_AFTER = re.compile(r"\s*,[ \t]*")
_COMMA_BEFORE = re.compile(r"[ \t]*,?[ \t]*$")
_KEY = re.compile(r"""(?:"[^"\n]*"|'[^'\n]*'|[^:\n]*):""")


def with_entries(text: str, name: str, key: str, entries: Sequence[Any]) -> str:
    """Return `text`, a layer, with exactly `entries` in the list `key` (with dots).

    Mappings with the same `id` are the same entry.

    Raises:
        UserError: the layer is not valid, or too unusual to be changed here.
    """
    wanted = list(entries)
    now = _list(text, name, key)
    if now is None or not now.value:
        return text if now is not None and not wanted else edit.edit_text(text, name, key, wanted)
    for changed in (_change_list(text, name, key, wanted), edit.edit_text(text, name, key, wanted)):
        found = _list_or_none(changed, name, key)
        if found is not None and found.plain() == wanted:
            return changed
    raise UserError(f"'{key}' cannot be written here without touching more", where=name, hint="write it by hand")


def _change_list(text: str, name: str, key: str, wanted: list[Any]) -> str:
    """Do one small change after the other."""
    now = _entries(text, name, key)
    identities = {_identity(entry) for entry in wanted}
    differ = [at for at, (one, other) in enumerate(zip(now, wanted, strict=False)) if one != other]
    if len(now) == len(wanted) and len(differ) == 1:  # one that was renamed keeps its place
        identities.add(_identity(now[differ[0]]))
    for at in reversed(range(len(now))):
        if _identity(now[at]) not in identities:
            text = _without(text, _find_list(text, name, key), at, key)
    for at, entry in enumerate(wanted):
        now = _entries(text, name, key)
        if at >= len(now):
            text = edit.edit_text(text, name, key, entry, adds=True)
        elif now[at] != entry:
            text = _replace_entry(text, _find_list(text, name, key).value[at], entry)
    return text


def _replace_entry(text: str, node: Node, entry: Any) -> str:
    if not isinstance(node.value, dict) or not isinstance(entry, dict) or not node.value.keys() <= entry.keys():
        return text[: node.span[0]] + edit.inline(entry) + text[node.span[1] :]
    places = sorted(node.value.items(), key=lambda item: item[1].span, reverse=True)
    for name in entry.keys() - node.value.keys():
        text = edit.insert_key(text, node, [name], entry[name])
    for name, child in places:
        if child.plain() != entry[name]:
            text = text[: child.span[0]] + edit.inline(entry[name]) + text[child.span[1] :]
    return text


def _without(text: str, node: Node, at: int, key: str) -> str:
    start, end = node.value[at].span
    if node.is_flow:
        after = _COMMA_AFTER.match(text, end)
        if after is not None:
            return text[:start] + text[after.end() :]
        before = _COMMA_BEFORE.sub("", text[:start])
        return before + text[end:]
    first = text.rfind("\n", 0, start) + 1
    last = text.find("\n", start + len(text[start:end].rstrip()))
    rest = text[:first] + ("" if last < 0 else text[last + 1 :])
    if len(node.value) > 1:
        return rest
    line, column = (int(number) for number in node.key_where.rsplit(":", 2)[1:])
    begins = sum(len(each) for each in text.splitlines(keepends=True)[: line - 1]) + column - 1
    colon = _KEY.match(rest, begins)
    if colon is None:
        raise UserError(f"'{key}' cannot be written here without touching more", where=node.where, hint="write it by hand")
    return f"{rest[: colon.end()]} []{rest[colon.end() :]}"


def _identity(entry: Any) -> Hashable:
    return entry.get("id") if isinstance(entry, dict) else entry


def _list(text: str, name: str, key: str) -> Node | None:
    node: Node | None = nodes.read_yaml(text.encode(), name)
    for step in key.split("."):
        node = node.get(step) if node is not None else None
    return node if node is not None and isinstance(node.value, list) else None


def _list_or_none(text: str, name: str, key: str) -> Node | None:
    try:
        return _list(text, name, key)
    except UserError:
        return None


def _find_list(text: str, name: str, key: str) -> Node:
    node = _list(text, name, key)
    if node is None:
        raise UserError(f"'{key}' is no list any more", where=name, hint="write it by hand")
    return node


def _entries(text: str, name: str, key: str) -> list[Any]:
    return list(_find_list(text, name, key).plain())

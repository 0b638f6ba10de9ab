"""Reads the INI files that the reference still has: sections of `key = value`, each value with its place.

Tests: `tests/o3de/registry/test_registry.py`.
"""

from __future__ import annotations

from aptui.config.yaml.nodes import Node
from aptui.shared.errors import UserError


def read_ini(data: bytes, name: str) -> dict[str, Node]:
    """Return {section: its keys}; every value is text.

    Raises:
        UserError: a line is neither a section, a key, nor a comment.
    """
    sections: dict[str, Node] = {}
    keys: dict[str, Node] = {}
    for number, raw in enumerate(data.decode("utf-8-sig", "replace").splitlines(), 1):
        line = raw.strip()
        where = f"{name}:{number}:{len(raw) - len(raw.lstrip()) + 1}"
        if not line or line[0] in ";#":
            continue
        if line[0] == "[":
            if not line.endswith("]"):
                raise UserError("']' is missing at the end of a section's name", where=where)
            section = line[1:-1].strip()
            keys = sections.setdefault(section, Node({}, where, where)).value
            continue
        key, equals, value = (part.strip() for part in line.partition("="))
        if not equals:
            raise UserError(f"'{line}' is not 'key = value'", where=where)
        if not sections:
            raise UserError(f"'{key}' stands before the first [section]", where=where)
        if len(value) > 1 and value[0] == value[-1] == '"':
            value = value[1:-1]
        keys[key] = Node(value, where, where)
    return sections

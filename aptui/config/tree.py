"""The merged layers as the compiler reads them: values by key, absolute paths, and the mistakes that are found on the way.

Tests: `tests/config/test_compiler.py`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from aptui.config.yaml.nodes import Node
from aptui.shared.errors import UserError

T = TypeVar("T")


class MergedTree:
    """The layers, merged; mistakes are collected, so that people see all of them at once.

    Args:
        root: the layers, merged.
        folder: the project's, which relative paths begin at.
    """

    def __init__(self, root: Node, folder: Path) -> None:
        self.root, self.folder = root, folder
        self.mistakes: list[UserError] = []
        self.warnings: list[str] = []

    def plain(self, key: str, default: T) -> T:
        """Return the value of a key at the top."""
        node = self.root.get(key)
        value: T = default if node is None else node.value
        return value

    def plain_tree(self, key: str) -> dict[str, Any]:
        """Return what stands below a key at the top, without places."""
        node = self.root.get(key)
        return node.plain() if node is not None else {}

    def members(self, key: str) -> dict[str, Node]:
        """Return {key: node} of what stands below a key at the top."""
        return self.plain(key, {})

    def items(self, key: str) -> list[Node]:
        """Return the nodes of a list at the top."""
        return self.plain(key, [])

    def attempt(self, action: Callable[[Node], T], node: Node) -> T | None:
        """Return what `action` makes of a node; None and a mistake if it refuses."""
        try:
            return action(node)
        except UserError as mistake:
            self.mistakes.append(mistake)
            return None

    def wrong(self, what: str, node: Node, hint: str = "") -> None:
        """Note a mistake."""
        self.mistakes.append(UserError(what, where=node.where, hint=hint))

    def absolute(self, path: str) -> str:
        """Return a path that begins at the project."""
        return os.path.normpath(os.path.join(self.folder, os.path.expanduser(path)))

    def file(self, node: Node | None) -> str:
        """Return the absolute path of a file that may not be named, "" then."""
        return self.absolute(node.value) if node is not None else ""

    def store(self, text: str) -> str:
        """Return the place of a store: an address, or an absolute path."""
        return text if "://" in text else self.absolute(text)

    def path(self, key: str, default: str) -> str:
        """Return the absolute path of a key at the top."""
        return self.absolute(self.plain(key, default))

    def folders(self, key: str) -> tuple[str, ...]:
        """Return the absolute paths of a list at the top."""
        return tuple(self.absolute(node.value) for node in self.items(key))

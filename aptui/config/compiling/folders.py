"""Scan folders of the configuration, and what is not looked at in them.

Tests: `tests/config/test_compiler.py`.
"""

from __future__ import annotations

import os
import re

from aptui.config.compiling.platforms import DeclaredPlatforms
from aptui.config.compiling.tree import MergedTree
from aptui.config.yaml import nodes, scalars
from aptui.config.yaml.nodes import Node
from aptui.core.project import ScanFolder
from aptui.shared.errors import UserError


class FolderCompiler:
    """Compiles scan folders and ignore rules.

    Args:
        own: folders that belong to aptui: cache and logs.
    """

    def __init__(self, tree: MergedTree, platforms: DeclaredPlatforms, own: tuple[str, ...]) -> None:
        self._tree, self._platforms, self._own = tree, platforms, own

    def scan_folders(self) -> tuple[ScanFolder, ...]:
        """Return the scan folders, the one that wins first."""
        nodes = self._tree.items("scan_folders")
        if not nodes:
            self._tree.wrong("no scan folders", self._tree.root, "add 'scan_folders: [{name: game, path: assets}]'")
        found = [(folder, node) for node in nodes if (folder := self._tree.attempt(self._scan_folder, node)) is not None]
        found.sort(key=lambda pair: pair[0].order)
        real = [os.path.realpath(folder.path) for folder, _ in found]
        for later, (folder, node) in enumerate(found):
            for own in self._own:
                if _contains(os.path.realpath(own), real[later]):
                    self._tree.wrong(f"scan folder '{folder.name}' is inside '{own}', which belongs to aptui", node.value["path"])
            for earlier in range(later):
                self._check_pair(found[earlier][0], folder, node, (real[earlier], real[later]))
        return tuple(folder for folder, _ in found)

    def _scan_folder(self, node: Node) -> ScanFolder:
        name, path = node.value["name"].value, node.get("path")
        if path is None:
            names = [item.value["name"].value for item in self._tree.items("scan_folders") if item is not node]
            raise UserError(f"'path' is missing in 'scan_folders.{name}'", where=node.where, hint=nodes.nearest(name, names))
        absolute = os.path.normpath(os.path.join(self._tree.folder, os.path.expanduser(path.value)))
        if not os.path.isdir(absolute):
            problem = "is not a folder" if os.path.lexists(absolute) else "does not exist"
            raise UserError(f"scan folder '{name}' {problem}: '{absolute}'", where=path.where)
        include, exclude = node.get("include"), node.get("exclude")
        chosen = (
            self._platforms.matching(include)
            if include and include.value
            else {platform.id for platform in self._platforms.enabled}
        )
        chosen -= self._platforms.matching(exclude)
        order, recursive = node.get("order"), node.get("recursive")
        return ScanFolder(
            id=0,
            name=name,
            path=absolute,
            order=order.value if order else 0,
            recursive=recursive.value if recursive else True,
            platforms=tuple(platform.id for platform in self._platforms.enabled if platform.id in chosen),
        )

    def _check_pair(self, earlier: ScanFolder, later: ScanFolder, node: Node, real: tuple[str, str]) -> None:
        """Refuse two names for one folder, and a folder of which an outer one takes every file."""
        if real[0] == real[1]:
            self._tree.wrong(f"scan folder '{later.name}' is the same folder as '{earlier.name}'", node.value["path"])
        elif earlier.recursive and _contains(real[0], real[1]):
            what = f"scan folder '{later.name}' is inside '{earlier.name}', which has all its files already"
            self._tree.wrong(what, node.value["path"], f"give it an order below {earlier.order}")

    def ignore_regex(self, folders: tuple[ScanFolder, ...]) -> str:
        """Return one expression for all that is not looked at."""
        found = [self._tree.attempt(scalars.ignore_regex, node) for node in self._tree.items("ignore")]
        rules = [rule for rule in found if rule is not None]
        if (
            len(folders) == 1
        ):  # with several, a relative path would hit the others too; the scanner prunes these by absolute path anyway
            below = [os.path.relpath(own, folders[0].path) for own in self._own if _contains(folders[0].path, own)]
            rules += [f"(?-i:{re.escape(rel)})(?s:/.*)?" for rel in below]
        return scalars.join_rules(rules)


def _contains(folder: str, path: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")

"""The scan folders of an O3DE project: those of its settings (`ScanFolder *`) with macros, and those of its gems.

Tests: `tests/features/o3de/project/test_project_format.py`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping

from msgspec import Struct

from aptui.config.yaml.nodes import Node
from aptui.core.patterns import wildcard
from aptui.features.o3de.project.project_roots import ProjectRoots
from aptui.features.o3de.project.rules import iter_named
from aptui.features.o3de.project_facts import Options
from aptui.features.o3de.registry.settings_registry import plain_text, split_texts, truth, whole
from aptui.shared.errors import UserError

_MACRO = re.compile(r"@(GEMROOT:([^@]+)|[A-Z]+)@", re.IGNORECASE)
_GEM_START = 100
_PROJECT_FOLDER = "Project/Assets"
"""Name of the project's own scan folder; the folders of gems inside the project can be before or after this folder."""


class ScanFolderEntry(Struct, frozen=True):
    """A folder to scan; `include` and `exclude` are ids and tags of platforms."""

    name: str
    path: str
    order: int
    recursive: bool = True
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    where: str = "aptui"


class ScanFolderSettings:
    """Finds the scan folders, and adds a warning for each requested folder that cannot be used.

    Args:
        references: ids and tags of all declared platforms, in lower case.
        is_folder: returns whether a path is a folder.
    """

    def __init__(
        self, places: ProjectRoots, options: Options, references: Collection[str], is_folder: Callable[[str], bool]
    ) -> None:
        self._places = places
        self._options = options
        self._references = references
        self._is_folder = is_folder
        self.warnings: list[str] = []

    def find(self, settings: Mapping[str, Node]) -> list[ScanFolderEntry]:
        """Return the existing folders in order, without folders whose files all belong to another folder."""
        found = {folder.name.lower(): folder for folder in self._list_asked(settings)}
        there = [folder for folder in found.values() if self._is_there(folder)]
        there.sort(key=lambda folder: folder.order)
        return self._drop_shadowed(there)

    def _list_asked(self, settings: Mapping[str, Node]) -> Iterator[ScanFolderEntry]:
        for index, path in enumerate(self._options.scan_folders):
            yield ScanFolderEntry(f"SF{index}", os.path.abspath(path), index, where="--scanfolders")
        project_order = 0
        for name, node in iter_named(settings, "scanfolder"):
            folder = self._read_configured(name, node)
            if name.lower() == _PROJECT_FOLDER.lower() and folder is not None:
                project_order = folder.order
            if folder is not None and self._options.has_config_scan_folders:
                yield folder
        if self._options.has_gem_scan_folders:
            yield from self._of_gems(settings, project_order)

    def _read_configured(self, name: str, node: Node) -> ScanFolderEntry | None:
        watch = node.get("watch")
        text = plain_text(watch) if watch is not None else ""
        wanted = self._options.scan_folder_patterns
        if wanted and not any(wildcard(pattern).fullmatch(text) for pattern in wanted):
            return None
        if watch is None or not text:
            self.warnings.append(f"{node.where}: scan folder '{name}' is not scanned, because it has no 'watch'")
            return None
        path = self._expand(text, watch, name)
        if path is None:
            return None
        include = self._platforms(node.get("include"))
        if split_texts(node.get("include")) and not include:
            return None  # the folder is only for platforms that the project does not declare
        is_root = path in (self._places.engine, self._places.asset_root)
        return ScanFolderEntry(
            name=name,
            path=path,
            order=_whole(node.get("order"), 0),
            recursive=truth(node.get("recursive")) and not (is_root and path != self._places.project),
            include=include,
            exclude=self._platforms(node.get("exclude")),
            where=watch.where,
        )

    def _platforms(self, node: Node | None) -> tuple[str, ...]:
        found = []
        for item in split_texts(node):
            if item.value.lower() in self._references:
                found.append(item.value.lower())
            else:
                self.warnings.append(f"{item.where}: '{item.value}' is neither a platform nor a tag")
        return tuple(found)

    def _expand(self, text: str, node: Node, name: str) -> str | None:
        """Return an absolute path, None if a macro has no value."""
        missing: list[str] = []

        def value(macro: re.Match[str]) -> str:
            found = self._macro(macro[1], macro[2])
            if found is None:
                missing.append(macro[0])
            return found or ""

        path = _MACRO.sub(value, text)
        if missing:
            self.warnings.append(f"{node.where}: scan folder '{name}' is not scanned, because '{missing[0]}' has no value")
            return None
        return os.path.normpath(os.path.join(self._places.asset_root, path.replace("\\", "/")))

    def _macro(self, name: str, gem: str | None) -> str | None:
        if gem is not None:
            return next((each.path for each in self._places.gems if each.name.lower() == gem.lower()), None)
        known = {
            "ROOT": self._places.asset_root,
            "ENGINEROOT": self._places.engine,
            "PROJECTROOT": self._places.project,
            "PROJECTNAME": self._places.name,
            "EXEFOLDER": self._places.program or None,
        }
        return known.get(name.upper())

    def _of_gems(self, settings: Mapping[str, Node], project_order: int) -> Iterator[ScanFolderEntry]:
        """Yield `Assets` and `Registry` of each gem; gems in the project can place their folders before or after the project's."""
        start = _whole(settings.get("GemScanFolderStartingPriorityOrder"), _GEM_START)
        placed = settings.get("ProjectRelativeGemsScanFolderPriority")
        side = {"lower": 1, "higher": -1}.get(plain_text(placed).strip().lower() if placed is not None else "", 0)
        where = placed.where if placed is not None else "aptui"
        count = 0
        for gem in self._places.gems:
            is_placed = side and gem.path.startswith(self._places.project + os.sep)
            for part in ("Assets", "Registry"):
                path, count = os.path.join(gem.path, part), count + 1
                if is_placed:
                    yield ScanFolderEntry(f"{gem.name}/{part}", path, project_order + side * count, where=where)
                else:
                    yield ScanFolderEntry(f"{gem.name}/{part}", path, start + count)

    def _is_there(self, folder: ScanFolderEntry) -> bool:
        if self._is_folder(folder.path):
            return True
        if folder.where != "aptui":  # only a folder that a settings file names must exist
            self.warnings.append(f"{folder.where}: scan folder '{folder.name}' does not exist: '{folder.path}'")
        return False

    def _drop_shadowed(self, folders: list[ScanFolderEntry]) -> list[ScanFolderEntry]:
        remaining: list[tuple[str, ScanFolderEntry]] = []
        for folder in folders:
            real = os.path.realpath(folder.path)
            owner = next((other for path, other in remaining if _is_taken(real, path, recursive=other.recursive)), None)
            if owner is None:
                remaining.append((real, folder))
            else:
                self.warnings.append(
                    f"{folder.where}: scan folder '{folder.name}' has no files of its own: all belong to '{owner.name}', "
                    "which has precedence"
                )
        return [folder for _path, folder in remaining]


def _is_taken(path: str, by: str, *, recursive: bool) -> bool:
    return path == by or (recursive and path.startswith(by.rstrip("/") + "/"))


def _whole(node: Node | None, default: int) -> int:
    """Return a whole number; the value may be a text with digits."""
    text = plain_text(node).strip() if node is not None else ""
    if not text:
        return default
    try:
        return whole(float(text))
    except ValueError:
        raise UserError(f"'{text}' is not a whole number", where=node.where if node is not None else "") from None


def as_node(folder: ScanFolderEntry) -> Node:
    """Return a scan folder as an entry of an `aptui.yaml`."""
    where = folder.where

    def plain(value: object) -> Node:
        return Node(value, where, where)

    entry = {"name": plain(folder.name), "path": plain(folder.path), "order": plain(folder.order)}
    if not folder.recursive:
        entry["recursive"] = plain(value=False)
    for key, names in (("include", folder.include), ("exclude", folder.exclude)):
        if names:
            entry[key] = Node([plain(name) for name in names], where, where)
    return Node(entry, where)

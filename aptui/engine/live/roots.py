"""The roots that a live engine watches: scan folders, the cache, the configuration.

What follows from a notification is `live.changes`'s.

Tests: `tests/engine/live/test_supervisor.py`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from aptui.core.paths import is_below
from aptui.core.project import INTERMEDIATES, Project
from aptui.engine.watch.notifications import CONTENTS, DELETIONS, NotifiedRoot

SOURCES, PRODUCTS, SETTINGS = "sources", "products", "settings"
"""Tags of roots: scan folders, the cache, and where configuration and project builders lie."""


def cookie_folder(cache: bytes) -> bytes:
    """Return the folder in which files are made to learn what was reported."""
    return os.path.join(cache, b"fence")


def roots_of(project: Project, cache: str, own_paths: Iterable[str], settings: Iterable[str]) -> list[NotifiedRoot]:
    """Return what is watched for a project.

    Args:
        own_paths: absolute paths of aptui's own files, whose changes are not reported.
        settings: folders whose direct files are configuration or builders.
    """
    skips = tuple(map(os.fsencode, own_paths))
    roots = [
        NotifiedRoot(os.fsencode(folder.path), f"{SOURCES}:{folder.name}", folder.recursive, skips=skips)
        for folder in project.scan_folders
        if not any(other.recursive and other is not folder and is_below(folder.path, other.path) for other in project.scan_folders)
    ]
    platforms = [(platform.id, DELETIONS) for platform in project.platforms]
    if os.path.isdir(os.path.join(cache, INTERMEDIATES)):  # few projects have any
        platforms.append((INTERMEDIATES, CONTENTS))
    roots += [
        NotifiedRoot(os.path.join(os.fsencode(cache), os.fsencode(name)), f"{PRODUCTS}:{name}", wants=wants)
        for name, wants in platforms
    ]
    return [*roots, *(NotifiedRoot(os.fsencode(path), f"{SETTINGS}:{path}", is_recursive=False) for path in settings)]


_SETTINGS_NAMES = frozenset(
    (b"aptui.yaml", b"builders", b"registry", b"project.json", b"engine.json", b"gem.json", b"o3de_manifest.json")
)


def is_setting(path: bytes) -> bool:
    """Whether a path next to the configuration is part of it.

    That is a file of it (also one of O3DE's), a builder, or the folder of either.
    """
    name = os.path.basename(path).lower()
    return name.endswith((b".py", b".setreg", b".setregpatch", b".ini")) or name in _SETTINGS_NAMES

"""Compiles a folder's `.aptui.yaml` to the text that `core.settings` reads: canonical JSON with the place of every key.

The first mistake is raised instead.

Tests: `tests/engine/test_folder_settings.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

from aptui.config.model import one_line
from aptui.config.packing import canonical
from aptui.config.yaml.checking import check_folder
from aptui.config.yaml.nodes import MAX_BYTES, Node, read_yaml
from aptui.core.settings import place_key
from aptui.shared.errors import UserError


def read(path: str, rel: str) -> str:
    """Return what the file at `path` says, as text; a mistake is part of it.

    Args:
        rel: its path as messages name it: relative to its scan folder.
    """
    try:
        with open(path, "rb") as stream:
            return compiled(stream.read(MAX_BYTES + 1), rel)
    except OSError as error:
        return wrong(rel, UserError(f"cannot be read: {(error.strerror or str(error)).lower()}", where=rel))


def compiled(data: bytes, rel: str) -> str:
    """Return what `data` says."""
    try:
        root = read_yaml(data, rel)
        for mistake in check_folder(root):
            raise mistake
    except UserError as mistake:
        return wrong(rel, mistake)
    builders = root.get("builders")
    sections = {
        name: {key: child.plain() for key in ("params", "platforms") for child in [node.get(key) or Node({}, "")]}
        for name, node in (builders.value if builders else {}).items()
    }
    places = {place_key(path): where.removeprefix(f"{rel}:") for path, where in _places(builders, ())} if builders else {}
    return canonical({"file": rel, "builders": sections, "places": places})


def wrong(rel: str, mistake: UserError) -> str:
    """Return the text of a file that cannot be understood."""
    return canonical({"file": rel, "error": one_line(str(mistake))})


def _places(node: Node, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the place of every key down to the single parameter."""
    for key, child in node.value.items() if isinstance(node.value, dict) else ():
        yield (*path, key), child.key_where
        yield from _places(child, (*path, key))

"""Finds the `.aptui.yaml` files above a path, and compiles each to the text that `core.settings` reads: canonical JSON with places.

For a file with mistakes the text is the first mistake. These files may come with untrusted content, so their size and number of
values are limited, and a running engine compiles large ones in another process (`engine.scan.metadata`).

Tests: `tests/engine/test_folder_settings.py`.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterator

from msgspec import Struct
from msgspec.structs import replace

from aptui.config.configuration import Config, escape
from aptui.config.packing import canonical
from aptui.config.yaml.config_schema import check_folder
from aptui.config.yaml.nodes import Node, read_yaml
from aptui.core.paths import as_text, key_of, os_path, to_text
from aptui.core.patterns import ignore_matcher
from aptui.core.project import Project
from aptui.core.settings import FILE_NAME, SettingsTree, place_key
from aptui.shared.errors import UserError
from aptui.shared.files.replacing import read_regular

MOST_BYTES = 32 << 10
"""Maximum size (bytes) of the settings file of a folder. Real settings files have a few hundred bytes.

Reading a bad settings file of this size takes up to 20 ms of processor time.
"""
MOST_NODES = 1000
"""Maximum number of keys and values in a settings file; reading this number takes 40 ms of processor time."""
_MOST_CHEAP_BYTES, _MOST_CHEAP_MARKS = 4096, 100
_MARKS = re.compile(rb"""[][{}:,?"'\n-]""")
"""Matches bytes that separate YAML values.

Every value has at least one such byte, so the number of matches limits the number of values.
"""


def read(path: str, rel: str) -> str:
    """Return the compiled text of the file at `path`; if the file has a mistake, the text is the mistake.

    Args:
        rel: path of the file in messages, relative to its scan folder.
    """
    try:
        return compile_folder(read_bytes(path), rel)
    except OSError as error:
        return unreadable(rel, error)


def read_bytes(path: str | bytes) -> bytes:
    """Return the bytes of a settings file, at most one more than the maximum.

    Raises:
        OSError: the file cannot be read, or is not a regular file.
    """
    return read_regular(path, MOST_BYTES + 1)


def is_cheap(data: bytes) -> bool:
    """Return whether `compile_folder` takes less than 5 ms: `data` has few values, or is refused because it is too large."""
    if len(data) > MOST_BYTES:
        return True
    return len(data) <= _MOST_CHEAP_BYTES and sum(1 for _ in _MARKS.finditer(data)) <= _MOST_CHEAP_MARKS


def compile_folder(data: bytes, rel: str) -> str:
    """Return the compiled text of a settings file with the bytes `data`; if the file has a mistake, the text is the mistake."""
    try:
        root = read_yaml(data, rel, max_bytes=MOST_BYTES, max_nodes=MOST_NODES)
        for mistake in check_folder(root):
            raise mistake
    except UserError as mistake:
        return wrong(rel, mistake)
    compiled = {"file": rel, **_compile_builders(root.get("builders"), rel)}
    if files := root.get("files"):
        compiled["files"] = {
            pattern: {"place": node.key_where.removeprefix(f"{rel}:"), **_compile_builders(node, rel)}
            for pattern, node in files.value.items()
        }
    return canonical(compiled)


def _compile_builders(builders: Node | None, rel: str) -> dict[str, object]:
    """Return the settings for each builder in a mapping, and the place of every key in it."""
    sections = {
        name: {key: child.plain() for key in ("params", "platforms") for child in [node.get(key) or Node({}, "")]}
        for name, node in (builders.value if builders else {}).items()
    }
    places = {place_key(path): where.removeprefix(f"{rel}:") for path, where in _places(builders, ())} if builders else {}
    return {"builders": sections, "places": places}


def unreadable(rel: str, error: OSError) -> str:
    """Return the text that replaces the compiled settings of a file that cannot be read."""
    return wrong(rel, UserError(f"cannot be read: {(error.strerror or str(error)).lower()}", where=rel))


def wrong(rel: str, mistake: UserError) -> str:
    """Return the text that replaces the compiled settings of a file with a mistake."""
    return canonical({"file": rel, "error": escape(str(mistake))})


def _places(node: Node, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield (path, position in the file) of every key below `node`. The path has the keys from the root to this key."""
    for key, child in node.value.items() if isinstance(node.value, dict) else ():
        yield (*path, key), child.key_where
        yield from _places(child, (*path, key))


# ----------------------------------------------------------------------------------------------- finding files above a path


def files_above(rel: str, project: Project) -> Iterator[tuple[str, str, str]]:
    """Yield the settings files in the folder `rel` and in the folders above it, from the top folder down.

    Each item is (relative folder, file relative to its scan folder, absolute path).

    If two files have the same relative path, the file in the earlier scan folder is used, as for every file.
    """
    is_ignored = ignore_matcher(project.ignore_regex)
    parts = rel.split("/") if rel else []
    for depth in range(len(parts) + 1):
        folder = "/".join(parts[:depth])
        found = _file_of(folder, project, is_ignored)
        if found is not None:
            yield folder, *found


def _file_of(folder: str, project: Project, is_ignored: Callable[[str], bool]) -> tuple[str, str] | None:
    rel = f"{folder}/{FILE_NAME}" if folder else FILE_NAME
    for scan_folder in project.scan_folders:
        path = find_spelling(scan_folder.path, rel)
        if path and os.path.isfile(os_path(path)):
            parts = path[len(scan_folder.path) + 1 :].split("/")
            if not any(is_ignored("/".join(parts[: count + 1])) for count in range(len(parts))):
                return "/".join(parts), path
    return None


def find_spelling(root: str, rel: str) -> str:
    """Return the path of `rel` below `root` in the spelling of the file system, ignoring case; "" if it does not exist.

    If the names of several folders differ only in case, all of them are searched, first the folder with the exact name.
    """
    exact = f"{root}/{rel}" if rel else root
    if os.path.lexists(os_path(exact)):
        return exact
    name, _, below = rel.partition("/")
    if below and os.path.lexists(os_path(f"{root}/{name}")) and (found := find_spelling(f"{root}/{name}", below)):
        return found
    try:
        listed = [as_text(item) for item in os.listdir(os_path(root))]
    except OSError:
        return ""
    others = sorted(item for item in listed if item != name and item.lower() == name.lower())
    return next((found for item in others if (found := find_spelling(f"{root}/{item}", below))), "")


def main() -> None:
    """Read the name of a file, a NUL and the file's bytes from stdin, and write the compiled text to stdout."""
    rel, _, data = sys.stdin.buffer.read().partition(b"\0")
    sys.stdout.write(compile_folder(data, to_text(rel)))


if __name__ == "__main__":
    main()


# ---------------------------------------------------------------------------------------------------- effective parameters


class EffectiveParam(Struct, frozen=True):
    """A parameter of a builder for one source: its value, the file and line that set it, and the platforms that it applies to."""

    builder: bytes
    builder_name: str
    name: str
    value: object
    where: str
    platforms: tuple[str, ...]


def list_effective_params(config: Config, rel: str) -> list[EffectiveParam]:
    """Return the configured parameters that apply to a source, with file and line of each; defaults are left out.

    Wrong parameters are included, so that the user sees where they come from.
    """
    texts: dict[str, str] = {key_of(folder): read(os_path(path), file) for folder, file, path in files_above(rel, config.project)}
    builders = tuple(replace(builder, params_schema="") for builder in config.project.builders)
    tree = SettingsTree(replace(config.project, builders=builders), texts, config.places)
    found: dict[tuple[bytes, str, str, str], EffectiveParam] = {}
    for builder in builders:
        adjustment = tree.adjustment(key_of(rel), builder)
        overrides = dict(builder.platform_params)
        for platform in builder.platforms:
            params: dict[str, tuple[object, str]] = {}
            for text, scope, adjusted in ((builder.params, "params", ""), (overrides.get(platform, "{}"), platform, platform)):
                own = json.loads(text).items()
                places = {name: config.places.get(place_key((builder.name, scope, name)), "") for name, _value in own}
                params |= {name: (value, places[name]) for name, value in own}
                changes = adjustment.values.items()
                params |= {name: (change.value, change.where) for (where, name), change in changes if where == adjusted}
            for name, (value, where) in params.items() if platform not in adjustment.skips else ():
                slot = builder.uuid, name, canonical(value), where
                platforms = (*found[slot].platforms, platform) if slot in found else (platform,)
                found[slot] = EffectiveParam(builder.uuid, builder.name, name, value, where, platforms)
    order = [builder.uuid for builder in builders]
    return sorted(found.values(), key=lambda each: (order.index(each.builder), each.name))

"""Which files of a `Registry` folder are merged, and in which order: names, tags, platforms; what is in them is not looked at."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from aptui.core.errors import UserError
from aptui.o3de.sight import Sight

MAX_FILES = 128
MERGE, PATCH = "setreg", "setregpatch"
_PLATFORM = "Platform"


@dataclass(frozen=True, slots=True)
class SettingsFile:
    """One settings file: `name.tag.tag.setreg`; name and tags in lower case, tags sorted."""

    path: str
    name: str
    tags: tuple[str, ...]
    is_platform: bool = False


def os_name() -> str:
    """Return what the folder of this machine's own settings is called."""
    return {"darwin": "Mac", "win32": "Windows"}.get(sys.platform, "Linux")


def files_of(folder: str, tags: Sequence[str], sight: Sight) -> tuple[list[SettingsFile], list[str]]:
    """Return the files of a folder in the order in which they are merged, and what is doubtful about it, a line each.

    Args:
        tags: the active specialisations; of two files with as many tags, the one whose tags stand later here is merged later.

    Raises:
        UserError: more than 128 files, a name with a tag twice, or two files with the same name and tags (spec/surface.md §5.1).
    """
    own = os.path.join(folder, _PLATFORM, os_name())
    found: list[SettingsFile] = []
    doubts: list[str] = []
    for place, is_platform in ((folder, False), (own, True)):
        for name in sight.names(place):
            path = os.path.join(place, name)
            if name.rpartition(".")[2].lower() in (MERGE, PATCH):
                found.append(_parsed(path, is_platform=is_platform))
            elif "." not in name and not os.path.isdir(path):
                doubts.append(f"{path}: a settings file has an extension, .{MERGE} or .{PATCH}; this file is not used")
    if len(found) > MAX_FILES:
        raise UserError(f"more than {MAX_FILES} settings files", where=folder, hint="merge some of them")
    active = [tag.lower() for tag in tags]
    used = [file for file in found if set(file.tags) <= set(active)]
    _refuse_twins(used)
    ranks = {tag: rank for rank, tag in enumerate(active)}
    used.sort(
        key=lambda file: (file.name, len(file.tags), sorted((ranks[tag] for tag in file.tags), reverse=True), file.is_platform)
    )
    return used, doubts


def _parsed(path: str, *, is_platform: bool) -> SettingsFile:
    name, *tags = os.path.basename(path).lower().split(".")[:-1]
    for tag in tags:
        if tags.count(tag) > 1:
            raise UserError(f"tag '{tag}' stands twice in the file's name", where=path)
    return SettingsFile(path, name, tuple(sorted(tags)), is_platform)


def _refuse_twins(files: Iterable[SettingsFile]) -> None:
    seen: dict[tuple[str, tuple[str, ...], bool, str], str] = {}
    for file in files:
        key = (file.name, file.tags, file.is_platform, file.path.rpartition(".")[2].lower())
        if key in seen:
            what = f"has the same name and tags as '{os.path.basename(seen[key])}'"
            raise UserError(what, where=file.path, hint="which of them wins is not defined; rename one")
        seen[key] = file.path

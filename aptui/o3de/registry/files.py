"""Which files of a `Registry` folder are merged, and in which order: names, tags, platforms; what is in them is not looked at.

Tests: `tests/o3de/registry/test_registry.py`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence

from msgspec import Struct

from aptui.o3de.registry.input_recorder import InputRecorder
from aptui.shared.errors import UserError

MAX_FILES = 128
MERGE, PATCH = "setreg", "setregpatch"
_PLATFORM = "Platform"
_HASH_START, _HASH_PRIME, _HASH_MASK = 0xCBF29CE484222325, 0x100000001B3, (1 << 64) - 1
"""FNV-1a of 64 bits, by which the reference sorts the tags of a file."""


class SettingsFile(Struct, frozen=True):
    """One settings file, `name.tag.tag.setreg`: the name as spelled, tags in lower case, sorted as the reference does."""

    path: str
    name: str
    tags: tuple[str, ...]
    is_platform: bool = False


def os_name() -> str:
    """Return what the folder of this machine's own settings is called."""
    return {"darwin": "Mac", "win32": "Windows"}.get(sys.platform, "Linux")


def files_of(folder: str, tags: Sequence[str], recorder: InputRecorder) -> tuple[list[SettingsFile], list[str]]:
    """Return the files of a folder in the order in which they are merged, and what is doubtful about it, a line each.

    Names are compared as they are spelled, with the dot behind them. Of two files with one name and as many tags, their first
    different tags decide: the one whose tag stands later in `tags` is merged later. Which tags are first is a matter of hash
    values, as in the reference (`SettingsRegistryImpl::IsLessThan`).

    Args:
        tags: the active specialisations.

    Raises:
        UserError: more than 128 files that are used, a name with a tag twice, or two files with the same name and tags, whether
            they are merge patches or JSON patches.
    """
    own = os.path.join(folder, _PLATFORM, os_name())
    found: list[SettingsFile] = []
    doubts: list[str] = []
    for place, is_platform in ((folder, False), (own, True)):
        for name in recorder.names(place):
            path = os.path.join(place, name)
            if name.rpartition(".")[2].lower() in (MERGE, PATCH):
                found.append(_parse_name(path, is_platform=is_platform))
            elif "." not in name and not os.path.isdir(path):
                doubts.append(f"{path}: a settings file has an extension, .{MERGE} or .{PATCH}; this file is not used")
    ranks = {tag: rank for rank, tag in reversed(list(enumerate(map(str.lower, tags))))}
    used = [file for file in found if ranks.keys() >= set(file.tags)]
    if len(used) > MAX_FILES:
        raise UserError(f"more than {MAX_FILES} settings files", where=folder, hint="merge some of them")
    _refuse_duplicates(used)
    spellings: dict[str, str] = {}
    for name in sorted((file.name for file in used), reverse=True):
        spellings[name.lower()] = f"{name}."
    used.sort(key=lambda file: (spellings[file.name.lower()], len(file.tags), [ranks[tag] for tag in file.tags], file.is_platform))
    return used, doubts


def _parse_name(path: str, *, is_platform: bool) -> SettingsFile:
    name, *tags = os.path.basename(path).split(".")[:-1]
    tags = [tag.lower() for tag in tags]
    for tag in tags:
        if tags.count(tag) > 1:
            raise UserError(f"tag '{tag}' stands twice in the file's name", where=path)
    return SettingsFile(path, name, tuple(sorted(tags, key=_hash)), is_platform)


def _hash(text: str) -> int:
    value = _HASH_START
    for byte in text.encode("utf-8", "surrogateescape"):
        value = (value ^ byte) * _HASH_PRIME & _HASH_MASK
    return value


def _refuse_duplicates(files: Iterable[SettingsFile]) -> None:
    seen: dict[tuple[str, tuple[str, ...], bool], str] = {}
    for file in files:
        key = (file.name.lower(), file.tags, file.is_platform)
        if key in seen:
            what = f"has the same name and tags as '{os.path.basename(seen[key])}'"
            raise UserError(what, where=file.path, hint="which of them wins is not defined; rename one")
        seen[key] = file.path

"""The override rule: if files have the same relative path, ignoring case, the earlier scan folder wins. No file is read here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from aptui.core.model import FileFact, PathKey, RelPath

Clash = tuple[FileFact, tuple[RelPath, ...]]
"""A file, and the names of other files in its scan folder that differ from its name only in case."""


def has_own_identity(key: str, metadata_types: tuple[str, ...]) -> bool:
    """Whether a file has its identity from a `.meta` file, or is a `.meta` file.

    These files do not override files of the same path.
    """
    return bool(metadata_types) and key.removesuffix(".meta").endswith(metadata_types)


def merge_folder(
    parts: Sequence[Iterable[FileFact]], metadata_types: tuple[str, ...] = ()
) -> tuple[dict[PathKey, FileFact], list[Clash]]:
    """Decide which file wins each path of one relative folder.

    A file of an earlier scan folder wins over files of the same path. Files of *one* scan folder that differ only in case are all
    clashes: none of them wins, and the files that they override stay overridden. Clashes are ignored if the files are overridden or
    have duplicate paths.

    Args:
        parts: the files of that folder in each scan folder, in the order of the scan folders.
        metadata_types: extensions of files that do not override each other. Such a file of a later scan folder has a duplicate
            path, with a key of its own.
    """
    winners: dict[PathKey, FileFact] = {}
    clashes: list[Clash] = []
    taken: set[PathKey] = set()
    for part in parts:
        mine: dict[PathKey, FileFact] = {}
        crowds: dict[PathKey, list[FileFact]] = {}
        duplicates: dict[PathKey, list[FileFact]] = {}
        for fact in part:
            key = PathKey(fact.rel.lower())
            if key in taken:
                if has_own_identity(key, metadata_types):
                    duplicates.setdefault(key, []).append(replace(fact, is_duplicate=True))
                continue
            if key in mine:
                crowds.setdefault(key, [mine[key]]).append(fact)
            else:
                mine[key] = fact
        for key, crowd in crowds.items():
            del mine[key]
            clashes.extend((fact, tuple(other.rel for other in crowd if other is not fact)) for fact in crowd)
        taken.update(mine, crowds)
        winners.update(mine)
        winners.update((crowd[0].key, crowd[0]) for crowd in duplicates.values() if len(crowd) == 1)
    return winners, clashes

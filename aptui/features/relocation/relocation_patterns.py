"""Source and destination patterns of relocations: the matched files and their destinations.

The rules and the order of their checks are those of O3DE's `SourceFileRelocator.cpp`. A `DiskTree` reads the disk; this module
changes no files. Each `RelocationError` also has O3DE's own message.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from aptui.core.paths import parent
from aptui.core.project import ScanFolder
from aptui.features.relocation.relocation_records import Relocate
from aptui.shared.errors import UserError
from aptui.shared.globs import PATTERN_LIMIT, Glob, LevelGlob

if TYPE_CHECKING:
    from aptui.features.relocation.moved_files import DiskTree

_ALONE = ("confirm", "leaveEmptyFolders", "allowBrokenDependencies", "excludeMetaDataFiles")
"""O3DE's switches that are valid only with a command (`move` or `delete`), in the order in which O3DE reports them."""
_INVALID = frozenset('<|>?"\0')
_FOLDERS = "Cannot operate on directories.  Please specify a file or use a wildcard to select all files within a directory."


class RelocationError(UserError):
    """The request violates a rule for moves and deletions. `reference` is the line that O3DE's Asset Processor prints."""

    def __init__(self, what: str, reference: str, *, hint: str = "") -> None:
        super().__init__(what, hint=hint)
        self.reference = reference


class FoundSource(Struct, frozen=True):
    """The files that a source pattern matched: `pattern` and `files` are relative to `folder`."""

    folder: ScanFolder
    pattern: str
    files: tuple[str, ...]
    is_plain: bool = False
    """Whether the source is a path, not a pattern."""


# ---------------------------------------------------------------------------------------------------------------- switches


def from_switches(given: Mapping[str, str]) -> Relocate | None:
    """Return the request that O3DE's switches describe, as {switch without dashes: its value or ""}; None without a command.

    Raises:
        RelocationError: a switch without its command, or a move without exactly two parts.
    """
    is_move, is_delete = "move" in given, "delete" in given
    if "updateReferences" in given and not is_move:
        raise _needs(["updateReferences"], "--move")
    alone = [name for name in _ALONE if name in given and not (is_move or is_delete)]
    if alone:
        raise _needs(alone, "--move or --delete")
    source, destination = given.get("delete", ""), ""
    if is_move:
        parts = given["move"].split(",")
        if len(parts) != 2 or not all(parts):  # `parts` must be a source and a destination
            raise RelocationError(
                "a move needs a source and a destination",
                "Invalid format for move command.  Expected format is move=<source>,<destination>",
            )
        source, destination = parts
    if not (is_move or is_delete):
        return None
    return Relocate(
        source, destination, is_delete and not is_move, "confirm" in given, "updateReferences" in given,
        "allowBrokenDependencies" in given, "leaveEmptyFolders" in given, "excludeMetaDataFiles" in given, "enablescm" in given,
    )  # fmt: skip


def _needs(switches: Sequence[str], command: str) -> RelocationError:
    """Return the error for switches whose command was not given, with O3DE's line about each switch."""
    names = ", ".join(f"--{name}" for name in switches)
    mistakes = [f"Command --{name} must be used with command {command}" for name in switches]
    return RelocationError(f"{names} can be used only with {command}", "\n".join(mistakes))


# ------------------------------------------------------------------------------------------------------------------ source


def is_wildcard(text: str) -> bool:
    """Whether a source contains wildcards."""
    return "*" in text or "?" in text


def find(source: str, tree: DiskTree) -> FoundSource:
    """Return the files that `source` names. It is the path of a file, or a pattern with wildcards.

    Raises:
        RelocationError: no file matches, files of several scan folders match, or a file cannot be moved.
    """
    if not source.strip("/"):
        raise RelocationError(
            "the path of the source is empty",
            "Invalid format for move command.  Expected format is move=<source>,<destination>",
            hint="name a source, such as 'images/a.png', or give a pattern, such as 'images/*'",
        )
    if not source.startswith("/") and ".." in source.split("/"):
        raise _outside(source)
    if _is_named_exactly(source, tree) or not is_wildcard(source):
        return _find_plain(source, tree)
    if len(source) > PATTERN_LIMIT:
        raise RelocationError(
            f"the pattern is longer than {PATTERN_LIMIT} characters",
            "Wildcard search did not match any files.",
            hint="use a shorter pattern",
        )
    if "**" in source:
        raise RelocationError(
            f"'{source}' has two wildcards in a row",
            "Consecutive wildcards are not allowed.  Please remove extra wildcards from your query.",
            hint="use one '*'; at the end it also matches files in folders below",
        )
    return _find_absolute(source, tree) if source.startswith("/") else _find_relative(source, tree)


def _is_named_exactly(source: str, tree: DiskTree) -> bool:
    """Whether a file has exactly this name. If so, a `*` in the name is not a wildcard."""
    paths = [source] if source.startswith("/") else [f"{folder.path}/{source}" for folder in tree.folders]
    return any(tree.exists(path) and not tree.is_folder(path) for path in paths)


def _outside(source: str) -> RelocationError:
    what = f"'{source}' is outside the scan folders" if source.startswith("/") else f"'{source}' is not in any scan folder"
    return RelocationError(
        what,
        f"Path {source} points to a file outside the current project's scan folders.",
    )


def _find_plain(source: str, tree: DiskTree) -> FoundSource:
    source = source.rstrip("/") or source
    if source.startswith("/"):
        path = source
    else:
        paths = [f"{folder.path}/{source}" for folder in tree.folders if folder.recursive or "/" not in source]
        there = [path for path in paths if tree.exists(path)]
        if len(there) > 1:
            raise RelocationError(
                f"'{source}' is in more than one scan folder: '{there[0]}' and '{there[1]}'",
                f"Relative path matched multiple files/folders.  Please narrow your query by using an absolute path or, "
                f"if using wildcards, try making your query path more specific.\nMatch 1: {there[0]}\nMatch 2: {there[1]}",
                hint="give the absolute path",
            )
        if not there:
            raise _outside(source)
        path = there[0]
    owner = tree.owner(path)
    if owner is None:
        raise _outside(source)
    if tree.is_folder(path):
        raise RelocationError(f"'{source}' is a folder", _FOLDERS, hint=f"use '{source}/*' to select all files in the folder")
    if not tree.exists(path):
        raise RelocationError(f"the file '{source}' does not exist", "File not found.")
    return FoundSource(owner[0], owner[1], (owner[1],), is_plain=True)


def _find_relative(source: str, tree: DiskTree) -> FoundSource:
    found: FoundSource | None = None
    for folder in tree.folders:
        if not folder.recursive and "/" in source:
            continue
        files = tuple(_matching(source, folder, tree))
        if not files:
            continue
        if found is not None:
            raise RelocationError(
                f"'{source}' matches files in more than one scan folder: '{found.folder.path}' and '{folder.path}'",
                f"Wildcard query {source} matched files in multiple scanfolders.  "
                f"Files can only be moved from one scanfolder at a time.  Please narrow your query.\n"
                f"Match 1: {found.folder.path}\nMatch 2: {folder.path}",
                hint="give the absolute path",
            )
        found = FoundSource(folder, source, files)
    if found is None:
        raise _no_match(source, [(folder, source) for folder in tree.folders], tree)
    return found


def _find_absolute(source: str, tree: DiskTree) -> FoundSource:
    if not source.endswith("*") and tree.is_folder(source):
        raise RelocationError(f"'{source}' is a folder", _FOLDERS, hint="add '/*' to select all files in the folder")
    owner = tree.owner(source)
    if owner is None:
        above = parent(source)
        raise RelocationError(
            f"'{above}' is outside the scan folders",
            f"Path {above} points to a folder outside the current project's scan folders.",
        )
    files = tuple(_matching(owner[1], owner[0], tree))
    if not files:
        raise _no_match(source, [(owner[0], owner[1])], tree)
    return FoundSource(owner[0], owner[1], files)


def _no_match(source: str, tried: Iterable[tuple[ScanFolder, str]], tree: DiskTree) -> RelocationError:
    """Return the error for a pattern that matches no file.

    A pattern may match no file only because one of its wildcards would have to match `/`. Then the error says so.
    """
    if source.count("*") > 1:
        for folder, pattern in tried:
            matches = Glob(pattern).matches
            if any(matches(rel) for rel in _below(folder, "", tree)):
                return _across(pattern)
    return RelocationError(f"nothing matches '{source}'", "Wildcard search did not match any files.")


def _across(pattern: str) -> RelocationError:
    return RelocationError(
        f"a wildcard in '{pattern}' would have to match across folders, but only the last wildcard can",
        "Wildcard cannot match across directory levels.  "
        "Please simplify your search or put a wildcard at the end of the search to match across directories.",
        hint="write the names of the folders without wildcards",
    )


def _matching(pattern: str, folder: ScanFolder, tree: DiskTree) -> Iterator[str]:
    """Yield the matching files of a scan folder level by level; a final `*` matches everything below."""
    *levels, end = pattern.split("/")
    last, is_deep = Glob(end), pattern.endswith("*")
    places = [""]
    for level in levels:
        places = [f"{place}{name}/" for place in places for name in _folders_named(level, tree.names(folder, place.rstrip("/"))[0])]
    for place in places:
        folders, files = tree.names(folder, place.rstrip("/"))
        yield from (f"{place}{name}" for name in files if last.matches(name))
        if is_deep and folder.recursive:
            for name in folders:
                if last.matches(name):
                    yield from _below(folder, f"{place}{name}", tree)


def _folders_named(level: str, names: Sequence[str]) -> list[str]:
    """Return the folders that one level of a pattern matches.

    If a folder has exactly this name, only this folder: its name may contain `*` or `?`, and other names may differ in case.
    """
    matches = Glob(level).matches
    return [level] if level in names else [name for name in names if matches(name)]


def _below(folder: ScanFolder, rel: str, tree: DiskTree) -> Iterator[str]:
    todo = [rel]
    while todo:
        at = todo.pop()
        folders, files = tree.names(folder, at)
        prefix = f"{at}/" if at else ""
        yield from (f"{prefix}{name}" for name in files)
        if folder.recursive:
            todo.extend(f"{prefix}{name}" for name in reversed(folders))


# ------------------------------------------------------------------------------------------------------------- destination


class Destination(Struct, frozen=True):
    """A destination: `text` is a path or pattern, absolute or relative to the source's scan folder.

    `pattern` is the source pattern; "" = the source is a single file, and `text` is its new path.
    """

    pattern: str
    text: str

    def of(self, rel: str) -> str:
        """Return the destination of the file `rel`.

        Raises:
            RelocationError: a wildcard other than the last one would have to match across folders.
        """
        if not self.pattern:
            return self.text
        found = LevelGlob(self.pattern).take_stars(rel)
        if found is None:
            raise _across(self.pattern)
        taken = iter(found)
        return "".join(next(taken) if piece == "*" else piece for piece in re.split(r"(\*)", self.text))


def read_destination(found: FoundSource, destination: str, tree: DiskTree) -> Destination:
    """Return the checked destination; if it ends with a slash, the last part of the source pattern is appended.

    Raises:
        RelocationError: the destination is not valid.
    """
    if not destination:
        raise RelocationError(
            "a move needs a destination", "Invalid format for move command.  Expected format is move=<source>,<destination>"
        )
    if ".." in destination:
        raise RelocationError(
            f"the destination '{destination}' contains '..'",
            "Destination cannot contain any path navigation.  Please specify an absolute or relative path that does not contain ..",
            hint="give a path without '..'",
        )
    given = _tidy(destination)
    text = given if given and not given.endswith("/") else given + found.pattern.rpartition("/")[2]
    bad = sorted(_INVALID.intersection(given if found.is_plain else text))
    if bad:
        raise RelocationError(
            f"the destination '{destination}' has characters that some systems do not allow: {' '.join(bad)}".replace("\0", "NUL"),
            "Destination string contains invalid characters.",
        )
    if text.startswith("/") and tree.owner(text) is None:
        raise RelocationError(
            f"the destination '{destination}' is outside the scan folders", "Destination must exist within a scanfolder."
        )
    has, wants = (given.count("*"), 0) if found.is_plain else (text.count("*"), found.pattern.count("*"))
    if has != wants:
        raise RelocationError(
            f"the source has {wants or 'no'} '*', but the destination '{destination}' has {has or 'none'}",
            "Source and destination paths must have the same number of wildcards.",
            hint="write the same number of '*'; each '*' of the destination becomes the text that the '*' of the source matched",
        )
    return Destination("" if found.is_plain else found.pattern, text)


def _tidy(path: str) -> str:
    """Return a path without `.` and doubled slashes; a final slash has a meaning and is kept."""
    root = "/" if path.startswith("/") else ""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    return root + "/".join(parts) + ("/" if parts and path.endswith(("/", "/.")) else "")


def differ_in_case_only(old: str, new: str) -> bool:
    """Whether two paths are equal on systems that ignore case."""
    return old != new and old.lower() == new.lower()

"""Rules for paths: names as text and bytes, keys and UUIDs, which file wins a path, and paths of product dependencies.

No file is touched here.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from aptui.core.model import FileFact, LinkKind, PathKey, ProductLink, RelPath, SourceUuid
from aptui.core.project import COMMON_PLATFORM, INTERMEDIATES

# A file name is a sequence of bytes, but the database and the messages between processes need text. Valid UTF-8 stays unchanged.
# Each other byte 0xNN becomes the private character U+10FFNN, which users do not type. If a name really contains one of
# U+10FF80…U+10FFFF (or `model.DUPLICATE_MARK`), each byte of that character is escaped, too, so that two names never have the
# same text. Python's `surrogateescape` uses U+DCNN instead, which neither SQLite nor JSON accepts.
_ESCAPE = 0x10FF00
_LONE = 0xDC00
_TO_ESCAPE = re.compile("[\udc80-\udcff\U0010ff01\U0010ff80-\U0010ffff]")
_TO_NORMALIZE = re.compile(r"\\|//|/$|(?:^|/)\.\.?(?:/|$)")
_ESCAPED = re.compile("[\U0010ff80-\U0010ffff]")
_OS_ENCODING = sys.getfilesystemencoding(), sys.getfilesystemencodeerrors()
"""How Python converts file names between bytes and text (`os.fsencode`)."""


def to_text(name: bytes) -> str:
    """Return `name` as text that is valid in SQLite and JSON; `from_text` gives the same bytes back."""
    if name.isascii():
        return name.decode("ascii")
    return _TO_ESCAPE.sub(_escape, name.decode("utf-8", "surrogateescape"))


def from_text(text: str) -> bytes:
    """Return the bytes whose text form is `text`."""
    if text.isascii():
        return text.encode("ascii")
    return _ESCAPED.sub(lambda match: chr(ord(match[0]) - _ESCAPE + _LONE), text).encode("utf-8", "surrogateescape")


def os_path(text: str) -> str:
    """Return the path with the text form `text`, in the form that Python's file functions need."""
    return text if text.isascii() else from_text(text).decode(*_OS_ENCODING)


def as_text(path: str) -> str:
    """Return the text form of a path of Python's file functions."""
    return path if path.isascii() else to_text(path.encode(*_OS_ENCODING))


def _escape(match: re.Match[str]) -> str:
    return "".join(chr(_ESCAPE + byte) for byte in match[0].encode("utf-8", "surrogateescape"))


def key_of(rel: str) -> PathKey:
    """Return the key that identifies a source across scan folders: its relative path in lower case."""
    return PathKey(rel.lower())


def name_uuid(name: bytes) -> bytes:
    """Return the name UUID of `name`: SHA-1 without a namespace, with the bits of version 5, as O3DE makes it."""
    digest = bytearray(hashlib.sha1(name, usedforsecurity=False).digest()[:16])
    digest[6] = digest[6] & 0x5F | 0x50
    digest[8] = digest[8] & 0xBF | 0x80
    return bytes(digest)


def builder_uuid(name: str) -> bytes:
    """Return the UUID of the builder called `name`."""
    return name_uuid(f"aptui:builder:{name}".encode())


def path_uuid(rel: str) -> SourceUuid:
    """Return the UUID of a source without a `.meta` file: the name UUID of its relative path in lower case, as bytes on disk."""
    return SourceUuid(name_uuid(from_text(rel.lower())))


def name_beside(source_rel: str, file_name: str) -> str:
    """Return `<folder of the source>/<file name>` in lower case."""
    folder = parent(source_rel)
    return f"{folder}/{file_name}".lower() if folder else file_name.lower()


def cache_path(name: str) -> str:
    """Return the path of a product, or of a folder of products, in the cache.

    The path begins with the name of the platform, but products of the platform `common` are in the folder `Intermediate Assets`.
    """
    platform, slash, rest = name.partition("/")
    return f"{INTERMEDIATES}{slash}{rest}" if platform == COMMON_PLATFORM else name


def product_at(path: str) -> str:
    """Return the name of the product at this path in the cache: the inverse of `cache_path`."""
    top, slash, rest = path.partition("/")
    return f"{COMMON_PLATFORM}{slash}{rest}" if top == INTERMEDIATES else path


def normalize(path: str) -> RelPath:
    r"""Return `path` with `/` for `\` and without `.`, `..`, doubled or trailing slashes.

    An absolute path stays absolute, a relative path stays relative, and a path that leaves its folder keeps its leading `..`.
    """
    if not _TO_NORMALIZE.search(path):
        return RelPath(path)
    path = path.replace("\\", "/")
    root = "/" if path.startswith("/") else ""
    parts: list[str] = []
    for part in path.split("/"):
        if part == ".." and parts and parts[-1] != "..":
            parts.pop()
        elif part not in ("", ".") and not (part == ".." and root):
            parts.append(part)
    return RelPath(root + "/".join(parts))


def parent(rel: str) -> str:
    """Return the folder of `rel`, "" if `rel` is at the top."""
    return rel.rpartition("/")[0]


def is_below(path: str, folder: str) -> bool:
    """Whether `path` is inside `folder`, at any depth. "" contains every other path; a folder is not inside itself."""
    if not folder:
        return bool(path)
    return len(path) > len(folder) + 1 and path.startswith(folder) and path[len(folder)] == "/"


# The override rule: if files have the same relative path, ignoring case, the earlier scan folder wins.

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

    A file of an earlier scan folder wins over files of the same path. Files of *one* scan folder that differ only in case are
    all clashes. None of them wins, but they still override files of later scan folders. Clashes of overridden files are
    ignored, and so are clashes of files with duplicate paths.

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


# Builders declare product dependencies as paths. `store.db.product_links` finds the products that match these paths. The rules are
# those of O3DE's `PathDependencyManager.cpp`.

IMAGE_EXTENSIONS = (".tif", ".tiff", ".bmp", ".gif", ".jpg", ".jpeg", ".tga", ".png")
"""A product path with one of these extensions names a source, because artists write the name of an image, not of its product."""
EXCLUSION = "!"
"""First character of a path that excludes products from the matches of a pattern."""
LOAD_MASK = 0xF
"""The bits of a dependency's flags that say when the runtime loads the dependency."""
PRE_LOAD = 0
"""Value of the bits `LOAD_MASK` if the dependency is loaded before the product is ready."""
_LONGEST = 4_096
"""Maximum length of a path in characters; no system has longer paths (limits.h: PATH_MAX)."""


def path_link(path: str, kind: LinkKind, flags: int, root: str = "") -> ProductLink:
    """Return the link for a path that a builder declared.

    Args:
        path: relative to the scan folders, or to the folder of the platform; the path of a source may be absolute.
        kind: SOURCE_FILE or PRODUCT_FILE.
        flags: the flags of the dependency, as they are stored.
        root: absolute path of a scan folder, below which sources are named by their relative path.

    Raises:
        ValueError: the path cannot name a source or a product; the text gives the reason.
    """
    is_exclusion = path.startswith(EXCLUSION)
    found: str = normalize(path.removeprefix(EXCLUSION))
    if root and is_below(found, root):
        found = found[len(root) + 1 :]
    if not found:
        raise ValueError("is empty")
    if len(found) > _LONGEST:
        raise ValueError(f"has more than {_LONGEST} characters")
    if found == ".." or found.startswith("../"):
        raise ValueError("leads out of its folder with '..'")
    if found.startswith(":"):  # a colon marks an exclusion in O3DE's tables
        raise ValueError("begins with ':'")
    if kind is LinkKind.PRODUCT_FILE and found.lower().endswith(IMAGE_EXTENSIONS):
        kind = LinkKind.SOURCE_FILE
    if kind is LinkKind.PRODUCT_FILE and found.startswith("/"):
        raise ValueError("is absolute; it must be relative to the folder of the platform")
    return ProductLink(kind, found.lower(), flags, is_exclusion=is_exclusion)


def settle_links(links: Iterable[ProductLink]) -> tuple[tuple[ProductLink, ...], tuple[str, ...]]:
    """Return the links without duplicates, and the paths that are both included and excluded; links of these paths are left out.

    If several links have the same target, the first is kept with its flags.
    """
    found: dict[tuple[object, ...], ProductLink] = {}
    for link in links:
        found.setdefault((link.kind, link.path, link.source_uuid, link.sub_id, link.is_exclusion), link)
    excluded = {(link.kind, link.path) for link in found.values() if link.is_exclusion}
    both = {(link.kind, link.path) for link in found.values() if not link.is_exclusion} & excluded
    left = tuple(link for link in found.values() if (link.kind, link.path) not in both)
    return left, tuple(sorted({path for _kind, path in both}))

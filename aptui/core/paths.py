"""File names as text and bytes, and the identity of a path. No file is touched here; `overrides` decides which file wins."""

from __future__ import annotations

import hashlib
import re

from aptui.core.model import PathKey, RelPath, SourceUuid
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
    """Return the path of a product, or of a folder of products, in the cache; `common` has the intermediate folder there."""
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
    """Whether `path` is in `folder` or in a folder below it; "" contains every path, and no folder is below itself."""
    if not folder:
        return bool(path)
    return len(path) > len(folder) + 1 and path.startswith(folder) and path[len(folder)] == "/"

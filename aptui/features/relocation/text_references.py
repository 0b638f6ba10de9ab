r"""References in the text of a file: replace old paths and UUIDs in all spellings; all other bytes stay.

A path is found in these spellings: with `/`, `\`, `\\` or `\/`, in any case, below the scan folder's path or an alias such as
`@projectroot@`, relative to the folder of the file that contains it, or with `%20` in a URL. A UUID is found
with and without dashes and braces, in any case.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from msgspec import Struct

LIMIT_BYTES = 64 << 20
_SEPARATOR = r"(?:\\\\|\\/|[\\/])"
_ANY_SEPARATOR = re.compile(_SEPARATOR)
_NO_PATH = re.compile(r"""[\s"'<>|=,;:()\[\]{}]""")
_ALIAS = re.compile(r"@\w+@/")
_LONGEST_PATH_BYTES = 4096
_UTF_16 = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}


class UnreadableError(Exception):
    """The file is not text, is too large, or cannot be read or written."""


BEGUN_PREFIX, BEGUN_SUFFIX = ".aptui-", ".tmp"
"""Prefix and suffix of a temporary file beside the file that it will replace."""


class Rename(Struct, frozen=True):
    """One name that changes.

    `target` is the renamed item; `is_seen_from_here` = a path relative to the file's folder. A path has `/`, a UUID is 32 hex
    digits in lower case.
    """

    old: str
    new: str
    target: int
    is_uuid: bool = False
    is_seen_from_here: bool = False


class Mended(Struct, frozen=True):
    """The result for a text: `changed` has the targets whose name was replaced, `same` those whose name stays equal."""

    data: bytes
    count: int
    changed: frozenset[int]
    same: frozenset[int]


def write_as_seen_from(folder: str, path: str) -> str:
    """Return `path` relative to `folder`; both are relative to the scan folder."""
    here, there = (folder.split("/") if folder else []), path.split("/")
    common = 0
    while common < min(len(here), len(there) - 1) and here[common].lower() == there[common].lower():
        common += 1
    return "/".join([".."] * (len(here) - common) + there[common:])


# ------------------------------------------------------------------------------------------------------------------- texts


def mend(data: bytes, renames: Sequence[Rename], prefixes: Iterable[str]) -> Mended:
    """Replace every old name in `data`.

    Args:
        renames: of two renames with the same spelling, the first is used.
        prefixes: possible prefixes of a path: paths of scan folders with a final slash.

    Raises:
        UnreadableError: `data` is not text.
    """
    encoding, mark, body = _encoding(data)
    errors = "surrogateescape" if encoding == "utf-8" else "surrogatepass"
    try:
        text = body.decode(encoding, errors)
    except UnicodeDecodeError:
        raise UnreadableError("it is not text") from None
    mending = _Mending(text, renames, tuple(prefix.lower() for prefix in prefixes))
    changed = mending.run()
    done = mark + changed.encode(encoding, errors) if mending.count else data
    return Mended(done, mending.count, frozenset(mending.changed), frozenset(mending.same))


def _encoding(data: bytes) -> tuple[str, bytes, bytes]:
    codec = _UTF_16.get(data[:2])
    if codec is not None:
        return codec, data[:2], data[2:]
    if b"\0" in data:
        raise UnreadableError("it is not text")
    return "utf-8", b"", data


class _Mending:
    """One pass over a text."""

    def __init__(self, text: str, renames: Sequence[Rename], prefixes: tuple[str, ...]) -> None:
        self._text, self._prefixes = text, prefixes
        self._paths: dict[str, list[Rename]] = {}
        self._uuids: dict[str, Rename] = {}
        for rename in renames:
            if rename.is_uuid:
                self._uuids.setdefault(rename.old, rename)
            else:
                for old in {rename.old, quote(rename.old)}:
                    self._paths.setdefault(old.lower(), []).append(rename)
        self.count = 0
        self.changed: set[int] = set()
        self.same: set[int] = set()

    def run(self) -> str:
        pieces = []
        if self._paths:
            pieces.append(rf"(?P<path>(?<![\w.%-]){_paths_regex(self._paths)}(?![\w%-]|\.\w|[\\/]))")
        if self._uuids:
            spellings = [_uuid_regex(digits) for digits in self._uuids]
            pieces.append(rf"(?P<uuid>(?<![0-9A-Za-z])(?:{'|'.join(spellings)})(?![0-9A-Za-z]))")
        return re.sub("|".join(pieces), self._replace, self._text, flags=re.IGNORECASE) if pieces else self._text

    def _replace(self, match: re.Match[str]) -> str:
        found = match[0]
        if match.lastgroup == "uuid":
            rename: Rename | None = self._uuids[found.replace("-", "").lower()]
        else:
            rename = self._find_meant(_ANY_SEPARATOR.sub("/", found).lower(), match.start())
        if rename is None:
            return found
        new = _like_uuid(rename.new, found) if rename.is_uuid else _like_path(rename, found)
        (self.same if new == found else self.changed).add(rename.target)
        self.count += new != found
        return new

    def _find_meant(self, path: str, start: int) -> Rename | None:
        """Return the rename for a spelling at `start`.

        The text before the spelling decides whether it is a whole path or the end of a longer path.
        """
        before = self._before(start)
        for rename in self._paths[path]:
            if not before or (before == "./" and rename.is_seen_from_here):
                return rename
            if rename.is_seen_from_here:
                continue
            if before == "/" or _ALIAS.fullmatch(before) or before.endswith(self._prefixes):
                return rename
        return None

    def _before(self, start: int) -> str:
        if not start or self._text[start - 1] not in "/\\":
            return ""
        piece = self._text[max(0, start - _LONGEST_PATH_BYTES) : start]
        return _ANY_SEPARATOR.sub("/", _NO_PATH.split(piece)[-1]).lower()


def _paths_regex(paths: Iterable[str]) -> str:
    """Return a regex for any of some paths, the longest first.

    The regex is a tree of common prefixes. A flat list of thousands of paths would be tried at every letter of the text.
    """
    tree: dict[str, Any] = {}
    for path in paths:
        node = tree
        for character in path:
            node = node.setdefault(character, {})
        node[""] = {}
    return _tree_regex(tree)


def _tree_regex(node: dict[str, Any]) -> str:
    branches = []
    for character, child in node.items():
        text, below = _character_regex(character), child
        while (
            character and len(below) == 1 and "" not in below
        ):  # while only one character can follow, append it instead of opening a group
            ((next_character, below),) = below.items()
            text += _character_regex(next_character)
        if character:
            branches.append(text + (_tree_regex(below) if below.keys() != {""} else ""))
    inner = branches[0] if len(branches) == 1 and "" not in node else f"(?:{'|'.join(branches)})"
    return f"(?:{inner})?" if "" in node else inner


def _character_regex(character: str) -> str:
    return _SEPARATOR if character == "/" else re.escape(character)


def _uuid_regex(digits: str) -> str:
    dashed = "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
    return f"{digits}|{dashed}"


def _like_uuid(digits: str, found: str) -> str:
    text = _uuid_regex(digits).rpartition("|")[2] if "-" in found else digits
    return text if found != found.upper() else text.upper()


def _like_path(rename: Rename, found: str) -> str:
    """Write the new path in the style of the old one."""
    new = quote(rename.new) if "%" in found and "%" not in rename.old else rename.new
    if found == found.lower() and rename.old != rename.old.lower():
        new = new.lower()
    separator = _ANY_SEPARATOR.search(found)
    return new.replace("/", separator[0]) if separator else new


# ------------------------------------------------------------------------------------------------------------------- files


def read(path: str) -> bytes:
    """Return the bytes of a file for a search.

    Raises:
        UnreadableError: it cannot be read, or is too large for a hand-written text.
    """
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise UnreadableError("it is not a file")
        with open(path, "rb") as file:
            data = file.read(LIMIT_BYTES + 1)
    except OSError as error:
        raise UnreadableError(f"it cannot be read: {error.strerror}") from error
    if len(data) > LIMIT_BYTES:
        raise UnreadableError("it is too large")
    return data


def why_not_writable(path: str) -> str:
    """Return why a file cannot be rewritten, "" if it can."""
    try:
        seen = os.lstat(path)
    except OSError as error:
        return f"it cannot be read: {error.strerror}"
    if not stat.S_ISREG(seen.st_mode):
        return "it is a link" if stat.S_ISLNK(seen.st_mode) else "it is not a file"
    return "it is read-only" if is_read_only(path, seen) else ""


def is_read_only(path: str, seen: os.stat_result) -> bool:
    """Whether a file is read-only: the owner's write bit decides, as in O3DE, for every user including root."""
    return not seen.st_mode & stat.S_IWUSR or not os.access(path, os.W_OK)


def rewrite(path: str, data: bytes) -> None:
    """Replace the bytes of a file atomically; its mode stays.

    Raises:
        UnreadableError: it cannot be written; it is unchanged.
    """
    why = why_not_writable(path)
    if why:
        raise UnreadableError(why)
    temporary = ""
    try:
        seen = os.stat(path)
        descriptor, temporary = tempfile.mkstemp(prefix=BEGUN_PREFIX, suffix=BEGUN_SUFFIX, dir=os.path.dirname(path))
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(file.fileno(), stat.S_IMODE(seen.st_mode))
            with contextlib.suppress(OSError):
                os.fchown(file.fileno(), seen.st_uid, seen.st_gid)
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except OSError as error:
        if temporary:
            with contextlib.suppress(OSError):
                Path(temporary).unlink()
        raise UnreadableError(f"it cannot be written: {error.strerror}") from error

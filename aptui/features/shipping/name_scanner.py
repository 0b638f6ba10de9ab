"""Finds names of assets (asset ids, UUIDs, paths) in a file's bytes; also has the main loop of the process that reads files.

This module does not know whether the assets exist.

Files are binary or text, up to hundreds of megabytes long, and may be a single line. So the scanner does not try patterns at every
position. It translates all bytes to classes at once, finds the signs of a name (a dot, or eight hex digits in a row) with
`bytes.find`, and examines only the bytes around these signs. Each byte is read a bounded number of times for any input.

The forms are those of O3DE's `LineByLineDependencyScanner.cpp`, with three intended differences: bytes above 127 are letters
(UTF-8), a folder may contain a dot, and a quoted name may contain any character.
"""

from __future__ import annotations

import codecs
import hashlib
import json
import re
import sys
from collections.abc import Callable, Collection, Iterator
from typing import Any, BinaryIO, Self

from msgspec import Struct, field

from aptui.shared.files.replacing import open_regular

LINE_LIMIT = 800
"""Maximum number of paths in one line, and maximum number of ids in one line; 0 = no limit."""
SCANNER, VERSION = "aptui lines", "2"
"""`ScannerId` and `ScannerVersion` in `MissingProductDependencies`.

The version must be raised if changed code finds other names in the same bytes.
"""
NAMES_MAX = 200_000
"""Maximum number of names that are read from one file."""
_TAIL = 1 << 16
_PATH_MAX = 1024
_QUOTED_MAX = 256
_QUOTES = frozenset((b'"', b"'"))
_SEEN_MAX = 50_000
"""Maximum number of remembered sequences of path characters; a repeated sequence is not examined again."""
_SUB_ID_MAX = (1 << 32) - 1


def _classes(members: bytes, sign: bytes) -> bytes:
    return bytes(sign[0] if byte in members else 0x20 for byte in range(256))


_WORD = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_" + bytes(range(128, 256))
_PATHS = _classes(_WORD + b"\\/.-", b"p")
_HEX = _classes(b"0123456789abcdefABCDEF", b"x")
_EIGHT = b"x" * 8
_HEX_RUN = re.compile(rb"x+")
_UUID = rb"([0-9a-fA-F]{8})-?([0-9a-fA-F]{4})-?([0-9a-fA-F]{4})-?([0-9a-fA-F]{4})-?([0-9a-fA-F]{12})"
_SUB_ID = rb"(?:[^\w\r\n]?[-:][\[({]?([0-9]{1,10})(?![0-9A-Za-z_]))?"
_ID = re.compile(rb"(?<![0-9A-Za-z_])" + _UUID + rb"(?![0-9A-Za-z_])" + _SUB_ID)
_UP = re.compile(rb"(?:\.{1,2}[\\/]+)*")
_PIECE = re.compile(rb"[^.]*+\.[^\\/]*+")
_BREAK = re.compile(rb"[\r\n]")
_SLASHES = re.compile(r"[\\/]+")


class Names(Struct):
    """The names in a file, each once with its first spelling.

    Keys of `paths` are in lower case, with single forward slashes and without a leading slash. `is_partial`: a limit was reached,
    so names may be missing.
    """

    assets: dict[tuple[bytes, int], str] = field(default_factory=dict)
    uuids: dict[bytes, str] = field(default_factory=dict)
    paths: dict[str, str] = field(default_factory=dict)
    is_partial: bool = False

    def __len__(self) -> int:
        """Return the number of found references: asset ids, UUIDs and paths."""
        return len(self.assets) + len(self.uuids) + len(self.paths)

    def to_json(self) -> list[Any]:
        """Return the names as JSON values, which `from_json` accepts."""
        assets = [[uuid.hex(), sub_id, text] for (uuid, sub_id), text in self.assets.items()]
        uuids = [[uuid.hex(), text] for uuid, text in self.uuids.items()]
        return [assets, uuids, list(self.paths.items()), self.is_partial]

    @classmethod
    def from_json(cls, data: list[Any]) -> Self:
        """Return the names from the JSON values that `to_json` returned."""
        assets, uuids, paths, is_partial = data
        return cls(
            {(bytes.fromhex(uuid), sub_id): text for uuid, sub_id, text in assets},
            {bytes.fromhex(uuid): text for uuid, text in uuids},
            dict(paths),
            is_partial,
        )


class NameScan:
    """The scan of one file: call `feed` with the file's bytes in chunks of any size, then call `finish`.

    Args:
        extensions: the extensions of all assets, in lower case; a path with another extension is not the name of an asset.
        line_limit: see `LINE_LIMIT`.
    """

    def __init__(self, extensions: Collection[str], line_limit: int = LINE_LIMIT) -> None:
        self._extensions = frozenset(extension.encode() for extension in extensions)
        self._limit = line_limit if line_limit > 0 else sys.maxsize
        self._names = Names()
        self._rest = self._before = b""
        """The bytes that were not scanned yet, and the last scanned bytes of a line that continues in them."""
        self._seen: set[bytes] = set()
        self._path_count = self._id_count = 0
        """Numbers of paths and ids found in the current line, for `line_limit`."""

    def feed(self, data: bytes) -> None:
        """Scan the next bytes of the file."""
        data = self._rest + data
        end = _safe_end(data)
        self._rest = data[end:]
        self._scan_block(data[:end])

    def finish(self) -> Names:
        """Return all names in the file. The caller has passed the last bytes to `feed`."""
        self._scan_block(self._rest)
        self._rest = b""
        return self._names

    # -------------------------------------------------------------------------------------------------------------- lines

    def _scan_block(self, block: bytes) -> None:
        """Find the names in a block of the file.

        Complete lines are scanned together. A line that begins in an earlier block, or continues in the next block, is scanned
        alone, because the number of names in a line is limited.
        """
        end = max(block.rfind(b"\n"), block.rfind(b"\r")) + 1
        begin = 0
        if end and (self._path_count or self._id_count or self._before):
            found = _BREAK.search(block)
            begin = found.end() if found else 0
            self._scan(block[:begin], self._limit)
        if end:
            self._before = b""
            self._scan_lines(block[begin:end])
            self._path_count = self._id_count = 0
        self._scan(block[end:], self._limit)
        self._before = (self._before + block[max(end, len(block) - _QUOTED_MAX) :])[-_QUOTED_MAX:]

    def _scan_lines(self, block: bytes) -> None:
        if block.count(b".") > self._limit or block.translate(_HEX).count(_EIGHT) > self._limit:
            sparse = []
            for line in block.splitlines():
                if line.count(b".") <= self._limit and len(line) <= 32 * self._limit:
                    sparse.append(line)
                else:
                    self._path_count = self._id_count = 0
                    self._scan(line, self._limit)
            block = b"\n".join(sparse)
        self._scan(block, sys.maxsize)

    def _scan(self, block: bytes, limit: int) -> None:
        """Add the paths and ids in `block` to the found names, until the number of paths or of ids of the line reaches `limit`.

        The numbers also count the names in earlier blocks of the same line.
        """
        for begin, end in _find_dotted(block):
            if self._path_count == limit:
                self._names.is_partial = True
                break
            self._path_count += 1
            self._add_path(block, begin, end)
        for found in _ids(block):
            if self._id_count == limit:
                self._names.is_partial = True
                break
            self._id_count += 1
            self._add_id(found)

    # -------------------------------------------------------------------------------------------------------------- names

    def _add_id(self, found: re.Match[bytes]) -> None:
        if self._is_full():
            return
        uuid, text = bytes.fromhex(b"".join(found.groups()[:5]).decode()), found[0].decode("latin-1")
        if found[6] is None:
            self._names.uuids.setdefault(uuid, text)
        elif int(found[6]) <= _SUB_ID_MAX:
            self._names.assets.setdefault((uuid, int(found[6])), text)

    def _add_path(self, block: bytes, begin: int, end: int) -> None:
        """Add a sequence of path characters as a path.

        If a slash follows a dot, the sequence may be two joined names, so also add its parts.
        """
        token = block[begin:end]
        if block[end : end + 1] in _QUOTES:
            self._add_quoted(block, begin, end)
        if token in self._seen:
            return
        if len(self._seen) >= _SEEN_MAX:
            self._seen.clear()
        self._seen.add(token)
        if len(token) <= _PATH_MAX:
            self._add_name(token)
        up = _UP.match(token)
        begin = up.end() if up else 0
        dot = token.find(b".", begin)
        if 0 <= dot < max(token.rfind(b"/"), token.rfind(b"\\")):
            last = token.rfind(b".")
            for piece in _PIECE.finditer(token, begin, last + 1 + _until_slash(token[last + 1 : last + 1 + _PATH_MAX])):
                if len(piece[0]) <= _PATH_MAX:
                    self._add_name(piece[0])

    def _add_quoted(self, block: bytes, begin: int, end: int) -> None:
        """Add a quoted name with spaces, for example `"Crystal Sunset (new).png"`.

        The last word of the name, here `(new).png`, is at `begin` to `end`, and a quote follows. The opening quote must be in the
        same line, at most `_QUOTED_MAX` bytes before `begin`; it may be in an earlier block.
        """
        if begin < _QUOTED_MAX and self._before:
            block, begin, end = self._before + block[: end + 1], begin + len(self._before), end + len(self._before)
        quote = block.rfind(block[end : end + 1], max(0, begin - _QUOTED_MAX), begin)
        if 0 <= quote < begin - 1 and not _BREAK.search(block, quote, begin):
            self._add_name(block[quote + 1 : end])

    def _add_name(self, token: bytes) -> None:
        token = token.rstrip(b".-\\/")
        if token.rpartition(b".")[2].lower() not in self._extensions or self._is_full():
            return
        try:
            text = token.decode()
        except UnicodeDecodeError:
            return
        key = plain_path(text)
        if key:
            self._names.paths.setdefault(key, text)

    def _is_full(self) -> bool:
        self._names.is_partial = self._names.is_partial or len(self._names) >= NAMES_MAX
        return len(self._names) >= NAMES_MAX


def plain_path(text: str) -> str:
    """Return a path in the form of the keys of `Names.paths`; a path that leaves its folder keeps its leading `..`."""
    path = _SLASHES.sub("/", text).lower().lstrip("/")
    while path.startswith("./"):
        path = path[2:]
    return path


def join_path(folder: str, path: str) -> str:
    """Convert `path`, which is relative to `folder` ("" = the top folder), to a path relative to the top folder.

    The result is "" if the path leads out of the top folder.
    """
    parts = folder.split("/") if folder else []
    for part in path.split("/"):
        if part == "..":
            if not parts:
                return ""
            parts.pop()
        elif part not in {"", "."}:
            parts.append(part)
    return "/".join(parts)


def _find_dotted(block: bytes) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each sequence of path characters that contains a dot."""
    classes = block.translate(_PATHS)
    dot = block.find(b".")
    while dot >= 0:
        end = classes.find(b" ", dot)
        if end < 0:
            end = len(block)
        yield classes.rfind(b" ", 0, dot) + 1, end
        dot = block.find(b".", end)


def _ids(block: bytes) -> Iterator[re.Match[bytes]]:
    """Yield each separate UUID, with its sub id if it has one."""
    classes = block.translate(_HEX)
    at = classes.find(_EIGHT)
    while at >= 0:
        found = _ID.match(block, at)
        if found:
            yield found
            end = found.end()
        else:
            run = _HEX_RUN.match(classes, at)
            end = run.end() if run else at + 1
        at = classes.find(_EIGHT, end)


def _until_slash(text: bytes) -> int:
    ends = [end for end in (text.find(b"/"), text.find(b"\\")) if end >= 0]
    return min(ends, default=len(text))


def _safe_end(data: bytes) -> int:
    """Return how many bytes of `data` can be scanned without splitting a name.

    The cut is after a line end, else after a blank or another byte that paths do not contain. Without any of these bytes in the
    last `_TAIL` bytes, the cut may split a name.
    """
    window = data[-_TAIL:]
    end = max(window.rfind(b"\n"), window.rfind(b"\r"))
    if end < 0 and len(data) > _TAIL:
        end = max(window.rfind(sign) for sign in (b" ", b"\t", b",", b";", b"\0"))
        end = end if end >= 0 else window.translate(_PATHS).rfind(b" ")
        end = end if end >= 0 else _TAIL - _PATH_MAX
    return len(data) - len(window) + end + 1 if end >= 0 else 0


def utf16_translator(head: bytes) -> Callable[[bytes, bool], bytes] | None:
    """Return a function that converts a UTF-16 file to UTF-8, or None if the first bytes are not those of a UTF-16 file.

    The returned function is called for each piece of the file, with the bytes and whether this piece is the last one.
    """
    if not head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return None
    decoder = codecs.getincrementaldecoder("utf-16")("replace")
    return lambda data, is_last: decoder.decode(data, is_last).encode("utf-8", "replace")


# The code below runs in the reader process of the search for missing dependencies. The process receives paths of files and returns
# the names in these files. It does not open the database.
#
# Requests and answers are JSON lines on stdin and stdout. The process exits when stdin is closed. The kernel also closes stdin when
# the engine is killed, so the process never outlives its engine.

_PIECE_BYTES = 1 << 20


def read_names(path: str, extensions: Collection[str], line_limit: int) -> tuple[bytes, Names]:
    """Return the SHA-256 of a file's bytes, and the names of assets in them.

    Raises:
        OSError: the file cannot be read, or is not a regular file.
    """
    digest, scan = hashlib.sha256(), NameScan(extensions, line_limit)
    with open_regular(path) as file:
        data = file.read(_PIECE_BYTES)
        translate = utf16_translator(data)
        while data:
            digest.update(data)
            scan.feed(translate(data, False) if translate else data)
            data = file.read(_PIECE_BYTES)
        if translate:
            scan.feed(translate(b"", True))
    return digest.digest(), scan.finish()


def serve(source: BinaryIO, target: BinaryIO) -> None:
    """Answer requests until `source` ends. The first line has the extensions and the limit; every other line has a path."""
    extensions, line_limit = json.loads(source.readline() or b"[[], 0]")
    for line in source:
        target.write(json.dumps(_answer(json.loads(line), frozenset(extensions), line_limit)).encode() + b"\n")
        target.flush()


def _answer(path: str, extensions: Collection[str], line_limit: int) -> dict[str, object]:
    try:
        digest, names = read_names(path, extensions, line_limit)
    except OSError as error:
        return {"error": error.strerror or str(error)}
    return {"digest": digest.hex(), "names": names.to_json()}


if __name__ == "__main__":
    serve(sys.stdin.buffer, sys.stdout.buffer)

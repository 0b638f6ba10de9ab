"""Sends a product as the answer to a GET or HEAD: ETags and other conditions, ranges, headers, and the bytes in the cheapest way.

Tests: `tests/features/gateway/http/test_http_files.py`, `tests/features/gateway/http/test_conditions.py`.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import secrets
from email.utils import formatdate
from functools import lru_cache
from itertools import pairwise
from mimetypes import MimeTypes
from pathlib import Path

from aiohttp import ETag, web
from aiohttp.helpers import parse_http_date
from msgspec import Struct

from aptui.core.paths import cache_path, from_text
from aptui.shared.errors import HostError
from aptui.shared.files.confinement import ConfinedRoot
from aptui.store.queries import serving
from aptui.store.queries.change_tail import CurrentDatabase, Moment
from aptui.store.queries.serving import ProductFile

# Opens products while an engine may be replacing them. The opened file always matches the row of the product in the database.
#
# A commit of an engine first writes a note that lists the files to rename, and then renames these files. The transaction that
# writes the new rows removes the note (`engine.cache`). So a file matches its row if no note names the file, and if the database
# did not change between reading the row and opening the file. Otherwise the opener tries again. If the note stays, the engine that
# wrote the note was killed, and the opener compares the file's digest with the row.
#
# Small files that are requested repeatedly stay open until the next write to the database.
#
# The opener works in the event loop, because its system calls take less time than passing the work to a thread.

_TIMEOUT_S = 1.0
"""Maximum duration of a commit, in seconds; after this time, `ProductOpener` compares the file's digest with the database row."""
_RETRY_S = 0.01
"""Delay before `ProductOpener` tries again to open a file, in seconds."""
_KNOWN_MOST = 4_096
"""Maximum number of remembered database rows."""
_OPEN_MOST, _OPEN_BYTES = 64, 1 << 20
"""(maximum number of files that stay open, maximum size of each of these files in bytes).

The limits are small, because a deleted file uses disk space while it is open.
"""
_BLOCK_BYTES = 1 << 20
"""Number of bytes that are read at a time to compute a digest."""


class OpenedProduct(Struct):
    """A product with its open file. Several users may share the file; each user calls `close`.

    Args:
        users: number of users, including the opener while it keeps the file open.
    """

    product: ProductFile
    descriptor: int
    modified_s: int
    size: int
    users: int = 1

    def close(self) -> None:
        """End one use of the file; close the file when it has no other user."""
        self.users -= 1
        if self.users == 0:
            os.close(self.descriptor)
            self.descriptor = -1


class ProductOpener:
    """The products of one cache; used in the event loop's thread only."""

    def __init__(self, database: Path, cache: Path) -> None:
        self._database = CurrentDatabase(database)
        self._root = ConfinedRoot(os.fsencode(cache))
        self._known: dict[str, ProductFile | None] = {}
        """{name: row} of the rows that were read since the last write to the database."""
        self._open_files: dict[str, OpenedProduct] = {}
        """{name: file} of the small files that were opened since the last write to the database."""
        self._moment: Moment | None = None

    def close(self) -> None:
        """Close all files and the database."""
        self._close_files()
        self._database.close()
        self._root.close()

    def find(self, name: str) -> ProductFile | None:
        """Return the row of the product with this name.

        Raises:
            KnownError: the database does not exist.
        """
        moment = self._database.moment()
        if moment != self._moment or len(self._known) > _KNOWN_MOST:
            self._known.clear()
            self._close_files()
            self._moment = moment
        if name not in self._known:
            self._known[name] = self._database.ask(lambda reader: serving.find(reader, name))
        return self._known[name]

    async def open(self, name: str) -> OpenedProduct | None:
        """Return the product with this name and its open file, None = it does not exist.

        Raises:
            HostError: the file does not match the database. KnownError: the database does not exist.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _TIMEOUT_S
        while True:
            product = self.find(name)
            if product is None:
                return None
            opened = self._find_opened(name)
            if opened is not None:
                return opened
            taken = None if product.is_moving else self._open(product)
            if taken is not None:
                # The row is still valid if the database is unchanged since the row was read, and the file has the row's size.
                if taken.size == product.size and self._database.moment() == self._moment:
                    self._keep(name, taken)
                    return taken
                taken.close()
            if loop.time() > deadline:
                return await self._take_read(product)
            await asyncio.sleep(_RETRY_S)

    def _find_opened(self, name: str) -> OpenedProduct | None:
        """Return the open product, unless its file was changed."""
        taken = self._open_files.get(name)
        if taken is None:
            return None
        found = os.fstat(taken.descriptor)
        if not found.st_nlink or (found.st_size, int(found.st_mtime)) != (taken.size, taken.modified_s):
            self._open_files.pop(name).close()
            return None
        taken.users += 1
        return taken

    def _keep(self, name: str, taken: OpenedProduct) -> None:
        if taken.size <= _OPEN_BYTES:
            while len(self._open_files) >= _OPEN_MOST:
                self._open_files.pop(next(iter(self._open_files))).close()
            taken.users += 1
            self._open_files[name] = taken

    def _close_files(self) -> None:
        while self._open_files:
            self._open_files.popitem()[1].close()

    def _open(self, product: ProductFile) -> OpenedProduct | None:
        try:
            descriptor, found = self._root.open_file(from_text(cache_path(product.name)))
        except OSError:
            return None  # the file was deleted, or replaced by a folder or link; the engine will restore it
        return OpenedProduct(product, descriptor, int(found.st_mtime), found.st_size)

    async def _take_read(self, product: ProductFile) -> OpenedProduct:
        """Open a product and compare the digest of its file with the row: another program may have changed the file."""
        taken = self._open(product)
        try:
            if taken is not None and taken.size == product.size:
                digest = await asyncio.to_thread(_digest, taken.descriptor)
                if digest == product.digest:
                    return taken
        except BaseException:
            if taken is not None:
                taken.close()
            raise
        if taken is not None:
            taken.close()
        raise HostError(
            f"the file of '{product.name}' does not match the database",
            hint="the engine is making the product again; try again later",
        )


def _digest(descriptor: int) -> bytes:
    digest, at = hashlib.sha256(), 0
    while data := os.pread(descriptor, _BLOCK_BYTES, at):
        digest.update(data)
        at += len(data)
    return digest.digest()


PRODUCT_OPENER = web.AppKey("product_opener", ProductOpener)


# Evaluates the request headers for ETags, conditions and ranges (RFC 9110 §13, §14).

RANGES_MOST = 16
"""Maximum number of ranges in one request; with more, the whole file is sent, as §14.2 allows."""
_RANGE = re.compile(r"(\d*)-(\d*)", re.ASCII)
_DIGITS_MOST = 19
"""Maximum number of digits of a position in the header `Range`; with more digits, the header is ignored."""

Range = tuple[int, int]
"""A range of bytes in a file: (index of the first byte, index of the last byte + 1)."""


class Unsatisfiable(ValueError):
    """No requested range is inside the file (416)."""


def status_of(request: web.BaseRequest, etag: str, modified_s: int) -> int:
    """Evaluate the conditions of a GET or HEAD; return the status 412, 304 or 200 (§13.2.2).

    `etag` is without quotes, "" = none.
    """
    if request.if_match is not None:
        if not _matches(request.if_match, etag, weak=False):
            return 412
    elif (unmodified_s := _date_of(request, "If-Unmodified-Since")) is not None and modified_s > unmodified_s:
        return 412
    if request.if_none_match is not None:
        return 304 if _matches(request.if_none_match, etag, weak=True) else 200
    if (known_s := _date_of(request, "If-Modified-Since")) is not None and modified_s <= known_s:
        return 304
    return 200


def ranges_of(request: web.BaseRequest, size: int, etag: str, modified_s: int) -> list[Range] | None:
    """Return the requested ranges, or None to send the whole file. Ranges that overlap or touch are joined.

    Raises:
        Unsatisfiable: no range is inside the file.
    """
    unit, _, text = request.headers.get("Range", "").partition("=")
    if unit.strip().lower() != "bytes" or not _is_same_file(request, etag, modified_s):
        return None
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words or len(words) > RANGES_MOST:
        return None
    found: list[Range] = []
    for word in words:
        match = _RANGE.fullmatch(word)
        if match is None or max(map(len, match.groups())) > _DIGITS_MOST or match[0] == "-":
            return None  # RFC 9110 allows ignoring an invalid header `Range`
        if match[1] and match[2] and int(match[1]) > int(match[2]):
            return None
        wanted = _within(match[1], match[2], size)
        if wanted[0] < wanted[1]:
            found.append(wanted)
    if not found:
        raise Unsatisfiable
    return _join_ranges(found)


def _within(first: str, last: str, size: int) -> Range:
    if not first:
        return max(0, size - int(last)), size
    return int(first), min(int(last) + 1, size) if last else size


def _join_ranges(ranges: list[Range]) -> list[Range]:
    """Return the ranges in the requested order. If some overlap or touch, return the joined ranges in file order."""
    ordered = sorted(ranges)
    if all(one[1] < other[0] for one, other in pairwise(ordered)):
        return ranges
    joined = [ordered[0]]
    for first, end in ordered[1:]:
        if first <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((first, end))
    return joined


def _is_same_file(request: web.BaseRequest, etag: str, modified_s: int) -> bool:
    """Whether the client already has a part of this version of the file (`If-Range`, §13.1.5).

    The strong ETag or the date must be equal.
    """
    given = request.headers.get("If-Range")
    if given is None or (etag and given.strip() == f'"{etag}"'):
        return True
    return _date_of(request, "If-Range") == modified_s


def _date_of(request: web.BaseRequest, header: str) -> float | None:
    """Return the date in a header in seconds since 1970, None without a valid date: invalid dates are ignored (§13.1.3)."""
    try:
        found = parse_http_date(request.headers.get(header))
    except OverflowError:  # aiohttp reads years of any length
        return None
    return found.timestamp() if found is not None else None


def _matches(tags: tuple[ETag, ...], etag: str, *, weak: bool) -> bool:
    return any(tag.value == "*" or (etag and tag.value == etag and (weak or not tag.is_weak)) for tag in tags)


_AT_ONCE_BYTES = 256 * 1024
"""Maximum size (bytes) of an answer that is sent together with its headers.

Its bytes are read at once if the kernel has them in memory.

Larger answers use `sendfile`.
"""
_CHUNK_BYTES = 256 * 1024
"""Number of bytes that are read and sent at a time in an answer with several ranges."""
_TYPES = MimeTypes(filenames=())  # the type lists of the machine are not read, so that all machines send the same types
for _type, _extension in (
    ("model/gltf+json", ".gltf"),
    ("model/gltf-binary", ".glb"),
    ("image/ktx2", ".ktx2"),
    ("image/vnd-ms.dds", ".dds"),
    ("image/webp", ".webp"),
    ("image/avif", ".avif"),
    ("audio/ogg", ".ogg"),
    ("audio/ogg", ".opus"),
    ("audio/flac", ".flac"),
    ("font/ttf", ".ttf"),
    ("font/otf", ".otf"),
    ("font/woff", ".woff"),
    ("font/woff2", ".woff2"),
    ("application/json", ".json"),
    ("application/yaml", ".yaml"),
    ("application/toml", ".toml"),
    ("application/wasm", ".wasm"),
    ("text/javascript", ".js"),
    ("text/markdown", ".md"),
    ("text/plain", ".log"),
    ("text/plain", ".lua"),
    ("text/plain", ".ini"),
):
    _TYPES.add_type(_type, _extension)
_FIXED = {
    "Accept-Ranges": "bytes",
    "Cache-Control": "private, no-cache",  # a browser may store the file, but must ask whether the file has changed
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; "
    "sandbox",  # a product may be a web page, which must not run scripts
}


_LAST_S = 253_402_300_799
"""The end of the year 9999, in seconds since 1970: the latest date that HTTP can express. Files may have later dates."""


@lru_cache(maxsize=1_024)
def http_date(moment_s: int) -> str:
    """Return a time in HTTP's format, or the nearest time that HTTP can express (RFC 9110 §5.6.7)."""
    return formatdate(min(max(moment_s, 0), _LAST_S), usegmt=True)


def content_type(name: str) -> str:
    """Return the media type of a file by its extension."""
    return _type_of(name[name.rfind(".") :] if "." in name else "")


@lru_cache(maxsize=256)
def _type_of(extension: str) -> str:
    kind, encoding = _TYPES.guess_type(f"x{extension}")
    if encoding or not kind:
        return "application/octet-stream"
    return f"{kind}; charset=utf-8" if kind.startswith("text/") else kind


async def send(
    request: web.Request, descriptor: int, size: int, *, name: str, etag: str, modified_s: int, location: str = ""
) -> web.StreamResponse:
    """Answer with an open file; the file stays open.

    Args:
        size: number of bytes to send; bytes that are appended later are not sent.
        name: file name with its extension.
        etag: strong ETag without quotes; "" = none.
        location: another address of the file, percent-encoded.
    """
    headers = {**_FIXED, "Last-Modified": http_date(modified_s)}
    if etag:
        headers["ETag"] = f'"{etag}"'
    if location:
        headers["Content-Location"] = location
    status = status_of(request, etag, modified_s)
    if status != 200:
        return web.Response(status=status, headers=headers)
    headers["Content-Type"] = content_type(name)
    if request.method == "HEAD":
        response = web.StreamResponse(headers=headers)
        response.content_length = size
        return response
    try:
        ranges = ranges_of(request, size, etag, modified_s)
    except Unsatisfiable:
        return web.Response(status=416, headers={**_FIXED, "Content-Range": f"bytes */{size}"})
    if ranges is None:
        return await _send_part(request, descriptor, (0, size), 200, headers)
    if len(ranges) == 1:
        headers["Content-Range"] = _content_range(ranges[0], size)
        return await _send_part(request, descriptor, ranges[0], 206, headers)
    return await _send_parts(request, descriptor, ranges, size, headers)


def send_page(file: Path, kind: str, policy: str) -> web.Response:
    """Return a file of aptui's own web pages.

    Args:
        kind: media type of the file.
        policy: the allowed sources of styles, images and connections (Content-Security-Policy); scripts must be aptui's own.
    """
    fixed = "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    headers = {
        "Content-Security-Policy": f"default-src 'none'; script-src 'self'; {policy}; {fixed}", "Cache-Control": "no-cache",
    }  # fmt: skip
    return web.Response(body=file.read_bytes(), content_type=kind, charset="utf-8", headers=headers)


def _content_range(part: Range, size: int) -> str:
    return f"bytes {part[0]}-{part[1] - 1}/{size}"


async def _send_part(
    request: web.Request, descriptor: int, part: Range, status: int, headers: dict[str, str]
) -> web.StreamResponse:
    length = part[1] - part[0]
    if length <= _AT_ONCE_BYTES:
        data = await _read(descriptor, part[0], length)
        if len(data) == length:
            return web.Response(body=data, status=status, headers=headers)
    response = web.StreamResponse(status=status, headers=headers)
    response.content_length = length
    await response.prepare(request)
    await _send_file(request, descriptor, part)
    await response.write_eof()
    return response


async def _send_file(request: web.Request, descriptor: int, part: Range) -> None:
    """Send a part of the file to the socket.

    If the file was truncated, the connection is aborted: a part must not look complete.
    """
    transport = request.transport
    if transport is None:
        raise ConnectionResetError("the client has disconnected")
    with open(descriptor, "rb", buffering=0, closefd=False) as file:
        sent = await asyncio.get_running_loop().sendfile(transport, file, part[0], part[1] - part[0])
    if sent != part[1] - part[0]:
        transport.abort()


async def _read(descriptor: int, start: int, length: int) -> bytes:
    """Return a part of the file.

    If the part is in the kernel's memory, it is read immediately, otherwise by a thread that waits for the disk.
    """
    try:
        buffer = bytearray(length)
        if os.preadv(descriptor, [buffer], start, os.RWF_NOWAIT) == length:
            return bytes(buffer)
    except OSError:
        pass  # the part is not in the kernel's memory, or the file system does not support RWF_NOWAIT
    return await asyncio.to_thread(os.pread, descriptor, length, start)


async def _send_parts(
    request: web.Request, descriptor: int, ranges: list[Range], size: int, headers: dict[str, str]
) -> web.StreamResponse:
    """Send several ranges as multipart/byteranges (RFC 9110 §14.6)."""
    boundary = secrets.token_hex(12)
    heads = [
        f"\r\n--{boundary}\r\nContent-Type: {headers['Content-Type']}\r\nContent-Range: {_content_range(part, size)}\r\n\r\n"
        f"".encode()
        for part in ranges
    ]
    end = f"\r\n--{boundary}--\r\n".encode()
    response = web.StreamResponse(status=206, headers={**headers, "Content-Type": f"multipart/byteranges; boundary={boundary}"})
    response.content_length = sum(map(len, heads)) + len(end) + sum(last - first for first, last in ranges)
    await response.prepare(request)
    for head, (first, last) in zip(heads, ranges, strict=True):
        await response.write(head)
        for start in range(first, last, _CHUNK_BYTES):
            length = min(_CHUNK_BYTES, last - start)
            data = await _read(descriptor, start, length)
            if len(data) != length:
                raise ConnectionResetError("the file became shorter")
            await response.write(data)
    await response.write_eof(end)
    return response

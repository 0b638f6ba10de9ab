"""The container format of glTF 2.0: reads `.gltf` and `.glb`, finds the bytes of buffers and images, and packs one `.glb`.

`check` validates the contents. Section numbers are those of the glTF 2.0 specification.

Tests: `tests/builders/test_gltf_check.py`.
"""

from __future__ import annotations

import base64
import binascii
import json
import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn
from urllib.parse import unquote, unquote_to_bytes

from msgspec import Struct, field

from aptui.builders.common import SourceError, show_count
from aptui.builders.files.json_text import HALF_PAIR, explain, place_in

Object = dict[str, Any]
"""A JSON object."""
Read = Callable[[str], bytes]
"""Returns the bytes of the file that a decoded URI names; raises `aptui.sdk.NamedFileError`."""

_GLB_MAGIC = 0x46546C67
_JSON_CHUNK = 0x4E4F534A
_BIN_CHUNK = 0x004E4942
_MOST_DIGITS = 20
"""Maximum number of digits of an integer; every real count or offset has fewer."""

_LARGEST_WHOLE = 1 << 53
"""All integers up to this one are exact as floats."""

MESHOPT = ("EXT_meshopt_compression", "KHR_meshopt_compression")

_MAGIC = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"\xabKTX 20\xbb\r\n\x1a\n": "image/ktx2",
    b"DDS ": "image/vnd-ms.dds",
}


class BrokenGltfError(SourceError):
    """The file is not acceptable glTF; the error's text names the object."""


class Document(Struct):
    """A glTF file of `size` bytes: `tree` is its JSON, `chunk` the BIN chunk of a GLB, None if it is absent."""

    tree: Object
    size: int
    chunk: bytes | None = None
    warnings: list[str] = field(default_factory=list)


def parse_document(data: bytes) -> Document:
    """Parse `data`.

    Raises:
        BrokenGltfError: `data` is neither a GLB nor the JSON of a glTF.
    """
    if data.startswith(b"glTF"):
        return _parse_glb(data)
    return Document(_parse_json(data), len(data))


def as_object(value: object) -> Object:
    """Return `value` if it is an object, else an empty object."""
    return value if isinstance(value, dict) else {}


def as_objects(value: object) -> list[Object]:
    """Return the objects of a list; entries of other kinds count as empty objects, and a value that is not a list is empty."""
    return [as_object(each) for each in value] if isinstance(value, list) else []


def file_uris(tree: Object, lists: Iterable[str] = ("buffers", "images")) -> Iterator[str]:
    """Yield the decoded URIs of all files that buffers and images name."""
    for name in lists:
        for each in as_objects(tree.get(name)):
            uri = each.get("uri")
            if isinstance(uri, str) and is_file_uri(uri):
                yield unquote(uri)


def is_file_uri(uri: str) -> bool:
    """Return whether `uri` is a relative reference to a file: it has no scheme, not even `data:`."""
    scheme, colon, _ = uri.partition(":")
    return bool(uri) and not (colon and scheme.isascii() and scheme[:1].isalpha() and scheme.replace("+", "").isalnum())


def uri_bytes(uri: str, read: Read) -> bytes:
    """Return the bytes that `uri` names: those in a data URI, or those of a file.

    Raises:
        BrokenGltfError: the URI is damaged, or names a file on the network.
        aptui.sdk.NamedFileError: from `read`.
    """
    if uri.startswith("data:"):
        return _data_uri_bytes(uri)
    if not is_file_uri(uri):
        raise BrokenGltfError(f"'{uri[:60]}' is not a file in the project; only files and data URIs are supported")
    return read(unquote(uri))


def media_type(data: bytes) -> str:
    """Return the media type that the first bytes of an image show, or ""."""
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for magic, kind in _MAGIC.items() if data.startswith(magic)), "")


def is_fallback(buffer: Object) -> bool:
    """Return whether `buffer` is a fallback for readers that do not support its compression extension; it may have no bytes."""
    return any(isinstance(as_object(buffer.get("extensions")).get(name), dict) for name in MESHOPT)


def has_no_bytes(document: Document, index: int, buffer: Object) -> bool:
    """Return whether `buffer` has no stored bytes: it has neither a URI nor the binary chunk of a GLB (§3.6.1)."""
    return "uri" not in buffer and not (index == 0 and document.chunk is not None)


def picture_mistake(data: bytes) -> str:
    """Return what is wrong with the chunks of a PNG or the segments of a JPEG, else "". Pixels are not decoded."""
    if data.startswith(b"\x89PNG"):
        return _png_mistake(data)
    return _jpeg_mistake(data) if data.startswith(b"\xff\xd8") else ""


def _png_mistake(data: bytes) -> str:
    """Return what is wrong with the chunks, from the first to the last (PNG, 5.3)."""
    at, kind = 8, b""
    while kind != b"IEND":
        if at + 12 > len(data):
            return f"the PNG is cut off after {len(data):,} bytes"
        length, kind = struct.unpack_from(">I4s", data, at)
        if (at == 8) != (kind == b"IHDR"):
            return "the PNG is damaged: it does not begin with its header, or has a second header"
        at += 12 + length
    return f"the PNG is cut off after {len(data):,} bytes" if at > len(data) else ""


def _jpeg_mistake(data: bytes) -> str:
    """Return what is wrong with the segments before the pixels (ITU-T T.81, B.1.1)."""
    at, has_size = 2, False
    while True:
        if at + 4 > len(data):
            return f"the JPEG is cut off after {len(data):,} bytes"
        prefix, kind, length = struct.unpack_from(">BBH", data, at)
        if prefix != 0xFF or kind < 0xC0:
            return f"the JPEG is damaged at byte {at:,}"
        if kind == 0xFF:  # any number of bytes 0xFF may precede a marker
            at += 1
            continue
        has_size |= kind <= 0xCF and kind not in (0xC4, 0xC8, 0xCC)
        at += 2 + length
        if kind == 0xDA:
            break
    if not has_size:
        return "the JPEG is damaged: the segment with the size of the picture is missing"
    return "" if data.rfind(b"\xff\xd9") >= at else f"the JPEG is cut off after {len(data):,} bytes"


def pack_glb(document: Document, read: Read, *, embeds_images: bool) -> bytes:
    """Return `document` as one GLB, with all buffers and, on request, all images in the BIN chunk.

    Equal documents give equal bytes. The document must have passed the checks; its JSON is changed.
    """
    tree = document.tree
    binary = bytearray()
    moved: dict[int, tuple[int, int]] = {}
    remaining: list[Object] = []
    for index, buffer in enumerate(as_objects(tree.get("buffers"))):
        if not buffer.get("byteLength"):
            # An empty buffer, which gltfpack writes for an empty scene, is left out, because no buffer view refers to the buffer.
            continue
        if has_no_bytes(document, index, buffer):
            moved[index] = (len(remaining) + 1, 0)
            remaining.append(buffer)
            continue
        moved[index] = (0, _append(binary, buffer_bytes(document, index, buffer, read)[: int(buffer["byteLength"])]))
    views = [each for view in as_objects(tree.get("bufferViews")) for each in [view, *find_compressed(view)]]
    for each in views:
        new, offset = moved[each["buffer"]]
        each["buffer"] = new
        if offset:
            each["byteOffset"] = each.get("byteOffset", 0) + offset
    _embed_images(tree, binary, read, embeds_files=embeds_images)
    if binary:
        tree["buffers"] = [{"byteLength": len(binary)}, *remaining]
    elif remaining:
        tree["buffers"] = remaining
        for each in views:
            each["buffer"] -= 1
    else:
        tree.pop("buffers", None)
    return _glb(tree, bytes(binary))


def buffer_bytes(document: Document, index: int, buffer: Object, read: Read) -> bytes:
    """Return the bytes that are stored for a buffer; their number may be larger than `byteLength`.

    Raises:
        BrokenGltfError, aptui.sdk.NamedFileError: the bytes cannot be read.
    """
    uri = buffer.get("uri")
    if isinstance(uri, str):
        return uri_bytes(uri, read)
    if uri is not None:
        raise BrokenGltfError("'uri' is not a string")
    if index == 0 and document.chunk is not None:
        return document.chunk
    raise BrokenGltfError("the buffer has no 'uri', and the file has no binary chunk for it")


def find_compressed(view: Object) -> list[Object]:
    """Return the compression extensions (`MESHOPT`) of a buffer view; each contains a reference to a buffer."""
    extensions = as_object(view.get("extensions"))
    return [each for each in (as_object(extensions.get(name)) for name in MESHOPT) if "buffer" in each]


def _append(binary: bytearray, data: bytes) -> int:
    """Append `data` at the next multiple of 8, so that the numbers in it stay aligned, and return its offset."""
    binary += bytes(-len(binary) % 8)
    offset = len(binary)
    binary += data
    return offset


def _embed_images(tree: Object, binary: bytearray, read: Read, *, embeds_files: bool) -> None:
    views = tree.get("bufferViews", [])
    placed: dict[bytes, int] = {}
    for image in as_objects(tree.get("images")):
        uri = image.get("uri")
        if not isinstance(uri, str) or not (embeds_files or uri.startswith("data:")):
            continue
        data = uri_bytes(uri, read)
        if data not in placed:
            placed[data] = len(views)
            views.append({"buffer": 0, "byteOffset": _append(binary, data), "byteLength": len(data)})
        del image["uri"]
        image["bufferView"] = placed[data]
        image["mimeType"] = media_type(data) or image.get("mimeType", "image/png")
    if views:
        tree["bufferViews"] = views


def _glb(tree: Object, binary: bytes) -> bytes:
    try:
        text = json.dumps(tree, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        raise BrokenGltfError(HALF_PAIR) from None
    text += b" " * (-len(text) % 4)
    chunks = [struct.pack("<II", len(text), _JSON_CHUNK), text]
    if binary:
        binary += bytes(-len(binary) % 4)
        chunks += [struct.pack("<II", len(binary), _BIN_CHUNK), binary]
    return struct.pack("<III", _GLB_MAGIC, 2, 12 + sum(map(len, chunks))) + b"".join(chunks)


def _parse_glb(data: bytes) -> Document:
    """Read a GLB, the binary container of glTF (glTF 2.0, §4.4)."""
    if len(data) < 20:
        raise BrokenGltfError(f"the GLB ends after {len(data)} bytes, in the middle of its header")
    _, version, length = struct.unpack_from("<III", data)
    if version != 2:
        raise BrokenGltfError(f"the file has GLB version {version}; only version 2 is supported")
    if length > len(data):
        raise BrokenGltfError(f"the GLB should have {length:,} bytes, but has only {len(data):,}")
    document = Document({}, len(data))
    if length < len(data):
        document.warnings.append(f"the file has {show_count(len(data) - length, 'byte')} after the end of the GLB")
    at, number = 12, 0
    while at < length:
        if at + 8 > length:
            raise BrokenGltfError(f"the GLB ends in the middle of the header of chunk {number}")
        size, kind = struct.unpack_from("<II", data, at)
        if at + 8 + size > length:
            expected = show_count(size, "byte")
            raise BrokenGltfError(f"chunk {number} of the GLB should have {expected}, but has only {length - at - 8:,}")
        content = data[at + 8 : at + 8 + size]
        if (number == 0) != (kind == _JSON_CHUNK):
            raise BrokenGltfError(
                f"chunk {number} of the GLB is {'not ' if number == 0 else ''}JSON; only the first chunk (0) must be JSON"
            )
        if number == 0:
            text = content.rstrip(b"\0")
            if len(text) < len(content):
                document.warnings.append("the JSON of the GLB is padded with NUL bytes, but must be padded with blanks")
            document.tree = _parse_json(text)
        elif number == 1 and kind == _BIN_CHUNK:
            document.chunk = content
        at, number = at + 8 + size + -size % 4, number + 1
    return document


def _parse_json(data: bytes) -> Object:
    def refuse(constant: str) -> NoReturn:
        raise BrokenGltfError(f"{constant} is not JSON")

    def number(text: str) -> float:
        value = float(text)
        if value in (float("inf"), float("-inf")):
            raise BrokenGltfError(f"the number {text[:40]} is too large")
        # A whole number becomes an integer, because some programs write indices and counts as floats.
        return int(value) if value.is_integer() and 0 <= value < _LARGEST_WHOLE and not text.startswith("-") else value

    def integer(text: str) -> int:
        if len(text) > _MOST_DIGITS:
            raise BrokenGltfError(f"the number {text[:40]} is too large")
        return int(text)

    text = ""
    if not data.strip():
        raise BrokenGltfError("the file is empty")
    try:
        text = data.decode("utf-8-sig")
        tree = json.loads(text, parse_constant=refuse, parse_float=number, parse_int=integer)
    except UnicodeDecodeError as error:
        line, column = place_in(data[: error.start].decode("utf-8", "replace"))
        raise BrokenGltfError(f"line {line}, column {column}: the text is not UTF-8; save the file as UTF-8") from None
    except json.JSONDecodeError as error:
        what, position = explain(error, text)
        line, column = place_in(text[:position])
        raise BrokenGltfError(f"line {line}, column {column}: {what}") from None
    except RecursionError:
        raise BrokenGltfError("the JSON is nested too deeply") from None
    if not isinstance(tree, dict):
        raise BrokenGltfError("the JSON is not an object")
    return tree


def _data_uri_bytes(uri: str) -> bytes:
    head, comma, body = uri.partition(",")
    if not comma:
        raise BrokenGltfError("the data URI has no comma")
    try:
        return base64.b64decode(unquote(body), validate=True) if head.endswith(";base64") else unquote_to_bytes(body)
    except (binascii.Error, ValueError):
        raise BrokenGltfError("the data URI is damaged: its data is not valid base64") from None

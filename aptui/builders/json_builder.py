"""The `json` builder: validates JSON and writes it minified, indented or as it is; it does not interpret the data.

The text is validated by the standard library's parser, but written from its own tokens: numbers, escapes and the order of keys
(even of duplicate keys) do not change, so that no integer is too long and no float is rounded.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar
from uuid import UUID

from msgspec import Meta, Struct

from aptui.builders.common import SourceBuilder, one_job_per_platform, show_count
from aptui.builders.files.json_schema import SchemaPath, declare_schemas, validate_by_schema
from aptui.builders.files.json_text import (
    DEPTH,
    RUN_OF_TEXT,
    STRING_OR_COMMENT,
    TOKEN,
    BrokenTextError,
    read_json,
    validate_json,
    write_place,
)
from aptui.sdk import (
    CreateJobsRequest,
    CreateJobsResponse,
    JobLog,
    ProcessJobRequest,
    Result,
)

JSON_ASSET_TYPE = UUID("8f4d5f5a-5a0e-5d0b-9a3c-6f1c2b7d1e01")
"""Asset type of every product of this builder: JSON text in UTF-8."""

MOST_DUPLICATES_SHOWN = 200
"""Maximum number of warnings about duplicate keys; one more warning gives the number of further duplicates."""

_LONGEST_KEY_SHOWN = 80

_UTF8_BOM = "\N{ZERO WIDTH NO-BREAK SPACE}"


class JsonParams(Struct, frozen=True, kw_only=True):
    """Parameters of this builder; the documentation and `aptui explain` show the descriptions of the fields."""

    minify: Annotated[bool, Meta(description="remove all blanks and line ends between values; ignored if `indent` is given")] = True
    indent: Annotated[
        Annotated[int, Meta(ge=0, le=16)] | None, Meta(description="reformat the text, with this number of blanks for each level")
    ] = None
    schema: SchemaPath = None
    allow_comments: Annotated[
        bool, Meta(description="allow comments (// and /* */) in the source; the product has no comments")
    ] = False


class JsonBuilder(SourceBuilder):
    """Validates JSON. The job of a broken file fails with a message such as `file.json:12:5: what is wrong`."""

    name: ClassVar[str] = "json"
    version: ClassVar[str] = "1"
    patterns: ClassVar[tuple[str, ...]] = ("*.json",)
    analysis_fingerprint: ClassVar[str] = "1"
    params_schema: ClassVar[Any] = JsonParams

    def create_jobs(self, request: CreateJobsRequest) -> CreateJobsResponse:
        """Return one job per platform; the schemas are source dependencies."""
        response = one_job_per_platform(request, self.name, contradiction=_contradiction)
        if response.result is Result.SUCCESS:
            response.source_dependencies = declare_schemas(request)
        return response

    def build(self, request: ProcessJobRequest) -> None:
        """Validate the source and write its one product, which has the name of the source."""
        options: JsonParams = request.options
        product = _product_text(_decode(request.read_source(), request), options, request)
        request.write_product(os.path.basename(request.source), product, sub_id=0, asset_type=JSON_ASSET_TYPE)


def _contradiction(params: Mapping[str, Any]) -> str:
    """Return an error if `indent` and an explicit `minify: true` are given. `indent` overrides the default of `minify`."""
    if params.get("indent") is not None and params.get("minify"):
        return "parameter 'indent' contradicts 'minify: true'; set only one of them"
    return ""


def _decode(data: bytes, request: ProcessJobRequest) -> str:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        if data.startswith((b"\xff\xfe", b"\xfe\xff")):
            what = "invalid UTF-8 at byte offset 0: the file is UTF-16 or UTF-32; save it as UTF-8"
            raise BrokenTextError(what, "1:1") from None
        # The bytes before the offset are valid UTF-8, so the message can count the column in characters, as all other messages do.
        before = data[: error.start].decode("utf-8")
        what = f"invalid UTF-8 at byte offset {error.start} (0x{data[error.start]:02x})"
        raise BrokenTextError(what, write_place(before, len(before))) from None
    if text.startswith(_UTF8_BOM):
        request.log.warning(
            f"{request.source}:1:1: the byte order mark was removed, because JSON does not allow it (RFC 8259, 8.1)"
        )
        return text[1:]
    return text


def _product_text(text: str, options: JsonParams, request: ProcessJobRequest) -> str:
    if options.allow_comments:
        text = _without_comments(text)
    if validate_json(text, comment_hint="" if options.allow_comments else "set allow_comments: true to allow comments"):
        _warn_of_duplicates(text, request.source, request.log)
    if options.schema:
        validate_by_schema([read_json(text)], options.schema, request)
    if options.indent is not None:
        return _lay_out(text, " " * options.indent)
    return _minify(text) if options.minify else text


def _without_comments(text: str) -> str:
    """Return `text` with its comments replaced by blanks, so that all other text keeps its position."""

    def blank_match(match: re.Match[str]) -> str:
        if (comment := match[2]) is None:
            return match[0]
        if comment.startswith("/*") and (len(comment) < len("/**/") or not comment.endswith("*/")):
            raise BrokenTextError("the comment that begins with /* has no end (*/)", write_place(text, match.start()))
        return re.sub(r"[^\r\n]", " ", comment)

    return STRING_OR_COMMENT.sub(blank_match, text)


def _warn_of_duplicates(text: str, source: str, log: JobLog) -> None:
    duplicates = list(_duplicate_keys(text))
    for key, position, first in duplicates[:MOST_DUPLICATES_SHOWN]:
        first_line = text.count("\n", 0, first) + 1
        log.warning(f"{source}:{write_place(text, position)}: duplicate key {_show_key(key)}, first on line {first_line}")
    if len(duplicates) > MOST_DUPLICATES_SHOWN:
        log.warning(f"{source}: the file has {show_count(len(duplicates) - MOST_DUPLICATES_SHOWN, 'more duplicate key')}")


def _show_key(key: str) -> str:
    """Return `key` quoted, in ASCII (it may hold half a surrogate pair), and shortened to fit into a line."""
    text = json.dumps(key)
    return text if len(text) <= _LONGEST_KEY_SHOWN else f'{text[: _LONGEST_KEY_SHOWN - 4]}..."'


def _duplicate_keys(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield (key, position, position of its first use in the same object) of each duplicate key in valid JSON."""
    seen: list[dict[str, int] | None] = []
    previous = ""
    for match in TOKEN.finditer(text):
        token = match[0]
        if token in ("{", "["):
            seen.append({} if token == "{" else None)
        elif token in ("}", "]"):
            seen.pop()
        elif previous in ("{", ",") and seen and (keys := seen[-1]) is not None:
            key = json.loads(token)
            if key in keys:
                yield key, match.start(), keys[key]
            else:
                keys[key] = match.start()
        previous = token


def _minify(text: str) -> str:
    return "".join(RUN_OF_TEXT.findall(text))


def _lay_out(text: str, indent: str) -> str:
    parts: list[str] = []
    depth = 0
    previous = ""
    for token in TOKEN.findall(text):
        step = DEPTH.get(token, 0)
        if step < 0:
            depth -= 1
        is_empty = step < 0 and previous in ("{", "[")
        if not is_empty and (step < 0 or previous in ("{", "[", ",")):
            parts.append("\n" + indent * depth)
        parts.append(": " if token == ":" else token)
        if step > 0:
            depth += 1
        previous = token
    return "".join(parts) + "\n"

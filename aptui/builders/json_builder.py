"""The `json` builder: validates JSON and writes it minified, indented or as it is; it never interprets the data.

The text is validated by the standard library's parser, but written from its own tokens: numbers, escapes and the order of keys
(even of duplicate ones) come out as they went in, so that no integer is too long and no float is rounded.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import Any, ClassVar, NoReturn
from uuid import UUID

from aptui.builders.common import one_job_per_platform, one_line
from aptui.builders.files import lfs_source
from aptui.builders.files.json_text import explain, place_in
from aptui.sdk import (
    CreateJobsRequest,
    CreateJobsResponse,
    JobLog,
    JobProduct,
    ParamError,
    ProcessJobRequest,
    ProcessJobResponse,
    Result,
    check_params,
)

JSON_ASSET_TYPE = UUID("8f4d5f5a-5a0e-5d0b-9a3c-6f1c2b7d1e01")
"""Asset type of every product of this builder: JSON text in UTF-8."""

DEEPEST_NESTING = 500
"""Maximum levels of `[` and `{`: below the limit of CPython's parser (recursion limit 1000), so that every host decides alike."""

MOST_DUPLICATES_SHOWN = 200
"""Maximum number of warnings for single duplicate keys; one more warning gives the number of the others."""

_LONGEST_KEY_SHOWN = 80

_STRING = r'"[^"\\\r\n]*+(?:\\.[^"\\\r\n]*+)*+"'
_TOKEN = re.compile(_STRING + r"|[{}\[\],:]|[^\s{}\[\],:\"]+")
_RUN = re.compile(rf'(?:{_STRING}|[^ \t\r\n"]++)++')
_ALL_BUT_BRACKETS = re.compile(_STRING + r"|[^\[\]{}\"]+")
_STRING_OR_COMMENT = re.compile(rf'({_STRING}|"[^\r\n]*+)|(//[^\r\n]*+|/\*(?:[^*]|\*(?!/))*+(?:\*/)?+)')
_DEPTH = {"[": 1, "{": 1, "]": -1, "}": -1}
_UTF8_BOM = "\N{ZERO WIDTH NO-BREAK SPACE}"


class _BrokenJsonError(Exception):
    """The text is not acceptable JSON; `position` is where in it."""

    def __init__(self, what: str, position: int) -> None:
        super().__init__(what)
        self.position = position


class _NotANumberError(Exception):
    """The parser met `NaN`, `Infinity` or `-Infinity`, and does not say where."""


class JsonBuilder:
    """Validates JSON; a broken file fails as `file.json:12:5: what is wrong`."""

    name: ClassVar[str] = "json"
    version: ClassVar[str] = "1"
    patterns: ClassVar[tuple[str, ...]] = ("*.json",)
    analysis_fingerprint: ClassVar[str] = "1"
    params_schema: ClassVar[dict[str, Any]] = {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "minify": {"type": "boolean", "default": True, "description": "remove all blanks; not if `indent` is given"},
            "indent": {
                "anyOf": [{"type": "integer", "minimum": 0, "maximum": 16}, {"type": "null"}],
                "default": None,
                "description": "number of blanks a level when the text is reformatted",
            },
            "allow_comments": {"type": "boolean", "default": False, "description": "accept // and /* */ comments, and remove them"},
        },
    }

    def create_jobs(self, request: CreateJobsRequest) -> CreateJobsResponse:
        """Return one job per platform."""
        return one_job_per_platform(request, self.name, self.params_schema, contradiction=_contradiction)

    def process_job(self, request: ProcessJobRequest) -> ProcessJobResponse:
        """Validate the source and write its one product, named as the source."""
        try:
            options = check_params(self.params_schema, request.params)
            data = lfs_source.source_bytes(request)
        except (ParamError, OSError) as error:
            return ProcessJobResponse(error=f"{request.source}: {one_line(error)}")
        try:
            text = _decode(data, request)
        except UnicodeDecodeError as error:
            return ProcessJobResponse(error=_encoding_error(error, data, request.source))
        try:
            product = _product_text(text, options, request)
        except _BrokenJsonError as error:
            return ProcessJobResponse(error=f"{_place(request.source, text, error.position)}: {error}")
        name = os.path.basename(request.source)
        with open(request.product_path(name), "wb") as file:
            file.write(product.encode())
        return ProcessJobResponse(Result.SUCCESS, [JobProduct(name, 0, JSON_ASSET_TYPE)])


def _contradiction(params: Mapping[str, Any]) -> str:
    """Find an `indent` beside an explicit `minify: true`; beside the default one, it wins."""
    if params.get("indent") is not None and params.get("minify"):
        return "parameter 'indent' contradicts 'minify: true', give one of them"
    return ""


def _decode(data: bytes, request: ProcessJobRequest) -> str:
    text = data.decode("utf-8")
    if text.startswith(_UTF8_BOM):
        request.log.warning(f"{request.source}:1:1: byte order mark removed; JSON does not allow it (RFC 8259, 8.1)")
        return text[1:]
    return text


def _encoding_error(error: UnicodeDecodeError, data: bytes, source: str) -> str:
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return f"{source}:1:1: invalid UTF-8 at byte offset 0: this is UTF-16 or UTF-32; save it as UTF-8"
    # All before the offset is valid, so that columns count characters as everywhere else.
    before = data[: error.start].decode("utf-8")
    return f"{_place(source, before, len(before))}: invalid UTF-8 at byte offset {error.start} (0x{data[error.start]:02x})"


def _product_text(text: str, options: Mapping[str, Any], request: ProcessJobRequest) -> str:
    if options["allow_comments"]:
        text = _without_comments(text)
    has_duplicates = _validate(text, comments_allowed=options["allow_comments"])
    if has_duplicates:
        _warn_of_duplicates(text, request.source, request.log)
    if options["indent"] is not None:
        return _lay_out(text, " " * options["indent"])
    return _minify(text) if options["minify"] else text


def _without_comments(text: str) -> str:
    """Return `text` with blanks for its comments, so that every position stays."""

    def blank_match(match: re.Match[str]) -> str:
        if (comment := match[2]) is None:
            return match[0]
        if comment.startswith("/*") and (len(comment) < len("/**/") or not comment.endswith("*/")):
            raise _BrokenJsonError("comment /* without its */", match.start())
        return re.sub(r"[^\r\n]", " ", comment)

    return _STRING_OR_COMMENT.sub(blank_match, text)


def _validate(text: str, *, comments_allowed: bool) -> bool:
    """Return whether any object of `text` has a duplicate key.

    Raises:
        _BrokenError: when it is not JSON.
    """
    has_duplicates = False

    def examine(pairs: list[tuple[str, object]]) -> None:
        nonlocal has_duplicates
        if len({key for key, _ in pairs}) != len(pairs):
            has_duplicates = True

    def refuse(_constant: str) -> NoReturn:
        raise _NotANumberError

    # Numbers are not converted: int() refuses more than 4300 digits, float() rounds.
    decoder = json.JSONDecoder(object_pairs_hook=examine, parse_int=_nothing, parse_float=_nothing, parse_constant=refuse)
    try:
        decoder.decode(text)
    except json.JSONDecodeError as error:
        what, position = explain(error, text)
        if not comments_allowed and text.startswith(("//", "/*"), position):
            what = f"{what}; a comment needs allow_comments: true"
        raise _BrokenJsonError(what, position) from None
    except _NotANumberError:
        constant = next(match for match in _TOKEN.finditer(text) if match[0] in ("NaN", "Infinity", "-Infinity"))
        raise _BrokenJsonError(f"{constant[0]} is not JSON", constant.start()) from None
    except RecursionError:
        raise _too_deep(text) from None
    if max(accumulate(map(_DEPTH.__getitem__, _ALL_BUT_BRACKETS.sub("", text))), default=0) > DEEPEST_NESTING:
        raise _too_deep(text)
    return has_duplicates


def _nothing(_literal: str) -> None:
    """Replace a number, which is not used."""


def _too_deep(text: str) -> _BrokenJsonError:
    depth = 0
    for match in _TOKEN.finditer(text):
        depth += _DEPTH.get(match[0], 0)
        if depth > DEEPEST_NESTING:
            return _BrokenJsonError(f"nested deeper than {DEEPEST_NESTING} levels", match.start())
    return _BrokenJsonError(f"nested too deep for this host, at most {DEEPEST_NESTING} levels are promised", 0)


def _warn_of_duplicates(text: str, source: str, log: JobLog) -> None:
    duplicates = list(_duplicate_keys(text))
    for key, position, first in duplicates[:MOST_DUPLICATES_SHOWN]:
        first_line = text.count("\n", 0, first) + 1
        log.warning(f"{_place(source, text, position)}: duplicate key {_show_key(key)}, first on line {first_line}")
    if len(duplicates) > MOST_DUPLICATES_SHOWN:
        log.warning(f"{source}: {len(duplicates) - MOST_DUPLICATES_SHOWN} more duplicate keys")


def _show_key(key: str) -> str:
    """Return `key` quoted, in ASCII (it may hold half a surrogate pair), and not longer than a line bears."""
    text = json.dumps(key)
    return text if len(text) <= _LONGEST_KEY_SHOWN else f'{text[: _LONGEST_KEY_SHOWN - 4]}..."'


def _duplicate_keys(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield (key, position, position of its first use in the same object) of valid JSON."""
    seen: list[dict[str, int] | None] = []
    previous = ""
    for match in _TOKEN.finditer(text):
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
    return "".join(_RUN.findall(text))


def _lay_out(text: str, indent: str) -> str:
    parts: list[str] = []
    depth = 0
    previous = ""
    for token in _TOKEN.findall(text):
        step = _DEPTH.get(token, 0)
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


def _place(source: str, text: str, position: int) -> str:
    """Return `source:line:column`, both from 1."""
    line, column = place_in(text[:position])
    return f"{source}:{line}:{column}"

"""The `xml` builder: checks that XML is well-formed, and writes it as it is, or without comments and blanks.

Only expat reads the document: no DTD is fetched, and a document that declares entities is refused, because a few entities can
expand to gigabytes or to files of the host (CWE-776, CWE-611). The output consists of slices of the source, so that entities,
CDATA, attribute quotes and the encoding do not change.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NoReturn
from uuid import UUID
from xml.parsers import expat

from msgspec import Meta, Struct

from aptui.builders.common import SourceBuilder, one_job_per_platform
from aptui.builders.files.json_text import BrokenTextError, place_in
from aptui.builders.files.xml_tree import describe_entity, syntax_mistake
from aptui.sdk import (
    CreateJobsRequest,
    CreateJobsResponse,
    ProcessJobRequest,
    same_for_all_sources,
)

if TYPE_CHECKING:
    from xml.parsers.expat import XMLParserType

XML_ASSET_TYPE = UUID("6e2b9d47-1c85-5a3e-b7f0-93d1a8c40e05")
"""Asset type of every product of this builder: an XML document."""

_DECLARED = re.compile(rb"(?:\xef\xbb\xbf)?<\?xml\s[^>]*?encoding\s*=\s*[\"']([A-Za-z][A-Za-z0-9._-]*)[\"']")
_EAST_ASIAN = {
    **dict.fromkeys(("shift_jis", "shift-jis", "sjis", "x-sjis", "windows-31j", "ms932", "cp932"), "cp932"),
    **dict.fromkeys(("euc-jp", "euc_jp", "x-euc-jp"), "euc_jp"),
    **dict.fromkeys(("iso-2022-jp", "iso2022-jp"), "iso2022_jp"),
    **dict.fromkeys(("gb2312", "gb_2312-80", "gbk", "cp936", "gb18030"), "gb18030"),
    **dict.fromkeys(("big5", "big5-hkscs", "cp950", "x-x-big5"), "big5hkscs"),
    **dict.fromkeys(("euc-kr", "ks_c_5601-1987", "cp949", "windows-949"), "cp949"),
}
"""{declared encoding: codec of the largest related encoding}. Text that is declared as GB2312, for example, is often GBK."""

_BLANKS = " \t\r\n"


class XmlParams(Struct, frozen=True, kw_only=True):
    """Parameters of this builder; the documentation and `aptui explain` show the descriptions of the fields."""

    output: Annotated[
        Literal["copy", "min"],
        Meta(description="copy: an unchanged copy; min: remove comments, and the blanks between elements"),
    ] = "copy"
    dtd: Annotated[
        Literal["allow", "forbid"],
        Meta(description="whether the source may have a document type declaration; entities in the declaration are never allowed"),
    ] = "allow"


class XmlBuilder(SourceBuilder):
    """Checks XML. The job of a broken file fails with a message such as `file.xml:12:5: what is wrong`."""

    name: ClassVar[str] = "xml"
    version: ClassVar[str] = "1"
    patterns: ClassVar[tuple[str, ...]] = ("*.xml",)
    analysis_fingerprint: ClassVar[str] = "1"
    params_schema: ClassVar[Any] = XmlParams

    @same_for_all_sources
    def create_jobs(self, request: CreateJobsRequest) -> CreateJobsResponse:
        """Return one job per platform."""
        return one_job_per_platform(request, self.name)

    def build(self, request: ProcessJobRequest) -> None:
        """Check the source and write its one product, which has the name of the source."""
        options, data = request.options, request.read_source()
        try:
            product = _check(data, options)
        except expat.ExpatError as error:
            raise (_encoding_mistake(data) or syntax_mistake(error)) from None
        except (LookupError, ValueError):
            name = _find_encoding(data)
            what = f"the encoding '{name}'" if name else "the encoding that the file declares"
            raise BrokenTextError(f"{what} is not supported; save the file as UTF-8", "1:1") from None
        request.write_product(os.path.basename(request.source), product, sub_id=0, asset_type=XML_ASSET_TYPE)


def _check(data: bytes, options: XmlParams) -> bytes:
    """Return the product of a checked document.

    Raises:
        BrokenTextError: this builder refuses the document. expat.ExpatError: the document is not XML.
        LookupError, ValueError: the encoding of the document is not supported.
    """
    text, encoding = _as_expat_reads(data)
    reading = _XmlReading(encoding and "utf-8", is_dtd_forbidden=options.dtd == "forbid")
    reading.read(text)
    if options.output != "min":
        return data
    product = _without(text, reading.needless)
    return product.decode().encode(encoding) if encoding else product


class _Element(Struct):
    """An open element. `blanks` are the (start, end) of texts directly in the element that consist of blanks only.

    Programs ignore these texts if the element has children and no other text.
    """

    is_preserved: bool
    has_text: bool = False
    has_children: bool = False
    blanks: list[tuple[int, int]] = []


class _XmlReading:
    """One pass of expat over a document; `needless` lists the (start, end) of bytes that programs ignore.

    Expat reports only the start of each event, so an event ends where the next event begins.
    """

    def __init__(self, encoding: str | None, *, is_dtd_forbidden: bool) -> None:
        self.needless: list[tuple[int, int]] = []
        self._open = [_Element(is_preserved=False)]
        self._data = self._comment_end = b""
        self._pending = ""
        self._start = 0
        self._is_in_cdata = False
        self._is_in_dtd = False
        self._is_dtd_forbidden = is_dtd_forbidden
        self._parser = self._make_parser(encoding)

    def read(self, data: bytes) -> None:
        """Read all of `data`.

        Raises:
            BrokenTextError: this builder refuses the document. expat.ExpatError: the document is not XML.
        """
        self._data = data
        self._comment_end = "-->".encode(_encoding(data))
        self._parser.Parse(data, True)
        self._end_pending(len(data))

    def _make_parser(self, encoding: str | None) -> XMLParserType:
        parser = expat.ParserCreate(encoding)
        parser.ordered_attributes = True
        parser.StartElementHandler = self._on_start
        parser.EndElementHandler = self._on_end
        parser.CharacterDataHandler = self._on_text
        parser.CommentHandler = self._on_comment
        parser.StartCdataSectionHandler = lambda: self._on_cdata(is_in=True)
        parser.EndCdataSectionHandler = lambda: self._on_cdata(is_in=False)
        parser.StartDoctypeDeclHandler = self._on_doctype
        parser.EndDoctypeDeclHandler = self._on_doctype_end
        parser.EntityDeclHandler = self._on_entity
        parser.ProcessingInstructionHandler = self._on_other
        parser.SkippedEntityHandler = self._on_reference
        parser.XmlDeclHandler = self._on_other
        return parser

    def _end_pending(self, end: int) -> None:
        """Record the blanks before the next event, which begins at byte `end`."""
        if self._pending == "blanks" and b"&" in self._data[self._start : end]:
            self._open[-1].has_text = True  # a blank that is written as &#32; is intended, so the blank counts as text
        elif self._pending == "blanks":
            self._open[-1].blanks.append((self._start, end))
        self._pending = ""

    def _begin(self, kind: str = "") -> None:
        self._end_pending(self._parser.CurrentByteIndex)
        self._pending, self._start = kind, self._parser.CurrentByteIndex

    def _on_start(self, _name: str, attributes: list[str]) -> None:
        self._begin()
        self._open[-1].has_children = True
        space = dict(zip(attributes[::2], attributes[1::2], strict=True)).get("xml:space")
        self._open.append(_Element(is_preserved=space == "preserve" or (self._open[-1].is_preserved and space != "default")))

    def _on_end(self, _name: str) -> None:
        self._begin()
        element = self._open.pop()
        if element.has_children and not element.has_text and not element.is_preserved:
            self.needless += element.blanks

    def _on_text(self, text: str) -> None:
        is_blank = not text.strip(_BLANKS) and not self._is_in_cdata
        self._begin("blanks" if is_blank else "text")
        self._open[-1].has_text |= not is_blank

    def _on_comment(self, _text: str) -> None:
        self._begin()
        if not self._is_in_dtd:
            # The end of the comment is searched in the text. The start of the next event may be behind it: expat reports a DOCTYPE
            # only after it has read its first characters.
            end = self._data.index(self._comment_end, self._start) + len(self._comment_end)
            self.needless.append((self._start, end))

    def _on_cdata(self, *, is_in: bool) -> None:
        self._begin()
        self._is_in_cdata = is_in
        self._open[-1].has_text = True

    def _on_reference(self, _name: str, _is_parameter: bool) -> None:
        self._begin()
        self._open[-1].has_text = True

    def _on_other(self, *_arguments: object) -> None:
        self._begin()

    def _on_doctype(self, *_arguments: object) -> None:
        self._begin()
        self._is_in_dtd = True
        if self._is_dtd_forbidden:
            self._refuse("the file has a document type declaration, which dtd: forbid does not allow")

    def _on_doctype_end(self) -> None:
        self._begin()
        self._is_in_dtd = False

    def _on_entity(self, name: str, *_arguments: object) -> None:
        self._refuse(describe_entity(name))

    def _refuse(self, what: str) -> NoReturn:
        raise BrokenTextError(what, f"{self._parser.CurrentLineNumber}:{self._parser.CurrentColumnNumber + 1}")


def _find_encoding(data: bytes) -> str:
    match = _DECLARED.match(data)
    return match[1].decode("ascii") if match else ""


def _as_expat_reads(data: bytes) -> tuple[bytes, str | None]:
    """Return (`data`, None); or (`data` in UTF-8, its encoding) if it has an East Asian encoding, which expat does not support.

    Raises:
        BrokenTextError: the document has bytes that are not valid in the declared encoding.
    """
    encoding = _EAST_ASIAN.get(_find_encoding(data).lower())
    if encoding is None:
        return data, None
    if mistake := _encoding_mistake(data):
        raise mistake
    return data.decode(encoding).encode(), encoding


def _encoding_mistake(data: bytes) -> BrokenTextError | None:
    """Return an error with the first bytes that are not valid in the encoding that `data` declares; None if all are valid."""
    name = "UTF-16" if data.startswith((b"\xff\xfe", b"\xfe\xff")) else _find_encoding(data) or "UTF-8"
    encoding = _EAST_ASIAN.get(name.lower(), name)
    try:
        data.decode(encoding)
    except UnicodeDecodeError as error:
        line, column = place_in(data[: error.start].decode(encoding, "replace"))
        return BrokenTextError(f"invalid {name} at byte offset {error.start}; save the file as UTF-8", f"{line}:{column}")
    except LookupError:
        pass
    return None


def _encoding(data: bytes) -> str:
    """Return a codec that encodes markup characters, for example "<", to the same bytes as the encoding of the document `data`."""
    if data.startswith((b"\xff\xfe", b"<\0")):
        return "utf-16-le"
    return "utf-16-be" if data.startswith((b"\xfe\xff", b"\0<")) else "ascii"


def _without(data: bytes, spans: Iterable[tuple[int, int]]) -> bytes:
    """Return `data` without the bytes of `spans`, which do not overlap."""
    remaining, at = [], 0
    for start, end in sorted(spans):
        remaining.append(data[at:start])
        at = end
    return b"".join([*remaining, data[at:]])

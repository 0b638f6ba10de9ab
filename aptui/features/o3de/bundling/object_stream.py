"""Reads and writes ObjectStream, O3DE's XML form of objects, without loss: unchanged parts are written unchanged.

A stream is a tree of `Class` elements: a class name, the name of a field, a type id, and a value or children. Start tags, and the
blanks before each tag, are stored as they were read, because the indentation and the class names of containers differ between
versions of the engine. A new element is written in the form of the current engine, with the indentation of its file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from html import unescape
from pathlib import Path

from msgspec import Struct
from msgspec import field as attribute

from aptui.shared.errors import HostError, UserError

MOST_BYTES = 256 << 20
DAMAGED = "use another file, or restore this one from version control"
"""The hint for a file with invalid content."""
_DEEPEST = 64
_TAG = re.compile(r"""<(?P<close>/?)(?P<kind>[A-Za-z]+)(?P<attributes>(?:\s+[A-Za-z]+=(?:"[^"]*"|'[^']*'))*)\s*(?P<alone>/?)>""")
_ATTRIBUTE = re.compile(r"""([A-Za-z]+)=(?:"([^"]*)"|'([^']*)')""")
_HEAD = '<ObjectStream version="3">'
_KINDS = ("ObjectStream", "Class")


class Element(Struct):
    """A `Class` element of a stream.

    `tag` is its start tag as read, `lead` the blanks before the start tag, `tail` the blanks before the end tag. In a new element
    all three are "".
    """

    name: str
    type: str
    field: str = ""
    value: str | None = None
    version: int = 0
    children: list[Element] = attribute(default_factory=list)
    tag: str = ""
    lead: str = ""
    tail: str = ""

    def get(self, name: str) -> Element | None:
        """Return the child element of the field `name`, None if the element does not have this field."""
        return next((child for child in self.children if child.field == name), None)

    def text(self, name: str, default: str = "") -> str:
        """Return the value of the field `name`, `default` if the element does not have it."""
        child = self.get(name)
        return default if child is None or child.value is None else child.value

    def number(self, name: str, default: int = 0) -> int:
        """Return the value of a field that is a whole number.

        Raises:
            UserError: the value is not a whole number.
        """
        text = self.text(name, str(default))
        if not re.fullmatch(r"-?[0-9]{1,20}", text):
            raise UserError(f"'{name}' must be a whole number, not '{text[:40]}'", hint=DAMAGED)
        return int(text)

    def set(self, name: str, value: str) -> None:
        """Set the value of a field; if the value is equal to the present one, its spelling does not change."""
        child = self.get(name)
        if child is not None and child.value != value:
            child.value, child.tag = value, ""


class ObjectStream(Struct):
    """The content of a file: its top-level elements, and the text around them."""

    root: Element
    before: str = ""
    after: str = "\n\n"

    @property
    def object(self) -> Element:
        """The object that an ObjectStream file holds: its only top-level element."""
        return self.root.children[0]


def stream_of(element: Element) -> ObjectStream:
    """Return an O3DE ObjectStream (XML) whose only object is `element`."""
    return ObjectStream(Element("ObjectStream", "", children=[element]))


# ----------------------------------------------------------------------------------------------------------------- reading


def load(path: Path, type_id: str) -> ObjectStream:
    """Return the ObjectStream in a file. The object in the stream must have the type `type_id`.

    Raises:
        UserError: the file is not a stream, or its object has another type. HostError: the file cannot be read.
    """
    return load_text(read(path), path, type_id)


def read(path: Path) -> str:
    """Return the text of a file.

    Raises:
        UserError: the file is too large. HostError: the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise HostError(f"'{path}' cannot be read: {error.strerror}", hint="check its permissions") from error
    if len(data) > MOST_BYTES:
        raise UserError(f"'{path}' has more than {MOST_BYTES >> 20} MiB", hint=DAMAGED)
    return data.decode("utf-8", "surrogateescape")


def load_text(text: str, path: Path, type_id: str) -> ObjectStream:
    """Return the ObjectStream in the text of a file. The object in the stream must have the type `type_id`.

    Raises:
        UserError: the text is not a stream, or its object has another type.
    """
    try:
        stream = parse(text)
        if len(stream.root.children) != 1 or stream.object.type.upper() != type_id:
            raise UserError("the file contains an object of another type")
    except UserError as error:
        raise UserError(f"'{path}' is damaged: {error.what}", hint=DAMAGED) from None
    return stream


def parse(text: str) -> ObjectStream:
    """Parse the text of an ObjectStream file (XML).

    Raises:
        UserError: the text is not an ObjectStream.
    """
    tags = _tags(text)
    lead, first = next(tags, ("", None))
    if first is None or first["kind"] != "ObjectStream" or first["close"]:
        raise UserError("the file is not an ObjectStream")
    stream = ObjectStream(_element(first, ""), lead, "")
    open_elements, end = [stream.root], 0
    for lead, tag in tags:
        if tag is None:
            stream.after = lead
            break
        if not open_elements:
            raise UserError("the file has text after the end of its ObjectStream")
        if tag["close"]:
            element = open_elements.pop()
            element.tail = lead
            if tag["kind"] != ("ObjectStream" if not open_elements else "Class"):
                raise UserError("a closing tag of the file does not match its opening tag")
            continue
        element = _element(tag, lead)
        open_elements[-1].children.append(element)
        if not tag["alone"]:
            open_elements.append(element)
            if len(open_elements) > _DEEPEST:
                raise UserError("the elements of the file are nested too deeply")
        end = tag.end()
    if open_elements or not stream.root.tag:
        raise UserError(f"the file is truncated after character {end}")
    return stream


def _tags(text: str) -> Iterator[tuple[str, re.Match[str] | None]]:
    """Yield (blanks before the tag, tag) for each tag, and finally (blanks after the last tag, None)."""
    at = 0
    for tag in _TAG.finditer(text):
        between = text[at : tag.start()]
        if between.strip() or tag["kind"] not in _KINDS:
            raise UserError(f"the text at character {at} is not valid in an ObjectStream")
        yield between, tag
        at = tag.end()
    if text[at:].strip():
        raise UserError(f"the text at character {at} is not valid in an ObjectStream")
    yield text[at:], None


def _element(tag: re.Match[str], lead: str) -> Element:
    given = {name: unescape(one or other) for name, one, other in _ATTRIBUTE.findall(tag["attributes"])}
    version = given.get("version", "0")
    return Element(
        given.get("name", tag["kind"]),
        given.get("type", ""),
        given.get("field", ""),
        given.get("value"),
        int(version) if version.isdecimal() and len(version) < 6 else 0,
        tag=tag[0],
        lead=lead,
    )


# ----------------------------------------------------------------------------------------------------------------- writing


def dump(stream: ObjectStream) -> str:
    """Return the text of a stream; unchanged parts are as they were read."""
    first = stream.root.children[0] if stream.root.children else None
    unit = (first.lead if first is not None else "").lstrip("\r\n") or "\t"
    newline = "\r\n" if first is not None and first.lead.startswith("\r\n") else "\n"
    parts = [stream.before, stream.root.tag or _HEAD]
    for child in stream.root.children:
        _write(parts, child, newline, unit, 1)
    parts += [stream.root.tail or newline, "</ObjectStream>", stream.after]
    return "".join(parts)


def _write(parts: list[str], element: Element, newline: str, unit: str, depth: int) -> None:
    lead = newline + unit * depth
    is_open = bool(element.children)
    tag = element.tag if element.tag and not (is_open and element.tag.endswith("/>")) else _start_tag(element, is_open=is_open)
    parts += [element.lead or lead, tag]
    if not is_open:
        if not tag.endswith("/>"):
            parts += [element.tail, "</Class>"]
        return
    for child in element.children:
        _write(parts, child, newline, unit, depth + 1)
    parts += [element.tail or lead, "</Class>"]


def _start_tag(element: Element, *, is_open: bool) -> str:
    parts = [f'<Class name="{_escape(element.name)}"']
    if element.field:
        parts.append(f'field="{_escape(element.field)}"')
    if element.value is not None:
        parts.append(f'value="{_escape(element.value)}"')
    if element.version:
        parts.append(f'version="{element.version}"')
    parts.append(f'type="{element.type}"')
    return " ".join(parts) + (">" if is_open else "/>")


_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&apos;"})


def _escape(text: str) -> str:
    return text.translate(_ESCAPES)


# ------------------------------------------------------------------------------------------------------------ common values

_NUMBERS = {
    "unsigned int": "{43DA906B-7DEF-4CA8-9790-854106D3F983}",
    "AZ::u64": "{D6597933-47CD-4FC8-B911-63F3E2B0993A}",
    "int": "{72039442-EB38-4D42-A1AD-CB68F7E0EEF6}",
    "unsigned char": "{72B9409A-7D1A-4831-9CFE-FCB3FADD3426}",
}
"""{C++ type: type id}; enumerations are written as `unsigned char`."""
_STRING, _UUID = "{03AAAB3F-5C47-5A66-9EBC-D5FA4DB353C9}", "{E152C105-A133-4D03-BBF8-3D4B2FBA3E2A}"
_ASSET_ID, _STRINGS = "{652ED536-3402-439B-AEBE-4A5DBC554085}", "{99DAD0BC-740E-5E82-826B-8FC7968CC02C}"


def string(name: str, value: str) -> Element:
    """Return a new element with a text as its value."""
    return Element("AZStd::string", _STRING, name, value)


def number(name: str, value: int, kind: str = "unsigned int") -> Element:
    """Return a new element with a number as its value; `kind` is a C++ type in `_NUMBERS`."""
    return Element(kind, _NUMBERS[kind], name, str(value))


def asset_id(name: str, guid: str, sub_id: int) -> Element:
    """Return a new element with an asset id as its value; `guid` is in braces and upper case."""
    parts = [Element("AZ::Uuid", _UUID, "guid", guid), number("subId", sub_id)]
    return Element("AssetId", _ASSET_ID, name, version=1, children=parts)


def strings(name: str, values: Iterable[str]) -> Element:
    """Return a new element with a vector of texts as its value."""
    children = [string("element", value) for value in values]
    return Element("AZStd::vector<AZStd::string, allocator>", _STRINGS, name, children=children)

"""Reads XML with expat as a tree of elements with their lines; a document that declares entities is refused.

Tests: `tests/builders/test_locale_builder.py`, `tests/builders/test_tilemap_builder.py`.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import NoReturn
from xml.parsers import expat

from msgspec import Struct, field

from aptui.builders.files.json_text import BrokenTextError

MOST_ELEMENTS = 2_000_000
DEEPEST_NESTING = 200


class XmlElement(Struct):
    """An element: its name without a namespace, its attributes, the text directly inside it, its line (from 1) and its children."""

    name: str
    attributes: dict[str, str]
    line: int
    text: str = ""
    children: list[XmlElement] = field(default_factory=list)

    def find(self, name: str) -> XmlElement | None:
        """Return the first child called `name`."""
        return next(self.find_all(name), None)

    def find_all(self, *names: str) -> Iterator[XmlElement]:
        """Yield the children called one of `names`."""
        return (child for child in self.children if child.name in names)


def read_xml(data: bytes, inline: Container[str] = ()) -> XmlElement:
    """Return the root of a document.

    Args:
        inline: names of elements whose text belongs to the text of their parent.

    Raises:
        BrokenTextError: the document is not well-formed, declares entities, or is too large.
    """
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.buffer_text, parser.buffer_size = True, 1 << 20
    root = XmlElement("", {}, 1)
    stack = [root]
    count = 0

    def refuse(what: str) -> NoReturn:
        raise BrokenTextError(what, f"{parser.CurrentLineNumber}:{parser.CurrentColumnNumber + 1}")

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal count
        count += 1
        if count > MOST_ELEMENTS or len(stack) > DEEPEST_NESTING:
            refuse(f"the file has more than {MOST_ELEMENTS:,} elements, or is nested deeper than {DEEPEST_NESTING} levels")
        local = {key.rpartition(" ")[2]: value for key, value in attributes.items()}
        element = XmlElement(name.rpartition(" ")[2], local, parser.CurrentLineNumber)
        stack[-1].children.append(element)
        stack.append(element)

    def end(_name: str) -> None:
        element = stack.pop()
        if element.name in inline:
            stack[-1].text += element.attributes.get("equiv-text") or element.attributes.get("equiv") or element.text

    def add_text(text: str) -> None:
        stack[-1].text += text

    def refuse_entity(name: str, *_details: object) -> None:
        refuse(describe_entity(name))

    parser.StartElementHandler, parser.EndElementHandler, parser.CharacterDataHandler = start, end, add_text
    parser.EntityDeclHandler = refuse_entity
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        raise syntax_mistake(error) from None
    except (LookupError, ValueError):
        raise BrokenTextError("the encoding of the file is not supported; save the file as UTF-8", "1:1") from None
    return root.children[0]


def describe_entity(name: str) -> str:
    """Return the reason for refusing a document that declares the entity `name`."""
    return f"the file declares the entity '{name}'; remove it, because entities can expand without end and are not allowed"


def syntax_mistake(error: expat.ExpatError) -> BrokenTextError:
    """Return a syntax error of expat with its place."""
    return BrokenTextError(expat.ErrorString(error.code) or "not XML", f"{error.lineno}:{error.offset + 1}")

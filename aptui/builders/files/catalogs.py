"""Reads translations of a game's texts (PO, CSV, XLIFF) into one catalog for each language. Catalogs are not compared here.

PO is read as GNU gettext defines it (its manual, "The Format of PO Files"); XLIFF is 1.2 or 2. A CSV has a header: the first column
is the key, and each column named like a language (`de`, `pt_BR`) has texts.

Tests: `tests/builders/test_locale_builder.py`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from msgspec import Struct, field

from aptui.builders.common import shorten
from aptui.builders.files.data_text import read_rows
from aptui.builders.files.json_text import BrokenTextError, decode_text, refuse_larger
from aptui.builders.files.xml_tree import XmlElement, read_xml

MOST_MIB = 64
"""Maximum size of a file of translations (MiB)."""
CONTEXT_END = "\x04"
"""Separator between the context of a text and its id, as in gettext's MO files."""
MOST_FORMS = 10
"""Maximum number of plural forms of a language; Arabic has 6."""

_LANGUAGE = re.compile(r"[A-Za-z]{2,3}(?:[_-][A-Za-z0-9]{2,8})*(?:@[a-z]+)?")
_CHARSET = re.compile(rb"charset=([\w.-]+)")
_LINE = re.compile(r'(?:(msgctxt|msgid_plural|msgid|msgstr)(?:\[([0-9])\])?[ \t]*)?"((?:[^"\\]|\\.)*)"[ \t]*')
_ESCAPE = re.compile(r"\\([0-7]{1,3}|x[0-9A-Fa-f]{1,2}|.)")
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_INLINE_ELEMENTS = frozenset(("g", "x", "bx", "ex", "ph", "bpt", "ept", "it", "mrk", "pc", "sc", "ec", "cp", "sub"))
"""Elements inside a text of XLIFF, such as placeholders; their content belongs to the text."""


class Message(Struct, kw_only=True):
    """A text: `source` is (singular, plural) in the source language, `texts` has a translation for each plural form."""

    key: str
    line: int
    source: list[str]
    texts: list[str]
    flags: frozenset[str] = frozenset()

    @property
    def is_translated(self) -> bool:
        """Whether every plural form has a text that a translator confirmed."""
        return bool(self.texts) and all(self.texts) and "fuzzy" not in self.flags


class TextCatalog(Struct, kw_only=True):
    """The texts of one language, by key; `plural_forms` is the header Plural-Forms of a PO file."""

    language: str
    messages: dict[str, Message] = field(default_factory=dict)
    plural_forms: str = ""

    def add(self, message: Message) -> None:
        """Add a text.

        Raises:
            BrokenTextError: another text has this key.
        """
        if first := self.messages.get(message.key):
            raise BrokenTextError(f"{show_key(message.key)} is defined twice, first on line {first.line}", str(message.line))
        self.messages[message.key] = message


def show_key(key: str) -> str:
    """Return a key in quotes, for a message."""
    return f"'{shorten(' '.join(key.replace(CONTEXT_END, '|').split()))}'"


def read_catalogs(name: str, data: bytes) -> list[TextCatalog]:
    """Return the catalog of a file; a CSV has a catalog for each language, beginning with the source language.

    Args:
        name: file name. Its extension decides the format; its stem is the language unless the content names the language.

    Raises:
        BrokenTextError: the file is damaged, or of another kind.
    """
    stem, extension = os.path.splitext(os.path.basename(name))
    extension = extension.lower()
    refuse_larger(data, MOST_MIB)
    if extension in (".po", ".pot"):
        return [_read_po(data, stem)]
    if extension in (".csv", ".tsv"):
        return _read_csv(decode_text(data), "tab" if extension == ".tsv" else "auto")
    if extension in (".xlf", ".xliff"):
        return [_read_xliff(read_xml(data, _INLINE_ELEMENTS), stem)]
    raise BrokenTextError(f"'{extension}' is not a supported format of translations; use po, pot, csv, tsv, xlf or xliff")


def _read_po(data: bytes, stem: str) -> TextCatalog:
    catalog = TextCatalog(language=stem)
    for entry in _read_entries(_decode_po(data)):
        if "msgid" not in entry.parts or not entry.texts:
            missing = "msgstr" if "msgid" in entry.parts else "msgid"
            raise BrokenTextError(f"an entry has no {missing}", str(entry.line))
        identity, context = entry.parts["msgid"], entry.parts.get("msgctxt")
        if not identity and context is None:
            headers = dict(re.findall(r"(?m)^([\w-]+):[ \t]*(.*?)[ \t]*$", entry.texts.get(0, "")))
            catalog.language = headers.get("Language") or stem
            catalog.plural_forms = headers.get("Plural-Forms", "")
            continue
        plural = entry.parts.get("msgid_plural")
        catalog.add(
            Message(
                key=identity if context is None else f"{context}{CONTEXT_END}{identity}",
                line=entry.line,
                source=[identity] if plural is None else [identity, plural],
                texts=[entry.texts.get(number, "") for number in range(max(entry.texts) + 1)],
                flags=entry.flags,
            )
        )
    return catalog


class _Entry(Struct):
    """An entry of a PO file: its texts by keyword (`parts`), and its translations by the number of the plural form (`texts`)."""

    line: int = 0
    parts: dict[str, str] = field(default_factory=dict)
    texts: dict[int, str] = field(default_factory=dict)
    flags: frozenset[str] = frozenset()


def _read_entries(text: str) -> Iterator[_Entry]:
    entry, field_name, form = _Entry(), "", 0
    for number, written in enumerate(text.split("\n"), 1):
        line = written.strip()
        if line.startswith("#") or not line:
            if entry.texts:
                yield entry
                entry, field_name = _Entry(), ""
            if line.startswith("#,"):
                entry.flags |= {flag.strip() for flag in line[2:].split(",")}
            continue
        match = _LINE.fullmatch(line)
        if match is None or not (match[1] or field_name):
            raise BrokenTextError(
                "the line is not valid in a PO file: a keyword, such as msgid, and a text in quotes were expected", str(number)
            )
        if match[1]:
            if entry.texts and match[1] != "msgstr":
                yield entry
                entry = _Entry()
            field_name, form = match[1], int(match[2] or 0)
            entry.line = entry.line or number
            if (form in entry.texts) if field_name == "msgstr" else (field_name in entry.parts):
                raise BrokenTextError(f"an entry has a second {field_name}", str(number))
        part = _ESCAPE.sub(_unescape, match[3])
        if field_name == "msgstr":
            entry.texts[form] = entry.texts.get(form, "") + part
        else:
            entry.parts[field_name] = entry.parts.get(field_name, "") + part
    if entry.parts or entry.texts:
        yield entry


def _unescape(match: re.Match[str]) -> str:
    escape = match[1]
    if escape[0] in "01234567":
        return chr(int(escape, 8))
    return chr(int(escape[1:], 16)) if escape[0] == "x" and len(escape) > 1 else _ESCAPES.get(escape, escape)


def _decode_po(data: bytes) -> str:
    charset = _CHARSET.search(data[:8192])
    name = charset[1].decode() if charset else "utf-8"
    # gettext writes the word CHARSET into a new template instead of the name of an encoding
    if name.lower() in ("utf-8", "utf8", "charset", "ascii", "us-ascii"):
        return decode_text(data)
    try:
        return data.decode(name)
    except (LookupError, UnicodeError):
        raise BrokenTextError(
            f"the text is not in the charset '{name}' that the header of the file names; save the file as UTF-8"
        ) from None


def _read_csv(text: str, delimiter: str) -> list[TextCatalog]:
    rows = list(read_rows(text, delimiter))
    if not rows:
        raise BrokenTextError("the file has no texts, because no row follows its header")
    names = list(rows[0].cells)
    languages = [name for name in names[1:] if _LANGUAGE.fullmatch(name)]
    if not languages:
        raise BrokenTextError("no column has the name of a language, such as en or pt_BR", "1")
    catalogs = [TextCatalog(language=name) for name in languages]
    for row in rows:
        key = row.cells[names[0]]
        if not key:
            raise BrokenTextError(f"the row has no key: its column '{names[0]}' is empty", str(row.line))
        for catalog in catalogs:
            source, text = row.cells[languages[0]], row.cells[catalog.language]
            catalog.add(Message(key=key, line=row.line, source=[source], texts=[text] if text else []))
    return catalogs


def _read_xliff(root: XmlElement, stem: str) -> TextCatalog:
    if root.name != "xliff":
        raise BrokenTextError(f"the root element is <{shorten(root.name)}>, not <xliff>", str(root.line))
    files = list(root.find_all("file"))
    language = root.attributes.get("trgLang") or (files[0].attributes.get("target-language") if files else "")
    catalog = TextCatalog(language=language or stem)
    for file in files:
        # An id is unique only in its file, so the name of the file becomes the context of the key if there are several files.
        context = (file.attributes.get("original") or file.attributes.get("id", "")) + CONTEXT_END if len(files) > 1 else ""
        for unit in _walk_units(file):
            key = unit.attributes.get("resname") or unit.attributes.get("name") or unit.attributes.get("id", "")
            if not key:
                raise BrokenTextError(f"<{unit.name}> has no id", str(unit.line))
            parts = [unit] if unit.name == "trans-unit" else list(unit.find_all("segment", "ignorable"))
            source, target = "".join(_read_text(part, "source") for part in parts), _join_targets(parts)
            catalog.add(Message(key=context + key, line=unit.line, source=[source], texts=[target] if target else []))
    return catalog


def _read_text(part: XmlElement, name: str) -> str:
    found = part.find(name)
    return found.text if found else ""


def _join_targets(parts: list[XmlElement]) -> str:
    """Return the translation of a unit, "" if one of its segments is not translated.

    The blanks between two segments (`ignorable`) are those of the source unless they have a translation (XLIFF 2).
    """
    targets = []
    for part in parts:
        source, target = _read_text(part, "source"), _read_text(part, "target")
        if source and not target and part.name != "ignorable":
            return ""
        targets.append(source if part.name == "ignorable" and part.find("target") is None else target)
    return "".join(targets)


def _walk_units(element: XmlElement) -> Iterator[XmlElement]:
    for child in element.children:
        if child.name in ("trans-unit", "unit"):
            yield child
        elif child.name in ("body", "group"):
            yield from _walk_units(child)

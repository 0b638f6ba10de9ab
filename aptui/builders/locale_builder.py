"""The `locale` builder: translations in PO, CSV or XLIFF become one table of texts for each language, as JSON.

A table is `{"": {"language": "de", "plural_forms": "…"}, key: text, key: [text of each plural form]}`. The key of a text in PO is
its `msgid`; if the text has a context, the context and the character U+0004 precede it, as in MO files. In an XLIFF with several
files, the name of the file is the context. A text that is missing, or marked as fuzzy, is not in the table, so that the game can
fall back to another language.

Keys that are missing or unused, plural forms that the language does not have, and placeholders that differ from those of the source
language are warnings with file and line. All missing texts of a file give one warning, and so do all unused texts.
"""

from __future__ import annotations

import gettext
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, ClassVar
from uuid import UUID

from msgspec import Meta, Struct

from aptui.builders.common import SourceBuilder, shorten, show_count, summarize_errors
from aptui.builders.files.catalogs import MOST_FORMS, Message, TextCatalog, read_catalogs, show_key
from aptui.builders.files.json_text import BrokenTextError, write_json
from aptui.builders.files.references import place_parameter, read
from aptui.sdk import CreateJobsRequest, JobError, ProcessJobRequest, placed_name

LOCALE_ASSET_TYPE = UUID("5a0b7c1d-93e4-5f26-8b1a-7d2c4e6f8a01")
"""Asset type of every product of this builder: the texts of one language."""

MOST_SHOWN = 100
"""Maximum number of lines in the log for each kind of mistake; one more line gives the number of further mistakes."""
_UNFINISHED = frozenset(("missing text", "unused text"))
"""Kinds of mistakes that are usual until a translation is complete: each kind gives one warning, and the log lists the texts."""

_PERCENT = re.compile(r"%(?:%|(?:(\d+)\$|\((\w+)\))?[-+0#]*(?:\d+|\*)?(?:\.(?:\d+|\*))?(?:hh|h|ll|l|z|j|t|L)?([diouxXeEfFgGcs]))")
_BRACES = re.compile(r"\{\{|\}\}|\{(\w*)(?:[!:,][^{}]*)?\}")
_PLURAL_FORMS = re.compile(r"nplurals\s*=\s*(\d+)\s*;\s*plural\s*=\s*([^;]+);?\s*")
_SAME_TYPE = {"i": "d", "u": "d", "X": "x", "E": "e", "F": "f", "G": "g"}
_MOST_NUMBERS = 200
"""Number of integers (0, 1, 2 …) with which the rule for plural forms is tested."""


class LocaleParams(Struct, frozen=True, kw_only=True):
    """Parameters of this builder; the documentation and `aptui explain` show the descriptions of the fields."""

    template: (
        Annotated[str, Meta(min_length=1)]
        | Annotated[
            None,
            Meta(
                description="path of a file that has all keys, such as a .pot; relative to the scan folder, or to the source "
                "if the "
                "path begins with ./"
            ),
        ]
    ) = None
    strict: Annotated[bool, Meta(description="treat each warning as an error")] = False


class Mistake(Struct, frozen=True):
    """A mistake in translations: its kind (for the limit of warnings), its place (`file:line`), and a description."""

    kind: str
    place: str
    what: str


class LocaleBuilder(SourceBuilder):
    """Makes `<stem>.json` of a PO or XLIFF file, and `<stem>.<language>.json` for each language of a CSV."""

    name: ClassVar[str] = "locale"
    version: ClassVar[str] = "1"
    patterns: ClassVar[tuple[str, ...]] = ("*.po", "*.xlf", "*.xliff")
    params_schema: ClassVar[Any] = LocaleParams

    def analyse(self, request: CreateJobsRequest) -> None:
        """Declare the templates as dependencies."""
        templates = {request.options_for(platform.id).template for platform in request.platforms}
        for template in sorted(filter(None, templates)):
            request.depends_on(place_parameter(template, request.source))

    def build(self, request: ProcessJobRequest) -> None:
        """Check the translations of one file and write its tables."""
        options: LocaleParams = request.options
        source = request.source
        catalogs = read_catalogs(source, request.read_source())
        mistakes = [each for catalog in catalogs for each in check_catalog(catalog, source)]
        if options.template:
            path = place_parameter(options.template, source)
            template = _read_template(request, path)
            mistakes += [each for catalog in catalogs for each in compare_keys(catalog, source, template, path)]
        tables = [write_table(catalog) for catalog in catalogs]
        _report(mistakes, request, is_strict=options.strict)
        is_single = not source.lower().endswith((".csv", ".tsv"))
        for catalog, table in zip(catalogs, tables, strict=True):
            name = f"{request.stem}.json" if is_single else f"{request.stem}.{catalog.language}.json"
            request.write_product(name, table, asset_type=LOCALE_ASSET_TYPE)
            done = sum(message.is_translated for message in catalog.messages.values())
            total = show_count(len(catalog.messages), "text")
            request.log.info(f"{source}: language {catalog.language}: {done} of {total} translated")


def _read_template(request: ProcessJobRequest, path: str) -> TextCatalog:
    data = read(request, placed_name("", path), "the parameter 'template'")
    try:
        return read_catalogs(path, data)[0]
    except BrokenTextError as error:
        raise JobError(f"{request.source}: the template {error.explain(path)}") from None


def write_table(catalog: TextCatalog) -> bytes:
    """Return the JSON of the translated texts of a language."""
    head = {"language": catalog.language} | ({"plural_forms": catalog.plural_forms} if catalog.plural_forms else {})
    table: dict[str, Any] = {"": head}
    for key, message in catalog.messages.items():
        if message.is_translated:
            table[key] = message.texts if len(message.source) > 1 else message.texts[0]
    return write_json(table, indent=1)


def check_catalog(catalog: TextCatalog, source: str) -> Iterator[Mistake]:
    """Yield the mistakes inside one language: missing texts, wrong plural forms, placeholders that differ from the source."""
    form_count, wrong = read_plural_forms(catalog.plural_forms)
    has_plurals = any(len(message.source) > 1 for message in catalog.messages.values())
    if has_plurals and wrong:
        yield Mistake("plural form", source, wrong)
    for message in catalog.messages.values():
        place = f"{source}:{message.line}"
        if not message.is_translated:
            state = "is marked as fuzzy" if all(message.texts) and message.texts else "has no text"
            yield Mistake("missing text", place, f"{show_key(message.key)} {state} in {catalog.language}")
            continue
        if len(message.source) > 1 and form_count and len(message.texts) != form_count:
            what = (
                f"{show_key(message.key)} has {show_count(len(message.texts), 'plural form')}, but the language "
                f"{catalog.language} needs {form_count}"
            )
            yield Mistake("plural form", place, what)
        if what := compare_placeholders(message):
            yield Mistake("placeholder", place, what)


def compare_keys(catalog: TextCatalog, source: str, template: TextCatalog, template_path: str) -> Iterator[Mistake]:
    """Yield a mistake for each key that is only in a catalog or only in its template."""
    for key, message in template.messages.items():
        if key not in catalog.messages:
            where = f"{template_path}:{message.line}"
            yield Mistake("missing text", where, f"{show_key(key)} has no text in {catalog.language} ({source})")
    for key, message in catalog.messages.items():
        if key not in template.messages:
            yield Mistake(
                "unused text",
                f"{source}:{message.line}",
                f"{show_key(key)} is unused: the template {template_path} does not have this key",
            )


def read_plural_forms(header: str) -> tuple[int, str]:
    """Parse a header `Plural-Forms`; return (number of plural forms, ""), or (0, what is wrong)."""
    match = _PLURAL_FORMS.fullmatch(header)
    if match is None:
        return 0, "the header has no valid Plural-Forms, but some texts have plural forms"
    count = int(match[1][:9])
    if not 0 < count <= MOST_FORMS:
        return 0, f"Plural-Forms: nplurals={shorten(match[1])} is not a possible number of forms"
    try:
        choose = gettext.c2py(match[2])
        wrong = [number for number in range(_MOST_NUMBERS) if not 0 <= choose(number) < count]
    except (ValueError, SyntaxError, ZeroDivisionError, OverflowError, RecursionError):
        return 0, f"Plural-Forms: '{shorten(match[2])}' is not a valid expression with the variable n"
    return (
        (0, f"Plural-Forms: for n={wrong[0]} the rule chooses form {choose(wrong[0])}, but the forms are 0 to {count - 1}")
        if wrong
        else (count, "")
    )


def compare_placeholders(message: Message) -> str:
    """Describe how the placeholders of a translation differ from those of the source, "" if they do not.

    A plural form may omit placeholders: "one file" for "%d files".
    """
    uses_percent = "no-c-format" not in message.flags and any(_percent(text) for text in message.source)
    uses_braces = any(_braces(text) for text in message.source)
    allowed = [_describe(text, uses_percent=uses_percent, uses_braces=uses_braces) for text in message.source]
    for text in message.texts:
        found = _describe(text, uses_percent=uses_percent, uses_braces=uses_braces)
        is_plural = len(message.source) > 1
        if found in allowed or (is_plural and any(not found - each for each in allowed)):
            continue
        return f"{show_key(message.key)} has the placeholders {_list(allowed[-1])}, but its translation has {_list(found)}"
    return ""


def _describe(text: str, *, uses_percent: bool, uses_braces: bool) -> Counter[str]:
    return Counter(_percent(text) if uses_percent else ()) + Counter(set(_braces(text)) if uses_braces else ())


def _list(found: Counter[str]) -> str:
    return ", ".join(sorted(found.elements())) or "none"


def _percent(text: str) -> Sequence[str]:
    """Return the placeholders of printf; placeholders without numbers are numbered from left to right."""
    found: list[str] = []
    for match in _PERCENT.finditer(text):
        if match[3]:
            kind = _SAME_TYPE.get(match[3], match[3])
            found.append(f"%({match[2]}){kind}" if match[2] else f"%{match[1] or len(found) + 1}${kind}")
    return found


def _braces(text: str) -> Sequence[str]:
    """Return the placeholders in braces; a placeholder without a name gets the number of its place."""
    found: list[str] = []
    for match in _BRACES.finditer(text):
        if match[1] is not None:
            found.append(f"{{{match[1] or len(found)}}}")
    return found


def _report(mistakes: Sequence[Mistake], request: ProcessJobRequest, *, is_strict: bool) -> None:
    if mistakes and is_strict:
        raise JobError(summarize_errors([f"{each.place}: {each.what}" for each in mistakes]))
    counts: Counter[str] = Counter()
    totals = Counter(mistake.kind for mistake in mistakes)
    for mistake in mistakes:
        kind, text = mistake.kind, f"{mistake.place}: {mistake.what}"
        counts[kind] += 1
        if kind in _UNFINISHED and counts[kind] == 1 and totals[kind] > 1:
            text += f" (the log of the job lists {show_count(totals[kind] - 1, 'more mistake')} of this kind)"
        if counts[kind] <= MOST_SHOWN:
            (request.log.info if kind in _UNFINISHED and counts[kind] > 1 else request.log.warning)(text)
    for kind, total in totals.items():
        if total > MOST_SHOWN:
            log = request.log.info if kind in _UNFINISHED else request.log.warning
            log(f"{request.source}: the log leaves out {show_count(total - MOST_SHOWN, 'more mistake')} of the kind '{kind}'")

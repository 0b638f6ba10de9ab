"""Checks the product dependencies that a Python builder or the configuration declares, and converts them for the engine.

A builder is not trusted: a value of a wrong type or an impossible path fails the job; a declaration without effect is left out and
reported in the job's log. The configuration declares dependencies by rules (`references`), which find them in text, or by the name
of a file to which a builder's command writes them. These dependencies are added to the products and checked like the
declarations of a Python builder.
"""

from __future__ import annotations

import io
import json
import os
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any
from uuid import UUID

from msgspec.structs import replace

from aptui.core.model import LinkKind, ProductLink
from aptui.core.notices import LogLevel
from aptui.core.orders import ProcessOrder, StagedProduct
from aptui.core.paths import as_text, key_of, os_path, path_link, settle_links
from aptui.core.project import Builder, ReferenceRule
from aptui.core.run_report import MOST_FACTS, ContentFacts, content_facts, fault_of
from aptui.sdk import JobProduct, LoadBehavior, PathDependency, PathDependencyKind, ProductDependency
from aptui.worker.answers import AnswerRefused, read_answer_text
from aptui.worker.log import RunLog, valid_text

# Checks of the facts that a builder gives about a product: names, numbers that a database can hold, short texts.


def facts_of(product: JobProduct) -> ContentFacts | None:
    """Return the facts that the builder gives about a product, None if it gives no facts.

    Raises:
        AnswerRefused: a fact has a name or a value that is not allowed; the text names the product and the fact.
    """
    if not product.facts:
        return None
    if not isinstance(product.facts, dict):
        raise AnswerRefused(f"product {product.path!r} has a {type(product.facts).__name__} as its facts, not a dict")
    for name, value in product.facts.items():
        if problem := fault_of(str(name), value):
            raise AnswerRefused(f"product {product.path!r}: its {name} is {value!r}, which is {problem}")
    if len(product.facts) > MOST_FACTS:
        raise AnswerRefused(f"product {product.path!r} has {len(product.facts)} facts, more than {MOST_FACTS}")
    return content_facts(product.facts)


_HIGHEST_FLAGS = (1 << 63) - 1
_HIGHEST_SUB_ID = (1 << 32) - 1


def with_links(
    staged: Sequence[StagedProduct], products: Sequence[JobProduct], order: ProcessOrder, log: RunLog
) -> tuple[StagedProduct, ...]:
    """Return the products of a run with their facts and dependencies.

    Raises:
        AnswerRefused: a fact, a dependency or a legacy sub id is not valid; the text names the product.
    """
    staged = tuple(_with_facts(item, product) for item, product in zip(staged, products, strict=True))
    linked = tuple(_link(item, product, order, log) for item, product in zip(staged, products, strict=True))
    if any(item.links for item in linked) and not any(product.dependencies_handled for product in products):
        text = "products declare dependencies, but no product sets dependencies_handled, so some dependencies may be missing"
        log.write(LogLevel.WARNING, text)
    return linked


def _with_facts(staged: StagedProduct, product: JobProduct) -> StagedProduct:
    facts = facts_of(product)
    return staged if facts is None else replace(staged, facts=facts)


def _link(staged: StagedProduct, product: JobProduct, order: ProcessOrder, log: RunLog) -> StagedProduct:
    if not (product.dependencies or product.path_dependencies or product.legacy_sub_ids):
        return staged
    declared = [*_asset_links(product), *_path_links(product, order)]
    links, contradictions = settle_links(link for link in declared if not _is_itself(link, staged, order, log))
    for path in contradictions:
        text = f"product {product.path!r}: the dependency '{path}' is ignored, because the product also excludes it"
        log.write(LogLevel.ERROR, valid_text(text))
    return replace(staged, links=links, legacy_sub_ids=_legacy_sub_ids(product))


def _asset_links(product: JobProduct) -> Iterator[ProductLink]:
    for item in product.dependencies:
        if not isinstance(item, ProductDependency):
            raise _as_refused(product, f"has a {type(item).__name__} among its dependencies, not a ProductDependency")
        if not isinstance(item.source_uuid, UUID):
            raise _as_refused(product, f"depends on {item.source_uuid!r}, which is not a UUID")
        if not item.source_uuid.int:
            raise _as_refused(product, "depends on the UUID 0, which cannot be the UUID of a source")
        sub_id = _number(product, item.sub_id, _HIGHEST_SUB_ID, "a sub id of 32 bits")
        flags = _number(product, item.load, _HIGHEST_FLAGS, "a load behaviour, or flags of 63 bits")
        yield ProductLink(LinkKind.ASSET, "", flags, item.source_uuid.bytes, sub_id)


def _path_links(product: JobProduct, order: ProcessOrder) -> Iterator[ProductLink]:
    for item in product.path_dependencies:
        if not isinstance(item, PathDependency):
            raise _as_refused(product, f"has a {type(item).__name__} among its path dependencies; expected a PathDependency")
        if not isinstance(item.path, str):
            raise _as_refused(product, f"depends on the path {item.path!r}, which is not a text")
        if item.kind not in (PathDependencyKind.SOURCE_FILE, PathDependencyKind.PRODUCT_FILE):
            raise _as_refused(
                product, f"depends on '{item.path}', whose kind {item.kind!r} is neither SOURCE_FILE nor PRODUCT_FILE"
            )
        flags = _number(product, item.load, _HIGHEST_FLAGS, "a load behaviour, or flags of 63 bits")
        try:
            yield path_link(as_text(item.path), LinkKind(item.kind), flags, order.root)
        except ValueError as error:
            raise _as_refused(product, f"depends on the path '{item.path}', which {error}") from None


def _is_itself(link: ProductLink, staged: StagedProduct, order: ProcessOrder, log: RunLog) -> bool:
    """Whether a declared dependency of a product is left out, because it names the product itself.

    A dependency on the product's source stays, with a warning.
    """
    if link.is_exclusion:
        return False
    is_own_id = link.kind is LinkKind.ASSET and (link.source_uuid, link.sub_id) == (order.source_uuid, staged.sub_id)
    is_own_name = link.kind is LinkKind.PRODUCT_FILE and link.path == staged.name
    is_own_source = link.kind is LinkKind.SOURCE_FILE and link.path == key_of(order.rel)
    if is_own_id or is_own_name:
        log.write(LogLevel.WARNING, f"product '{staged.name}' depends on itself; this dependency is left out")
    elif is_own_source:
        log.write(LogLevel.WARNING, f"product '{staged.name}' depends on its own source; this dependency is kept")
    return is_own_id or is_own_name


def _legacy_sub_ids(product: JobProduct) -> tuple[int, ...]:
    found = {_number(product, sub_id, _HIGHEST_SUB_ID, "a legacy sub id of 32 bits") for sub_id in product.legacy_sub_ids}
    return tuple(sorted(found - {product.sub_id}))


def _number(product: JobProduct, value: object, highest: int, what: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= highest:
        raise _as_refused(product, f"has {value!r} in place of {what}")
    return int(value)


def _as_refused(product: JobProduct, text: str) -> AnswerRefused:
    return AnswerRefused(f"product {product.path!r} {valid_text(text)}")


LARGEST_TEXT_BYTES = 64 << 20
"""Maximum size of a file that is searched for references (bytes); hand-written text is smaller."""
MOST_WARNINGS = 20
LOADS = {"pre": LoadBehavior.PRE_LOAD, "queue": LoadBehavior.QUEUE_LOAD, "none": LoadBehavior.NO_LOAD}
KINDS = {"source": PathDependencyKind.SOURCE_FILE, "product": PathDependencyKind.PRODUCT_FILE}
_GROUP = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")
_KNOWN = ("path", "uuid", "sub_id", "kind", "load", "product", "facts")


# ------------------------------------------------------------------------------------------------------- references in text


def add_references(
    builder: Builder, staged: Sequence[StagedProduct], products: Sequence[JobProduct], order: ProcessOrder, source: str, log: RunLog
) -> None:
    """Add to each of `products` the references that the rules of `builder` find in the product or in the source."""
    if not builder.references:
        return
    warnings: list[str] = []
    in_source = list(_find_reads(builder.references, source, order, warnings)) if _takes(builder.references, is_source=True) else []
    for item, product in zip(staged, products, strict=True):
        found = list(in_source)
        if _takes(builder.references, is_source=False):
            found += _find_reads(builder.references, os_path(item.staged), order, warnings, item.name)
        product.path_dependencies = [*product.path_dependencies, *found]
        product.dependencies_handled = True
    sentences = list(dict.fromkeys(warnings))
    for text in sentences[:MOST_WARNINGS]:
        log.write(LogLevel.WARNING, valid_text(text))
    if len(sentences) > MOST_WARNINGS:
        log.write(LogLevel.WARNING, f"{len(sentences) - MOST_WARNINGS} more references are invalid")


def _takes(rules: Iterable[ReferenceRule], *, is_source: bool) -> bool:
    return any(rule.is_in_source is is_source for rule in rules)


def _find_reads(
    rules: Iterable[ReferenceRule], file: str, order: ProcessOrder, warnings: list[str], product: str = ""
) -> Iterator[PathDependency]:
    """Yield the dependencies that the rules find in a file: the staged file of `product`, or the source.

    Each path is yielded once.
    """
    size = os.path.getsize(file)
    if size > LARGEST_TEXT_BYTES:
        name = product or order.rel
        warnings.append(
            f"'{name}' is not searched for references, because it has {size >> 20} MiB; the limit is {LARGEST_TEXT_BYTES >> 20} MiB"
        )
        return
    with open(file, encoding="utf-8", errors="surrogateescape") as stream:
        text = stream.read()
    for rule in rules:
        if rule.is_in_source is not bool(product):
            paths = dict.fromkeys(_path_meant(rule, match) for match in compile_regex(rule.regex).finditer(text))
            yield from _dependencies(rule, paths, order, product, warnings)


def _path_meant(rule: ReferenceRule, match: re.Match[str]) -> str:
    groups = match.groupdict()
    if rule.path:
        return _GROUP.sub(lambda group: groups.get(group[1]) or "", rule.path)
    return (groups.get("path") or "") if "path" in groups else match[1] or ""


def _dependencies(
    rule: ReferenceRule, paths: Iterable[str], order: ProcessOrder, product: str, warnings: list[str]
) -> Iterator[PathDependency]:
    for written in paths:
        path = written.strip().replace("\\", "/")
        mark, path = ("!", path[1:]) if path.startswith("!") else ("", path)
        if not path:
            continue
        if rule.is_beside:
            path = posixpath.join(posixpath.dirname(os_path(order.rel)), path)
        try:
            link = path_link(as_text(mark + path), LinkKind(rule.kind), rule.load, order.root)
        except ValueError as error:
            warnings.append(f"the reference '{written}' {error}; it is left out")
            continue
        if link.path not in (key_of(order.rel), product):  # a file that contains its own name does not depend on itself
            yield PathDependency(mark + path, PathDependencyKind(rule.kind), rule.load)


@lru_cache(maxsize=256)
def compile_regex(regex: str) -> re.Pattern[str]:
    """Return a compiled regular expression, which the configuration has checked; `^` and `$` match at the ends of each line."""
    return re.compile(regex, re.MULTILINE)


# --------------------------------------------------------------------------------------------- dependencies listed in a file


def add_declared(file: str, products: Sequence[JobProduct]) -> bool:
    """Add the declarations that a command wrote into `file` to its products; return whether the file exists.

    Raises:
        AnswerRefused: a line is not valid; the text has the number of the line.
    """
    try:
        lines = io.StringIO(read_answer_text(file))  # unlike `splitlines`, it ends lines only at line feeds
    except FileNotFoundError:
        return False
    by_name = {os.path.basename(product.path): product for product in products}
    for number, line in enumerate(lines, 1):
        try:
            _add_line(line.strip(), by_name)
        except ValueError as error:
            raise AnswerRefused(f"{os.path.basename(file)}:{number}: {error}") from None
    for product in products:
        product.dependencies_handled = True
    return True


def _add_line(line: str, products: Mapping[str, JobProduct]) -> None:
    """Add the declaration of one line to its products: the line is the path of a source, or a JSON object with details."""
    if not line or line.startswith("#"):
        return
    entry: dict[str, Any] = json.loads(line) if line.startswith("{") else {"path": line}
    for key in entry:
        if key not in _KNOWN:
            raise ValueError(f"unknown key {key!r}; the known keys are {', '.join(_KNOWN)}")
    if "facts" in entry:
        _add_facts(entry, products)
        return
    if ("path" in entry) is ("uuid" in entry):
        raise ValueError("a line must have either 'path' or 'uuid'")
    load = _word(entry, "load", LOADS, "queue")
    kind = _word(entry, "kind", KINDS, "source")
    for product in _choose_products(entry, products):
        if "path" in entry:
            product.path_dependencies.append(PathDependency(entry["path"], kind, load))
        else:
            product.dependencies.append(ProductDependency(UUID(str(entry["uuid"])), entry.get("sub_id", 0), load))


def _add_facts(entry: Mapping[str, Any], products: Mapping[str, JobProduct]) -> None:
    if entry.keys() - {"facts", "product"}:
        raise ValueError("a line with 'facts' can only have 'product' as another key")
    if not isinstance(entry["facts"], dict):
        raise ValueError(f"'facts' must be a mapping of names to values, not {entry['facts']!r}")  # noqa: TRY004  # the file has a wrong value, not a caller
    for product in _choose_products(entry, products):
        product.facts.update(entry["facts"])


def _word(entry: Mapping[str, Any], key: str, known: Mapping[str, Any], default: str) -> Any:
    word = entry.get(key, default)
    if not isinstance(word, str) or word not in known:
        raise ValueError(f"'{key}' must be one of {', '.join(known)}, not {word!r}")
    return known[word]


def _choose_products(entry: Mapping[str, Any], products: Mapping[str, JobProduct]) -> Iterable[JobProduct]:
    name = entry.get("product")
    if name is None:
        return products.values()
    if not isinstance(name, str) or name not in products:
        raise ValueError(f"the command made no product {name!r}")
    return (products[name],)

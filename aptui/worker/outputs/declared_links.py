"""Declared product dependencies of a run: checks them, and converts them to the form that the worker sends to the engine.

A builder is not trusted: a value of a wrong type or an impossible path fails the job; a declaration without effect is left out and
reported in the job's log.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from uuid import UUID

from msgspec.structs import replace

from aptui.core.links import path_link, settle_links
from aptui.core.model import LinkKind, ProductLink
from aptui.core.notices import LogLevel
from aptui.core.orders import ProcessOrder, StagedProduct
from aptui.core.paths import key_of, to_text
from aptui.core.run_report import MOST_FACTS, ContentFacts, content_facts, fault_of
from aptui.sdk import JobProduct, PathDependency, PathDependencyKind, ProductDependency
from aptui.worker.answers import AnswerRefused
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
        text = "products declare dependencies, but no product sets dependencies_handled: some dependencies may be missing"
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
        text = f"product {product.path!r}: the dependency '{path}' is both wanted and excluded; it is ignored"
        log.write(LogLevel.ERROR, valid_text(text))
    return replace(staged, links=links, legacy_sub_ids=_legacy_sub_ids(product))


def _asset_links(product: JobProduct) -> Iterator[ProductLink]:
    for item in product.dependencies:
        if not isinstance(item, ProductDependency):
            raise _as_refused(product, f"has a {type(item).__name__} among its dependencies, not a ProductDependency")
        if not isinstance(item.source_uuid, UUID):
            raise _as_refused(product, f"depends on {item.source_uuid!r}, which is not a UUID")
        if not item.source_uuid.int:
            raise _as_refused(product, "depends on a source with the UUID 0, which no source has")
        sub_id = _number(product, item.sub_id, _HIGHEST_SUB_ID, "a sub id of 32 bits")
        flags = _number(product, item.load, _HIGHEST_FLAGS, "a load behaviour, or flags of 63 bits")
        yield ProductLink(LinkKind.ASSET, "", flags, item.source_uuid.bytes, sub_id)


def _path_links(product: JobProduct, order: ProcessOrder) -> Iterator[ProductLink]:
    for item in product.path_dependencies:
        if not isinstance(item, PathDependency):
            raise _as_refused(product, f"has a {type(item).__name__} among its path dependencies, not a PathDependency")
        if not isinstance(item.path, str):
            raise _as_refused(product, f"depends on the path {item.path!r}, which is not a text")
        if item.kind not in (PathDependencyKind.SOURCE_FILE, PathDependencyKind.PRODUCT_FILE):
            raise _as_refused(
                product, f"depends on '{item.path}', whose kind {item.kind!r} is neither SOURCE_FILE nor PRODUCT_FILE"
            )
        flags = _number(product, item.load, _HIGHEST_FLAGS, "a load behaviour, or flags of 63 bits")
        try:
            yield path_link(to_text(os.fsencode(item.path)), LinkKind(item.kind), flags, order.root)
        except ValueError as error:
            raise _as_refused(product, f"depends on the path '{item.path}', which {error}") from None


def _is_itself(link: ProductLink, staged: StagedProduct, order: ProcessOrder, log: RunLog) -> bool:
    """Whether a declared dependency of a product names the product itself, and is left out.

    A dependency on the product's source stays, with a warning.
    """
    if link.is_exclusion:
        return False
    is_own_id = link.kind is LinkKind.ASSET and (link.source_uuid, link.sub_id) == (order.source_uuid, staged.sub_id)
    is_own_name = link.kind is LinkKind.PRODUCT_FILE and link.path == staged.name
    is_own_source = link.kind is LinkKind.SOURCE_FILE and link.path == key_of(order.rel)
    if is_own_id or is_own_name:
        log.write(LogLevel.WARNING, f"product '{staged.name}' depends on itself; that dependency is left out")
    elif is_own_source:
        log.write(LogLevel.WARNING, f"product '{staged.name}' depends on its own source; that dependency is kept")
    return is_own_id or is_own_name


def _legacy_sub_ids(product: JobProduct) -> tuple[int, ...]:
    found = {_number(product, sub_id, _HIGHEST_SUB_ID, "a legacy sub id of 32 bits") for sub_id in product.legacy_sub_ids}
    return tuple(sorted(found - {product.sub_id}))


def _number(product: JobProduct, value: object, highest: int, what: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= highest:
        raise _as_refused(product, f"gives {value!r} where {what} belongs")
    return int(value)


def _as_refused(product: JobProduct, text: str) -> AnswerRefused:
    return AnswerRefused(f"product {product.path!r} {valid_text(text)}")

"""Asset lists: the transitive product dependencies of some assets, as records and JSON.

Each listed product names the product that needs it.

Tests: `tests/store/queries/test_asset_graph.py`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Annotated, Any, cast

from msgspec import Meta, Struct, ValidationError, convert, to_builtins
from msgspec.structs import replace

from aptui.shared.errors import UserError
from aptui.shared.forms import prepare_form
from aptui.store.queries.asset_graph import AssetGraph, Edge, Link, Node, ProductFact

FORMAT = "aptui asset list"
VERSION = 1
LIST_BYTES_MOST = 1 << 30
"""Maximum size of a list file."""
MOST_BYTES = (1 << 63) - 1
"""Maximum size of a product in a list; file systems have no larger files."""


class ListedProduct(Struct, frozen=True):
    """A product in an asset list.

    `pulled_in_by` is the first product that needs this product, "" for a seed. `digest` "" = unknown; `size` -1 = unknown.
    """

    name: str
    asset_id: str
    size: Annotated[int, Meta(ge=-1, le=MOST_BYTES)]
    digest: Annotated[str, Meta(pattern=r"^([0-9a-f]{2})*$")]
    source: str = ""
    pulled_in_by: str = ""


class LooseEnd(Struct, frozen=True):
    """An unresolved dependency of a listed product.

    `kind` is "unmet" (no product has the declared path), "dangling" (no product has the declared asset id) or "missing" (a
    reference in the product's bytes is not declared).
    """

    kind: str
    product: str
    target: str
    asset_id: str = ""


class AssetList(Struct, frozen=True):
    """The seeds, and all products that the seeds need, by name."""

    platform: str
    seeds: tuple[str, ...]
    products: tuple[ListedProduct, ...]
    loose_ends: tuple[LooseEnd, ...] = ()

    @property
    def total_bytes(self) -> int:
        """Return the total size of all products with a known size."""
        return sum(product.size for product in self.products if product.size > 0)

    def to_json(self) -> dict[str, Any]:
        """Return the list as JSON, which `read` accepts."""
        head = {"format": FORMAT, "version": VERSION, "platform": self.platform, "seeds": self.seeds}
        return {**head, "total_bytes": self.total_bytes, **to_builtins({"products": self.products, "loose_ends": self.loose_ends})}


def closure(graph: AssetGraph, seeds: Collection[Node], words: Sequence[str], platform: str) -> AssetList:
    """Return the list of the products `seeds` and all products that they need; `words` are the user's names for the seeds."""
    narrow = graph.narrow((Link.PRODUCT,))
    reached = narrow.walk(sorted(seeds))
    facts = {node: fact for node, fact in narrow.facts(reached).items() if isinstance(fact, ProductFact)}
    products = [
        _list_product(facts[node], edge, facts)
        for node, edge in reached.items()
        if node in facts and not facts[node].is_intermediate
    ]
    return AssetList(platform, tuple(words), tuple(sorted(products, key=lambda item: item.name)), tuple(_loose_ends(narrow, facts)))


def orphans(graph: AssetGraph, seeds: Collection[Node], platform: str) -> AssetList:
    """Return the products that `seeds` do not reach or, without seeds, that no other product needs."""
    narrow = graph.narrow((Link.PRODUCT,))
    everything = {Node(fact.product_id): fact for fact in graph.products()}
    if seeds:
        reached = set(narrow.walk(sorted(seeds)))
    else:
        reached = {edge.needed for edge in narrow.list_needed(sorted(everything)) if edge.needed != edge.needs}
    left = [_list_product(fact, None, {}) for node, fact in everything.items() if node not in reached]
    return AssetList(platform, (), tuple(left))


def _list_product(fact: ProductFact, edge: Edge | None, facts: dict[Node, ProductFact]) -> ListedProduct:
    reason = facts[edge.needs].name if edge is not None and edge.needs in facts else ""
    return ListedProduct(fact.name, fact.asset_id, fact.size, fact.digest.hex(), fact.source, reason)


def _loose_ends(graph: AssetGraph, facts: dict[Node, ProductFact]) -> list[LooseEnd]:
    names = {node: fact.name for node, fact in facts.items()}
    found = [
        LooseEnd("unmet", names[Node(item.product_id)], item.path)
        for item in graph.unmet(names)
        if not item.is_exclusion and not item.is_pattern
    ]
    found += [LooseEnd("dangling", names[Node(item.product_id)], item.asset_id, item.asset_id) for item in graph.dangling(names)]
    found += [LooseEnd("missing", names[Node(item.product_id)], item.text, item.asset_id) for item in graph.missing(names)]
    return sorted(set(found), key=lambda end: (end.product, end.kind, end.target))


# ----------------------------------------------------------------------------------------------------------------- reading


def read(data: bytes, path: str) -> AssetList:
    """Return the asset list from `data`, the JSON of `AssetList.to_json`; `path` names the file in messages.

    Raises:
        UserError: the file is not an asset list, or has another version.
    """
    hint = "'aptui assetlist SEED --output FILE' writes one"
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise UserError(f"the file is not an asset list: {error}", where=path, hint=hint) from None
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise UserError("the file is not an asset list", where=path, hint=hint)
    if value.get("version") != VERSION:
        raise UserError(f"the file is an asset list of version {value.get('version')!r}, not {VERSION}", where=path)
    try:
        return replace(convert(value, prepare_form(AssetList)), loose_ends=())
    except ValidationError as error:
        raise UserError(f"this asset list is damaged: {error}", where=path, hint=hint) from None


# --------------------------------------------------------------------------------------------------------------- comparing


class AssetListChange(Struct, frozen=True):
    """The change of a product between two lists; `old_bytes` is 0 for an added product, `new_bytes` is 0 for a removed product."""

    kind: str
    name: str
    old_bytes: int
    new_bytes: int


def compare(old: AssetList, new: AssetList) -> list[AssetListChange]:
    """Return products that were added or removed, grew or shrank, or changed at the same size; in this order, then by name."""
    before, after = {item.name: item for item in old.products}, {item.name: item for item in new.products}
    found = []
    for name in before.keys() | after.keys():
        was, now = before.get(name), after.get(name)
        kind = _kind_of_change(was, now)
        if kind:
            found.append(AssetListChange(kind, name, max(was.size, 0) if was else 0, max(now.size, 0) if now else 0))
    return sorted(found, key=lambda change: (CHANGES.index(change.kind), change.name))


CHANGES = ("added", "removed", "grown", "shrunk", "changed")


def _kind_of_change(was: ListedProduct | None, now: ListedProduct | None) -> str:
    if was is None or now is None:
        return "added" if was is None else "removed"
    if was.size != now.size:
        return "grown" if now.size > was.size else "shrunk"
    differs = was.asset_id != now.asset_id or (was.digest and now.digest and was.digest != now.digest)
    return "changed" if differs else ""


def as_json(value: AssetList) -> str:
    """Return a list as text with one product per line; equal lists give equal text."""
    whole = value.to_json()
    lines = {key: [json.dumps(item) for item in cast("list[Any]", whole.pop(key))] for key in ("products", "loose_ends")}
    head = json.dumps(whole)[1:-1]
    body = ",\n".join(f'"{key}": [' + ",".join(f"\n{text}" for text in items) + "]" for key, items in lines.items())
    return f"{{{head},\n{body}}}\n"

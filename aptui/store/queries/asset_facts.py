"""Facts about nodes of the asset graph: their names, and their dependencies that lead nowhere.

Records only; `graph.asset_graph` finds them.

Tests: `tests/store/graph/test_asset_graph.py`.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct

from aptui.store.queries.assets import asset_id_text


class SourceFact(Struct, frozen=True):
    """A source as people see it."""

    source_id: int
    name: str
    uuid: bytes


class ProductFact(Struct, frozen=True):
    """A product as people see it; `size` -1 and `digest` b"" when not known. `hash64` is XXH64, signed, 0 when not known."""

    product_id: int
    name: str
    platform: str
    uuid: bytes
    sub_id: int
    size: int
    digest: bytes
    source: str
    is_intermediate: bool
    hash64: int

    @property
    def asset_id(self) -> str:
        """Its asset id as people see it."""
        return asset_id_text(self.uuid, self.sub_id)


class AssetFile(Struct, frozen=True):
    """A file that something depends on and that is no source, if it is there at all; `name` in lower case."""

    name: str


Fact = SourceFact | ProductFact | AssetFile


class Unmet(NamedTuple):
    """What a product declared to need by a path; `is_product` = the path is a product's, else a source's."""

    product_id: int
    path: str
    is_product: bool

    @property
    def is_exclusion(self) -> bool:
        """Whether it says what a pattern leaves out."""
        return self.path.startswith(":")

    @property
    def is_pattern(self) -> bool:
        """Whether it is a pattern: it is kept beside what it matches, and none of it is missing."""
        return "*" in self.path


class Dangling(NamedTuple):
    """A declared asset id that no product of the platform has."""

    product_id: int
    asset_id: str


class MissingReference(NamedTuple):
    """What looks like an undeclared dependency in a product's bytes."""

    product_id: int
    text: str
    asset_id: str

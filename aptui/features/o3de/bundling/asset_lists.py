"""Asset lists (`.assetlist`), which name the products of a bundle with their times and SHA-1 digests; and comparisons of lists."""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Iterable, Sequence
from enum import IntEnum
from pathlib import Path

from msgspec import Struct

from aptui.core.patterns import wildcard
from aptui.features.o3de.bundling import object_stream
from aptui.features.o3de.bundling.object_stream import Element
from aptui.shared.errors import HostError, UserError

SUFFIX = ".assetlist"
_LIST, _VECTOR, _FILE, _HASH = (
    "{61F16042-E381-47E4-8AAA-91BC532F4101}",
    "{4F6B07E0-7EB7-5CE4-AABE-8717224FC1DB}",
    "{F1616D53-9A20-4C04-854E-D458A334B86B}",
    "{B6423B78-0722-5AD2-9CB4-100E6DA85824}",
)
_WORDS = 5


class ListedAsset(Struct, frozen=True):
    """A product in a list; `path` is relative to the platform's folder.

    `modified` is the time of the last change, as O3DE's file system returns it. `digest` is SHA-1.
    """

    guid: str
    sub_id: int
    path: str
    modified: int
    digest: bytes


def load(path: Path) -> list[ListedAsset]:
    """Return the products in a list file.

    Raises:
        UserError: the file is not an asset list. HostError: the file cannot be read.
    """
    listed = object_stream.load(path, _LIST).object.get("fileInfoList")
    return [_asset(each) for each in listed.children] if listed is not None else []


def text_of(assets: Iterable[ListedAsset]) -> str:
    """Return the content of a list file with these products, in this order."""
    vector = Element(
        "AZStd::vector<AssetFileInfo, allocator>", _VECTOR, "fileInfoList", children=[_element(each) for each in assets]
    )
    return object_stream.dump(object_stream.stream_of(Element("AssetFileInfoList", _LIST, version=1, children=[vector])))


def _asset(element: Element) -> ListedAsset:
    owner, hashed = element.get("assetId"), element.get("hash")
    if owner is None or hashed is None or len(hashed.children) != _WORDS:
        raise UserError("an asset of the list has no id or no hash", hint=object_stream.DAMAGED)
    words = [int(word.value or "0") & 0xFFFF_FFFF for word in hashed.children]
    digest = struct.pack(">5I", *words)
    path = element.text("assetRelativePath")
    return ListedAsset(owner.text("guid").upper(), owner.number("subId"), path, element.number("modificationTime"), digest)


def _element(asset: ListedAsset) -> Element:
    words = [object_stream.number("element", word) for word in struct.unpack(">5I", asset.digest)]
    fields = [
        object_stream.asset_id("assetId", asset.guid, asset.sub_id),
        object_stream.string("assetRelativePath", asset.path),
        object_stream.number("modificationTime", asset.modified, "AZ::u64"),
        Element("AZStd::array<unsigned int, 5>", _HASH, "hash", children=words),
    ]
    return Element("AssetFileInfo", _FILE, "element", version=1, children=fields)


def unreadable_product(path: Path, error: OSError) -> HostError:
    """Return the error for a product that cannot be read."""
    return HostError(f"product '{path}' cannot be read: {error.strerror}", hint="run 'AssetProcessorBatch' to restore the product")


# --------------------------------------------------------------------------------------------------------------- comparing


class ComparisonKind(IntEnum):
    """Types of comparison of two lists. The command line and rules files use the same numbers."""

    DELTA = 0
    """Assets of the second list that the first list does not contain, or contains with other bytes."""
    UNION = 1
    INTERSECTION = 2
    COMPLEMENT = 3
    """Assets of the second list that are not in the first list."""
    FILE_PATTERN = 4
    INTERSECTION_COUNT = 5

    @property
    def word(self) -> str:
        """The name of the comparison on the command line."""
        return "".join(part if at == 0 else part.capitalize() for at, part in enumerate(self.name.lower().split("_")))


def kind_of(text: str) -> ComparisonKind:
    """Return the type of comparison with this name or number.

    Raises:
        UserError: the type does not exist.
    """
    for kind in ComparisonKind:
        if text.lower() in (str(int(kind)), kind.word.lower()):
            return kind
    raise UserError(
        f"'{text}' is not a comparison", hint="write " + ", ".join(f"{int(kind)} or {kind.word}" for kind in ComparisonKind)
    )


def compare_lists(kind: ComparisonKind, first: Sequence[ListedAsset], second: Sequence[ListedAsset]) -> list[ListedAsset]:
    """Return the result of comparing two lists; an asset that is in both lists is taken from the second."""
    before = {(item.guid, item.sub_id): item for item in first}
    if kind is ComparisonKind.DELTA:
        return [item for item in second if (was := before.get((item.guid, item.sub_id))) is None or was.digest != item.digest]
    if kind is ComparisonKind.UNION:
        after = {(item.guid, item.sub_id) for item in second}
        return [*(item for item in first if (item.guid, item.sub_id) not in after), *second]
    wanted = kind is ComparisonKind.INTERSECTION
    return [item for item in second if ((item.guid, item.sub_id) in before) == wanted]


def matching(assets: Sequence[ListedAsset], pattern: str, *, is_regex: bool) -> list[ListedAsset]:
    """Return the assets whose whole path matches, ignoring case.

    Raises:
        UserError: the pattern is not a regular expression.
    """
    try:
        match = re.compile(pattern, re.IGNORECASE).fullmatch if is_regex else wildcard(pattern).fullmatch
    except re.error as error:
        raise UserError(
            f"'{pattern}' is not a regular expression: {error}",
            hint="correct the pattern, or use --filePatternType=0 for wildcards",
        ) from None
    return [item for item in assets if match(item.path)]


def appearing(lists: Sequence[Sequence[ListedAsset]], count: int) -> list[ListedAsset]:
    """Return the assets that are in at least `count` of the lists."""
    often = Counter(key for each in lists for key in {(item.guid, item.sub_id) for item in each})
    found = {(item.guid, item.sub_id): item for each in lists for item in each}
    return [item for key, item in found.items() if often[key] >= count]

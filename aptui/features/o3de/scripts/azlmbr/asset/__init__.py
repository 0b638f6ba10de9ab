"""`azlmbr.asset`: asset ids, and the module of builders."""

from __future__ import annotations

from aptui.features.o3de.scripts.azlmbr.math import Uuid, uuid_of
from aptui.features.o3de.scripts.azlmbr.reflected import refusing


class AssetId:
    """The id of a product: its source's UUID and a sub id."""

    def __init__(self, guid: object = None, sub_id: int = 0) -> None:
        self.guid: Uuid = uuid_of(guid)
        self.subId = int(sub_id)  # scripts use this spelling, which is O3DE's

    def is_valid(self) -> bool:
        """Whether the UUID of the source is set."""
        return not self.guid.is_null()

    def to_string(self) -> str:
        """Return `{UUID}:<sub id, hex>`."""
        return f"{self.guid}:{self.subId:x}"

    IsValid, ToString = is_valid, to_string

    def is_equal(self, other: object) -> bool:
        """Whether both ids identify the same product."""
        return self == other

    IsEqual = is_equal

    def __eq__(self, other: object) -> bool:
        return (self.guid, self.subId) == (other.guid, other.subId) if isinstance(other, AssetId) else NotImplemented

    def __hash__(self) -> int:
        return hash((self.guid, self.subId))

    def __repr__(self) -> str:
        return f"AssetId({self.to_string()!r})"


def _from_string(text: str) -> AssetId:
    guid, _, sub_id = text.partition(":")
    return AssetId(guid, int(sub_id or "0", 16))


AssetId_CreateString = _from_string


__getattr__ = refusing("azlmbr.asset")

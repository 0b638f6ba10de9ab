"""A result in a store: records and lists of variants as one thing that is read, and published, whole.

At a base key lies a record, or, once a builder found dependencies, the list of variants (`keys`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from aptui.features.sharing.records import record as records
from aptui.features.sharing.records.record import Discovered, Record, Variants, variant_key
from aptui.features.sharing.records.seal import Seal, part_sealed
from aptui.features.sharing.store import Mismatch

Present = Callable[[Discovered], bool]
"""Whether all these dependencies have these bytes here."""
Open = Callable[[bytes], tuple[str, bytes]]
"""`Seal.open_sealed`, or what a store of this machine believes."""


class SharedResult(Struct, frozen=True):
    """A record, its bytes as they were sealed, and where it lies."""

    record: Record
    data: bytes
    key: str


class Records(Protocol):
    """The half of a `Store` that this module needs."""

    def get_record(self, key: str) -> bytes | None:
        """As `Store.get_record`."""
        ...

    def put_record(self, key: str, data: bytes, *, if_absent: bool = True) -> bool:
        """As `Store.put_record`."""
        ...


def open_trusted(data: bytes) -> tuple[str, bytes]:
    """Open a record from this machine's own store, which gives out only what it believes."""
    kind, _, body = part_sealed(data)
    return kind, body


def read(store: Records, opens: Open, base: str, present: Present) -> SharedResult | None:
    """Return the result of the job with base key `base` whose discovered dependencies are as they are here.

    Raises:
        Mismatch: what lies there is not to be believed.
        StoreError: the store does not answer.
    """
    data = store.get_record(base)
    if data is None:
        return None
    entry = records.decode_record(*opens(data), base)
    if isinstance(entry, Record):
        return SharedResult(entry, data, base) if not entry.discovered else None
    for discovered, key in _order_by_use(entry):
        if present(discovered) and (found := _variant(store, opens, base, discovered, key)):
            return found
    return None


def publish(store: Records, opens: Open, seal: Seal, result: SharedResult) -> Record | None:
    """Put a result where `read` finds it; return the record that was there before it, which stays (first writer wins).

    Its blobs must be there already: whoever reads a record may fetch them at once. What is damaged is replaced.

    Raises:
        Mismatch: somebody's record is there that this machine does not trust; it stays too.
    """
    base = result.record.base
    if not result.record.discovered:
        if store.put_record(base, result.data):
            return None
        there = _entry(store, opens, base, base)
        if not isinstance(there, Variants):
            return there if there is not None or store.put_record(base, result.data, if_absent=False) else None
    return _publish_variant(store, opens, seal, result)


def _publish_variant(store: Records, opens: Open, seal: Seal, result: SharedResult) -> Record | None:
    base, discovered = result.record.base, result.record.discovered
    there = _entry(store, opens, base, base)
    key = variant_key(base, discovered)
    before: Record | Variants | None = None
    if not store.put_record(key, result.data):
        before = _entry(store, opens, base, key)
        if before is None:
            store.put_record(key, result.data, if_absent=False)
    listed = there if isinstance(there, Variants) else Variants(base)
    if isinstance(there, Record):  # its builder found nothing that time: it goes on as a variant
        other = variant_key(base, ())
        store.put_record(other, records.seal_record(there, seal))
        listed = listed.put_variant((), other)
    if (discovered, key) not in listed.variants:
        store.put_record(base, records.seal_record(listed.put_variant(discovered, key), seal), if_absent=False)
    return before if isinstance(before, Record) else None


def _variant(store: Records, opens: Open, base: str, discovered: Discovered, key: str) -> SharedResult | None:
    data = store.get_record(key)
    if data is None:
        return None
    entry = records.decode_record(*opens(data), base)
    if not isinstance(entry, Record) or entry.discovered != discovered:
        raise Mismatch("the record is one of another variant")
    return SharedResult(entry, data, key)


def _entry(store: Records, opens: Open, base: str, key: str) -> Record | Variants | None:
    """Return what lies at a key, None when nothing does, or only what is left of a record."""
    data = store.get_record(key)
    if data is None:
        return None
    try:
        part_sealed(data)
    except Mismatch:
        return None
    return records.decode_record(*opens(data), base)


def _order_by_use(entry: Variants) -> list[tuple[Discovered, str]]:
    """Return variants in the order in which they are tried: one that found nothing fits always, and says least."""
    return sorted(entry.variants, key=lambda pair: -len(pair[0]))

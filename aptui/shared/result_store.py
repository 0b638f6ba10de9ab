"""The interface of stores for shared results, their errors and their statistics. Keys and digests of blobs are SHA-256 in hex.

Tests: `tests/features/sharing/stores/test_remote_stores.py`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Protocol

from msgspec import Struct, field

from aptui.shared import printing
from aptui.shared.errors import HostError

# The classes below count hits, misses, bytes, and the time saved and spent, for each builder.


class SharingSum(Struct):
    """Counts of one builder, or of all builders.

    `unusable` counts results that were found but not used: damaged, not authentic, incomplete, or too slow. `unanswered` counts
    requests that the team's store did not answer, or that were not sent after several failures. `built_ms` is the sum of the
    original run times of restored results. `fetch_ms` is the time spent on finding and fetching results; parallel fetches count
    once.
    """

    local_hits: int = 0
    remote_hits: int = 0
    misses: int = 0
    unusable: int = 0
    built_ms: int = 0
    fetch_ms: int = 0
    fetched_bytes: int = 0
    stored: int = field(default=0, name="kept")
    uploads: int = 0
    uploaded_bytes: int = 0
    not_uploaded: int = 0
    differences: int = 0
    unanswered: int = 0

    @property
    def hits(self) -> int:
        """Number of results that were restored instead of made."""
        return self.local_hits + self.remote_hits

    @property
    def saved_ms(self) -> int:
        """Saved time (milliseconds); negative if fetching the results took longer than their original runs."""
        return self.built_ms - self.fetch_ms

    def since(self, before: SharingSum) -> SharingSum:
        """Return the difference between these counts and the earlier counts `before`."""
        return SharingSum(**{name: getattr(self, name) - getattr(before, name) for name in SharingSum.__struct_fields__})

    def add(self, other: SharingSum) -> None:
        """Add the counts of `other`."""
        for name in SharingSum.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


def sum_of(counts: Mapping[str, int]) -> SharingSum:
    """Return counts that were read from a file; ignore names that this version does not have."""
    names = zip(SharingSum.__struct_fields__, SharingSum.__struct_encode_fields__, strict=True)
    return SharingSum(**{name: int(counts.get(written, 0)) for name, written in names})


class Account:
    """The counts of one run of an engine, by builder; several threads may write to this object."""

    def __init__(self) -> None:
        self._sums: dict[str, SharingSum] = {}
        self._lock = threading.Lock()

    def count(self, builder: str, **counts: int) -> None:
        """Add to the counts of a builder; the keyword arguments have the names of the fields of `SharingSum`."""
        with self._lock:
            self._sums.setdefault(builder, SharingSum()).add(SharingSum(**counts))

    def by_builder(self) -> dict[str, SharingSum]:
        """Return {builder: its current counts}; builders that saved most come first."""
        with self._lock:
            copies = {name: total([one]) for name, one in self._sums.items()}
        return dict(sorted(copies.items(), key=lambda item: (-item[1].saved_ms, item[0])))

    def total(self) -> SharingSum:
        """Return the counts of all builders."""
        with self._lock:
            return total(self._sums.values())

    def line(self) -> str:
        """Return the effect of sharing as one line, "" if no result was requested."""
        return line(self.total())


def total(sums: Iterable[SharingSum]) -> SharingSum:
    """Return the sum of several `SharingSum`."""
    result = SharingSum()
    for one in sums:
        result.add(one)
    return result


def gain_line(one: SharingSum) -> str:
    """Return `96 of 100 results from cache: 41 min saved, 3 min fetching`, "" if no result was requested."""
    asked = one.hits + one.misses
    if not asked:
        return ""
    text = f"{one.hits:,} of {printing.count(asked, 'result')} from cache"
    if one.hits:
        gain = f"{duration(one.saved_ms)} saved" if one.saved_ms >= 0 else f"{duration(-one.saved_ms)} lost"
        text += f": {gain}, {duration(one.fetch_ms)} fetching"
    return text


def line(one: SharingSum) -> str:
    """Return the effect of sharing (`gain_line`), and why results were not used or not sent."""
    text = gain_line(one)
    if not text:
        return ""
    if unanswered := min(one.unanswered, one.misses):
        text += f"; the shared cache did not answer for {unanswered:,}, run 'aptui cache test' to see why"
    if one.unusable:
        text += f"; {one.unusable:,} found, but damaged, incomplete or too slow"
    if one.uploads:
        text += f"; {one.uploads:,} uploaded"
    if one.not_uploaded:
        text += f"; {one.not_uploaded:,} not uploaded"
    return text


def duration(milliseconds: int) -> str:
    """Return a time in a readable unit: `0.4 s`, `12 s`, `41 min`, `3.5 h`."""
    seconds = milliseconds / 1000
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


class StoreError(HostError):
    """A store failed: it is unreachable, slow, full, or sends invalid data."""


class Mismatch(StoreError):
    """Stored bytes do not match their name: another digest, another length, an unknown or unauthentic record."""


class StoreRefused(StoreError):
    """A store refuses a request, and a retry would not help: permission is missing, or the store is read-only."""


class StoreFull(StoreError):
    """A store has no space left."""


class Store(Protocol):
    """A store of records and blobs. Any thread may call its methods; all but `close` raise `StoreError`."""

    address: str
    """Address of the store for display, without secrets."""

    def get_record(self, key: str) -> bytes | None:
        """Return the record at `key`, None if it does not exist. The caller checks the record (`Seal.open_sealed`)."""

    def put_record(self, key: str, data: bytes, *, if_absent: bool = True) -> bool:
        """Publish a record in one step; with `if_absent`, keep an existing record and return False."""

    def get_blob(self, digest: str, target: str, size: int) -> bool:
        """Write the blob to the new file `target`, verified by length and SHA-256; return False if the blob does not exist.

        Raises:
            Mismatch: the blob has other bytes. After any error the file `target` does not exist.
        """

    def has_blobs(self, digests: Iterable[str]) -> set[str]:
        """Return which of these blobs exist, as far as the store can tell without reading them."""

    def put_blob(self, digest: str, source: str, *, replaces: bool = False) -> None:
        """Publish the file `source` under its digest; an existing blob is replaced only if `replaces` is set.

        Raises:
            Mismatch: the file has another digest now; nothing was published.
        """

    def close(self) -> None:
        """Close connections."""

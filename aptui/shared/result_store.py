"""What a place for shared results must offer, and how it fails.

Records lie at keys, blobs at their digest; both names are SHA-256 in hex.

Tests: `tests/features/sharing/stores/test_http_store.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from aptui.shared.errors import HostError


class StoreError(HostError):
    """A store did not do as it was asked: it is away, slow, full, or says what makes no sense."""


class Mismatch(StoreError):
    """A store gave something else than its name says: other bytes, another length, an unknown or unauthentic record."""


class StoreRefused(StoreError):
    """A store said no for a reason that asking again does not change: no permission, or read-only."""


class StoreFull(StoreError):
    """A store has no room left."""


class Store(Protocol):
    """A place for records and blobs. Its methods may be called by several threads; all but `close` raise `StoreError`."""

    address: str
    """Where it is, for people; without secrets."""

    def get_record(self, key: str) -> bytes | None:
        """Return the record at `key` as it was put, None when there is none. Its reader checks it (`record.open_record`)."""
        ...

    def put_record(self, key: str, data: bytes, *, if_absent: bool = True) -> bool:
        """Publish a record whole or not at all; return False when there is one and `if_absent` holds."""
        ...

    def get_blob(self, digest: str, target: str, size: int) -> bool:
        """Write the blob to the new file `target`, verified by length and SHA-256; return False when there is none.

        Raises:
            Mismatch: it is not what it should be; nothing is left at `target`, whatever was raised.
        """
        ...

    def has_blobs(self, digests: Iterable[str]) -> set[str]:
        """Return which of these are there, as far as the store can tell without reading them."""
        ...

    def put_blob(self, digest: str, source: str, *, replaces: bool = False) -> None:
        """Publish the file `source` under its digest, unless it is there already and `replaces` does not hold.

        Raises:
            Mismatch: the file's bytes do not have this digest any more; nothing was published.
        """
        ...

    def close(self) -> None:
        """Let go of connections."""
        ...

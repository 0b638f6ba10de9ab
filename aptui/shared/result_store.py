"""The interface of stores for shared results, and their errors. Keys of records and digests of blobs are SHA-256 in hex.

Tests: `tests/features/sharing/stores/test_http_store.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from aptui.shared.errors import HostError


class StoreError(HostError):
    """A store failed: it is unreachable, slow, full, or sends invalid data."""


class Mismatch(StoreError):
    """Stored bytes do not match their name: another digest, another length, an unknown or unauthentic record."""


class StoreRefused(StoreError):
    """A store refuses for a reason that a retry does not change: no permission, or read-only."""


class StoreFull(StoreError):
    """A store has no space left."""


class Store(Protocol):
    """A store of records and blobs. Any thread may call its methods; all but `close` raise `StoreError`."""

    address: str
    """Its address for display, without secrets."""

    def get_record(self, key: str) -> bytes | None:
        """Return the record at `key`, None = it does not exist. The reader checks it (`record.open_record`)."""
        ...

    def put_record(self, key: str, data: bytes, *, if_absent: bool = True) -> bool:
        """Publish a record completely or not at all; return False if one exists and `if_absent` is set."""
        ...

    def get_blob(self, digest: str, target: str, size: int) -> bool:
        """Write the blob to the new file `target`, verified by length and SHA-256; return False if it does not exist.

        Raises:
            Mismatch: it has other bytes. After any error the file `target` does not exist.
        """
        ...

    def has_blobs(self, digests: Iterable[str]) -> set[str]:
        """Return which of these blobs exist, as far as the store can tell without reading them."""
        ...

    def put_blob(self, digest: str, source: str, *, replaces: bool = False) -> None:
        """Publish the file `source` under its digest, unless the blob exists and `replaces` is not set.

        Raises:
            Mismatch: the file has another digest now; nothing was published.
        """
        ...

    def close(self) -> None:
        """Close connections."""
        ...

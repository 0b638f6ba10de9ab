"""What the cache asks of the database about products; `store.db.archive.products` answers.

Tests: `tests/engine/cache/test_cache.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class ProductIndex(Protocol):
    """What the cache asks of the database about products."""

    def products_in(self, folder: str) -> dict[str, bytes]:
        """Return {product name: SHA-256} of those directly in the cache folder `folder`."""
        ...

    def product_digest(self, name: str) -> bytes | None:
        """Return the recorded SHA-256 of a product, None when it is not recorded."""
        ...

    def cache_folders(self) -> Mapping[str, int]:
        """Return {cache folder: its ctime_ns when it was last recorded}; 0 = not known, -1 = the folder is gone."""
        ...

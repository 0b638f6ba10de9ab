"""Which store an address means.

Tests: `tests/sharing/test_stores.py`.
"""

from __future__ import annotations

import os

from aptui.config.sections.sharing import BUCKETS
from aptui.shared.errors import UserError
from aptui.sharing.records.seal import TRUSTED
from aptui.sharing.store import Store

TOKEN_VARIABLE = "APTUI_CACHE_TOKEN"
"""Environment variable with the token for a server of the shared cache: no configuration file holds secrets."""


def open_store(address: str, namespace: str = TRUSTED, *, limit_s: float = 5.0) -> Store:
    """Return the store at an absolute folder, an `http(s)://` address or a bucket (`s3://…` and its kin).

    Raises:
        UserError: the address means none, or the namespace cannot be one.
    """
    scheme, separator, rest = address.partition("://")
    if scheme in {"http", "https"} and separator:
        from aptui.sharing.stores.http_store import HttpStore

        return HttpStore(address, namespace, token=os.environ.get(TOKEN_VARIABLE, ""), limit_s=limit_s)
    path = rest if scheme == "file" else address
    if path.startswith("/"):
        from aptui.sharing.stores.folder_store import FolderStore

        return FolderStore(path, namespace)
    if scheme in BUCKETS and separator:
        from aptui.sharing.stores.object_store import ObjectStore

        return ObjectStore(address, namespace, limit_s=max(limit_s, 1.0))
    raise UserError(f"'{address}' is no place for a shared cache", hint="an absolute folder, http(s)://…, or s3://…")

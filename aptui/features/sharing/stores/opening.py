"""Which store an address means.

Tests: `tests/features/sharing/test_stores.py`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from aptui.config.sections.sharing import BUCKETS
from aptui.features.sharing.records.seal import TRUSTED
from aptui.features.sharing.store import Mismatch, Store
from aptui.shared.errors import KnownError, UserError

# What goes wrong with a store is said once, not for each of a thousand jobs.

_MOST = 200


class TroubleReporter:
    """Passes on what it has not said before; any thread may speak, and `say` is called by it."""

    def __init__(self, say: Callable[[str], None] | None = None) -> None:
        self._say = say or (lambda _text: None)
        self._reported: set[str] = set()
        self._lock = threading.Lock()

    def report(self, key: str, text: str) -> None:
        """Say `text` unless something was said for `key` before, or very much was said already."""
        with self._lock:
            if key in self._reported or len(self._reported) >= _MOST:
                return
            self._reported.add(key)
        self._say(text)

    def about(self, error: BaseException) -> None:
        """Say what went wrong: each lie of a store, but of other trouble each kind once."""
        where = error.where if isinstance(error, KnownError) else ""
        key = str(error) if isinstance(error, Mismatch) else f"{type(error).__name__} {where}"
        self.report(key, f"shared cache: {error or type(error).__name__}")


TOKEN_VARIABLE = "APTUI_CACHE_TOKEN"
"""Environment variable with the token for a server of the shared cache: no configuration file holds secrets."""


def open_store(address: str, namespace: str = TRUSTED, *, limit_s: float = 5.0) -> Store:
    """Return the store at an absolute folder, an `http(s)://` address or a bucket (`s3://…` and its kin).

    Raises:
        UserError: the address means none, or the namespace cannot be one.
    """
    scheme, separator, rest = address.partition("://")
    if scheme in {"http", "https"} and separator:
        from aptui.features.sharing.stores.http_store import HttpStore

        return HttpStore(address, namespace, token=os.environ.get(TOKEN_VARIABLE, ""), limit_s=limit_s)
    path = rest if scheme == "file" else address
    if path.startswith("/"):
        from aptui.features.sharing.stores.folder_store import FolderStore

        return FolderStore(path, namespace)
    if scheme in BUCKETS and separator:
        from aptui.features.sharing.stores.object_store import ObjectStore

        return ObjectStore(address, namespace, limit_s=max(limit_s, 1.0))
    raise UserError(f"'{address}' is no place for a shared cache", hint="an absolute folder, http(s)://…, or s3://…")

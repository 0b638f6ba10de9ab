"""Shared results in an object store (S3 and compatible, Google, Azure) through obstore, which is imported on first use.

Credentials and the region come from the usual places of the provider's tools.

Tests: `tests/features/sharing/test_stores.py`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Any

from aptui.features.sharing.record import is_name
from aptui.features.sharing.seal import MAX_RECORD_BYTES, TRUSTED
from aptui.features.sharing.stores.folder_store import prefix_of
from aptui.features.sharing.stores.placing import name_errors, read_verified, write_verified
from aptui.shared.errors import UserError, install_advice
from aptui.shared.result_store import Mismatch, StoreError, StoreRefused


class ObjectStore:
    """A bucket, or a folder in it, as a store.

    Args:
        address: `s3://<bucket>[/<path>]` or another scheme.
        namespace: namespace of the results.
        limit_s: timeout of one request.
        options: further arguments of `obstore.store.from_url`: endpoint, region, credentials.
    """

    def __init__(
        self, address: str, namespace: str = TRUSTED, *, limit_s: float = 30.0, options: Mapping[str, Any] | None = None
    ) -> None:
        self.address = address
        self._prefix = prefix_of(namespace)
        try:
            from obstore.exceptions import BaseError
            from obstore.store import from_url
        except ImportError:
            raise UserError("object stores need the package 'obstore'", where=address, hint=install_advice("s3")) from None
        timeout = timedelta(seconds=limit_s)
        shared: dict[str, Any] = dict(options or {})
        if not address.startswith("memory:"):
            shared = {
                "client_options": {"timeout": timeout, "connect_timeout": timeout, **_plain()} | shared.pop("client_options", {}),
                "retry_config": {"max_retries": 1, "retry_timeout": timeout},
            } | shared
        try:
            self._store: Any = from_url(address, **shared)
        except (BaseError, ValueError, TypeError) as error:
            raise UserError(f"the object store cannot be used: {_first_line(error)}", where=address) from None

    def get_record(self, key: str) -> bytes | None:
        """Return the record at `key`, None = it does not exist."""
        with self._name_errors():
            try:
                answer = self._store.get(self._name("ac", key))
            except FileNotFoundError:
                return None
            if answer.meta["size"] > MAX_RECORD_BYTES:
                raise Mismatch("the record is too long", where=self.address)
            return bytes(answer.bytes())

    def put_record(self, key: str, data: bytes, *, if_absent: bool = True) -> bool:
        """Publish a record; the store ensures that the first writer wins."""
        from obstore.exceptions import AlreadyExistsError

        with self._name_errors():
            try:
                self._store.put(self._name("ac", key), data, mode="create" if if_absent else "overwrite", use_multipart=False)
            except AlreadyExistsError:
                return False
            return True

    def get_blob(self, digest: str, target: str, size: int) -> bool:
        """Fetch a blob into `target`, verified."""
        with self._name_errors():
            try:
                answer = self._store.get(self._name("cas", digest))
            except FileNotFoundError:
                return False
            with name_errors(target):
                write_verified((bytes(chunk) for chunk in answer.stream()), target, digest, size)
            return True

    def has_blobs(self, digests: Iterable[str]) -> set[str]:
        """Return which of these blobs exist."""
        return {digest for digest in digests if self._has(digest)}

    def put_blob(self, digest: str, source: str, *, replaces: bool = False) -> None:
        """Send a file, verified while it is read; an incomplete upload publishes nothing."""
        if not replaces and self._has(digest):
            return
        with self._name_errors():
            self._store.put(self._name("cas", digest), read_verified(source, digest))

    def close(self) -> None:
        """Do nothing: obstore releases its resources."""

    def _has(self, digest: str) -> bool:
        with self._name_errors():
            try:
                self._store.head(self._name("cas", digest))
            except FileNotFoundError:
                return False
            return True

    def _name(self, kind: str, name: str) -> str:
        if not is_name(name):
            raise Mismatch(f"'{name[:80]}' names nothing in a store")
        return f"{self._prefix}{kind}/{name}"

    @contextlib.contextmanager
    def _name_errors(self) -> Iterator[None]:
        """Convert obstore's errors to those of a store."""
        from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError

        try:
            yield
        except (PermissionDeniedError, UnauthenticatedError) as error:
            raise StoreRefused(_first_line(error), where=self.address) from None
        except (BaseError, OSError, ValueError) as error:
            raise StoreError(f"the object store answers: {_first_line(error)}", where=self.address) from None


def _plain() -> dict[str, bool]:
    """Allow HTTP without TLS if the environment does, as obstore itself would without client options."""
    return {"allow_http": True} if os.environ.get("AWS_ALLOW_HTTP", "").lower() in {"1", "true"} else {}


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:300]

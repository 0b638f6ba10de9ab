"""Shared results in a folder of this machine or on a network share.

A file is written to a temporary file, synced, and then published in one step.

    <root>/[ns/<namespace>/]ac/<2 hex>/<key>       records
    <root>/[ns/<namespace>/]cas/<2 hex>/<digest>   blobs
    <root>/tmp/                                    files that are being written

A writer that is killed leaves a file in `tmp`; `sweep` removes it later.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import stat
from collections.abc import Iterable, Iterator

from aptui.features.sharing.record import MAX_RECORD_BYTES, TRUSTED, validate_name
from aptui.features.sharing.stores.placing import CHUNK_BYTES, name_errors, read_verified, write_verified
from aptui.shared.errors import UserError
from aptui.shared.result_store import StoreError

ABANDONED_AFTER_S = 24 * 3600
"""Age in seconds after which a temporary file counts as abandoned."""
_NAMESPACE = re.compile("[a-z0-9][a-z0-9._-]{0,63}")


def prefix_of(namespace: str) -> str:
    """Return the path of a namespace below a store's root: "" for the trusted namespace, otherwise a path with a slash at its end.

    Raises:
        UserError: the name is invalid.
    """
    if not _NAMESPACE.fullmatch(namespace):
        raise UserError(
            f"'{namespace}' cannot be the name of a namespace", hint="use lower-case letters, digits, '.', '_' and '-', at most 64"
        )
    return "" if namespace == TRUSTED else f"ns/{namespace}/"


class FolderStore:
    """A folder as a store.

    Args:
        root: the folder; it must exist, because an empty mount point is not a store.
    """

    def __init__(self, root: str, namespace: str = TRUSTED, *, syncs: bool = True) -> None:
        self.address = root
        self._tmp = os.path.join(root, "tmp")
        self._top = f"{root.rstrip('/')}/{prefix_of(namespace)}"
        self._syncs = syncs

    def record_path(self, key: str) -> str:
        """Return the path of the record at `key`."""
        return self._path("ac", key)

    def blob_path(self, digest: str) -> str:
        """Return the path of the blob with this digest."""
        return self._path("cas", digest)

    def get_record(self, key: str) -> bytes | None:
        """Return a record's bytes, or None if the record does not exist."""
        with name_errors(self.address):
            try:
                with open(self.record_path(key), "rb", buffering=0) as file:
                    return file.read(MAX_RECORD_BYTES + 1)
            except FileNotFoundError:
                self._expect_root()
                return None

    def put_record(self, key: str, data: bytes, *, if_absent: bool = True) -> bool:
        """Publish a record; with `if_absent`, an existing record is kept, so that the first of several writers wins."""
        path = self.record_path(key)
        with name_errors(self.address):
            if if_absent and os.path.exists(path):
                return False
            with self._write_temporary([data]) as written:
                return self._publish(written, path, if_absent=if_absent)

    def get_blob(self, digest: str, target: str, size: int) -> bool:
        """Copy a blob to `target`, verified."""
        with name_errors(self.address):
            try:
                with open(self.blob_path(digest), "rb", buffering=0) as file:
                    write_verified(iter(lambda: file.read(CHUNK_BYTES), b""), target, digest, size)
            except FileNotFoundError:
                self._expect_root()
                return False
            return True

    def has_blobs(self, digests: Iterable[str]) -> set[str]:
        """Return which of these blobs have a file."""
        with name_errors(self.address):
            return {digest for digest in digests if os.path.isfile(self.blob_path(digest))}

    def put_blob(self, digest: str, source: str, *, replaces: bool = False) -> None:
        """Publish a file under its digest, verified while it is copied."""
        path = self.blob_path(digest)
        with name_errors(self.address):
            if not replaces and os.path.exists(path):
                return
            with self._write_temporary(read_verified(source, digest)) as written:
                self._publish(written, path, if_absent=False)

    def close(self) -> None:
        """Do nothing, because this store holds no resources."""

    @contextlib.contextmanager
    def _write_temporary(self, chunks: Iterable[bytes]) -> Iterator[str]:
        """Write a temporary file that exists during the `with` block."""
        path = self.temporary()
        try:
            with open(path, "xb", buffering=CHUNK_BYTES) as file:
                file.writelines(chunks)
                file.flush()
                if self._syncs:
                    os.fsync(file.fileno())
            yield path
        finally:
            with contextlib.suppress(OSError):
                os.unlink(path)

    def temporary(self) -> str:
        """Return a unique file name in the folder for temporary files."""
        self._expect_root()
        self._make_folder(self._tmp)
        return os.path.join(self._tmp, f"{os.getpid()}-{secrets.token_hex(8)}")

    def _make_folder(self, folder: str) -> None:
        """Make a folder of the store, and its missing parents; users who may write to the store may write to the new folders."""
        if os.path.isdir(folder):
            return
        self._make_folder(os.path.dirname(folder))
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, 0o755)  # not 0o777: with umask 0, all users could write to the folder
            if shared := self._read_shared_mode():
                os.chmod(folder, shared)

    def _read_shared_mode(self) -> int:
        """Return the permissions of the store's folder if other users may write to it, else 0."""
        mode = stat.S_IMODE(os.stat(self.address).st_mode)
        return mode if mode & (stat.S_IWGRP | stat.S_IWOTH) else 0

    def _publish(self, written: str, path: str, *, if_absent: bool) -> bool:
        self._make_folder(os.path.dirname(path))
        if shared := self._read_shared_mode():
            os.chmod(written, stat.S_IMODE(os.stat(written).st_mode) | (shared & 0o444))
        if if_absent:
            try:
                os.link(written, path)
            except FileExistsError:
                return False
            except OSError:
                # The file system probably does not support hard links. Another writer may create `path` before the rename.
                if os.path.exists(path):
                    return False
                os.rename(written, path)
        else:
            os.rename(written, path)
        if self._syncs:
            _sync_folder(os.path.dirname(path))
        return True

    def _path(self, kind: str, name: str) -> str:
        return f"{self._top}{kind}/{name[:2]}/{validate_name(name)}"

    def _expect_root(self) -> None:
        if not os.path.isdir(self.address):
            raise StoreError(
                "the folder of the shared cache does not exist",
                where=self.address,
                hint="mount the network folder, or correct 'shared_cache.store'",
            )


def sweep(root: str, now: float) -> int:
    """Remove abandoned files from `tmp`; return their number."""
    removed = 0
    with contextlib.suppress(OSError), os.scandir(os.path.join(root, "tmp")) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                if now - entry.stat(follow_symlinks=False).st_mtime > ABANDONED_AFTER_S:
                    os.unlink(entry.path)
                    removed += 1
    return removed


def _sync_folder(path: str) -> None:
    with contextlib.suppress(OSError):  # syncing a folder fails on some network file systems
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

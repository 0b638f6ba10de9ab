"""Messages between the engine and a cluster's workers: msgpack records that name files by digest. Other modules send them.

A worker answers with a manifest of at most `MANIFEST_BYTES`, because every answer passes through the scheduler. If the answer is
longer (a long log, thousands of products), it is stored as a blob, and the manifest contains only the blob's digest.

Tests: `tests/features/cluster/test_cluster_pool.py`.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from typing import TypeVar

import msgspec
from msgspec import Struct

from aptui import feature
from aptui.core.orders import ProcessOrder, RunResult
from aptui.core.project import Builder, Platform
from aptui.shared.errors import HostError
from aptui.shared.forms import prepare_form
from aptui.shared.result_store import Store

STORE_VARIABLE = "APTUI_WORKER_STORE"
"""Environment variable with the address of the store for a worker; by default the worker uses the engine's address."""
ADVICE = "the job runs on this machine instead; run 'aptui doctor' to compare the versions"
MANIFEST_BYTES = 2048
STORE_LIMIT_S = 15.0
"""Timeout (seconds) of a request to the store, in addition to the time to transfer the bytes.

The timeout is long, because a failed request would waste a completed job.
"""
_INLINE, _BLOB = b"i", b"b"
"""First byte of a manifest: `_INLINE` if the record follows, `_BLOB` if the digest and size of the blob with the record follow."""
_MOST_BYTES = 64 << 20
"""Maximum length of a blob with a record; enough for a run with 200,000 products."""

Blob = tuple[bytes, int]
"""(SHA-256, size) of a blob in the store."""
T = TypeVar("T")


class CodeFile(Struct, frozen=True):
    """A file of a project's `builders/` folder: its relative path and its bytes."""

    rel: str
    blob: Blob


class ClusterSetup(Struct, frozen=True):
    """The setup of a worker, the same for all jobs of a configuration; it is a blob in the store.

    `tools` are pairs (builder, program that the builder's command names).
    """

    version: str
    python: str
    builders: tuple[Builder, ...]
    platforms: tuple[Platform, ...]
    code: tuple[CodeFile, ...] = ()
    tools: tuple[tuple[str, str], ...] = ()


class BlobStoreAddress(Struct, frozen=True):
    """Address and namespace of the store for files."""

    address: str
    namespace: str


class TaskInput(Struct, frozen=True):
    """An input file of a job; `folder` is the index of its scan folder in `Task.folders`."""

    folder: int
    rel: str
    digest: bytes
    size: int
    mtime_ns: int


class Task(Struct, frozen=True):
    """One run of one job. `folders` are the engine's scan folders (absolute, text form); the first of `inputs` is the source.

    `name` is the task's key in Dask; the worker announces the answer on `topic`.
    """

    order: ProcessOrder
    setup: Blob
    blob_store: BlobStoreAddress
    folders: tuple[str, ...]
    inputs: tuple[TaskInput, ...]
    name: str
    topic: str = ""


class TaskAnswer(Struct, frozen=True):
    """The result of a task on the worker at `address`. If `result` is None, `refusal` is the reason why the task did not run."""

    result: RunResult | None = None
    refusal: str = ""
    address: str = ""


class Greeting(Struct, frozen=True):
    """The request to a worker for a `WorkerReport`."""

    setup: Blob
    blob_store: BlobStoreAddress


class WorkerReport(Struct, frozen=True):
    """Description of a worker: `toolchains` are (builder, ((name, version or digest), …)).

    `trouble` is why the worker cannot run jobs.
    """

    version: str
    python: str
    host: str
    pid: int
    toolchains: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = ()
    trouble: str = ""


def encode(record: object) -> bytes:
    """Return a record in msgpack form."""
    return msgspec.msgpack.encode(record)


def decode(data: bytes, form: type[T]) -> T:
    """Return the record in `data`.

    Raises:
        HostError: the data does not have this form.
    """
    try:
        return msgspec.msgpack.decode(data, type=prepare_form(form))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise HostError(f"a message of the cluster cannot be read: {error}", hint=ADVICE) from None


# ------------------------------------------------------------------------------------------------------------------- store


def open_store(blob_store: BlobStoreAddress) -> Store:
    """Return the store at an address; its token or credentials come from this process's environment.

    Raises:
        UserError: the address is invalid, or no feature opens stores.
    """
    store: Store = feature.load_needed("store")(blob_store.address, blob_store.namespace, limit_s=STORE_LIMIT_S)
    return store


def put_bytes(store: Store, data: bytes) -> Blob:
    """Store bytes as a blob."""
    digest = hashlib.sha256(data)
    with tempfile.NamedTemporaryFile(prefix="aptui-") as file:
        file.write(data)
        file.flush()
        store.put_blob(digest.hexdigest(), file.name)
    return digest.digest(), len(data)


def get_bytes(store: Store, blob: Blob) -> bytes:
    """Return the bytes of a blob.

    Raises:
        HostError: the blob is missing or too long.
    """
    digest, size = blob
    if size > _MOST_BYTES:
        raise HostError(f"a blob of {size} bytes is longer than the maximum", where=store.address)
    with tempfile.TemporaryDirectory(prefix="aptui-") as folder:
        path = os.path.join(folder, "blob")
        if not store.get_blob(digest.hex(), path, size):
            raise HostError(f"blob {digest.hex()} is not in the store", where=store.address)
        with open(path, "rb") as file:
            return file.read()


def pack_record(record: object, store: Store) -> bytes:
    """Return a manifest of at most `MANIFEST_BYTES` for a record."""
    data = encode(record)
    if len(data) < MANIFEST_BYTES:
        return _INLINE + data
    return _BLOB + encode(put_bytes(store, data))


def is_whole(manifest: bytes) -> bool:
    """Whether the bytes of the record are in the manifest itself, not in the store."""
    return manifest[:1] == _INLINE


def unpack_record(manifest: bytes, form: type[T], store: Store) -> T:
    """Return the record of a manifest.

    Raises:
        HostError: the manifest is invalid, or its blob is missing.
    """
    kind, data = manifest[:1], manifest[1:]
    if kind == _BLOB:
        data = get_bytes(store, decode(data, tuple[bytes, int]))
    elif kind != _INLINE:
        raise HostError("a message of the cluster is not a manifest", hint=ADVICE)
    return decode(data, form)

"""Uploads the inputs of a job to the store of a cluster, downloads its products, and decides whether its result can be used.

A job may run remotely only if the digest of every input is known. The result lists the files that the job searched for and did not
find. If such a file exists on this machine, the job did not have all its inputs, and runs again on this machine.

Tests: `tests/features/cluster/test_cluster_pool.py`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from aptui.core.fingerprint import MISSING, file_digest
from aptui.core.model import FileFact, PathKey
from aptui.core.orders import Outcome, ProcessOrder, RunResult, StagedProduct
from aptui.core.paths import as_text, os_path
from aptui.core.pipeline.pipeline import Pipeline
from aptui.core.project import Builder, BuilderKind, UndeclaredReads
from aptui.features.cluster.cluster_messages import (
    Blob,
    BlobStoreAddress,
    ClusterSetup,
    CodeFile,
    TaskInput,
    encode,
    open_store,
    put_bytes,
)
from aptui.shared.errors import HostError
from aptui.shared.result_store import Mismatch, Store
from aptui.worker import file_access

_FILES = frozenset({"dependency", "companion", "discovered"})
"""Kinds of a job's inputs that are files."""
_OTHER_JOBS = frozenset({"job", "products", "ring"})
"""Kinds of inputs that refer to other jobs. The cluster does not get a job with an input of these kinds."""
_KNOWN_BLOBS = 100_000
"""Maximum number of remembered digests of stored files. A file with a remembered digest is not uploaded to the store again."""
_TIME_LIMIT = "time limit of "
"""Beginning of the error of a run that exceeded its time limit.

Such a job does not run again on this machine, where it would exceed the limit, too.
"""


class InputElsewhere(Exception):
    """The cluster's answer cannot be used, so the job must run on this machine. The text of the exception is the reason."""


class InputOutdated(Exception):
    """An input file has changed since the engine read it, so the job must be planned again."""


def inputs_of(pipeline: Pipeline, folders: Mapping[int, int], order: ProcessOrder) -> tuple[TaskInput, ...] | None:
    """Return the input files of a job, its source first; None = some input files are unknown, so the job must run locally.

    Args:
        folders: {id of a scan folder: its index in a task}.
    """
    job = pipeline.jobs.running.get(order.run_key)
    if job is None or job.source.fact is None or not job.source.fact.digest:
        return None
    if any(kind in _OTHER_JOBS for kind, _name, _digest in job.planned_inputs):
        return None  # the job may read products of other jobs, and workers do not have these products
    found = {job.source.key: job.source.fact}
    for kind, name, digest in job.planned_inputs:
        if kind not in _FILES or digest == MISSING or name in found:
            continue
        fact = _fact(pipeline, name, digest)
        if fact is None:
            return None
        found[PathKey(name)] = fact
    return tuple(TaskInput(folders[fact.scan_folder], fact.rel, fact.digest, fact.size, fact.mtime_ns) for fact in found.values())


def _fact(pipeline: Pipeline, name: str, digest: str) -> FileFact | None:
    if name.startswith("/"):
        return None
    fact = pipeline.jobs.memory.file(PathKey(name))
    return fact if isinstance(fact, FileFact) and file_digest(fact.digest) == digest else None


def can_travel(order: ProcessOrder, folders: Iterable[str]) -> bool:
    """Whether an order can be sent to another machine.

    The order must not keep files for debugging, and its parameters and settings must not contain a path of `folders`.
    """
    given_values = (order.params, order.settings)
    return (
        not order.keeps_temp and not order.debug_output and not any(folder in text for folder in folders for text in given_values)
    )


def is_movable(builder: Builder, tools: Sequence[str]) -> bool:
    """Whether a builder can run on another machine.

    This requires that the builder's code and tools can be sent to that machine, or are installed there.
    """
    if builder.adapter or builder.steps or builder.kind is BuilderKind.COPY:
        return False
    return not any("/" in tool for tool in tools)


# ----------------------------------------------------------------------------------------------------------------- setup


def setup_of(setup: ClusterSetup, blob_store: Store) -> tuple[ClusterSetup, Blob]:
    """Store a setup with the code of the project's own builders; return the digest and size of the stored blob."""
    folders = sorted({os.path.dirname(path) for builder in setup.builders if (path := _own_code(builder))})
    code = tuple(_send_code(path, folder, blob_store) for folder in folders for path in sorted(Path(folder).rglob("*.py")))
    whole = replace(setup, code=code)
    return whole, put_bytes(blob_store, encode(whole))


def _own_code(builder: Builder) -> str:
    return builder.origin.removeprefix("file:").rpartition(":")[0] if builder.origin.startswith("file:") else ""


def _send_code(path: Path, folder: str, blob_store: Store) -> CodeFile:
    return CodeFile(as_text(str(path.relative_to(folder))), put_bytes(blob_store, path.read_bytes()))


# ---------------------------------------------------------------------------------------------------- transfers of files


class InputTransfer:
    """Transfers files to and from the store; any thread may call.

    Args:
        folders: the scan folders, absolute, in the order of a task.
    """

    def __init__(self, blob_store: BlobStoreAddress, folders: Sequence[str]) -> None:
        self._folders = folders
        self.store = open_store(blob_store)
        self._lock = threading.Lock()
        self._known: dict[bytes, None] = {}

    def upload(self, inputs: Sequence[TaskInput]) -> None:
        """Upload files that the store does not have.

        Raises:
            InputOutdated: a file has changed since it was read. HostError: the store fails.
        """
        with self._lock:
            unknown = {item.digest: item for item in inputs if item.digest not in self._known}
        present = self.store.has_blobs(item.digest.hex() for item in unknown.values()) if unknown else set()
        for digest, item in unknown.items():
            if digest.hex() not in present:
                self._upload_one(item)
            with self._lock:
                if len(self._known) >= _KNOWN_BLOBS:
                    del self._known[next(iter(self._known))]
                self._known[digest] = None

    def _upload_one(self, item: TaskInput) -> None:
        path = os_path(f"{self._folders[item.folder]}/{item.rel}")
        try:
            self.store.put_blob(item.digest.hex(), path)
        except (Mismatch, FileNotFoundError, IsADirectoryError) as error:
            raise InputOutdated(str(error)) from error

    def forget(self, inputs: Sequence[TaskInput]) -> None:
        """Forget that the store has these files, so that they are checked again: the store may have been cleared."""
        with self._lock:
            for item in inputs:
                self._known.pop(item.digest, None)

    def download(self, order: ProcessOrder, builder: Builder, result: RunResult) -> RunResult:
        """Download the products of a run into its staging folder; return the result in the form of a local worker's result.

        Raises:
            InputElsewhere: the answer cannot be used. HostError: a product is missing.
        """
        if result.outcome == Outcome.CANCELLED or (result.outcome == Outcome.FAILED and result.error.startswith(_TIME_LIMIT)):
            return replace(result, reads=())
        if result.outcome != Outcome.SUCCEEDED:
            raise InputElsewhere(result.error or "the job failed on the cluster")
        missing = (
            *(read.path for read in result.reads if not read.digest),
            *(path for path, digest in result.probed if not digest),
        )
        absent = next((path for path in missing if os.path.lexists(os_path(path))), "")
        if absent:
            raise InputElsewhere(f"the job reads '{absent}' without declaring it")
        if file_access.stat_key(os.stat(os_path(f"{order.root}/{order.rel}"))) != tuple(order.expected):
            return RunResult(order.run_key, Outcome.STALE, "the source changed while the job ran")
        staged = tuple(self._fetch(order, product, index) for index, product in enumerate(result.products))
        return replace(_as_here(result, builder), run_key=order.run_key, products=staged)

    def _fetch(self, order: ProcessOrder, product: StagedProduct, index: int) -> StagedProduct:
        folder = f"{os_path(order.staging)}/products"
        os.makedirs(folder, exist_ok=True)
        path = f"{folder}/{index}"
        if not self.store.get_blob(product.digest.hex(), path, product.size):
            raise HostError(f"product '{product.name}' is missing in the store", where=self.store.address)
        if product.is_executable:
            mode = os.stat(path).st_mode
            os.chmod(path, mode | (mode & 0o444) >> 2)  # give execute permission to every user with read permission
        return replace(product, staged=as_text(path))

    def close(self) -> None:
        """Close the store."""
        self.store.close()


def _as_here(result: RunResult, builder: Builder) -> RunResult:
    """Return a remote result in the form of a local worker's result.

    Remote workers report all reads with their digests. Reads and digests that a local worker would not report are removed.
    """
    if builder.undeclared_reads is UndeclaredReads.ADD:
        return result
    reads = (read if read.is_hidden else replace(read, digest="") for read in result.reads if read.digest or read.is_hidden)
    return replace(result, reads=tuple(reads))


InputsOf = Callable[[ProcessOrder], tuple[TaskInput, ...] | None]
"""A function that returns the input files of an order's job, or None if some are unknown (`inputs_of`)."""

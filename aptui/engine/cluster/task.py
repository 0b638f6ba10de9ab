"""Tasks on a cluster's workers: fetch a job's files by digest, have our own workers do it, put its products into the store.

Dask brings `run` a task and takes its answer back; it is not asked for anything else. Loaded by `aptui worker`, or into
Dask's own workers by `--preload aptui.engine.cluster.task`. Nothing here decides what counts: an answer is of the run that
its order names, and the engine takes it or leaves it.

The scan folders of the engine do not exist here. A job finds those files that it is made of in folders laid out for it;
every path in what it answers is translated back. What it looked for and did not find is told, for on the engine's machine
it may be there.
"""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

from msgspec import Struct
from msgspec.structs import replace

from aptui.core.notices import LogRecord
from aptui.core.orders import Outcome, ProcessOrder, RunResult, StagedProduct
from aptui.core.paths import to_text
from aptui.core.results.run_report import Used
from aptui.engine.cluster import messages
from aptui.engine.cluster.environment import program_version, python_version
from aptui.shared.errors import KnownError
from aptui.worker.files import os_path, stat_key

if TYPE_CHECKING:
    from distributed import Worker

    from aptui.engine.cluster.bench import Bench
    from aptui.sharing.store import Store

STORE_VARIABLE = "APTUI_WORKER_STORE"
"""Where this machine reaches the store, if that is not where the engine does."""
_MOST_BENCHES = 2
_MOST_UNWANTED = 1000


class _WorkerState:
    """This process as a place where jobs are done."""

    def __init__(self) -> None:
        self.folder = ""
        self.worker: Worker | None = None
        self.slots = os.cpu_count() or 1
        self._lock = threading.Lock()
        self._benches: dict[messages.Blob, Bench] = {}
        self._stores: dict[messages.BlobStoreAddress, Store] = {}
        self.jobs: dict[str, _Job] = {}
        self.unwanted: dict[str, None] = {}
        """Names of tasks that were cancelled before they began here, if they were to begin here at all."""

    @property
    def address(self) -> str:
        """The address that Dask has for this process, "" outside of Dask."""
        return str(self.worker.address) if self.worker is not None else ""

    def store(self, blob_store: messages.BlobStoreAddress) -> Store:
        with self._lock:
            if blob_store not in self._stores:
                place = os.environ.get(STORE_VARIABLE, "")
                self._stores[blob_store] = messages.open_store(replace(blob_store, address=place) if place else blob_store)
            return self._stores[blob_store]

    def bench(self, setup: messages.Blob, store: Store) -> Bench:
        """Return the workers that know this configuration; those of older ones are ended when they are too many."""
        from aptui.engine.cluster.bench import Bench

        with self._lock:
            if setup not in self._benches:
                setup_message = messages.decode(messages.get_bytes(store, setup), messages.ClusterSetup)
                self.folder = self.folder or tempfile.mkdtemp(prefix="aptui-cluster-")
                folder = tempfile.mkdtemp(prefix="bench-", dir=self.folder)
                self._benches[setup] = Bench(setup_message, folder, self.slots, store)
            found = self._benches[setup] = self._benches.pop(setup)
            outdated = [self._benches.pop(key) for key in list(self._benches)[:-_MOST_BENCHES]]
        for bench in outdated:
            bench.close()
        return found

    def close(self) -> None:
        with self._lock:
            benches, stores = list(self._benches.values()), list(self._stores.values())
            self._benches.clear()
            self._stores.clear()
        for bench in benches:
            bench.close()
        for store in stores:
            store.close()
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder = ""


_state = _WorkerState()


# ------------------------------------------------------------------------------------------------------ what Dask calls


def dask_setup(worker: Worker) -> None:
    """Take note of the worker that this process is (Dask's preload)."""
    _state.worker, _state.slots = worker, worker.state.nthreads
    _state.folder = tempfile.mkdtemp(prefix="aptui-cluster-", dir=worker.local_directory)


def dask_teardown(_worker: Worker) -> None:
    """End our workers with it (Dask's preload)."""
    _state.close()


def check(data: bytes) -> bytes:
    """Answer a `Greeting` with a `Report`."""
    greeting = messages.decode(data, messages.Greeting)
    toolchains: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = ()
    trouble = ""
    try:
        bench = _state.bench(greeting.setup, _state.store(greeting.blob_store))
        toolchains = tuple(sorted(bench.toolchains().items()))
    except (KnownError, OSError) as error:
        trouble = str(error)
    return messages.encode(
        messages.WorkerReport(program_version(), python_version(), socket.gethostname(), os.getpid(), toolchains, trouble)
    )


def run(data: bytes) -> bytes:
    """Do a `Task`; return the manifest of an `Answer`.

    It was announced as well, which Dask delivers sooner than return values.
    """
    task = messages.decode(data, messages.Task)
    manifest = _manifest(task)
    if _state.worker is not None:
        _state.worker.log_event(task.topic, [task.name, manifest])
    return manifest


def _manifest(task: messages.Task) -> bytes:
    try:
        store = _state.store(task.blob_store)
        bench = _state.bench(task.setup, store)
        with _Job(task, bench, store) as job:
            return messages.pack_record(messages.TaskAnswer(job.do(), address=_state.address), store)
    except (KnownError, OSError) as error:
        return b"i" + messages.encode(messages.TaskAnswer(refusal=f"{socket.gethostname()}: {error}"))


def cancel(names: Sequence[str]) -> None:
    """Stop the tasks of these names: those that run here, and those that may yet come."""
    for name in names:
        job = _state.jobs.get(name)
        if job is not None:
            job.cancel()
            continue
        while len(_state.unwanted) >= _MOST_UNWANTED:
            _state.unwanted.pop(next(iter(_state.unwanted)), None)
        _state.unwanted[name] = None


# ---------------------------------------------------------------------------------------------------------------- a job


class _Translator(Struct):
    """Paths of here into paths of the engine's machine."""

    pairs: tuple[tuple[str, str], ...]

    def text(self, text: str) -> str:
        for here, there in self.pairs:
            if here in text:
                text = text.replace(here, there)
        return text

    def path(self, path: str) -> str:
        for here, there in self.pairs:
            if path == here or path.startswith(here + "/"):
                return there + path[len(here) :]
        return path

    def record(self, record: LogRecord) -> LogRecord:
        context = tuple((key, self.text(value)) for key, value in record.context)
        return replace(record, text=self.text(record.text), context=context)


class _Job:
    """A task in a folder of its own."""

    def __init__(self, task: messages.Task, bench: Bench, store: Store) -> None:
        self._task, self._bench, self._store = task, bench, store
        self._folder = ""
        self._key = 0
        self._is_cancelled = False

    def __enter__(self) -> Self:
        self._folder = tempfile.mkdtemp(prefix="job-", dir=self._bench.jobs)
        _state.jobs[self._task.name] = self
        if self._task.name in _state.unwanted:
            self._is_cancelled = True
        return self

    def __exit__(self, *_ending: object) -> None:
        _state.jobs.pop(self._task.name, None)
        shutil.rmtree(self._folder, ignore_errors=True)

    def do(self) -> RunResult:
        """Fetch, run, give away what was made; return the result in the engine's terms."""
        for item in self._task.inputs:
            if not self._is_cancelled:
                self._fetch(item)
        if self._is_cancelled:
            return RunResult(self._task.order.run_key, Outcome.CANCELLED, "cancelled")
        result = self._bench.run(self._order(), self._note_key)
        if result.outcome == Outcome.SUCCEEDED:
            for product in result.products:
                self._store.put_blob(product.digest.hex(), os_path(product.staged))
        return self._translate(result)

    def cancel(self) -> None:
        """Stop it, whatever it is at; called by another thread."""
        self._is_cancelled = True
        if self._key:
            self._bench.cancel(self._key)

    def _note_key(self, key: int) -> None:
        self._key = key
        if self._is_cancelled:  # whoever asked for it may not have seen the key
            self._bench.cancel(key)

    def _fetch(self, item: messages.TaskInput) -> None:
        path = self._path(item)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if not self._store.get_blob(item.digest.hex(), path, item.size):
            raise FileNotFoundError(2, f"the bytes of '{item.rel}' are not in the store")
        os.utime(path, ns=(item.mtime_ns, item.mtime_ns))

    def _root(self, index: int) -> str:
        return f"{self._folder}/in/{index:05}"

    def _path(self, item: messages.TaskInput) -> str:
        root = self._root(item.folder)
        path = os.path.normpath(f"{root}/{os_path(item.rel)}")
        if not path.startswith(root + "/"):
            raise FileNotFoundError(2, f"'{item.rel}' is outside its scan folder")
        return path

    def _order(self) -> ProcessOrder:
        source = self._task.inputs[0]
        return replace(
            self._task.order,
            root=to_text(os.fsencode(self._root(source.folder))),
            expected=stat_key(os.stat(self._path(source))),
            staging=to_text(os.fsencode(f"{self._folder}/out")),
        )

    def _translate(self, result: RunResult) -> RunResult:
        order = self._task.order
        here = [to_text(os.fsencode(self._root(index))) for index in range(len(self._task.folders))]
        pairs = [*zip(here, self._task.folders, strict=True), (to_text(os.fsencode(f"{self._folder}/out")), order.staging)]
        into = _Translator(tuple(pairs))
        lower = _Translator(tuple((one.lower(), other.lower()) for one, other in pairs))
        return replace(
            result,
            error=into.text(result.error),
            products=tuple(_as_sent(product, into, lower) for product in result.products),
            discovered=tuple((into.path(path), digest) for path, digest in result.discovered),
            used=Used(result.used.code),  # files came here by their digests
            log=tuple(into.record(record) for record in result.log),
            command_line=into.text(result.command_line),
            reprocess=tuple(into.path(path) for path in result.reprocess),
            reads=tuple(replace(read, path=into.path(read.path)) for read in result.reads),
            probed=tuple((into.path(path), digest) for path, digest in result.probed),
        )


def _as_sent(product: StagedProduct, into: _Translator, lower: _Translator) -> StagedProduct:
    links = tuple(replace(link, path=lower.path(into.path(link.path))) for link in product.links)
    return replace(product, staged="", links=links)

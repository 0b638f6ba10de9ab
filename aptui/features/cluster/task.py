"""Runs tasks on a cluster's worker: fetches a job's files by digest, runs the job in aptui's worker processes, stores its products.

Dask only calls `run` with a task and transports its answer. `aptui worker` loads this module, and Dask's own workers load it by
`--preload aptui.features.cluster.task`. An answer names its run, so that the engine can decide whether the answer is still valid.

The engine's scan folders do not exist on the worker. A job finds its input files in temporary folders, and every path in the answer
is translated back. The answer lists missing files, because these files may exist on the engine's machine.
"""

from __future__ import annotations

import itertools
import os
import selectors
import shutil
import socket
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Self

from msgspec import Struct
from msgspec.structs import replace

from aptui.core.notices import LogRecord
from aptui.core.orders import Outcome, ProcessOrder, RunResult, StagedProduct
from aptui.core.paths import as_text, os_path
from aptui.core.project import Builder, UndeclaredReads
from aptui.core.run_report import Used
from aptui.engine.pool.pool import Pool
from aptui.engine.pool.worker_messages import Result
from aptui.engine.pool.worker_processes import PoolSettings
from aptui.engine.waking import Waker
from aptui.features.cluster import cluster_messages
from aptui.features.cluster.cluster_messages import ClusterSetup
from aptui.features.cluster.environment import Toolchain, program_version, python_version, toolchains_of
from aptui.shared.errors import HostError, KnownError
from aptui.shared.result_store import Store
from aptui.worker.file_access import stat_key

if TYPE_CHECKING:
    from distributed import Worker

_MOST_BENCHES = 2
"""Maximum number of cluster setups (`ClusterSetup`) for which this process keeps worker processes."""
_MOST_CANCELLED = 1000
"""Maximum number of remembered names of cancelled tasks."""


class _WorkerState:
    """State of the process that runs tasks: its Dask worker, its stores, its worker processes and its jobs."""

    def __init__(self) -> None:
        self.folder = ""
        self.worker: Worker | None = None
        self.slots = os.cpu_count() or 1
        self._lock = threading.Lock()
        self._benches: dict[cluster_messages.Blob, Bench] = {}
        self._stores: dict[cluster_messages.BlobStoreAddress, Store] = {}
        self.jobs: dict[str, _Job] = {}
        self.cancelled_names: dict[str, None] = {}
        """Names of cancelled tasks that do not run in this process. A task may start here later, or may run on another worker."""

    @property
    def address(self) -> str:
        """Dask's address of this process, "" outside of Dask."""
        return str(self.worker.address) if self.worker is not None else ""

    def store(self, blob_store: cluster_messages.BlobStoreAddress) -> Store:
        with self._lock:
            if blob_store not in self._stores:
                place = os.environ.get(cluster_messages.STORE_VARIABLE, "")
                self._stores[blob_store] = cluster_messages.open_store(replace(blob_store, address=place) if place else blob_store)
            return self._stores[blob_store]

    def bench(self, setup: cluster_messages.Blob, store: Store) -> Bench:
        """Return the worker processes for a setup. End the worker processes of old setups."""
        with self._lock:
            if setup not in self._benches:
                setup_message = cluster_messages.decode(cluster_messages.get_bytes(store, setup), cluster_messages.ClusterSetup)
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


# -------------------------------------------------------------------------------------------- functions that Dask calls


def dask_setup(worker: Worker) -> None:
    """Store a reference to the Dask worker of this process (Dask's preload hook)."""
    _state.worker, _state.slots = worker, worker.state.nthreads
    _state.folder = tempfile.mkdtemp(prefix="aptui-cluster-", dir=worker.local_directory)


def dask_teardown(_worker: Worker) -> None:
    """End aptui's worker processes (Dask's preload hook)."""
    _state.close()


def check(data: bytes) -> bytes:
    """Answer a `Greeting` with a `WorkerReport`."""
    greeting = cluster_messages.decode(data, cluster_messages.Greeting)
    toolchains: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = ()
    trouble = ""
    try:
        bench = _state.bench(greeting.setup, _state.store(greeting.blob_store))
        toolchains = tuple(sorted(bench.toolchains().items()))
    except (KnownError, OSError) as error:
        trouble = str(error)
    return cluster_messages.encode(
        cluster_messages.WorkerReport(program_version(), python_version(), socket.gethostname(), os.getpid(), toolchains, trouble)
    )


def run(data: bytes) -> bytes:
    """Run a `Task` and return the manifest of a `TaskAnswer`.

    The manifest is also announced as an event, which Dask delivers sooner than return values.
    """
    task = cluster_messages.decode(data, cluster_messages.Task)
    manifest = _manifest(task)
    if _state.worker is not None:
        _state.worker.log_event(task.topic, [task.name, manifest])
    return manifest


def _manifest(task: cluster_messages.Task) -> bytes:
    try:
        store = _state.store(task.blob_store)
        bench = _state.bench(task.setup, store)
        with _Job(task, bench, store) as job:
            return cluster_messages.pack_record(cluster_messages.TaskAnswer(job.run(), address=_state.address), store)
    except (KnownError, OSError) as error:
        return b"i" + cluster_messages.encode(cluster_messages.TaskAnswer(refusal=f"{socket.gethostname()}: {error}"))


def cancel(names: Sequence[str]) -> None:
    """Stop the tasks with these names. A task that has not started yet is stopped when it starts."""
    for name in names:
        while len(_state.cancelled_names) >= _MOST_CANCELLED:
            _state.cancelled_names.pop(next(iter(_state.cancelled_names)), None)
        _state.cancelled_names[name] = None  # before the search below: the task may start in between
        job = _state.jobs.get(name)
        if job is not None:
            job.cancel()
            _state.cancelled_names.pop(name, None)


# -------------------------------------------------------------------------------------------------------------- one job


class _Translator(Struct):
    """Translates local paths into paths of the engine's machine."""

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
    """One run of a task, with a temporary folder for its files."""

    def __init__(self, task: cluster_messages.Task, bench: Bench, store: Store) -> None:
        self._task, self._bench, self._store = task, bench, store
        self._folder = ""
        self._key = 0
        self._is_cancelled = False

    def __enter__(self) -> Self:
        self._folder = tempfile.mkdtemp(prefix="job-", dir=self._bench.jobs)
        _state.jobs[self._task.name] = self
        if self._task.name in _state.cancelled_names:
            self._is_cancelled = True
        return self

    def __exit__(self, *_ending: object) -> None:
        _state.jobs.pop(self._task.name, None)
        shutil.rmtree(self._folder, ignore_errors=True)

    def run(self) -> RunResult:
        """Fetch the inputs, run the job, and store its products. Return the result with the paths of the engine's machine."""
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
        """Stop the task, before or during its run; called by another thread."""
        self._is_cancelled = True
        if self._key:
            self._bench.cancel(self._key)

    def _note_key(self, key: int) -> None:
        self._key = key
        if self._is_cancelled:  # `cancel` was called before the run key was known
            self._bench.cancel(key)

    def _fetch(self, item: cluster_messages.TaskInput) -> None:
        path = self._path(item)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if not self._store.get_blob(item.digest.hex(), path, item.size):
            raise FileNotFoundError(2, f"the bytes of '{item.rel}' are not in the store")
        os.utime(path, ns=(item.mtime_ns, item.mtime_ns))

    def _root(self, index: int) -> str:
        return f"{self._folder}/in/{index:05}"

    def _path(self, item: cluster_messages.TaskInput) -> str:
        root = self._root(item.folder)
        path = os.path.normpath(f"{root}/{os_path(item.rel)}")
        if not path.startswith(root + "/"):
            raise FileNotFoundError(2, f"'{item.rel}' is outside its scan folder")
        return path

    def _order(self) -> ProcessOrder:
        source = self._task.inputs[0]
        places = {path: as_text(self._root(index)) for index, path in enumerate(self._task.folders)}
        return replace(
            self._task.order,
            inputs=tuple(replace(each, root=places.get(each.root, each.root)) for each in self._task.order.inputs),
            root=as_text(self._root(source.folder)),
            expected=stat_key(os.stat(self._path(source))),
            staging=as_text(f"{self._folder}/out"),
        )

    def _translate(self, result: RunResult) -> RunResult:
        order = self._task.order
        here = [as_text(self._root(index)) for index in range(len(self._task.folders))]
        pairs = [*zip(here, self._task.folders, strict=True), (as_text(f"{self._folder}/out"), order.staging)]
        into = _Translator(tuple(pairs))
        lower = _Translator(tuple((one.lower(), other.lower()) for one, other in pairs))
        return replace(
            result,
            error=into.text(result.error),
            products=tuple(_as_sent(product, into, lower) for product in result.products),
            discovered=tuple((into.path(path), digest) for path, digest in result.discovered),
            used=Used(result.used.code),  # the stamps of files are left out, because the run used fetched copies
            log=tuple(into.record(record) for record in result.log),
            command_line=into.text(result.command_line),
            reprocess=tuple(into.path(path) for path in result.reprocess),
            reads=tuple(replace(read, path=into.path(read.path)) for read in result.reads),
            probed=tuple((into.path(path), digest) for path, digest in result.probed),
        )


def _as_sent(product: StagedProduct, into: _Translator, lower: _Translator) -> StagedProduct:
    links = tuple(replace(link, path=lower.path(into.path(link.path))) for link in product.links)
    return replace(product, staged="", links=links)


# A cluster worker runs jobs in a pool of worker processes, as the engine does, with the same limits. A `Bench` has the worker
# processes of one configuration of one project. The thread of a `Bench` drives the pool; any thread may call a `Bench` and wait for
# results.

_GRACE_S = 1.0
"""Time (seconds) that running jobs have to end when the worker processes of a `Bench` are ended."""
_CLOSE_S = 10.0
"""Timeout (seconds) for the end of a bench's thread."""
_NICE = 5
"""Niceness of the worker processes: users of the machine have priority."""


class Bench:
    """Worker processes of one configuration on this machine.

    Args:
        folder: a folder for these worker processes only, with their code and jobs.
        store: the store with the project's builder code.

    Raises:
        HostError: the code is missing.
    """

    def __init__(self, setup: ClusterSetup, folder: str, slots: int, store: Store) -> None:
        self._folder, self._slots = folder, slots
        self.jobs = os.path.join(folder, "jobs")
        os.makedirs(self.jobs)
        self._builders = tuple(self._adapt_builder(builder) for builder in setup.builders)
        self._setup = setup
        _lay_out_code(setup, os.path.join(folder, "code"), store)
        self._selector = selectors.DefaultSelector()
        self._waker = Waker(self._selector)
        self._asked: deque[Callable[[Pool], None]] = deque()
        self._answers: dict[int, Future[RunResult]] = {}
        self._keys = itertools.count(1)
        self._is_closing = False
        self._thread = threading.Thread(target=self._serve, name="aptui-bench", daemon=True)
        self._thread.start()

    def _adapt_builder(self, builder: Builder) -> Builder:
        """Return a builder whose code files are local, and whose reads are all reported."""
        origin, path = builder.origin, ""
        if origin.startswith("file:"):
            path, _, name = origin.removeprefix("file:").rpartition(":")
            origin = f"file:{self._folder}/code/{os.path.basename(path)}:{name}"
        code_files = _move_files(builder, os.path.dirname(path), f"{self._folder}/code") if path else ()
        return replace(builder, origin=origin, undeclared_reads=UndeclaredReads.ADD, code_files=code_files)

    def toolchains(self) -> dict[str, Toolchain]:
        """Return the toolchains of the builders that these worker processes run."""
        return toolchains_of(self._builders, self._setup.tools)

    def run(self, order: ProcessOrder, note_key: Callable[[int], None]) -> RunResult:
        """Run a job and wait for its result. `note_key` is called with the key of the run, which `cancel` accepts.

        Raises:
            HostError: the worker processes end.
        """
        key = next(self._keys)
        answer: Future[RunResult] = Future()
        self._answers[key] = answer
        if not self._waker.is_open:  # the thread, which would answer, has ended
            raise _end_error()
        self._ask(lambda pool: pool.send([replace(order, run_key=key)]))
        note_key(key)
        return replace(answer.result(), run_key=order.run_key)

    def cancel(self, key: int) -> None:
        """Stop a run."""
        self._ask(lambda pool: pool.kill([key]))

    def close(self) -> None:
        """End all worker processes. Callers that wait for results receive an error."""
        self._is_closing = True
        self._waker.wake()
        self._thread.join(_CLOSE_S)

    def _ask(self, request: Callable[[Pool], None]) -> None:
        self._asked.append(request)
        self._waker.wake()

    def _serve(self) -> None:
        settings = PoolSettings(nice=_NICE, scan_folders=(as_text(self.jobs),))
        pool = Pool(self._builders, self._setup.platforms, self._slots, self._selector, self._set_results, settings=settings)
        try:
            while not self._is_closing:
                self._turn(pool)
        finally:
            pool.close(_GRACE_S)
            self._waker.close()
            self._selector.close()
            for answer in list(self._answers.values()):
                if not answer.done():
                    answer.set_exception(_end_error())

    def _turn(self, pool: Pool) -> None:
        due_s = pool.next_deadline()
        for key, mask in self._selector.select(None if due_s is None else max(0.0, due_s - time.monotonic())):
            key.data(mask)
        pool.poll(time.monotonic())
        while self._asked:
            self._asked.popleft()(pool)

    def _set_results(self, results: list[Result]) -> None:
        for result in results:
            if isinstance(result, RunResult):  # for type checkers; this class requests runs only, so every result is a `RunResult`
                self._answers.pop(result.run_key).set_result(result)


def _end_error() -> HostError:
    return HostError("the worker ends", hint=cluster_messages.ADVICE)


def _move_files(builder: Builder, there: str, here: str) -> tuple[tuple[str, str], ...]:
    """Return the code files of a project's own builder with local paths.

    Installed code is left out, because the engine compares installed code through the builder's toolchain.
    """
    return tuple((here + path.removeprefix(there), code) for path, code in builder.code_files if path.startswith(f"{there}/"))


def _lay_out_code(setup: ClusterSetup, folder: str, store: Store) -> None:
    os.makedirs(folder)
    for file in setup.code:
        path = Path(os.path.normpath(os.path.join(folder, os_path(file.rel))))
        if not path.is_relative_to(folder):
            raise HostError(f"'{file.rel}' is not a valid name for a file of builder code", hint=cluster_messages.ADVICE)
        path.parent.mkdir(parents=True, exist_ok=True)
        digest, size = file.blob
        if not store.get_blob(digest.hex(), str(path), size):
            raise HostError(f"the builder code '{file.rel}' is not in the store", where=store.address)

"""The engine's connection to a cluster's scheduler, in a separate thread. In the engine, only this module calls Dask.

Dask is a transport without guarantees: it runs completed jobs again when a worker dies, forgets everything when its scheduler dies,
and cannot stop a job. So a task is one run of one job, and the task's name contains the job and the run. This module never retries
a task, and drops it after its answer, which is a small manifest. A task that Dask loses is answered with RETURNED and runs again
elsewhere. A late result has no effect, because it names a run that has finished already.

A worker sends a report before its first job (`WorkerReport`). A worker with another version of aptui or Python gets no jobs. A
worker on which a builder's code, libraries or tools differ gets no jobs of this builder.

Tests: `tests/features/cluster/test_scheduler.py`, `tests/features/cluster/test_cluster_pool.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from aptui.config.settings import ClusterSettings as Place
from aptui.core.orders import Outcome, ProcessOrder
from aptui.core.project import Builder
from aptui.engine.pool.worker_messages import Identity, Result, identity_of, make_ended
from aptui.features.cluster import cluster_messages
from aptui.features.cluster.environment import Toolchain, difference, toolchains_of
from aptui.features.cluster.job_inputs import InputElsewhere, InputOutdated, InputTransfer, setup_of
from aptui.shared.errors import KnownError, UserError, install_advice

if TYPE_CHECKING:
    from distributed import Client

    from aptui.engine.pool.sandbox import Sandbox


# Helpers for Dask: certificates, the results of tasks, and texts of Dask's errors.


def security_of(place: Place) -> Any:
    """Return the certificates in the form of Dask's class `Security`.

    The result is None for a scheduler without TLS. It is on the loopback, so certificates are not needed.
    """
    if not place.scheduler.startswith("tls://"):
        return None
    from distributed.security import Security

    ours = {f"tls_{role}_cert": place.tls_cert for role in ("client", "worker")}
    ours |= {f"tls_{role}_key": place.tls_key for role in ("client", "worker")}
    return Security(require_encryption=True, tls_ca_file=place.tls_ca, **ours)  # type: ignore[no-untyped-call]  # Dask has few annotations


async def answer_of(client: Any, future: Any, answer: asyncio.Future[bytes]) -> bytes:
    """Return the answer that a worker announced.

    If no announcement arrives, fetch the answer as the result of the Dask task, which needs three times as many messages.
    """
    ended = asyncio.get_running_loop().create_task(_wait_for_end(client, future))
    either: set[asyncio.Future[Any]] = {ended, answer}
    try:
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if answer.done():
            return answer.result()
        ended.result()
        manifest: bytes = await future
        return manifest
    finally:
        ended.cancel()
        ended.add_done_callback(drop_exception)


async def _wait_for_end(client: Any, future: Any) -> None:
    """Wait until Dask has the result of a task."""
    from distributed import wait

    with contextlib.suppress(CancelledError), client.as_current():  # the caller gets a cancellation from the future
        await wait([future])  # type: ignore[no-untyped-call]  # Dask has few annotations


async def within(awaited: Awaitable[Any], limit_s: float) -> Any:
    """Return the result of an awaitable within a timeout in seconds.

    `asyncio.wait_for` also waits for the end of a cancelled awaitable, and Dask's client may never end.

    Raises:
        TimeoutError: the timeout has passed.
    """
    task = asyncio.get_running_loop().create_task(_result_of(awaited))
    try:
        await asyncio.wait({task}, timeout=limit_s)
        if task.done():
            return task.result()
    finally:
        task.cancel()
        task.add_done_callback(drop_exception)
    raise TimeoutError(f"no answer within {limit_s:g} s")


async def _result_of(awaited: Awaitable[Any]) -> Any:
    return await awaited


def drop_exception(task: asyncio.Future[Any]) -> None:
    """Read the exception of a dropped task, so that Dask does not log it."""
    if not task.cancelled():
        task.exception()


def brief(error: BaseException) -> str:
    """Return the text of an error in one line."""
    text = " ".join(str(error).split())
    return (
        f"{type(error).__name__}: {text[:200]}"
        if text and not isinstance(error, KnownError)
        else text[:300] or type(error).__name__
    )


# Remote workers: the jobs that a worker may run, and the resources that a task requests from Dask.

FIRST_NUMBER = 1000
"""Number of the scheduler in the list of workers. Remote workers get the next numbers, and keep them while the engine runs."""
MEMORY = "memory"
"""Name of Dask's resource for memory: the bytes that a worker has for jobs."""
_MOST_NAMED = 5
"""Maximum number of workers that a message names."""


class RemoteWorker(Struct, frozen=True):
    """A worker of the cluster; `number` is shown to the user.

    The worker may run jobs of `builders`; None = the worker has not sent its report yet. `jobs` are its running tasks. The worker
    joined the cluster at `since_s` (monotonic).
    """

    address: str
    slots: int
    resources: Mapping[str, float]
    memory_bytes: int = 0
    host: str = ""
    pid: int = 0
    builders: frozenset[str] | None = None
    jobs: tuple[str, ...] = ()
    number: int = 0
    since_s: float = 0.0

    def can(self, builder: str, needs: Iterable[str]) -> bool:
        """Whether the worker may run jobs of a builder, and has every tag in `needs`."""
        return self.builders is not None and builder in self.builders and all(self.resources.get(tag, 0) >= 1 for tag in needs)


class RemoteTask(Struct, frozen=True):
    """One remote run: an order with its inputs; `sent_s` is when it was sent."""

    order: ProcessOrder
    builder: Builder
    inputs: tuple[cluster_messages.TaskInput, ...]
    needs: tuple[str, ...]
    memory_bytes: int
    name: str
    sent_s: float = 0.0


def resources_of(task: RemoteTask, fit: Iterable[RemoteWorker]) -> dict[str, float]:
    """Return the requested resources of a task: its tags, and its memory if all suitable workers report their memory."""
    asked = dict.fromkeys(task.needs, 1.0)
    sizes = [worker.memory_bytes for worker in fit]
    if all(sizes):
        asked[MEMORY] = float(min(task.memory_bytes, max(sizes)))
    return asked


def departure_message(gone: Sequence[RemoteWorker], left: int) -> str:
    """Return the message about workers that have left the cluster; `left` is the number of remaining workers."""
    names = ", ".join(sorted(f"{worker.number} on '{worker.host}'" for worker in gone)[:_MOST_NAMED])
    more = f" and {len(gone) - _MOST_NAMED} more" if len(gone) > _MOST_NAMED else ""
    rest = f"{left} are left" if left > 1 else "1 is left" if left else "no worker is left"
    return f"workers have left the cluster: {names}{more}; {rest}"


RECONNECT_TIMEOUT_S = 15.0
"""Timeout (seconds) after the last answer of the scheduler. After the timeout, the engine runs the scheduler's jobs itself."""
_PULSE_S = 1.0
"""Interval of the queries to the scheduler, in seconds."""
_PULSE_LIMIT_S = 3.0
"""Timeout of one query to the scheduler, in seconds."""
_CONNECT_LIMIT_S = 5.0
"""Timeout of one attempt to connect, in seconds."""
_AGAIN_S = 2.0
"""Delay before the first attempt to connect again, in seconds; the delay grows with each attempt."""
_MOST_AGAIN_S = 30.0
"""Maximum delay before an attempt to connect again, in seconds."""
_CHECK_TIMEOUT_S = 180.0
"""Timeout for a worker's report, in seconds; the worker may first have to fetch code and import libraries."""
_CLOSE_S = 3.0
"""Timeout for disconnecting, in seconds."""
_STOP_S = 1.0
"""Timeout for stopping remote tasks before the disconnection, in seconds."""
_RESTART_S = 30.0
"""Timeout for restarting a worker, in seconds."""
_MOST_ORPHANS = 10_000
"""Maximum number of remembered jobs that have lost all their workers."""
_TRANSFER_THREADS = 8


class _Submitted(Struct):
    """A running task: the `key` of its Dask task, and the addresses of the `workers` that may run it.

    `is_orphan`: all of these workers have left, and Dask would wait forever for these workers to return.
    """

    task: RemoteTask
    key: str
    workers: frozenset[str] = frozenset()
    is_orphan: bool = False
    runner: asyncio.Task[None] | None = None

    def cancel(self, why: str) -> None:
        if self.runner is not None:
            self.runner.cancel(why)


class Scheduler:
    """The connection to a cluster's scheduler.

    Args:
        setup: platforms, and the builders that may run remotely.
        post: called with the result of a task. The scheduler's thread calls `post`, `say`, and (when remote workers joined or left)
            `changed`.
    """

    def __init__(
        self,
        place: Place,
        blob_store: cluster_messages.BlobStoreAddress,
        setup: cluster_messages.ClusterSetup,
        folders: tuple[str, ...],
        post: Callable[[RemoteTask, Result, bool], None],
        changed: Callable[[], None],
        say: Callable[[str], None],
        sandbox: Sandbox | None = None,
    ) -> None:
        self._sandbox = sandbox
        self._place, self._blob_store, self._setup, self._folders = place, blob_store, setup, folders
        self._post, self._changed, self._say = post, changed, say
        self.workers: Mapping[str, RemoteWorker] = {}
        """{address: remote worker}; the mapping is replaced as a whole, so any thread may read it."""
        self.runs: Counter[str] = Counter()
        """{address of a worker: number of its completed jobs}."""
        self.is_connected = False
        self.since_s = time.monotonic()
        """Time (monotonic) of the last connection or disconnection."""
        self.is_over = False
        """Whether the thread has ended.

        After the end of the thread, no more results are posted, and the pool must answer its open tasks itself.
        """
        self._numbers = itertools.count(FIRST_NUMBER + 1)
        self._prefix = f"aptui-{os.urandom(6).hex()}-"
        self._topic = f"aptui-{hashlib.sha256(f'{os.uname().nodename} {folders}'.encode()).hexdigest()[:16]}"
        """Topic of announcements.

        All engines of a project share one topic, because the scheduler stores the last announcement of each topic.
        """
        self._client: Client | None = None
        self._doing: dict[int, _Submitted] = {}
        self._orphans: dict[Identity | None, None] = {}
        """Jobs that lost all their workers once. If that happens to a job again, the job itself may kill the workers."""
        self._greeting: dict[str, asyncio.Task[None]] = {}
        self._answer_futures: dict[str, asyncio.Future[bytes]] = {}
        """{key of a task: its awaited answer}.

        Only the event loop of the thread uses `_client`, `_doing`, `_orphans`, `_greeting` and `_answer_futures`.
        """
        self._reported: set[str] = set()
        self._is_loss_reported = False
        self._setup_blob: cluster_messages.Blob = (b"", 0)
        self._toolchains: dict[str, Toolchain] = {}
        self._transfer: InputTransfer | None = None
        self._is_closing = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="aptui-cluster", daemon=True)
        self._thread.start()

    # ---------------------------------------------------------------------------------------- calls from the engine's loop

    def send(self, task: RemoteTask) -> None:
        """Send a task; `post` is called with its result, even if the task fails."""
        self._call(self._begin, task)

    def cancel(self, run_keys: Iterable[int]) -> None:
        """Stop runs whose results are no longer needed."""
        self._call(self._cancel, tuple(run_keys))

    def restart(self, address: str) -> None:
        """Restart a remote worker through its nanny, Dask's process that supervises it."""
        self._call(lambda: self._loop.create_task(self._restart(address)).add_done_callback(drop_exception))

    def close(self) -> None:
        """Disconnect from the scheduler; no more results are posted."""
        self._is_closing = True
        self._call(self._stop)
        self._thread.join(2 * _CLOSE_S)

    def _call(self, function: Callable[..., None], *arguments: object) -> None:
        with contextlib.suppress(RuntimeError):  # `call_soon_threadsafe` raises RuntimeError if the loop has ended
            self._loop.call_soon_threadsafe(function, *arguments)

    # ---------------------------------------------------------------------------------------------------------- the thread

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        executor = ThreadPoolExecutor(_TRANSFER_THREADS, thread_name_prefix="aptui-transfer")
        self._loop.set_default_executor(executor)
        try:
            self._main = self._loop.create_task(self._keep_connected())
            with contextlib.suppress(asyncio.CancelledError):
                self._loop.run_until_complete(self._main)
        finally:
            self._drop_all("the engine ends")
            self._loop.run_until_complete(asyncio.sleep(0))
            executor.shutdown(wait=False, cancel_futures=True)
            self.workers, self.is_over = {}, True
            self._changed()
            if self._transfer is not None:
                self._transfer.close()
            self._loop.close()

    def _stop(self) -> None:
        self._main.cancel()

    async def _keep_connected(self) -> None:
        pause_s = _AGAIN_S
        while not self._is_closing:
            try:
                await self._prepare()
                await self._serve_connection()
                pause_s = _AGAIN_S
            except UserError as error:  # a retry cannot help, because the configuration is wrong
                self._report(f"the cluster is not used: {error}")
                return
            except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001  # Dask raises any exception; jobs can always run here
                if self._is_closing:
                    return
                self._report(
                    f"the cluster at '{self._place.scheduler}' cannot be used now, so jobs run on this machine: {brief(error)}"
                )
            finally:
                self._note_lost()
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _MOST_AGAIN_S)

    async def _prepare(self) -> None:
        """Compute the toolchains once, and store the setup."""
        if self._transfer is not None:
            return
        transfer = await asyncio.to_thread(InputTransfer, self._blob_store, self._folders)
        try:
            self._setup, self._setup_blob = await asyncio.to_thread(setup_of, self._setup, transfer.store)
            self._toolchains = await asyncio.to_thread(toolchains_of, self._setup.builders, self._setup.tools, self._sandbox)
        except BaseException:
            transfer.close()
            raise
        self._transfer = transfer

    async def _serve_connection(self) -> None:
        """Connect, and stay connected until the scheduler is lost."""
        try:
            from distributed import Client
        except ImportError:
            raise UserError("'pool: dask' needs the package 'distributed'", hint=install_advice("dask")) from None
        for name in ("distributed", "distributed.client", "distributed.utils"):
            logging.getLogger(name).setLevel(logging.CRITICAL)  # Dask's messages are hidden, because this module reports errors
        client: Any = Client(  # type: ignore[no-untyped-call]  # Dask has few annotations
            self._place.scheduler,
            asynchronous=True,
            timeout=_CONNECT_LIMIT_S,
            set_as_default=False,
            security=security_of(self._place),
            name="aptui",
        )
        try:
            await within(client, 2 * _CONNECT_LIMIT_S)
            client.subscribe_topic(self._topic, self._take_announcement)
            self._client = client
            self._note_connected(is_connected=True)
            self._is_loss_reported = False
            await self._watch(client)
            self._note_lost()
        finally:
            await self._disconnect(client)

    async def _disconnect(self, client: Any) -> None:
        """Disconnect from the scheduler. If the engine ends, first stop its remote tasks."""
        names = [doing.key for doing in self._doing.values()]
        with contextlib.suppress(Exception):
            if names and self._is_closing:
                await within(self._stop_remote(names), _STOP_S)
        self._client = None
        with contextlib.suppress(TimeoutError, OSError, asyncio.CancelledError):
            await within(client.close(_CLOSE_S), _CLOSE_S)

    def _report_loss(self) -> None:
        """Report the current loss of the scheduler, unless it was reported already.

        Equal messages are shown only once. The time of day in the message makes the messages of two losses different.
        """
        if not self._is_loss_reported:
            self._is_loss_reported = True
            silent = f"the scheduler at '{self._place.scheduler}' no longer answers ({time.strftime('%H:%M:%S')})"
            self._report(f"{silent}; its jobs run on this machine instead")

    async def _watch(self, client: Any) -> None:
        last_answer_s = time.monotonic()
        # While Dask's client reconnects, its status is not "running", and its tasks are lost.
        while time.monotonic() - last_answer_s < RECONNECT_TIMEOUT_S and client.status == "running":
            with contextlib.suppress(OSError, TimeoutError):
                known = await within(client.scheduler.identity(n_workers=-1), _PULSE_LIMIT_S)
                busy = await within(client.scheduler.processing(workers=None), _PULSE_LIMIT_S)
                last_answer_s = time.monotonic()
                self._register_workers(known["workers"], busy)
            await asyncio.sleep(_PULSE_S)
        self._report_loss()

    def _note_connected(self, *, is_connected: bool) -> None:
        if self.is_connected != is_connected:
            self.is_connected, self.since_s = is_connected, time.monotonic()

    def _note_lost(self) -> None:
        self._note_connected(is_connected=False)
        self.workers = {}
        self._drop_all("the connection to the scheduler was lost")
        self._changed()

    def _drop_all(self, why: str) -> None:
        for doing in list(self._doing.values()):
            doing.cancel(why)
        for task in self._greeting.values():
            task.cancel(why)
        self._greeting.clear()

    # ------------------------------------------------------------------------------------------------------------ workers

    def _register_workers(self, known: Mapping[str, Mapping[str, Any]], busy: Mapping[str, Iterable[object]]) -> None:
        """Register the current workers, and ask each new worker for a report of its versions and toolchains."""
        before, now = self.workers, {}
        for address, facts in known.items():
            worker = before.get(address)
            if worker is None:
                resources = {str(name): float(count) for name, count in (facts.get("resources") or {}).items()}
                memory_bytes = int(resources.pop(MEMORY, 0))
                host, number = str(facts.get("host", "")), next(self._numbers)
                worker = RemoteWorker(
                    address, int(facts["nthreads"]), resources, memory_bytes, host, number=number, since_s=time.monotonic()
                )
                self._greeting[address] = self._loop.create_task(self._request_report(address))
            jobs = tuple(str(key) for key in busy.get(address, ()) if str(key).startswith(self._prefix))
            now[address] = replace(worker, jobs=jobs)
        gone = [before[address] for address in before.keys() - now.keys()]
        for worker in gone:
            task = self._greeting.pop(worker.address, None)
            if task is not None:
                task.cancel()
        if gone:
            self._report(departure_message(gone, len(now)))
        for doing in list(self._doing.values()):
            if doing.workers and doing.workers.isdisjoint(now):
                doing.is_orphan = True
                doing.cancel("all workers that could run the job have left")
        self.workers = now
        if before != now:
            self._changed()

    async def _request_report(self, address: str) -> None:
        from aptui.features.cluster import task as cluster_task

        client: Any = self._client
        data = cluster_messages.encode(cluster_messages.Greeting(self._setup_blob, self._blob_store))
        future = client.submit(
            cluster_task.check,
            data,
            key=f"aptui-look-{os.urandom(8).hex()}",
            workers=[address],
            allow_other_workers=False,
            pure=False,
            retries=0,
            priority=1000,
        )
        try:
            report = cluster_messages.decode(await within(future, _CHECK_TIMEOUT_S), cluster_messages.WorkerReport)
        except (KnownError, OSError, TimeoutError, CancelledError) as error:
            self._report(f"the worker at '{address}' gets no jobs, because it did not report its versions: {brief(error)}")
            return
        except Exception as error:  # noqa: BLE001  # Dask raises any remote exception, for example if aptui cannot be imported there
            self._report(f"the worker at '{address}' gets no jobs, because it cannot be used: {brief(error)}")
            return
        finally:
            future.release()
        worker = self.workers.get(address)
        if worker is not None:
            host = report.host or worker.host
            known = replace(worker, host=host, pid=report.pid, builders=frozenset(self._fit(report)))
            self.workers = {**self.workers, address: known}
            self._changed()

    def _fit(self, report: cluster_messages.WorkerReport) -> Iterable[str]:
        """Yield the builders whose jobs a worker may run; report why the worker may not run jobs of other builders."""
        problem = report.trouble
        if not problem and report.version != self._setup.version:
            problem = f"the worker has aptui {report.version}, but this machine has {self._setup.version}"
        if not problem and report.python != self._setup.python:
            problem = f"the worker has Python {report.python}, but this machine has {self._setup.python}"
        if problem:
            self._report(f"the worker on '{report.host}' gets no jobs: {problem}")
            return
        theirs = dict(report.toolchains)
        for name, ours in self._toolchains.items():
            problem = difference(ours, theirs.get(name, ()))
            if problem:
                self._report(f"the worker on '{report.host}' gets no jobs of builder '{name}': {problem}")
            else:
                yield name

    def _report(self, sentence: str) -> None:
        if sentence not in self._reported and not self._is_closing:
            self._reported.add(sentence)
            self._say(sentence)

    # ------------------------------------------------------------------------------------------------------------- tasks

    def _begin(self, task: RemoteTask) -> None:
        doing = self._doing[task.order.run_key] = _Submitted(task, self._prefix + task.name)
        doing.runner = self._loop.create_task(self._execute(doing))
        doing.runner.add_done_callback(lambda _task: self._doing.pop(task.order.run_key, None))

    async def _execute(self, doing: _Submitted) -> None:
        """Execute a task and post one result, even if it fails."""
        task, order, stays = doing.task, doing.task.order, False
        result: Result
        try:
            transfer = self._transfer
            if transfer is None:
                raise InputElsewhere("the cluster is not connected")
            await asyncio.to_thread(transfer.upload, task.inputs)
            answer = await self._remote(doing, transfer)
            if answer.result is None:
                transfer.forget(task.inputs)
                self._report(f"the cluster did not run a job of '{order.builder}', so it runs on this machine: {answer.refusal}")
                raise InputElsewhere(answer.refusal)
            self.runs[answer.address] += 1
            result = await asyncio.to_thread(transfer.download, order, task.builder, answer.result)
        except InputOutdated as error:
            result = make_ended(order, Outcome.STALE, str(error))
        except InputElsewhere as error:
            result, stays = make_ended(order, Outcome.RETURNED, str(error)), True
        except asyncio.CancelledError as error:
            stays = doing.is_orphan and self._is_orphaned_twice(order)
            result = make_ended(order, Outcome.LOST if stays else Outcome.RETURNED, brief(error))
        except CancelledError as error:  # Dask cancels tasks when it loses its scheduler
            result = make_ended(order, Outcome.RETURNED, brief(error))
            self._report_loss()
        except (KnownError, OSError, TimeoutError) as error:
            result, stays = make_ended(order, Outcome.RETURNED, brief(error)), True
            self._report(f"the cluster did not run a job of '{order.builder}', so it runs on this machine: {brief(error)}")
        except Exception as error:  # noqa: BLE001  # Dask raises any remote exception
            is_killed = type(error).__name__ == "KilledWorker"
            result, stays = make_ended(order, Outcome.LOST if is_killed else Outcome.RETURNED, brief(error)), True
            self._report(f"the cluster did not run a job of '{order.builder}', so it runs on this machine: {brief(error)}")
        if not self._is_closing:
            self._post(task, result, stays)

    def _is_orphaned_twice(self, order: ProcessOrder) -> bool:
        """Record that all workers of the job have ended. Return whether this has happened to the job before.

        Dask counts lost workers only within one submission. So a job that has lost its workers twice is not submitted again, but
        runs on this machine.
        """
        identity = identity_of(order)
        is_again = identity in self._orphans
        while len(self._orphans) >= _MOST_ORPHANS:
            del self._orphans[next(iter(self._orphans))]
        self._orphans[identity] = None
        return is_again

    async def _remote(self, doing: _Submitted, transfer: InputTransfer) -> cluster_messages.TaskAnswer:
        from aptui.features.cluster import task as cluster_task

        client: Any = self._client
        task, key = doing.task, doing.key
        fit = [worker for worker in self.workers.values() if worker.can(task.order.builder, task.needs)]
        if client is None or not fit:
            raise asyncio.CancelledError("no worker that may run the job is connected")
        doing.workers = frozenset(worker.address for worker in fit)
        message = cluster_messages.Task(
            task.order, self._setup_blob, self._blob_store, self._folders, task.inputs, key, self._topic
        )
        answer_future = self._answer_futures[key] = self._loop.create_future()
        future = client.submit(
            cluster_task.run,
            cluster_messages.encode(message),
            key=key,
            workers=sorted(doing.workers),
            allow_other_workers=False,
            resources=resources_of(task, fit),
            priority=task.order.priority + (1000 if task.order.is_critical else 0),
            pure=False,
            retries=0,
        )
        try:
            manifest = await answer_of(client, future, answer_future)
        finally:
            future.release()
            del self._answer_futures[key]
        if cluster_messages.is_whole(manifest):  # this manifest is decoded without the store, so no thread is needed
            return cluster_messages.unpack_record(manifest, cluster_messages.TaskAnswer, transfer.store)
        return await asyncio.to_thread(cluster_messages.unpack_record, manifest, cluster_messages.TaskAnswer, transfer.store)

    def _take_announcement(self, event: tuple[float, tuple[str, bytes]]) -> None:
        """Accept an answer that a worker announced (`cluster.task`)."""
        key, manifest = event[1]
        answer_future = self._answer_futures.get(key)
        if answer_future is not None and not answer_future.done():
            answer_future.set_result(manifest)

    def _cancel(self, run_keys: tuple[int, ...]) -> None:
        wanted = [found for key in run_keys if (found := self._doing.get(key)) is not None]
        for doing in wanted:
            doing.cancel("cancelled")
        if wanted:
            stopping = self._loop.create_task(self._stop_remote([doing.key for doing in wanted]))
            stopping.add_done_callback(drop_exception)

    async def _restart(self, address: str) -> None:
        client: Any = self._client
        if client is None:
            return
        try:
            await client.restart_workers([address], timeout=_RESTART_S)
        except Exception as error:  # noqa: BLE001  # Dask raises any exception, for example for a worker without a nanny
            self._say(f"the worker at '{address}' was not restarted: {brief(error)}")
            self._changed()

    async def _stop_remote(self, names: Sequence[str]) -> None:
        """Ask all remote workers to stop tasks, because the engine does not know which worker runs a task.

        Dask cannot stop a running task; on the worker, aptui's own pool of worker processes stops it.
        """
        from aptui.features.cluster import task as cluster_task

        client: Any = self._client
        addresses = [worker.address for worker in self.workers.values() if worker.builders]
        if client is not None and addresses:
            await client.run(cluster_task.cancel, names, workers=addresses, on_error="ignore")

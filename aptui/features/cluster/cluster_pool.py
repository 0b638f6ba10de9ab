"""A pool of local workers and a cluster: decides which orders run on the cluster, and handles the answers to these orders.

Analyses, copies and hashing stay local, and so do jobs with unknown input files. Other jobs go to the cluster when the local
workers are busy: the local pool is filled first, in the order of the queue. A job that fails on the cluster (except by exceeding
its time limit) or reads undeclared files there runs locally from then on. The local run confirms the failure, or finds the files.

A job whose builder needs something that this machine lacks (`needs`) always goes to the cluster, and waits for a suitable worker.
"""

from __future__ import annotations

import hashlib
import math
import selectors
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from aptui.config.settings import ClusterSettings as Place
from aptui.core.orders import CopyOrder, Outcome, ProcessOrder, RunResult
from aptui.core.project import Builder, Platform
from aptui.core.retry import FailureKind
from aptui.engine.pool.pool import Pool
from aptui.engine.pool.worker_messages import Identity, Order, Result, identity_of, make_ended
from aptui.engine.waking import Waker
from aptui.features.cluster.cluster_messages import BlobStoreAddress, ClusterSetup
from aptui.features.cluster.environment import program_version, python_version
from aptui.features.cluster.job_inputs import InputsOf, can_travel, inputs_of, is_movable
from aptui.features.cluster.scheduler import FIRST_NUMBER, RemoteTask, RemoteWorker, Scheduler
from aptui.shared import printing
from aptui.shared.health import WorkerInfo

if TYPE_CHECKING:
    from aptui.engine.loop.context import EngineContext

_AHEAD_S = 0.3
"""Total expected duration (seconds) of the jobs that are sent to a slot of the cluster in advance.

Without jobs in advance, a slot with short jobs would be idle during the round trip for its next job.
"""
_LEAST_AHEAD, _MOST_AHEAD = 0.25, 4.0
"""Minimum and maximum number of waiting jobs per slot."""
_RECENT = 0.1
"""Weight of the newest job in the moving mean of job durations."""
_MOST_QUEUED_PER_WORKER = 8
"""Maximum number of messages per local worker that wait in the pool while jobs for the cluster are requested.

A requested job that cannot run on the cluster waits in the pool, too. Without the limit, the pool would fill with such jobs.
"""
_NEED_TIMEOUT_S = 60.0
"""Time (seconds) for which a job waits for a worker with the required tags before the job fails."""
_MOST_STAYING = 10_000
"""Maximum number of remembered jobs that must run locally."""


class ClusterClient(Struct, frozen=True):
    """The settings and functions with which a pool uses a cluster.

    Args:
        tools: pairs (builder, program that the builder's command names).
        inputs_of: returns the input files of an order's job.
        say: receives messages for the user, from any thread.
    """

    place: Place
    blob_store: BlobStoreAddress
    folders: tuple[str, ...]
    tools: tuple[tuple[str, str], ...]
    inputs_of: InputsOf
    say: Callable[[str], None]


class _WaitingOrder(Struct):
    """A task that has waited for the cluster since `since_s` (monotonic)."""

    task: RemoteTask
    since_s: float


def cluster_pool(context: EngineContext, _plain: Callable[..., Pool]) -> Callable[..., Pool]:
    """Return the constructor of a pool with a cluster: the extension point `pool`."""
    config, project = context.config, context.project
    folders = {folder.id: index for index, folder in enumerate(project.scan_folders)}
    cluster = ClusterClient(
        config.cluster,
        BlobStoreAddress(config.cluster.store or config.sharing.store, config.sharing.namespace),
        tuple(folder.path for folder in project.scan_folders),
        tuple((tool.builder, tool.name) for tool in config.tools),
        partial(inputs_of, context.pipeline, folders),
        context.news.from_threads.append,
    )
    return partial(ClusterPool, cluster=cluster)


class ClusterPool(Pool):
    """A pool of local workers and a cluster, with the interface of a local pool."""

    def __init__(
        self,
        builders: Sequence[Builder],
        platforms: Sequence[Platform],
        size: int,
        selector: selectors.BaseSelector,
        on_results: Callable[[list[Result]], None],
        *,
        cluster: ClusterClient,
        **more: Any,
    ) -> None:
        super().__init__(builders, platforms, size, selector, on_results, **more)
        self._cluster = cluster
        self._needs, self._at_most = dict(cluster.place.needs), dict(cluster.place.at_most)
        self._has = frozenset(cluster.place.tags)
        self._held: deque[_WaitingOrder] = deque()
        self._away: dict[int, RemoteTask] = {}
        self._runs: Counter[str] = Counter()
        self._mean_s = 0.0
        self._staying: dict[Identity, None] = {}
        self._arrived: deque[tuple[RemoteTask, Result, bool]] = deque()
        self._waker = Waker(selector, self._on_arrival)
        self._scheduler = self._open(builders, platforms)

    def _open(self, builders: Sequence[Builder], platforms: Sequence[Platform]) -> Scheduler:
        tools: dict[str, list[str]] = {}
        for builder, tool in self._cluster.tools:
            tools.setdefault(builder, []).append(tool)
        movable = tuple(each for each in builders if is_movable(each, tools.get(each.name, ())))
        self._movable = {builder.name: builder for builder in movable}
        wanted = tuple((name, tool) for name, tool in self._cluster.tools if name in self._movable)
        setup = ClusterSetup(program_version(), python_version(), movable, tuple(platforms), tools=wanted)
        return Scheduler(
            self._cluster.place,
            self._cluster.blob_store,
            setup,
            self._cluster.folders,
            self._post,
            self._waker.wake,
            self._cluster.say,
            self._settings.sandbox,
        )

    def _post(self, task: RemoteTask, result: Result, stays: bool) -> None:
        """Queue a result; called in the scheduler's thread."""
        self._arrived.append((task, result, stays))
        self._waker.wake()

    def _on_arrival(self) -> None:
        self._take_answers()
        self._send_waiting(self._clock())
        self._deliver()

    # -------------------------------------------------------------------------------------------------------------- orders

    @property
    def free(self) -> int:
        """Number of messages that may be sent now, to local workers and to the cluster."""
        return self._with_cluster(super().free)

    @property
    def free_for_critical(self) -> int:
        """Number of messages with critical orders that may be sent now, to local workers and to the cluster."""
        return self._with_cluster(super().free_for_critical)

    def _with_cluster(self, here: int) -> int:
        if len(self._waiting) - self._waiting.held_count > _MOST_QUEUED_PER_WORKER * self._size:
            return here
        return max(0, here) + max(0, self._capacity() - len(self._away) - len(self._held))

    def _capacity(self) -> int:
        """Return the maximum number of jobs on the cluster.

        Unless the configuration sets a share, the maximum is above the number of slots, so that each slot has a next job.
        """
        slots = sum(worker.slots for worker in self._scheduler.workers.values() if worker.builders)
        if self._cluster.place.share:
            return min(slots, self._cluster.place.share)
        ahead = min(_AHEAD_S / self._mean_s, _MOST_AHEAD) if self._mean_s else 0.0
        return slots + math.ceil(slots * max(ahead, _LEAST_AHEAD))

    def jobs_at_work(self) -> dict[int, int]:
        """Return the run keys of running jobs, local and remote, each with the ms since it started or was sent."""
        now_s = self._clock()
        return super().jobs_at_work() | {key: int(1000 * (now_s - task.sent_s)) for key, task in self._away.items()}

    @property
    def is_idle(self) -> bool:
        """Whether every order has been answered."""
        return super().is_idle and not (self._away or self._held or self._arrived)

    def send(self, orders: Sequence[Order]) -> None:
        """Send orders of one kind to the local pool or to the cluster."""
        here: list[Order] = []
        is_full = self._is_full(orders)
        for order in orders:
            task = self._task(order) if is_full or self._lacks(order) else None
            if task is None:
                here.append(order)
            else:
                self._held.append(_WaitingOrder(task, self._clock()))
        if here:
            super().send(here)
        self._send_waiting(self._clock())

    def _is_full(self, orders: Sequence[Order]) -> bool:
        is_critical = bool(orders) and isinstance(orders[0], ProcessOrder) and orders[0].is_critical
        return (super().free_for_critical if is_critical else super().free) <= 0

    def _lacks(self, order: Order) -> bool:
        """Whether this machine lacks a tag that the builder of a job needs."""
        return isinstance(order, ProcessOrder) and not self._has.issuperset(self._needs.get(order.builder, ()))

    def _task(self, order: Order) -> RemoteTask | None:
        """Return the task of an order with its inputs; None = the order must run locally."""
        builder = None if isinstance(order, CopyOrder) else self._movable.get(order.builder)
        if not isinstance(order, ProcessOrder) or builder is None or not can_travel(order, self._cluster.folders):
            return None
        identity = identity_of(order)
        needs = self._needs.get(order.builder, ())
        if (
            identity in self._staying
            or identity in self._admission.lonely
            or not (self._lacks(order) or self._is_done_by(order, needs))
        ):
            return None
        inputs = self._cluster.inputs_of(order)
        if inputs is None:
            return None
        memory_bytes = self._memory.estimate_bytes(order.builder, order.memory_limit_bytes)
        return RemoteTask(order, builder, inputs, needs, memory_bytes, _name(order))

    def _is_done_by(self, order: ProcessOrder, needs: Iterable[str]) -> bool:
        return any(worker.can(order.builder, needs) for worker in self._scheduler.workers.values())

    def _send_waiting(self, now_s: float) -> None:
        """Send waiting tasks to the cluster in order, up to its capacity. Answer tasks that the cluster can no longer run."""
        if self._scheduler.is_over:
            self._answers.results += [
                make_ended(task.order, Outcome.RETURNED, "the cluster is no longer used") for task in self._away.values()
            ]
            self._away.clear()
        remaining: deque[_WaitingOrder] = deque()
        counts = Counter(task.order.builder for task in self._away.values())
        capacity = self._capacity()
        while self._held:
            waiting = self._held.popleft()
            order = waiting.task.order
            limit = self._at_most.get(order.builder, 0)
            if not self._is_done_by(order, waiting.task.needs):
                if not self._answer_unrunnable(waiting, now_s):
                    remaining.append(waiting)
            elif len(self._away) >= capacity or (limit and counts[order.builder] >= limit):
                remaining.append(waiting)
            else:
                counts[order.builder] += 1
                self._away[order.run_key] = task = replace(waiting.task, sent_s=now_s)
                self._scheduler.send(task)
        self._held = remaining

    def _answer_unrunnable(self, waiting: _WaitingOrder, now_s: float) -> bool:
        """End an order that no worker of the cluster can run; return False if the order should wait longer for a worker."""
        order = waiting.task.order
        if not self._lacks(order):
            self._answers.results.append(make_ended(order, Outcome.RETURNED, "the cluster is no longer connected"))
        elif now_s - waiting.since_s >= _NEED_TIMEOUT_S:
            tags = ", ".join(f"'{tag}'" for tag in waiting.task.needs)
            error = f"builder '{order.builder}' needs {tags}, but no worker with these tags is connected"
            self._answers.results.append(make_ended(order, Outcome.FAILED, error, FailureKind.OBSTACLE))
        else:
            return False
        return True

    def kill(self, run_keys: Iterable[int]) -> None:
        """Stop runs, local and remote."""
        wanted = set(run_keys)
        unwanted = [waiting.task for waiting in self._held if waiting.task.order.run_key in wanted]
        self._held = deque(waiting for waiting in self._held if waiting.task not in unwanted)
        gone = [self._away.pop(key) for key in wanted & self._away.keys()]
        self._scheduler.cancel(task.order.run_key for task in gone)
        self._answers.results += [make_ended(task.order, Outcome.CANCELLED, "cancelled") for task in (*unwanted, *gone)]
        super().kill(wanted)

    def reconfigure(self, builders: Sequence[Builder], platforms: Sequence[Platform]) -> None:
        """Use a new configuration. Answer all remote tasks with RETURNED, so that their jobs run again."""
        self._scheduler.close()
        left = [*self._away.values(), *(waiting.task for waiting in self._held)]
        self._answers.results += [make_ended(task.order, Outcome.RETURNED, "the configuration changed") for task in left]
        self._away.clear()
        self._held.clear()
        self._scheduler = self._open(builders, platforms)
        super().reconfigure(builders, platforms)

    # ------------------------------------------------------------------------------------------------------------- results

    def _take_answers(self) -> None:
        while self._arrived:
            task, result, stays = self._arrived.popleft()
            if self._away.get(task.order.run_key) is not task:
                continue  # the engine has stopped this run and does not need its result
            del self._away[task.order.run_key]
            if isinstance(result, RunResult):
                self._note(task, result, stays=stays)
                self._answers.results.append(result)

    def _note(self, task: RemoteTask, result: RunResult, *, stays: bool) -> None:
        if result.outcome == Outcome.SUCCEEDED:
            self._runs[task.order.builder] += 1
            length_s = max(result.duration_ms, 1) / 1000
            self._mean_s = self._mean_s + _RECENT * (length_s - self._mean_s) if self._mean_s else length_s
            self._memory.note_peak(task.order.builder, result.peak_rss_bytes)
        identity = identity_of(task.order)
        if stays and identity is not None:
            if len(self._staying) >= _MOST_STAYING:
                del self._staying[next(iter(self._staying))]
            self._staying[identity] = None

    # -------------------------------------------------------------------------------------------------- limits and reports

    def next_deadline(self) -> float | None:
        """Return when to call `poll` next (monotonic), None = no call is needed."""
        times = [due_s] if (due_s := super().next_deadline()) is not None else []
        times += [waiting.since_s + _NEED_TIMEOUT_S for waiting in self._held if self._lacks(waiting.task.order)]
        return min(times, default=None)

    def poll(self, now_s: float) -> None:
        """Enforce limits and send waiting tasks."""
        self._take_answers()
        self._send_waiting(now_s)
        super().poll(now_s)

    def workers(self) -> tuple[WorkerInfo, ...]:
        """Return facts about each worker: first the local workers, then the scheduler and the workers of the cluster."""
        workers = sorted(self._scheduler.workers.values(), key=lambda worker: worker.number)
        theirs = (_info(worker, self._scheduler.runs[worker.address]) for worker in workers)
        return (*super().workers(), self._scheduler_info(len(workers)), *theirs)

    def _scheduler_info(self, count: int) -> WorkerInfo:
        scheduler, job_count = self._scheduler, len(self._away)
        state = "lost" if not scheduler.is_connected else "working" if job_count else "idle" if count else "starting"
        text = f"cluster of {count}" if scheduler.is_connected else "cluster not used" if scheduler.is_over else "cluster offline"
        jobs = f", {printing.count(job_count, 'job')}" if job_count else ""
        return WorkerInfo(FIRST_NUMBER, 0, state, text + jobs, _age_ms(scheduler.since_s), 0, self._runs.total())

    def restart_worker(self, number: int) -> bool:
        """Restart a worker; Dask gives the tasks of a restarted remote worker to others."""
        worker = next((worker for worker in self._scheduler.workers.values() if worker.number == number), None)
        if worker is None:
            return super().restart_worker(number)
        self._scheduler.restart(worker.address)
        return True

    def close(self, grace_s: float = 1.0) -> None:
        """End all local workers and disconnect from the cluster."""
        self._scheduler.close()
        self._waker.close()
        super().close(grace_s)


def _name(order: ProcessOrder) -> str:
    """Return the name of a run on the cluster. The name contains the job and the run key."""
    job = f"{order.builder}\0{order.root}\0{order.rel}\0{order.platform}\0{order.job_key}"
    return f"{hashlib.sha256(job.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}-{order.run_key}"


def _info(worker: RemoteWorker, runs: int) -> WorkerInfo:
    state = "starting" if worker.builders is None else "working" if worker.jobs else "idle"
    if worker.builders is not None and not worker.builders:
        state = "unfit"
    busy = min(len(worker.jobs), worker.slots)
    text = f"{f'{busy}/' if busy else ''}{printing.count(worker.slots, 'slot')} on {worker.host}"
    return WorkerInfo(worker.number, worker.pid, state, text, _age_ms(worker.since_s), 0, runs)


def _age_ms(since_s: float) -> int:
    return int((time.monotonic() - since_s) * 1000)

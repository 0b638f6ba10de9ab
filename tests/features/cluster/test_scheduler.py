from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from waiting import until

pytest.importorskip("distributed")

from argparse import ArgumentParser

import pytest

from aptui.config.settings import ClusterSettings as Place
from aptui.core.orders import Outcome, ProcessOrder, RunResult
from aptui.core.project import Builder, BuilderKind, Platform
from aptui.features.cluster import cluster_messages, scheduler, verbs
from aptui.features.cluster import task as cluster_task
from aptui.features.cluster.environment import program_version, python_version
from aptui.features.cluster.scheduler import RemoteTask
from aptui.shared.errors import HostError
from aptui.worker.file_access import stat_key

pytestmark = pytest.mark.real

BUILDER = Builder(bytes(16), "paint", BuilderKind.COMMAND)


class KilledWorker(Exception):
    """Replaces the exception that Dask raises after a task has killed too many workers; only the name of the class matters."""


class FakeFuture:
    """The future that the fake client's `submit` returns; the test sets its result."""

    def __init__(self, key: str, data: bytes) -> None:
        self.key, self.data, self.is_released = key, data, False
        self.answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def __await__(self) -> Generator[Any, None, bytes]:
        return self.answer.__await__()

    def release(self) -> None:
        self.is_released = True


class FakeClient:
    """Simulates the used methods of Dask's client. Every requested worker exists, and a task ends when the test sets its result."""

    def __init__(self, *_arguments: object, **_more: object) -> None:
        FakeClient.made.append(self)
        self.loop, self.status, self.scheduler = asyncio.get_running_loop(), "running", self
        self.workers = {"tcp://a:1": 2, "tcp://b:1": 2}
        self.sent: list[FakeFuture] = []
        self.ran: list[tuple[Any, ...]] = []
        self.restarted: list[str] = []
        self.subscribers: dict[str, Callable[[Any], None]] = {}
        self.is_closed = False

    made: list[FakeClient]

    def __await__(self) -> Generator[Any, None, FakeClient]:
        return asyncio.sleep(0, self).__await__()

    async def identity(self, n_workers: int) -> dict[str, Any]:
        assert n_workers == -1
        return {
            "workers": {
                address: {"nthreads": slots, "resources": {}, "host": "box"} for address, slots in self.workers.items() if slots
            }
        }

    async def processing(self, workers: None) -> dict[str, list[str]]:
        return {}

    def subscribe_topic(self, topic: str, receive: Callable[[Any], None]) -> None:
        self.subscribers[topic] = receive

    def submit(self, function: object, data: bytes, *, key: str, **_more: object) -> FakeFuture:
        future = FakeFuture(key, data)
        if function is cluster_task.check:
            report = cluster_messages.WorkerReport(program_version(), python_version(), "box", 7, (("paint", ()),))
            future.answer.set_result(cluster_messages.encode(report))
        else:
            self.sent.append(future)
        return future

    async def run(self, function: object, *arguments: object, workers: list[str], on_error: str) -> None:
        assert on_error == "ignore"
        self.ran.append((function, *arguments, sorted(workers)))

    async def restart_workers(self, addresses: list[str], timeout: float) -> None:
        if not timeout or addresses == ["tcp://b:1"]:
            raise ValueError("Restarting workers requires a nanny")
        self.restarted += addresses

    def as_current(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    async def close(self, _timeout: float) -> None:
        self.is_closed = True


class Harness:
    """A `Scheduler` with a fake client."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.posted: list[tuple[int, int, bool]] = []
        self.messages: list[str] = []
        (folder / "assets").mkdir()
        (folder / "store").mkdir()
        setup = cluster_messages.ClusterSetup(program_version(), python_version(), (BUILDER,), (Platform("linux"),))
        self.scheduler = scheduler.Scheduler(
            Place("dask", "tcp://127.0.0.1:1"),
            cluster_messages.BlobStoreAddress(str(folder / "store"), "trusted"),
            setup,
            (str(folder / "assets"),),
            lambda task, result, stays: self.posted.append((task.order.run_key, result.outcome, stays)),
            lambda: None,
            self.messages.append,
        )
        self.wait_for_workers(2)

    @property
    def client(self) -> FakeClient:
        return FakeClient.made[-1]

    def wait_for_workers(self, count: int) -> None:
        until(lambda: sum(bool(each.builders) for each in self.scheduler.workers.values()) == count, f"{count} workers", 10.0)

    def send(self, key: int) -> FakeFuture:
        path = self.folder / "assets" / f"{key}.png"
        path.write_text("x")
        order = ProcessOrder(
            key, "paint", str(self.folder / "assets"), path.name, bytes(16), "linux", "paint", "{}", "", 0, False,
            stat_key(path.stat()),
            bytes(32), str(self.folder / "staging" / str(key)), 60.0, 0,
        )  # fmt: skip
        before = len(self.client.sent)
        self.scheduler.send(RemoteTask(order, BUILDER, (), (), 0, f"job-{key}"))
        until(lambda: len(self.client.sent) > before, "a sent task", 10.0)
        return self.client.sent[-1]

    def end(self, future: FakeFuture, answer: RunResult | Exception) -> None:
        if isinstance(answer, Exception):
            self.client.loop.call_soon_threadsafe(future.answer.set_exception, answer)
        else:
            manifest = b"i" + cluster_messages.encode(cluster_messages.TaskAnswer(answer, address="tcp://a:1"))
            self.client.loop.call_soon_threadsafe(future.answer.set_result, manifest)

    def wait_for_results(self, count: int = 1) -> None:
        until(lambda: len(self.posted) >= count, f"{count} results", 10.0)


@pytest.fixture
def harness(tmp_path):
    FakeClient.made, others = [], set(threading.enumerate())
    with (
        mock.patch("distributed.Client", FakeClient),
        mock.patch("distributed.wait", lambda futures: asyncio.wait([each.answer for each in futures])),
        mock.patch.multiple(scheduler, _PULSE_S=0.01, _AGAIN_S=0.01, _MOST_AGAIN_S=0.01),
    ):
        found = Harness(tmp_path)
        yield found
        found.scheduler.close()
    assert not any(thread.name == "aptui-cluster" for thread in threading.enumerate() if thread not in others)


def test_cancelled_job_is_stopped_on_the_cluster_at_once(harness):
    future = harness.send(1)

    harness.scheduler.cancel([1])
    harness.wait_for_results()
    until(lambda: harness.client.ran, "a message to the workers", 10.0)

    assert harness.posted == [(1, Outcome.RETURNED, False)]
    assert harness.client.ran == [(cluster_task.cancel, [future.key], ["tcp://a:1", "tcp://b:1"])]
    assert future.is_released


def test_running_jobs_are_stopped_on_the_cluster_when_the_engine_ends(harness):
    future = harness.send(1)

    harness.scheduler.close()

    assert harness.client.ran == [(cluster_task.cancel, [future.key], ["tcp://a:1", "tcp://b:1"])]
    assert harness.client.is_closed
    assert not harness.posted


def test_job_that_kills_cluster_workers_is_lost_and_then_runs_locally(harness):
    future = harness.send(1)

    harness.end(future, KilledWorker("job-1"))
    harness.wait_for_results()

    assert harness.posted == [(1, Outcome.LOST, True)]
    assert any("the cluster did not run a job of" in text and "KilledWorker" in text for text in harness.messages)


def test_time_limit_applies_on_the_cluster(harness):
    future = harness.send(1)

    harness.end(future, RunResult(1, Outcome.FAILED, "time limit of 60 s exceeded"))
    harness.wait_for_results()

    assert harness.posted == [(1, Outcome.FAILED, False)]
    assert harness.scheduler.runs == {"tcp://a:1": 1}


def test_worker_that_left_is_reported_and_its_number_is_not_reused(harness):
    numbers = {address: worker.number for address, worker in harness.scheduler.workers.items()}

    harness.client.workers = {"tcp://b:1": 2, "tcp://c:1": 2}
    until(lambda: "tcp://c:1" in harness.scheduler.workers and "tcp://a:1" not in harness.scheduler.workers, "other workers", 10.0)

    lost = numbers["tcp://a:1"]
    assert f"workers have left the cluster: {lost} on 'box'; 2 are left" in harness.messages
    assert harness.scheduler.workers["tcp://b:1"].number == numbers["tcp://b:1"]
    assert harness.scheduler.workers["tcp://c:1"].number not in numbers.values()


def test_lost_scheduler_returns_all_jobs_and_is_reconnected(harness):
    harness.send(1)

    harness.client.status = "closed"
    harness.wait_for_results()
    until(lambda: len(FakeClient.made) > 1, "another connection", 10.0)
    harness.wait_for_workers(2)

    assert harness.posted == [(1, Outcome.RETURNED, False)]
    assert len([text for text in harness.messages if "jobs run on this machine instead" in text]) == 1
    assert harness.scheduler.is_connected


def test_hanging_scheduler_connection_returns_its_jobs_to_the_pool(harness):
    """Dask's client may try to connect forever, so waiting for its closing and its answers has a timeout."""
    is_over = threading.Event()

    async def never(*_arguments: object, **_more: object) -> None:
        while not is_over.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.02)

    harness.send(1)
    with mock.patch.multiple(scheduler, _CLOSE_S=0.05, _PULSE_LIMIT_S=0.05, RECONNECT_TIMEOUT_S=0.2):
        harness.client.close = harness.client.identity = never
        harness.wait_for_results()
        until(lambda: len(FakeClient.made) > 1, "another connection", 10.0)
        harness.wait_for_workers(2)
        is_over.set()

    assert harness.posted == [(1, Outcome.RETURNED, False)]


def test_job_runs_locally_after_all_its_workers_were_lost_twice(harness):
    harness.send(1)
    harness.client.workers = {"tcp://c:1": 2}
    harness.wait_for_results()
    harness.wait_for_workers(1)
    harness.send(1)
    harness.client.workers = {"tcp://d:1": 2}
    harness.wait_for_results(2)

    assert harness.posted == [(1, Outcome.RETURNED, False), (1, Outcome.LOST, True)]


def test_dask_retries_a_job_while_one_of_its_workers_remains(harness):
    future = harness.send(1)
    before = harness.scheduler.workers
    harness.client.workers = {"tcp://b:1": 2, "tcp://c:1": 2}
    until(lambda: harness.scheduler.workers.keys() != before.keys(), "another worker", 10.0)

    harness.end(future, RunResult(1, Outcome.CANCELLED))
    harness.wait_for_results()

    assert harness.posted == [(1, Outcome.CANCELLED, False)]


def test_cluster_worker_without_a_nanny_cannot_be_restarted(harness):
    harness.scheduler.restart("tcp://a:1")
    harness.scheduler.restart("tcp://b:1")
    until(lambda: harness.messages, "the report that the worker was not restarted", 10.0)

    assert harness.client.restarted == ["tcp://a:1"]
    assert "was not restarted: ValueError: Restarting workers requires a nanny" in harness.messages[0]


def test_answer_published_under_the_task_topic_is_not_fetched_again(harness):
    future = harness.send(1)
    task = cluster_messages.decode(future.data, cluster_messages.Task)
    manifest = b"i" + cluster_messages.encode(cluster_messages.TaskAnswer(RunResult(1, Outcome.CANCELLED), address="tcp://b:1"))

    harness.client.loop.call_soon_threadsafe(harness.client.subscribers[task.topic], (0.0, (task.name, manifest)))
    harness.wait_for_results()

    assert harness.posted == [(1, Outcome.CANCELLED, False)]
    assert not future.answer.done()
    assert future.is_released


def test_announcements_of_other_tasks_are_ignored(harness):
    future = harness.send(1)
    topic = cluster_messages.decode(future.data, cluster_messages.Task).topic

    harness.client.loop.call_soon_threadsafe(harness.client.subscribers[topic], (0.0, ("aptui-0123-job-1", b"")))
    harness.end(future, RunResult(1, Outcome.CANCELLED))
    harness.wait_for_results()

    assert harness.posted == [(1, Outcome.CANCELLED, False)]


pytest.importorskip("distributed")


class FakeNanny:
    """A worker process whose start fails if `troubles` has an error for it.

    Otherwise the worker process joins its scheduler. After that it ends at once, as if its scheduler were gone.
    """

    troubles: list[Exception | None]
    ended: asyncio.Event
    count = 0

    def __init__(self) -> None:
        self.nthreads, self.worker_address, self.is_closed = 2, "tls://here:1", False
        FakeNanny.count += 1

    def __await__(self) -> Generator[Any, None, FakeNanny]:
        return self._start().__await__()

    async def _start(self) -> FakeNanny:
        trouble = FakeNanny.troubles.pop(0)
        if trouble is not None:
            raise trouble
        return self

    async def finished(self) -> None:
        if not FakeNanny.troubles:
            FakeNanny.ended.set()  # the verb `worker` waits for this event, then ends

    async def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def arguments():
    parser = ArgumentParser()
    verbs.worker_arguments(parser)
    FakeNanny.count = 0
    with (
        mock.patch.object(verbs, "_nanny", side_effect=lambda *_: FakeNanny()),
        mock.patch.multiple(verbs, _AGAIN_S=0.001, _MOST_AGAIN_S=0.002),
    ):
        yield parser.parse_args(["--scheduler", "tcp://127.0.0.1:1"])


@pytest.mark.parametrize("text", ["inf", "nan", "much"])
def test_worker_refuses_memory_that_is_not_a_number_of_gib(text, capsys):
    parser = ArgumentParser()
    verbs.worker_arguments(parser)

    with pytest.raises(SystemExit):
        parser.parse_args(["--scheduler", "tcp://127.0.0.1:1", "--memory", text])
    assert f"'{text}' is not a number of GiB" in capsys.readouterr().err


async def work(arguments, troubles: list[Exception | None]) -> int:
    FakeNanny.troubles, FakeNanny.ended = troubles, asyncio.Event()
    with mock.patch.object(verbs.asyncio, "Event", return_value=FakeNanny.ended):
        return await verbs._work(arguments)


def test_worker_reconnects_to_a_returned_scheduler(arguments, capsys):
    assert asyncio.run(work(arguments, [None, OSError("refused"), TimeoutError(), None])) == 0

    assert FakeNanny.count == 4
    assert capsys.readouterr().err.count("connecting again") == 3


def test_worker_that_cannot_join_reports_why_and_ends(arguments):
    with pytest.raises(HostError, match="cannot join the cluster: refused"):
        asyncio.run(work(arguments, [OSError("refused")]))

    assert FakeNanny.count == 1

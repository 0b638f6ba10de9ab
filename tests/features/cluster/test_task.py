from __future__ import annotations

import hashlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

import pytest

from aptui.core.orders import Outcome, ProcessOrder, RunResult
from aptui.features.cluster import cluster_messages
from aptui.features.cluster import task as cluster_task
from aptui.features.cluster.cluster_messages import ClusterSetup
from aptui.features.cluster.environment import program_version, python_version
from aptui.features.sharing.stores.folder_store import FolderStore
from aptui.shared.errors import HostError


@dataclass
class FakeBench:
    """Simulates a `Bench`: calls `during` instead of running a job."""

    jobs: str
    during: Callable[[], None] = lambda: None
    orders: list[ProcessOrder] = field(default_factory=list)
    cancelled: list[int] = field(default_factory=list)

    def run(self, order: ProcessOrder, note_key: Callable[[int], None]) -> RunResult:
        self.orders.append(order)
        self.during()
        note_key(41)
        return RunResult(order.run_key, Outcome.CANCELLED if self.cancelled else Outcome.SUCCEEDED)

    def cancel(self, key: int) -> None:
        self.cancelled.append(key)


class Harness:
    """The state of a cluster worker that runs jobs in a `FakeBench`, and one task for this worker."""

    def __init__(self, folder: Path) -> None:
        (folder / "jobs").mkdir()
        (folder / "store").mkdir()
        self.bench = FakeBench(str(folder / "jobs"))
        self.store = FolderStore(str(folder / "store"))
        source = folder / "a.png"
        source.write_bytes(b"x")
        digest = hashlib.sha256(b"x").digest()
        self.store.put_blob(digest.hex(), str(source))
        order = ProcessOrder(
            7, "paint", "/far/assets", "a.png", bytes(16), "linux", "paint", "{}", "", 0, False, (1, 2, 3, 4), digest,
            "/far/staging/7", 60.0, 0
        )  # fmt: skip
        task = cluster_messages.Task(
            order,
            (b"", 0),
            cluster_messages.BlobStoreAddress("", "trusted"),
            ("/far/assets",),
            (cluster_messages.TaskInput(0, "a.png", digest, 1, 0),),
            "job-7",
        )
        self.data = cluster_messages.encode(task)

    def run(self) -> RunResult:
        answer = cluster_messages.unpack_record(cluster_task.run(self.data), cluster_messages.TaskAnswer, self.store)
        assert answer.result is not None, answer.refusal
        return answer.result


@pytest.fixture
def harness(tmp_path):
    found, state = Harness(tmp_path), cluster_task._WorkerState()
    with (
        mock.patch.object(cluster_task, "_state", state),
        mock.patch.object(state, "store", return_value=found.store),
        mock.patch.object(state, "bench", return_value=found.bench),
    ):
        yield found
        assert not state.jobs
        assert not list(Path(found.bench.jobs).iterdir())


def test_cluster_task_runs_in_the_folder_of_its_files(harness):
    result = harness.run()

    assert (result.run_key, result.outcome) == (7, Outcome.SUCCEEDED)
    assert harness.bench.orders[0].root.startswith(harness.bench.jobs)


def test_cluster_task_cancelled_before_its_start_does_not_run(harness):
    cluster_task.cancel(["another", "job-7"])

    assert harness.run().outcome == Outcome.CANCELLED
    assert not harness.bench.orders


def test_cluster_task_cancelled_while_fetching_files_does_not_run(harness):
    get_blob = harness.store.get_blob

    def slow(digest: str, target: str, size: int) -> bool:
        cluster_task.cancel(["job-7"])
        return get_blob(digest, target, size)

    with mock.patch.object(harness.store, "get_blob", slow):
        assert harness.run().outcome == Outcome.CANCELLED
    assert not harness.bench.orders


def test_cluster_task_cancelled_at_its_start_is_killed(harness):
    harness.bench.during = lambda: cluster_task.cancel(["job-7"])

    assert harness.run().outcome == Outcome.CANCELLED
    assert harness.bench.cancelled == [41]


def test_cluster_worker_stores_a_limited_number_of_cancelled_task_names(harness):
    cluster_task.cancel([f"job-{number}" for number in range(5000)])

    assert len(cluster_task._state.cancelled_names) <= cluster_task._MOST_CANCELLED
    assert "job-4999" in cluster_task._state.cancelled_names


@pytest.mark.real
def test_run_in_ended_worker_processes_is_refused(tmp_path):
    """A task may still fetch its files when other setups replace the worker processes of its setup."""
    setup = ClusterSetup(program_version(), python_version(), (), ())
    bench = cluster_task.Bench(setup, str(tmp_path), 1, mock.Mock())
    bench.close()

    with ThreadPoolExecutor() as threads:
        answer = threads.submit(bench.run, mock.Mock(run_key=1), mock.Mock())
        try:
            with pytest.raises(HostError, match="the worker ends"):
                answer.result(5)
        finally:
            for other in bench._answers.values():
                other.cancel()


def test_task_that_starts_while_it_is_cancelled_does_not_run(harness):
    results = []

    class Jobs(dict):
        def get(self, name):
            found = super().get(name)
            if found is None:
                results.append(harness.run())
            return found

    cluster_task._state.jobs = Jobs()

    cluster_task.cancel(["job-7"])

    assert [result.outcome for result in results] == [Outcome.CANCELLED]
    assert harness.bench.orders == []

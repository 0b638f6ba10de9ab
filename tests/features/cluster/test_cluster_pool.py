from __future__ import annotations

import selectors
from collections import Counter
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import aptui
from aptui.config.settings import ClusterSettings as Place
from aptui.core.notices import LogRecord
from aptui.core.orders import Outcome, ProcessOrder, Read, RunResult, StagedProduct
from aptui.core.project import Builder, BuilderKind, Platform, UndeclaredReads
from aptui.engine.pool.worker_messages import make_ended
from aptui.features.cluster import cluster_messages, cluster_pool, environment
from aptui.features.cluster import scheduler as cluster_scheduler
from aptui.features.cluster.environment import difference
from aptui.features.cluster.job_inputs import InputElsewhere, InputOutdated, InputTransfer, can_travel, is_movable
from aptui.features.cluster.scheduler import FIRST_NUMBER, RemoteWorker
from aptui.features.sharing.stores.folder_store import FolderStore
from aptui.shared.result_store import Mismatch
from aptui.worker.file_access import stat_key


class FakeScheduler:
    """Simulates the scheduler: stores the sent tasks. The test fills `workers`."""

    def __init__(self, *arguments: object) -> None:
        self.post = arguments[4]
        self.workers: dict[str, RemoteWorker] = {}
        self.sent: list = []
        self.cancelled: list[int] = []
        self.restarted: list[str] = []
        self.runs: Counter[str] = Counter()
        self.is_over, self.is_connected, self.since_s = False, True, 0.0

    def send(self, task: object) -> None:
        self.sent.append(task)

    def cancel(self, run_keys) -> None:
        self.cancelled += run_keys

    def restart(self, address: str) -> None:
        self.restarted.append(address)

    def close(self) -> None:
        pass


class Harness:
    """A pool with a simulated cluster and no local workers."""

    def __init__(self, folder: Path, **place: object) -> None:
        self.folder, self.now_s, self.results, self.messages = folder, 0.0, [], []
        (folder / "assets").mkdir()
        self.selector = selectors.DefaultSelector()
        client = cluster_pool.ClusterClient(
            Place("dask", "tcp://127.0.0.1:1", **place),
            cluster_messages.BlobStoreAddress(str(folder), "trusted"),
            (str(folder / "assets"),),
            (),
            self.inputs,
            self.messages.append,
        )
        builders = [Builder(name.encode().ljust(16), name, BuilderKind.COMMAND) for name in ("paint", "bake")]
        with mock.patch.object(cluster_pool, "Scheduler", FakeScheduler):
            self.pool = cluster_pool.ClusterPool(
                builders, [Platform("linux")], 0, self.selector, self.results.extend, cluster=client, clock=lambda: self.now_s
            )
        self.scheduler: Any = self.pool._scheduler

    def inputs(self, order: ProcessOrder) -> tuple[cluster_messages.TaskInput, ...] | None:
        return (cluster_messages.TaskInput(0, order.rel, bytes(32), 1, 0),) if "bound" not in order.rel else None

    def worker(self, address: str, slots: int = 1, **resources: float) -> None:
        builders = frozenset({"paint", "bake"})
        number = FIRST_NUMBER + 1 + len(self.scheduler.workers)
        worker = RemoteWorker(address, slots, resources, host="box", builders=builders, number=number)
        self.scheduler.workers = {**self.scheduler.workers, address: worker}

    def order(self, key: int, builder: str = "paint", rel: str = "") -> ProcessOrder:
        rel = rel or f"{key}.png"
        path = self.folder / "assets" / rel
        path.write_text("x")
        return ProcessOrder(
            key, builder, str(self.folder / "assets"), rel, bytes(16), "linux", builder, "{}", "", 0, False,
            stat_key(path.stat()), bytes(32),
            str(self.folder / "staging" / str(key)), 60.0, 0,
        )  # fmt: skip

    def send(self, *orders: ProcessOrder) -> None:
        for order in orders:
            self.pool.send([order])

    def keys_sent(self) -> list[int]:
        return [task.order.run_key for task in self.scheduler.sent]

    def answer(self, key: int, outcome: Outcome, *, stays: bool = False) -> None:
        task = next(task for task in self.scheduler.sent if task.order.run_key == key)
        self.scheduler.post(task, make_ended(task.order, outcome), stays)
        self.pool.poll(self.now_s)

    def outcomes(self) -> dict[int, int]:
        return {result.run_key: result.outcome for result in self.results}


@pytest.fixture
def harness(tmp_path):
    found = Harness(tmp_path, needs=(("bake", ("gpu",)),), at_most=(("paint", 2),), tags=())
    yield found
    found.pool.close()
    found.selector.close()


def test_cluster_jobs_of_a_builder_are_limited(harness):
    harness.worker("a", slots=8)
    harness.send(*(harness.order(key) for key in (1, 2, 3)))

    assert harness.keys_sent() == [1, 2]

    harness.answer(1, Outcome.SUCCEEDED)

    assert harness.keys_sent() == [1, 2, 3]


@pytest.mark.parametrize(("duration_ms", "under_way"), [(0, 40), (100, 32), (600, 12), (60_000, 10)])
def test_cluster_queues_more_jobs_in_advance_if_jobs_are_short(harness, duration_ms, under_way):
    harness.worker("a", slots=8, gpu=1)
    orders = [harness.order(key, "bake") for key in range(1, 60)]
    harness.send(*orders)
    before = len(harness.scheduler.sent)
    done = RunResult(1, Outcome.SUCCEEDED, duration_ms=duration_ms)

    harness.scheduler.post(harness.scheduler.sent[0], done, False)
    harness.pool.poll(harness.now_s)

    assert before == 10
    assert len(harness.scheduler.sent) - 1 == under_way


def test_job_with_a_tag_fails_if_no_worker_with_this_tag_joins_in_time(harness):
    harness.worker("a")
    harness.send(harness.order(1, "bake"))
    harness.pool.poll(harness.now_s)
    assert not harness.results
    harness.now_s = 59.0
    harness.worker("b", gpu=1)
    harness.pool.poll(harness.now_s)
    assert harness.keys_sent() == [1]
    harness.scheduler.workers = {}
    harness.send(harness.order(2, "bake"))
    harness.now_s = 120.0

    harness.pool.poll(harness.now_s)

    assert harness.outcomes() == {2: Outcome.FAILED}
    assert "'gpu'" in harness.results[0].error


def test_jobs_sent_to_a_cluster_without_workers_are_returned(harness):
    harness.worker("a", slots=8)
    harness.send(*(harness.order(key) for key in (1, 2, 3)))
    harness.scheduler.workers = {}

    harness.pool.poll(harness.now_s)

    assert harness.outcomes() == {3: Outcome.RETURNED}


def test_sent_jobs_are_returned_when_the_scheduler_thread_has_ended(harness):
    harness.worker("a", slots=8)
    harness.send(harness.order(1))
    harness.scheduler.workers, harness.scheduler.is_over = {}, True

    harness.pool.poll(harness.now_s)

    assert harness.outcomes() == {1: Outcome.RETURNED}


def test_job_that_the_cluster_cannot_run_is_run_locally_the_next_time(harness):
    harness.worker("a", slots=8)
    harness.send(harness.order(1, rel="same.png"))
    harness.answer(1, Outcome.RETURNED, stays=True)

    harness.send(harness.order(2, rel="same.png"))

    assert harness.keys_sent() == [1]
    assert not harness.pool.is_idle


def test_late_result_of_a_cancelled_run_is_dropped(harness):
    harness.worker("a")
    harness.send(harness.order(1))

    harness.pool.kill([1])
    harness.pool.poll(harness.now_s)
    harness.answer(1, Outcome.SUCCEEDED)

    assert [(result.run_key, result.outcome) for result in harness.results] == [(1, Outcome.CANCELLED)]
    assert harness.scheduler.cancelled == [1]
    assert harness.pool.is_idle


def test_job_with_files_that_the_cluster_cannot_name_runs_on_this_machine(harness):
    harness.worker("a", slots=8)

    harness.send(harness.order(1, rel="bound.png"))

    assert not harness.keys_sent()


def test_workers_of_the_cluster_are_shown(harness):
    harness.worker("tcp://a:1", slots=3)
    harness.scheduler.runs["tcp://a:1"] = 7

    shown = [(each.number, each.state, each.job, each.runs) for each in harness.pool.workers()]

    assert shown == [
        (1000, "idle", "cluster of 1", 0),
        (1001, "idle", "3 slots on box", 7),
    ]


def test_cluster_state_is_starting_before_a_worker_joins_and_lost_if_disconnected(harness):
    states = [harness.pool.workers()[0].state]
    harness.scheduler.is_connected = False
    states.append(harness.pool.workers()[0].state)

    assert states == ["starting", "lost"]


def test_worker_of_the_cluster_is_restarted_by_its_number(harness):
    harness.worker("tcp://a:1")
    harness.worker("tcp://b:1")

    assert harness.pool.restart_worker(1002)
    assert harness.scheduler.restarted == ["tcp://b:1"]
    assert not harness.pool.restart_worker(1000)


def test_configured_share_limits_the_number_of_jobs_sent_to_the_cluster(tmp_path):
    harness = Harness(tmp_path, share=2)
    harness.worker("a", slots=8)

    harness.send(*(harness.order(key) for key in (1, 2, 3)))

    assert harness.keys_sent() == [1, 2]
    assert harness.pool.free == 0
    harness.pool.close()
    harness.selector.close()


# ----------------------------------------------------------------------------------------- messages, toolchains and products


def test_long_answers_of_the_cluster_are_transferred_through_the_store(tmp_path):
    store = FolderStore(str(tmp_path))
    short = cluster_messages.TaskAnswer(RunResult(1, Outcome.SUCCEEDED))
    long = cluster_messages.TaskAnswer(
        RunResult(1, Outcome.SUCCEEDED, log=tuple(LogRecord(1, "w", f"line {number}", 0) for number in range(500)))
    )

    manifests = [cluster_messages.pack_record(answer, store) for answer in (short, long)]

    assert all(len(manifest) <= cluster_messages.MANIFEST_BYTES for manifest in manifests)
    assert [cluster_messages.unpack_record(manifest, cluster_messages.TaskAnswer, store) for manifest in manifests] == [short, long]


def test_token_of_the_store_comes_from_the_environment(monkeypatch):
    monkeypatch.setenv("APTUI_CACHE_TOKEN", "sesame")
    with mock.patch("aptui.features.sharing.stores.remote_stores.HttpStore") as store:
        cluster_messages.open_store(cluster_messages.BlobStoreAddress("https://store.example", "trusted"))

    assert store.call_args.kwargs["token"] == "sesame"


def test_workers_with_different_toolchains_are_recognized():
    ours = (("code", "a" * 64), ("library Pillow", "13.0.0"))

    assert difference(ours, ours) == ""
    assert (
        difference(ours, (("code", "a" * 64), ("library Pillow", "12.0.0")))
        == "library Pillow is 12.0.0 on the worker and 13.0.0 on this machine"
    )
    assert "absent on the worker" in difference(ours, (("code", "a" * 64),))


def test_program_version_depends_only_on_the_code_that_runs_jobs(tmp_path, monkeypatch):
    package = Path(environment.aptui.__file__).parent
    for path in package.rglob("*.py"):
        copied = tmp_path / path.relative_to(package)
        copied.parent.mkdir(parents=True, exist_ok=True)
        copied.write_bytes(path.read_bytes())
    monkeypatch.setattr(environment.aptui, "__file__", str(tmp_path / "__init__.py"))
    version = environment.program_version.__wrapped__
    found = [version()]
    for name in ("features/cluster/cluster_pool.py", "features/cluster/task.py", "worker/worker_main.py"):
        assert (tmp_path / name).is_file()
        (tmp_path / name).write_text("changed")
        found.append(version())

    assert found[0] == found[1]
    assert len(set(found)) == 3


def test_jobs_that_need_local_folders_or_programs_run_locally(harness):
    order = harness.order(1)
    bound = ProcessOrder(*(getattr(order, name) if name != "params" else f'{{"to":"{order.root}/a"}}' for name in order.__slots__))

    assert can_travel(order, [order.root])
    assert not can_travel(bound, [order.root])
    assert not is_movable(Builder(bytes(16), "b", BuilderKind.COMMAND), ["./tools/pack"])


@pytest.fixture
def transfer(tmp_path):
    found = InputTransfer(cluster_messages.BlobStoreAddress(str(tmp_path), "trusted"), (str(tmp_path / "assets"),))
    yield found
    found.close()


BUILDER = Builder(bytes(16), "paint", BuilderKind.COMMAND, undeclared_reads=UndeclaredReads.WARN)


def test_cluster_answer_is_refused_if_a_file_missing_on_the_cluster_exists_locally(harness, transfer):
    order = harness.order(1)
    (harness.folder / "assets" / "there.inc").write_text("x")
    reads = tuple(Read(f"{order.root}/{name}", "b.py:1") for name in ("nowhere.inc", "there.inc"))

    with pytest.raises(InputElsewhere, match=r"there\.inc"):
        transfer.download(order, BUILDER, RunResult(1, Outcome.SUCCEEDED, reads=reads))

    assert transfer.download(order, BUILDER, RunResult(1, Outcome.SUCCEEDED, reads=reads[:1])).reads == ()


def test_failed_cluster_job_runs_locally_unless_it_exceeded_its_time_limit(harness, transfer):
    order = harness.order(1)

    with pytest.raises(InputElsewhere):
        transfer.download(order, BUILDER, RunResult(1, Outcome.FAILED, "no such library"))

    assert transfer.download(order, BUILDER, RunResult(1, Outcome.FAILED, "time limit of 60 s exceeded")).outcome == Outcome.FAILED


def test_cluster_answer_is_stale_if_the_source_changed_during_the_run(harness, transfer):
    order = harness.order(1)
    (harness.folder / "assets" / order.rel).write_text("newer")

    assert transfer.download(order, BUILDER, RunResult(1, Outcome.SUCCEEDED)).outcome == Outcome.STALE


def test_job_whose_source_changed_before_sending_is_outdated(harness, transfer):
    order = harness.order(1)

    with pytest.raises(InputOutdated):
        transfer.upload([cluster_messages.TaskInput(0, order.rel, bytes(32), 1, 0)])


def test_products_from_the_cluster_are_verified(harness, transfer):
    order = harness.order(1)
    source = harness.folder / "made"
    source.write_bytes(b"right")
    digest, size = cluster_messages.put_bytes(transfer.store, source.read_bytes())
    Path(transfer.store.blob_path(digest.hex())).write_bytes(b"wrong")
    product = StagedProduct("", "made", 0, b"", 1, digest, 0, size)

    with pytest.raises(Mismatch):
        transfer.download(order, BUILDER, RunResult(1, Outcome.SUCCEEDED, products=(product,)))


def test_executable_bit_of_products_from_the_cluster_is_kept(harness, transfer):
    digest, size = cluster_messages.put_bytes(transfer.store, b"#!/bin/sh")
    made = [
        StagedProduct("", name, at, b"", 1, digest, 0, size, is_executable=name == "tool")
        for at, name in enumerate(["tool", "text"])
    ]

    taken = transfer.download(harness.order(1), BUILDER, RunResult(1, Outcome.SUCCEEDED, products=tuple(made)))

    assert [bool(Path(product.staged).stat().st_mode & 0o111) for product in taken.products] == [True, False]


@pytest.fixture
def scheduler(tmp_path):
    messages: list[str] = []
    setup = cluster_messages.ClusterSetup("1.0 (abc)", "3.11", (), ())
    with mock.patch.object(cluster_scheduler.threading, "Thread"):
        place = Place("dask", "tcp://127.0.0.1:1")
        found = cluster_scheduler.Scheduler(
            place, cluster_messages.BlobStoreAddress(str(tmp_path), "trusted"), setup, (), mock.Mock(), mock.Mock(), messages.append
        )
    found._toolchains = {"paint": (("code", "a"),), "bake": (("code", "b"),)}
    yield found, messages
    found._loop.close()


def test_worker_with_different_builder_code_gets_no_jobs_of_this_builder(scheduler):
    found, messages = scheduler
    report = cluster_messages.WorkerReport(
        "1.0 (abc)", "3.11", "host", 7, (("paint", (("code", "a"),)), ("bake", (("code", "c"),)))
    )

    assert [list(found._fit(report)) for _ in range(2)] == [["paint"], ["paint"]]
    assert messages == ["the worker on 'host' gets no jobs of builder 'bake': code is c on the worker and b on this machine"]


@pytest.mark.parametrize(("version", "python"), [("1.0 (abd)", "3.11"), ("1.0 (abc)", "3.12")])
def test_worker_with_another_aptui_or_python_gets_no_jobs(scheduler, version, python):
    found, messages = scheduler
    toolchains = (("paint", (("code", "a"),)), ("bake", (("code", "b"),)))

    assert list(found._fit(cluster_messages.WorkerReport(version, python, "host", 7, toolchains))) == []
    assert len(messages) == 1


def test_program_version_covers_all_modules_that_jobs_use():
    files = {str(path.relative_to(Path(aptui.__file__).parent)) for path in environment.decisive_files(Path(aptui.__file__).parent)}

    assert {
        "worker/builder_run.py",
        "worker/commands/command_job.py",
        "worker/worker_main.py",
        "features/cluster/task.py",
        "core/run_report.py",
        "sdk/__init__.py",
    } <= files


def test_toolchain_difference_names_an_environment_variable_that_differs(monkeypatch):
    builder = Builder(bytes(16), "b", BuilderKind.COMMAND, variables=(("LEVEL", "digest of the engine"),))
    monkeypatch.setenv("LEVEL", "1")
    ours = environment.toolchains_of([builder])["b"]
    monkeypatch.setenv("LEVEL", "2")
    theirs = environment.toolchains_of([builder])["b"]

    assert environment.difference(ours, theirs).startswith("variable LEVEL is ")
    assert not environment.difference(ours, ours)

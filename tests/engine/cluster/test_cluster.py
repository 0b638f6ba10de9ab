from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
from cluster_harness import Proxy, loopback_cluster
from disk_project import HOST, Project, Ran

pytest.importorskip("distributed")

from waiting import until

from aptui.features.cluster import cluster_pool, scheduler

pytestmark = pytest.mark.real

BUILDER = """
import os, time
from aptui.sdk import CreateJobsResponse, JobDescriptor, JobProduct, ProcessJobResponse, Result, SourceDependency

class Slow:
    name = "slow"
    patterns = ("*.txt",)

    def create_jobs(self, request):
        jobs = [JobDescriptor("slow", name) for name in [each.id for each in request.platforms]]
        return CreateJobsResponse(Result.SUCCESS, jobs, [SourceDependency("shared/palette.inc")])

    def process_job(self, request):
        time.sleep(float(request.params.get("sleep", 0.1)))
        with open(os.path.join(request.scan_folder, "shared/palette.inc")) as file:
            palette = file.read()
        extra = ""
        if request.params.get("peeks"):
            try:
                with open(os.path.join(request.scan_folder, "undeclared.inc")) as file:
                    extra = file.read()
            except FileNotFoundError:
                extra = "nothing"
        stem = os.path.basename(request.source)[:-4]
        with open(request.full_path) as source, open(os.path.join(request.products_dir, stem + ".out"), "w") as target:
            target.write(source.read() + palette + extra)
        request.log.info(f"made of {request.full_path}")
        return ProcessJobResponse(Result.SUCCESS, [JobProduct(stem + ".out", 0)])
"""


@pytest.fixture(scope="module")
def workers(tmp_path_factory):
    """A cluster of three workers. One test kills a worker; two workers are enough for the other tests."""
    with loopback_cluster(tmp_path_factory.mktemp("cluster"), 3) as found:
        yield found


def project_at(root: Path, address: str, *, count: int = 12, **params: object) -> Project:
    listed = ", ".join(f"{key}: {value}" for key, value in params.items())
    (root / "store").mkdir(parents=True)
    project = Project(
        root,
        "scan_folders:\n  - {name: assets, path: assets}\n"
        f"builders:\n  - {{name: slow, uses: slow, params: {{{listed}}}}}\n"
        f"cache: Cache\nlocal_store: {{enabled: false}}\n"
        f"pool: {{kind: dask, scheduler: '{address}', insecure: true, store: store}}\n",
    )
    project.write("builders/slow.py", BUILDER)
    project.edit({"assets/shared/palette.inc": "red green blue", "assets/undeclared.inc": "surprise"})
    for number in range(count):
        project.write(f"assets/s{number}.txt", f"source {number} ")
    return project


@contextlib.contextmanager
def watched(done: dict[str, int]) -> Iterator[None]:
    """Engines started in the block wait until the cluster's workers are ready.

    `done` counts the jobs of each builder on the cluster.
    """
    plain_close, plain_init = cluster_pool.ClusterPool.close, cluster_pool.ClusterPool.__init__

    def close(pool, *arguments):
        done.update(pool._runs)
        plain_close(pool, *arguments)

    def init(pool, *arguments, **more):
        plain_init(pool, *arguments, **more)
        until(
            lambda: len([each for each in pool._scheduler.workers.values() if each.builders]) >= 2,
            "workers that accept jobs",
        )

    with mock.patch.object(cluster_pool.ClusterPool, "close", close), mock.patch.object(cluster_pool.ClusterPool, "__init__", init):
        yield


def run(project: Project, done: dict[str, int]) -> Ran:
    with watched(done):
        return project.engine_run(workers=1)


def check_like_local(project: Project, tmp_path: Path) -> None:
    project.check_rest()
    statuses, products = project.statuses(), project.products()
    clean = tmp_path / "clean"
    project.engine_run(sets=[f"cache={clean}", "pool.kind=local"], workers=4)
    assert project.statuses(clean) == statuses
    assert project.products(clean) == products
    assert set(statuses.values()) == {"completed"}


def test_cluster_makes_the_same_products_as_this_machine(workers, tmp_path):
    project, done = project_at(tmp_path / "p", workers.address), {}

    ran = run(project, done)

    assert done["slow"] >= 4
    assert all(count == 1 for count in ran.runs.values())
    logs = [path.read_text() for path in (project.cache / ".aptui/logs").rglob("s*.txt-*.log")]
    assert len(logs) == 12
    assert all(f"made of {project.root}/assets/s" in text for text in logs)
    check_like_local(project, tmp_path)


def test_cluster_job_with_undeclared_reads_runs_again_on_this_machine(workers, tmp_path):
    project, done = project_at(tmp_path / "p", workers.address, count=6, peeks="true"), {}

    run(project, done)

    assert not done
    assert all("surprise" in text for text in project.texts().values())


def during(ran: list[Ran], project: Project, done: dict[str, int], trouble) -> None:
    """Run an engine, and call `trouble` after the first products exist."""
    thread = threading.Thread(target=lambda: ran.append(project.engine_run(workers=1)), daemon=True)
    with watched(done):  # entered outside the thread: the patched methods must be restored even if the thread does not end
        thread.start()
        until(lambda: len(list((project.cache / HOST).glob("*.out"))) >= 3, "first products")
        trouble()
        thread.join(90.0)  # Dask tries for 30 s to reach a silent scheduler
        if thread.is_alive():
            faulthandler.dump_traceback()
            pytest.fail("the engine goes on; its threads are above")


def test_death_of_a_cluster_worker_changes_no_products(workers, tmp_path):
    ran: list[Ran] = []
    project = project_at(tmp_path / "p", workers.address, sleep=0.25)

    during(ran, project, {}, lambda: os.kill(workers.workers[0].pid, signal.SIGKILL))

    check_like_local(project, tmp_path)


def test_death_of_the_cluster_scheduler_changes_no_products(tmp_path):
    ran: list[Ran] = []
    with loopback_cluster(tmp_path, 2) as found:
        project = project_at(tmp_path / "p", found.address, sleep=0.25)

        during(ran, project, {}, lambda: os.kill(found.scheduler.pid, signal.SIGKILL))

    check_like_local(project, tmp_path)
    assert any("run on this machine" in text for text in ran[0].messages)


@pytest.mark.parametrize(("timeout_s", "silence_s"), [(30.0, 2.0), (0.5, 4.0)], ids=["shorter than the timeout", "longer"])
def test_late_results_after_a_network_partition_are_dropped(workers, tmp_path, timeout_s, silence_s):
    ran: list[Ran] = []
    proxy = Proxy(workers.port)
    project = project_at(tmp_path / "p", proxy.address, sleep=0.25)

    def cut() -> None:
        proxy.is_cut = True
        time.sleep(silence_s)  # this test is about the duration of the silence
        proxy.is_cut = False

    with mock.patch.multiple(scheduler, RECONNECT_TIMEOUT_S=timeout_s, _PULSE_S=0.1, _PULSE_LIMIT_S=0.3):
        during(ran, project, {}, cut)

    proxy.close()
    check_like_local(project, tmp_path)

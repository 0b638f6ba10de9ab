"""One run in the test's own process: a source, an order for it, and the call of the runner; shared by several tests."""

from __future__ import annotations

import hashlib
import itertools
import os
from pathlib import Path

from aptui.core.orders import AnalyseOrder, AnalyseResult, ProcessOrder, RunResult
from aptui.core.project import Builder, BuilderKind, Platform
from aptui.sdk import CreateJobsResponse, JobDescriptor, JobProduct, ProcessJobResponse, Result
from aptui.worker import builder_run as worker_run
from aptui.worker.file_access import stat_key
from aptui.worker.processes import end_children

PLATFORMS = {"linux": Platform("linux", ("tools",)), "common": Platform("common")}
PYTHON = Builder(b"b" * 16, "tool", BuilderKind.PYTHON, analysis_fingerprint="1")


class Harness:
    """A project below `folder`; `assets/` is its scan folder.

    A run ends all children of its process, and fails if a child is left. Here this process is the process of the tests. So children
    of earlier tests, such as an ending engine, are ended first.
    """

    def __init__(self, folder: Path) -> None:
        end_children()
        self.root, self.staging = folder / "assets", folder / "staging"
        self.root.mkdir()
        self._keys = itertools.count(1)

    def source(self, rel: str = "a.txt", data: bytes = b"hello") -> Path:
        path = self.root / rel
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return path

    def order(self, rel: str = "a.txt", **more: object) -> ProcessOrder:
        path = self.root / rel
        if not path.exists():
            self.source(rel)
        key = next(self._keys)
        fields = {
            "run_key": key,
            "builder": "tool",
            "root": str(self.root),
            "rel": rel,
            "source_uuid": bytes(16),
            "platform": "linux",
            "job_key": "job",
            "params": "{}",
            "additional_fingerprint": "",
            "priority": 0,
            "is_critical": False,
            "expected": stat_key(path.stat()),
            "source_digest": hashlib.sha256(path.read_bytes()).digest(),
            "staging": str(self.staging / str(key)),
            "limit_s": 20.0,
            "memory_limit_bytes": 0,
        }
        return ProcessOrder(**{**fields, **more})

    def analyse(self, create_jobs, builder: Builder = PYTHON, platforms: tuple[str, ...] = ("linux",)) -> AnalyseResult:
        """Analyse a source with a builder whose `create_jobs` method is this function."""
        self.source()
        order = self.analyse_order(platforms)
        return worker_run.analyse(order, builder, PLATFORMS, lambda _builder: Instance(create_jobs=create_jobs))

    def analyse_order(self, platforms: tuple[str, ...] = ("linux",)) -> AnalyseOrder:
        return AnalyseOrder(1, "tool", str(self.root), "a.txt", bytes(range(16)), platforms, 20.0)

    def process(self, process_job, order: ProcessOrder | None = None, builder: Builder = PYTHON) -> RunResult:
        """Run a job with a builder whose `process_job` method is this function."""
        order = order or self.order()
        return worker_run.process(order, builder, PLATFORMS, lambda _builder: Instance(process_job=process_job))

    def run(self, builder: Builder, order: ProcessOrder | None = None) -> RunResult:
        """Run a builder that is a command."""
        return worker_run.process(order or self.order(), builder, PLATFORMS, lambda _builder: None)


class Instance:
    def __init__(self, **calls) -> None:
        vars(self).update(calls)


def jobs(*descriptors: JobDescriptor, **more: object) -> CreateJobsResponse:
    return CreateJobsResponse(Result.SUCCESS, list(descriptors), **more)


def made(*products: JobProduct, **more: object) -> ProcessJobResponse:
    return ProcessJobResponse(Result.SUCCESS, list(products), **more)


def write(path: str | Path, data: bytes = b"data") -> str:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    Path(path).write_bytes(data)
    return str(path)

"""A bench for one builder: requests as the engine makes them, and a log that is kept."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from aptui.sdk import (
    Builder,
    CreateJobsRequest,
    CreateJobsResponse,
    JobLog,
    PlatformInfo,
    ProcessJobRequest,
    ProcessJobResponse,
    Result,
)

WARNING = 2
ERROR = 3


@dataclass
class Bench:
    """Runs jobs of one builder in a folder of its own."""

    builder: Builder
    folder: Path
    lines: list[tuple[int, str]] = field(default_factory=list)
    is_cancelled: Callable[[], bool] = lambda: False
    fractions: list[float] = field(default_factory=list)
    run_count: int = 0

    @property
    def errors(self) -> list[str]:
        return [text for severity, text in self.lines if severity == ERROR]

    @property
    def warnings(self) -> list[str]:
        return [text for severity, text in self.lines if severity == WARNING]

    def _log(self) -> JobLog:
        return JobLog(lambda severity, text, _context: self.lines.append((severity, text)))

    def write(self, source: str, data: bytes | str) -> str:
        path = self.folder / "assets" / source
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        return source

    def analyse(
        self,
        params: dict[str, Any] | None = None,
        platform_params: dict[str, dict[str, Any]] | None = None,
        name: str = "mine",
        source: str = "a.x",
    ) -> CreateJobsResponse:
        platforms = (PlatformInfo("linux"), PlatformInfo("server"))
        return self.builder.create_jobs(
            CreateJobsRequest(
                name, str(self.folder / "assets"), source, UUID(int=1), platforms, params or {}, platform_params or {}, self._log()
            )
        )

    def dependencies(self, source: str, **params: object) -> list[str]:
        """Return the paths of the source dependencies that the analysis of `source` declares."""
        response = self.analyse(params, source=source)
        assert response.result is Result.SUCCESS, response.error
        return [each.path for each in response.source_dependencies]

    def process(self, source: str, **params: object) -> ProcessJobResponse:
        self.run_count += 1
        products, temp = (self.folder / f"{kind}{self.run_count}" for kind in ("products", "temp"))
        products.mkdir()
        temp.mkdir()
        self.products_dir = products
        return self.builder.process_job(
            ProcessJobRequest(
                builder_name="mine",
                scan_folder=str(self.folder / "assets"),
                source=source,
                source_uuid=UUID(int=1),
                platform=PlatformInfo("linux"),
                job_key="mine",
                params=params,
                job_params={},
                additional_fingerprint="",
                products_dir=str(products),
                temp_dir=str(temp),
                log=self._log(),
                progress=self.fractions.append,
                is_cancelled=self.is_cancelled,
            )
        )

    def made(self, source: str, **params: object) -> dict[str, bytes]:
        """Return {name: bytes} of the products of a run that must succeed."""
        response = self.process(source, **params)
        assert response.result is Result.SUCCESS, response.error
        assert sorted(product.path for product in response.products) == sorted(path.name for path in self.products_dir.iterdir())
        return {product.path: (self.products_dir / product.path).read_bytes() for product in response.products}

    def error(self, source: str, **params: object) -> str:
        """Return the error of a run that must fail with one line."""
        response = self.process(source, **params)
        assert response.result is Result.FAILED
        assert response.error
        assert "\n" not in response.error
        assert str(self.folder) not in response.error
        return response.error


MakeBench = Callable[[Builder], Bench]


@pytest.fixture
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    """A bench for the `BUILDER` of the test's module."""
    builder: Builder = request.module.BUILDER()
    (tmp_path / "assets").mkdir()
    return Bench(builder, tmp_path)


def digests(products: dict[str, bytes]) -> dict[str, str]:
    return {name: hashlib.sha256(data).hexdigest() for name, data in products.items()}


SUBPROCESS = """
import hashlib, json, sys, tempfile
from importlib import import_module
from pathlib import Path
from uuid import UUID
from aptui.sdk import JobLog, PlatformInfo, ProcessJobRequest
module, kind, scan_folder, source, params = sys.argv[1:]
with tempfile.TemporaryDirectory() as folder:
    log = JobLog(lambda *_: None)
    response = getattr(import_module(module), kind)().process_job(ProcessJobRequest(
        "mine", scan_folder, source, UUID(int=1), PlatformInfo("linux"), "mine", json.loads(params), {}, "", folder, folder, log))
    assert not response.error, response.error
    print(json.dumps({p.path: hashlib.sha256((Path(folder) / p.path).read_bytes()).hexdigest() for p in response.products}))
"""


@pytest.fixture
def made_elsewhere() -> Callable[..., dict[str, str]]:
    """Return {name: SHA-256} of the products of the same job run by another process, with another hash seed."""
    import json
    import os
    import subprocess
    import sys

    def run(bench: Bench, source: str, **params: object) -> dict[str, str]:
        kind = type(bench.builder)
        arguments = [kind.__module__, kind.__name__, str(bench.folder / "assets"), source, json.dumps(params)]
        done = subprocess.run(
            [sys.executable, "-c", SUBPROCESS, *arguments],
            check=True,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONHASHSEED": "4"},
        )
        return dict(json.loads(done.stdout))

    return run


@pytest.fixture
def digests_of() -> Callable[[dict[str, bytes]], dict[str, str]]:
    return digests

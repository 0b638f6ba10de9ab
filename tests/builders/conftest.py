"""Fixtures of the builders' tests: a test bench for one builder, and a function that repeats its job in another process."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from aptui.sdk.testing import BuilderBench


@pytest.fixture
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> BuilderBench:
    """Return a test bench for the `BUILDER` of the test's module."""
    return BuilderBench(request.module.BUILDER(), tmp_path, name="mine")


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
    builder = getattr(import_module(module), kind)()
    response = builder.process_job(ProcessJobRequest(
        "mine", scan_folder, source, UUID(int=1), PlatformInfo("linux"), "mine", json.loads(params), {}, "", folder, folder, log,
        params_schema=builder.params_schema))
    assert not response.error, response.error
    print(json.dumps({p.path: hashlib.sha256((Path(folder) / p.path).read_bytes()).hexdigest() for p in response.products}))
"""


@pytest.fixture
def made_elsewhere() -> Callable[..., dict[str, str]]:
    """Return a function that runs a job in another process, with another hash seed, and returns {product: its SHA-256}."""
    import json
    import os
    import subprocess
    import sys

    def run(bench: BuilderBench, source: str, **params: object) -> dict[str, str]:
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

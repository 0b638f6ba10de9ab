"""A tiny project for the tests of verbs: jobs of all kinds, a failing job, a job with a warning, and a file without a builder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from homes import own_homes, own_project

from aptui.cli import main

CONFIG = """
platforms:
  linux: {tags: [tools]}
  server: {tags: [server]}
scan_folders:
  - {name: game, path: assets, order: 0}
  - {name: shared, path: shared, order: 1}
ignore: ["*.tmp", "raw/"]
builders:
  - {name: data, copy: ["*.txt"]}
  - {name: tables, uses: json, patterns: ["tables/*.json"]}
  - name: upper
    patterns: ["*.up"]
    version: 1
    command: "echo working >&2; tr a-z A-Z < {source} > {products_dir}/{stem}.txt"
    products: ["*.txt"]
    platforms: {server: skip}
  - {name: words, uses: words, patterns: ["*.words"]}
workers: 2
"""

BUILDER = """
from aptui.sdk import CreateJobsResponse, JobDescriptor, JobProduct, ProcessJobResponse, Result, SourceDependency

class Words:
    name = "words"
    version = "1"
    patterns = ("*.words",)

    def create_jobs(self, request):
        if "broken" in request.source:
            return CreateJobsResponse(Result.FAILED, [], [])
        jobs = [JobDescriptor("words", item.id) for item in request.platforms]
        return CreateJobsResponse(Result.SUCCESS, jobs, [SourceDependency("a.txt")])

    def process_job(self, request):
        request.log.info("\\x1b[31mhello\\x1b[0m", colour="red")
        with open(request.product_path("out.idx"), "wb") as file:
            file.write(request.read_source())
        return ProcessJobResponse(Result.SUCCESS, [JobProduct("out.idx", 0)])
"""

FILES = {
    "aptui.yaml": CONFIG,
    "builders/words.py": BUILDER,
    "assets/a.txt": "a",
    "assets/sub/b.up": "b",
    "assets/tables/bad.json": "{oops}",
    "assets/tables/twice.json": '{"a": 1, "a": 2}',
    "assets/x.words": "x",
    "assets/odd.jsn": "",
    "assets/notes.tmp": "",
    "assets/raw/scan.txt": "",
    "assets/plain": "",
    "shared/a.txt": "hidden",
    "shared/c.txt": "c",
}


Run = Callable[..., tuple[int, str, str]]
"""Runs `aptui` with these words and returns its exit code, its output and its errors."""


def runner(capsys: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs verbs in this process; earlier output is discarded."""

    def run(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main.main(words)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture
def run(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs verbs in the project of the test module.

    The module's fixture `processed` makes the project once; otherwise its fixture `project` makes one for each test.
    """
    if hasattr(request.module, "processed"):
        processed = request.getfixturevalue("processed")
        own_homes(processed.parent, monkeypatch)
        monkeypatch.chdir(processed)
    else:
        request.getfixturevalue("project")
    return runner(capsys)


def write(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write the project into `folder`/project, change to this folder, and hide the configuration of the real user."""
    return own_project(folder, monkeypatch, FILES)

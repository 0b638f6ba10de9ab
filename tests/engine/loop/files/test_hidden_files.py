"""Files hidden by a file of the same relative path in another scan folder: a job that reads a hidden file depends on it."""

from __future__ import annotations

from pathlib import Path

import pytest
from disk_project import HOST
from live_project import LiveProject
from scripted_source import one_product

pytestmark = pytest.mark.real

FOLDERS = """
scan_folders: [{name: game, path: assets}, {name: base, path: base}]
"""
MAKE = """
with open(f"{request.scan_folder}/m.inc") as file:
    data = file.read()
if data == "broken":
    return ProcessJobResponse(error="m.inc is broken")
"""
BUILDER = one_product("reading", "*.txt", MAKE, edges="[SourceDependency('m.inc')]")
COMMAND = (
    FOLDERS
    + """
builders:
  - name: cc
    patterns: ["*.txt"]
    depfile: d
    command: "cat PROJECT/base/m.inc > {products_dir}/{stem}.out; echo o: PROJECT/base/m.inc > {depfile}"
"""
)


def project_of(folder: Path, how: str) -> LiveProject:
    """A source of `base` reads a file beside it, which is hidden by a file in `assets`."""
    project = LiveProject(folder, (FOLDERS if how == "python" else COMMAND).replace("PROJECT", str(folder)))
    if how == "python":
        project.write("builders/reading.py", BUILDER)
    project.edit({"base/a.txt": "a", "base/m.inc": "base 1", "assets/m.inc": "game 1"})
    return project


def made(project: LiveProject) -> bytes | None:
    return project.product(f"{HOST}/a.out")


@pytest.mark.parametrize("how", ["python", "command"])
def test_batch_runs_a_job_again_after_its_hidden_input_changed(tmp_path: Path, how: str) -> None:
    project = project_of(tmp_path, how)
    project.engine_run()
    assert made(project) == b"base 1"
    assert not project.engine_run().runs

    project.engine_run({"base/m.inc": "base 2"})
    assert made(project) == b"base 2"
    assert not project.engine_run().runs

    project.engine_run({"assets/m.inc": None})
    project.engine_run({"base/m.inc": "base 3"})
    assert made(project) == b"base 3"
    assert not project.engine_run().runs

    project.engine_run({"assets/m.inc": "game 2"})
    project.engine_run({"base/m.inc": "base 4"})
    assert made(project) == b"base 4"


@pytest.mark.parametrize("how", ["python", "command"])
def test_live_engine_runs_a_job_again_after_its_hidden_input_changed(tmp_path: Path, how: str) -> None:
    project = project_of(tmp_path, how)
    with project.running():
        project.write("base/m.inc", "base 2")
        project.until_product(f"{HOST}/a.out", "base 2")


def test_job_log_reports_hidden_inputs(tmp_path: Path) -> None:
    project = project_of(tmp_path, "python")
    project.engine_run()

    logs = "".join(path.read_text() for path in tmp_path.rglob("*.log"))
    line = BUILDER.partition("with open(f")[0].count("\n") + 1
    assert f"reads 'm.inc' of the scan folder 'base', which the file of 'game' hides (reading.py:{line})" in logs


def test_failed_job_runs_again_when_its_hidden_input_is_corrected(tmp_path: Path) -> None:
    project = project_of(tmp_path, "python")
    project.write("base/m.inc", "broken")
    with project.running():
        assert made(project) is None
        project.write("base/m.inc", "base 2")
        project.until_product(f"{HOST}/a.out", "base 2")

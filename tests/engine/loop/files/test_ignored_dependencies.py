"""Ignored files that a job depends on: their changes are noticed for every kind of dependency."""

from __future__ import annotations

from pathlib import Path

import pytest
from disk_project import Project
from live_project import LiveProject

pytestmark = pytest.mark.real

SETTINGS = """
scan_folders: [{name: game, path: assets}, {name: more, path: more}]
ignore: ["*.wip", "drafts/"]
local_store: {enabled: false}
undeclared_reads: UNDECLARED
builders:
  - {name: t, uses: t}
  - name: dep
    patterns: ["*.src"]
    command: "cat {source} $(dirname {source})/b.wip > {products_dir}/{stem}.dep; echo out: $(dirname {source})/b.wip > {depfile}"
    depfile: "{stem}.d"
"""
BUILDER = """
import os
from aptui.sdk import *

class T:
    name = "t"
    version = "1"
    patterns = ("*.t",)

    def create_jobs(self, request):
        kind = getattr(SourceDependencyKind, KIND)
        named = [SourceDependency(NAME, kind=kind)] if NAME else []
        jobs = [JobDescriptor(request.builder_name, p.id) for p in request.platforms]
        return CreateJobsResponse(Result.SUCCESS, jobs, named)

    def process_job(self, request):
        text = ""
        if IS_SEEN:
            for name in ("b.wip", "drafts/c.txt"):
                path = os.path.join(request.scan_folder, name)
                text += open(path).read() if os.path.exists(path) else ""
        else:  # a program reads it: nothing is observed
            import subprocess
            text = subprocess.run(["cat", os.path.join(request.scan_folder, "b.wip")], stdout=subprocess.PIPE, text=True).stdout
        with open(request.product_path("a.out"), "w") as file:
            file.write(text)
        return ProcessJobResponse(Result.SUCCESS, [JobProduct("a.out")])
"""


def fill(project: Project, kind: str, name: str, *, is_seen: bool) -> None:
    head = f"KIND, NAME, IS_SEEN = {kind!r}, {name!r}, {is_seen}\n"
    project.write("builders/t.py", head + BUILDER)
    project.edit({"more/x.txt": "", "assets/a.t": "one", "assets/b.wip": "one"})


@pytest.mark.parametrize(
    ("kind", "name", "is_seen", "undeclared"),
    [
        ("ABSOLUTE", "b.wip", True, "warn"),
        ("ABSOLUTE", "b.wip", False, "warn"),
        ("WILDCARD", "b.wip", False, "ignore"),
        ("WILDCARD", "*.wip", True, "warn"),
        ("ABSOLUTE", "", True, "warn"),
        ("ABSOLUTE", "", True, "add"),
        ("ABSOLUTE", "", True, "ignore"),
    ],
)
def test_change_of_an_ignored_file_runs_the_jobs_that_depend_on_it(
    tmp_path: Path, kind: str, name: str, is_seen: bool, undeclared: str
) -> None:
    project = Project(tmp_path / "p", SETTINGS.replace("UNDECLARED", undeclared))
    fill(project, kind, name, is_seen=is_seen)
    project.engine_run()
    assert project.texts()["a.out"] == "one", project.errors()

    assert project.engine_run({"assets/b.wip": "TWO"}).runs == {"a.t:t": 1}
    assert project.texts()["a.out"] == "TWO"

    assert not project.engine_run().runs
    assert project.engine_run({"assets/b.wip": None}).runs == {"a.t:t": 1}
    assert project.texts()["a.out"] == ""
    project.engine_run({"assets/b.wip": "back"})
    assert project.texts()["a.out"] == "back"


def test_change_of_an_ignored_file_in_a_depfile_runs_the_job_again(tmp_path: Path) -> None:
    project = Project(tmp_path / "p", SETTINGS.replace("UNDECLARED", "warn"))
    fill(project, "ABSOLUTE", "", is_seen=True)
    project.engine_run({"assets/a.t": None, "assets/s.src": "s"})

    project.engine_run({"assets/b.wip": "TWO"})

    assert project.texts()["s.dep"] == "sTWO"


def test_dependency_with_a_wildcard_runs_the_job_when_a_source_matches(tmp_path: Path) -> None:
    project = Project(tmp_path / "p", SETTINGS.replace("UNDECLARED", "warn").replace('"*.wip", ', ""))
    fill(project, "WILDCARD", "b.wip", is_seen=False)
    project.engine_run()

    assert project.engine_run({"assets/b.wip": "TWO"}).runs == {"a.t:t": 1}
    assert project.texts()["a.out"] == "TWO"


def test_live_engine_notices_a_change_of_an_ignored_dependency(tmp_path: Path) -> None:
    project = LiveProject(tmp_path / "p", SETTINGS.replace("UNDECLARED", "warn"))
    fill(project, "ABSOLUTE", "b.wip", is_seen=False)
    with project.running():
        project.write("assets/b.wip", "TWO")
        project.until(lambda: project.texts().get("a.out") == "TWO")

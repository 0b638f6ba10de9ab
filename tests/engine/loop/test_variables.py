"""Environment variables that the configuration names reach builders and commands; a changed value runs their jobs again."""

from __future__ import annotations

from pathlib import Path

import pytest
from disk_project import Project
from scripted_source import one_product

pytestmark = pytest.mark.real

CONFIG = """
scan_folders: [{name: game, path: assets}]
environment: [LEVEL]
builders:
  - {name: data, copy: ["*.raw"]}
  - {name: own, patterns: ["*.txt"], environment: [OWN], command: "echo ${LEVEL-none} ${OWN-none} > {products_dir}/{stem}.own"}
  - {name: other, patterns: ["*.txt"], command: "echo ${LEVEL-none} ${OWN-none} > {products_dir}/{stem}.other"}
"""
REPORTING = one_product(
    "telling", "*.txt", "data = f\"{os.environ.get('LEVEL', 'none')} {os.environ.get('OWN', 'none')}\\n\"", key="tell",
    product='request.stem + ".told"', head="import os",
)  # fmt: skip


def test_new_value_of_a_named_variable_runs_the_jobs_of_its_builders_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OWN", "o")
    monkeypatch.delenv("LEVEL", raising=False)
    project = Project(tmp_path, CONFIG)
    project.engine_run({"builders/telling.py": REPORTING, "assets/a.txt": "a", "assets/b.raw": "b"})
    assert project.texts() == {"a.own": "none o\n", "a.other": "none none\n", "a.told": "none none\n", "b.raw": "b"}
    assert not project.engine_run().runs

    monkeypatch.setenv("LEVEL", "1")
    assert sorted(project.engine_run().runs) == ["a.txt:other", "a.txt:own", "a.txt:tell"], (
        "the copy rule does not run again, because it has no code that could read the variable LEVEL"
    )
    assert project.texts() == {"a.own": "1 o\n", "a.other": "1 none\n", "a.told": "1 none\n", "b.raw": "b"}
    assert project.reasons()["a.txt:tell"] == "the environment variable 'LEVEL' is new"

    monkeypatch.setenv("OWN", "p")
    assert sorted(project.engine_run().runs) == ["a.txt:own"]
    assert project.texts()["a.own"] == "1 p\n"
    assert project.reasons()["a.txt:own"].startswith("the environment variable 'OWN' changed")
    assert not project.engine_run().runs

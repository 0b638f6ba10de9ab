"""A file that replaces a folder and a folder that replaces a file, while an engine is running."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from disk_project import HOST
from live_project import LiveProject
from msgspec.structs import replace

pytestmark = pytest.mark.real

TWO_FOLDERS = """
scan_folders: [{name: game, path: assets}, {name: more, path: more, order: 1}]
builders: [{name: data, copy: ["*.txt"]}]
"""


def a_project(root: Path) -> LiveProject:
    project = LiveProject(root, TWO_FOLDERS)
    project.write("more/other.txt", "other")
    return project


@pytest.mark.parametrize("others", [{}, {"more/d/a.txt/c.none": "c"}])
def test_source_replaced_by_a_folder_loses_its_product(tmp_path: Path, others: dict[str, str]) -> None:
    project = a_project(tmp_path)
    # `others` may have a folder with the source's path in the scan folder `more`; the engine must still see the deletion
    project.engine_run({"assets/d/a.txt": "a", **others})
    with project.running():
        assert project.product(f"{HOST}/d/a.txt") == b"a"
        project.edit({"assets/d/a.txt": None, "assets/d/a.txt/below/b.none": "b"})

        project.until_product(f"{HOST}/d/a.txt", None)


def test_folder_replaced_by_a_source_loses_its_products(tmp_path: Path) -> None:
    project = a_project(tmp_path)
    project.engine_run({"assets/d/a.txt/below/b.txt": "b"})
    with project.running():
        project.delete("assets/d/a.txt")
        project.write("assets/d/a.txt", "a")

        project.until_product(f"{HOST}/d/a.txt/below/b.txt", None)
        project.until_product(f"{HOST}/d/a.txt", "a")


def test_folder_that_a_rename_replaces_by_a_file_loses_its_products(tmp_path: Path) -> None:
    project = a_project(tmp_path)
    project.engine_run({"assets/d/a.txt": "a"})
    file = project.write("outside/file", "")
    with project.running():
        project.path("assets/d").rename(project.path("outside/d"))
        file.rename(project.path("assets/d"))

        project.settle()

        assert project.product(f"{HOST}/d/a.txt") is None


def test_deleted_file_is_forgotten_if_the_configuration_ignores_it_now(tmp_path: Path) -> None:
    project = a_project(tmp_path)
    project.engine_run({"assets/a.txt": "a"})
    with project.running() as live:
        project.until_idle()
        project.delete("assets/a.txt")
        project.until(lambda: live.watching._absences)
        live.watching.configure(replace(live.config.project, ignore_regex="a[.]txt"))

        late = time.monotonic() + 3.0
        project.until(lambda: not live.watching._absences or time.monotonic() > late)

        assert not live.watching._absences
        project.until_idle()


def test_a_file_that_replaced_a_folder_between_two_runs_is_processed(tmp_path: Path) -> None:
    project = a_project(tmp_path)
    project.engine_run({"assets/d/a.txt/below/b.txt": "b"})
    project.delete("assets/d/a.txt")
    project.engine_run({"assets/d/a.txt": "a"})
    project.engine_run()

    assert project.product(f"{HOST}/d/a.txt") == b"a"

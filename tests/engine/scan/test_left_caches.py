"""Files in a cache of aptui below a scan folder are never sources, even if an earlier configuration made the cache."""

from __future__ import annotations

from pathlib import Path

import pytest
from disk_project import Project

pytestmark = pytest.mark.real
SETTINGS = 'scan_folders: [{name: root, path: .}]\nignore: ["aptui.yaml"]\nbuilders: [{name: data, copy: ["*.txt"]}]\n'


def test_former_cache_folder_below_a_scan_folder_is_not_scanned(tmp_path: Path) -> None:
    project = Project(tmp_path / "project", SETTINGS)
    project.write("assets/a.txt", "a")
    project.engine_run({"assets/.aptui/notes.txt": "a folder of that name without a lock is the user's own"})
    before = project.statuses()
    project.config(SETTINGS + "cache: Other\n")

    messages = project.engine_run().messages

    assert project.statuses(project.path("Other")) == before
    assert any("Cache' is a cache of aptui" in sentence for sentence in messages)
    project.engine_run({"Cache/more.txt": "more"})
    assert project.statuses(project.path("Other")) == before

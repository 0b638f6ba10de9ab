"""Sources that are links to files elsewhere, under a live engine."""

from __future__ import annotations

import json
import os
from pathlib import Path
from uuid import UUID

import pytest
from disk_project import HOST, database
from live_project import LiveProject, own_live_project

from aptui.core.model import RelPath
from aptui.core.paths import path_uuid

pytestmark = pytest.mark.real

LINKED = """
scan_folders: [{name: game, path: assets}, {name: more, path: more, order: 1}]
builders: [{name: data, copy: ["*.txt"]}]
"""
IDENTITY = json.dumps({"FileVersion": 1, "UUID": {"uuid": "{11111111-1111-4111-8111-111111111111}"}})


@pytest.fixture
def project(tmp_path: Path) -> LiveProject:
    """A project whose source `assets/d/link.txt` is a link to `more/e/way.none`, which is a link to `target.txt` beside it."""
    project = LiveProject(tmp_path, LINKED)
    project.write("more/e/target.txt", "a")
    project.path("assets/d").mkdir(parents=True)
    project.path("more/e/way.none").symlink_to("target.txt")
    project.path("assets/d/link.txt").symlink_to("../../more/e/way.none")
    project.engine_run()
    return project


@pytest.mark.parametrize("how", ["before the start", "while the engine runs"])
def test_write_to_a_hard_link_outside_the_scan_folders_updates_the_product(project: LiveProject, how: str) -> None:
    source = project.write("assets/a.txt", "a")
    outside = project.path("outside")
    if how == "before the start":
        os.link(source, outside)
    with project.running():
        if how != "before the start":
            os.link(source, outside)
            project.write("assets/a.txt", "changed here")
            project.until_product(f"{HOST}/a.txt", "changed here")

        outside.write_text("changed there")
        project.until_product(f"{HOST}/a.txt", "changed there")
        outside.write_text("changed again")
        project.settle()
        assert project.product(f"{HOST}/a.txt") == b"changed again"


def test_changed_link_target_outside_the_scan_folders_updates_the_product(tmp_path: Path) -> None:
    project = LiveProject(tmp_path / "project", f"linked_folders: [{tmp_path}/far]\n{LINKED}")
    project.path("more").mkdir()
    target = project.write("../far/a.txt", "a")
    project.path("assets/link.txt").symlink_to(target)
    with project.running():
        target.write_text("changed")
        project.until_product(f"{HOST}/link.txt", "changed")


def test_dead_link_that_an_editor_uses_as_lock_file_causes_no_warning(project: LiveProject) -> None:
    project.path("assets/d/.#link.txt").symlink_to("user@host.1234:1700000000")

    assert not project.engine_run().messages


def test_change_or_deletion_of_a_link_target_updates_the_product(project: LiveProject) -> None:
    with project.running():
        assert project.product(f"{HOST}/d/link.txt") == b"a"

        project.write("more/e/target.txt", "changed")
        project.until_product(f"{HOST}/d/link.txt", "changed")
        project.delete("more/e/target.txt")
        project.until_product(f"{HOST}/d/link.txt", None)
        project.write("more/e/target.txt", "back")
        project.until_product(f"{HOST}/d/link.txt", "back")


def test_change_of_a_link_behind_a_link_updates_the_product(project: LiveProject) -> None:
    project.write("more/other.txt", "other")
    with project.running():
        project.path("more/e/way.new").symlink_to("../other.txt")
        project.move("more/e/way.new", "more/e/way.none")
        project.until_product(f"{HOST}/d/link.txt", "other")
        project.write("more/other.txt", "changed")
        project.until_product(f"{HOST}/d/link.txt", "changed")
        project.move("more/e", "more/away")
        project.until_product(f"{HOST}/d/link.txt", None)
        project.move("more/away", "more/e")
        project.until_product(f"{HOST}/d/link.txt", "changed")


def test_source_replaced_by_a_link_follows_changes_of_the_link_target(project: LiveProject) -> None:
    project.engine_run({"assets/d/plain.txt": "plain"})
    with project.running():
        project.path("assets/d/plain.new").symlink_to("../../more/e/target.txt")
        project.move("assets/d/plain.new", "assets/d/plain.txt")
        project.until_product(f"{HOST}/d/plain.txt", "a")
        project.write("more/e/target.txt", "b")

        project.settle()

        assert project.product(f"{HOST}/d/plain.txt") == b"b"


@pytest.mark.parametrize("types", ["", "metadata_types: [.txt]"])
@pytest.mark.parametrize("steps", [("link", "folder"), ("folder", "link"), ("link", "folder", "file")])
def test_source_loses_its_uuid_if_a_link_or_folder_replaces_its_meta_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, types: str, steps: tuple[str, ...]
) -> None:
    project = own_live_project(tmp_path, monkeypatch, f"{LINKED}{types}\n", {"assets/a.txt": "a", "more/b.txt": "b"})
    meta = project.write("assets/a.txt.meta", IDENTITY)
    with project.running():
        assert uuid_of(project, "a.txt") == UUID("11111111-1111-4111-8111-111111111111").bytes
        for step in steps:
            project.delete("assets/a.txt.meta")
            match step:
                case "link":
                    meta.symlink_to("nowhere")
                case "folder":
                    project.write("assets/a.txt.meta/c.txt", "c")
                case _:
                    meta.write_text(IDENTITY)
            project.settle()

            is_named = step == "file"
            assert (uuid_of(project, "a.txt") != path_uuid(RelPath("a.txt"))) is is_named


def uuid_of(project: LiveProject, rel: str) -> bytes:
    with database(project.cache) as connection:
        (uuid,) = connection.execute("SELECT SourceGuid FROM Sources WHERE SourceName = ?", (rel,)).fetchone()
    return bytes(uuid)

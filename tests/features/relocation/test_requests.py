"""Relocations by a running engine: moved files are processed together and keep their identity, and the client gets a report."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from live_project import LiveProject, Request

from aptui.core.notices import HealthChanged
from aptui.features.relocation import moved_files
from aptui.features.relocation.relocation_records import Relocate, RelocationAction, RelocationReport
from aptui.link import codec
from aptui.link.codec import AnswerLine
from aptui.store.queries.reader import open_reader

pytestmark = pytest.mark.real

SETTINGS = """
scan_folders: [{name: game, path: assets}, {name: shared, path: shared}]
builders: [{name: data, copy: ["*.txt", "*.png"]}]
metadata_types: [".png"]
meta_delay: 10ms
"""


@pytest.fixture
def project(tmp_path: Path) -> Iterator[LiveProject]:
    project = LiveProject(tmp_path / "project", SETTINGS)
    (project.root / "shared").mkdir()
    for name in ("art/a.png", "art/deep/b.png", "art/c.txt", "other.txt"):
        project.write(f"assets/{name}", name)
    with project.running():
        project.until_idle()
        yield project


def relocate(project: LiveProject, order: Relocate) -> RelocationReport:
    request = project.ask(order)
    assert request.answered is not None, request.refused
    message = codec.decode_message(codec.encode_answer(1, request.answered).rstrip(b"\n"))
    assert isinstance(message, AnswerLine)
    return msgspec.convert(message.answer, RelocationReport)


def begun(project: LiveProject, order: Relocate) -> Request:
    request = Request(order)
    project.handler.handle(request)
    return request


def uuids(project: LiveProject) -> dict[str, str]:
    with closing(open_reader(project.cache / "assetdb.sqlite")) as reader:
        return {row.source: row.uuid.hex() for row in reader.sources()}


def test_moved_folder_is_processed_as_one_batch_of_changes(project: LiveProject) -> None:
    project.forget()

    report = relocate(project, Relocate("art/*", "pictures/*", is_confirmed=True))
    project.until_idle()

    assert report.is_whole
    assert set(project.runs) == {f"pictures/{name}:data" for name in ("a.png", "deep/b.png", "c.txt")}
    assert set(project.runs.values()) == {1}
    assert next(health.health.holds for health in project.news if isinstance(health, HealthChanged)) == ("moving 'art/*'",)
    assert sorted(project.texts()) == ["other.txt", "pictures/a.png", "pictures/c.txt", "pictures/deep/b.png"]
    project.check_rest()


def test_source_with_an_identity_file_keeps_its_uuid_after_a_move(project: LiveProject) -> None:
    before, meta = uuids(project), (project.root / "assets/art/a.png.meta").read_bytes()

    report = relocate(project, Relocate("art/*", "pictures/*", is_confirmed=True))
    project.until_idle()

    assert report.items[0].uuid == report.items[0].new_uuid
    assert uuids(project)["pictures/a.png"] == before["art/a.png"]
    assert uuids(project)["pictures/c.txt"] != before["art/c.txt"]
    assert (project.root / "assets/pictures/a.png.meta").read_bytes() == meta
    assert not (project.root / "assets/art").exists()


def test_relocation_preview_does_not_move_files_or_hold_changes(project: LiveProject) -> None:
    project.forget()

    report = relocate(project, Relocate("art/*", "pictures/*"))

    assert (report.counts.sources, report.counts.metadata, report.is_performed) == (3, 2, False)
    assert not [news for news in project.news if isinstance(news, HealthChanged)]
    assert (project.root / "assets/art/a.png").exists()


def test_deletion_of_a_source_removes_its_products(project: LiveProject) -> None:
    assert relocate(project, Relocate("art/*", is_delete=True, is_confirmed=True)).is_whole
    project.until_idle()

    assert list(project.texts()) == ["other.txt"]


def test_relocation_requests_run_one_after_another(project: LiveProject) -> None:
    first, second = (begun(project, Relocate("other.txt", name, is_confirmed=True)) for name in ("first.txt", "second.txt"))

    project.until(lambda: first.is_over and second.is_over)
    project.until_idle()

    assert first.answered is not None
    assert "'other.txt' is not in any scan folder" in second.refused
    assert project.live.health.holds == ()


def test_relocation_requests_are_limited_and_end_with_their_client(project: LiveProject) -> None:
    waiting = [begun(project, Relocate("other.txt", is_delete=True)) for _ in range(34)]
    assert [each.refused != "" for each in waiting] == [False] * 32 + [True] * 2
    project.handler.forget_client(waiting[0].client)

    project.until(lambda: waiting[0].is_over)
    last = begun(project, Relocate("other.txt", is_delete=True))
    project.until(lambda: last.is_over)

    assert [each.is_over for each in waiting[1:32]] == [False] * 31


def test_hostile_relocation_pattern_ends_within_the_time_limit(project: LiveProject) -> None:
    project.write("assets/" + "a" * 100 + ".txt", "x")
    began = time.process_time()

    assert "nothing matches" in project.ask(Relocate("*?" * 60 + "!", is_delete=True)).refused
    assert "1024" in project.ask(Relocate("*?" * 600, is_delete=True)).refused

    assert time.process_time() - began < 5


def test_hold_on_file_changes_ends_after_a_refused_relocation(project: LiveProject) -> None:
    request = project.ask(Relocate("art", "new/", is_confirmed=True))

    assert "'art' is a folder" in request.refused
    project.until(lambda: project.live.health.holds == ())


def test_failed_relocation_is_answered_and_the_engine_continues(project: LiveProject, monkeypatch: pytest.MonkeyPatch) -> None:
    really = moved_files.move

    def move(old: str, new: str) -> None:
        if old.endswith("c.txt"):
            raise OSError(28, "No space left on device")
        really(old, new)

    monkeypatch.setattr(moved_files, "move", move)

    report = relocate(project, Relocate("art/*", "pictures/*", is_confirmed=True))
    project.until_idle()

    assert {item.old: item.action for item in report.items if not item.is_metadata} == {
        "art/a.png": RelocationAction.DONE, "art/c.txt": RelocationAction.FAILED, "art/deep/b.png": RelocationAction.LEFT,
    }  # fmt: skip
    assert sorted(project.texts()) == ["art/c.txt", "art/deep/b.png", "other.txt", "pictures/a.png"]
    project.check_rest()

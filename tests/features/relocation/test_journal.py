"""A relocation that is killed at any step is completed by a repetition or the next batch; no reference to the old place is left."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import json
from msgspec.structs import replace
from relocation_harness import RelocationHarness

from aptui.config import load
from aptui.engine.loop.opening import PreparedSession
from aptui.features.relocation import moved_files, relocate
from aptui.shared.errors import HostError

_STEPS = ("rename", "replace", "unlink", "rmdir", "fsync")
"""Calls of the operating system that change the disk; the process may be killed before each call."""


class Killed(BaseException):
    """Raised in place of killing the process, so that only the test continues."""


def make_project(folder: Path) -> RelocationHarness:
    harness = RelocationHarness(folder)
    for number in range(3):
        harness.source(f"assets/m/f{number}.txt", f"file {number}")
        harness.write(f"assets/m/f{number}.txt.meta", "{}")
        harness.source(f"assets/use{number}.scene", f"see m/f{number}.txt")
        harness.depend(f"assets/use{number}.scene", f"m/f{number}.txt")
    return harness


def kill_before(patch: pytest.MonkeyPatch, step: int) -> Callable[[], bool]:
    """Kill the process before its disk change number `step`; return a function that says whether it was killed."""
    counter = itertools.count(1)
    killed = []

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            if killed or next(counter) >= step:
                killed.append(True)
                raise Killed
            return real(*arguments, **options)

        return call

    for name in _STEPS:
        patch.setattr(os, name, counted(getattr(os, name)))
    return lambda: bool(killed)


def is_whole(harness: RelocationHarness) -> bool:
    is_moved = all(harness.text(f"assets/use{number}.scene") == f"see n/f{number}.txt" for number in range(3))
    is_left = all(harness.text(f"assets/use{number}.scene") == f"see m/f{number}.txt" for number in range(3))
    names = harness.files()
    moved = [f"n/f{number}.txt{end}" for number in range(3) for end in ("", ".meta")]
    left = [name.replace("n/", "m/") for name in moved]
    others = [f"use{number}.scene" for number in range(3)]
    return (is_moved and names == sorted(moved + others)) or (is_left and names == sorted(left + others))


@pytest.mark.parametrize("repeats", [True, False])
def test_move_that_was_killed_at_any_step_is_completed_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repeats: bool
) -> None:
    for step in itertools.count(1):
        harness = make_project(tmp_path / str(step))
        order = {"updates_references": True, "excludes_metadata": False}
        with monkeypatch.context() as patch:
            was_killed = kill_before(patch, step)
            try:
                harness.do("m/*", "n/*", **order)
            except Killed:
                pass
        if not was_killed():
            break
        if repeats:
            harness.do("m/*", "n/*", **order)
        else:
            opening = PreparedSession(load.load(harness.root))
            opening.acquire()
            opening.close()
        assert is_whole(harness), (step, harness.files())
        assert not relocate.path_of(harness.root / "Cache").exists()
        assert not [name for name in harness.files() if "aptui" in name]
    assert step > 15  # Moves, rewrites, and writes of the journal count as steps.
    assert is_whole(harness)


def test_deletion_that_was_killed_at_any_step_is_completed_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for step in itertools.count(1):
        harness = make_project(tmp_path / str(step))
        with monkeypatch.context() as patch:
            was_killed = kill_before(patch, step)
            try:
                harness.do("m/*", allows_broken=True)
            except Killed:
                pass
        if not was_killed():
            break
        has_begun = relocate.path_of(harness.root / "Cache").exists()
        relocate.complete(load.load(harness.root))
        assert (not any(name.startswith("m/") for name in harness.files())) or not has_begun, step


def test_completing_a_killed_deletion_keeps_a_new_file_at_the_deleted_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    harness = make_project(tmp_path / "p")
    with monkeypatch.context() as patch:
        patch.setattr(moved_files, "remove_empty", lambda *_arguments: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            harness.do("m/*", allows_broken=True)
    harness.write("assets/m/f0.txt", "mine")

    relocate.complete(load.load(harness.root))

    assert harness.text("assets/m/f0.txt") == "mine"


def test_completing_a_killed_move_does_not_rewrite_an_edited_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    harness = make_project(tmp_path / "p")
    with monkeypatch.context() as patch:
        patch.setattr(moved_files, "rewrite", lambda *_arguments: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            harness.do("m/*", "n/*", updates_references=True)
    harness.write("assets/use0.scene", "mine: m/f0.txt")

    relocate.complete(load.load(harness.root))

    assert harness.text("assets/use0.scene") == "mine: m/f0.txt"
    assert harness.text("assets/use1.scene") == "see n/f1.txt"


def test_journal_of_another_user_or_machine_rewrites_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    harness = make_project(tmp_path / "p")
    with monkeypatch.context() as patch:
        patch.setattr(moved_files, "rewrite", lambda *_arguments: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            harness.do("m/*", "n/*", updates_references=True)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another user"))

    with pytest.raises(HostError, match="that you did not begin on this machine"):
        relocate.complete(load.load(harness.root))

    assert harness.text("assets/use0.scene") == "see m/f0.txt"


@pytest.mark.parametrize("place", ["outside/letter", "p/assets/../../outside/letter"])
def test_journal_with_files_outside_the_scan_folders_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    harness = make_project(tmp_path / "p")
    with monkeypatch.context() as patch:
        patch.setattr(moved_files, "delete", lambda *_arguments: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            harness.do("m/*", allows_broken=True)
    letter = tmp_path / "outside/letter"
    letter.parent.mkdir()
    letter.write_text("mine")
    path = relocate.path_of(harness.root / "Cache")
    found = json.decode(path.read_bytes(), type=relocate.Journal)
    item = replace(found.report.items[0], old_file=f"{tmp_path}/{place}")
    report = replace(found.report, items=(item,))
    path.write_bytes(json.encode(replace(found, report=report, stamps=(relocate.stamp_of(str(letter)),))))

    with pytest.raises(HostError, match="which is not in a scan folder"):
        PreparedSession(load.load(harness.root)).acquire()

    assert letter.read_text() == "mine"
    assert all((harness.root / "assets/m" / name).exists() for name in ("f0.txt", "f1.txt", "f2.txt"))

"""Announced intents: rows that name the products of a saved file, written before its copy jobs commit.

An intent is on the disk before its product is replaced. It is deleted when its run commits, or when the engine is idle.
"""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from disk_project import COPIES
from live_project import LiveProject, own_live_project

from aptui.core.messages import JobCommit
from aptui.core.model import Digest, PathKey, Product
from aptui.engine.cache.cache import AnnouncedIntents, Cache
from aptui.store.db.writer import Writer

KEY = PathKey("a.txt")


class Recorder:
    """A fake database writer. It counts how often a caller waits for announced intents, and records the deleted intents."""

    def __init__(self, *names: tuple[int, str]) -> None:
        self.names = {KEY: frozenset(names)} if names else {}
        self.waits = 0
        self.cleared: list[list[int]] = []

    def announce_intents(self, _copies: object) -> Any:
        return self._wait

    def _wait(self) -> dict[PathKey, frozenset[tuple[int, str]]]:
        self.waits += 1
        return self.names

    def withdraw_intents(self, run_keys: list[int]) -> None:
        self.cleared.append(run_keys)


def commit(run_key: int, name: str, *stale: str) -> JobCommit:
    product = Product(name, 0, bytes(16), 1, Digest(bytes(32)), 0, 1)
    return JobCommit(run_key, 5, (("staged", product),), stale)


@pytest.mark.parametrize(
    ("announced", "made", "is_covered"),
    [
        ((5, "linux/a.txt"), commit(7, "linux/a.txt"), True),
        ((5, "linux/a.txt"), commit(7, "linux/b.txt"), False),
        ((6, "linux/a.txt"), commit(7, "linux/a.txt"), False),
        ((5, "linux/a.txt"), commit(7, "linux/a.txt", "linux/old.txt"), False),
        ((5, "linux/a.txt"), commit(8, "linux/a.txt"), False),
        (None, commit(7, "linux/a.txt"), False),
    ],
)
def test_intents_written_in_advance_cover_only_commits_with_the_same_products(
    announced: tuple[int, str] | None, made: JobCommit, is_covered: bool
) -> None:
    writer, intents = Recorder(*filter(None, [announced])), AnnouncedIntents()
    intents.announce([(KEY, (7,))], writer)  # type: ignore[arg-type]

    assert intents.covers(made) is is_covered
    assert not intents.covers(made)


def test_repeated_withdrawal_deletes_an_uncommitted_intent_only_once() -> None:
    writer, intents = Recorder((5, "linux/a.txt")), AnnouncedIntents()
    intents.announce([(KEY, (7, 8))], writer)  # type: ignore[arg-type]
    intents.covers(commit(7, "linux/a.txt"))

    intents.withdraw((7, 8, 9), writer)  # type: ignore[arg-type]
    intents.withdraw((7, 8, 9), writer)  # type: ignore[arg-type]

    assert writer.cleared == [[8]]
    assert writer.waits == 1


def intents_in(cache: Path) -> list[str]:
    with closing(sqlite3.connect(cache / "assetdb.sqlite")) as database:
        return [name for (name,) in database.execute("SELECT name FROM aptui_intents")]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LiveProject:
    return own_live_project(tmp_path, monkeypatch, COPIES, {"assets/a.txt": "old"})


@pytest.mark.real
def test_commit_uses_the_intent_that_was_written_in_advance(project: LiveProject, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded: list[object] = []
    found: list[list[str]] = []
    place = Cache._place

    def state_of(cache: Cache, *given: Any) -> tuple[str, int]:
        found.append(intents_in(project.cache))
        return place(cache, *given)

    with project.running(), monkeypatch.context() as patched:
        patched.setattr(Cache, "_place", state_of)
        patched.setattr(Writer, "record_intents", lambda _self, rows: lambda: recorded.append(rows))
        project.save("a.txt", "changed")
        project.write("assets/a.txt", "changed")  # the bytes are unchanged, so no commit follows
        project.settle()

        assert found == [["linux/a.txt"]]
        assert recorded == []
        project.until(lambda: not intents_in(project.cache), "the intent of the unused copy is deleted")


@pytest.mark.real
def test_start_repairs_products_of_a_commit_that_a_crash_interrupted(
    project: LiveProject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = tmp_path / "dead"
    sync = Cache._sync

    def died(cache: Cache, folders: set[str]) -> None:
        if not dead.exists():
            shutil.copytree(project.cache, dead)
        sync(cache, folders)

    with project.running(), monkeypatch.context() as patched:
        patched.setattr(Cache, "_sync", died)
        project.save("a.txt", "new")
    shutil.rmtree(project.cache)
    dead.rename(project.cache)
    assert project.product("linux/a.txt") == b"new"
    # The source is restored, so it matches the database. Only the intent shows that the product is from a newer run.
    project.write("assets/a.txt", "old")

    project.engine_run()

    assert project.product("linux/a.txt") == b"old"

"""The check of one file costs the same in a folder of any size. The tests count `stat` calls, folder listings and saved rows."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from live_project import LiveProject, own_live_project

from aptui.engine.live import changes
from aptui.engine.scan import walk
from aptui.store.db import writer

pytestmark = pytest.mark.real

SETTINGS = """
scan_folders: [{name: game, path: assets}, {name: gem, path: gem}]
builders: [{name: data, copy: ["*.txt"]}]
"""


class Costs:
    """Counts of work: `stat` calls for sources, folder listings, saved rows, transactions and disk syncs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.counts: Counter[str] = Counter()
        self._patch(monkeypatch, os, "stat", lambda path, *_rest: "stat" if b"assets" in os.fsencode(path) else "")
        self._patch(monkeypatch, walk, "scandir", lambda *_path: "listing")
        apply = writer.Writer._apply

        def counted(database: writer.Writer, rows: Any) -> None:
            self.counts["folder rows"] += len(rows.get("put_folder", ()))
            self.counts["row operations"] += sum(map(len, rows.values()))
            apply(database, rows)

        monkeypatch.setattr(writer.Writer, "_apply", counted)
        transact = writer.Writer._try_transact

        def counted_transaction(database: writer.Writer, batches: Any, *, durable: bool, then: Any) -> None:
            self.counts["transactions"] += 1
            self.counts["synced"] += durable
            transact(database, batches, durable=durable, then=then)

        monkeypatch.setattr(writer.Writer, "_try_transact", counted_transaction)

    def _patch(self, monkeypatch: pytest.MonkeyPatch, module: Any, name: str, kind: Any) -> None:
        real = getattr(module, name)

        def counted(*words: Any, **more: Any) -> Any:
            if isinstance(words[0], (str, bytes, os.PathLike)):
                self.counts[kind(*words)] += 1
            return real(*words, **more)

        monkeypatch.setattr(module, name, counted)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LiveProject:
    return own_live_project(tmp_path, monkeypatch, SETTINGS, {"gem/other.txt": ""})


def cost_of_a_save(project: LiveProject, count: int, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    for number in range(count):
        project.write(f"assets/deep/er/{number}.txt" if number < 3 else f"assets/deep/er/{number}.bin", str(number))
    with project.running(), monkeypatch.context() as patched:
        costs = Costs(patched)
        project.save("deep/er/1.txt", "changed")
        return +costs.counts


def test_check_of_a_saved_file_costs_the_same_in_small_and_large_folders(
    project: LiveProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = cost_of_a_save(project, 100, monkeypatch)
    project.write("assets/deep/er/1.txt", "as before")
    large = cost_of_a_save(project, 3000, monkeypatch)

    assert small["listing"] == large["listing"] == 0
    assert small["folder rows"] == large["folder rows"] == 0
    assert 0 < large["stat"] <= 12
    assert small["stat"] <= 12
    # separate transactions may save the rows of the plan, the rows of the commit, and the rows that wait until the engine is idle
    for costs in (small, large):
        assert costs["transactions"] <= 4
        assert costs["synced"] <= 2
    assert large["row operations"] <= small["row operations"] + 2


def test_idle_engine_saves_the_row_of_a_folder_with_a_changed_file(project: LiveProject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "_SECOND_CHECK_S", 0.05)
    project.edit({"assets/a.txt": "a", "assets/b.txt": "b"})
    with project.running():
        project.save("a.txt", "changed")
        engine = project.live.engine
        assert engine is not None
        project.until(lambda: not engine.pipeline.jobs.memory.newer.facts, "the folder's row")
        project.until_idle()
        saved = {fact.rel: fact for _digest, facts in engine.archive.folders.folder_parts("").values() for fact in facts}
        assert saved["a.txt"].size == len("changed")
        project.forget()
    assert not project.runs


def test_folder_is_checked_after_a_file_is_added_or_deleted_or_respelled(project: LiveProject) -> None:
    project.edit({"assets/a.txt": "game", "gem/a.txt": "gem"})
    with project.running():
        project.write("gem/a.txt", "gem, hidden")
        project.save("new.txt", "new")
        project.move("assets/new.txt", "assets/New.txt")
        project.settle()
        project.delete("assets/a.txt")
        project.until_product("linux/a.txt", "gem, hidden")
        project.save("a.txt", "back")


def test_overriding_file_wins_if_its_folder_is_spelled_in_another_case(project: LiveProject) -> None:
    project.write("gem/D1/a.txt", "hidden")
    with project.running():
        project.until_product("linux/d1/a.txt", "hidden")
        project.write("assets/d1/other.txt", "")
        project.settle()
        project.until_idle()
        project.write("assets/d1/a.txt", "own")
        project.settle()
        assert project.product("linux/d1/a.txt") == b"own"

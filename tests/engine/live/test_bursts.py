"""Many changes at once: the number of file reads, folder reports and transactions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from disk_project import COPIES
from live_project import LiveProject, own_live_project

from aptui.core.messages import FilesHashed, FolderSeen
from aptui.core.model import PathKey, Source
from aptui.core.orders import HashOrder, HashResult
from aptui.engine.live.changes import ChangeTracker
from aptui.engine.live.supervisor import EngineSupervisor
from aptui.engine.loop import scans
from aptui.engine.loop.commands import CommandExecutor
from aptui.engine.loop.engine import Engine
from aptui.engine.loop.hashing import HashQueue
from aptui.engine.pool.pool import Pool
from aptui.store.db.archive import DatabaseArchive

pytestmark = pytest.mark.real

_COUNT = 40


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LiveProject:
    return own_live_project(tmp_path, monkeypatch, COPIES, {"assets/a.txt": "a"})


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts of files that are reported to the core.

    `listed` counts files in reported folders, `read` counts files that were read.
    """
    counts: Counter[str] = Counter()
    handle = CommandExecutor.handle

    def counted(executor: CommandExecutor, event: Any) -> None:
        if isinstance(event, FolderSeen):
            counts["listed"] += len(event.facts)
        elif isinstance(event, FilesHashed):
            counts["read"] += len(event.facts)
        handle(executor, event)

    monkeypatch.setattr(CommandExecutor, "handle", counted)
    return counts


def hold_reading(engine: Engine, patch: pytest.MonkeyPatch) -> None:
    """Stop the engine from reading files until `patch` is undone, so that changed files stay in the queue."""
    patch.setattr(engine.digests, "read_few", lambda: None)
    patch.setattr(engine.digests, "send", lambda _pool: None)


def is_checking(live: EngineSupervisor) -> bool:
    """Whether the last progress report shows a running scan.

    Wakes the engine's loop first, because the engine reports progress only when its loop runs.
    """
    live.wake()
    progress = live.latest_progress
    return progress is not None and progress.is_scanning


@pytest.mark.parametrize("how", ["folder", "scan"])
def test_scan_does_not_report_files_that_are_already_queued_for_reading(
    project: LiveProject, seen: Counter[str], monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(scans, "RACY_NS", 0)
    with project.running() as live, monkeypatch.context() as held:
        engine = live.engine
        assert engine is not None
        hold_reading(engine, held)
        seen.clear()
        for number in range(_COUNT):
            project.write(f"assets/new/{number}.txt", str(number))
        reported: list[bool] = []
        live.watching.when_synced(reported.append)
        project.until(lambda: reported and len(engine.pipeline.jobs.memory.hashing) == _COUNT and live.watching.is_quiet, "seen")
        listed = seen["listed"]
        project.write("assets/new/late.txt", "late")
        if how == "folder":
            engine.scans.check_folder("new")
        else:
            engine.scans.start_below("new")
        project.until(lambda: len(engine.pipeline.jobs.memory.hashing) == _COUNT + 1 and not engine.scans.is_scanning, "seen again")
        held.undo()
        project.until_product("linux/new/late.txt", "late")

        assert 1 <= seen["listed"] - listed <= 3, (
            "the check lists only 'late.txt'; notifications about this file may list it twice more"
        )
        assert _COUNT + 1 <= seen["read"] <= _COUNT + 3
        assert {project.product(f"linux/new/{number}.txt") for number in range(_COUNT)} == {b"%d" % n for n in range(_COUNT)}


def test_folder_is_reported_again_if_a_file_may_have_changed_right_after_its_check(
    project: LiveProject, seen: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with project.running() as live, monkeypatch.context() as held:
        engine = live.engine
        assert engine is not None
        hold_reading(engine, held)
        project.write("assets/new/b.txt", "b")
        project.until(lambda: engine.pipeline.jobs.memory.hashing and live.watching.is_quiet, "seen")
        listed = seen["listed"]
        engine.scans._checked_ns["new"] = 0  # as if the file could have changed after its check, within the same clock tick
        engine.scans.check_folder("new")
        project.until(lambda: not engine.inbox, "seen again")
        held.undo()
        project.until_product("linux/new/b.txt", "b")

        assert seen["listed"] > listed


def test_worker_copies_changed_files_of_a_burst_while_hashing_them(project: LiveProject, monkeypatch: pytest.MonkeyPatch) -> None:
    orders: list[HashOrder] = []
    make_order = HashQueue._order

    def noted(digests: HashQueue, *, may_copy: bool) -> HashOrder:
        orders.append(make_order(digests, may_copy=may_copy))
        return orders[-1]

    monkeypatch.setattr(HashQueue, "_order", noted)
    with project.running() as live, monkeypatch.context() as held:
        engine = live.engine
        assert engine is not None
        orders.clear()
        held.setattr(ChangeTracker, "is_amid_changes", True)
        for number in range(_COUNT):
            project.write(f"assets/{number}.txt", str(number))
        engine.scans.check_folder("")
        project.until(lambda: engine.digests.are_waiting and not engine.inbox, "seen")
        assert not orders, "no file may be read before all changes that were reported together are checked"
        held.undo()
        project.until_product(f"linux/{_COUNT - 1}.txt", str(_COUNT - 1))

        assert sum(len(order.copies) for order in orders) >= _COUNT


def test_files_that_were_copied_during_a_check_are_not_copied_again(project: LiveProject, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[object] = []
    send = Pool.send
    monkeypatch.setattr(Pool, "send", lambda pool, orders: (runs.append(orders), send(pool, orders)))
    with project.running() as live, monkeypatch.context() as held:
        engine = live.engine
        assert engine is not None
        runs.clear()
        accept_result = engine.digests.accept_result

        def taken(result: HashResult) -> None:
            held.setattr(ChangeTracker, "is_amid_changes", True)
            accept_result(result)

        held.setattr(engine.digests, "accept_result", taken)
        for number in range(_COUNT):
            project.write(f"assets/{number}.txt", str(number))
        engine.scans.check_folder("")
        project.until(lambda: engine.digests.are_answered, "read")
        for _turn in range(3):
            live.wake()
            live.turn()
        assert engine.digests.are_answered
        held.undo()
        project.until_product(f"linux/{_COUNT - 1}.txt", str(_COUNT - 1))

        assert not runs


def test_saved_file_of_a_copy_rule_is_sent_to_a_worker_once(project: LiveProject, monkeypatch: pytest.MonkeyPatch) -> None:
    with project.running(), monkeypatch.context() as patched:
        orders: list[object] = []
        send, send_hash = Pool.send, Pool.send_hash
        patched.setattr(Pool, "send", lambda pool, runs: (orders.append(runs), send(pool, runs)))
        patched.setattr(Pool, "send_hash", lambda pool, order: (orders.append(order), send_hash(pool, order)))
        project.save("a.txt", "changed")

        assert {type(order) for order in orders} == {HashOrder}


def test_progress_shows_scanning_until_all_changed_files_are_read(project: LiveProject) -> None:
    with project.running() as live, pytest.MonkeyPatch.context() as held:
        engine = live.engine
        assert engine is not None
        hold_reading(engine, held)
        for number in range(_COUNT):
            project.write(f"assets/new/{number}.txt", str(number))
        project.until(lambda: len(engine.pipeline.jobs.memory.hashing) == _COUNT and live.watching.is_quiet, "seen")

        project.until(lambda: is_checking(live) and not engine.scans.is_scanning, "progress that reports work without a check")
        held.undo()
        project.until_product("linux/new/0.txt", "0")
        project.until(lambda: not is_checking(live), "progress that reports the end of the work")


def test_rows_of_changed_sources_are_loaded_after_their_files_were_read(
    project: LiveProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: Counter[str] = Counter()
    ask = DatabaseArchive.sources

    def counted(archive: DatabaseArchive, keys: Sequence[PathKey]) -> dict[PathKey, Source]:
        loaded.update(keys)
        return ask(archive, keys)

    for number in range(_COUNT):
        project.write(f"assets/{number}.txt", str(number))
    with project.running() as live, monkeypatch.context() as held:
        engine = live.engine
        assert engine is not None
        held.setattr(ChangeTracker, "is_amid_changes", True)
        held.setattr(DatabaseArchive, "sources", counted)
        for number in range(_COUNT):
            project.write(f"assets/{number}.txt", f"again {number}")
        engine.scans.check_folder("")
        project.until(lambda: engine.digests.are_waiting and not engine.inbox, "seen")
        seen = sum(loaded.values())
        held.setattr(ChangeTracker, "is_amid_changes", False)
        project.until_product(f"linux/{_COUNT - 1}.txt", f"again {_COUNT - 1}")

        assert not seen
        assert set(loaded) >= {f"{number}.txt" for number in range(_COUNT)}

"""The contents of the cache are read again after changes when the engine is idle; until then they are marked as outdated."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from aptui.core.notices import Progress
from aptui.features.sharing.screen import cache_contents
from aptui.features.sharing.screen.cache_contents import CacheInventory, InventoryReader
from aptui.shared.errors import HostError
from aptui.tui.data.feed import Batch

HELD = CacheInventory((), (), (), (), 5, 15_000, 2, 3_000, 1_000_000, 4_000_000, 1_790_000_000_000)
BUSY = Progress(0, 1, 0, 0, 5, 1, 0, 0, False)


@pytest.fixture
def room(monkeypatch, tmp_path):
    room = SimpleNamespace(reads=[], taken=[], changes=0)

    class Task:
        def __init__(self, *_) -> None:
            self.is_busy = False

        def start(self, _work, took, failed) -> bool:
            if not self.is_busy:
                self.is_busy = True
                room.reads.append((took, failed))
                return True
            return False

    monkeypatch.setattr(cache_contents, "BackgroundTask", Task)
    room.session = SimpleNamespace(latest_progress=None, cache_dir=tmp_path)
    shell = SimpleNamespace(in_ui=None, config=None, session=room.session)
    room.reader = InventoryReader(shell, room.taken.append, lambda: setattr(room, "changes", room.changes + 1))
    return room


def end(room, held: CacheInventory = HELD) -> None:
    room.reader._task.is_busy = False
    room.reads[-1][0](held)


def said(room, width: int = 120) -> str:
    left, right = room.reader.summary(width)
    return "".join(part.text for part in (*left, *right))


def test_inventory_is_not_read_again_without_changes(room):
    room.reader.read_if_stale()
    assert "reading" in said(room)
    end(room)
    room.reader.note(Batch())
    room.reader.read_if_stale()
    assert (len(room.reads), room.taken) == (1, [HELD])

    room.reader.note(Batch(are_assets_stale=True))
    room.reader.read_if_stale()
    assert len(room.reads) == 2


def test_inventory_during_jobs_is_marked_as_outdated(room):
    room.reader.read_if_stale()
    end(room)
    room.session.latest_progress = BUSY
    room.reader.note(Batch(are_assets_stale=True))
    room.reader.read_if_stale()

    assert len(room.reads) == 1
    assert "as of" in said(room)


def test_first_inventory_does_not_wait_for_an_idle_engine(room):
    room.session.latest_progress = BUSY
    room.reader.read_if_stale()

    assert len(room.reads) == 1


def test_inventory_is_read_again_if_assets_change_while_it_is_read(room):
    room.reader.read_if_stale()
    room.reader.note(Batch(are_assets_stale=True))
    end(room)

    assert len(room.reads) == 2


def test_failed_inventory_is_retried_only_on_request(room):
    room.reader.read_if_stale()
    room.reader._task.is_busy = False
    room.reads[-1][1](HostError("there is no asset database"))
    room.reader.note(Batch(are_assets_stale=True))
    room.reader.read_if_stale()
    assert (len(room.reads), said(room)) == (1, " there is no asset database")

    room.reader.read()
    assert len(room.reads) == 2


@pytest.mark.parametrize(
    ("made", "width", "words"),
    [(5, 120, "all made in the last 24 h"), (0, 80, "none made in the last 24 h"), (2, 120, "2 made in the last 24 h, 2.9 KiB")],
)
def test_summary_shows_the_number_of_new_products(room, made, width, words):
    room.reader.read_if_stale()
    end(room, replace(HELD, made=made))

    assert words in said(room, width)
    assert ("of 3.8 MiB free" in said(room, width)) == (width > 100)

"""After a change, the screen marks the cache contents as out of date. It reads them again as soon as the engine is idle."""

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
def harness(monkeypatch, tmp_path):
    harness = SimpleNamespace(reads=[], taken=[], changes=0)

    class Task:
        def __init__(self, *_) -> None:
            self.is_busy = False

        def start(self, _work, took, failed) -> bool:
            if not self.is_busy:
                self.is_busy = True
                harness.reads.append((took, failed))
                return True
            return False

    monkeypatch.setattr(cache_contents, "BackgroundTask", Task)
    harness.session = SimpleNamespace(latest_progress=None, cache_dir=tmp_path)
    shell = SimpleNamespace(in_ui=None, config=None, session=harness.session)
    harness.reader = InventoryReader(shell, harness.taken.append, lambda: setattr(harness, "changes", harness.changes + 1))
    return harness


def end(harness, held: CacheInventory = HELD) -> None:
    harness.reader._task.is_busy = False
    harness.reads[-1][0](held)


def summary_text(harness, width: int = 120) -> str:
    left, right = harness.reader.summary(width)
    return "".join(part.text for part in (*left, *right))


def test_inventory_is_not_read_again_without_changes(harness):
    harness.reader.read_if_stale()
    assert "reading" in summary_text(harness)
    end(harness)
    harness.reader.note(Batch())
    harness.reader.read_if_stale()
    assert (len(harness.reads), harness.taken) == (1, [HELD])

    harness.reader.note(Batch(are_assets_stale=True))
    harness.reader.read_if_stale()
    assert len(harness.reads) == 2


def test_inventory_during_jobs_is_marked_as_outdated(harness):
    harness.reader.read_if_stale()
    end(harness)
    harness.session.latest_progress = BUSY
    harness.reader.note(Batch(are_assets_stale=True))
    harness.reader.read_if_stale()

    assert len(harness.reads) == 1
    assert "as of" in summary_text(harness)


def test_first_inventory_does_not_wait_for_an_idle_engine(harness):
    harness.session.latest_progress = BUSY
    harness.reader.read_if_stale()

    assert len(harness.reads) == 1


def test_inventory_is_read_again_if_assets_change_while_it_is_read(harness):
    harness.reader.read_if_stale()
    harness.reader.note(Batch(are_assets_stale=True))
    end(harness)

    assert len(harness.reads) == 2


def test_failed_inventory_is_retried_after_a_change_as_soon_as_the_engine_is_idle(harness):
    harness.reader.read_if_stale()
    harness.reader._task.is_busy = False
    harness.reads[-1][1](HostError("there is no asset database"))
    harness.reader.read_if_stale()
    harness.session.latest_progress = BUSY
    harness.reader.note(Batch(are_assets_stale=True))
    harness.reader.read_if_stale()
    assert (len(harness.reads), summary_text(harness)) == (1, " there is no asset database")

    harness.session.latest_progress = None
    harness.reader.read_if_stale()
    assert len(harness.reads) == 2


@pytest.mark.parametrize(
    ("made", "width", "words"),
    [(5, 120, "all made in the last 24 h"), (0, 80, "none made in the last 24 h"), (2, 120, "2 made in the last 24 h, 2.9 KiB")],
)
def test_summary_shows_the_number_of_new_products(harness, made, width, words):
    harness.reader.read_if_stale()
    end(harness, replace(HELD, made=made))

    assert words in summary_text(harness, width)
    assert ("of 3.8 MiB free" in summary_text(harness, width)) == (width > 100)

"""A real asset database for tests of the data that screens show."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aptui.store.db.writer import Writer
from aptui.tui.data.feed import Feed
from tests.store.conftest import Store, make_database


@contextmanager
def database(folder: Path) -> Iterator[Store]:
    """Make an asset database with one scan folder, "project"."""
    path = folder / "assetdb.sqlite"
    make_database(path)
    saved: list[int] = []
    writer = Writer(path, saved.append)
    ids, _ = writer.sync_scan_folders([("project", str(folder), 0)])
    store = Store(path, writer, saved, ids["project"])
    try:
        yield store
    finally:
        store.close()


class ManualFeed(Feed):
    """Reads the rows only when the test calls `read`."""

    def refresh(self) -> None:
        self._is_read_due = True

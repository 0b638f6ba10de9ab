"""A reader that follows the change feed page by page: each page is one short query, so a slow client does not block the database.

A page has the records of `store.db.change_log`, and records of two other kinds, whose `seq` is the number to continue from:

    {"seq": 7, "kind": "listed"}   the listing is complete; changes that happened while it was written follow
    {"seq": 7, "kind": "resync"}   the given number is unknown or too old: read a listing, then continue from this number

After a listing, a client may receive the removal of an entry that was never listed; it must ignore this record.

Tests: `tests/features/gateway/http/test_change_feed.py`.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from aptui.shared.errors import HostError, KnownError, UserError
from aptui.store.db.change_log import (
    CHANGE_COLUMNS,
    PRODUCT_ENTRY,
    PRODUCTS_FROM,
    SOURCE_ENTRY,
    SOURCES_FROM,
    TRIMMED_STATE,
    Change,
    ChangeKind,
)
from aptui.store.db.schema import host_error
from aptui.store.queries.reader import Reader, open_reader

# `CurrentDatabase` opens the database again after its file is replaced. A check for new data is cheap.

T = TypeVar("T")

Moment = tuple[int, int, int]
"""A value that changes when the database is written or replaced by another file."""


class CurrentDatabase:
    """Reads the database at a path; if the file is replaced, it opens the new file. For one thread at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._reader: Reader | None = None
        self._identity = (0, 0)

    def open(self) -> Reader:
        """Return a reader of the file that is at the path now; it is valid until the next call of a method of this object.

        Raises:
            UserError: the file does not exist, or is being created.
            HostError: the file cannot be read.
        """
        try:
            found = os.stat(self._path)
            identity = found.st_dev, found.st_ino
            if self._reader is None or identity != self._identity:
                reader = open_reader(self._path)
                self.close()
                self._reader, self._identity = reader, identity
        except (FileNotFoundError, NotADirectoryError):
            raise UserError("nothing was processed yet: there is no asset database", hint="run 'aptui batch' first") from None
        except OSError as error:
            what = f"the asset database '{self._path}' cannot be read: {error.strerror}"
            raise HostError(what, hint="check its permissions and its disk") from None
        return self._reader

    def moment(self) -> Moment:
        """Return a value that changes with every write to the database.

        Raises:
            UserError, HostError: as `open`.
        """
        version = self.ask(lambda reader: int(reader.ask("PRAGMA data_version").fetchone()[0]))
        return (*self._identity, version)

    def ask(self, question: Callable[[Reader], T]) -> T:
        """Run the query `question` and return its result.

        Raises:
            UserError, HostError: as `open`.
        """
        try:
            return question(self.open())
        except sqlite3.Error as error:
            raise host_error(self._path, error) from error

    def close(self) -> None:
        """Close the file."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None


# Queries of the change feed: the last number, the entries after a number, and the listing; `db.change_log` writes it.

_LIST_SOURCES = f"SELECT s.SourceID, {SOURCE_ENTRY} FROM {SOURCES_FROM} WHERE s.SourceID > ? ORDER BY s.SourceID LIMIT ?"
_LIST_PRODUCTS = f"SELECT p.ProductID, {PRODUCT_ENTRY} FROM {PRODUCTS_FROM} WHERE p.ProductID > ? ORDER BY p.ProductID LIMIT ?"


# ------------------------------------------------------------------------------------------------------------------ reading


def latest(database: Reader) -> int:
    """Return the number of the last entry, 0 if the feed is empty."""
    return int(database.ask("SELECT COALESCE(MAX(seq), 0) FROM aptui_changes").fetchone()[0])


def is_known(database: Reader, since: int) -> bool:
    """Whether all entries after number `since` are still stored; 0 is before the first entry."""
    if since == 0:
        return database.state(TRIMMED_STATE) is None
    return database.ask("SELECT 1 FROM aptui_changes WHERE seq = ?", (since,)).fetchone() is not None


def entries(database: Reader, since: int, limit: int = -1) -> Iterator[Change]:
    """Yield the entries after `since` in order, `limit` at most (-1 = all)."""
    sql = f"SELECT seq, {CHANGE_COLUMNS}, is_removed FROM aptui_changes WHERE seq > ? AND kind <> 0 ORDER BY seq LIMIT ?"
    return map(_change, database.ask(sql, (since, limit)))


def listing(database: Reader, kind: ChangeKind, after: int = 0, limit: int = -1) -> Iterator[tuple[int, Change]]:
    """Yield (row id, line) of the sources or products as they are now, with a row id above `after`; at most `limit` (-1 = all)."""
    sql = _LIST_SOURCES if kind is ChangeKind.SOURCE else _LIST_PRODUCTS
    for row_id, *row in database.ask(sql, (after, limit)):
        yield row_id, _change((0, *row, 0))


def _change(row: tuple[Any, ...]) -> Change:
    seq, kind, uuid, sub_id, name, asset_type, digest, size, is_removed = row
    return Change(seq, ChangeKind(kind), uuid, sub_id, name, asset_type, digest, size, bool(is_removed))


PAGE = 2_000
"""Maximum number of records of one page."""
_START = ChangeKind.BEGINNING, 0
LISTED, RESYNC = "listed", "resync"
Record = dict[str, object]


def parse_number(text: str) -> int | None:
    """Convert the number of a change, as text from a user or client, to an integer; None if the text is not a number.

    A number above the largest integer of SQLite becomes this integer.
    """
    return min(int(text), (1 << 63) - 1) if text.isascii() and text.isdigit() else None


class ChangeTail:
    """A position in the change feed of one database; it stays usable if the database is set aside and created again.

    Args:
        since: the number of the last entry that the client has; None = begin with a listing.
        database: a reader that several tails share in one thread; `close` leaves it open.
    """

    def __init__(self, path: Path, since: int | None, database: CurrentDatabase | None = None) -> None:
        self._database, self._is_shared = database or CurrentDatabase(path), database is not None
        self.since = since or 0
        """The number after which the next page begins."""
        self._listing: tuple[ChangeKind, int] | None = _START if since is None else None
        self._moment: Moment | None = None

    def close(self) -> None:
        """Close the database."""
        if not self._is_shared:
            self._database.close()

    def is_news(self) -> bool:
        """Whether anything was written since the last page; cheap enough for many calls per second."""
        try:
            return self._database.moment() != self._moment
        except KnownError:
            return False  # the database is being created again

    def page(self) -> list[Record]:
        """Return the next records, [] if there are no more at present.

        Raises:
            UserError: there is no database. HostError: the database cannot be read.
        """
        try:
            self._moment = self._database.moment()
        except KnownError:
            if self._moment is None:
                raise
            return []
        return self._database.ask(self._page)

    def _page(self, database: Reader) -> list[Record]:
        with database.snapshot():
            if self._listing == _START:
                self.since, self._listing = latest(database), (ChangeKind.SOURCE, 0)
            elif not is_known(database, self.since):
                self.since, self._listing = latest(database), None
                return [{"seq": self.since, "kind": RESYNC}]
            return self._entries(database) if self._listing is None else self._lines(database, *self._listing)

    def _entries(self, database: Reader) -> list[Record]:
        found = list(entries(database, self.since, PAGE))
        if found:
            self.since = found[-1].seq
        return [entry.record() for entry in found]

    def _lines(self, database: Reader, kind: ChangeKind, after: int) -> list[Record]:
        found = list(listing(database, kind, after, PAGE))
        if found:
            self._listing = kind, found[-1][0]
            return [line.record() for _row_id, line in found]
        if kind is ChangeKind.SOURCE:
            self._listing = ChangeKind.PRODUCT, 0
            return self._lines(database, *self._listing)
        self._listing = None
        return [{"seq": self.since, "kind": LISTED}]

"""A reader that follows the change feed page by page: each page is one short query, so no slow client holds the database.

The records are those of `changes`, and two more, both with the number to go on from:

    {"seq": 7, "kind": "listed"}   the listing before this one is whole; what changed while it was written follows
    {"seq": 7, "kind": "resync"}   the number that was given is not known here, or not any more: take a listing, then go on
    from this one

A removal of what nobody told of can follow a listing, and means nothing.

Tests: `tests/serve/http/test_feed.py`.
"""

from __future__ import annotations

from pathlib import Path

from aptui.shared.errors import KnownError
from aptui.store.db.change_log import ChangeKind
from aptui.store.queries import changes
from aptui.store.queries.current import CurrentDatabase, Moment
from aptui.store.queries.reader import Reader

PAGE = 2_000
"""Records of one look."""
_START = ChangeKind.BEGINNING, 0
LISTED, RESYNC = "listed", "resync"
Record = dict[str, object]


class ChangeTail:
    """A place in the feed of one database, which may be put aside and made anew meanwhile.

    Args:
        path: of the database.
        since: the number of the last entry that is known; None = begin with a listing.
        database: a reader that several tails share in one thread; `close` leaves it open.
    """

    def __init__(self, path: Path, since: int | None, database: CurrentDatabase | None = None) -> None:
        self._database, self._is_shared = database or CurrentDatabase(path), database is not None
        self.since = since or 0
        """The number to go on from."""
        self._listing: tuple[ChangeKind, int] | None = _START if since is None else None
        self._moment: Moment | None = None

    def close(self) -> None:
        """Let go of the database."""
        if not self._is_shared:
            self._database.close()

    def is_news(self) -> bool:
        """Whether anything at all was written since the last page; cheap enough to be asked many times a second."""
        try:
            return self._database.moment() != self._moment
        except KnownError:
            return False  # it is being made anew: there will be

    def page(self) -> list[Record]:
        """Return the next records, none when there are no more now.

        Raises:
            UserError: there is no database. HostError: it cannot be read.
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
                self.since, self._listing = changes.latest(database), (ChangeKind.SOURCE, 0)
            elif not changes.is_known(database, self.since):
                self.since, self._listing = changes.latest(database), None
                return [{"seq": self.since, "kind": RESYNC}]
            return self._entries(database) if self._listing is None else self._lines(database, *self._listing)

    def _entries(self, database: Reader) -> list[Record]:
        found = list(changes.entries(database, self.since, PAGE))
        if found:
            self.since = found[-1].seq
        return [entry.record() for entry in found]

    def _lines(self, database: Reader, kind: ChangeKind, after: int) -> list[Record]:
        found = list(changes.listing(database, kind, after, PAGE))
        if found:
            self._listing = kind, found[-1][0]
            return [line.record() for _row_id, line in found]
        if kind is ChangeKind.SOURCE:
            self._listing = ChangeKind.PRODUCT, 0
            return self._lines(database, *self._listing)
        self._listing = None
        return [{"seq": self.since, "kind": LISTED}]

"""The ledger of one event: the commands, notices and rows that result from the event, with their ids and tickets.

A ticket is the number of one save of rows. The writer of the database acknowledges tickets in ascending order.

Tests: `tests/core/state/test_commits.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct, field

from aptui.core.messages import Command, CommitProducts, JobCommit, Rows, SaveRows
from aptui.core.model import Source
from aptui.core.notices import Notice

RUN_KEY_STATE = "run_keys"
"""Key in `aptui_state` of the highest reserved run key; the next engine uses only higher run keys."""
_BLOCK = 65_536
_OF_PRODUCTS = (("put_product", 1), ("put_link", 1), ("put_legacy_sub_id", 1), ("put_facts", 1))
_TAKEN_BACK: dict[str, tuple[tuple[str, int], ...]] = {
    "drop_source": (("put_source", 0), ("put_legacy", 1)),
    "drop_legacy": (("put_legacy", 1),),
    "drop_analysis": (("put_analysis", 0),),
    "drop_job": (("put_job", 0), *_OF_PRODUCTS, ("put_run", 0), ("put_draft", 0), ("put_conflict", 1)),
    "drop_products": _OF_PRODUCTS,
    "drop_draft": (("put_draft", 0),),
    "drop_conflict": (("put_conflict", 1),),
}
"""{drop operation: ((put operation, index), ...)}: a drop operation removes unsaved rows of these put operations.

A row of a put operation is removed if its value at `index` equals the first value of the drop operation's row. If the drop
operation's row has more values, its second value, third value and so on must equal the same values of the other row.
"""


class Ledger(Struct):
    """The commands, notices and rows that the current event has produced so far, and the next ids and tickets.

    `ticket` belongs to the rows that are collected now: the sources in `touched` are saved when `ticket` is acknowledged.
    """

    source_ids: Iterator[int]
    job_ids: Iterator[int]
    product_ids: Iterator[int]
    run_key: int
    reserved: int = 0
    ticket: int = 1
    cause: int = 0
    commands: list[Command] = field(default_factory=list)
    commits: list[JobCommit] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)
    rows: Rows = field(default_factory=dict)
    touched: dict[Source, None] = field(default_factory=dict)
    owners: dict[str, tuple[int, set[object]]] = field(default_factory=dict)
    """{put operation: (number of its rows that are indexed, the values of these rows that drop operations name)}."""

    def next_run_keys(self, count: int) -> tuple[int, ...]:
        """Return `count` new run keys. Keys are reserved in blocks, so that a key that was lost in a crash is not used again."""
        first, self.run_key = self.run_key, self.run_key + count
        if self.run_key > self.reserved:
            self.reserved = self.run_key + _BLOCK
            self.put("put_state", (RUN_KEY_STATE, str(self.reserved)))
        return tuple(range(first, self.run_key))

    def put(self, operation: str, row: tuple[object, ...]) -> None:
        """Add one row to the rows that are saved at the end of this event."""
        rows = self.rows.get(operation)
        if rows is None:
            self.rows[operation] = [row]
        else:
            rows.append(row)

    def put_all(self, operation: str, rows: Iterable[tuple[object, ...]]) -> None:
        """Add rows to the rows that are saved at the end of this event."""
        for row in rows:
            self.put(operation, row)

    def order(self, command: Command) -> None:
        """Add a command to the commands of this event."""
        self.commands.append(command)

    def commit(self, commits: Iterable[JobCommit]) -> None:
        """Request the commit of these jobs. All commits of an event are one command, the last command of the event.

        The command that saves the rows of this event must come before the commit: the event that reports the end of the commit
        saves rows with a higher ticket, and rows are saved in the order of their tickets.
        """
        self.commits += commits

    def flush_rows(self) -> None:
        """Add a command that saves the collected rows with the number `ticket`, and increment `ticket` for later rows."""
        if self.rows:
            self.commands.append(SaveRows(self.cause, self.ticket, self.rows))
            self.rows, self.owners = {}, {}
            self.ticket += 1

    def drop(self, operation: str, row: tuple[object, ...]) -> None:
        """Add a row of a drop operation, for example of a job or a product.

        The writer applies drops before puts. So rows that this event put earlier for the dropped item are removed from the ledger.
        """
        for put_operation, column in _TAKEN_BACK[operation]:
            if row[0] in self._index_owners(put_operation, column):
                rows = self.rows[put_operation]
                self.rows[put_operation] = [put for put in rows if put[column] != row[0] or put[1 : len(row)] != row[1:]]
                del self.owners[put_operation]
        self.put(operation, row)

    def _index_owners(self, operation: str, column: int) -> set[object]:
        """Return the values in a column of the rows of a put operation. Each row is read once, even if there are many drops."""
        rows = self.rows.get(operation, [])
        count, owners = self.owners.get(operation, (0, set()))
        if count < len(rows):
            owners.update(put[column] for put in rows[count:])
            self.owners[operation] = len(rows), owners
        return owners

    def finish(self) -> tuple[list[Command], list[Notice]]:
        """Return the commands and notices of this event, and begin to collect those of the next event."""
        if self.commits:
            self.flush_rows()
            self.order(CommitProducts(self.cause, tuple(self.commits)))
        answer = self.commands, self.notices
        self.commands, self.commits, self.notices = [], [], []
        return answer

"""Products that are to go: they are deleted once no row names them any more.

A row without its product is a lost product, and its job runs again; a product without a row is only a superfluous file. So the
rows are deleted first, and the folder is marked as doubtful with them: if the engine dies in between, the next one checks it.
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING

from aptui.core.messages import DeleteProducts, Rows, SaveRows
from aptui.core.paths import parent
from aptui.core.project import COMMON_PLATFORM

if TYPE_CHECKING:
    from aptui.engine.loop.context import EngineContext

_COMMON = f"{COMMON_PLATFORM}/"


class Deletions:
    """The deletions of one engine that wait for their rows.

    Args:
        context: of the engine.
    """

    def __init__(self, context: EngineContext) -> None:
        self._context = context
        self._waiting: deque[DeleteProducts] = deque()
        self._announced = 0
        """The highest ticket that was given to the writer."""

    @property
    def are_waiting(self) -> bool:
        """Whether anything is to be deleted."""
        return bool(self._waiting)

    def put(self, order: DeleteProducts) -> None:
        """Delete these products when the rows of the order's ticket are saved."""
        self._waiting.append(order)

    def announce(self, order: SaveRows, rows: Rows) -> Rows:
        """Return `rows`, which the writer is given for `order`, with doubts about the folders that lose products after them."""
        folders = {parent(name) for item in self._waiting if item.ticket > self._announced for name in item.names}
        self._announced = order.ticket
        for operation, doubts in self._context.cache.doubt_rows(folders).items():
            rows.setdefault(operation, []).extend(doubts)
        return rows

    def perform(self, ticket: float) -> None:
        """The rows of this ticket are saved: delete what waited for them."""
        while self._waiting and self._waiting[0].ticket <= ticket:
            for problem in self._context.cache.delete(self._waiting.popleft().names):
                self._context.news.from_threads.append(problem)

    def perform_urgent(self) -> None:
        """Delete what has no rows to save, and intermediates at once: they are sources, which are about to be checked."""
        waiting = self._waiting
        if waiting and (
            waiting[-1].ticket > self._announced or any(name.startswith(_COMMON) for order in waiting for name in order.names)
        ):
            self.perform_all()

    def perform_all(self) -> None:
        """Wait until all rows are saved, and delete.

        Raises:
            KnownError: rows cannot be saved.
        """
        if self._waiting:
            self._context.writer.run({}, durable=True)
            self.perform(math.inf)

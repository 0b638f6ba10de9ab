"""The catalog for a client: every asset of its platforms, page by page, each page a short look at the database.

Tests: `tests/serve/ws/test_sessions.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from aptui.serve.protocol.mappers import asset_of
from aptui.serve.protocol.notices import Catalog
from aptui.store.queries.reader import Reader
from aptui.store.queries.serving import Served, catalog_page

if TYPE_CHECKING:
    from aptui.serve.database import Database


async def pages(database: Database, platforms: Sequence[str], size: int) -> AsyncIterator[tuple[tuple[int, int], Catalog]]:
    """Yield ((epoch, seq) of the first page, part); the last part says that it is.

    Raises:
        KnownError: the database cannot be read.
    """
    moment: tuple[int, int] | None = None
    for platform in platforms:
        after = ""
        while True:
            now, rows = await database.ask(partial(_page, platform=platform, after=after, size=size))
            is_first, moment = moment is None, moment or now
            is_over = len(rows) < size
            yield moment, Catalog(tuple(map(asset_of, rows)), is_first, is_over and platform == platforms[-1])
            if is_over:
                break
            after = rows[-1].name


def _page(reader: Reader, platform: str, after: str, size: int) -> tuple[tuple[int, int], list[Served]]:
    return reader.moment(), catalog_page(reader, platform, after, size)

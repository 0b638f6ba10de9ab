"""Columns of a large table in few large pieces: SQLite joins thousands of rows into one value a column.

That is several times cheaper than rows, and the interpreter is free for others meanwhile.

Tests: `tests/store/jobs/test_table.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

from aptui.store.queries.reader import Reader

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

CHUNK = 16_384
"""Rows of one piece, and texts of one chunk of a column: small enough that a search is superseded within milliseconds."""


class Packed(Struct, frozen=True):
    """A question: a rising integer key, where it is, and columns as SQL.

    The first of `numbers` is the key; none may be NULL.
    """

    key: str
    table: str
    numbers: tuple[str, ...]
    texts: tuple[str, ...] = ()

    def rows_sql(self) -> str:
        """Return the SQL of the rows of one piece, their texts alone."""
        return f"SELECT {', '.join(self.texts)} FROM {self.table} WHERE {self.key} > ? ORDER BY {self.key} LIMIT {CHUNK}"

    def sql(self) -> str:
        """Return the SQL of one piece, for the key after which it begins."""
        names = [f"n{at}" for at in range(len(self.numbers))] + [f"t{at}" for at in range(len(self.texts))]
        joined = [f"group_concat({name})" for name in names[: len(self.numbers)]]
        joined += [f"CAST(group_concat({name}, char(0)) AS BLOB)" for name in names[len(self.numbers) :]]
        columns = ", ".join(f"{column} {name}" for column, name in zip((*self.numbers, *self.texts), names, strict=True))
        inner = f"SELECT {columns} FROM {self.table} WHERE {self.key} > ? ORDER BY {self.key} LIMIT {CHUNK}"
        return f"SELECT COUNT(*), {', '.join(joined)} FROM ({inner})"


class JoinedTexts(Struct, frozen=True):
    """Texts with NUL between them."""

    data: bytes
    count: int

    def decode(self) -> list[str]:
        """Return the texts."""
        return self.data.decode("utf-8", "replace").split("\0")


class Piece(Struct, frozen=True):
    """Some thousand rows as SQLite joined them: of each column its numbers with commas between them, or its texts."""

    count: int
    numbers: tuple[str, ...]
    texts: tuple[JoinedTexts, ...]

    def arrays(self) -> list[npt.NDArray[np.int64]]:
        """Return the columns of numbers."""
        import numpy as np  # for start-up: pieces are read while it is still being imported

        return [np.fromstring(column, np.int64, sep=",") for column in self.numbers]


def read_packed(reader: Reader, packed: Packed) -> Iterator[Piece]:
    """Yield one piece after the other, by key."""
    last = -1 << 63
    width = len(packed.numbers)
    while True:
        count, *values = reader.ask(packed.sql(), (last,)).fetchone()
        if not count:
            return
        if any(value.count(b"\0") != count - 1 for value in values[width:]):
            values[width:] = _without_nul(reader, packed, last)
        last = int(values[0].rpartition(",")[2])
        yield Piece(count, tuple(values[:width]), tuple(JoinedTexts(value, count) for value in values[width:]))
        if count < CHUNK:
            return


def _without_nul(reader: Reader, packed: Packed, last: int) -> list[bytes]:
    """Return the texts of one piece, joined here; the rare way for texts that hold a NUL or are NULL."""
    rows = reader.ask(packed.rows_sql(), (last,)).fetchall()
    return ["\0".join(str(text or "").replace("\0", "␀") for text in column).encode() for column in zip(*rows, strict=True)]

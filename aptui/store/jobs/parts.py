"""Reads all jobs and failed analyses of the asset database, part by part, in one transaction; `job_table` makes columns of them.

Reading does not need numpy, so parts can be read while numpy and other modules are still being imported.

Tests: `tests/store/jobs/test_job_table.py`.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from aptui.core.run_report import ContentFacts, combine_others
from aptui.store.db.foreign import job_stat_sql
from aptui.store.queries.reader import CRITICAL_SQL, ERROR_SQL, REASON_SQL, SHOWN, STATUSES, Reader

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


# Reads the columns of a large table in few large chunks: SQLite joins thousands of rows into one value per column.
#
# That is several times cheaper than single rows, and other Python threads can run while SQLite works.

CHUNK = 16_384
"""Size of one step of a search: rows of a query, or texts. It is small, because a search can be stopped only between two steps."""


class Packed(Struct, frozen=True):
    """A query whose rows are read in chunks: a rising integer key, the tables, and the columns (all in SQL).

    The first of `numbers` is the key; no column may be NULL.
    """

    key: str
    table: str
    numbers: tuple[str, ...]
    texts: tuple[str, ...] = ()

    def rows_sql(self) -> str:
        """Return the SQL for the single rows of a chunk, with only their text columns."""
        return f"SELECT {', '.join(self.texts)} FROM {self.table} WHERE {self.key} > ? ORDER BY {self.key} LIMIT {CHUNK}"

    def sql(self) -> str:
        """Return the SQL for a chunk; its parameter is the key after which the chunk begins."""
        names = [f"n{at}" for at in range(len(self.numbers))] + [f"t{at}" for at in range(len(self.texts))]
        joined = [f"group_concat({name})" for name in names[: len(self.numbers)]]
        joined += [f"CAST(group_concat({name}, char(0)) AS BLOB)" for name in names[len(self.numbers) :]]
        columns = ", ".join(f"{column} {name}" for column, name in zip((*self.numbers, *self.texts), names, strict=True))
        inner = f"SELECT {columns} FROM {self.table} WHERE {self.key} > ? ORDER BY {self.key} LIMIT {CHUNK}"
        return f"SELECT COUNT(*), {', '.join(joined)} FROM ({inner})"


class JoinedTexts(Struct, frozen=True):
    """Several texts in one string, with NUL between them."""

    data: bytes
    count: int

    def decode(self) -> list[str]:
        """Return the texts."""
        return self.data.decode("utf-8", "replace").split("\0")


class Piece(Struct, frozen=True):
    """Some thousand rows as SQLite joined them: for each column, its numbers separated by commas, or its texts."""

    count: int
    numbers: tuple[str, ...]
    texts: tuple[JoinedTexts, ...]

    def arrays(self) -> list[npt.NDArray[np.int64]]:
        """Return the columns of numbers."""
        import numpy as np  # imported here, because chunks are read while numpy is still being imported

        return [np.fromstring(column, np.int64, sep=",") for column in self.numbers]


def read_packed(reader: Reader, packed: Packed) -> Iterator[Piece]:
    """Yield the rows of the query, chunk by chunk, in the order of the key."""
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
    """Return the texts of a chunk, joined in Python; only for the rare texts that contain a NUL or are NULL."""
    rows = reader.ask(packed.rows_sql(), (last,)).fetchall()
    return ["\0".join(str(text or "").replace("\0", "␀") for text in column).encode() for column in zip(*rows, strict=True)]


_SOURCES = Packed("s.SourceID", "Sources s", ("s.SourceID", "s.ScanFolderPK"), ("s.SourceName",))
_STATE = " ".join(f"WHEN '{state}' THEN {STATUSES.index(shown)}" for state, shown in SHOWN.items())
_JOBS = Packed(
    "j.JobID",
    "Jobs j LEFT JOIN aptui_jobs o ON o.job_id = j.JobID",
    (
        "j.JobID", "j.SourcePK",
        f"CASE o.state {_STATE} ELSE CASE j.Status WHEN 0 THEN 0 WHEN 1 THEN 1 WHEN 4 THEN 2 ELSE 3 END END",
        "COALESCE(j.WarningCount, 0)", "COALESCE(j.ErrorCount, 0)", "COALESCE(j.JobRunKey, 0)",
        "COALESCE(o.completed_ms, j.LastLogTime, 0)", "COALESCE(o.duration_ms, 0)",
        CRITICAL_SQL,
    ),
    ("j.Platform", "j.JobKey", "hex(j.BuilderGuid)", f"COALESCE({REASON_SQL}, '')"),
)  # fmt: skip
# Errors are queried only for jobs that are not completed, because there is an index of these jobs.
_FACTS_SQL = """SELECT p.JobPK, MAX(f.width), MAX(f.height), MAX(f.triangles), MAX(f.rate), MAX(f.seconds), MAX(f.format),
    json_group_array(f.more) FILTER (WHERE f.more <> '')
FROM aptui_facts f JOIN Products p ON p.ProductID = f.product_id GROUP BY p.JobPK"""
_ERRORS_SQL = f"""SELECT j.JobID, {ERROR_SQL}, COALESCE(o.failure_cause, '') FROM Jobs j
    LEFT JOIN aptui_jobs o ON o.job_id = j.JobID
WHERE j.Status <> 4 AND ({ERROR_SQL} <> '' OR o.failure_cause <> '')"""
_ANALYSES_SQL = """SELECT source_id, builder, warnings, errors, completed_ms, duration_ms, reason, error
FROM aptui_analyses WHERE state = 'failed' ORDER BY source_id, builder"""
_FOREIGN_DURATIONS_SQL = f"""
SELECT j.JobID, t.StatValue FROM Jobs j JOIN Sources s ON s.SourceID = j.SourcePK
    JOIN ScanFolders f ON f.ScanFolderID = s.ScanFolderPK
JOIN Stats t ON t.StatName = {job_stat_sql()} WHERE j.JobID NOT IN (SELECT job_id FROM aptui_jobs)"""


class Beginning(Struct, frozen=True):
    """The first part: the moment (epoch, seq) of the state that is read, {id: name} of scan folders, the number of jobs."""

    moment: tuple[int, int]
    folders: dict[int, str]
    job_count: int


class SourcePiece(Struct, frozen=True):
    """Some sources, in the order of their ids: the numbers are id and scan folder, the text is the path."""

    piece: Piece


class JobPiece(Struct, frozen=True):
    """Some jobs, in the order of their ids: numbers and texts as `JobTable.extend` takes them; a source is given by its id."""

    piece: Piece


class Ending(Struct, frozen=True):
    """Values that few jobs have, by job id, and failed analyses (columns of `_ANALYSES_SQL`)."""

    errors: list[tuple[int, str, str]]
    facts: list[tuple[int, ContentFacts]]
    flaky: list[int]
    drafts: list[int]
    analyses: list[tuple[Any, ...]]
    foreign_durations: list[tuple[int, int]]


JobPart: TypeAlias = Beginning | SourcePiece | JobPiece | Ending


def read_job_parts(reader: Reader) -> Generator[JobPart, None, None]:
    """Yield a `Beginning`, all sources in chunks, all jobs in chunks, and an `Ending`."""
    with reader.snapshot():
        folders = dict(reader.ask("SELECT ScanFolderID, DisplayName FROM ScanFolders").fetchall())
        jobs, ours = reader.ask("SELECT (SELECT COUNT(*) FROM Jobs), (SELECT COUNT(*) FROM aptui_jobs)").fetchone()
        yield Beginning(reader.moment(), folders, jobs)
        yield from map(SourcePiece, read_packed(reader, _SOURCES))
        yield from map(JobPiece, read_packed(reader, _JOBS))
        yield Ending(
            reader.ask(_ERRORS_SQL).fetchall(), list(read_facts(reader)), list(reader.flaky_jobs()), list(reader.draft_jobs()),
            reader.ask(_ANALYSES_SQL).fetchall(), reader.ask(_FOREIGN_DURATIONS_SQL).fetchall() if ours < jobs else [],
        )  # fmt: skip


def read_facts(reader: Reader) -> Iterator[tuple[int, ContentFacts]]:
    """Yield the combined facts of the products of jobs, by job id; jobs without facts are left out."""
    for job_id, *values, more in reader.ask(_FACTS_SQL):
        others = combine_others(json.loads(more)) if more != "[]" else ""
        yield job_id, replace(ContentFacts(*values), more=others)

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
BETWEEN = "\1"
"""Separator of the columns of a row's text: SQLite joins one text for each row faster than one for each column."""


class Packed(Struct, frozen=True):
    """A query whose rows are read in chunks: a rising integer key, the tables, and the columns (all in SQL).

    The first of `numbers` is the key; no column may be NULL. A row has one text: its columns of `texts`, joined with `BETWEEN`.
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
        names = [f"n{at}" for at in range(len(self.numbers))]
        joined = ", ".join(f"group_concat({name})" for name in names)
        columns = ", ".join(f"{column} {name}" for column, name in zip(self.numbers, names, strict=True))
        text = f" || char({ord(BETWEEN)}) || ".join(self.texts)
        inner = f"SELECT {columns}, {text} t FROM {self.table} WHERE {self.key} > ? ORDER BY {self.key} LIMIT {CHUNK}"
        return f"SELECT COUNT(*), {joined}, CAST(group_concat(t, char(0)) AS BLOB) FROM ({inner})"


class Piece(Struct, frozen=True):
    """Some thousand rows as SQLite joined them: the numbers of each column with commas, the texts of the rows with NUL between."""

    count: int
    numbers: tuple[str, ...]
    joined: bytes

    def texts(self) -> list[str]:
        """Return the text of each row."""
        return self.joined.decode("utf-8", "replace").split("\0")

    def arrays(self) -> list[npt.NDArray[np.int64]]:
        """Return the columns of numbers."""
        import numpy as np  # imported here, because chunks are read while numpy is still being imported

        return [np.fromstring(column, np.int64, sep=",") for column in self.numbers]


def read_packed(reader: Reader, packed: Packed) -> Iterator[Piece]:
    """Yield the rows of the query, chunk by chunk, in the order of the key."""
    last = -1 << 63
    width = len(packed.texts)
    while True:
        count, *numbers, joined = reader.ask(packed.sql(), (last,)).fetchone()
        if not count:
            return
        if joined.count(b"\0") != count - 1 or (width > 1 and joined.count(BETWEEN.encode()) != count * (width - 1)):
            joined = _join(reader, packed, last)
        last = int(numbers[0].rpartition(",")[2])
        yield Piece(count, tuple(numbers), joined)
        if count < CHUNK:
            return


def _join(reader: Reader, packed: Packed, last: int) -> bytes:
    """Return the texts of a chunk, joined in Python; only for the rare texts that contain a separator or are NULL."""
    between = BETWEEN if len(packed.texts) > 1 else "\0"

    def clean(text: object) -> str:
        return str(text or "").replace("\0", "␀").replace(between, "␁")

    return "\0".join(between.join(map(clean, row)) for row in reader.ask(packed.rows_sql(), (last,))).encode()


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

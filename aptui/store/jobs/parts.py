"""Reads all jobs and failed analyses of the asset database, part by part, in one transaction; `job_table` makes columns of them.

Reading does not need numpy, so parts can be read while numpy and other modules are still being imported.

Tests: `tests/store/jobs/test_job_table.py`.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from aptui.core.model import SHOWN
from aptui.core.run_report import ContentFacts, combine_others
from aptui.store.db.foreign import job_stat_sql
from aptui.store.queries.reader import CRITICAL_SQL, ERROR_SQL, REASON_SQL, STATUSES, Reader

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


# A large table is read in few large chunks: SQLite joins the values of thousands of rows into one value per column.
#
# This is several times cheaper than reading single rows, and other Python threads can run while SQLite works.

CHUNK = 16_384
"""Number of rows that are read, or texts that are searched, at a time. It is small, because a search stops only between chunks."""
BETWEEN = "\1"
"""Separator of the columns of a row's text: SQLite joins one text for each row faster than one for each column."""


class Packed(Struct, frozen=True):
    """A query whose rows are read in chunks, in the order of an integer column.

    Args:
        key: the integer column, in SQL.
        table: the tables, in SQL.
        numbers: columns with integers, in SQL; the first is the key. None of them may be NULL.
        texts: columns with texts, in SQL. The texts of a row are read as one text, with `BETWEEN` between them.
        keys: the keys of the rows to read, which must fit into one chunk; None = all rows.
    """

    key: str
    table: str
    numbers: tuple[str, ...]
    texts: tuple[str, ...] = ()
    keys: Sequence[int] | None = None

    def rows_sql(self) -> str:
        """Return the SQL that reads the rows of a chunk one by one, with only their text columns."""
        return f"SELECT {', '.join(self.texts)} FROM {self.table} WHERE {self._where()} ORDER BY {self.key} LIMIT {CHUNK}"

    def sql(self) -> str:
        """Return the SQL for a chunk; its parameter is the key after which the chunk begins."""
        names = [f"n{at}" for at in range(len(self.numbers))]
        joined = ", ".join(f"group_concat({name})" for name in names)
        columns = ", ".join(f"{column} {name}" for column, name in zip(self.numbers, names, strict=True))
        text = f" || char({ord(BETWEEN)}) || ".join(self.texts)
        inner = f"SELECT {columns}, {text} t FROM {self.table} WHERE {self._where()} ORDER BY {self.key} LIMIT {CHUNK}"
        return f"SELECT COUNT(*), {joined}, CAST(group_concat(t, char(0)) AS BLOB) FROM ({inner})"

    def _where(self) -> str:
        return f"{self.key} > ?" if self.keys is None else f"{_in(self.key, self.keys)} AND {self.key} > ?"


class Piece(Struct, frozen=True):
    """Some thousand rows as SQLite joined them.

    `numbers` has one string for each column, with commas between the numbers; `joined` has the texts, with NUL between the rows.
    """

    count: int
    numbers: tuple[str, ...]
    joined: bytes

    def texts(self) -> list[str]:
        """Return the text of each row."""
        return self.joined.decode("utf-8", "replace").split("\0")

    def arrays(self) -> list[npt.NDArray[np.int64]]:
        """Return one array for each column of numbers."""
        import numpy as np  # imported here, so that chunks can be read while another thread imports numpy

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
    """Return the texts of a chunk, joined in Python, for the rare chunk in which a text is NULL or contains a separator."""
    between = BETWEEN if len(packed.texts) > 1 else "\0"

    def clean(text: object) -> str:
        return str(text or "").replace("\0", "␀").replace(between, "␁")

    return "\0".join(between.join(map(clean, row)) for row in reader.ask(packed.rows_sql(), (last,))).encode()


def _in(column: str, numbers: Iterable[int]) -> str:
    return f"{column} IN ({', '.join(map(str, numbers))})"


_SOURCES = Packed("s.SourceID", "Sources s", ("s.SourceID", "s.ScanFolderPK"), ("s.SourceName",))
_STATE = " ".join(f"WHEN '{state}' THEN {STATUSES.index(shown)}" for state, shown in SHOWN.items())
_STATUS_SQL = f"CASE o.state {_STATE} ELSE CASE j.Status WHEN 0 THEN 0 WHEN 1 THEN 1 WHEN 4 THEN 2 ELSE 3 END END"
_MOMENT_SQL = "COALESCE(o.completed_ms, j.LastLogTime, 0)"
_JOBS = Packed(
    "j.JobID",
    "Jobs j LEFT JOIN aptui_jobs o ON o.job_id = j.JobID",
    (
        "j.JobID", "j.SourcePK",
        _STATUS_SQL,
        "COALESCE(j.WarningCount, 0)", "COALESCE(j.ErrorCount, 0)", "COALESCE(j.JobRunKey, 0)",
        _MOMENT_SQL, "COALESCE(o.duration_ms, 0)",
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
FROM aptui_analyses WHERE state = 'failed'"""
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
    """Some sources, in the order of their ids. Their numbers in `piece` are id and scan folder, their text is the path."""

    piece: Piece


class JobPiece(Struct, frozen=True):
    """Some jobs, in the order of their ids: numbers and texts as `JobTable.extend` takes them; a source is given by its id."""

    piece: Piece


class Ending(Struct, frozen=True):
    """The last part: values that only few jobs have, each with its job's id, and the failed analyses.

    A row of `analyses` has the columns of `_ANALYSES_SQL`.
    """

    errors: list[tuple[int, str, str]]
    facts: list[tuple[int, ContentFacts]]
    flaky: list[int]
    drafts: list[int]
    analyses: list[tuple[Any, ...]]
    foreign_durations: list[tuple[int, int]]


class FirstJobs(Struct, frozen=True):
    """The first jobs in the order "failed first", and all other jobs of their sources; shown before all jobs are read.

    Args:
        parts: the data of these jobs, in the form that `read_job_parts` yields.
        sample: the data of some other jobs, from which the widths of columns are computed.
        job_count: number of all jobs and failed analyses.
        source_count: number of all sources with jobs or failed analyses.
        platform_count: 1, or 2 for several platforms.
        mixed: the columns ("platform", "key", "reason") in which not all jobs have the same text.
    """

    parts: list[JobPart]
    sample: list[JobPart]
    job_count: int
    source_count: int
    platform_count: int
    mixed: frozenset[str]


JobPart: TypeAlias = Beginning | FirstJobs | SourcePiece | JobPiece | Ending


def read_job_parts(reader: Reader, *, wants_first: bool = False) -> Generator[JobPart, None, None]:
    """Yield a `Beginning`, all sources in chunks, all jobs in chunks, and an `Ending`.

    With `wants_first`, yield a `FirstJobs` before them if there are many jobs.
    """
    with reader.snapshot():
        folders = dict(reader.ask("SELECT ScanFolderID, DisplayName FROM ScanFolders").fetchall())
        jobs, ours = reader.ask("SELECT (SELECT COUNT(*) FROM Jobs), (SELECT COUNT(*) FROM aptui_jobs)").fetchone()
        beginning = Beginning(reader.moment(), folders, jobs)
        if wants_first and ours == jobs >= _LEAST_JOBS and (first := _read_first(reader, beginning)) is not None:
            yield first
        yield beginning
        yield from map(SourcePiece, read_packed(reader, _SOURCES))
        yield from map(JobPiece, read_packed(reader, _JOBS))
        yield Ending(
            reader.ask(_ERRORS_SQL).fetchall(), list(read_facts(reader)), list(reader.flaky_jobs()), list(reader.draft_jobs()),
            reader.ask(f"{_ANALYSES_SQL} ORDER BY source_id, builder").fetchall(),
            reader.ask(_FOREIGN_DURATIONS_SQL).fetchall() if ours < jobs else [],
        )  # fmt: skip


_LEAST_JOBS = 10_000
"""Minimum number of jobs for `FirstJobs`. With fewer jobs, all jobs are read just as fast."""
_MOST_FIRST, _LEAST_SOURCES = 400, 150
"""Number of jobs and failed analyses from which `FirstJobs` is made, and the minimum number of their different sources.

With fewer than `_LEAST_SOURCES`, a list of sources would not fill a terminal of 150 lines, so all jobs are read at once.
"""
_SAMPLE_SOURCES = 150
# The query returns jobs in the order of `job_table.FAILED_FIRST`.
_FIRST_SQL = f"""
SELECT source_id FROM (
    SELECT source_id, job_id, CASE status WHEN 0 THEN 0 ELSE moment END moment,
        CASE WHEN status = 3 THEN 0 WHEN status = 1 THEN 4 WHEN status <> 2 THEN 3 WHEN errors > 0 THEN 1 WHEN warnings > 0 THEN 2
            ELSE 3 END urgency
    FROM (SELECT j.SourcePK source_id, j.JobID job_id, {_STATUS_SQL} status, {_MOMENT_SQL} moment, j.ErrorCount errors,
        j.WarningCount warnings FROM Jobs j LEFT JOIN aptui_jobs o ON o.job_id = j.JobID)
    UNION ALL SELECT source_id, {1 << 62}, completed_ms, 0 FROM aptui_analyses WHERE state = 'failed'
) ORDER BY urgency, moment DESC, job_id LIMIT {_MOST_FIRST}"""
_COUNTS_SQL = """SELECT COUNT(*), COUNT(DISTINCT source_id) FILTER (
    WHERE NOT EXISTS (SELECT 1 FROM Jobs WHERE SourcePK = source_id)
) FROM aptui_analyses WHERE state = 'failed'"""
_MIXED_SQL = """SELECT EXISTS (SELECT 1 FROM Jobs WHERE Platform <> (SELECT Platform FROM Jobs LIMIT 1)),
    EXISTS (SELECT 1 FROM Jobs WHERE JobKey <> (SELECT JobKey FROM Jobs LIMIT 1)),
    EXISTS (SELECT 1 FROM aptui_jobs, (SELECT reason r, origin o FROM aptui_jobs LIMIT 1) WHERE reason <> r OR origin <> o)
    OR EXISTS (SELECT 1 FROM aptui_analyses WHERE state = 'failed' AND reason <> (SELECT reason FROM aptui_jobs LIMIT 1))"""


def _read_first(reader: Reader, beginning: Beginning) -> FirstJobs | None:
    """Return the jobs that the screen shows first, None if they have too few sources to fill a screen."""
    first = {source for (source,) in reader.ask(_FIRST_SQL)}
    if len(first) < _LEAST_SOURCES:
        return None
    ((analyses, more_sources),) = reader.ask(_COUNTS_SQL)
    ((sources,),) = reader.ask("SELECT COUNT(DISTINCT SourcePK) FROM Jobs")
    ((low, high),) = reader.ask("SELECT MIN(SourceID), MAX(SourceID) FROM Sources")
    sample = range(low, high + 1, (high - low) // _SAMPLE_SOURCES + 1)
    ((platforms, keys, reasons),) = reader.ask(_MIXED_SQL)
    mixed = {"platform": platforms or analyses, "key": keys or analyses, "reason": reasons}
    return FirstJobs(
        _read_parts_of(reader, first, beginning), _read_parts_of(reader, sample, beginning),
        beginning.job_count + analyses, sources + more_sources, 1 + platforms,
        frozenset(name for name, is_mixed in mixed.items() if is_mixed),
    )  # fmt: skip


def _read_parts_of(reader: Reader, sources: Iterable[int], beginning: Beginning) -> list[JobPart]:
    """Return the data of all jobs of some sources, as `read_job_parts` does, but without facts, because rows do not show them."""
    listed = sorted(sources)
    jobs = [job_id for (job_id,) in reader.ask(f"SELECT JobID FROM Jobs WHERE {_in('SourcePK', listed)} LIMIT {CHUNK}")]
    return [
        replace(beginning, job_count=len(jobs)),
        *map(SourcePiece, read_packed(reader, replace(_SOURCES, keys=listed))),
        *map(JobPiece, read_packed(reader, replace(_JOBS, keys=jobs))),
        Ending(
            reader.ask(f"{_ERRORS_SQL} AND {_in('j.JobID', jobs)}").fetchall(), [],
            sorted({*jobs}.intersection(reader.flaky_jobs())), sorted({*jobs}.intersection(reader.draft_jobs())),
            reader.ask(f"{_ANALYSES_SQL} AND {_in('source_id', listed)} ORDER BY source_id, builder").fetchall(), [],
        ),
    ]  # fmt: skip


def read_facts(reader: Reader) -> Iterator[tuple[int, ContentFacts]]:
    """Yield (job id, facts) of each job whose products have facts; each fact is the maximum over these products."""
    for job_id, *values, more in reader.ask(_FACTS_SQL):
        others = combine_others(json.loads(more)) if more != "[]" else ""
        yield job_id, replace(ContentFacts(*values), more=others)

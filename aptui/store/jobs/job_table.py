"""Every job of the asset database as columns, for lists of a million rows.

Only the owner of a table changes it. A row is identified by its index, which never changes; deleted rows stay as dead rows until
everything is read again. A job is identified by its id. A failed analysis has no id; a negative number that only this program uses
identifies it (`AnalysisKeys`).
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from msgspec import Struct

from aptui.core.model import LISTED_ANALYSIS, RelPath, RunKey, describe_key
from aptui.core.notices import JobChanged
from aptui.core.run_report import NO_FACTS, NUMBER_FACTS, WHOLE_FACTS, ContentFacts
from aptui.shared.errors import InternalError
from aptui.store.db.schema import uuid_text
from aptui.store.jobs.parts import BETWEEN, Beginning, Ending, FirstJobs, JobPart, JobPiece, Piece, SourcePiece, read_job_parts
from aptui.store.jobs.regex import Mask
from aptui.store.jobs.texts import Codes, TextIndex, TextPool, Texts, number_distinct
from aptui.store.queries.checks import CheckMark
from aptui.store.queries.logs import LogLines
from aptui.store.queries.reader import STATUSES, Reader

if TYPE_CHECKING:
    import numpy.typing as npt


# Failed jobs are in one group if their errors are equal after paths, names and numbers are masked.

_PARTS = re.compile(
    r"""
    (?P<quoted> '[^'\n]{1,300}' | "[^"\n]{1,300}" | `[^`\n]{1,300}` )
    | (?P<id> \{?\b[0-9A-Fa-f]{8}(?:-?[0-9A-Fa-f]{4}){3}-?[0-9A-Fa-f]{12}\b\}?
        | \b0x[0-9A-Fa-f]+ | \b(?=[0-9a-f]{0,15}\d)[0-9a-f]{12,64}\b )
    | (?P<path> (?:\b[A-Za-z]:)? [^\s'"`:,;()\[\]/\\]* [/\\] [^\s'"`:,;()\[\]]+ (?::\d+)* | [\w.+@-]+ \. [A-Za-z]\w{0,7} (?::\d+)+ )
    | (?P<number> \d+(?:[.,:_]\d+)* )
    """,
    re.VERBOSE,
)
_LONGEST = 500
"""Maximum number of characters of an error's first line that are compared with other errors."""


@lru_cache(maxsize=1024)
def cause_of(error: str) -> str:
    """Return the first line of an error; paths, positions, numbers, ids and quoted names, which differ between jobs, are masked."""
    line = error.strip().partition("\n")[0][:_LONGEST].rstrip()
    return _PARTS.sub(_mask, line)


def _mask(found: re.Match[str]) -> str:
    if found["quoted"]:
        return f"{found[0][0]}…{found[0][0]}"
    return "…" if found["path"] else "#"


# A check examines the whole database, so its findings are set for all jobs of a table at once.


class CheckColumn:
    """The column of the job table with the findings of the checks in `aptui.yaml`; one thread sets it, any thread may read."""

    def __init__(self) -> None:
        self._held: tuple[Codes, Texts, list[CheckMark | None]] = np.empty(0, np.int32), Texts([""]), [None]

    def set(self, rows: npt.NDArray[np.integer], marks: Sequence[CheckMark]) -> None:
        """Mark these rows (-1 = row does not exist), and clear the marks of all other rows."""
        known = rows >= 0
        codes = np.zeros(int(rows.max(initial=-1)) + 1, np.int32)
        codes[rows[known]] = np.arange(1, len(rows) + 1)[known]
        self._held = codes, Texts(["", *(mark.text for mark in marks)]), [None, *marks]

    def text(self, count: int) -> tuple[Codes, Texts]:
        """Return the pair (codes, texts): `codes` has, for each of `count` rows, the index of the row's text in `texts`."""
        codes, texts, _marks = self._held
        return np.concatenate([codes[:count], np.zeros(max(0, count - len(codes)), np.int32)]), texts

    def mark(self, row: int) -> CheckMark | None:
        """Return the check findings about a row's job, None if no check has findings about it."""
        codes, _texts, marks = self._held
        return marks[int(codes[row])] if row < len(codes) else None

    def has_findings(self, rows: npt.NDArray[np.integer]) -> Mask:
        """Return which of these rows have findings."""
        codes = self._held[0]
        found: Mask = np.zeros(len(rows), np.bool_)
        known = rows < len(codes)
        found[known] = codes[rows[known]] > 0
        return found

    def __bool__(self) -> bool:
        """Whether checks found anything."""
        return len(self._held[2]) > 1


PENDING, PROCESSING, COMPLETED, FAILED, CANCELLED = range(5)
_JOB_NUMBERS = ("id", "source_id", "stored_status", "warnings", "errors", "run_key", "completed_ms", "duration_ms", "critical")
_NUMBERS: dict[str, Any] = {
    "id": np.int64, "source": np.int32, "source_id": np.int32, "folder": np.uint16, "platform": np.uint16, "key": np.int32,
    "builder": np.uint16, "stored_status": np.uint8, "status": np.uint8, "warnings": np.int32, "errors": np.int32,
    "completed_ms": np.int64, "duration_ms": np.int32, "reason": np.int32, "error": np.int32, "cause": np.int32, "group": np.int32,
    "run_key": np.int64, "flaky": np.bool_, "draft": np.bool_, "critical": np.bool_, "alive": np.bool_,
}  # fmt: skip
_FACTS: dict[str, Any] = {
    **dict.fromkeys(WHOLE_FACTS, np.int64), "seconds": np.float64, "format": np.uint16,
}  # fmt: skip
"""Columns of facts that builders report about products. They exist only if at least one job has facts."""
_MOST_RECENT = 4096
"""Maximum number of reasons, errors and groups that are remembered, so that equal ones are stored once."""
_FEW_REASONS = 64
"""Maximum number of distinct reasons in a chunk of jobs for which reasons are shared with earlier chunks.

Up to this number, a reason that equals a reason of an earlier chunk is not stored again. If a chunk has more distinct reasons, all
of them are stored, without a comparison with earlier chunks.
"""
_POOLS = ("folder", "platform", "key", "builder")
_TEXTS = ("source", "reason", "error", "cause", "group")

Moment = tuple[int, int]
"""(epoch, seq) of the event after which a value is valid; later moments compare greater."""
Rows: TypeAlias = "npt.NDArray[np.integer]"
_PLAIN = ("warnings", "errors", "duration_ms", "run_key", "draft", "critical")
"""Columns whose values are copied unchanged from the notice of a job."""
_WRITTEN = attrgetter(
    "platform", "job_key", "builder", "reason", "error", "flaky", "facts",
    "warnings", "errors", "duration_ms", "run_key", "is_draft", "is_critical",
)  # fmt: skip


class AnalysisKeys:
    """Numbers that identify failed analyses. They are negative, and stay the same when rows are read again."""

    def __init__(self) -> None:
        self._keys: dict[tuple[int, str, str], int] = {}
        self._lock = threading.Lock()

    def of(self, scan_folder: int, source: str, job_key: str) -> int:
        """Return the number of an analysis; `job_key` is `CreateJobs_<builder uuid>` in any form of the UUID."""
        builder = "".join(char for char in job_key.removeprefix(LISTED_ANALYSIS) if char.isalnum()).lower()
        with self._lock:
            return self._keys.setdefault((scan_folder, source, builder), -1 - len(self._keys))


class Whole(Struct, frozen=True):
    """A summary of all jobs, for a table that has only the first jobs; the fields are those of `parts.FirstJobs`."""

    job_count: int
    source_count: int
    platform_count: int
    mixed: frozenset[str]
    sample: JobTable


class JobTable:
    """Columns of jobs. One thread changes them; any thread may read the first `row_count` rows."""

    def __init__(self, builders: Mapping[bytes, str], analyses: AnalysisKeys) -> None:
        self.moment: Moment = (0, 0)
        self.analyses = analyses
        self.folders: dict[int, str] = {}
        self.alive_count = 0
        self.whole: Whole | None = None
        """A summary of all jobs if the table has only the first jobs (`parts.FirstJobs`), else None."""
        self._builders = builders
        self._count = 0
        self._sorted = 0
        self._columns = {name: np.empty(0, kind) for name, kind in _NUMBERS.items()}
        self._pools = {name: TextPool(Texts([""])) for name in _POOLS}
        self._texts = {
            name: Texts([] if name == "source" else [""]) for name in _TEXTS
        }  # a row without a text has code 0, the code of ""
        self._formats = TextPool(Texts([""]))
        self.checks = CheckColumn()
        self.log_lines: LogLines | None = None
        """Reads job logs for filter terms that search log lines. If `log_lines` is None, all log lines count as empty."""
        self._late: dict[int, int] = {}
        self._sources = TextIndex(self._texts["source"])
        self._recent = {name: TextPool(self._texts[name], _MOST_RECENT) for name in ("reason", "error", "group")}

    # ------------------------------------------------------------------------------------------------------ reading rows

    def row_count(self) -> int:
        """Return the number of rows, including rows of deleted jobs."""
        return self._count

    def number(self, field: str) -> npt.NDArray[np.number]:
        """Return the numbers of all rows in the column `field`."""
        if field in _FACTS and field not in self._columns:
            return np.zeros(self._count, _FACTS[field])
        return self._columns[field][: self._count]

    def text(self, field: str) -> tuple[Rows, Texts]:
        """Return the texts of all rows in the column `field`, as a code for each row and a list of texts.

        A code is an index in the list.

        The field "cause" returns the column "group": the dependency that failed, or the masked error (`cause_of`).
        """
        field = "group" if field == "cause" else field
        if field == "format":
            return self.number(field).astype(np.int32), self._formats.texts
        if field == "check":
            return self.checks.text(self._count)
        return self._columns[field][: self._count], self._texts[field] if field in self._texts else self._pools[field].texts

    def read_log_lines(self, field: str, rows: Rows, check: Callable[[], None] | None) -> Sequence[str]:
        """Return the log lines with the level `field` ("error" or "warning") of the last run of each row.

        `check` is called before each log is read; it may raise an exception to stop. If it is None, no log is read, and rows whose
        logs were not read before have the text "".
        """
        jobs = list(zip(self._columns["id"][rows].tolist(), self._columns["run_key"][rows].tolist(), strict=True))
        if self.log_lines is None:
            return [""] * len(jobs)
        return self.log_lines.list_known(field, jobs) if check is None else self.log_lines.read(field, jobs, check)

    @property
    def platform_count(self) -> int:
        """Number of platforms that have jobs; failed analyses have no platform."""
        if self.whole is not None:
            return self.whole.platform_count
        is_job = (self.number("id") > 0) & self.number("alive").astype(np.bool_)
        return int(np.count_nonzero(np.bincount(self.number("platform")[is_job])))

    def value(self, field: str, row: int) -> int:
        """Return the value in a row of the numeric column `field`."""
        return int(self._columns[field][row])

    def words(self, field: str, row: int) -> str:
        """Return the text in a row of the text column `field`."""
        texts = self._texts[field] if field in self._texts else self._pools[field].texts
        return texts[int(self._columns[field][row])]

    def row_of(self, key: int) -> int:
        """Return the row number of a job in this table by its id (or analysis key), -1 if the job does not exist."""
        row = int(self._rows_of([key])[0])
        return row if row >= 0 and self._columns["alive"][row] else -1

    def rows_of(self, keys: Sequence[int] | Rows) -> Rows:
        """Return the row numbers of jobs in this table by their ids, -1 for jobs that do not exist."""
        rows = self._rows_of(keys)
        rows[~self._are_alive(rows)] = -1
        return rows

    def _are_alive(self, rows: Rows) -> Mask:
        alive = rows >= 0
        alive[alive] = self._columns["alive"][rows[alive]]
        return alive

    def _rows_of(self, keys: Sequence[int] | Rows) -> Rows:
        """Return the row numbers of jobs, also of deleted jobs; -1 for jobs that never had a row."""
        ids = self._columns["id"][: self._sorted]
        wanted = np.asarray(keys, np.int64)
        at = np.searchsorted(ids, wanted)
        rows = (
            np.where((at < self._sorted) & (ids[np.minimum(at, self._sorted - 1)] == wanted), at, -1)
            if self._sorted
            else np.full(len(wanted), -1)
        )
        if self._late:
            for place in np.flatnonzero(rows < 0).tolist():
                rows[place] = self._late.get(int(keys[place]), -1)
        return rows

    def warm(self) -> None:
        """Prepare the paths for sorting; may be called in another thread."""
        paths = self._texts["source"]
        paths.ranks(len(paths))

    # ----------------------------------------------------------------------------------------------------- changing rows

    def extend(self, numbers: Sequence[npt.NDArray[np.int64]], texts: Sequence[str], source: Codes, folder: Codes) -> None:
        """Add jobs, all with higher ids than existing jobs.

        Args:
            numbers: the columns of `_JOB_NUMBERS`.
            texts: platform, job key, UUID of the builder (hex) and reason of each job, joined with `BETWEEN`.
            source: codes of the paths of sources.
            folder: codes of the names of scan folders.
        """
        start, count = self.reserve(len(source)), len(source)
        part = {name: column[start : start + count] for name, column in self._columns.items()}
        for name, values in zip(_JOB_NUMBERS, numbers, strict=True):
            part[name][:] = np.minimum(values, np.iinfo(np.int32).max) if name == "duration_ms" else values
        part["source"][:], part["folder"][:], part["status"][:], part["alive"][:] = source, folder, part["stored_status"], True
        for name in part.keys() & {"error", "cause", "group", "flaky", "draft", *_FACTS}:
            part[name][:] = 0
        places, distinct = number_distinct(texts)  # `distinct` is short, because most jobs differ only in numbers
        platforms, keys, builders, reasons = zip(*(text.split(BETWEEN) for text in distinct), strict=True)
        names = {builder: self.builder_name(bytes.fromhex(builder)) for builder in set(builders)}
        for name, words in (("platform", platforms), ("key", keys), ("builder", [names[builder] for builder in builders])):
            part[name][:] = self._pools[name].codes(words)[places]
        are_few = len(set(reasons)) <= _FEW_REASONS
        codes = self._recent["reason"].codes(reasons) if are_few else self._texts["reason"].extend_distinct(reasons)
        part["reason"][:] = codes[places]
        self._count += count
        self.alive_count += count
        self._sorted = self._count

    def set_errors(self, rows: Sequence[tuple[int, str, str]]) -> None:
        """Set (job id, error, cause of failure) of jobs."""
        if rows:
            places = self._rows_of([job_id for job_id, _error, _cause in rows])
            _ids, errors, causes = zip(*rows, strict=True)
            self._columns["error"][places] = self._texts["error"].extend_distinct(errors)
            self._columns["cause"][places] = self._texts["cause"].extend_distinct(causes)
            groups = [cause or cause_of(error) for error, cause in zip(errors, causes, strict=True)]
            self._columns["group"][places] = self._texts["group"].extend_distinct(groups)

    def mark(self, column: str, job_ids: Sequence[int]) -> None:
        """Set the value of these jobs in a Boolean column ("flaky" or "draft") to True."""
        self._columns[column][self._rows_of(job_ids)] = True

    def set_facts(self, facts: Iterable[tuple[int, ContentFacts]]) -> None:
        """Set the facts that builders reported about products (such as the size of a picture), as pairs (job id, facts)."""
        listed = list(facts)
        rows = self._rows_of([job_id for job_id, _facts in listed])
        self._write_facts(rows, [facts for _job_id, facts in listed])

    def facts(self, row: int) -> ContentFacts | None:
        """Return the facts that the builder reported about the products of a row's job, None if it reported no facts."""
        if "format" not in self._columns:
            return None
        numbers = {name: self._columns[name][row].item() for name in NUMBER_FACTS}
        found = ContentFacts(**numbers, format=self._formats.texts[int(self._columns["format"][row])])
        return found if found != NO_FACTS else None

    def _write_facts(self, rows: Rows, facts: Sequence[ContentFacts | None]) -> None:
        if "format" not in self._columns:
            if not any(facts):
                return
            self._columns |= {name: np.zeros(len(self._columns["id"]), kind) for name, kind in _FACTS.items()}
        given_facts = [each or NO_FACTS for each in facts]
        for name in NUMBER_FACTS:
            self._columns[name][rows] = [getattr(each, name) for each in given_facts]
        self._columns["format"][rows] = [self._formats[each.format] for each in given_facts]

    def set_checks(self, found: Mapping[int, CheckMark]) -> None:
        """Set the findings of the checks in `aptui.yaml`, {job id: its findings}; all other jobs get none."""
        self.checks.set(self.rows_of(list(found)), list(found.values()))

    def builder_name(self, uuid: bytes) -> str:
        """Return the name of a builder."""
        return self._builders.get(uuid) or uuid_text(uuid)

    def put(self, news: JobChanged, source: int = -1) -> int:
        """Change the row of a job, or add a row; return the row's index. `source` is the code of the source path, -1 = unknown."""
        key = news.job_id or self.analyses.of(news.scan_folder, news.source, news.job_key)
        row = self._row_to_change(news, key, source)
        self._write(np.array([row]), [news], [STATUSES.index(news.status)], [news.completed_ms])
        return row

    def put_notices(self, news: Sequence[JobChanged], keys: Rows, statuses: Sequence[int], completed_ms: Sequence[int]) -> Rows:
        """Change the rows of the jobs in these notices, and add rows for new jobs; return the indexes of the rows.

        `keys` are job ids or analysis keys, each at most once. The call needs only a few passes over arrays, even for many jobs.
        """
        rows = self._rows_of(keys)
        for at in np.flatnonzero(~self._are_alive(rows)).tolist():
            rows[at] = self._row_to_change(news[at], int(keys[at]), -1)
        self._rename(rows, news)
        self._write(rows, news, statuses, completed_ms)
        return rows

    def _rename(self, rows: Rows, news: Sequence[JobChanged]) -> None:
        """Update the paths and scan folders of jobs whose source was renamed or moved."""
        paths, sources = self._texts["source"], self._columns["source"]
        for row, code, item in zip(rows.tolist(), sources[rows].tolist(), news, strict=True):
            if paths[code] != item.source:
                sources[row] = self._sources.code(item.source)
        folders = {folder: self.folder_code(folder) for folder in {item.scan_folder for item in news}}
        self._columns["folder"][rows] = [folders[item.scan_folder] for item in news]

    def _write(self, rows: Rows, items: Sequence[JobChanged], statuses: Sequence[int], completed_ms: Sequence[int]) -> None:
        if not items:
            return
        columns = self._columns
        platforms, keys, builders, reasons, errors, flaky, facts, *plain = zip(*map(_WRITTEN, items), strict=True)
        for name, texts in (("platform", platforms), ("key", tuple(map(describe_key, keys, builders))), ("builder", builders)):
            codes = self._pools[name].codes(texts)
            columns[name][rows] = np.where(codes, codes, columns[name][rows]) if name == "builder" else codes
        columns["reason"][rows] = self._recent["reason"].codes(reasons)
        columns["error"][rows] = self._recent["error"].codes(errors)
        for name, values in zip(_PLAIN, plain, strict=True):
            columns[name][rows] = values
        columns["flaky"][rows] = list(map(bool, flaky))
        self._write_facts(rows, facts)
        columns["completed_ms"][rows] = completed_ms
        columns["stored_status"][rows] = columns["status"][rows] = statuses
        has_failed = np.array(statuses) == FAILED
        columns["cause"][rows[~has_failed]] = 0
        columns["group"][rows] = 0
        failed = np.flatnonzero(has_failed)
        pairs = zip(columns["cause"][rows[failed]].tolist(), failed.tolist(), strict=True)
        groups = [self._texts["cause"][cause] if cause else cause_of(errors[place]) for cause, place in pairs]
        columns["group"][rows[failed]] = self._recent["group"].codes(groups)

    def drop(self, row: int) -> None:
        """Mark a row as dead, because its job no longer exists."""
        if self._columns["alive"][row]:
            self._columns["alive"][row] = False
            self.alive_count -= 1

    def show(self, rows: Rows, status: int) -> None:
        """Change the shown status of rows, not the stored one."""
        self._columns["status"][rows] = status

    def show_stored(self, rows: Rows) -> None:
        """Set the shown status of rows to their stored status."""
        self._columns["status"][rows] = self._columns["stored_status"][rows]

    def set_durations(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Set durations, given as pairs (job id, duration in ms); unknown jobs are ignored."""
        for job_id, duration_ms in pairs:
            row = self.row_of(job_id)
            if row >= 0:
                self._columns["duration_ms"][row] = duration_ms

    def set_source_id(self, row: int, source_id: int) -> None:
        """Set the id of a row's source, for queries of the database."""
        self._columns["source_id"][row] = source_id

    def reserve(self, count: int) -> int:
        """Reserve memory for `count` further rows, so that adding them moves no data; return the index of the first of them."""
        capacity = len(self._columns["id"])
        if self._count + count > capacity:
            size = max(self._count + count, int(capacity * 1.125) + 1024)
            for name, column in self._columns.items():
                wider = np.empty(size, column.dtype)
                wider[: self._count] = column[: self._count]
                self._columns[name] = wider
        return self._count

    def folder_code(self, scan_folder: int) -> int:
        """Return the number that stands for a scan folder's name in the column "folder"."""
        return self._pools["folder"][self.folders.get(scan_folder, "")]

    def _row_to_change(self, item: JobChanged, key: int, source: int) -> int:
        row = int(self._rows_of([key])[0])
        if row < 0:
            row = self.reserve(1)
            for column in self._columns.values():
                column[row] = 0
            self._columns["id"][row], self._late[key] = key, row
            self._columns["source"][row] = source if source >= 0 else self._sources.code(item.source)
            self._columns["folder"][row] = self.folder_code(item.scan_folder)
            self._count += 1  # from now on, other threads may read the row
        if not self._columns["alive"][row]:
            self._columns["alive"][row] = True
            self.alive_count += 1
        return row


def group_failures(table: JobTable) -> list[tuple[str, bool, list[int]]]:
    """Return why jobs failed: (cause, whether it is a failed dependency, rows), the most frequent cause first.

    A cause is the dependency that failed, or the first line of the error, with paths, numbers and names masked (`cause_of`).
    """
    groups: dict[tuple[str, bool], list[int]] = {}
    are_failed = (table.number("status") == FAILED) & table.number("alive").astype(np.bool_)
    for row in np.flatnonzero(are_failed).tolist():
        cause = table.words("cause", row)
        groups.setdefault((table.words("group", row), bool(cause)), []).append(row)
    return sorted(
        ((text, is_source, rows) for (text, is_source), rows in groups.items()), key=lambda group: (-len(group[2]), group[0])
    )


# `order_rows` sorts all rows of a table of jobs, by a column or with the most urgent jobs first.
#
# Rows may be added while the order is computed; the order contains only the rows that existed before.


def argsort(keys: npt.NDArray[np.int64]) -> Codes:
    """Return the stable order of `keys`.

    The method depends on the range of the keys. Numpy sorts numbers of 16 bits in linear time, so keys within a range of 32 bits
    are sorted twice, first by their low and then by their high 16 bits. Other keys are shifted left, their indexes are put into
    the low bits, and these numbers are sorted. If keys and indexes do not fit into 62 bits, numpy sorts the indexes by the keys,
    which is slowest.
    """
    count = len(keys)
    if not count:
        return np.empty(0, np.int32)
    bits = count.bit_length()
    least = keys.min()
    span = int(keys.max()) - int(least)
    if span < 1 << 32:
        digits = (keys - least).astype(np.uint32)
        low: Codes = np.argsort(digits.astype(np.uint16), kind="stable").astype(np.int32)
        return low[np.argsort((digits >> 16).astype(np.uint16)[low], kind="stable")] if span >> 16 else low
    if span >= 1 << (62 - bits):
        return np.argsort(keys, kind="stable").astype(np.int32)
    packed = (keys - least) << bits
    packed |= np.arange(count, dtype=np.int64)
    packed.sort()
    packed &= (1 << bits) - 1
    order: Codes = packed.astype(np.int32)
    return order


def gather(codes: npt.NDArray[np.integer], *, by_last: bool) -> Codes:
    """Return an order in which rows with equal codes are adjacent.

    Groups of rows are ordered by their first row or, if `by_last` is set, by their last row.
    """
    count = len(codes)
    first = np.full(int(codes.max(initial=-1)) + 1, -1 if by_last else count, np.int64)
    (np.maximum if by_last else np.minimum).at(first, codes, np.arange(count))
    return argsort(first[codes])


FAILED_FIRST = "failed_first"
"""The default order: failed jobs, jobs with errors, jobs with warnings, all other jobs, running jobs.

In each of these groups the newest job is first.
"""

WITH_WARNINGS = 2
"""The rank that `urgency_of` returns for completed jobs with warnings."""


def order_rows(table: JobTable, field: str, *, is_descending: bool) -> Codes:
    """Return all rows in the order of a column; rows with equal values stay in the order in which they were read.

    Running jobs count as the newest, because they complete next, and as the longest, because their end is unknown. In the order of
    reasons, failed jobs come first, ordered by their errors. In the order of statuses and in `FAILED_FIRST`, the newest job of
    each status comes first.
    """
    count = table.row_count()  # rows that another thread adds from now on are left out
    status = _first(table, "status", count)
    if field == "completed_ms":
        keys = _moments(table, status)
    elif field == FAILED_FIRST:
        newest = argsort(-_moments(table, status))
        places = urgency_of(table, status, slice(count))
        places[places > WITH_WARNINGS] = WITH_WARNINGS + 1  # waiting, cancelled and completed jobs are one group
        places[status == PROCESSING] = WITH_WARNINGS + 2
        return newest[argsort(places[newest])]
    elif field == "duration_ms":
        keys = _first(table, field, count).astype(np.int64)
        keys[np.isin(status, (PENDING, CANCELLED))] = 0
        keys[status == PROCESSING] = keys.max(initial=0) + 1
    elif field in ("id", "warnings", "errors"):
        keys = _first(table, field, count).astype(np.int64)
    elif field == "status":
        newest = argsort(-_moments(table, status))
        urgency = urgency_of(table, status, slice(count))[newest]
        return newest[argsort(-urgency if is_descending else urgency)]
    elif field == "reason":
        keys = _ranks(table, "reason", count)
        is_failed = (status == FAILED) & (_first(table, "error", count) > 0)
        errors = _ranks(table, "error", count)
        keys[is_failed] = errors[is_failed] - 1 - errors.max(initial=0)
    else:
        keys = _ranks(table, field, count)
    return argsort(-keys if is_descending else keys)


def order_of_sources(table: JobTable, rows: Codes, field: str, *, is_descending: bool) -> Codes:
    """Reorder `rows`, which are in the order of `field`, so that the rows of each source are together.

    The line of a source shows the value of one of its jobs: the largest number, the latest time, the worst status, or the first
    text. All rows of the source go to the place of this job.
    """
    if field == "status":
        by_last = is_descending
    else:
        by_last = field in ("completed_ms", "duration_ms", "id", "warnings", "errors") and not is_descending
    return rows[gather(table.text("source")[0][rows], by_last=by_last)]


def urgency_of(table: JobTable, status: npt.NDArray[np.number], rows: npt.NDArray[np.integer] | slice) -> npt.NDArray[np.int64]:
    """Return a rank for each row, the most urgent first.

    0 = failed, 1 = completed with errors, 2 = completed with warnings, 3 = running, 4 = waiting, 5 = cancelled, 6 = completed.
    """
    warnings, errors = table.number("warnings")[rows], table.number("errors")[rows]
    places: npt.NDArray[np.int64] = np.array((4, 3, 6, 0, 5), np.int64)[status]
    is_completed = status == COMPLETED
    places[is_completed & (warnings > 0)] = WITH_WARNINGS
    places[is_completed & (errors > 0)] = 1
    return places


def _first(table: JobTable, field: str, count: int) -> npt.NDArray[np.number]:
    """Return the first `count` values of a numeric column. They are copied, because other threads may change the column."""
    return table.number(field)[:count].copy()


def _moments(table: JobTable, status: npt.NDArray[np.number]) -> npt.NDArray[np.int64]:
    """Return the times (ms) at which rows completed; 0 for waiting jobs, a time after all others for running jobs."""
    moments: npt.NDArray[np.int64] = _first(table, "completed_ms", len(status)).astype(np.int64)
    moments[status == PENDING] = 0
    moments[status == PROCESSING] = moments.max(initial=0) + 1
    return moments


def _ranks(table: JobTable, field: str, count: int) -> npt.NDArray[np.int64]:
    codes, texts = table.text(field)
    # Each code is an index in `texts`, to which another thread may append. So the codes are copied before `len(texts)` is read:
    # then each of these indexes exists.
    codes = codes[:count].copy()
    ranks: npt.NDArray[np.int64] = texts.ranks(len(texts))[codes].astype(np.int64)
    return ranks


# `read_job_table` reads every job and every failed analysis of the asset database.


def read_job_table(reader: Reader, builders: Mapping[bytes, str], analyses: AnalysisKeys | None = None) -> JobTable:
    """Read every job and failed analysis, and the moment of this state, in one transaction; `builders` is {UUID: name}."""
    return build_job_table(read_job_parts(reader), builders, analyses)


def build_first_table(first: FirstJobs, builders: Mapping[bytes, str], analyses: AnalysisKeys) -> JobTable:
    """Return a table that has only the first jobs; its attribute `whole` is a summary of all jobs."""
    table = build_job_table(first.parts, builders, analyses)
    sample = build_job_table(first.sample, builders, analyses)
    table.whole = Whole(first.job_count, first.source_count, first.platform_count, first.mixed, sample)
    return table


def build_job_table(parts: Iterable[JobPart], builders: Mapping[bytes, str], analyses: AnalysisKeys | None = None) -> JobTable:
    """Return a table of the jobs in the parts that `read_job_parts` yields.

    Raises:
        InternalError: the last part (`Ending`) is missing.
    """
    table = JobTable(builders, analyses or AnalysisKeys())
    sources = _Sources(table)
    for part in parts:
        match part:
            case Beginning():
                table.moment, table.folders = part.moment, part.folders
                table.reserve(part.job_count)
            case SourcePiece():
                sources.extend(part.piece)
            case JobPiece():
                numbers = part.piece.arrays()
                codes = sources.codes_of(numbers[1])
                table.extend(numbers, part.piece.texts(), codes, sources.folders_of(codes))
            case Ending():
                _finish(table, part, sources)
                return table
    raise InternalError("the table of jobs is incomplete: its last part was not read")


class _Sources:
    """The sources of a table, in the order of their ids: the n-th source has the code n in the column of source paths."""

    def __init__(self, table: JobTable) -> None:
        self._table = table
        self._ids: list[npt.NDArray[np.int64]] = [np.empty(0, np.int64)]
        self._owners: list[npt.NDArray[np.int64]] = [np.empty(0, np.int64)]
        self._folders: Codes | None = None

    def extend(self, piece: Piece) -> None:
        """Add sources, all with higher ids than existing sources."""
        ids, owners = piece.arrays()
        self._ids, self._owners = [*self._ids, ids], [*self._owners, owners]
        self._table.text("source")[1].extend_joined(piece.joined, piece.count)

    def codes_of(self, source_ids: npt.NDArray[np.int64] | int) -> Codes:
        """Return the code of each source's path: `JobTable.text("source")[1][code]` is the path."""
        if len(self._ids) > 1:
            self._ids = [np.concatenate(self._ids)]
        codes: Codes = np.searchsorted(self._ids[0], source_ids).astype(np.int32)
        return codes

    def folders_of(self, codes: Codes) -> Codes:
        """Return for each source the code of its scan folder's name, as `JobTable.folder_code` returns it.

        Args:
            codes: the sources, as `codes_of` returns them.
        """
        if self._folders is None:
            names = np.zeros(max(self._table.folders, default=0) + 1, np.int32)
            for number in self._table.folders:
                names[number] = self._table.folder_code(number)
            self._folders = names[np.concatenate(self._owners)]
        return self._folders[codes]


def _finish(table: JobTable, part: Ending, sources: _Sources) -> None:
    table.set_errors(part.errors)
    table.set_facts(part.facts)
    table.mark("flaky", part.flaky)
    table.mark("draft", part.drafts)
    numbers = {table.folder_code(number): number for number in table.folders}
    for analysis in part.analyses:
        _put_analysis(table, analysis, sources, numbers)
    table.set_durations(part.foreign_durations)


def _put_analysis(table: JobTable, analysis: tuple[Any, ...], sources: _Sources, numbers: Mapping[int, int]) -> None:
    source_id, builder, warnings, errors, completed_ms, duration_ms, reason, error = analysis
    code = sources.codes_of(source_id)
    row = table.put(
        JobChanged(
            0, 0, RelPath(table.text("source")[1][int(code)]), numbers[int(sources.folders_of(code))], "all",
            f"{LISTED_ANALYSIS}{uuid_text(builder)}", table.builder_name(builder), STATUSES[FAILED], reason, error, warnings,
            errors, duration_ms, "", RunKey(0), completed_ms,
        ),
        int(code),
    )  # fmt: skip
    table.set_source_id(row, source_id)

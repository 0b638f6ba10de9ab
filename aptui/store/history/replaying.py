"""The database of a recording while it is replayed: as it was when the recording began, with the news up to a moment put in.

Jobs, failed analyses and their runs follow the news. Products, manifests and sessions are told by no news: they stay as they were.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from aptui.core.model import LISTED_ANALYSIS
from aptui.core.notices import JobChanged
from aptui.core.orders import Outcome
from aptui.core.paths import path_uuid
from aptui.store.db.schema import translate_errors
from aptui.store.db.uris import read_only_uri

_STATES = {
    "pending": ("waiting", 0), "processing": ("waiting", 0), "completed": ("completed", 4), "failed": ("failed", 2),
    "cancelled": ("cancelled", 2),
}  # fmt: skip
"""{status as people see it: (`aptui_jobs.state`, O3DE's `Jobs.Status`)}, as the engine writes them for what rests."""
_OUTCOMES = {"completed": Outcome.SUCCEEDED, "failed": Outcome.FAILED}
_PUT_JOB = """INSERT INTO Jobs(JobID, SourcePK, JobKey, Fingerprint, Platform, BuilderGuid, Status, JobRunKey, FirstFailLogTime,
    FirstFailLogFile, LastFailLogTime, LastFailLogFile, LastLogTime, LastLogFile, ErrorCount, WarningCount)
VALUES (:job_id, :source_id, :job_key, 0, :platform, :builder, :number, :run_key, 0, '', 0, '', :completed_ms, :log_file, :errors,
    :warnings)
ON CONFLICT(JobID) DO UPDATE SET Status = excluded.Status, JobRunKey = excluded.JobRunKey, LastLogFile = excluded.LastLogFile,
    LastLogTime = excluded.LastLogTime, ErrorCount = excluded.ErrorCount, WarningCount = excluded.WarningCount"""
_PUT_OWN = """INSERT INTO aptui_jobs(job_id, state, planned, error, reason, inputs, plan, duration_ms, completed_ms, failure_cause,
    escalation, origin, failure)
VALUES (:job_id, :state, NULL, :error, :reason, x'', x'', :duration_ms, :completed_ms, '', 0, '', '')
ON CONFLICT(job_id) DO UPDATE SET state = excluded.state, error = excluded.error, reason = excluded.reason, origin = '',
    duration_ms = excluded.duration_ms, failure_cause = '',
    completed_ms = CASE excluded.completed_ms WHEN 0 THEN completed_ms ELSE excluded.completed_ms END"""
_PUT_RUN = """INSERT OR REPLACE INTO aptui_runs(job_id, run_key, completed_ms, duration_ms, outcome, reason, error, log_file,
    fingerprint, version, products, step, origin)
VALUES (:job_id, :run_key, :completed_ms, :duration_ms, :outcome, :reason, :error, :log_file, 0, '', x'', '', '')"""
_PUT_RETRY = "INSERT OR REPLACE INTO aptui_retries(job_id, run_key, kinds) VALUES (:job_id, :run_key, :flaky)"
_PUT_DRAFT = "INSERT OR REPLACE INTO aptui_drafts(job_id) VALUES (:job_id)"
_DROP_DRAFT = "DELETE FROM aptui_drafts WHERE job_id = :job_id"
_PUT_ANALYSIS = """INSERT INTO aptui_analyses(source_id, builder, state, fingerprint, error, warnings, errors, duration_ms,
    completed_ms, log_file, reason, plans, failure)
VALUES (:source_id, :builder, :state, NULL, :error, :warnings, :errors, :duration_ms, :completed_ms, :log_file, :reason, x'', '')
ON CONFLICT(source_id, builder) DO UPDATE SET state = excluded.state, error = excluded.error, warnings = excluded.warnings,
    errors = excluded.errors, duration_ms = excluded.duration_ms, completed_ms = excluded.completed_ms,
    log_file = excluded.log_file, reason = excluded.reason"""


def copy_database(path: Path, copy: Path) -> None:
    """Write what a database holds at one moment into a new file; engine and readers go on meanwhile.

    Raises:
        HostError: it cannot be read, or not be written.
    """
    with translate_errors(path), closing(sqlite3.connect(read_only_uri(path), uri=True, timeout=30)) as database:
        database.execute("VACUUM INTO ?", (str(copy),))


class ReplayedDatabase:
    """The database that screens read while a recording is replayed; one thread calls this, readers may be any.

    Args:
        path: the database as it was when the recording began; it is moved aside, and what changes takes its place.
        builders: {name: UUID}, for jobs that come.

    Raises:
        HostError: it is no database, or the disk has no room for another one.
    """

    def __init__(self, path: Path, builders: dict[str, bytes]) -> None:
        self._path, self._builders = path, builders
        self._base, self._is_at_begin = path.with_name("begin.sqlite"), False
        path.replace(self._base)
        with translate_errors(path), ExitStack() as stack:
            self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=30)
            stack.callback(self._database.close)
            self._database.execute("PRAGMA trusted_schema = OFF")
            self.rewind()
            self._database.execute("PRAGMA journal_mode = WAL")
            self._database.execute("PRAGMA synchronous = OFF")
            stack.pop_all()

    def rewind(self) -> None:
        """Make everything as it was when the recording began."""
        if self._is_at_begin:
            return
        with translate_errors(self._path), closing(sqlite3.connect(read_only_uri(self._base), uri=True)) as base:
            base.backup(self._database)
        self._is_at_begin = True

    def moment(self) -> tuple[int, int]:
        """Return (epoch, seq) that the rows are of."""
        with translate_errors(self._path):
            found = dict(self._database.execute("SELECT key, value FROM aptui_state WHERE key IN ('epoch', 'seq')").fetchall())
        return int(found.get("epoch", 0)), int(found.get("seq", 0))

    def apply(self, news: Iterable[JobChanged], moment: tuple[int, int]) -> None:
        """Put news of jobs in, each job's newest last, so that the rows are of `moment`."""
        self._is_at_begin = False
        with translate_errors(self._path), self._transaction():
            for notice in news:
                if notice.job_id:
                    self._put_job(notice)
                else:
                    self._put_analysis(notice)
            for key, value in zip(("epoch", "seq"), moment, strict=True):
                self._database.execute("INSERT OR REPLACE INTO aptui_state(key, value) VALUES (?, ?)", (key, str(value)))

    def close(self) -> None:
        """Let go of the file."""
        self._database.close()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._database.execute("ROLLBACK")
            raise
        self._database.execute("COMMIT")

    def _put_job(self, notice: JobChanged) -> None:
        if not notice.status:
            self._database.execute("DELETE FROM Jobs WHERE JobID = ?", (notice.job_id,))
            return
        values = self._values(notice)
        values["builder"] = self._builders.get(notice.builder, bytes(16))
        self._database.execute(_PUT_JOB, values)
        self._database.execute(_PUT_OWN, values)
        if notice.is_run and notice.run_key and notice.status in _OUTCOMES:
            self._database.execute(_PUT_RUN, values | {"outcome": int(_OUTCOMES[notice.status])})
        if notice.flaky:
            self._database.execute(_PUT_RETRY, values)
        self._database.execute(_PUT_DRAFT if notice.is_draft else _DROP_DRAFT, values)

    def _put_analysis(self, notice: JobChanged) -> None:
        values = self._values(notice)
        values["builder"] = bytes.fromhex("".join(each for each in notice.job_key.removeprefix(LISTED_ANALYSIS) if each.isalnum()))
        if notice.status == "failed":
            self._database.execute(_PUT_ANALYSIS, values)
        else:
            # Which plans it has now, nobody said; it is listed no more.
            sql = "UPDATE aptui_analyses SET state = :state WHERE source_id = :source_id AND builder = :builder"
            self._database.execute(sql, values)

    def _values(self, notice: JobChanged) -> dict[str, Any]:
        state, number = _STATES.get(notice.status, _STATES["pending"])
        return {
            "job_id": notice.job_id, "source_id": self._source_id(notice), "job_key": notice.job_key, "platform": notice.platform,
            "state": state, "number": number, "run_key": notice.run_key, "completed_ms": notice.completed_ms,
            "duration_ms": notice.duration_ms, "log_file": notice.log_file, "errors": notice.errors, "warnings": notice.warnings,
            "error": notice.error, "reason": notice.reason, "flaky": notice.flaky,
        }  # fmt: skip

    def _source_id(self, notice: JobChanged) -> int:
        ask = self._database.execute
        found = ask("SELECT SourceID FROM Sources WHERE ScanFolderPK = ? AND SourceName = ?", (notice.scan_folder, notice.source))
        row = found.fetchone()
        if row is not None:
            return int(row[0])
        sql = "INSERT INTO Sources(ScanFolderPK, SourceName, SourceGuid, AnalysisFingerprint) VALUES (?, ?, ?, '')"
        return int(ask(sql, (notice.scan_folder, notice.source, path_uuid(notice.source))).lastrowid or 0)

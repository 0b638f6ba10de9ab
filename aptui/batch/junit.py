"""Jobs as JUnit XML, which every CI service reads.

The report has one test case for each job of the whole database, so that a second run gives the same report. A job that succeeded
after failed runs has a `flakyFailure` element for each failed run, as in Maven's Surefire (surefire-test-report.xsd). CI services
count this job as flaky.

Tests: `tests/batch/test_run.py`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape, quoteattr

from aptui.batch.reporter import job_name
from aptui.batch.summary import Summary, complains, log_path
from aptui.config.dirs import asset_database
from aptui.config.own_files import note_written
from aptui.core.model import describe_key
from aptui.core.notices import LogLevel
from aptui.shared.errors import HostError
from aptui.shared.files.replacing import replacing
from aptui.shared.printing import count, line
from aptui.store import joblog
from aptui.store.joblog import JobLogLine
from aptui.store.queries.logs import path_of
from aptui.store.queries.reader import JobRow, open_reader

if TYPE_CHECKING:
    from aptui.config.configuration import Config

MOST_LOG_LINES = 50
"""Maximum number of lines of a job's log in an element of the report: the errors in `failure`, the last lines in `system-out`."""
MOST_LOG_CHARACTERS, _LONGEST_LINE = 8192, 1000
"""Maximum number of characters of the text of one job, and of each of its lines."""
_NOT_XML = {0xFFFE: "\ufffd", 0xFFFF: "\ufffd"}
"""{character that XML 1.0 cannot contain: its replacement}; `printing.line` replaces control characters."""


def write_junit(file: str, config: Config, summary: Summary, fail_on: str | None = None) -> None:
    """Write the report atomically; jobs of platforms that were not selected are left out.

    `fail_on` is the level of `--fail-on`. With "error", a completed job with errors in its log is a failure in the report; with
    "warning", a completed job with warnings is a failure, too. The exit code follows the same rule.
    """
    with replacing(Path(os.path.abspath(file)), what=f"'{file}'") as stream:
        stream.writelines(f"{text}\n".encode() for text in _lines(config, summary, fail_on))
    note_written(file)


def _lines(config: Config, summary: Summary, fail_on: str | None) -> Iterator[str]:
    resting = set(config.project.resting_platforms)
    database = open_reader(asset_database(config.cache_dir))
    builders = {builder.uuid: builder.name for builder in config.project.builders}
    try:
        with database.snapshot():
            shown = [bool(row.flaky) for row in database.jobs() if row.platform not in resting]
            counts = (
                f'tests="{len(shown)}" failures="{summary.jobs_failed + len(summary.complaints)}" errors="0" skipped="0" '
                f'flakes="{sum(shown)}" time="{summary.seconds:.3f}"'
            )
            yield '<?xml version="1.0" encoding="UTF-8"?>'
            yield f"<testsuites {counts}>"
            yield f"<testsuite name={_quote(config.name)} {counts}>"
            for row in database.jobs():
                if row.platform not in resting:
                    yield from _case(row, builders, config.log_dir, is_failure=complains(row, fail_on))
            yield "</testsuite>"
            yield "</testsuites>"
    finally:
        database.close()


def _case(row: JobRow, builders: Mapping[bytes, str], log_dir: Path, *, is_failure: bool) -> Iterator[str]:
    name = job_name(row.source, row.platform, describe_key(row.job_key, builders.get(row.builder, "")))
    head = f'<testcase classname={_quote(row.source)} name={_quote(name)} time="{row.duration_s:.3f}"'
    if not row.log and not row.flaky and row.status != "failed" and not is_failure:
        yield f"{head}/>"
        return
    yield f"{head}>"
    counts = f"{count(row.warnings, 'warning')}, {count(row.errors, 'error')}"
    lines = _log_lines(row, log_dir) if row.status == "failed" or is_failure or row.warnings or row.errors else []
    if row.status == "failed" or is_failure:
        message = (row.error or "no reason given") if row.status == "failed" else f"{counts} in its log"
        yield f"<failure message={_quote(message)}>{_text(_list_reasons(lines))}</failure>"
    for kind in filter(None, row.flaky.split(", ")):
        yield f"<flakyFailure message={_quote(f'an earlier run of this job failed: {kind}')} type={_quote(kind)}/>"
    head = f"{counts}; {log_path(row.log, log_dir)}"
    yield f"<system-out>{_text([head, *(each.text for each in lines[-MOST_LOG_LINES:])])}</system-out>"
    yield "</testcase>"


def _log_lines(row: JobRow, log_dir: Path) -> list[JobLogLine]:
    """Return the lines of a job's log without its last line (`joblog.is_tally`), an empty list if the log was deleted."""
    try:
        return [each for each in joblog.parse(path_of(log_dir, row.log)) if not joblog.is_tally(each.text)] if row.log else []
    except HostError:
        return []


def _list_reasons(lines: Sequence[JobLogLine]) -> list[str]:
    """Return the errors of a log, otherwise its warnings, otherwise its last lines."""
    for level in (LogLevel.ERROR, LogLevel.WARNING):
        if found := [each.text for each in lines if each.level >= level]:
            return found[:MOST_LOG_LINES]
    return [each.text for each in lines[-MOST_LOG_LINES:]]


def _text(lines: Iterable[str]) -> str:
    """Return lines as the content of an element, cut at `MOST_LOG_CHARACTERS` characters."""
    text = "\n".join(_safe(each[:_LONGEST_LINE]) for each in lines)
    return escape(text[:MOST_LOG_CHARACTERS])


def _safe(text: str) -> str:
    return line(text).translate(_NOT_XML)


def _quote(text: str) -> str:
    return quoteattr(_safe(text))

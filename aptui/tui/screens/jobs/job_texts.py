"""Texts about a job: text to copy, a bug report, the explanation of its state. Also runs the configured checks in a thread."""

from __future__ import annotations

import platform
import re
import shlex
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import datetime
from itertools import takewhile
from pathlib import Path

from aptui import __version__
from aptui.core.asset_checks import Check
from aptui.core.fingerprint import MISSING
from aptui.core.model import describe_key
from aptui.core.notices import LogLevel
from aptui.shared.errors import KnownError
from aptui.shared.printing import sanitize
from aptui.store.joblog import JobLogLine, spoken
from aptui.store.queries.assets import edge_type, makers, sentence
from aptui.store.queries.checks import CheckMark, check_marks
from aptui.store.queries.reader import JobRow, Reader, RunRow, open_reader
from aptui.store.queries.session_history import OutcomeChange
from aptui.tui.background import LatestOnly
from aptui.tui.data.job_infos import JobRowInfo
from aptui.tui.frame.line import Part, Parts, width_of
from aptui.tui.screens.jobs.job_details import JobDetails, find_job
from aptui.tui.terminal.safety import glyph
from aptui.tui.widgets.cells import wrap
from aptui.tui.words import age_text, duration_text

_REST_FACTOR, _REST_S = 4, 1.0
"""Pause after a run of the checks: four times its duration plus one second, so that the checks use at most a fifth of one core."""


class CheckMarks:
    """The newest findings of the configured checks.

    The thread calls `wake` when it has new findings.
    """

    def __init__(self, database: Path, checks: Sequence[Check], wake: Callable[[], None]) -> None:
        self._database, self._checks, self._wake = database, tuple(checks), wake
        self._lock = threading.Lock()
        self._found: Mapping[int, CheckMark] | None = None
        self._worker = LatestOnly[None]("aptui-checks", self._check)

    def mark_stale(self) -> None:
        """Request a new run of the checks."""
        if self._checks:
            self._worker.put(None)

    def pop(self) -> Mapping[int, CheckMark] | None:
        """Return the findings of the last run of the checks, None if no run has succeeded since the last call."""
        with self._lock:
            found, self._found = self._found, None
            return found

    def close(self) -> None:
        """End the thread."""
        self._worker.close()

    def _check(self, _kind: str, _nothing: None) -> None:
        start = time.monotonic()
        try:
            with closing(open_reader(self._database)) as reader:
                found = check_marks(reader, self._checks)
        except KnownError:
            return  # ignored here, because the feed reports the error
        with self._lock:
            self._found = found
        self._wake()
        self._worker.stop.wait(_REST_S + _REST_FACTOR * (time.monotonic() - start))


_WORDS = {LogLevel.DEBUG: "DEBUG", LogLevel.INFO: "INFO", LogLevel.WARNING: "WARNING", LogLevel.ERROR: "ERROR"}
_BEFORE_ERROR = 3
_SHORT = 7
_TO_COME = {"pending": "Waits because", "processing": "Runs because"}
"""{status of a job whose newest run has not ended: label for the reason of the run}."""
_REGEX_SIGNS = re.compile(r"[.^$*+?{}\[\]|()\\#&~-]")


def moment(time_ms: int) -> str:
    """Return a local time with its day."""
    when = datetime.fromtimestamp(time_ms / 1000)  # noqa: DTZ006  # local time, for the user
    return f"{when:%Y-%m-%d %H:%M:%S}.{time_ms % 1000:03d}"


def line_text(line: JobLogLine, *, has_details: bool) -> str:
    """Return a log line in the form of the Asset Processor's Event Log, with its details in the lines below."""
    head = f"{moment(line.time_ms)} | {_WORDS.get(LogLevel(line.level), 'INFO')} | origin: {line.window} | {spoken(line.text)}"
    return "\n".join([head, *details(line.context)]) if has_details else head


def details(context: Iterable[tuple[str, str]]) -> list[str]:
    """Return the context of a log line as lines of text."""
    return [f"[{key}] = {value}" for key, value in context]


def log_text(lines: Sequence[JobLogLine], *, has_details: bool) -> str:
    """Return the text of the lines of a log."""
    return "\n".join(line_text(line, has_details=has_details) for line in lines)


def job_facts(job_details: JobDetails) -> list[tuple[str, str]]:
    """Return the known facts about a job and its shown run as (name, value)."""
    info, row, run = job_details.info, job_details.row, job_details.run
    ended, took = (moment(run.completed_ms), duration_text(run.duration_ms)) if run and run.completed_ms else ("", "")
    is_to_come = job_details.is_newest and info.status in _TO_COME
    error = (run.error if run else "") or (row.error if row else "") or info.error
    reason = info.reason if is_to_come else (run.reason if run else "") or info.reason
    if reason.strip() == error.strip():  # a refused job has its error message as its reason, and the error is shown already
        reason = ""
    facts = [
        ("Source", info.source),
        ("Scan folder", info.scan_folder),
        ("Job", f"{info.job_key}" + (f" (#{info.key})" if info.key > 0 else "")),
        ("Platform", info.platform),
        ("Builder", info.builder if info.builder != info.job_key else ""),
        (_TO_COME[info.status] if is_to_come else "Ran because", reason),
        *([("Last run", f"{ended}, {took}" if ended else "")] if is_to_come else [("Ended", ended), ("Took", took)]),
        ("Failing since", find_first_failure(job_details)),
        ("Flaky", f"succeeded after failed runs: {row.flaky}" if row and row.flaky and job_details.is_newest else ""),
        ("Draft", "the final version is pending or failed" if row and row.is_draft and job_details.is_newest else ""),
        ("Critical", "this job runs before other jobs" if row and row.is_critical else ""),
        ("Fingerprint", f"{run.fingerprint:016x}" if run and run.fingerprint else ""),
        ("Checks", info.check),
        ("Error", error.strip() if info.status == "failed" or not job_details.is_newest else ""),
    ]
    return [(name, value) for name, value in facts if value]


def find_first_failure(job_details: JobDetails) -> str:
    """Return time and commit of the first run in the current series of failed runs.

    Return "" if an older run is shown. Also return "" if the commit is unknown and only one run in a row has failed.
    """
    failing = job_details.failing if job_details.is_newest else None
    if failing is None:
        return ""
    failed = list(takewhile(lambda run: run.outcome and run.completed_ms >= failing.ended_ms, job_details.runs))
    if not failing.commit and len(failed) < 2:
        return ""
    return moment(failing.ended_ms) + f", commit {commit_text(failing)}" * bool(failing.commit)


def commit_text(change: OutcomeChange) -> str:
    """Return the short hash of the commit and its author."""
    return change.commit[:_SHORT] + f" ({change.author})" * bool(change.author)


def failing_text(failing: OutcomeChange, now_ms: int) -> str:
    """Return since which commit and for how long a job fails; if the commit cannot be the cause, only its hash is named."""
    age = age_text(now_ms - failing.ended_ms)
    if failing.is_after_checkout:
        return f"failing since {commit_text(failing)}, {age}"
    return f"failing for {age}" + f", at {failing.commit[:_SHORT]}" * bool(failing.commit)


def bug_report(job_details: JobDetails) -> str:
    """Return a report for the person who fixes the job, in Markdown."""
    info, run = job_details.info, job_details.run
    facts = [
        *job_facts(job_details),
        ("Status", info.status + (f", run {run.run_key}" if run else "")),
        ("With", f"aptui {__version__}, Python {platform.python_version()}, {platform.system()} {platform.machine()}"),
    ]
    title = f"### {sanitize(info.source)} {'failed' if info.status == 'failed' else info.status} on {sanitize(info.platform)}"
    body = [f"* {name}: {_code(value.partition(chr(10))[0])}" for name, value in facts]
    return "\n".join([title, "", *body, *_first_error(job_details)]) + "\n"


def _place_of_error(job_details: JobDetails) -> int | None:
    return next((at for at, line in enumerate(job_details.records) if line.level >= LogLevel.ERROR), None)


def first_error(job_details: JobDetails) -> str:
    """Return the job and its first error with details, in the form of a copied log.

    If the log has no error, use the error of the job; return "" if the job has no error.
    """
    at, info = _place_of_error(job_details), job_details.info
    text = info.error if at is None else line_text(job_details.records[at], has_details=True)
    return f"{info.source} ({info.platform})\n{text}" if text else ""


def _first_error(job_details: JobDetails) -> list[str]:
    at = _place_of_error(job_details)
    if at is None:
        return []
    lines = job_details.records[max(0, at - _BEFORE_ERROR) : at]
    text = log_text(lines, has_details=False).split("\n") if lines else []
    text += line_text(job_details.records[at], has_details=True).split("\n")
    fence = "`" * max(3, _longest_ticks("\n".join(text)) + 1)
    return ["", "First error:", "", fence, *map(sanitize, text), fence]


def _code(value: str) -> str:
    text = sanitize(value)
    ticks = "`" * (_longest_ticks(text) + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{ticks}{pad}{text}{pad}{ticks}"


def _longest_ticks(text: str) -> int:
    return max((len(found) for found in re.findall("`+", text)), default=0)


def rerun_command(info: JobRowInfo, project_dir: str) -> str:
    """Return the command that runs a job alone, "" for an analysis, which cannot run alone."""
    if info.key <= 0:
        return ""
    where = f"--project {shlex.quote(project_dir)} " if project_dir else ""
    return f"aptui rerun {where}'#{info.key}'"


def term(field: str, text: str) -> str:
    """Return a filter term that matches exactly this text."""
    pattern = _REGEX_SIGNS.sub(lambda found: f"\\{found[0]}", text).replace('"', '\\"')
    return f'{field}:"^{pattern}$"'


_LABEL_CELLS = 14
_MOST = 200


def why_lines(database: Path, info: JobRowInfo, width: int = 200) -> list[Parts]:
    """Return the lines of the sheet that explains a job; long lines are divided.

    Raises:
        KnownError: the database cannot be read.
    """
    with closing(open_reader(database)) as reader, reader.snapshot():
        row = find_job(reader, info)
        if row is None:
            return [(Part(" the job no longer exists", "muted"),)]
        return [line for text in explain_job(row, info.builder, reader) for line in break_line(text, width)]


def break_line(line: Parts, width: int) -> Iterator[Parts]:
    """Yield a line; if its last part is too long for `width`, continue that part in further lines, indented to its start."""
    lead, last, at = line[:-1], line[-1:], width_of(line[:-1])
    if not last or width_of(line) <= width or at > width * 2 // 3:
        yield line
        return
    rows = [last[0].text[start:end] for start, end in wrap(last[0].text, width - at)]
    yield (*lead, Part(rows[0], last[0].role))
    yield from ((Part(" " * at), Part(row.lstrip(), last[0].role)) for row in rows[1:])


def explain_job(row: JobRow, builder: str, reader: Reader) -> Iterator[Parts]:
    """Yield the explanation of a job: its state and reason, its last run, its inputs and products, its earlier runs."""
    runs = reader.runs_of(row.job_id) if row.job_id else []
    edges = [edge for edge in reader.edges_of(row.source_id) if edge.builder == row.builder]
    title = f"{row.platform} · {describe_key(row.job_key, builder)}" + (f"  #{row.job_id}" if row.job_id else "")
    yield ()
    yield (
        Part(f" {sanitize(row.source)}", "title"),
        Part(f"  {sanitize(title)}", "muted"),
    )
    yield (Part(f" {glyph(row.status)} {row.status}", row.status), Part(f": {sanitize(sentence(row, runs, edges, reader))}"))
    yield ()
    if row.error:
        yield from _pairs("Error", row.error.splitlines(), "error")
    if row.completed_ms:
        took = f"{moment(row.completed_ms)}, after {duration_text(int(row.duration_s * 1000))}"
        yield from _pairs(
            "Last run",
            [took + (f", builder {builder}" if builder else "") + (f", run {row.run_key}" if row.run_key else "")],
            "value",
        )
    if runs and runs[0].fingerprint:
        yield from _pairs("Fingerprint", [f"{runs[0].fingerprint:016x}"], "value")
    stages = makers(reader.source(row.source), reader)
    yield from _pairs("Made by", [f"{job.source}, {job.platform}: {job.job_key}: {reason}" for job, reason in stages], "path")
    products = [product.name for product in reader.products_of(row.job_id)] if row.job_id else []
    yield from _pairs("Products" if row.status == "completed" else "Last products", products, "path")
    yield from _pairs("Depends on", [f"{edge.target}  ({edge_type(edge.type_bits)})" for edge in edges], "value")
    yield from _pairs("Needed by", [path for path in reader.dependents_of(row.source) if path != row.source], "path")
    yield from _inputs(reader.inputs_of(row.job_id) if row.job_id else ())
    yield from _earlier(runs)


def _pairs(label: str, values: Sequence[str], role: str) -> Iterator[Parts]:
    for at, value in enumerate(values[:_MOST]):
        yield (Part(f" {label if not at else '':<{_LABEL_CELLS}}", "key"), Part(sanitize(value), role))
    if len(values) > _MOST:
        yield (Part(f" {'':<{_LABEL_CELLS}}"), Part(f"and {len(values) - _MOST:,} more", "muted"))


def _inputs(inputs: Sequence[tuple[str, str, str]]) -> Iterator[Parts]:
    if inputs:
        yield ()
        yield (Part(" Inputs of the last committed run", "header"),)
    width = max((len(kind) + 2 for kind, _name, _digest in inputs[:_MOST]), default=0)
    for kind, name, digest in inputs[:_MOST]:
        shown = digest if digest == MISSING else digest[:12]
        yield (Part(f"   {sanitize(kind):<{width}}", "muted"), Part(f"{sanitize(name)}  "), Part(sanitize(shown), "muted"))
    if len(inputs) > _MOST:
        yield (Part(f"   and {len(inputs) - _MOST:,} more", "muted"),)


def _earlier(runs: Sequence[RunRow]) -> Iterator[Parts]:
    if len(runs) > 1:
        yield ()
        yield (Part(" Earlier runs", "header"),)
    for run in runs[1:]:
        role = "completed" if run.outcome == 0 else "failed"
        error = f": {run.error.partition(chr(10))[0]}" if run.error else ""
        yield (
            Part(f"   {glyph(role)} ", role), Part(f"{moment(run.completed_ms)}  run {run.run_key:<8} ", "muted"),
            Part(sanitize(f"{run.reason}{error}")),
        )  # fmt: skip

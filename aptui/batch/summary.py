"""The result of a run: the state of the whole database and the work of this invocation, as text and as JSON.

A skipped job keeps its warnings, errors and failure, so that `--fail-on` gives the same result on a second run. All values except
`jobs_run`, `jobs_skipped`, `seconds`, `slowest` and `builders` are read from the database or reported by the engine.

Tests: `tests/batch/test_run.py`.
"""

from __future__ import annotations

import shlex
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field, to_builtins
from msgspec.structs import replace

from aptui.batch.reporter import Reporter, job_name
from aptui.config.dirs import asset_database
from aptui.core.asset_checks import CheckLevel
from aptui.core.model import describe_key
from aptui.core.project import RetryFailed
from aptui.core.retry import ENDLESS, FailureKind
from aptui.shared import printing
from aptui.store.db.schema import uuid_text
from aptui.store.queries.reader import JobRow, Reader, open_reader

if TYPE_CHECKING:
    from argparse import Namespace

    from aptui.config.configuration import Config
    from aptui.shared.result_store import SharingSum
    from aptui.store.queries.checks import CheckFinding
    from aptui.store.queries.session_history import JobPace

_MOST_LISTED, _MOST_FINDINGS = 10, 20
"""Maximum number of jobs in each list of the printed summary, and maximum number of printed check findings."""
_LIMITS = {
    FailureKind.TIMEOUT.value: "time limit",
    FailureKind.MEMORY.value: "memory limit",
    ENDLESS: "limit on consecutive runs",
}
"""{kind of a failure after which the job does not run again without a change: the limit that the job reached}."""
_MOST_FAILURES = 50
"""Maximum number of failures printed on a terminal; a pipe gets all failures."""


class _NamedJob(Struct, frozen=True):
    source: str
    platform: str
    job_key: str
    builder: str

    @property
    def title(self) -> str:
        """The displayed name of the job."""
        return job_name(self.source, self.platform, self.job_key)


class Failure(_NamedJob, frozen=True):
    """A job, or an analysis, that failed; `log` is an absolute path, "" if it has no log."""

    first_error: str
    log: str
    cause: str = ""


class SlowJob(_NamedJob, frozen=True):
    """A job whose last run took longer than usual by more than its tolerance (`session_history.JobPace.margin_ms`)."""

    duration_s: float
    median_s: float
    noise_s: float
    earlier_runs: int
    factor: float

    @property
    def pace(self) -> str:
        """The duration of the last run, and the usual duration."""
        usual = f"{printing.duration(self.median_s)} ± {printing.duration(self.noise_s)}"
        return f"{printing.duration(self.duration_s)}, usually {usual}"


class FlakyJob(_NamedJob, frozen=True):
    """A job that succeeded after failed runs; `failed_of` is the kind of the failure (`core.retry`)."""

    failed_of: str


class DraftJob(_NamedJob, frozen=True):
    """A job whose products are drafts (`core.quality`)."""


class Summary(Struct):
    """The result of a run; `jobs_pending` is 0 unless the run was interrupted or stopped.

    `complaints` are jobs that `--fail-on` counts as failed although they completed; their `first_error` is a text with the numbers
    of warnings and errors in their logs.

    `account` is a sentence about restored results and the time saved, "" if no result was restored and no shared
    cache is configured; `shared` has the counts of restored and made results.
    """

    sources: int = 0
    products: int = 0
    jobs_run: int = 0
    jobs_skipped: int = 0
    jobs_failed: int = 0
    jobs_pending: int = 0
    warnings: int = 0
    errors: int = 0
    seconds: float = 0.0
    failures: list[Failure] = field(default_factory=list)
    complaints: list[Failure] = field(default_factory=list)
    slowest: list[tuple[int, str]] = field(default_factory=list)
    builders: dict[str, tuple[int, int]] = field(default_factory=dict)
    is_interrupted: bool = False
    slower: list[SlowJob] = field(default_factory=list)
    is_too_slow: bool = False
    """Whether a job is slower than `--fail-on slower:` allows."""
    flaky: list[FlakyJob] = field(default_factory=list)
    is_too_flaky: bool = False
    """Whether `--fail-on flaky` is set and a job is flaky."""
    drafts: list[DraftJob] = field(default_factory=list)
    is_unfinished: bool = False
    """Whether `--require final` is set and a job has made only a draft."""
    stopped_after: str = ""
    """Reason for which `--stop-after` stopped the run."""
    is_count_partial: bool = False
    """Whether the run stopped before all sources were checked, so that more jobs are pending than were counted."""
    account: str = ""
    unknown: tuple[str, ...] = ()
    """For each source folder that cannot be read, the reason. The stored state of these folders is unchanged."""
    mistakes: tuple[str, ...] = ()
    """Mistakes in settings files of folders (`.aptui.yaml`), with file, line and column. All sources below these folders failed."""
    shared: dict[str, int] = field(default_factory=dict)
    findings: list[CheckFinding] = field(default_factory=list)
    left: list[tuple[str, str]] = field(default_factory=list)
    """(source, kind of its failure) of failed jobs that did not run again because nothing changed (`retry_failed`)."""

    @property
    def is_refused(self) -> bool:
        """Whether a check above the level `warn` has findings."""
        return any(finding.level != CheckLevel.WARN for finding in self.findings)

    def set_account(self, total: SharingSum, *, is_remote: bool) -> None:
        """Set `account` and `shared` from the counts of restored and made results.

        `account` stays empty if no result was restored and no shared cache is configured.
        """
        from aptui.shared.result_store import line

        self.account = line(total) if total.hits or is_remote else ""
        self.shared = to_builtins(total)

    def to_json(self) -> dict[str, Any]:
        """Return the object of `aptui batch --json`."""
        return {
            "sources": self.sources,
            "jobs_run": self.jobs_run,
            "jobs_skipped": self.jobs_skipped,
            "jobs_failed": self.jobs_failed,
            "jobs_not_retried": len(self.left),
            "jobs_pending": self.jobs_pending,
            "warnings": self.warnings,
            "errors": self.errors,
            "products": self.products,
            "seconds": round(self.seconds, 3),
            "interrupted": self.is_interrupted,
            **({"stopped_after": self.stopped_after, "pending_is_all": not self.is_count_partial} if self.stopped_after else {}),
            "unknown": list(self.unknown),
            **({"configuration": list(self.mistakes)} if self.mistakes else {}),
            "shared": self.shared,
            "failures": [_without(each, "cause") for each in self.failures],
            "slower": to_builtins(self.slower),
            "flaky": to_builtins(self.flaky),
            "drafts": to_builtins(self.drafts),
            **({"checks": to_builtins(self.findings)} if self.findings else {}),
            **({"complaints": [_without(each, "cause", "first_error") for each in self.complaints]} if self.complaints else {}),
        }

    def print_summary(self) -> None:
        """Print the summary as text to stdout."""
        self._print_slow()
        _print_failures("failed", self.failures, "aptui jobs --status failed")
        what = "completed jobs whose logs have lines that '--fail-on' does not allow"
        _print_failures(what, self.complaints, "aptui jobs --status warnings --status errors")
        self._print_left()
        slower = [f"{each.factor:>5.1f} times  {each.title}  {each.pace}" for each in self.slower]
        _print_list("slower than in earlier runs", slower, "yellow", "aptui jobs --slower")
        flaky = [f"{each.title}  {printing.line(each.failed_of)}" for each in self.flaky]
        _print_list("flaky: they succeeded only after a failed run", flaky, "yellow", "aptui jobs --filter is:flaky")
        what, colour = "drafts: their final products failed or are pending", "red" if self.is_unfinished else "yellow"
        _print_list(what, [each.title for each in self.drafts], colour, "aptui jobs --filter is:draft")
        self._print_findings()
        self.print_total()

    def print_total(self) -> None:
        """Print the line with the counts of the summary."""
        parts = [printing.count(self.jobs_run, "job") + " run", f"{self.jobs_skipped:,} skipped", f"{self.jobs_failed:,} failed"]
        if self.jobs_pending or self.is_count_partial:
            least = "at least " if self.is_count_partial else ""
            parts.append(f"{least}{self.jobs_pending:,} {'not tried' if self.stopped_after else 'pending'}")
        parts += [printing.count(self.warnings, "warning"), printing.count(self.errors, "error")]
        whole = f"{printing.count(self.sources, 'source')}, {printing.count(self.products, 'product')}"
        colour = "red" if self.jobs_failed else "yellow" if self.warnings or self.errors or self.is_interrupted else "green"
        lead = "interrupted: " if self.is_interrupted else ""
        if self.stopped_after:
            lead, colour = f"stopped after {printing.line(self.stopped_after)}: ", "red"
        printing.say(f"{lead}{', '.join(parts)}; {whole}; {printing.duration(self.seconds)}", colour)
        if self.account:
            printing.say(self.account)

    def _print_slow(self) -> None:
        if self.seconds < 1 or not self.jobs_run:
            return
        printing.say("slowest jobs:", "bold")
        for duration_ms, name in sorted(self.slowest, reverse=True):
            printing.say(f"  {printing.duration(duration_ms / 1000):>10}  {name}")
        printing.say("builders:", "bold")
        for name, (count, total_ms) in sorted(self.builders.items(), key=lambda item: -item[1][1]):
            printing.say(f"  {printing.duration(total_ms / 1000):>10}  {printing.line(name)}, {printing.count(count, 'job')}")

    def _print_findings(self) -> None:
        if self.findings:
            printing.say("checks:", "bold")
        for each in self.findings[:_MOST_FINDINGS]:
            about = printing.line(each.product or each.source or "all together")
            colour = "yellow" if each.level == CheckLevel.WARN else "red"
            printing.say(f"  {each.level}: {printing.line(each.check)}  {about}: {printing.line(each.what)}", colour)
        _say_more(len(self.findings) - _MOST_FINDINGS, "aptui check")

    def _print_left(self) -> None:
        if not self.left:
            return
        sources = {source for source, _kind in self.left}
        path = printing.line(shlex.quote(sources.pop())) if len(sources) == 1 else "PATH"
        kinds = {kind for _source, kind in self.left}
        limits = [text for kind, text in _LIMITS.items() if kind in kinds]
        is_one = len(self.left) == 1
        if kinds <= _LIMITS.keys():
            why = f"{'it' if is_one else 'they'} reached {'its' if is_one else 'their'} {' or '.join(limits)}"
        else:
            why = f"nothing changed since {'it' if is_one else 'they'} failed"
        head = f"{printing.count(len(self.left), 'failed job')} not run again: {why}"
        printing.say(f"{head}; 'aptui reprocess {path}' runs {'it' if is_one else 'them'}", "yellow")


def _print_list(head: str, lines: Sequence[str], colour: str, verb: str) -> None:
    if lines:
        printing.say(f"{head}:", "bold")
    for text in lines[:_MOST_LISTED]:
        printing.say(f"  {text}", colour)
    _say_more(len(lines) - _MOST_LISTED, verb)


def _print_failures(head: str, failures: list[Failure], verb: str) -> None:
    shown = failures[:_MOST_FAILURES] if printing.is_terminal(sys.stdout) else failures
    if shown:
        printing.say(f"{head}:", "bold")
    for failure in shown:
        printing.say(f"  {job_name(failure.source, failure.platform, describe_key(failure.job_key, failure.builder))}", "red")
        printing.say(f"      {printing.line(failure.first_error) or 'no reason given'}")
        if failure.cause:
            printing.say(f"      after {printing.line(failure.cause)} failed")
        if failure.log:
            printing.say(f"      {printing.line(failure.log)}")
    _say_more(len(failures) - len(shown), verb)


def _say_more(count: int, verb: str) -> None:
    if count > 0:
        printing.say(f"  and {count:,} more: {verb}")


def _without(failure: Failure, *keys: str) -> dict[str, str]:
    return {key: value for key, value in to_builtins(failure).items() if key not in keys}


def complains(row: JobRow, fail_on: str | None) -> bool:
    """Whether a completed job counts as failed for `--fail-on`."""
    if fail_on is None or row.status == "failed":
        return False
    return row.errors > 0 or (fail_on == "warning" and row.warnings > 0)


def complete(summary: Summary, config: Config, wanted: Namespace, began_ms: int) -> None:
    """Add to the summary the jobs that the options of `report_arguments` select, and the findings of checks.

    Checks that start a program do not run; their findings are left out.

    Args:
        wanted: the values of these options. If no job ran and `--json` is not set, slow, flaky and draft jobs are found only if
            an option needs them.
    """
    asked, builders = _find_asked_platforms(config), {builder.uuid: builder.name for builder in config.project.builders}
    is_all = bool(summary.jobs_run or wanted.json)
    with closing(open_reader(asset_database(config.cache_dir))) as database:

        def rows_of(ids: Iterable[int]) -> list[JobRow]:
            return [row for job_id in ids if (row := database.job(job_id)) is not None and row.platform in asked]

        if summary.jobs_failed:
            is_any = config.project.retry_failed is RetryFailed.CHANGED
            failed = [(source, kind) for source, platform, kind in database.failures_before(began_ms) if platform in asked]
            summary.left = [(source, kind) for source, kind in failed if is_any or kind in _LIMITS]
        if is_all or wanted.fail_slower is not None:
            from aptui.store.queries import session_history

            paces = session_history.slower_jobs(database)
            slower = [_slow_job(row, paces[row.job_id], builders) for row in rows_of(paces)]
            summary.slower = sorted(slower, key=lambda each: -each.factor)
            summary.is_too_slow = wanted.fail_slower is not None and any(each.factor >= wanted.fail_slower for each in slower)
        if is_all or wanted.fail_flaky:
            summary.flaky = [FlakyJob(*_name(row, builders), row.flaky) for row in rows_of(database.flaky_jobs())]
            summary.is_too_flaky = wanted.fail_flaky and bool(summary.flaky)
        if is_all or wanted.require:
            summary.drafts = [DraftJob(*_name(row, builders)) for row in rows_of(database.draft_jobs())]
            summary.is_unfinished = wanted.require is not None and bool(summary.drafts)
        if config.checks:
            from aptui.store.queries.checks import findings  # imported on demand, because only projects with checks need it

            summary.findings = findings(database, config.checks, config.project.resting_platforms)
        if wanted.fail_on is not None and (summary.errors or summary.warnings):
            for row in database.jobs():
                if row.platform in asked and complains(row, wanted.fail_on):
                    text = f"{printing.count(row.warnings, 'warning')}, {printing.count(row.errors, 'error')} in its log"
                    summary.complaints.append(replace(_failure(row, config.log_dir, builders), first_error=text))


def _slow_job(row: JobRow, pace: JobPace, builders: Mapping[bytes, str]) -> SlowJob:
    now_s, median_s, noise_s = (round(ms / 1000, 3) for ms in (pace.now_ms, pace.median_ms, pace.noise_ms))
    return SlowJob(*_name(row, builders), now_s, median_s, noise_s, pace.runs, round(pace.factor, 2))


def findings_line(found: Sequence[CheckFinding], count: int) -> str:
    """Return one line that summarises what `count` checks found."""
    levels = Counter(each.level for each in found)
    level_counts = ", ".join(f"{levels[level.value]:,} {level.value}" for level in CheckLevel if levels[level.value])
    return (
        f"{printing.count(count, 'check')}: {printing.count(len(found), 'finding')}{f' ({level_counts})' if level_counts else ''}"
    )


def collect(config: Config, reporter: Reporter, jobs_run: int, builders: Mapping[bytes, str]) -> Summary:
    """Return the summary of a run that has ended.

    Args:
        reporter: the reporter of the run, which counted the jobs that ran and recorded the slowest of them.
        jobs_run: number of processing runs.
        builders: {uuid: name} of all builders of the engine.
    """
    with closing(open_reader(asset_database(config.cache_dir))) as database, database.snapshot():
        summary = _partial(config, database) if config.project.resting_platforms else _whole(database)
        if summary.jobs_failed:
            asked = _find_asked_platforms(config)
            failed = [row for row in database.jobs(statuses=("failed",)) if row.platform in asked]
            summary.failures = [_failure(row, config.log_dir, builders) for row in failed]
            if not config.project.resting_platforms:  # the totals count a failed analysis as a job
                summary.jobs_skipped -= sum(row.job_id == 0 for row in failed)
    summary.jobs_run = jobs_run
    summary.jobs_skipped = max(0, summary.jobs_skipped - reporter.jobs_run - summary.jobs_pending)
    summary.slowest, summary.builders = reporter.slowest, reporter.builders
    return summary


def _find_asked_platforms(config: Config) -> set[str]:
    """Return the platforms that the summary counts: those selected, `common`, and `all`, to which failed analyses belong."""
    return {*(platform.id for platform in config.project.platforms), "common", "all"}


def _whole(database: Reader) -> Summary:
    totals = database.totals()
    return Summary(
        sources=totals.sources,
        products=totals.products,
        jobs_skipped=sum(totals.jobs.values()),
        jobs_failed=totals.jobs["failed"],
        jobs_pending=totals.jobs["pending"] + totals.jobs["processing"],
        warnings=totals.warnings,
        errors=totals.errors,
    )


def _partial(config: Config, database: Reader) -> Summary:
    """Return a summary that counts only the jobs of the selected platforms.

    This is slower than `_whole`, so it is used only if some platforms are not selected.
    """
    summary = Summary(sources=database.totals().sources)
    for platform in _find_asked_platforms(config):
        for row in database.jobs(platform=platform):
            if row.platform != platform:
                continue
            summary.jobs_skipped += row.job_id != 0
            summary.jobs_failed += row.status == "failed"
            summary.jobs_pending += row.status in ("pending", "processing")
            summary.warnings += row.warnings
            summary.errors += row.errors
    prefixes = tuple(f"{platform}/" for platform in _find_asked_platforms(config))
    summary.products = sum(product.name.startswith(prefixes) for product in database.products())
    return summary


def _name(row: JobRow, builders: Mapping[bytes, str]) -> tuple[str, str, str, str]:
    return row.source, row.platform, row.job_key, builders.get(row.builder, uuid_text(row.builder))


def _failure(row: JobRow, log_dir: Path, builders: Mapping[bytes, str]) -> Failure:
    return Failure(*_name(row, builders), row.error, log_path(row.log, log_dir), row.failure_cause)


def log_path(log: str, log_dir: Path) -> str:
    """Return the absolute path of a log in text form, "" if the job has no log."""
    return f"{log_dir}/{log}" if log else ""

"""The result of a run: the state of the whole database and the work of this invocation, as text and as JSON.

A skipped job keeps its warnings, errors and failure, so that `--fail-on` gives the same result on a second run. Everything but
`jobs_run`, `jobs_skipped` and `seconds` is read from the database.

Tests: `tests/batch/test_run.py`.
"""

from __future__ import annotations

import shlex
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
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
from aptui.core.retry import FailureKind
from aptui.shared import printing
from aptui.store.db.schema import uuid_text
from aptui.store.queries.reader import JobRow, Reader, open_reader

if TYPE_CHECKING:
    from aptui.config.configuration import Config
    from aptui.shared.result_store import SharingSum
    from aptui.store.queries.checks import CheckFinding

_MOST_SLOWER = 10
_MOST_MARKED = 10
_MOST_FINDINGS = 20
_LIMITS = {FailureKind.TIMEOUT.value: "time limit", FailureKind.MEMORY.value: "memory limit"}
_MOST_FAILURES = 50
"""Maximum number of failures printed on a terminal; a pipe gets all failures."""


class _NamedJob(Struct, frozen=True):
    source: str
    platform: str
    job_key: str
    builder: str


class Failure(_NamedJob, frozen=True):
    """A job, or an analysis, that failed; `log` is an absolute path, "" if it has no log."""

    first_error: str
    log: str
    cause: str = ""


class SlowJob(_NamedJob, frozen=True):
    """A job whose last run was slower than the usual deviation of its earlier runs explains (`store.queries.session_history`)."""

    duration_s: float
    median_s: float
    noise_s: float
    earlier_runs: int
    factor: float


class FlakyJob(_NamedJob, frozen=True):
    """A job that succeeded after failed runs; `failed_of` is the kind of the failure (`core.retry`)."""

    failed_of: str


class DraftJob(_NamedJob, frozen=True):
    """A job whose products are drafts (`core.quality`)."""


class Summary(Struct):
    """The result of a run; `jobs_pending` is not 0 only if the run was interrupted or stopped.

    `complaints` are jobs that `--fail-on` counts as failed although they completed; their `first_error` counts the warnings and
    errors in their logs.

    `account` is a sentence about restored results and the time saved, "" if no results were looked up; `shared` has its counts.
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
    """Whether `--fail-on flaky` refuses some jobs."""
    drafts: list[DraftJob] = field(default_factory=list)
    is_unfinished: bool = False
    """Whether `--require final` refuses some jobs."""
    stopped_after: str = ""
    """Reason for which `--stop-after` stopped the run."""
    is_count_partial: bool = False
    """Whether the run stopped before all sources were checked, so that more jobs are pending than were counted."""
    account: str = ""
    unknown: tuple[str, ...] = ()
    """Reasons for source folders that cannot be read; their stored state is unchanged."""
    mistakes: tuple[str, ...] = ()
    """Mistakes in folder settings (`.aptui.yaml`), with file, line and column; all sources below them failed."""
    shared: dict[str, int] = field(default_factory=dict)
    findings: list[CheckFinding] = field(default_factory=list)
    """Findings of the checks of the configuration."""
    left: list[tuple[str, str]] = field(default_factory=list)
    """(source, kind of its failure) of failed jobs that did not run again because nothing changed (`retry_failed`)."""

    @property
    def is_refused(self) -> bool:
        """Whether a check above the level `warn` has findings."""
        return any(finding.level != CheckLevel.WARN for finding in self.findings)

    def take_account(self, total: SharingSum, *, is_remote: bool) -> None:
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
        self._print_failures("failed", self.failures, "aptui jobs --status failed")
        self._print_failures(
            "completed, but '--fail-on' counts what is in their logs",
            self.complaints,
            "aptui jobs --status warnings --status errors",
        )
        self._print_left()
        self._print_slower()
        self._print_flaky()
        self._print_drafts()
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

    def _print_slower(self) -> None:
        shown = self.slower[:_MOST_SLOWER]
        if shown:
            printing.say("slower than before:", "bold")
        for each in shown:
            name = job_name(each.source, each.platform, each.job_key)
            usual = f"{printing.duration(each.median_s)} ± {printing.duration(each.noise_s)}"
            printing.say(f"  {each.factor:>5.1f} times  {name}  {printing.duration(each.duration_s)}, before {usual}", "yellow")
        _say_more(len(self.slower) - len(shown), "aptui jobs --slower")

    def _print_flaky(self) -> None:
        job_names = [
            f"{job_name(each.source, each.platform, each.job_key)}  {printing.line(each.failed_of)}" for each in self.flaky
        ]
        self._print_marked("flaky: they succeeded after a failed run:", job_names, "yellow", "is:flaky")

    def _print_drafts(self) -> None:
        job_names = [job_name(each.source, each.platform, each.job_key) for each in self.drafts]
        colour = "red" if self.is_unfinished else "yellow"
        self._print_marked("drafts: their finals failed or are still to come:", job_names, colour, "is:draft")

    @staticmethod
    def _print_marked(head: str, job_names: Sequence[str], colour: str, terms: str) -> None:
        if job_names:
            printing.say(head, "bold")
        for line in job_names[:_MOST_MARKED]:
            printing.say(f"  {line}", colour)
        _say_more(len(job_names) - _MOST_MARKED, f"aptui jobs --filter {terms}")

    @staticmethod
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


def add_complaints(summary: Summary, config: Config, fail_on: str | None) -> None:
    """Add the completed jobs for which `--fail-on` ends the run with exit code 1."""
    if fail_on is None or not (summary.errors or summary.warnings):
        return
    builders = {builder.uuid: builder.name for builder in config.project.builders}
    with closing(open_reader(asset_database(config.cache_dir))) as database:
        asked = _find_asked_platforms(config)
        for row in database.jobs():
            if row.platform in asked and complains(row, fail_on):
                text = f"{printing.count(row.warnings, 'warning')}, {printing.count(row.errors, 'error')} in its log"
                summary.complaints.append(replace(failure_of(row, config.log_dir, builders), first_error=text))


def add_slower(summary: Summary, config: Config, builders: Mapping[bytes, str], limit: float | None) -> None:
    """Add the jobs that became slower, the worst first; `limit`: the factor from which a slower job is a failure."""
    from aptui.store.queries import session_history

    with closing(open_reader(asset_database(config.cache_dir))) as database:
        asked = _find_asked_platforms(config)
        for job_id, one in session_history.slower_jobs(database).items():
            row = database.job(job_id)
            if row is not None and row.platform in asked:
                name = builders.get(row.builder, uuid_text(row.builder))
                now_s, median_s, noise_s = (round(value / 1000, 3) for value in (one.now_ms, one.median_ms, one.noise_ms))
                summary.slower.append(
                    SlowJob(row.source, row.platform, row.job_key, name, now_s, median_s, noise_s, one.runs, round(one.factor, 2))
                )
    summary.slower.sort(key=lambda each: -each.factor)
    summary.is_too_slow = limit is not None and any(each.factor >= limit for each in summary.slower)


def add_flaky(summary: Summary, config: Config, *, is_failure: bool) -> None:
    """Add the jobs that succeeded after a failed run; `is_failure`: whether they set exit code 1."""
    marked = _list_marked(config, Reader.flaky_jobs)
    summary.flaky = [FlakyJob(row.source, row.platform, row.job_key, name, row.flaky) for row, name in marked]
    summary.is_too_flaky = is_failure and bool(marked)


def add_drafts(summary: Summary, config: Config, *, is_failure: bool) -> None:
    """Add the jobs whose products are drafts; `is_failure`: whether they set exit code 1."""
    marked = _list_marked(config, Reader.draft_jobs)
    summary.drafts = [DraftJob(row.source, row.platform, row.job_key, name) for row, name in marked]
    summary.is_unfinished = is_failure and bool(marked)


def _list_marked(config: Config, ids: Callable[[Reader], Sequence[int]]) -> list[tuple[JobRow, str]]:
    """Return the jobs of `ids` on the selected platforms, each with its builder's name."""
    builders = {builder.uuid: builder.name for builder in config.project.builders}
    asked = _find_asked_platforms(config)
    with closing(open_reader(asset_database(config.cache_dir))) as database:
        rows = [row for job_id in ids(database) if (row := database.job(job_id)) is not None and row.platform in asked]
    return [(row, builders.get(row.builder, uuid_text(row.builder))) for row in rows]


def add_left(summary: Summary, config: Config, began_ms: int) -> None:
    """Add the failed jobs that did not run since `began_ms` because `retry_failed` does not retry them."""
    if not summary.jobs_failed:
        return
    is_all, asked = config.project.retry_failed is RetryFailed.CHANGED, _find_asked_platforms(config)
    with closing(open_reader(asset_database(config.cache_dir))) as database:
        failed = database.failures_before(began_ms)
    summary.left = [(source, kind) for source, platform, kind in failed if platform in asked and (is_all or kind in _LIMITS)]


def findings_line(found: Sequence[CheckFinding], count: int) -> str:
    """Return the findings of a number of checks in one line."""
    levels = Counter(each.level for each in found)
    level_counts = ", ".join(f"{levels[level.value]:,} {level.value}" for level in CheckLevel if levels[level.value])
    return (
        f"{printing.count(count, 'check')}: {printing.count(len(found), 'finding')}{f' ({level_counts})' if level_counts else ''}"
    )


def add_findings(summary: Summary, config: Config) -> None:
    """Apply the checks of the configuration that need no program."""
    if not config.checks:
        return
    from aptui.store.queries.checks import findings  # this module is imported on demand, because only projects with checks need it

    with closing(open_reader(asset_database(config.cache_dir))) as database:
        summary.findings = findings(database, config.checks, config.project.resting_platforms)


def collect(config: Config, reporter: Reporter, jobs_run: int, builders: Mapping[bytes, str]) -> Summary:
    """Return the summary of a run that has ended.

    Args:
        config: the engine's configuration.
        reporter: the reporter of the run, which collected its facts.
        jobs_run: number of processing runs.
        builders: {uuid: name} of all builders of the engine.
    """
    with closing(open_reader(asset_database(config.cache_dir))) as database, database.snapshot():
        summary = _partial(config, database) if config.project.resting_platforms else _whole(database)
        if summary.jobs_failed:
            asked = _find_asked_platforms(config)
            failed = [row for row in database.jobs(statuses=("failed",)) if row.platform in asked]
            summary.failures = [failure_of(row, config.log_dir, builders) for row in failed]
            if not config.project.resting_platforms:  # totals count failed analyses as jobs
                summary.jobs_skipped -= sum(row.job_id == 0 for row in failed)
    summary.jobs_run = jobs_run
    summary.jobs_skipped = max(0, summary.jobs_skipped - reporter.jobs_run - summary.jobs_pending)
    summary.slowest, summary.builders = reporter.slowest, reporter.builders
    return summary


def _find_asked_platforms(config: Config) -> set[str]:
    """Return the platforms of the summary; failed analyses belong to the platform `all`."""
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
    """Count only the jobs of the selected platforms.

    This is slower than to count all jobs, so it is done only if platforms are left out.
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


def failure_of(row: JobRow, log_dir: Path, builders: Mapping[bytes, str]) -> Failure:
    """Convert the row of a failed job into a record of the report."""
    builder = builders.get(row.builder, uuid_text(row.builder))
    log = log_path(row.log, log_dir)
    return Failure(row.source, row.platform, row.job_key, builder, row.error, log, row.failure_cause)


def log_path(log: str, log_dir: Path) -> str:
    """Return the absolute path of a log in text form, "" if the job has no log."""
    return f"{log_dir}/{log}" if log else ""

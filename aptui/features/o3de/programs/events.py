"""Prints an engine's events as the lines of O3DE's asset processor.

This module also collects the numbers for the summary and for the report of times.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec import Struct

from aptui.core.model import LISTED_ANALYSIS
from aptui.core.notices import EngineMessage, JobChanged, LogLevel, Notice, Progress, SourcesChanged
from aptui.core.paths import os_path
from aptui.core.state.graph import CYCLE_PROBLEM, JOIN
from aptui.features.o3de.programs import phrases
from aptui.features.o3de.programs.phrases import ProgramConsole
from aptui.features.o3de.project_facts import StatsForm
from aptui.shared.errors import HostError
from aptui.store import joblog

# O3DE's asset processor prints a report of times when it ends. The functions below format the report from times that the caller
# measured. The statistics have the names of O3DE: `CreateJobs,<path>,<builder>` and
# `ProcessJob,<scan folder>,<path>,<job key>,<platform>,<{guid}>`. Reading files is not measured, so `HashFileTotal` is 0. The sums
# by job key and by platform differ from O3DE, because O3DE computes these two sums wrongly.

_MINUTE_MS, _HOUR_MS = 60_000, 3_600_000


class Stat(Struct, frozen=True):
    """Total duration of all runs of an operation, and the number of these runs."""

    total_ms: int
    count: int = 1

    def __add__(self, other: Stat) -> Stat:
        return Stat(self.total_ms + other.total_ms, self.count + other.count)

    @property
    def average_ms(self) -> int:
        """The average duration of a run of the operation, in whole milliseconds."""
        return self.total_ms // max(self.count, 1)


def report(stats: Mapping[str, Stat], form: StatsForm) -> list[str]:
    """Return the lines of the report of times in the forms that `form` requests, [] if it requests no form.

    Args:
        stats: {name: time}; `LoadingGems`, `AssetScanning`, `WarmingFileCache`, `InitialFileAssessment` and `ComputeStatsTime` are
            optional.
    """
    if not (form.is_human or form.is_machine):
        return []
    printer = _Printer(form)
    for name in ("LoadingGems", "AssetScanning", "WarmingFileCache", "InitialFileAssessment"):
        printer.row(name, stats.get(name, Stat(0)))
    printer.row("HashFileTotal", Stat(0, 0))
    if analyses := _of_kind(stats, "CreateJobs"):
        printer.row("CreateJobsTotal", sum(analyses.values(), Stat(0, 0)))
        printer.top("longest individual CreateJobs", analyses, form.individual)
        printer.top("longest CreateJobs By builder", _group(analyses, "CreateJobsByBuilder", -1), form.cumulative)
    if runs := _of_kind(stats, "ProcessJob"):
        printer.row("ProcessJobsTotal", sum(runs.values(), Stat(0, 0)))
        printer.top("longest individual ProcessJob", runs, form.individual)
        by_key, by_platform = _group(runs, "ProcessJobsByJobKey", -3), _group(runs, "ProcessJobsByPlatform", -2)
        printer.top("cumulative time spent in ProcessJob by JobKey", by_key, form.cumulative)
        printer.top("cumulative time spent in ProcessJob by Platform", by_platform, form.cumulative)
    printer.row("ComputeStatsTime", stats.get("ComputeStatsTime", Stat(0)))
    return printer.lines


def human_line(name: str, stat: Stat) -> str:
    """Return a row for people to read; count and average are shown only for several occurrences."""
    often = f"Count: {stat.count:4}, Average: {duration(stat.average_ms)}, " if stat.count > 1 else ""
    return f"    Time: {duration(stat.total_ms)}, {often}EventName: {name}"


def machine_line(name: str, stat: Stat) -> str:
    """Return a row for programs to parse."""
    return f"MachineReadableStat:{stat.total_ms}:{stat.count}:{stat.average_ms}:{name}"


def duration(total_ms: int) -> str:
    """Return a duration in the form `00h00m12s345ms`, with blanks in place of leading parts that are zero."""
    seconds, rest_ms = divmod(total_ms, 1000)
    text = f"{seconds // 3600:02}h{seconds // 60 % 60:02}m{seconds % 60:02}s{rest_ms:03}ms"
    cut = 0 if total_ms >= _HOUR_MS else 3 if total_ms >= _MINUTE_MS else 6 if total_ms >= 1000 else 9
    return " " * cut + text[cut:]


class _Printer:
    """Collects the lines of a report in the requested forms."""

    def __init__(self, form: StatsForm) -> None:
        self.lines: list[str] = []
        self._form = form

    def row(self, name: str, stat: Stat) -> None:
        if self._form.is_human:
            self.lines.append(human_line(name, stat))
        if self._form.is_machine:
            self.lines.append(machine_line(name, stat))

    def top(self, title: str, stats: Mapping[str, Stat], most: int) -> None:
        if self._form.is_human and stats and most:
            self.lines.append(f"Top {most} {title}")
        for name, stat in sorted(stats.items(), key=lambda item: (-item[1].total_ms, item[0]))[:most]:
            self.row(name, stat)


def _of_kind(stats: Mapping[str, Stat], kind: str) -> dict[str, Stat]:
    return {name: stat for name, stat in stats.items() if name.startswith(f"{kind},")}


def _group(stats: Mapping[str, Stat], title: str, field: int) -> dict[str, Stat]:
    """Return the sums of the statistics that have the same value in one field of their names.

    Fields are counted from the end, because a path can contain commas.
    """
    groups: dict[str, Stat] = {}
    for name, stat in stats.items():
        group = f"{title},{name.split(',')[field]}"
        groups[group] = groups.get(group, Stat(0, 0)) + stat
    return groups


_ENDED = frozenset({"completed", "failed"})


class EventPrinter:
    """Prints the events of one run. A call returns quickly, and never raises.

    Args:
        root_of: returns the path of the scan folder with the given id, "" = the id is unknown.
        builder_of: returns the UUID, in braces, of the builder with the given name.
    """

    def __init__(
        self,
        console: ProgramConsole,
        log_dir: Path,
        root_of: Callable[[int], str],
        builder_of: Callable[[str], str] = lambda name: name,
    ) -> None:
        self.processed_count = self.ended_count = 0
        self.warnings = self.errors = 0
        self.stats: dict[str, Stat] = {}
        self.processed_by: dict[str, list[str]] = {}
        """{builder's UUID: absolute paths of its processed sources, in order}."""
        self.files_seen = 0
        self.last_notice_s = time.time()
        """When the last event was received, in seconds since 1970."""
        self.scan_ms = 0
        self._console = console
        self._log_dir = log_dir
        self._root_of, self._builder_of = root_of, builder_of
        self._analysed: set[str] = set()
        self._failed: set[str] = set()
        self._failures: set[tuple[object, ...]] = set()
        self.is_scan_open = False
        """Whether a scan was started and its result is not printed yet."""
        self._is_end_printed = True
        self._reads_all = False
        self._began_s = 0.0

    def __call__(self, notice: Notice) -> None:
        """Handle one event."""
        self.last_notice_s = time.time()
        match notice:
            case JobChanged():
                self._job_changed(notice)
            case Progress():
                self._progress(notice)
            case SourcesChanged():
                self._analysed.update(rel for rel, is_present in notice.sources if is_present)
            case EngineMessage():
                self._print_message(notice)
            case _:
                pass

    def begin_scan(self, *, reads_all: bool = False) -> None:
        """Print that a scan starts; `reads_all`: every file is read completely, even if its size and times did not change."""
        self._reads_all = reads_all
        self._console.say(phrases.SCANNING)
        self._began_s = time.monotonic()
        self.is_scan_open, self._is_end_printed = True, False

    def end_scan(self, files_seen: int | None = None) -> None:
        """Print the end of the scan, unless it was printed already.

        A busy engine does not report the end of a scan, so the caller may call this method without a report.
        """
        if self._is_end_printed:
            return
        self._is_end_printed = True
        self.scan_ms = int((time.monotonic() - self._began_s) * 1000)
        self.files_seen = self.files_seen if files_seen is None else files_seen
        self._console.say_all(
            [phrases.SCANNED, phrases.ANALYZING, phrases.RECEIVED.format(self.files_seen), phrases.CHECKING_MISSING]
        )

    def end_analysis(self, source_count: int) -> None:
        """Print how many analyses were not needed; `source_count` is the number of sources in the database."""
        unclaimed = max(0, self.files_seen - source_count)
        in_full = self.files_seen if self._reads_all else min(len(self._analysed), self.files_seen)
        self._console.say(phrases.optimization(in_full, self.files_seen, unclaimed))
        self._analysed.clear()
        self.is_scan_open = False

    # ---------------------------------------------------------------------------------------------------------------- news

    def _job_changed(self, job: JobChanged) -> None:
        if job.job_key.startswith(LISTED_ANALYSIS):
            self._analysis_changed(job)
        elif job.status == "pending":
            self._console.note(f"Queued {job.source} ({job.platform}, {job.job_key}): {job.reason}")
        elif job.status == "processing":
            self._console.say(phrases.PROCESSING.format(job.source, job.platform))
        elif job.is_run and job.status in _ENDED and self._is_new(job):
            self._job_ended(job)

    def _is_new(self, job: JobChanged) -> bool:
        """Return whether the job ended just now.

        The engine also reports results of earlier runs, and may report a failure twice.
        """
        if job.status == "completed":
            return job.completed_ms >= self._console.started_ms
        failure = job.source, job.platform, job.job_key, job.run_key, job.completed_ms
        is_new = failure not in self._failures
        self._failures.add(failure)
        return is_new

    def _analysis_changed(self, job: JobChanged) -> None:
        if job.status not in _ENDED or not self._is_new(job):
            return
        self.ended_count += 1
        self._analysed.add(job.source)
        self._add(f"CreateJobs,{job.source},{job.builder}", job.duration_ms)
        if job.status == "failed":
            self._console.say(phrases.CREATE_JOBS_FAILED.format(self._path(job)))
            self._count_logged(job)
            self._replay(job)

    def _job_ended(self, job: JobChanged) -> None:
        path, builder = self._path(job), self._builder_of(job.builder)
        self.ended_count += 1
        self._count_logged(job)
        self._add(
            f"ProcessJob,{self._root_of(job.scan_folder)},{job.source},{job.job_key},{job.platform},{builder}", job.duration_ms
        )
        self.processed_by.setdefault(builder, []).append(path)
        if job.status == "completed":
            self.processed_count += 1
            self._console.say(phrases.PROCESSED.format(path, job.platform))
        else:
            self._console.say(phrases.JOB_FAILED.format(path, job.platform))
            self._replay(job)

    def _count_logged(self, job: JobChanged) -> None:
        self.warnings += job.warnings
        self.errors += job.errors

    def _replay(self, job: JobChanged) -> None:
        """Print the log of a failed job, but only for the first `phrases.MOST_FAILURES` failed assets."""
        path = self._path(job)
        if path in self._failed:
            return
        self._failed.add(path)
        if len(self._failed) > phrases.MOST_FAILURES:
            if len(self._failed) == phrases.MOST_FAILURES + 1:
                self._console.say(phrases.TOO_MANY_ERRORS)
            return
        for line in self._read_log(job):
            self._console.say(phrases.job_log(line.time_ms, line.level, line.window, line.text))

    def _read_log(self, job: JobChanged) -> list[joblog.JobLogLine]:
        """Return the log of a job, or its error if there is no log."""
        if job.log_file:
            try:
                return joblog.parse(self._log_dir / os_path(job.log_file))
            except HostError:
                pass
        return [joblog.JobLogLine(LogLevel.ERROR, phrases.WINDOW, job.error, job.completed_ms)] if job.error else []

    def _progress(self, progress: Progress) -> None:
        self.files_seen = max(self.files_seen, progress.files_scanned)
        if not progress.is_scanning:
            self.end_scan()

    def _print_message(self, message: EngineMessage) -> None:
        if message.text.startswith(CYCLE_PROBLEM):
            products = message.text.removeprefix(CYCLE_PROBLEM).split(JOIN)[:-1]
            for at in range(len(products)):  # as in O3DE, print the cycle several times, each time starting at another product
                self._complain(phrases.format_preload_cycle([*products[at:], *products[: at + 1]]))
        elif message.level >= LogLevel.ERROR:
            self._complain(message.text)
        elif message.level >= LogLevel.WARNING:
            self.warnings += 1
            self._console.warn(message.text)
        else:
            self._console.say(message.text)

    def _complain(self, text: str) -> None:
        self.errors += 1
        self._console.complain(text)

    def _path(self, job: JobChanged) -> str:
        root = self._root_of(job.scan_folder)
        return f"{root}/{job.source}" if root else job.source

    def _add(self, name: str, duration_ms: int) -> None:
        self.stats[name] = self.stats.get(name, Stat(0, 0)) + Stat(duration_ms)

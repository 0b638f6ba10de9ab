"""The report on times that O3DE's asset processor prints when it ends; nothing is measured here.

Names of statistics are those of the reference: `CreateJobs,<path>,<builder>`, `ProcessJob,<scan folder>,<path>,<job
key>,<platform>,<{guid}>`, `HashFile,<path>`. Unlike there, sums by job key and platform are what they say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from aptui.o3de.facts import StatsForm

_MINUTE_MS, _HOUR_MS = 60_000, 3_600_000
_ANALYSIS, _PROCESSING, _HASHING = "CreateJobs", "ProcessJob", "HashFile"


class Stat(Struct, frozen=True):
    """How long something took, and how often it happened."""

    total_ms: int
    count: int = 1

    def __add__(self, other: Stat) -> Stat:
        return Stat(self.total_ms + other.total_ms, self.count + other.count)

    @property
    def average_ms(self) -> int:
        """Return the average in whole milliseconds."""
        return self.total_ms // max(self.count, 1)


def report(stats: Mapping[str, Stat], form: StatsForm) -> list[str]:
    """Return the report's lines, none when neither form is wanted.

    Args:
        stats: {name: time}; `LoadingGems`, `AssetScanning`, `WarmingFileCache`, `InitialFileAssessment` and `ComputeStatsTime`
            count as 0 when they are not there.
    """
    if not (form.is_human or form.is_machine):
        return []
    printer = _Printer(form)
    for name in ("LoadingGems", "AssetScanning", "WarmingFileCache", "InitialFileAssessment"):
        printer.row(name, stats.get(name, Stat(0)))
    printer.row("HashFileTotal", _sum(stats, _HASHING))
    printer.top("longest individual file hashes:", _of_kind(stats, _HASHING), form.individual)
    if analyses := _of_kind(stats, _ANALYSIS):
        printer.row("CreateJobsTotal", _sum(stats, _ANALYSIS))
        printer.top("longest individual CreateJobs", analyses, form.individual)
        printer.top("longest CreateJobs By builder", _group(analyses, "CreateJobsByBuilder", -1), form.cumulative)
    if runs := _of_kind(stats, _PROCESSING):
        printer.row("ProcessJobsTotal", _sum(stats, _PROCESSING))
        printer.top("longest individual ProcessJob", runs, form.individual)
        by_key, by_platform = _group(runs, "ProcessJobsByJobKey", -3), _group(runs, "ProcessJobsByPlatform", -2)
        printer.top("cumulative time spent in ProcessJob by JobKey", by_key, form.cumulative)
        printer.top("cumulative time spent in ProcessJob by Platform", by_platform, form.cumulative)
    printer.row("ComputeStatsTime", stats.get("ComputeStatsTime", Stat(0)))
    return printer.lines


def human_line(name: str, stat: Stat) -> str:
    """Return a row for people; count and average only where there is more than one."""
    often = f"Count: {stat.count:4}, Average: {duration(stat.average_ms)}, " if stat.count > 1 else ""
    return f"    Time: {duration(stat.total_ms)}, {often}EventName: {name}"


def machine_line(name: str, stat: Stat) -> str:
    """Return a row for programs."""
    return f"MachineReadableStat:{stat.total_ms}:{stat.count}:{stat.average_ms}:{name}"


def duration(total_ms: int) -> str:
    """Return a duration in a column of its own: `00h00m12s345ms`, without the parts in front that are nothing."""
    seconds, rest_ms = divmod(total_ms, 1000)
    text = f"{seconds // 3600:02}h{seconds // 60 % 60:02}m{seconds % 60:02}s{rest_ms:03}ms"
    cut = 0 if total_ms >= _HOUR_MS else 3 if total_ms >= _MINUTE_MS else 6 if total_ms >= 1000 else 9
    return " " * cut + text[cut:]


class _Printer:
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


def _sum(stats: Mapping[str, Stat], kind: str) -> Stat:
    return _add_up(_of_kind(stats, kind).values())


def _add_up(stats: Iterable[Stat]) -> Stat:
    listed = list(stats)
    return Stat(sum(stat.total_ms for stat in listed), sum(stat.count for stat in listed))


def _group(stats: Mapping[str, Stat], title: str, field: int) -> dict[str, Stat]:
    """Return sums by one field of the names, counted from the end: a path may have commas of its own."""
    groups: dict[str, list[Stat]] = {}
    for name, stat in stats.items():
        groups.setdefault(f"{title},{_field(name, field)}", []).append(stat)
    return {name: _add_up(listed) for name, listed in groups.items()}


def _field(name: str, field: int) -> str:
    fields = name.split(",")
    return fields[field] if len(fields) >= -field else ""

"""Makes the lines of the sheets of `:history`, `:timeline`, `:size` and `:check`, in a background thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from aptui.config.configuration import Config
from aptui.core.asset_checks import CheckLevel
from aptui.features.insight.history_verb import (
    KINDS,
    Comparison,
    JobComparison,
    Timeline,
    compare,
    run_name,
    timeline,
    title_of,
    why,
)
from aptui.features.insight.size import SizeBy, add_growth, sizes
from aptui.shared import printing
from aptui.shared.printing import sanitize
from aptui.store.queries.checks import findings
from aptui.store.queries.reader import Reader
from aptui.store.queries.session_history import SessionRun, WorkSession, runs_of, session_named, sessions
from aptui.tui.frame.line import Part, Parts
from aptui.tui.terminal.safety import glyph
from aptui.tui.words import brief, shorten, size_text

NameOf = Callable[[bytes], str]
"""A function that returns a builder's name for its UUID."""
_LISTED = 500
_MOST = 200
"""Maximum number of lines of a list: `_LISTED` for sessions and sizes, `_MOST` for all other lists."""
_SLOWEST = 30
"""Maximum number of runs in the list of the slowest runs."""
_LEAST_BAR = 10
"""Minimum width (columns) of the area for bars, even on a narrow screen."""
_LABEL = 9
"""Width of a lane's label, in columns."""
_ROLES = {
    "began_to_fail": "failed", "still_failing": "failed", "mended": "completed", "slower": "warning", "faster": "completed",
}  # fmt: skip
"""{change of a job between two sessions: colour role}; all other changes have the default colour."""
_WIDE = 100
"""Minimum width in columns at which dates are shown with a year."""


def history(reader: Reader, words: Sequence[str], name_of: NameOf, width: int) -> list[Parts]:
    """Return the lines of `:history`: all sessions, one session, or the comparison of two sessions.

    Raises:
        UserError: a word is not a session.
    """
    chosen = sorted((session_named(reader, word) for word in words[:2]), key=lambda one: one.number)
    match chosen:
        case []:
            return [(), *_list_sessions(sessions(reader, _LISTED), width)]
        case [one]:
            return [(), *_title(one), *_list_runs(runs_of(reader, one.number), name_of, width)]
        case [old, new, *_]:
            return [(), *_compare(old, new, compare(reader, old, new), width)]
    raise AssertionError(words)


def _list_sessions(found: Sequence[WorkSession], width: int) -> Iterator[Parts]:
    if not found:
        yield (Part(" no session is stored yet", "muted"),)
        return
    cells = 11 if width < _WIDE else 16  # "11-28 15:10" or "2026-11-28 15:10"
    yield (Part(f" {'':>5}  {'began':<{cells}} {'took':>7} {'run':>8} {'failed':>7} {'failing':>7}  why", "header"),)
    for one in found:
        failed = f"{one.jobs_failed:,}" if one.jobs_failed else ""
        failing = f"{one.failing:,}" if one.failing else ""
        yield (
            Part(f" {one.number:>5}  ", "key"),
            Part(f"{printing.minute(one.started_ms)[-cells:]} {brief(round(one.seconds * 1000)):>7} {one.jobs_run:>8,} "),
            Part(f"{failed:>7} {failing:>7}", "failed" if failed or failing else ""),
            Part(f"  {shorten(sanitize(why(one)), max(10, width - cells - 43))}"),
        )
    yield ()
    yield (Part(" :history N shows a session, :history N M compares two, :timeline N shows how it spent its time", "muted"),)


def _title(one: WorkSession) -> Iterator[Parts]:
    yield (Part(f" Session {one.number}", "title"), Part(f"  {sanitize(why(one))}"))
    restored = f", {one.restored:,} restored" if one.restored else ""
    gone = f", {one.jobs_gone:,} gone" if one.jobs_gone else ""
    took = f" {printing.minute(one.started_ms)}, {brief(round(one.seconds * 1000))}: "
    yield (Part(f"{took}{one.jobs_run:,} run, {one.jobs_failed:,} failed{restored}{gone}"),)
    if one.commit:
        yield (Part(f" commit {one.commit[:12]}", "muted"),)


def _list_runs(runs: Sequence[SessionRun], name_of: NameOf, width: int) -> Iterator[Parts]:
    failed = [run for run in runs if run.is_failed]
    slowest = sorted((run for run in runs if not run.is_restored), key=lambda run: -run.duration_ms)[:_SLOWEST]
    for head, listed in (("Failed", failed), ("Slowest", slowest)):
        if listed:
            yield ()
            yield (Part(f" {head}", "header"),)
        for run in listed[:_MOST]:
            status = "failed" if run.is_failed else "completed"
            name = shorten(sanitize(f"{run_name(run)}  {name_of(run.builder)}"), max(10, width - 14))
            yield (Part(f"   {glyph(status)} ", status), Part(f"{brief(run.duration_ms):>7}  ", "muted"), Part(name))
        if len(listed) > _MOST:
            yield (Part(f"   and {len(listed) - _MOST:,} more", "muted"),)


def _compare(old: WorkSession, new: WorkSession, found: Comparison, width: int) -> Iterator[Parts]:
    yield (Part(f" From session {old.number} to {new.number}", "title"), Part(f"  {printing.count(found.jobs_run, 'job')} ran"))
    ends = f" {printing.minute(old.ended_ms)} to {printing.minute(new.ended_ms)}"
    yield (Part(f"{ends}; failed jobs: {old.failing:,} before, {new.failing:,} after"),)
    groups = [(title_of(kind).capitalize(), found.changes[kind], kind) for kind in KINDS if kind in found.changes]
    # One line with the headings of all groups comes first, so that a group below hundreds of failures is not overlooked.
    heads = [f"{len(changes):,} {head.lower()}" for head, changes, _kind in groups]
    yield (Part(f" {' · '.join(heads) or 'no differences'}", "muted"),)
    for head, changes, kind in groups:
        yield ()
        yield (Part(f" {head} ({len(changes):,})", "header"),)
        for change in changes[:_MOST]:
            name = shorten(sanitize(run_name(change.new)), max(10, width - 24))
            yield (Part(f"   {_figure(kind, change)}", _ROLES.get(kind, "")), Part(name))
    if found.gone:
        yield ()
        yield (Part(f" Gone ({len(found.gone):,})", "header"),)
    for source, platform, key, _builder in found.gone[:_MOST]:
        yield (Part(f"   {shorten(sanitize(f'{source}@{platform}:{key}'), max(10, width - 4))}"),)


def _figure(kind: str, change: JobComparison) -> str:
    if kind in ("slower", "faster"):
        return f"{change.pace.factor:5.1f} times  "
    if kind in ("grew", "shrank"):
        return f"{'+' if change.growth > 0 else '-'}{size_text(abs(change.growth)):<8} "
    return ""


# --------------------------------------------------------------------------------------------------------------- time line


def time_line(reader: Reader, words: Sequence[str], _name_of: NameOf, width: int) -> list[Parts]:
    """Return the lines of `:timeline`: the runs of the critical path, then a row of bars for each lane (`_lane`).

    Raises:
        UserError: the first of `words` does not name a session.
    """
    one = session_named(reader, words[0] if words else "last")
    found = timeline(reader, one.number)
    lines: list[Parts] = [(), *_title(one), ()]
    if not found.spans:
        return [*lines, (Part(" nothing ran", "muted"),)]
    cells = max(_LEAST_BAR, width - _LABEL - 2)
    span_ms = max(1, *(span.ended_ms for span in found.spans))
    lines.append((Part(f" Critical path: {printing.count(len(found.critical), 'job')}, {brief(found.critical_ms)}", "header"),))
    runs = {span.run.job_id: span.run for span in found.spans}
    for job_id in found.critical[-_MOST:]:
        run = runs[job_id]
        lines.append(
            (Part(f"   {brief(run.duration_ms):>7}  ", "muted"), Part(shorten(sanitize(run_name(run)), max(10, width - 14))))
        )
    lines += [(), *(_lane(lane, found, cells, span_ms) for lane in range(found.lane_count))]
    lines.append((Part(f"{'':{_LABEL}}0{brief(span_ms):>{cells - 1}}", "muted"),))
    return lines


def _lane(lane: int, found: Timeline, cells: int, span_ms: int) -> Parts:
    """Return the row of a lane: its runs as bars, `█` on the critical path, `▒` otherwise; failed runs have their own colour."""
    critical = set(found.critical)
    row = [("", " ")] * cells
    for span in found.spans:
        if span.lane != lane:
            continue
        first = max(0, min(cells - 1, span.began_ms * cells // span_ms))  # a changed clock can put a run before its session
        last = min(cells - 1, max(first, (span.ended_ms * cells - 1) // span_ms))
        is_critical = span.run.job_id in critical
        role = "failed" if span.run.is_failed else "title" if is_critical else "muted"
        for at in range(first, last + 1):
            if row[at][1] != "█":
                row[at] = (role, "█" if is_critical else "▒")
    parts = [Part(f" {f'lane {lane + 1}':<{_LABEL - 1}}", "key")]
    start = 0
    for at in range(1, cells + 1):
        if at == cells or row[at][0] != row[start][0]:
            parts.append(Part("".join(char for _role, char in row[start:at]), row[start][0]))
            start = at
    return tuple(parts)


# ------------------------------------------------------------------------------------------------------------------- sizes


def sizes_lines(reader: Reader, words: Sequence[str], name_of: NameOf, width: int) -> list[Parts]:
    """Return the lines of `:size`: sizes of products by folder, type, builder or platform.

    If a session is given, the lines also show the growth since that session.

    Raises:
        UserError: the second word is not a session.
    """
    by = SizeBy(words[0]) if words and words[0] in list(SizeBy) else SizeBy.FOLDER
    rows = sizes(reader, by, name_of)
    since = session_named(reader, words[1]) if len(words) > 1 and by is not SizeBy.TYPE else None
    if since is not None:
        rows = add_growth(reader, rows, by, name_of, 1, since)
    lines: list[Parts] = [
        (),
        (Part(f" Products by {by.value}", "title"), Part(f"  since session {since.number}" if since else "")),
        (),
    ]
    most = max((row.weight for row in rows), default=0)
    bar = max(_LEAST_BAR, width - 58)
    for row in rows[:_LISTED]:
        grew = f"{'+' if row.grew > 0 else '-'}{size_text(row.weight)}" if row.grew else ""
        cells = max(1, bar * row.weight // most) if row.weight else 0
        lines.append((
            Part(f" {shorten(sanitize(row.name), 30):<30} ", "path"), Part(f"{row.count:>8,} {size_text(row.size):>8} {grew:>9} "),
            Part("█" * cells, "muted"),
        ))  # fmt: skip
    return lines if rows else [*lines, (Part(" there are no products", "muted"),)]


# ------------------------------------------------------------------------------------------------------------------- checks

_MOST_FINDINGS = 100
"""Maximum number of listed findings of one check."""


def check_lines(config: Config | None, reader: Reader, words: Sequence[str], _name_of: NameOf, width: int) -> list[Parts]:
    """Return the lines of `:check`: the findings of all checks, or of the checks whose names are in `words`."""
    checks = [check for check in (config.checks if config is not None else ()) if not words or check.name in words]
    if not checks:
        return [(), (Part(" no checks are configured; add 'checks:' to aptui.yaml", "muted"),)]
    found = findings(reader, checks, config.project.resting_platforms if config is not None else ())
    lines: list[Parts] = [()]
    for check in checks:
        here = [finding for finding in found if finding.check == check.name]
        role = "completed" if not here else "warning" if check.level == CheckLevel.WARN else "failed"
        count = f"{len(here):,}" if here else "nothing found"
        lines.append((Part(f" {sanitize(check.name)}", "header"), Part(f"  {check.level}  ", "muted"), Part(count, role)))
        for finding in here[:_MOST_FINDINGS]:
            about = sanitize(finding.product or finding.source or "all together")
            what = sanitize(finding.what)
            free_width = max(10, width - len(what) - 8)
            lines.append((Part(f"   {shorten(about, free_width)}  ", "path"), Part(shorten(what, width - 6), role)))
        if len(here) > _MOST_FINDINGS:
            lines.append((Part(f"   and {len(here) - _MOST_FINDINGS:,} more; run 'aptui check'", "muted"),))
        if check.command or check.lint:
            lines.append((Part("   the commands and lint of this check run only with 'aptui check'", "muted"),))
    return lines

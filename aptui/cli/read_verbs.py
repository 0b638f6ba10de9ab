"""`jobs`, `status`, `builders`: print the contents of the database without an engine. A running engine adds its current work."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from aptui import feature
from aptui.batch.options import load_config, load_last_config
from aptui.batch.summary import findings_line, log_path
from aptui.cli.read_access import (
    OpenedProject,
    all_builders,
    as_running,
    counts,
    engine_answer,
    open_for_reading,
    resource_line,
    running_jobs,
)
from aptui.config import trust
from aptui.config.configuration import Config
from aptui.config.dirs import asset_database, own_folder
from aptui.core.model import describe_key
from aptui.core.paths import as_text
from aptui.shared import printing
from aptui.shared.errors import UserError
from aptui.store.queries import metrics, session_history
from aptui.store.queries.checks import CheckMark, check_marks, findings
from aptui.store.queries.reader import STATUSES, JobRow

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

_WITH = {"warnings": "warnings", "errors": "errors"}
"""{field of a job that counts log messages of one level: status that is displayed for `completed` if the count is not 0}."""

# -------------------------------------------------------------------------------------------------------------------- jobs


def jobs_arguments(parser: ArgumentParser) -> None:
    """Declare the options of `jobs`."""
    parser.add_argument(
        "--status",
        action="append",
        default=[],
        choices=(*STATUSES, *_WITH),
        metavar="STATUS",
        help=f"list only jobs with this status: {', '.join(STATUSES)}. warnings, errors: completed, but with such lines in"
        " the log. The option may be given several times",
    )
    parser.add_argument("--filter", metavar="TERMS", help="list only jobs that match all terms; see below")
    parser.add_argument("--platform", default="", metavar="ID", help="list only jobs of this platform")
    parser.add_argument(
        "--slower",
        action="store_true",
        help="list only jobs that became slower by more than the usual variation of their run times",
    )
    parser.add_argument("--json", action="store_true", help="print a JSON list")
    parser.epilog = """\
a term is a regular expression that is searched in the source path, or FIELD:REGEX with
status, platform, key, builder, source, reason, error, cause, folder or format;
after:TIME, slower:DURATION; width:>4096, and height, seconds, triangles, rate;
the name of a status matches that status; ! in front inverts a term; "…" allows spaces;
upper and lower case are equal:
  aptui jobs --filter 'textures/ !\\.tga$ builder:image after:2h slower:1.5s failed'"""


def jobs(arguments: Namespace) -> int:
    """List jobs."""
    config = load_last_config(arguments)
    running = running_jobs(config)
    if "processing" in arguments.status and not running and not engine_answer(config) and (process := engine_process(config)):
        text = f"process {process} uses the cache and answers no requests, as 'aptui batch' does; its running jobs count as pending"
        printing.complain(f"aptui: {text}", "yellow")
    with open_for_reading(arguments, config) as project:
        from aptui.store.jobs.parts import read_facts

        slower = session_history.slower_jobs(project.database)
        rows = _find_wanted_jobs(project, arguments, running)
        if arguments.slower:
            rows = (row for row in rows if row.job_id in slower)
        if arguments.json:
            facts, checks = dict(read_facts(project.database)), _checks(project)
            printing.say_json_list(
                {
                    **job_json(row, project),
                    "progress": _progress_share(running.get(row.job_id, -1)),
                    "slower": slower[row.job_id].to_json() if row.job_id in slower else None,
                    "facts": facts[row.job_id].all if row.job_id in facts else {},  # unknown facts are left out
                    "checks": checks[row.job_id].text if row.job_id in checks else "",
                }
                for row in rows
            )
        else:
            printing.table(
                ("source", "platform", "job key", "status", "duration", "warnings", "errors", "completed", "reason"),
                (
                    [
                        *_names(row, project),
                        _status(row, slower.get(row.job_id), running.get(row.job_id, -1)),
                        *_figures(row),
                        row.reason,
                    ]
                    for row in rows
                ),
                right=(4, 5, 6, 7),
                spare=(7, 4, 8, 6, 5),
            )
    return 0


def _find_wanted_jobs(project: OpenedProject, arguments: Namespace, running: Mapping[int, int]) -> Iterator[JobRow]:
    statuses = {"completed" if status in _WITH else status for status in arguments.status} if not running else ()
    rows = as_running(project.database.jobs(statuses=tuple(statuses), platform=arguments.platform), running)
    if arguments.status:
        rows = (row for row in rows if _has_status(row, arguments.status))
    return _filter_rows(list(rows), project, arguments.filter) if arguments.filter else rows


def _filter_rows(rows: list[JobRow], project: OpenedProject, terms: str) -> Iterator[JobRow]:
    # these modules are imported here, because only a filter needs them
    from aptui.store.jobs.filter import FilterError, TextMatch, parse
    from aptui.store.jobs.job_table import PROCESSING, read_job_table
    from aptui.store.queries.logs import LogLines

    text = as_text(terms)
    try:
        wanted = parse(text)
        wanted.check()
        table = read_job_table(project.database, {row.builder: project.builder_of(row.builder) for row in rows})
        table.log_lines = LogLines(asset_database(project.config.cache_dir), project.config.log_dir)
        if any(isinstance(term, TextMatch) and term.field == "check" for term in wanted.terms):
            table.set_checks(_checks(project))
        folders = {name: number for number, name in table.folders.items()}
        keys = [row.job_id or table.analyses.of(folders[row.scan_folder], row.source, row.job_key) for row in rows]
        places = table.rows_of(keys)
        table.show(places[[row.status == "processing" for row in rows]], PROCESSING)
        mask = wanted.matches(table, places)
    except FilterError as error:
        place = printing.line(text[error.column - 1 :])
        what = f"{printing.line(error.what)}, at '{place}'" if place else printing.line(error.what)
        raise UserError(what, where=f"{FILTER_PLACE}{error.column}", hint=error.hint) from None
    if wanted.hint:
        printing.complain(f"aptui: {printing.line(wanted.hint)}")
    return (row for row, passes in zip(rows, mask.tolist(), strict=True) if passes)


def _checks(project: OpenedProject) -> dict[int, CheckMark]:
    return check_marks(project.database, project.config.checks)


FILTER_PLACE = "--filter:"
"""Prefix of the position of a mistake in a filter; the column number follows."""


def job_lines(arguments: Namespace, terms: str) -> Iterator[str]:
    """Yield the number of jobs that match all terms, then one line for each job, for screen readers."""
    config = load_last_config(arguments)
    running = running_jobs(config)
    with open_for_reading(arguments, config) as project:
        everything = list(as_running(project.database.jobs(), running))
        rows = list(_filter_rows(everything, project, terms)) if terms else everything
        yield f"{len(rows):,} of {printing.count(len(everything), 'job')}"
        for row in rows:
            error = row.error.removeprefix(f"{row.source}:").lstrip()  # the path is already in the printed line
            why = f": {printing.line(error)}" if error else ""
            key = printing.line(describe_key(row.job_key, project.builder_of(row.builder)))
            status = _status(row, None, running.get(row.job_id, -1))
            yield f"{status}: {printing.line(row.source)}, {row.platform}, {key}, #{row.job_id}{why}"


def find_unsettled_jobs(arguments: Namespace) -> set[int]:
    """Return the ids of the waiting and running jobs."""
    config = load_last_config(arguments)
    running = running_jobs(config)
    with open_for_reading(arguments, config) as project:
        rows = as_running(project.database.jobs(), running)
        return {row.job_id for row in rows if row.status in ("pending", "processing")}


def _has_status(row: JobRow, statuses: list[str]) -> bool:
    is_completed = row.status == "completed"
    return (
        row.status in statuses
        or (is_completed and "warnings" in statuses and row.warnings > 0)
        or (is_completed and "errors" in statuses and row.errors > 0)
    )


def _names(row: JobRow, project: OpenedProject) -> tuple[str, str, str]:
    return row.source, row.platform, describe_key(row.job_key, project.builder_of(row.builder))


def _progress_share(percent: int) -> float | None:
    return percent / 100 if percent >= 0 else None


def _status(row: JobRow, slow: session_history.JobPace | None, percent: int) -> str:
    if row.status != "completed":
        return f"{row.status} {percent} %" if percent >= 0 else row.status
    text = "completed, errors" if row.errors else "completed, warnings" if row.warnings else "completed"
    text += ", restored" if row.is_restored else ""
    text += ", flaky" if row.flaky else ""
    text += ", draft" if row.is_draft else ""
    return f"{text}, {slow.factor:.1f} times slower" if slow is not None else text


def _figures(row: JobRow) -> tuple[str, str, str, str]:
    return printing.duration(row.duration_s), str(row.warnings or ""), str(row.errors or ""), printing.when(row.completed_ms)


def job_json(row: JobRow, project: OpenedProject) -> dict[str, Any]:
    """Return a job for `--json`."""
    return {
        "source": row.source,
        "scan_folder": row.scan_folder,
        "platform": row.platform,
        "job_key": row.job_key,
        "builder": project.builder_of(row.builder),
        "status": row.status,
        "reason": row.reason,
        "completed": printing.iso(row.completed_ms),
        "duration_s": row.duration_s,
        "warnings": row.warnings,
        "errors": row.errors,
        "log": log_path(row.log, project.config.log_dir),
        "job_id": row.job_id,
        "error": row.error,
        "failure_cause": row.failure_cause,
        "restored": row.is_restored,
        "flaky": row.flaky,
        "draft": row.is_draft,
    }


# ------------------------------------------------------------------------------------------------------------------ status


def status_arguments(parser: ArgumentParser) -> None:
    """Declare the options of `status`."""
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print one JSON object")
    form.add_argument(
        "--openmetrics", action="store_true", help="print figures in the OpenMetrics format, like /metrics of the gateway"
    )


def status(arguments: Namespace) -> int:
    """Show the totals of the project and the state of its engine."""
    from aptui.link import places
    from aptui.store.queries import checks as health

    if arguments.openmetrics:
        return _print_figures(arguments)
    config = load_last_config(arguments)
    running = running_jobs(config)
    with open_for_reading(arguments, config) as project:
        totals = project.database.totals()
        jobs = counts(project.database, totals.jobs, running)
        slower_count, flaky_count = len(session_history.slower_jobs(project.database)), len(project.database.flaky_jobs())
        draft_count, found = (
            len(project.database.draft_jobs()),
            findings(project.database, config.checks, config.project.resting_platforms),
        )
        product_bytes, last_ms = health.product_bytes(project.database), health.last_completed_ms(project.database)
    engine, gateway = engine_process(config), places.find_gateway(config.cache_dir)
    # An engine with a problem, such as a full disk, has released the lock of the cache, so only its answer shows that it runs.
    answer = engine_answer(config)
    engine = engine or (answer["pid"] if answer else engine)
    if arguments.json:
        printing.say_json(
            {
                "project": str(config.project_dir),
                "changed_since_trusted": trust.assess(config).changed,
                "engine_pid": engine,
                "gateway": gateway.url if gateway is not None and gateway.is_alive else "",
                "gateway_problem": gateway.problem if gateway is not None else "",
                "sources": totals.sources,
                "jobs": jobs,
                "warnings": totals.warnings,
                "errors": totals.errors,
                "slower_jobs": slower_count,
                "flaky_jobs": flaky_count,
                "draft_jobs": draft_count,
                "checks": Counter(each.level for each in found),
                "products": totals.products,
                "product_bytes": product_bytes,
                "last_job_completed": printing.iso(last_ms),
                "left": _estimate_left(answer),
                "resources": list(answer.get("resources", ())) if answer else [],
            }
        )
        return 0
    engine_text = _engine_line(answer) if answer else f"process {engine} uses the cache; its running jobs count as pending"
    state = {None: "unknown", 0: "not running"}.get(engine) or engine_text
    printing.say(f"project    {printing.line(config.name)}  {printing.line(os.fspath(config.project_dir))}")
    resting = config.project.resting_platforms
    resting_text = f"; not processed now: {', '.join(resting)}" if resting else ""
    printing.say(f"platforms  {', '.join(platform.id for platform in config.project.platforms)}{resting_text}")
    printing.say(f"engine     {state}")
    _print_changes(config)
    for use in answer.get("resources", ()) if answer else ():
        printing.say(f"resource   {resource_line(use)}")
    if gateway is not None or config.serve.is_enabled:
        printing.say(f"gateway    {printing.line(places.describe_gateway(gateway))}")
    printing.say(f"sources    {totals.sources:,}")
    printing.say(f"products   {totals.products:,}, {printing.size(product_bytes)}, in {printing.line(os.fspath(config.cache_dir))}")
    printing.say(f"last job   {printing.when(last_ms) or 'never'}")
    for name in STATUSES:
        if jobs[name] or name in ("completed", "failed"):
            printing.say(f"{name:<10} {jobs[name]:,}", "red" if name == "failed" and jobs[name] else "")
    printing.say(f"warnings   {totals.warnings:,}")
    printing.say(f"errors     {totals.errors:,}")
    if left := _estimate_left(answer):
        printing.say(f"left       {_format_left(left)}")
    if config.checks:
        more, colour = (": aptui check", "yellow") if found else ("", "")
        printing.say(f"checks     {findings_line(found, len(config.checks))}{more}", colour)
    if slower_count:
        printing.say(f"slower     {printing.count(slower_count, 'job')} compared with earlier runs: aptui jobs --slower", "yellow")
    if flaky_count:
        printing.say(f"flaky      {printing.count(flaky_count, 'job')}: aptui jobs --filter is:flaky", "yellow")
    if draft_count:
        printing.say(f"drafts     {printing.count(draft_count, 'job')}: aptui jobs --filter is:draft", "yellow")
    return 0


def _print_changes(config: Config) -> None:
    """Print which files changed since the user trusted the project."""
    if (state := trust.assess(config)).changed:
        from aptui.cli.trust_verb import change_lines  # imported here, because only a change needs the module

        for text in change_lines(config, state):
            printing.say(f"trust      {text}", "yellow")


def _print_figures(arguments: Namespace) -> int:
    document = feature.load_needed("figures")
    with open_for_reading(arguments) as project:
        sys.stdout.write(document(project.database, project.builder_of, engine_answer(project.config)))
    return 0


def _estimate_left(answer: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the engine's estimate of the time left. Return None if the engine is idle or has no estimate yet."""
    progress = (answer or {}).get("progress") or {}
    if progress.get("eta_ms", 0) <= 0 or (answer or {}).get("state") == "idle":  # the progress may be a tenth of a second old
        return None
    return {
        "seconds": progress["eta_ms"] / 1000,
        "least_seconds": progress["least_ms"] / 1000 if progress["least_ms"] > 0 else None,
    }


def _format_left(left: dict[str, Any]) -> str:
    text = f"about {printing.duration(max(1.0, left['seconds']))}"
    if left["least_seconds"] is not None:
        text += f", at least {printing.duration(left['least_seconds'])}"
    return text


def _engine_line(answer: dict[str, Any]) -> str:
    health = answer["health"]
    roots = [
        ": ".join(filter(None, (f"{root['path']} {root['mode']}", root["detail"])))
        for root in health["roots"]
        if root["mode"] != "native"
    ]
    troubles = [health[key] for key in ("disk", "database", "pool", "configuration") if health[key]]
    troubles += [f"changes held by {why}" for why in health["holds"]]
    facts = [f"process {answer['pid']}", str(answer["state"]), f"up {printing.duration(answer['uptime_s'])}"]
    facts += [printing.size(answer["rss_bytes"]), f"watching {printing.count(len(health['roots']), 'folder')}"]
    return printing.line("; ".join([", ".join(facts), *roots, *troubles]))


def engine_process(config: Config) -> int | None:
    """Return the id of the process that holds the cache's lock, 0 if no process holds the lock, None if this is unknown.

    The answer comes from the Linux kernel's list of locks. The lock itself is not tried, because an engine that starts at this
    moment could then fail to take it.
    """
    try:
        facts = os.stat(own_folder(config.cache_dir) / "lock")
        device = f"{os.major(facts.st_dev):02x}:{os.minor(facts.st_dev):02x}:{facts.st_ino}"
        with open("/proc/locks", encoding="ascii") as file:
            words = [text.split() for text in file]
    except FileNotFoundError:
        return 0 if os.path.exists("/proc/locks") else None
    except OSError:
        return None
    return next((int(word[4]) for word in words if word[1:2] == ["FLOCK"] and word[5:6] == [device]), 0)


# ---------------------------------------------------------------------------------------------------------------- builders


def builders_arguments(parser: ArgumentParser) -> None:
    """Declare the options of `builders`."""
    parser.add_argument("--json", action="store_true", help="print a JSON list")


def builders(arguments: Namespace) -> int:
    """List the builders with their numbers of jobs."""
    config = load_config(arguments)
    spent: dict[bytes, metrics.BuilderSpent] = {}
    slower: dict[bytes, session_history.JobPace] = {}
    if asset_database(config.cache_dir).is_file():
        with open_for_reading(arguments, config) as project:
            spent = {each.builder: each for each in metrics.builders_spent(project.database)}
            slower = session_history.slower_builders(project.database)
    rows = []
    for builder in all_builders(config):
        cost = spent.get(builder.uuid, metrics.BuilderSpent(builder.uuid))
        rows.append(
            {
                "name": builder.name,
                "kind": builder.kind.value,
                "version": builder.version,
                "patterns": [pattern.text for pattern in builder.patterns],
                "platforms": list(builder.platforms),
                "jobs": cost.jobs.count,
                "processing_s": cost.jobs.total_ms / 1000,
                "processing_average_s": round(cost.jobs.average_ms / 1000, 6),
                "slower_factor": round(slower[builder.uuid].factor, 2) if builder.uuid in slower else None,
                "analyses": cost.analyses.count,
                "analysis_s": cost.analyses.total_ms / 1000,
                "analysis_average_s": round(cost.analyses.average_ms / 1000, 6),
            }
        )
    if arguments.json:
        printing.say_json_list(rows)
        return 0
    header = ("builder", "kind", "version", "patterns", "platforms", "jobs", "total", "average", "analyses", "total", "average")
    printing.table(header, (_builder_cells(row) for row in rows), right=(5, 6, 7, 8, 9, 10), spare=(9, 6, 2, 4))
    return 0


def _builder_cells(row: dict[str, Any]) -> list[str]:
    texts = [row["name"], row["kind"], row["version"], " ".join(row["patterns"]), " ".join(row["platforms"])]
    for count, total, average in (
        ("jobs", "processing_s", "processing_average_s"),
        ("analyses", "analysis_s", "analysis_average_s"),
    ):
        texts.append(f"{row[count]:,}" if row[count] else "")
        texts += [printing.duration(row[name]) if row[count] else "" for name in (total, average)]
    if row["slower_factor"] is not None:
        texts[7] += f", {row['slower_factor']:.1f} times slower"
    return texts

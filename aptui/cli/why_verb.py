"""`why`: print the role of a file. For each of its jobs, also print the inputs, and why the job last ran, waits or failed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from aptui.batch.options import load_last_config
from aptui.batch.summary import log_path
from aptui.cli.log_verb import OUTCOMES
from aptui.cli.naming import find_job, find_source, jobs_named, meanings, unknown
from aptui.cli.read_access import OpenedProject, as_running, open_for_reading, running_jobs
from aptui.cli.read_verbs import engine_process, job_json
from aptui.core.fingerprint import MISSING
from aptui.core.model import describe_key
from aptui.core.orders import Outcome
from aptui.core.paths import as_text, os_path, product_at
from aptui.shared import printing
from aptui.store.queries.assets import dependents, edge_type, makers, sentence
from aptui.store.queries.reader import JobRow, Reader, RunRow, SourceRow

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

# `why` also reports whether a source was edited after the last scan, and from which source a file in the cache was made.

_PENDING_ADVICE = "the lines below describe the state before this change; run 'aptui batch' to process the change"


def describe_edit(source: SourceRow, database: Reader) -> str:
    """Return how a source's file differs from its state at the last scan, "" if it is unchanged."""
    fact = database.file(source.source)
    path = os_path(f"{source.root}/{source.source}")
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return f"its file was deleted since the last scan; {_PENDING_ADVICE}"
    except OSError:
        return ""
    if fact is None or (fact.size, fact.mtime_ns) == (found.st_size, found.st_mtime_ns):
        return ""
    # The database stores a digest in the row of the source and in the row of the file; one of the rows may be older.
    if _digest(path) in {source.digest, fact.digest} - {b""}:
        return ""
    return f"its file changed since the last scan; {_PENDING_ADVICE}"


def _digest(path: str) -> bytes:
    # imported here, because few sources were edited after the last scan
    from aptui.worker.file_access import FileChanged, hash_file

    try:
        return hash_file(path, sees_through=True)[0][0]
    except (FileChanged, OSError):
        return b""


def product_answer(
    word: str, project: OpenedProject, explain: Callable[[str, OpenedProject], dict[str, Any]]
) -> dict[str, Any] | None:
    """Return the answer of `why` about a path in the cache, None for any other path.

    Args:
        explain: returns the answer about a source.
    """
    cache = str(project.config.cache_dir)
    path = os.path.abspath(word)
    name = product_at(as_text(os.path.relpath(path, cache))) if path.startswith(f"{cache}/") else as_text(word)
    sql = "SELECT JobPK, ProductName FROM Products WHERE ProductName = ? COLLATE NOCASE"
    made = dict(project.database.ask(sql, (name,)).fetchall())
    rows = [row for row in map(project.database.job, made) if row is not None]
    if not rows:
        is_there = path.startswith(f"{cache}/") and os.path.lexists(path)
        return {"path": name, "is": "outside", "said": "it is in the cache, but no job made it", "jobs": []} if is_there else None
    answer = explain(rows[0].source, project)
    answer["jobs"] = [job for job in answer["jobs"] if job["job_id"] in made]
    return {**answer, "path": made[rows[0].job_id], "is": "product", "said": f"it was made from '{rows[0].source}'"}


_MOST_INPUTS = 20
"""Maximum number of listed inputs, and of names in a line."""


def why_arguments(parser: ArgumentParser) -> None:
    """Declare the options of `why`."""
    parser.add_argument("name", metavar="PATH|JOB", help="a file, #<number>, or PATH[@PLATFORM][:JOB KEY]")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def why(arguments: Namespace) -> int:
    """Explain a file or a job."""
    config = load_last_config(arguments)
    running = running_jobs(config)
    with open_for_reading(arguments, config) as project:
        answer = explain(arguments.name, replace(project, running=running))
    if arguments.json:
        printing.say_json(answer)
    else:
        for text, colour in _format_answer(answer):
            printing.say(text, colour)
    return 0


def explain(word: str, project: OpenedProject) -> dict[str, Any]:
    """Return the answer about the file or job that `word` names, as the object that `--json` prints.

    Raises:
        UserError: neither a file nor a job has that name.
    """
    config, database = project.config, project.database
    if word.startswith("#"):
        rows: list[JobRow] | None = [find_job(word, config, database)]
    else:
        rows = jobs_named(word, config, database)
    if rows is None:
        return product_answer(word, project, explain) or _without_jobs(word, project)
    source = database.source(rows[0].source) if rows else find_source(word, config, database)
    if source is None:
        find_job(word, config, database)  # raises an error, because no job of the file has this name
    answer = _source_answer(source, word, project)
    answer["made_by"] = [{**job_json(row, project), "said": text} for row, text in makers(source, database)]
    if not rows:
        answer["said"] = "it has no jobs: its analysis has not run yet, or created no job"
    answer["jobs"] = [_job_answer(row, source, project) for row in rows]
    return answer


def _source_answer(source: SourceRow | None, word: str, project: OpenedProject) -> dict[str, Any]:
    """Return facts about a path: the file that aptui uses, the overridden file, and the sources that depend on the path."""
    if source is None:
        return {"path": word, "is": "source"}
    answer: dict[str, Any] = {"path": source.source, "is": "source", "scan_folder": source.scan_folder}
    winner = f"{source.root}/{source.source}"
    here = as_text(os.path.abspath(word))
    hidden = [named.path for named in meanings(word, project.config)[:1] if named.path == here and here.lower() != winner.lower()]
    if hidden:
        answer["is"] = "overridden"
        answer["said"] = f"the file '{hidden[0]}' is overridden by '{winner}', whose scan folder takes precedence"
    answer["dependents"] = _dependents(source.source, hidden, project)
    answer["unprocessed"] = describe_edit(source, project.database)
    return answer


def _dependents(rel: str, hidden: Sequence[str], project: OpenedProject) -> list[str]:
    """Return the sources that depend on a path, and the sources that read the overridden files `hidden` (absolute paths)."""
    found = {name for path in hidden for name in project.database.dependents_of(path)}
    return sorted({*dependents(rel, project.database), *found})


# -------------------------------------------------------------------------------------------------------------------- jobs


def _job_answer(row: JobRow, source: SourceRow | None, project: OpenedProject) -> dict[str, Any]:
    database = project.database
    inputs = [entry for entry in database.inputs_of(row.job_id) if row.job_id]
    edges = [edge for edge in database.edges_of(row.source_id) if edge.builder == row.builder] if source else []
    runs = database.runs_of(row.job_id) if row.job_id else []
    row = next(as_running(iter([row]), project.running))
    answer = job_json(row, project)
    advice = "" if engine_process(project.config) else "; run 'aptui batch' to run it"
    answer["said"] = sentence(row, runs, edges, database, pending=advice)
    answer["inputs"] = [{"kind": kind, "name": name, "digest": digest} for kind, name, digest in inputs]
    answer["depends_on"] = [{"target": edge.target, "type": edge_type(edge.type_bits)} for edge in edges]
    answer["products"] = [product.name for product in database.products_of(row.job_id)] if row.job_id else []
    answer["runs"] = [_run_json(run, project) for run in runs]
    return answer


def _run_json(run: RunRow, project: OpenedProject) -> dict[str, Any]:
    return {
        "completed": printing.iso(run.completed_ms),
        "duration_s": run.duration_ms / 1000,
        "succeeded": run.outcome == Outcome.SUCCEEDED,
        "outcome": OUTCOMES.get(Outcome(run.outcome), "lost"),
        "reason": run.reason,
        "error": run.error,
        "log": log_path(run.log_file, project.config.log_dir),
    }


# ------------------------------------------------------------------------------------------------------ files without jobs


def _without_jobs(word: str, project: OpenedProject) -> dict[str, Any]:
    """Return the state of a file without jobs: ignored, without builder, outside, not scanned yet, or missing."""
    from aptui.cli import explain_verb

    found = [named for named in meanings(word, project.config) if named.rel and os.path.lexists(named.path)]
    if not found:
        outside = explain_verb.outside(word, project.config)
        if outside:
            return {"path": word, "is": "outside", "said": outside, "jobs": []}
        raise unknown(word, project.database)
    answer = {**explain_verb.explain_unwanted(found[0], project), "jobs": []}
    return {**answer, "dependents": _dependents(found[0].rel, [found[0].path], project)}


# ------------------------------------------------------------------------------------------------------------- text output


def _format_answer(answer: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield (line, colour) of the text output."""
    yield printing.line(answer["path"]), "bold"
    if "said" in answer:
        yield f"  {printing.line(answer['said'])}", ""
    if answer.get("unprocessed"):
        yield f"  {printing.line(answer['unprocessed'])}", "yellow"
    for job in answer.get("made_by", ()):
        maker = f"{job['source']}, {job['platform']}: {job['job_key']}"
        yield f"  made by {printing.line(maker)}: {printing.line(job['said'])}", ""
    for near in answer.get("near", ()):
        yield f"  similar pattern: {printing.line(near)}", ""
    for job in answer["jobs"]:
        yield from _describe_job(job)
    needing = answer.get("dependents")
    if needing:
        yield f"  needed by {printing.count(len(needing), 'source')}: {_list_names(needing)}", ""


def _describe_job(job: dict[str, Any]) -> Iterator[tuple[str, str]]:
    number = f"#{job['job_id']}  " if job["job_id"] else ""
    key = printing.line(describe_key(job["job_key"], job["builder"]))
    colour = {"failed": "red", "completed": "yellow" if job["warnings"] or job["errors"] else "green"}.get(job["status"], "yellow")
    yield (
        f"  {number}{printing.line(job['platform'])}: {key}: {job['status']}",
        colour,
    )
    yield f"      {printing.line(job['said'])}", ""
    if job["status"] == "failed":
        yield f"      error: {printing.line(job['error']) or 'no reason given'}", "red"
    elif job["warnings"] or job["errors"]:
        yield f"      {printing.count(job['warnings'], 'warning')}, {printing.count(job['errors'], 'error')} in its log", "yellow"
    if job["completed"]:
        yield (
            (
                f"      last run: {_local(job['completed'])}, {printing.duration(job['duration_s'])}, builder "
                f"{printing.line(job['builder'])}"
            ),
            "",
        )
    if job["log"]:
        yield f"      log: {printing.line(job['log'])}", ""
    yield from _describe_inputs(job)
    if job["products"]:
        products_name = "last good products" if job["status"] != "completed" else "products"
        yield f"      {products_name}: {_list_names(job['products'])}", ""
    elif job["status"] == "failed":
        yield "      it has no earlier products", ""


def _describe_inputs(job: dict[str, Any]) -> Iterator[tuple[str, str]]:
    inputs = [entry for entry in job["inputs"] if entry["kind"] != "rule"]
    if inputs:
        yield f"      {'made' if job['status'] == 'completed' else 'last good products were made'} of:", ""
    for entry in inputs[:_MOST_INPUTS]:
        digest = entry["digest"] if entry["digest"] == MISSING else entry["digest"][:12]
        yield f"        {entry['kind']} {printing.line(entry['name'])}  {digest}", ""
    if len(inputs) > _MOST_INPUTS:
        yield f"        and {len(inputs) - _MOST_INPUTS:,} more", ""
    declared = [f"{edge['target']} ({edge['type']})" for edge in job["depends_on"]]
    if declared:
        yield f"      declared to depend on: {_list_names(declared)}", ""
    for run in job["runs"][1:]:
        ending = "" if run["succeeded"] else f"{run['outcome']}; it ran because: "
        yield f"      before: {_local(run['completed'])}: {ending}{printing.line(run['reason'])}", "dim"


def _list_names(names: Sequence[str]) -> str:
    shown = ", ".join(printing.line(name) for name in names[:_MOST_INPUTS])
    return f"{shown} and {len(names) - _MOST_INPUTS:,} more" if len(names) > _MOST_INPUTS else shown


def _local(iso: str | None) -> str:
    """Convert a time in the answer to local time for display."""
    return datetime.fromisoformat(iso).astimezone().strftime("%Y-%m-%d %H:%M:%S") if iso else "never"
